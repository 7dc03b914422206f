"""``blis-tui validate``: check documents of any kind without running anything."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from blis_tui.canonical import to_json
from blis_tui.classes import dataclass
from blis_tui.cli import completion
from blis_tui.cli.cases import cases_by_name
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_text, read_standard_input_text, tell, yaml_files
from blis_tui.cli.options import format_option, known_plugins, plugins_option
from blis_tui.printable import printable

if TYPE_CHECKING:
    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What validation found in one document."""

    file: str
    kind: str = ""
    name: str = ""
    cases: int = 0
    """How many cases (`cases`, `matrix`) it has besides; they are not checked."""
    diagnostics: tuple[Diagnostic, ...] = ()
    unreadable: str = ""
    """Why the file could not be read; empty = it could."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.diagnostics and not self.unreadable


@click.command("validate")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.studies)
@format_option("text", "json", about="text: errors on stderr as a compiler prints them; json: one document on stdout.")
@plugins_option
@reported
def validate(paths: tuple[str, ...], output_format: str, plugins: tuple[str, ...]) -> None:
    """Check documents of any kind: syntax, schema, meaning.

    PATH is a file, a folder (every YAML file below it that is not hidden), the name of an experiment or
    a study, or - for standard input. Of a recorded workload, the rows within the first 4 MiB are checked, too.
    """
    stdin_text = read_standard_input_text() if "-" in paths else None
    known = known_plugins(plugins)
    outcomes = [_check(source, stdin_text, known) for source in yaml_files(paths)]
    if output_format == "json":
        print_text(_as_json(outcomes), nl=False)
    else:
        _print_text(outcomes)
    if any(outcome.unreadable for outcome in outcomes):
        sys.exit(ExitCode.IO)
    if not all(outcome.ok for outcome in outcomes):
        sys.exit(ExitCode.USAGE)


def _check(source: str, stdin_text: str | None, plugins: Registry | None) -> Outcome:
    from blis_tui.errors import InputError, SpecError, TraceError  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.spec.validate import validate as check_document  # noqa: PLC0415
    from blis_tui.study.figures import require_figures  # noqa: PLC0415

    try:
        valid = check_document(source, stdin_text=stdin_text, plugins=plugins)
        if valid.study is not None:
            require_figures(valid.study)
        cases = len(cases_by_name(source, stdin_text, plugins)) if valid.kind == "Experiment" else 0
    except (SpecError, TraceError) as error:
        return Outcome(file=source, diagnostics=error.diagnostics)
    except InputError as error:
        return Outcome(file=source, unreadable=str(error))
    return Outcome(file=source, kind=valid.kind, name=valid.name, cases=cases)


def _print_text(outcomes: list[Outcome]) -> None:
    from blis_tui.spec.diagnostics import render_text  # noqa: PLC0415
    from blis_tui.units import plural  # noqa: PLC0415

    for outcome in outcomes:
        if outcome.ok:
            cases = f"; its {outcome.cases:,} cases are pytest's to check" if outcome.cases else ""
            print_text(printable(f"ok  {outcome.file}  ({outcome.kind} {outcome.name}{cases})"))
        elif outcome.unreadable:
            tell(f"error: {outcome.unreadable}\n")
        else:
            tell(render_text(outcome.diagnostics) + "\n")
    bad = sum(not outcome.ok for outcome in outcomes)
    documents = plural(len(outcomes), "document")
    print_text(f"{documents}, {bad} with errors" if bad else f"{documents}, no errors")


def _as_json(outcomes: list[Outcome]) -> str:
    documents = [
        {
            "file": outcome.file,
            "ok": outcome.ok,
            "kind": outcome.kind,
            "name": outcome.name,
            "cases": outcome.cases,
            "unreadable": outcome.unreadable,
            "diagnostics": [asdict(one) for one in outcome.diagnostics],
        }
        for outcome in outcomes
    ]
    return to_json({"ok": all(outcome.ok for outcome in outcomes), "documents": documents})
