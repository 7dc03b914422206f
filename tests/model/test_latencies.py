"""The table of latencies is that of the report, and says the same of one request and of many."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import pytest

from blis_tui.model.latencies import LATENCIES, SAMPLED, Latency
from blis_tui.results.report import Latencies


class Books(NamedTuple):
    arrival_us: int
    scheduled_us: int
    ttft_us: int
    e2e_us: int
    output_tokens: int


COMPLETED = Books(10, 15, 40, 100, 7)
ONE_TOKEN = Books(20, 21, 30, 30, 1)
RUNNING = Books(30, 35, 12, -1, 3)
WAITING = Books(40, -1, -1, -1, 0)
ROWS = (COMPLETED, ONE_TOKEN, RUNNING, WAITING)


def test_each_latency_is_a_field_of_the_report() -> None:
    assert sorted(latency.field for latency in LATENCIES) == sorted(field.name for field in fields(Latencies))


@pytest.mark.parametrize("latency", SAMPLED.values(), ids=SAMPLED)
def test_many_requests_have_the_times_of_each(latency: Latency) -> None:
    columns = Books(*zip(*ROWS, strict=True))  # type: ignore[arg-type]
    each = [latency.of(row) for row in ROWS]
    assert list(latency.samples_us(columns)) == [one for one in each if one is not None]  # type: ignore[arg-type]


def test_what_never_happened_has_no_latency() -> None:
    delay = SAMPLED["scheduling_delay_ms"]
    assert [delay.of(row) for row in ROWS] == [5, 1, 5, None]
    assert [SAMPLED["tpot_ms"].of(row) for row in ROWS] == [10.0, None, None, None]


def test_a_time_in_milliseconds_is_divided_once() -> None:
    row = Books(0, 0, 1, 8, 4)
    assert SAMPLED["tpot_ms"].of(row, 1000) == 7 / 3000
    assert SAMPLED["ttft_ms"].of(row, 1000) == 0.001
