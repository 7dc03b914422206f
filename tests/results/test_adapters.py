"""LoRA adapters in reports and warnings: the shipped experiment, counted another way."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import blis_tui
from blis_tui.engine.records import AdapterEvicted, AdapterHeld, AdapterLoad, Scheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.engine.records import Record
    from blis_tui.results.report import Report


@cache
def run_of(routing: str) -> tuple[Report, tuple[Record, ...]]:
    changes: Mapping[str, object] = {"policy.routing": routing} if routing else {}
    simulation = blis_tui.Simulation(blis_tui.load("lora-adapters", set={**changes, "workload.requests": 200}))
    records: list[Record] = []
    for kind in (AdapterEvicted, AdapterHeld, AdapterLoad, Scheduled):
        simulation.subscribe(kind, records.append)
    simulation.run()
    return simulation.report(), tuple(records)


def count(records: tuple[Record, ...], kind: type[Record], where: Callable[[Record], bool] = lambda _: True) -> int:
    return len([record for record in records if isinstance(record, kind) and where(record)])


def test_the_report_counts_what_the_records_tell() -> None:
    report, records = run_of("round-robin")
    adapters = report.adapters
    assert adapters is not None
    assert (adapters.adapters, adapters.scheduled) == (16, 200)
    assert adapters.loads == count(records, AdapterLoad)
    assert adapters.loads_from_storage == count(records, AdapterLoad, lambda record: record.source == "storage")  # type: ignore[attr-defined]
    assert adapters.evictions == count(records, AdapterEvicted)
    assert adapters.holds == count(records, AdapterHeld)
    assert adapters.hit_rate == (200 - adapters.loads) / 200
    assert adapters.load_us == sum(record.load_us for record in records if isinstance(record, AdapterLoad))
    since = {record.request_id: record.time_us for record in records if isinstance(record, AdapterHeld)}
    ends = {record.request_id: record.time_us for record in records if isinstance(record, Scheduled)}
    assert adapters.held_us == sum(ends[name] - held for name, held in since.items())
    rows = [row for row in report.rows if row.adapter == "customer-1"]
    assert adapters.busiest["customer-1"].requests == len(rows)
    assert sum(adapter.requests for adapter in adapters.busiest.values()) == 200
    assert sum(adapter.loads for adapter in adapters.busiest.values()) == adapters.loads


def test_where_adapters_are_requests_need_not_wait() -> None:
    there, anywhere = run_of("")[0], run_of("round-robin")[0]
    assert there.adapters is not None
    assert anywhere.adapters is not None
    assert there.adapters.hit_rate > 0.85
    assert anywhere.adapters.hit_rate < 0.7
    assert there.latency.ttft_ms.mean is not None
    assert anywhere.latency.ttft_ms.mean is not None
    assert there.latency.ttft_ms.mean < 0.5 * anywhere.latency.ttft_ms.mean


def test_a_warning_where_places_are_short() -> None:
    report, records = run_of("round-robin")
    named = {finding.id: finding for finding in report.warnings}
    adapters = report.adapters
    assert adapters is not None
    assert named["adapter-places"].figures == {
        "adapters": len({row.adapter for row in report.rows}),
        "max_loras": 5,
        "loads": count(records, AdapterLoad),
        "evictions": count(records, AdapterEvicted),
        "load_us": adapters.load_us,
        "held": count(records, AdapterHeld),
        "held_us": adapters.held_us,
    }
    assert "unused-capacity" not in named
    assert "adapter-places" not in {finding.id for finding in run_of("")[0].warnings}


def test_adapters_that_cost_nothing() -> None:
    experiment = blis_tui.load("lora-adapters", set={"workload.requests": 20})
    pools = tuple(replace(pool, engine=replace(pool.engine, lora=None)) for pool in experiment.pools)
    report = blis_tui.run(replace(experiment, pools=pools))
    assert report.adapters is None
    assert "adapters-without-cost" in {finding.id for finding in report.warnings}
