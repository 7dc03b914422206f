"""Rows of runs, and their results kept for later studies."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.authoring.figures import figures_at
from blis_tui.errors import BlisError, InputError
from blis_tui.inputs import parse_json
from blis_tui.metrics.report import Report
from blis_tui.study.rows import row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.spec.model import Expectation, Experiment
    from blis_tui.spec.study.model import Point, Study
    from blis_tui.study.rows import Row, Value
    from blis_tui.study.store import Store
    from blis_tui.study.task import Outcome


class Results:
    """The known results of a study's runs.

    Args:
        study: the study.
        store: where results are looked up and kept.
        warn: called once for each problem that does not stop the work: results that cannot be kept, or trace entries
            that are no requests.
    """

    def __init__(self, study: Study, store: Store, warn: Callable[[str], None] | None = None) -> None:
        self.unsaved = 0
        """Number of results that could not be kept."""
        self._study = study
        self._store = store
        self._warn = warn
        self._told: dict[str, None] = {}

    def row(self, point: Point, seed: int, experiment: Experiment, outcome: Outcome) -> Row:
        """Return the row of a run."""
        found = row_of(self._study, point, seed, experiment, outcome)
        trace = experiment.workload.trace
        for one in outcome.left_out:
            self._say(f"left out of the trace {'' if trace is None else Path(trace.path).name}: {one}")
        return found

    def find(
        self, key: str, stop_at: Sequence[Expectation], point: Point, seed: int, experiment: Experiment
    ) -> Row | None:
        """Return the row of a known run; it does not depend on whether another study ran it to its end."""
        if (found := self._store.find(key)) is not None:
            row = self._known_row(point, seed, experiment, found)
            if row is not None and (not stop_at or row.ok):
                return row
        if stop_at and (found := self._store.find(key, stop_at)) is not None:
            return self._known_row(point, seed, experiment, found)
        return None

    def _known_row(self, point: Point, seed: int, experiment: Experiment, outcome: Outcome) -> Row | None:
        """Return the row of a kept outcome; None if its report is not that of such a run, which is then made again."""
        try:
            if outcome.status != "failed" and not _is_report_of(experiment, outcome.report):
                return None
            row = self.row(point, seed, experiment, outcome)
        except (ArithmeticError, AttributeError, BlisError, LookupError, TypeError, ValueError):
            return None
        return row if all(_can_be(metric, value) for metric, value in row.figures.items()) else None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome, row: Row) -> None:
        """Keep a run's outcome: for studies that need the whole run, and for those that would have stopped it."""
        try:
            if outcome.status != "stopped":
                self._store.keep(key, (), outcome)
            if stop_at and not row.ok:
                self._store.keep(key, stop_at, outcome)
        except InputError as error:
            self.unsaved += 1
            if self.unsaved == 1:
                self._say(error.message)

    def _say(self, message: str) -> None:
        """Warn once of each problem."""
        if self._warn is not None and message not in self._told:
            self._told[message] = None
            self._warn(message)


# Whether a kept report can be one that this program wrote. Its checksum tells damage, but not who wrote it, or when.

_LARGEST: Final = 2.0**63
"""Figures are smaller: counts, microseconds and rates."""


@cache
def _sections() -> tuple[str, ...]:
    """Return the parts that every report has."""
    return tuple(one.name for one in fields(Report) if one.repr and one.default is MISSING)


def _is_report_of(experiment: Experiment, text: str) -> bool:
    """Return whether a text can be a report of an experiment. Raises ValueError if it is none of any."""
    report = parse_json(text)
    if not isinstance(report, dict) or any(name not in report for name in _sections()):
        return False
    json.dumps(report, ensure_ascii=False, allow_nan=False).encode()  # refuses NaN and lone surrogates, too
    meta = report["meta"]
    return isinstance(meta, dict) and (meta.get("spec_sha256"), meta.get("seed")) == (
        experiment.sha256,
        experiment.seed,
    )


def _can_be(metric: str, value: Value) -> bool:
    """Return whether a metric can have a value."""
    if isinstance(value, str):
        return not _is_number(metric)
    return value is None or abs(value) < _LARGEST  # which neither infinities nor NaN are


@cache
def _is_number(metric: str) -> bool:
    return any("number" in figure.field.type for figure in figures_at(metric))
