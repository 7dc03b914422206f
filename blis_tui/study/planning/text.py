"""A plan for a terminal: the answer, what it rests on, and what lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.printable import printable
from blis_tui.records.section_text import error_text
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.planning.plan import DISAGREEMENT, USUAL_CONFIDENCE
from blis_tui.study.planning.question import trouble
from blis_tui.study.text import bar, bound_text, lined_up, number, short_names, value_text
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.study.planning.plan import Candidate, Plan, Tried

_USUAL: Final = ("steady.requests_per_s",)
"""Not the throughput of the whole run, in which the cluster fills and drains: that is below what arrives."""
_WHERE_KNOWN: Final = ("cost.usd_per_hour", "cost.watts")
_BAR: Final = 12


def plan_text(plan: Plan) -> str:
    """The answer in a sentence, the runs around it as a table, how sure it is, and the other configurations."""
    blocks = [[answer_text(plan)]]
    if plan.best is not None:
        blocks.append(list(_around(plan, plan.best)))
        blocks.append([f"- {line}" for line in remarks(plan, plan.best)])
    if len(plan.candidates) > 1:
        blocks.append(list(_configurations(plan)))
    elif plan.best is None:
        blocks.append([plan.candidates[0].why_not])
    return "\n\n".join("\n".join(map(printable, lines)) for lines in blocks if lines) + "\n"


def answer_text(plan: Plan) -> str:
    """The answer in a sentence."""
    bounds = ", ".join(bound_text(one) for one in plan.question.study.constraints)
    best = plan.best
    if best is None and plan.as_expected is not None:
        expected = _found_text(plan, plan.as_expected)
        return (
            f"With step times as slow as a confidence of {plan.question.confidence:g} asks for, nothing is known to"
            f" hold {bounds}; with those that are expected the answer is {expected}."
        )
    if best is None:
        return f"Nothing that was tried holds {bounds}."
    what = _cluster(plan, best)
    knee = best.knee
    if knee is None:
        rate = plan.question.rate_per_s
        load = "the load" if rate is None else f"{rate:g} {best.of}/s"
        return f"{what} {'holds' if best.size == 1 else 'hold'} {load} with {bounds}."
    verb = "holds" if best.size == 1 else "hold"
    over = "" if knee.fails is None else f", and no longer {knee.fails:g}"
    return f"{what} {verb} {knee.holds:g} {best.of}/s with {bounds}{over}."


def _cluster(plan: Plan, one: Candidate) -> str:
    """A configuration as people call it."""
    found = one.found
    if found is None:
        return "nothing"
    row = found.rows[0]
    pool = experiment_of(plan.question.study, row.point, row.seed).pools[0]
    split = f", TP {pool.tensor_parallel}" if pool.tensor_parallel > 1 else ""
    split += f", DP {pool.engine.data_parallel}" if pool.engine.data_parallel > 1 else ""
    price = found.mean("cost.usd_per_hour")
    cost = "" if price is None else f", {price:,.2f} USD/h"
    gpus = found.mean("cost.gpus")
    size = plural(one.size or 1, "instance")
    return f"{size} of {pool.model.name} on {pool.hardware.name} ({plural(int(gpus or 0), 'GPU')}{split}{cost})"


def _around(plan: Plan, best: Candidate) -> Iterator[str]:
    """The runs of the answer's configuration, by size or by rate."""
    by_rate = plan.question.max_rate
    metrics = tuple(dict.fromkeys([*(one.metric for one in plan.question.study.constraints), *_USUAL]))
    metrics += tuple(name for name in _WHERE_KNOWN if best.found is not None and best.found.mean(name) is not None)
    head = ["", f"{best.of}/s" if by_rate else "instances", *([] if by_rate else ["GPUs"])]
    head += [*(metric.removeprefix("latency.") for metric in metrics), "seeds that hold", ""]
    shown = best.tried
    first = metrics[0]
    # What is far beyond its bound would leave nothing of the other bars.
    bounds = plan.question.study.constraints
    top = max((value for one in shown if (value := one.figure(first, bounds)) is not None and one.holding), default=0.0)
    rows = []
    for one in shown:
        mark = "→" if one is best.found else "✓" if one.holding == len(one.rows) else "✗"
        cells = [mark, f"{one.rate_per_s:g}" if by_rate else f"{one.size}"]
        cells += [] if by_rate else [number(one.mean("cost.gpus"))]
        cells += [_spread(one, metric) for metric in metrics]
        cells += [
            f"{one.holding} of {len(one.rows)}",
            bar(one.figure(first, bounds), top, _BAR) if one.holding else _why(one),
        ]
        rows.append(cells)
    yield from lined_up([head, *rows], right=range(1, len(head) - 1))


def _spread(one: Tried, metric: str) -> str:
    values = one.values(metric)
    if not values:
        return "-"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _why(one: Tried) -> str:
    """What is wrong beside the bounds, whose figures are there to be seen."""
    if all(row.status == "stopped" for row in one.rows):
        return "stopped: a bound could no longer hold"
    return next((text for row in one.rows if row.ok and (text := trouble(row))), "")


def _listed(words: tuple[str, ...]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def remarks(plan: Plan, best: Candidate) -> Iterator[str]:
    """How sure the answer is, and why."""
    found, question = best.found, plan.question
    if found is None:
        return
    requests = found.mean("requests.total")
    seconds = found.mean("offered.last_arrival_us")
    span = "" if seconds is None else f" over {seconds / 1e6:,.0f} s"
    agree = "one seed" if found.seeds == 1 else f"{found.holding} of {found.seeds} seeds agree"
    if found.seedless:
        agree = "no seed changes it"
    yield f"Each run has {number(requests)} requests{span}; {agree}; {plural(plan.runs, 'run')} in all."
    if plan.drawn:
        yield f"The requests are recorded, the same with every seed; a seed decides {_listed(plan.drawn)}."
    if plan.binding is not None:
        one = plan.binding
        yield f"The tightest bound is {one.metric}: {number(one.value)} of {one.bound:g} ({100 * one.of_bound:.0f} %)."
        yield from _next(plan, best, one.metric)
    yield from _ties(plan, best)
    if best.interval is not None and best.accuracy:
        low, high = best.interval
        yield (
            f"So many {best.of} tell rates apart to {100 * best.accuracy:.1f} %: the knee lies between {low:.3g} and"
            f" {high:.3g} {best.of}/s."
        )
    yield _step_times(plan)
    yield from _slower(plan)
    for other in plan.opinions:
        if other.apart:
            so = "all bounds would hold" if other.holds else "the answer would be another one"
            yield (
                f"The step-time models disagree by more than {100 * DISAGREEMENT - 100:.0f} %: with {other.kind},"
                f" {other.metric} is {number(other.value)} here, not {number(other.own)}, and {so}."
            )
    for name, message in plan.warnings.items():
        if name != "unused-capacity":
            yield f"warning[{name}]: {message}"
    if plan.cost == "cost.gpus" and not question.max_rate and _several_gpus(plan):
        yield (
            "Configurations are compared by the number of GPUs: not all have a price"
            " (--price h100=2.5, or hardware.cost_per_hour_usd in the hardware document)."
        )
    if question.study.prices and plan.cost != "cost.gpus":
        given = ", ".join(f"{name} {price:g}" for name, price in question.study.prices.items())
        yield f"Prices as given, in USD for a GPU and hour: {given}."


def _next(plan: Plan, best: Candidate, metric: str) -> Iterator[str]:
    """What one instance more would bring."""
    if plan.question.max_rate or best.size is None or best.found is None:
        return
    more = best.at(size=best.size + 1, rate_per_s=best.found.rate_per_s)
    bounds = plan.question.study.constraints
    before, after = best.found.figure(metric, bounds), None if more is None else more.figure(metric, bounds)
    if more is not None and before is not None and after is not None:
        yield f"One instance more would bring {metric} from {number(before)} to {number(after)}."


def _slower(plan: Plan) -> Iterator[str]:
    """How the answer changes where steps are slower, as some measured servers' were."""
    known, asked = plan.slower, plan.question.confidence
    confidence = asked or USUAL_CONFIDENCE
    if known is None or isinstance(known, str):
        return  # why stands in the line above, or there is no answer
    many = f"1 in {1 / (1 - confidence):.3g} measured servers"
    slow = f"step times {100 * known.times - 100:.3g} % slower"
    if asked is not None:
        other = plan.as_expected
        so = "nothing holds" if other is None else f"the answer is {_found_text(plan, other)}"
        yield f"That holds with {slow}: those of {many} were slower still. With step times as expected {so}."
    elif plan.if_slower is not None:
        one = plan.if_slower
        so = "it holds" if one.holds else f"it does not hold: --confidence {confidence:g} finds what does"
        yield f"With {slow}, as of {many}, {one.metric} is {number(one.value)} here, not {number(one.own)}, and {so}."


def _found_text(plan: Plan, one: Candidate) -> str:
    """An answer in few words."""
    name = f" of {configuration_name(plan, one)}" if len(plan.candidates) > 1 else ""
    if one.knee is not None:
        return f"{one.knee.holds:g} {one.of}/s{name}"
    gpus = None if one.found is None else one.found.mean("cost.gpus")
    return f"{plural(one.size or 1, 'instance')}{name} ({plural(int(gpus or 0), 'GPU')})"


def _ties(plan: Plan, best: Candidate) -> Iterator[str]:
    """What costs the same, and why it is not the answer."""
    bounds = plan.question.study.constraints
    own = None if best.found is None else best.found.nearest(bounds)
    for one in plan.ties:
        other = None if one.found is None else one.found.nearest(bounds)
        if own is None or other is None:
            continue
        size = "" if plan.question.max_rate else f" ({plural(one.size or 1, 'instance')})"
        yield (
            f"{configuration_name(plan, one)}{size} costs the same; its tightest bound, {other[0].metric}, is at"
            f" {100 * other[0].of_bound:.0f} %, that of the answer at {100 * own[0].of_bound:.0f} %."
        )


def configuration_name(plan: Plan, one: Candidate) -> str:
    """A configuration by what tells it from the others."""
    names = short_names(plan.question.study.paths)
    return ", ".join(f"{name} {value_text(one.coordinates.get(path))}" for path, name in names.items()) or "as it is"


def _step_times(plan: Plan) -> str:
    known = plan.expected
    if known is None or isinstance(known, str):
        return f"Step times: {plan.kind}, {known}."
    return f"Step times: {plan.kind}, {error_text(known)}."


def _several_gpus(plan: Plan) -> bool:
    return len({str(one.coordinates.get("hardware")) for one in plan.candidates}) > 1


def _configurations(plan: Plan) -> Iterator[str]:
    """All configurations, each with its answer."""
    names = short_names(plan.question.study.paths)
    by_rate = plan.question.max_rate
    head = ["", *names.values(), f"{plan.candidates[0].of}/s" if by_rate else "instances", "GPUs", "USD/h", ""]
    rows = []
    for one in plan.candidates:
        found = one.found
        answer = "-" if found is None else f"{found.rate_per_s:g}" if by_rate else f"{one.size}"
        cells = ["→" if one is plan.best else "✗" if found is None else ""]
        cells += [value_text(one.coordinates.get(path)) for path in names]
        cells += [answer, number(None if found is None else found.mean("cost.gpus"))]
        cells += [number(None if found is None else found.mean("cost.usd_per_hour")), one.why_not]
        rows.append(cells)
    yield from lined_up([head, *rows], right=range(1 + len(names), len(head) - 1))
