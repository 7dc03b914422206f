"""The result of ``calibrate``: what was found, as an experiment to extend and as a page with predicted values."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.base.classes import dataclass
from blis_tui.base.html import plain_page, plain_table
from blis_tui.base.scalars import flow
from blis_tui.base.units import share_change_text, share_text
from blis_tui.live.calibration.other_loads import expected_text
from blis_tui.live.calibration.simulated_load import METRICS, agreement, by_batch, size_of
from blis_tui.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.source import Json
    from blis_tui.live.calibration.measured import Data
    from blis_tui.live.calibration.other_loads import OtherLoadErrors
    from blis_tui.live.calibration.simulated_load import Pairs
    from blis_tui.model.control_plane import Setting

_SIZE: Final = 320
_MARGIN: Final = 44
_MOST_POINTS: Final = 1500
_STYLE: Final = """circle { fill: #2563eb; fill-opacity: .35; }
@media (prefers-color-scheme: dark) { circle { fill: #7aa2f7; } }
"""


def document_text(fitted: Fit, data: Sequence[Data], errors: Mapping[str, float]) -> str:
    """Return an experiment with only ``latency``, for use with ``extends``; comments give the coefficients' sources.

    Args:
        fitted: the coefficients.
        data: the measurements.
        errors: metric -> error of the mean, over all recordings.
    """
    lines = [
        f"# Made by `blis-tui calibrate` {__version__} from:",
    ]
    for run in data:
        recording, (pool,) = run.recording, run.experiment.pools
        lines.append(
            f"#   {recording.path.name}: {recording.size} ({recording.format}), {pool.model.name},"
            f" {pool.tensor_parallel} x {pool.hardware.name}, sha256 {recording.sha256}"
        )
    error_texts = ", ".join(f"{metric} {share_change_text(error)}" for metric, error in errors.items())
    lines.append(f"# Error of the means on these: {error_texts}. Use it with `extends: FILE` in an experiment.")
    lines += [f"# {statement}" for statement in fitted.statements]
    lines += [f"# Means may be off by (9 of 10) under {expected_text(other_load)}." for other_load in fitted.elsewhere]
    lines += ["# Not determined by these measurements, and left as they were:"]
    lines += [f"#   {coefficient.name}: {coefficient.why}" for coefficient in fitted.left_out]
    lines += [
        "apiVersion: blis/v1",
        "kind: Experiment",
        "metadata:",
        "  name: calibrated",
        "latency:",
        f"  kind: {fitted.latency.kind}",
    ]
    notes = {} if fitted.kept else {coefficient.name: _note(coefficient) for coefficient in fitted.found}
    for key, value in fitted.latency.settings.items():
        lines.append(f"  {key}: {flow(_plain(value))}" + (f"  # {notes.pop(key)}" if key in notes else ""))
    lines += [f"# {name}: {note}" for name, note in notes.items()]
    return "\n".join(lines) + "\n"


def _plain(value: Setting | PluginConfig) -> Json:
    if isinstance(value, PluginConfig):
        return {"kind": value.kind, **{key: _plain(setting) for key, setting in value.settings.items()}}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return dict(value) if isinstance(value, Mapping) else value


def _note(coefficient: Coefficient) -> str:
    return f"{share_text(LEVEL, 0)} interval {coefficient.interval}, {coefficient.words}; was {coefficient.base:.4g}"


def page(title: str, runs: Mapping[str, Pairs]) -> str:
    """Return a page of measured against predicted values for each metric and run, and of errors by batch size."""
    parts: list[str] = []
    for name, pairs in runs.items():
        parts.append(f"<h2>{escape(name)}</h2>")
        parts += [_diagram(pairs, metric) for metric in METRICS]
        parts.append(_bins(pairs))
    return plain_page(title, parts, _STYLE)


def _diagram(pairs: Pairs, metric: str) -> str:
    values = [both for pair in pairs if (both := pair.values(metric)) is not None]
    values = values[:: max(1, len(values) // _MOST_POINTS)]
    if not values:
        return ""
    top = max(max(both) for both in values) * 1.05
    scale = (_SIZE - _MARGIN) / top
    points = "".join(
        f"<circle cx='{_MARGIN + x * scale:.1f}' cy='{_SIZE - _MARGIN - y * scale + _MARGIN:.1f}' r='2'/>"
        for x, y in values
    )
    comparison = agreement(pairs, metric)
    label = (
        ""
        if comparison is None
        else f"{metric}: bias {share_change_text(comparison.bias)}, mean error {share_text(comparison.mape)}"
    )
    return (
        f"<svg width='{_SIZE}' height='{_SIZE + _MARGIN}' role='img' aria-label='{metric}'>"
        f"<line x1='{_MARGIN}' y1='{_SIZE}' x2='{_SIZE}' y2='{_MARGIN}'/>{points}"
        f"<text x='{_MARGIN}' y='{_SIZE + 18}'>measured, up to {top:,.0f} ms</text>"
        f"<text x='{_MARGIN}' y='14'>{label}; upwards: predicted</text></svg>"
    )


def _bins(pairs: Pairs) -> str:
    rows: list[list[str]] = []
    for group in by_batch(pairs):
        cells = [f"{group[0].batch:.1f} to {group[-1].batch:.1f}", f"{len(group):,}"]
        for metric in METRICS:
            comparison = agreement(group, metric)
            cells.append(
                ""
                if comparison is None
                else f"{comparison.measured_ms:,.2f} / {comparison.simulated_ms:,.2f}"
                f" ({share_change_text(comparison.bias)})"
            )
        rows.append(cells)
    heads = (f"{metric}, ms: measured / predicted" for metric in METRICS)
    return plain_table((size_of(pairs), "number", *heads), rows)


LEVEL: Final = 0.9
"""Probability of the intervals."""
MEASURED_WITHIN: Final = 0.1
"""A coefficient counts as measured if its interval reaches at most this share of it to either side."""
UNDETERMINED_SHARE: Final = 0.8
"""If an interval is longer than this share of the prior one, the measurements hardly determine the coefficient."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient that the measurements contain."""

    name: str
    value: float
    base: float
    low: float
    """Lower end of its interval with the other coefficients free; rounded down."""
    high: float
    """Upper end of its interval; rounded up."""
    told: str
    """``measured``; ``roughly``; ``together``: only together with others; ``hardly``; or ``averaged``: single steps
    could not be followed, but means agree with it."""
    together_with: tuple[str, ...] = ()
    """Coefficients whose effect cannot be distinguished from its own."""
    at_bound: bool = False
    """Whether it is at its lower bound."""
    pressed: bool = False
    """Whether the measurements favour a value below its bound by more than chance explains."""

    @property
    def words(self) -> str:
        """Its rating in words, which are those of docs/accuracy.md."""
        return {
            "measured": "measured",
            "roughly": f"within {share_text(self.width, 0)}" if self.value else "at its bound",
            "together": f"confounded with {', '.join(self.together_with)}",
            "hardly": "barely constrained",
            "averaged": "for the means alone",
        }[self.told]

    @property
    def interval(self) -> str:
        """Its interval as text."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def width(self) -> float:
        """Distance to the farther end of its interval, relative to its value."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / self.value if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class Combined:
    """The combination of coefficients that the measurements tell, where they do not tell the coefficients apart."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    """What each coefficient is multiplied with; the first has 1."""
    value: float
    base: float
    low: float
    """Lower end of its interval; rounded down."""
    high: float
    """Upper end of its interval; rounded up."""

    @property
    def text(self) -> str:
        """The combination as a sum, such as ``step_us + 32 layer_us``."""
        first, *others = self.names
        rest = zip(others, self.weights[1:], strict=True)
        return first + "".join(f" {'-' if weight < 0 else '+'} {abs(weight):g} {name}" for name, weight in rest)

    @property
    def interval(self) -> str:
        """Its interval as text."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def words(self) -> str:
        """How exactly it is known, in the words for coefficients."""
        return "measured" if self.width <= MEASURED_WITHIN else f"within {share_text(self.width, 0)}"

    @property
    def width(self) -> float:
        """Distance to the farther end of its interval, relative to its size."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / abs(self.value) if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A coefficient that keeps its base value, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit."""

    latency: PluginConfig
    """The step-time model with the fitted coefficients."""
    found: tuple[Coefficient, ...]
    left_out: tuple[LeftOut, ...]
    statements: tuple[str, ...]
    """Remarks, as sentences."""
    sums: tuple[Combined, ...] = ()
    """What is known of the coefficients that cannot be told apart."""
    followed: float = 1.0
    """Share of the first and last tokens that came in their expected steps."""
    gap_us: float = 0.0
    """Part of each step that the server's log does not contain."""
    draws: tuple[PluginConfig, ...] = ()
    """Step-time models drawn from the posterior; empty if it is unknown."""
    elsewhere: tuple[OtherLoadErrors, ...] = ()
    """Expected errors under other loads."""
    kept: bool = False
    """Whether the experiment's own coefficients were kept, because no better ones were found."""

    @property
    def values(self) -> Mapping[str, float]:
        """The values of the coefficients, by name."""
        return {coefficient.name: coefficient.value for coefficient in self.found}
