"""The columns of the request table about gateway and transfers, against the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.records import Dispatched, TransferFinished, TransferStarted
from blis_tui.output.tables import requests_csv
from blis_tui.results.request_log import PLAIN_COLUMNS, WAYS
from tests.results.clusters import DOCUMENTS, experiment, outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["gateway", "split", "early", "tight"])
def test_the_columns_say_what_the_records_say(name: str) -> None:
    report, records = outcome(name)
    found: dict[str, dict[str, int]] = {row.request_id: {} for row in report.rows}
    for record in records:
        if isinstance(record, Dispatched):
            found[record.request_id]["gateway_us"] = record.waited_us
        elif isinstance(record, TransferStarted):
            found[record.request_id] |= {"prefill_instance": record.instance, "transfer_start_us": record.time_us}
        elif isinstance(record, TransferFinished):
            found[record.request_id]["transfer_us"] = record.duration_us
    assert any(found.values())
    for row in report.rows:
        # The prefill instance is known before the transfer starts.
        skipped = WAYS[:1] if row.transfer_start_us is None else ()
        columns = {name: getattr(row, name) for name in WAYS if name not in skipped}
        assert columns == {name: found[row.request_id].get(name) for name in columns}, row.request_id


def test_a_table_has_them_where_they_can_say_something() -> None:
    header = next(iter(requests_csv(outcome("split")[0].rows, outcome("split")[0].rows.columns)))
    assert header == ",".join((*PLAIN_COLUMNS, *WAYS)) + "\n"
    assert outcome("budgets")[0].rows.columns == PLAIN_COLUMNS
    assert (PLAIN_COLUMNS[-1], WAYS) == (
        "deadline_us",
        ("prefill_instance", "transfer_start_us", "transfer_us", "gateway_us"),
    )


def test_a_table_with_them_can_be_replayed(tmp_path: Path) -> None:
    rows = outcome("early")[0].rows
    path = tmp_path / "requests.csv"
    path.write_text("".join(requests_csv(rows, rows.columns)), encoding="utf-8", newline="")
    again = blis_tui.load({**DOCUMENTS["early"], "workload": {"trace": {"file": str(path)}}})
    assert list(blis_tui.run(again).rows) == list(rows)


def test_they_come_back_from_checkpoints_and_marks() -> None:
    made = experiment("early")
    straight, other = blis_tui.Simulation(made), blis_tui.Simulation(made)
    straight.run(max_events=400)
    mark, checkpoint = straight.mark(), straight.checkpoint()
    halfway = list(straight.report().rows)
    straight.run()
    end = list(straight.report().rows)
    assert any(row.transfer_us for row in halfway)
    straight.return_to(mark)
    other.restore(checkpoint)
    for simulation in (straight, other, straight.twin(mark)):
        assert list(simulation.report().rows) == halfway
        simulation.run()
        assert list(simulation.report().rows) == end


def test_models_and_retries_stand_in_tables_where_there_can_be_several() -> None:
    pools = [{"name": name, "instances": 1, "model": name} for name in ("llama-3.1-8b-instruct", "qwen3-14b")]
    clients = [
        {"id": name, "model": name, "arrivals": "poisson", "input_tokens": 300, "output_tokens": 30}
        for name in ("llama-3.1-8b-instruct", "qwen3-14b")
    ]
    workload = {"requests": 40, "rate_per_s": 40, "clients": clients}
    failures = [{"instance": 0, "at_us": 400000, "repair_us": 100000}]
    made = {"cluster": {"pools": pools, "failures": failures}, "workload": workload}
    rows = blis_tui.run(blis_tui.load("quickstart", set={**made, "expect": []})).rows
    assert rows.columns == (*PLAIN_COLUMNS, "model", "retries")
    assert {row.model for row in rows} == {client["id"] for client in clients}
    assert {row.retries for row in rows if row.model == "qwen3-14b"} == {0}
    assert max(row.retries for row in rows) == 1
    header, *lines = requests_csv(rows, rows.columns)
    assert header.rstrip().endswith(",deadline_us,model,retries")
    assert [line.rstrip().split(",")[-2:] for line in lines] == [[row.model, str(row.retries)] for row in rows]
