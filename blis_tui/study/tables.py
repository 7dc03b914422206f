"""The rows of a study as files: CSV, JSON lines, Parquet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from blis_tui.records.tables import csv_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.study.rows import Row, StudyResult, Value

FORMATS = ("csv", "jsonl", "parquet")


def columns(result: StudyResult) -> tuple[str, ...]:
    """The names of a table's columns: the point, what varies, how the run ended, and every figure."""
    figures = dict.fromkeys(name for row in result.rows for name in row.figures)
    return ("point", *result.study.paths, "seed", "status", "ok", "why", "spec_sha256", *figures)


def cells(result: StudyResult) -> Iterator[dict[str, Value]]:
    """For each run its cells, by column; what it does not have is None."""
    names = columns(result)
    for row in result.rows:
        own: dict[str, Value] = {
            "point": row.point.number,
            **{path: _plain(value) for path, value in row.coordinates.items()},
            "seed": row.seed,
            "status": row.status,
            "ok": row.ok,
            "why": row.why,
            "spec_sha256": row.sha256 or None,
            **row.figures,
        }
        yield {name: own.get(name) for name in names}


def rows_csv(result: StudyResult) -> Iterator[str]:
    """A line a run, below the names of the columns."""
    yield csv_line(columns(result))
    for row in cells(result):
        yield csv_line(_cell(value) for value in row.values())


def rows_jsonl(result: StudyResult) -> Iterator[str]:
    """A JSON object a run; coordinates and figures are objects of their own."""
    for row in result.rows:
        yield json.dumps(as_data(row), ensure_ascii=False, allow_nan=False) + "\n"


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


def _plain(value: object) -> Value:
    """A coordinate as a cell: maps and lists as JSON."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def _cell(value: Value) -> str | int | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value + 0.0) if isinstance(value, float) else value
