"""The load of a tool that measures a server: commands of several, and GuideLLM's scenarios."""

from __future__ import annotations

import copy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Document, Source
from blis_tui.base.text import printable
from blis_tui.model.defaults import CHAT
from blis_tui.spec.foreign.reading import LARGEST, Draft, Fate, Input, Section, as_name, clamped_normal
from blis_tui.spec.foreign.shell import Command, commands, places
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported

_PROFILES: Final = ("synchronous", "concurrent", "throughput", "constant", "poisson", "async", "sweep")
_UNRELATED: Final = (
    *("target", "backend", "backend_kwargs", "processor", "output_path", "outputs", "output_formats"),
    *("description", "data_args", "data_sampler", "data_request_formatter", "warmup", "cooldown"),
)
_SENT_AS: Final = ("request_type", "request_format")
_MOST_PREFIXES: Final = 10_000
_DEFAULT_SPREAD: Final = 5
"""Default bounds of lengths: this many standard deviations from the mean."""


def import_guidellm(path: Path, *, name: str | None = None, rate: float | None = None) -> Imported:
    """Convert a scenario (the input of ``guidellm benchmark run --scenario``).

    Args:
        path: the YAML or JSON file.
        name: name of the document; default: that of the file.
        rate: which of the scenario's rates (or numbers of streams), or another one; default: the only one.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not such a scenario, or its load has no counterpart.
    """
    return from_scenario(Input.read(path), as_name(path.stem) if name is None else name, path.name, rate)


def from_scenario(given: Input, name: str, title: str, rate: float | None) -> Imported:
    """Convert a scenario that has been read; ``title`` says where it comes from.

    Raises:
        SpecError: it is not such a scenario, or its load has no counterpart.
    """
    _underscored(given)
    scenario = given.root()
    scenario = scenario.section("spec") or scenario
    load, limit = _load(scenario, rate)
    sent = _sent(scenario)
    kinds = _kinds(scenario)
    for key in _UNRELATED if sent else (*_SENT_AS, *_UNRELATED):
        scenario.note(Fate.NO_EFFECT, key, "it is about measuring, not about the requests")
    scenario.note(Fate.ELSEWHERE, "model", "the experiment names the model")
    scenario.note(Fate.ELSEWHERE, "random_seed", "write it as `seed` into the experiment")
    scenario.finish()
    arrivals = load.pop("arrivals", {"kind": "poisson"})
    _as_sessions(scenario, load, kinds)
    clients: list[Json] = [{**kind, "arrivals": arrivals} for kind in kinds]
    body: dict[str, Json] = {**({"requests": limit} if limit else {}), **load, **sent, "clients": clients}
    return Draft(
        source=given,
        kind="Workload",
        name=name,
        description=f"Imported from the GuideLLM scenario {title}.",
        body=body,
        origins={("rate_per_s",): (*scenario.path, "rate"), ("clients",): (*scenario.path, "data")},
    ).finish()


def _sent(scenario: Section) -> dict[str, Json]:
    """Return the endpoint that requests use: chat unless told otherwise, since GuideLLM 0.5.

    Sources: GuideLLM 0.5.0, ``benchmark/schemas/generative/entrypoints.py`` (``request_type``), and 0.8.1,
    ``schemas/backends/openai_http.py`` (``request_format``).
    """
    backend = scenario.data.get("backend")
    inside = backend.get("request_format") if isinstance(backend, dict) else None
    asked = [scenario.get(key) for key in _SENT_AS]
    named = next((str(value) for value in (*asked, inside) if value), "")
    return {"endpoint": CHAT} if CHAT in (named or CHAT) else {}


def _as_sessions(scenario: Section, load: dict[str, Json], kinds: list[dict[str, Json]]) -> None:
    """Convert request rates of conversations to session rates."""
    session = kinds[0].get("session") if kinds else None
    rate = load.get("rate_per_s")
    turns = session.get("turns") if isinstance(session, dict) else None
    if isinstance(rate, int | float) and isinstance(turns, int):
        load["rate_per_s"] = rate / turns
        text = f"{rate:g} requests a second became {rate / turns:g} conversations of {turns} turns"
        scenario.source.note(Fate.APPROXIMATED, (*scenario.path, "data"), text)


def _underscored(given: Input) -> None:
    """Replace dashes in keys, which some scenarios have, by underscores."""
    data = given.document.data
    if isinstance(data, dict):
        for key in [key for key in data if "-" in key]:
            new = key.replace("-", "_")
            data[new] = copy.deepcopy(data.pop(key))
            for places in (given.document.keys, given.document.values):
                places.update({(new, *path[1:]): place for path, place in places.items() if path[:1] == (key,)})


def _load(scenario: Section, rate: float | None) -> tuple[dict[str, Json], int]:
    """Return rate and arrivals, and the number of requests."""
    profile, rates = _profile(scenario)
    at = (*scenario.path, "profile")
    requests, seconds = scenario.number("max_requests") or 0, _seconds(scenario)
    if profile == "sweep":
        hint = "a sweep finds its rates while it measures: write `profile: constant` (or poisson) and a `rate`"
        scenario.source.problem(at, "the profile `sweep` has no rate of its own", hint=hint)
        return {}, 0
    if rate is not None:
        rates = [rate]
    if len(rates) > 1:
        listed = ", ".join(f"{offered:g}" for offered in rates)
        scenario.source.problem(
            (*scenario.path, "rate"), f"each of the rates {listed} is a benchmark of its own", hint="choose with --rate"
        )
        return {}, 0
    if profile in {"constant", "async", "poisson"}:
        if not rates:
            scenario.source.problem(at, f"the profile `{profile}` lacks a `rate`", code="BLIS1002")
            return {}, 0
        limit = int(requests) or int(rates[0] * seconds)
        kind = "poisson" if profile == "poisson" else "constant"
        return {"rate_per_s": rates[0], "arrivals": {"kind": kind}}, limit
    if profile == "throughput" and not rates:
        text = "the profile `throughput` sends everything at once"
        scenario.source.problem(at, text, hint="write `profile: concurrent` and as many streams as the server takes")
        return {}, 0
    if seconds and not requests:
        text = f"write `horizon_us: {int(seconds * 1e6)}` into the experiment"
        scenario.note(Fate.ELSEWHERE, "max_seconds", text)
    users = 1 if profile == "synchronous" else int(rates[0]) if rates else 1
    return {"arrivals": {"kind": "closed-loop", "users": max(1, users)}}, int(requests)


def _profile(scenario: Section) -> tuple[str, list[float]]:
    """Return the profile's name and the given rates (or streams)."""
    scenario.get("rate_type")
    inner = scenario.data.get("profile")
    if isinstance(inner, dict):
        part = scenario.section("profile")
        assert part is not None  # noqa: S101  (it is a map)
        kind = part.choice("kind", _PROFILES, otherwise="sweep")
        return kind, _numbers(part, "rate") or _numbers(part, "streams") or _numbers(scenario, "rate")
    key = "profile" if scenario.given("profile") else "rate_type"
    return scenario.choice(key, _PROFILES, otherwise="sweep"), _numbers(scenario, "rate")


def _numbers(section: Section, key: str) -> list[float]:
    """Read one number or a list of them."""
    value = section.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    numbers = [
        number
        for number in values
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= LARGEST
    ]
    if len(numbers) < len(values):
        section.source.problem((*section.path, key), "expected positive numbers", code="BLIS1003")
    return numbers


def _seconds(scenario: Section) -> float:
    """Read the duration in seconds; 0 = not given."""
    value = scenario.get("max_seconds")
    try:
        seconds = float(value) if isinstance(value, int | float | str) else 0.0
    except (OverflowError, ValueError):
        seconds = -1.0
    if not 0.0 <= seconds <= LARGEST:
        scenario.source.problem((*scenario.path, "max_seconds"), "expected a number of seconds", code="BLIS1003")
        return 0.0
    return seconds


def _kinds(scenario: Section) -> list[dict[str, Json]]:
    """Return one client for each prefix."""
    data = _data(scenario)
    if data is None:
        return []
    if "prompt_tokens" not in data.data:
        text = "the lengths of these data are not in this file"
        data.source.problem(data.path, text, hint="give `prompt_tokens` and `output_tokens`")
        return []
    body: dict[str, Json] = {
        "input_tokens": _token_lengths(data, "prompt"),
        "output_tokens": _token_lengths(data, "output"),
    }
    data.note(Fate.NO_EFFECT, "source", "texts have no content here")
    data.choice("kind", ("synthetic_text",), otherwise="synthetic_text")
    if (turns := data.whole("turns")) > 1:
        body["session"] = {"turns": turns}
    prefix = data.whole("prefix_tokens")
    count = max(1, data.whole("prefix_count"))
    buckets = data.sections("prefix_buckets")
    data.finish()
    parts = [(1.0, count, prefix)] if prefix else []
    for bucket in buckets:
        weight, number = bucket.number("bucket_weight") or 0, max(1, bucket.whole("prefix_count"))
        parts.append((float(weight), number, bucket.whole("prefix_tokens")))
        bucket.finish()
    if sum(number for _, number, _ in parts) > _MOST_PREFIXES:
        text = f"there are more than {_MOST_PREFIXES:,} prefixes, each of which would be a client"
        data.source.problem(data.path, text, code="BLIS1005", key=True)
        return []
    kinds: list[dict[str, Json]] = []
    for weight, number, tokens in parts:
        for _ in range(number if weight > 0 else 0):
            name = f"prefix-{len(kinds)}"
            shared: dict[str, Json] = {"prefix": {"group": name, "tokens": tokens}} if tokens else {}
            kinds.append({"id": name, "share": weight / number, **body, **shared})
    return kinds or [{"id": "requests", **body}]


def _data(scenario: Section) -> Section | None:
    """Return the description of the data: a map, the only map of a list, or text such as ``prompt_tokens=256,…``."""
    at = (*scenario.path, "data")
    value = scenario.get("data")
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
        scenario.source.document.graft(at, scenario.source.document.branch((*at, 0)))
    if isinstance(value, str) and "=" in value:
        pairs = (part.partition("=") for part in value.split(","))
        parsed: dict[str, Json] = {
            key.strip(): int(number) if number.strip().isdecimal() else number for key, _, number in pairs
        }
        scenario.data["data"] = parsed
        value = parsed
    if not isinstance(value, dict):
        text = "expected `data` as a map, or as text such as `prompt_tokens=256,output_tokens=128`"
        scenario.source.problem(at, text, code="BLIS1003")
        return None
    return Section(scenario.source, at)


def _token_lengths(data: Section, what: str) -> dict[str, Json]:
    """Convert lengths as GuideLLM draws them: normal within bounds, or uniform if bounds come without a deviation."""
    mean = data.number(f"{what}_tokens", required=True) or 1
    deviation = data.number(f"{what}_tokens_stdev") or 0
    low, high = data.whole(f"{what}_tokens_min"), data.whole(f"{what}_tokens_max")
    if not deviation and low and high and low < high:
        return {"kind": "uniform", "min": low, "max": high}
    low = low or int(mean - _DEFAULT_SPREAD * deviation)
    return clamped_normal(mean, deviation, low, high or int(mean + _DEFAULT_SPREAD * deviation))


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
_ENDPOINTS: Final = ("backend", "endpoint-type", "endpoint")
"""Options that say which endpoint requests use."""
_REACHED: Final = "how the server is reached"
_MEASURED: Final = "what is measured and written"
_BEFORE: Final = "before the first request that counts"
_SAMPLED: Final = "answers have the lengths of the workload, however they are sampled"
_MEANS: Final = MappingProxyType(
    {
        name: why
        for names, why in {
            "host port base-url url u api-key header streaming service-kind": _REACHED,
            " ".join(_ENDPOINTS): _REACHED,
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
        started = commands(source, variables)
    else:
        source = Source("--", " ".join(path_or_words))
        started = [Command(tuple(places(list(path_or_words), source)), {})]
    given = Input(Document({}, source))
    words_of = [tuple(word.text for word in candidate.words) for candidate in started]
    tools = [
        (tool, candidate)
        for at, candidate in enumerate(started)
        if (tool := tool_of(candidate)) and words_of[at] not in words_of[:at]
    ]
    if len(tools) != 1:
        if tools:
            given.document.values[()] = tools[1][1].words[0].place
        text = f"{len(tools)} commands measure a server" if tools else "no command measures a server"
        hint = "expected one of " + ", ".join(f"`{usage}`" for usage in _USAGE.values())
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
        given.document.data = _scenario([word.text for word in command.words])
        return from_scenario(given, name or tool, "of a command", rate)
    body = load_of(command, given) if tool in ("vllm", "sglang") else _profiled(command, given)
    given.stop_at_problems()
    description = f"Imported from a command of {_TITLES[tool]}."
    return Draft(source=given, kind="Workload", name=name or tool, description=description, body=body or {}).finish()


def tool_of(command: Command) -> str:
    """Return the load generator that a command starts; empty = none."""
    texts = [word.text for word in command.words]
    if texts[1:3] == ["bench", "serve"] or any("benchmark_serving" in text for text in texts[:3]):
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
        numbers = [_number({"": text}, "", -1.0) for text in value.split(",")]
        if known == "rate":
            made[known] = list(numbers)
        elif known in ("max_seconds", "max_requests", "random_seed"):
            made[known] = numbers[0]
        elif known in ("profile", "rate_type", "data", "request_type", "request_format"):
            made[known] = value
        elif known == "backend" and "completions" in value:
            made["request_format"] = value
        else:
            made["target"] = value  # how the server is reached and what is written
    return made


def _profiled(command: Command, given: Input) -> dict[str, Json]:
    """Return the load of ``aiperf profile`` and ``genai-perf profile``, which have the same options."""
    options = _options([word.text for word in command.words], _TAKEN[tool_of(command)].split())
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
    sent = _endpoint(options, tool_of(command))
    if "request-count" not in options and "num-requests" not in options:
        given.note(Fate.APPROXIMATED, (), f"the command does not say how many requests: {requests:,}")
    if not rate:
        client["arrivals"] = {"kind": "closed-loop", "users": min(users, requests)}
        return {"requests": requests, **sent, "clients": [client]}
    if users:
        given.note(Fate.APPROXIMATED, (), f"a rate with at most {users} in flight became the rate alone")
    client["arrivals"] = {"kind": "constant" if options.get("request-rate-mode") == "constant" else "poisson"}
    return {"requests": requests, "rate_per_s": rate, **sent, "clients": [client]}


def _endpoint(options: Mapping[str, str], tool: str) -> dict[str, Json]:
    """Return the endpoint that a tool's requests use, as a key of a workload.

    Backends of vLLM and SGLang with chat in their name use it; so does AIPerf, unless told otherwise (0.13.0,
    ``config/endpoint.py``).
    """
    named = [options[name] for name in _ENDPOINTS if options.get(name)] or [CHAT if tool == "aiperf" else ""]
    return {"endpoint": CHAT} if any(CHAT in name for name in named) else {}


def load_of(command: Command, given: Input) -> dict[str, Json] | None:
    """Return the workload of a benchmark's command of vLLM or SGLang; None = it is none.

    Lengths that are only in a data set cannot be read from a command: that is a problem of ``given``.
    """
    engine = tool_of(command)
    if engine not in _LENGTHS:
        return None
    options = _options([word.text for word in command.words], _TAKEN[tool_of(command)].split())
    data = options.get("dataset-name", "random")
    place = command.words[0].place.span.line
    if data not in ("random", "random-ids"):
        hint = "give the workload with --workload; `trace: {format: sharegpt}` reads such a file"
        given.problem((), f"line {place}: the lengths of `{data}` are not in the command", hint=hint)
        return None
    _note_others(options, command, given)
    client: dict[str, Json] = {"id": "bench", **_lengths(options, engine)}
    if "ignore-eos" in options or (engine == "sglang" and "disable-ignore-eos" not in options):
        client["ignore_eos"] = True
    requests = int(_number(options, "num-prompts", _PROMPTS))
    sent = _endpoint(options, engine)
    rate, users = options.get("request-rate", "inf"), int(_number(options, "max-concurrency", 0))
    if rate == "inf" and users:
        client["arrivals"] = {"kind": "closed-loop", "users": min(users, requests)}
        return {"requests": requests, **sent, "clients": [client]}
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
    return {"requests": requests, "rate_per_s": every, **sent, "clients": [client]}


def _note_others(options: dict[str, str], command: Command, given: Input) -> None:
    """Note each option that is not in the workload, and what that means."""
    for name, value in options.items():
        if name in _TAKEN[tool_of(command)].split():
            continue
        text = _MEANS.get(name) or _ELSEWHERE.get(name, "unknown option")
        fate = Fate.NO_EFFECT if name in _MEANS else Fate.ELSEWHERE if name in _ELSEWHERE else Fate.NOT_CARRIED
        if name in _ENDPOINTS and CHAT in value:
            text, fate = f"`endpoint: {CHAT}`", Fate.TAKEN
        place = next((word.place for word in command.words if name in word.text.replace("_", "-")), None)
        path = ("load", name)
        given.document.keys[path] = place or command.words[0].place
        given.note(fate, path, text)


def _lengths(options: dict[str, str], engine: str) -> dict[str, Json]:
    """Return lengths as the benchmarks draw them.

    With a range ratio r and a length n, vLLM draws uniformly from n (1 - r) to n (1 + r), 0 by default; SGLang from
    n r to n, with 0 by default. Sources: vLLM 0.33, ``benchmarks/datasets.py``; SGLang 0.5.23, ``bench_serving.py``.
    """
    ratio, lengths = _number(options, "random-range-ratio", 0.0), dict[str, "Json"]()
    for key, name, tokens in zip(("input", "output"), ("input_tokens", "output_tokens"), _LENGTHS[engine], strict=True):
        length = _number(options, f"random-{key}-len", tokens)
        low, high = (length * (1 - ratio), length * (1 + ratio)) if engine == "vllm" else (length * ratio, length)
        low, high = max(1, int(low)), max(1, int(high))
        lengths[name] = low if low == high else {"kind": "uniform", "min": low, "max": high}
    if prefix := int(_number(options, "random-prefix-len", 0)):
        lengths["prefix"] = {"group": "bench", "tokens": prefix}
    return lengths


def _options(texts: list[str], known: Sequence[str] = ()) -> dict[str, str]:
    """Return the options behind the tool's name; the beginning of a single known one stands for it, as in Python."""
    begin = next((at + 1 for at, text in enumerate(texts) if text.endswith(_NAMED)), 0)
    options: dict[str, str] = {}
    for at, text in enumerate(texts[begin:], begin):
        if text == "--":
            break
        if text.startswith("-") and not text[1:2].isdigit():
            name, given, value = text.lstrip("-").partition("=")
            following = texts[at + 1] if at + 1 < len(texts) and not texts[at + 1].startswith("-") else ""
            name = name.replace("_", "-")
            meant = [option for option in known if option.startswith(name)]
            options[meant[0] if len(meant) == 1 else name] = value if given else following
    return options


def _number(options: dict[str, str], name: str, otherwise: float) -> float:
    try:
        value = float(options.get(name, otherwise))
    except ValueError:
        return otherwise
    return value if 0 <= value < 1e12 else otherwise
