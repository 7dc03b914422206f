"""Fits coefficients to measured requests, steps and means.

Fits means for servers whose individual steps a simulation cannot follow.

If steps occasionally take several times as long for reasons outside of the load's figures, most requests share their
batches with other requests than in any simulation. Typical step times are then useless, because the load depends on
mean step times. Therefore all step coefficients are scaled until the time per token agrees. Among the results from
several starts, the one whose means agree best is taken.

The first stage is rough: every answer, and every wait for a first token, is the sum of the coefficients' parts in the
steps of a simulated run with the server's mean step durations. These steps agree with the server's only on average, so
this stage ends near the truth. The second stage is exact: the measurements guide the run (see ``follow``), so that its
steps are the server's, and equations for single step ends are solved with the errors of such times (see ``clock``).
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import pairwise
from math import fsum, inf, log, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.live.calibration.fitting.clock import Noise, estimated, filtered, whitened
from blis_tui.live.calibration.fitting.equations import chain_of, sums_of, windows_of
from blis_tui.live.calibration.fitting.follow import FIRST, follow
from blis_tui.live.calibration.fitting.laws import Term, loads_of
from blis_tui.live.calibration.fitting.posterior import Entrances, Posterior, likeliest_jitter
from blis_tui.live.calibration.measured import Recording
from blis_tui.live.calibration.simulated_load import Pair, StepPair, compared, disagreement, with_latency

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.live.calibration.document import Coefficient
    from blis_tui.live.calibration.fitting.clock import Gains
    from blis_tui.live.calibration.fitting.equations import Chain, Sums, Windows
    from blis_tui.live.calibration.fitting.follow import FollowResult
    from blis_tui.live.calibration.fitting.laws import Array, Law, Loads
    from blis_tui.live.calibration.measured import Data, StepLog
    from blis_tui.live.calibration.simulated_load import Runs
    from blis_tui.model import PluginConfig, Pool


GAP: Final = "gap_us"
_SPREAD_US: Final = 3000.0
"""Prior spread; measured servers on CPUs had 2.4 to 2.9 ms per step."""


def gap_of(law: Law, values: Array) -> float:
    """Return the gap coefficient in microseconds; 0 if a law has none."""
    return float(values[-1]) if law.terms[-1].name == GAP else 0.0


class Gapped:
    """A law with the gap as an additional coefficient, seen in requests but not in logs; models add it to each step."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self.kind = law.kind
        self.kept = law.kept
        self.constant = law.constant
        self.terms = (*law.terms, Term(GAP, 0.0, _SPREAD_US, 0.0))
        self._at = [term.name for term in law.terms].index(law.constant)

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        inner = values[:-1].copy()
        inner[self._at] += values[-1]
        return self._law.config(inner)

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the law's slopes, and 1."""
        slopes = self._law.steps(values[:-1], pool, loads)
        return np.column_stack([slopes, np.ones(len(slopes))])

    def logged(self, slopes: Array) -> Array:
        """Return the slopes without the gap."""
        return np.column_stack([slopes[:, :-1], np.zeros(len(slopes))])

    def queue(self, tokens: Array) -> Array:
        """Return the law's slopes."""
        return np.column_stack([self._law.queue(tokens), np.zeros(len(tokens))])

    def client_us(self, tokens: Array) -> Array:
        """Return the law's time."""
        return self._law.client_us(tokens)

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return the law's alternatives."""
        return [np.append(other, values[-1]) for other in self._law.others(values[:-1], pool)]


NOT_FOLLOWED: Final = 0.75
"""If a smaller share of tokens came in their expected steps, the server was not followed."""
HELD_UP: Final = 1.1
"""If the mean ratio of logged to predicted step times exceeds this, some steps were delayed."""
_ROUNDS: Final = 5
_PROMPT: Final = np.array([100.0])


def fit_to_means(data: Sequence[Data], law: Law, starts: Sequence[Array]) -> Array:
    """Return the coefficients, among the starts and their multiples, whose simulation agrees best with the means."""
    in_steps = np.abs(law.queue(_PROMPT)).sum(axis=0) == 0.0
    lowest = np.array([term.lowest for term in law.terms])
    results: list[tuple[float, int, Array]] = []
    for start in starts:
        times = 1.0
        for _ in range(_ROUNDS):
            values: Array = np.where(in_steps, np.maximum(times * start, lowest), start)
            runs = compared(data, law.config(values), gap_of(law, values))
            results.append((disagreement(runs, of_means=True), len(results), values))
            more = missing(runs)
            if abs(more - 1.0) < 0.01:
                break
            times *= more
    return min(results, key=lambda result: result[:2])[2]


def missing(runs: Runs) -> float:
    """Return the ratio of measured to predicted time of tokens after the first; with steps only, of the steps."""
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    if pairs:
        predicted = fsum(pair.e2e_us - pair.ttft_us for pair in pairs)
        measured = fsum(pair.measured.e2e_us - pair.measured.ttft_us for pair in pairs)
    else:
        predicted = fsum(step.step_us for step in steps)
        measured = fsum(step.measured.duration_us for step in steps)
    return measured / predicted if predicted else 1.0


def with_averaged_value(coefficient: Coefficient, value: float) -> Coefficient:
    """Return a coefficient with its averaged value, and an interval that covers both results."""
    return replace(
        coefficient,
        value=value,
        low=min(coefficient.low, value),
        high=max(coefficient.high, value),
        told="averaged",
        together_with=(),
        at_bound=False,
        pressed=False,
    )


_ROBUST_ROUNDS: Final = 4
_ALIKE: Final = 2.0
"""First tokens at nearly equal times wait for the same step, so that four of them carry about as much information as
one."""
_EXACT_ROUNDS: Final = 8
_INNER_ROUNDS: Final = 6
_SETTLED: Final = 0.02
"""Coefficients have converged if they move by less than this (twice the rise of the cost)."""
_SURPRISE: Final = 3.0
_ELSEWHERE: Final = 0.02
"""Share of tokens allowed at any time, because of hiccups of clients or engine decisions that are not simulated."""
FOLLOWED: Final = 0.985
"""Minimum share of tokens in their expected steps for the server to count as followed."""
ASSUMED: Final = (
    Noise(step=0.02, stamp_us=50.0, first=2e-4, answer=2e-4),
    Noise(step=0.03, stamp_us=500.0, first=0.01, answer=0.02),
    Noise(step=0.1, stamp_us=100.0, first=1e-3, answer=1e-3),
)
"""Noise levels to try: exact, inexact, and with varying steps."""


class Requests:
    """A recording of requests, with the current estimates of their queue entries and of the measurement noise."""

    def __init__(self, data: Data, recording: Recording, law: Law) -> None:
        self.data = data
        self.recording = recording
        self.law = law
        (self.pool,) = data.experiment.pools
        self.noise = ASSUMED[0]
        self.jitter_us = 0.0
        self.waits_us: list[float] = []

    def begin(self, values: Array, noise: Noise) -> None:
        """Reset the estimates, and assume this noise."""
        self.noise = noise
        self.waits_us = self.in_order(self.waits(values), noise)

    def follow(self, values: Array, noise: Noise | None, *, flat: bool = False) -> FollowResult:
        """Simulate the load with these coefficients, guided by the measurements."""
        experiment = with_latency(self.data.experiment, self.law.config(values))
        waits_us = self.waits(values) if noise is None else self.waits_us
        return follow(experiment, self.recording, noise, waits_us, repeated=self.data.repeated, flat=flat)

    def waits(self, values: Array) -> list[float]:
        """Return how long each request waits before it joins the queue."""
        tokens = np.array([float(request.input_tokens) for request in self.recording.requests])
        waits_us: list[float] = (self.law.queue(tokens) @ values).tolist()
        return waits_us

    def enter(self, values: Array, entrances: Entrances, noise: Noise) -> None:
        """Set queue entries to the coefficients' times, limited to the most likely intervals between passes."""
        waits = self.waits(values)
        best = entrances.best_windows(values).tolist()
        for number, (after, until) in zip(entrances.windows.requests, best, strict=True):
            if not after < waits[number] <= until:
                inside = 0.05 * (until - after)
                waits[number] = max(0.0, after + inside if waits[number] <= after else until - inside)
        self.waits_us = self.in_order(waits, noise)

    def in_order(self, waits_us: list[float], noise: Noise) -> list[float]:
        """Return waits with which requests join the queue in the order of their first tokens, where that is certain."""
        if self.data.experiment.policy.scheduling.kind != "fcfs":
            return waits_us
        asked = self.recording.requests
        comes = [request.arrival_us + wait for request, wait in zip(asked, waits_us, strict=True)]
        groups: list[list[int]] = []
        last = -np.inf
        for at in sorted(range(len(asked)), key=lambda at: asked[at].arrival_us + asked[at].ttft_us):
            first = asked[at].arrival_us + asked[at].ttft_us
            if first - last > _SURPRISE * sqrt(noise.of_token(FIRST, asked[at])):
                groups.append([])
            groups[-1].append(at)
            last = first
        for _ in range(4):
            for before, after in pairwise(groups):
                latest, earliest = max(comes[at] for at in before), min(comes[at] for at in after)
                if latest >= earliest:
                    middle = 0.5 * (latest + earliest)
                    for at in before:
                        comes[at] = min(comes[at], middle - 0.5)
                    for at in after:
                        comes[at] = max(comes[at], middle + 0.5)
        return [max(0.0, time - request.arrival_us) for time, request in zip(comes, asked, strict=True)]


@dataclass(slots=True)
class Steps:
    """A log of steps."""

    law: Law
    pool: Pool
    loads: Loads
    durations_us: Array
    deviation: float = 0.05
    """Standard deviation of a step, relative to its duration."""

    def slopes(self, values: Array) -> Array:
        """Return the slopes of each step."""
        return self.law.logged(self.law.steps(values, self.pool, self.loads))

    def sizes(self, values: Array) -> Array:
        """Return the residuals of durations, in standard deviations."""
        sizes: Array = (self.durations_us - self.slopes(values) @ values) / (self.deviation * self.durations_us)
        return sizes


def steps_of(data: Data, log: StepLog, law: Law) -> Steps:
    """Return a log as arrays."""
    (pool,) = data.experiment.pools
    works = ((step.decode_requests, step.context_tokens, step.chunks) for step in log.steps)
    durations = np.array([step.duration_us for step in log.steps])
    return Steps(law, pool, loads_of(works, pool.model.sliding_window), durations)


@dataclass(slots=True)
class System:
    """The equations of a recording, once it is known which requests shared each step."""

    chain: Chain
    windows: Windows
    firsts: list[int]
    """Index of the first token among the measured times, for the request of each window; -1 = none."""
    lost: float
    """Cost of the tokens that did not come in their expected steps."""
    followed: float
    """Share of the tokens that did."""
    _latest: tuple[Array, Array] | None = None
    """The latest coefficients and their slopes, cached because several calls in a row use the same coefficients."""

    def slopes(self, values: Array) -> Array:
        """Return the slopes of each measured time."""
        if self._latest is None or not np.array_equal(self._latest[0], values):
            self._latest = values, self.chain.slopes(values)
        return self._latest[1]

    def late(self, values: Array) -> list[float]:
        """Return the residuals of measured times."""
        late_us: list[float] = (self.chain.known_us - self.slopes(values) @ values).tolist()
        return late_us

    def token_us(self, gains: Gains) -> Array:
        """Return how exactly each first token determines its step."""
        usual = float(np.median(gains.deviations)) if gains.deviations else 1.0
        return np.array([gains.deviations[at] if at >= 0 else usual for at in self.firsts])

    def entrances(self, jitter_us: float, gains: Gains) -> Entrances:
        """Return its windows with their accuracy."""
        return Entrances(self.windows, jitter_us, self.token_us(gains))


@dataclass(frozen=True, slots=True)
class Found:
    """The best result from a start."""

    values: Array
    posterior: Posterior
    cost: float
    followed: float
    """Share of all tokens that came in their expected steps."""
    noises: list[Noise] = field(default_factory=list)
    systems: list[System] = field(default_factory=list)


class Problem:
    """All measurements, and a law."""

    def __init__(self, data: Sequence[Data], law: Law) -> None:
        self.law = law
        self.requests = [Requests(run, run.recording, law) for run in data if isinstance(run.recording, Recording)]
        self.pools = [run.experiment.pools[0] for run in data]
        self.steps = [steps_of(run, run.recording, law) for run in data if not isinstance(run.recording, Recording)]

    @property
    def has_prompts(self) -> bool:
        """Whether any prompt token is computed."""
        return bool(self.requests) or any(step.loads.new.any() for step in self.steps)

    # ---- rough stage ----

    def rough(self, start: Array, *, flat: bool) -> Array:
        """Return coefficients from whole answers and waits.

        Args:
            start: the initial coefficients, which determine the composition of batches.
            flat: whether all steps are assumed to take equally long.
        """
        runs = [request.follow(start, None, flat=flat) for request in self.requests]
        sums: list[Sums] = [
            sums_of(self.law, request.pool, request.recording.requests, run)
            for request, run in zip(self.requests, runs, strict=True)
        ]
        kinds = [np.where(run_sums.firsts, 1, 0) for run_sums in sums] + [
            np.full(len(step.durations_us), 2) for step in self.steps
        ]
        kind = np.concatenate(kinds)
        measured = np.concatenate(
            [run_sums.measured_us for run_sums in sums] + [step.durations_us for step in self.steps]
        )
        deviation, weight, values = np.full(len(kind), 0.1), np.ones(len(kind)), start
        for _ in range(_ROBUST_ROUNDS):
            both = [run_sums.slopes(values) for run_sums in sums] + [step.slopes(values) for step in self.steps]
            slopes = np.vstack(both) / measured[:, None]
            scale = weight / deviation
            none = np.zeros((len(scale), 0))
            posterior = Posterior(self.law.terms, slopes * scale[:, None], scale, none, [])
            at, _ = posterior.best(posterior.place(values))
            values = posterior.values(at)
            error = np.abs(1.0 - slopes @ values)
            for number, wider in enumerate((1.0, _ALIKE, 1.0)):
                mine = kind == number
                if mine.any():
                    deviation[mine] = max(float(np.median(error[mine])) * 1.4826 * wider, 1e-6)
            weight = np.sqrt(np.minimum(1.0, 4.0 * deviation / np.maximum(error, 1e-12)))
        return values

    # ---- exact stage ----

    def exact(self, start: Array, noise: Noise, progress: Callable[[str], None] = lambda _: None) -> Found:
        """Return coefficients from single step ends.

        Args:
            start: the initial coefficients.
            noise: the noise assumed while following the measurements.
            progress: called with the number of each round.
        """
        values = start
        for request in self.requests:
            request.begin(values, noise)
        for number in range(_EXACT_ROUNDS if self.requests else 1):
            progress(f"round {number + 1}")
            systems = [self._system(request, values, noise) for request in self.requests]
            before = values
            values, posterior = self.solve(values, systems)
            for request, system in zip(self.requests, systems, strict=True):
                gains = filtered(request.noise, system.chain.times, system.late(values))
                request.enter(values, system.entrances(request.jitter_us, gains), noise)
            if self._size(posterior, values - before, values) < _SETTLED:
                break
        cost = self.cost(values, systems)
        followed = min((system.followed for system in systems), default=1.0)
        return Found(values, posterior, cost, followed, [request.noise for request in self.requests], systems)

    def _system(self, requests: Requests, values: Array, noise: Noise) -> System:
        run = requests.follow(values, noise)
        windows = windows_of(self.law, requests.recording.requests, run)
        # The order of `chain_of`.
        tokens = sorted((token for token in run.tokens if not token.elsewhere), key=lambda token: token.step)
        firsts = {token.request: number for number, token in enumerate(tokens) if token.kind == FIRST}
        away = [log(2.0 * token.shorter_us / _ELSEWHERE) for token in run.tokens if token.elsewhere]
        return System(
            chain_of(self.law, requests.pool, requests.recording.requests, run),
            windows,
            [firsts.get(number, -1) for number in windows.requests],
            float(np.sum(away)),
            1.0 - len(away) / max(1, len(run.tokens)),
        )

    def solve(self, values: Array, systems: Sequence[System]) -> tuple[Array, Posterior]:
        """Return the most likely coefficients for a known assignment of requests to steps."""
        posterior = None
        cost = inf
        for inner in range(_INNER_ROUNDS):
            if inner in (0, 3):
                self._measure_noise(values, systems)
                cost = self.cost(values, systems)
            posterior = self._posterior(values, systems)
            start = posterior.place(values)
            at, _ = posterior.best(start)
            share, before, old = 1.0, values, cost
            values = posterior.values(start + share * (at - start))
            while (cost := self.cost(values, systems)) > old + 1e-3 and share > 0.1:
                share *= 0.5
                values = posterior.values(start + share * (at - start))
            if inner >= 2 and self._size(posterior, values - before, values) < _SETTLED:
                break
        assert posterior is not None  # noqa: S101  (the loop runs at least once)
        return values, posterior

    @staticmethod
    def _size(posterior: Posterior, move: Array, values: Array) -> float:
        """Return the size of a move relative to the posterior uncertainty."""
        step = move / posterior.spread
        return float(step @ posterior.curvature(posterior.place(values)) @ step)

    def _measure_noise(self, values: Array, systems: Sequence[System]) -> None:
        for request, system in zip(self.requests, systems, strict=True):
            late = system.late(values)
            request.noise = estimated(request.noise, system.chain.times, late)
            token_us = system.token_us(filtered(request.noise, system.chain.times, late))
            request.jitter_us = likeliest_jitter(system.windows, token_us, values, request.jitter_us)
        for log_ in self.steps:
            error = np.abs(log_.sizes(values)) * log_.deviation
            log_.deviation = max(1.4826 * float(np.median(error)), 1e-6)

    def _posterior(self, values: Array, systems: Sequence[System]) -> Posterior:
        rows: list[Array] = []
        entrances: list[Entrances] = []
        for request, system in zip(self.requests, systems, strict=True):
            chain = system.chain
            gains = filtered(request.noise, chain.times, system.late(values))
            columns = np.column_stack([chain.roundings(), system.slopes(values), chain.known_us])
            rows.append(whitened(chain.times, gains, columns))
            entrances.append(system.entrances(request.jitter_us, gains))
        for log_ in self.steps:
            size = np.abs(log_.sizes(values))
            limit = _SURPRISE**2
            less = np.sqrt(np.where(size > _SURPRISE, (1.0 + limit) / (1.0 + size * size), 1.0))
            none = np.zeros((len(size), 2))
            columns = np.column_stack([none, log_.slopes(values), log_.durations_us])
            rows.append(columns * (less / (log_.deviation * log_.durations_us))[:, None])
        stacked = np.vstack(rows)
        return Posterior(self.law.terms, stacked[:, 2:-1], stacked[:, -1], stacked[:, :2], entrances)

    def cost(self, values: Array, systems: Sequence[System]) -> float:
        """Return the negative log-likelihood of coefficients, including their prior."""
        at = (values - np.array([term.base for term in self.law.terms])) / [term.spread for term in self.law.terms]
        total = 0.5 * float(at @ at)
        for request, system in zip(self.requests, systems, strict=True):
            gains = filtered(request.noise, system.chain.times, system.late(values))
            total += gains.cost + system.lost
            total += float(np.sum(system.entrances(request.jitter_us, gains).cost(values)))
        for log_ in self.steps:
            size = log_.sizes(values) ** 2
            limit = _SURPRISE**2
            far = 0.5 * limit + 0.5 * (1.0 + limit) * np.log((1.0 + np.maximum(size, limit)) / (1.0 + limit))
            total += float(np.sum(np.where(size > limit, far, 0.5 * size)) + len(size) * log(log_.deviation))
        return total
