"""The page about a plan: the answer, its certainty, and everything that was tried."""

from __future__ import annotations

from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.classes import NamedTuple
from blis_tui.base.html import Table
from blis_tui.base.units import number_text, plural
from blis_tui.pictures.page import (
    PALETTE,
    Card,
    Picture,
    PictureView,
    Section,
    bound_line,
    cards,
    document,
    label,
    line_of,
    page,
    provenance,
    spread_line,
    star,
    unfold,
    value_axis,
)
from blis_tui.pictures.points import chosen_section, short
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.planning.plan_text import (
    answer_text,
    configuration_name,
    cost_titles,
    remarks,
    row_error,
    size_text,
    size_title,
)
from blis_tui.study.study_rows import as_judged
from blis_tui.study.study_text import bound_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.model import Experiment
    from blis_tui.pictures.points import Chosen
    from blis_tui.study.planning.answer import Candidate, Plan, Trial


def plan_page(plan: Plan, chosen: Sequence[Chosen] = ()) -> str:
    """Return the page about a plan.

    Args:
        plan: the planner's answer.
        chosen: runs to show over time (see :func:`answer_runs`).

    Raises:
        InputError: the plotting library is not installed.
    """
    study = plan.question.study
    pictures = (_tried_picture(plan), _answers_picture(plan))
    sections = [
        Section(name="answer", title="Answer", content=_answer(plan)),
        Section(
            name="tried",
            title="What was tried",
            content=[*(picture for picture in pictures if picture), _tried_table(plan)],
        ),
        Section(name="configurations", title="Configurations", content=[_configurations(plan)]),
        chosen_section(chosen) if chosen else Section(name="runs", title=""),
        Section(name="settings", title="All settings", content=[unfold("The question", document(study.document))]),
        Section(name="provenance", title="Provenance", content=[_provenance(plan)]),
    ]
    bounds = ", ".join(bound_text(constraint) for constraint in study.constraints)
    what = "The highest rate that meets" if plan.question.max_rate else "The cheapest configuration that meets"
    return page(f"{study.experiment}: a plan", f"{what} {bounds}.", sections)


def answer_runs(plan: Plan) -> list[tuple[str, Experiment]]:
    """Return the run at the answer, and the nearest one that does not hold: their names and experiments."""
    best = plan.best
    if best is None or best.found is None:
        return []
    size = _size(plan, best.found)
    fails = [trial for trial in best.tried if trial.holding < len(trial.rows)]
    beside = min(fails, key=lambda trial: abs(_size(plan, trial) - size), default=None)
    runs = [("the answer", best.found), *([] if beside is None else [("does not hold", beside)])]
    study = plan.question.study
    return [
        (f"{name}: {_size_text(plan, tried)}", experiment_of(study, as_judged(tried.rows[0]), tried.rows[0].seed))
        for name, tried in runs
    ]


def _size(plan: Plan, trial: Trial) -> float:
    """Return the quantity that was searched: a rate, or a size."""
    return (trial.rate_per_s if plan.question.max_rate else trial.size) or 0.0


def _size_text(plan: Plan, trial: Trial) -> str:
    return f"{trial.rate_per_s:g} {plan.candidates[0].of}/s" if plan.question.max_rate else size_text(plan, trial.size)


# ---- the answer ----


def _answer(plan: Plan) -> list[str | Picture | Table]:
    best = plan.best
    kind = "bad" if best is None else "good"
    parts: list[str | Picture | Table] = [f"<p class='verdict {kind}'>{escape(answer_text(plan))}</p>"]
    if best is None or best.found is None:
        return parts
    trial, binding = best.found, plan.binding
    title = size_title(plan)
    gpus = plural(int(trial.mean("cost.gpus") or 0), "GPU")
    shown = [
        Card(name="Instances" if title == "instances" else title, value=f"{best.size}", more=gpus),
        _rate(plan, best),
        Card(
            name="Seeds that agree",
            value="all alike" if trial.ignores_seed else f"{trial.holding} of {trial.seeds}",
            more=f"{plural(plan.runs, 'run')} in total",
        ),
    ]
    if binding is not None:
        share = f"{100 * binding.of_bound:.0f} % of {binding.bound:g}"
        shown.insert(
            2, Card(name=f"Tightest bound: {short(binding.metric)}", value=number_text(binding.value), more=share)
        )
    price = trial.mean("cost.usd_per_hour")
    if price is not None:
        shown.insert(1, Card(name="Cost", value=f"{price:,.2f} USD/h"))
    items = "".join(f"<li>{escape(remark)}</li>" for remark in remarks(plan, best))
    return [*parts, cards(shown), f"<h3>How sure that is</h3><ul>{items}</ul>"]


def _rate(plan: Plan, best: Candidate) -> Card:
    """Return the rate of the answer; if none was asked for, that of the requests that came."""
    rate, of = best.knee.holds if best.knee is not None else plan.question.rate_per_s, best.of
    if rate is None and best.found is not None:
        rate, of = best.found.mean("offered.requests_per_s"), "requests"
    return Card(name=f"{of.capitalize()} per second", value="-" if rate is None else f"{rate:.4g}", more=_beyond(best))


def _beyond(best: Candidate) -> str:
    return "" if best.knee is None or best.knee.fails is None else f"not at {best.knee.fails:g}"


# ---- what was tried ----


class _Try(NamedTuple):
    """A value that was tried, the figure of the deciding seed, and the range over all seeds."""

    at: float
    value: float
    low: float
    high: float
    holds: bool


def _tries(plan: Plan, candidate: Candidate, metric: str) -> list[_Try]:
    tries = []
    for tried in candidate.tried:
        values = tried.values(metric)
        value = tried.figure(metric, plan.question.study.constraints)
        if value is not None:
            holds = tried.all_hold
            tries.append(_Try(_size(plan, tried), value, min(values), max(values), holds))
    return sorted(tries)


def _tried_picture(plan: Plan) -> Picture | None:
    """Return each bounded figure over the tried values, a line per configuration."""
    metrics = list(dict.fromkeys(constraint.metric for constraint in plan.question.study.constraints))
    views = {metric: view for metric in metrics if (view := _tried_view(plan, metric)).traces}
    if not views:
        return None
    title = size_title(plan)
    what = "rate" if plan.question.max_rate else "number of instances" if title == "instances" else title
    return Picture(
        name="tries",
        title=f"Bounded figures over the {what}",
        description=f"A line for each of {plural(len(plan.candidates), 'configuration')} over all values that were"
        f" tried. {answer_text(plan)}",
        views=views,
        height=440,
        note="Crosses do not meet all bounds with every seed; the star is the answer. Points show the deciding seed, "
        "bars"
        " reach from the lowest to the highest seed; runs that were stopped early have no values.",
    )


def _tried_view(plan: Plan, metric: str) -> PictureView:
    traces: list[dict[str, object]] = []
    sizes: list[float] = []
    values: list[float] = []
    for color, candidate in enumerate(plan.candidates):
        tries = _tries(plan, candidate, metric)
        if not tries:
            continue
        name = label(configuration_name(plan, candidate))
        sizes += [each.at for each in tries]
        values += [each.value for each in tries]
        over = spread_line(
            [each.at for each in tries],
            [each.value for each in tries],
            [each.low for each in tries],
            [each.high for each in tries],
        )
        own = {
            "name": name,
            "legendgroup": name,
            "marker": {"size": 9, "symbol": ["circle" if each.holds else "x" for each in tries]},
            "line": line_of(color, 1.5),
            "hovertemplate": "%{y:,.4~g} at %{x:,.4~g}<extra>%{fullData.name}</extra>",
        }
        traces.append({**over, **own})
        trial = candidate.found if candidate is plan.best else None
        value = None if trial is None else trial.figure(metric, plan.question.study.constraints)
        if trial is not None and value is not None:
            hover = "the answer: %{y:,.4~g} at %{x:,.4~g}<extra></extra>"
            answer = star(_size(plan, trial), value, color, 18)
            traces.append({**answer, "name": "the answer", "hovertemplate": hover})
    bounds = [
        constraint.max
        for constraint in plan.question.study.constraints
        if constraint.metric == metric and constraint.max is not None
    ]
    title = f"{plan.candidates[0].of} per second" if plan.question.max_rate else plan.question.size_path
    layout = {
        "xaxis": value_axis(title, sizes),
        "yaxis": value_axis(metric, values),
        "shapes": [bound_line("y", bound) for bound in bounds],
        "showlegend": True,
    }
    return PictureView(traces, layout)


def _answers_picture(plan: Plan) -> Picture | None:
    """Return the cost of each configuration at its answer, or its rate."""
    pairs = [(candidate, candidate.found) for candidate in plan.candidates if candidate.found is not None]
    if len(pairs) < 2:
        return None
    costs = "; ".join(
        f"{configuration_name(plan, candidate)}: {number_text(tried.mean(plan.cost))}" for candidate, tried in pairs
    )
    views = {}
    for title, metric in ((f"{plan.candidates[0].of} per second", ""), (plan.cost, plan.cost)):
        if metric or plan.question.max_rate:
            bars = [
                (configuration_name(plan, candidate), tried.mean(metric) if metric else tried.rate_per_s)
                for candidate, tried in pairs
            ]
            views[title] = _bars(title, [(name, value) for name, value in bars if value is not None])
    return Picture(
        name="answers",
        title="Configurations side by side",
        description=f"The {plan.cost} of each configuration that holds. {costs}.",
        views=views,
        height=120 + 34 * len(pairs),
    )


def _bars(title: str, bars: Sequence[tuple[str, float]]) -> PictureView:
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [label(name) for name, _ in bars],
        "x": [value for _, value in bars],
        "text": [number_text(value) for _, value in bars],
        "marker": {"color": PALETTE[0]},
        "hovertemplate": "%{y}: %{x:,.4~g}<extra></extra>",
    }
    y = {"type": "category", "autorange": "reversed"}
    return PictureView([trace], {"xaxis": {"title": {"text": title}, "rangemode": "tozero"}, "yaxis": y})


def _tried_table(plan: Plan) -> Table:
    metrics = list(dict.fromkeys(constraint.metric for constraint in plan.question.study.constraints))
    head = ("configuration", f"{plan.candidates[0].of}/s", size_title(plan), *map(short, metrics), "seeds ok")
    return Table(
        caption="All runs; values of the deciding seed, from complete runs",
        head=head,
        rows=list(_tried_rows(plan, metrics)),
        sortable=True,
    )


def _tried_rows(plan: Plan, metrics: Sequence[str]) -> Iterator[Sequence[str]]:
    for candidate in plan.candidates:
        for tried in candidate.tried:
            rate = tried.rate_per_s
            sizes = ("-" if rate is None else f"{rate:g}", "-" if tried.size is None else f"{tried.size}")
            figures = (number_text(tried.figure(metric, plan.question.study.constraints)) for metric in metrics)
            yield (configuration_name(plan, candidate), *sizes, *figures, f"{tried.holding} of {len(tried.rows)}")


def _configurations(plan: Plan) -> Table:
    rows, titles = [], cost_titles(plan)
    for candidate in plan.candidates:
        trial = candidate.found
        rate = "-" if trial is None or trial.rate_per_s is None else f"{trial.rate_per_s:g}"
        costs = (number_text(None if trial is None else trial.mean(name)) for name in titles)
        result = candidate.why_not or ("the answer" if candidate is plan.best else "holds")
        size = "-" if candidate.size is None else f"{candidate.size}"
        rows.append((configuration_name(plan, candidate), size, rate, *costs, row_error(plan, candidate), result))
    head = ("configuration", size_title(plan), f"{plan.candidates[0].of}/s", *titles.values(), "expected error", "")
    return Table(
        caption="The answer for each configuration",
        head=head,
        rows=rows,
        words=(len(head) - 2, len(head) - 1),
        classes=[
            "" if candidate.not_known else "bad" if candidate.found is None else "good" for candidate in plan.candidates
        ],
    )


def _provenance(plan: Plan) -> Table:
    study = plan.question.study
    best = None if plan.best is None else plan.best.found
    return provenance(
        {
            "Experiment": study.experiment,
            "SHA-256 of the question": sha256(to_sorted_json(study.document).encode()).hexdigest(),
            "SHA-256 of the resolved experiment at the answer": "-" if best is None else best.rows[0].sha256,
            "Seeds": ", ".join(map(str, study.seeds)),
            "Runs": f"{plan.runs:,}",
        }
    )
