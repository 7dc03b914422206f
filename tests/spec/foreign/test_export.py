"""Experiments as what starts their servers; imported again, they are the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.foreign.export import export_kubernetes, export_vllm
from blis_tui.spec.foreign.manifests import import_kubernetes
from blis_tui.spec.foreign.server_commands import Wanted, import_vllm
from blis_tui.spec.load import resolve_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.spec.foreign.export import Exported

EXPERIMENTS = sorted(path.name.removesuffix(".blis.yaml") for path in Path("specs/experiments").glob("*.blis.yaml"))
"""Shipped experiments, of which those of vLLM can be exported."""


def documents(source: str, text: str | None = None, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    data: Any = resolve_source(source, stdin_text=text, overrides=overrides).document.data
    return {key: data.get(key) for key in ("model", "hardware", "latency", "policy", "cluster", "engine")}


def again(made: Exported, tmp_path: Path, hardware: str, *, kubernetes: bool) -> dict[str, Any]:
    file = tmp_path / "exported"
    file.write_text(made.text, encoding="utf-8")
    convert: Callable[..., Any] = import_kubernetes if kubernetes else import_vllm
    return documents("-", convert(file, Wanted("" if "nodeSelector" in made.text else hardware)).text)


@pytest.mark.parametrize("kubernetes", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_shipped_experiment_comes_back(name: str, tmp_path: Path, *, kubernetes: bool) -> None:
    """But for what is said to be lost; engines other than vLLM are refused."""
    whole = documents(name)
    export = export_kubernetes if kubernetes else export_vllm
    if whole["policy"]["batching"]["kind"] != "vllm-v1":
        with pytest.raises(InputError, match="no server of vLLM has it"):
            export(name)
        return
    if name == "mixed-fleet" and not kubernetes:
        with pytest.raises(InputError, match="its pools have no roles"):
            export(name)
        return
    made = export(name)
    found = again(made, tmp_path, whole["hardware"]["metadata"]["name"], kubernetes=kubernetes)
    lost = {one.partition(":")[0] for one in made.lost}
    for key in whole:
        if not any(one.partition(".")[0] == key for one in lost):
            for part in (whole, found):
                part[key].pop("metadata", None)
            assert found[key] == whole[key]
    assert all(f"#   {one}\n" in made.text for one in made.lost)


POOLS = """cluster={disaggregation: {}, pools: [{name: prefill, role: prefill, instances: 2, tensor_parallel: 2},
 {name: decode, role: decode, instances: 1, tensor_parallel: 4, engine: {max_num_seqs: 9}}]}"""


@pytest.mark.parametrize("kubernetes", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        ("engine.max_num_seqs=7", "engine.max_model_len=4096", "engine.gpu_memory_utilization=0.8"),
        ("engine.enable_prefix_caching=false", "engine.enforce_eager=true", "cluster.tensor_parallel=2"),
        ("engine.cudagraph_mode=FULL_DECODE_ONLY", "engine.kv_cache_dtype=fp8", "engine.block_size_tokens=32"),
        ("policy.scheduling=priority-fcfs", "policy.batching.async_scheduling=false"),
        ("engine.speculative={draft_tokens: 3, method: eagle, acceptance: 0.7}",),
        ("engine.lora={max_loras: 3, max_lora_rank: 32}", "engine.front_end.processes=4"),
        ("cluster={disaggregation: {prefill_instances: 2, decode_instances: 1}}",),
        (POOLS,),
    ],
)
def test_what_a_command_can_say_is_said(change: tuple[str, ...], tmp_path: Path, *, kubernetes: bool) -> None:
    overrides = ("latency=auto", "expect=[]", *change)
    made = (export_kubernetes if kubernetes else export_vllm)("quickstart", overrides)
    assert made.lost == ()
    assert (
        again(made, tmp_path, "h100", kubernetes=kubernetes)["engine"]
        == documents("quickstart", None, overrides)["engine"]
    )


def test_the_command() -> None:
    def run(*args: str) -> Any:
        return CliRunner().invoke(cli, ["spec", "export", *args])

    single = run("vllm", "quickstart", "--set", "cluster.instances=1", "--set", "engine.max_num_seqs=8")
    assert single.stdout.splitlines()[2:] == ["vllm serve Qwen/Qwen3-14B \\", "  --max-num-seqs 8"]
    assert single.stdout in (Path(__file__).parents[3] / "docs" / "specs.md").read_text(encoding="utf-8")
    lossy = run("kubernetes", "autoscaling", "--strict")
    assert lossy.exit_code == ExitCode.CHECK_FAILED
    assert "not said: policy.routing.kind: least-loaded" in lossy.stderr
    assert re.search(r"^  maxReplicas: 4$", lossy.stdout, re.MULTILINE)
