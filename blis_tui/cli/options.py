"""Options shared by several commands, and the case of an experiment file that they select."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.cli import completion
from blis_tui.cli.standard_streams import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.base.source import Document
    from blis_tui.golden.case import Case
    from blis_tui.model.plug_ins import Registry


_Command = TypeVar("_Command", bound="Callable[..., object]")
_Grouped: TypeAlias = "Callable[..., object]"

KINDS: Final = ("experiment", "model", "hardware", "workload", "policy", "latency", "study")
"""Kinds of document, as commands take them."""
EXPORTS: Final = ("vllm", "sglang", "compose", "kubernetes", "llm-d")
"""What starts servers and can be written, as commands take it."""
MOST_JOBS: Final = 64
"""Maximum number of processes, about as many as one process can load experiments for."""


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and NaN, which would pass range checks."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; a non-finite one is a usage error."""
        number: float = super().convert(cast("float", value), param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


set_option: Final = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=completion.assignments,
    help="Override the value of a key (`blis-tui explain KEY`), such as cluster.instances=8; repeatable.",
)
seed_option: Final = click.option("--seed", type=click.IntRange(min=0), help="Override the experiment's seed.")
plugins_option: Final = click.option(
    "--plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    help="Run this code and make its plug-ins available to the experiment by name; repeatable.",
)


def _host(_context: click.Context, _option: click.Parameter, given: str) -> str:
    """Refuse names that no host can have, for which Python raises errors of several kinds."""
    try:
        given.encode("idna")
    except UnicodeError:
        raise click.BadParameter("not a valid host name") from None
    return given


host_option: Final = click.option(
    "--host", default="127.0.0.1", show_default=True, callback=_host, help="Address to listen on."
)


def format_option(
    *formats: str, about: str | None = None, default: str | None = None
) -> Callable[[_Command], _Command]:
    """``--format``, one of ``formats``; the first is the default.

    Args:
        formats: the formats.
        about: the help text.
        default: where the command chooses the format, given as None, the rule by which it does, in words.
    """
    kind = click.Choice(formats)
    if default is not None:
        return click.option("--format", "output_format", type=kind, help=f"{about or ''}  [default: {default}]".strip())
    return click.option("--format", "output_format", type=kind, default=formats[0], show_default=True, help=about)


def grouped(name: str, kind: type, *options: Callable[[_Grouped], _Grouped]) -> Callable[[_Command], _Command]:
    """Group options: the command gets them as one value ``name``, a dataclass with a field for each.

    A field without an option keeps its default.
    """
    parts = [field.name for field in fields(kind)]

    def mark(command: _Command) -> _Command:
        @wraps(command)
        def packed(*arguments: object, **given: object) -> object:
            made = kind(**{part: given.pop(part) for part in parts if part in given})
            return command(*arguments, **given, **{name: made})

        marked: _Grouped = packed
        for option in reversed(options):
            marked = option(marked)
        return cast("_Command", marked)

    return mark


def known_plugins(names: Sequence[str]) -> Registry | None:
    """Return the plug-ins that an experiment may name; None = those of this package.

    Raises:
        PolicyError: a requested plug-in does not exist or cannot be used.
        InputError: a script cannot be read.
    """
    if not names:
        return None
    from blis_tui.spec.user_plugins import load_plugins  # noqa: PLC0415  (only needed with plug-ins)

    return load_plugins(names)


case_option: Final = click.option(
    "--case", metavar="NAME", help="Use one of the file's cases (`cases`, `matrix`); --set is applied after it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The selected experiment: a case of the file, replaced values, and plug-ins."""

    case: str | None = None
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
    from blis_tui.base.diagnostics import suggestion  # noqa: PLC0415  (heavy imports only when the command runs)

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

    spec = Path("-") if source == "-" else locate(source)
    return cases_in_document(open_source(source, stdin_text), spec, plugins)


def cases_in_document(document: Document, spec: Path, plugins: Registry | None) -> Mapping[str, Case]:
    """Return the cases that a document, read from a file, declares, by name."""
    from blis_tui.base.source import as_map  # noqa: PLC0415

    if not as_map(document.data).keys() & {"cases", "matrix", "twins", "golden"}:
        return {}
    from blis_tui.golden.case import DEFAULT, cases_in  # noqa: PLC0415

    cases = {case.name: case for case in cases_in(document, spec, plugins) if case.is_run}
    return {} if list(cases) == [DEFAULT] and not cases[DEFAULT].overrides else cases
