"""Imports what starts servers of an engine, a command line or a script, as an Experiment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Document
from blis_tui.base.text import printable
from blis_tui.spec.foreign.fleets import Fleet, Part, imported
from blis_tui.spec.foreign.load_generators import load_of, tool_of
from blis_tui.spec.foreign.reading import Fate, Input
from blis_tui.spec.foreign.routing import router_in, routing_in
from blis_tui.spec.foreign.servers import TALKING, USAGE, Wanted, read_commands, start_of, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.base.source import Json, Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.servers import Start
    from blis_tui.spec.foreign.shell import Command

__all__ = ["Wanted", "import_sglang", "import_tensorrt_llm", "import_vllm"]

_PORT: Final = re.compile(r"\b\d{4,5}\b")


def import_vllm(given: Path | Sequence[str], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert ``vllm serve …`` (also in ``docker run``): a script's path, or the words of a command line.

    Several servers are instances, or have roles; a benchmark in the script is the load.

    Args:
        given: the script, or the words.
        wanted: what they do not say.
        service: the line of the server to take, if there are several that are no cluster.

    Raises:
        InputError: the script cannot be read.
        SpecError: there is no such command, or it has something that is impossible here.
    """
    return _imported("vllm", given, wanted, service)


def import_sglang(given: Path | Sequence[str], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert ``python -m sglang.launch_server …``; otherwise like :func:`import_vllm`."""
    return _imported("sglang", given, wanted, service)


def import_tensorrt_llm(given: Path | Sequence[str], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert ``trtllm-serve …`` with its file of options; otherwise like :func:`import_vllm`."""
    return _imported("tensorrt-llm", given, wanted, service)


def _imported(engine: str, path_or_words: Path | Sequence[str], wanted: Wanted, service: str | None) -> Imported:
    source, commands = read_commands(path_or_words, wanted.variables)
    return of_commands(engine, source, commands, wanted, service)


def of_commands(
    engine: str, source: Source, commands: Sequence[Command], wanted: Wanted, service: str | None = None
) -> Imported:
    """Convert the commands of a script; otherwise like :func:`import_vllm`.

    Args:
        engine: ``vllm``, ``sglang`` or ``tensorrt-llm``.
        source: the script.
        commands: its commands.
        wanted: what they do not say.
        service: the line of the server to take.

    Raises:
        SpecError: there is no such command, or it has something that is impossible here.
    """
    given = Input(Document({}, source))
    starts = [(command, start) for command in commands if (start := start_of(engine, command)) is not None]
    lines = {id(start): f"line {_line(command)}" for command, start in starts}
    different = {start.own: start for _, start in starts}
    taken = [start for start in different.values() if service in (None, lines[id(start)], lines[id(start)][5:])]
    if not taken:
        text = f"no command starts {engine}" if not starts else f"no server is started in {service}"
        given.problem((), text, hint=f"expected `{USAGE[engine]}`" if not starts else ", ".join(lines.values()))
    unsure = next((start for start in taken if start.condition and len(taken) > 1), None)
    if unsure is not None:
        given.document.values[()] = unsure.words[0].place if unsure.words else given.document.place(())
        text = f"whether this server is started depends on `{printable(unsure.condition)}`"
        given.problem((), text, hint="give what it depends on with `--var NAME=VALUE`, or choose with --service")
    given.stop_at_problems()
    roles = _roles(commands)
    parts = [Part(lines[id(start)], start, role=roles.get(_port(start), "")) for start in taken]
    given.document.values[()] = taken[0].words[0].place if taken[0].words else starts[0][0].words[0].place
    keys = _beside(engine, commands, given, several=len(parts) > 1)
    measured = [] if wanted.workload is not None else [command for command in commands if tool_of(command)]
    loads = [load for benchmark in measured if (load := load_of(benchmark, given)) is not None]
    for benchmark in measured:
        if tool_of(benchmark) not in ("vllm", "sglang"):
            path = (tool_of(benchmark),)
            given.document.keys[path] = benchmark.words[0].place
            given.note(Fate.ELSEWHERE, path, "its load: `spec import load` converts it, for --workload")
    return imported(Fleet(source, given, parts, keys, loads, pools=False), wanted)


def _line(command: Command) -> int:
    return command.words[0].place.span.line


def _port(start: Start) -> str:
    """Return the port that a server listens to."""
    return value_of([word.text for word in start.words], "--port") or "8000"


def _roles(commands: Sequence[Command]) -> dict[str, str]:
    """Return the roles of servers by their ports, as a proxy is told them: ``--prefill http://host:8100``."""
    roles: dict[str, str] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        if not router_in(texts):
            continue
        role = ""
        for text in texts:
            if text.startswith("-"):
                role = "prefill" if "prefill" in text else "decode" if "decod" in text else ""
            if role:
                roles.update(dict.fromkeys(_PORT.findall(text), role))
    return roles


def _beside(engine: str, commands: Sequence[Command], given: Input, *, several: bool) -> dict[str, Json]:
    """Return what programs beside the servers mean, having noted them."""
    keys: dict[str, Json] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        path = (router_in(texts),)
        if not path[0] or texts[0] in TALKING or start_of(engine, command) is not None or tool_of(command):
            continue
        if path in given.document.keys:
            continue
        given.document.keys[path] = command.words[texts.index(path[0])].place
        keys.update(routing_in(texts, given, path) if several else {})
        given.note(Fate.NO_EFFECT, path, "requests reach the servers at once: see `cluster.routing_latency_us`")
    return keys
