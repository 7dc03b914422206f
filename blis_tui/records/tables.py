"""Writers of result files: the request table (CSV) and the record stream (JSON lines)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from blis_tui.canonical import to_json_line
from blis_tui.metrics.request_log import RequestRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.engine.records import Record


def requests_csv(rows: Iterable[RequestRow]) -> Iterator[str]:
    """The request table line by line, header first; empty cells where something never happened."""
    yield ",".join(RequestRow._fields) + "\n"
    for row in rows:
        yield ",".join(map(_cell, row)) + "\n"


def _cell(value: int | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if "," in value or '"' in value or "\n" in value or "\r" in value:
        return '"' + value.replace('"', '""') + '"'
    return value


def record_line(record: Record) -> str:
    """A record as one line of JSON, ``kind`` first, fields in their order."""
    return to_json_line(record_dict(record))


def record_dict(record: Record) -> dict[str, object]:
    """A record as plain data, ``kind`` first."""
    return {"kind": record.kind, **_plain_fields(record)}


def _plain_fields(record: object) -> dict[str, object]:
    return {item.name: _plain(getattr(record, item.name)) for item in fields(record)}  # type: ignore[arg-type]


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float)) or value is None else _plain_fields(value)
