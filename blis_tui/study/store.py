"""Rows of runs and their results, kept on disk so that no run is repeated."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import MISSING, asdict, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, get_args

from platformdirs import user_cache_path

from blis_tui._version import ENGINE
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.input_files import parse_json
from blis_tui.output.result_files import atomic_bytes
from blis_tui.results.report import Report
from blis_tui.spec.authoring.report_figures import figures_at
from blis_tui.study.study_rows import row_of
from blis_tui.study.task import Outcome, Status, stopped_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.model import Expectation, Experiment
    from blis_tui.spec.study.study_records import Point, Study
    from blis_tui.study.study_rows import Row, Value


STORE_VARIABLE: Final = "BLIS_TUI_STORE_DIR"
"""Environment variable that overrides the user's folder of results."""
_MAGIC: Final = b"blis-tui run 2\n"


class Store(Protocol):
    """Where results are looked up and kept."""

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """Return the result of a run that ends as soon as one of ``stop_at`` cannot hold; None = not known."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """Keep a result. Raises InputError if it cannot be written."""


class MemoryStore:
    """Keeps results in this process, so that equal points of one study run once."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """See :meth:`Store.find`."""
        name = stopped_key(key, stop_at)
        return _decoded(name, self._known[name]) if name in self._known else None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """See :meth:`Store.keep`."""
        name = stopped_key(key, stop_at)
        self._known[name] = _encoded(name, outcome)


class FolderStore:
    """Keeps one file per result below a folder; processes may share it, and single files may be deleted.

    Args:
        folder: the folder; results of each engine are in a subfolder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"engine-{ENGINE}"

    @classmethod
    def of_user(cls) -> FolderStore:
        """Return the user's store: ``BLIS_TUI_STORE_DIR``, or a folder in the system's cache folder."""
        return cls(Path(os.environ.get(STORE_VARIABLE) or user_cache_path("blis-tui") / "runs"))

    def require_writable(self) -> None:
        """Check that results can be kept. Raises InputError if they cannot."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_bytes(self.folder / "try", asked_for=False) as file:
                file.write(_MAGIC)
            (self.folder / "try").unlink(missing_ok=True)
        except (OSError, InputError) as error:
            raise self._unwritable(error) from error

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """See :meth:`Store.find`; a damaged file counts as absent."""
        name = stopped_key(key, stop_at)
        with suppress(OSError):
            return _decoded(name, self._path(name).read_bytes())
        return None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """See :meth:`Store.keep`; failures are not kept, because another attempt may succeed."""
        if outcome.status == "failed":
            return
        name = stopped_key(key, stop_at)
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_bytes(path, asked_for=False) as file:
                file.write(_encoded(name, outcome))
        except (OSError, InputError) as error:
            raise self._unwritable(error) from error

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _unwritable(self, error: OSError | InputError) -> InputError:
        cause = error.__cause__ if isinstance(error, InputError) else error
        why = getattr(cause, "strerror", None) or error
        return InputError(
            f"cannot keep results in {self.folder}: {why}", help="name another folder with --store, or `--store none`"
        )


def _encoded(name: str, outcome: Outcome) -> bytes:
    document = {"key": name, **asdict(outcome)}
    return _MAGIC + zlib.compress(json.dumps(document).encode(), 1)


def _decoded(name: str, content: bytes) -> Outcome | None:
    """Return the outcome encoded under this name; None if the content is damaged or has another name."""
    if not content.startswith(_MAGIC):
        return None
    with suppress(zlib.error, ValueError, KeyError, TypeError):
        document = json.loads(zlib.decompress(content[len(_MAGIC) :]))  # decompression verifies a checksum
        report, why, left_out = document["report"], document["why"], tuple(document["left_out"])
        for text in (report, why, *left_out):
            str.encode(text)  # no other type, and no lone surrogate
        if document["key"] == name and document["status"] in get_args(Status):
            return Outcome(status=cast("Status", document["status"]), report=report, why=why, left_out=left_out)
    return None


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
        self._warned: dict[str, None] = {}

    def row(self, point: Point, seed: int, experiment: Experiment, outcome: Outcome) -> Row:
        """Return the row of a run."""
        row = row_of(self._study, point, seed, experiment, outcome)
        trace = experiment.workload.trace
        for omission in outcome.left_out:
            self._say(f"left out of the trace {'' if trace is None else Path(trace.path).name}: {omission}")
        return row

    def find(
        self, key: str, stop_at: Sequence[Expectation], point: Point, seed: int, experiment: Experiment
    ) -> Row | None:
        """Return the row of a known run; it does not depend on whether another study ran it to its end."""
        if (outcome := self._store.find(key)) is not None:
            row = self._known_row(point, seed, experiment, outcome)
            if row is not None and (not stop_at or row.ok):
                return row
        if stop_at and (outcome := self._store.find(key, stop_at)) is not None:
            return self._known_row(point, seed, experiment, outcome)
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
        if self._warn is not None and message not in self._warned:
            self._warned[message] = None
            self._warn(message)


# Whether a kept report can be one that this program wrote. Its checksum tells damage, but not who wrote it, or when.

_LARGEST: Final = 2.0**63
"""Figures are smaller: counts, microseconds and rates."""


@cache
def _sections() -> tuple[str, ...]:
    """Return the parts that every report has."""
    return tuple(field.name for field in fields(Report) if field.repr and field.default is MISSING)


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
