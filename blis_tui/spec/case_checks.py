"""Checks the cases of an experiment: each is resolved and checked like the experiment itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import SpecError
from blis_tui.spec.diagnostics import about, in_order, suggestion
from blis_tui.spec.load import resolve_document
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.model import Experiment
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.resolve import Resolved
    from blis_tui.spec.source import Document

_MOST: Final = 1000
"""Maximum number of cases that are checked; each takes milliseconds."""
_OF_CASES: Final = (("cases",), ("matrix",))
_FEW: Final = 16
"""Number of cases that are checked in any case."""
_MOST_BYTES: Final = 2**30
"""Maximum total size of the traces that are read for that."""
_MOST_WRONG: Final = 20
"""Number of cases with errors after which no more are checked."""


@dataclass(frozen=True, slots=True)
class CheckedCases:
    """The result of checking the cases of an experiment."""

    count: int
    """Number of cases that were checked."""
    diagnostics: tuple[Diagnostic, ...]


def check_cases(
    document: Document,
    cases: Mapping[str, tuple[Override, ...]],
    *,
    plugins: Registry | None = None,
    trace_bytes: int = 0,
    also: Callable[[Resolved], None] = lambda _: None,
) -> CheckedCases:
    """Check the cases of a sound experiment, of very many a sample that has as many of their values as it can.

    A problem that several cases have is reported once, with the first of them.

    Args:
        document: the experiment as it was read.
        cases: the assignments of its cases, by name.
        plugins: additional plug-ins that it may name.
        trace_bytes: size of the experiment's trace, which is read for each case.
        also: another check of a resolved case, which raises SpecError.
    """
    found: dict[tuple[object, ...], Diagnostic] = {}
    wrong = count = 0
    most = min(_MOST, max(_FEW, _MOST_BYTES // max(trace_bytes, 1)))
    for name, overrides in _sample(cases, most):
        count += 1
        try:
            also(resolve_document(document.copy(), overrides, plugins))
        except SpecError as error:
            for one in error.diagnostics:
                found.setdefault((one.file, one.line, one.column, one.code, one.message), _named(one, name, document))
            wrong += 1
            if wrong == _MOST_WRONG:
                break
    return CheckedCases(count, tuple(in_order(found.values())))


def unknown_expectations(document: Document, experiment: Experiment) -> list[Diagnostic]:
    """Return a diagnostic for each expectation that is said to be broken (`golden.xfail`), but that there is not."""
    from blis_tui.conditions.course import text_of  # noqa: PLC0415  (few experiments have these)

    known = [*(one.metric for one in experiment.expect), *map(text_of, experiment.course)]
    found = []
    for at, name in enumerate(as_list(as_map(document.get("golden")).get("xfail"))):
        if name not in known:
            message = f"`{name}` is not an expectation of the experiment"
            hint = suggestion(str(name), known, otherwise="they are") if known else "it has no `expect`"
            found.append(about(document, ("golden", "xfail", at), "BLIS2013", message, hint=hint))
    return found


def _sample(cases: Mapping[str, tuple[Override, ...]], most: int) -> Iterator[tuple[str, tuple[Override, ...]]]:
    """Yield all cases, or of very many those with a new value (up to half of ``most``), and some of the others."""
    if len(cases) <= most:
        yield from cases.items()
        return
    seen: set[tuple[str, str]] = set()
    left = most // 2
    stride = -(-len(cases) // left)
    for number, case in enumerate(cases.items()):
        values = {(one.path, repr(one.value.data)) for one in case[1]} if left else seen
        new = not values <= seen
        if new or not number % stride:
            yield case
        if new:
            seen |= values
            left -= 1


def _named(one: Diagnostic, case: str, document: Document) -> Diagnostic:
    """Return a diagnostic that names the case, unless it is about a line of the cases."""
    written = (*document.keys.items(), *document.values.items())
    lines = {place.span.line for path, place in written if path[:1] in _OF_CASES and path[1:]}
    own = one.file == document.source.name and one.line in lines
    return one if own else replace(one, message=f"case `{case}`: {one.message}")
