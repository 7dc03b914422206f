"""Each phase does no more work than the budget allows, measured against a version that never moves.

`python -m benchmarks.guard --all` prints every figure. Where one has to grow, `benchmarks/guard/budget.json` gets its
new limit and the reason, in the same commit.
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
def test_no_phase_does_more_than_its_budget_allows(name: str) -> None:
    counted = figures.count(name)
    wrong = [str(one) for one in figures.over(counted)]
    assert not wrong, "\n".join([*wrong, f"other dependencies than the anchor's: {figures.other_dependencies()}"])
    # A raise that is not needed would let half a gain be lost again unseen.
    assert figures.unneeded(counted) == [], "no longer above the anchor: take them out of benchmarks/guard/budget.json"


def test_every_figure_has_an_anchor_and_every_raise_a_reason() -> None:
    anchor = figures.anchor()
    assert {name.partition(".")[0] for name in anchor} == set(inputs.NAMES)
    for name, one in figures.raises().items():
        assert name in anchor
        assert one.times > figures.tolerance()
        assert len(one.reason) > 20, f"why may {name} be {one.times} times its anchor?"


def test_the_anchor_is_the_first_version_wherever_that_could_run() -> None:
    first, *later = figures.versions()
    assert first.commit == "7db62b7"
    for one in later:
        assert not one.figures.keys() & first.figures.keys()


def test_more_than_the_budget_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = {"azure.rows.calls": figures.Raise(times=1.5, reason="because")}
    monkeypatch.setattr(figures, "raises", lambda: raised)
    anchor = figures.anchor()
    rows, load = anchor["azure.rows.calls"], anchor["azure.load.calls"]
    assert figures.over({"azure.rows.calls": rows * 1.5, "azure.load.calls": load * 1.02}) == []
    assert [one.name for one in figures.over({"azure.rows.calls": rows * 1.51})] == ["azure.rows.calls"]
    assert [one.name for one in figures.over({"azure.load.calls": load * 1.03})] == ["azure.load.calls"]
    assert figures.unneeded({"azure.rows.calls": rows}) == ["azure.rows.calls"]
    assert figures.unneeded({"azure.rows.calls": rows * 1.2}) == []


def test_what_a_version_cannot_run_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "COMMANDS", {"future": ("a-command-that-is-not-there",)})
    with pytest.raises(figures.CannotCountError, match=r"future: .*No such command"):
        figures.count("future")


@pytest.mark.parametrize("name", TRACES)
def test_traces_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    inputs.PHASED[name](tmp_path)
    assert sha256((tmp_path / f"{name}.csv").read_bytes()).hexdigest() == TRACES[name]
