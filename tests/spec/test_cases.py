"""Cases and the matrix of an experiment: the axes of studies, by name."""

from __future__ import annotations

import re

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.cases import expanded_cases
from blis_tui.spec.compose import Problems
from blis_tui.spec.read import parse


def cases(text: str) -> dict[str, dict[str, object]]:
    problems = Problems()
    found = expanded_cases(parse(Source("x", text)), problems)
    if problems.found:
        raise SpecError(problems.found)
    return {case.name: dict(case.values) for case in found}


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
    assert "plain,instances=2,policy=scheduling-kind-fcfs-4b40ba" in found


def test_names_of_cases_are_names_of_files_on_every_system() -> None:
    """Whatever the values are: a path does not lead elsewhere, no name is too long, and no two are the same."""
    found = cases(f"""\
cases: {{plain: {{}}}}
matrix:
  workload: [../../x.yaml, '..-..-x.yaml', 'a?*:<>|"b', 'Qwen/Qwen3-14B', {"x" * 300}, {{requests: 1}}, -1.5]
  b: [1, [{"1, " * 200}]]
  c: [{"y" * 40}]
  d: [{"z" * 40}]
""")
    assert len(found) == 14
    assert [name for name in found if re.fullmatch(r"plain,[A-Za-z0-9._=,-]{1,130}", name) is None] == []
    assert {"plain,workload=-1.5", "plain,workload=..-..-x.yaml"} < {name.split(",b=")[0] for name in found}


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("{a: {from: 2, to: 1, step: 1}}", "the range goes from 2 down to 1"),
        ("{a: {from: 1, to: 1000, step: 1}, b: {from: 1, to: 1000, step: 1}}", "the matrix expands to 1,000,000 cases"),
        ("{a..b: [1]}", "is not a path of keys"),
        ("{a: [1, 2, 1.0]}", "`1.0` is listed twice"),
        ("{a: [{b: [1], c: 2}, {c: 2, b: [1]}]}", "`{b: .1., c: 2}` is listed twice|`{c: 2, b: .1.}` is listed twice"),
        ("{a.b: [1, 2], a: [{b: 1}]}", "`a` replaces what `a.b` .under `matrix`. assigns"),
    ],
)
def test_what_is_wrong_with_a_matrix_is_told(matrix: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        cases(f"matrix: {matrix}")
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cases: {a: {x: 1}, b: {x: 1.0}}", "case `b` assigns the same values as case `a`"),
        ("cases: {a: {}, b: {}}", "case `b` assigns the same values as case `a`"),
        ("cases: {a: {x: 1, y: 2}, b: {y: 2, x: 1}}", "case `b` assigns the same values as case `a`"),
        ("cases: {a: {x.y: 1}, b: {}}\nmatrix: {x: [{y: 2}, {y: 3}]}", "`x.y` has no effect: the matrix"),
        ("cases: {a: {x: 1}, b: {}, A: {x: 2}}", "the cases `a` and `A` would have the same golden"),
        ("matrix: {x: [y, Y]}", "the cases `x=y` and `x=Y` would have the same golden"),
        ("matrix: {x: [1, '1']}", "the cases `x=1` and `x=1` would have the same golden"),
        ("cases: {a: {x.y: 1, x: {y: 2}}}", "`x` replaces what `x.y` .under `cases`. assigns"),
    ],
)
def test_what_is_without_effect_in_cases_is_told(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        cases(text)
    assert len(caught.value.diagnostics) == 1


def test_values_that_only_look_alike_are_different() -> None:
    assert len(cases("matrix: {a: [1, '1.0', true, [1], {b: 1}], c: [0, false, null]}")) == 15
