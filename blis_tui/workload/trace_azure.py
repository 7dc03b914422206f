"""The format of the Azure LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Timestamps are dates and times of day with up to nine decimals, by default in UTC; arrivals count from the
earliest one, in whole microseconds.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Final

from blis_tui.workload.trace_table import TraceColumns
from blis_tui.workload.trace_text import (
    Suspicious,
    read_columns,
    read_header,
    read_rows,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.workload.trace_text import Problems

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))?", re.ASCII
)
_MINUTE: Final = slice(0, 17)
"""``2023-11-16 18:17:``: few rows differ in it, so each minute is parsed once."""
_USUAL_LENGTH: Final = len("2023-11-16 18:17:03.9799600")
_SECOND: Final = 10**9
_MAX_SECONDS: Final = 60 * 10**7


def read(text: str, problems: Problems) -> TraceColumns:
    """Parse a file's text.

    Raises:
        TraceError: columns or rows are wrong.
    """
    header = read_header(text, problems, _COLUMNS)
    try:
        return _build(read_columns(text))
    except Suspicious:
        return _inspect(text, header, problems)


def _build(cells: Mapping[str, Sequence[str]]) -> TraceColumns:
    """Whole columns at once; ``Suspicious`` when any cell is unusual."""
    prompts = whole_numbers(cells["ContextTokens"])
    if not all(prompts):
        raise Suspicious
    return TraceColumns(
        arrival_us=_since_earliest(_usual_times(cells["TIMESTAMP"])),
        input_tokens=prompts,
        output_tokens=whole_numbers(cells["GeneratedTokens"]),
    )


def _since_earliest(times_ns: Sequence[int]) -> list[int]:
    """Whole microseconds after the earliest of some times in nanoseconds."""
    earliest = min(times_ns)
    return [(time - earliest) // 1000 for time in times_ns]


def _usual_times(stamps: Sequence[str]) -> list[int]:
    """Timestamps of the published files (seven decimals, no zone) in nanoseconds, column-wise.

    Raises:
        Suspicious: any of them looks different.
    """
    if any(len(stamp) != _USUAL_LENGTH or stamp[19] != "." for stamp in stamps):
        raise Suspicious
    # Seconds and decimals as one number of 100 ns.
    seconds = whole_numbers([stamp[17:19] + stamp[20:] for stamp in stamps])
    if max(seconds) >= _MAX_SECONDS:
        raise Suspicious
    minutes: dict[str, int] = {}
    times = []
    for stamp, second in zip(stamps, seconds, strict=True):
        minute = stamp[_MINUTE]
        start = minutes.get(minute)
        if start is None:
            start = timestamp_ns(minute + "00")
            if start is None:
                raise Suspicious
            minutes[minute] = start
        times.append(start + 100 * second)
    return times


def timestamp_ns(text: str) -> int | None:
    """A timestamp in nanoseconds since the day before 0001-01-01; ``None`` if it is none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        day = date(int(match[1]), int(match[2]), int(match[3])).toordinal()
    except ValueError:
        return None
    seconds = ((day * 24 + hour) * 60 + minute) * 60 + second
    if match[8]:
        offset = (int(match[9]) * 60 + int(match[10])) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds * _SECOND + int((match[7] or "").ljust(9, "0"))


def _inspect(text: str, header: Sequence[str], problems: Problems) -> TraceColumns:
    """Walk the file row by row and note all problems; unusual but valid files are read here too."""
    times: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    empty = True
    for line, row in read_rows(text, problems, header):
        empty = False
        stamp = row["TIMESTAMP"]
        time = timestamp_ns(stamp.strip())
        if time is None:
            problems.add(line, "TIMESTAMP", f"{stamp!r} is no timestamp", "write it like 2023-11-16 18:17:03.9799600")
        prompt = whole_number(row["ContextTokens"], line, "ContextTokens", problems)
        if prompt == 0:
            problems.add(line, "ContextTokens", "the prompt has no tokens", "a prompt has at least 1")
        output = whole_number(row["GeneratedTokens"], line, "GeneratedTokens", problems)
        if time is not None and prompt is not None and output is not None:
            times.append(time)
            prompts.append(prompt)
            outputs.append(output)
    problems.check()
    if empty:
        problems.add(1, "", "there are no requests below the header")
        problems.check()
    return TraceColumns(
        arrival_us=_since_earliest(times),
        input_tokens=prompts,
        output_tokens=outputs,
    )
