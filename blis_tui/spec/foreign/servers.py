"""One server: which commands start it, and what its arguments are as an experiment, with a note on each."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.source import Document, Location, Source, Span, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.reading import Fate, Input, as_name
from blis_tui.spec.foreign.server_arguments import ENVIRONMENT, RULES, SGLANG, TENSORRT_LLM, VLLM, Conversion
from blis_tui.spec.foreign.shell import Command, Word, commands, place_of, places
from blis_tui.spec.library import find, find_by_id
from blis_tui.spec.read import parse, read_document, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.source import Json

_ENTRIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "vllm": ("vllm.entrypoints.openai.api_server", "dynamo.vllm"),
        "sglang": ("sglang.launch_server", "dynamo.sglang"),
        "tensorrt-llm": ("trtllm-serve", "dynamo.trtllm"),
    }
)
ENGINES: Final = tuple(_ENTRIES)
_TAG: Final = r"(?::v?(\d+\.\d+(?:\.\d+)?)(?:\.\d+|\.?(?:post|rc|dev)\d+)*)?(?:[-:@]\S*)?"
_IMAGES: Final = {
    "vllm": re.compile(rf"\S*(?:vllm-openai|/vllm){_TAG}"),
    "tensorrt-llm": re.compile(rf"\S*/tensorrt-llm(?:/release)?{_TAG}"),
    "sglang": re.compile(rf"\S*/sglang{_TAG}"),
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
        return source, [inner for command in commands(source, variables) for inner in unwrapped(command, variables)]
    source = Source("--", " ".join(given))
    return source, [
        inner for command in [Command(tuple(places(list(given), source)), {})] for inner in unwrapped(command, {})
    ]


def unwrapped(command: Command, variables: Mapping[str, str]) -> list[Command]:
    """Return the commands of ``bash -c "…"``, wherever it stands in a command; otherwise the command itself."""
    texts = [word.text for word in command.words]
    names = [text.rpartition("/")[2] for text in texts]
    shell = next((at for at, name in enumerate(names) if name in _SHELLS), len(names))
    ends = [at for at in range(shell + 1, len(texts) - 1) if re.fullmatch(r"-\w*c", texts[at])]
    if not ends or any(name in _CONTAINERS for name in names[:1]):
        return [command]
    script, known = command.words[ends[0] + 1], {**command.variables, **variables}
    outer, line = script.place.source, script.place.span.line
    inside = commands(Source(outer.name, script.text, outer.directory), known, command.words[ends[0] + 3 :])
    return [
        inner._replace(words=tuple(word._replace(place=place_of(word.text, outer, line)) for word in inner.words))
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
        at = next((at for at, word in enumerate(words) if at and _IMAGES[engine].fullmatch(word.text)), None)
        variables.update(_passed(words[: at or 0]))
        if at is not None:
            image, entry = words[at].text, value_of([word.text for word in words[:at]], "--entrypoint")
            front = [words[at]._replace(text=entry)] if entry else []
            version, words = version_of(image), [*front, *words[at + 1 :]]
    inner = unwrapped(command._replace(words=tuple(words)), variables) if words else []
    own = " ".join(word.text for word in command.words) + "\0" + variables.get("CUDA_VISIBLE_DEVICES", "")
    for started in inner:
        texts = _named(engine, list(started.words))
        if texts is not None and started.words[0].text.rpartition("/")[2] not in TALKING:
            files, known = {**command.files, **started.files}, {**variables, **started.variables}
            return Start(texts, version, files, known, engine, own, started.condition or command.condition)
    if engine == "vllm" and image:  # its image starts the server by itself
        return Start(tuple(words), version, command.files, variables, engine, own, command.condition)
    return None


def value_of(texts: Sequence[str], name: str) -> str:
    """Return the value of an argument, of several the last one; empty = there is none."""
    values = [text.partition("=")[2] for text in texts if text.replace("_", "-").startswith(f"{name}=")]
    values += [after for text, after in pairwise(texts) if text.replace("_", "-") == name]
    return values[-1] if values else ""


def _passed(words: list[Word]) -> dict[str, str]:
    """Return the variables of ``docker run -e NAME=VALUE``."""
    texts = [word.text.removeprefix("--env=") for word in words]
    pairs = [
        text.partition("=") for before, text in zip(["", *texts], texts, strict=False) if before in ("-e", "--env")
    ]
    return {name: value for name, given, value in pairs if given}


def _named(engine: str, words: list[Word]) -> tuple[Word, ...] | None:
    """Return what stands behind the server's name; None = it is not named."""
    texts = [word.text for word in words]
    for at, text in enumerate(texts):
        name, following = text.rpartition("/")[2], texts[at + 1 : at + 2] == ["serve"]
        if texts[at + 1 : at + 2] == ["disaggregated"]:
            continue
        if name in _ENTRIES[engine] or (following and name in (engine, f"{engine}.entrypoints.cli.main")):
            return tuple(words[at + 1 + following :])
    return None


_SERVERS: Final = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT_LLM}
_OPTIONS_FILES: Final = {
    "vllm": ("config",),
    "tensorrt-llm": ("extra-llm-api-options", "extra-engine-args", "config"),
}
"""Arguments that name a file with others. vLLM's counts less than the command, TensorRT-LLM's more."""
_SIZE: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([kKmMgG])?")
_FACTORS: Final = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30, "": 1}
_QUANTISED: Final = re.compile(
    r"[-_](fp8|nvfp4|fp4|awq|gptq[-_]int8|gptq(?:[-_]int4)?)(?:[-_]dynamic|[-_]block)?$", re.IGNORECASE
)
_WEIGHTS: Final[Mapping[str, dict[str, Json]]] = {
    "fp8": {"quant_method": "fp8"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "fp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "awq": {"quant_method": "awq", "bits": 4},
    "gptq-int8": {"quant_method": "gptq", "bits": 8},
    "gptq": {"quant_method": "gptq", "bits": 4},
    "gptq-int4": {"quant_method": "gptq", "bits": 4},
}
_STEP_TOKENS: Final = 8192
"""TensorRT-LLM's `max_num_tokens` unless told otherwise."""
_PROMPT_GRAPHS_SINCE: Final = (0, 5, 10)
"""The first version of SGLang whose steps with prompts are CUDA graphs unless told otherwise."""
_GRAPHS: Final = frozenset({"disable-cuda-graph", "enable-piecewise-cuda-graph"})
"""SGLang's arguments that say what CUDA graphs hold."""
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
    variables: Mapping[str, str] = MappingProxyType({})
    """Values of the script's variables."""


USAGE: Final = {
    "vllm": "vllm serve MODEL …",
    "sglang": "python3 -m sglang.launch_server --model-path MODEL …",
    "tensorrt-llm": "trtllm-serve MODEL …",
}
TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


class Converted(Conversion):
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
        self.start = start
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
            exact = self.engine == "tensorrt-llm" or name in _OPTIONS_FILES.get(self.engine, ())
            name = self._server.short.get(name, name) if exact else self._server.in_full(name)
            self._unknown.pop(name, None)
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
        value: Json = True if not values else _value(values[0]) if len(values) == 1 else list(map(_value, values))
        if inside:
            whole = as_map(self.options.get(name))
            value = {**whole, inside: value}
        self._put(name, value, place)
        if name in _OPTIONS_FILES.get(self.engine, ()) and isinstance(value, str):
            self._read_file(value, place)

    def _read_file(self, name: str, place: Location) -> None:
        folder, written = place.source.directory, self._files.get(name, self._files.get(name.rpartition("/")[2]))
        if written is not None:
            document = parse(Source(f"{name} of {place.source.name}", written))
        elif Path(name).is_absolute() and not Path(name).exists():
            self.note(Fate.NOT_CARRIED, "config", f"`{printable(name)}` is not on this machine: nothing of it is known")
            return
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
        self.body["policy"] = {"batching": {"kind": "vllm-v1" if self.engine == "vllm" else self.engine}}
        if self.engine == "tensorrt-llm":
            self.body["latency"] = {"kind": "operators", "engine": self.engine}
        self._versions()
        for name, value in self.options.items():
            above = name.partition(".")[0]
            if (word := self._unknown.get(name)) is not None and word.text == name and word.unknown:
                self._ask(name, word)
            elif name in self._server.taken:
                self._take(name, value)
            elif (why := self._server.no_effect.get(name, self._server.no_effect.get(above))) is not None:
                self.note(Fate.NO_EFFECT, name, why)
            elif (why := self._server.lost.get(name, self._server.lost.get(above))) is not None:
                self.note(Fate.NOT_CARRIED, name, why)
            elif name not in _OPTIONS_FILES.get(self.engine, ()):
                self.note(Fate.NOT_CARRIED, name, "unknown argument")
        self._environment()
        self._longest()
        self._model()
        return self.body

    def _environment(self) -> None:
        """Note what the engine's variables mean, and take the size of LMCache's host memory."""
        for name, value in self.start.variables.items():
            place = place_of(name, self.given.document.source, 1)
            written = name in place.source.lines[place.span.line - 1]
            self.given.document.keys[(name,)] = place if written else self.given.document.place(())
            if name == "LMCACHE_MAX_LOCAL_CPU_SIZE" and self.host_cache is not None and not any(self.host_cache[1:]):
                size = _value(value)
                self.host_cache = (name, size * 2.0**30 if isinstance(size, int | float) else 0.0, 0)
                continue
            effect = next((effect for pattern, effect in ENVIRONMENT.items() if fnmatchcase(name, pattern)), None)
            if effect is not None and written:
                self.note(Fate.NOT_CARRIED if effect[0] else Fate.NO_EFFECT, name, effect[1])

    def _longest(self) -> None:
        """Limit sequences to what a step of TensorRT-LLM takes, if it splits no prompt."""
        steps = self.options.get("max-num-tokens", _STEP_TOKENS)
        length = self.options.get("max-seq-len")
        if self.engine != "tensorrt-llm" or self.options.get("enable-chunked-prefill") or not isinstance(steps, int):
            return
        if not isinstance(length, int) or length > steps:
            name = "max-num-tokens" if "max-num-tokens" in self.options else "model"
            self.set("engine.max_model_len", steps, ())
            text = (
                f"without chunked prefill a step takes {steps:,} tokens: longer sequences are refused, as prompts are"
            )
            self.note(Fate.APPROXIMATED, name, text)

    def _versions(self) -> None:
        if not self._version:
            return
        numbers = tuple(int(part) for part in self._version.split("."))
        if self.engine == "sglang" and numbers < _PROMPT_GRAPHS_SINCE and not _GRAPHS.intersection(self.options):
            self.set("engine.cudagraph_mode", "FULL_DECODE_ONLY", ())
        numbers = numbers[:2]
        if self.engine != "vllm":
            known, title = {"sglang": "0.5.23", "tensorrt-llm": "1.1"}[self.engine], TITLES[self.engine]
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
            self.set("engine.version", self._version, ())
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
            hint = f"expected `{USAGE[self.engine]}`"
            self.given.problem((), "the command names no model", hint=hint)
            return
        origin = ("model-path",) if self.engine == "sglang" else ("model",)
        quantised = _QUANTISED.search(wanted)
        method = str(self.options.get("quantization") or "")
        weights = quantised[1].lower().replace("_", "-") if quantised else method if method == "fp8" else ""
        name = wanted[: quantised.start()] if quantised else wanted
        base = find_by_id(name) or find("Model", name)
        if base is None and quantised is not None:  # others than its makers quantise a model under its name
            base = find("Model", as_name(name.rpartition("/")[2]))
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
    texts: list[str] = []
    while rest:
        text = rest[0].text
        if text.startswith("-") and _SIZE.fullmatch(text) is None:
            break
        texts.append(text)
        rest.pop(0)
    return texts


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
            value: Json = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return text
        return value
    return text
