"""Differences as lines for people, as ``diff`` writes them: ``-`` what the golden has, ``+`` what this run has."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.units import ordinal, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST: Final = 60
"""Columns of a value; of a longer one the end is left out."""
_DIGITS: Final = (6, 9, 12, 17)
"""Digits that count in a number: the first choice that tells the two values apart."""
_NO_CHANGE: Final = 0.00005
"""A smaller share would be written as 0.00 %."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")
_DIGEST_SHOWN: Final = 12


class Changed(Protocol):
    """A difference of two documents."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    @property
    def kind(self) -> str:
        """``added``, ``removed``, or another word for two values that are both there."""
        ...

    @property
    def old(self) -> object:
        """The golden's value."""
        ...

    @property
    def new(self) -> object:
        """The other one."""
        ...


def change_lines(changes: Sequence[Changed], most: int) -> list[str]:
    """A line for each value that went and each that came, in columns; for more than ``most`` changes, how many."""
    shown = [(one, *_values(one)) for one in changes[:most]]
    paths = max((len(one.path) for one, *_ in shown), default=0)
    figures = max((len(text) for one, *texts in shown for text in texts if _is_number(one.old)), default=0)
    lines: list[str] = []
    for one, old, new in shown:
        width = figures if _is_number(one.old) else 0
        if old:
            lines.append(f"  - {one.path:<{paths}}  {old:>{width}}")
        if new:
            lines.append(f"  + {one.path:<{paths}}  {new:>{width}}{_share(one)}")
    return lines if len(changes) <= most else [*lines, f"  … {len(changes) - most:,} more"]


def _values(one: Changed) -> tuple[str, str]:
    """Both values; empty for one that is not there."""
    old, new = one.old, one.new
    if one.kind in ("added", "removed"):
        return ("", _value(new)) if one.kind == "added" else (_value(old), "")
    if _is_number(old) and _is_number(new):
        pairs = ((_number(old, digits), _number(new, digits)) for digits in _DIGITS)
        return next((pair for pair in pairs if pair[0] != pair[1]), (repr(old), repr(new)))
    bare = type(old) is type(new)
    return _value(old, bare=bare), _value(new, bare=bare)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object, digits: int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def _value(value: object, *, bare: bool = True) -> str:
    """A value as JSON; a text without quotes where they would tell nothing, a digest by its beginning."""
    if isinstance(value, str):
        text = value if bare and value and value.isprintable() else json.dumps(value, ensure_ascii=False)
        text = _DIGEST.sub(lambda found: f"{found[0][:_DIGEST_SHOWN]}…", text)
    elif _is_number(value):
        text = _number(value, _DIGITS[0])
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _share(one: Changed) -> str:
    """The change as a share of the old value."""
    old, new = one.old, one.new
    if isinstance(old, bool) or isinstance(new, bool) or not old:
        return ""
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return ""
    share = (new - old) / abs(old)
    if not share:
        return ""
    return f"  {share:+.2%}".replace("%", " %") if abs(share) >= _NO_CHANGE else "  < 0.01 %"


def record_words(fields: Mapping[str, object]) -> str:
    """A record: event, time, what it is, and those of its fields that say something."""
    head = f"event {fields['event']:,}  {time_text(_whole(fields['time_us']))}  {fields['kind']}"
    rest = [
        field_words(name, value)
        for name, value in fields.items()
        if name not in ("event", "time_us", "kind") and value not in ([], "")
    ]
    return "  ".join([head, " ".join(rest)]).rstrip()


def field_words(name: str, value: object) -> str:
    """A record's field; a position is told as people count."""
    name, text = field_pair(name, value)
    return f"{name}={text}"


def field_pair(name: str, value: object) -> tuple[str, str]:
    """What a record's field is called for people, and its value."""
    if name == "position" and isinstance(value, int):
        return "place", ordinal(value + 1)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return name, text


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
