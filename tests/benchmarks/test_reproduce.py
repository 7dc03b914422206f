"""What the page on accuracy says is found again from the measurements in this repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import reproduce
from benchmarks.accuracy import MEASURED, serving_runs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_runs_are_simulated_anew_and_found_as_they_ship(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And one that ships otherwise is named."""
    text, wrong = reproduce.reproduce(140, 1)
    assert wrong == 0
    assert text.startswith("vllm, 4 x h100, gpt-oss-120b, 64 users: as shipped\n")
    assert "2 runs and 42 figures recomputed, 0 of them otherwise than shipped" in text
    known = json.loads(MEASURED.read_text())
    known["operators"]["runs"][-1][2]["itl"] += 0.001
    (tmp_path / "errors.json").write_text(json.dumps(known))
    monkeypatch.setattr(reproduce, "MEASURED", tmp_path / "errors.json")
    runs = list(serving_runs(reproduce.DATA))
    monkeypatch.setattr(reproduce, "serving_runs", lambda _: runs[-1:])
    text, wrong = reproduce.reproduce(1000, 1)
    assert wrong == 1
    assert f"NOT FOUND AGAIN  {runs[-1].server}" in text
