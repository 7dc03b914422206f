"""Runs that are being written elsewhere, read as they grow: recordings, records of simulations, and several at once."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import fields
from operator import attrgetter
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import filled, span_text
from blis_tui.engine.records import RECORD_KINDS, Arrived, Completed, Dropped, FirstToken, described
from blis_tui.live.observe.recording import (
    COMPLETED,
    METRICS,
    REQUESTS,
    Observed,
    read_about,
    read_request,
    read_scrape,
    require,
)
from blis_tui.live.observe.recording_summary import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from blis_tui.live.observe.recording_summary import Status

_T = TypeVar("_T")
_RUNNING: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting")


_KEPT: Final = 1000
"""Number of the latest events of a run that are kept to be merged with those of others."""


class FollowedEvent(NamedTuple):
    """Something that happened to a request of a run that is followed."""

    time_us: int
    """Since the beginning of the run, in microseconds."""
    where: str
    """The run, or an instance of it: ``a/instance_0``."""
    sign: str
    colour: str
    """A colour of the theme; empty = ordinary text."""
    text: str


class Followed(Protocol):
    """A run that is written elsewhere.

    Attributes:
        name: what it is called beside others.
        url: what is shown of where it comes from.
        over: whether it has ended, as far as the latest look says.
        events: its latest events, the earliest first.
    """

    name: str
    url: str
    over: bool
    events: deque[FollowedEvent]

    def look(self) -> Status:
        """Read what is written by now; return the status. Raises InputError if it is not as it should be."""
        ...


class _Growing:
    """A file that grows: an incomplete last line waits for the next look."""

    def __init__(self, path: Path, help_text: str) -> None:
        self.path = path
        self._help = help_text
        self._read = self._lines = 0

    def more(self, read: Callable[[str], _T]) -> list[_T]:
        """Return the rows that have been completed since the last look."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                *lines, rest = file.read().split(b"\n")
                self._read = file.tell() - len(rest)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from error
        rows: list[_T] = []
        for line in lines:
            self._lines += 1
            try:
                rows.append(read(line.decode()))
            except ValueError as error:  # also if it is not UTF-8
                raise InputError(f"{self.path}, line {self._lines}: {error}", help=self._help) from error
        return rows


class Following:
    """Reads what a recording has more at each look.

    Args:
        folder: the folder of a recording.
        name: what it is called beside others; empty = as its folder.

    Attributes:
        folder: that folder.
        name: what it is called beside others.
        url: the server that is recorded.
        over: whether the recording has ended, as far as the latest look says.
        events: when its latest requests were sent, got their first token and ended, the earliest first.

    Raises:
        InputError: it is not a recording, or not as ``observe`` writes it.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        require(folder)
        self.folder = folder
        self.name = name or folder.resolve().name
        about, _ = read_about(folder)
        self.url = str(about.get("url", folder))
        self.over = False
        self.events: deque[FollowedEvent] = deque(maxlen=_KEPT)
        self._progress = Progress(None)
        self._requests, self._scrapes = (
            _Growing(folder / file, "`blis-tui observe` writes these files") for file in (REQUESTS, METRICS)
        )
        self._time_us = 0

    def look(self) -> Status:
        """Return the status as of what is written by now.

        Requests in flight are those that the server says it has: only finished ones are in a recording.
        """
        about, _ = read_about(self.folder)
        self.over = "counters" in about
        for row in self._requests.more(read_request):
            self._progress.note(row)
            self._time_us = max(self._time_us, row.done_us)
            self.events.extend(_events_of(row, self.name))
        for scrape in self._scrapes.more(read_scrape):
            self._progress.server = scrape.values
            self._time_us = max(self._time_us, scrape.time_us)
        running = 0 if self.over else whole_sum([round(self._progress.server.get(name, 0.0)) for name in _RUNNING])
        ended = whole_sum(list(self._progress.outcomes.values()))
        return self._progress.look(self._time_us, ended + running, running)


def _events_of(row: Observed, run: str) -> Iterator[FollowedEvent]:
    """Yield what is known of a request that has ended."""
    yield FollowedEvent(row.sent_us, run, Arrived.shown.sign, "", f"{row.request_id} was sent")
    if row.ttft_us is not None:
        got = f"{row.request_id} got its first token after {span_text(row.ttft_us)}"
        yield FollowedEvent(row.sent_us + row.ttft_us, run, FirstToken.shown.sign, FirstToken.shown.colour, got)
    after = f"{row.request_id}: {row.outcome} after {span_text(row.done_us - row.sent_us)}"
    shown = Completed.shown if row.outcome == COMPLETED else Dropped.shown
    yield FollowedEvent(row.done_us, run, shown.sign, shown.colour, after)


class FollowingRecords:
    """Reads what a file of a simulation's records has more at each look.

    A file does not say that no record follows, so this is never over.

    Args:
        path: a file as ``run --records`` writes it.
        name: what the run is called beside others; empty = as its file.

    Attributes:
        path: that file.
        name: what the run is called beside others.
        url: the file's path.
        over: False.
        events: the latest records of requests, the earliest first.

    Raises:
        InputError: there is no such file.
    """

    over = False

    def __init__(self, path: Path, name: str = "") -> None:
        if not path.is_file():
            raise InputError(f"{path} is no file of records", help="`blis-tui run --records` writes such files")
        self.path = path
        self.name = name or path.stem
        self.url = str(path)
        self.events: deque[FollowedEvent] = deque(maxlen=_KEPT)
        self._file = _Growing(path, "`blis-tui run --records` writes such files")
        self._progress = Progress(None)
        self._arrived_us: dict[str, int] = {}
        self._first_us: dict[str, int] = {}
        self._sent = self._time_us = 0

    def look(self) -> Status:
        """Return the status as of what is written by now: tokens are those of requests that have completed."""
        for record in self._file.more(_record):
            self._note(record)
        return self._progress.look(self._time_us, self._sent, len(self._arrived_us))

    def _note(self, record: Mapping[str, Any]) -> None:
        kind, time_us, name = record["kind"], record["time_us"], record.get("request_id")
        self._time_us = max(self._time_us, time_us)
        if name is None:
            return
        shown, instance = described(kind), record.get("instance")
        where = self.name if instance is None else f"{self.name}/instance_{instance}"
        self.events.append(FollowedEvent(time_us, where, shown.sign, shown.colour, filled(shown.sentence, record)))
        if kind == Arrived.kind:
            self._sent += 1
            self._arrived_us[name] = time_us
        elif kind == FirstToken.kind:
            self._first_us[name] = time_us
        elif shown.ends:
            self._end(name, kind if shown.ends == "lost" else COMPLETED, record)

    def _end(self, name: str, outcome: str, record: Mapping[str, Any]) -> None:
        start_us = self._arrived_us.pop(name, self._time_us)
        tokens, ttft_us = record.get("output_tokens", 0), record.get("ttft_us")
        first = [] if ttft_us is None else [(start_us + ttft_us, 1)]
        done_us = start_us + record["e2e_us"] if "e2e_us" in record else self._time_us
        self._progress.note(
            Observed(
                request_id=name,
                index=self._sent,
                due_us=start_us,
                sent_us=start_us,
                done_us=done_us,
                outcome=outcome,
                input_tokens=0,
                output_tokens=tokens,
                chunks=tuple([*first, (done_us, tokens - len(first))] if tokens else first),
            )
        )


def _record(line: str) -> Mapping[str, Any]:
    """Parse a record. Raises ValueError if it is none, or one without what such records have."""
    record = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise ValueError("it is no record, which names its kind")  # noqa: TRY004  (a file is wrong, not the caller)
    kind = RECORD_KINDS.get(record["kind"])  # None: one of a plug-in
    wanted = _OF_ALL if kind is None else {field.name: str(field.type) for field in fields(kind)}
    for name, annotation in wanted.items():
        is_needed = name in record or kind is not None or name in ("event", "time_us")
        if not is_needed or annotation not in _TYPES:
            continue
        known, noun = _TYPES[annotation]
        if type(record.get(name)) is not known:
            is_there = f"`{name}` is {brief(record[name])}" if name in record else f"`{name}` is missing"
            raise ValueError(f"{is_there}: {noun} is needed")
    return record


_TYPES: Final = {"int": (int, "a whole number"), "str": (str, "a text"), "bool": (bool, "true or false")}
"""Annotations of a record's fields that are looked at, what JSON has for them, and how that is called."""
_OF_ALL: Final = {"event": "int", "time_us": "int", "request_id": "str", "instance": "int"}
"""Fields that are read of records of any kind."""


def follow(path: Path, name: str = "") -> Followed:
    """Return a run to follow: a recording's folder, or a file of records. Raises InputError if it is neither."""
    return FollowingRecords(path, name) if path.is_file() else Following(path, name)


def merged(runs: Iterable[Followed], count: int) -> list[FollowedEvent]:
    """Return the latest events of several runs by time, the latest last; each run counts from its own beginning."""
    events = sorted((event for run in runs for event in run.events), key=attrgetter("time_us"))
    return events[-count:]


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return what runs are called beside each other: as their files, with as much of the path as tells them apart."""
    resolved = [path.resolve() for path in paths]
    for parts in range(1, max((len(path.parts) for path in resolved), default=0) + 1):
        names = ["/".join((*path.parts[:-1], path.stem)[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    return [f"{path.stem}-{number}" for number, path in enumerate(resolved, 1)]
