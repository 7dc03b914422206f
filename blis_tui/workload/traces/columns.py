"""The meaning of a trace's columns: by known names, by the layouts of other tools, or by the user's mapping.

Nothing is guessed. A column counts if it has a known name or is named under ``columns``. Anything unknown, missing or
ambiguous is one problem, whose advice is the line to write.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.scalars import flow
from blis_tui.workload.traces.cells import likely_unit
from blis_tui.workload.traces.trace_text import listed, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

from blis_tui.workload.traces.trace_text import Problems

REQUIRED: Final = ("arrival", "input_tokens", "output_tokens")
_EXAMPLE: Final = ("arrival_time_us", "input_tokens", "output_tokens")

KNOWN_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "arrival": (
            *("arrival_time", "arrival", "arrived_at", "arrival_timestamp"),
            *("timestamp", "request_timestamp", "start_time", "request_start_time"),
        ),
        "input_tokens": (
            *("input_tokens", "num_input_tokens", "input_len", "input_length", "isl"),
            *("prompt_tokens", "num_prompt_tokens", "num_prefill_tokens", "prompt_len", "prompt_length", "prompt_size"),
            *("context_tokens", "request_tokens"),
        ),
        "output_tokens": (
            *("output_tokens", "num_output_tokens", "output_len", "output_length", "expected_output_len", "osl"),
            *("completion_tokens", "num_completion_tokens", "num_decode_tokens", "token_size"),
            *("generated_tokens", "num_generated_tokens", "response_tokens"),
        ),
        "max_output_tokens": ("max_output_tokens", "max_new_tokens", "max_tokens", "max_completion_tokens"),
        "ignore_eos": ("ignore_eos",),
        "request_id": ("request_id",),
        "prefix_group": ("prefix_group",),
        "prefix_length": ("prefix_length",),
        "prefix_tokens": ("prefix_tokens",),
        "prefix_segments": ("prefix_segments",),
        "answer_segment": ("answer_segment",),
        "slo_class": ("slo_class",),
        "tenant_id": ("tenant_id", "tenant"),
        "model": ("model",),
        "adapter": ("adapter", "lora", "lora_name", "lora_adapter"),
        "deadline": ("deadline_us",),
        "session_id": ("session_id",),
        "round_index": ("round_index",),
        "reasoning_tokens": ("reasoning_tokens", "num_reasoning_tokens", "thinking_tokens"),
        "reason_ratio": ("reason_ratio",),
        "image_tokens": ("image_tokens", "num_image_tokens"),
        "audio_tokens": ("audio_tokens", "num_audio_tokens"),
        "video_tokens": ("video_tokens", "num_video_tokens"),
        "media_items": ("media_items",),
        "e2e": ("e2e_us",),
    }
)
"""Field -> the names of columns for it, in any case and with any separators."""

FIELDS: Final = tuple(KNOWN_NAMES)

_UNITS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "s": ("s", "sec", "secs", "second", "seconds"),
        "ms": ("ms", "msec", "millis", "millisecond", "milliseconds"),
        "us": ("us", "usec", "micros", "microsecond", "microseconds"),
        "ns": ("ns", "nsec", "nanos", "nanosecond", "nanoseconds"),
    }
)
"""Unit -> suffixes of column names that denote it."""
_NATIVE: Final = ("arrival_time_us", "arrival_us")
"""Arrivals since the start of the simulation, as this package writes them."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The files of one tool: three columns that identify them, and the other columns in them."""

    columns: Mapping[str, str]
    unit: str = ""
    """Unit of the arrivals by the tool's own definition; empty = by their name."""
    unused: tuple[str, ...] = ()


_LAYOUTS: Final = (
    _Layout(  # `blis-tui run --requests`
        {"arrival": "arrival_us", "input_tokens": "input_tokens", "output_tokens": "requested_output_tokens"},
        unused=(
            *("state", "instance", "queued_us", "scheduled_us", "first_token_us", "completed_us", "ttft_us"),
            *("output_tokens", "cached_tokens", "preemptions"),
            *("prefill_instance", "transfer_start_us", "transfer_us", "gateway_us", "retries"),
            *("first_answer_us", "ttfat_us"),
        ),
    ),
    _Layout(  # TraceV2 of BLIS
        {"arrival": "arrival_time_us", "input_tokens": "input_tokens", "output_tokens": "output_tokens"},
        unused=(
            *("client_id", "streaming", "text_tokens", "server_input_tokens"),
            *("send_time_us", "first_chunk_time_us", "last_chunk_time_us"),
            *("num_chunks", "status", "error_message", "finish_reason"),
        ),
    ),
    _Layout(  # Vidur
        {"arrival": "arrived_at", "input_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"},
        unit="s",
        unused=("num_total_tokens", "pd_ratio"),
    ),
    _Layout(  # BurstGPT
        {"arrival": "Timestamp", "input_tokens": "Request tokens", "output_tokens": "Response tokens"},
        unit="s",
        unused=("Model", "Total tokens", "Log Type", "Elapsed time"),
    ),
    _Layout(  # SplitwiseSim
        {"arrival": "arrival_timestamp", "input_tokens": "prompt_size", "output_tokens": "token_size"},
        unit="s",
        unused=("request_type", "application_id", "batch_size"),
    ),
)
_NO_GUESS: Final = "NAME"
_INDEX: Final = re.compile(r"|Unnamed: \d+")
"""The column of row numbers that pandas writes: unnamed, or with a name after it was read and written again."""
_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "arrival": r"arriv|time|start|date|created|\bat\b|\bts\b",
        "input_tokens": r"prompt|input|context|prefill|\bin\b",
        "output_tokens": r"output|completion|generat|response|decode|\bout\b",
    }
)
"""For advice only: patterns of names that seem to mean a field."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one file."""

    names: Mapping[str, str]
    """Field -> column name."""
    unit: str
    """Unit of the arrivals; empty = unknown."""
    native: bool
    """Whether arrivals count from the start of the simulation, whatever their values are."""


def resolve_columns(
    header: Sequence[str], first: Sequence[str], given: Mapping[str, str], time_unit: str, problems: Problems
) -> Columns:
    """Find the columns of a file.

    Args:
        header: the names in its first line.
        first: the cells of its first row, for advice.
        given: the user's mapping: field -> column.
        time_unit: the user's unit of the arrivals; empty = not given.
        problems: collects what is wrong.

    Raises:
        TraceError: a column is missing, unknown, or ambiguous.
    """
    _check_shape(header, given, problems)
    familiar = _is_familiar(header, given)
    for what, name in given.items():
        if name not in header:
            advice = f"the columns are {listed(header)}" if familiar else "none of its columns is known: is it a trace?"
            problems.add(1, "", f"there is no column {shown(name)} for `{what}`", advice)
    problems.check()
    layout = next((candidate for candidate in _LAYOUTS if _fits(candidate, header, given)), None)
    fitting = {what: [given[what]] if what in given else _fitting(what, header, layout) for what in FIELDS}
    names = {what: fits[0] for what, fits in fitting.items() if fits}
    unused = [_key(name) for name in (() if layout is None else layout.unused)]
    unknown = [
        name
        for name in header
        if not _INDEX.fullmatch(name)
        and _key(name) not in unused
        and not any(name in fits for fits in fitting.values())
    ]
    missing = [f"`{what}`" for what in REQUIRED if what not in names]
    complaints = [f"no column is known to hold {' or '.join(missing)}"] if missing else []
    if not familiar:
        complaints.append("none of the names in its first line is known")
    elif unknown and not given:
        complaints.append(f"{'an unknown column' if len(unknown) == 1 else 'unknown columns'}: {listed(unknown)}")
    complaints += [f"{listed(fits)} both mean `{what}`" for what, fits in fitting.items() if len(fits) > 1]
    doubled = [name for name in dict.fromkeys(names.values()) if header.count(name) > 1]
    if doubled:
        problems.add(1, doubled[0], "two columns have this name", "give each column a name of its own")
        problems.check()
    if either := _choose_prefix(names, given):
        complaints.append("both `prefix_length` and `prefix_tokens` are given, but a file can have only one of them")
    if complaints:
        for what in REQUIRED:
            others = [
                name
                for name, cell in zip(header, first, strict=False)
                if familiar and name in unknown and name not in names.values() and (what == "arrival" or _counts(cell))
            ]
            names.setdefault(what, _guess(what, others))
        mapping = ", ".join(f"{what}: {flow(names[what])}" for what in FIELDS if what in names)
        lines = f"`columns: {{{mapping}}}`{either}"
        if names["arrival"] in header and not (time_unit or _unit(names["arrival"])):
            guess = likely_unit(first[header.index(names["arrival"])])
            lines += f" and `time_unit: {guess}`" if guess else ""
        problems.add(1, "", "; ".join(complaints), f"add under `trace:` {lines}; other columns are then ignored")
    arrival = names["arrival"]
    native = _key(arrival) in [_key(column) for column in _NATIVE]
    by_name = _unit(arrival)
    if time_unit and by_name and time_unit != by_name:
        message = f"the column's name says {by_name}, but `time_unit` is {time_unit}"
        problems.add(1, arrival, message, "remove `time_unit`, or rename the column")
    problems.check()
    by_layout = layout.unit if layout is not None and _key(layout.columns["arrival"]) == _key(arrival) else ""
    return Columns(names, time_unit or by_name or by_layout, native)


def _choose_prefix(names: dict[str, str], given: Mapping[str, str]) -> str:
    """Remove one of two columns about the shared prefix; return advice if the user's mapping does not choose."""
    for what, other in itertools.permutations(("prefix_length", "prefix_tokens")):
        if what in given and other not in given:
            names.pop(other, None)
    if not ("prefix_length" in names and "prefix_tokens" in names):
        return ""
    return f" (or `prefix_tokens: {flow(names.pop('prefix_tokens'))}`, if they are among `input_tokens`)"


def _check_shape(header: Sequence[str], given: Mapping[str, str], problems: Problems) -> None:
    """Check whether the first line can be column names at all."""
    if len(header) == 1 and (mark := re.search(r"[;\t|]", header[0])) is not None:
        problems.add(1, "", f"the columns are separated by {mark.group()!r}", "separate them with commas")
    elif not any(re.search(r"[^\W\d]", name) for name in header):
        names = [given.get(what, name) for what, name in zip(REQUIRED, _EXAMPLE, strict=True)]
        problems.add(1, "", "the first line names no columns", f"start with {','.join(names)}")
    problems.check()


def _is_familiar(header: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether the first line resembles a trace's; of other files, which a document may name, errors quote nothing."""
    if any(name in header for name in given.values()) or any(_fitting(what, header, None) for what in FIELDS):
        return True
    guesses = dict.fromkeys(_guess(what, header) for what in REQUIRED)
    return len(guesses) - (_NO_GUESS in guesses) > 1


def _fits(layout: _Layout, header: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether the file has the layout's columns and the user's mapping does not contradict them."""
    keys = [_key(name) for name in header]
    return all(_key(given.get(what, name)) == _key(name) in keys for what, name in layout.columns.items())


def _fitting(what: str, header: Sequence[str], layout: _Layout | None) -> list[str]:
    """Return the different columns whose name is known to mean this field."""
    if layout is not None and what in layout.columns:
        wanted = [_key(layout.columns[what])]
    else:
        unused = [] if layout is None else [_key(name) for name in layout.unused]
        wanted = [key for key in map(_key, KNOWN_NAMES[what]) if key not in unused]
    names = [name for name in header if _key(name) in wanted or (what == "arrival" and _key(_base(name)) in wanted)]
    return list(dict.fromkeys(names))


def _guess(what: str, names: Sequence[str]) -> str:
    """For advice: return the name that most resembles this field's; a capitalized placeholder if none does."""
    from difflib import get_close_matches  # noqa: PLC0415  (only for advice)

    keys = {_key(name): name for name in reversed(names)}
    for known in KNOWN_NAMES[what]:
        if near := get_close_matches(_key(known), keys, n=1, cutoff=0.8):
            return keys[near[0]]
    looks = [name for name in names if re.search(_HINTS[what], name.replace("_", " "), re.IGNORECASE)]
    return looks[0] if looks else _NO_GUESS


def _counts(cell: str) -> bool:
    """Whether a cell may be a number of tokens, for advice."""
    return not cell.strip() or re.fullmatch(r"[0-9]+(\.0*)?", cell.strip()) is not None


@cache
def _key(name: str) -> str:
    """Normalize a name: no case and no separators."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _unit(name: str) -> str:
    """Return the unit in a column name's suffix; empty = none."""
    last = re.split(r"[^a-z]+", name.casefold().rstrip(")] "))[-1]
    return next((unit for unit, words in _UNITS.items() if last in words and _key(name) != last), "")


def _base(name: str) -> str:
    """Return a column's name without its unit."""
    return re.sub(r"[^A-Za-z]+[A-Za-z]+[)\] ]*\Z", "", name) if _unit(name) else name
