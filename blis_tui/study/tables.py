"""The rows of a study as files: CSV, JSON lines, Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.canonical import to_line
from blis_tui.records.tables import csv_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.study.rows import Row, StudyResult, Value


def rows_csv(result: StudyResult) -> Iterator[str]:
    """A line a run, below the names of the columns."""
    yield csv_line(result.columns())
    for row in result.each_record():
        yield csv_line(_cell(value) for value in row.values())


def rows_jsonl(result: StudyResult) -> Iterator[str]:
    """A JSON object a run; coordinates and figures are objects of their own."""
    for row in result.rows:
        yield to_line(as_data(row)) + "\n"


def as_data(row: Row) -> dict[str, object]:
    """A row as plain data."""
    return {
        "point": row.point.number,
        "coordinates": row.coordinates,
        "seed": row.seed,
        "status": row.status,
        "ok": row.ok,
        "why": row.why,
        "spec_sha256": row.sha256 or None,
        "figures": dict(row.figures),
    }


def _cell(value: Value) -> str | int | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value + 0.0) if isinstance(value, float) else value
