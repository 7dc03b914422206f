"""Results of runs on disk, by what they are the result of: no run is made twice, and a killed study goes on."""

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
        """The result of a run that ends as soon as one of ``stop_at`` cannot hold any more; None = not known."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """Keep a result. Raises InputError: it cannot be written."""


class MemoryStore:
    """Results that last as long as the process: equal points of one study run once."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """As :meth:`Store.find`."""
        name = stopped_key(key, stop_at)
        return _decoded(name, self._known[name]) if name in self._known else None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """As :meth:`Store.keep`."""
        name = stopped_key(key, stop_at)
        self._known[name] = _encoded(name, outcome)


class FolderStore:
    """A file a result, below a folder; several processes may share it, and files may be deleted one by one.

    Args:
        folder: where; results of each engine are in a folder of its own below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"engine-{ENGINE}"

    @classmethod
    def of_user(cls) -> FolderStore:
        """The user's own, in the folder that the system has for caches, or where ``BLIS_TUI_STORE_DIR`` says."""
        return cls(Path(os.environ.get(STORE_VARIABLE) or user_cache_path("blis-tui") / "runs"))

    def require_writable(self) -> None:
        """Make sure that results can be kept. Raises InputError: they cannot."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_bytes(self.folder / "try", asked_for=False) as file:
                file.write(_MAGIC)
            (self.folder / "try").unlink(missing_ok=True)
        except (OSError, InputError) as error:
            raise self._unwritable(error) from error

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """As :meth:`Store.find`; a damaged file counts as none."""
        name = stopped_key(key, stop_at)
        with suppress(OSError):
            return _decoded(name, self._path(name).read_bytes())
        return None

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """As :meth:`Store.keep`; a failure is not kept: the next attempt may go better."""
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
    """What was encoded under this name; None = it was not, or it is damaged."""
    if not content.startswith(_MAGIC):
        return None
    with suppress(zlib.error, ValueError, KeyError, TypeError):
        said = json.loads(zlib.decompress(content[len(_MAGIC) :]))  # which verifies a checksum
        if said["key"] == name and said["status"] in get_args(Status):
            left_out = tuple(said["left_out"])
            return Outcome(
                status=cast("Status", said["status"]), report=said["report"], why=said["why"], left_out=left_out
            )
    return None
