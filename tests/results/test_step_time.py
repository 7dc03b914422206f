"""What reports say of their step times: the error of each mean where servers like that were measured, else why not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import accuracy
from blis_tui import load
from blis_tui.model import Client, Cluster, Engine, Experiment, Hardware, Policy, Pool, Workload
from blis_tui.output.section_text import accuracy_table, accuracy_text, instance_lines, summary_text
from blis_tui.results.expected_error import (
    COMPARED,
    DIFFERENT,
    ExpectedError,
    ObservedLoad,
    SlowerServer,
    as_new,
    error_bands,
    expectation,
    slower_server,
)
from blis_tui.results.measured import (
    LOADS,
    LONG_TOKENS,
    OF_CLIENT,
    OF_EXPERIMENT,
    OF_POOL,
    ServerTraits,
    measured,
    traits_of,
)
from blis_tui.results.sections.types import StepTime, step_times
from blis_tui.runs.simulation import Simulation
from docs import make_reliability

if TYPE_CHECKING:
    from blis_tui.results.expected_error import Expectation
    from blis_tui.results.measured import Known, Measured
    from blis_tui.results.report import Report

PAGE = (Path(__file__).parents[2] / "docs/accuracy.md").read_text(encoding="utf-8")
BASE: dict[str, object] = {
    "apiVersion": "blis/v1",
    "kind": "Experiment",
    "metadata": {"name": "one"},
    "model": "llama-3.1-8b-instruct",
    "hardware": "h100",
    "workload": "chatbot",
    "report": "full",
}
ALL = {"ttft", "itl", "e2e"}
WAITS = {"ttft", "e2e"}
SEEN = ObservedLoad(500.0, answer_tokens=200.0, ttft_share=0.02)


def known_runs() -> Known:
    found = measured("operators")
    assert found is not None
    return found


def asked(changes: dict[str, object], seen: ObservedLoad = SEEN) -> Expectation:
    experiment = load({**BASE, **changes})
    return expectation(experiment, experiment.pools[0], seen)


def simulated(**changes: object) -> Report:
    simulation = Simulation(load({**BASE, **changes}))
    simulation.run()
    return simulation.report()


def found(**changes: object) -> StepTime:
    (step_time,) = simulated(**{"workload": few(20), **changes}).step_time.values()
    return step_time


def few(requests: int, **more: object) -> dict[str, object]:
    client = {"id": "c", "input_tokens": 200, "output_tokens": 20, **more}
    return {"requests": requests, "rate_per_s": 40.0, "clients": [client]}  # several at a time, as on all servers


# ---- how often what is quoted holds ----


def cells(table: str) -> dict[tuple[str, str], list[float]]:
    """Group and metric -> the figures of a row of the calibration's table."""
    rows = {}
    for line in table.splitlines()[2:]:
        group, metric, *figures = (cell.strip() for cell in line.strip("|").split("|"))
        rows[group, metric] = [float(figure.rstrip(" %")) for figure in figures]
    return rows


@pytest.mark.xdist_group("reliability")
def test_the_picture_shows_the_table() -> None:
    """A hollow dot and a full one for each row, where its figures are; and it is not stale."""
    shown = make_reliability.PICTURE.read_text(encoding="utf-8")
    assert shown == make_reliability.picture(accuracy.held("operators")), "`python docs/make_reliability.py`"
    rows = cells(accuracy.calibration())
    dots = re.findall(r'<circle cx="([\d.]+)"[^>]*><title>(.*), (\w+)</title>', shown)
    assert len(dots) == 2 * len(rows)
    left, width = make_reliability.LEFT, make_reliability.WIDTH
    for (x, group, metric), place in zip(dots, range(len(dots)), strict=True):
        percent = 100 * (float(x) - left) / width
        assert percent == pytest.approx(rows[group, metric][1 + place % 2], abs=0.6)


@pytest.mark.xdist_group("reliability")  # in one process, because it takes seconds to work out
def test_what_is_quoted_holds_as_often_as_it_says() -> None:
    """Judged on servers that neither the fit nor the band has seen: half within the median, nine of ten in the band."""
    shown = PAGE.split("<!-- begin of the calibration -->")[1].split("<!-- end of the calibration -->")[0].strip()
    assert shown == accuracy.calibration().strip()
    for (group, metric), (number, median, band, _) in cells(shown).items():
        new = "left out" in group
        if number < 20:
            assert new, "too few to count"
            continue
        small = group.startswith(("cached prompts", "size left out"))  # both are of the same two dozen runs
        one_value = group.startswith("tensor parallelism left out: ")  # the largest of several errors may be too large
        assert 35 - 5 * small <= median <= 60 + 5 * (small or new) + 10 * one_value, (group, metric)
        assert 80 <= band <= 97 + 3 * (small or new), (group, metric)
        if group in ("all", "`good`", "`fair`"):
            assert 40 <= median <= 60
            assert 80 <= band <= 97


def test_the_band_of_e2e_rests_on_servers_whose_e2e_was_measured_and_on_the_others_alike() -> None:
    """Of the runs of which E2E was measured, what is worked out from TTFT and ITL is the measured error."""
    for run in known_runs().runs:
        if run.e2e_error is not None:
            low, high = sorted(run.errors[metric] for metric in ("ttft", "itl"))
            assert low - 1e-9 <= run.e2e_error <= high + 1e-9


# ---- bands, counted another way ----


def weighted_quantile(errors: list[tuple[float, float]], level: float) -> float:
    """By numpy's inverted distribution function, with every value as often as its weight says."""
    values, weights = (np.array(one) for one in zip(*errors, strict=True))
    return float(np.quantile(values, level, weights=weights, method="inverted_cdf"))


def likeness(metric: str, mine: ServerTraits, other: ServerTraits) -> float:
    """Each difference once, but loads by their order and tensor parallelism by doublings."""
    cost = DIFFERENT[metric]
    found = 1.0
    for name in ServerTraits._fields:
        one, two = getattr(mine, name), getattr(other, name)
        if name == "load":
            found *= cost[name] ** (abs(LOADS.index(one) - LOADS.index(two)) if one else 0)
        elif name == "tensor_parallel":
            found *= cost[name] ** abs(np.ceil(np.log2(one)) - np.ceil(np.log2(two)))
        else:
            found *= cost[name] if one != two else 1.0
    return float(found)


def weights_of(metric: str, mine: ServerTraits, runs: list[Measured]) -> tuple[list[float], float]:
    counts = {run.server: len([other for other in runs if other.server == run.server]) for run in runs}
    weights = [(likeness(metric, mine, run.traits) + 0.01) / counts[run.server] for run in runs]
    shares = [
        sum(weight for weight, run in zip(weights, runs, strict=True) if run.server == server) for server in counts
    ]
    return weights, sum(shares) ** 2 / sum(share**2 for share in shares)


MINE = ServerTraits("vllm", "h200", "dense", "fp8", "fp8", 4, fresh=True, long=False, size="64B to 90B")


@pytest.mark.parametrize("amplified", [1.0, 2.5])
@pytest.mark.parametrize("load_", ["", *LOADS])
@pytest.mark.parametrize("metric", ["ttft", "itl"])
def test_bands_are_quantiles_of_the_errors_of_servers_by_their_likeness(
    metric: str, load_: str, amplified: float
) -> None:
    mine = MINE._replace(load=load_)
    runs = [run for run in known_runs().runs if metric in run.errors]
    weights, count = weights_of(metric, mine, runs)
    band = error_bands(mine, known_runs().runs, ObservedLoad(500.0, amplified=amplified)).bands[metric]
    errors = [100 * ((1 + run.errors[metric]) ** (amplified / run.amplified) - 1) for run in runs]
    level = 1 + 0.5 / count
    sizes = list(zip(np.abs(errors).tolist(), weights, strict=True))
    signed = list(zip(errors, weights, strict=True))
    assert band.median == pytest.approx(weighted_quantile(sizes, 0.5 * level), abs=0.06)
    assert band.low == pytest.approx(weighted_quantile(signed, (1 - 0.9 * level) / 2), abs=0.06)
    assert band.high == pytest.approx(weighted_quantile(signed, (1 + 0.9 * level) / 2), abs=0.06)
    assert band.servers == round(count)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.7, 1.0])
def test_e2e_is_off_by_what_its_parts_are_off(share: float) -> None:
    """Of each measured run: what the server would take, if its first tokens and its decodes were off as there."""
    known = known_runs()
    bands = error_bands(MINE, known.runs, ObservedLoad(500.0, ttft_share=share)).bands
    runs = [run for run in known.runs if "ttft" in run.errors]
    weights, _ = weights_of("itl" if share < 0.5 else "ttft", MINE, runs)
    errors = []
    for run in runs:
        first, rest = ((1 + run.errors[name]) ** (1 / run.amplified) for name in ("ttft", "itl"))
        server = share / first + (1 - share) / rest
        errors.append(100 * (1 / server - 1))
    _, count = weights_of("itl" if share < 0.5 else "ttft", MINE, runs)
    low = weighted_quantile(list(zip(errors, weights, strict=True)), (1 - 0.9 * (1 + 0.5 / count)) / 2)
    assert bands["e2e"].low == pytest.approx(low, abs=0.06)
    if share in (0.0, 1.0):
        part = bands["ttft" if share else "itl"]
        assert (bands["e2e"].low, bands["e2e"].high) == pytest.approx((part.low, part.high), abs=1.0)


def test_a_slower_server_is_one_that_so_many_servers_were_not_slower_than() -> None:
    """Counted by numpy, of all errors as errors of steps."""
    experiment = load(BASE)
    (pool,) = experiment.pools
    seen = ObservedLoad(500.0)
    mine = traits_of(experiment, pool, prompt_tokens=500, cached_share=0.0)
    for confidence in (0.5, 0.8, 0.9):
        times = {}
        for metric in ("itl", "ttft"):
            runs = [one for one in as_new(mine, known_runs().runs) if metric in one.errors]
            weights, count = weights_of(metric, mine, runs)
            errors = [(1 + run.errors[metric]) ** (1 / run.amplified) - 1 for run in runs]
            level = 1 - confidence * (1 + 0.5 / count)
            error = weighted_quantile(list(zip(errors, weights, strict=True)), level)
            times[metric] = max(1.0, 1 / (1 + error))
        known = slower_server(experiment, pool, seen, confidence, ("itl", "ttft"))
        assert isinstance(known, SlowerServer)
        assert known.steps == pytest.approx(times["itl"], abs=6e-4)
        assert known.first_tokens == pytest.approx(max(1.0, times["ttft"] / times["itl"]), abs=6e-4)
        alone = slower_server(experiment, pool, seen, confidence)
        assert alone == SlowerServer(known.steps, 1.0)
        assert known.steps >= 1.0
    assert "are too few for a confidence" in str(slower_server(experiment, pool, seen, 0.99))
    blis = load({**BASE, "policy": "blis"})
    assert "`blis` batching" in str(slower_server(blis, blis.pools[0], seen, 0.9))
    picky = load({**BASE, "policy": "sjf"})
    assert isinstance(slower_server(picky, picky.pools[0], seen, 0.9), SlowerServer)
    assert "sjf" in str(slower_server(picky, picky.pools[0], seen, 0.9, ("itl", "ttft")))


# ---- what no measured server had ----

VLLM = {"kind": "vllm-v1"}
CLIENT: dict[str, object] = {"id": "c", "input_tokens": 200, "output_tokens": 20}


def policy(**more: object) -> dict[str, object]:
    return {"policy": {"apiVersion": "blis/v1", "kind": "Policy", "metadata": {"name": "own"}, **more}}


def engine(**more: object) -> dict[str, object]:
    return {"engine": more}


def cluster(**more: object) -> dict[str, object]:
    return {"cluster": more}


def client(**more: object) -> dict[str, object]:
    return {"workload": {"requests": 5, "rate_per_s": 1.0, "clients": [{**CLIENT, **more}]}}


LARGER = {"hidden_size": 4096, "intermediate_size": 14336}


def own_model(**more: object) -> dict[str, object]:
    """A model of 0.6 billion parameters, or more."""
    config = {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }
    named = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "own"}}
    return {**named, "config": {**config, **more}}


CHANGES: list[tuple[dict[str, object], set[str], str]] = [
    # who steps, and how they are timed
    ({"policy": "blis"}, ALL, "`blis` batching (measured: `vllm-v1`, `tensorrt-llm`)"),
    ({"policy": "sglang"}, ALL, "`sglang` batching"),
    ({"policy": "sjf", "hardware": "l40s"}, ALL, "GPU l40s (measured: h100, h200, b200)"),
    ({"model": "deepseek-v2-lite"}, ALL, "family mla"),
    ({"latency": {"kind": "operators", "moved": 2.5}}, ALL, "moved 2.5"),
    ({"latency": {"kind": "operators", "engine": "tensorrt-llm"}}, ALL, "engine tensorrt-llm"),
    ({"latency": {"kind": "operators", "steps": 1.1}}, ALL, "steps 1.1"),
    ({"latency": "roofline"}, ALL, "docs/accuracy.md"),
    (cluster(tensor_parallel=16), ALL, "tensor parallelism 16 (measured: up to 4)"),
    # what makes other steps
    (engine(enforce_eager=True), ALL, "`engine.enforce_eager: true` (measured: false)"),
    (
        engine(cudagraph_mode="FULL_DECODE_ONLY"),
        ALL,
        "`engine.cudagraph_mode: FULL_DECODE_ONLY` (measured: FULL_AND_PIECEWISE)",
    ),
    (engine(pipeline_parallel=2), ALL, "`engine.pipeline_parallel: 2` (measured: 1)"),
    (engine(block_size_tokens=32), ALL, "`engine.block_size_tokens: 32` (measured: 16)"),
    (engine(lora={"max_loras": 2}), ALL, "`engine.lora` (measured: without it)"),
    (engine(encoder={"token_us": 8}), ALL, "`engine.encoder`"),
    (engine(kv_tiers={"kind": "mirror", "cpu_blocks": 100}), ALL, "`engine.kv_tiers`"),
    (
        {**engine(speculative={"draft_tokens": 2, "acceptance": 0.7, "method": "eagle"})},
        ALL,
        "`engine.speculative`",
    ),
    (policy(batching={**VLLM, "async_scheduling": False}), ALL, "`policy.batching.async_scheduling: false`"),
    ({"latency": {"kind": "operators", "host_us": 1300.0}}, ALL, "host_us 1300.0"),  # as on a synchronous server
    (policy(preemption={"restore": "swap"}), ALL, "`policy.preemption.restore: swap` (measured: recompute)"),
    (
        cluster(disaggregation={"prefill_instances": 1, "decode_instances": 1}, instances=2),
        ALL,
        "`cluster.disaggregation`",
    ),
    (cluster(failures=[{"at_us": 10**12}]), ALL, "`cluster.failures`"),
    (cluster(lifecycle={"warm_up_requests": 3, "warm_up_factor": 2.0}), ALL, "`cluster.lifecycle.warm_up_factor: 2`"),
    # who comes to their steps in another way
    (policy(scheduling="sjf"), WAITS, "`policy.scheduling: sjf` (measured: fcfs)"),
    (
        policy(admission={"kind": "token-bucket", "capacity_tokens": 10**6, "refill_tokens_per_s": 10**6}),
        WAITS,
        "`policy.admission: token-bucket` (measured: always-admit)",
    ),
    (policy(routing="least-loaded"), set(), ""),
    ({**policy(routing="least-loaded"), **cluster(instances=3)}, WAITS, "`policy.routing: least-loaded` over 3 inst"),
    ({**policy(routing="round-robin"), **cluster(instances=3)}, set(), ""),
    (policy(preemption={"victim": "priority"}), WAITS, "`policy.preemption.victim: priority` (measured: tail)"),
    (policy(preemption={"recompute": "prompt"}), WAITS, "`policy.preemption.recompute: prompt` (measured: none)"),
    (policy(tenant_budgets={"fractions": {"acme": 0.5}}), WAITS, "`policy.tenant_budgets`"),
    (policy(deferral="idle-only"), WAITS, "`policy.deferral: idle-only` (measured: none)"),
    (policy(gateway={"saturation": "concurrency"}), WAITS, "`policy.gateway`"),
    (policy(batching={**VLLM, "version": "0.33"}), WAITS, "`policy.batching.version: 0.33` (measured: 0.32)"),
    (policy(batching={**VLLM, "watermark": 0.1}), WAITS, "`policy.batching.watermark: 0.1` (measured: 0.0)"),
    (
        {**policy(batching={**VLLM, "enable_chunked_prefill": False}), **engine(max_model_len=2048)},
        WAITS,
        "`policy.batching.enable_chunked_prefill: false` (measured: true)",
    ),
    (policy(batching={**VLLM, "max_num_active_seqs": 7}), WAITS, "max_num_active_seqs"),
    (engine(long_prefill_token_threshold=64), WAITS, "`engine.long_prefill_token_threshold: 64` (measured: 0)"),
    (engine(max_num_batched_tokens=512), WAITS, "`engine.max_num_batched_tokens: 512` (measured: 1,024 to 16,384)"),
    (cluster(admission_latency_us=10), WAITS, "`cluster.admission_latency_us: 10` (measured: 0)"),
    (cluster(routing_latency_us=10), WAITS, "`cluster.routing_latency_us: 10` (measured: 0)"),
    (cluster(lifecycle={"loading_delay_us": 5}), WAITS, "`cluster.lifecycle`"),
    (cluster(autoscaler={"max_instances": 2}), WAITS, "`cluster.autoscaler`"),
    (
        cluster(nodes=[{"name": "n", "gpu": "h100", "gpus_per_node": 8}]),
        WAITS,
        "`cluster.nodes`",
    ),
    (client(multimodal={"images": {"tokens": 100}}), WAITS, "`workload.clients.multimodal`"),
    (client(network={"rtt_ms": 10}), WAITS, "`workload.clients.network`"),
    (client(arrivals={"kind": "gamma", "cv": 3.0}), WAITS, "`workload.clients.arrivals: gamma` with a cv of 3"),
    (client(arrivals={"kind": "weibull", "cv": 1.5}), WAITS, "`workload.clients.arrivals: weibull` with a cv of 1.5"),
    # models that no measured one resembles
    ({"model": own_model()}, ALL, "a model of 0.6B parameters (measured: 4B to 16B, 16B to 64B, 64B to 90B, 90B to 2"),
    ({"model": own_model(model_type="qwen3_next", **LARGER)}, ALL, "linear attention, simulated as full attention"),
    (
        {"model": own_model(layer_types=["linear_attention"] * 27 + ["full_attention"], **LARGER)},
        ALL,
        "linear attention, simulated as full attention (measured: full attention, windows)",
    ),
    ({"model": own_model(model_type="deepseek_v32", **LARGER)}, ALL, "sparse attention"),
    ({"model": own_model(model_type="nemotron_h", **LARGER)}, ALL, "state-space layers"),
    ({"hardware": "a100-80"}, ALL, "GPU a100-80"),
    # what changes nothing
    ({"model": own_model(layer_types=["full_attention", "sliding_attention"] * 14, **LARGER)}, set(), ""),
    (client(arrivals={"kind": "gamma", "cv": 0.5}), set(), ""),
    (client(arrivals="constant"), set(), ""),
    ({"latency": {"kind": "operators", "steps": 1.0}}, set(), ""),
    (policy(batching={**VLLM, "watermark": 0.0}), set(), ""),
    (cluster(tensor_parallel=8), set(), ""),
    (engine(gpu_memory_utilization=0.8), set(), ""),
    (client(slo_class="batch", tenant="acme"), set(), ""),
]


@pytest.mark.parametrize(("changes", "unknown", "reason"), CHANGES, ids=[str(change[0])[-50:] for change in CHANGES])
def test_each_property_is_asked_whether_a_server_had_it(
    changes: dict[str, object], unknown: set[str], reason: str
) -> None:
    known = asked(changes)
    assert set(known.reasons) == unknown
    assert set(known.bands) == ALL - unknown
    assert (known.error is None) is (unknown == ALL)
    for text in known.reasons.values():
        assert reason in text
        assert ("; nearest: " in text) == ("docs/accuracy.md" not in text)
    if reason:
        assert reason in accuracy_text(known)


def test_servers_that_no_fit_has_seen_stand_beside_the_reason() -> None:
    """SGLang has figures of its own; other rules have none of them."""
    experts = {"model": "qwen3-235b-a22b-fp8", "cluster": {"instances": 1, "tensor_parallel": 4}, "hardware": "h200"}
    known = asked({**experts, **policy(batching="sglang")})
    server = "qwen3-235b-a22b-fp8 on h200, which was 24.9 % off in TTFT and 16 % in ITL (medians of 24 runs)"
    assert set(known.reasons) == ALL
    assert all(text.endswith(f"; no fit has seen {server}") for text in known.reasons.values())
    assert "no fit has seen" not in "".join(asked({**experts, **policy(batching="blis")}).reasons.values())


def test_a_server_of_other_figures_than_the_measured_ones_is_another_one() -> None:
    """A document may call itself h100, but step times were measured on one that is so fast."""
    own: dict[str, object] = {
        "apiVersion": "blis/v1",
        "kind": "Hardware",
        "metadata": {"name": "h100"},
        "memory_gib": 80,
        "peak_tflops": {"bf16": 989.5, "fp8": 1979.0},
        "memory_bandwidth_tb_per_s": 4.0,
        "mfu": {"prefill": 0.45, "decode": 0.3},
        "interconnect": {"bandwidth_gb_per_s": 900},
    }
    known = asked({"hardware": own})
    assert "`hardware.memory_bandwidth_tb_per_s: 4` on h100 (measured: 3.35)" in known.reasons["itl"]
    own["memory_bandwidth_tb_per_s"] = 3.35
    assert not asked({"hardware": {**own, "cost_per_hour_usd": 2.5}}).reasons


NOT_ASKED: dict[type, str] = {
    Experiment: "name description seed horizon_us warm_up_us expect course slo_targets fitness report counterfactual"
    " sha256 document plugins",  # what is told, and how
    Pool: "name role instances",  # roles are those of disaggregation; how many: routing is asked
    Engine: "max_model_len kv_blocks disable_hybrid_kv_cache_manager gpu_memory_utilization enable_prefix_caching"
    " host_link"  # waits, hits show them
    " version"  # the step times that follow from it are asked
    " expert_imbalance all_to_all",  # of experts on several ranks, which are asked
    Policy: "name priority slo_priorities",  # read by orders, victims, admission and gateways, which are asked
    Cluster: "signals",  # routing that looks at them is asked
    Workload: "name requests sessions rate_per_s stages exact_stage_counts trace",  # given, not simulated
    Client: "id share arrivals rate_curve input_tokens output_tokens prefix repeated_prompts session reasoning tenant"
    " slo_class model timeout_us adapters ignore_eos",  # given; what of them is in no measured run, the run shows
    Hardware: "name mfu_prefill mfu_decode reached_products reached_experts reached_memory reached_overlap"
    " host_link_gb_per_s launch_us"
    " idle_watts memory_bound_watts peak_watts peak_watts_mfu usd_per_hour",  # none of them is read with CUDA graphs
}
ELSEWHERE: dict[type, str] = {
    Experiment: "workload policy cluster pools",
    Pool: "tensor_parallel model hardware latency engine operators",
    Engine: "max_num_seqs max_num_batched_tokens",
    Policy: "routing batching",
    Cluster: "",
    Workload: "clients endpoint",
    Client: "max_output_tokens",
    Hardware: " ".join(accuracy.FIGURES),
}
"""Those that are asked by other means than the tables."""


def test_no_key_is_forgotten() -> None:
    """A key that a document may have is asked about, or stands above with why it need not be."""
    by_table = {
        Engine: [one.key.partition(".")[2] for one in OF_POOL],
        Policy: [(one.attribute or one.key).split(".")[1] for one in OF_EXPERIMENT if one.key.startswith("policy.")],
        Cluster: [one.key.split(".")[1] for one in OF_EXPERIMENT if one.key.startswith("cluster.")],
        Client: [one.attribute for one in OF_CLIENT],
    }
    for record, names in NOT_ASKED.items():
        known = [*names.split(), *ELSEWHERE[record].split(), *by_table.get(record, ())]
        assert sorted(known) == sorted({*known})
        assert {field.name for field in fields(record)} == set(known), record


def test_what_is_nearest_is_named() -> None:
    """Of measured servers, the one that has most in common with what nothing is known of."""
    seen = set()
    several: list[dict[str, object]] = [
        {"hardware": "l40s", "model": "qwen2.5-7b-instruct"},
        {"policy": "sglang", "model": "gpt-oss-120b", "hardware": "b200"},
        {"model": "deepseek-v2-lite"},
        {"engine": {"enforce_eager": True}},
    ]
    for changes in several:
        experiment = load({**BASE, **changes})
        reason = expectation(experiment, experiment.pools[0], SEEN).reasons["itl"]
        mine = traits_of(experiment, experiment.pools[0], prompt_tokens=500, cached_share=0.0)
        runs = known_runs().runs
        best = max(likeness("itl", mine, run.traits) for run in runs)
        nearest = [run.server for run in runs if likeness("itl", mine, run.traits) == pytest.approx(best)]
        assert reason.partition("; nearest: ")[2].partition(";")[0] in nearest
        seen.add(nearest[0])
    assert len(seen) > 1


def test_far_from_all_servers_nothing_is_said() -> None:
    """16-bit experts on Blackwell with cached long prompts: each was measured, and hardly two of them together."""
    far = ServerTraits("trtllm", "b200", "dense", "bf16", "bf16", 2, fresh=False, long=True, size="4B to 16B")
    known = error_bands(far, known_runs().runs, SEEN)
    assert "ttft" in known.reasons
    assert "no server similar to this one" in known.reasons["ttft"]
    assert max(likeness("ttft", far, one.traits) for one in as_new(far, known_runs().runs)) < 0.1


def test_what_was_measured_nearby_counts_more() -> None:
    """Cached prompts were forecast better than fresh ones, in each other's company or not."""
    mine = ServerTraits("vllm", "h100", "dense", "bf16", "bf16", 4, fresh=False, long=False, size="64B to 90B")
    cached, fresh = (
        error_bands(mine._replace(fresh=one), known_runs().runs, SEEN).bands["ttft"] for one in (False, True)
    )
    assert cached.median < fresh.median


def test_a_server_that_is_new_to_the_fit_has_the_errors_of_those_that_were() -> None:
    """Errors of a tensor parallelism, or size, that no like server has are those with that value left out."""
    runs = known_runs().runs
    new = MINE._replace(tensor_parallel=8)
    assert as_new(MINE, runs) == runs
    for mine, traits in (
        (new, ("tensor_parallel",)),
        (MINE._replace(size="4B to 16B"), ("size",)),
        (new._replace(size="16B to 64B"), ("tensor_parallel", "size")),
    ):
        known = [run for run in runs if run.traits.fresh and all(name in run.without for name in traits)]
        found = as_new(mine, runs)
        assert (
            [one.server for one in found[::2]] == [one.server for one in found[1::2]] == [one.server for one in known]
        )
        for one, mirrored, before in zip(found[::2], found[1::2], known, strict=True):
            for metric, error in one.errors.items():
                others = [before.errors[metric], *(before.without[name][metric] for name in traits)]
                assert error in others
                assert abs(error) == max(map(abs, others))
                assert (1 + error) * (1 + mirrored.errors[metric]) == pytest.approx(1.0)
        wide, usual = (error_bands(each, runs, SEEN).bands["itl"] for each in (mine, MINE))
        assert wide.high - wide.low > usual.high - usual.low
        assert wide.median > usual.median


# ---- what of the load no server had ----


@pytest.mark.parametrize(
    ("seen", "unknown", "reason"),
    [
        (SEEN._replace(cached_share=0.4), WAITS, "40 % of prompt tokens from the prefix cache"),
        (SEEN._replace(cached_share=0.95), set(), ""),
        (SEEN._replace(prompt_tokens=9_000.0, answer_tokens=3_000.0), ALL, "requests of 12,000 tokens"),
        (SEEN._replace(at_a_time=900.0), ALL, "900 concurrent requests per instance"),
        (SEEN._replace(at_a_time=1.4), ALL, "1.4 concurrent requests per instance (measured: 4 and more)"),
        (SEEN._replace(at_a_time=2.5), set(), ""),
        (SEEN._replace(strained="a flood"), WAITS, "a flood; nearest"),
    ],
)
def test_loads_that_no_server_had(seen: ObservedLoad, unknown: set[str], reason: str) -> None:
    known = asked({}, seen)
    assert set(known.reasons) == unknown
    assert all(reason in text for text in known.reasons.values())


@pytest.mark.parametrize(("mu", "long"), [(6.0, False), (8.6, True)])
def test_prompts_are_as_long_as_they_were_in_the_run(mu: float, long: bool) -> None:
    lengths = {"kind": "lognormal", "mu": mu, "sigma": 0.3}
    report = simulated(workload={**few(30, input_tokens=lengths, output_tokens=300), "rate_per_s": 2.0})
    assert (report.tokens.input / report.requests.total > LONG_TOKENS) is long
    (known,) = report.expected_errors().values()
    (pool,) = report.experiment.pools
    mine, other = (known_bands(report, LONG_TOKENS + more) for more in ((1, 0) if long else (0, 1)))
    assert known.bands["itl"] == mine["itl"] != other["itl"]
    assert pool.latency.kind == "operators"


def known_bands(report: Report, prompt_tokens: float) -> dict[str, object]:
    """What is expected of a report's means, if prompts had so many tokens; everything else counted from its rows."""
    (pool,) = report.experiment.pools
    present = sum(row.e2e_us or 0 for row in report.rows) / report.duration_us
    mine = traits_of(
        report.experiment, pool, prompt_tokens=prompt_tokens, cached_share=0.0, at_a_time=present / pool.instances
    )
    share = sum(row.ttft_us or 0 for row in report.rows) / sum(row.e2e_us or 0 for row in report.rows)
    (amplified,) = amplifications(report)
    seen = ObservedLoad(prompt_tokens, ttft_share=share, amplified=amplified)
    return dict(error_bands(mine, known_runs().runs, seen).bands)


def amplifications(report: Report) -> list[float]:
    """As ``tests/results/test_amplified.py`` judges them; 1 in a closed loop."""
    from blis_tui.results.expected_error import clients_wait, itl_amplification, pool_loads  # noqa: PLC0415

    loads = pool_loads(report.experiment, report.to_dict())
    waits = clients_wait(report.experiment.workload)
    return [1.0 if waits else itl_amplification(loads[name], model) for name, model in report.step_models.items()]


@pytest.mark.parametrize(("users", "load_"), [(4, "few"), (8, "few"), (9, "some"), (64, "some"), (100, "many")])
def test_loads_are_told_apart_by_how_many_requests_an_instance_has(users: int, load_: str) -> None:
    """Users of a closed loop are always there, but for the last answers."""
    client = {**CLIENT, "input_tokens": 50, "arrivals": {"kind": "closed-loop", "users": users}}
    report = simulated(workload={"requests": 30 * users, "clients": [client]})
    (known,) = report.expected_errors().values()
    (pool,) = report.experiment.pools
    mine = traits_of(report.experiment, pool, prompt_tokens=50, cached_share=0.0, at_a_time=users)
    assert mine.load == load_
    expected = known_bands(report, 50.0)
    assert known.bands == expected


def test_near_the_knee_and_beyond_it_no_waits_are_promised() -> None:
    """The same requests at a fifth of what is served, near that, and above it; users who wait are never too many."""
    chat = {"input_tokens": 256, "output_tokens": 128}

    def at(rate: float, requests: int) -> tuple[set[str], str]:
        seats = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}  # so that requests wait above capacity
        report = simulated(workload={**few(requests, **chat), "rate_per_s": rate}, engine=seats)
        (known,) = report.expected_errors().values()
        return set(known.reasons), accuracy_text(known)

    unknown, _ = at(15.0, 300)
    assert not unknown
    unknown, reasons = at(90.0, 1200)
    assert unknown == WAITS
    assert "near capacity" in reasons
    unknown, reasons = at(200.0, 1200)
    assert unknown == WAITS
    assert "above capacity" in reasons
    users = {"kind": "closed-loop", "users": 250}
    report = simulated(workload={"requests": 600, "clients": [{**CLIENT, **chat, "arrivals": users}]})
    (known,) = report.expected_errors().values()
    assert not known.reasons


def test_requests_that_were_not_served_are_in_no_measured_mean() -> None:
    report = simulated(workload=few(30, timeout_us=200_000, output_tokens={"kind": "uniform", "min": 5, "max": 60}))
    lost = len([row for row in report.rows if row.e2e_us is None])
    assert 0 < lost < 30
    (known,) = report.expected_errors().values()
    assert f"{lost} of 30 requests were not served" in known.reasons["ttft"]
    assert "itl" in known.bands


def test_a_mean_that_a_run_does_not_have_has_no_error() -> None:
    """Answers of one token have no gaps between tokens; within a microsecond, nothing is answered."""
    report = simulated(workload={**few(20, output_tokens=1), "rate_per_s": 200.0})
    (known,) = report.expected_errors().values()
    assert set(known.bands) == {"ttft", "e2e"}
    assert not known.reasons
    assert "ITL" not in instance_lines(report)["accuracy"]
    (nothing,) = simulated(workload=few(20), horizon_us=1).expected_errors().values()
    assert (dict(nothing.bands), dict(nothing.reasons)) == ({}, {})
    assert accuracy_text(nothing) == "no mean latency that could be off"


# ---- where it stands ----


def test_a_full_report_has_the_bands_and_the_reasons() -> None:
    plain = found()
    assert plain.not_measured is None
    assert isinstance(plain.expected_error_percent, ExpectedError)
    partly = found(policy="sjf")
    assert partly.expected_error_percent is not None
    assert partly.expected_error_percent.itl is not None
    assert partly.expected_error_percent.ttft is None
    assert set(partly.not_measured or ()) == WAITS
    nothing = found(policy="blis")
    assert nothing.expected_error_percent is None
    assert set(nothing.not_measured or ()) == ALL
    short = found(report="auto")
    assert (short.expected_error_percent, short.not_measured) == (None, None)
    report = simulated(workload=few(20), policy="sjf")
    (written,) = report.to_dict()["step_time"].values()  # type: ignore[attr-defined]
    (known,) = report.expected_errors().values()
    assert written["not_measured"]["ttft"] == known.reasons["ttft"]
    assert written["expected_error_percent"]["itl"]["servers"] > 5


def test_the_default_is_the_best_that_covers_the_stack() -> None:
    assert found().kind == "operators"
    assert found(hardware="rtx-4090").kind == "fitted"


def test_pools_are_told_apart() -> None:
    pools = [{"name": "fast", "instances": 1}, {"name": "slow", "instances": 1, "hardware": "l40s"}]
    report = simulated(cluster={"pools": pools}, workload=few(20))
    known = report.expected_errors()
    assert known["fast"].bands
    assert not known["slow"].bands
    found = step_times(report.experiment)
    assert {name: step_time.hardware for name, step_time in found.items()} == {"fast": "h100", "slow": "l40s"}
    assert {step_time.expected_error_percent for step_time in found.values()} == {None}
    text = summary_text(report)
    one_line = " ".join(text.split())
    assert "step times operators accuracy fast: TTFT ±" in one_line
    assert "; slow: not measured: GPU l40s" in one_line


def test_the_range_behind_a_line_can_be_asked_for() -> None:
    """The line has the median; the table the bounds, and whose they are."""
    report = simulated(workload=few(20))
    (known,) = report.expected_errors().values()
    band = known.bands["ttft"]
    assert f"TTFT ±{band.median:.0f} %, ITL ±" in accuracy_text(known)
    assert "measured servers like this; `blis-tui explain accuracy`)" in accuracy_text(known)
    (row,) = [line for line in accuracy_table(report.expected_errors()).splitlines() if "TTFT" in line]
    assert row.split(maxsplit=3)[1:3] == [f"{band.median:.1f}", "%"]
    assert f"{band.low:+.0f} to {band.high:+.0f} %" in row
    (partly,) = simulated(workload=few(20), policy="sjf").expected_errors().values()
    for text in (accuracy_text(partly), accuracy_table({"": partly})):
        assert "TTFT and E2E not measured: `policy.scheduling: sjf`" in text


def test_models_that_accuracy_md_compares_are_those_that_it_lists() -> None:
    summary = PAGE[PAGE.index("<!-- begin of the summary -->") : PAGE.index("<!-- end of the summary -->")]
    listed = {kind for kind in re.findall(r"^\| `([a-z-]+)` \|", summary, re.MULTILINE) if measured(kind) is None}
    assert listed == {*COMPARED}


@pytest.mark.parametrize(("kind", "words"), [("roofline", "docs/accuracy.md"), ("crossmodel", "`crossmodel` step")])
def test_a_model_without_expected_errors_says_why(kind: str, words: str) -> None:
    simulation = Simulation(load("quickstart", set={"latency": kind, "workload.requests": 5}))
    simulation.run()
    (known,) = simulation.report().expected_errors().values()
    assert [words in reason for reason in known.reasons.values()] == [True] * 3
