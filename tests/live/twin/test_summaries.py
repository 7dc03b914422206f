"""Summaries of load generators beside a simulation: the server is a simulation whose report is written as theirs.

The files have the shape that the tools' sources give them (see ``blis_tui/live/twin/summaries.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from click.testing import CliRunner

from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.twin.summaries import read_summary
from blis_tui.live.twin.summary_twin import compare_summary
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from blis_tui.model import Experiment
    from blis_tui.results.report import Report
    from blis_tui.results.stats import Distribution

SERVER: Final = ("cluster.instances=1", "latency=roofline", "expect=[]")
ASKED: Final = (*SERVER, "workload.requests=60", "workload.rate_per_s=30")


def opened(before: Sequence[str]) -> Experiment:
    return load("quickstart", overrides=[*before, *(SERVER if before else ASKED)])


@pytest.fixture(scope="module")
def report() -> Report:
    simulation = Simulation(opened(()))
    simulation.run()
    return simulation.report()


def of(distribution: Distribution, names: Sequence[str], factor: float = 1.0, **renamed: str) -> dict[str, float]:
    figures = {name: getattr(distribution, name) for name in ("mean", "p50", "p90", "p95", "p99", "min", "max")}
    return {renamed.get(name, name): figures[name] * factor for name in names}


def mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


ALL: Final = ("mean", "p50", "p90", "p95", "p99")


def aiperf(report: Report) -> str:
    def metric(unit: str, figures: dict[str, float]) -> dict[str, object]:
        return {"unit": unit, **figures}

    latency, rows = report.latency, report.rows
    return json.dumps({
        "schema_version": "1.0",
        "request_count": metric("requests", {"avg": 60.0}),
        "error_request_count": metric("requests", {"avg": 2.0}),
        "request_throughput": metric("requests/sec", {"avg": report.throughput.requests_per_s}),
        "output_token_throughput": metric("tokens/sec", {"avg": report.throughput.output_tokens_per_s}),
        "time_to_first_token": metric("ms", of(latency.ttft_ms, ALL, mean="avg")),
        "inter_token_latency": metric("us", of(latency.tpot_ms, ALL, 1e3, mean="avg")),
        "request_latency": metric("ms", of(latency.e2e_ms, ALL, mean="avg")),
        "input_sequence_length": metric("tokens", {"avg": mean([row.input_tokens for row in rows])}),
        "output_sequence_length": metric("tokens", {"avg": mean([row.output_tokens for row in rows])}),
        "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"request_rate": 30.0}},
        "was_cancelled": False,
    })  # fmt: skip


def serving(report: Report, **more: object) -> str:
    latency, rows = report.latency, report.rows
    shown = {"ttft": latency.ttft_ms, "tpot": latency.tpot_ms, "itl": latency.itl_ms}
    figures = {
        f"{figure}_{name}_ms": value
        for name, distribution in shown.items()
        for figure, value in of(distribution, ("mean", "p50", "p99"), p50="median").items()
    }
    return json.dumps({
        "backend": "openai", "request_rate": 30.0, "max_concurrency": None, "duration": 2.5, "completed": 60,
        "total_input_tokens": sum(row.input_tokens for row in rows),
        "total_output_tokens": sum(row.output_tokens for row in rows),
        "request_throughput": report.throughput.requests_per_s,
        "output_throughput": report.throughput.output_tokens_per_s,
        **figures,
        **more,
    })  # fmt: skip


def vllm(report: Report) -> str:
    return serving(report, endpoint_type="openai", model_id="m", num_prompts=62, burstiness=1.0)


def sglang(report: Report) -> str:
    e2e = of(report.latency.e2e_ms, ("mean", "p50", "p99"), p50="median")
    named = {f"{name}_e2e_latency_ms": value for name, value in e2e.items()}
    return serving(report, dataset_name="random", random_range_ratio=0.5, **named) + "\n"


def guidellm(report: Report) -> str:
    def done(found: dict[str, float]) -> dict[str, object]:
        percentiles = {name: value for name, value in found.items() if name != "mean"}
        percentiles |= {"p001": 0.0, "p05": 0.0, "p999": 1e9} if percentiles else {}
        return {"successful": {"mean": found["mean"], "percentiles": percentiles}, "errored": {"mean": 0.0}}

    latency, rows = report.latency, report.rows
    metrics = {
        "request_totals": {"successful": 60, "errored": 1, "incomplete": 1, "total": 62},
        "requests_per_second": done({"mean": report.throughput.requests_per_s}),
        "output_tokens_per_second": done({"mean": report.throughput.output_tokens_per_s}),
        "request_latency": done(of(latency.e2e_ms, ALL, 1e-3)),
        "time_to_first_token_ms": done(of(latency.ttft_ms, ALL)),
        "inter_token_latency_ms": done({**of(latency.tpot_ms, ALL), "mean": latency.itl_ms.mean or 0.0}),
        "prompt_token_count": done({"mean": mean([row.input_tokens for row in rows])}),
        "output_token_count": done({"mean": mean([row.output_tokens for row in rows])}),
    }
    config = {"strategy": {"type_": "constant", "rate": 30.0}}
    return json.dumps({"benchmarks": [{"config": config, "metrics": metrics, "requests": {"successful": []}}]})


def inference_perf(report: Report) -> str:
    def seconds(distribution: Distribution) -> dict[str, float]:
        return of(distribution, ALL, 1e-3, p50="median")

    latency, rows = report.latency, report.rows
    return json.dumps({
        "load_summary": {"count": 62, "schedule_delay": {"mean": 0.0}, "send_duration": 2.0, "requested_rate": 30.0},
        "successes": {
            "count": 60,
            "latency": {
                "request_latency": seconds(latency.e2e_ms),
                "normalized_time_per_output_token": {"mean": 1.0},
                "time_per_output_token": seconds(latency.tpot_ms),
                "time_to_first_token": seconds(latency.ttft_ms),
                "inter_token_latency": seconds(latency.itl_ms),
            },
            "throughput": {
                "output_tokens_per_sec": report.throughput.output_tokens_per_s,
                "requests_per_sec": report.throughput.requests_per_s,
            },
            "prompt_len": {"mean": mean([row.input_tokens for row in rows])},
            "output_len": {"mean": mean([row.output_tokens for row in rows])},
        },
        "failures": {"count": 2, "request_latency": None},
    })  # fmt: skip


def llm_d(report: Report) -> str:
    def stated(distribution: Distribution, unit: str) -> dict[str, object]:
        return {"units": unit, **of(distribution, ALL, 1e-3 if unit[0] == "s" else 1.0)}

    latency, rows = report.latency, report.rows
    aggregate = {
        "requests": {
            "total": 62, "failures": 2,
            "input_length": {"units": "count", "mean": mean([row.input_tokens for row in rows])},
            "output_length": {"units": "count", "mean": mean([row.output_tokens for row in rows])},
        },
        "latency": {
            "time_to_first_token": stated(latency.ttft_ms, "ms"),
            "time_per_output_token": stated(latency.tpot_ms, "s/token"),
            "inter_token_latency": stated(latency.itl_ms, "ms/token"),
            "request_latency": stated(latency.e2e_ms, "s"),
        },
        "throughput": {
            "output_token_rate": {"units": "tokens/s", "mean": report.throughput.output_tokens_per_s},
            "request_rate": {"units": "queries/s", "mean": report.throughput.requests_per_s},
        },
    }  # fmt: skip
    load = {"metadata": {}, "standardized": {"tool": "inference-perf", "stage": 0, "rate_qps": 30.0}, "native": {}}
    document = {"version": "0.2", "run": {}, "scenario": {"load": load}}
    return yaml.safe_dump({**document, "results": {"request_performance": {"aggregate": aggregate}}})


def llm_d_older(report: Report) -> str:
    newer = yaml.safe_load(llm_d(report))["results"]["request_performance"]["aggregate"]
    per_s = {"requests_per_sec": report.throughput.requests_per_s, "total_tokens_per_sec": 1.0}
    metrics = {"time": {"duration": 2.0}, **newer, "throughput": per_s}
    scenario = {"model": {"name": "m"}, "load": {"name": "vllm-benchmark"}}
    return yaml.safe_dump({"version": "0.1", "scenario": scenario, "metrics": metrics})


TOOLS: Final[dict[str, tuple[Callable[[Report], str], str, int]]] = {
    "AIPerf": (aiperf, "", 20),
    "vllm bench serve": (vllm, "end-to-end latency", 14),
    "SGLang": (sglang, "number of failed ones", 17),
    "GuideLLM": (guidellm, "", 20),
    "inference-perf": (inference_perf, "", 25),
    "llm-d-benchmark (inference-perf)": (llm_d, "", 25),
    "llm-d-benchmark (vllm-benchmark)": (llm_d_older, "request rate or concurrency", 24),
}
"""Tool -> what writes its file, what that leaves out, and how many figures it has."""


@pytest.mark.parametrize("tool", TOOLS)
def test_the_server_itself_differs_in_no_figure(tool: str, report: Report, tmp_path: Path) -> None:
    """Units and definitions are right: the same workload on the same server gives each figure of the file."""
    write, lacking, count = TOOLS[tool]
    path = tmp_path / "result"
    path.write_text(write(report), encoding="utf-8")
    summary = read_summary(path)
    assert summary is not None
    assert (summary.tool, summary.completed, summary.failed) == (tool, 60, None if tool == "SGLang" else 2)
    found = compare_summary(summary, opened, "quickstart", own_load=True)
    assert len(found.figures) == count
    assert [figure.name for figure in found.figures if abs(figure.change or 0.0) > 1e-9] == []
    assert ", ".join(found.lacking) == lacking
    failures_noted = "2 requests failed: what they added to the load is not simulated" in found.notes
    assert failures_noted == (tool != "SGLang")


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if not tool.endswith("(vllm-benchmark)")])
def test_the_load_is_what_the_file_says(tool: str, report: Report, tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text(TOOLS[tool][0](report), encoding="utf-8")
    summary = read_summary(path)
    assert summary is not None
    asked: list[str] = []
    found = compare_summary(summary, lambda before: asked.extend(before) or opened(before), "quickstart")  # type: ignore[func-returns-value]
    document = json.loads(asked[0].removeprefix("workload="))
    (client,) = document["clients"]
    assert (document["requests"], document["rate_per_s"]) == (60, 30.0)
    assert client["arrivals"] == {"kind": "constant" if tool == "GuideLLM" else "poisson"}
    assert client["input_tokens"] == round(mean([row.input_tokens for row in report.rows]))
    shown = {figure.name: figure for figure in found.figures}
    assert abs(shown["tokens of a prompt"].change or 0.0) < 0.01
    assert "not in the file: lengths of single prompts; all simulated ones have the mean" in found.notes
    assert ("not in the file: the gaps between requests; simulated is a Poisson process" in found.notes) == (
        tool in {"AIPerf", "inference-perf", "llm-d-benchmark (inference-perf)"}
    )


@pytest.mark.parametrize(
    ("write", "changes", "endpoint"),
    [
        (vllm, {}, None),
        (vllm, {"endpoint_type": "openai-chat"}, "chat"),
        (vllm, {"backend": "openai-chat"}, "chat"),
        (sglang, {"backend": "sglang-oai-chat"}, "chat"),
        (aiperf, {"input_config": {"endpoint": {"type": "chat"}, "loadgen": {"request_rate": 30.0}}}, "chat"),
        (aiperf, {"input_config": {"endpoint": {"type": "completions"}, "loadgen": {"request_rate": 30.0}}}, None),
    ],
)
def test_chats_are_simulated_as_such(
    write: Callable[[Report], str], changes: dict[str, object], endpoint: str | None, report: Report, tmp_path: Path
) -> None:
    (tmp_path / "result").write_text(json.dumps(json.loads(write(report)) | changes))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    asked: list[str] = []
    compare_summary(summary, lambda before: asked.extend(before) or opened(before), "quickstart")  # type: ignore[func-returns-value]
    assert json.loads(asked[0].removeprefix("workload=")).get("endpoint") == endpoint


@pytest.mark.parametrize(
    ("changes", "arrivals", "lengths"),
    [
        ({"max_concurrency": 8, "request_rate": "inf"}, {"kind": "closed-loop", "users": 8}, 7),
        ({"request_rate": "inf"}, {"kind": "closed-loop", "users": 60}, 7),
        ({"burstiness": 0.25}, {"kind": "gamma", "cv": 2.0}, 7),
        ({"input_lens": [0, 5, 5, 9]}, {"kind": "poisson"}, {"kind": "empirical", "weights": {"5": 2, "9": 1}}),
    ],
)
def test_users_bursts_and_listed_lengths(
    changes: dict[str, object], arrivals: object, lengths: object, report: Report, tmp_path: Path
) -> None:
    document = {**json.loads(vllm(report)), "total_input_tokens": 420, **changes}
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    asked: list[str] = []
    compare_summary(summary, lambda before: asked.extend(before) or opened(before), "quickstart")  # type: ignore[func-returns-value]
    (client,) = json.loads(asked[0].removeprefix("workload="))["clients"]
    assert (client["arrivals"], client["input_tokens"]) == (arrivals, lengths)


@pytest.mark.parametrize("tool", ["inference-perf", "llm-d-benchmark (inference-perf)"])
def test_users_of_inference_perf_send_at_no_rate(tool: str, report: Report, tmp_path: Path) -> None:
    """The rate beside them is that at which all requests of the stage would be due at once."""
    document = yaml.safe_load(TOOLS[tool][0](report))
    if "load_summary" in document:
        document["load_summary"] |= {"requested_rate": 6000.0, "concurrency": 8}
    else:
        document["scenario"]["load"]["standardized"] |= {"rate_qps": 6000.0, "concurrency": 8}
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert (summary.rate_per_s, summary.users) == (None, 8)


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_report_of_requests_sent_at_once(dump: Callable[[object], str], report: Report, tmp_path: Path) -> None:
    """vLLM's default rate, which the report writes as a number without end."""
    document = yaml.safe_load(llm_d(report))
    load = document["scenario"]["load"]["standardized"]
    load |= {"tool": "vllm-benchmark", "rate_qps": float("inf"), "concurrency": float("inf")}
    (tmp_path / "result").write_text(dump(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert (summary.rate_per_s, summary.users) == (float("inf"), None)


def test_aiperf_says_how_smooth_arrivals_are(report: Report, tmp_path: Path) -> None:
    document = json.loads(aiperf(report))
    document["input_config"]["loadgen"] |= {"arrival_pattern": "gamma", "arrival_smoothness": 0.25}
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert summary.cv == 2.0


def test_guidellm_limits_what_it_sends_at_once(report: Report, tmp_path: Path) -> None:
    document = json.loads(guidellm(report))
    document["benchmarks"][0]["config"]["strategy"] = {"type_": "throughput", "max_concurrency": 16}
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert (summary.rate_per_s, summary.users) == (float("inf"), 16)


def test_gaps_of_aiperf_are_those_of_a_request(report: Report, tmp_path: Path) -> None:
    """A report copies what AIPerf calls inter-token latency."""
    document = yaml.safe_load(llm_d(report))
    document["scenario"]["load"]["standardized"]["tool"] = "aiperf"
    latency = document["results"]["request_performance"]["aggregate"]["latency"]
    latency["inter_token_latency"] = {"units": "s/token", "mean": 0.025, "p99": 0.05}
    del latency["time_per_output_token"]
    (tmp_path / "result").write_text(yaml.safe_dump(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert summary.latency_ms["tpot"] == {"mean": 25.0, "p99": 50.0}
    assert "itl" not in summary.latency_ms


def test_gaps_of_guidellm_are_weighted(report: Report, tmp_path: Path) -> None:
    """A report copies what GuideLLM calls inter-token latency; beside it is the latency by all tokens."""
    document = yaml.safe_load(llm_d(report))
    document["scenario"]["load"]["standardized"]["tool"] = "guidellm"
    (tmp_path / "result").write_text(yaml.safe_dump(document))
    (tmp_path / "own").write_text(guidellm(report))
    for name in ("result", "own"):
        summary = read_summary(tmp_path / name)
        assert summary is not None
        assert summary.latency_ms["itl"] == {"mean": report.latency.itl_ms.mean}
        assert sorted(summary.latency_ms["tpot"]) == ["p50", "p90", "p95", "p99"]


def test_percentiles_of_lengths_are_followed(report: Report, tmp_path: Path) -> None:
    document = json.loads(aiperf(report))
    document["input_sequence_length"] = {
        "unit": "tokens",
        "avg": 300.0,
        "p1": 10,
        "p50": 200,
        "p99": 900.5,
        "p0": 1,
        "p100": 990,
        "p999": 940,
        "p\N{SUPERSCRIPT TWO}": 20,
        "min": 9,
        "max": 950,
    }
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    asked: list[str] = []
    compare_summary(summary, lambda before: asked.extend(before) or opened(before), "quickstart")  # type: ignore[func-returns-value]
    (client,) = json.loads(asked[0].removeprefix("workload="))["clients"]
    values = {"p1": 10.0, "p50": 200.0, "p99": 900.5}
    assert client["input_tokens"] == {"kind": "percentiles", "values": values, "min": 9, "max": 950}


def test_lists_give_what_the_summary_lacks(tmp_path: Path) -> None:
    """Of SGLang's details, whose requests have no times: the second one has failed."""
    document = {
        "dataset_name": "random", "completed": 2, "mean_ttft_ms": 150.0,
        "input_lens": [10, 9, 30], "output_lens": [3, 0, 2],
        "ttfts": [0.1, 0.0, 0.2], "itls": [[0.01, 0.03], [], [0.05]],
    }  # fmt: skip
    (tmp_path / "result").write_text(json.dumps(document) + "\n")
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    assert summary.latency_ms["ttft"]["mean"] == 150.0
    assert [round(summary.latency_ms[name]["mean"], 6) for name in ("itl", "tpot", "e2e")] == [30.0, 35.0, 195.0]
    assert (summary.prompts and summary.prompts.mean, summary.answers and summary.answers.values) == (49 / 3, (3, 2))


def test_a_listed_gap_may_be_that_of_several_tokens(tmp_path: Path) -> None:
    """Five tokens in three parts; a request that broke off after its first token is not counted."""
    document = {
        "endpoint_type": "openai", "completed": 1, "input_lens": [10, 10], "output_lens": [5, 0],
        "ttfts": [0.1, 0.7], "itls": [[0.02, 0.02], [0.9]],
    }  # fmt: skip
    (tmp_path / "result").write_text(json.dumps(document))
    summary = read_summary(tmp_path / "result")
    assert summary is not None
    means = {name: round(found["mean"], 6) for name, found in summary.latency_ms.items()}
    assert means == {"ttft": 100.0, "tpot": 10.0, "itl": 20.0, "e2e": 140.0}


def test_only_a_line_feed_ends_a_run(report: Report, tmp_path: Path) -> None:
    named = json.dumps({**json.loads(sglang(report)), "tag": "\N{LINE SEPARATOR}\N{NEXT LINE}"}, ensure_ascii=False)
    (tmp_path / "result").write_text(f"{named}\r\n{named}\r\n", encoding="utf-8")
    summary = read_summary(tmp_path / "result", 2)
    assert summary is not None
    assert (summary.run, summary.completed) == ("run 2 of 2", 60)


def test_one_of_several_runs_is_chosen(report: Report, tmp_path: Path) -> None:
    several = {
        "lines": "".join(
            json.dumps({**json.loads(sglang(report)), "request_rate": rate}) + "\n" for rate in (1.0, 2.0)
        ),
        "benchmarks": json.dumps({"benchmarks": json.loads(guidellm(report))["benchmarks"] * 2}),
    }
    for name, text in several.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="holds 2 runs") as caught:
            read_summary(tmp_path / name)
        assert caught.value.help == "choose one: --run 1 to --run 2"
        with pytest.raises(InputError, match="no run 3"):
            read_summary(tmp_path / name, 3)
        summary = read_summary(tmp_path / name, 2)
        assert summary is not None
        assert summary.run == "run 2 of 2"
    chosen = read_summary(tmp_path / "lines", 2)
    assert chosen is not None
    assert chosen.rate_per_s == 2.0


def twin(path: Path, *more: str) -> tuple[int, str, str]:
    words = [word for one in ASKED for word in ("--set", one)]
    done = CliRunner().invoke(cli, ["twin", str(path), "quickstart", *words, *more])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_says_what_was_assumed(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(vllm(report))
    code, out, _ = twin(path)
    assert code == 0
    assert "load       that of the file: 60 requests at 30/s" in out
    assert "note: not in the file: end-to-end latency" in out
    assert max(map(len, out.replace(str(path), "bench.json").splitlines())) <= 100
    code, out, _ = twin(path, "--load", "spec", "--format", "json", "--within", "1")
    document = json.loads(out)
    assert (code, document["tool"], document["not_in_the_file"]) == (0, "vllm bench serve", ["end-to-end latency"])
    code, _, err = twin(path, "--set", "engine.max_num_seqs=2", "--load", "spec", "--within", "20")
    assert (code, "FAIL  mean TTFT differs by +" in err) == (ExitCode.CHECK_FAILED, True)
    assert twin(path, "--requests", "pairs.csv")[0] == ExitCode.USAGE


def test_another_load_than_the_files_is_said(report: Report, tmp_path: Path) -> None:
    document = json.loads(vllm(report))
    (tmp_path / "bench.json").write_text(json.dumps({**document, "total_input_tokens": 60_000}))
    assert (
        "note: the loads differ: tokens of a prompt (1,000 measured)"
        in twin(tmp_path / "bench.json", "--load", "spec")[1]
    )
    del document["total_output_tokens"], document["request_rate"]
    (tmp_path / "bench.json").write_text(json.dumps(document))
    _, out, _ = twin(tmp_path / "bench.json")
    assert "load       the experiment's own" in out
    assert "not in the file: at what rate, or by how many users and how long answers are; simulated is" in out


def test_a_load_that_cannot_be_simulated_is_the_files_error(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text(json.dumps({**json.loads(vllm(report)), "total_input_tokens": 10**14}))
    code, out, err = twin(path)
    assert (code, out) == (2, "")
    assert f"{path}:1:" in err
    assert "its load cannot be simulated: `input_tokens` must be at most" in err
    assert "--load spec" in err
    assert "--> --set" not in err
    assert "--> --set" in twin(path, "--set", "seed=many")[2]


BROKEN: Final[dict[str, tuple[Callable[[Report], str], str, str, int]]] = {
    "aiperf-unit": (aiperf, '"unit": "us"', '"unit": "minutes"', 1),
    "aiperf-number": (aiperf, '"was_cancelled"', '"request_latency": {"unit": "ms", "avg": "slow"}, "x"', 1),
    "vllm-negative": (vllm, '"completed": 60', '"completed": -1', 1),
    "sglang-list": (sglang, '"dataset_name"', '"input_lens": ["many"], "dataset_name"', 1),
    "sglang-long-list": (sglang, '"dataset_name"', f'"input_lens": [{"9" * 400}], "dataset_name"', 1),
    "vllm-nan": (vllm, '"completed"', '"ttfts": [NaN], "itls": [[]], "completed"', 1),
    "vllm-endless": (vllm, '"completed"', '"ttfts": [1.0], "itls": [[Infinity]], "completed"', 1),
    "vllm-huge": (vllm, '"completed"', f'"ttfts": [{"9" * 400}], "itls": [[]], "completed"', 1),
    "vllm-no-list": (vllm, '"completed"', '"ttfts": [1.0], "itls": [0.1], "completed"', 1),
    "guidellm-map": (guidellm, '"request_totals": {"successful": 60', '"request_totals": {"successful": "all"', 1),
    "inference-perf-count": (inference_perf, '"failures": {"count": 2', '"failures": {"count": 2.5', 1),
    "llm-d-failures": (llm_d, "failures: 2", "failures: 99", 29),
    "llm-d-unit": (llm_d, "units: s/token", "units: s/word", 28),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_error_with_its_line(case: str, report: Report, tmp_path: Path) -> None:
    write, old, new, line = BROKEN[case]
    text = write(report)
    assert old in text
    path = tmp_path / case
    path.write_text(text.replace(old, new))
    code, out, err = twin(path)
    assert (code, out) == (2, "")
    assert err.count("error[BLIS2100]") == 1
    where = next(number for number, splitline in enumerate(path.read_text().splitlines(), 1) if new in splitline)
    assert f"{path}:{where}:" in err
    assert any(f"= help: {advice}" in err for advice in ("it must be", "a length is", "list seconds"))
    assert "Traceback" not in err
    assert where == line or write is llm_d
