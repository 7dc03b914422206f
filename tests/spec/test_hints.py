"""Hints by meaning: the table of synonyms as a whole, and what people see who paste names from elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from blis_tui.base.diagnostics import nearest
from blis_tui.base.errors import SpecError
from blis_tui.cli.main import cli
from blis_tui.spec import hints as synonyms
from blis_tui.spec.authoring.key_tree import root
from blis_tui.spec.hints import metric_hint, plain
from blis_tui.spec.library import names
from blis_tui.spec.load import load
from blis_tui.spec.metric_names import all_metrics
from blis_tui.spec.schema import KINDS, properties_of
from blis_tui.spec.shipped import shipped_specs
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\n"
BASE = HEAD + "model: qwen3-14b\nhardware: h100\nworkload: chatbot\n"
CLIENT = HEAD + "model: qwen3-14b\nhardware: h100\nworkload: {requests: 9, rate_per_s: 1, clients: [{id: a, %s}]}\n"
LENGTHS = "input_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 9}"
PATHS = {
    *(key.dotted for key in root("Experiment").walk()),
    *(f"study.{key.dotted}" for key in root("Study").walk()),
    *(f"study.axes.{name}" for name in properties_of("Common", "values")),
}
WORDS = {choice.value for kind in KINDS for key in root(kind).walk() for choice in key.choices}


def hints(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load("-", stdin_text=text)
    return [diagnostic.help or "" for diagnostic in caught.value.diagnostics]


# ---- the table ----


def test_every_key_that_a_synonym_leads_to_exists() -> None:
    assert {path for paths in synonyms.KEYS.values() for path in paths} - PATHS == set()


def test_every_path_that_a_note_names_exists() -> None:
    named = {name for note in synonyms.NOTES.values() for name in re.findall(r"`([a-z_]+\.[a-z_.]+)`", note)}
    assert named
    assert named - PATHS == set()


def test_every_word_that_a_synonym_leads_to_exists() -> None:
    assert {word for words in synonyms.WORDS.values() for word in words} - WORDS == set()


@pytest.mark.parametrize("kind", synonyms.DOCUMENTS)
def test_every_document_that_a_synonym_leads_to_is_shipped(kind: str) -> None:
    meant = {name for found in synonyms.DOCUMENTS[kind].values() for name in found}
    assert meant - set(names(kind, shipped_specs())) == set()


def test_every_metric_that_a_synonym_leads_to_is_in_reports() -> None:
    single = {metric for metrics in synonyms.METRICS.values() for metric in metrics}
    families = {family for latency in synonyms.LATENCIES.values() for family in latency}
    statistics = {one for statistic in synonyms.STATISTICS.values() for one in statistic}
    assert (
        single | {f"latency.{family}.{statistic}" for family in families for statistic in statistics} <= all_metrics()
    )


def test_synonyms_are_written_as_they_are_looked_up() -> None:
    tables = (synonyms.KEYS, synonyms.NOTES, synonyms.WORDS, synonyms.METRICS, *synonyms.DOCUMENTS.values())
    for table in tables:
        assert [name for name in table if plain(name) != name] == []


# ---- keys ----


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("max-num-seqs", "write `max_num_seqs`"),
        ("--max-num-seqs", "write `max_num_seqs`"),
        ("maxNumSeqs", "did you mean `max_num_seqs`?"),
        ("max_batch_size", "did you mean `max_num_seqs`?"),
        ("block_size", "did you mean `block_size_tokens`?"),
        ("num_gpu_blocks_override", "did you mean `kv_blocks`?"),
        ("pipeline_parallel_size", "did you mean `pipeline_parallel`?"),
        ("tensor_parallel_size", "it is `cluster.tensor_parallel` here: write `cluster: {tensor_parallel: 2}`"),
        ("data_parallel_size", "did you mean `data_parallel`?"),
        ("tp", "it is `cluster.tensor_parallel` here: write `cluster: {tensor_parallel: 2}`"),
        ("scheduling_policy", "it is `policy.scheduling.kind` here"),
        ("gpu", "it is `hardware` at the top level"),
        ("request_rate", "it is `workload.rate_per_s` here"),
    ],
)
def test_engine_arguments_of_vllm_lead_to_keys(key: str, hint: str) -> None:
    assert hints(BASE + f"engine: {{{key}: 2}}\n") == [hint]


@pytest.mark.parametrize(
    "key", ["swap_space", "dtype", "quantization", "kv_transfer_config", "speculative_model", "load-format"]
)
def test_engine_arguments_without_a_counterpart_say_what_to_do(key: str) -> None:
    assert hints(BASE + f"engine: {{{key}: 2}}\n") == [synonyms.NOTES[plain(key)]]


def test_engine_arguments_that_exist_are_taken() -> None:
    engine = "enable_prefix_caching: false, kv_cache_dtype: fp8, gpu_memory_utilization: 0.8, max_model_len: 4096"
    experiment = load("-", stdin_text=BASE + f"engine: {{{engine}, max_num_batched_tokens: 512}}\n")
    assert (experiment.pools[0].engine.enable_prefix_caching, experiment.pools[0].model.kv_cache_bytes) == (False, 1.0)


@pytest.mark.parametrize("key", ["request_rate", "qps", "rps", "rate", "requests_per_second"])
def test_rates(key: str) -> None:
    text = (
        HEAD + f"model: qwen3-14b\nhardware: h100\nworkload: {{requests: 3, {key}: 2, clients: [{{id: a, {LENGTHS}}}]}}"
    )
    assert hints(text) == ["did you mean `rate_per_s`?"]


@pytest.mark.parametrize(
    ("key", "meant"), [("session", "session_id"), ("tenant", "tenant_id"), ("prefix", "prefix_group")]
)
def test_columns_of_a_trace_are_no_keys_of_clients(key: str, meant: str) -> None:
    trace = f"workload: {{trace: {{file: a.csv, columns: {{{key}: x}}}}}}\n"
    assert hints(HEAD + "model: qwen3-14b\nhardware: h100\n" + trace) == [f"did you mean `{meant}`?"]


def test_prompt_and_completion_are_input_and_output() -> None:
    found = hints(CLIENT % LENGTHS.replace("input", "prompt").replace("output", "completion"))
    assert found == [
        "did you mean `input_tokens`?",
        "did you mean `output_tokens`?",
    ]


def test_a_key_of_another_kind_does_not_lead_to_itself() -> None:
    assert hints(CLIENT % f"{LENGTHS}, arrivals: {{kind: poisson, cv: 2}}") == ["known keys are `kind`"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("horizon_s: 60", "write `horizon_us: 60000000`: it is in microseconds"),
        ("warm_up_ms: 2.5", "write `warm_up_us: 2500`: it is in microseconds"),
        ("warm_up: 10", "did you mean `warm_up_us`?"),
        ("horizon_us: 60s", "write 60000000: it is in microseconds"),
        ("horizon_us: 1.5 min", "write 90000000: it is in microseconds"),
        ("cluster: {admission_latency_ms: 5}", "write `admission_latency_us: 5000`: it is in microseconds"),
        ("cluster: {failures: [{at_s: 5}]}", "write `at_us: 5000000`: it is in microseconds"),
        ("slo_targets: {critical: {ttft_s: 0.2}}", "write `ttft_ms: 200`: it is in milliseconds"),
        ("engine: {max_model_len: 128k}", "write the number in full, such as 128000"),
        ("engine: {kv_blocks: 1_000}", "write 1000, without underscores"),
        ("engine: {max_num_seqs: '1,000'}", "write 1000, without commas"),
        ("engine: {max_num_seqs: '4,5'}", "give one number"),
        ("policy: {name:sjf}", "write `policy: sjf`"),
        ("engine: {max_num_sequences: 4}", "did you mean `max_num_seqs`?"),
        ("autoscaler: {max_instances: 3}", "it is `cluster.autoscaler` here"),
        ("description: mine", "write `metadata: {description: mine}`"),
        (f"description: {'mine ' * 20}", "write `metadata: {description: …}`"),
        ("engine: {\u00a0max_num_seqs: 4}", "delete the white space around it: only plain spaces indent a line"),
        (
            "engine.max_num_seqs: 5",
            "dotted paths are for `--set`, `cases` and `axes`: write `engine: {max_num_seqs: 5}`",
        ),
        ("expect: [{metric: latency.ttft_ms.p99, lte: 5}]", "did you mean `max`?"),
        ("expect: [latency.ttft_ms.p99 <= 5]", "write `metric: latency.ttft_ms.p99, max: 5`"),
        ("expect: [ttft_p99 >= 5.5]", "write `metric: latency.ttft_ms.p99, min: 5.5`"),
        ("expect: [{ttft_p99: 5}]", "write `metric: latency.ttft_ms.p99, max: 5`"),
        ("cluster: {disaggregation: true}", "give it its keys: `blis-tui explain cluster.disaggregation` lists them"),
        ("policy: {preemption: swap}", "give it its keys: `blis-tui explain policy.preemption` lists them"),
        ("policy: {preemption: {mode: swap}}", "did you mean `restore`?"),
        (
            "policy: {admission: {kind: token-bucket, refill_tokens_per_min: 60}}",
            "write `refill_tokens_per_s: 1`: it is per second",
        ),
        ("cluster: {autoscaler: {min: 1, max_instances: 4}}", "did you mean `min_instances`?"),
        ("cluster: {autoscaler: {max: 4}}", "did you mean `max_instances`?"),
        ("extends: [fcfs]", "write `fcfs`, without brackets"),
        ("extends: fcfs.blis.yaml", "write `fcfs`; paths are relative to the file that contains them"),
        ("skip: true", "why the golden tests of this experiment are not run"),
        ("golden: {tolerance: {latency.ttft_ms.p99: {rel: 1}}}", "write `/latency/ttft_ms/p99`"),
        ("golden: {tolerance: {/duration_us: 0.1}}", "write `{rel: 0.1}`"),
        ("scheduling_policy: priority", "it is `policy.scheduling.kind` here"),
        ("max_loras: 4", "it is `engine.lora.max_loras` here: write `engine: {lora: {max_loras: 4}}`"),
        ("gpus: 4", "accelerators are `cluster.instances` times `cluster.tensor_parallel`; their kind is `hardware`"),
        ("engine: {use_cuda_graph: true}", "write `enforce_eager` under `engine`: true is without CUDA graphs"),
        ("engine: {host: 0.0.0.0}", "nothing here depends on it: remove it"),
        ("matrix: {engine.max_num_seqs: 4}", "write `[4]`"),
        ("seed:", "remove the key, or give it a value"),
        ("cases: [a]", "write it like `{small-cache: {engine.kv_blocks: 500}, four: {cluster.instances: 4}}`"),
    ],
)
def test_one_mistake_is_one_error_that_says_what_to_write(text: str, hint: str) -> None:
    assert hints(f"{BASE}{text}\n") == [hint]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("experiment: {name: quickstart}", "write `quickstart`"),
        ("axes: {instances: [1, 2]}", "it is `cluster.instances` here"),
        ("axes: {cluster.instances: 1..4}", "write `{from: 1, to: 4, step: 1}`"),
        ("axes: {cluster.instances: 1..9..2}", "write `{from: 1, to: 9, step: 2}`"),
        ("axes: {cluster.instances: {from: 1, to: 4}}", "add `step: 1`, or `count: 4` for as many values"),
        ("axes: {cluster: {instances: [1, 2]}}", "paths are written with dots: `cluster.instances: [1, 2]`"),
        ("objectives: [cost.gpus]", "write `metric: cost.gpus`"),
        ("constraints: [ttft_p99 < 200]", "write `metric: latency.ttft_ms.p99, max: 200`"),
    ],
)
def test_one_mistake_of_a_study_is_one_error_that_says_what_to_write(text: str, hint: str) -> None:
    named = "" if text.startswith("experiment") else "experiment: quickstart\n"
    with pytest.raises(SpecError) as caught:
        validate("-", stdin_text=f"apiVersion: blis/v1\nkind: Study\nmetadata: {{name: mine}}\n{named}{text}\n")
    assert [diagnostic.help for diagnostic in caught.value.diagnostics] == [hint]


def test_figures_of_a_datasheet_in_other_units() -> None:
    """A bandwidth in GB/s is a thousand times too large, whatever GPU it is."""
    lines = "memory_gib: 80\npeak_tflops: {bf16: 900}\nmfu: {prefill: 0.5, decode: 0.3}\n"
    text = f"apiVersion: blis/v1\nkind: Hardware\nmetadata: {{name: mine}}\n{lines}"
    for line, wanted in (
        ("memory_bandwidth_gb_per_s: 300", "write `memory_bandwidth_tb_per_s: 0.3`: it is in TB/s"),
        ("memory_bandwidth_tb_per_s: 300", "memory bandwidth in TB/s (10^12 bytes a second)"),
    ):
        with pytest.raises(SpecError) as caught:
            validate("-", stdin_text=f"{text}{line}\n")
        assert [diagnostic.help for diagnostic in caught.value.diagnostics] == [wanted]
    for rate, wanted in (("300/min", "write 5: it is per second"), ("5rps", "write 5, without the unit")):
        shown = CLIENT.replace("rate_per_s: 1", f"rate_per_s: {rate}")
        assert hints(shown % LENGTHS) == [wanted]


def test_a_bound_has_the_unit_of_its_metric() -> None:
    for metric, bound, wanted in (
        ("latency.ttft_ms.p95", "1s", "write 1000: it is in milliseconds"),
        ("latency.e2e_ms.mean", "250us", "write 0.25: it is in milliseconds"),
        ("throughput.requests_per_s", "300/min", "write 5: it is per second"),
        ("kv.hit_rate", "1s", "write 1, without the unit"),
    ):
        assert hints(f"{BASE}expect: [{{metric: {metric}, max: {bound}}}]\n") == [wanted]


def test_a_key_under_another_name_is_not_missing_too() -> None:
    assert hints(BASE.replace("model:", "models:")) == ["did you mean `model`?"]
    assert hints(BASE.replace("metadata: {name: mine}", "name: mine")) == ["write `metadata: {name: mine}`"]
    found = hints(CLIENT % "input_tokens: 100 - 200, output_tokens: {kind: gaussian, mean: 9, std: 2, min: 1}")
    assert found == [
        "write `{kind: uniform, min: 100, max: 200}`",
        "add it, such as `max: 800` (largest value; what is drawn above it becomes it)",
        "did you mean `std_dev`?",
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("engine: {max_num_seqs: 4, name: a: b}", "quote text that contains `: `"),
        ("x: a: b", "quote text that contains `: `"),
        ("engine: {max_num_seqs: 4", "close the bracket with `}`, or separate what is in it with commas"),
        ("engine: [1 2: 3", "close the bracket with `]`, or separate what is in it with commas"),
        ("seed:5", "write a space after the colon"),
        ("engine\n  max_num_seqs: 4", "write `:` and a space after the key"),
        ('policy: "abc', "close the quotes"),
        ("policy: @mine", "quote text that begins with `@`"),
        ("- a", "an entry of a list cannot stand beside keys"),
        (" engine: {}", "its indentation differs from that of the lines around it"),
        ("engine:\n\tmax_num_seqs: 4", "indent with spaces, not with tabs"),
    ],
)
@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="the wording of grammar errors is libyaml's")
def test_what_is_probably_wrong_with_the_grammar(text: str, hint: str) -> None:
    assert hints(f"{BASE}{text}\n") == [hint]


# ---- words, documents, metrics ----


@pytest.mark.parametrize(
    ("word", "meant"), [("normal", "gaussian"), ("fixed", "constant"), ("log-normal", "lognormal")]
)
def test_words(word: str, meant: str) -> None:
    assert hints(CLIENT % LENGTHS.replace("constant", word, 1)) == [f"did you mean `{meant}`?"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a100", "did you mean `a100-80`?"),
        ("NVIDIA-H100-80GB-HBM3", "did you mean `h100`?"),
        ("H200", "did you mean `h200`?"),
        ("NVIDIA-A100-SXM4-40GB", "did you mean `a100-40`?"),
        ("NVIDIA H100 PCIe", "did you mean `h100-pcie`?"),
        ("RTX-A6000", "did you mean `rtx-a6000`?"),
        (
            "v100",
            (
                "known names are `a100-40`, `a100-80`, `a100-sxm`, `a10g`, `b200`, `b300`, `gb200`, `gb300`, `h100`,"
                " `h100-nvl`, `h100-pcie`, `h20` and 13 more"
            ),
        ),
    ],
)
def test_accelerators(name: str, hint: str) -> None:
    assert hints(BASE.replace("h100", name)) == [hint]


@pytest.mark.parametrize(
    ("metric", "meant"),
    [
        ("ttft_p99", "latency.ttft_ms.p99"),
        ("p95_ttft_ms", "latency.ttft_ms.p95"),
        ("mean_tpot_ms", "latency.tpot_ms.mean"),
        ("median_itl_ms", "latency.itl_ms.p50"),
        ("latency.ttft.p90", "latency.ttft_ms.p90"),
        ("e2e_latency_avg", "latency.e2e_ms.mean"),
        ("latency.p99", "latency.e2e_ms.p99"),
        ("output_throughput", "throughput.output_tokens_per_s"),
        ("prefix_cache_hit_rate", "kv.hit_rate"),
        ("requests.complete", "requests.completed"),
        ("slo.critical.attainment", "slo.classes.critical.attainment"),
        ("slo.attainmnt", "slo.attainment"),
    ],
)
def test_metrics(metric: str, meant: str) -> None:
    assert metric_hint(metric, all_metrics()) == f"did you mean `{meant}`?"


# ---- spelling ----


@pytest.mark.parametrize(
    ("wrong", "known", "meant"),
    [
        ("max_num_seq", ("max_num_seqs", "max_model_len"), "max_num_seqs"),
        ("max_batched_tokens", ("max_num_seqs", "max_num_batched_tokens"), "max_num_batched_tokens"),
        ("sfj", ("fcfs", "sjf"), "sjf"),
        ("poison", ("constant", "poisson"), "poisson"),
        ("rate_per_sec", ("rate_per_s", "requests"), "rate_per_s"),
        ("prompt_tokens", ("output_tokens",), None),
        ("completion_tokens", ("input_tokens",), None),
        ("input_tokens", ("output_tokens",), None),
        ("v100", ("h100",), None),
        ("zzz", ("kv_blocks",), None),
        ("x" * 5000, ("kv_blocks",), None),
    ],
)
def test_only_a_misspelling_is_near(wrong: str, known: tuple[str, ...], meant: str | None) -> None:
    assert nearest(wrong, known) == meant


# ---- as they were asked ----


def test_an_argument_gets_an_argument_as_help() -> None:
    with pytest.raises(SpecError) as caught:
        load("-", stdin_text=BASE, overrides=["max_num_seqs=8", "engine.tp=4"])
    assert sorted(diagnostic.help or "" for diagnostic in caught.value.diagnostics) == [
        "it is `cluster.tensor_parallel` here: write `--set cluster.tensor_parallel=4`",
        "it is `engine.max_num_seqs` here: write `--set engine.max_num_seqs=8`",
    ]


def test_policies_may_come_from_elsewhere() -> None:
    own = ["policy: {routing: stickiest, batching: {kind: mine}}", "latency: {kind: measured}"]
    found = hints(BASE + "\n".join(own) + "\n")
    assert len(found) == 3
    assert all(one.endswith("; `--plugins` adds others, in pytest `--blis-plugins`") for one in found)
    assert hints(BASE + "policy: {routing: round}\n") == ["did you mean `round-robin`?"]
    assert "--plugins" not in hints(BASE + "policy: {preemption: {recompute: somebody}}\n")[0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        # `kind` is a key of so many maps that no other one of them is meant.
        ("engine: {speculative: {draft_tokens: 3, acceptance: 0.7, kind: ngram}}\n", "did you mean `method`?"),
        ("engine: {speculative: {draft_tokens: 3, acceptance: 0.7, mehtod: ngram}}\n", "did you mean `method`?"),
        ("engine: {max_num_seq: 3}\n", "did you mean `max_num_seqs`?"),
        ("latency: {kind: fitted, kv_cache: 1.1}\n", "it is `kv_read` now; `blis-tui upgrade FILE` rewrites older"),
    ],
)
def test_a_key_of_the_same_map_comes_first(text: str, hint: str) -> None:
    assert any(one.startswith(hint) for one in hints(BASE + text))


def test_a_key_that_another_kind_had_is_no_older_one_here() -> None:
    texts = hints(f"{BASE}latency: {{kind: roofline, kv_cache: 1.1}}\n")
    assert not any("kv_read" in one for one in texts)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("batching: {kind: nano}", "it is `policy.batching` here"),
        ("engine: {routing: round-robin}", "it is `policy.routing` here"),
        ("engine: {gpu_memory_utilization: 90%}", "write 0.9, a share"),
        ("engine: {max_num_seqs: '1,024'}", "write 1024, without commas"),
        ("engine: {max_num_seqs: 64 seqs}", "write 64, without the unit"),
        ("engine: {enable_prefix_caching: 'true'}", "remove the quotes"),
        ("engine:", "remove the key, or give it what it contains"),
        ("expect: {metric: latency.ttft_ms.p99, max: 5}", "begin each entry of the list with `- `"),
    ],
)
def test_how_people_write_it_is_told_as_it_is_written(line: str, hint: str) -> None:
    assert hints(f"{BASE}{line}\n") == [hint]


def test_parts_of_an_experiment_in_another_kind_are_told_to_be_of_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(BASE.replace("kind: Experiment", "kind: Workload") + "cluster: {instances: 2}\nengine: {}\n")
    found = CliRunner().invoke(cli, ["check", str(file)]).output
    for key in ("model", "hardware", "workload", "cluster", "engine"):
        assert f"it is `{key}` of the experiment" in found
