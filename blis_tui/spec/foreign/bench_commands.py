"""The load of a command that measures a server: ``vllm bench serve`` and ``sglang.bench_serving``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Input
    from blis_tui.spec.foreign.shell import Command

_AT_ONCE: Final = 10_000.0
"""Requests a second that stand for all at once: a process in front of the engine takes none so fast."""
_PROMPTS: Final = 1000
_LENGTHS: Final = {"vllm": (1024, 128), "sglang": (1024, 1024)}
"""Tokens of random prompts and answers where a command leaves them out."""


def load_of(command: Command, given: Input) -> dict[str, Json] | None:
    """Return the workload of a benchmark's command; None = it is none.

    Lengths that are only in a data set cannot be read from a command: that is a problem of ``given``.
    """
    texts = [one.text for one in command.words]
    engine = "vllm" if texts[1:3] == ["bench", "serve"] or any("benchmark_serving" in one for one in texts[:3]) else ""
    engine = "sglang" if "sglang.bench_serving" in texts else engine
    if not engine:
        return None
    options = _options(texts)
    data = options.get("dataset-name", "random")
    place = command.words[0].place.span.line
    if data not in ("random", "random-ids"):
        hint = "give the workload with --workload; `trace: {format: sharegpt}` reads such a file"
        given.problem((), f"line {place}: the lengths of `{data}` are not in the command", hint=hint)
        return None
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
    client["arrivals"] = (
        {"kind": "poisson"} if burstiness == 1.0 else {"kind": "gamma", "cv": min(10.0, burstiness**-0.5)}
    )
    every = _AT_ONCE if rate == "inf" else _number(options, "request-rate", 1.0)
    if rate == "inf":
        client["arrivals"] = {"kind": "constant"}
    return {"requests": requests, "rate_per_s": every, "clients": [client]}


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


def _options(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, text in enumerate(texts):
        if text.startswith("--"):
            name, given, value = text[2:].partition("=")
            following = texts[at + 1] if at + 1 < len(texts) and not texts[at + 1].startswith("--") else ""
            found[name.replace("_", "-")] = value if given else following
    return found


def _number(options: dict[str, str], name: str, otherwise: float) -> float:
    try:
        value = float(options.get(name, otherwise))
    except ValueError:
        return otherwise
    return value if 0 <= value < 1e12 else otherwise
