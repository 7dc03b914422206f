"""Imports a ServeGen folder as a Workload, with a client for each of its clients ("chunks")."""

from __future__ import annotations

import ast
import csv
import re
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json, read_input
from blis_tui.base.source import Document, Source
from blis_tui.spec.foreign.reading import Draft, Fate, Input, as_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported

_TRACE: Final = re.compile(r"chunk-(.+)-trace\.csv")
_MOST_BYTES: Final = 256 * 1024 * 1024
_LARGEST_CV: Final = {"gamma": 10.0, "weibull": 10.4}
_TABLE: Final = 100
"""Maximum number of entries of a table of lengths."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Ten minutes of one client."""

    start_s: float
    rate_per_s: float
    cv: float
    pattern: str


def import_servegen(path: Path, *, name: str | None = None, span_s: tuple[float, float] | None = None) -> Imported:
    """Convert a folder of ``chunk-*-trace.csv`` and ``chunk-*-dataset.json`` (such as ``data/language/m-large``).

    Each client gets the rate, arrivals and lengths of its busiest window.

    Args:
        path: the folder.
        name: name of the document; default: that of the folder.
        span_s: consider only windows that start within this time, in seconds.

    Raises:
        InputError: a file cannot be read, or is invalid.
        SpecError: no client sends anything.
    """
    given = Input(Document({}, Source(str(path), "", path)))
    try:
        files = sorted((file for file in path.iterdir() if _TRACE.fullmatch(file.name)), key=_number)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", help="name a folder of ServeGen") from error
    clients: list[Json] = []
    rates: list[float] = []
    for file in files:
        chunk = _TRACE.fullmatch(file.name)
        assert chunk is not None  # noqa: S101  (as above)
        windows = [window for window in _windows(file) if span_s is None or span_s[0] <= window.start_s < span_s[1]]
        busiest = max(windows, key=lambda window: window.rate_per_s, default=None)
        if busiest is None or busiest.rate_per_s <= 0.0:
            continue
        lengths = _lengths(file.with_name(f"chunk-{chunk[1]}-dataset.json"), busiest.start_s)
        if lengths is None:
            given.note(Fate.NOT_CARRIED, (), f"chunk {chunk[1]} has no lengths; it is left out")
            continue
        inputs, outputs = lengths
        rates.append(busiest.rate_per_s)
        clients.append(
            {
                "id": f"chunk-{chunk[1]}",
                "share": busiest.rate_per_s,
                "arrivals": _arrivals(given, chunk[1], busiest),
                "input_tokens": inputs,
                "output_tokens": outputs,
                "tenant": f"chunk-{chunk[1]}",
            }
        )
    if not clients:
        hint = "there must be files chunk-*-trace.csv with a positive rate" + (
            "" if span_s is None else " in this time"
        )
        given.problem((), f"no client of {path} sends anything", code="BLIS2014", hint=hint)
    text = "each client has the rate, arrivals and lengths of its busiest window, throughout"
    given.note(Fate.APPROXIMATED, (), text)
    given.note(Fate.ELSEWHERE, (), "nothing ends the workload: set `horizon_us` in the experiment, or `requests` here")
    total = 0.0
    for rate in rates:
        total += rate
    return Draft(
        source=given,
        kind="Workload",
        name=as_name(path.resolve().name) if name is None else name,
        description=f"Imported from {len(clients):,} clients of the ServeGen folder {path.resolve().name}.",
        body={"rate_per_s": total, "clients": clients},
    ).finish()


def _number(file: Path) -> tuple[int, str]:
    match = re.search(r"\d+", file.name)
    return (int(match[0]) if match else 0, file.name)


def _windows(file: Path) -> list[_Window]:
    """Read the rows of a trace: start in seconds, rate, CV of gaps, pattern, and its parameters. There is no header."""
    text = read_input(file, limit=_MOST_BYTES).decode("utf-8", errors="replace")
    windows = []
    for number, row in enumerate(csv.reader(StringIO(text, newline="")), 1):
        if not row:
            continue
        try:
            start, rate, cv = (_finite(float(cell)) for cell in row[:3])
            windows.append(_Window(start, rate, cv, row[3].strip().lower()))
        except (ValueError, IndexError) as error:
            message = f"{file}:{number}: this is not a window of ServeGen"
            raise InputError(message, help="a row is: start in seconds, rate, CV, pattern, shape, scale") from error
    return windows


def _finite(value: float) -> float:
    """Return a number that is one; raises ValueError for others."""
    if not isfinite(value):
        raise ValueError(f"{value} is not a number")
    return value


def _arrivals(given: Input, chunk: str, window: _Window) -> dict[str, Json]:
    """Return the pattern with its CV; Poisson if there is none."""
    kind = window.pattern
    if kind and kind not in _LARGEST_CV:
        given.note(Fate.APPROXIMATED, (), f"chunk {chunk}: arrivals of the pattern `{kind[:40]}` became poisson")
    if kind not in _LARGEST_CV or window.cv <= 0.0:
        return {"kind": "poisson"}
    cv = min(window.cv, _LARGEST_CV[kind])
    if cv < window.cv:
        given.note(
            Fate.APPROXIMATED, (), f"chunk {chunk}: a CV of {window.cv:.4g} became {cv:g}, the largest of {kind}"
        )
    return {"kind": kind, "cv": cv}


def _lengths(file: Path, start_s: float) -> tuple[Json, Json] | None:
    """Return the tables of the last window that starts by then and has any, otherwise of the first; None = none."""
    try:
        data = parse_json(read_input(file, limit=_MOST_BYTES))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{file} is not a data set of ServeGen: it is not a map of windows")
    known = []
    for start, window in data.items():
        tables = [_table(file, window, key) for key in ("input_tokens", "output_tokens")]
        if tables[0] and tables[1]:
            try:
                known.append((_finite(float(start)), tables))
            except ValueError as error:
                raise InputError(f"{file}: `{start[:40]}` is not the start of a window in seconds") from error
    if not known:
        return None
    known.sort(key=lambda entry: entry[0])
    _, (inputs, outputs) = next((entry for entry in reversed(known) if entry[0] <= start_s), known[0])
    return _condensed(inputs), _condensed(outputs)


def _table(file: Path, window: object, key: str) -> dict[int, float]:
    """Parse a table, which is text inside JSON: ``{62: 0.0001, 66: 0.0002}``."""
    text = window.get(key) if isinstance(window, dict) else None
    try:
        table = ast.literal_eval(text) if isinstance(text, str) else text
        pairs = [(int(tokens), _finite(float(weight))) for tokens, weight in dict(table or {}).items()]
        return {max(1, tokens): weight for tokens, weight in pairs if weight > 0}
    except (ValueError, TypeError, SyntaxError, MemoryError, OverflowError, RecursionError) as error:
        raise InputError(f"{file}: `{key}` is not a table of token counts and their shares") from error


def _condensed(table: Mapping[int, float]) -> Json:
    """Convert a table; many entries are reduced to the means of a hundred parts of equal weight."""
    ordered = sorted(table.items())
    if len(ordered) > _TABLE:
        total = 0.0
        for _, weight in ordered:
            total += weight
        sums = [[0.0, 0.0] for _ in range(_TABLE)]
        seen = 0.0
        for tokens, weight in ordered:
            part = min(int((seen + weight / 2) / total * _TABLE), _TABLE - 1)
            sums[part][0] += weight
            sums[part][1] += weight * tokens
            seen += weight
        merged: dict[int, float] = {}
        for weight, tokens_weight in sums:
            if weight:
                mean = int(tokens_weight / weight + 0.5)
                merged[mean] = merged.get(mean, 0.0) + weight
        ordered = sorted(merged.items())
    return {"kind": "empirical", "weights": {str(tokens): float(f"{weight:.6g}") for tokens, weight in ordered}}
