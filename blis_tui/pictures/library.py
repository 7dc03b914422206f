"""Plotly, which draws the pictures in the browser; only the script in its Python package is used.

Figures are written as plain data (Plotly's JSON), which needs no import and no random ids; tests validate them against
Plotly's own schema.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from blis_tui.errors import InputError
from blis_tui.extras import install_command


def require_plotly() -> None:
    """Raise InputError if the plotting library is not installed."""
    try:
        import_module("plotly.offline")
    except ImportError:
        raise InputError("an HTML page needs an extra package", help=install_command("html")) from None


@cache
def plotly_script() -> str:
    """Return the library's script for inclusion in a page. Raises InputError as :func:`require_plotly` does."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

    script: str = get_plotlyjs()
    return script


def plotly_version() -> str:
    """Return the version in the script's header; ``unknown`` if it has none."""
    found = re.search(r"plotly\.js v([\w.-]+)", plotly_script()[:500])
    return "unknown" if found is None else found[1]
