"""``blis-tui golden``: look at golden files and at new results that wait for a decision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.canonical import to_json
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_text, tell
from blis_tui.cli.options import known_plugins, plugins_option
from blis_tui.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.golden.store import GoldenFiles

_names = click.argument("names", metavar="[NAME]...", nargs=-1)
_folder = click.option(
    "--golden-dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("golden"),
    show_default=True,
    help="Folder of the golden files.",
)
_root = click.option(
    "--root", type=click.Path(path_type=Path), default=Path(), help="Folder the tests run in [default: this one]."
)


@click.group()
def golden() -> None:
    """Golden tests: every experiment and every study below the folder where pytest runs.

    `pytest` compares; a result that differs waits next to the golden until you accept or reject it.
    """


@golden.command(short_help="List goldens: which wait for a decision, which are obsolete or broken.")
@_names
@_folder
@_root
@plugins_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@reported
def status(names: tuple[str, ...], folder: Path, root: Path, as_json: bool, plugins: tuple[str, ...]) -> None:
    """List goldens: which wait for a decision, which are obsolete or broken. Exit code 1 when anything does or is."""
    from blis_tui.golden.review import survey  # noqa: PLC0415
    from blis_tui.units import plural  # noqa: PLC0415  (heavy imports only when the command runs)

    entries = survey(folder, root, names, known_plugins(plugins))
    if as_json:
        print_text(to_json([entry.to_dict() for entry in entries]), nl=False)
    else:
        width = max((len(entry.name) for entry in entries), default=0)
        for entry in entries:
            about = entry.problem.partition("\n")[0] or f"{entry.spec}::{entry.case}"
            print_text(printable(f"{entry.state:<9} {entry.name:<{width}}  {about}"))
        waiting = len([entry for entry in entries if entry.waiting])
        counts = [f"{len([entry for entry in entries if entry.state == one])} {one}" for one in ("obsolete", "broken")]
        print_text(f"{plural(len(entries), 'golden')}, {waiting} waiting, {', '.join(counts)}")
    if any(entry.waiting or entry.state != "golden" for entry in entries):
        sys.exit(ExitCode.CHECK_FAILED)


@golden.command(short_help="Show what waiting results would change.")
@_names
@_folder
@_root
@plugins_option
@reported
def diff(names: tuple[str, ...], folder: Path, root: Path, plugins: tuple[str, ...]) -> None:
    """Show what waiting results would change, with the first event that differs."""
    from blis_tui.golden.review import difference_text  # noqa: PLC0415

    known = known_plugins(plugins)
    for files in _found(folder, names, pending=True):
        print_text(difference_text(files, root, known) + "\n")


@golden.command("report", short_help="What has changed, as a comment on a change of code.")
@_names
@_folder
@_root
@plugins_option
@click.option(
    "--format",
    "style",
    type=click.Choice(["github", "gitlab", "markdown"]),
    default="markdown",
    show_default=True,
    help="Where it is to be shown: how long it may be, and whether all differences stand folded below it.",
)
@reported
def report_(names: tuple[str, ...], folder: Path, root: Path, style: str, plugins: tuple[str, ...]) -> None:
    """Write what has changed as a comment on a pull request.

    Figures before and after, what was expected, the first event that diverged, and the command that opens the debugger
    there. Exit code 1 when a result waits, a golden is obsolete or broken, or what it expects does not hold.

    On CI `pytest --blis-update=new` leaves the results that it speaks of.
    """
    from blis_tui.golden.comment import STYLES, comment  # noqa: PLC0415

    text, holds = comment(folder, root, names, known_plugins(plugins), STYLES[style])
    print_text(text, nl=False)
    if not holds:
        sys.exit(ExitCode.CHECK_FAILED)


@golden.command(short_help="Make waiting results the goldens.")
@_names
@_folder
@click.option("--force", is_flag=True, help="Also accept results of another Python or system than the golden's.")
@reported
def accept(names: tuple[str, ...], folder: Path, force: bool) -> None:
    """Make waiting results the goldens: those that NAME (or a pattern) matches, or all."""
    from blis_tui.golden.review import accept as accept_one  # noqa: PLC0415

    for files in _found(folder, names, pending=True):
        accept_one(files, force=force)
        print_text(f"accepted {printable(files.name)}")


@golden.command(short_help="Forget waiting results.")
@_names
@_folder
@reported
def reject(names: tuple[str, ...], folder: Path) -> None:
    """Forget waiting results: those that NAME (or a pattern) matches, or all."""
    for files in _found(folder, names, pending=True):
        files.drop_pending()
        print_text(f"rejected {printable(files.name)}")


@golden.command(short_help="Decide about waiting results one by one.")
@_names
@_folder
@_root
@plugins_option
@reported
def review(names: tuple[str, ...], folder: Path, root: Path, plugins: tuple[str, ...]) -> None:
    """Decide about waiting results one by one: a accept, r reject, s skip, d show again, q quit.

    Without a terminal it lists them with the commands that decide.
    """
    from blis_tui.golden.review import accept as accept_one  # noqa: PLC0415
    from blis_tui.golden.review import difference_text  # noqa: PLC0415

    known = known_plugins(plugins)
    waiting = _found(folder, names, pending=True)
    if not sys.stdin.isatty():
        for files in waiting:
            name = printable(files.name)
            print_text(f"{name}\n    blis-tui golden diff {name}\n    blis-tui golden accept {name}")
            print_text(f"    blis-tui golden reject {name}")
        return
    for number, files in enumerate(waiting, 1):
        print_text(f"--- {number} of {len(waiting)} ---\n{difference_text(files, root, known)}\n")
        answer = _ask(lambda files=files: difference_text(files, root, known))  # type: ignore[misc]
        if answer == "q":
            return
        if answer == "a":
            accept_one(files)
        elif answer == "r":
            files.drop_pending()


@golden.command(short_help="Store the record streams of goldens.")
@_names
@_folder
@_root
@plugins_option
@click.option("--full", is_flag=True, required=True, help="Store the record streams themselves, compressed.")
@reported
def record(names: tuple[str, ...], folder: Path, root: Path, full: bool, plugins: tuple[str, ...]) -> None:  # noqa: ARG001  (says what is done)
    """Store the records of goldens, so that after a change of the engine the exact event can be named.

    A golden whose result this engine does not give any more is left alone.
    """
    from blis_tui.golden.review import record_full  # noqa: PLC0415

    known = known_plugins(plugins)
    for files in _found(folder, names):
        print_text(printable(f"{record_full(files, root, known)} {files.name}"))


def _found(folder: Path, names: Sequence[str], *, pending: bool = False) -> Sequence[GoldenFiles]:
    """The goldens (or waiting results) meant; names that match nothing are an error, nothing at all is said."""
    from blis_tui.errors import InputError  # noqa: PLC0415
    from blis_tui.golden.review import find  # noqa: PLC0415

    found = find(folder, names, pending=pending)
    if names and not found:
        raise InputError(f"nothing matches {' '.join(names)}", help="`blis-tui golden status` lists all goldens")
    if not found:
        tell("no result is waiting")
    return found


def _ask(show_again: Callable[[], str]) -> str:
    while True:
        print_text("[a]ccept  [r]eject  [s]kip  [d]iff  [q]uit: ", nl=False)
        answer = click.getchar().lower()
        print_text(answer)
        if answer in "arsq":
            return answer
        if answer == "d":
            print_text(show_again())
