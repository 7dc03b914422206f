"""A plan as plain data, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from blis_tui.records.section_text import expected_data
from blis_tui.study.planning.plan import USUAL_CONFIDENCE
from blis_tui.study.planning.slower import Slower
from blis_tui.study.tables import as_data
from blis_tui.study.text import bound_text

if TYPE_CHECKING:
    from blis_tui.study.planning.plan import Candidate, Plan


def plan_data(plan: Plan) -> dict[str, object]:
    """The question, the answer, and every run behind it."""
    question = plan.question
    return {
        "experiment": question.study.experiment,
        "slos": [bound_text(one) for one in question.study.constraints],
        "rate_per_s": question.rate_per_s,
        "max_rate": question.max_rate,
        "confidence": question.confidence,
        "seeds": list(question.study.seeds),
        "seeds_decide": list(plan.drawn) or None,
        "compared_by": plan.cost,
        "prices_usd_per_hour": dict(question.study.prices),
        "best": None if plan.best is None else plan.candidates.index(plan.best),
        "binding": None if plan.binding is None else asdict(plan.binding),
        "step_time": {name: expected_data(kind, known) for name, (kind, known) in plan.expected.items()},
        "other_step_times": [{**asdict(one), "apart": one.apart} for one in plan.opinions],
        "slower_steps": _slower(plan),
        "as_cheap": [plan.candidates.index(one) for one in plan.ties],
        "warnings": dict(plan.warnings),
        "runs": plan.runs,
        "configurations": [_candidate(one) for one in plan.candidates],
    }


def _slower(plan: Plan) -> dict[str, object]:
    """What slower steps change."""
    known = plan.slower
    return {
        "confidence": plan.question.confidence or USUAL_CONFIDENCE,
        "times": known.times if isinstance(known, Slower) else None,
        "first_tokens_times": known.later if isinstance(known, Slower) else None,
        "not_known": known if isinstance(known, str) else None,
        "tightest_bound": None if plan.if_slower is None else asdict(plan.if_slower),
        "answer_on_slower": None if plan.on_slower is None else _candidate(plan.on_slower),
        "answer_as_expected": None if plan.as_expected is None else _candidate(plan.as_expected),
    }


def _candidate(one: Candidate) -> dict[str, object]:
    knee = one.knee
    return {
        "coordinates": one.coordinates,
        "size": one.size,
        "rate_that_holds_per_s": None if knee is None else knee.holds,
        "rate_that_fails_per_s": None if knee is None else knee.fails,
        "knee_between_per_s": one.interval,
        "why_not": one.why_not,
        "not_known": one.not_known,
        "tried": [
            {
                "size": tried.size,
                "rate_per_s": tried.rate_per_s,
                "holding": tried.holding,
                "seeds": tried.seeds,
                "runs": [as_data(row) for row in tried.rows],
            }
            for tried in one.tried
        ],
    }
