"""No phase does far more work than in the last release, by accident.

`python -m benchmarks.guard --all` prints every figure; `--anchor` makes a checkout the anchor.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from benchmarks.guard import figures, inputs

if TYPE_CHECKING:
    from pathlib import Path

TRACES = {
    "azure": "5ba205760b2baf9ed0fb95bab1e03c36ca6b3c6b598189dd0881f6ba02fc245c",
    "saturated": "308e5fb9978ee93368adbb87aa157ce4d35cbf0616df628f9d852be812bf1c2e",
}


@pytest.mark.slow
@pytest.mark.skipif(
    figures.python() != figures.anchor_python(),
    reason=f"the anchor was counted with Python {figures.anchor_python()}: others make other calls",
)
@pytest.mark.parametrize("name", inputs.NAMES)
def test_no_phase_does_far_more_than_in_the_last_release(name: str) -> None:
    counted = figures.count(name)
    wrong = [str(over) for over in figures.over(counted)]
    assert not wrong, "\n".join([*wrong, f"other dependencies than the anchor's: {figures.other_dependencies()}"])


def test_every_input_has_an_anchor() -> None:
    assert {name.partition(".")[0] for name in figures.anchor()} == set(inputs.NAMES)


def test_far_more_than_the_anchor_is_seen() -> None:
    rows, load = (figures.anchor()[name] for name in ("azure.rows.calls", "azure.load.calls"))
    assert figures.over({"azure.rows.calls": rows * 1.14, "azure.load.calls": load}) == []
    assert [over.name for over in figures.over({"azure.rows.calls": rows * 1.16, "azure.load.calls": load * 0.5})] == [
        "azure.rows.calls"
    ]


def test_what_a_version_cannot_run_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "COMMANDS", {"future": ("a-command-that-is-not-there",)})
    with pytest.raises(figures.CannotCountError, match=r"future: .*No such command"):
        figures.count("future")


@pytest.mark.parametrize("name", TRACES)
def test_traces_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    inputs.PHASED[name](tmp_path)
    assert sha256((tmp_path / f"{name}.csv").read_bytes()).hexdigest() == TRACES[name]
