"""``blis-tui spec``: what documents there are, and what an experiment resolves to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.cli import completing, spec_read, spec_write
from blis_tui.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from blis_tui.errors import BlisError
    from blis_tui.spec.library import Entry

KINDS = spec_read.KINDS


@click.group("spec")
def spec() -> None:
    """Find, write, check and understand specifications."""


for _command in (
    spec_read.resolve,
    spec_read.explain,
    spec_write.new,
    spec_write.init,
    spec_write.fmt,
    spec_write.migrate,
    spec_write.schema,
):
    spec.add_command(_command)


@spec.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Only documents of this kind.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_specs(kind: str | None, output_format: str) -> None:
    """List the documents that have names: own ones in ./specs first, then the shipped ones."""
    from blis_tui.spec.library import entries  # noqa: PLC0415

    chosen = [entry for entry in entries(Path.cwd()) if kind is None or entry.kind.lower() == kind]
    rows = [(entry, _description(entry)) for entry in chosen]
    if output_format == "json":
        listed = [
            {"kind": entry.kind, "name": entry.name, "shipped": entry.shipped, "description": description}
            for entry, description in rows
        ]
        click.echo(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    width = max((len(entry.name) for entry in chosen), default=0)
    for entry, description in rows:
        click.echo(f"{entry.kind.lower():<11} {entry.name:<{width}}  {description}".rstrip())


@spec.command("show")
@click.argument("name", shell_complete=completing.documents)
@click.option("--kind", type=click.Choice(KINDS), help="Which kind, if documents of several kinds share the name.")
@click.option("--resolved", is_flag=True, help="As JSON: references followed, defaults filled in, `auto` computed.")
@click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    shell_complete=completing.assignments,
    help="Override a value of an experiment.",
)
def show(name: str, kind: str | None, overrides: tuple[str, ...], *, resolved: bool) -> None:
    """Print the document NAME (or the file at that path)."""
    from blis_tui.errors import BlisError, InputError  # noqa: PLC0415
    from blis_tui.spec.loader import read_source  # noqa: PLC0415

    try:
        entry = _find(name, kind, prefer_experiment=resolved or bool(overrides))
        if resolved or overrides:
            click.echo(_resolved(entry, overrides))
        else:
            click.echo(read_source(entry.path).text, nl=False)
    except BlisError as error:
        click.echo(_error_text(error), err=True)
        sys.exit(ExitCode.IO if isinstance(error, InputError) else ExitCode.USAGE)


def _error_text(error: BlisError) -> str:
    from blis_tui.errors import SpecError  # noqa: PLC0415

    return str(error) if isinstance(error, SpecError) else f"error: {error}"


def _find(name: str, kind: str | None, *, prefer_experiment: bool) -> Entry:
    from blis_tui.errors import InputError  # noqa: PLC0415
    from blis_tui.spec.compose import is_path  # noqa: PLC0415
    from blis_tui.spec.diagnostics import suggestion  # noqa: PLC0415
    from blis_tui.spec.hf_ids import find_by_id, is_id  # noqa: PLC0415
    from blis_tui.spec.library import Entry, entries, shipped_specs  # noqa: PLC0415

    if is_id(name) and not Path(name).is_file() and (model := find_by_id(name, Path.cwd())) is not None:
        return Entry("Model", name, model, shipped=model.is_relative_to(shipped_specs()))
    if is_path(name):
        return Entry((kind or "").capitalize(), name, Path(name), shipped=False)
    known = [entry for entry in entries(Path.cwd()) if kind is None or entry.kind.lower() == kind]
    found = [entry for entry in known if entry.name == name]
    if prefer_experiment and len(found) > 1:
        found = [entry for entry in found if entry.kind == "Experiment"] or found
    if len(found) > 1:
        kinds = ", ".join(entry.kind.lower() for entry in found)
        raise click.UsageError(f"`{name}` is the name of several documents ({kinds}); choose with --kind")
    if not found:
        names = {entry.name for entry in known}
        raise InputError(f"there is no {kind or 'document'} named `{name}`", help=suggestion(name, names))
    return found[0]


def _resolved(entry: Entry, overrides: tuple[str, ...]) -> str:
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.spec.validate import validate  # noqa: PLC0415

    if entry.kind == "Experiment" or overrides:
        data: object = load(entry.path, overrides=overrides).document
    else:
        valid = validate(entry.path)
        data = load(entry.path).document if valid.kind == "Experiment" else valid.data
    return json.dumps(data, indent=2, ensure_ascii=False)


def _description(entry: Entry) -> str:
    """The document's own description; empty when the file cannot be read."""
    from blis_tui.errors import BlisError  # noqa: PLC0415
    from blis_tui.spec.loader import read_document  # noqa: PLC0415

    try:
        description = read_document(entry.path).get("metadata", "description")
    except BlisError:
        return ""
    return description if isinstance(description, str) else ""
