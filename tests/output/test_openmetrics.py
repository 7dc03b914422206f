"""The metrics of a run, read by Prometheus' own Python parser, say what the report and the request table say."""

import json
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.output.openmetrics import FAMILIES, GAPS, buckets_of_tokens, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[str, tuple[tuple[str, str], ...]]


def scraped(text: str) -> dict[float, dict[Key, float]]:
    """What each scrape shows, as the parser takes the file as a whole: time -> sample -> value."""
    found: dict[float, dict[Key, float]] = {}
    taken = 0
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for one in family.samples:
            sample = found.setdefault(float(one.timestamp), {})
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in sample
            sample[key] = one.value
            taken += 1
    assert taken == len([line for line in text.splitlines() if not line.startswith("#")])  # nothing is dropped
    return found


def run(folder: Path, *arguments: str) -> tuple[dict[float, dict[Key, float]], dict[str, Any]]:
    metrics, report = folder / "run.om", folder / "report.json"
    options = ["--set", "expect=[]", "--openmetrics", str(metrics), "-o", str(report)]
    result = CliRunner().invoke(cli, ["run", *arguments, *options])
    assert result.exit_code == 0, result.output
    return scraped(metrics.read_text()), json.loads(report.read_text())


def of(sample: dict[Key, float], name: str, **labels: str) -> float:
    """The sum over all samples of that name with these labels."""
    wanted = labels.items()
    return sum(value for (called, has), value in sample.items() if called == name and wanted <= dict(has).items())


@pytest.mark.parametrize(
    ("name", "requests"),
    [("kv-pressure", 60), ("shared-prefixes", 20), ("disaggregation", 20), ("vllm-preemption", 40)],
)
def test_the_last_scrape_shows_the_figures_of_the_report(name: str, requests: int, tmp_path: Path) -> None:
    scrapes, _ = run(tmp_path, name, "--set", f"workload.requests={requests}")
    report = blis_tui.run(blis_tui.load(name, set={"workload.requests": requests}))
    last = scrapes[max(scrapes)]
    rows = [row for row in report.rows if row.state == "completed"]
    assert of(last, "vllm:request_success_total", finished_reason="stop") == report.requests.completed
    assert of(last, "vllm:num_preemptions_total") == report.kv.preemptions
    assert of(last, "vllm:num_requests_running") == of(last, "vllm:num_requests_waiting") == 0
    assert of(last, "vllm:prompt_tokens_total") == sum(row.input_tokens for row in rows)
    assert of(last, "vllm:prefix_cache_hits_total") == report.tokens.cached
    figures: dict[str, Callable[[Any], float]] = {
        "time_to_first_token_seconds": lambda row: row.ttft_us / 1e6,
        "e2e_request_latency_seconds": lambda row: row.e2e_us / 1e6,
        "request_prompt_tokens": lambda row: row.input_tokens,
        "request_generation_tokens": lambda row: row.output_tokens,
        "request_inference_time_seconds": lambda row: (row.completed_us - row.scheduled_us) / 1e6,
    }
    for metric, of_row in figures.items():
        values = [of_row(row) for row in rows]
        assert of(last, f"vllm:{metric}_count") == len(values)
        assert of(last, f"vllm:{metric}_sum") == pytest.approx(sum(values))
        assert of(last, f"vllm:{metric}_bucket", le="0.5") == len([value for value in values if value <= 0.5])
    gaps = report.latency.itl_ms
    count = of(last, "vllm:inter_token_latency_seconds_count")
    assert of(last, "vllm:inter_token_latency_seconds_sum") / count * 1e3 == pytest.approx(gaps.mean)
    generated = of(last, "vllm:generation_tokens_total")
    if name == "kv-pressure":  # as in BLIS, who was preempted generates its tokens once more
        assert generated > report.tokens.output
    else:
        assert generated == report.tokens.output


def test_histograms_are_whole_at_each_time(tmp_path: Path) -> None:
    scrapes, _ = run(tmp_path, "quickstart", "--set", "workload.requests=60")
    assert len(scrapes) > 3
    for sample in scrapes.values():
        for family in (*(one for one in FAMILIES if not one.counts), GAPS):
            for engine in ("0", "1"):
                ends = [
                    (float(dict(labels)["le"]), count)
                    for (name, labels), count in sample.items()
                    if name == f"{family.name}_bucket" and ("engine", engine) in labels
                ]
                assert ends[-1] == (float("inf"), of(sample, f"{family.name}_count", engine=engine))
                assert ends == sorted(ends)
                assert [count for _, count in ends] == sorted(count for _, count in ends)


def test_each_scrape_shows_what_had_happened_by_then(tmp_path: Path) -> None:
    scrapes, _ = run(tmp_path, "kv-pressure", "--set", "workload.requests=60", "--openmetrics-interval", "1")
    simulation = blis_tui.Simulation(blis_tui.load("kv-pressure", set={"workload.requests": 60}))
    times = sorted(scrapes)
    assert times == [float(number) for number in range(len(times))]
    for time in times:
        simulation.run(until_us=round(time * 1e6))
        sample = scrapes[time]
        assert of(sample, "vllm:num_requests_running") == simulation.figure("running")
        assert of(sample, "vllm:num_requests_waiting") == simulation.figure("waiting")
        assert of(sample, "vllm:kv_cache_usage_perc") == simulation.figure("kv.utilization")
        assert of(sample, "vllm:num_preemptions_total") == simulation.figure("preemptions")
    rows = list(simulation.report().rows)
    for time in times:
        now = time * 1e6
        ended = [row for row in rows if row.completed_us is not None and row.completed_us <= now]
        assert of(scrapes[time], "vllm:e2e_request_latency_seconds_count") == len(ended)
        assert of(scrapes[time], "vllm:prompt_tokens_total") == sum(
            row.input_tokens for row in rows if row.first_token_us is not None and row.first_token_us <= now
        )


@pytest.mark.parametrize(("first_us", "times"), [(0, [0, 1]), (1, [0, 1]), (2_500_000, [0, 2, 3])])
def test_every_time_is_looked_at_once(first_us: int, times: list[float], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(f"arrival_time_us,input_tokens,output_tokens\n{first_us},8,2\n")
    scrapes, _ = run(tmp_path, "quickstart", "--set", f"workload={{trace: {{file: {trace}}}}}")
    assert sorted(scrapes) == times


def test_samples_say_whose_they_are_and_idle_time_takes_no_room(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_time_us,input_tokens,output_tokens\n0,8,2\n3600000000000,8,2\n")
    scrapes, _ = run(tmp_path, "quickstart", "--set", f"workload={{trace: {{file: {trace}}}}}")
    assert sorted(scrapes) == [0, 1, 3600000 - 1, 3600000, 3600001]
    engines = {dict(labels)["engine"] for _, labels in scrapes[0]}
    assert engines == {"0", "1"}
    assert {dict(labels)["model_name"] for _, labels in scrapes[0]} == {"qwen3-14b"}


def test_requests_that_time_out_are_aborted(tmp_path: Path) -> None:
    cut = ["--set", "workload.requests=30", "--set", "workload.clients.0.timeout_us=900000"]
    scrapes, report = run(tmp_path, "quickstart", *cut)
    aborted = report["requests"]["timed_out"]
    assert aborted > 0
    assert of(scrapes[max(scrapes)], "vllm:request_success_total", finished_reason="abort") == aborted


def test_instances_that_come_later_are_shown_from_then_on(tmp_path: Path) -> None:
    scrapes, report = run(tmp_path, "autoscaling", "--set", "workload.requests=150", "--openmetrics-interval", "5")
    first, last = ({dict(labels)["engine"] for _, labels in scrapes[at(scrapes)]} for at in (min, max))
    assert len(first) < len(last) == len(report["instances"])


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        CliRunner().invoke(cli, ["run", "quickstart", "--set", "workload.requests=5", "--openmetrics", str(file)])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_buckets_are_those_of_vllm() -> None:
    assert buckets_of_tokens(100) == (1, 2, 5, 10, 20, 50, 100)
    assert buckets_of_tokens(40960)[-1] == 20000
    for family in FAMILIES:
        assert list(family.buckets_s) == sorted(family.buckets_s)
    ttft = next(one for one in FAMILIES if one.name == "vllm:time_to_first_token_seconds")
    assert (len(ttft.buckets_s), bisect_left(ttft.buckets_s, 2.0)) == (22, 12)


def test_seconds_are_exact() -> None:
    assert [seconds(us) for us in (0, 1, 1_500_000, 60_000_000)] == ["0", "0.000001", "1.5", "60"]


def test_accepted_drafts_are_generated_tokens_too(tmp_path: Path) -> None:
    drafts = "engine.speculative={draft_tokens: 3, acceptance: 0.6, method: eagle}"
    options = ["--set", "policy=vllm-v1", "--set", drafts, "--set", "workload.requests=40"]
    scrapes, report = run(tmp_path, "quickstart", *options)
    last = scrapes[max(scrapes)]
    assert of(last, "vllm:generation_tokens_total") == report["tokens"]["output"]
    assert report["speculative"]["tokens_per_step"] > 1.5
    totals = [of(scrapes[time], "vllm:generation_tokens_total") for time in sorted(scrapes)]
    assert totals == sorted(totals)
