"""``blis_tui.sweep`` as scripts and notebooks call it."""

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from tests.study.studies import MISHAPS, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.study.sweep import Progress

STUDY = {
    "apiVersion": "blis/v1",
    "kind": "Study",
    "metadata": {"name": "own"},
    "experiment": "quickstart",
    "set": SMALL,
    "axes": {"cluster.instances": [1, 2]},
    "seeds": [3, 4],
}


class Array(list[int]):
    """What numeric libraries have: no list, but they make one."""

    def tolist(self) -> list[int]:
        return list(self)


def test_an_experiment_with_axes(tmp_path: Path) -> None:
    seen: list[Progress] = []
    arguments = {
        "axes": {"cluster.instances": range(1, 3), "workload.clients.0.input_tokens": Array([100, 400])},
        "set": {"workload.requests": 20, "expect": [], "latency": "roofline", "policy": "blis"},
        "seeds": 2,
        "slos": ["latency.ttft_ms.p99<=25"],
        "objectives": ["max:throughput.output_tokens_per_s", "cost.gpus"],
        "store": tmp_path,
    }
    result = blis_tui.sweep("quickstart", **arguments, on_progress=seen.append)  # type: ignore[arg-type]
    assert [(now.done, now.known, now.total) for now in seen] == [(done, 0, 8) for done in range(1, 9)]
    assert [row.coordinates["workload.clients.0.input_tokens"] for row in result] == [100, 100, 400, 400] * 2
    assert [row.seed for row in result] == [42, 43] * 4
    assert [row.ok for row in result] == [True, True, False, False, True, True, True, True]
    assert all(isinstance(row, blis_tui.Row) for row in result)
    assert [objective.goal for objective in result.study.objectives] == ["max", "min"]
    again = blis_tui.sweep("quickstart", **arguments, on_progress=seen.append)  # type: ignore[arg-type]
    assert seen[-1].known == 8
    assert again.records() == result.records()


def test_a_study_as_plain_data_and_what_is_said_besides() -> None:
    result = blis_tui.sweep(STUDY, axes={"cluster.instances": [2]}, seeds=[7])
    assert isinstance(result, blis_tui.StudyResult)
    assert [(row.coordinates, row.seed) for row in result] == [({"cluster.instances": 2}, 7)]
    report = blis_tui.run(blis_tui.load("quickstart", set={**SMALL, "cluster.instances": 2}, seed=7))
    assert result[0].figures["latency.ttft_ms.p99"] == report.latency.ttft_ms.p99
    assert result[0].sha256 == report.meta.spec_sha256


def test_a_file_and_plug_ins(tmp_path: Path) -> None:
    path = tmp_path / "own.study.yaml"
    path.write_text(json.dumps({**STUDY, "set": {**SMALL, "policy.routing": "mishap"}}))
    result = blis_tui.sweep(path, plugins=[MISHAPS], jobs=2)
    assert [row.status for row in result] == ["done"] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axes": {"cluster.instnces": [1]}}, "did you mean `instances`"),
        ({"axes": {"cluster.instances": 5}}, "expected a list"),
        ({"axes": {"workload.requests": [math.nan]}}, "."),
        ({"slos": ["latency.ttft_ms.p99=>3"]}, "is not a bound on a metric"),
        ({"seeds": []}, "seeds"),
        ({"set": {"cluster.instances": 0}}, "must be at least 1"),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(blis_tui.SpecError, match=message):
        blis_tui.sweep("quickstart", **arguments)  # type: ignore[arg-type]


def test_arguments_of_the_wrong_kind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is a name, a path or a mapping, not int"):
        blis_tui.sweep(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        blis_tui.sweep("quickstart", jobs=0)
    for call in (blis_tui.sweep, blis_tui.plan):
        with pytest.raises(TypeError, match=r"not Experiment; pass what blis_tui\.load"):
            call(blis_tui.load("quickstart"))  # type: ignore[arg-type]
    with pytest.raises(blis_tui.InputError, match="there is nothing to plan for"):
        blis_tui.plan("quickstart")
    bound = "latency.ttft_ms.p99<=300"
    several: list[tuple[Callable[..., object], str, str]] = [
        (blis_tui.sweep, "slos", bound),
        (blis_tui.plan, "slos", bound),
        (blis_tui.sweep, "objectives", "cost.gpus"),
        (blis_tui.load, "plugins", "mine.py"),
    ]
    for function, name, text in several:
        with pytest.raises(TypeError, match=re.escape(f"{name} is a list: write {name}=['{text}']")):
            function("quickstart", **{name: text})
    (tmp_path / "file").touch()
    with pytest.raises(blis_tui.InputError, match="cannot keep results"):
        blis_tui.sweep("quickstart", store=tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate_per_s": 0}, "rate_per_s must be above 0 and finite, not 0"),
        ({"rate_per_s": math.inf}, "rate_per_s must be above 0 and finite, not inf"),
        ({"rate_per_s": 5.0, "max_rate": True}, "cannot be combined"),
        ({"duration_s": math.inf}, "duration_s must be above 0 and finite, not inf"),
        ({"duration_s": math.nan}, "duration_s must be above 0 and finite, not nan"),
        ({"precision": 0.0}, "precision must be from 0.01 to 1, not 0.0"),
        ({"sizes": ("cluster.instances", 5, 2)}, "the least, 1 or more, and the most"),
    ],
)
def test_a_plan_takes_no_number_that_makes_no_run(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blis_tui.plan("quickstart", slos=["latency.ttft_ms.p99<=300"], **arguments)
