"""Steps from an engine's log: the work and the duration of each."""

from __future__ import annotations

import csv
import io
import re
from math import isfinite
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.units import plural
from blis_tui.engine.kv.capacity import kv_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from blis_tui.model import Pool

_ITERATION: Final = re.compile(
    r"(?:Engine (\d+): )?"
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, \d+ generation "
    r"tokens, iteration elapsed time: ([0-9.]+) ms(?: \(dummy\))?(?:, [A-Z]+ KV cache usage: ([0-9.]+)%)?"
)
"""vLLM 0.27, ``v1/metrics/loggers.py``; older versions, ``v1/engine/core.py``, end with the time. The device (GPU, CPU)
is part of the name of the KV cache."""
_PROCESS: Final = re.compile(r"^\((\S+ pid=\d+)\)")
_SPLIT: Final = "a log of another server, or of a second start; give each a file of its own"
_DURATIONS: Final = ("duration_us", "period_us")
_NEEDED: Final = ("decode_requests", "prefill_tokens")
_MOST_PREFILLS: Final = 100_000
_FEWEST: Final = 20


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    duration_us: float
    decode_requests: int
    context_tokens: float
    """Sum of the decodes' contexts."""
    chunks: tuple[tuple[int, int], ...]
    """For each prefill, the tokens computed before and in this step."""

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        return self.decode_requests + sum(new for _, new in self.chunks)


@dataclass(frozen=True, slots=True)
class StepLog:
    """The non-empty steps of one file."""

    path: Path
    format: str
    sha256: str
    steps: tuple[Step, ...]

    @property
    def size(self) -> str:
        """The number of its steps, as text."""
        return f"{plural(len(self.steps), 'step')}"


def holds_steps(text: str) -> bool:
    """Return whether a file contains steps instead of requests."""
    if text.lstrip()[:1] in ("{", "["):
        return False
    columns = set(text.partition("\n")[0].strip().split(","))
    return bool(columns.issuperset(_NEEDED) and columns.intersection(_DURATIONS)) or "Iteration(" in text


def read_steps(path: Path, text: str, sha256: str, pool: Pool) -> StepLog:
    """Read a log of ``vllm serve --enable-logging-iteration-details``, or a CSV file with one row per step.

    CSV rows have ``duration_us`` (or ``period_us``), ``decode_requests`` and ``prefill_tokens``, and optionally
    ``context_tokens`` (sum over the decodes), ``prefill_requests`` and ``prefill_computed_tokens`` (sum before the
    step). Missing contexts are derived from the KV cache usage: its share in the log, or ``kv_blocks_free``.

    Raises:
        InputError: a value is missing or no number, or there are too few steps.
    """
    blocks = pool.engine.kv_blocks
    logged = "Iteration(" in text
    rows = _logged(text) if logged else _listed(text, blocks)
    name = "vLLM's iterations" if logged else "steps"
    steps: list[Step] = []
    try:
        for duration_us, decodes, prefills, new, before, context, used in rows:
            if not (0.0 < duration_us < float("inf") and min(decodes, prefills, new, before) >= 0):
                raise ValueError(f"{decodes} decodes and {new} prompt tokens in {duration_us:g} us")  # noqa: TRY301
            if not decodes and not new:
                continue
            if decodes and context is None and used is None:
                raise ValueError("it has neither contexts nor the KV cache in use (vLLM 0.27 logs them)")  # noqa: TRY301
            held = context
            if held is None:
                held = max(_held_tokens(pool, used or 0.0, decodes + prefills) - before - new, 0.0)
            steps.append(Step(duration_us, decodes, held if decodes else 0.0, tuple(_chunks(prefills, new, before))))
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}, step {len(steps) + 1}: {what}", help=f"it was read as a file of {name}") from error
    if len(steps) < _FEWEST:
        raise InputError(
            f"{path} holds too few steps to fit anything: {len(steps)}", help=f"at least {_FEWEST} are needed"
        )
    return StepLog(path, name, sha256, tuple(steps))


def _held_tokens(pool: Pool, used: float, requests: int) -> float:
    """Return the tokens of so many requests that hold this share of the KV cache."""
    engine, groups = pool.engine, kv_groups(pool.model, pool.engine)
    if groups is None:
        return used * engine.kv_blocks * engine.block_size_tokens
    return groups.tokens_held(round(used * engine.kv_blocks), requests, engine.block_size_tokens)


_Row = tuple[float, int, int, int, int, float | None, float | None]
"""Duration, decodes, prefills, their new and earlier tokens, context of the decodes, share of the KV cache."""


def _logged(text: str) -> Iterator[_Row]:
    one = (-1, "")
    """The latest iteration, and its engine."""
    for place, line in enumerate(text.splitlines(), 1):
        if "Iteration(" not in line:
            continue
        found = _ITERATION.search(line)
        if found is None:
            raise ValueError(f"not as vLLM writes iterations: {line.strip()[:120]}")
        engine, iteration, prefills, new, decodes, elapsed_ms, used = found.groups()
        process = _PROCESS.search(line)
        before, one = one, (int(iteration), f"{process[1] if process else ''} engine {engine or 0}".strip())
        if before[0] >= 0 and before[1] != one[1]:
            raise ValueError(f"line {place} is of {one[1]}, those before are of {before[1]}: {_SPLIT}")
        if one[0] <= before[0]:
            raise ValueError(f"line {place} is iteration {one[0]}, after iteration {before[0]}: {_SPLIT}")
        if "(dummy)" in line:
            continue
        share = None if used is None else float(used) / 100.0
        yield float(elapsed_ms) * 1e3, int(decodes), int(prefills), int(new), 0, None, share


def _listed(text: str, blocks: int) -> Iterator[_Row]:
    for row in csv.DictReader(io.StringIO(text)):
        time = next((row[name] for name in _DURATIONS if row.get(name)), None)
        if time is None:
            continue
        new = int(row["prefill_tokens"])
        free = _optional(row, "kv_blocks_free")
        yield (
            float(time),
            int(row["decode_requests"]),
            int(_optional(row, "prefill_requests") or (1 if new else 0)),
            new,
            int(_optional(row, "prefill_computed_tokens") or 0),
            _optional(row, "context_tokens"),
            None if free is None else 1.0 - free / blocks,
        )


def _optional(row: Mapping[str, str], name: str) -> float | None:
    if not row.get(name):
        return None
    value = float(row[name])
    if not isfinite(value):
        raise ValueError(f"`{name}` is {value}")
    return value


def _chunks(prefills: int, new: int, before: int) -> Iterator[tuple[int, int]]:
    """Yield prefills of equal length for known sums. Raises ValueError for more prefills than a step can have."""
    count = min(max(prefills, 1), new)
    if count > _MOST_PREFILLS:
        raise ValueError(f"{count:,} prefills in one step, at most {_MOST_PREFILLS:,} can be read")
    for number in range(count):
        computed, tokens = (whole * (number + 1) // count - whole * number // count for whole in (before, new))
        yield computed, tokens
