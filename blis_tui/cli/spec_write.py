"""The ``spec`` commands that write documents: ``new``, ``init``, ``fmt``, ``schema``."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from blis_tui.cli import completion
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_data, print_text, read_standard_input, tell, yaml_files
from blis_tui.cli.options import KINDS
from blis_tui.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.spec.source import Source


@click.command("new")
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("name", required=False)
@click.option("-o", "--output", metavar="FILE", help="File to write; - is standard output.  [default: NAME's file]")
@click.option("--all", "every", is_flag=True, help="Include every key, explained, with its default.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@reported
def new(kind: str, name: str | None, output: str | None, *, every: bool, force: bool) -> None:
    """Write a new document: about twenty lines, or with every key explained.

    KIND is experiment, model, hardware, workload, policy, latency or study. Required keys are filled in, others are
    commented out; the document is valid as it stands. NAME is `my-KIND` by default, and names the file in the working
    directory: NAME.blis.yaml for an experiment, NAME.study.yaml for a study, otherwise NAME.yaml. The file points
    editors to the schema in the nearest `schemas/` folder above it or, if there is none, to the installed one
    (`blis-tui spec schema -o schemas` makes a copy to share).
    """
    from blis_tui.authoring.template import file_name, schema_reference, short, template  # noqa: PLC0415
    from blis_tui.errors import InputError  # noqa: PLC0415
    from blis_tui.records.files import write_text  # noqa: PLC0415

    proper = kind.capitalize()
    name = name if name is not None else f"my-{kind}"
    _check_name(name)
    path = Path(file_name(proper, name) if output is None else output)
    schema, own = schema_reference(proper, Path() if output == "-" else path.parent)
    text = (template if every else short)(proper, name, schema)
    if output == "-":
        print_data(text)
        return
    if path.exists() and not force:
        raise InputError(f"{path} exists already", help="choose another name, or replace it with --force")
    write_text(path, text)
    tell(printable(f"wrote {path}"))
    if not own:
        tell("it uses the installed schema; `blis-tui spec schema -o schemas` makes a copy to share")


def _check_name(name: str) -> None:
    """Raise UsageError for a name that the document's schema would refuse."""
    from blis_tui.spec.schema import violations  # noqa: PLC0415

    wrong = [one for one in violations({"metadata": {"name": name}}, "Policy") if one.path == ("metadata", "name")]
    if wrong:
        raise click.UsageError(f"`{name}` is not a valid name: use lower-case letters, digits, `.` and `-`")


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files that exist already.")
@reported
def init(folder: Path, *, force: bool) -> None:
    """Create a small project in DIR: an experiment, its parts, its golden result, CI.

    The experiment has a workload and a policy of its own. The project also has its result, which `pytest` compares
    with, the schemas with editor settings, and CI configurations for GitHub and GitLab that run on each change and
    comment on it with what has changed. They install the blis-tui that made the project; unless that came from a
    package index, its wheel is in wheels/. Nothing is written if one of the files exists already.
    """
    from blis_tui.authoring.project import DEMO, project_files  # noqa: PLC0415
    from blis_tui.authoring.wheel import NAME, own_wheel  # noqa: PLC0415
    from blis_tui.records.trees import check_room, write_tree  # noqa: PLC0415

    texts = project_files()
    check_room(folder, texts, replace=force)  # before the slow part
    files: dict[str, str | bytes] = {**texts, **_goldens(texts, DEMO)}
    if (wheel := own_wheel()) is not None:
        files[f"wheels/{NAME}"] = wheel
    write_tree(folder, files, replace=force)
    from blis_tui.units import plural  # noqa: PLC0415  (most commands of this group do not need it)

    tell(f"wrote {plural(len(files), 'file')} below {folder}; next: blis-tui run {folder / DEMO}, and pytest there")


def _goldens(files: Mapping[str, str], spec: str) -> dict[str, str]:
    """Return the golden files of a project's experiment, so that its first `pytest` has something to compare with."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from blis_tui.golden.case import cases_of  # noqa: PLC0415
    from blis_tui.golden.session import Settings, run_case  # noqa: PLC0415
    from blis_tui.golden.store import files_of  # noqa: PLC0415
    from blis_tui.records.trees import write_tree  # noqa: PLC0415

    with TemporaryDirectory() as name:
        folder, goldens = Path(name), Path(name, "golden")
        write_tree(folder, files, replace=True)
        for case in cases_of(folder / spec):
            target = files_of(case.spec, case.name, folder=goldens, root=folder / "specs")
            run_case(case, target, spec, Settings(mode="always", checks=()))
        return {f"golden/{path.name}": path.read_text(encoding="utf-8") for path in sorted(goldens.iterdir())}


@click.command("fmt")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.files)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@reported
def fmt(paths: tuple[str, ...], *, check: bool, diff: bool) -> None:
    """Format documents; comments and values stay as they are.

    Two-space indentation, one space between tokens, no unnecessary quotes, at most one blank line in a row, top-level
    keys in the order of the schema. PATH is a file, a folder (every YAML file below it that is not hidden), or - to
    read standard input and write standard output. A file that cannot be formatted safely is left unchanged, with a
    message.
    """
    from blis_tui.authoring.formatting import format_source  # noqa: PLC0415

    def change(source: Source) -> str:
        formatted = format_source(source)
        if formatted.left_alone:
            tell(printable(f"{source.name} was left unchanged: it has {formatted.left_alone}"))
        return formatted.text

    rewrite(paths, change, check=check, diff=diff, done="formatted")


def rewrite(
    paths: tuple[str, ...],
    change: Callable[[Source], str],
    *,
    check: bool,
    diff: bool,
    done: str,
    unfinished: Callable[[], bool] = lambda: False,
) -> NoReturn:
    """Replace files by what ``change`` makes of them; an invalid file does not stop the others.

    Args:
        paths: files, folders, or - for standard input to output.
        change: returns the new text; may raise SpecError or InputError.
        check: write nothing; a needed change gives exit code 1.
        diff: write nothing; show what would change.
        done: the message about a changed file.
        unfinished: called at the end: whether something could not be changed that should be, which gives exit code 1.
    """
    from blis_tui.errors import InputError, SpecError  # noqa: PLC0415
    from blis_tui.records.files import write_text  # noqa: PLC0415

    code, changed = ExitCode.OK, 0
    files: list[str] = []
    for path in paths:
        try:
            files += yaml_files(path)
        except InputError as error:
            tell(f"error: {error}")
            code = ExitCode.IO
    for path in files:
        try:
            source, marked = _read(path)
            text = change(source)
            differs = text != source.text or marked
            if path == "-" and not check and not diff:
                print_data(text)
            elif differs and diff:
                from difflib import unified_diff  # noqa: PLC0415  (only needed here)

                lines = unified_diff(source.text.splitlines(), text.splitlines(), path, path, lineterm="")
                print_text("\n".join(map(printable, lines)))
            elif differs and not check:
                write_text(path, text)
            if differs and check:
                tell(printable(f"{path} would be {done}"))
            elif differs and not diff and path != "-":
                tell(printable(f"{done} {path}"))
            changed += differs
        except SpecError as error:
            tell(f"{error}\n")
            code = max(code, ExitCode.USAGE)
        except (InputError, OSError) as error:
            tell(f"error: {error}")
            code = ExitCode.IO
    if code is ExitCode.OK and ((changed and check) or unfinished()):
        code = ExitCode.CHECK_FAILED
    sys.exit(code)


def _read(path: str) -> tuple[Source, bool]:
    """Return the text, and whether it starts with a byte-order mark."""
    from blis_tui.inputs import read_input  # noqa: PLC0415
    from blis_tui.spec.loader import MAX_BYTES, decode  # noqa: PLC0415

    if path == "-":
        return decode(read_standard_input(), "<stdin>", Path.cwd()), False
    raw = read_input(path, limit=MAX_BYTES)
    return decode(raw, path, Path(path).parent), raw.startswith(BOM_UTF8)


@click.command("schema")
@click.argument("kind", metavar="[KIND]", type=click.Choice((*KINDS, "common")), required=False)
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(path_type=Path), help="Write the schemas to this folder."
)
@reported
def schema(kind: str | None, folder: Path | None) -> None:
    """Print the JSON Schema for a KIND of document, or export all schemas.

    KIND is experiment, model, hardware, workload, policy, latency, study, or common (definitions that the others
    share). With -o DIR, all schemas (or that of KIND and those it refers to) are written to DIR, replacing older
    copies.
    """
    from blis_tui.authoring.export import schema_files, with_references  # noqa: PLC0415
    from blis_tui.records.trees import write_tree  # noqa: PLC0415

    files = schema_files()
    if folder is not None:
        chosen = files if kind is None else with_references(f"{kind}.schema.json", files)
        write_tree(folder, chosen, replace=True)
        from blis_tui.units import plural  # noqa: PLC0415  (most commands of this group do not need it)

        tell(f"wrote {plural(len(chosen), 'schema')} to {folder}")
    elif kind is None:
        raise click.UsageError("give the KIND to print, or export all of them with -o")
    else:
        print_data(files[f"{kind}.schema.json"])
