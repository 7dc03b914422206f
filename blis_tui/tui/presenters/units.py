"""How numbers are written on the screen: the debugger's own way, so that its sentences and the panes agree."""

from __future__ import annotations

from blis_tui.units import bar_text, count_text, ordinal, percent_text, plural, span_text, time_text

__all__ = ["bar_text", "count_text", "ordinal", "percent_text", "plural", "span_text", "time_text"]
