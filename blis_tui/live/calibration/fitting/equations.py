"""The equations of a recording for the coefficients, once it is known which requests shared each step."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.live.calibration.fitting.clock import Times
from blis_tui.live.calibration.fitting.follow import FIRST
from blis_tui.live.calibration.fitting.laws import loads_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from blis_tui.live.calibration.fitting.follow import FollowResult
    from blis_tui.live.calibration.fitting.laws import Array, Law, Loads
    from blis_tui.live.calibration.measured import Measured
    from blis_tui.model import Pool

    Places = NDArray[np.int64]

_QUEUED_STEPS: Final = 6
"""A request that waited for more steps was queued, so its TTFT does not determine single steps."""
_TRUNCATED_US: Final = 0.5
"""Times are truncated to microseconds, half a microsecond on average."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Measured ends of steps, each the sum of the arrival that ended a pause, a wait before the queue, and steps."""

    law: Law
    pool: Pool
    loads: Loads
    began: Places
    """First step after the pause, for each measured time."""
    ended: Places
    """The step that ended then."""
    known_us: Array
    """Measured time minus the parts without coefficients."""
    fixed: Array
    """Slopes outside of steps: before the queue, for the request that ended the pause, and after the step."""
    times: Times

    def slopes(self, values: Array) -> Array:
        """Return the slopes of each measured time."""
        sums = _sums(self.law.steps(values, self.pool, self.loads))
        return sums[self.ended + 1] - sums[self.began] + self.fixed

    def roundings(self) -> Array:
        """Return the slopes of an error shared by all steps, and of one proportional to their decodes: two columns."""
        decodes = self.loads.decodes / max(1.0, float(self.loads.decodes.mean()))
        sums = _sums(np.column_stack([np.ones_like(decodes), decodes]))
        return sums[self.ended + 1] - sums[self.began]


@dataclass(frozen=True, slots=True)
class Windows:
    """Intervals between scheduling passes in which requests may have joined the queue: three each, one is right."""

    requests: list[int]
    slopes: Array
    """Slopes of the wait before the queue."""
    edges_us: Array
    """Times of the scheduling passes relative to the arrival: four per request."""
    off_us: Array
    """How much later than expected the first token came if the middle interval is right."""
    step_us: Array
    """How much later it would be expected if the next interval is right."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Equations for whole answers and first tokens, which hardly depend on a request's exact steps."""

    law: Law
    pool: Pool
    loads: Loads
    began: Places
    """The first step of a measured time, of which it contains a share."""
    shares: Array
    ended: Places
    measured_us: Array
    fixed: Array
    """Slopes outside of steps."""
    firsts: NDArray[np.bool_]

    def slopes(self, values: Array) -> Array:
        """Return the slopes of each measured time."""
        steps = self.law.steps(values, self.pool, self.loads)
        sums = _sums(steps)
        return sums[self.ended + 1] - sums[self.began + 1] + self.shares[:, None] * steps[self.began] + self.fixed


def _sums(columns: Array) -> Array:
    """Return the sums of all rows before each row."""
    return np.vstack([np.zeros(columns.shape[1]), np.cumsum(columns, axis=0)])


def _loads(pool: Pool, followed: FollowResult) -> Loads:
    works = (
        (step.decode_requests, step.decode_context_tokens, [(it.computed_tokens, it.new_tokens) for it in step.chunks])
        for step in followed.steps
    )
    return loads_of(works, pool.model.sliding_window)


def chain_of(law: Law, pool: Pool, requests: Sequence[Measured], followed: FollowResult) -> Chain:
    """Return the measured step ends of a recording, without those that cannot belong to their steps."""
    began: list[int] = []
    heads: list[int] = []
    for number, head in enumerate(followed.heads):
        pause = head >= 0 or not began
        began.append(number if pause else began[-1])
        heads.append(head if pause else heads[-1])
    squares = np.cumsum([0.0, *(float(step.duration_us) ** 2 for step in followed.steps)])
    tokens = sorted((token for token in followed.tokens if not token.elsewhere), key=lambda token: token.step)
    at: Places = np.array([token.step for token in tokens], dtype=np.int64)
    start: Places = np.array([began[token.step] for token in tokens], dtype=np.int64)
    fresh = np.append(True, start[1:] != start[:-1])[: len(tokens)]
    before = np.where(fresh, start, np.append(0, at[:-1] + 1)[: len(tokens)])
    asked = [requests[token.request] for token in tokens]
    first = np.array([token.kind == FIRST for token in tokens], dtype=bool)
    led = [requests[heads[token.step]] for token in tokens]
    answered = [
        1.0 if is_first else float(request.output_tokens) for request, is_first in zip(asked, first, strict=True)
    ]
    times = Times(
        fresh.tolist(),
        (squares[at + 1] - squares[before]).tolist(),
        (at + 1 - before).tolist(),
        [request.ttft_us for request in asked],
        [0.0 if is_first else request.e2e_us - request.ttft_us for request, is_first in zip(asked, first, strict=True)],
    )
    known = np.array([token.measured_us - request.arrival_us for token, request in zip(tokens, led, strict=True)])
    fixed = law.queue(np.array([float(request.input_tokens) for request in led]))
    known -= law.client_us(np.array(answered, dtype=float))
    return Chain(law, pool, _loads(pool, followed), start, at, known + _TRUNCATED_US * (at + 2 - start), fixed, times)


def windows_of(law: Law, requests: Sequence[Measured], followed: FollowResult) -> Windows:
    """Return the intervals in which a recording's requests joined the queue."""
    entries = [entry for entry in followed.entries if all(a <= b for a, b in pairwise(entry.looks_us))]
    arrivals = np.array([requests[entry.request].arrival_us for entry in entries]).reshape(-1, 1)
    return Windows(
        [entry.request for entry in entries],
        law.queue(np.array([float(requests[entry.request].input_tokens) for entry in entries])),
        np.array([entry.looks_us for entry in entries]).reshape(-1, 4) - arrivals,
        np.array([entry.off_us for entry in entries]),
        np.array([entry.step_us for entry in entries], dtype=float),
    )


def sums_of(law: Law, pool: Pool, requests: Sequence[Measured], followed: FollowResult) -> Sums:
    """Return the equations for a recording's answers and waits."""
    steps = followed.steps
    starts = [step.time_us for step in steps]
    first = {
        followed_token.request: followed_token.step
        for followed_token in followed.tokens
        if followed_token.kind == FIRST
    }
    rows: list[tuple[float, ...]] = []
    for token in followed.tokens:
        request = requests[token.request]
        if token.kind == FIRST:
            queued = followed.queued_us[token.request]
            at = max(0, bisect_right(starts, queued) - 1)
            running = steps[at]
            left = max(0.0, running.time_us + running.duration_us - queued) / running.duration_us
            if token.step - at < _QUEUED_STEPS:
                share = 1.0 if at >= token.step else left
                began = min(at, token.step)
                rows.append((began, share, token.step, request.ttft_us, 1.0, 1.0, request.input_tokens))
        elif token.request in first and request.e2e_us > request.ttft_us:
            lasted = request.e2e_us - request.ttft_us
            rows.append((first[token.request], 0.0, token.step, lasted, 0.0, request.output_tokens - 1.0, 0.0))
    began_, shares, ended, measured, firsts, tokens, prompts = np.array(rows).reshape(-1, 7).T
    fixed = firsts[:, None] * law.queue(prompts)
    loads = _loads(pool, followed)
    return Sums(
        law,
        pool,
        loads,
        began_.astype(int),
        shares,
        ended.astype(int),
        measured - law.client_us(tokens),
        fixed,
        firsts > 0.0,
    )
