"""Parses a trace, a CSV file with a header and one request per line, into columns of numbers.

``prefix_group`` shares the head of the prompt: ``prefix_length`` tokens that come before the ``input_tokens``, or
``prefix_tokens`` of them; ``prefix_segments`` is such a head in parts. ``deadline_us`` is absolute; 0 or empty means
none.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat
from operator import add, gt
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.model import SLO_CLASSES
from blis_tui.workload.distributions import tokens_of
from blis_tui.workload.traces.cells import clock_of, read_items, read_segments
from blis_tui.workload.traces.columns import resolve_columns
from blis_tui.workload.traces.trace_rows import first_cell, first_row, read_columns, read_header, read_rows
from blis_tui.workload.traces.trace_table import GrowingColumns, LeftOut, TraceColumns, omissions
from blis_tui.workload.traces.trace_text import (
    LARGEST_NUMBER,
    NeedsSlowPath,
    nearest,
    shown,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    from blis_tui.engine.request import MediaItem, Segments
    from blis_tui.workload.traces.cells import Clock
    from blis_tui.workload.traces.columns import Columns
    from blis_tui.workload.traces.trace_text import Problems, TraceText

Cells = Mapping[str, Sequence[str]]
"""A block of rows: column name or field -> its cells."""
_COUNTS: Final = ("input_tokens", "output_tokens")
_INSTEAD: Final = {"input_tokens": str(LARGEST_NUMBER)}
"""Substitutes for invalid numbers where 0 would be invalid, too."""
_LONGEST_NS: Final = 2**62
_UNIQUE: Final = "give every request an id of its own, or drop the column"
_SHARE: Final = re.compile(r"[0-9.]{1,40}(?:[eE][-+]?[0-9]{1,3})?")
_MEDIA: Final = ("image_tokens", "audio_tokens", "video_tokens")
_FLAGS: Final[Mapping[str, int]] = {"": 0, "0": 0, "false": 0, "no": 0, "1": 1, "true": 1, "yes": 1}
_OPTIONAL_NUMBERS: Final = (
    *("prefix_length", "prefix_tokens", "deadline", "round_index", "reasoning_tokens", "max_output_tokens"),
    *_MEDIA,
)


class Adjust(Protocol):
    """A format's transformation of a block's cells before they are parsed; it may remove rows of failed requests."""

    def __call__(self, cells: Cells, lines: Sequence[int]) -> tuple[Cells, Sequence[int]]:
        """Return the cells by column name, and the lines of their rows, that are to be parsed."""
        ...


def as_they_are(cells: Cells, lines: Sequence[int]) -> tuple[Cells, Sequence[int]]:
    """Return all cells unchanged."""
    return cells, lines


def read(
    text: TraceText,
    given: Mapping[str, str],
    time_unit: str = "",
    *,
    limit: int | None = None,
    adjust: Adjust = as_they_are,
    dropped: str = "",
    from_first: bool = False,
) -> TraceColumns:
    """Parse a CSV file, block by block.

    Args:
        text: the file.
        given: mapping for columns whose name does not tell: field -> column.
        time_unit: unit of the arrivals if nothing else tells it; empty = not given.
        limit: maximum number of rows to read; None = all.
        adjust: transforms cells before they are parsed.
        dropped: why it leaves requests out, as words that follow ``requests``.
        from_first: whether arrivals count from the first request, whatever their unit.

    Raises:
        TraceError: columns or rows are wrong.
    """
    blocks = text.blocks()
    header, rest, line = read_header(next(blocks), text.problems)
    places = resolve_columns(header, first_row(rest, len(header)), given, time_unit, text.problems)
    reader = _Reader(header, places, text.problems, adjust)
    left = sys.maxsize if limit is None else limit
    for block in chain([rest], blocks):
        line, left = reader.read(block, line, left)
        if not left:
            break
    columns = reader.columns(from_first=from_first)
    return replace(columns, left_out=omissions(LeftOut(reader.left_out, "request", dropped)))


class _Reader:
    """The columns of a file, as far as read."""

    def __init__(self, header: Sequence[str], columns: Columns, problems: Problems, adjust: Adjust) -> None:
        self._header = header
        self._columns = columns
        self._problems = problems
        self._adjust = adjust
        self._clock: Clock | None = None
        self._first = 0
        """Offset of arrivals until the earliest is known: an array cannot hold nanoseconds since long ago."""
        self._growing = GrowingColumns()
        self._lines: list[Sequence[int]] = []
        self.left_out = 0
        """Number of rows that the format left out."""

    def read(self, text: str, before: int, most: int) -> tuple[int, int]:
        """Read a block.

        Args:
            text: whole rows.
            before: number of the line before them.
            most: maximum number of rows to read.

        Returns:
            The number of its last line, and how many more rows may be read.
        """
        clock = self._clock_of(text, before)
        try:
            columns, lines = read_columns(text, len(self._header), most)
            cells, numbers = self._adjust(
                dict(zip(self._header, columns, strict=True)), range(before + 1, before + 1 + lines)
            )
            if numbers:
                named = {what: cells[name] for what, name in self._columns.names.items()}
                self._add(clock.read_all(named["arrival"]), named, numbers)
        except NeedsSlowPath:
            return self._inspect(text, before, most, clock)
        self.left_out += lines - len(numbers)
        return before + lines, most - lines

    def _clock_of(self, text: str, before: int) -> Clock:
        """Return how to read arrivals, determined by the first non-empty cell."""
        if self._clock is not None:
            return self._clock
        arrival = self._columns.names["arrival"]
        cell, line = first_cell(text, self._header.index(arrival))
        clock = clock_of(arrival, self._columns.unit, cell, before + line, self._problems, native=self._columns.native)
        if cell:
            self._clock = clock
        return clock

    def _inspect(self, text: str, before: int, most: int, clock: Clock) -> tuple[int, int]:
        """Read a block row by row and note all problems; unusual but valid rows are accepted here, too."""
        rows: list[list[str]] = []
        lines: list[int] = []
        for line, row in islice(read_rows(text, before + 1, len(self._header), self._problems), most):
            rows.append(row)
            lines.append(line)
        if rows:
            columns = dict(zip(self._header, zip(*rows, strict=True), strict=True))
            cells, numbers = self._adjust(columns, lines)
            self.left_out += len(lines) - len(numbers)
            inspector = _Inspector(self._columns.names, clock, self._problems)
            for row_number, line in enumerate(numbers):
                inspector.row(line, {what: cells[name][row_number] for what, name in self._columns.names.items()})
            known = next((time for time in inspector.times if time is not None), None)
            if known is not None:
                times = [known if time is None else time for time in inspector.times]
                self._add(times, inspector.columns, numbers)
        return before + len(text.splitlines()), most - len(rows)

    def _add(self, times: Sequence[int], columns: Cells, lines: Sequence[int]) -> None:
        """Add rows. Raises ``NeedsSlowPath`` if any cell may be wrong."""
        block = _build(columns, times)
        if not self._growing.rows and self._clock is not None and not self._clock.unit:
            self._first = times[0]
        if self._first:
            block = replace(block, arrival_us=[time - self._first for time in times])
            for line, time in zip(lines, block.arrival_us or (), strict=True):
                if abs(time) > _LONGEST_NS:
                    message = "the time is centuries away from that of the first request"
                    self._problems.fail(line, self._columns.names["arrival"], message, "correct it, or remove the line")
        self._growing.add(block)
        self._lines.append(lines)

    def columns(self, *, from_first: bool) -> TraceColumns:
        """Return all columns.

        Raises:
            TraceError: anything was wrong.
        """
        if not self._growing.rows or self._clock is None:
            self._problems.check()
            if self.left_out:
                self._problems.fail(
                    2, "", "every request of the file has failed", "it has no answers that could be replayed"
                )
            self._problems.fail(1, "", "there are no requests below the header", "each line below it is one request")
        columns = self._growing.columns()
        arrivals = self._clock.arrivals(array("q", columns.arrival_us or ()), self._first, self._problems)
        if from_first:
            earliest = min(arrivals)
            arrivals = array("q", (arrival - earliest for arrival in arrivals))
        self._check_ids(columns.request_id)
        self._check_deadlines(columns.deadline_us, arrivals)
        self._problems.check()
        return replace(columns, arrival_us=arrivals)

    def _check_ids(self, names: Sequence[str] | None) -> None:
        """Check that request ids are unique, and that all requests have one if any has."""
        if names is None or ("" not in (different := dict.fromkeys(names)) and len(different) == len(names)):
            return
        column = self._columns.names["request_id"]
        seen: dict[str, int] = {}
        for line, name in zip(chain.from_iterable(self._lines), names, strict=True):
            if not name:
                self._problems.add(line, column, "the cell is empty", "give every request an id or drop the column")
            elif name in seen:
                self._problems.add(line, column, f"{name!r} is also the id on line {seen[name]}", _UNIQUE)
            else:
                seen[name] = line

    def _check_deadlines(self, deadlines: Sequence[int] | None, arrivals: Sequence[int]) -> None:
        """Check that no deadline is before the arrival."""
        for line, end, time in zip(
            chain.from_iterable(self._lines), deadlines or (), arrivals, strict=deadlines is not None
        ):
            if 0 < end < time:
                message = f"the deadline {end} is before the arrival {time}"
                self._problems.add(line, self._columns.names["deadline"], message, "deadlines are absolute; 0 = none")


def _build(columns: Cells, arrivals: Sequence[int]) -> TraceColumns:
    """Convert whole columns at once. Raises ``NeedsSlowPath`` if any cell may be wrong."""
    prompts = whole_numbers(columns["input_tokens"])
    extra = _optional_numbers(columns, "prefix_length")
    within = _optional_numbers(columns, "prefix_tokens")
    lengths = within if extra is None else extra
    segments = None
    if lengths is not None and any(lengths):
        if extra is not None:
            prompts = list(map(add, prompts, extra))
        elif any(map(gt, lengths, prompts)):
            raise NeedsSlowPath
        segments = _segments(columns.get("prefix_group"), lengths)
    if (parts := columns.get("prefix_segments")) is not None and any(parts):
        segments = _parted(parts, prompts, segments)
    deadlines = _optional_numbers(columns, "deadline")
    if not all(prompts):
        raise NeedsSlowPath
    media = _media(columns, prompts)
    answers = whole_numbers(columns["output_tokens"])
    return TraceColumns(
        arrival_us=arrivals,
        input_tokens=prompts,
        output_tokens=answers,
        request_id=columns.get("request_id"),
        segments=segments,
        answer=columns.get("answer_segment"),
        slo_class=_slo_classes(columns.get("slo_class")),
        tenant=columns.get("tenant_id"),
        deadline_us=deadlines if deadlines is not None and any(deadlines) else None,
        session_id=columns.get("session_id"),
        round_index=_optional_numbers(columns, "round_index"),
        model=columns.get("model"),
        adapter=columns.get("adapter"),
        reasoning_tokens=_reasoning(columns, answers),
        media=media,
        media_items=_items(columns.get("media_items"), prompts, media),
        e2e_us=_durations(columns.get("e2e")),
        max_output_tokens=_optional_numbers(columns, "max_output_tokens"),
        ignore_eos=_endless(columns, answers),
    )


def _durations(cells: Sequence[str] | None) -> Sequence[int] | None:
    """Parse durations of answers; -1 for empty cells."""
    if cells is None:
        return None
    durations = whole_numbers([cell or "0" for cell in cells])
    return [took if cell else -1 for took, cell in zip(durations, cells, strict=True)]


def _reasoning(columns: Cells, answers: Sequence[int]) -> Sequence[int] | None:
    """Return reasoning tokens, as counted or by their share; None = there are none."""
    tokens = _optional_numbers(columns, "reasoning_tokens")
    if tokens is None and (cells := columns.get("reason_ratio")) is not None:
        tokens = list(map(tokens_of, map(_ratio, cells), answers))
    if tokens is None or not any(tokens):
        return None
    if any(map(gt, tokens, answers)):
        raise NeedsSlowPath
    return tokens


def _endless(columns: Cells, answers: Sequence[int]) -> Sequence[int] | None:
    """Return which answers use their whole budget; None = the file does not say."""
    cells = columns.get("ignore_eos")
    if cells is None:
        return None
    flags = [_FLAGS.get(cell.strip().lower(), -1) for cell in cells]
    budgets = _optional_numbers(columns, "max_output_tokens") or answers  # without the column, it is what it generates
    if -1 in flags or any(flag and most < answer for flag, most, answer in zip(flags, budgets, answers, strict=True)):
        raise NeedsSlowPath
    return flags


def _ratio(cell: str) -> float:
    """Parse a share from 0 to 1; empty = 0."""
    if not _SHARE.fullmatch(text := cell.strip() or "0") or not 0.0 <= (share := float(text)) <= 1.0:
        raise NeedsSlowPath
    return share


def _media(columns: Cells, prompts: Sequence[int]) -> Sequence[Media] | None:
    """Return the media tokens of the prompts; None = there are none."""
    if not any(name in columns for name in _MEDIA):
        return None
    counts = [_optional_numbers(columns, name) or repeat(0, len(prompts)) for name in _MEDIA]
    media = list(map(Media, *counts))
    if not any(map(any, media)):
        return None
    if any(attached.tokens > prompt for attached, prompt in zip(media, prompts, strict=True)):
        raise NeedsSlowPath
    return media


def _items(
    cells: Sequence[str] | None, prompts: Sequence[int], media: Sequence[Media] | None
) -> Sequence[tuple[MediaItem, ...]] | None:
    """Return the media items of the prompts; None = the file does not name them."""
    if cells is None or not any(cells):
        return None
    rows = zip(cells, prompts, media or repeat(NO_MEDIA, len(prompts)), strict=True)
    try:
        return [read_items(cell, prompt, attached.tokens) for cell, prompt, attached in rows]
    except ValueError as error:
        raise NeedsSlowPath from error


def _optional_numbers(columns: Cells, name: str) -> list[int] | None:
    """Parse an optional column, whose empty cells mean 0."""
    cells = columns.get(name)
    if cells is None:
        return None
    return whole_numbers([cell or "0" for cell in cells] if "" in cells else cells)


def _segments(groups: Sequence[str] | None, lengths: Sequence[int]) -> list[Segments]:
    """Return the shared heads of the prompts; equal ones are one object."""
    if groups is None:
        raise NeedsSlowPath
    known: dict[tuple[str, int], Segments] = {}
    grouped: list[Segments] = []
    for key in zip(groups, lengths, strict=True):
        segments = known.get(key)
        if segments is None:
            group, length = key
            if length and not group:
                raise NeedsSlowPath
            segments = (key,) if length else ()
            known[key] = segments
        grouped.append(segments)
    return grouped


def _parted(cells: Sequence[str], prompts: Sequence[int], others: Sequence[Segments] | None) -> list[Segments]:
    """Return the shared heads, with several parts where the cell has them."""
    heads = [()] * len(cells) if others is None else others
    try:
        parted = [read_segments(cell, prompt) or head for cell, prompt, head in zip(cells, prompts, heads, strict=True)]
    except ValueError as error:
        raise NeedsSlowPath from error
    return parted


def _slo_classes(cells: Sequence[str] | None) -> Sequence[str] | None:
    """Return SLO classes; empty cells mean ``standard``."""
    if cells is None:
        return None
    different = dict.fromkeys(cells)
    if any(name and name not in SLO_CLASSES for name in different):
        raise NeedsSlowPath
    return [name or "standard" for name in cells] if "" in different else cells


class _Inspector:
    """Examines rows one by one, notes problems, and keeps the rows in plain form.

    Invalid cells are replaced by valid ones, so that further problems can be found.
    """

    def __init__(self, names: Mapping[str, str], clock: Clock, problems: Problems) -> None:
        self.columns: dict[str, list[str]] = {what: [] for what in names}
        self.times: list[int | None] = []
        self._names = names
        self._clock = clock
        self._problems = problems

    def row(self, line: int, cells: Mapping[str, str]) -> None:
        """Examine the next row: field -> cell."""
        time = self._clock.read(cells["arrival"], line, self._problems)
        self.times.append(time)
        plain = dict(cells)
        for what, cell in cells.items():
            if what in _OPTIONAL_NUMBERS and not cell.strip():
                plain[what] = "0"
            elif what == "e2e" and not cell.strip():
                plain[what] = ""
            elif what in _OPTIONAL_NUMBERS or what in _COUNTS or what == "e2e":
                number = whole_number(cell, line, self._names[what], self._problems)
                plain[what] = str(number) if number is not None else _INSTEAD.get(what, "0")
        if time is None and "deadline" in plain:
            plain["deadline"] = "0"
        self._prompt(line, plain)
        if "slo_class" in plain:
            plain["slo_class"] = self._slo_class(line, plain["slo_class"].strip())
        for what, cell in plain.items():
            self.columns[what].append(cell)

    def _note(self, line: int, what: str, message: str, advice: str | None = None) -> None:
        self._problems.add(line, self._names.get(what, what), message, advice)

    def _prompt(self, line: int, plain: dict[str, str]) -> None:
        prompt, extra, within = (int(plain.get(what, 0)) for what in ("input_tokens", "prefix_length", "prefix_tokens"))
        if prompt == 0 and not extra:
            self._note(line, "input_tokens", "the prompt has no tokens", "a prompt has at least 1")
            plain["input_tokens"] = "1"
        for what, tokens in (("prefix_length", extra), ("prefix_tokens", within)):
            if tokens and not plain.get("prefix_group"):
                message = f"{what} is {tokens} but there is no group"
                self._note(line, "prefix_group", message, "name a prefix_group")
                plain[what] = "0"
        try:
            read_segments(plain.get("prefix_segments", ""), prompt or LARGEST_NUMBER)
        except ValueError as error:
            self._note(line, "prefix_segments", str(error), 'such as [["system", 512], ["manual", 64]]')
            plain["prefix_segments"] = ""
        self._parts(line, plain, prompt + extra)
        if within > prompt:
            message = f"a prompt of {prompt} tokens cannot have {within} shared ones"
            advice = "they are among the input tokens; those that come before them are `prefix_length`"
            self._note(line, "prefix_tokens", message, advice)
            plain["prefix_tokens"] = "0"

    def _parts(self, line: int, plain: dict[str, str], prompt: int) -> None:
        """Check that reasoning fits into the answer, and media into the prompt."""
        thought, answer = int(plain.get("reasoning_tokens", 0)), int(plain["output_tokens"])
        if thought > answer:
            message = f"an answer of {answer} tokens cannot have {thought} of reasoning"
            self._note(line, "reasoning_tokens", message, "they are among the output tokens")
            plain["reasoning_tokens"] = "0"
        if (cell := plain.get("reason_ratio")) is not None:
            try:
                _ratio(cell)
            except NeedsSlowPath:
                self._note(line, "reason_ratio", f"{shown(cell)} is not a share", "write a number from 0 to 1")
                plain["reason_ratio"] = "0"
        self._budget(line, plain, answer)
        media = [int(plain.get(name, 0)) for name in _MEDIA]
        if Media(*media).tokens > prompt:
            message = f"a prompt of {prompt} tokens cannot have {Media(*media).tokens} of images, audio and video"
            first = next(name for name in _MEDIA if plain.get(name, "0") != "0")
            self._note(line, first, message, "they are among the input tokens")
            plain |= dict.fromkeys((name for name in _MEDIA if name in plain), "0")
            plain |= dict.fromkeys(("media_items",) if "media_items" in plain else (), "")
        try:
            read_items(plain.get("media_items", ""), prompt, Media(*media).tokens)
        except ValueError as error:
            self._note(line, "media_items", str(error), 'such as [[512, 1676, "photo-7"]]')
            plain["media_items"] = ""

    def _budget(self, line: int, plain: dict[str, str], answer: int) -> None:
        """Check that an answer limited only by its budget has one, and does not exceed it."""
        cell = plain.get("ignore_eos", "")
        endless = _FLAGS.get(cell.strip().lower())
        if endless is None:
            self._note(line, "ignore_eos", f"{shown(cell)} is neither true nor false", "write 1 or 0")
            plain["ignore_eos"] = "0"
        budget = int(plain.get("max_output_tokens", answer))
        if endless and budget < answer:
            message = f"an answer of {answer} tokens cannot exceed its budget of {budget}"
            advice = "with ignore_eos, only the budget ends an answer"
            if not budget:
                message = "with ignore_eos and without a budget, nothing ends this answer"
                advice = "give it a budget, or leave ignore_eos empty"
            self._note(line, "max_output_tokens", message, advice)
            plain["ignore_eos"] = "0"

    def _slo_class(self, line: int, name: str) -> str:
        if not name or name in SLO_CLASSES:
            return name
        advice = nearest(name, SLO_CLASSES) or f"the SLO classes are {', '.join(SLO_CLASSES)}"
        self._note(line, "slo_class", f"there is no SLO class {name!r}", advice)
        return ""
