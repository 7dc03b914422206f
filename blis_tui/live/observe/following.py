"""A recording that is being written elsewhere, read as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.errors import InputError
from blis_tui.base.portable_math import whole_sum
from blis_tui.live.observe.recording import METRICS, REQUESTS, read_about, read_request, read_scrape, refuse, require
from blis_tui.live.observe.recording_summary import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.live.observe.recording_summary import Status

_T = TypeVar("_T")
_RUNNING: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class Following:
    """Reads what a recording has more at each look; an incomplete last line waits for the next one.

    Args:
        folder: the folder of a recording.

    Attributes:
        folder: that folder.
        url: the server that is recorded.
        over: whether the recording has ended, as far as the latest look says.

    Raises:
        InputError: it is not a recording, or not as ``observe`` writes it.
    """

    def __init__(self, folder: Path) -> None:
        require(folder)
        self.folder = folder
        about, _ = read_about(folder)
        self.url = str(about.get("url", folder))
        self.over = False
        self._progress = Progress(None)
        self._read: dict[str, int] = {}
        self._lines: dict[str, int] = {}
        self._time_us = 0

    def look(self) -> Status:
        """Return the status as of what is written by now.

        Requests in flight are those that the server says it has: only finished ones are in a recording.
        """
        about, _ = read_about(self.folder)
        self.over = "counters" in about
        for row in self._more(REQUESTS, read_request):
            self._progress.note(row)
            self._time_us = max(self._time_us, row.done_us)
        for scrape in self._more(METRICS, read_scrape):
            self._progress.server = scrape.values
            self._time_us = max(self._time_us, scrape.time_us)
        running = 0 if self.over else whole_sum([round(self._progress.server.get(name, 0.0)) for name in _RUNNING])
        ended = whole_sum(list(self._progress.outcomes.values()))
        return self._progress.look(self._time_us, ended + running, running)

    def _more(self, name: str, read: Callable[[str], _T]) -> list[_T]:
        """Return the rows of a file that have been completed since the last look."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(name, 0))
                *lines, rest = file.read().split(b"\n")
                self._read[name] = file.tell() - len(rest)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        rows: list[_T] = []
        for line in lines:
            self._lines[name] = number = self._lines.get(name, 0) + 1
            try:
                rows.append(read(line.decode()))
            except ValueError as error:  # also if it is not UTF-8
                raise refuse(path, number, error) from error
        return rows
