"""An expression at each hit of a breakpoint, found another way: in the records."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.debugger.traces import COLUMNS, Printed, parse_print, printed
from blis_tui.engine.records import FirstToken, Preempted
from blis_tui.results.conditions.language import ConditionError
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.engine.records import Record

EXPERIMENT = blis_tui.load("kv-pressure", set={"workload.requests": 30})


def rows(text: str) -> tuple[Printed, ...]:
    search = printed(Simulation(EXPERIMENT), parse_print(text, EXPERIMENT))
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: tuple[Printed, ...] = end.value
            return found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    found: list[Record] = []
    simulation = Simulation(EXPERIMENT)
    simulation.subscribe("all", found.append)
    simulation.run()
    return found


def test_values_of_the_event(records: list[Record]) -> None:
    tokens = [record for record in records if isinstance(record, FirstToken)]
    slowest: dict[int, int] = {}
    times = {token.event: token.time_us for token in tokens}
    for token in tokens:
        slowest[token.event] = max(slowest.get(token.event, 0), token.ttft_us)
    wanted = [(event, times[event], us / 1e3) for event, us in slowest.items()]
    assert [row[:3] for row in rows("ttft_ms at first-token")] == wanted
    first = rows("ttft_ms at first first-token")
    assert first == (Printed(*wanted[0], tokens[0].request_id),)


def test_values_of_the_state(records: list[Record]) -> None:
    preempted = {record.event: record.request_id for record in reversed(records) if isinstance(record, Preempted)}
    found = rows("kv.used at preempted")
    assert {row.event: row.request for row in found} == preempted
    simulation = Simulation(EXPERIMENT)
    for row in found:
        simulation.run(max_events=row.event - simulation.events)
        assert (row.time_us, row.value) == (simulation.now_us, simulation.figure("kv.used"))


def test_whose_event_it_is() -> None:
    arrived, *_, completed = rows("waiting at request request_7")
    assert {arrived.request, completed.request} == {"request_7"}
    changed = rows("request_7.held_blocks at change request_7.phase")
    assert changed[0].request == "request_7"
    assert changed[-1].value == 0


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("kv.used", 7, "`at` and a breakpoint are missing"),
        ("kv.usd at preempted", 0, "unknown name `kv.usd`"),
        ("kv.used at premted", 11, "unknown word `premted`"),
        ("kv.used at ", 11, "no breakpoint is given"),
        ("kv.used at kv.used > 1 m", 23, "unexpected"),
    ],
)
def test_mistakes_have_a_place(text: str, column: int, message: str) -> None:
    with pytest.raises(ConditionError, match=message) as caught:
        parse_print(text, EXPERIMENT)
    assert (caught.value.source, caught.value.column) == (text, column)


def test_the_command(tmp_path: Path) -> None:
    words = ["values", "kv-pressure", "kv.utilization > 0.99 at preempted", "--set", "workload.requests=30"]
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 0, told.output
    table = list(csv.reader(StringIO(told.stdout)))
    found = rows("kv.utilization > 0.99 at preempted")
    assert table[0] == list(COLUMNS)
    assert [row[0] for row in table[1:]] == [str(row.event) for row in found]
    assert {row[2] for row in table[1:]} <= {"yes", "no"}
    shown = CliRunner().invoke(cli, [*words, "--format", "table", "-o", str(tmp_path / "a.txt")])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert (tmp_path / "a.txt").read_text().endswith(f"{len(found)} hits\n")
    wrong = CliRunner().invoke(cli, ["values", "kv-pressure", "kv.used"])
    assert wrong.exit_code == 2
    assert "such as `kv.utilization at preempted`" in wrong.stderr
