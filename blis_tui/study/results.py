"""Rows of runs, and their results kept for later studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.errors import InputError
from blis_tui.study.rows import row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.spec.model import Expectation, Experiment
    from blis_tui.spec.study.model import Point, Study
    from blis_tui.study.rows import Row
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
        trace = experiment.workload.trace
        for one in outcome.left_out:
            self._say(f"left out of the trace {'' if trace is None else Path(trace.path).name}: {one}")
        return row_of(self._study, point, seed, experiment, outcome)

    def find(
        self, key: str, stop_at: Sequence[Expectation], point: Point, seed: int, experiment: Experiment
    ) -> Row | None:
        """Return the row of a known run; it does not depend on whether another study ran it to its end."""
        if (found := self._store.find(key)) is not None:
            row = self.row(point, seed, experiment, found)
            if not stop_at or row.ok:
                return row
        if stop_at and (found := self._store.find(key, stop_at)) is not None:
            return self.row(point, seed, experiment, found)
        return None

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
