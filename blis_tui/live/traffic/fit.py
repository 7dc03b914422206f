"""Fits a Workload document to a trace, and measures the agreement."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import exp, gamma, power, whole_sum
from blis_tui.base.source import Source
from blis_tui.base.units import plural, share_text
from blis_tui.live.traffic.kinds import (
    LARGEST,
    Chosen,
    Kind,
    ReasoningAndMedia,
    SessionGroup,
    by_chance,
    choose,
    distance,
    distance_of_samples,
    gamma_cdf,
    group_sessions,
    kinds_of,
    reasoning_and_media_of,
    rounded,
)
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import generate
from blis_tui.live.traffic.traffic_figures import MINUTE, SECOND, dispersion, gap_cv, spread
from blis_tui.model import PluginConfig
from blis_tui.spec.read import parse
from blis_tui.spec.shipped import builtin
from blis_tui.spec.validate import open_workload
from blis_tui.spec.yaml_text import yaml_text
from blis_tui.workload.arrivals import weibull_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.live.traffic.opening import RequestTiming
    from blis_tui.model import Setting, Workload
    from blis_tui.model.plug_ins import Registry

    Figure = Callable[[Ledger], float | None]
    Sample = Callable[[Ledger], Sequence[int]]


POOR: Final = 0.1
"""From this distance on, a part counts as a poor fit."""
_REUSE: Final = 0.02
_UNEVEN: Final = 3.0
"""Warning threshold: how many times more the trace's rate varies by the minute than the fitted one's."""
_LEAST: Final = 3
"""With fewer requests, no arrival process is fitted: Poisson is used."""
_FEW: Final = 100
_LEAST_GENERATED: Final = 5000
_MOST_GENERATED: Final = 100_000
_LEAST_RATE: Final = 1e-6
_MOST_RATE: Final = 1_000_000
_MOST_STAGES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedClient:
    """The client fitted to one kind of requests."""

    id: str
    requests: int
    arrivals: Chosen
    input_tokens: Chosen
    """For sessions, the new text of prompts."""
    output_tokens: Chosen
    beside: ReasoningAndMedia | None = None
    """None = prompts are text only, without reasoning."""
    turns: Chosen | None = None
    """Turns per session; None = there are no sessions."""
    think_time_ms: Chosen | None = None
    starts: int | None = None
    """Number of sessions; None = requests are independent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One figure of the trace, and of the requests that the document generates (with seed 0)."""

    trace: float | None
    fitted: float | None
    ks: float | None = None
    """Kolmogorov-Smirnov distance of the two samples, for figures of distributions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted document, and its quality."""

    text: str
    clients: tuple[FittedClient, ...]
    agreement: dict[str, Agreement]
    warnings: tuple[str, ...]
    """Poor fits, each with advice."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        return {
            "clients": [
                {key: part for key, part in asdict(client).items() if part is not None} for client in self.clients
            ],
            "agreement": {name: asdict(agreement) for name, agreement in self.agreement.items()},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def fit(
    ledger: Ledger, name: str, about: str, origin: Sequence[str], *, stage_s: float | None, plugins: Registry | None
) -> Fitted:
    """Create a document whose clients resemble the requests of a trace.

    Args:
        ledger: the requests.
        name: the name of the new document.
        about: the origin of the requests, in a word.
        origin: the origin as lines of comment.
        stage_s: follow the rate in stages of this many seconds; None = one rate.
        plugins: where names are looked up; None = the built-in plug-ins.

    Raises:
        PolicyError: there is no rate.
    """
    arrivals = ledger.arrival_us
    span_us = arrivals[-1] - arrivals[0]
    if len(ledger) < 2:
        raise PolicyError("one request has no rate, and no distribution", help="use more of the trace")
    if not span_us:
        raise PolicyError("the requests have no rate: all arrive at once", help="use a trace with arrival times")
    if (len(ledger) - 1) * SECOND > _MOST_RATE * span_us:
        message = f"the trace has more than {_MOST_RATE:,} requests a second, which a document cannot have"
        raise PolicyError(message, help="is the unit of its times right?")
    session_groups = group_sessions(ledger)
    if session_groups and stage_s:
        raise PolicyError("sessions are fitted at one rate", help="remove --stage")
    in_sessions = {row for group in session_groups for row in group.rows()}
    known = kinds_of(ledger, in_sessions)
    clock = _Stages(arrivals, stage_s) if stage_s else None
    fitted = tuple(_client(ledger, kind, clock) for kind in known.found)
    session_clients = tuple(_sessions(ledger, group) for group in session_groups)
    load: dict[str, Json] = {"requests": len(ledger), "rate_per_s": rounded((len(ledger) - 1) * SECOND / span_us)}
    if session_groups:
        begins = [row for row in range(len(ledger)) if row not in in_sessions]
        begins = sorted(
            arrivals[row] for row in (*begins, *(session[0] for group in session_groups for session in group.sessions))
        )
        span_us = begins[-1] - begins[0] or span_us
        load["rate_per_s"] = rounded(max(1, len(begins) - 1) * SECOND / span_us)
        if not known.found:
            load = {"sessions": len(begins), "rate_per_s": load["rate_per_s"]}
    if clock is not None:
        load = {"requests": len(ledger), "stages": clock.data()}
    data: dict[str, Json] = {
        "apiVersion": "blis/v1",
        "kind": "Workload",
        "metadata": {"name": name, "description": f"Like {plural(len(ledger), 'request')} of {about}."},
        **load,
        "clients": [
            *(_kind_data(kind, client) for kind, client in zip(known.found, fitted, strict=True)),
            *(
                _session_data(group, client, ledger)
                for group, client in zip(session_groups, session_clients, strict=True)
            ),
        ],
    }
    fitted += session_clients
    opened = open_workload(parse(Source("the fitted workload", yaml_text(data))), plugins=plugins)
    # With few requests, chance matters more than the document.
    drawn = min(max(len(ledger), _LEAST_GENERATED), _MOST_GENERATED)
    again = Ledger(
        _generated(opened.workload, ledger, session_groups, drawn, plugins or builtin()), ledger.block_size_tokens
    )
    agreement = _agreement(ledger, again)
    warnings = tuple(_warnings(fitted, agreement, staged=clock is not None, together=_together(ledger)))
    notes = (*known.notes, *_assumed(agreement), *_unfitted(ledger), *_cut(ledger, session_groups))
    remarks = [*origin, *_remarks(fitted, agreement, len(again)), *(f"Warning: {text}." for text in warnings)]
    remarks += [f"Note: {text}." for text in notes]
    return Fitted(text=yaml_text(data, remarks), clients=fitted, agreement=agreement, warnings=warnings, notes=notes)


def _assumed(agreement: dict[str, Agreement]) -> list[str]:
    """Return a note on the reuse that sessions of a trace without prefixes are assumed to have."""
    reuse = agreement["prefix reuse"]
    if reuse.trace is not None or not reuse.fitted:
        return []
    share = _shown("prefix reuse", reuse.fitted)
    why = "the trace names no prefixes: it is assumed that prompts of a session begin with what was said before"
    return [f"{why} ({share} of prompt tokens)"]


def _unfitted(ledger: Ledger) -> list[str]:
    """Return a note on what the trace's requests have that the fitted clients lack."""
    descriptions = {"adapters": "LoRA adapters", "timeout_us": "deadlines", "max_output_tokens": "budgets of answers"}
    return [
        f"{what} are not fitted: add `{key}` to the clients of {plural(ledger.unfitted[key], 'request')} of the trace"
        for key, what in descriptions.items()
        if ledger.unfitted[key]
    ]


def _cut(ledger: Ledger, session_groups: Sequence[SessionGroup]) -> list[str]:
    """Return a note if values are larger than those of documents."""
    gaps = [gap for group in session_groups for gap in group.gaps_ms(ledger, answered=False)]
    samples = {"tokens": (*ledger.input_tokens, *ledger.output_tokens), "milliseconds between turns": gaps}
    return [
        f"more than {LARGEST:,} {what} are fitted as that many: a document cannot have more"
        for what, values in samples.items()
        if max(values, default=0) > LARGEST
    ]


class _Stages:
    """The rate over time in equal stages, the last of which ends with the trace, and normalized arrival times.

    Raises:
        PolicyError: there would be more than a document can have.
    """

    def __init__(self, arrivals_us: Sequence[int], length_s: float) -> None:
        self._length_us = length_s * 1e6
        self._last = max(0, int(arrivals_us[-1] / self._length_us + 0.5) - 1)
        if self._last >= _MOST_STAGES:
            message = f"the trace has {self._last + 1:,} stages of {length_s:g} s, a document at most {_MOST_STAGES:,}"
            raise PolicyError(message, help="use longer stages")
        counts = [0] * (self._last + 1)
        for arrival in arrivals_us:
            counts[self._stage(arrival)] += 1
        rest = arrivals_us[-1] - self._last * self._length_us
        if counts[-1] > 1:  # there is a gap after the last request, too
            rest *= counts[-1] / (counts[-1] - 1)
        self._lengths_us = [self._length_us] * self._last + [rest]
        self._rates = [
            max(rounded(count * SECOND / length), _LEAST_RATE)
            for count, length in zip(counts, self._lengths_us, strict=True)
        ]
        self._before = [0.0]
        for rate, length in zip(self._rates, self._lengths_us, strict=True):
            self._before.append(self._before[-1] + rate * length)

    def _stage(self, arrival_us: int) -> int:
        return min(self._last, int(arrival_us / self._length_us))

    def data(self) -> list[Json]:
        """Return the stages of a document."""
        return [
            {"rate_per_s": rate, "duration_s": rounded(length / 1e6)}
            for rate, length in zip(self._rates, self._lengths_us, strict=True)
        ]

    def even(self, arrival_us: int) -> float:
        """Return the arrival time, in microseconds, of the same requests at one a second."""
        stage = self._stage(arrival_us)
        return self._before[stage] + (arrival_us - stage * self._length_us) * self._rates[stage]


def _client(ledger: Ledger, kind: Kind, clock: _Stages | None) -> FittedClient:
    rows = kind.rows
    times: list[float] = [ledger.arrival_us[row] for row in rows]
    if clock is not None:
        times = [clock.even(ledger.arrival_us[row]) for row in rows]
    poisson = Chosen(data={"kind": "poisson"}, ks=0.0)
    head = kind.prefix.tokens if kind.prefix is not None else 0
    return FittedClient(
        id=kind.name,
        requests=len(rows),
        arrivals=choose_gaps(times) if len(rows) > _LEAST and times[-1] > times[0] else poisson,
        input_tokens=choose([max(1, ledger.text_tokens(row) - head) for row in rows]),
        output_tokens=choose([max(1, ledger.output_tokens[row]) for row in rows]),
        beside=reasoning_and_media_of(ledger, rows),
    )


def _sessions(ledger: Ledger, group: SessionGroup) -> FittedClient:
    begins: list[float] = [ledger.arrival_us[session[0]] for session in group.sessions]
    begins.sort()
    poisson = Chosen(data={"kind": "poisson"}, ks=0.0)
    gaps = group.gaps_ms(ledger, answered=group.answered(ledger))
    return FittedClient(
        id=group.name,
        requests=len(group.rows()),
        arrivals=choose_gaps(begins) if len(begins) > _LEAST and begins[-1] > begins[0] else poisson,
        input_tokens=choose(group.new_tokens(ledger)),
        output_tokens=choose([max(1, ledger.output_tokens[row]) for row in group.rows()]),
        beside=reasoning_and_media_of(ledger, group.rows(), group.new_media(ledger)),
        turns=choose([len(session) for session in group.sessions]),
        think_time_ms=choose(gaps) if gaps else None,
        starts=len(group.sessions),
    )


def _session_data(group: SessionGroup, fitted: FittedClient, ledger: Ledger) -> Json:
    session: dict[str, Json] = {"turns": fitted.turns.data} if fitted.turns else {}
    if fitted.think_time_ms is not None:
        session["think_time_ms"] = fitted.think_time_ms.data
    session["history"] = "full" if group.history else "none"
    if not group.answered(ledger):
        session["pacing"] = "clock"
    beside = fitted.beside.data("dropped" if group.dropped else "kept") if fitted.beside else {}
    return _client_data(group, fitted, fitted.starts or 1, {"session": session, **beside})


def _kind_data(kind: Kind, fitted: FittedClient) -> Json:
    return _client_data(kind, fitted, fitted.requests, fitted.beside.data() if fitted.beside else {})


def _client_data(of: Kind | SessionGroup, fitted: FittedClient, share: int, more: Mapping[str, Json]) -> Json:
    data: dict[str, Json] = {
        "id": fitted.id,
        "share": share,
        "arrivals": fitted.arrivals.data,
        "input_tokens": fitted.input_tokens.data,
        "output_tokens": fitted.output_tokens.data,
        **more,
    }
    if of.prefix is not None:
        data["prefix"] = {"group": of.prefix.group, "tokens": of.prefix.tokens}
    names = {"slo_class": of.slo_class, "tenant": of.tenant, "model": of.model}
    return {**data, **{key: value for key, value in names.items() if value}}


def _generated(
    workload: Workload, ledger: Ledger, session_groups: Sequence[SessionGroup], drawn: int, plugins: Registry
) -> Iterator[RequestTiming]:
    """Generate requests of a document, enough to judge it; with sessions, as many as it says.

    More sessions would overlap more. Clients that wait for answers would need a cluster, so the times between their
    prompts are drawn instead.
    """
    clients = list(workload.clients)
    for at, group in enumerate(session_groups, len(clients) - len(session_groups)):
        client = clients[at]
        gaps = group.gaps_ms(ledger, answered=False)
        if client.session is not None and gaps:
            plain = dict(choose(gaps).data)
            wait = PluginConfig(kind=str(plain.pop("kind")), settings=cast("dict[str, Setting]", plain))
            clients[at] = replace(client, session=replace(client.session, think_time_ms=wait, pacing="clock"))
    workload = replace(workload, clients=tuple(clients))
    return generate(workload if session_groups else replace(workload, requests=drawn), 0, plugins)


def _turns(ledger: Ledger) -> list[int]:
    counts: dict[int, int] = {}
    for code in ledger.sessions.rows:
        if ledger.sessions.values[code]:
            counts[code] = counts.get(code, 0) + 1
    return list(counts.values())


def _agreement(trace: Ledger, fitted: Ledger) -> dict[str, Agreement]:
    def of(figure: Figure, sample: Sample | None = None) -> Agreement:
        ks = None if sample is None else distance_of_samples(sorted(sample(trace)), sorted(sample(fitted)))
        return Agreement(trace=figure(trace), fitted=figure(fitted), ks=ks)

    turns = {}
    if any(trace.sessions.values):
        turns["turns"] = of(lambda ledger: whole_sum(_turns(ledger)) / max(1, len(_turns(ledger))), _turns)
    beside = {}
    if trace.reasoning:
        beside["reasoning tokens"] = of(lambda ledger: whole_sum(_reasoned(ledger)) / len(ledger), _reasoned)
    if trace.media:
        beside["media tokens"] = of(lambda ledger: whole_sum(_media(ledger)) / len(ledger), _media)
    gaps = of(lambda ledger: gap_cv(ledger.arrival_us), _gaps)
    if max(gaps.trace or 0.0, gaps.fitted or 0.0) < _LEAST_CV:
        gaps = replace(gaps, ks=None)  # equal gaps differ as soon as the rate is rounded
    return {
        **turns,
        "requests/s": of(_rate),
        "CV of gaps": gaps,
        "dispersion by second": of(lambda ledger: dispersion(ledger.arrival_us, SECOND)),
        "dispersion by minute": of(lambda ledger: dispersion(ledger.arrival_us, MINUTE)),
        "prompt tokens": of(
            lambda ledger: whole_sum(ledger.input_tokens) / len(ledger), lambda ledger: ledger.input_tokens
        ),
        "output tokens": of(
            lambda ledger: whole_sum(ledger.output_tokens) / len(ledger), lambda ledger: ledger.output_tokens
        ),
        "prefix reuse": of(_reused, (lambda ledger: ledger.found_tokens) if trace.prefixes_known else None),
        **beside,
    }


def _reused(ledger: Ledger) -> float | None:
    return whole_sum(ledger.found_tokens) / whole_sum(ledger.input_tokens) if ledger.prefixes_known else None


def _reasoned(ledger: Ledger) -> list[int]:
    return [ledger.reasoning.get(row, 0) for row in range(len(ledger))]


def _media(ledger: Ledger) -> list[int]:
    return [ledger.input_tokens[row] - ledger.text_tokens(row) for row in range(len(ledger))]


def _rate(ledger: Ledger) -> float | None:
    span_us = ledger.arrival_us[-1] - ledger.arrival_us[0]
    return (len(ledger) - 1) * SECOND / span_us if span_us else None


def _gaps(ledger: Ledger) -> list[int]:
    return [later - earlier for earlier, later in pairwise(ledger.arrival_us)]


def _together(ledger: Ledger) -> float:
    """Share of the requests that arrive at the same time as the one before."""
    gaps = _gaps(ledger)
    return len([gap for gap in gaps if not gap]) / len(gaps)


def _warnings(
    clients: Sequence[FittedClient], agreement: dict[str, Agreement], *, staged: bool, together: float
) -> list[str]:
    sentences = []
    if together > POOR:
        sentences.append(
            f"{share_text(together, 0)} of the requests arrive at the same time as the one before, which no arrival"
            " process does: replay the trace itself"
        )
    for client in clients:
        if client.requests < _FEW:
            sentences.append(f"`{client.id}`: {plural(client.requests, 'request')} can say little about distributions")
        if client.arrivals.ks > max(POOR, by_chance(client.requests)):
            sentences.append(
                f"`{client.id}`: no arrival process is near (distance {client.arrivals.ks:.2f}); "
                + ("" if staged or together > POOR else "try --stage 60, or ")
                + "replay the trace itself"
            )
    by_minute = agreement["dispersion by minute"]
    if by_minute.trace is not None and by_minute.trace > _UNEVEN * max(by_minute.fitted or 0.0, 1.0):
        sentences.append(
            f"the rate changes over time (index of dispersion by minute {by_minute.trace:.1f}, fitted"
            f" {by_minute.fitted or 0.0:.1f}); " + ("use shorter stages" if staged else "try --stage 60")
        )
    distances = {name: agreement[name].ks or 0.0 for name in ("CV of gaps", "prompt tokens", "output tokens")}
    named = {"CV of gaps": "gaps between the arrivals of all clients"}
    sentences += [f"{named.get(name, name)}: the distance is {ks:.2f}" for name, ks in distances.items() if ks > POOR]
    reuse = agreement["prefix reuse"]
    if reuse.trace is not None and abs(reuse.trace - (reuse.fitted or 0.0)) > _REUSE:
        sentences.append(
            f"prefix reuse: {_shown('prefix reuse', reuse.trace)}, fitted {_shown('prefix reuse', reuse.fitted)}"
        )
    return sentences


def _remarks(clients: Sequence[FittedClient], agreement: dict[str, Agreement], drawn: int) -> list[str]:
    lines = [
        f"The trace, and {plural(drawn, 'request')} of this workload, with the Kolmogorov-Smirnov distance of the two:"
    ]
    lines += [f"  {name}: {line}" for name, line in agreement_lines(agreement).items()]
    lines.append("What was chosen, with its distance from the trace (shares are numbers of requests):")
    for client in clients:
        parts = [("arrivals", client.arrivals), ("prompts", client.input_tokens), ("outputs", client.output_tokens)]
        parts += client.beside.parts() if client.beside else []
        parts += [("turns", client.turns)] if client.turns else []
        parts += [("think time", client.think_time_ms)] if client.think_time_ms else []
        lines.append(f"  {client.id}: " + ", ".join(f"{name} {part.kind} {part.ks:.3f}" for name, part in parts))
    return lines


def agreement_lines(agreement: dict[str, Agreement]) -> dict[str, str]:
    """Describe each figure of the trace and of the fit."""
    return {
        name: f"{_shown(name, closeness.trace)}, fitted {_shown(name, closeness.fitted)}"
        + ("" if closeness.ks is None else f", distance {closeness.ks:.3f}")
        for name, closeness in agreement.items()
    }


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if name == "prefix reuse" else f"{value:,.4g}" if value < 1000 else f"{value:,.1f}"


# The arrival process that resembles a sequence of arrivals.

_LEAST_CV: Final = 0.01
_MOST_CV: Final = 10.0
"""The largest of gamma arrivals."""
_SIMPLER: Final = 0.005
"""Poisson arrivals, which have no parameter, are preferred unless others are closer by at least this."""


def choose_gaps(arrivals_us: Sequence[float]) -> Chosen:
    """Choose the process closest to the gaps between these times, with their rate and coefficient of variation.

    Args:
        arrivals_us: at least three, ascending, not all the same.
    """
    gaps = sorted(max(1, int(later - earlier)) for earlier, later in pairwise(arrivals_us))
    scaled_total, scaled_variance = spread(gaps)
    n = len(gaps)
    mean, cv = scaled_total / (n * n), rounded(sqrt(scaled_variance) * n / scaled_total, 4)
    processes = list(_processes(gaps, mean, cv))
    best = min(processes, key=lambda process: process.ks)
    poisson = next((process for process in processes if process.kind == "poisson"), best)
    return poisson if poisson.ks <= best.ks + _SIMPLER else best


def _processes(gaps: Sequence[int], mean: float, cv: float) -> Iterator[Chosen]:
    # Gaps are truncated to whole microseconds: a gap of at most k is any shorter than k + 1.
    def judged(kind: str, cdf: Callable[[float], float], cv: float | None = None) -> Chosen:
        data: dict[str, Json] = {"kind": kind} if cv is None else {"kind": kind, "cv": cv}
        return Chosen(data=data, ks=distance(gaps, lambda gap: cdf(gap + 1.0) if gap >= 1 else 0.0))

    if cv < _LEAST_CV:
        yield judged("constant", lambda x: 1.0 if x > mean else 0.0)
        return
    yield judged("poisson", lambda x: 1.0 - exp(-x / mean))
    bounded = min(cv, _MOST_CV)
    shape = 1.0 / (bounded * bounded)
    yield judged("gamma", lambda x: gamma_cdf(shape, x * shape / mean), bounded)
    k = weibull_shape(bounded)
    scale = mean / gamma(1.0 + 1.0 / k)
    yield judged("weibull", lambda x: 1.0 - exp(-power(x / scale, k)) if x > 0 else 0.0, bounded)
