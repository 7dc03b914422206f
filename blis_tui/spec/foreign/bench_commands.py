"""The load of a command that measures a server, of vLLM, SGLang, GuideLLM, AIPerf or GenAI-Perf."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Document, Source
from blis_tui.base.text import printable
from blis_tui.spec.foreign.guidellm import from_scenario
from blis_tui.spec.foreign.reading import Draft, Fate, Input, clamped_normal
from blis_tui.spec.foreign.shell import Command, commands, places
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported

_TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang", "aiperf": "AIPerf", "genai-perf": "GenAI-Perf"}
_USAGE: Final = {
    "vllm": "vllm bench serve …",
    "sglang": "python3 -m sglang.bench_serving …",
    "guidellm": "guidellm benchmark …",
    "aiperf": "aiperf profile …",
    "genai-perf": "genai-perf profile …",
}
_NAMED: Final = ("sglang.bench_serving", "serve", "profile", "benchmark_serving.py")
"""What options stand behind."""
_AT_ONCE: Final = 10_000.0
"""Requests a second that stand for all at once: a process in front of the engine takes none so fast."""
_PROMPTS: Final = 1000
_REACHED: Final = "how the server is reached"
_MEASURED: Final = "what is measured and written"
_BEFORE: Final = "before the first request that counts"
_SAMPLED: Final = "answers have the lengths of the workload, however they are sampled"
_MEANS: Final = MappingProxyType(
    {
        name: why
        for names, why in {
            "host port base-url url u endpoint endpoint-type backend api-key header streaming service-kind": _REACHED,
            "tokenizer tokenizer-mode trust-remote-code served-model-name endpoint-path apply-chat-template": _REACHED,
            "save-result save-detailed append-result result-dir result-filename label metadata output-file": _MEASURED,
            "percentile-metrics metric-percentiles disable-tqdm profile output-details artifact-dir": _MEASURED,
            "profile-export-file generate-plots verbose v ui log-level measurement-interval plot-timeline": _MEASURED,
            "ready-check-timeout-sec num-warmups warmup-requests warmup-request-count flush-cache": _BEFORE,
            "ignore-eos extra-inputs temperature top-p top-k min-p logprobs disable-ignore-eos": _SAMPLED,
        }.items()
        for name in names.split()
    }
)
"""Options of benchmarks -> why they change nothing."""
_ELSEWHERE: Final = MappingProxyType(
    {
        "model": "the experiment names the model",
        "m": "the experiment names the model",
        "seed": "write it as `seed` into the experiment",
        "random-seed": "write it as `seed` into the experiment",
        "goodput": "see `slo_targets`",
    }
)
_TAKEN: Final = {
    **dict.fromkeys(
        ("vllm", "sglang"),
        "dataset-name random-input-len random-output-len random-range-ratio random-prefix-len num-prompts request-rate"
        " max-concurrency burstiness",
    ),
    **dict.fromkeys(
        ("aiperf", "genai-perf"),
        "synthetic-input-tokens-mean synthetic-input-tokens-stddev output-tokens-mean output-tokens-stddev request-rate"
        " request-rate-mode concurrency request-count num-requests",
    ),
}
_LENGTHS: Final = {"vllm": (1024, 128), "sglang": (1024, 1024)}
"""Tokens of random prompts and answers where a command leaves them out."""


def import_load(
    path_or_words: Path | Sequence[str],
    variables: Mapping[str, str],
    *,
    name: str | None = None,
    rate: float | None = None,
) -> Imported:
    """Convert the command of a load generator, or the only one of a script, to a workload.

    Args:
        path_or_words: a script's path, or the words of a command line.
        variables: values of the script's variables.
        name: name of the workload; default: that of the tool.
        rate: which of several rates (or numbers of users), for GuideLLM.

    Raises:
        InputError: the script cannot be read.
        SpecError: there is no such command, or its load has no counterpart.
    """
    if isinstance(path_or_words, Path):
        source = read_source(path_or_words)
        found = commands(source, variables)
    else:
        source = Source("--", " ".join(path_or_words))
        found = [Command(tuple(places(list(path_or_words), source)), {})]
    given = Input(Document({}, source))
    words_of = [tuple(word.text for word in one.words) for one in found]
    tools = [
        (tool, one) for at, one in enumerate(found) if (tool := tool_of(one)) and words_of[at] not in words_of[:at]
    ]
    if len(tools) != 1:
        if tools:
            given.document.values[()] = tools[1][1].words[0].place
        text = f"{len(tools)} commands measure a server" if tools else "no command measures a server"
        hint = "expected one of " + ", ".join(f"`{one}`" for one in _USAGE.values())
        given.problem((), text, hint="of a loop, choose one with `--var NAME=VALUE`" if tools else hint)
        given.stop_at_problems()
    (tool, command), *_ = tools
    if unknown := next((word for word in command.words if word.unknown), None):
        given.document.values[()] = unknown.place
        text = f"the script does not say what `{printable(unknown.unknown)}` is"
        given.problem((), text, hint="give it with `--var NAME=VALUE`")
        given.stop_at_problems()
    given.document.values[()] = command.words[0].place
    if tool == "guidellm":
        given.document.data = _scenario([one.text for one in command.words])
        return from_scenario(given, name or tool, "of a command", rate)
    body = load_of(command, given) if tool in ("vllm", "sglang") else _profiled(command, given)
    given.stop_at_problems()
    description = f"Imported from a command of {_TITLES[tool]}."
    return Draft(source=given, kind="Workload", name=name or tool, description=description, body=body or {}).finish()


def tool_of(command: Command) -> str:
    """Return the load generator that a command starts; empty = none."""
    texts = [one.text for one in command.words]
    if texts[1:3] == ["bench", "serve"] or any("benchmark_serving" in one for one in texts[:3]):
        return "vllm"
    if "sglang.bench_serving" in texts:
        return "sglang"
    name = texts[0].rpartition("/")[2]
    return name if name in ("guidellm", "aiperf", "genai-perf") and len(texts) > 1 else ""


def _scenario(texts: list[str]) -> dict[str, Json]:
    """Return the scenario of ``guidellm benchmark``."""
    options = _options(texts)
    made: dict[str, Json] = {}
    for key, value in options.items():
        known = key.replace("-", "_")
        numbers = [_number({"": one}, "", -1.0) for one in value.split(",")]
        if known == "rate":
            made[known] = list(numbers)
        elif known in ("max_seconds", "max_requests", "random_seed"):
            made[known] = numbers[0]
        elif known in ("profile", "rate_type", "data"):
            made[known] = value
        else:
            made["target"] = value  # how the server is reached and what is written
    return made


def _profiled(command: Command, given: Input) -> dict[str, Json]:
    """Return the load of ``aiperf profile`` and ``genai-perf profile``, which have the same options."""
    options = _options([one.text for one in command.words], _TAKEN[tool_of(command)].split())
    client: dict[str, Json] = {"id": "profile"}
    for key, name, mean in (("input", "synthetic-input-tokens", 550.0), ("output", "output-tokens", 0.0)):
        average, spread = _number(options, f"{name}-mean", mean), _number(options, f"{name}-stddev", 0.0)
        if not average:
            given.problem((), "the command does not say how long answers are", hint="`--output-tokens-mean`")
            return {}
        client[f"{key}_tokens"] = clamped_normal(average, spread, 1, int(average + 5 * spread))
    _note_others(options, command, given)
    rate = _number(options, "request-rate", 0.0)
    users = int(_number(options, "concurrency", 0.0 if rate else 1.0))
    requests = int(_number(options, "request-count", _number(options, "num-requests", 0.0))) or max(10, 10 * users)
    if "request-count" not in options and "num-requests" not in options:
        given.note(Fate.APPROXIMATED, (), f"the command does not say how many requests: {requests:,}")
    if not rate:
        client["arrivals"] = {"kind": "closed-loop", "users": min(users, requests)}
        return {"requests": requests, "clients": [client]}
    if users:
        given.note(Fate.APPROXIMATED, (), f"a rate with at most {users} in flight became the rate alone")
    client["arrivals"] = {"kind": "constant" if options.get("request-rate-mode") == "constant" else "poisson"}
    return {"requests": requests, "rate_per_s": rate, "clients": [client]}


def load_of(command: Command, given: Input) -> dict[str, Json] | None:
    """Return the workload of a benchmark's command of vLLM or SGLang; None = it is none.

    Lengths that are only in a data set cannot be read from a command: that is a problem of ``given``.
    """
    engine = tool_of(command)
    if engine not in _LENGTHS:
        return None
    options = _options([one.text for one in command.words], _TAKEN[tool_of(command)].split())
    data = options.get("dataset-name", "random")
    place = command.words[0].place.span.line
    if data not in ("random", "random-ids"):
        hint = "give the workload with --workload; `trace: {format: sharegpt}` reads such a file"
        given.problem((), f"line {place}: the lengths of `{data}` are not in the command", hint=hint)
        return None
    _note_others(options, command, given)
    client: dict[str, Json] = {"id": "bench", **_lengths(options, engine)}
    requests = int(_number(options, "num-prompts", _PROMPTS))
    rate, users = options.get("request-rate", "inf"), int(_number(options, "max-concurrency", 0))
    if rate == "inf" and users:
        client["arrivals"] = {"kind": "closed-loop", "users": min(users, requests)}
        return {"requests": requests, "clients": [client]}
    if users:
        given.note(Fate.APPROXIMATED, (), f"line {place}: a rate with at most {users} in flight became the rate alone")
    if rate == "inf":
        given.note(Fate.APPROXIMATED, (), f"line {place}: all requests at once became {_AT_ONCE:,.0f} a second")
    burstiness = _number(options, "burstiness", 1.0)
    if not burstiness:
        given.problem((), f"line {place}: `--burstiness` must be more than 0")
        return None
    client["arrivals"] = (
        {"kind": "poisson"} if burstiness == 1.0 else {"kind": "gamma", "cv": min(10.0, burstiness**-0.5)}
    )
    every = _AT_ONCE if rate == "inf" else _number(options, "request-rate", 1.0)
    if rate == "inf":
        client["arrivals"] = {"kind": "constant"}
    return {"requests": requests, "rate_per_s": every, "clients": [client]}


def _note_others(options: dict[str, str], command: Command, given: Input) -> None:
    """Note each option that is not in the workload, and what that means."""
    for name in options:
        if name in _TAKEN[tool_of(command)].split():
            continue
        text = _MEANS.get(name) or _ELSEWHERE.get(name, "unknown option")
        fate = Fate.NO_EFFECT if name in _MEANS else Fate.ELSEWHERE if name in _ELSEWHERE else Fate.NOT_CARRIED
        place = next((word.place for word in command.words if name in word.text.replace("_", "-")), None)
        path = ("load", name)
        given.document.keys[path] = place or command.words[0].place
        given.note(fate, path, text)


def _lengths(options: dict[str, str], engine: str) -> dict[str, Json]:
    """Return lengths as the benchmarks draw them.

    With a range ratio r and a length n, vLLM draws uniformly from n (1 - r) to n (1 + r), 0 by default; SGLang from
    n r to n, with 0 by default. Sources: vLLM 0.33, ``benchmarks/datasets.py``; SGLang 0.5.23, ``bench_serving.py``.
    """
    ratio, found = _number(options, "random-range-ratio", 0.0), dict[str, "Json"]()
    for key, name, tokens in zip(("input", "output"), ("input_tokens", "output_tokens"), _LENGTHS[engine], strict=True):
        length = _number(options, f"random-{key}-len", tokens)
        low, high = (length * (1 - ratio), length * (1 + ratio)) if engine == "vllm" else (length * ratio, length)
        low, high = max(1, int(low)), max(1, int(high))
        found[name] = low if low == high else {"kind": "uniform", "min": low, "max": high}
    if prefix := int(_number(options, "random-prefix-len", 0)):
        found["prefix"] = {"group": "bench", "tokens": prefix}
    return found


def _options(texts: list[str], known: Sequence[str] = ()) -> dict[str, str]:
    """Return the options behind the tool's name; the beginning of a single known one stands for it, as in Python."""
    begin = next((at + 1 for at, text in enumerate(texts) if text.endswith(_NAMED)), 0)
    found: dict[str, str] = {}
    for at, text in enumerate(texts[begin:], begin):
        if text == "--":
            break
        if text.startswith("-") and not text[1:2].isdigit():
            name, given, value = text.lstrip("-").partition("=")
            following = texts[at + 1] if at + 1 < len(texts) and not texts[at + 1].startswith("-") else ""
            name = name.replace("_", "-")
            meant = [one for one in known if one.startswith(name)]
            found[meant[0] if len(meant) == 1 else name] = value if given else following
    return found


def _number(options: dict[str, str], name: str, otherwise: float) -> float:
    try:
        value = float(options.get(name, otherwise))
    except ValueError:
        return otherwise
    return value if 0 <= value < 1e12 else otherwise
