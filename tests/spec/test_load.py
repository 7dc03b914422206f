"""From files to the frozen experiment: composition, overrides, references, digests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError, SpecError
from blis_tui.spec.build import build_experiment, digest
from blis_tui.spec.compose import MAX_PARENTS
from blis_tui.spec.load import load
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\n"
BASE = HEAD + "model: qwen3-14b\nhardware: h100\nworkload: chatbot\n"


def codes(source: str | Path, *, overrides: Sequence[str] = (), stdin_text: str | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(source, overrides=overrides, stdin_text=stdin_text)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_quickstart() -> None:
    experiment = load("quickstart")
    assert experiment.name == "quickstart"
    # 73.6 GiB of 80 less weights, the peak of 1,024 requests and 8,192 tokens, and 0.85 GiB outside the pool.
    assert experiment.pools[0].engine.kv_blocks == 16220
    # BLIS's published capacity of this model on this accelerator.
    assert load("quickstart", overrides=["policy=blis"]).pools[0].engine.kv_blocks == 15909
    assert experiment.pools[0].engine.max_model_len == 40960
    assert experiment.pools[0].latency.kind == "operators"
    assert experiment.policy.batching.kind == "vllm-v1"
    assert experiment.horizon_us is None
    assert experiment.workload.clients[0].timeout_us is None


def test_the_kv_cache_is_of_the_activations_type_or_of_the_one_given() -> None:
    usual = load("quickstart")
    assert (usual.pools[0].model.kv_cache_bytes, usual.pools[0].engine.enable_prefix_caching) == (2.0, True)
    assert (
        load("quickstart", overrides=["engine.kv_cache_dtype=bfloat16"]).pools[0].engine.kv_blocks
        == usual.pools[0].engine.kv_blocks
    )
    narrow = load("quickstart", overrides=["engine.kv_cache_dtype=fp8"])
    assert (narrow.pools[0].model.kv_cache_bytes, narrow.pools[0].engine.kv_blocks) == (1.0, 2 * 16220)
    assert (
        not load("quickstart", overrides=["engine.enable_prefix_caching=false"]).pools[0].engine.enable_prefix_caching
    )


def test_standard_input_and_paths_mean_the_same() -> None:
    path = shipped_specs() / "experiments" / "quickstart.blis.yaml"
    by_text = load("-", stdin_text=path.read_text(encoding="utf-8"))
    assert by_text == load(path) == load(str(path)) == load("quickstart")


def test_unknown_experiments_are_input_errors() -> None:
    with pytest.raises(InputError) as caught:
        load("quickstrat")
    assert caught.value.help == "did you mean `quickstart`?"
    with pytest.raises(InputError):
        load("./none.blis.yaml")
    with pytest.raises(InputError):
        load("x" * 5000)


def test_overrides() -> None:
    experiment = load(
        "quickstart",
        overrides=[
            "cluster.instances=8",
            "engine.max_num_seqs=1e2",
            "engine.kv_blocks=700",
            "policy.scheduling.kind=sjf",
            "workload.clients.0.arrivals={kind: gamma, cv: 2}",
            "workload.rate_per_s=20",
            "cluster.instances=9",
        ],
        seed=7,
    )
    assert experiment.pools[0].instances == 9
    assert experiment.pools[0].engine.max_num_seqs == 100
    assert type(experiment.pools[0].engine.max_num_seqs) is int
    assert experiment.pools[0].engine.max_model_len == 700 * 16
    assert experiment.policy.scheduling.kind == "sjf"
    assert experiment.workload.clients[0].arrivals.settings["cv"] == 2.0
    assert experiment.workload.rate_per_s == 20.0
    assert experiment.seed == 7


def test_overrides_as_a_mapping() -> None:
    by_value = load("quickstart", overrides={"cluster.instances": 3, "latency": {"kind": "blackbox"}})
    by_text = load("quickstart", overrides=["cluster.instances=3", "latency={kind: blackbox}"])
    assert by_value == by_text


def test_overrides_reach_into_what_was_left_out() -> None:
    assert load("-", stdin_text=BASE, overrides=["policy.scheduling.kind=sjf"]).policy.scheduling.kind == "sjf"
    assert load("-", stdin_text=BASE, overrides=["engine.kv_blocks=100"]).pools[0].engine.kv_blocks == 100
    assert load("-", stdin_text=BASE, overrides=["latency=roofline", "latency.alpha=[1, 2, 3]"]).pools[
        0
    ].latency.settings["alpha"] == (
        1.0,
        2.0,
        3.0,
    )


def test_an_override_can_replace_a_whole_document_and_then_change_it() -> None:
    experiment = load("quickstart", overrides=["policy=vllm-v1", "policy.batching.watermark=0.5"])
    assert experiment.policy.batching.settings["watermark"] == 0.5
    assert experiment.policy.batching.settings["version"] == "0.32"


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("cluster.instances", "BLIS1009"),
        ("cluster.instances=", "BLIS1009"),
        ("=5", "BLIS1009"),
        ("cluster..instances=5", "BLIS1009"),
        ("cluster.instances.more=5", "BLIS1009"),
        ("workload.clients.7.share=1", "BLIS1009"),
        ("workload.clients.x.share=1", "BLIS1009"),
        ("cluster.instances=[", "BLIS0001"),
        ("cluster.instances=.nan", "BLIS0004"),
        ("cluster.instance=5", "BLIS1001"),
        ("cluster.instances=many", "BLIS1003"),
        ("cluster.instances=0", "BLIS1005"),
        ("model=qwen", "BLIS2001"),
        ("workload.clients.0.input_tokens.min=700", "BLIS2009"),
        ("kind=Policy", "BLIS1008"),
    ],
)
def test_wrong_overrides_are_shown_as_given(override: str, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("quickstart", overrides=[override])
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
    if code != "BLIS2009":  # that one is about the mean, which the file says
        assert caught.value.diagnostics[0].file == "--set"
        assert caught.value.diagnostics[0].source_line == override


def test_extends_merges_maps_and_replaces_lists(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        BASE + "engine: {max_num_seqs: 5, kv_blocks: 900}\nexpect: [{metric: kv.blocks, min: 1}]\n"
    )
    (tmp_path / "middle.yaml").write_text(HEAD + "extends: base.yaml\nengine: {max_num_seqs: 6}\n")
    (tmp_path / "top.yaml").write_text(
        HEAD + "extends: ./middle.yaml\nseed: 9\nexpect: [{metric: kv.blocks, max: 2}]\n"
    )
    experiment = load(tmp_path / "top.yaml")
    assert (experiment.pools[0].engine.max_num_seqs, experiment.pools[0].engine.kv_blocks, experiment.seed) == (
        6,
        900,
        9,
    )
    assert [entry.max for entry in experiment.expect] == [2.0]
    assert "extends" not in experiment.document


def test_the_experiment_to_extend_can_be_overridden(tmp_path: Path) -> None:
    (tmp_path / "five.yaml").write_text(BASE + "engine: {max_num_seqs: 5}\n")
    (tmp_path / "six.yaml").write_text(BASE + "engine: {max_num_seqs: 6}\n")
    top, written = tmp_path / "top.yaml", tmp_path / "written.yaml"
    top.write_text(HEAD + "extends: ./five.yaml\nseed: 9\n")
    written.write_text(HEAD + "extends: ./six.yaml\nseed: 9\n")
    assert load(top).pools[0].engine.max_num_seqs == 5
    six = load(top, overrides=[f"extends={tmp_path}/six.yaml"])
    assert six == load(written)
    assert (
        load(top, overrides=[f"extends={tmp_path}/six.yaml", "engine.max_num_seqs=7"]).pools[0].engine.max_num_seqs == 7
    )
    assert codes(top, overrides=["extends=no-such-experiment"]) == ["BLIS2001"]
    assert codes(top, overrides=[f"extends={top}"]) == ["BLIS2003"]
    assert codes(top, overrides=["extends.seed=3"]) == ["BLIS1009"]


@pytest.mark.parametrize(
    ("parent", "code", "message"),
    [
        ("some text\n", "BLIS1008", "base.yaml is not a document of kind `Experiment`"),
        ("- a\n- list\n", "BLIS1008", "base.yaml is not a document of kind `Experiment`"),
        ("5\n", "BLIS1008", "base.yaml is not a document of kind `Experiment`"),
        ("", "BLIS1008", "base.yaml is not a document of kind `Experiment`"),
        ("seed: 1\n", "BLIS1008", "base.yaml is not a document of kind `Experiment`"),
        ("[{kind: Experiment}]\n", "BLIS1003", "expected a map, found a list"),
        (BASE.replace("Experiment", "Policy"), "BLIS1008", "expected kind `Experiment`, found kind `Policy`"),
        (BASE.replace("kind: Experiment\n", ""), "BLIS1002", "the document lacks the key `kind`"),
        (BASE.replace("apiVersion: blis/v1\n", ""), "BLIS1002", "the document lacks the key `apiVersion`"),
        (BASE.replace("metadata: {name: mine}\n", ""), "BLIS1002", "the document lacks the key `metadata`"),
        (BASE.replace("blis/v1", "blis/v9"), "BLIS1004", "expected `blis/v1`, found the text `blis/v9`"),
        (BASE.replace("name: mine", "name: Not Mine"), "BLIS1007", "malformed text `Not Mine`"),
        (BASE.replace("name: mine", "nam: mine"), "BLIS1001", "unknown key `nam`"),
    ],
)
@pytest.mark.parametrize("through", [False, True])
def test_only_experiments_are_extended(parent: str, code: str, message: str, *, through: bool, tmp_path: Path) -> None:
    """Also where the other document has everything itself, and would hide what is wrong with its parent."""
    (tmp_path / "base.yaml").write_text(parent)
    (tmp_path / "middle.yaml").write_text(BASE + "extends: ./base.yaml\n")
    (tmp_path / "top.yaml").write_text(BASE + f"extends: ./{'middle' if through else 'base'}.yaml\n")
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "top.yaml")
    first = caught.value.diagnostics[0]
    where = ("middle.yaml" if through else "top.yaml") if "not a document" in first.message else "base.yaml"
    assert (first.code, Path(first.file).name) == (code, where)
    assert first.message.endswith(message)


def test_a_chain_of_parents_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "e0.yaml").write_text(BASE)
    for number in range(1, 1200):
        (tmp_path / f"e{number}.yaml").write_text(HEAD + f"extends: ./e{number - 1}.yaml\n")
    assert load(tmp_path / f"e{MAX_PARENTS}.yaml").name == "mine"
    for number in (MAX_PARENTS + 1, 1199):
        with pytest.raises(SpecError) as caught:
            load(tmp_path / f"e{number}.yaml")
        (diagnostic,) = caught.value.diagnostics
        assert (diagnostic.code, diagnostic.path) == ("BLIS2003", "extends")
        assert diagnostic.message.startswith("more than 32 experiments extend one another, from e")


def test_extends_merges_through_names_as_an_override_does(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "middle.yaml").write_text(HEAD + "extends: base.yaml\nworkload: {rate_per_s: 5}\n")
    (tmp_path / "top.yaml").write_text(
        HEAD
        + "extends: middle.yaml\nworkload: {requests: 60}\nhardware: {memory_gib: 40}\n"
        + "policy: {scheduling: {kind: sjf}}\nmodel: {config: {max_position_embeddings: 2048}}\n"
    )
    changes = {
        "workload.rate_per_s": 5,
        "workload.requests": 60,
        "hardware.memory_gib": 40,
        "policy.scheduling.kind": "sjf",
        "model.config.max_position_embeddings": 2048,
    }
    assert load(tmp_path / "top.yaml").sha256 == load(tmp_path / "base.yaml", overrides=changes).sha256


def test_a_trace_replaces_inherited_clients_and_the_other_way_round(tmp_path: Path) -> None:
    clients = "[{id: a, input_tokens: 8, output_tokens: 2}]"
    generated = f"workload: {{requests: 7, rate_per_s: 2, clients: {clients}}}\n"
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n0,1,1\n")
    for base in (BASE, BASE.replace("workload: chatbot\n", generated)):
        (tmp_path / "base.yaml").write_text(base)
        (tmp_path / "replay.yaml").write_text(HEAD + "extends: base.yaml\nworkload: {trace: {file: trace.csv}}\n")
        replay = load(tmp_path / "replay.yaml").workload
        assert replay.trace is not None
        assert (replay.clients, replay.requests, replay.rate_per_s) == ((), None, 0.0)
    (tmp_path / "again.yaml").write_text(HEAD + "extends: replay.yaml\n" + generated)
    again = load(tmp_path / "again.yaml").workload
    assert again.trace is None
    assert [client.id for client in again.clients] == ["a"]


def test_a_whole_document_replaces_the_name_that_is_inherited(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n0,1,1\n")
    own = "{apiVersion: blis/v1, kind: Workload, metadata: {name: own}, trace: {file: trace.csv}}"
    (tmp_path / "top.yaml").write_text(HEAD + f"extends: base.yaml\nworkload: {own}\n")
    assert load(tmp_path / "top.yaml").workload.name == "own"


def test_errors_in_what_extends_merges_are_shown_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE.replace("chatbot", "chatbt"))
    (tmp_path / "top.yaml").write_text(HEAD + "extends: base.yaml\nworkload:\n  rate_per_s: 5\n  reqests: 5\n")
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "top.yaml")
    found = [(diagnostic.code, Path(diagnostic.file).name, diagnostic.line) for diagnostic in caught.value.diagnostics]
    assert found == [("BLIS2001", "base.yaml", 6), ("BLIS1001", "top.yaml", 7)]
    (tmp_path / "base.yaml").write_text(BASE)
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "top.yaml")
    found = [(diagnostic.code, Path(diagnostic.file).name, diagnostic.line) for diagnostic in caught.value.diagnostics]
    assert found == [("BLIS1001", "top.yaml", 7)]


def test_paths_start_at_the_file_that_says_them(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n0,1,1\n")
    (tmp_path / "shared" / "replay.yaml").write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: replay}\ntrace: {file: trace.csv}\n"
    )
    path = tmp_path / "experiment.yaml"
    path.write_text(HEAD + "model: qwen3-14b\nhardware: h100\nworkload: shared/replay.yaml\n")
    trace = load(path).workload.trace
    assert trace is not None
    assert Path(trace.path) == (tmp_path / "shared" / "trace.csv").resolve()


def test_own_specs_come_first(tmp_path: Path) -> None:
    for folder, name, text in (
        ("policies", "default", "kind: Policy\nscheduling: {kind: sjf}\n"),
        ("experiments", "mine.blis", ""),
    ):
        (tmp_path / "specs" / folder).mkdir(parents=True)
        body = f"apiVersion: blis/v1\nmetadata: {{name: {name.removesuffix('.blis')}}}\n{text}" if text else BASE
        (tmp_path / "specs" / folder / f"{name}.yaml").write_text(body)
    (tmp_path / "beside.yaml").write_text(BASE)
    assert load(tmp_path / "beside.yaml").policy.scheduling.kind == "sjf"
    assert load(tmp_path / "specs" / "experiments" / "mine.blis.yaml").policy.scheduling.kind == "sjf"


def test_names_on_the_command_line_mean_what_they_would_mean_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "specs" / "policies").mkdir(parents=True)
    (tmp_path / "specs" / "policies" / "own.yaml").write_text(
        "apiVersion: blis/v1\nkind: Policy\nmetadata: {name: own}\nscheduling: {kind: sjf}\n"
    )
    (tmp_path / "experiment.yaml").write_text(BASE)
    experiment = load(tmp_path / "experiment.yaml", overrides=["policy=own"])
    assert (experiment.policy.name, experiment.policy.scheduling.kind) == ("own", "sjf")
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "experiment.yaml", overrides=["policy=./specs/policies/none.yaml"])
    assert caught.value.diagnostics[0].help == "paths are relative to the working directory"


def test_own_coefficients(tmp_path: Path) -> None:
    (tmp_path / "specs" / "latency").mkdir(parents=True)
    (tmp_path / "specs" / "latency" / "blackbox.yaml").write_text(
        "apiVersion: blis/v1\nkind: Latency\nmetadata: {name: blackbox}\nstep_time: blackbox\nrows:\n"
        "  - {model: qwen3-14b, hardware: h100, tensor_parallel: 1, alpha: [1, 2, 3], beta: [4, 5, 6]}\n"
        "  - {model: qwen3-14b, hardware: h100, tensor_parallel: 1, alpha: [7, 7, 7], beta: [7, 7, 7]}\n"
    )
    (tmp_path / "experiment.yaml").write_text(BASE)
    latency = load(tmp_path / "experiment.yaml", overrides=["latency={kind: blackbox}"]).pools[0].latency
    assert latency.settings == {"alpha": (1.0, 2.0, 3.0), "beta": (4.0, 5.0, 6.0)}


def test_digests_do_not_depend_on_how_it_is_written(tmp_path: Path) -> None:
    inline = (
        HEAD
        + "model: qwen3-14b\nhardware: h100\npolicy: {metadata: {name: default, "
        + 'description: "Admit all, round-robin, first come first served, vLLM\'s batching."}}\n'
        + "workload: chatbot\nseed: 4.2e1\n"
    )
    usual = load("-", stdin_text=BASE).sha256
    assert load("-", stdin_text=inline).sha256 == usual
    assert load("-", stdin_text=BASE, seed=1).sha256 != usual
    target = tmp_path / "elsewhere" / "specs"
    shutil.copytree(shipped_specs(), target)
    moved = load(target / "experiments" / "trace-replay.blis.yaml")
    assert moved.sha256 == load("trace-replay").sha256


def test_a_resolved_document_means_the_same_experiment() -> None:
    experiment = load("vllm-preemption")
    text = json.dumps(experiment.document)
    assert build_experiment(json.loads(text)) == experiment
    assert load("-", stdin_text=text) == experiment
    assert digest(json.loads(text)) == experiment.sha256


def test_a_resolved_trace_needs_its_file(tmp_path: Path) -> None:
    experiment = load("trace-replay")
    assert experiment.workload.trace is not None
    document = json.loads(json.dumps(experiment.document))
    assert build_experiment(document, trace_path=experiment.workload.trace.path) == experiment
    with pytest.raises(InputError, match="cannot read"):
        build_experiment(document)
    other = tmp_path / "other.csv"
    other.write_text("arrival_time_us,input_tokens,output_tokens\n")
    with pytest.raises(InputError, match="is not the recorded trace"):
        build_experiment(document, trace_path=str(other))


@pytest.mark.parametrize("missing", ["seed", "model", "engine", "latency", "expect"])
def test_building_from_something_else_says_what_is_missing(missing: str) -> None:
    document = dict(load("quickstart").document)
    del document[missing]
    with pytest.raises(InputError, match=f"`{missing}` is missing"):
        build_experiment(document)


def test_building_needs_the_standard_library_only() -> None:
    program = (
        "import sys, json\n"
        "sys.modules.update(dict.fromkeys(('yaml', 'jsonschema', 'referencing', 'click')))\n"
        "from blis_tui.spec.build import build_experiment\n"
        "print(build_experiment(json.load(sys.stdin)).sha256)\n"
    )
    experiment = load("quickstart")
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(experiment.document),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stderr == ""
    assert done.stdout.strip() == experiment.sha256


def test_blackbox_takes_the_measured_row() -> None:
    latency = load("quickstart", overrides=["latency.kind=blackbox"]).pools[0].latency
    alpha = latency.settings["alpha"]
    assert isinstance(alpha, tuple)
    assert alpha[0] == pytest.approx(8888.09, abs=0.01)
    assert latency.settings["beta"] == pytest.approx((13578.19, 39.4447, 27.3228), rel=1e-5)


def test_given_coefficients_win() -> None:
    latency = load("quickstart", overrides=["latency={kind: crossmodel, alpha: [1, 0, 2]}"]).pools[0].latency
    assert latency.settings["alpha"] == (1.0, 0.0, 2.0)
    assert latency.settings["beta"] == (116.110, 1226.868, 19.943, 9445.157)


def test_errors_of_several_files_come_together(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: blis/v1\nkind: Policy\nmetadata: {name: p}\nscheduling: {kind: sfj}\n"
    )
    path = tmp_path / "broken.yaml"
    path.write_text(HEAD + "model: nope\nhardware: h100\nworkload: chatbot\npolicy: policy.yaml\nseed: x\n")
    assert sorted(codes(path)) == ["BLIS1003", "BLIS1004", "BLIS2001"]


PARENT = """\
model: qwen3-14b
hardware: h100
engine: {kv_blocks: 900, max_num_seqs: 6}
workload: {requests: 9, rate_per_s: 5, clients: [{id: a, input_tokens: 5, output_tokens: 5}]}
slo_targets: {batch: {ttft_ms: 5}, standard: {ttft_ms: 9}}
"""
DROPS = """\
extends: ./base.yaml
workload:
  rate_per_s: null
  clients: [{id: a, arrivals: {kind: closed-loop, users: 3}, input_tokens: 5, output_tokens: 5}]
engine: {kv_blocks: null}
slo_targets: {batch: null}
"""


def test_null_drops_an_inherited_key(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(HEAD + PARENT)
    (tmp_path / "top.yaml").write_text(HEAD + DROPS)
    experiment = load(tmp_path / "top.yaml")
    assert "rate_per_s" not in experiment.document["workload"]  # type: ignore[operator]
    assert [*experiment.document["slo_targets"]] == ["standard"]  # type: ignore[misc]
    engine = experiment.pools[0].engine
    assert (engine.kv_blocks > 900, engine.max_num_seqs) == (True, 6)


def test_null_drops_a_key_of_a_document_that_is_only_named(tmp_path: Path) -> None:
    top = tmp_path / "top.yaml"
    top.write_text(
        HEAD + "extends: quickstart\nworkload: {rate_per_s: null, stages: [{rate_per_s: 2, duration_s: 9}]}\n"
    )
    assert "rate_per_s" not in load(top).document["workload"]  # type: ignore[operator]


def test_null_as_a_value_stays_and_without_anything_to_drop_it_is_an_error(tmp_path: Path) -> None:
    top = tmp_path / "top.yaml"
    top.write_text(HEAD + "extends: quickstart\nhorizon_us: 5000000\nworkload: {requests: null}\n")
    assert load(top).workload.requests is None
    top.write_text(HEAD + "extends: quickstart\nengine: {kv_blocks: null}\n")
    assert codes(top) == ["BLIS1003"]


def test_an_override_with_null_drops_a_key() -> None:
    stages = "workload.stages=[{rate_per_s: 2, duration_s: 9}]"
    found = load("quickstart", overrides=["workload.rate_per_s=null", stages]).document
    assert "rate_per_s" not in found["workload"]  # type: ignore[operator]
