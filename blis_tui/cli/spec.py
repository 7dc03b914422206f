"""``blis-tui spec``: lists, shows, writes, converts and resolves documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli import completion, spec_write
from blis_tui.cli.failures import reported
from blis_tui.cli.files import print_data, print_text, read_standard_input_text, require_no_overwrite, tell
from blis_tui.cli.options import KINDS, format_option, known_plugins, plugins_option, seed_option, set_option
from blis_tui.printable import printable

if TYPE_CHECKING:
    from blis_tui.spec.library import Entry


class _Group(click.Group):
    """A group whose import commands are in a module that is imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), _IMPORT])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != _IMPORT:
            return super().get_command(ctx, cmd_name)
        from blis_tui.cli.import_ import import_  # noqa: PLC0415

        return import_


_IMPORT: Final = "import"


@click.group("spec", cls=_Group)
def spec() -> None:
    """Find, write, format and convert documents."""


for _command in (
    spec_write.new,
    spec_write.init,
    spec_write.fmt,
    spec_write.schema,
):
    spec.add_command(_command)


@spec.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="List only documents of this kind.")
@format_option("text", "json")
@reported
def list_specs(kind: str | None, output_format: str) -> None:
    """List the documents that can be named: your own in ./specs first, then the shipped ones."""
    from blis_tui.spec.library import description, entries  # noqa: PLC0415  (heavy imports only when the command runs)

    chosen = [entry for entry in entries(Path.cwd()) if kind is None or entry.kind.lower() == kind]
    rows = [(entry, description(entry.path)) for entry in chosen]
    if output_format == "json":
        listed = [
            {"kind": entry.kind, "name": entry.name, "shipped": entry.shipped, "description": about}
            for entry, about in rows
        ]
        print_text(_json(listed), nl=False)
        return
    width = max((len(entry.name) for entry in chosen), default=0)
    for entry, about in rows:
        print_text(f"{entry.kind.lower():<11} {printable(entry.name):<{width}}  {printable(about)}".rstrip())


@spec.command("show")
@click.argument("name", shell_complete=completion.documents)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="The kind to show, if documents of several kinds share the name.",
)
@click.option(
    "--resolved",
    is_flag=True,
    help="Print it resolved, as JSON: references followed, defaults filled in, `auto` computed.",
)
@set_option
@reported
def show(name: str, kind: str | None, overrides: tuple[str, ...], *, resolved: bool) -> None:
    """Print the document NAME (or the file at that path)."""
    from blis_tui.spec.loader import read_source  # noqa: PLC0415

    entry = _find(name, kind)
    text = _resolved(entry, overrides) if resolved or overrides else read_source(entry.path).text
    print_data(text)


@spec.command("resolve")
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@set_option
@seed_option
@plugins_option
@format_option(
    "yaml", "json", about="yaml: a document that can be run; json: the document and the origin of each value, as data."
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@reported
def resolve(
    source: str,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
    output_format: str,
    output: str | None,
) -> None:
    """Print an experiment with everything it refers to resolved.

    References are followed, defaults filled in, `auto` computed. A comment on each line says where its value comes
    from: file and line, a default, --set, the parent it extends, or computed. The result is a self-contained document
    with the same spec_sha256; it names a trace by its absolute path, or relative to FILE.
    """
    from blis_tui.authoring.provenance import compose  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.records.files import write_text  # noqa: PLC0415

    to_file = output not in (None, "-")
    stdin_text = read_standard_input_text() if source == "-" else None
    composed = compose(
        source,
        overrides=overrides,
        seed=seed,
        stdin_text=stdin_text,
        relative_to=Path(str(output)).parent if to_file else None,
        plugins=known_plugins(plugins),
    )
    text = composed.to_yaml() if output_format == "yaml" else _json(composed.to_data())
    if to_file:
        require_no_overwrite({"-o": output}, composed.files)
        write_text(str(output), text)
    else:
        print_data(text)


def _find(name: str, kind: str | None) -> Entry:
    """Return the document; among several kinds prefer the experiment, else the first in the order of ``spec list``."""
    from blis_tui.errors import InputError  # noqa: PLC0415
    from blis_tui.spec.compose import is_path  # noqa: PLC0415
    from blis_tui.spec.diagnostics import suggestion  # noqa: PLC0415
    from blis_tui.spec.library import Entry, entries, find_by_id, is_id  # noqa: PLC0415
    from blis_tui.spec.places import shipped_specs  # noqa: PLC0415

    if is_id(name) and not Path(name).is_file() and (model := find_by_id(name, Path.cwd())) is not None:
        return Entry("Model", name, model, shipped=model.is_relative_to(shipped_specs()))
    if is_path(name):
        return Entry((kind or "").capitalize(), name, Path(name), shipped=False)
    known = [entry for entry in entries(Path.cwd()) if kind is None or entry.kind.lower() == kind]
    found = [entry for entry in known if entry.name == name]
    if not found:
        names = {entry.name for entry in known}
        raise InputError(f"there is no {kind or 'document'} named `{name}`", help=suggestion(name, names))
    chosen, *others = found
    for other in others:
        tell(f"note: this is the {chosen.kind.lower()} `{name}`; --kind {other.kind.lower()} shows the other one")
    return chosen


def _resolved(entry: Entry, overrides: tuple[str, ...]) -> str:
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.spec.validate import validate  # noqa: PLC0415

    if entry.kind == "Experiment" or overrides:
        data: object = load(entry.path, overrides=overrides).document
    else:
        valid = validate(entry.path)
        data = load(entry.path).document if valid.kind == "Experiment" else valid.data
    return _json(data)


def _json(data: object) -> str:
    from blis_tui.canonical import to_json  # noqa: PLC0415  (not needed for a list)

    return to_json(data)
