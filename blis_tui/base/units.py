"""Number formats for people: always with a unit, always the same way."""

from __future__ import annotations

import re
from string import Formatter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MS: Final = 1000
_S: Final = 1_000_000
_MIN: Final = 60 * _S
_MICROSECONDS: Final = re.compile(r"\b(\d+(?:,\d{3})*) us\b")


def time_text(us: int) -> str:
    """Format a point in time, to the microsecond: ``12.345 678 s``."""
    seconds, rest = divmod(us, _S)
    return f"{seconds:,}.{rest // _MS:03} {rest % _MS:03} s"


def span_text(us: int) -> str:
    """Format a duration with three significant digits: ``850 us``, ``12.3 ms``, ``1.62 s``, ``3 min 20 s``."""
    if us < 0:
        return "-" + span_text(-us)
    if us < _MS:
        return f"{us} us"
    for unit, size, next_size in (("ms", _MS, _S), ("s", _S, _MIN)):
        # A value that rounds up to the next unit is written in that unit.
        if us * 1000 < next_size * 1000 - size * 500:
            return f"{_three_digits(us / size)} {unit}"
    minutes, rest = divmod((us + _S // 2) // _S, 60)
    return f"{minutes:,} min {rest} s"


def with_spans(text: str) -> str:
    """Format durations in microseconds within a text as ``span_text`` does: ``expired after 3.00 s``."""
    return _MICROSECONDS.sub(lambda match: span_text(int(match[1].replace(",", ""))), text)


def _three_digits(value: float) -> str:
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def count_text(n: int) -> str:
    """Format a count: ``12,345``."""
    return f"{n:,}"


def bytes_text(n: int) -> str:
    """Format an amount of memory in decimal units: ``850 B``, ``41.9 MB``, ``1.62 GB``."""
    size, units = float(n), ["TB", "GB", "MB", "kB"]
    if n < 1000:
        return f"{n} B"
    while size >= 999.5 and units:
        size /= 1000
        unit = units.pop()
    return f"{_three_digits(size)} {unit}"


def in_words(parts: Sequence[str]) -> str:
    """Join texts: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def plural(n: int, noun: str) -> str:
    """Format a count with its noun: ``1 block``, ``12,345 blocks``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def ordinal(n: int) -> str:
    """Format an ordinal: ``1st``, ``2nd``, ``3rd``, ``4th``, ... ``11th``."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def percent_text(part: int, whole: int) -> str:
    """Format a share: ``71 %``; ``<1 %`` and ``>99 %`` where rounding would give a false 0 or 100."""
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = (200 * part + whole) // (2 * whole)
    if percent == 0:
        return "<1 %"
    return ">99 %" if percent >= 100 and part < whole else f"{percent} %"


def bar_text(part: int, whole: int, width: int) -> str:
    """Draw a bar of ``width`` cells, filled up to the share: ``██████░░``; never empty for a positive share."""
    if whole <= 0 or width <= 0:
        return "░" * max(width, 0)
    full = min(max(part * width // whole, 0), width)
    if not full and part > 0 and width > 1:
        full = 1
    return "█" * full + "░" * (width - full)


_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def fine_bar(value: float | None, top: float, width: int) -> str:
    """Draw a bar in eighths of a character, ``width`` characters long for ``top``; never empty for a positive value."""
    if value is None or top <= 0 or value <= 0:
        return ""
    eighths = max(1, round(8 * width * min(value / top, 1.0)))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def milliseconds(us: float) -> str:
    """Format a time in milliseconds, to the microsecond if necessary: ``1,250.5 ms``."""
    return f"{us / _MS:,.3f}".rstrip("0").rstrip(".") + " ms"


def ms_text(us: int | None) -> str:
    """Format a time for a column of milliseconds: ``1,250.500``; a dash for None."""
    return "-" if us is None else f"{us / _MS:,.3f}"


def ms_change_text(us: int | None) -> str:
    """Format a change for such a column: ``+12.500``, ``=``; a dash for None."""
    return "-" if us is None else f"{us / _MS:+,.3f}" if us else "="


def share_text(share: float | None, digits: int = 1) -> str:
    """Format a share of 1 in percent: ``71.2 %``; a dash for None."""
    return "-" if share is None else f"{100 * share:,.{digits}f} %"


def share_change_text(share: float, digits: int = 1) -> str:
    """Format a relative change: ``+7.1 %``, ``-0.3 %``."""
    return f"{100 * share:+,.{digits}f} %"


def number_text(value: float | None) -> str:
    """Format a figure with as many digits as are useful: ``0.123``, ``12.3``, ``523.4``, ``12,345``; None as a dash."""
    if value is None:
        return "-"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:,.3g}"


class _Template(Formatter):
    """A string formatter with formats for units."""

    def format_field(self, value: object, format_spec: str) -> str:
        """Format a number as ``filled`` specifies, None as ``none``, anything else as ``format`` does."""
        if value is None:
            return "none"
        if isinstance(value, int):
            if "|" in format_spec:
                return format_spec.split("|")[not value]
            if format_spec in _UNITS:
                return _UNITS[format_spec](value)
            if len(format_spec) > 1 and format_spec[0].isalpha():
                return plural(value, format_spec)
        if isinstance(value, float) and format_spec == "share":
            return share_text(value)
        return format(value, format_spec)


_UNITS: Final[Mapping[str, Callable[[int], str]]] = {
    "ms": milliseconds,
    "ppm": lambda n: f"{n:,} ppm",
    "span": span_text,
    "time": time_text,
    "place": lambda n: ordinal(n + 1),
}
_TEMPLATE: Final = _Template()


def filled(template: str, values: Mapping[str, object]) -> str:
    """Fill a template such as ``{request_id} waited {waited_us:ms}`` with values.

    Formats of whole numbers: ``ms`` and ``span`` (durations in microseconds), ``time`` (a point in time), ``place`` (a
    position from 0, written as an ordinal), ``yes|no`` (for booleans), a noun (``{tokens:token}`` is ``3 tokens``), and
    Python's formats; of others: ``share``, and Python's formats. A missing value shows its name. Durations in a
    ``reason`` are written in the same units.
    """
    reason = values.get("reason")
    if isinstance(reason, str):
        values = {**values, "reason": with_spans(reason)}
    names = {name: f"{{{name}}}" for _, name, *_ in _TEMPLATE.parse(template) if name}
    return _TEMPLATE.vformat(template, (), {**names, **values})
