"""Cases and the matrix of an experiment: the axes of studies, by name."""

from __future__ import annotations

import pytest

from blis_tui.errors import SpecError
from blis_tui.spec.cases import expanded_cases
from blis_tui.spec.compose import Problems
from blis_tui.spec.loader import parse
from blis_tui.spec.source import Source


def cases(text: str) -> dict[str, dict[str, object]]:
    problems = Problems()
    found = expanded_cases(parse(Source("x", text)), problems)
    if problems.found:
        raise SpecError(problems.found)
    return {one.name: dict(one.values) for one in found}


def test_without_cases_there_is_the_experiment_itself() -> None:
    assert cases("seed: 1") == {"": {}}


def test_every_case_meets_every_point_of_the_matrix_of_lists_and_ranges() -> None:
    text = """\
cases: {small: {engine.kv_blocks: 9}, plain: {}}
matrix:
  cluster.instances: {from: 1, to: 2, step: 1}
  policy: [sjf, {scheduling: {kind: fcfs}}]
"""
    found = cases(text)
    assert len(found) == 8
    assert found["small,instances=1,policy=sjf"] == {"engine.kv_blocks": 9, "cluster.instances": 1, "policy": "sjf"}
    assert "plain,instances=2,policy={'scheduling':{'kind':'fcfs'}}" in found


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        ("{a: {from: 2, to: 1, step: 1}}", "the range goes from 2 down to 1"),
        ("{a: {from: 1, to: 1000, step: 1}, b: {from: 1, to: 1000, step: 1}}", "the matrix expands to 1,000,000 cases"),
        ("{a..b: [1]}", "is not a path of keys"),
    ],
)
def test_what_is_wrong_with_a_matrix_is_told(matrix: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        cases(f"matrix: {matrix}")
