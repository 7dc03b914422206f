"""Requests that reason before they answer: how much, when the answer begins, and that replays keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scipy.stats import beta, kstest

import blis_tui
from blis_tui.base.streams import Streams
from blis_tui.engine.records import FirstToken, StepFinished
from blis_tui.output.tables import requests_csv, rows_csv
from blis_tui.workload.distributions import BetaRatio, BetaRatioSettings, EmpiricalRatio, EmpiricalRatioSettings

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.results.report import Report

THINKER = {"id": "thinker", "input_tokens": 40, "output_tokens": {"kind": "uniform", "min": 1, "max": 60}}
CHAT = {"id": "chat", "input_tokens": {"kind": "exponential", "mean": 90}, "output_tokens": 8}
MIXED = {"kind": "beta", "alpha": 4, "beta": 2}


def simulation(*clients: dict[str, object], **changes: object) -> blis_tui.Simulation:
    workload = {"requests": 80, "rate_per_s": 40, "clients": list(clients)}
    return blis_tui.Simulation(blis_tui.load("quickstart", set={"workload": workload, "expect": [], **changes}))


def run(*clients: dict[str, object], **changes: object) -> Report:
    made = simulation(*clients, **changes)
    made.run()
    return made.report()


@pytest.fixture(scope="module")
def mixed() -> Report:
    return run({**THINKER, "reasoning": {"ratio": MIXED}}, CHAT)


def test_a_share_of_the_answer_is_reasoning() -> None:
    report = run({**THINKER, "reasoning": {"ratio": 0.75}})
    for row in report.rows:
        assert abs(row.reasoning_tokens - 0.75 * row.requested_output_tokens) <= 0.5
    assert report.reasoning is not None
    thought = sum(row.reasoning_tokens for row in report.rows)
    assert report.reasoning.reasoning_tokens == thought
    assert report.reasoning.answer_tokens == report.tokens.output - thought
    assert report.reasoning.share == thought / report.tokens.output


def test_other_draws_do_not_change(mixed: Report) -> None:
    columns = ("arrival_us", "input_tokens", "output_tokens", "first_token_us", "e2e_us")
    plain = run(THINKER, CHAT)
    assert plain.reasoning is None
    assert "reasoning_tokens" not in plain.rows.columns
    assert [[getattr(row, name) for name in columns] for row in plain.rows] == [
        [getattr(row, name) for name in columns] for row in mixed.rows
    ]


def test_answers_begin_so_many_steps_after_the_first_token() -> None:
    """Nobody is preempted or stalls here, so every step after the first token's gives one token."""
    made = simulation({**THINKER, "reasoning": {"ratio": MIXED}}, CHAT)
    ends: dict[int, list[int]] = {}
    firsts: dict[str, tuple[int, int]] = {}

    def note(record: object) -> None:
        if isinstance(record, StepFinished) and (record.decode_requests or record.first_tokens):
            ends.setdefault(record.instance, []).append(record.time_us + record.duration_us)
        elif isinstance(record, FirstToken):
            firsts[record.request_id] = (record.instance, record.first_token_us)

    made.subscribe("all", note)
    made.run()
    report = made.report()
    assert all(one.kv.preemptions == 0 for one in report.instances)
    begun = 0
    for row in report.rows:
        instance, first_us = firsts[row.request_id]
        later = ends[instance].index(first_us) + row.reasoning_tokens
        if row.reasoning_tokens == row.output_tokens:
            assert row.first_answer_us is row.ttfat_us is None
        else:
            assert row.first_answer_us == ends[instance][later]
            overhead_us = row.ttft_us - (first_us - row.arrival_us)  # type: ignore[operator]
            assert row.ttfat_us == row.first_answer_us - row.arrival_us + overhead_us * (row.reasoning_tokens + 1)
            begun += row.reasoning_tokens > 0
    assert report.reasoning is not None
    assert report.reasoning.answered == begun > 30
    times = sorted(row.ttfat_us for row in report.rows if row.reasoning_tokens and row.ttfat_us is not None)
    assert report.reasoning.ttfat_ms.max == times[-1] / 1000
    assert report.reasoning.ttfat_ms.mean == pytest.approx(sum(times) / len(times) / 1000)


def test_a_target_of_the_time_to_first_answer_token_counts(mixed: Report) -> None:
    limit_ms = 150.0
    changes: dict[str, object] = {"slo_targets": {"standard": {"ttfat_ms": limit_ms}}}
    report = run({**THINKER, "reasoning": {"ratio": MIXED}}, CHAT, **changes)
    assert report.slo is not None
    met = report.slo.classes["standard"].ttfat
    assert met is not None
    times = [row.ttfat_us for row in mixed.rows if row.ttfat_us is not None]
    assert (met.counted, met.met) == (len(times), len([time for time in times if time <= limit_ms * 1000]))
    assert 0 < met.met < met.counted


@pytest.mark.parametrize("form", ["requests", "tracev2"])
def test_what_a_run_writes_replays_alike(form: str, mixed: Report, tmp_path: Path) -> None:
    rows = mixed.rows
    file = tmp_path / "trace.csv"
    file.write_text("".join(requests_csv(rows, rows.columns) if form == "requests" else rows_csv(rows)))
    changes: dict[str, object] = {"workload": {"trace": {"file": str(file), "format": form}}, "expect": []}
    replayed = blis_tui.run(blis_tui.load("quickstart", set=changes))
    assert [*requests_csv(replayed.rows, replayed.rows.columns)] == [*requests_csv(rows, rows.columns)]
    assert replayed.reasoning == mixed.reasoning


def test_later_prompts_of_a_session_leave_reasoning_out_unless_it_is_kept() -> None:
    client = {"id": "chat", "input_tokens": 32, "output_tokens": 100, "session": {"turns": 3}}
    reports = {
        history: run({**client, "reasoning": {"ratio": 0.6, "history": history}}, latency="roofline")
        for history in ("dropped", "kept")
    }
    prompts = {
        history: {row.round_index: row.input_tokens for row in report.rows} for history, report in reports.items()
    }
    assert prompts == {"kept": {0: 32, 1: 164, 2: 296}, "dropped": {0: 32, 1: 104, 2: 176}}
    # What follows reasoning that is gone has to be computed again; only the prompt before is found.
    cached = {
        history: {row.round_index: row.cached_tokens for row in report.rows if row.instance == 0}
        for history, report in reports.items()
    }
    assert cached["dropped"][1] in (0, 32)
    assert cached["kept"][1] in (0, 128)


def test_shares_are_drawn_as_they_are_described() -> None:
    stream = Streams(1).stream("test")
    drawn = [BetaRatio(BetaRatioSettings(alpha=0.6, beta=2.5)).sample(stream) for _ in range(5_000)]
    assert kstest(drawn, beta(0.6, 2.5).cdf).pvalue > 0.01
    table = EmpiricalRatio(EmpiricalRatioSettings(weights={"0": 1, "0.5": 3, "1": 0}))
    found = [table.sample(stream) for _ in range(4_000)]
    assert set(found) == {0.0, 0.5}
    assert found.count(0.5) == pytest.approx(3_000, abs=110)


def test_tiny_shapes_of_a_beta_give_all_or_nothing() -> None:
    """Both of its gamma variates may be too small for a number."""
    stream = Streams(1).stream("s")
    drawn = [BetaRatio(BetaRatioSettings(alpha=0.001, beta=0.002)).sample(stream) for _ in range(5_000)]
    assert sum(0.01 < share < 0.99 for share in drawn) < 50
    assert sum(drawn) / len(drawn) == pytest.approx(1 / 3, abs=0.03)
