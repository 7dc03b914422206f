"""A plan as text for a terminal: the answer, its basis, and the alternatives."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import aligned, printable
from blis_tui.base.units import fine_bar, in_words, number_text, plural
from blis_tui.output.section_text import METRIC_NAMES, accuracy_text, expected_data
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.costs import PRICES
from blis_tui.study.planning.answer import DISAGREEMENT, INSTANCES, USUAL_CONFIDENCE
from blis_tui.study.planning.search import failure_reason, margins
from blis_tui.study.planning.slower import SlowServer, metrics_bounded
from blis_tui.study.steady import SECTION
from blis_tui.study.study_rows import as_data, point_text, short_names, value_text
from blis_tui.study.study_text import WIDTH, bound_text, sentence_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.results.expected_error import Expectation
    from blis_tui.study.planning.answer import Candidate, OtherEstimate, Plan, Trial
    from blis_tui.study.planning.search import Margin


_USUAL: Final = {"steady.offered_requests_per_s": "offered/s", "steady.requests_per_s": "served/s"}
"""Metrics, and their column titles. The throughput of the whole run is not used: it includes ramp-up and drain, and is
therefore below the arrival rate."""
_WHERE_KNOWN: Final = {"cost.usd_per_hour": "USD/h", "cost.watts": "W"}
_BAR: Final = 12
_AS_MUCH: Final = 0.97
"""What must be served of what arrives for a size to fail otherwise than by being too small."""


def plan_text(plan: Plan, width: int = WIDTH) -> str:
    """Return the answer in a sentence, a table of the runs around it, its certainty, and the other configurations.

    Args:
        plan: the plan.
        width: characters per line below the answer; tables are wider if their figures are.
    """
    blocks = [[answer_text(plan)]]
    if plan.best is not None:
        blocks.append(list(_around(plan, plan.best, width)))
        blocks.append([part for line in remarks(plan, plan.best) for part in sentence_lines(f"- {line}", width)])
    elif plan.as_expected is not None:
        blocks.append(list(_around(plan, plan.as_expected, width)))
    if len(plan.candidates) > 1:
        blocks.append(list(_configurations(plan)))
    elif plan.best is None and not plan.candidates[0].not_known:
        blocks.append([plan.candidates[0].why_not])
    return "\n\n".join("\n".join(map(printable, lines)) for lines in blocks if lines) + "\n"


def answer_text(plan: Plan) -> str:
    """Return the answer in a sentence."""
    bounds = ", ".join(bound_text(constraint) for constraint in plan.question.study.constraints)
    best, expected = plan.best, plan.as_expected
    if best is not None:
        return f"{_holds_text(plan, best, bounds)}.{_measured_text(plan, best)}"
    if expected is None:
        return f"Nothing that was tried meets {bounds}."
    confidence = f"a confidence of {plan.question.confidence:g}"
    unknown = next(
        (
            candidate.why_not
            for candidate in plan.candidates
            if candidate.not_known and candidate.point == expected.point
        ),
        "",
    )
    known = f"With step times as expected, {_holds_text(plan, expected, bounds)}."
    if not unknown:
        return f"Nothing that was tried meets {bounds} on servers as slow as {confidence} requires. {known}"
    return f"{known} Whether it does with {confidence} is unknown, because {unknown}."


def _measured_text(plan: Plan, best: Candidate) -> str:
    """Return the best answer that servers were measured for, if the answer is another; empty if it is the same."""
    other = plan.best_measured
    if best.measured or len(plan.candidates) == 1:
        return ""
    if other is None:
        return " Of no configuration that does, servers like it were measured."
    least = "highest rate" if plan.question.max_rate else "cheapest"
    rate = "" if other.knee is None else f"{other.knee.holds:g} {other.of}/s, "
    return f" No server like it was measured; the {least} of those that were measured: {rate}{_cluster(plan, other)}."


def _holds_text(plan: Plan, candidate: Candidate, bounds: str) -> str:
    """Return what a configuration sustains, as a sentence without its full stop."""
    what, knee = _cluster(plan, candidate), candidate.knee
    alone = candidate.found is not None and [*_instances_by_kind(plan, candidate.found).values()] == [1]
    verb = "sustains" if alone else "sustain"
    if knee is None:
        rate = plan.question.rate_per_s
        load = "the load" if rate is None else f"{rate:g} {candidate.of}/s"
        return f"{what} {verb} {load} with {bounds}"
    over = "" if knee.fails is None else f", but not {knee.fails:g}"
    beyond = candidate.at(size=candidate.size, rate_per_s=knee.fails)
    if beyond is not None and not beyond.known:
        over = f"; whether {knee.fails:g}, too, is not known"
    return f"{what} {verb} {knee.holds:g} {candidate.of}/s with {bounds}{over}"


def _cluster(plan: Plan, candidate: Candidate) -> str:
    """Return a short description of a configuration."""
    trial = candidate.found
    if trial is None:
        return "nothing"
    kinds = _instances_by_kind(plan, trial)
    (first, many), *rest = kinds.items()
    parts = [f"{plural(many, 'instance')} of {first[0]}", *(f"{count:,} of {kind[0]}" for kind, count in rest)]
    if rest:  # each kind of instance with its own split
        parts = [f"{part}{kind[1]}" for part, kind in zip(parts, kinds, strict=True)]
    price = trial.mean("cost.usd_per_hour")
    more = ("" if rest else first[1]) + ("" if price is None else f", {price:,.2f} USD/h")
    if plan.question.size_path != INSTANCES and not plan.question.max_rate:
        more += f", {size_text(plan, candidate.size)}"
    gpus = trial.mean("cost.gpus") or 0.0
    held = plural(int(gpus), "GPU") if gpus == int(gpus) else f"{gpus:.3g} GPUs on average"
    return f"{in_words(parts)} ({held}{more})"


def _instances_by_kind(plan: Plan, trial: Trial) -> dict[tuple[str, str], int]:
    """Return how many instances there are by model and hardware, and how they are split; ranks of a replica are one."""
    row, kinds = trial.rows[0], dict[tuple[str, str], int]()
    for pool in experiment_of(plan.question.study, row.point, row.seed).pools:
        ranks = pool.engine.data_parallel
        split = f", TP {pool.tensor_parallel}" if pool.tensor_parallel > 1 else ""
        split += f", DP {ranks}" if ranks > 1 else ""
        kind = f"{pool.model.name} on {pool.hardware.name}", split
        kinds[kind] = kinds.get(kind, 0) + pool.instances // ranks
    return kinds


def size_title(plan: Plan) -> str:
    """Return what was varied, as the title of a column."""
    path = plan.question.size_path
    return "instances" if plan.question.max_rate or path == INSTANCES else path.removeprefix("cluster.")


def size_text(plan: Plan, size: int | None) -> str:
    """Return a size in words."""
    title = size_title(plan)
    return plural(size or 1, "instance") if title == "instances" else f"{title} {size}"


def _around(plan: Plan, best: Candidate, width: int) -> Iterator[str]:
    """Yield the runs of the answer's configuration, by size or by rate; long reasons go below their run."""
    by_rate = plan.question.max_rate
    metrics = tuple(dict.fromkeys([*(constraint.metric for constraint in plan.question.study.constraints), *_USUAL]))
    known = (name for name in _WHERE_KNOWN if best.found is not None and best.found.mean(name) is not None)
    metrics = tuple(dict.fromkeys([*metrics, *known]))
    head = ["", f"{best.of}/s" if by_rate else size_title(plan), *([] if by_rate else ["GPUs"])]
    titles = {**_USUAL, **_WHERE_KNOWN}
    several = any(len(trial.rows) > 1 for trial in best.tried)
    head += [*(titles.get(metric, metric.removeprefix("latency.")) for metric in metrics)]
    head += ["seeds ok"] if several else []
    shown = best.tried
    first = metrics[0]
    # A figure far beyond its bound would shrink all other bars to nothing.
    bounds = plan.question.study.constraints
    top = max(
        (value for trial in shown if (value := trial.figure(first, bounds)) is not None and trial.all_hold), default=0.0
    )
    rows, beside = [head], [("", "")]
    for trial in shown:
        mark = "→" if trial is best.found else "✓" if trial.all_hold else "✗" if trial.known else "?"
        cells = [mark, f"{trial.rate_per_s:g}" if by_rate else f"{trial.size}"]
        cells += [] if by_rate else [number_text(trial.mean("cost.gpus"))]
        cells += [_spread(trial, metric) for metric in metrics]
        rows.append([*cells, *([f"{trial.holding} of {len(trial.rows)}"] if several else [])])
        beside.append(
            (fine_bar(trial.figure(first, bounds), top, _BAR), "") if trial.all_hold else ("", _why(plan, trial))
        )
    for line, (length, why) in zip(aligned(rows, right=range(1, len(head))), beside, strict=True):
        if len(line) + 2 + len(length or why) <= width:
            yield f"{line}  {length or why}".rstrip()
        else:
            yield line
            yield from sentence_lines(f"   {why}", width, indent="   ")


def _spread(trial: Trial, metric: str) -> str:
    values = trial.values(metric)
    if not values:
        return "-"
    low, high = number_text(min(values)), number_text(max(values))
    return low if low == high else f"{low} to {high}"


def _why(plan: Plan, trial: Trial) -> str:
    """Return what is wrong with a run whose bounds hold; exceeded bounds are visible in its figures."""
    bounds = plan.question.study.constraints
    seen = [row for row in trial.rows if not trial.known or all(each.of_bound <= 1.0 for each in margins(row, bounds))]
    return next((text for row in seen if (text := failure_reason(row))), "")


def remarks(plan: Plan, best: Candidate) -> Iterator[str]:
    """Yield remarks on how certain the answer is, and why."""
    trial, question = best.found, plan.question
    if trial is None:
        return
    yield _basis(plan, best, best.decides or trial)
    yield from _coming_and_going(plan, best, best.decides or trial)
    if question.headroom and trial.rate_per_s is not None:
        yield (
            f"All figures are at {number_text(trial.rate_per_s)} {best.of}/s, {100 * question.headroom:g} % above the"
            " load that is planned for."
        )
    if best.spare and best.size is not None:
        least, alone = best.size - best.spare, question.size_path == INSTANCES
        yield (
            f"The bounds hold with {plural(least, 'instance') if alone else f'{size_title(plan)} {least}'}, so they do"
            f" while any {plural(best.spare, 'instance')} of the {best.size} {'is' if best.spare == 1 else 'are'} down"
            f"{'.' if alone else '; without another one they were not tried.'}"
        )
    if plan.drawn:
        yield f"The requests are recorded, the same with every seed; a seed only determines {in_words(plan.drawn)}."
    if plan.binding is not None:
        margin = plan.binding
        used = f"{number_text(margin.value)} of {margin.bound:g} ({100 * margin.of_bound:.0f} %)"
        yield f"The tightest bound is {margin.metric}: {used}{_share_used(best.decides or trial, margin)}."
        yield from _next(plan, best, margin.metric)
    if (less := plan.front_end) is not None:
        many = "1 instance is" if less.size == 1 else f"{less.size} instances are"
        yield (
            f"The API server is the limit: {many} enough with `--set engine.front_end.processes={less.processes}`"
            " (vLLM's --api-server-count)."
        )
    yield from _ties(plan, best)
    if question.max_rate and best.recorded:
        yield "A recording is one course of its load: other hours of the same traffic may allow less."
    if best.interval is not None and best.accuracy:
        low, high = best.interval
        yield (
            f"This many {best.of} distinguish rates to within {100 * best.accuracy:.1f} %: the knee lies between "
            f"{low:.3g} and"
            f" {high:.3g} {best.of}/s."
        )
    yield from _what_else(plan, best)
    yield from _rate(plan, best)
    yield from step_times_text(plan.expected)
    yield from _slower(plan)
    yield from _opinions(plan)
    for name, message in plan.warnings.items():
        if name != "unused-capacity":
            yield f"warning[{name}]: {message}"
    if plan.cost == "cost.gpus" and not question.max_rate and _several_gpus(plan):
        yield (f"Configurations are compared by the number of GPUs: not all have a price ({PRICES}).")
    if question.study.prices and plan.cost != "cost.gpus":
        given = ", ".join(f"{name} {price:g}" for name, price in question.study.prices.items())
        yield f"Prices as given, in USD per GPU-hour: {given}."


def _basis(plan: Plan, best: Candidate, trial: Trial) -> str:
    """Return what the answer rests on."""
    requests = trial.mean("requests.total")
    seconds = trial.mean("offered.last_arrival_us")
    span = "" if seconds is None else f" over {seconds / 1e6:,.0f} s"
    agree = "one seed" if trial.seeds == 1 else f"{trial.holding} of {plural(trial.seeds, 'seed')} agree"
    if trial.ignores_seed:
        agree = "no seed changes it"
    if trial.steady is None:
        return f"Each run has {number_text(requests)} requests{span}; {agree}; {plural(plan.runs, 'run')} in total."
    row = trial.rows[0]
    failing = any(trial.known and not trial.all_hold for trial in best.tried)
    others = " (of a size that fails, as it was at that moment)" if failing else ""
    return (
        f"Each run ends when its verdict is certain, and its second half counts{others}. At the answer that is after"
        f" {number_text(requests)} requests{span}: {row.figures[f'{SECTION}.why']} (± one standard error, by batch"
        f" means); {agree}; {plural(plan.runs, 'run')} in total."
    )


def _coming_and_going(plan: Plan, best: Candidate, trial: Trial) -> Iterator[str]:
    """Yield what runs until a verdict do not show of instances that fail or are added."""
    cluster = experiment_of(plan.question.study, best.point, plan.question.study.seeds[0]).cluster
    if cluster.failures and not trial.mean("lifecycle.failures"):
        yield (
            "No instance failed in the runs, which are short for `cluster.failures`: --spare N plans for N instances"
            " that are down."
        )
    if cluster.autoscaler is not None and (cluster.lifecycle is None or not cluster.lifecycle.loading_delay_us):
        yield "Instances that the autoscaler adds serve at once: `cluster.lifecycle.loading_delay_us` is 0."


def _what_else(plan: Plan, best: Candidate) -> Iterator[str]:
    """Yield which key may do more than instances, by what the largest size that failed failed of."""
    failed = [
        trial for trial in best.tried if trial.known and not trial.all_hold and (trial.size or 0) < (best.size or 0)
    ]
    last = failed[-1] if failed else None
    if plan.question.max_rate or size_title(plan) != "instances" or last is None or last.nearest_limit is None:
        return
    metric, _, _ = last.nearest_limit
    served, came = last.mean("steady.requests_per_s") or 0.0, last.mean("steady.offered_requests_per_s") or 0.0
    experiment = experiment_of(plan.question.study, best.point, plan.question.study.seeds[0])
    if ".itl_ms." in metric:
        yield (
            f"With {size_text(plan, last.size)}, {metric} fails: gaps between tokens are longest in steps that also"
            " prefill. Smaller steps may need fewer instances: --axis engine.max_num_batched_tokens=512,2048,8192."
        )
    elif (last.size or 1) > 1 and experiment.policy.routing.kind == "round-robin" and served > _AS_MUCH * came:
        yield (
            f"{size_text(plan, last.size)} serve as much as arrives, but `round-robin` looks at no instance. Fewer may"
            " be enough where requests go to the least loaded one: --axis policy.routing=round-robin,least-loaded."
        )


def _share_used(trial: Trial, margin: Margin) -> str:
    """Return how much is beyond the tightest bound of what may be; of being served, if that is nearer to its limit."""
    if trial.nearest_limit is None:
        return ""
    metric, beyond, limit = trial.nearest_limit
    if not metric:
        return f"; nearer to its limit is that requests are served: {100 * beyond:.2f} of {100 * limit:g} % are not"
    if metric != margin.metric or metric.endswith(".mean"):
        return ""
    return f", and {100 * beyond:.2f} of the {100 * limit:g} % that may be beyond it are"


def _next(plan: Plan, best: Candidate, metric: str) -> Iterator[str]:
    """Yield the effect of one more instance."""
    if plan.question.max_rate or best.size is None or best.found is None:
        return
    more = best.at(size=best.size + 1, rate_per_s=best.found.rate_per_s)
    bounds = plan.question.study.constraints
    before, after = best.found.figure(metric, bounds), None if more is None else more.figure(metric, bounds)
    if more is not None and before is not None and after is not None:
        subject = (
            "One more instance would" if size_title(plan) == "instances" else f"{size_text(plan, best.size + 1)} would"
        )
        yield f"{subject} change {metric} from {number_text(before)} to {number_text(after)}."


def _opinions(plan: Plan) -> Iterator[str]:
    """Yield what the other step-time models say of the answer, if they say something else."""
    for other in plan.opinions:
        if other.apart:
            so = "all bounds would hold" if other.holds else "the answer would be different"
            yield (
                f"The step-time models disagree by more than {100 * DISAGREEMENT - 100:.0f} %: with {other.kind},"
                f" {other.metric} is {number_text(other.value)} here, not {number_text(other.own)}, and {so}."
            )
    disagreeing = {opinion.kind for opinion in plan.opinions if opinion.apart}
    for kind in dict.fromkeys(
        opinion.kind for opinion in plan.opinions if not opinion.holds and opinion.kind not in disagreeing
    ):
        # Figures that are close to one another may still be on two sides of a bound.
        asked = [opinion for opinion in plan.opinions if opinion.kind == kind]
        estimate = next((estimate for estimate in asked if _breaks(plan, estimate)), asked[0])
        yield (
            f"With the step-time model {kind} the answer would be different: {estimate.metric} is"
            f" {number_text(estimate.value)} here, not {number_text(estimate.own)}."
        )


def _breaks(plan: Plan, estimate: OtherEstimate) -> bool:
    """Return whether a figure is beyond one of its bounds."""
    own = [bound for bound in plan.question.study.constraints if bound.metric == estimate.metric]
    above = any(bound.max is not None and estimate.value > bound.max for bound in own)
    return above or any(bound.min is not None and estimate.value < bound.min for bound in own)


def _rate(plan: Plan, best: Candidate) -> Iterator[str]:
    """Yield the actual rates of the runs if arrivals are random, or recorded at changing rates."""
    trial = best.found
    if trial is None or (best.knee is None and plan.question.rate_per_s is None):
        return
    rate = trial.rate_per_s
    if best.recorded:
        half = trial.mean("steady.offered_requests_per_s")
        if rate is not None and best.of == "requests" and half is not None and number_text(half) != number_text(rate):
            yield (
                f"{rate:g} requests/s is the mean of all recorded arrivals: `steady` covers their second half, in which"
                f" {number_text(half)} requests/s arrived."
            )
        return
    came = trial.values("offered.requests_per_s")
    if came and rate is not None and best.of == "requests" and number_text(min(came)) != number_text(max(came)):
        yield (
            f"{rate:g} requests/s is the mean of random arrivals: in these runs {number_text(min(came))} to"
            f" {number_text(max(came))} requests/s arrived (`steady` covers their second halves)."
        )


def slower_text(known: SlowServer) -> str:
    """A slower server in words."""
    later = f", and TTFT {known.later:.3g} times as long beyond that" if known.later > 1.0 else ""
    return f"step times {100 * known.times - 100:.3g} % longer{later}"


def _slower(plan: Plan) -> Iterator[str]:
    """Yield how the answer changes on a slower server, like some measured ones."""
    known, asked = plan.slower, plan.question.confidence
    confidence = asked or USUAL_CONFIDENCE
    if isinstance(known, str):
        yield f"Whether that holds on a slower server is unknown, because {known}."
        return
    if known is None:
        return
    many = f"1 in {1 / (1 - confidence):.3g} measured servers"
    if asked is not None:
        other = plan.as_expected
        so = "nothing holds" if other is None else f"the answer is {_found_text(plan, other)}"
        yield f"That holds with {slower_text(known)}: {many} were slower still. With step times as expected, {so}."
    elif plan.if_slower is not None:
        estimate, other = plan.if_slower, plan.on_slower
        so = "it holds"
        if not estimate.holds:
            so = "nothing that was tried does" if other is None or other.why_not else _found_text(plan, other)
            then = so if so.startswith("nothing") else f"then the answer is {so}"
            so = f"it does not hold{'' if _breaks(plan, estimate) else ' for another reason'}: {then}"
        yield (
            f"With {slower_text(known)} ({many} were slower), {estimate.metric} is {number_text(estimate.value)} here,"
            f" not {number_text(estimate.own)}, and {so}."
        )


def _found_text(plan: Plan, candidate: Candidate) -> str:
    """Return an answer in few words."""
    name = f" of {configuration_name(plan, candidate)}" if len(plan.candidates) > 1 else ""
    if candidate.knee is not None:
        return f"{candidate.knee.holds:g} {candidate.of}/s{name}"
    gpus = None if candidate.found is None else candidate.found.mean("cost.gpus")
    return f"{size_text(plan, candidate.size)}{name} ({plural(int(gpus or 0), 'GPU')})"


def _ties(plan: Plan, best: Candidate) -> Iterator[str]:
    """Yield the equally expensive configurations, and why they are not the answer."""
    bounds = plan.question.study.constraints
    own = None if best.found is None else best.found.nearest(bounds)
    tied = "has as many GPUs" if plan.cost == "cost.gpus" else "costs the same"
    for tie in plan.ties:
        other = None if tie.found is None else tie.found.nearest(bounds)
        if own is None or other is None:
            continue
        size = "" if plan.question.max_rate else f" ({size_text(plan, tie.size)})"
        yield (
            f"{configuration_name(plan, tie)}{size} {tied}; its tightest bound, {other[0].metric}, is at"
            f" {100 * other[0].of_bound:.0f} %, that of the answer at {100 * own[0].of_bound:.0f} %."
        )


def configuration_name(plan: Plan, candidate: Candidate) -> str:
    """Return the values that distinguish a configuration from the others."""
    return point_text(plan.question.study.paths, candidate.coordinates) or "as it is"


def step_times_text(expected: Mapping[str, tuple[str, Expectation]]) -> Iterator[str]:
    """Yield the expected errors of the means, one sentence for all pools with the same."""
    texts: dict[str, list[str]] = {}
    for name, (kind, known) in expected.items():
        texts.setdefault(f"(step times: {kind}): {accuracy_text(known)}", []).append(name)
    for text, names in texts.items():
        of = f" of {', '.join(names)}" if len(texts) > 1 else ""
        yield f"Accuracy{of} {text}."


def _several_gpus(plan: Plan) -> bool:
    return len({str(candidate.coordinates.get("hardware")) for candidate in plan.candidates}) > 1


def _configurations(plan: Plan) -> Iterator[str]:
    """Yield all configurations, each with its answer."""
    names = short_names(plan.question.study.paths)
    by_rate = plan.question.max_rate
    costs = cost_titles(plan)
    head = ["", *names.values(), f"{plan.candidates[0].of}/s" if by_rate else size_title(plan), *costs.values()]
    rows = []
    for candidate in plan.candidates:
        trial = candidate.found
        answer = "-" if trial is None else f"{trial.rate_per_s:g}" if by_rate else f"{candidate.size}"
        cells = ["→" if candidate is plan.best else "?" if candidate.not_known else "✗" if trial is None else ""]
        cells += [value_text(candidate.coordinates.get(path)) for path in names]
        cells += [answer, *(number_text(None if trial is None else trial.mean(metric)) for metric in costs)]
        rows.append([*cells, row_error(plan, candidate), candidate.why_not])
    yield from aligned([[*head, "expected error", ""], *rows], right=range(1 + len(names), len(head)))


def cost_titles(plan: Plan) -> dict[str, str]:
    """Return the cost figures that any configuration has, and their column titles."""
    trials = [candidate.found for candidate in plan.candidates if candidate.found is not None]
    priced = any(trial.mean("cost.usd_per_hour") is not None for trial in trials)
    return {"cost.gpus": "GPUs", **({"cost.usd_per_hour": "USD/h"} if priced else {})}


def row_error(plan: Plan, candidate: Candidate) -> str:
    """Return the median error to expect of a configuration's bounded means, of several pools the largest."""
    if candidate.found is None:
        return ""
    if not candidate.measured:
        return "not measured"
    bands = [known.bands for _, known in candidate.expected.values()]
    errors = []
    for metric in metrics_bounded(plan.question.study.constraints):
        known = all(metric in each for each in bands)
        size = f"±{max(each[metric].median for each in bands):.0f} %" if known else "not known"
        errors.append(f"{METRIC_NAMES[metric]} {size}")
    return ", ".join(errors)


# A plan as plain data for programs.


def plan_data(plan: Plan) -> dict[str, object]:
    """Return the question, the answer, and every run behind it."""
    question = plan.question
    return {
        "experiment": question.study.experiment,
        "slos": [bound_text(constraint) for constraint in question.study.constraints],
        "rate_per_s": question.rate_per_s,
        "max_rate": question.max_rate,
        "headroom": question.headroom,
        "spare": question.spare,
        "confidence": question.confidence,
        "seeds": list(question.study.seeds),
        "seeds_decide": list(plan.drawn) or None,
        "compared_by": plan.cost,
        "prices_usd_per_hour": dict(question.study.prices),
        "best": None if plan.best is None else plan.candidates.index(plan.best),
        "binding": None if plan.binding is None else asdict(plan.binding),
        "best_measured": None if plan.best_measured is None else plan.candidates.index(plan.best_measured),
        "step_time": {} if plan.best is None else _errors_data(plan.best),
        "other_step_times": [{**asdict(opinion), "apart": opinion.apart} for opinion in plan.opinions],
        "front_end": None if plan.front_end is None else plan.front_end._asdict(),
        "slower_steps": _slower_data(plan),
        "as_cheap": [plan.candidates.index(tie) for tie in plan.ties],
        "warnings": dict(plan.warnings),
        "runs": plan.runs,
        "configurations": [_candidate_data(candidate) for candidate in plan.candidates],
    }


def _slower_data(plan: Plan) -> dict[str, object]:
    """Return the effect of slower steps."""
    known = plan.slower
    return {
        "confidence": plan.question.confidence or USUAL_CONFIDENCE,
        "times": known.times if isinstance(known, SlowServer) else None,
        "first_tokens_times": known.later if isinstance(known, SlowServer) else None,
        "not_known": known if isinstance(known, str) else None,
        "tightest_bound": None if plan.if_slower is None else asdict(plan.if_slower),
        "answer_on_slower": None if plan.on_slower is None else _candidate_data(plan.on_slower),
        "answer_as_expected": None if plan.as_expected is None else _candidate_data(plan.as_expected),
    }


def _errors_data(candidate: Candidate) -> dict[str, object]:
    return {name: expected_data(kind, known) for name, (kind, known) in candidate.expected.items()}


def _candidate_data(candidate: Candidate) -> dict[str, object]:
    knee = candidate.knee
    return {
        "coordinates": candidate.coordinates,
        "size": candidate.size,
        "rate_that_holds_per_s": None if knee is None else knee.holds,
        "rate_that_fails_per_s": None if knee is None else knee.fails,
        "knee_between_per_s": candidate.interval,
        "why_not": candidate.why_not,
        "not_known": candidate.not_known,
        "step_time": _errors_data(candidate),
        "tried": [
            {
                "size": tried.size,
                "rate_per_s": tried.rate_per_s,
                "holding": tried.holding,
                "seeds": tried.seeds,
                "runs": [as_data(row) for row in tried.rows],
            }
            for tried in candidate.tried
        ],
    }
