"""Converts BLIS's clients and cohorts: lengths, arrivals, behaviour over time, contents of prompts and answers."""

from __future__ import annotations

from dataclasses import field
from math import cos, fsum, pi
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import suggestion
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.base.source import DataPath, Json
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
    multi_turn = None if reasoning is None else reasoning.section("multi_turn")
    return multi_turn is not None and multi_turn.given("single_session")


def conversation(section: Section, reasoning: Section | None, *, alone: bool) -> dict[str, Json] | None:
    """Return the ``session`` of a client with conversations; None = it has none.

    ``alone``: whether it is the only client, so that the workload can limit the number of sessions.
    """
    multi_turn = None if reasoning is None else reasoning.section("multi_turn")
    closed = section.get("closed_loop")
    if multi_turn is None:
        section.note(Fate.NO_EFFECT, "closed_loop", "it matters for conversations only")
        return None
    rounds, think_us = multi_turn.whole("max_rounds", low=1), multi_turn.whole("think_time_us")
    grows = multi_turn.choice("context_growth", ("accumulate",), otherwise="") == "accumulate"
    session: dict[str, Json] = {"turns": max(1, rounds)}
    if think_us and rounds > 1:
        session["think_time_ms"] = _milliseconds(multi_turn, "think_time_us", think_us)
    session["history"] = "full" if grows else "none"
    if closed is False:
        session["pacing"] = "clock"
    if not (alone and multi_turn.given("single_session")):
        multi_turn.lose("single_session", "sessions begin at the client's rate: write how many there are as `sessions`")
    multi_turn.finish()
    return session


def _milliseconds(section: Section, key: str, us: int) -> int:
    ms = max(1, (us + 500) // 1000)
    if ms * 1000 != us:
        section.note(Fate.APPROXIMATED, key, f"{us} us became {ms} ms: times to think are whole milliseconds")
    return ms


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
    body: dict[str, Json] = {}
    for theirs, ours in _MODALITIES.items():
        tokens, count = (media.section(f"{theirs}{part}_distribution") for part in ("", "_count"))
        if tokens is not None and count is not None:
            body[ours] = {"count": lengths(count), "tokens": lengths(tokens)}
        elif tokens is not None or count is not None:
            key = f"{theirs}{'' if tokens is not None else '_count'}_distribution"
            media.note(Fate.NO_EFFECT, key, "BLIS needs both how many there are and their tokens")
    media.finish()
    return body


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


_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
_OLD_CLASSES: Final = {"realtime": "critical", "interactive": "standard"}
"""Classes of version 1, and what BLIS converts them to."""

DEFAULT_PREFIX: Final = 50
"""Default length of a prefix group in tokens."""

_MOST_MEMBERS: Final = 1000
"""Maximum number of cohort members that become separate clients; larger cohorts become one client."""

_LOST: Final = {
    "model": "where a cluster serves several models, write it as the client's `model`",
    "slo_target_us": "write it as `slo_targets` into the experiment",
}
_WITHOUT_EFFECT: Final = {
    "streaming": "it changes nothing in a BLIS run",
    "network": "BLIS applies it to measurements only, never in a run",
}
_PARAMETERS: Final = {
    "gaussian": ("mean", "std_dev", "min", "max"),
    "exponential": ("mean",),
    "lognormal": ("mu", "sigma"),
    "pareto_lognormal": ("alpha", "xm", "mu", "sigma", "mix_weight"),
    "constant": ("value",),
    "empirical": (),
}
"""Distribution -> the parameters it requires."""

_BOUNDED: Final = frozenset({"gaussian", "exponential", "lognormal"})
"""Distributions that support ``min`` and ``max``."""

_PROCESSES: Final = ("poisson", "constant", "gamma", "weibull")
_SMALLEST_GAMMA_SHAPE: Final = 0.01
_PATTERNS: Final = ("diurnal", "spike", "drain")


@dataclass(slots=True)
class Clients:
    """The converted clients, and their common settings.

    Attributes:
        upgrade: whether the classes of version 1 are accepted.
        requests: maximum number of requests; 0 = not given.
        absolute: whether windows have rates in requests a second, and the workload has none.
        alone: whether there is only one client.
        one_session: whether that client holds a single conversation.
        shares: the rate fractions of all clients in the input.
        kept_shares: the rate fractions of converted clients.
    """

    upgrade: bool
    requests: int = 0
    absolute: bool = False
    alone: bool = False
    one_session: bool = False
    found: list[dict[str, Json]] = field(default_factory=list)
    origins: dict[DataPath, DataPath] = field(default_factory=dict)
    prefix_tokens: dict[str, int] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)
    kept_shares: list[float] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def add_client(self, section: Section) -> None:
        """Convert one client."""
        name = section.text("id") or f"client-{section.path[-1]}"
        if section.whole("concurrency"):
            self._add_users(section, name)
            return
        section.note(Fate.NO_EFFECT, "think_time_us", "it matters with `concurrency` only")
        share, curve = self._absolute(section, rates_of(section)) if self.absolute else _shared(section)
        body = self._body(section)
        section.finish()
        if body is not None and curve is not None:
            body["rate_curve"] = curve
        if share is not None and body is not None:
            self._count(share, kept=True)
            self._append(section, self._unique(section, name), share, body)

    def _add_users(self, section: Section, name: str) -> None:
        """Convert users who wait for their answers."""
        session = user_session(section, self.requests)
        users = section.whole("concurrency")
        section.note(Fate.NO_EFFECT, "rate_fraction", "users send when they have their answers")
        section.lose("lifecycle", "users are always active")
        body = self._body(section)
        section.finish()
        if body is None:
            return
        if session is not None:
            text = f"all users begin at once; in BLIS, one after the other within {session['think_time_ms']} ms"
            section.note(Fate.APPROXIMATED, "concurrency", text)
            body["session"] = session
        body["arrivals"] = {"kind": "closed-loop", "users": users}
        if section.data.get("timeout") is None:
            body["timeout_us"] = PATIENCE_US
        self._append(section, self._unique(section, name), 1.0, body)

    def add_cohort(self, section: Section) -> None:
        """Convert the members of a cohort, if its rate has only one pattern."""
        name = section.text("id") or f"cohort-{section.path[-1]}"
        population = section.whole("population", low=1)
        if "population" not in section.data:
            section.source.problem(section.path, "the cohort lacks the key `population`", code="BLIS1002", key=True)
        patterns = [key for key in _PATTERNS if section.given(key)]
        if self.absolute:
            share, curve = self._absolute(section, spike_of(section))
        else:
            share = section.number("rate_fraction", required=True)
            curve = course_of(section, patterns[0]) if len(patterns) == 1 else None
        body = self._body(section)
        if body is not None and curve is not None:
            body["rate_curve"] = curve
            patterns = []
        per_member = section.choice("prefix_sharing", ("shared", "per_member"), otherwise="shared") == "per_member"
        section.finish()
        for key in patterns:
            section.lose(
                key, "with several of them the cohort is left out, and its share of the rate: write its `rate_curve`"
            )
        self._count(share or 0.0, kept=not patterns)
        if share is None or body is None or patterns or population < 1:
            return
        if population > _MOST_MEMBERS:
            text = f"{population} members became one client with all their requests"
            exact = body["arrivals"] == {"kind": "poisson"} and not per_member
            why = "; Poisson arrivals add up to Poisson arrivals" if exact else "; their arrivals are less independent"
            section.note(Fate.NO_EFFECT if exact else Fate.APPROXIMATED, "population", text + why)
            self._append(section, self._unique(section, name), share, body)
            return
        for member, own in enumerate(_members(body, population, per_member=per_member)):
            self._append(section, self._unique(section, f"{name}-{member}"), share / population, own)

    def _absolute(
        self, section: Section, absolute: tuple[float, dict[str, Json]] | None
    ) -> tuple[float | None, dict[str, Json] | None]:
        """Return the peak rate in requests a second as the client's share, and its curve."""
        section.note(Fate.NO_EFFECT, "rate_fraction", "the windows have rates of their own")
        return (None, None) if absolute is None else absolute

    def _count(self, share: float, *, kept: bool) -> None:
        self.shares.append(share)
        if kept:
            self.kept_shares.append(share)

    def _unique(self, section: Section, name: str) -> str:
        """Return a client's id, changed if another client has it already."""
        unique, number = name, 1
        while unique in self._ids:
            number += 1
            unique = f"{name}-{number}"
        if unique != name:
            section.note(Fate.NO_EFFECT, "id", f"two clients are named `{name}`; this one became `{unique}`")
        self._ids.add(unique)
        return unique

    def _append(self, section: Section, name: str, share: float, body: dict[str, Json]) -> None:
        at: DataPath = ("clients", len(self.found))
        self.found.append({"id": name, "share": share, **body})
        self.origins[at] = section.path
        for ours, theirs in (
            ("share", "rate_fraction"),
            ("arrivals", "arrival"),
            ("prefix", "prefix_group"),
            ("slo_class", "slo_class"),
            ("tenant", "tenant_id"),
            ("timeout_us", "timeout"),
        ):
            self.origins[(*at, ours)] = (*section.path, theirs)
        self.origins[(*at, "arrivals", "cv")] = (*section.path, "arrival", "cv")
        for ours, theirs in (("input_tokens", "input_distribution"), ("output_tokens", "output_distribution")):
            self.origins[(*at, ours)] = (*section.path, theirs)
            values = body[ours]
            for key in values if isinstance(values, dict) else ():
                self.origins[(*at, ours, key)] = (*section.path, theirs, "params", key)

    def _body(self, section: Section) -> dict[str, Json] | None:
        """Convert everything except id and share; None = lengths are missing."""
        body: dict[str, Json] = {"arrivals": _arrivals(section.section("arrival"))}
        inputs = section.section("input_distribution")
        outputs = section.section("output_distribution")
        more: dict[str, Json] = {}
        inputs = _multimodal(section, inputs, more)
        _reasoning(section, more, alone=self.alone)
        self.one_session = self.alone and has_one_session(section)
        for ours, theirs, part in (
            ("input_tokens", "input_distribution", inputs),
            ("output_tokens", "output_distribution", outputs),
        ):
            if part is None:
                section.source.problem(section.path, f"this lacks the key `{theirs}`", code="BLIS1002", key=True)
                continue
            body[ours] = _lengths(part)
        body |= more
        self._prefix(section, body)
        self._rest(section, body)
        return (
            body if isinstance(body.get("input_tokens"), dict) and isinstance(body.get("output_tokens"), dict) else None
        )

    def _prefix(self, section: Section, body: dict[str, Json]) -> None:
        group = section.text("prefix_group")
        tokens = section.whole("prefix_length")
        if not group:
            section.note(Fate.NO_EFFECT, "prefix_length", "a prefix needs a `prefix_group`")
            return
        first = self.prefix_tokens.setdefault(group, tokens or DEFAULT_PREFIX)
        if tokens and tokens != first:
            text = f"the first client of group `{group}` says {first}; BLIS takes that for all, and so does this"
            section.note(Fate.NO_EFFECT, "prefix_length", text)
        body["prefix"] = {"group": group, "tokens": first}

    def _rest(self, section: Section, body: dict[str, Json]) -> None:
        given = section.text("slo_class")
        old = _OLD_CLASSES.get(given) if self.upgrade else None
        if old is not None:
            section.note(Fate.NO_EFFECT, "slo_class", f"version 1's `{given}` is called `{old}` since version 2")
        elif given:
            section.choice("slo_class", _CLASSES, otherwise="standard")
        if given:
            body["slo_class"] = old or given
        if tenant := section.text("tenant_id"):
            body["tenant"] = tenant
        if timeout := section.whole("timeout"):
            body["timeout_us"] = timeout
        elif section.data.get("timeout") is None and "session" in body:
            body["timeout_us"] = PATIENCE_US
        if adapter := section.text("adapter"):
            body["adapters"] = {"names": [adapter]}
            section.note(Fate.ELSEWHERE, "adapter", "add `engine.lora` to the experiment")
        for key, why in _LOST.items():
            section.lose(key, why)
        for key, why in _WITHOUT_EFFECT.items():
            section.note(Fate.NO_EFFECT, key, why)


def _shared(section: Section) -> tuple[float | None, dict[str, Json] | None]:
    """Return a client's share of the total rate, and when it is active."""
    return section.number("rate_fraction", required=True), windows_of(section)


def _multimodal(section: Section, inputs: Section | None, body: dict[str, Json]) -> Section | None:
    """Return the length distribution of the text; BLIS prefers the sum of modalities to the whole prompt's length."""
    media = section.section("multimodal")
    if media is None:
        return inputs
    text = media.section("text_distribution")
    multimodal = multimodal_of(media, _lengths)
    if multimodal:
        body["multimodal"] = multimodal
    if text is None:
        section.note(Fate.APPROXIMATED, "multimodal", "it has no text: that of `input_distribution` stands beside it")
    return inputs if text is None else text


def _reasoning(section: Section, body: dict[str, Json], *, alone: bool) -> None:
    part = section.section("reasoning")
    session = conversation(section, part, alone=alone)
    reasoning = reasoning_of(part, "reason_ratio_distribution")
    if part is not None:
        part.finish()
    if reasoning is not None:
        # BLIS counts reasoning but ignores it otherwise: the history keeps it.
        body["reasoning"] = {**reasoning, **({"history": "kept"} if session is not None else {})}
    if session is not None:
        body["session"] = session


def _lengths(section: Section) -> dict[str, Json] | None:
    """Convert a distribution of token counts; None after a problem.

    As in BLIS, bounds and constants are truncated, and less than one token counts as one.
    """
    kind = section.text("type")
    params = section.section("params")
    if kind not in _PARAMETERS:
        hint = suggestion(kind, _PARAMETERS, otherwise="BLIS knows")
        section.source.problem((*section.path, "type"), f"unknown distribution `{kind}`", hint=hint)
        return None
    section.lose("file", "BLIS does not read it either; give `params`")
    section.finish()
    if params is None:
        section.source.problem(section.path, f"{kind} lengths lack `params`", code="BLIS1002", key=True)
        return None
    if kind == "empirical":
        return _empirical(params)
    parameters = {name: params.number(name, required=True) for name in _PARAMETERS[kind]}
    bounds = {name: params.number(name) for name in ("min", "max")} if kind in _BOUNDED else {}
    params.finish()
    if None in parameters.values():
        return None
    whole = {name: max(1, int(value)) for name, value in bounds.items() if value is not None}
    if kind == "constant":
        return {"kind": kind, "value": max(1, int(parameters["value"] or 0))}
    if kind == "gaussian":
        return _gaussian(params, parameters["mean"] or 0, parameters["std_dev"] or 0, whole)
    return {"kind": kind.replace("_", "-"), **parameters, **whole}


def _gaussian(params: Section, mean: float, std_dev: float, bounds: dict[str, int]) -> dict[str, Json]:
    low, high = bounds["min"], bounds["max"]
    if low == high or std_dev == 0:
        return {"kind": "constant", "value": low if mean < low else high if mean > high else max(1, int(mean + 0.5))}
    if low < high and not low <= mean <= high:
        moved = low if mean < low else high
        text = f"{mean:g} lies outside [{low}, {high}], which is invalid here; it became {moved}"
        params.note(Fate.APPROXIMATED, "mean", text)
        mean = moved
    return {"kind": "gaussian", "mean": mean, "std_dev": std_dev, "min": low, "max": high}


def _empirical(params: Section) -> dict[str, Json] | None:
    weights: dict[int, float] = {}
    for key in params.data:
        weight = params.number(key)
        if not key.strip().isdecimal():
            params.source.problem((*params.path, key), f"`{key[:40]}` is not a number of tokens", key=True)
        elif weight is not None and weight > 0:
            tokens = max(1, int(key))
            weights[tokens] = weights.get(tokens, 0) + weight
    if not weights:
        params.source.problem(params.path, "no length has a positive weight", code="BLIS2010", key=True)
        return None
    return {"kind": "empirical", "weights": {str(tokens): weights[tokens] for tokens in sorted(weights)}}


def _arrivals(section: Section | None) -> dict[str, Json]:
    """Convert an arrival process; the default is Poisson."""
    if section is None:
        return {"kind": "poisson"}
    kind = section.choice("process", _PROCESSES, otherwise="poisson")
    cv = section.number("cv")
    for key in ("shape", "scale"):
        section.lose(key, "arrivals are given by the client's rate and `cv`")
    section.finish()
    if kind not in {"gamma", "weibull"}:
        section.note(Fate.NO_EFFECT, "cv", f"{kind} arrivals have none")
        return {"kind": kind}
    if kind == "gamma" and cv is not None and cv > 0 and cv * cv * _SMALLEST_GAMMA_SHAPE > 1:
        section.note(Fate.NO_EFFECT, "cv", "BLIS draws Poisson arrivals for a `cv` above 10, and so does this")
        return {"kind": "poisson"}
    return {"kind": kind} if cv is None else {"kind": kind, "cv": cv}


def _members(body: dict[str, Json], population: int, *, per_member: bool) -> Iterator[dict[str, Json]]:
    """Iterate over what each member of a cohort sends."""
    prefix = body.get("prefix")
    for member in range(population):
        if per_member and isinstance(prefix, dict):
            yield {**body, "prefix": {**prefix, "group": f"{prefix['group']}-{member}"}}
        else:
            yield body
