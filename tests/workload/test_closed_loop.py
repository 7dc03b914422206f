"""Users who wait for their answers: who sends what when, and what becomes of those who get none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui import load
from blis_tui.runs.simulation import Simulation
from blis_tui.workload.interactive import BACK_OFF_US

if TYPE_CHECKING:
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow

USERS = 4


def experiment(**changes: object) -> Experiment:
    sets = {
        "workload": {
            "requests": 40,
            "clients": [
                {
                    "id": "users",
                    "arrivals": {"kind": "closed-loop", "users": USERS},
                    "input_tokens": {"kind": "gaussian", "mean": 200, "std_dev": 100, "min": 10, "max": 500},
                    "output_tokens": {"kind": "gaussian", "mean": 20, "std_dev": 10, "min": 1, "max": 50},
                }
            ],
        },
        "expect": [],
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return load("quickstart", set=sets)


def rows_of(made: Experiment) -> list[RequestRow]:
    simulation = Simulation(made, check="all")
    simulation.run()
    assert simulation.done
    return list(simulation.report().rows)


def test_each_user_sends_when_the_answer_is_complete() -> None:
    rows = rows_of(experiment())
    assert [row.arrival_us for row in rows[:USERS]] == [0] * USERS
    ends = sorted(row.arrival_us + row.e2e_us for row in rows if row.e2e_us is not None)
    assert [row.arrival_us for row in rows[USERS:]] == ends[: len(rows) - USERS]
    assert [row.request_id for row in rows] == [f"request_{number}" for number in range(40)]


def test_what_is_asked_does_not_depend_on_how_fast_answers_come() -> None:
    asked = [
        [(row.input_tokens, row.requested_output_tokens) for row in rows_of(made)]
        for made in (experiment(), experiment(latency={"kind": "roofline"}, cluster={"instances": 2}))
    ]
    assert asked[0] == asked[1]


def test_a_client_with_a_rate_may_stand_beside() -> None:
    made = experiment()
    (users,) = made.workload.clients
    other = replace(users, id="other", arrivals=replace(users.arrivals, kind="poisson", settings={}), tenant="open")
    both = replace(made, workload=replace(made.workload, rate_per_s=50.0, clients=(users, other)))
    rows = rows_of(both)
    times = [row.arrival_us for row in rows]
    assert times == sorted(times)
    assert 5 < sum(row.tenant_id == "open" for row in rows) < 35


def test_who_is_turned_away_waits() -> None:
    rows = rows_of(experiment(workload__requests=12, policy={"admission": {"kind": "reject-all"}}))
    assert [row.arrival_us for row in rows] == [round_ * BACK_OFF_US for round_ in range(3) for _ in range(USERS)]


def test_who_runs_out_of_patience_sends_again_at_once() -> None:
    made = experiment(workload__requests=12, policy={"batching": "blis"}, latency="roofline")
    (users,) = made.workload.clients
    users = replace(users, timeout_us=2_000)
    rows = rows_of(replace(made, workload=replace(made.workload, clients=(users,))))
    assert {row.state for row in rows} == {"timed-out"}
    assert [row.arrival_us for row in rows] == [round_ * 2_000 for round_ in range(3) for _ in range(USERS)]


def test_each_user_repeats_a_prompt_of_his_own() -> None:
    made = experiment(cluster__instances=1)
    (users,) = made.workload.clients
    users = replace(users, repeated_prompts=USERS)
    rows = rows_of(replace(made, workload=replace(made.workload, clients=(users,))))
    assert {row.prefix_group for row in rows} == {f"users/prompt-{number}" for number in range(USERS)}
    assert [row.cached_tokens for row in rows[:USERS]] == [0] * USERS
    short = {row.prefix_group: (row.input_tokens - 1) // 16 * 16 for row in rows}
    assert [row.cached_tokens for row in rows[USERS:]] == [short[row.prefix_group] for row in rows[USERS:]]


def test_the_horizon_ends_it() -> None:
    made = experiment(horizon_us=500_000)
    made = replace(made, workload=replace(made.workload, requests=None))
    rows = rows_of(made)
    assert max(row.arrival_us for row in rows) <= 500_000
    assert sum(row.state == "completed" for row in rows) >= len(rows) - USERS


@pytest.mark.parametrize("warm_up_us", [1, 400_000])
def test_the_warm_up_is_left_out_of_the_latencies(warm_up_us: int) -> None:
    whole = Simulation(experiment())
    whole.run()
    report = whole.report()
    simulation = Simulation(experiment(warm_up_us=warm_up_us))
    simulation.run()
    cut = simulation.report()
    kept = [row for row in report.rows if row.arrival_us >= warm_up_us]
    assert cut.requests == report.requests
    assert cut.warm_up is not None
    assert cut.warm_up.requests == 40 - len(kept)
    assert cut.latency.e2e_ms.mean == pytest.approx(sum(row.e2e_us or 0 for row in kept) / len(kept) / 1e3)
    assert cut.latency.ttft_ms != report.latency.ttft_ms
    assert (cut.latency.itl_ms == report.latency.itl_ms) == (warm_up_us == 1)
