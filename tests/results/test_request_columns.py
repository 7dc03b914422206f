"""Rows by columns, in blocks of any size, are the rows one by one; what is summed up of them is, too."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.engine.request import RequestState
from blis_tui.output.tables import requests_csv
from blis_tui.results import request_log
from blis_tui.results.request_log import RequestRow, split
from blis_tui.results.sections.offered_load import THRASHING, Throughflow
from tests.results.clusters import DOCUMENTS, experiment

if TYPE_CHECKING:
    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestNumbers

NAMES = sorted(DOCUMENTS)
WARM_UP_US = 700_000


def halfway(name: str) -> Report:
    """Of a run that was left while there were requests everywhere: ended, running, waiting and on their way."""
    simulation = blis_tui.Simulation(replace(experiment(name), warm_up_us=WARM_UP_US))
    simulation.run(until_us=1_500_000)
    return simulation.report()


@pytest.fixture(params=[3, 64, 4096], ids="blocks of {}".format)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows are looked at together."""
    rows: int = request.param
    monkeypatch.setattr(request_log, "BLOCK", rows)
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_what_the_books_say(name: str, block: int) -> None:
    table = halfway(name).rows
    books = sorted(table.plain())
    assert len(books) == len(table) > block or block > 3
    for row, plain in zip(table, books, strict=True):
        for field, expected in plain._asdict().items():
            if field in RequestRow._fields and field != "state":
                assert (-1 if (value := getattr(row, field)) is None else value) == expected, field
        assert row.state.replace("-", "_").upper() in {RequestState(plain.state).name, "IN_TRANSIT"}
        assert (row.state == "in-transit") == (plain.state == RequestState.CREATED)
        assert (row.slo_class, row.tenant_id) == table.group(plain)
        assert row.request_id == table.name(plain.number)
        assert row.requested_output_tokens >= row.output_tokens


@pytest.mark.parametrize("name", NAMES)
def test_rows_can_be_had_one_by_one_in_slices_and_as_a_file(name: str, block: int) -> None:
    table = halfway(name).rows
    rows = list(table)
    assert [table[number] for number in range(len(table))] == rows
    assert [table[-1], table[-len(table)]] == [rows[-1], rows[0]]
    with pytest.raises(IndexError):
        table[len(table)]
    for part in (slice(None), slice(2, 9), slice(5, 1), slice(-4, None), slice(0, 20, 3), slice(None, None, -1)):
        assert table[part] == rows[part], part
    written = list(csv.reader(io.StringIO("".join(requests_csv(table, table.columns)))))
    assert written == [
        list(table.columns),
        *(["" if (cell := getattr(row, name)) is None else str(cell) for name in table.columns] for row in rows),
    ]
    assert block


def test_a_report_does_not_depend_on_how_many_rows_are_looked_at_together(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        report = halfway(name)
        with monkeypatch.context() as patch:
            patch.setattr(request_log, "BLOCK", block + 7)
            assert halfway(name).to_json() == report.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_counts_and_samples_are_those_of_the_rows(name: str) -> None:
    report = halfway(name)
    rows = list(report.rows)
    late = [row for row in rows if row.arrival_us >= WARM_UP_US]

    def largest(samples: list[int]) -> float | None:
        return max(samples) / 1000 if samples else None

    assert report.requests.total == len(rows)
    assert report.requests.completed == len([row for row in rows if row.state == "completed"])
    assert report.latency.ttft_ms.max == largest([row.ttft_us for row in late if row.ttft_us is not None])
    assert report.latency.e2e_ms.max == largest([row.e2e_us for row in late if row.e2e_us is not None])
    delays = [row.scheduled_us - row.arrival_us for row in late if row.scheduled_us is not None]
    assert report.latency.scheduling_delay_ms.max == largest(delays)
    for instance in report.instances:
        there = [row for row in rows if row.instance == instance.instance]
        assert instance.completed == len([row for row in there if row.state == "completed"])
        tokens = 0
        for row in there:
            tokens += row.output_tokens
        assert instance.output_tokens == tokens
    for column, groups in (("slo_class", report.slo_classes), ("tenant_id", report.tenants)):
        assert list(groups) == sorted({getattr(row, column) for row in rows} - {""})
        for group, figures in groups.items():
            members = [row for row in rows if getattr(row, column) == group]
            assert figures.total == len(members)
            assert figures.completed == len([row for row in members if row.state == "completed"])
            counted = [row for row in members if row.arrival_us >= WARM_UP_US]
            assert figures.ttft_ms.max == largest([row.ttft_us for row in counted if row.ttft_us is not None])


class OneByOne:
    """What a flow says, added up a row at a time."""

    def __init__(self, rows: list[RequestNumbers]) -> None:
        self.first: dict[int, int] = {}
        self.thrashed, self.worst, self.answer_tokens = 0, (0, -1), 0
        waiting: list[tuple[int, int]] = []
        present: list[tuple[int, int]] = []
        for row in rows:
            self.first[row.state] = min(row.number, self.first.get(row.state, row.number))
            self.thrashed += row.preemptions >= THRASHING
            if row.preemptions:
                self.worst = max(self.worst, (row.preemptions, row.number), key=lambda one: (one[0], -one[1]))
            never = 1 << 62
            done = row.state == RequestState.COMPLETED
            refused_there = row.state == RequestState.DROPPED_UNSERVABLE and row.first_token_us >= 0
            queued = row.state in {RequestState.WAITING, RequestState.RUNNING} or done or refused_there
            queued = queued or (row.state == RequestState.CREATED and row.queued_us >= 0)
            left = row.completed_us if done else row.first_token_us if refused_there else never
            started = row.scheduled_us if row.scheduled_us >= 0 else never
            if queued:
                present.append((row.queued_us, left))
                waiting.append((row.arrival_us, started))
            elif row.state == RequestState.CREATED:
                waiting.append((row.arrival_us, never))
            self.answer_tokens += row.output_tokens if done else 0
        self.waiting, self.present = waiting, present

    @staticmethod
    def total_us(spans: list[tuple[int, int]], until_us: int) -> int:
        total = 0
        for came, left in spans:
            total += max(0, min(left, until_us) - min(came, until_us))
        return total


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_says_what_the_rows_say_one_by_one(name: str, block: int) -> None:
    table = halfway(name).rows
    flow, oracle = Throughflow(), OneByOne(list(table.plain()))
    for part in table.blocks():
        assert len(part.number) <= block
        flow.add(part)
    assert (flow.first, flow.thrashed, flow.worst) == (oracle.first, oracle.thrashed, oracle.worst)
    assert flow.answer_tokens == oracle.answer_tokens
    for until_us in (0, 300_000, 1_000_000, 1_499_999):
        assert flow.present().total_us(until_us) == OneByOne.total_us(oracle.present, until_us)
        assert flow.waiting().total_us(until_us) == OneByOne.total_us(oracle.waiting, until_us)


def test_a_block_is_split_by_names_in_order() -> None:
    whole = next(halfway("gateway").rows.blocks())
    names = [["a", "b", "c"][number % 3] for number in whole.number]
    parts = dict(split(whole, names))
    for name, part in parts.items():
        there = [at for at, one in enumerate(names) if one == name]
        assert [*zip(*part, strict=True)] == [tuple(column[at] for column in whole) for at in there]
    assert [*split(whole, ["same"] * len(names))] == [("same", whole)]
