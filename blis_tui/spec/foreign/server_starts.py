"""Which commands start a server of an engine, with its arguments and environment."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.source import Source
from blis_tui.spec.foreign.shell import Command, Word, commands, place_of, places
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENTRIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "vllm": ("vllm.entrypoints.openai.api_server", "dynamo.vllm"),
        "sglang": ("sglang.launch_server", "dynamo.sglang"),
        "tensorrt-llm": ("trtllm-serve", "dynamo.trtllm"),
    }
)
ENGINES: Final = tuple(_ENTRIES)
_IMAGES: Final = {
    "vllm": re.compile(r"\S*(?:vllm-openai|/vllm)(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]\S*)?"),
    "tensorrt-llm": re.compile(r"\S*/tensorrt-llm(?:/release)?(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]?\S*)?"),
    "sglang": re.compile(r"\S*/sglang(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]\S*)?"),
}
_OTHER_TAGS: Final = re.compile(r"lmcache|llm-d|dynamo|nixl|nightly|aibrix", re.IGNORECASE)
"""Images whose tag is another program's version."""
_SHELLS: Final = ("bash", "sh")
_CONTAINERS: Final = ("docker", "podman", "nerdctl")
TALKING: Final = frozenset(
    {
        *("echo", "printf", "pkill", "pgrep", "grep", "ps", "kill", "wait", "curl", "cat", "tee", "which", "type"),
        *("trap", "cd", "sleep"),
    }
)
"""Programs that start nothing, whatever they name."""


class Start(NamedTuple):
    """The words behind the command that starts a server, and what its image says of the version."""

    words: tuple[Word, ...]
    version: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    """Files that the script has written."""
    variables: Mapping[str, str] = MappingProxyType({})
    """The environment, as far as it is known."""
    engine: str = ""
    own: str = ""
    """The whole command, with the GPUs that it runs on: what is started twice by the same one is one server."""
    condition: str = ""
    """The condition under which it is started, if only running the script would tell whether it holds."""


def read_commands(given: Path | Sequence[str], variables: Mapping[str, str]) -> tuple[Source, list[Command]]:
    """Return the commands of a script, or one command line.

    Args:
        given: the script, or the words of the line.
        variables: values of the script's variables.

    Raises:
        InputError: the script cannot be read.
        SpecError: it is not a script.
    """
    if isinstance(given, Path):
        source = read_source(given)
        return source, [inner for one in commands(source, variables) for inner in unwrapped(one, variables)]
    source = Source("--", " ".join(given))
    return source, [inner for one in [Command(tuple(places(list(given), source)), {})] for inner in unwrapped(one, {})]


def unwrapped(command: Command, variables: Mapping[str, str]) -> list[Command]:
    """Return the commands of ``bash -c "…"``, wherever it stands in a command; otherwise the command itself."""
    texts = [one.text for one in command.words]
    names = [text.rpartition("/")[2] for text in texts]
    shell = next((at for at, name in enumerate(names) if name in _SHELLS), len(names))
    ends = [at for at in range(shell + 1, len(texts) - 1) if re.fullmatch(r"-\w*c", texts[at])]
    if not ends or any(name in _CONTAINERS for name in names[:1]):
        return [command]
    script, known = command.words[ends[0] + 1], {**command.variables, **variables}
    outer, line = script.place.source, script.place.span.line
    inside = commands(Source(outer.name, script.text, outer.directory), known, command.words[ends[0] + 3 :])
    return [
        inner._replace(words=tuple(one._replace(place=place_of(one.text, outer, line)) for one in inner.words))
        for command in inside
        for inner in unwrapped(command, variables)
    ]


def engine_of(image: str) -> str:
    """Return the engine that an image has; empty = another program."""
    return next((engine for engine, pattern in _IMAGES.items() if pattern.fullmatch(image)), "")


def version_of(image: str) -> str:
    """Return the engine's version that an image says; empty = none, or that of another program around it."""
    engine = engine_of(image)
    match = _IMAGES[engine].fullmatch(image) if engine else None
    version = "" if match is None or _OTHER_TAGS.search(image) else match[1] or ""
    return version if version.startswith("0.") or engine == "tensorrt-llm" else ""  # others are months


def start_of(engine: str, command: Command) -> Start | None:
    """Return the arguments of a server's command, which may run in a container; None = it starts none."""
    words, version, image = list(command.words), "", ""
    if words[0].text.rpartition("/")[2] in TALKING:
        return None
    variables = dict(command.variables)
    if words[0].text.rpartition("/")[2] in _CONTAINERS:
        at = next((at for at, one in enumerate(words) if at and _IMAGES[engine].fullmatch(one.text)), None)
        variables.update(_passed(words[: at or 0]))
        if at is not None:
            image, entry = words[at].text, value_of([one.text for one in words[:at]], "--entrypoint")
            front = [words[at]._replace(text=entry)] if entry else []
            version, words = version_of(image), [*front, *words[at + 1 :]]
    inner = unwrapped(command._replace(words=tuple(words)), variables) if words else []
    own = " ".join(one.text for one in command.words) + "\0" + variables.get("CUDA_VISIBLE_DEVICES", "")
    for one in inner:
        found = _named(engine, list(one.words))
        if found is not None and one.words[0].text.rpartition("/")[2] not in TALKING:
            files, known = {**command.files, **one.files}, {**variables, **one.variables}
            return Start(found, version, files, known, engine, own, one.condition or command.condition)
    if engine == "vllm" and image:  # its image starts the server by itself
        return Start(tuple(words), version, command.files, variables, engine, own, command.condition)
    return None


def value_of(texts: Sequence[str], name: str) -> str:
    """Return the value of an argument, of several the last one; empty = there is none."""
    found = [text.partition("=")[2] for text in texts if text.replace("_", "-").startswith(f"{name}=")]
    found += [after for text, after in pairwise(texts) if text.replace("_", "-") == name]
    return found[-1] if found else ""


def _passed(words: list[Word]) -> dict[str, str]:
    """Return the variables of ``docker run -e NAME=VALUE``."""
    texts = [one.text.removeprefix("--env=") for one in words]
    pairs = [one.partition("=") for before, one in zip(["", *texts], texts, strict=False) if before in ("-e", "--env")]
    return {name: value for name, given, value in pairs if given}


def _named(engine: str, words: list[Word]) -> tuple[Word, ...] | None:
    """Return what stands behind the server's name; None = it is not named."""
    texts = [one.text for one in words]
    for at, text in enumerate(texts):
        name, following = text.rpartition("/")[2], texts[at + 1 : at + 2] == ["serve"]
        if texts[at + 1 : at + 2] == ["disaggregated"]:
            continue
        if name in _ENTRIES[engine] or (following and name in (engine, f"{engine}.entrypoints.cli.main")):
            return tuple(words[at + 1 + following :])
    return None
