"""Commands that start servers, as experiments: each argument is taken, without effect, or said to be missing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import BlisError, SpecError
from blis_tui.cli.main import cli
from blis_tui.spec.foreign.load_generators import import_load
from blis_tui.spec.foreign.reading import Fate, notes_text
from blis_tui.spec.foreign.server_arguments import RULES, SGLANG, TENSORRT_LLM, VLLM
from blis_tui.spec.foreign.server_commands import Wanted, import_sglang, import_tensorrt_llm, import_vllm
from blis_tui.spec.foreign.servers import engine_of, version_of

if TYPE_CHECKING:
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.server_arguments import Server

H100 = Wanted("h100")


def vllm(line: str) -> tuple[dict[str, Any], dict[str, Fate]]:
    """The experiment of a command line, and what became of its arguments."""
    return document_and_fates(import_vllm(line.split(), H100))


def document_and_fates(imported: Imported) -> tuple[dict[str, Any], dict[str, Fate]]:
    return yaml.safe_load(imported.text), {str(note.path[0]): note.fate for note in imported.notes if note.path}


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("-tp 2", "cluster.tensor_parallel", 2),
        ("--tensor_parallel_size=4", "cluster.tensor_parallel", 4),
        ("--max-model-len 32k", "engine.max_model_len", 32000),
        ("--max-model-len 32K", "engine.max_model_len", 32768),
        ("--max-model-len -1", "engine.max_model_len", "auto"),
        ("--max-num-seqs 96 --max-num-seqs 128", "engine.max_num_seqs", 128),
        ("--max-num-seq 96", "engine.max_num_seqs", 96),
        ("--gpu-mem .85", "engine.gpu_memory_utilization", 0.85),
        ("--gpu-memory-utilization .85", "engine.gpu_memory_utilization", 0.85),
        ("--no-enable-prefix-caching", "engine.enable_prefix_caching", False),
        ("--no-async-scheduling", "policy.batching.async_scheduling", False),
        ("--enforce-eager", "engine.enforce_eager", True),
        ("--compilation-config.cudagraph_mode=FULL_DECODE_ONLY", "engine.cudagraph_mode", "FULL_DECODE_ONLY"),
        ("-O.cudagraph_mode=NONE", "engine.enforce_eager", True),
        ("-dp 3", "cluster.instances", 3),
        ("--scheduling-policy priority", "policy.scheduling.kind", "priority-fcfs"),
        ("--api-server-count 4", "engine.front_end.processes", 4),
        ("--enable-lora --max-loras 3", "engine.lora.max_loras", 3),
        ("--speculative-config.method=eagle3 --speculative-config.num_speculative_tokens 2", "engine.speculative",
         {"draft_tokens": 2, "method": "eagle", "acceptance": 0.7}),
        ("--quantization fp8", "model.config.quantization_config", {"quant_method": "fp8"}),
    ],
)  # fmt: skip
def test_an_argument_is_taken(arguments: str, key: str, value: object) -> None:
    found, fates = vllm(f"vllm serve Qwen/Qwen3-14B {arguments}")
    inside: object = found
    for name in key.split("."):
        assert isinstance(inside, dict)
        inside = inside[name]
    assert inside == value
    assert Fate.NOT_CARRIED not in fates.values()
    blis_tui.load(found)


def test_the_beginning_of_several_arguments_is_none_of_them() -> None:
    _, fates = vllm("vllm serve qwen3-14b --max-num 96")
    assert fates["max-num"] is Fate.NOT_CARRIED


def test_a_command_may_be_in_quotes(tmp_path: Path) -> None:
    words = ["spec", "import", "vllm", "--hardware", "h100", "--"]
    quoted = CliRunner().invoke(cli, [*words, "vllm serve qwen3-14b -tp 2"])
    assert quoted.output == CliRunner().invoke(cli, [*words, "vllm", "serve", "qwen3-14b", "-tp", "2"]).output
    assert quoted.exit_code == 0
    broken = CliRunner().invoke(cli, [*words, "vllm serve 'qwen3-14b"])
    assert (broken.exit_code, "no closing quotation" in broken.output) == (2, True)
    file = tmp_path / "a start.sh"
    file.write_text("vllm serve qwen3-14b -tp 2\n")
    assert "tensor_parallel: 2" in CliRunner().invoke(cli, [*words[:-1], str(file)]).output


def test_what_a_simulation_lacks_is_said() -> None:
    _, fates = vllm("vllm serve Qwen/Qwen3-14B --port 1 --attention-backend X --nonsense 3 --max-loras 2")
    assert fates == {
        "model": Fate.TAKEN,
        "port": Fate.NO_EFFECT,
        "attention-backend": Fate.NOT_CARRIED,
        "nonsense": Fate.NOT_CARRIED,
        "max-loras": Fate.NO_EFFECT,
    }


def test_a_quantised_name_is_the_model_with_other_weights() -> None:
    found, _ = vllm("vllm serve Qwen/Qwen3-4B-FP8")
    assert found["model"]["config"]["quantization_config"] == {"quant_method": "fp8"}
    served, whole = (blis_tui.load({**found, "model": model}).pools[0].model for model in (found["model"], "qwen3-4b"))
    assert (served.weight_bytes, whole.weight_bytes) == (1.0, 2.0)
    assert served.hidden_size == whole.hidden_size


@pytest.mark.parametrize("name", ["nvidia/Qwen3-14B-NVFP4", "nvidia/Qwen3-14B-FP4"])
def test_a_name_says_nvfp4(name: str) -> None:
    found, _ = vllm(f"vllm serve {name}")
    assert blis_tui.load(found).pools[0].model.weight_bytes == 4.5 / 8


def test_an_image_says_the_version(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    image = "docker run --gpus all -p 80:80 vllm/vllm-openai:v{} \\\n  --model Qwen/Qwen3-14B # all\n"
    for version, own, rules, asynchronous, sorting_us in (
        ("0.10.2", None, "0.10", False, 130),
        ("0.11.0", "0.11.0", "0.10", False, 130),
        ("0.13.0", "0.13.0", None, False, 130),
        ("0.21.0", "0.21.0", None, None, 100),
        ("0.33.1", None, "0.33", None, 100),
    ):
        script.write_text(image.format(version), encoding="utf-8")
        imported = import_vllm(script, H100)
        document = yaml.safe_load(imported.text)
        batching = document["policy"]["batching"]
        assert (batching.get("version"), batching.get("async_scheduling")) == (rules, asynchronous)
        assert document.get("engine", {}).get("version") == own
        assert (f"vLLM {version} is simulated by the rules of" in notes_text(imported.notes)) == (own is not None)
        assert blis_tui.load(document).pools[0].latency.settings["sort_step_us"] == sorting_us


@pytest.mark.parametrize(("backend", "request_us"), [("openai-chat", 10_900), ("vllm", None)])
def test_a_server_and_a_chat_client_are_what_they_are_together(
    tmp_path: Path, backend: str, request_us: int | None
) -> None:
    """vLLM 0.11.0 parses the chat template anew for each request; a script or two commands say so alike."""
    serve = "docker run --gpus all vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-14B\n"
    bench = f"vllm bench serve --backend {backend} --random-input-len 256 --num-prompts 50 --max-concurrency 8\n"
    script = tmp_path / "both.sh"
    script.write_text(serve + bench, encoding="utf-8")
    together = yaml.safe_load(import_vllm(script, H100).text)
    workload = tmp_path / "load.yaml"
    workload.write_text(import_load(bench.split(), {}).text, encoding="utf-8")
    script.write_text(serve, encoding="utf-8")
    apart = yaml.safe_load(import_vllm(script, H100._replace(workload=str(workload))).text)
    for document in (together, apart):
        assert blis_tui.load(document).pools[0].latency.settings.get("request_us") == request_us


@pytest.mark.parametrize(
    ("image", "engine", "version"),
    [
        ("vllm/vllm-openai:v0.10.1.1", "vllm", "0.10.1"),
        ("vllm/vllm-openai:v0.6.3.post1", "vllm", "0.6.3"),
        ("vllm/vllm-openai:v0.13.0rc2-x86_64", "vllm", "0.13.0"),
        ("lmsysorg/sglang:v0.5.6.post2-cu129-amd64-runtime", "sglang", "0.5.6"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc2.post2", "tensorrt-llm", "1.2.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release", "tensorrt-llm", ""),
        ("lmsysorg/sglang:latest", "sglang", ""),
        ("lmsysorg/sglang@sha256:12ab", "sglang", ""),
        ("/opt/vllm.py", "", ""),
    ],
)
def test_tags_of_images(image: str, engine: str, version: str) -> None:
    assert (engine_of(image), version_of(image)) == (engine, version)


def test_a_script_with_its_benchmark_has_its_load(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        """SEQS=${SEQS:-64}
ARGS=(--max-num-seqs $SEQS
      --no-enable-prefix-caching)  # no reuse
bash -c "exec vllm serve Qwen/Qwen3-14B ${ARGS[*]} --max-num-batched-tokens $TOKENS" &
vllm bench serve --dataset-name random --random-input-len 1000 --random-output-len=100 \\
  --random-range-ratio 0.2 --num-prompts 50 --request-rate 4 --burstiness 0.25
""",
        encoding="utf-8",
    )
    with pytest.raises(SpecError, match=r"does not say what `\$TOKENS` is"):
        import_vllm(script, H100)
    found, _ = document_and_fates(import_vllm(script, H100._replace(variables={"TOKENS": "4096", "SEQS": "32"})))
    engine = {"max_num_seqs": 32, "enable_prefix_caching": False, "max_num_batched_tokens": 4096}
    assert found["engine"] == engine
    assert (found["workload"]["requests"], found["workload"]["rate_per_s"]) == (50, 4.0)
    (client,) = found["workload"]["clients"]
    assert client["input_tokens"] == {"kind": "uniform", "min": 800, "max": 1200}
    assert client["arrivals"] == {"kind": "gamma", "cv": 2.0}
    report = blis_tui.Simulation(blis_tui.load(found)).run()
    assert report is None or report


def test_a_file_of_arguments_counts_less_than_the_command(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(
        "model: Qwen/Qwen3-14B\nmax_num_seqs: 256\nblock-size: '32'\nno-enable-prefix-caching: true\n", encoding="utf-8"
    )
    script = tmp_path / "serve.sh"
    line = "python -m vllm.entrypoints.openai.api_server --config tuned.yaml --max-num-seqs 96\n"
    script.write_text(line, encoding="utf-8")
    found, _ = document_and_fates(import_vllm(script, H100))
    assert found["model"] == "Qwen/Qwen3-14B"
    assert found["engine"] == {"max_num_seqs": 96, "block_size_tokens": 32, "enable_prefix_caching": False}


def test_sglang() -> None:
    line = (
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-14B --tp 2 --dp-size 2 --chunked-prefill-size -1"
        " --max-running-requests 128 --mem-fraction-static 0.8 --page-size 16 --max-total-tokens 160000"
        " --kv-cache-dtype fp8_e5m2 --disable-radix-cache --disable-overlap-schedule --speculative-algorithm EAGLE"
    )
    found, fates = document_and_fates(import_sglang(line.split(), H100))
    assert found["policy"]["batching"] == {"kind": "sglang", "chunked_prefill_size": "none", "overlap_schedule": False}
    assert found["cluster"] == {"tensor_parallel": 2, "instances": 2}
    assert found["engine"] == {
        "max_num_seqs": 128,
        "gpu_memory_utilization": 0.8,
        "block_size_tokens": 16,
        "kv_blocks": 10_000,
        "kv_cache_dtype": "fp8",
        "enable_prefix_caching": False,
    }
    assert fates["speculative-algorithm"] == Fate.NOT_CARRIED
    blis_tui.load(found)


@pytest.mark.parametrize("name", ["mamba-ssm-dtype", "mamba-full-memory-ratio", "mamba-radix-cache-strategy"])
def test_sglangs_arguments_for_states_are_known(name: str) -> None:
    line = f"python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-27B --{name} 1"
    (note,) = [note for note in import_sglang(line.split(), H100).notes if note.path[-1:] == (name,)]
    assert note.fate is Fate.NOT_CARRIED
    assert "unknown" not in note.text


def test_tensorrt_llm(tmp_path: Path) -> None:
    """Its file of options beats the command, and the script may write the file."""
    script = tmp_path / "serve.sh"
    script.write_text(
        """cat > options.yaml <<EOF
max_batch_size: 512
enable_chunked_prefill: true
kv_cache_config: {free_gpu_memory_fraction: 0.85, enable_block_reuse: false, dtype: fp8}
scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}
EOF
mpirun -n 1 trtllm-serve Qwen/Qwen3-14B --tp_size 2 --max_batch_size 256 --extra_llm_api_options options.yaml
""",
        encoding="utf-8",
    )
    found, fates = document_and_fates(import_tensorrt_llm(script, H100))
    assert found["policy"]["batching"] == {
        "kind": "tensorrt-llm",
        "enable_chunked_prefill": True,
        "capacity_scheduler_policy": "MAX_UTILIZATION",
    }
    assert found["engine"] == {
        "max_num_seqs": 512,
        "gpu_memory_utilization": 0.85,
        "enable_prefix_caching": False,
        "kv_cache_dtype": "fp8",
    }
    assert found["cluster"] == {"tensor_parallel": 2}
    assert set(fates.values()) == {Fate.TAKEN}
    assert blis_tui.load(found).pools[0].latency.settings["engine"] == "tensorrt-llm"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vllm serve", "the command names no model"),
        ("vllm serve --port 1", "the command names no model"),
        ("vllm serve Qwen/Qwen3-14B --max-num-seqs many", "unknown value `many`"),
        ("vllm serve Qwen/Qwen3-14B --max-num-seqs -3", "`max_num_seqs` must be at least 0, found `-3`"),
        ("vllm serve Qwen/Qwen3-14B --speculative-config {}", "it lacks `num_speculative_tokens`"),
        (f"vllm serve Qwen/Qwen3-14B --max-num-seqs {'[' * 5000}", "unknown value"),
        ("vllm serve nobody/knows", "no model has the Hugging Face id `nobody/knows`"),
        ("echo vllm", "no command starts vllm"),
    ],
)
def test_a_mistake_is_shown_at_its_argument(line: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        vllm(line)
    (first, *_) = caught.value.diagnostics
    assert message in first.message
    assert first.file == "--"
    if "--max" in line:
        assert first.column == line.index("--max") + 1


def test_the_page_shows_what_is_told() -> None:
    page = (Path(__file__).parents[3] / "docs" / "specs.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ blis-tui spec import vllm .* -- (.*)\n((?:.+\n)+)```", page, re.MULTILINE)
    assert shown is not None
    assert notes_text(import_vllm(shown[1].split(), H100).notes) == shown[2]


@pytest.mark.parametrize(("engine", "server"), [("vllm", VLLM), ("sglang", SGLANG), ("tensorrt-llm", TENSORRT_LLM)])
def test_an_argument_is_in_one_table(engine: str, server: Server) -> None:
    assert not {*server.taken} & {*server.no_effect}
    assert not {*server.taken} & {*server.lost}
    assert not {*server.no_effect} & {*server.lost}
    assert {*server.flags} <= {*server.taken}
    assert {*server.short.values()} <= {*server.taken}
    without_key = {name for name, key in server.taken.items() if not key}
    assert {name for of, name in RULES if of == engine} >= without_key


@given(st.lists(st.sampled_from([*VLLM.taken, *VLLM.lost, "x", *VLLM.no_effect]), max_size=5), st.data())
def test_any_arguments_give_an_experiment_or_an_error(names: list[str], data: st.DataObject) -> None:
    values = st.sampled_from(["0", "-1", "1e99", "{}", "[1]", "true", "auto", "", "nan", "8"])
    words = [one for name in names for one in (f"--{name}", data.draw(values))]
    with suppress(BlisError):
        found, _ = document_and_fates(import_vllm(["vllm", "serve", "Qwen/Qwen3-14B", *words], H100))
        assert found["kind"] == "Experiment"
