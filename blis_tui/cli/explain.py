"""``blis-tui explain``: what the code of an error, or a warning about a run, means."""

from __future__ import annotations

from dataclasses import asdict

import click

from blis_tui.canonical import to_json
from blis_tui.cli import completion
from blis_tui.cli.failures import reported
from blis_tui.cli.files import print_text
from blis_tui.cli.options import format_option


@click.command("explain")
@click.argument("code", required=False, shell_complete=completion.codes)
@format_option("text", "json")
@reported
def explain(code: str | None, output_format: str) -> None:
    """Explain the CODE of an error, such as BLIS1001, or a warning about a run, such as overload.

    Without CODE, all codes and warnings are listed. Keys of documents are explained by `blis-tui spec explain`.
    """
    from blis_tui.authoring.codes import all_codes  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.authoring.codes import explain as explanation  # noqa: PLC0415
    from blis_tui.metrics.lints.lints import LINTS, explained  # noqa: PLC0415
    from blis_tui.spec.codes import CODES  # noqa: PLC0415

    warning = None if code is None else explained(code.strip().lower())
    if warning is not None:
        text = warning if output_format == "text" else to_json({"warning": code, "text": warning})
    elif code is not None:
        found = explanation(code)
        text = found.to_text() if output_format == "text" else to_json(asdict(found))
    elif output_format == "text":
        text = all_codes() + "".join(f"{one.name}  {one.promise}, or it is a warning\n" for one in LINTS)
    else:
        text = to_json(
            [
                *({"code": one, **asdict(info)} for one, info in CODES.items()),
                *({"warning": one.name, "makes_sure": one.promise} for one in LINTS),
            ]
        )
    print_text(text, nl=False)
