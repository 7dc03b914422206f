"""Axes, bounds and objectives as command lines give them: ``--axis cluster.instances=1..8``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.errors import SpecError
from blis_tui.spec.diagnostics import Diagnostic, located
from blis_tui.spec.loader import parse
from blis_tui.spec.source import Document, Location, Source, Span, as_map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.spec.source import Json

_SIZE: Final = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_RANGE: Final = re.compile(rf"\s*(-?{_SIZE})\.\.(-?{_SIZE})(?:\.\.({_SIZE}))?\s*\Z")
"""``1..8``, ``5..40..5``: from, to, and the step, as shells have it."""
_BOUND: Final = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*(<=|>=|==|=|<|>)\s*(\S.*?)\s*\Z")
_KEYS: Final = {"<=": "max", ">=": "min", "==": "equals"}


def study_of_arguments(
    document: Document,
    *,
    axes: Iterable[str] = (),
    slos: Iterable[str] = (),
    objectives: Iterable[str] = (),
    seeds: str,
) -> None:
    """Add what a command line says to a study document, in place; an axis replaces one of the same path.

    Raises:
        SpecError: with everything that is not of the form it should have.
    """
    found: list[Diagnostic] = []
    data = as_map(document.data)
    for text in axes:
        try:
            path, values = parse_axis(text)
        except SpecError as error:
            found += error.diagnostics
            continue
        if not isinstance(data.get("axes"), dict):
            data["axes"] = {}
        document.graft(("axes", path), values)
    for option, texts in (("constraints", slos), ("objectives", objectives)):
        for text in texts:
            try:
                entry = parse_bound(text) if option == "constraints" else parse_objective(text)
            except SpecError as error:
                found += error.diagnostics
                continue
            entries = data.setdefault(option, [])
            if isinstance(entries, list):
                entries.append(None)
                document.graft((option, len(entries) - 1), entry)
    if seeds:
        document.graft(("seeds",), _yaml("--seeds", seeds))
    if found:
        raise SpecError(found)


def parse_axis(text: str) -> tuple[str, Document]:
    """``PATH=VALUES``: a range such as ``1..8``, or values with commas between them.

    Raises:
        SpecError: it is not of that form.
    """
    source = Source("--axis", text)
    path, equals, values = text.partition("=")
    if not equals or not values.strip() or not path.strip():
        message = f"`{text[:60]}` is not an axis" if not equals or not path.strip() else f"`{path[:60]}` has no values"
        hint = "write it as `cluster.instances=1..8` or `policy=default,vllm-v1`"
        raise SpecError([located("BLIS1009", message, _whole(source), hint=hint)])
    place = Location(source, Span(1, 1, len(path) + 1))
    if found := _RANGE.match(values):
        start, end, step = (_number(one) for one in found.groups("1"))
        given: Json = {"from": start, "to": end, "step": step}
        document = Document(given, source, values={(): _whole(source)})
    else:
        listed = values if values.lstrip().startswith("[") else f"[{values}]"
        document = _yaml("--axis", text, " " * (len(text) - len(values) - (listed != values)) + listed)
        if not isinstance(document.data, list):
            raise SpecError([located("BLIS1009", f"`{values[:60]}` is not a list of values", _whole(source))])
    document.keys[()] = place
    return path.strip(), document


def parse_bound(text: str) -> Document:
    """``latency.ttft_ms.p99<=300`` as an expectation.

    Raises:
        SpecError: it is not of that form.
    """
    source = Source("--slo", text)
    found = _BOUND.match(text)
    if found is None or found[2] not in _KEYS:
        hint = "write it as `latency.ttft_ms.p99<=300`; there are <=, >= and =="
        raise SpecError([located("BLIS1009", f"`{text[:60]}` is not a bound on a metric", _whole(source), hint=hint)])
    start = found.start(3)
    value = _yaml("--slo", text, " " * start + found[3])
    place = Location(source, Span(1, found.start(1) + 1, found.end(1) + 1))
    document = Document({"metric": found[1]}, source, values={(): _whole(source), ("metric",): place})
    document.graft((_KEYS[found[2]],), value)
    return document


def parse_objective(text: str) -> Document:
    """``cost.gpus``, ``min:cost.gpus`` or ``max:throughput.output_tokens_per_s`` as an objective.

    Raises:
        SpecError: it is not of that form.
    """
    source = Source("--objective", text)
    goal, colon, metric = text.strip().rpartition(":")
    if (colon and goal not in {"min", "max"}) or not metric:
        hint = "write it as `min:cost.gpus` or `max:throughput.output_tokens_per_s`"
        raise SpecError([located("BLIS1009", f"`{text[:60]}` is not an objective", _whole(source), hint=hint)])
    given: Json = {"metric": metric, "goal": goal or "min"}
    place = _whole(source)
    return Document(given, source, values={(): place, ("metric",): place, ("goal",): place})


def _whole(source: Source) -> Location:
    return Location(source, Span(1, 1, max(2, len(source.text) + 1)))


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)


def _yaml(option: str, text: str, padded: str | None = None) -> Document:
    """YAML in an argument; blanks in place of what stands before it keep its columns true."""
    source = Source(option, text)
    document = parse(Source(option, text if padded is None else padded))
    return Document(
        document.data,
        source,
        {path: Location(source, place.span) for path, place in document.keys.items()},
        {path: Location(source, place.span) for path, place in document.values.items()},
    )
