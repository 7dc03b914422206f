"""Servers in Kubernetes manifests and compose files: which containers start one, how many, and on what GPU."""

from __future__ import annotations

import re
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import yaml

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, Location, Span, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.reading import Fate, Input
from blis_tui.spec.foreign.server_commands import engine_of, import_started, start_of
from blis_tui.spec.foreign.shell import Command, Word, place_of
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from blis_tui.base.source import Json, Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.server_commands import Wanted

_MOST_VALUES: Final = 100_000
"""A file with more values than that, with its anchors followed, is none that a person wrote."""
_GIVEN: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-?])([^{}]*))?\})")
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
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_NO_GENERATION: Final = ("--task", "--runner", "--is-embedding")
"""Arguments of servers that generate nothing, such as those of embeddings."""


class _Container(NamedTuple):
    """A container with an engine in it."""

    name: str
    engine: str
    command: Command
    place: Location
    copies: int
    gpu: str


def import_kubernetes(path: Path, wanted: Wanted, service: str | None = None) -> Imported:
    """Convert a Kubernetes manifest (a Deployment, a StatefulSet, a Pod …) or a compose file.

    Args:
        path: the file; it may have several documents.
        wanted: what it does not say. Its ``hardware`` may be empty: the GPU is that of the node selector or affinity.
        service: the container or service to take, if there are several.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not such a file, has no server or several, or one that is impossible here.
    """
    source = read_source(path)
    given = Input(Document({}, source))
    documents = _documents(source)
    found = [one for document in documents for one in _containers(document, source, wanted.variables)]
    left = [one for one in found if not any(word.text in _NO_GENERATION for word in one.command.words)]
    for one in found:
        if one not in left:
            text = f"`{printable(one.name)}` generates nothing: it is no part of the simulation"
            given.note(Fate.NOT_CARRIED, (), text)
    taken = [one for one in left if service in (None, one.name)]
    if len(taken) != 1:
        names = ", ".join(f"`{printable(one.name)}`" for one in left)
        text = f"several containers start a server: {names}" if len(taken) > 1 else "no container starts a known engine"
        given.problem((), text, hint="choose with --service" if left else None)
        given.stop_at_problems()
    (one,) = taken
    hardware = wanted.hardware or one.gpu
    start = start_of(one.engine, one.command)
    if not hardware:
        given.problem((), "the file does not say which GPU", hint="give it with --hardware")
    if start is None:
        given.problem((), f"`{printable(one.name)}` starts no server of {one.engine}")
    given.stop_at_problems()
    assert start is not None  # noqa: S101  (that was a problem)
    if not wanted.hardware:
        given.note(Fate.TAKEN, (), f"`hardware: {hardware}`, as the nodes say")
    if one.copies > 1:
        given.note(Fate.TAKEN, (), f"`cluster.instances: {one.copies}`")
    if any(str(document.get("kind")) in _SCALERS for document in documents):
        given.note(Fate.NOT_CARRIED, (), "the number of instances stays as it is: see `cluster.autoscaler`")
    asked = wanted._replace(hardware=hardware, instances=one.copies)
    return import_started(one.engine, source, start, asked, given.notes)


def _documents(source: Source) -> list[dict[str, Json]]:
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
    if sum(1 for one in found for _ in _values(one)) >= _MOST_VALUES:
        raise SpecError([located("BLIS0001", "too many values", Location(source, Span(1, 1, 2)))])
    return found


def _values(value: Json, most: int = _MOST_VALUES) -> Iterator[Json]:
    """Yield a value and all inside of it, but no more than ``most``."""
    left = [value]
    while left and most > 0:
        one = left.pop()
        most -= 1
        yield one
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _containers(document: dict[str, Json], source: Source, variables: Mapping[str, str]) -> Iterator[_Container]:
    """Yield the containers of a manifest, or the services of a compose file, that have an engine's image."""
    services = as_map(document.get("services"))
    known = {**_dotenv(source), **variables}
    for name, service in services.items():
        one = as_map(service)
        image = _filled(str(one.get("image") or ""), known)
        words = [*_words(one.get("entrypoint"), known), *_words(one.get("command"), known)]
        copies = as_map(one.get("deploy")).get("replicas", one.get("scale", 1))
        yield from _container(name, image, words, source, copies=copies, variables=known)
    spec = as_map(document.get("spec"))
    nodes = [as_map(value).get(key) for value in _values(spec) for key in ("nodeSelector", "affinity")]
    labels = (label for one in nodes for label in _values(one) if isinstance(label, str))
    gpu = next((name for label in labels if (name := _gpu(label))), "")
    for value in _values(spec):
        for entry in as_list(as_map(value).get("containers")):
            one = as_map(entry)
            pairs = [as_map(pair) for pair in as_list(one.get("env"))]
            known = {**{str(pair.get("name")): str(pair.get("value")) for pair in pairs}, **variables}
            words = [_substituted(str(word), known) for key in ("command", "args") for word in as_list(one.get(key))]
            found = _container(
                *(str(one.get("name")), str(one.get("image")), words, source),
                copies=spec.get("replicas", 1),
                variables=known,
            )
            yield from (container._replace(gpu=gpu) for container in found)


def _substituted(word: str, known: Mapping[str, str]) -> str:
    """Fill in ``$(NAME)`` as Kubernetes does."""
    return _CLUSTERS.sub(lambda match: known.get(match[1], match[0]), word)


def _container(
    name: str, image: str, words: list[str], source: Source, *, copies: Json, variables: Mapping[str, str]
) -> Iterator[_Container]:
    engine = engine_of(image)
    if engine:
        place = place_of(image.rpartition("/")[2].partition(":")[0], source, 1)
        all_words = [Word(one, place_of(one, source, place.span.line)) for one in ("docker", image, *words)]
        number = copies if isinstance(copies, int) and not isinstance(copies, bool) and copies > 0 else 1
        yield _Container(name, engine, Command(tuple(all_words), dict(variables)), place, number, "")


def _words(value: Json, known: Mapping[str, str]) -> list[str]:
    """Return the words of a compose file's command: a list, or a text that is split as a shell does."""
    if isinstance(value, list):
        return [_filled(str(one), known) for one in value]
    try:
        return shlex.split(_filled(value, known)) if isinstance(value, str) else []
    except ValueError:
        return [str(value)]


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Fill in ``$NAME``, ``${NAME:-default}``; ``$$`` is one sign. What is not known stays."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return known.get(name) or (match[4] if match[3] == "-" else match[0])

    return _GIVEN.sub(value, text.replace("$$", "\0")).replace("\0", "$")


def _dotenv(source: Source) -> dict[str, str]:
    """Return the variables of the ``.env`` file beside a compose file."""
    path = None if source.directory is None else source.directory / ".env"
    if path is None or not path.is_file():
        return {}
    pairs = (line.partition("=") for line in read_source(path).lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, given, value in pairs if given}


def _gpu(text: str) -> str:
    """Return the hardware that a node's label names; empty = none that is known, such as an A100 of unsaid memory."""
    return next((name for pattern, name in _GPUS.items() if re.search(pattern, text, re.IGNORECASE)), "")
