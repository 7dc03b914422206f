"""Every figure of a run's table, counted once more from the stream of records."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest

import blis_tui
from blis_tui.engine import records as kinds
from blis_tui.output.section_text import summary_text

if TYPE_CHECKING:
    from blis_tui.results.report import Report

RUNS: dict[str, dict[str, object]] = {
    "quickstart": {"workload.requests": 150},
    "kv-pressure": {"workload.requests": 120},
    "admission-control": {"workload.requests": 150},
    "service-classes": {"workload.requests": 150},
    "shared-prefixes": {"workload.requests": 80},
    "burst": {},
}
COLUMNS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}

K = TypeVar("K", bound=kinds.Record)


class TabledRun:
    """A run: its table, line by line, and its records."""

    def __init__(self, name: str, changes: dict[str, object]) -> None:
        simulation = blis_tui.Simulation(blis_tui.load(name, set={**changes, "expect": []}))
        self.records: list[kinds.Record] = []
        simulation.subscribe("all", self.records.append)
        simulation.run()
        self.report: Report = simulation.report()
        self.text = summary_text(self.report)
        lines = [line.split("  ", 1) for line in self.text.splitlines() if "  " in line and line[0] != " "]
        self.lines = {head.strip(): rest.strip() for head, rest in lines}

    def of(self, kind: type[K]) -> list[K]:
        return [record for record in self.records if isinstance(record, kind)]

    def figures(self, line: str) -> list[float]:
        return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", self.lines[line])]


@pytest.fixture(scope="module", params=RUNS)
def tabled_run(request: pytest.FixtureRequest) -> TabledRun:
    name: str = request.param
    return TabledRun(name, RUNS[name])


def close(found: float, expected: float, digits: int) -> bool:
    """Whether a figure with so many decimals is that one, rounded."""
    return abs(found - expected) <= 0.5001 * 10.0**-digits


def test_requests_by_what_became_of_them(tabled_run: TabledRun) -> None:
    counts = {
        "completed": len(tabled_run.of(kinds.Completed)),
        "rejected": len(tabled_run.of(kinds.Rejected)),
        "dropped": len(tabled_run.of(kinds.Dropped)),
        "timed out": len(tabled_run.of(kinds.TimedOut)),
    }
    shown = [f"{count:,} {word}" for word, count in counts.items() if count or word == "completed"]
    assert tabled_run.lines["requests"] == ", ".join(shown)
    assert sum(counts.values()) == len(tabled_run.of(kinds.Arrived))


def test_tokens(tabled_run: TabledRun) -> None:
    prompts = {one.request_id: one.input_tokens for one in tabled_run.of(kinds.Arrived)}
    accepted = {one.request_id for one in tabled_run.of(kinds.Queued)}
    first: dict[str, int] = {}
    for one in tabled_run.of(kinds.Scheduled):
        first.setdefault(one.request_id, one.cached_tokens)
    generated = sum(one.output_tokens for one in tabled_run.of(kinds.Completed))
    generated += sum(timed_out.output_tokens for timed_out in tabled_run.of(kinds.TimedOut))
    assert tabled_run.figures("tokens") == [sum(prompts[name] for name in accepted), generated, sum(first.values())]


def test_rates(tabled_run: TabledRun) -> None:
    arrivals = sorted(one.time_us for one in tabled_run.of(kinds.Arrived))
    ended = [(one.time_us, one.output_tokens) for one in tabled_run.of(kinds.Completed)]
    seconds = max(record.time_us for record in tabled_run.records) / 1e6
    assert close(tabled_run.figures("simulated")[0], seconds, 3)
    generated = tabled_run.figures("tokens")[1]
    requests, tokens = tabled_run.figures("throughput")
    assert close(requests, len(ended) / seconds, 2)
    assert close(tokens, generated / seconds, 1)
    span = (arrivals[-1] - arrivals[0]) / 1e6
    assert close(tabled_run.figures("offered")[0], (len(arrivals) - 1) / span, 2)
    prompts = sum(one.input_tokens for one in tabled_run.of(kinds.Arrived))
    assert close(tabled_run.figures("offered")[1], prompts / len(arrivals) * (len(arrivals) - 1) / span, 1)
    half = arrivals[0] + (arrivals[-1] - arrivals[0]) // 2
    rest = (arrivals[-1] - half) / 1e6
    offered, served, answers, start, end = tabled_run.figures("steady")
    assert close(offered, sum(at > half for at in arrivals) / rest, 2)
    assert close(served, sum(half < at <= arrivals[-1] for at, _ in ended) / rest, 2)
    assert close(answers, sum(tokens for at, tokens in ended if half < at <= arrivals[-1]) / rest, 1)
    assert close(start, half / 1e6, 1)
    assert close(end, arrivals[-1] / 1e6, 1)


def test_kv_blocks_and_preemptions(tabled_run: TabledRun) -> None:
    """Blocks are counted at the ends of steps here: within them there may have been more."""
    line = tabled_run.lines["KV cache"]
    match = re.match(r"([\d,]+) of ([\d,]+) blocks(?: of instance (\d+))? at peak", line)
    assert match is not None
    peak, whole = (int(group.replace(",", "")) for group in match.groups()[:2])
    used = defaultdict[int, int](int)
    for step in tabled_run.of(kinds.StepFinished):
        used[step.instance] = max(used[step.instance], step.kv_used_blocks)
    assert max(used.values()) <= peak <= whole
    assert f" {len(tabled_run.of(kinds.Preempted)):,} preemptions" in line


def test_latencies(tabled_run: TabledRun) -> None:
    done = tabled_run.of(kinds.Completed)
    # Where answers are generated again after a preemption, that takes the first token back: the last one counts.
    first = {first_token.request_id: first_token.ttft_us for first_token in tabled_run.of(kinds.FirstToken)}
    many = [one for one in done if one.output_tokens > 1]
    expected: dict[str, list[float]] = {
        "time to first token": [float(one) for one in first.values()],
        "time per output token": [(one.e2e_us - one.ttft_us) / (one.output_tokens - 1) for one in many],
        "end to end": [float(one.e2e_us) for one in done],
    }
    if not tabled_run.report.requests.timed_out:
        gaps = sum(one.e2e_us - one.ttft_us for one in done) / sum(one.output_tokens - 1 for one in done)
        assert close(tabled_run.figures("inter-token latency")[0], gaps / 1e3, 2)
    for name, times in expected.items():
        shown = tabled_run.figures(name)
        assert close(shown[0], float(np.mean(times)) / 1e3, 2), name
        for place, percent in enumerate(COLUMNS.values(), start=1):
            assert close(shown[place], float(np.percentile(times, percent)) / 1e3, 2), (name, percent)


def test_requests_that_went_down_with_an_instance_are_told() -> None:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 5}))
    text = summary_text(replace(report, requests=replace(report.requests, lost=3)))
    assert "5 completed, 3 lost with their instance\n" in text
