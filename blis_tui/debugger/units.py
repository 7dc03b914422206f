"""How numbers are written for people: see :mod:`blis_tui.units`."""

from blis_tui.units import bar_text, count_text, ordinal, percent_text, plural, span_text, time_text

__all__ = ["bar_text", "count_text", "ordinal", "percent_text", "plural", "span_text", "time_text"]
