"""Records as plain data, and as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.records import Record


# Records hold no floats, so they need no canonical number format, which would slow long streams down.
_LINE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _Fields(dict[type, tuple[str, ...]]):
    """The field names of each requested dataclass, in order; empty for other types."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        names = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
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
        self[kind] = entry = (f"{{{line}}}\n", attrgetter(*names))  # a tuple, as every record has an event and a time
        return entry


_LINES: Final = _Lines()


def record_line(record: Record) -> str:
    """Format a record as one line of JSON, ``kind`` first, fields in order."""
    line, values = _LINES[type(record)]
    return line % tuple([value if type(value) is int else _text(value) for value in values(record)])


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
        return [_item(element) for element in item]
    names = _FIELDS[type(item)]
    return {name: _item(getattr(item, name)) for name in names} if names else item
