"""Axes, bounds and objectives from command lines: ``--axis cluster.instances=1..8``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import Diagnostic, located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, Location, Source, Span, as_list, as_map
from blis_tui.spec.read import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blis_tui.base.source import DataPath, Json

_G = TypeVar("_G")
_T = TypeVar("_T")
_FIGURE: Final = r"(-?(?:[0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15}))"
_RANGE: Final = re.compile(rf"\s*{_FIGURE}\.\.{_FIGURE}(?:\.\.{_FIGURE})?\s*\Z")
"""``1..8``, ``5..40..5``: start, end, and step, as in shells."""
_LIKE_RANGE: Final = re.compile(r"[-+0-9. ]*\.\.[-+0-9. ]*\Z")
_BOUND: Final = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*(<=|>=|==|=|<|>)\s*(\S.*?)\s*\Z")
_KEYS: Final = {"<=": "max", ">=": "min", "==": "equals"}
_OBJECTIVE: Final = re.compile(r"\s*(?:(min|max):)?([A-Za-z0-9_.-]+)\s*\Z")


class AxisOption(NamedTuple):
    """An axis given by a dedicated option: ``--hardware h100,l40s``."""

    option: str
    path: str
    values: str


def study_of_arguments(
    document: Document,
    *,
    axes: Iterable[str | AxisOption] = (),
    slos: Iterable[str] = (),
    objectives: Iterable[str] = (),
    seeds: str = "",
    case: str | None = None,
    prices: Iterable[str] = (),
    price_table: Document | None = None,
) -> None:
    """Add command-line arguments to a study document, in place; an axis replaces the document's axis of that path.

    Prices from arguments override those of the table, which override the document's.

    Raises:
        SpecError: with every malformed argument.
    """
    if not isinstance(document.data, dict):
        return
    diagnostics: list[Diagnostic] = []
    given: list[str] = []
    priced: list[str] = []
    for text in axes:
        _take(text, parse_axis, diagnostics, lambda axis: _add_named(document, "axes", axis, given))
    for text in slos:
        _take(text, parse_bound, diagnostics, lambda bound: _add_entry(document, "constraints", bound))
    for text in objectives:
        _take(text, parse_objective, diagnostics, lambda objective: _add_entry(document, "objectives", objective))
    if price_table is not None:
        _take(price_table, _rows_of, diagnostics, lambda rows: _add_table(document, rows))
    for text in prices:
        _take(text, parse_price, diagnostics, lambda price: _add_named(document, "prices", price, priced))
    if seeds:
        _take(seeds, parse_seeds, diagnostics, lambda parsed: document.graft(("seeds",), parsed))
    if case is not None:
        source = Source("--case", case)
        document.graft(("case",), Document(case, source, values={(): _whole(source)}))
    if diagnostics:
        raise SpecError(diagnostics)


def _take(given: _G, parser: Callable[[_G], _T], diagnostics: list[Diagnostic], use: Callable[[_T], None]) -> None:
    try:
        use(parser(given))
    except SpecError as error:
        diagnostics += error.diagnostics


_TWICE: Final = {"axes": ("BLIS2062", "is the path of two axes"), "prices": ("BLIS1009", "has two prices")}
"""Code and message if an argument names the same entry of a map as an earlier one."""


def _add_named(document: Document, key: str, named: tuple[str, Document], given: list[str]) -> None:
    name, value = named
    if name in given:
        code, message = _TWICE[key]
        raise SpecError([located(code, f"`{name}` {message}", value.keys[()])])
    given.append(name)
    if not isinstance(document.get(key), dict):
        as_map(document.data)[key] = {}
    document.graft((key, name), value)


def _add_entry(document: Document, key: str, entry: Document) -> None:
    entries = as_list(document.get(key))
    as_map(document.data)[key] = entries
    entries.append(None)
    document.graft((key, len(entries) - 1), entry)


def _rows_of(table: Document) -> dict[str, Document]:
    """Return the prices of a file, by hardware name.

    Raises:
        SpecError: the file is not a map.
    """
    if not isinstance(table.data, dict):
        hint = "write it as a map from hardware to US dollars an hour for one GPU, such as `h100: 2.5`"
        raise SpecError([located("BLIS1009", "this is not a table of prices", table.place(()), hint=hint)])
    return {name: table.branch((name,)) for name in table.data}


def _add_table(document: Document, rows: dict[str, Document]) -> None:
    if not isinstance(document.get("prices"), dict):
        as_map(document.data)["prices"] = {}
    for name, price in rows.items():
        document.graft(("prices", name), price)


def parse_price(text: str) -> tuple[str, Document]:
    """Parse ``h100=2.5``: the name of a hardware, and the price of one accelerator in US dollars an hour.

    Raises:
        SpecError: the text does not have that form.
    """
    source = Source("--price", text)
    name, equals, price = text.partition("=")
    if not equals or not name.strip() or not price.strip():
        message = f"`{text[:60]}` is not a price"
        hint = "write it as `h100=2.5`, in US dollars an hour for one GPU"
        raise SpecError([located("BLIS1009", message, _whole(source), hint=hint)])
    document = _parsed(source, len(name) + 1, whole=True)
    document.keys[()] = Location(source, Span(1, 1, len(name) + 1))
    return name.strip(), document


def parse_axis(given: str | AxisOption) -> tuple[str, Document]:
    """Parse ``PATH=VALUES``: a range such as ``1..8`` or ``5..40..5``, or comma-separated values.

    Raises:
        SpecError: the text does not have that form.
    """
    if isinstance(given, AxisOption):
        source = Source(given.option, given.values)
        document = _axis_values(source, 0)
        document.keys[()] = _whole(source)
        return given.path, document
    text, source = given, Source("--axis", given)
    path, equals, values = text.partition("=")
    if not equals or not values.strip() or not path.strip():
        message = f"`{text[:60]}` is not an axis" if not equals or not path.strip() else f"`{path[:60]}` has no values"
        hint = "write it as `cluster.instances=1..8` or `policy=default,sjf`"
        raise SpecError([located("BLIS1009", message, _whole(source), hint=hint)])
    document = _axis_values(source, len(path) + 1)
    document.keys[()] = Location(source, Span(1, 1, len(path) + 1))
    return path.strip(), document


def _axis_values(source: Source, start: int) -> Document:
    """Return the values in an argument from ``start`` on. Raises SpecError if there are none."""
    values = source.text[start:]
    place = Location(source, Span(1, start + 1, len(source.text) + 1))
    if match := _RANGE.match(values):
        low, high, step = (_number(group) for group in match.groups("1"))
        given: Json = {"from": low, "to": high, "step": step}
        places: dict[DataPath, tuple[int, int]] = {
            ("from",): match.span(1),
            ("to",): match.span(2),
            ("step",): match.span(3),
        }
        known = {at: Location(source, Span(1, start + a + 1, start + b + 1)) for at, (a, b) in places.items() if a >= 0}
        document = Document(given, source, values={(): place, **known})
    elif _LIKE_RANGE.match(values):
        hint = "write it as FROM..TO or FROM..TO..STEP, such as `1..8` or `5..40..5`"
        raise SpecError([located("BLIS1009", f"`{values[:60]}` is not a range", place, hint=hint)])
    else:
        document = _parsed(source, start, whole=values.lstrip().startswith("["))
        if not isinstance(document.data, list):
            raise SpecError([located("BLIS1009", f"`{values[:60]}` is not a list of values", place)])
        if len(document.data) == 1 and "from" in as_map(document.data[0]):
            document = document.branch((0,))
    return document


def parse_bound(text: str, option: str = "--slo") -> Document:
    """Parse ``latency.ttft_ms.p99<=300`` as a constraint.

    Args:
        text: the constraint.
        option: the option that errors name.

    Raises:
        SpecError: the text does not have that form.
    """
    source = Source(option, text)
    match = _BOUND.match(text)
    if match is None or match[2] not in _KEYS:
        hint = "write it as `latency.ttft_ms.p99<=300`; there are <=, >= and =="
        raise SpecError([located("BLIS1009", f"`{text[:60]}` is not a bound on a metric", _whole(source), hint=hint)])
    place = Location(source, Span(1, match.start(1) + 1, match.end(1) + 1))
    document = Document({"metric": match[1]}, source, values={(): _whole(source), ("metric",): place})
    document.graft((_KEYS[match[2]],), _parsed(source, match.start(3), whole=True))
    return document


def parse_objective(text: str) -> Document:
    """Parse ``cost.gpus``, ``min:cost.gpus`` or ``max:throughput.output_tokens_per_s`` as an objective.

    Raises:
        SpecError: the text does not have that form.
    """
    source = Source("--objective", text)
    match = _OBJECTIVE.match(text)
    if match is None:
        hint = "write it as `min:cost.gpus` or `max:throughput.output_tokens_per_s`"
        raise SpecError([located("BLIS1009", f"`{text[:60]}` is not an objective", _whole(source), hint=hint)])
    given: Json = {"metric": match[2], "goal": match[1] or "min"}
    place = Location(source, Span(1, match.start(2) + 1, match.end(2) + 1))
    return Document(given, source, values={(): _whole(source), ("metric",): place})


def parse_seeds(text: str) -> Document:
    """Parse seeds: ``5`` is a number of seeds, ``1,2,3`` lists them.

    Raises:
        SpecError: the text is neither.
    """
    return _parsed(Source("--seeds", text), 0, whole="," not in text or text.lstrip().startswith("["))


def _whole(source: Source) -> Location:
    return Location(source, Span(1, 1, max(2, len(source.text) + 1)))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _parsed(source: Source, start: int, *, whole: bool) -> Document:
    """Parse the YAML in an argument from ``start`` on; without ``whole``, list items without brackets.

    Raises:
        SpecError: it is not YAML; positions refer to the argument.
    """
    shift = start - (0 if whole else 1)
    text = source.text[start:] if whole else f"[{source.text[start:]}]"
    try:
        document = parse(Source(source.name, text))
    except SpecError as error:
        raise SpecError([_shifted(diagnostic, source, shift) for diagnostic in error.diagnostics]) from None
    return Document(
        document.data,
        source,
        {path: _moved(place, source, shift) for path, place in document.keys.items()},
        {path: _moved(place, source, shift) for path, place in document.values.items()},
    )


def _moved(place: Location, source: Source, shift: int) -> Location:
    span = place.span
    if span.line > 1:
        return Location(source, Span(span.line, span.column, span.end_column))
    end = len(source.lines[0]) + 1
    return Location(source, Span(1, max(span.column + shift, 1), min(span.end_column + shift, end)))


def _shifted(diagnostic: Diagnostic, source: Source, shift: int) -> Diagnostic:
    if diagnostic.line != 1:
        return diagnostic
    end = len(source.lines[0]) + 1
    column = min(max(diagnostic.column + shift, 1), end)
    return replace(
        diagnostic, column=column, end_column=min(diagnostic.end_column + shift, end + 1), source_line=source.lines[0]
    )
