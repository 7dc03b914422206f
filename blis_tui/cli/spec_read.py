"""The ``spec`` commands that tell something: ``resolve`` and ``explain``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from blis_tui.cli import completing
from blis_tui.cli.failures import reported
from blis_tui.cli.options import known_plugins, plugins_option, seed_option, set_option
from blis_tui.cli.outputs import require_spared
from blis_tui.cli.streams import read_standard_input_text

KINDS = ("experiment", "model", "hardware", "workload", "policy", "latency")


@click.command("resolve")
@click.argument("source", metavar="SPEC", shell_complete=completing.experiments)
@set_option
@seed_option
@plugins_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="yaml: a document that can be run; json: document and origins as data.",
)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")
@reported
def resolve(
    source: str,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
    output_format: str,
    output: str | None,
) -> None:
    """Print an experiment composed of everything it refers to.

    References are followed, defaults filled in, `auto` worked out. A comment on each line says where its value comes
    from: file and line, a default, --set, the parent it extends, or computed. The result is a document in its own
    right with the same spec_sha256; it names a trace by its absolute path, or relative to FILE.
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
    if output_format == "yaml":
        text = composed.to_yaml()
    else:
        text = json.dumps(composed.to_data(), indent=2, ensure_ascii=False) + "\n"
    if to_file:
        require_spared({"-o": output}, composed.files)
        write_text(str(output), text)
    else:
        click.echo(text, nl=False)


@click.command("explain")
@click.argument("path", required=False, shell_complete=completing.keys)
@click.option("--kind", type=click.Choice(KINDS), help="Without PATH: the keys of this kind of document.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@plugins_option
@reported
def explain(path: str | None, kind: str | None, output_format: str, plugins: tuple[str, ...]) -> None:
    """Explain the key at PATH: type, unit, default, range, values, examples.

    PATH is dotted: `engine.max_num_seqs`, `workload.clients.arrivals.kind`, `Hardware.mfu`. A word finds the keys with
    this word in their name or description, or that other tools call so: `rate`, `tp`. Without PATH, all keys of a kind
    of document are shown as a tree. Codes of errors are explained by `blis-tui explain`.
    """
    from blis_tui.authoring.explain import UnknownKeyError, as_data, as_text, look_up, overview  # noqa: PLC0415
    from blis_tui.authoring.search import as_list, as_rows, search  # noqa: PLC0415
    from blis_tui.authoring.tree import root  # noqa: PLC0415

    known = known_plugins(plugins)
    if path is None:
        chosen = (kind or "experiment").capitalize()
        found = [key for key in root(chosen, known).walk() if key.path]
        text = overview(chosen, known) if output_format == "text" else ""
    else:
        dotted = path if kind is None else f"{kind.capitalize()}.{path}"
        try:
            chosen, found = look_up(dotted, known)
        except UnknownKeyError:
            matches = [] if kind or "." in path else search(path, known)
            if not matches:
                raise
            if len(matches) > 1:
                rendered = json.dumps(as_rows(matches), indent=2, ensure_ascii=False) + "\n"
                click.echo(as_list(path, matches) if output_format == "text" else rendered, nl=False)
                return
            chosen, found = matches[0][0], [matches[0][1]]
        text = as_text(chosen, found) if output_format == "text" else ""
    click.echo(text or json.dumps(as_data(chosen, found), indent=2, ensure_ascii=False) + "\n", nl=False)
