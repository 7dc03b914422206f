"""Reads a recording from its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.errors import InputError
from blis_tui.inputs import parse_json, read_input
from blis_tui.observe.lines import (
    STEP_COLUMNS,
    read_figures,
    read_request,
    read_scrape,
    read_server,
    read_step,
    refuse,
)
from blis_tui.observe.recording import Recording, Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST: Final = "recording.json"
REQUESTS: Final = "requests.jsonl"
METRICS: Final = "metrics.jsonl"
STEPS: Final = "steps.csv"
KV_EVENTS: Final = "kv-events.jsonl"
VERSION: Final = 1
_MAX_BYTES: Final = 1 << 31

T = TypeVar("T")


def is_recording(path: Path) -> bool:
    """Return whether a folder is a recording."""
    return (path / MANIFEST).is_file()


def read_recording(folder: Path) -> Recording:
    """Read a recording; an aborted one as far as it goes.

    Raises:
        InputError: a file is missing, cannot be read, or is not as ``observe`` writes it.
    """
    if not is_recording(folder):
        raise InputError(
            f"{folder} is not a recording: it has no {MANIFEST}", help="`blis-tui observe` creates recordings"
        )
    about, server = _about(folder / MANIFEST)
    whole = about.get("complete") is True
    requests = sorted(_lines(folder / REQUESTS, read_request, whole=whole), key=lambda row: (row.sent_us, row.index))
    head = ",".join(STEP_COLUMNS)
    steps = _lines(folder / STEPS, read_step, whole=whole, head=head) if (folder / STEPS).is_file() else []
    scrapes = _lines(folder / METRICS, read_scrape, whole=whole) if (folder / METRICS).is_file() else []
    return Recording(
        folder=folder,
        server=server,
        requests=tuple(requests),
        steps=tuple(steps),
        scrapes=tuple(scrapes),
        about=about,
    )


def _about(path: Path) -> tuple[dict[str, object], Server]:
    try:
        found = parse_json(read_input(path, limit=_MAX_BYTES))
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError("its version is not supported by this version of blis-tui")  # noqa: TRY301
        if not isinstance(counters := found.get("counters", {}), dict):
            raise ValueError("`counters` is not a map")  # noqa: TRY301, TRY004  (a file is wrong, not the caller)
        read_figures(counters)
        return found, read_server(found.get("server", {}))
    except ValueError as error:
        raise InputError(f"{path}: {error}", help="`blis-tui observe` writes this file") from error


def _lines(path: Path, read: Callable[[str], T], *, whole: bool, head: str | None = None) -> list[T]:
    """Return the parsed lines of a file; unless the recording is ``whole``, an incomplete last line is ignored."""
    raw = read_input(path, limit=_MAX_BYTES)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise refuse(path, raw.count(b"\n", 0, error.start) + 1, ValueError("it is not UTF-8 text")) from error
    *lines, rest = text.split("\n")
    if whole and rest:
        message = f"{path} is cut off in line {len(lines) + 1}, although the recording was complete"
        raise InputError(message, help="copy it again")
    if head is not None:
        if lines[:1] != [head]:
            raise refuse(path, 1, ValueError(f"it is not the columns {head}"))
        lines = lines[1:]
    found = []
    for number, line in enumerate(lines, 1 if head is None else 2):
        try:
            found.append(read(line))
        except ValueError as error:
            raise refuse(path, number, error) from error
    return found
