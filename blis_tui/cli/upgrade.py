"""``blis-tui upgrade``: rewrites documents of older formats or with former spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blis_tui.base.text import printable
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.spec import rewrite
from blis_tui.cli.standard_streams import reported, tell

if TYPE_CHECKING:
    from blis_tui.base.source import Source


@click.command("upgrade", cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.files)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@reported
def upgrade(paths: tuple[str, ...], *, check: bool, diff: bool) -> None:
    """Upgrade documents from older versions of blis-tui to the format of this one.

    An older `apiVersion` becomes the current one, and a key that was renamed or moved gets its new name and place.
    Comments and layout are kept, and changes are listed on standard error. What cannot be rewritten safely is left as
    it is and reported; the exit code is then 1. Golden results are not touched: `blis-tui golden` shows how they
    changed.

    PATH is a file, a folder (every YAML file below it that is not hidden), or - to read standard input and write
    standard output.
    """
    from blis_tui.spec.authoring.upgrade import upgrade as upgraded  # noqa: PLC0415  (heavy imports only when it runs)

    left: list[str] = []

    def change(source: Source) -> str:
        rewritten = upgraded(source)
        for change_text in (*rewritten.changes, *rewritten.left):
            tell(printable(f"{source.name}: {change_text}"))
        if not (rewritten.changes or rewritten.left):
            tell(printable(f"{source.name} needs no upgrade"))
        left.extend(rewritten.left)
        return rewritten.text

    rewrite(paths, change, check=check, diff=diff, done="upgraded", unfinished=lambda: bool(left))
