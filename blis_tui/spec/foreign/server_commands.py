"""Imports the command that starts a server of an engine as an Experiment, with a note on each argument."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, Location, Source, Span, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.bench_commands import load_of
from blis_tui.spec.foreign.reading import Draft, Fate, Input, as_name
from blis_tui.spec.foreign.server_arguments import SGLANG, TENSORRT_LLM, VLLM
from blis_tui.spec.foreign.server_rules import RULES, Conversion
from blis_tui.spec.foreign.shell import Command, Word, commands, place_of, places
from blis_tui.spec.library import find, find_by_id
from blis_tui.spec.read import parse, read_document, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported, Note

_SERVERS: Final = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT_LLM}
_ENTRIES: Final = {
    "vllm": ("vllm.entrypoints.openai.api_server",),
    "sglang": ("sglang.launch_server",),
    "tensorrt-llm": ("trtllm-serve",),
}
_OPTIONS_FILES: Final = {"vllm": ("config",), "tensorrt-llm": ("extra-llm-api-options", "config")}
"""Arguments that name a file with others. vLLM's counts less than the command, TensorRT-LLM's more."""
_IMAGES: Final = {
    "vllm": re.compile(r"\S*(?:vllm-openai|/vllm)(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]\S*)?"),
    "tensorrt-llm": re.compile(r"\S*/tensorrt-llm(?:/release)?(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]?\S*)?"),
    "sglang": re.compile(r"\S*/sglang(?::v?(\d+\.\d+(?:\.\d+)?))?(?:[-:@]\S*)?"),
}
_SIZE: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([kKmMgG])?")
_SHELLS: Final = ("bash", "sh")
_FACTORS: Final = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30, "": 1}
_QUANTISED: Final = re.compile(
    r"[-_](fp8|awq|gptq[-_]int8|gptq(?:[-_]int4)?)(?:[-_]dynamic|[-_]block)?$", re.IGNORECASE
)
_WEIGHTS: Final[Mapping[str, dict[str, Json]]] = {
    "fp8": {"quant_method": "fp8"},
    "awq": {"quant_method": "awq", "bits": 4},
    "gptq-int8": {"quant_method": "gptq", "bits": 8},
    "gptq": {"quant_method": "gptq", "bits": 4},
    "gptq-int4": {"quant_method": "gptq", "bits": 4},
}
_SYNCHRONOUS_BEFORE: Final = (0, 14)
"""The first version of vLLM that schedules asynchronously unless told otherwise."""


class Wanted(NamedTuple):
    """What a command does not say."""

    hardware: str
    """The GPU."""
    model: str | None = None
    """A model's document, instead of the model of the command."""
    workload: str | None = None
    """The workload, instead of that of a benchmark's command in the script."""
    name: str | None = None
    """Name of the experiment."""
    variables: Mapping[str, str] = {}
    """Values of the script's variables."""
    instances: int = 1
    """Copies of the server."""


def import_vllm(given: Path | Sequence[str], wanted: Wanted) -> Imported:
    """Convert ``vllm serve …`` (also in ``docker run``): a script's path, or the words of a command line.

    Raises:
        InputError: the script cannot be read.
        SpecError: there is no such command, or it has something that is impossible here.
    """
    return _imported("vllm", given, wanted)


def import_sglang(given: Path | Sequence[str], wanted: Wanted) -> Imported:
    """Convert ``python -m sglang.launch_server …``; otherwise like :func:`import_vllm`."""
    return _imported("sglang", given, wanted)


def import_tensorrt_llm(given: Path | Sequence[str], wanted: Wanted) -> Imported:
    """Convert ``trtllm-serve …`` with its file of options; otherwise like :func:`import_vllm`."""
    return _imported("tensorrt-llm", given, wanted)


def _imported(engine: str, given: Path | Sequence[str], wanted: Wanted) -> Imported:
    source, found = _read(given, wanted.variables)
    started = [start for one in found if (start := start_of(engine, one)) is not None]
    problem = Input(Document({}, source))
    if len(started) != 1:
        lines = ", ".join(str(start.words[0].place.span.line) for start in started if start.words)
        text = f"the script starts several servers (lines {lines})" if started else f"no command starts {engine}"
        hint = "put the command of one into a file of its own" if started else f"expected `{_USAGE[engine]}`"
        problem.problem((), text, hint=hint)
        problem.stop_at_problems()
    taken = _Converted(engine, source, started[0], wanted)
    loads = [load for one in found if (load := load_of(one, taken.given)) is not None]
    return _finished(taken, wanted, loads)


def import_started(engine: str, source: Source, start: Start, wanted: Wanted, notes: Sequence[Note] = ()) -> Imported:
    """Convert a server that is started with these arguments; ``notes`` come first.

    Raises:
        SpecError: it has something that is impossible here.
    """
    taken = _Converted(engine, source, start, wanted)
    taken.given.notes += notes
    return _finished(taken, wanted, [])


def _finished(taken: _Converted, wanted: Wanted, loads: Sequence[dict[str, Json]]) -> Imported:
    body = taken.convert()
    taken.given.stop_at_problems()
    workload: Json = wanted.workload or (loads[0] if loads else None)
    if workload is None:
        workload = "chatbot"
        taken.given.note(Fate.ELSEWHERE, (), "no load is given: the workload is `chatbot` (--workload, or a benchmark)")
    name = wanted.name or as_name(str(body["model"] if isinstance(body["model"], str) else taken.model))
    draft = Draft(
        source=taken.given,
        kind="Experiment",
        name=name,
        description=f"Imported from a command that starts {_TITLES[taken.engine]}.",
        body={**body, "workload": workload},
        origins=taken.origins,
    )
    try:
        return draft.finish()
    except SpecError as error:
        raise SpecError([_at_its_argument(one, taken) for one in error.diagnostics]) from None


def _at_its_argument(problem: Diagnostic, made: Conversion) -> Diagnostic:
    """Return a problem of the experiment at the argument that it comes from."""
    path = tuple(problem.path.split("."))
    for length in range(len(path), 0, -1):
        if origin := made.origins.get(path[:length]):
            place = made.given.document.place(origin, key=True)
            return located(problem.code, f"{origin[0]}: {problem.message}", place, hint=problem.help)
    return problem


_USAGE: Final = {
    "vllm": "vllm serve MODEL …",
    "sglang": "python3 -m sglang.launch_server --model-path MODEL …",
    "tensorrt-llm": "trtllm-serve MODEL …",
}
_TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


def _read(given: Path | Sequence[str], variables: Mapping[str, str]) -> tuple[Source, list[Command]]:
    """Return the commands of a script, or one command line."""
    if isinstance(given, Path):
        source = read_source(given)
        return source, [inner for one in commands(source, variables) for inner in _unwrapped(one, variables)]
    source = Source("--", " ".join(given))
    return source, [inner for one in [Command(tuple(places(list(given), source)), {})] for inner in _unwrapped(one, {})]


def _unwrapped(command: Command, variables: Mapping[str, str]) -> list[Command]:
    """Return the commands of ``bash -c "…"``, otherwise the command itself."""
    texts = [one.text for one in command.words]
    if "-c" in texts[:-1] and texts[0].rpartition("/")[2] in _SHELLS:
        script, known = command.words[texts.index("-c") + 1], {**command.variables, **variables}
        outer, line = script.place.source, script.place.span.line
        return [
            inner._replace(words=tuple(one._replace(place=place_of(one.text, outer, line)) for one in inner.words))
            for command in commands(Source(outer.name, script.text, outer.directory), known)
            for inner in _unwrapped(command, variables)
        ]
    return [command]


class Start(NamedTuple):
    """The words behind the command that starts a server, and what its image says of the version."""

    words: tuple[Word, ...]
    version: str = ""
    files: Mapping[str, str] = {}
    """Files that the script has written."""


def engine_of(image: str) -> str:
    """Return the engine that an image has; empty = another program."""
    return next((engine for engine, pattern in _IMAGES.items() if pattern.fullmatch(image)), "")


def start_of(engine: str, command: Command) -> Start | None:
    """Return the arguments of a server's command, which may run in a container; None = it starts none."""
    words = list(command.words)
    if words[0].text.rpartition("/")[2] not in ("docker", "podman"):
        return _named(engine, words, "", command.files)
    at = next((at for at, one in enumerate(words) if _IMAGES[engine].fullmatch(one.text)), None)
    if at is None:
        return None
    image = _IMAGES[engine].fullmatch(words[at].text)
    version, words = (image[1] or "") if image else "", words[at + 1 :]
    if words and words[0].text.rpartition("/")[2] in _SHELLS:
        for inner in _unwrapped(Command(tuple(words), command.variables), command.variables):
            if (found := _named(engine, list(inner.words), version, inner.files)) is not None:
                return found
    # vLLM's image starts the server by itself.
    alone = Start(tuple(words), version, command.files) if engine == "vllm" else None
    return _named(engine, words, version, command.files) or alone


def _named(engine: str, words: list[Word], version: str, files: Mapping[str, str]) -> Start | None:
    """Return what stands behind the server's name; None = it is not named."""
    texts = [one.text for one in words]
    for at, text in enumerate(texts):
        name, following = text.rpartition("/")[2], texts[at + 1 : at + 2] == ["serve"]
        if name in _ENTRIES[engine] or (name == engine and following):
            return Start(tuple(words[at + 1 + following :]), version, files)
    return None


class _Converted(Conversion):
    """The arguments of one server, and the experiment that they make."""

    def __init__(self, engine: str, source: Source, start: Start, wanted: Wanted) -> None:
        super().__init__(Input(Document({}, source)))
        self.engine = engine
        self.model = ""
        self._server = _SERVERS[engine]
        self._files = start.files
        self._wanted = wanted
        self._version = start.version
        self._unknown: dict[str, Word] = {}
        """Arguments whose value the script does not say."""
        first = start.words[0].place if start.words else Location(source, Span(1, 1, 2))
        self.given.document.values[()] = first
        self._read(start.words)
        self.given.document.data = self.options

    # ---- arguments ----

    def _read(self, words: Sequence[Word]) -> None:
        """Read all arguments; the last of several counts, and those of a ``--config`` file count less."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.text.startswith("-") or word.text in ("-", "--"):
                self._put_positional(word)
                continue
            name, given, value = word.text.partition("=")
            name, dot, inside = name.lstrip("-").partition(".")
            name = name.replace("_", "-")
            if re.fullmatch(r"O\d", name):
                name, given, value = "optimization-level", "=", name[1:]
            name = self._server.short.get(name, name)
            if word.unknown:
                self._unknown[name] = word
            elif not given and rest and rest[0].unknown:
                self._unknown[name] = rest[0]
            off = name.startswith("no-") and name[3:] in self._server.flags
            if off:
                self._put(name[3:], False, word.place)
            elif name in self._server.flags and not given:
                self._put(name, True, word.place)
            else:
                values = [value] if given else _values(rest)
                self._put_value(name, inside if dot else "", values, word.place)

    def _put_positional(self, word: Word) -> None:
        """Put the word that stands by itself: the model, of which there is one."""
        name = "model-path" if self.engine == "sglang" else "model"
        if word.unknown or name in self.options:
            name = word.text
            self._unknown[name] = word
        self._put(name, word.text, word.place)

    def _put_value(self, name: str, inside: str, values: list[str], place: Location) -> None:
        one: Json = True if not values else _value(values[0]) if len(values) == 1 else list(map(_value, values))
        if inside:
            whole = as_map(self.options.get(name))
            one = {**whole, inside: one}
        self._put(name, one, place)
        if name in _OPTIONS_FILES.get(self.engine, ()) and isinstance(one, str):
            self._read_file(one, place)

    def _read_file(self, name: str, place: Location) -> None:
        folder, written = place.source.directory, self._files.get(name)
        if written is not None:
            document = parse(Source(f"{name} of {place.source.name}", written))
        else:
            document = read_document(folder / name if folder is not None else Path(name))
        wins = self.engine == "tensorrt-llm"
        for path, value in _flat(as_map(document.data), deep=wins):
            key = ".".join(path).replace("_", "-")
            known = self._server.short.get(key, key)
            off = known.startswith("no-") and known[3:] in self._server.flags
            known = known[3:] if off else known
            if wins or known not in self.options:
                self.options[known] = not value if off else _value(value) if isinstance(value, str) else value
                self.given.document.keys[(known,)] = document.place(path, key=True)
                self.given.document.values[(known,)] = document.place(path)

    def _put(self, name: str, value: Json, place: Location) -> None:
        self.options[name] = value
        self.given.document.keys[(name,)] = self.given.document.values[(name,)] = place

    # ---- the experiment ----

    def convert(self) -> dict[str, Json]:
        """Return the experiment without its workload, having noted what became of each argument."""
        self.body = {"model": "", "hardware": self._wanted.hardware}
        if self._wanted.instances != 1:
            self.set("cluster.instances", self._wanted.instances, ())
        self.body["policy"] = {"batching": {"kind": "vllm-v1" if self.engine == "vllm" else self.engine}}
        if self.engine == "tensorrt-llm":
            self.body["latency"] = {"kind": "operators", "engine": self.engine}
        self._versions()
        for name, value in self.options.items():
            if (word := self._unknown.get(name)) is not None and word.text == name and word.unknown:
                self._ask(name, word)
            elif name in self._server.taken:
                self._take(name, value)
            elif name in self._server.no_effect:
                self.note(Fate.NO_EFFECT, name, self._server.no_effect[name])
            elif name in self._server.lost:
                self.note(Fate.NOT_CARRIED, name, self._server.lost[name])
            elif name not in _OPTIONS_FILES.get(self.engine, ()):
                self.note(Fate.NOT_CARRIED, name, "unknown argument")
        self._model()
        return self.body

    def _versions(self) -> None:
        if not self._version:
            return
        numbers = tuple(int(one) for one in self._version.split("."))[:2]
        if self.engine != "vllm":
            known, title = {"sglang": "0.5.23", "tensorrt-llm": "1.1"}[self.engine], _TITLES[self.engine]
            if not self._version.startswith(known):
                text = f"{title} {self._version} is simulated as {known}, the version whose scheduler is known"
                self.given.note(Fate.APPROXIMATED, (), text)
            return
        rules = "0.10" if numbers < (0, 12) else "0.33" if numbers >= (0, 33) else ""
        if rules:
            self.set("policy.batching.version", rules, ())
        if numbers < _SYNCHRONOUS_BEFORE and "async-scheduling" not in self.options:
            self.set("policy.batching.async_scheduling", False, ())
        if f"{numbers[0]}.{numbers[1]}" not in ("0.10", "0.32", "0.33"):
            text = f"vLLM {self._version} is simulated by the rules of {rules or '0.32'}"
            self.given.note(Fate.APPROXIMATED, (), text)

    def _ask(self, name: str, word: Word) -> None:
        hint = "give it with `--var NAME=VALUE`, or write the value"
        self.given.problem((name,), f"the script does not say what `{printable(word.unknown)}` is", hint=hint)

    def _take(self, name: str, value: Json) -> None:
        key = self._server.taken[name]
        if (word := self._unknown.get(name)) is not None:
            self._ask(name, word)
            return
        if key == "model":
            self.model = str(value)
            return
        if (rule := RULES.get((self.engine, name))) is not None:
            rule(self, value)
            return
        if key.startswith("engine.lora.") and not self.options.get("enable-lora"):
            self.note(Fate.NO_EFFECT, name, "without `enable-lora`")
            return
        if key.startswith("engine.kv_tiers.") and not self.options.get("enable-hierarchical-cache"):
            self.note(Fate.NO_EFFECT, name, "without `enable-hierarchical-cache`")
            return
        if key == "engine.max_model_len" and value == -1:
            value = "auto"
        self.set(key, value, (name,))

    def _model(self) -> None:
        """Find the document of the model; a quantised one may be another's with other weights."""
        wanted = self._wanted.model or self.model
        if not wanted:
            hint = f"expected `{_USAGE[self.engine]}`"
            self.given.problem((), "the command names no model", hint=hint)
            return
        origin = ("model-path",) if self.engine == "sglang" else ("model",)
        quantised = _QUANTISED.search(wanted)
        method = str(self.options.get("quantization") or "")
        weights = quantised[1].lower().replace("_", "-") if quantised else method if method == "fp8" else ""
        name = wanted[: quantised.start()] if quantised else wanted
        base = find_by_id(name) or find("Model", name)
        self.body["model"] = wanted
        known = quantised is not None and (find_by_id(wanted) or find("Model", wanted)) is not None
        if weights and base is not None and not known:
            document = read_document(base)
            config = {**as_map(document.get("config")), "quantization_config": _WEIGHTS[weights]}
            self.body["model"] = {**as_map(document.data), "metadata": {"name": as_name(wanted.rpartition("/")[2])}}
            as_map(self.body["model"])["config"] = config
            as_map(self.body["model"]).pop("huggingface_ids", None)
            text = f"`model`: {base.stem}, with weights of `quant_method: {_WEIGHTS[weights]['quant_method']}`"
            self.given.note(Fate.APPROXIMATED, origin, text)
        elif not self._wanted.model:
            self.origins[("model",)] = origin
            self.given.note(Fate.TAKEN, origin, f"`model: {wanted}`")


def _flat(
    data: Mapping[str, Json], *, deep: bool, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield the values of a file of options with their paths; maps inside are one value unless ``deep``."""
    for key, value in data.items():
        if deep and isinstance(value, dict):
            yield from _flat(value, deep=True, above=(*above, key))
        else:
            yield (*above, key), value


def _values(rest: list[Word]) -> list[str]:
    """Take the words up to the next argument; a negative number is none."""
    found: list[str] = []
    while rest:
        text = rest[0].text
        if text.startswith("-") and _SIZE.fullmatch(text) is None:
            break
        found.append(text)
        rest.pop(0)
    return found


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is no number")


def _value(text: str) -> Json:
    """Return a number (``32k`` is 32,000, ``32K`` 32,768), a JSON object, a truth value, or the text itself."""
    if (size := _SIZE.fullmatch(text)) is not None:
        number = float(size[1]) * _FACTORS[size[2] or ""]
        return int(number) if number == int(number) else number
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith(("{", "[")):
        try:
            found: Json = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return text
        return found
    return text
