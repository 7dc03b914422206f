"""Selects a case of an experiment file (``cases:``, ``matrix:``) on the command line, or mentions the cases."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from blis_tui.classes import dataclass
from blis_tui.cli.files import tell
from blis_tui.cli.options import grouped, known_plugins, plugins_option, seed_option, set_option
from blis_tui.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.golden.case import Case
    from blis_tui.registry import Registry

case_option: Final = click.option(
    "--case", metavar="NAME", help="Use one of the file's cases (`cases`, `matrix`); --set is applied after it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The selected experiment: a case of the file, replaced values, and plug-ins."""

    case: str | None
    overrides: tuple[str, ...]
    seed: int | None
    plugins: tuple[str, ...]

    def known(self) -> Registry | None:
        """Return the plug-ins that it may name; see ``known_plugins``."""
        return known_plugins(self.plugins)


chosen_options: Final = grouped("chosen", Chosen, case_option, set_option, seed_option, plugins_option)
"""Options of commands that take an experiment, passed to them as one value ``chosen``."""


def case_overrides(
    source: str, name: str | None, overrides: tuple[str, ...], stdin_text: str | None, plugins: Registry | None
) -> tuple[str, ...]:
    """Return the assignments of a case followed by the given ones; without a name, only these.

    Raises:
        click.UsageError: there is no such case.
        SpecError: the document is invalid.
        InputError: it cannot be read.
    """
    if name is None:
        return overrides
    from blis_tui.spec.diagnostics import suggestion  # noqa: PLC0415  (heavy imports only when the command runs)

    cases = cases_by_name(source, stdin_text, plugins)
    if name not in cases:
        missing = "the file has neither `cases` nor `matrix`"
        known = suggestion(name, cases, otherwise="the cases are") if cases else missing
        raise click.UsageError(f"{source} has no case `{name}`: {known}")
    return (*cases[name].assignments, *overrides)


def mention_cases(source: str, stdin_text: str | None, plugins: Registry | None) -> None:
    """Say on standard error which cases of a valid document are not covered."""
    from blis_tui.spec.compose import shown  # noqa: PLC0415

    cases = list(cases_by_name(source, stdin_text, plugins).values())
    if not cases:
        return
    count = "1 case" if len(cases) == 1 else f"{len(cases):,} cases"
    name = "standard input" if source == "-" else printable(source)
    note = f"note: {name} has {count}; this run uses none of them\n"
    note += f"  = help: select one with --case {quote(cases[0].name)}"
    if source != "-":
        file = printable(shown(cases[0].spec))
        note += f"; pytest {quote(f'{file}::{cases[0].name}')} tests one, pytest {quote(file)} all"
    tell(note)


def cases_by_name(source: str, stdin_text: str | None, plugins: Registry | None) -> Mapping[str, Case]:
    """Return the cases that a file declares, by name."""
    from blis_tui.spec.load import locate, open_source  # noqa: PLC0415
    from blis_tui.spec.source import as_map  # noqa: PLC0415

    spec = Path("-") if source == "-" else locate(source)
    document = open_source(source, stdin_text)
    if not as_map(document.data).keys() & {"cases", "matrix", "twins", "golden"}:
        return {}
    from blis_tui.golden.case import DEFAULT, cases_in  # noqa: PLC0415

    cases = {one.name: one for one in cases_in(document, spec, plugins) if one.is_run}
    return {} if list(cases) == [DEFAULT] and not cases[DEFAULT].overrides else cases
