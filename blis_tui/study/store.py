"""Stores results of runs on disk, so that no run is repeated and an interrupted study can continue."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, get_args

from platformdirs import user_cache_path

from blis_tui._version import ENGINE
from blis_tui.errors import InputError
from blis_tui.records.files import atomic_bytes
from blis_tui.study.task import Outcome, Status, stopped_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.spec.model import Expectation

STORE_VARIABLE: Final = "BLIS_TUI_STORE_DIR"
"""Environment variable that overrides the user's folder of results."""
_MAGIC: Final = b"blis-tui run 2\n"


class Store(Protocol):
    """Where results are looked up and kept."""

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """Return the result of a run that ends as soon as one of ``stop_at`` cannot hold; None = not known."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """Keep a result. Raises InputError if it cannot be written."""


class MemoryStore:
    """Keeps results in this process, so that equal points of one study run once."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """See :meth:`Store.find`."""
        name = stopped_key(key, stop_at)
        return _decoded(name, self._known[name]) if name in self._known else None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """See :meth:`Store.keep`."""
        name = stopped_key(key, stop_at)
        self._known[name] = _encoded(name, outcome)


class FolderStore:
    """Keeps one file per result below a folder; processes may share it, and single files may be deleted.

    Args:
        folder: the folder; results of each engine are in a subfolder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"engine-{ENGINE}"

    @classmethod
    def of_user(cls) -> FolderStore:
        """Return the user's store: ``BLIS_TUI_STORE_DIR``, or a folder in the system's cache folder."""
        return cls(Path(os.environ.get(STORE_VARIABLE) or user_cache_path("blis-tui") / "runs"))

    def require_writable(self) -> None:
        """Check that results can be kept. Raises InputError if they cannot."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_bytes(self.folder / "try", asked_for=False) as file:
                file.write(_MAGIC)
            (self.folder / "try").unlink(missing_ok=True)
        except (OSError, InputError) as error:
            raise self._unwritable(error) from error

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """See :meth:`Store.find`; a damaged file counts as absent."""
        name = stopped_key(key, stop_at)
        with suppress(OSError):
            return _decoded(name, self._path(name).read_bytes())
        return None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """See :meth:`Store.keep`; failures are not kept, because another attempt may succeed."""
        if outcome.status == "failed":
            return
        name = stopped_key(key, stop_at)
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_bytes(path, asked_for=False) as file:
                file.write(_encoded(name, outcome))
        except (OSError, InputError) as error:
            raise self._unwritable(error) from error

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _unwritable(self, error: OSError | InputError) -> InputError:
        cause = error.__cause__ if isinstance(error, InputError) else error
        why = getattr(cause, "strerror", None) or error
        return InputError(
            f"cannot keep results in {self.folder}: {why}", help="name another folder with --store, or `--store none`"
        )


def _encoded(name: str, outcome: Outcome) -> bytes:
    said = {"key": name, **asdict(outcome)}
    return _MAGIC + zlib.compress(json.dumps(said).encode(), 1)


def _decoded(name: str, content: bytes) -> Outcome | None:
    """Return the outcome encoded under this name; None if the content is damaged or has another name."""
    if not content.startswith(_MAGIC):
        return None
    with suppress(zlib.error, ValueError, KeyError, TypeError):
        said = json.loads(zlib.decompress(content[len(_MAGIC) :]))  # decompression verifies a checksum
        report, why, left_out = said["report"], said["why"], tuple(said["left_out"])
        for text in (report, why, *left_out):
            str.encode(text)  # no other type, and no lone surrogate
        if said["key"] == name and said["status"] in get_args(Status):
            return Outcome(status=cast("Status", said["status"]), report=report, why=why, left_out=left_out)
    return None
