"""What a recording says about coefficients, once it is known which requests shared each step."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.clock import Times
from blis_tui.calibration.fitting.follow import FIRST
from blis_tui.calibration.fitting.laws import loads_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from blis_tui.calibration.fitting.follow import Followed
    from blis_tui.calibration.fitting.laws import Array, Law, Loads
    from blis_tui.calibration.measured import Measured
    from blis_tui.spec.model import Pool

_QUEUED_STEPS: Final = 6
"""A request that waited longer stood in a queue: its time to first token says nothing of single steps."""
_TRUNCATED_US: Final = 0.5
"""Times are cut to whole microseconds, which takes off half of one on average."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Measured ends of steps, each a sum: of the arrival that ended a pause, a wait before the queue, and steps."""

    law: Law
    pool: Pool
    loads: Loads
    began: Array
    """Of each measured time, the first step of its stretch without a pause."""
    ended: Array
    """The step whose end it is."""
    known_us: Array
    """Measured time, less what no coefficient has a part in."""
    heads: Array
    """Of the request that ended the pause: its slopes before the queue."""
    clients: Array
    """Slopes of what comes behind the step."""
    times: Times

    def slopes(self, values: Array) -> Array:
        """Of each measured time."""
        steps = self.law.steps(values, self.pool, self.loads)
        sums = np.vstack([np.zeros(steps.shape[1]), np.cumsum(steps, axis=0)])
        return sums[self.ended + 1] - sums[self.began] + self.heads + self.clients


@dataclass(frozen=True, slots=True)
class Windows:
    """Between which times a request came to stand in the queue, after its arrival."""

    requests: list[int]
    slopes: Array
    after_us: Array
    until_us: Array


def equations_of(law: Law, pool: Pool, requests: Sequence[Measured], followed: Followed) -> tuple[Chain, Windows]:
    """Those of a recording."""
    began, heads = [], []
    for number, head in enumerate(followed.heads):
        began.append(number if head >= 0 or not began else began[-1])
        heads.append(head if head >= 0 or not heads else heads[-1])
    steps = followed.steps
    squares = np.cumsum([0.0, *(float(one.duration_us) ** 2 for one in steps)])
    tokens = sorted((one for one in followed.tokens if not one.elsewhere), key=lambda one: one.step)
    at = np.array([one.step for one in tokens])
    start = np.array([began[one.step] for one in tokens])
    fresh = np.concatenate([[True], start[1:] != start[:-1]])
    before = np.where(fresh, start, np.concatenate([[0], at[:-1] + 1]))
    asked = [requests[one.request] for one in tokens]
    first = np.array([one.kind == FIRST for one in tokens])
    head = [requests[heads[one.step]] for one in tokens]
    prompts = np.array([float(one.input_tokens) for one in head])
    times = Times(
        fresh.tolist(),
        (squares[at + 1] - squares[before]).tolist(),
        (at + 1 - before).tolist(),
        [one.ttft_us for one in asked],
        [0.0 if is_first else one.e2e_us - one.ttft_us for one, is_first in zip(asked, first.tolist(), strict=True)],
    )
    known = np.array([one.measured_us for one in tokens]) - np.array([one.arrival_us for one in head])
    chain = Chain(
        law,
        pool,
        _loads(pool, followed),
        start,
        at,
        known + _TRUNCATED_US * (at + 2 - start),
        law.queue(prompts),
        law.client(np.where(first, 1.0, [one.output_tokens for one in asked])),
        times,
    )
    entries = [one for one in followed.entries if one.until_us - one.after_us >= 1.0]
    arrivals = np.array([requests[one.request].arrival_us for one in entries])
    windows = Windows(
        [one.request for one in entries],
        law.queue(np.array([float(requests[one.request].input_tokens) for one in entries])),
        np.array([one.after_us for one in entries]) - arrivals,
        np.array([one.until_us for one in entries]) - arrivals,
    )
    return chain, windows


def _loads(pool: Pool, followed: Followed) -> Loads:
    works = (
        (one.decode_requests, one.decode_context_tokens, [(it.computed_tokens, it.new_tokens) for it in one.chunks])
        for one in followed.steps
    )
    return loads_of(works, pool.model.sliding_window)


@dataclass(frozen=True, slots=True)
class Sums:
    """Equations that do not mind in which step exactly a request was: of whole answers, and of first tokens."""

    law: Law
    pool: Pool
    loads: Loads
    began: Array
    """The first step that a time takes part in; of it, a share."""
    shares: Array
    ended: Array
    measured_us: Array
    fixed: Array
    """Slopes of what is no step."""
    firsts: NDArray[np.bool_]

    def slopes(self, values: Array) -> Array:
        """Of each measured time."""
        steps = self.law.steps(values, self.pool, self.loads)
        sums = np.vstack([np.zeros(steps.shape[1]), np.cumsum(steps, axis=0)])
        return sums[self.ended + 1] - sums[self.began + 1] + self.shares[:, None] * steps[self.began] + self.fixed


def sums_of(law: Law, pool: Pool, requests: Sequence[Measured], followed: Followed) -> Sums:
    """Those of a recording."""
    steps = followed.steps
    starts = [one.time_us for one in steps]
    first = {one.request: one.step for one in followed.tokens if one.kind == FIRST}
    rows: list[tuple[float, ...]] = []
    for token in followed.tokens:
        request = requests[token.request]
        if token.kind == FIRST:
            queued = followed.queued_us[token.request]
            at = max(0, bisect_right(starts, queued) - 1)
            running = steps[at]
            left = max(0.0, running.time_us + running.duration_us - queued) / running.duration_us
            if token.step - at < _QUEUED_STEPS:
                began = min(at, token.step)
                whole = at >= token.step
                rows.append((began, 1.0 if whole else left, token.step, request.ttft_us, 1.0, 1.0, request.input_tokens))
        elif token.request in first and request.e2e_us > request.ttft_us:
            lasted = request.e2e_us - request.ttft_us
            rows.append((first[token.request], 0.0, token.step, lasted, 0.0, request.output_tokens - 1.0, 0.0))
    began_, shares, ended, measured, firsts, tokens, prompts = np.array(rows).reshape(-1, 7).T
    fixed = law.client(tokens) + firsts[:, None] * law.queue(prompts)
    return Sums(
        law,
        pool,
        _loads(pool, followed),
        began_.astype(int),
        shares,
        ended.astype(int),
        measured,
        fixed,
        firsts > 0.0,
    )
