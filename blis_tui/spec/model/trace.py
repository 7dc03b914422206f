"""Recorded workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.classes import dataclass
from blis_tui.keys import SMALLEST, DocumentKey, choice, document_key, key, part, plug_in

if TYPE_CHECKING:
    from collections.abc import Mapping


class Slice:
    """A part of a trace."""

    from_s = document_key(float, "Where it begins, in seconds of the trace.", default=0.0, minimum=0, maximum=10**9)
    to_s = document_key(
        float,
        "Where it ends, in seconds of the trace; a request that arrives then is not part of it. Without it, the trace"
        " goes on to its end.",
        minimum=SMALLEST,
        maximum=10**9,
        examples=[600],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded workload. ``path`` is absolute; the digest uses the ``sha256`` of the content instead."""

    path: str
    file: ClassVar[DocumentKey] = document_key(
        str,
        "Path to the trace, relative to this file. Files compressed with gzip or Zstandard are read as they are.",
        required=True,
        minLength=1,
        examples=["requests.csv"],
    )
    format: str = plug_in(
        "workload.trace.format",
        "Layout of the file. Nothing is guessed: a JSON file under `requests` is an error that says which format to"
        " write.",
        default="requests",
    )
    columns: Mapping[str, str] = part(
        "Which column of the file holds what, where its name is not a known one; other columns whose names are unknown"
        " are then ignored.",
        "columns",
        absent={},
        examples=[{"arrival": "timestamp", "input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}],
    )
    time_unit: str = choice(
        "Unit of arrivals that are numbers. Needed where neither the column's name (`timestamp_ms`) nor the layout of a"
        " known tool tells it; dates need none.",
        {"s": "Seconds.", "ms": "Milliseconds.", "us": "Microseconds.", "ns": "Nanoseconds."},
        absent="",
    )
    limit: int | None = key(
        "Only so many requests, the first of the file; it is read no further. `workload.requests` counts those that are"
        " left of them, in order of arrival.",
        absent=None,
        minimum=1,
        maximum=10**8,
        examples=[10_000],
    )
    slice: tuple[float, float | None] | None = part(
        "Only a part of the trace; arrivals then count from its beginning.",
        Slice,
        absent=None,
        examples=[{"from_s": 3600, "to_s": 4200}],
    )
    scale_rate: float = key(
        "Times of arrival are divided by it: 2.0 is twice the load in half the time. With `pacing: answers` sessions"
        " begin at other times, but the pauses in them stay. Without it, the trace is replayed as it was recorded.",
        absent=1.0,
        minimum=SMALLEST,
        maximum=10**6,
        examples=[2.0],
    )
    rate_per_s: float | None = key(
        "Requests per second, evenly spaced, of a file that does not say when they arrive (format `sharegpt`).",
        absent=None,
        minimum=SMALLEST,
        maximum=10**6,
        examples=[2.0],
    )
    pacing: str = choice(
        "What requests of sessions after the first wait for, where the file names sessions (`session_id`,"
        " conversations). Left out, the clock.",
        {
            "clock": "The clock: they are sent when they were sent in the trace, whatever the cluster does.",
            "answers": "Answers to those before them, and then the time that lay between in the trace: a closed loop."
            " Prompts begin with what was said before, which is found in the prefix cache.",
        },
        absent="clock",
    )
    sha256: str = key(
        "Digest of the file's content in hexadecimal; when given, the file must match.",
        optional=True,
        pattern="^[0-9a-f]{64}$",
        examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    )
