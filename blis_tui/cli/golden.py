"""``blis-tui golden``: shows golden files and waiting results."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.cli.help import Group
from blis_tui.cli.options import grouped, plugins_option
from blis_tui.cli.standard_streams import ExitCode, print_text, reported, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.golden.project import Project
    from blis_tui.model.plug_ins import Registry

_names = click.argument("names", metavar="[NAME]...", nargs=-1)


@dataclass(frozen=True, slots=True)
class _Where:
    """The selection of goldens by options.

    Attributes:
        folder: folder of the golden files; None = the project's.
        root: the folder in which the tests run; None = that of the current project.
    """

    folder: Path | None = None
    root: Path | None = None

    def project(self) -> Project:
        """Return the project with the chosen folders.

        Raises:
            InputError: a configuration of pytest cannot be read.
        """
        from blis_tui.golden.project import chosen  # noqa: PLC0415

        return chosen(self.root, self.folder)


_project = grouped(
    "where",
    _Where,
    click.option(
        "--golden-dir",
        "folder",
        type=click.Path(path_type=Path),
        help="Folder with the golden files [default: the project's].",
    ),
    click.option(
        "--root",
        type=click.Path(path_type=Path),
        help="Root folder of the project, where its tests run [default: the nearest one with a pytest configuration, "
        "from the working directory up].",
    ),
)

_LISTS: Final = ("table", "json")
_COMMENTS: Final = ("markdown", "github", "gitlab")


@click.group(cls=Group)
def golden() -> None:
    """Golden tests: every experiment and every study below the folder where pytest runs.

    `pytest` compares results with the goldens. A result that differs waits next to its golden until you accept or
    reject it: `status` shows what is waiting, `review` decides.
    """


@golden.command(short_help="Show the state of goldens: which are waiting, and what their new results would change.")
@_names
@_project
@plugins_option
@click.option(
    "--format",
    "style",
    type=click.Choice([*_LISTS, "diff", *_COMMENTS]),
    default="table",
    show_default=True,
    help="table, json: a list; diff: what waiting results would change, with the first event that diverges; others: "
    "the same as a comment on a pull request.",
)
@click.option("--json", "style", flag_value="json", hidden=True)
@reported
def status(names: tuple[str, ...], where: _Where, style: str, plugins: tuple[str, ...]) -> None:
    """Show which goldens are waiting for a decision, which are obsolete or broken, and what new results would change.

    The exit code is 1 if a result is waiting, a golden is obsolete or broken, or (as a comment) an expectation fails.
    On CI, `pytest --blis-update=new` produces the results that comments report on.
    """
    project = where.project()
    if names:
        _require_found(project.golden_dir, names)
    known, folder, root = project.registry(plugins), project.golden_dir, project.root
    if style in _COMMENTS:
        from blis_tui.golden.comment import STYLES, comment  # noqa: PLC0415  (heavy imports only when it runs)

        text, fine = comment(folder, root, names, known, STYLES[style])
        print_text(text, nl=False)
    elif style == "diff":
        fine = _differences(folder, root, names, known)
    else:
        fine = _list(folder, root, names, known, as_json=style == "json")
    if not fine:
        sys.exit(ExitCode.CHECK_FAILED)


def _differences(folder: Path, root: Path, names: Sequence[str], known: Registry | None) -> bool:
    """Print what waiting results would change; return whether none waits."""
    from blis_tui.golden.review import difference_text  # noqa: PLC0415

    waiting = _golden_files(folder, names, pending=True)
    for files in waiting:
        print_text(difference_text(files, root, known) + "\n")
    return not waiting


def _list(folder: Path, root: Path, names: Sequence[str], known: Registry | None, *, as_json: bool) -> bool:
    """List all goldens; return whether none waits, is obsolete or broken."""
    from blis_tui.base.text import aligned  # noqa: PLC0415
    from blis_tui.golden.review import summary, survey, unused  # noqa: PLC0415

    entries, files = survey(folder, root, names, known), unused(folder, names)
    if as_json:
        print_text(to_json([*(entry.to_dict() for entry in entries), *map(_unused, files)]), nl=False)
    else:
        rows = [
            (entry.state, entry.name, entry.problem.partition("\n")[0] or f"{entry.spec}::{entry.case}")
            for entry in entries
        ]
        rows += [("unused", file, "belongs to no golden") for file in files]
        for line in aligned(rows, ()):
            print_text(printable(line))
        print_text(summary(entries))
        if files or any(entry.state == "obsolete" for entry in entries):
            tell("what no experiment has any more is deleted by `blis-tui golden review --delete-obsolete`")
    return not files and not any(entry.waiting or entry.state != "golden" for entry in entries)


def _unused(file: str) -> dict[str, object]:
    """Return a file that belongs to no golden as an entry of the list."""
    entry: dict[str, object] = {"name": file, "spec": "", "case": "", "golden": False, "pending": False}
    return entry | {"orphan": True, "problem": "belongs to no golden"}


@golden.command(short_help="Accept or reject waiting results: one by one, or all that are named.")
@_names
@_project
@plugins_option
@click.option("--accept", is_flag=True, help="Make the waiting results the goldens, without asking.")
@click.option("--reject", is_flag=True, help="Discard the waiting results, without asking.")
@click.option("--delete-obsolete", is_flag=True, help="Delete goldens and files that no experiment has any more.")
@click.option("--force", is_flag=True, help="Also accept results made with another Python or system than the golden's.")
@reported
def review(
    names: tuple[str, ...],
    where: _Where,
    plugins: tuple[str, ...],
    accept: bool,
    reject: bool,
    delete_obsolete: bool,
    force: bool,
) -> None:
    """Accept or reject waiting results: those that match NAME, or all.

    NAME is a name or a file as listed by `status`, or a pattern for either.

    Asks about each in turn: a accept, r reject, s skip, d show the diff again, q quit. Without a terminal, it lists the
    results with the commands that decide. With --accept, --reject or --delete-obsolete, nothing is asked.
    """
    if accept and reject:
        raise click.UsageError("--accept and --reject exclude each other")
    if delete_obsolete and (accept or reject):
        raise click.UsageError("--delete-obsolete decides about no result: without --accept and --reject")
    project = where.project()
    if delete_obsolete:
        _delete_obsolete(project, names, plugins)
        return
    waiting = _waiting(project.golden_dir, names)
    if accept or reject:
        verdict = "accept" if accept else "reject"
        for files in waiting:
            _decide(files, verdict, force=force)
            print_text(f"{verdict}ed {printable(files.name)}")
    elif not sys.stdin.isatty():
        from blis_tui.golden.project import plugins_option as load  # noqa: PLC0415

        options = printable(project.options() + load(plugins))
        for files in waiting:
            print_text(printable(files.name))
            for command in ("status --format diff", "review --accept", "review --reject"):
                print_text(f"    blis-tui golden {command} {printable(quote(files.name))}{options}")
    else:
        _ask_about(waiting, project.root, project.registry(plugins), force=force)


def _delete_obsolete(project: Project, names: Sequence[str], plugins: Sequence[str]) -> None:
    """Delete what no experiment has any more, and say what that was."""
    from blis_tui.golden.review import delete_obsolete  # noqa: PLC0415

    if names:
        _require_found(project.golden_dir, names)
    deleted = delete_obsolete(project.golden_dir, project.root, names, project.registry(plugins))
    for name in deleted:
        print_text(printable(f"deleted {name}"))
    if not deleted:
        tell("no golden is obsolete")


def _waiting(folder: Path, names: Sequence[str]) -> Sequence[GoldenFiles]:
    """Return the selected goldens with a waiting result; what a killed process has begun is done first."""
    from blis_tui.golden.review import find  # noqa: PLC0415

    for files in find(folder, names):
        files.finish()
    return _golden_files(folder, names, pending=True)


def _decide(files: GoldenFiles, verdict: str, *, force: bool, shown: Golden | None = None) -> None:
    from blis_tui.golden.review import accept, reject  # noqa: PLC0415

    if verdict == "accept":
        accept(files, force=force, shown=shown)
    else:
        reject(files, shown=shown)


def _ask_about(waiting: Sequence[GoldenFiles], root: Path, known: Registry | None, *, force: bool) -> None:
    for number, files in enumerate(waiting, 1):
        print_text(f"--- {number} of {len(waiting)} ---")
        if not _asked_about(files, root, known, force=force):
            return


def _asked_about(files: GoldenFiles, root: Path, known: Registry | None, *, force: bool) -> bool:
    """Show a result and act on the answer; return False to quit."""
    from blis_tui.golden.review import ReplacedError, difference_text, waiting  # noqa: PLC0415

    while True:
        shown = waiting(files)
        text = difference_text(files, root, known, shown)
        print_text(f"{text}\n")
        answer = _ask(text)
        if answer in ("q", "s"):
            return answer == "s"
        try:
            _decide(files, "accept" if answer == "a" else "reject", force=force, shown=shown)
        except ReplacedError as error:
            print_text(f"{error}:\n")
        else:
            return True


@golden.command(short_help="Run golden tests again whenever a file that they read is saved.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@_project
@plugins_option
@click.option("--all", "everything", is_flag=True, help="Run all tests at the beginning, too.")
@reported
def watch(paths: tuple[Path, ...], where: _Where, plugins: tuple[str, ...], everything: bool) -> None:
    """Run golden tests again whenever a file that they read is saved.

    These are the experiment, what it extends or names, traces, recordings, scripts with plug-ins, and the golden.

    PATH is an experiment, a study, or a folder; by default, everything that pytest would run. New results wait next to
    their goldens, as with pytest.

    On a terminal, it shows what has changed and asks: a accept, s skip, enter show the first divergence again, r run
    all, q quit. Elsewhere, it prints one line for each test. Ctrl-C ends it with exit code 130.
    """
    from blis_tui.cli.golden_watch import watch_goldens  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.golden.watch import Watch  # noqa: PLC0415

    with Watch(where.project(), paths, plugins) as watched:
        watch_goldens(watched, everything=everything)


@golden.command(short_help="Store the event records of goldens.")
@_names
@_project
@plugins_option
@click.option("--full", is_flag=True, hidden=True)
@reported
def record(names: tuple[str, ...], where: _Where, full: bool, plugins: tuple[str, ...]) -> None:  # noqa: ARG001  (was needed once)
    """Store the event records of goldens, to name the exact event at which a later engine's results diverge.

    A golden whose result this engine no longer reproduces is left as it is.
    """
    from blis_tui.golden.review import record_full  # noqa: PLC0415

    project = where.project()
    known = project.registry(plugins)
    for files in _golden_files(project.golden_dir, names):
        print_text(printable(f"{record_full(files, project.root, known)} {files.name}"))


def _golden_files(folder: Path, names: Sequence[str], *, pending: bool = False) -> Sequence[GoldenFiles]:
    """Return the selected goldens (or waiting results); unmatched names are an error, an empty folder a message."""
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.golden.review import find  # noqa: PLC0415

    goldens = find(folder, names, pending=pending)
    if names and not goldens:
        if pending and find(folder, names):
            raise InputError(f"no result of {' '.join(names)} is waiting", help="`pytest` produces them")
        raise InputError(f"nothing matches {' '.join(names)}", help="`blis-tui golden status` lists all goldens")
    if not goldens:
        tell("no result is waiting")
    return goldens


def _require_found(folder: Path, names: Sequence[str]) -> None:
    """Raise InputError if no golden, and no file that belongs to none, matches."""
    from blis_tui.golden.review import unused  # noqa: PLC0415

    if not unused(folder, names):
        _golden_files(folder, names)


def _ask(text: str) -> str:
    """Return a key that decides about the text.

    A read may give several keys, pasted or pressed in haste: they decide about nothing. What was pressed before the
    question is lost, as click changes the terminal's mode to read single keys.
    """
    while True:
        print_text("[a]ccept  [r]eject  [s]kip  [d]iff  [q]uit: ", nl=False)
        answer = click.getchar().lower()
        print_text(answer if answer.isprintable() and answer.isascii() else "")
        if answer in ("a", "r", "s", "q"):
            return answer
        if answer == "d":
            print_text(text)
