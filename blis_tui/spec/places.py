"""The locations of the shipped files. Standard library only."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def package_root() -> Path:
    """Return the folder of this package's modules."""
    return _PACKAGE


@cache
def data_root() -> Path:
    """Return the folder with ``specs/`` and ``schemas/``: in an installed package, or at the top of a checkout."""
    installed = _PACKAGE / "_data"
    return installed if installed.is_dir() else _PACKAGE.parent


def shipped_specs() -> Path:
    """Return the ``specs/`` folder of this package."""
    return data_root() / "specs"
