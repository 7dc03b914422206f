"""A routing decision: the candidates, the router's view of them and its age, scores, choice, regret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import bar_text, count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.decisions import PPM
from blis_tui.cluster.records import RoutingDecision
from blis_tui.debugger.why.explanation import event_ref, instance_ref
from blis_tui.tui.drawing.lines import BLANK, Column, fact, fit, flow, line, remark, table_rows, titles
from blis_tui.tui.panes.pane import Pane, at_selected, one_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.records import Candidate
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.drawing.lines import Line, Part
    from blis_tui.tui.view import View

_BAR: Final = 6
_SMALL_BAR: Final = 4
_ROUNDING: Final = 2
"""Maximum difference of two rounded figures, in parts per million."""
_ROOMY: Final = 100
"""Width from which the scorers' bars have figures."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def routed_event(view: View) -> int:
    """Return the event of the routing to show: of the selected event or request, or the latest; 0 = none."""
    tape, now = view.tape, view.moment.event
    here = view.selection.event or now
    if here and tape.has(here, "routed"):
        return here
    if view.selection.request is not None:
        life = tape.life(view.selection.request, now)
        routed = next((event.event for event in reversed(life) if event.what == "routed"), 0)
        if routed:
            return routed
    return tape.latest_of("routed", now)


def decision_of(view: View) -> RoutingDecision | None:
    """Return the decision in that event; None if there is none, and during a run."""
    event = routed_event(view)
    if not event or view.playing:
        return None
    records = view.moment.records if event == view.moment.event else view.records_of(event)
    return next((record for record in records if isinstance(record, RoutingDecision)), None)


def router_lines(view: View, width: int) -> list[Line]:
    """Return the lines of the decision."""
    decision = decision_of(view)
    if decision is None:
        event = routed_event(view)
        hint = "No request has been routed yet."
        if event:
            hint = "Decisions are not shown while the run plays: pause to see the latest one."
        return remark(hint, width)
    lines = [line(row) for row in flow(_head(decision), width)]
    lines += [line(row) for row in flow(_regret(decision), width)]
    lines += [line(row) for row in flow(_formula(decision), width)]
    columns = fit(list(_columns(decision, roomy=width >= _ROOMY)), width)
    lines += [titles(columns), *table_rows(columns, decision.top, lambda each: instance_ref(each.instance))]
    hidden = decision.candidates - len(decision.top)
    if hidden:
        lines += remark(f"… and {plural(hidden, 'candidate')} with lower scores", width)
    if rule := view.moment.state.routing_rules.get(decision.policy):
        lines += [BLANK, *remark(rule, width)]
    return lines


def share_text(ppm: int) -> str:
    """Return a score or a regret: ``0.907``."""
    return f"{ppm / PPM:.3f}"


def _head(decision: RoutingDecision) -> list[Content]:
    return [
        Content.assemble((decision.request_id, "bold"), " → ", (f"instance {decision.instance}", "bold")),
        fact("by", decision.policy),
        fact("of", plural(decision.candidates, "candidate")),
        fact("event", count_text(decision.event)),
        fact("at", time_text(decision.time_us)),
    ]


def _regret(decision: RoutingDecision) -> list[Content]:
    chosen = next(each for each in decision.top if each.instance == decision.instance)
    best = max(decision.top, key=lambda each: each.true_score_ppm)
    if decision.regret_ppm is None or decision.true_regret_ppm is None:
        return [fact("regret", f"none: {decision.policy} has no scores", "$text-muted")]
    best_is_shown = abs(best.true_score_ppm - chosen.true_score_ppm - decision.true_regret_ppm) <= _ROUNDING
    facts = [
        fact("regret", f"{share_text(decision.regret_ppm)} by what it saw", "$warning" if decision.regret_ppm else ""),
        Content.styled(
            f"{share_text(decision.true_regret_ppm)} by the true state", "$warning" if decision.true_regret_ppm else ""
        ),
    ]
    if decision.true_regret_ppm and best_is_shown:  # otherwise the best instance is not among those shown
        facts.append(Content.styled(f"instance {best.instance} had {share_text(best.true_score_ppm)}", "$text-muted"))
    return facts


def _formula(decision: RoutingDecision) -> list[Content]:
    """Return the composition of the score, each part with its column's letter."""
    if len(decision.scorers) == 1:
        return [fact("score", decision.scorers[0])]
    named = zip(_LETTERS, decision.shares_ppm, decision.scorers, strict=False)
    parts = [Content.assemble((letter, "bold"), f" {percent_text(share, PPM)} {name}") for letter, share, name in named]
    return [Content.styled("score =", "$text-muted"), *parts]


def _columns(decision: RoutingDecision, *, roomy: bool) -> Iterator[Column[Candidate]]:
    """Yield columns with what the router saw, and its scores."""

    def score(each: Candidate, _width: int) -> Part:
        text = f"{bar_text(each.score_ppm, PPM, _BAR)} {share_text(each.score_ppm)}"
        return (text, "$success bold" if each.instance == decision.instance else "$primary")

    def part(at: int) -> Column[Candidate]:
        def cell(each: Candidate, _width: int) -> Part:
            value = each.scores_ppm[at]
            figure = f" {value / PPM:.2f}" if roomy else ""
            return (f"{bar_text(value, PPM, _SMALL_BAR)}{figure}", "$primary")

        return Column(_LETTERS[at], _SMALL_BAR + 5 * roomy, cell, rank=2)

    yield Column("instance", 8, lambda each, _: f"{'✓' if each.instance == decision.instance else ' '} {each.instance}")
    yield Column("score", _BAR + 6, score)
    if len(decision.scorers) > 1:
        for at in range(min(len(decision.scorers), len(_LETTERS))):
            yield part(at)
    yield Column("waiting", 7, lambda each, _: count_text(each.waiting), right=True, rank=1)
    yield Column("running", 7, lambda each, _: count_text(each.running), right=True, rank=1)
    yield Column("in flight", 9, lambda each, _: count_text(each.in_flight), right=True, rank=3)
    yield Column("KV", 5, lambda each, _: percent_text(each.kv_used_blocks, each.kv_total_blocks), right=True, rank=3)
    yield Column("age", 7, lambda each, _: span_text(each.age_us), right=True, rank=1)
    yield Column("true score", 10, lambda each, _: share_text(each.true_score_ppm), right=True, rank=5)


def _points(view: View, _cursor: Subject | None) -> Subject | None:
    """Return the event of the decision: it has the reason why the candidate was chosen, or was not."""
    event = routed_event(view)
    return event_ref(event) if event else None


PANE: Final = Pane(
    lines=lambda view, room: router_lines(view, room.width),
    hint=lambda _: "up down candidate · i what if it went there",
    lacks=one_instance,
    actions=("ask_whatif",),
    cursor=at_selected("instance"),
    points=_points,
)
