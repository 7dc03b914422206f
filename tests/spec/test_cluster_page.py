"""What docs/clusters.md shows can be run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import blis_tui

PAGE = Path(__file__).parents[2] / "docs/clusters.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: shown}\nmodel: qwen3-14b\nhardware: h100\n"


@pytest.mark.parametrize("at", range(len(EXAMPLES)))
def test_examples_run(at: int, tmp_path: Path) -> None:
    workload = "" if "workload:" in EXAMPLES[at] else "workload: chatbot\n"
    (tmp_path / "shown.blis.yaml").write_text(HEAD + workload + EXAMPLES[at], encoding="utf-8")
    report = blis_tui.run(blis_tui.load(tmp_path / "shown.blis.yaml", set={"workload.requests": 50}), check="all")
    assert report.requests.completed + report.requests.rejected == 50


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 7
