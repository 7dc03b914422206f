"""Writers of result files: the request table (CSV) and the record stream (JSON lines)."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from blis_tui.metrics.request_log import PLAIN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.metrics.request_log import RequestTable

# Records hold no floats, so they need no canonical number format, which would slow long streams down.
_LINE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


_SUSPECT: Final = re.compile('[,"\n\r ]')
"""Texts without these characters need no quotes."""


class _Fields(dict[type, tuple[str, ...]]):
    """The field names of each requested dataclass, in order; empty for other types."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        names = tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()
        self[kind] = names
        return names


_FIELDS: Final = _Fields()


class _Lines(dict[type, "tuple[str, Callable[[Record], tuple[object, ...]]]"]):
    """A line template for each kind of record written, with a getter of its values.

    Most fields are integers, which need no JSON encoder: this takes a fifth of its time.
    """

    def __missing__(self, kind: type[Record]) -> tuple[str, Callable[[Record], tuple[object, ...]]]:
        names = _FIELDS[kind]
        places = [f"{_LINE.encode(name)}:%s" for name in names]
        line = ",".join([f'"kind":{_LINE.encode(kind.kind).replace("%", "%%")}', *places])
        self[kind] = found = (f"{{{line}}}\n", attrgetter(*names))  # a tuple, as every record has an event and a time
        return found


_LINES: Final = _Lines()


def requests_csv(rows: RequestTable, columns: Sequence[str] = PLAIN_COLUMNS) -> Iterator[str]:
    """Iterate over the lines of the request table, header first; cells of times that never came are empty.

    Args:
        rows: the requests.
        columns: the table's columns (``RequestTable.columns``).
    """
    yield csv_line(columns)
    for block in rows.in_columns(columns):
        yield from csv_lines(block)


def csv_lines(columns: Sequence[Sequence[int | str | None]]) -> Iterator[str]:
    """Iterate over CSV lines from columns of cells, each column all numbers or all texts; None = an empty cell."""
    places: list[str] = []
    varying: list[Sequence[int | str]] = []
    for column in columns:
        if column.count(column[0]) == len(column):
            places.append(_cell(column[0]).replace("%", "%%"))
        else:
            places.append("%s")
            varying.append(_cells(column))
    line = ",".join(places) + "\n"
    rows = zip(*varying, strict=True) if varying else repeat((), len(columns[0]))
    return map(line.__mod__, rows)


def _cells(column: Sequence[int | str | None]) -> Sequence[int | str]:
    if None in column:
        return ["" if one is None else _cell(one) for one in column]
    texts = cast("Sequence[str]", column)
    if isinstance(column[0], str) and _SUSPECT.search("".join(texts)):
        return list(map(_cell, texts))
    return cast("Sequence[int | str]", column)


def csv_line(cells: Iterable[int | str | None]) -> str:
    """Format one line of CSV; None becomes an empty cell."""
    return ",".join([_cell(value) for value in cells]) + "\n"


def _cell(value: int | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if "," in value or '"' in value or "\n" in value or "\r" in value or value.startswith(" "):
        return '"' + value.replace('"', '""') + '"'
    return value


def record_line(record: Record) -> str:
    """Format a record as one line of JSON, ``kind`` first, fields in order."""
    line, values = _LINES[type(record)]
    return line % tuple([one if type(one) is int else _text(one) for one in values(record)])


def _text(value: object) -> str:
    """Encode a value other than an integer as JSON."""
    return "[]" if value == () else _LINE.encode(_item(value))


def record_dict(record: Record) -> dict[str, object]:
    """Return a record as plain data, ``kind`` first."""
    plain: dict[str, object] = {"kind": record.kind}
    for name in _FIELDS[type(record)]:
        value = getattr(record, name)
        plain[name] = [_item(item) for item in value] if isinstance(value, tuple) else value
    return plain


def _item(item: object) -> object:
    if isinstance(item, tuple):
        return [_item(one) for one in item]
    names = _FIELDS[type(item)]
    return {name: _item(getattr(item, name)) for name in names} if names else item
