"""Coefficients of ``fitted`` from measured requests and steps: bounded least squares towards a base.

Every request gives up to two equations: what it waited from its first token to its last, and from its arrival to its
first token, each the sum of what the coefficients stand for in the steps that it was part of (see ``replay``). Every
measured step gives one.
Equations are weighted by 1 / measured time. Each coefficient is expected to be near its base (a normal prior), so those
that the data do not tell apart move together, and no further than needed; standard errors are those of the posterior.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from blis_tui.calibration.parts import REQUEST_TERMS, STEP_TERMS, TERMS
from blis_tui.calibration.replay import parts_of, replay, simulate, stepped, with_coefficients
from blis_tui.calibration.steps import StepLog
from blis_tui.classes import dataclass
from blis_tui.engine.latency.fitted import Settings
from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from blis_tui.calibration.measured import Recording
    from blis_tui.spec.model import Experiment

    Array = NDArray[np.float64]

ROUNDS: Final = 6
"""The load is replayed with better coefficients each time: they decide who meets whom in a batch."""
_PACES: Final = 5
"""Before that, all coefficients of a step are scaled until batches are as large as they were."""
KNOWN_WITHIN: Final = 0.01
"""A coefficient counts as told when its standard error, whatever the others are, is at most this share of it."""
_PRIOR: Final = 0.5
"""How far from its base a coefficient is expected to be, as a share of it."""
_USEFUL: Final = 0.1
"""Where no coefficient is known this well, there is nothing to write."""
_KEPT: Final = {"moved": "it grows with tokens as flops does, so it is left as it was"}
_UNTOLD: Final = 0.4
"""Of a coefficient with a larger standard error the data say next to nothing."""
_RARE: Final = 0.002
"""A coefficient that stands for less than this share of the time is left out."""
_QUEUED_STEPS: Final = 6
"""A request that waited longer stood in a queue: its time to first token says nothing of single steps."""
_ANSWER, _FIRST, _STEP = range(3)
_ALIKE: Final = 2.0
"""First tokens that come close to each other wait for the same step, so that four of them say about as much as one."""
_ROBUST_ROUNDS: Final = 4
_CLOSE: Final = 0.02
_DAMPING: Final = 0.7
"""Slower steps make larger batches, which make slower steps."""


@dataclass(frozen=True, slots=True)
class Found:
    """A coefficient of which the data say something."""

    name: str
    value: float
    base: float
    standard_error: float
    """As a share of the value, whatever the other coefficients are."""
    together_with: str
    """The coefficient from whose effect its own is hardest to tell; empty where it is told by itself."""

    @property
    def told(self) -> bool:
        """Whether it is told by itself."""
        return not self.together_with


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A coefficient that keeps its base value, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """What the data say."""

    settings: Settings
    found: tuple[Found, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """A recording, and the experiment it was taken of."""

    recording: Recording | StepLog
    experiment: Experiment
    repeated: bool = False
    """Whether prompts repeat, and are found in the prefix cache."""


def fit(data: Sequence[Data], base: Settings) -> Fit:
    """Fit to all recordings together.

    Raises:
        InputError: scipy is not installed, or the data tell no coefficient.
    """
    try:
        import scipy.optimize  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise InputError("`calibrate` needs scipy", help="pip install 'blis-tui[calibrate]'") from error
    del scipy
    settings = _paced(data, base)
    found: tuple[Found, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    for _ in range(ROUNDS):
        found, left_out = _solve(_equations(data, settings), settings, base)
        before, settings = settings, with_values(base, {one.name: one.value for one in found})
        # Each replay meets other batches, which moves coefficients by about as much for ever.
        if all(abs(one.value - getattr(before, one.name)) <= one.standard_error * one.value for one in found):
            break
    if not any(one.standard_error <= _USEFUL for one in found):
        raise InputError("these measurements tell no coefficient", help=_words(left_out))
    return Fit(settings, found, left_out)


def _paced(data: Sequence[Data], base: Settings) -> Settings:
    """The base with steps as slow or fast as measured on the whole."""
    pace = 1.0
    settings = base
    for _ in range(_PACES):
        measured = simulated = 0.0
        for one in data:
            if isinstance(one.recording, StepLog):
                for pair in stepped(with_coefficients(one.experiment, settings), one.recording):
                    measured += pair.measured.duration_us
                    simulated += pair.step_us
                continue
            paced = with_coefficients(one.experiment, settings)
            for asked, row in zip(
                one.recording.requests, simulate(paced, one.recording, repeated=one.repeated), strict=True
            ):
                if row.ttft_us is not None and row.e2e_us is not None:
                    measured += asked.e2e_us - asked.ttft_us
                    simulated += row.e2e_us - row.ttft_us
        if not simulated or abs(measured / simulated - 1.0) < _CLOSE:
            break
        pace *= (measured / simulated) ** _DAMPING
        scaled = {name: max(getattr(base, name) * pace, _limit(name)) for name in STEP_TERMS}
        settings = with_values(base, scaled)
    return settings


def with_values(base: Settings, values: Mapping[str, float]) -> Settings:
    """The base with some coefficients replaced."""
    return replace(base, **values)  # type: ignore[arg-type]  # all of them are numbers


def _limit(name: str) -> float:
    """The smallest value of a coefficient."""
    (limits,) = (one.metadata["key"].limits for one in fields(Settings) if one.name == name)
    return float(limits["minimum"])


def _words(left_out: Sequence[LeftOut]) -> str:
    told = "; ".join(f"{one.name}: {one.why}" for one in left_out)
    return f"record more requests, under several loads, models or sizes ({told})"


@dataclass(frozen=True, slots=True)
class _Equations:
    """What the data say: each measured time as the sum of what the coefficients stand for."""

    parts: Array
    """In units of the measured time, a row each."""
    kinds: NDArray[np.int64]
    """Of each: answers, times to first token, or steps. Each kind has noise of its own."""
    queued: bool
    """Whether requests stand in queues."""


def _equations(data: Sequence[Data], settings: Settings) -> _Equations:
    """Those of all data with these coefficients, which decide about batches and about which side of a step counts."""
    import numpy as np  # noqa: PLC0415  (an extra)

    rows: list[list[float]] = []
    kinds: list[int] = []
    queued = False
    zeros = [0.0] * (len(TERMS) - len(STEP_TERMS))

    def add(kind: int, time_us: float, parts: Sequence[float]) -> None:
        rows.append([part / time_us for part in parts])
        kinds.append(kind)

    for run in data:
        if isinstance(run.recording, StepLog):
            for step, split in zip(run.recording.steps, parts_of(run.experiment, run.recording, settings), strict=True):
                add(_STEP, step.duration_us, (*split, *zeros))
            continue
        for one in replay(run.experiment, run.recording, settings, repeated=run.repeated):
            decode_us = one.measured.e2e_us - one.measured.ttft_us
            if one.measured.output_tokens > 1 and decode_us > 0.0:
                add(_ANSWER, decode_us, (*one.decode_parts, *zeros))
            if one.steps_to_first <= _QUEUED_STEPS:
                add(_FIRST, one.measured.ttft_us, one.first_parts)
            else:
                queued = True
    return _Equations(np.array(rows), np.array(kinds), queued)


def _solve(equations: _Equations, at: Settings, base: Settings) -> tuple[tuple[Found, ...], tuple[LeftOut, ...]]:
    """One round: which coefficients are told, and what they are, as multiples of what they were."""
    import numpy as np  # noqa: PLC0415  (an extra)
    from scipy.optimize import lsq_linear  # noqa: PLC0415  (an extra)

    parts, kinds = equations.parts, equations.kinds
    back = np.array([getattr(base, name) / getattr(at, name) if getattr(at, name) else 1.0 for name in TERMS])
    share = parts.mean(axis=0)
    why = {name: _absent(name, equations) for name, part in zip(TERMS, share, strict=True) if part < _RARE}
    why |= _KEPT
    active = [place for place, name in enumerate(TERMS) if name not in why]
    if not active:
        return (), tuple(LeftOut(name, why[name]) for name in TERMS)
    rest = [place for place in range(len(TERMS)) if place not in active]
    matrix, target = parts[:, active], 1.0 - parts[:, rest] @ back[rest]
    lower = np.array([_lowest(TERMS[place], at) for place in active])
    width = _PRIOR * back[active]
    weights, deviation = np.ones(len(kinds)), np.full(len(kinds), 0.1)
    for _ in range(_ROBUST_ROUNDS):
        # In units of the noise; outliers (a compilation, a hiccup of the client) count no more than four deviations.
        rows = np.vstack([matrix * (weights / deviation)[:, None], np.diag(1.0 / width)])
        aim = np.concatenate([target * weights / deviation, back[active] / width])
        factors = lsq_linear(rows, aim, bounds=(np.minimum(lower, back[active]), np.inf)).x
        residual = np.abs(target - matrix @ factors)
        # A replay meets steps at other moments than the server did, which a first token shows most: each kind its own.
        for number in (_ANSWER, _FIRST, _STEP):
            kind = kinds == number
            if kind.any():
                wider = _ALIKE if number == _FIRST else 1.0
                deviation[kind] = max(float(np.median(residual[kind])) * 1.4826 * wider, 1e-6)
        weights = np.sqrt(np.minimum(1.0, 4.0 * deviation / np.maximum(residual, 1e-12)))
    covariance = np.linalg.inv(rows.T @ rows)
    sigma = np.sqrt(np.diag(covariance))
    errors = sigma / np.maximum(factors, 1e-9)
    alike = np.abs(covariance / np.outer(sigma, sigma)) - 2.0 * np.eye(len(active))
    found = []
    for order, place in enumerate(active):
        name, error = TERMS[place], float(errors[order])
        partner = TERMS[active[int(np.argmax(alike[order]))]]
        if error > _UNTOLD:
            why[name] = f"its effect cannot be told from that of {partner}"
            continue
        value = float(f"{getattr(at, name) * factors[order]:.4g}")
        found.append(Found(name, value, getattr(base, name), error, "" if error <= KNOWN_WITHIN else partner))
    return tuple(found), tuple(LeftOut(name, why[name]) for name in TERMS if name in why)


def _lowest(name: str, at: Settings) -> float:
    """As a multiple of what it is: factors stay at or above the datasheet's limit."""
    value = getattr(at, name)
    return _limit(name) / value if value else 0.0


def _absent(name: str, equations: _Equations) -> str:
    """Why the data say nothing of a coefficient that takes no time in them."""
    if name in REQUEST_TERMS and all(kind == _STEP for kind in equations.kinds):
        return "steps say nothing of what requests wait for outside of them"
    if name.startswith("fp8"):
        return "the model has no weights of 8 bits, or hardly any prompt tokens are computed"
    if name in ("flops", "moved", "prefill_attention", "prefill_step_us", "prompt_token_us"):
        return (
            "requests wait in queues"
            if equations.queued and name != "flops"
            else "hardly any prompt tokens are computed"
        )
    if name.startswith("expert"):
        return "the model has no experts, or their other side counts"
    if name in ("all_reduce", "layer_tp_us"):
        return "no tensor parallelism, or hardly anything to exchange"
    if name == "sampler_us":
        return "sorted_sampling is off"
    return "it takes hardly any time in these runs"
