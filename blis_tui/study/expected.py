"""The expected errors of the means of a study's runs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.creation import create_latency
from blis_tui.metrics.pool_load import expectations
from blis_tui.records.section_text import METRIC_NAMES, not_measured_text, percent_text
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.names import point_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.metrics.expected_error import Band, Expectation
    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import Row
    from blis_tui.study.summary import PointSummary

_NAMED: Final = 3
"""Maximum number of points named."""
_WITH_VALUE: Final = re.compile(r"`([\w.]+): [^`]*`")
"""A key with its value; if points differ only in the value, only the key is named."""


def expected_of(study: Study, row: Row) -> dict[str, tuple[str, Expectation]]:
    """Return the step-time model of each pool, and the expected errors of the run; empty without a report.

    Args:
        study: the study.
        row: the run.
    """
    if not row.loads:
        return {}
    experiment = experiment_of(study, row.point, row.seed)
    found = expectations(experiment, row.loads, partial(create_latency, experiment.plugins))
    return {pool.name: (pool.latency.kind, found[pool.name]) for pool in experiment.pools}


def step_times_lines(study: Study, points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield the combined expected errors of some points, and why they are unknown for the others.

    The first run of each point is used.
    """
    bands: dict[str, dict[str, list[Band]]] = {}
    reasons: dict[str, list[tuple[str, str]]] = {}
    asked = 0
    for one in points:
        known = expected_of(study, next((row for row in one.rows if row.loads), one.rows[0]))
        asked += bool(known)
        for kind, expectation in known.values():
            for metric, band in expectation.bands.items():
                bands.setdefault(kind, {}).setdefault(metric, []).append(band)
            if expectation.reasons:
                why = f"(step times: {kind}): {not_measured_text(expectation)}"
                named = reasons.setdefault(_WITH_VALUE.sub(r"`\1`", why), [])
                if (said := (point_text(study.paths, one.point.coordinates), why)) not in named:
                    named.append(said)
    for kind, metrics in bands.items():
        told = [f"{name} {_widest(metrics[one])}" for one, name in METRIC_NAMES.items() if one in metrics]
        yield f"Accuracy (step times: {kind}): {', '.join(told)} (median by point; `blis-tui explain accuracy`)."
    for text, named in reasons.items():
        alike = len(dict.fromkeys(why for _, why in named)) == 1
        yield f"Accuracy{_of([name for name, _ in named], asked)} {named[0][1] if alike else text}."


def _of(named: Sequence[str], asked: int) -> str:
    """Return which points are meant; empty if it is all of them."""
    if len(named) == asked:
        return ""
    more = f"; and of {len(named) - _NAMED:,} more points" if len(named) > _NAMED else ""
    return f" of {'; '.join(named[:_NAMED])}{more}"


def _widest(bands: Sequence[Band]) -> str:
    medians = [one.median for one in bands]
    return "±" + " to ".join(dict.fromkeys((percent_text(min(medians)), percent_text(max(medians)))))
