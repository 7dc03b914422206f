"""Results of runs on disk, by what they are the result of: no run is made twice, and a killed study goes on."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from os import replace
from tempfile import mkstemp
from typing import TYPE_CHECKING, Final, Protocol, cast

from platformdirs import user_cache_path

from blis_tui.errors import InputError
from blis_tui.study.task import Outcome, stopped_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.spec.model import Expectation
    from blis_tui.study.task import Status

_MAGIC: Final = b"blis-tui run 1\n"


class Store(Protocol):
    """Where results are looked up and kept."""

    def find(self, key: str, stop_at: Sequence[Expectation]) -> Outcome | None:
        """The result of a run that would end as soon as one of ``stop_at`` cannot hold any more; None = not known."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """Keep a result. Raises InputError: it cannot be written."""


class MemoryStore:
    """Results that last as long as the process: equal points of one study run once."""

    def __init__(self) -> None:
        self._known: dict[str, Outcome] = {}

    def find(self, key: str, stop_at: Sequence[Expectation]) -> Outcome | None:
        """As :meth:`Store.find`."""
        return self._known.get(key) or self._known.get(stopped_key(key, stop_at))

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """As :meth:`Store.keep`."""
        self._known[stopped_key(key, stop_at) if outcome.status == "stopped" else key] = outcome


class FolderStore:
    """A file a result, below a folder; several processes may share it.

    Args:
        folder: where; it is made with the first result.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> FolderStore:
        """The user's own, in the folder that the system has for caches."""
        return cls(user_cache_path("blis-tui") / "runs")

    def find(self, key: str, stop_at: Sequence[Expectation]) -> Outcome | None:
        """As :meth:`Store.find`; a damaged file counts as none."""
        return self._read(key) or (self._read(stopped_key(key, stop_at)) if stop_at else None)

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """As :meth:`Store.keep`; a failure is not kept: the next attempt may go better."""
        if outcome.status == "failed":
            return
        path = self._path(stopped_key(key, stop_at) if outcome.status == "stopped" else key)
        said = json.dumps({"status": outcome.status, "report": outcome.report, "why": outcome.why})
        content = zlib.compress(said.encode(), 1)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = mkstemp(dir=path.parent)
            with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor)
                file.write(_MAGIC + content)
            replace(name, path)  # noqa: PTH105  (whole or not at all)
        except OSError as error:
            raise InputError(
                f"cannot keep results below {self.folder}: {error.strerror or error}",
                help="name another folder with --store, or `--store none`",
            ) from error

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _read(self, key: str) -> Outcome | None:
        with suppress(OSError, zlib.error, ValueError, KeyError, TypeError):
            content = self._path(key).read_bytes()
            if content.startswith(_MAGIC):
                said = json.loads(zlib.decompress(content[len(_MAGIC) :]))
                return Outcome(status=cast("Status", said["status"]), report=said["report"], why=said["why"])
        return None
