"""Where commands write: never over each other, and never over what they read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def require_different_files(outputs: Mapping[str, str | None]) -> None:
    """Each result needs a file of its own. Raises UsageError."""
    files = [_identity(Path(name)) for name in outputs.values() if name not in (None, "-")]
    if len(dict.fromkeys(files)) < len(files):
        raise click.UsageError(f"{', '.join(outputs)} must be different files")


def require_spared(outputs: Mapping[str, str | None], read: Iterable[Path]) -> None:
    """No result may take the place of a file that the experiment comes from. Raises UsageError."""
    taken = {_identity(path): path for path in read}
    for option, name in outputs.items():
        if name not in (None, "-") and (path := taken.get(_identity(Path(name)))) is not None:
            raise click.UsageError(f"{option} would overwrite {path}, which the experiment is read from")


def _identity(path: Path) -> tuple[object, ...]:
    """Equal for two names of one file; devices, which several results may share, are all different."""
    try:
        status = path.stat()
    except OSError:
        return (os.path.realpath(path),)
    if not stat.S_ISREG(status.st_mode):
        return (object(),)
    return (status.st_dev, status.st_ino)
