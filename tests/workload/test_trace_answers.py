"""A trace that says what later prompts call an answer: it is found in the prefix cache, as in the session itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.output.tables import csv_line
from blis_tui.workload.traces.cells import segments_cell

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.engine.request import Request

SETTINGS = {
    "workload": {
        "requests": 40,
        "clients": [
            {
                "id": "talk",
                "arrivals": {"kind": "closed-loop", "users": 4},
                "input_tokens": {"kind": "uniform", "min": 30, "max": 90},
                "output_tokens": {"kind": "uniform", "min": 20, "max": 90},
                "prefix": {"group": "system", "tokens": 64},
                "session": {"turns": 4, "think_time_ms": 50},
            }
        ],
    },
    "cluster.instances": 1,
}
COLUMNS = ("request_id", "arrival_us", "input_tokens", "output_tokens", "prefix_segments")


def table(path: Path, requests: list[Request], *, answers: bool) -> Path:
    lines = [csv_line([*COLUMNS, *(["answer_segment"] if answers else [])])]
    for request in requests:
        cells = (
            request.request_id,
            request.arrival_us,
            request.input_tokens,
            request.output_tokens,
            segments_cell(request.segments),
        )
        lines.append(csv_line([*cells, *([request.content[-1][0]] if answers else [])]))
    path.write_text("".join(lines))
    return path


def test_answers_are_found_that_a_trace_names(tmp_path: Path) -> None:
    experiment = blis_tui.load("quickstart", set=SETTINGS)
    simulation = blis_tui.Simulation(experiment)
    requests: dict[str, Request] = {}
    while simulation.step() is not None:
        for request in simulation.cluster.in_transit():
            requests.setdefault(request.request_id, request)
    rows = {row.request_id: row for row in simulation.report().rows}
    found: dict[bool, dict[str, int]] = {}
    for answers in (True, False):
        path = table(tmp_path / f"{answers}.csv", list(requests.values()), answers=answers)
        again = blis_tui.load("quickstart", set={**SETTINGS, "workload": {"trace": {"file": str(path)}}})
        report = blis_tui.run(again)
        assert [row.arrival_us for row in report.rows] == sorted(row.arrival_us for row in rows.values())
        found[answers] = {row.request_id: row.cached_tokens for row in report.rows}
        if answers:
            assert {row.request_id: row.e2e_us for row in report.rows} == {
                name: row.e2e_us for name, row in rows.items()
            }
    assert found[True] == {name: row.cached_tokens for name, row in rows.items()}
    assert sum(found[False].values()) < sum(found[True].values())


def test_an_answer_behind_tokens_of_its_own_prompt_is_none_that_others_could_find(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "request_id,arrival_us,input_tokens,output_tokens,prefix_segments,answer_segment\n"
        'a,0,64,64,"[[""s"",32]]",a/answer\n'
        'b,3000000,160,8,"[[""s"",32],[""a/answer"",64]]",\n'
    )
    report = blis_tui.run(blis_tui.load("quickstart", set={**SETTINGS, "workload": {"trace": {"file": str(path)}}}))
    assert [row.cached_tokens for row in report.rows] == [0, 32]
