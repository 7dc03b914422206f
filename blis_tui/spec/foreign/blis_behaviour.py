"""Converts the behaviour of BLIS's clients over time, and the contents of their prompts and answers."""

from __future__ import annotations

from math import cos, fsum, pi
from typing import TYPE_CHECKING, Final

from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Section

    Lengths = Callable[[Section], dict[str, Json] | None]

_MOST_TURNS: Final = 1000
"""Turns of a user who never stops."""
_HOUR_S: Final = 3600
_STEP_S: Final = 1e-6
"""Duration of a rate's jump: a microsecond."""
_DRAWN: Final = "BLIS sends rate x duration requests in each window exactly; here that is how many there are on average"
_MODALITIES: Final = {"image": "images", "audio": "audio", "video": "video"}
PATIENCE_US: Final = 300_000_000
"""Default time that users and sessions of BLIS wait for an answer."""


def user_session(section: Section, requests: int) -> dict[str, Json] | None:
    """Return the session of users who think between unrelated prompts; None = they send at once."""
    think_us = section.whole("think_time_us")
    if not think_us:
        return None
    turns = min(requests or _MOST_TURNS, _MOST_TURNS)
    return {"turns": turns, "think_time_ms": _milliseconds(section, "think_time_us", think_us), "history": "none"}


def has_one_session(client: Section) -> bool:
    """Whether a client has a single conversation."""
    reasoning = client.section("reasoning")
    talk = None if reasoning is None else reasoning.section("multi_turn")
    return talk is not None and talk.given("single_session")


def conversation(section: Section, reasoning: Section | None, *, alone: bool) -> dict[str, Json] | None:
    """Return the ``session`` of a client with conversations; None = it has none.

    ``alone``: whether it is the only client, so that the workload can limit the number of sessions.
    """
    talk = None if reasoning is None else reasoning.section("multi_turn")
    closed = section.get("closed_loop")
    if talk is None:
        section.note(Fate.NO_EFFECT, "closed_loop", "it matters for conversations only")
        return None
    rounds, think_us = talk.whole("max_rounds", low=1), talk.whole("think_time_us")
    grows = talk.choice("context_growth", ("accumulate",), otherwise="") == "accumulate"
    found: dict[str, Json] = {"turns": max(1, rounds)}
    if think_us and rounds > 1:
        found["think_time_ms"] = _milliseconds(talk, "think_time_us", think_us)
    found["history"] = "full" if grows else "none"
    if closed is False:
        found["pacing"] = "clock"
    if not (alone and talk.given("single_session")):
        talk.lose("single_session", "sessions begin at the client's rate: write how many there are as `sessions`")
    talk.finish()
    return found


def _milliseconds(section: Section, key: str, us: int) -> int:
    found = max(1, (us + 500) // 1000)
    if found * 1000 != us:
        section.note(Fate.APPROXIMATED, key, f"{us} us became {found} ms: times to think are whole milliseconds")
    return found


def reasoning_of(reasoning: Section | None, name: str) -> dict[str, Json] | None:
    """Return the ``reasoning`` of a client; BLIS draws percentages."""
    part = None if reasoning is None else reasoning.section(name)
    if part is None:
        return None
    kind, params = part.text("type"), part.section("params")
    values = {} if params is None else {key: float(params.number(key) or 0) for key in params.data}
    if kind == "constant":
        return {"ratio": {"kind": kind, "value": _share(values.get("value", 0))}}
    if kind == "gaussian":
        bounds = {key: _share(values.get(key, otherwise)) for key, otherwise in (("min", 0), ("max", 100))}
        mean = min(bounds["max"], max(bounds["min"], _share(values.get("mean", 0))))
        return {"ratio": {"kind": kind, "mean": mean, "std_dev": _share(values.get("std_dev", 0)), **bounds}}
    if kind == "empirical" and all(key.isdecimal() for key in values):
        weights: dict[str, Json] = {}
        for key, weight in values.items():
            share = format(_share(int(key)), "g")
            weights[share] = weight + float(str(weights.get(share, 0.0)))
        return {"ratio": {"kind": kind, "weights": weights}}
    text = f"shares of reasoning are constant, gaussian, beta or a table here: write `reasoning` for `{kind[:40]}`"
    part.source.note(Fate.NOT_CARRIED, part.path, text)
    return None


def _share(percent: float) -> float:
    return min(1.0, max(0.0, percent / 100))


def multimodal_of(media: Section, lengths: Lengths) -> dict[str, Json]:
    """Return the ``multimodal`` of a client; its text is read elsewhere."""
    found: dict[str, Json] = {}
    for theirs, ours in _MODALITIES.items():
        tokens, count = (media.section(f"{theirs}{part}_distribution") for part in ("", "_count"))
        if tokens is not None and count is not None:
            found[ours] = {"count": lengths(count), "tokens": lengths(tokens)}
        elif tokens is not None or count is not None:
            key = f"{theirs}{'' if tokens is not None else '_count'}_distribution"
            media.note(Fate.NO_EFFECT, key, "BLIS needs both how many there are and their tokens")
    media.finish()
    return found


def rates_of(section: Section) -> tuple[float, dict[str, Json]] | None:
    """Return the peak rate and the ``rate_curve`` of a client whose windows have rates; None after a problem.

    BLIS reads windows of a workload without an ``aggregate_rate`` this way, in requests a second.
    """
    lifecycle = section.section("lifecycle")
    spans: list[tuple[float, float, float]] = []
    for window in [] if lifecycle is None else lifecycle.sections("windows"):
        start, end = window.whole("start_us"), window.whole("end_us")
        rate = window.number("trace_rate", required=True)
        for key in ("arrival", "input_distribution", "output_distribution"):
            window.lose(key, "a window has the client's own: write a client for each window, with its `rate_curve`")
        window.finish()
        if rate is not None and rate > 0 and end > start:
            spans.append((start / 1e6, end / 1e6, rate))
    if lifecycle is not None:
        lifecycle.finish()
    if not spans:
        text = "without an `aggregate_rate`, this needs `lifecycle.windows` with a `trace_rate`"
        section.source.problem(section.path, text, code="BLIS1002", key=True)
        return None
    section.note(Fate.APPROXIMATED, "lifecycle", _DRAWN)
    return _steps(spans)


def spike_of(section: Section) -> tuple[float, dict[str, Json]] | None:
    """Return the peak rate and the ``rate_curve`` of a cohort with one spike; None after a problem."""
    part = section.section("spike")
    if part is None or any(section.given(key) for key in ("diurnal", "drain")):
        text = "without an `aggregate_rate`, a cohort has a `spike` with a `trace_rate`, and nothing else, in BLIS, too"
        section.source.problem(section.path, text, code="BLIS1002", key=True)
        return None
    start, length = part.whole("start_time_us"), part.whole("duration_us", low=1)
    rate = part.number("trace_rate", required=True)
    part.finish()
    if rate is None or rate <= 0 or not length:
        return None
    section.note(Fate.APPROXIMATED, "spike", _DRAWN)
    return _steps([(start / 1e6, (start + length) / 1e6, rate)])


def windows_of(section: Section) -> dict[str, Json] | None:
    """Return the ``rate_curve`` of a client that is only active at times; None = it always is."""
    lifecycle = section.section("lifecycle")
    if lifecycle is None:
        return None
    spans: list[tuple[float, float]] = []
    for window in lifecycle.sections("windows"):
        start, end = window.whole("start_us"), window.whole("end_us")
        for key in ("trace_rate", "arrival", "input_distribution", "output_distribution"):
            window.lose(key, "a window has the client's own: write a client for each window, with its `rate_curve`")
        window.finish()
        if end > start:
            spans.append((start / 1e6, end / 1e6))
    lifecycle.finish()
    if not spans:
        section.note(Fate.NO_EFFECT, "lifecycle", "it has no windows")
        return None
    return _active(spans)


def course_of(section: Section, pattern: str) -> dict[str, Json]:
    """Return the ``rate_curve`` of a cohort's pattern."""
    part = section.section(pattern)
    if part is None:  # which is a problem that was noted
        return {}
    if pattern == "spike":
        start, length = part.whole("start_time_us"), part.whole("duration_us", low=1)
        part.lose("trace_rate", "a spike has the cohort's rate")
        curve = _active([(start / 1e6, (start + length) / 1e6)])
    elif pattern == "drain":
        start, ramp = part.whole("start_time_us"), part.whole("ramp_duration_us", low=1)
        ends = [(0.0, 1.0), *([(start / 1e6, 1.0)] if start else []), ((start + ramp) / 1e6, 0.0)]
        curve = _curve(ends)
        section.note(Fate.APPROXIMATED, pattern, "ten steps became the line that they follow")
    else:
        peak, ratio = part.whole("peak_hour"), part.number("peak_to_trough_ratio") or 1
        shares = [(1 + cos(2 * pi * (hour - peak) / 24)) / 2 * (1 - 1 / ratio) + 1 / ratio for hour in range(24)]
        middles = [((hour + 0.5) * _HOUR_S, round(share, 6)) for hour, share in enumerate(shares)]
        day = 24.0 * _HOUR_S
        curve = _curve([(0.0, middles[0][1]), *middles, (day, middles[-1][1]), (day + _STEP_S, 0.0)])
        text = "a part of each hour became the smooth course that it stands for; as in BLIS, it ends after a day"
        section.note(Fate.APPROXIMATED, pattern, text)
    part.finish()
    return curve


def _active(spans: Sequence[tuple[float, float]]) -> dict[str, Json]:
    """Return a curve that is 1 within any of these spans, otherwise 0."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + 2 * _STEP_S:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    points = [(0.0, 0.0)] if merged[0][0] > _STEP_S else []
    for start, end in merged:
        points += [(start, 0.0), (start + _STEP_S, 1.0)] if points else [(0.0, 1.0)]
        points += [(end, 1.0), (end + _STEP_S, 0.0)]
    return _curve(points)


def _steps(spans: Sequence[tuple[float, float, float]]) -> tuple[float, dict[str, Json]]:
    """Return the maximum of the summed rates of spans, and the curve of the sum relative to it."""
    times = sorted({0.0, *(time for start, end, _ in spans for time in (start, end))})
    rates = [fsum(rate for start, end, rate in spans if start <= time < end) for time in times]
    peak = max(rates)
    points = [(0.0, rates[0] / peak)]
    for time, rate in zip(times[1:], rates[1:], strict=True):
        if time > points[-1][0]:
            points.append((time, points[-1][1]))
        points.append((points[-1][0] + _STEP_S, rate / peak))
    return peak, _curve(points)


def _curve(points: Sequence[tuple[float, float]]) -> dict[str, Json]:
    return {"points": [{"at_s": round(at, 6), "factor": factor} for at, factor in points]}
