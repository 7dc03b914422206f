"""Servers in containers: what one starts, with its environment, and the GPU that a pod is for."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import yaml

from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Location, Span, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.server_starts import ENGINES, engine_of, start_of, version_of
from blis_tui.spec.foreign.shell import Command, Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.source import Json, Source
    from blis_tui.spec.foreign.fleets import Part

_MOST_VALUES: Final = 100_000
"""A file with more values than that, with its anchors followed, is none that a person wrote."""
_CLUSTERS: Final = re.compile(r"\$\((\w+)\)")
_GPUS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "h200": "h200",
        "h100": "h100",
        "gb300": "gb300",
        "gb200": "gb200",
        "b300": "b300",
        "b200": "b200",
        "l40s": "l40s",
        "a100.*80": "a100-80",
        "a10g": "a10g",
        r"\bl4\b": "l4",
        "mi300x": "mi300x",
        "mi325x": "mi325x",
        "mi355x": "mi355x",
        "4090": "rtx-4090",
        "5090": "rtx-5090",
    }
)
_NODES: Final = ("nodeSelector", "affinity", "nodeSelectorTerms")


def documents(source: Source) -> list[dict[str, Json]]:
    """Return the maps of a file, with anchors and merge keys followed.

    Raises:
        SpecError: it is no YAML, or too large.
    """
    try:
        found = [as_map(cast("Json", one)) for one in yaml.safe_load_all(source.text)]
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        place = Location(source, Span(line, column, column + 1))
        text = printable(str(getattr(error, "problem", None) or "not YAML"))
        raise SpecError(
            [located("BLIS0001", text, place, hint="templates such as `{{TOKEN}}` are filled in first")]
        ) from None
    if sum(1 for one in found for _ in values(one)) >= _MOST_VALUES:
        raise SpecError([located("BLIS0001", "too many values", Location(source, Span(1, 1, 2)))])
    return found


def values(value: Json, most: int = _MOST_VALUES) -> Iterator[Json]:
    """Yield a value and all inside of it, but no more than ``most``."""
    left = [value]
    while left and most > 0:
        one = left.pop()
        most -= 1
        yield one
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def place_in(text: str, sources: Sequence[Source], after: Location | None = None) -> Location:
    """Return where a text stands in the first of several files that has it, if possible behind a place."""
    first = text.strip().partition("\n")[0]
    for source in sources:
        begin = after.span.line - 1 if after is not None and after.source is source else 0
        for at in (*range(begin, len(source.lines)), *range(begin)):
            if first and (column := source.lines[at].find(first)) >= 0:
                return Location(source, Span(at + 1, column + 1, column + 1 + len(first)))
    return after or Location(sources[0], Span(1, 1, 2))


def number(value: Json, otherwise: int = 1) -> int:
    """Return how many a value says, also as a text; ``otherwise`` if it says none."""
    if isinstance(value, str) and value.isdigit() and len(value) < 7:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def gpu_of(*parts: Json) -> str:
    """Return the hardware that node selectors and affinities name; empty = none that is known.

    An A100 of unsaid memory is none.
    """
    nodes = [as_map(value).get(key) for part in parts for value in values(part) for key in _NODES]
    return gpu_named(*(label for one in nodes for label in values(one) if isinstance(label, str)))


def gpu_named(*labels: str) -> str:
    """Return the hardware that one of several labels of nodes names; empty = none that is known."""
    found = (name for label in labels for pattern, name in _GPUS.items() if re.search(pattern, label, re.IGNORECASE))
    return next(found, "")


def image_of(value: Json) -> str:
    """Return an image, which may be written as a map of its parts."""
    one = as_map(value)
    name = "/".join(str(one[key]) for key in ("registry", "repository", "name") if one.get(key))
    return f"{name}:{one.get('tag') or 'latest'}" if one else str(value or "")


def environment(container: Mapping[str, Json], maps: Mapping[str, Mapping[str, Json]]) -> dict[str, str]:
    """Return the variables of a container that are written down; ``maps`` has ConfigMaps by name."""
    known: dict[str, str] = {}
    for one in as_list(container.get("envFrom")):
        named = as_map(as_map(one).get("configMapRef")).get("name")
        known.update({str(key): str(value) for key, value in maps.get(str(named), {}).items()})
    for pair in [as_map(one) for key in ("env", "envs") for one in as_list(container.get(key))]:
        source = as_map(as_map(pair.get("valueFrom")).get("configMapKeyRef"))
        value = pair.get("value", maps.get(str(source.get("name")), {}).get(str(source.get("key"))))
        if value is not None:
            known[str(pair.get("name"))] = _substituted(str(value), known)
    return known


def _substituted(word: str, known: Mapping[str, str]) -> str:
    """Fill in ``$(NAME)`` as Kubernetes does."""
    return _CLUSTERS.sub(lambda match: known.get(match[1], match[0]), word)


def part_of(
    container: Mapping[str, Json],
    sources: Sequence[Source],
    part: Part,
    *,
    variables: Mapping[str, str],
    maps: Mapping[str, Mapping[str, Json]] = MappingProxyType({}),
    stands: Mapping[str, str] = MappingProxyType({}),
) -> Part | None:
    """Return the servers that a container starts; None = it starts none.

    Args:
        container: its image, command, arguments and variables, as in a pod.
        sources: the files where its words stand.
        part: what is known of them beside the command.
        variables: values that win over the container's.
        maps: ConfigMaps by name, whose values are variables and files.
        stands: arguments that are made of keys -> the key that stands in a file.
    """
    image = image_of(container.get("image"))
    known = {**environment(container, maps), **variables}
    texts = [
        _substituted(str(one), known)
        for key in ("command", "args")
        for one in (
            as_list(container.get(key)) or ([container.get(key)] if isinstance(container.get(key), str) else [])
        )
    ]
    if len(texts) == 1 and " " in texts[0].strip():  # a whole command as one argument
        texts = ["/bin/sh", "-c", texts[0]]
    named = place_in(f"name: {part.name.rpartition('/')[2]}", sources)
    place = place_in(image.rpartition("/")[2].partition(":")[0] or part.name, sources, named)
    words = [Word(one, place_in(stands.get(one.partition("=")[0], one), sources, place)) for one in texts]
    files = {name: str(text) for one in maps.values() for name, text in one.items()}
    engine = engine_of(image)
    tried = [(one, words) for one in ENGINES if words]
    tried += [(engine, [Word("docker", place), Word(image, place), *words])] if engine else []
    for one, line in tried:
        if (start := start_of(one, Command(tuple(line), known, files))) is not None:
            return part._replace(start=start._replace(version=start.version or version_of(image)))
    return None
