"""``blis-tui explain``: what the code of an error means."""

from __future__ import annotations

import json

import click

from blis_tui.cli import completing
from blis_tui.cli.failures import reported


@click.command("explain")
@click.argument("code", required=False, shell_complete=completing.codes)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def explain(code: str | None, output_format: str) -> None:
    """Explain the CODE of an error, such as BLIS1001: cause, remedy, example.

    Without CODE, all codes are listed. Keys of documents are explained by `blis-tui spec explain`.
    """
    from blis_tui.authoring.codes import all_codes  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.authoring.codes import explain as explanation  # noqa: PLC0415
    from blis_tui.spec.codes import CODES  # noqa: PLC0415

    if code is not None:
        found = explanation(code)
        text = found.to_text() if output_format == "text" else json.dumps(found.to_data(), indent=2, ensure_ascii=False)
    elif output_format == "text":
        text = all_codes()
    else:
        listed = [
            {"code": one, "title": info.title, "cause": info.cause, "remedy": info.remedy}
            for one, info in CODES.items()
        ]
        text = json.dumps(listed, indent=2, ensure_ascii=False)
    click.echo(text.rstrip("\n"))
