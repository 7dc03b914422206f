"""Points whose bounds hold only as long as a run is short, and plans of clusters that change."""

from __future__ import annotations

from dataclasses import replace

import pytest

import blis_tui
from blis_tui.study.planning.plan_text import plan_text
from blis_tui.study.point_summary import PointSummary, study_front, summaries
from blis_tui.study.study_rows import value_text
from blis_tui.study.study_text import study_text
from blis_tui.tui.screens.study_points import Board, explained
from tests.results.test_lints import ids

GROWING = {
    "model": "llama-3.1-8b-instruct",
    "hardware": "a100-80",
    "cluster.instances": 2,
    "workload.rate_per_s": 40,
    "expect": [],
}
"""Three instances are needed (`plan`); two fill up for half a minute, and only then do requests wait."""


def test_a_system_that_fills_up_says_so_and_a_steady_one_does_not() -> None:
    report = blis_tui.run("quickstart", set={**GROWING, "workload.requests": 600})
    found = next(warning for warning in report.warnings if warning.id == "unsettled")
    # Counted anew in the rows, at the middles of the quarters.
    first, last = (getattr(report.offered, f"{end}_arrival_us") for end in ("first", "last"))

    def there(share: float) -> int:
        at = first + share * (last - first)
        return len([row for row in report.rows if row.arrival_us <= at < (row.completed_us or at + 1)])

    for name, share in (("second_quarter", 0.375), ("last_quarter", 0.875)):
        assert abs(float(found.figures[name]) - there(share)) < 0.15 * there(share)
    steady = blis_tui.run("quickstart", set={**GROWING, "cluster.instances": 3, "workload.requests": 600})
    assert "unsettled" not in ids(steady)
    longer = blis_tui.run("quickstart", set={**GROWING, "workload.requests": 3000})
    assert "overload" in ids(longer)
    assert "unsettled" not in ids(longer)


def test_a_rising_load_alone_is_none() -> None:
    """Twice as many requests are in the system when twice as many arrive."""
    curve = {"points": [{"at_s": 0, "factor": 0.5}, {"at_s": 60, "factor": 2.0}]}
    changes = {"workload.clients.0.rate_curve": curve, "workload.rate_per_s": 10, "workload.requests": 600}
    assert "unsettled" not in ids(blis_tui.run("quickstart", set={**changes, "expect": []}))


def test_a_point_that_only_holds_for_now_is_on_no_front() -> None:
    axes = {"cluster.instances": [2, 3]}
    result = blis_tui.sweep(
        "quickstart",
        axes=axes,
        set={key: value for key, value in GROWING.items() if key not in axes} | {"workload.requests": 600},
        slos=["latency.ttft_ms.p99<=200"],
        objectives=["cost.gpus"],
    )
    text = study_text(result)
    rows = {line.split()[1]: line[0] for line in text.splitlines() if line[:1] in "*?✗" and line[1:3] == "  "}
    assert rows == {"2": "?", "3": "*"}
    assert "2 of 2 points meet all bounds" in text
    assert "? in 1 of them ever more requests were in the system when the arrivals ended" in " ".join(text.split())


def test_a_point_that_turns_requests_away_says_how_many() -> None:
    """Their latencies are those of the others, so that fewer instances look as good; rows of plain runs tell."""
    shed = {"kind": "token-bucket", "capacity_tokens": 5000, "refill_tokens_per_s": 5000}
    load = {"workload.rate_per_s": 40, "workload.requests": 300, "expect": []}
    admission = {"policy.admission": ["always-admit", shed]}
    result = blis_tui.sweep("quickstart", axes=admission, set=load, seeds=2, slos=["latency.ttft_ms.p99<=250"])
    shares = []
    for seed in result.study.seeds:
        rows = blis_tui.run("quickstart", set={**load, "policy.admission": shed}, seed=seed).rows
        shares.append(len([row for row in rows if row.completed_us is None]) / 300)
    (served, turned_away) = summaries(result)
    assert served.unserved == 0
    assert turned_away.unserved == pytest.approx(sum(shares) / 2)
    assert turned_away.unserved > 0.2
    text, share = study_text(result), f"{100 * turned_away.unserved:.0f} %"
    assert [line for line in text.splitlines() if line.endswith("not served")] == [
        line for line in text.splitlines() if line.strip().endswith(f"{share} not served") and "token-bucket" in line
    ]
    assert "2 of 2 points meet all bounds" in text
    assert f"in 1 of them up to {share} of the requests were rejected" in " ".join(text.split())
    alone = blis_tui.sweep("quickstart", axes={"cluster.instances": [2]}, set=load, slos=["latency.ttft_ms.p99<=250"])
    assert "not served" not in study_text(alone)


def test_a_point_that_turns_requests_away_is_on_no_front_unless_their_number_is_bounded() -> None:
    """It has the lower latencies; whoever bounds how many must complete has said which matter."""
    shed = {"kind": "token-bucket", "capacity_tokens": 5000, "refill_tokens_per_s": 5000}
    load = {"workload.rate_per_s": 40, "workload.requests": 900, "expect": [], "cluster.instances": 2}
    latency, count = "latency.ttft_ms.p99<=250", "requests.completed>=100"
    for bounds, marks in (([latency], ["?", "*"]), ([latency, count], ["*", ""])):
        result = blis_tui.sweep(
            "quickstart",
            axes={"policy.admission": [shed, "always-admit"]},
            set=load,
            slos=bounds,
            objectives=["latency.ttft_ms.p99"],
        )
        text, points = study_text(result), summaries(result)
        assert [_mark(text, point) for point in points] == marks
        assert {point.point.number for point in study_front(result.study, points)} == {marks.index("*")}
        assert ("? in 1 of them up to" in " ".join(text.split())) == (len(bounds) == 1)
        board = Board(result.study)
        board.add(result.rows)
        shown = board.entries[0]
        away = int(str(result.rows[0].figures["requests.rejected"]))
        said = f"but {100 * away / 900:.0f} % of its requests were not served"
        assert (said in explained(result.study, board.entries, shown).headline) == (len(bounds) == 1)
        assert shown.on_front == (len(bounds) == 2)


def _mark(text: str, point: PointSummary) -> str:
    """What stands before a point in the table."""
    (name,) = map(value_text, point.coordinates.values())
    (line,) = [line for line in text.splitlines() if line[3:].startswith(name)]
    return line[0].strip()


def test_a_plan_says_what_its_runs_do_not_show_of_instances_that_come_and_go() -> None:
    load = {"workload.rate_per_s": 5, "expect": []}
    failing = {"cluster.failures": [{"mean_time_between_us": 3_600_000_000, "repair_us": 1_000_000}]}
    scaling = {"cluster.autoscaler": {"max_instances": 3}}
    bound = ["latency.ttft_ms.p90<=2000"]
    texts = [
        " ".join(plan_text(blis_tui.plan("quickstart", slos=bound, set={**load, **changes})).split())
        for changes in (failing, scaling, {})
    ]
    assert ["No instance failed in the runs" in text for text in texts] == [True, False, False]
    assert ["serve at once: `cluster.lifecycle.loading_delay_us` is 0" in text for text in texts] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("bound", "routing", "served", "said"),
    [
        ("latency.ttft_ms.p90", "round-robin", 40.0, "Fewer may be enough where requests go to the least loaded one"),
        ("latency.ttft_ms.p90", "round-robin", 30.0, ""),
        ("latency.ttft_ms.p90", "least-loaded", 40.0, ""),
        ("latency.itl_ms.p99", "least-loaded", 40.0, "Smaller steps may need fewer instances"),
    ],
)
def test_what_may_do_more_than_instances_is_said(bound: str, routing: str, served: float, said: str) -> None:
    made = blis_tui.plan(
        "quickstart", slos=["latency.ttft_ms.p90<=200"], rate_per_s=20, set={"policy.routing": routing, "expect": []}
    )
    assert made.best is not None
    (held,) = [trial for trial in made.best.tried if trial is made.best.found]
    figures: dict[str, float | str | bool | None] = {
        "steady.requests_per_s": served,
        "steady.offered_requests_per_s": 40.0,
        "stationary.verdict": "fails",
        "stationary.bound": bound,
        "stationary.beyond": 0.2,
        "stationary.beyond_limit": 0.1,
    }
    row = replace(held.rows[0], ok=False, figures={**held.rows[0].figures, **figures})
    failed = replace(held, size=2, rows=(row,))
    best = replace(made.best, size=3, tried=(failed, replace(held, size=3)))
    text = " ".join(plan_text(replace(made, best=best, candidates=(best,))).split())
    hints = ("Fewer may be enough where requests go to the least loaded one", "Smaller steps may need fewer instances")
    assert [hint for hint in hints if hint in text] == ([said] if said else [])
