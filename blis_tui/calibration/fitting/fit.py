"""Coefficients from measured requests and steps.

First roughly: every answer, and every wait for a first token, is the sum of what the coefficients stand for in the
steps of a simulated run. Those steps are the server's only on average, so this ends near the truth and no nearer. Then
exactly: the run is led by the measurements (see ``follow``), so that its steps are the server's, and equations of
single ends of steps are solved, with the errors that such times have (see ``clock``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.clock import Noise, estimated, filtered, whitened
from blis_tui.calibration.fitting.equations import equations_of, sums_of
from blis_tui.calibration.fitting.follow import FIRST, follow
from blis_tui.calibration.fitting.laws import loads_of
from blis_tui.calibration.fitting.posterior import Jitter, Posterior, likeliest_jitter
from blis_tui.calibration.measured import Recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.data import Data
    from blis_tui.calibration.fitting.equations import Chain, Windows
    from blis_tui.calibration.fitting.follow import Followed
    from blis_tui.calibration.fitting.laws import Array, Law, Loads
    from blis_tui.calibration.steps import StepLog
    from blis_tui.spec.model import Experiment, Pool

_PACES: Final = 4
_CLOSE: Final = 0.02
_DAMPING: Final = 0.7
_ROUGH_ROUNDS: Final = 1
_ROBUST_ROUNDS: Final = 4
_ALIKE: Final = 2.0
_EXACT_ROUNDS: Final = 8
_INNER: Final = 6
_SETTLED: Final = 0.02
_SURPRISE: Final = 3.0


class Requests:
    """A recording of requests."""

    def __init__(self, data: Data, law: Law) -> None:
        assert isinstance(data.recording, Recording)  # noqa: S101
        self.data = data
        self.recording = data.recording
        self.law = law
        (self.pool,) = data.experiment.pools
        self.noise = Noise(step=0.02, stamp_us=200.0, first=0.005, answer=0.002)
        self.jitter_us = 3000.0

    def waits(self, values: Array) -> list[float]:
        """How long each request waits before it stands in the queue."""
        tokens = np.array([float(one.input_tokens) for one in self.recording.requests])
        return (self.law.queue(tokens) @ values).tolist()

    def enter(self, values: Array, followed: Followed, windows: Windows) -> None:
        """Let requests enter the queue such that their first tokens come in the steps in which they came."""
        waits = self.waits(values)
        if not SHIFT:
            self.waits_us = self.in_order(waits)
            return
        for number, after, until in zip(windows.requests, windows.after_us.tolist(), windows.until_us.tolist(), strict=True):
            if not after < waits[number] <= until:
                inside = 0.05 * (until - after)
                waits[number] = max(0.0, after + inside if waits[number] <= after else until - inside)
        self.waits_us = self.in_order(waits)

    def in_order(self, waits_us: list[float]) -> list[float]:
        """The same, but such that requests come in the order of their first tokens, as far as that is certain."""
        if self.data.experiment.policy.scheduling.kind != "fcfs":
            return waits_us
        asked = self.recording.requests
        order = sorted(range(len(asked)), key=lambda at: asked[at].arrival_us + asked[at].ttft_us)
        comes = [one.arrival_us + wait for one, wait in zip(asked, waits_us, strict=True)]
        groups: list[list[int]] = []
        last = -np.inf
        for at in order:
            first = asked[at].arrival_us + asked[at].ttft_us
            if first - last > 3.0 * self.noise.of_token(FIRST, asked[at]) ** 0.5:
                groups.append([])
            groups[-1].append(at)
            last = first
        for _ in range(4):
            settled = True
            for before, after in itertools.pairwise(groups):
                latest, earliest = max(comes[at] for at in before), min(comes[at] for at in after)
                if latest >= earliest:
                    settled = False
                    middle = 0.5 * (latest + earliest)
                    for at in before:
                        comes[at] = min(comes[at], middle - 0.5)
                    for at in after:
                        comes[at] = max(comes[at], middle + 0.5)
            if settled:
                break
        return [max(0.0, time - one.arrival_us) for time, one in zip(comes, asked, strict=True)]

    def experiment(self, values: Array) -> Experiment:
        """With these coefficients."""
        return with_latency(self.data.experiment, self.law, values)


def with_latency(experiment: Experiment, law: Law, values: Array) -> Experiment:
    """The experiment with a law's coefficients."""
    (pool,) = experiment.pools
    return replace(experiment, pools=(replace(pool, latency=law.config(values)),))


@dataclass(slots=True)
class Steps:
    """A log of steps."""

    law: Law
    pool: Pool
    loads: Loads
    durations_us: Array
    deviation: float = 0.05
    """Of a step, as a share of it."""

    def errors(self, values: Array) -> tuple[Array, Array]:
        """Slopes, and what is left of durations."""
        slopes = self.law.steps(values, self.pool, self.loads)
        return slopes, self.durations_us - slopes @ values


def steps_of(data: Data, law: Law) -> Steps:
    """A log as arrays."""
    log: StepLog = data.recording  # type: ignore[assignment]
    (pool,) = data.experiment.pools
    works = ((one.decode_requests, one.context_tokens, one.chunks) for one in log.steps)
    return Steps(
        law, pool, loads_of(works, pool.model.sliding_window), np.array([one.duration_us for one in log.steps])
    )


@dataclass(slots=True)
class Fitted:
    """An end."""

    values: Array
    posterior: Posterior
    at: Array
    locked: float
    """Of first tokens, the share that came in the step in which they were expected."""
    cost: float
    noises: list


class Problem:
    """Everything measured, and a law."""

    def __init__(self, data: Sequence[Data], law: Law) -> None:
        self.law = law
        self.requests = [Requests(one, law) for one in data if isinstance(one.recording, Recording)]
        self.steps = [steps_of(one, law) for one in data if not isinstance(one.recording, Recording)]
        self.lowest = np.array([one.lowest for one in law.terms])

    # ---- roughly ----

    def rough(self, start: Array) -> Array:
        values = start
        for number in range(_ROUGH_ROUNDS):
            new = self._rough_round(values, flat=number == 0)
            change = np.max(np.abs(new - values) / np.array([one.spread for one in self.law.terms]))
            values = new
            if change < 0.01:
                break
        return values

    def _rough_round(self, values: Array, flat=True) -> Array:
        systems = []
        for one in self.requests:
            followed = follow(
                one.experiment(values), one.recording, None, one.waits(values), repeated=one.data.repeated, flat=flat
            )
            systems.append(sums_of(self.law, one.pool, one.recording.requests, followed))
        kinds = np.concatenate([np.where(one.firsts, 1, 0) for one in systems] + [np.full(len(one.durations_us), 2) for one in self.steps])
        measured = np.concatenate([one.measured_us for one in systems] + [one.durations_us for one in self.steps])
        deviation, weight = np.full(len(kinds), 0.1), np.ones(len(kinds))
        for _ in range(_ROBUST_ROUNDS):
            slopes = np.vstack([one.slopes(values) for one in systems] + [one.errors(values)[0] for one in self.steps]) / measured[:, None]
            scale = weight / deviation
            posterior = Posterior(self.law.terms, slopes * scale[:, None], scale, [])
            at, _ = posterior.best((values - posterior.base) / posterior.spread)
            values = posterior.values(at)
            error = np.abs(1.0 - slopes @ values)
            for kind, wider in enumerate((1.0, _ALIKE, 1.0)):
                mine = kinds == kind
                if mine.any():
                    deviation[mine] = max(float(np.median(error[mine])) * 1.4826 * wider, 1e-6)
            weight = np.sqrt(np.minimum(1.0, 4.0 * deviation / np.maximum(error, 1e-12)))
        return values

    # ---- exactly ----

    def exact(self, start: Array) -> Fitted:
        best = None
        for noise in (TRUSTING, DOUBTING, JUMPING):
            found = self._exact(start, noise)
            if VERBOSE: print('cost', found.cost, found.locked)
            if best is None or found.cost < best.cost: best = found
            if best.locked > .985: break
        return best

    def _exact(self, start: Array, noise: Noise) -> Fitted:
        values, lead = start, noise
        for one in self.requests:
            one.__init__(one.data, self.law)
            one.noise = noise
            one.waits_us = one.in_order(one.waits(values))
        for round in range(_EXACT_ROUNDS):
            systems = []
            runs = []
            locked = []
            lost = []
            for one in self.requests:
                followed = follow(one.experiment(values), one.recording, lead, one.waits_us, repeated=one.data.repeated)
                systems.append(equations_of(self.law, one.pool, one.recording.requests, followed))
                runs.append(followed)
                locked += [not token.elsewhere for token in followed.tokens]
                lost += [np.log(2.0 * token.shorter_us / 0.02) for token in followed.tokens if token.elsewhere]
            before = values
            values, posterior, at = self._exact_round(values, systems)
            for one, followed, (_, windows) in zip(self.requests, runs, systems, strict=True):
                one.enter(values, followed, windows)
            move = (values - before) / posterior.spread
            change = float(move @ posterior.curvature(at) @ move)
            if VERBOSE:
                print(round, 'change', change, 'lock', np.mean(locked), [(o.noise, o.jitter_us) for o in self.requests])
            if change < _SETTLED:
                break
        return Fitted(values, posterior, at, float(np.mean(locked)) if locked else 1.0, self._cost(values, systems) + sum(lost), [(o.noise, o.jitter_us) for o in self.requests])

    def _exact_round(self, values: Array, systems: list[tuple[Chain, Windows]]) -> tuple[Array, Posterior, Array]:
        terms = self.law.terms
        for inner in range(_INNER):
            if inner in (0, 3):
                self._measure_noise(values, systems)
            posterior = self._posterior(values, systems)
            start = (values - posterior.base) / posterior.spread
            at, _ = posterior.best(start)
            old, share = self._cost(values, systems), 1.0
            while share > 0.1 and self._cost(posterior.values(start + share * (at - start)), systems) > old + 1e-3:
                share *= 0.5
            at = start + share * (at - start)
            values = posterior.values(at)
            move = at - start
            if inner >= 2 and float(move @ posterior.curvature(at) @ move) < _SETTLED:
                break
        return values, posterior, at

    def _measure_noise(self, values: Array, systems: list[tuple[Chain, Windows]]) -> None:
        for one, (chain, windows) in zip(self.requests, systems, strict=True):
            late = chain.known_us - chain.slopes(values) @ values
            one.noise = estimated(one.noise, chain.times, late.tolist())
            one.jitter_us = likeliest_jitter(windows, values, one.jitter_us)
        for log in self.steps:
            _, late = log.errors(values)
            log.deviation = max(1.4826 * float(np.median(np.abs(late / log.durations_us))), 1e-6)

    def _posterior(self, values: Array, systems: list[tuple[Chain, Windows]]) -> Posterior:
        rows = []
        for one, (chain, _) in zip(self.requests, systems, strict=True):
            slopes = chain.slopes(values)
            gains = filtered(one.noise, chain.times, (chain.known_us - slopes @ values).tolist())
            rows.append(whitened(chain.times, gains, np.column_stack([slopes, chain.known_us])))
        for log in self.steps:
            slopes, late = log.errors(values)
            size = late / (log.deviation * log.durations_us)
            outlier = np.sqrt(np.where(np.abs(size) > _SURPRISE, (1 + _SURPRISE**2) / (1 + size * size), 1.0))
            rows.append(np.column_stack([slopes, log.durations_us]) * (outlier / (log.deviation * log.durations_us))[:, None])
        stacked = np.vstack(rows)
        jitters = [Jitter(windows, one.jitter_us) for one, (_, windows) in zip(self.requests, systems, strict=True)]
        return Posterior(self.law.terms, stacked[:, :-1], stacked[:, -1], jitters)

    def _cost(self, values: Array, systems: list[tuple[Chain, Windows]]) -> float:
        terms = self.law.terms
        at = (values - np.array([one.base for one in terms])) / np.array([one.spread for one in terms])
        total = 0.5 * float(at @ at)
        for one, (chain, windows) in zip(self.requests, systems, strict=True):
            late = chain.known_us - chain.slopes(values) @ values
            total += filtered(one.noise, chain.times, late.tolist()).cost + Jitter(windows, one.jitter_us).cost(values)
        for log in self.steps:
            _, late = log.errors(values)
            size = (late / (log.deviation * log.durations_us)) ** 2
            limit = _SURPRISE**2
            total += float(np.sum(np.where(size > limit, 0.5 * limit + 0.5 * (1 + limit) * np.log((1 + np.maximum(size, limit)) / (1 + limit)), 0.5 * size)))
        return total


TRUSTING = Noise(step=0.02, stamp_us=50.0, first=2e-4, answer=2e-4)
DOUBTING = Noise(step=0.03, stamp_us=500.0, first=0.01, answer=0.02)
JUMPING = Noise(step=0.1, stamp_us=100.0, first=1e-3, answer=1e-3)
VERBOSE = False
SHIFT = True
