"""Files below a folder, written all or none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.records.files import reporting_write_errors, write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN: Final = 4
"""Maximum number of existing files that an error names."""


def check_room(folder: Path, files: Iterable[str], *, replace: bool) -> None:
    """Refuse a folder that :func:`write_tree` would refuse.

    Raises:
        InputError: it is no folder, or a file exists (and ``replace`` is off).
    """
    with reporting_write_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        there = [name for name in files if os.path.lexists(folder / name)]
    if there and not replace:
        shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
        raise InputError(f"{folder} already has {shown}", help="choose another folder, or replace them with --force")


def write_tree(folder: Path, files: Mapping[str, str | bytes], *, replace: bool) -> None:
    """Write files below a folder: all of them or, after any error, none.

    Everything is written beside the folder first and then moved into it; with ``replace`` its other files stay.

    Raises:
        InputError: a file exists (and ``replace`` is off), or something cannot be written.
    """
    check_room(folder, files, replace=replace)
    with reporting_write_errors(folder):
        target = folder.absolute()
        above = next(parent for parent in target.parents if parent.is_dir())
        staged = Path(mkdtemp(prefix=f".{target.name}.", dir=above))
        try:
            for name, text in files.items():
                path = staged / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path, text if isinstance(text, bytes) else text.encode())
            _move(staged, target, files)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _move(staged: Path, target: Path, files: Iterable[str]) -> None:
    """Move the staged files: a new folder at once, an existing one (perhaps the working folder) file by file."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        mask = os.umask(0)
        os.umask(mask)
        staged.chmod(0o777 & ~mask)  # temporary folders are private
        staged.replace(target)
        return
    for name in files:
        path = target / name
        blocked = next((one for one in path.parents if one.exists() and not one.is_dir()), None)
        if blocked is not None or path.is_dir():
            raise InputError(f"cannot write {path}: {blocked or path} is in the way")
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).replace(target / name)
