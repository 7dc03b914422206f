"""Where the shipped files are. Standard library only."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def package_root() -> Path:
    """The folder with the modules of this package."""
    return _PACKAGE


@cache
def data_root() -> Path:
    """The folder with ``specs/`` and ``schemas/``: inside an installed package, or the top of a checkout."""
    installed = _PACKAGE / "_data"
    return installed if installed.is_dir() else _PACKAGE.parent


def shipped_specs() -> Path:
    """The ``specs/`` folder this package ships."""
    return data_root() / "specs"
