"""A run whose KV cache filled shows little by itself: other seeds must hold, too."""

import json
from typing import Any

import pytest

from blis_tui.base.source import Source
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import read_study
from blis_tui.study.planning.answer import Candidate, Question
from blis_tui.study.planning.configuration import Configuration
from blis_tui.study.planning.driver import Run
from blis_tui.study.study_rows import Row, Value

TTFT = "latency.ttft_ms.p90"
LARGEST = 2**63 - 1


def question(seeds: int | list[int], **keys: Any) -> Question:
    study = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": "x"},
        "experiment": "quickstart",
        "axes": {},
        "seeds": seeds,
        "constraints": [{"metric": TTFT, "max": 500}],
    }
    return Question(study=read_study(parse(Source("x", json.dumps(study)))), rate_per_s=10.0, most=8, **keys)


def answer(
    asked: Question, unlucky: int | None, enough: int, peak: float, bad: str = "fails"
) -> tuple[Candidate, list[Run]]:
    """The answer where a size holds from ``enough`` on, but with one seed only from one more on."""
    search, runs = Configuration(asked, asked.study.points[0]).search(), list[Run]()
    rows: list[Row] | None = None
    try:
        while True:
            wanted = next(search) if rows is None else search.send(rows)
            runs += wanted
            rows = [_row(run, enough + (run.seed == unlucky), peak, bad) for run in wanted]
    except StopIteration as stop:
        candidate: Candidate = stop.value
        return candidate, runs


def _row(run: Run, enough: int, peak: float, bad: str) -> Row:
    size = run.values.get("cluster.instances", enough)
    assert isinstance(size, int)
    holds = size >= enough
    ttft_ms = run.seed % 50 + (100.0 if holds else 900.0)
    figures: dict[str, Value] = {TTFT: ttft_ms, "requests.total": 100, "throughput.requests_per_s": 5.0}
    if run.steady is not None:
        figures |= {"stationary.verdict": "holds" if holds else bad, "stationary.peak_kv": peak}
    return Row(point=run.point, seed=run.seed, status="done", ok=holds, why="" if holds else "late", figures=figures)


@pytest.mark.parametrize("unlucky", [43, 44])
def test_a_size_whose_cache_filled_holds_only_if_it_does_with_two_more_seeds(unlucky: int) -> None:
    candidate, _ = answer(question(1), unlucky, 3, 0.99)
    assert candidate.size == 4
    below = candidate.at(size=3, rate_per_s=10.0)
    assert below is not None
    assert [row.seed for row in below.rows] == [42, 43, 44]
    assert (below.holding, below.all_hold) == (2, False)


def test_without_an_unlucky_seed_the_size_stands_on_three() -> None:
    candidate, _ = answer(question(1), None, 3, 0.99)
    assert candidate.size == 3
    assert candidate.found is not None
    assert candidate.found.holding == 3


def test_another_seed_that_is_not_decided_is_no_failure() -> None:
    candidate, _ = answer(question(1), 44, 3, 0.99, bad="not known")
    assert candidate.size == 3
    assert candidate.found is not None
    assert candidate.found.holding == 2


def test_a_cache_with_room_needs_no_other_seed() -> None:
    candidate, runs = answer(question(1), 43, 3, 0.5)
    assert candidate.size == 3
    assert {run.seed for run in runs} == {42}


def test_a_study_with_seeds_of_its_own_gets_no_others() -> None:
    candidate, runs = answer(question(2), None, 3, 0.99)
    assert candidate.size == 3
    assert {run.seed for run in runs} == {42, 43}


def test_beyond_the_largest_seed_is_the_smallest() -> None:
    _, runs = answer(question([LARGEST]), None, 3, 0.99)
    assert {run.seed for run in runs} == {LARGEST, 0, 1}


@pytest.mark.parametrize(
    ("bad", "said"),
    [("fails", "8 instances are not enough"), ("not known", "whether 8 instances are enough is not known")],
)
def test_the_largest_size_is_not_called_too_small_where_that_is_not_known(bad: str, said: str) -> None:
    candidate, _ = answer(question(1), None, 9, 0.0, bad)
    assert candidate.found is None
    assert candidate.why_not == f"{said} (late), and more were not tried"
