"""``blis-tui lsp``: the language server, for editors."""

from __future__ import annotations

import sys

import click

from blis_tui.base.errors import InputError, install_command
from blis_tui.base.standard_output import standard_output
from blis_tui.cli.help import Command
from blis_tui.cli.standard_streams import reported


@click.command("lsp", cls=Command)
@reported
def lsp() -> None:
    """Serve editors by the Language Server Protocol, over standard input and output.

    Completion with units and defaults, what `explain` says under the cursor, the errors of `check` while you type,
    quick fixes, the files behind names, the layout of `spec fmt`; above an experiment: run, golden, plan. An editor
    starts it; docs/editors.md says how. It needs the extra `lsp`.
    """
    try:
        from blis_tui.cli.language_server import server  # noqa: PLC0415  (pygls is an extra)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise click.UsageError(f"this needs an extra package: {install_command('lsp')}") from error
    results = standard_output()
    if results is None or sys.stdin is None:
        raise InputError("the language server needs standard input and output, which are closed")
    with open(results.fileno(), "wb", closefd=False) as answers:
        server().start_io(sys.stdin.buffer, answers)
