"""The wording of differences, shared by the command line, golden tests and the terminal interface."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from blis_tui.columns import clip
from blis_tui.printable import printable
from blis_tui.units import share_change_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.compare.documents import Difference

MARKS: Final[Mapping[str, str]] = {"added": "+", "removed": "-", "reordered": "~"}
"""Kind of a difference -> its mark; a changed value has none."""

_LONGEST: Final = 60
"""Maximum width of a value, in columns."""
_DIGITS: Final = (6, 9, 12, 17)
"""Numbers of significant digits to try until two values differ as text."""
_NO_CHANGE: Final = 0.00005
"""Smaller relative changes would be shown as 0.00 %."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")
_DIGEST_SHOWN: Final = 12


def both_names(a: str, b: str) -> str:
    """Return a request's names in two runs; ``request_12/14`` if they differ."""
    if a == b or not b:
        return a
    head = len(a.rstrip("0123456789"))
    return f"{a}/{b[head:] if b[:head] == a[:head] else b}"


def difference_lines(found: Sequence[Difference], most: int) -> list[str]:
    """Return the differences in columns, with ``-`` for old and ``+`` for new values; beyond ``most``, their number."""
    shown: list[tuple[Difference, str, str]] = []
    for one in found[:most]:
        old, new = value_texts(one)
        shown.append((one, clip(old, _LONGEST), clip(new, _LONGEST)))
    paths = max((len(one.path) for one, *_ in shown), default=0)
    figures = max((len(text) for one, *texts in shown for text in texts if _is_number(one.old)), default=0)
    lines: list[str] = []
    for one, old, new in shown:
        width = figures if _is_number(one.old) else 0
        if old:
            lines.append(f"  - {one.path:<{paths}}  {old:>{width}}")
        if new:
            share = relative_text(one)
            lines.append(f"  + {one.path:<{paths}}  {new:>{width}}{'  ' if share else ''}{share}")
    lines += [f"  … {len(found) - most:,} more"] * (len(found) > most)
    return [printable(line) for line in lines]


def value_change(one: Difference, room: int, arrow: str = "->") -> str:
    """Return the old and new value, or the only one, in at most ``room`` columns."""
    old, new = value_texts(one)
    if not old or not new:
        return clip(old or new, room)
    between = f" {arrow} "
    room -= len(between)
    old = clip(old, max(room // 2, room - len(new), 4))
    return f"{old}{between}{clip(new, max(room - len(old), 4))}"


def value_texts(one: Difference) -> tuple[str, str]:
    """Return both values as text; empty for an absent one."""
    old, new = one.old, one.new
    if one.kind in ("added", "removed"):
        return ("", _value(new)) if one.kind == "added" else (_value(old), "")
    if _is_number(old) and _is_number(new):
        pairs = ((_number(old, digits), _number(new, digits)) for digits in _DIGITS)
        return next((pair for pair in pairs if pair[0] != pair[1]), (repr(old), repr(new)))
    bare = type(old) is type(new)
    return _value(old, bare=bare), _value(new, bare=bare)


def relative_text(one: Difference) -> str:
    """Return the relative change, such as ``-65.23 %``; empty if undefined."""
    old, new = one.old, one.new
    if isinstance(old, bool) or isinstance(new, bool) or not old:
        return ""
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return ""
    try:
        share = (new - old) / abs(old)
    except OverflowError:  # an integer of a damaged report
        return ""
    if not share:
        return ""
    return share_change_text(share, 2) if abs(share) >= _NO_CHANGE else "< 0.01 %"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object, digits: int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def _value(value: object, *, bare: bool = True) -> str:
    """Return a value as JSON; a text without quotes if they are not needed, a digest shortened."""
    if isinstance(value, str):
        text = value if bare and value and value.isprintable() else json.dumps(value, ensure_ascii=False)
        return _DIGEST.sub(lambda found: f"{found[0][:_DIGEST_SHOWN]}…", text)
    return _number(value, _DIGITS[0]) if _is_number(value) else json.dumps(value, ensure_ascii=False)
