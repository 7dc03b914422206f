"""Whether an experiment meets bounds in the long run: one run, made longer until that is known.

The run starts empty and never stops by itself. At growing intervals it is looked at, and its second half judged: the
share of requests beyond each bound, with a standard error by batch means, and whether the number of requests and of
sessions in the system still grows. Its last three quarters must agree that bounds hold. From an empty start load only
builds up, so a bound that is clearly broken is broken for good, while one that holds is only believed once the system
has stopped growing. ``docs/lab/comparisons.md`` has the rules.
"""

from __future__ import annotations

import json
from itertools import pairwise
from math import ceil, inf
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import number_text
from blis_tui.results.expectations import judge
from blis_tui.results.stationary import Flux, Ratio, Trend, drift, mean, mser5, trend
from blis_tui.study.bounds import PERCENTS
from blis_tui.study.samples import BoundSamples, samples_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from blis_tui.model import Expectation
    from blis_tui.runs.simulation import Simulation, Since

Verdict = Literal["holds", "fails", "not known"]

SECTION: Final = "stationary"
"""Section of a report with the verdict."""
MOST_REQUESTS: Final = 60_000
"""Requests after which a run ends, whatever is known."""
_TICKS: Final = 32
"""Moments until the first look at which the number of requests in the system is noted."""
_FIRST_LOOK_S: Final = 37.5
_FIRST_LOOK_REQUESTS: Final = 30
"""The first look: after this time, and when about this many requests have arrived. Each later one is after 1.5 or 4/3
times as long, so that half of its time is the time of another."""
_CAP_S: Final = 600.0
_CAP_REQUESTS: Final = 2000
"""A run that is undecided after both, and with enough samples, ends, or goes on for as long again if it must."""
_MANY_REQUESTS: Final = 30_000
_MANY_STAYS: Final = 100.0
"""A run of so many requests ends as well if it has lasted for so many mean stays. What an estimate is worth depends on
how often the load was drawn anew, about once in two stays: as often in 200 s with stays of 2 s as in 600 s with stays
of 6 s."""
_FEWEST_BEYOND: Final = 50
"""Bounds are said to hold when so many samples might have been beyond them: 1,000 requests for a p95, 5,000 for a p99.
Late requests come in bursts, so a stretch with fewer may have had luck."""
_FEWEST_FAR_BEYOND: Final = 10
"""The same for bounds that are far from being broken, where luck would have to be a hundredfold."""
_EXTENSION: Final = 2.0
_MOST_EXTENSIONS: Final = 2
_CHEAP_REQUESTS: Final = 20_000
"""If it goes on, it does for at least so many requests, which take a second or two. The second time is for what is
within its bounds by less than a standard error."""
_MAY_HOLD: Final = 1.0
"""Standard errors beyond a limit up to which a run goes on as well."""
_QUICK_S: Final = 30.0
_QUICK_REQUESTS: Final = 100
_OPINION_S: Final = 110.0
_FEWEST_SAMPLES: Final = 50
"""A bound is not called broken on fewer samples."""
_SURE_FAILS: Final = 4.0
_SURE_HOLDS: Final = 3.0
_SURE_AT_CAP: Final = 2.0
_SURE_AT_LAST: Final = 1.0
"""Standard errors between an estimate and its limit. Many looks need more of them than one, and at the end of an
extended run one of them decides: what is nearer to its limit is not known."""
_SURE_OF_LOAD: Final = 1.8
"""By how many of its standard errors the load of a stretch must be below what can be served. The load that random
arrivals of random lengths bring differs from stretch to stretch, and near the knee it decides everything: the variance
of what a queue says grows with 1 / (1 - load)^2 (Whitt 1989, "Planning queueing simulations"), and a stretch with a
little less than usual shows nothing late, and no variance. One in 28 has as much less."""
_LEAST_MARGIN: Final = 0.05
"""What can be served is known to about so much of it."""
_BINS: Final = 32
"""In at least so many stretches arrivals are counted for their dispersion."""
_SETTLED: Final = 0.10
"""Maximum growth of a system that is in its steady state."""
_WAVES_SETTLED: Final = 0.20
"""The same for the squares of the number in it. Answers that are late together are followed by prompts that come
together, so sessions can fall into step: the number of requests then swings ever more widely about the same mean, until
bounds are broken that held for minutes."""
_GROWS: Final = 0.30
"""Growth at the end of an extended run that shows an overload; a queue that grows in proportion to time has 1.33."""
_SURE_GROWS: Final = 2.0
_OVERLOADED: Final = 0.60
_SURE_OVERLOADED: Final = 6.0
"""Growth, and its standard errors, that show an overload before the cap."""
_SURE_GAINS: Final = 2.0
"""Or that what came in excess of what left is more than chance, in standard errors of a random walk."""
_WAIT: Final = 0.1
"""The share of the requests in the system that also wait then. Sessions that come in bursts double by chance, too, and
a batch that fills grows; but nobody waits there."""
_SWAMPED: Final = 2.0
_FEWEST_WAITING: Final = 200
"""A quick run is overloaded, whatever its bounds say so far, if most of what is in the system waits, and so many more
requests arrive than leave. A batch that is full cannot serve twice as many, and a burst is not as large as that."""
_STAYS: Final = 4.0
"""A run shorter than this many mean stays of a request, or of a session, says nothing about the steady state."""
_STAYS_OF_TRANSIENT: Final = 6.0
"""MSER-5 is asked for the transient of a run shorter than so many stays. The second half of a longer one begins after
three stays, when the beginning is forgotten unless the system still grows, which is asked, too; what MSER-5 finds there
is the noise of a number that varies slowly."""
_STAYS_IN_WAVES: Final = 8.0
_WAVES: Final = 5.0
"""The same for sessions whose requests come in waves: the variance of their number in the system is so many times its
mean, which is what it is for requests that do not wait for each other. Of 35 sessions/s on 20 instances (one
run, see docs/lab/comparisons.md), waves grew from 530 to 1,420 requests between the fifth and the ninth of a session's
stays; until then nothing told their growth from chance."""
KV_FULL: Final = 0.85
"""Share of the KV cache above which preemptions may still begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """How long to run until it is known whether bounds hold in the long run."""

    bounds: tuple[Expectation, ...]
    kind: Literal["quick", "long", "opinion"]
    """``quick``: only what breaks at once; ``long``: until the verdict is certain; ``opinion``: a figure to compare."""
    rate_per_s: float | None
    """What arrives per second; None = it depends on the answers."""
    duration_s: float
    """Minimum simulated time before bounds are said to hold."""
    load: float | None = None
    """What arrives, relative to about what can be served; None = not known."""

    @property
    def first_look_s(self) -> float:
        """When to look for the first time."""
        return max(_FIRST_LOOK_S, _FIRST_LOOK_REQUESTS / self.rate_per_s if self.rate_per_s else 0.0)

    def fewest(self, far: Collection[str] = ()) -> int:
        """Return the number of requests that bounds on percentiles need, some of which are far from being broken."""
        fewest = 0
        for bound in self.bounds:
            percent = PERCENTS.get(bound.metric.rpartition(".")[2], 0)
            if bound.max is not None and percent < 100:
                beyond = _FEWEST_FAR_BEYOND if bound.metric in far else _FEWEST_BEYOND
                fewest = max(fewest, 100 * beyond // (100 - percent))
        return fewest

    def cap_s(self, calls_per_s: float, stay_s: float, extensions: int) -> float:
        """Return when an undecided run ends that has gone on so many times."""
        least_s, requests = {
            "quick": (_QUICK_S, _QUICK_REQUESTS),
            "opinion": (_OPINION_S, _QUICK_REQUESTS),
            "long": (max(_CAP_S, self.duration_s), max(_CAP_REQUESTS, 2 * self.fewest())),
        }[self.kind]
        cap_s = min(max(least_s, requests / calls_per_s), max(MOST_REQUESTS / calls_per_s, self.duration_s))
        if self.kind == "long":
            cap_s = min(cap_s, max(_MANY_STAYS * stay_s, _MANY_REQUESTS / calls_per_s, self.duration_s))
        if extensions:
            cap_s = _EXTENSION ** (extensions - 1) * max(_EXTENSION * cap_s, _CHEAP_REQUESTS / calls_per_s)
        return cap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a look at a run found."""

    start_us: int
    """Where the stretch begins that counts, the second half of the run."""
    end_us: int
    nearest: BoundSamples
    share: Ratio
    """The estimate of the bound that is nearest to its limit, or farthest beyond it."""
    z: float
    """By how many standard errors that estimate is beyond its limit; negative = within."""
    z_longer: float
    """The same of the last three quarters of the run, whatever bound is nearest there; at least ``z``."""
    beyond: Mapping[str, float]
    """Bounded metric -> the share beyond its bound; of a mean, the mean."""
    far: frozenset[str]
    """The bounded metrics that are far from breaking their bounds."""
    gains: float
    """By how many standard errors of a random walk the last three quarters of the run added to what is in the system.
    """
    in_system: Trend
    sessions: Trend
    waves: Trend
    """Of the squares of the number of requests in the system: it grows, too, if the number swings ever more widely."""
    transient: bool
    """Whether MSER-5 finds that the window, the second half, still has a part of the transient."""
    calls_per_s: float
    stay_s: float
    """Mean stay of a request, or of a session if that is longer, by Little's law."""
    kv: float
    """Highest share of the KV cache in use during the last three quarters."""
    waits: float
    """Share of the requests in the system that are in no batch."""
    swamped: bool
    """Whether far more arrives than can be served."""
    in_waves: bool
    """Whether sessions make the number of requests in the system swing more than chance does."""
    dispersion: float
    """Variance of what arrives in a stretch, relative to the square of its mean, times the number of requests in it."""

    @property
    def end_s(self) -> float:
        """Simulated time so far, in seconds."""
        return self.end_us / 1e6

    @property
    def grows(self) -> Trend:
        """What grows most: requests in the system, or open sessions."""
        return max(self.in_system, self.sessions, key=lambda course: course.growth)

    @property
    def growing(self) -> str:
        """What grows most, in words."""
        return "open sessions" if self.sessions.growth > self.in_system.growth else "requests in the system"


class SteadyRun:
    """One run of an experiment that the asker ends.

    Args:
        simulation: a simulation that has not begun, with as many requests as a run may need.
        asked: the bounds, and how long to run.
    """

    def __init__(self, simulation: Simulation, asked: Steady) -> None:
        self._simulation = simulation
        self._asked = asked
        self._moments: dict[int, Since] = {0: simulation.since()}
        self._bounds = samples_of(simulation, asked.bounds)
        self._tick_us = ceil(asked.first_look_s * 1e6 / _TICKS)
        self._ticks = 0
        self._read = 0
        self._lengths = (_Lengths(), _Lengths())
        self._arrived, self._started = [0], [0]
        self._in_system, self._sessions, self._kv, self._waiting = [0.0], [0.0], [0.0], [0.0]

    def decide(self) -> dict[str, object]:
        """Run until the verdict is certain, or the cap is reached; return the report of the stretch that counts."""
        extensions = 0
        for ticks in _looks():
            self._advance(ticks)
            self._moments[self._ticks] = self._simulation.since()
            if ticks < _TICKS and not self._simulation.done:
                continue
            look = self._look()
            done = self._simulation.done
            last = done or look.end_s >= self._asked.cap_s(look.calls_per_s, look.stay_s, extensions)
            verdict, why = self._early(look)
            if last and not verdict:
                verdict, why = self._at_cap(look, extensions)
                if verdict == "not known" and not done and self._worth_more(look, extensions):
                    extensions, verdict = extensions + 1, ""
            if not verdict:
                continue
            report = self._simulation.report_since(self._moments[self._half])
            data: dict[str, object] = json.loads(report.to_json())
            broken = self._broken(data, sampled=not last) if verdict == "holds" else ""
            if broken and not last:
                continue
            data[SECTION] = self._section(look, "fails" if broken else verdict, broken or why)
            return data
        raise AssertionError("a run that ends is decided")

    def _advance(self, ticks: int) -> None:
        """Run until a tick, noting at each what is in the system."""
        simulation, cluster = self._simulation, self._simulation.cluster
        while self._ticks < ticks and not simulation.done:
            self._ticks += 1
            simulation.run(self._ticks * self._tick_us)
            sessions = cluster.sessions
            self._arrived.append(cluster.arrived)
            self._in_system.append(float(cluster.arrived - cluster.closed()))
            self._started.append(0 if sessions is None else sessions.started)
            self._sessions.append(0.0 if sessions is None else float(len(sessions.unfinished)))
            blocks = whole_sum([instance.pool.total for instance in cluster.instances])
            free = whole_sum([instance.pool.free for instance in cluster.instances])
            self._kv.append((blocks - free) / blocks if blocks else 0.0)
            running = whole_sum([len(instance.batch.running) for instance in cluster.instances])
            self._waiting.append(self._in_system[-1] - running)
            for bound in self._bounds:
                bound.tick(self._ticks * self._tick_us)
        log = simulation.log
        rows, groups = log.rows(self._read), log.groups()
        self._read += len(rows)
        prompts, answers = self._lengths
        for row in rows:
            prompts.add(row.input_tokens)
            answers.add(row.output_tokens)
        for bound in self._bounds:
            bound.ended(rows, groups)

    @property
    def _half(self) -> int:
        """The tick in the middle of the run; of one that has ended by itself, the last look before."""
        return max(tick for tick in self._moments if 2 * tick <= self._ticks)

    def _look(self) -> _Look:
        """Judge the second half of the run so far."""
        half, now_us = self._half, self._ticks * self._tick_us
        start_us = max(half * self._tick_us, self._simulation.experiment.warm_up_us)
        span_s = max((self._ticks - half) * self._tick_us / 1e6, 1e-6)
        arrived = self._arrived[-1] - self._arrived[half]
        calls_per_s = max(arrived / span_s, 1e-9)
        there = mean(self._in_system[half + 1 :] or [0.0])
        stay_s = there / calls_per_s
        if self._started[-1]:
            stay_s = max(stay_s, mean(self._sessions[half + 1 :] or [0.0]) * now_us / 1e6 / self._started[-1])
        estimates = [(bound, bound.estimate(start_us, now_us, stay_s / span_s)) for bound in self._bounds]
        nearest, share = max(estimates, key=lambda estimate: estimate[0].beyond(estimate[1]))
        z = nearest.beyond(share)
        longer_us = max(now_us // 4, self._simulation.experiment.warm_up_us)
        memory = stay_s * 1e6 / max(now_us - longer_us, 1)
        longer = [bound.beyond(bound.estimate(longer_us, now_us, memory)) for bound in self._bounds]
        swings = mean([(count - there) * (count - there) for count in self._in_system[half + 1 :]] or [0.0])
        waiting = mean(self._waiting[half + 1 :] or [0.0])
        left = arrived - (self._in_system[-1] - self._in_system[half])
        return _Look(
            start_us=start_us,
            end_us=now_us,
            nearest=nearest,
            share=share,
            z=z,
            z_longer=max(z, *longer),
            beyond={bound.metric: estimate.value for bound, estimate in estimates if bound.metric},
            gains=self._gains(),
            far=frozenset(bound.metric for bound in self._bounds if bound.is_far(start_us, now_us)),
            in_system=trend(self._in_system),
            sessions=trend(self._sessions),
            waves=trend([count * count for count in self._in_system]),
            transient=mser5(self._in_system) > half,
            calls_per_s=calls_per_s,
            stay_s=stay_s,
            kv=max(self._kv[self._ticks // 4 + 1 :], default=0.0),
            waits=waiting / max(there, 1.0),
            in_waves=self._started[-1] > 0 and swings > _WAVES * there,
            dispersion=self._dispersion(),
            swamped=waiting > max(_FEWEST_WAITING, there / 2) and arrived > _SWAMPED * left,
        )

    def _gains(self) -> float:
        """Return how surely more came than left since the first quarter.

        A few requests that stay long make the number in the system jump and stay high, which errors by batch means take
        for growth: they do not see how seldom that happens. What is gained in each stretch does.
        """
        since = self._ticks // 4
        width = max(1, (self._ticks - since) // _BINS)
        surely = []
        for came, present in ((self._arrived, self._in_system), (self._started, self._sessions)):
            counts = [*zip(came, present, strict=True)][since::width]
            fluxes = [
                Flux(came=after - before, left=round(after - before - (there - was)))
                for (before, was), (after, there) in pairwise(counts)
            ]
            surely.append(drift(fluxes).z if len(fluxes) > 1 else inf)
        return max(surely)

    def _dispersion(self) -> float:
        """Return the dispersion of what has arrived: that of counts, and that of the more varied of the two lengths.

        Counts are those since the first quarter: of sessions, ever more requests come until the first of them end.
        """
        since = self._ticks // 4
        width = max(1, (self._ticks - since) // _BINS)
        marks = self._arrived[since::width]
        counts = [after - before for before, after in pairwise(marks)]
        usual = mean(counts or [0])
        variance = mean([(count - usual) * (count - usual) for count in counts] or [0.0])
        return variance / max(usual, 1e-9) + max(lengths.dispersion for lengths in self._lengths)

    def _fewest(self, look: _Look) -> int:
        """Return how many requests the stretch must have before bounds are said to hold."""
        fewest, load = self._asked.fewest(look.far), self._asked.load
        if load is None:
            return fewest
        margin = max(1.0 - load, _LEAST_MARGIN)
        return max(fewest, ceil(look.dispersion * (_SURE_OF_LOAD / margin) ** 2))

    def _early(self, look: _Look) -> tuple[Verdict | Literal[""], str]:
        """Return the verdict and what it rests on if more of the run would not change it; otherwise empty texts."""
        if look.share.weight >= _FEWEST_SAMPLES and look.z > _SURE_FAILS:
            return "fails", look.nearest.sentence(look.share)
        stays = _STAYS_IN_WAVES if look.in_waves else _STAYS
        stayed = look.end_s >= stays * look.stay_s and look.end_s >= self._asked.duration_s
        grown = look.grows.growth > _OVERLOADED and look.grows.z > _SURE_OVERLOADED and look.gains > _SURE_GAINS
        if stayed and grown and look.waits > _WAIT:
            return "fails", _growth_text(look)
        swinging = look.waves.growth > _WAVES_SETTLED and look.waves.z > _SURE_GROWS
        transient = look.transient and look.end_s < _STAYS_OF_TRANSIENT * look.stay_s
        settled = stayed and look.grows.growth < _SETTLED and not transient and not swinging
        enough = self._arrived[-1] - self._arrived[self._half] >= self._fewest(look)
        if settled and enough and look.z_longer < -_SURE_HOLDS and look.kv < KV_FULL and self._has_room(look):
            return "holds", look.nearest.sentence(look.share)
        return "", ""

    def _has_room(self, look: _Look) -> bool:
        """Return whether tighter bounds would hold, too."""
        memory = look.stay_s / max((look.end_us - look.start_us) / 1e6, 1e-6)
        return all(bound.has_room(look.start_us, look.end_us, memory) for bound in self._bounds)

    def _worth_more(self, look: _Look, extensions: int) -> bool:
        """Return whether a run that is undecided at its cap goes on: once, and again for bounds that it is within.

        One that is beyond its bounds by more than ``_MAY_HOLD`` does not. Its estimate and that of a stretch twice as
        long differ by a normal distribution of variance 1 + 1/2, in standard errors of the first. So the second is
        within by the error that is asked then in 16 % of the runs at z = 0.5, in 8 % at 1 and in 1 % at 2.
        """
        if self._asked.kind != "long" or extensions >= _MOST_EXTENSIONS:
            return False
        if not extensions:
            return look.z <= _MAY_HOLD
        return look.z < 0 and not self._grows(look, _GROWS)

    def _grows(self, look: _Look, least: float) -> bool:
        """Return whether the system surely grows by more than this."""
        return look.grows.growth > least and look.grows.z > _SURE_GROWS

    def _at_cap(self, look: _Look, extensions: int) -> tuple[Verdict, str]:
        """Return the verdict of a run that is long enough."""
        extended = extensions > 0
        if look.z > _SURE_AT_CAP:
            return "fails", look.nearest.sentence(look.share)
        if self._asked.kind == "quick" and look.swamped:
            return "fails", _growth_text(look)
        if self._asked.kind != "long":
            return "not known" if look.z > 0 else "holds", look.nearest.sentence(look.share)
        if self._grows(look, _GROWS if extended else _SETTLED):
            return ("fails" if extended and look.grows.growth > _OVERLOADED else "not known"), _growth_text(look)
        if look.z_longer > -(_SURE_AT_LAST if extended else _SURE_AT_CAP):
            return "not known", look.nearest.sentence(look.share)
        few = self._arrived[-1] - self._arrived[self._half] < self._fewest(look)
        if few and extensions < _MOST_EXTENSIONS and not self._simulation.done:
            return "not known", look.nearest.sentence(look.share)
        return "holds", look.nearest.sentence(look.share)

    def _broken(self, report: Mapping[str, object], *, sampled: bool) -> str:
        """Return the first bound that the report of the stretch breaks, if wanted also of those that are sampled."""
        known = () if sampled else tuple(bound.metric for bound in self._bounds)
        asked = [
            bound for bound in self._asked.bounds if bound.metric not in known and not bound.metric.startswith("cost.")
        ]
        verdicts = [judge(expectation, dict(report)) for expectation in asked]
        return next((verdict.sentence() for verdict in verdicts if not verdict.ok), "")

    def _section(self, look: _Look, verdict: str, why: str) -> dict[str, object]:
        """Return the verdict and what it rests on."""
        sessions = self._simulation.cluster.sessions
        return {
            "verdict": verdict,
            "why": why,
            "start_us": look.start_us,
            "end_us": look.end_us,
            "bound": look.nearest.metric,
            "beyond": look.share.value,
            "beyond_error": None if look.share.error == inf else look.share.error,
            "beyond_limit": look.nearest.limit,
            "beyond_by_bound": dict(look.beyond),
            "in_system_before": look.in_system.before,
            "in_system_after": look.in_system.after,
            "open_sessions_before": None if sessions is None else look.sessions.before,
            "open_sessions_after": None if sessions is None else look.sessions.after,
            "peak_kv": look.kv,
        }


class _Lengths:
    """The dispersion of lengths, from their sums."""

    def __init__(self) -> None:
        self._count = self._sum = self._squares = 0

    def add(self, length: int) -> None:
        """Count a request of this length."""
        self._count += 1
        self._sum += length
        self._squares += length * length

    @property
    def dispersion(self) -> float:
        """Variance of the lengths, relative to the square of their mean."""
        return self._count * self._squares / (self._sum * self._sum) - 1.0 if self._sum else 0.0


def _looks() -> Iterator[int]:
    """Yield when to look, in ticks: 16, 24, 32, 48 and so on."""
    ticks = _TICKS // 2
    while True:
        yield ticks
        yield ticks * 3 // 2
        ticks *= 2


def steady_report(simulation: Simulation, asked: Steady) -> str:
    """Run until it is known whether bounds hold in the long run; return the report of the stretch that counts, as JSON.

    Its section ``stationary`` has the verdict.
    """
    return to_json(SteadyRun(simulation, asked).decide())


def _growth_text(look: _Look) -> str:
    grows = look.grows
    return (
        f"more arrives than leaves: from the second to the last quarter of {look.end_s:,.0f} s, {look.growing} grew"
        f" from {number_text(grows.before)} to {number_text(grows.after)}"
    )
