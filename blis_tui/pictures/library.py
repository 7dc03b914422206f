"""Plotly, which draws the pictures in the reader's browser: of its Python package only the script is used.

Figures are described as plain data (Plotly's JSON), so that nothing here decides at random or imports what it does not
need; the tests hold them to Plotly's own schema.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from blis_tui.errors import InputError
from blis_tui.extras import install_command


def require_plotly() -> None:
    """Raises InputError where the package with the plotting library is not installed."""
    try:
        import_module("plotly.offline")
    except ImportError:
        raise InputError("an HTML page needs an extra package", help=install_command("html")) from None


@cache
def plotly_script() -> str:
    """The library itself, to stand in a page. Raises InputError as :func:`require_plotly`."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

    script: str = get_plotlyjs()
    return script


def plotly_version() -> str:
    """The version that the library's head names; ``unknown`` where it names none."""
    found = re.search(r"plotly\.js v([\w.-]+)", plotly_script()[:500])
    return "unknown" if found is None else found[1]
