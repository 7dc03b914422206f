"""A file as git has it: with everything beside it, as of the last commit."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def file_in_head(file: Path) -> Iterator[Path]:
    """Yield the path of a file as of the last commit: all of that commit is in a temporary folder.

    Raises:
        InputError: there is no git, no repository or commit, or the commit does not have the file.
    """
    folder = file.resolve().parent
    if not folder.is_dir():
        raise InputError(f"{file} is not here", help="give the path of a file that is under version control")
    root = Path(_git(folder, "rev-parse", "--show-toplevel"))
    inside = file.resolve().relative_to(root.resolve()).as_posix()
    if not _git(root, "ls-tree", "--name-only", "HEAD", "--", inside):
        raise InputError(f"git's last commit has no {file}", help="commit it first; `blis-tui check` looks at it alone")
    with TemporaryDirectory() as name:
        # An index of our own: neither the user's nor their files change.
        own = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        _git(root, "read-tree", "HEAD", variables=own)
        _git(root, "checkout-index", "--all", f"--prefix={name}/tree/", variables=own)
        yield Path(name, "tree", inside)


def _git(folder: Path, *words: str, variables: Mapping[str, str] | None = None) -> str:
    """Return what git prints."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**os.environ, **(variables or {})},
            check=True,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InputError(f"git cannot be started: {error.strerror}", help="--working-tree compares with git") from error
    except subprocess.CalledProcessError as error:
        last = (str(error.stderr).strip().splitlines() or ["it says nothing"])[-1]
        raise InputError(
            f"git {words[0]} fails: {last}", help="--working-tree compares with git's last commit"
        ) from None
    return done.stdout.strip()
