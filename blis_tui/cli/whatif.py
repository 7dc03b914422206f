"""``blis-tui whatif``: repeats a run with one routing decision changed, or measures the cost of each decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blis_tui.base.classes import dataclass
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import Chosen, case_overrides, chosen_options, format_option, grouped
from blis_tui.cli.signals import ProgressLine
from blis_tui.cli.standard_streams import print_text, read_standard_input_text, reported, tell_left_out

if TYPE_CHECKING:
    from blis_tui.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """The decision to change, and its new destination."""

    request: str | None
    route_to: int | None
    event: int | None

    @property
    def is_unset(self) -> bool:
        """Whether no option is given."""
        return (self.request, self.route_to, self.event) == (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Many:
    """Which decisions are replayed, and how many."""

    every: int | None
    counterfactual: int | None
    most: int | None


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@grouped(
    "one",
    _One,
    click.option("--request", metavar="ID", help="The request to reroute, by its name in `run --requests`."),
    click.option("--route-to", type=int, metavar="N", help="Index of the instance to route it to instead."),
    click.option(
        "--event",
        type=click.IntRange(min=1),
        metavar="N",
        help="Event number of the decision, if the request is routed several times [default: the first that can "
        "change].",
    ),
)
@grouped(
    "many",
    _Many,
    click.option(
        "--every",
        type=click.IntRange(min=1),
        metavar="N",
        help="Instead of one request: replay every Nth routing decision with each of its alternatives (1 = all"
        " decisions).",
    ),
    click.option(
        "--counterfactual",
        type=click.IntRange(min=1),
        metavar="K",
        help="With --every: try only the K best alternatives of each decision, by the scores that the router saw.",
    ),
    click.option(
        "--most",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --every: maximum number of replays [default: 1000].",
    ),
)
@chosen_options
@format_option("table", "json", about="table: the main metrics; json: the whole result, as canonical JSON.")
@click.option("--all", "everything", is_flag=True, help="Show every metric of the reports, or every decision.")
@reported
def whatif(source: str, one: _One, many: _Many, chosen: Chosen, output_format: str, everything: bool) -> None:
    """Reroute one request to another instance and show what that changes, for it and for all others.

    SPEC is the name of an experiment, a path, or - for standard input. The run is replayed with that one routing
    decision changed; the policies make all others as the run unfolds. Times are exact to the microsecond.

    With --every, decisions are replayed in turn with each of their alternatives. The true regret of a decision is the
    time that the best alternative would have saved: for the request, and for all requests together.
    """
    if many.every is None:
        if one.request is None or one.route_to is None:
            raise click.UsageError("give --request and --route-to, or --every")
        if many.counterfactual is not None or many.most is not None:
            raise click.UsageError("--counterfactual and --most need --every")
    elif not one.is_unset:
        raise click.UsageError("--every replays many requests: leave out --request, --route-to and --event")
    from blis_tui.spec.load import load  # noqa: PLC0415  (heavy imports only when the command runs)

    stdin_text = read_standard_input_text() if source == "-" else None
    known = chosen.known()
    assignments = case_overrides(source, chosen.case, chosen.overrides, stdin_text, known)
    experiment = load(source, overrides=assignments, seed=chosen.seed, stdin_text=stdin_text, plugins=known)
    as_json = output_format == "json"
    if many.every is not None:
        _hindsight(experiment, many.every, many, as_json=as_json, everything=everything)
    elif one.request is not None and one.route_to is not None:
        _one(experiment, one.request, one.route_to, one.event, as_json=as_json, everything=everything)


def _one(
    experiment: Experiment, request: str, route_to: int, event: int | None, *, as_json: bool, everything: bool
) -> None:
    """Report the effect of one changed decision."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415
    from blis_tui.runs.reroute import whatif as ask  # noqa: PLC0415
    from blis_tui.runs.reroute_text import whatif_text  # noqa: PLC0415

    what_if = ask(experiment, request, route_to, event=event)
    text = to_json(what_if.to_dict(everything=everything)) if as_json else whatif_text(what_if, everything=everything)
    print_text(text, nl=False)
    tell_left_out(what_if.comparison)


def _hindsight(experiment: Experiment, every: int, many: _Many, *, as_json: bool, everything: bool) -> None:
    """Report the cost of many decisions, each compared with its alternatives."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415
    from blis_tui.runs.reroute import MOST_DECISIONS, ask_true_regret  # noqa: PLC0415
    from blis_tui.runs.reroute_text import hindsight_text  # noqa: PLC0415

    line = ProgressLine(None)
    asking = ask_true_regret(
        experiment, every=every, alternatives=many.counterfactual, most=many.most or MOST_DECISIONS
    )
    try:
        while True:
            done, total = next(asking)
            line.show(lambda done=done, total=total: f"{done:,} of {total:,} replays")  # type: ignore[misc]
    except StopIteration as end:
        hindsight = end.value
    finally:
        line.clear()
    print_text(to_json(hindsight.to_dict()) if as_json else hindsight_text(hindsight, everything=everything), nl=False)
    tell_left_out(hindsight)
