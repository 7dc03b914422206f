"""Cells of traces: arrival times in any form, and the parts of a prompt as JSON.

A shared head with several segments is ``[["system", 512], ["manual", 64]]``. Media items have the number of tokens
before them, too: ``[[512, 1676, "photo-7"]]``.

Arrival times of traces: numbers in a known unit, or dates and times of day.

Dates count from the earliest one, in whole microseconds; so do Unix times. Other numbers count from the start of the
simulation. A number of unknown unit is a problem: the file is not read in a unit that might be wrong.
"""

from __future__ import annotations

import json
import re
from array import array
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.input_files import parse_json
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import MediaItem
from blis_tui.workload.traces.trace_text import LARGEST_NUMBER, NeedsSlowPath, shown, whole_number, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.request import Segments
    from blis_tui.workload.traces.trace_text import Problems


def segments_cell(segments: Segments) -> str:
    """Write the cell; empty if nothing is shared."""
    return json.dumps(segments, ensure_ascii=False, separators=(",", ":")) if segments else ""


def read_segments(cell: str, prompt_tokens: int) -> Segments:
    """Read a cell that :func:`segments_cell` wrote.

    Raises:
        ValueError: it is invalid, or longer than the prompt; the message says how.
    """
    if not cell:
        return ()
    rows = _rows(cell)
    segments = [segment for row in rows or () if (segment := _segment(row)) is not None]
    if rows is None or len(segments) < len(rows):
        raise ValueError("the cell is not a list of names and tokens")
    total = whole_sum([tokens for _, tokens in segments])
    if total > prompt_tokens:
        raise ValueError(f"a prompt of {prompt_tokens} tokens cannot have {total} shared ones")
    return tuple(segments)


def _rows(cell: str) -> list[object] | None:
    """Return the list in a cell; None = there is none."""
    try:
        rows = parse_json(cell)
    except ValueError:
        return None
    return rows if isinstance(rows, list) else None


def _segment(pair: object) -> tuple[str, int] | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    name, tokens = pair
    return (name, tokens) if isinstance(name, str) and name and type(tokens) is int and tokens > 0 else None


def items_cell(items: tuple[MediaItem, ...]) -> str:
    """Write the cell of a prompt's media items; empty if there are none."""
    return json.dumps(items, ensure_ascii=False, separators=(",", ":")) if items else ""


def read_items(cell: str, prompt_tokens: int, media_tokens: int) -> tuple[MediaItem, ...]:
    """Read a cell that :func:`items_cell` wrote.

    Raises:
        ValueError: it is invalid, does not fit into the prompt, or has another number of tokens than the prompt's
            media; the message says how.
    """
    if not cell:
        return ()
    rows = _rows(cell)
    items = tuple(item for row in rows or () if (item := _item(row)) is not None)
    if rows is None or len(items) < len(rows):
        raise ValueError("the cell is not a list of items: tokens before it, its tokens, its name")
    check_items(items, prompt_tokens, media_tokens)
    return items


def check_items(items: tuple[MediaItem, ...], prompt_tokens: int, media_tokens: int) -> None:
    """Raise ValueError if media items overlap, do not fit into the prompt, or are not its media."""
    end = total = 0
    for item in items:
        if item.offset < end:
            raise ValueError(f"an item begins after {item.offset} tokens, where another one has not ended")
        end = item.offset + item.tokens
        total += item.tokens
    if end > prompt_tokens:
        raise ValueError(f"a prompt of {prompt_tokens} tokens cannot have an item that ends after {end}")
    if total != media_tokens:
        raise ValueError(f"the items have {total} tokens, and the prompt {media_tokens} of images, audio and video")


def _item(row: object) -> MediaItem | None:
    if not isinstance(row, list) or len(row) != 3:
        return None
    offset, tokens, name = row
    named = _segment([name, tokens])
    return None if named is None or type(offset) is not int or offset < 0 else MediaItem(offset, named[1], named[0])


_US_IN: Final[Mapping[str, Decimal]] = MappingProxyType(
    {"s": Decimal(10**6), "ms": Decimal(1000), "us": Decimal(1), "ns": Decimal("0.001")}
)
_WORDS: Final = MappingProxyType({"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"})
_UNIX_FROM_US: Final = 10**15
"""2001-09-09: larger numbers are Unix times; no simulation lasts 31 years."""
_UNIX_UNTIL_US: Final = 4_102_444_800 * 10**6
"""2100-01-01: larger numbers are in another unit."""
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+")
_NUMERIC: Final = frozenset("0123456789.eE+-")
_LARGEST_CELL: Final = 1000 * LARGEST_NUMBER
_EXACT: Final = Context(prec=60)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ?(?:Z|UTC|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_MINUTE: Final = slice(0, 17)
"""``2023-11-16 18:17:``: few rows differ in this part, so each minute is parsed only once."""
_USUAL_LENGTH: Final = len("2023-11-16 18:17:03.9799600")
_SECOND: Final = 10**9
_MAX_SECONDS: Final = 60 * 10**7


@dataclass(frozen=True, slots=True)
class Clock:
    """How the cells of the arrival column are read."""

    column: str
    unit: str
    """``s``, ``ms``, ``us`` or ``ns``; empty = dates and times of day."""
    native: bool
    """Whether the numbers count from the start of the simulation, whatever their values are."""

    def read_all(self, cells: Sequence[str]) -> list[int]:
        """Convert a whole column: dates to nanoseconds, numbers to microseconds.

        Raises:
            NeedsSlowPath: a cell is unusual, or wrong.
        """
        if not self.unit:
            return _usual_times(cells)
        if self.unit == "us":
            return whole_numbers(cells)
        if not _NUMERIC.issuperset("".join(cells)):
            raise NeedsSlowPath
        try:
            return [_microseconds(_EXACT.create_decimal(cell), self.unit) for cell in cells]
        except InvalidOperation as error:
            raise NeedsSlowPath from error

    def read(self, cell: str, line: int, problems: Problems) -> int | None:
        """Convert one cell like :meth:`read_all`; note an invalid cell, and return ``None``."""
        text = cell.strip()
        if not text:
            problems.add(line, self.column, "the cell is empty", "give the arrival time of the request")
            return None
        if not self.unit:
            time = timestamp_ns(text)
            if time is None:
                problems.add(line, self.column, f"{shown(cell)} is not a timestamp", _LIKE, cell=shown(cell))
            return time
        if self.unit == "us":
            return whole_number(cell, line, self.column, problems)
        if not _NUMBER.fullmatch(text):
            negative = text[:1] == "-" and _NUMBER.fullmatch(text[1:])
            message = "is negative" if negative else f"is not a number of {_WORDS[self.unit]}"
            advice = f"write a number of {_WORDS[self.unit]} from 0 on"
            problems.add(line, self.column, f"{shown(text)} {message}", advice, cell=shown(text))
            return None
        try:
            return _microseconds(_EXACT.create_decimal(text), self.unit)
        except NeedsSlowPath:
            guess = likely_unit(text)
            advice = "correct it, or remove the line" if guess == self.unit else f"is it `time_unit: {guess}`?"
            message = f"{shown(text)} is too large to be {_WORDS[self.unit]}"
            problems.add(line, self.column, message, advice, cell=shown(text))
            return None

    def arrivals(self, times: array[int], first: int, problems: Problems) -> array[int]:
        """Convert times as read to whole microseconds since the start.

        Args:
            times: of all rows, minus the one that was read first.
            first: that one.
            problems: where to note implausible times.

        Raises:
            TraceError: they cannot be in the stated unit.
        """
        if not times:
            return times
        earliest = min(times)
        if not self.unit:
            return array("q", ((time - earliest) // 1000 for time in times))
        if self.native or first + earliest < _UNIX_FROM_US:
            return array("q", (time + first for time in times)) if first else times
        if first + earliest >= _UNIX_UNTIL_US:
            smaller = {"s": "ms", "ms": "us"}.get(self.unit, "ns")
            message = f"in {_WORDS[self.unit]}, the first request would arrive after the year 2100"
            problems.fail(1, self.column, message, f"is it `time_unit: {smaller}`?")
        return array("q", (time - earliest for time in times))


_LIKE: Final = "write it like 2023-11-16 18:17:03.9799600"


def clock_of(column: str, unit: str, first: str, line: int, problems: Problems, *, native: bool) -> Clock:
    """Determine how to read the arrivals of a file.

    Args:
        column: the arrival column.
        unit: its unit, if known; empty = unknown.
        first: the first cell with an arrival.
        line: the line of that cell.
        problems: where to note an unknown unit.
        native: whether arrivals count from the start of the simulation.

    Raises:
        TraceError: the unit is unknown.
    """
    if _TIMESTAMP.match(first.strip()):
        unit = ""
    elif not unit and (guess := likely_unit(first)):
        others = ", ".join(word for word in _WORDS if word != guess)
        problems.fail(
            line,
            column,
            f"it is not known whether {shown(first.strip())} is in seconds, milliseconds or another unit",
            f"add under `trace:` `time_unit: {guess}` (or {others})",
        )
    return Clock(column, unit, native)


def likely_unit(cell: str) -> str:
    """For advice: the unit in which a number is a present-day Unix time, otherwise seconds; empty = not a number."""
    if not _NUMBER.fullmatch(cell.strip()):
        return ""
    number = _EXACT.create_decimal(cell.strip())
    units = (unit for unit, scale in _US_IN.items() if _UNIX_FROM_US <= number * scale < _UNIX_UNTIL_US)
    return next(units, "s")


def _microseconds(number: Decimal, unit: str) -> int:
    """Convert to whole microseconds, rounded half up. Raises Suspicious if out of range."""
    if not 0 <= number <= _LARGEST_CELL:
        raise NeedsSlowPath
    rounded = int(_EXACT.multiply(number, _US_IN[unit]).to_integral_value(ROUND_HALF_UP, _EXACT))
    if rounded > LARGEST_NUMBER:
        raise NeedsSlowPath
    return rounded


def _usual_times(stamps: Sequence[str]) -> list[int]:
    """Convert timestamps of Azure's published files to nanoseconds, column-wise.

    Those of 2023 have seven decimals; those of 2024 have up to six and are in UTC.

    Raises:
        NeedsSlowPath: any of them looks different.
    """
    bare = [stamp.removesuffix("+00:00") for stamp in stamps]
    if not all(stamp[19:20] == "." if 20 < len(stamp) <= _USUAL_LENGTH else len(stamp) == 19 for stamp in bare):
        raise NeedsSlowPath
    # Seconds and decimals as one number of 100 ns.
    seconds = whole_numbers([stamp[17:19] + stamp[20:].ljust(7, "0") for stamp in bare])
    if max(seconds) >= _MAX_SECONDS:
        raise NeedsSlowPath
    minutes: dict[str, int] = {}
    times = []
    for stamp, second in zip(bare, seconds, strict=True):
        minute = stamp[_MINUTE]
        start = minutes.get(minute)
        if start is None:
            start = timestamp_ns(minute + "00")
            if start is None:
                raise NeedsSlowPath
            minutes[minute] = start
        times.append(start + 100 * second)
    return times


def timestamp_ns(text: str) -> int | None:
    """Convert a timestamp to nanoseconds since the day before 0001-01-01; ``None`` = invalid."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        day = date(int(match[1]), int(match[2]), int(match[3])).toordinal()
    except ValueError:
        return None
    seconds = ((day * 24 + hour) * 60 + minute) * 60 + second
    if match[8]:
        offset = (int(match[9]) * 60 + int(match[10])) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds * _SECOND + int((match[7] or "").ljust(9, "0"))
