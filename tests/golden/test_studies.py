"""Studies as golden tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import files_of
from blis_tui.golden.review import accept, difference_text, look, record_full
from blis_tui.golden.session import GoldenSettings, run_case
from blis_tui.spec.user_plugins import load_plugins

from .projects import SPEC, blis_in, files, project, pytest_in

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.golden.golden_store import GoldenFiles
    from blis_tui.golden.session import Outcome

STUDY = """\
apiVersion: blis/v1
kind: Study
metadata: {name: sizes}
experiment: ./demo.blis.yaml
axes:
  cluster.instances: [1, 2]
  engine.max_num_seqs: [2, 256]
objectives: [{metric: cost.gpus}, {metric: latency.ttft_ms.p99}]
constraints: [{metric: latency.ttft_ms.p99, max: 300}]
"""


def study_in(folder: Path, text: str = STUDY) -> Path:
    path = project(folder) / "sizes.study.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def run(spec: Path, mode: str) -> tuple[Outcome, GoldenFiles]:
    (case,) = cases_of(spec)
    stored = files_of(spec, case.name, folder=spec.parent / "golden", root=spec.parent)
    return run_case(case, stored, spec.name, GoldenSettings(mode=mode, checks=("observers",))), stored


def test_a_study_has_a_line_for_each_run_and_says_what_has_become_of_its_answer(tmp_path: Path) -> None:
    spec = study_in(tmp_path)
    first, stored = run(spec, "unseen")
    assert first.status == "written"
    report = json.loads(stored.read().report)
    assert [*report["runs"]][:2] == ["instances=1 max_num_seqs=2", "instances=1 max_num_seqs=256"]
    assert stored.read().report.count("\n") == 6 + len(report["runs"]) + 1
    assert {name for one in report["runs"].values() for name in one} == {
        "status",
        "ok",
        "front",
        "cost.gpus",
        "latency.ttft_ms.p99",
    }
    assert run(spec, "no")[0].status == "equal"
    held = [name for name, one in report["runs"].items() if one["ok"]]
    front = [name for name, one in report["runs"].items() if one["front"]]
    assert held and front  # noqa: PT018

    spec.write_text(STUDY.replace("max: 300", "max: 0.001"), encoding="utf-8")
    changed, stored = run(spec, "new")
    assert changed.status == "changed"
    assert f"2 of 4 runs changed\n  no longer hold: {'; '.join(held)}" in changed.text
    assert f"no longer on the front: {'; '.join(front)}" in changed.text
    assert "study: 1 difference" in changed.text
    assert "- /runs/instances=1 max_num_seqs=256/ok" in changed.text
    assert look(stored, tmp_path).state == "changed"
    assert difference_text(stored, tmp_path) in changed.text
    assert "has changed" not in changed.text
    accept(stored)
    assert look(stored, tmp_path).state == "golden"
    assert "no records" in record_full(stored, tmp_path)


@pytest.mark.parametrize(
    ("choose", "trouble"),
    [
        # What an earlier run has left behind; and what a run keeps for itself.
        ("SEEN[0] += 1; return SEEN[0] // 3 % 2, ''", "its last run gives different metrics when it is made alone"),
        ("self.own = getattr(self, 'own', 0) + 1; return self.own % 2, ''", ""),
    ],
)
def test_a_run_of_a_study_is_repeated(choose: str, trouble: str, tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "from blis_tui.plugins import ROUTING\n\nSEEN = [0]\n\n"
        "@ROUTING.plugin('own', 'For tests.')\nclass Own:\n    rule = ''\n"
        "    def __init__(self, settings):\n        pass\n"
        f"    def choose(self, request, fleet, context):\n        {choose}\n"
        "    def state(self):\n        return ()\n",
        encoding="utf-8",
    )
    spec = study_in(tmp_path, f"{STUDY}set: {{policy.routing: own}}\n".replace("[1, 2]", "[2]"))
    (case,) = cases_of(spec, load_plugins([plugin]))
    stored = files_of(spec, case.name, folder=tmp_path / "golden", root=tmp_path)
    outcome = run_case(case, stored, spec.name, GoldenSettings(mode="unseen", checks=("observers", "checkpoint")))
    assert outcome.status == ("nondeterministic" if trouble else "written")
    assert trouble in outcome.text


def test_a_study_is_no_single_run(tmp_path: Path) -> None:
    (case,) = cases_of(study_in(tmp_path))
    with pytest.raises(InputError, match="is a study: it has many runs"):
        case.load()


@pytest.mark.slow
def test_pytest_collects_studies(tmp_path: Path) -> None:
    study_in(tmp_path)
    assert "2 passed" in pytest_in(tmp_path, "--blis-update=unseen", "--blis-report=report.html").stdout
    assert "sizes.study.golden.json" in files(tmp_path)
    (tmp_path / "demo.blis.yaml").write_text(SPEC.replace("kv_blocks: 60", "kv_blocks: 80"), encoding="utf-8")
    again = pytest_in(tmp_path, "sizes.study.yaml")
    assert "the result of the study differs from its golden" in again.stdout
    assert "its experiment `./demo.blis.yaml` has changed" in again.stdout
    assert blis_in(tmp_path, "golden", "accept", "sizes*").stdout == "accepted sizes.study\n"
