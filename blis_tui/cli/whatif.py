"""``blis-tui whatif``: the same run with one routing decision changed."""

from __future__ import annotations

import click

from blis_tui.cli import completion
from blis_tui.cli.cases import case_option, case_overrides
from blis_tui.cli.failures import reported
from blis_tui.cli.files import print_text, read_standard_input_text
from blis_tui.cli.options import format_option, known_plugins, plugins_option, seed_option, set_option


@click.command()
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@click.option("--request", required=True, metavar="ID", help="The request, by its name in `run --requests`.")
@click.option("--route-to", required=True, type=int, metavar="N", help="The index of the instance it goes to instead.")
@click.option(
    "--event",
    type=click.IntRange(min=1),
    metavar="N",
    help="The event of the decision, where the request is routed several times; by default the first that can change.",
)
@case_option
@set_option
@seed_option
@plugins_option
@format_option("table", "json", about="table: the main figures; json: canonical bytes.")
@click.option("--all", "everything", is_flag=True, help="Show every figure of the reports, including equal ones.")
@reported
def whatif(
    source: str,
    request: str,
    route_to: int,
    event: int | None,
    case: str | None,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
    output_format: str,
    everything: bool,
) -> None:
    """Send one request to another instance, and tell what that changes for it and for everybody else.

    SPEC is the name of an experiment, a path, or - for standard input. The run is replayed with that one routing
    decision changed; all others are made by the policies as the run unfolds. Times are exact to the microsecond.
    """
    from blis_tui.canonical import to_json  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.compare.whatif import whatif as ask  # noqa: PLC0415
    from blis_tui.compare.whatif_text import whatif_text  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    stdin_text = read_standard_input_text() if source == "-" else None
    known = known_plugins(plugins)
    assignments = case_overrides(source, case, overrides, stdin_text, known)
    experiment = load(source, overrides=assignments, seed=seed, stdin_text=stdin_text, plugins=known)
    found = ask(experiment, request, route_to, event=event)
    if output_format == "json":
        print_text(to_json(found.to_dict(everything=everything)), nl=False)
    else:
        print_text(whatif_text(found, everything=everything), nl=False)
