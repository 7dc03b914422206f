"""Help and refusals of every command, and what it prints with other options, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli.help import RARE
from blis_tui.cli.main import cli
from tests.recorded import Digests, commands
from tests.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_FEW: Final = "--set workload.requests=30"
_LINES: Final = (
    "run nothing",
    "run quickstart --set engine.max_num_seqs=0",
    "run quickstart --set engine.nonsense=1",
    "run quickstart --case none",
    f"run quickstart {_FEW} --seed 3 --format table --explain accuracy",
    f"run quickstart {_FEW} --openmetrics-interval 5",
    f"run quickstart {_FEW} -o same.json --records same.json",
    f"run mixed-fleet {_FEW} --check all --counterfactual 3 --format json",
    f"run round-robin {_FEW} -j 2",
    f"run stale-signals {_FEW} -j 2 --format table",
    "tui quickstart",
    "tui quickstart --at nowhere",
    "sweep quickstart",
    "sweep quickstart --axis nonsense=1,2",
    "sweep quickstart --axis seed=1 --slo nonsense<=1",
    "plan quickstart",
    "plan quickstart --rate 0 --slo latency.ttft_ms.p99<=100",
    "plan quickstart --rate 1 --slo latency.ttft_ms.p99<=0 --sizes cluster.instances=2..1",
    "shrink quickstart",
    "sensitivity quickstart",
    "diff quickstart",
    "whatif quickstart",
    "workload describe nothing",
    "observe http://127.0.0.1:1 --workload chatbot",
    "twin nothing quickstart",
    "calibrate nothing.csv --spec quickstart",
    "golden status",
    "golden review",
    "spec show nothing",
    "spec resolve nothing",
    "check nothing.yaml",
    "upgrade nothing.yaml",
    "explain BLIS9999",
    "explain --kind study nothing",
    "bundle quickstart",
    "bundle quickstart -o run.txt",
    "completion bash",
    "completion zsh",
    "completion fish",
    "serve quickstart --port 99999999",
    "nonsense",
)


def _paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    yield " ".join(path)
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _paths(inner, (*path, name))


def test_help(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for path in _paths(cli):
        for option in ("--help", *(["--help-all"] if path in RARE else [])):
            commands(digests, tmp_path, f"{path} {option}".strip(), kind=path or "blis-tui")
    digests.check(file_regression)


_DATA: Final = ROOT / "tests" / "spec" / "foreign" / "data"
_KINDS: Final = ("policy", "workload", "hardware", "model", "inference-perf", "guidellm", "kubernetes", "compose")
_FILES: Final = tuple(sorted(path.name for path in _DATA.iterdir() if path.is_file()))
_IMPORTS: Final = (
    *(f"{kind} {_DATA}/{name}" for kind in _KINDS for name in _FILES),
    f"servegen {_DATA}/servegen --span 0 100 --strict",
    f"servegen {_DATA}/servegen --span 100 0",
    f"guidellm {_DATA}/guidellm.json --rate 3",
    "vllm --hardware h100 -- vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 4",
    "vllm --hardware h100 --var A=4 --strict -- vllm serve $B --max-num-seqs $A",
    "vllm --hardware h100 --var A --name x -- vllm serve $B",
    "vllm --hardware h100 --var =3 -- vllm serve $B",
    "vllm --model qwen3-14b --workload chatbot --name mine --hardware a100-80 -- vllm serve x -tp 2",
    "sglang --hardware h100 -- python -m sglang.launch_server --model-path Qwen/Qwen3-14B",
    "tensorrt-llm --hardware h100 -- trtllm-serve Qwen/Qwen3-14B --max_batch_size 8",
    "load --rate 2 -- vllm bench serve --dataset-name random --num-prompts 10",
    "load -- guidellm benchmark --data prompt_tokens=10,output_tokens=5 --rate-type constant --rate 3",
    "load nothing.sh",
)
_LATE: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: late}
extends: quickstart
workload: {requests: 40}
expect:
  - {metric: latency.ttft_ms.p99, max: 0.001}
  - {metric: requests.completed, equals: 40}
  - {metric: requests.total, equals: 40}
cases:
  slow: {workload.rate_per_s: 1}
  fast: {workload.rate_per_s: 90}
"""
_FILES_OF_A_RUN: Final = (
    "-o a.json --requests a.csv --records a.jsonl --decisions d.jsonl --trace-output t"
    " --perfetto a.pf --openmetrics a.om --openmetrics-interval 0.5"
)
_ALONE: Final = "--store none -j 1"
_RUNS: Final = (
    "run late.blis.yaml",
    "run late.blis.yaml --case slow --seed 4 --format table",
    "run late.blis.yaml --case none",
    "run late.blis.yaml --set engine.kv_blocks=90 --check all --counterfactual 2 --format table",
    f"run late.blis.yaml {_FILES_OF_A_RUN}",
    f"run disaggregation {_FEW} --records b.jsonl --decisions e.jsonl --counterfactual 2",
    f"run kv-overload {_FEW} --format json",
    f"run kv-overload {_FEW} --format table",
    f"run quickstart {_FEW} --set policy.routing.kind=round-robin -j 2 --openmetrics c.om",
    f"run unfair-tenants {_FEW} --trace-output u",
    "shrink late.blis.yaml --no-golden -o few --runs 5",
    "shrink late.blis.yaml --no-golden -o small --runs 40",
    "shrink late.blis.yaml --no-golden -o slow --case slow --expect latency.ttft_ms.p99<=60 --runs 30",
    "shrink late.blis.yaml --no-golden -o held --expect latency.ttft_ms.p99<=60000",
    "shrink late.blis.yaml --no-golden -o none --expect nonsense<=1",
    f"sweep late.blis.yaml --axis engine.max_num_seqs=2,8 --seeds 2 --format table {_ALONE}",
    f"sweep late.blis.yaml --axis engine.max_num_seqs=2,8 --slo latency.ttft_ms.p99<=0.001 --format csv {_ALONE}",
    f"sweep late.blis.yaml --axis engine.kv_blocks=1,2,900,3,4 --format jsonl {_ALONE}",
    f"sweep late.blis.yaml --axis seed=1,2 --slo spec_decode.acceptance_rate>=1 --format table {_ALONE}",
    f"sweep late.blis.yaml --axis seed=1,2 --slo latency.ttft_ms.p99<=1 --format table {_ALONE}",
    "sensitivity late.blis.yaml --store none --seeds 2",
    "sensitivity late.blis.yaml --store none --slo latency.ttft_ms.p99<=nothing",
    "diff late.blis.yaml quickstart",
    "diff late.blis.yaml late.blis.yaml --seed 3",
    "whatif late.blis.yaml --request request_3 --route-to 1",
    "whatif late.blis.yaml --request request_300 --route-to 1",
    "whatif late.blis.yaml --request request_3 --route-to 9",
    "workload describe late.blis.yaml",
    "check late.blis.yaml",
    "spec fmt late.blis.yaml --check",
    "spec new experiment Mine",
    "spec new study",
    "spec new study",
    "spec show chatbot --kind model",
    "spec show sjf",
    "spec schema nothing",
)


def test_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """An experiment that does not keep what it should, through all commands that take one, with all files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.blis.yaml").write_text(_LATE, encoding="utf-8")
    digests = Digests()
    for number, line in enumerate(_RUNS):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)


def test_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Every file of other tools by every import, and what servers and loads are started with."""
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for line in _IMPORTS:
        commands(digests, tmp_path, f"spec import {line}", kind=line.split()[0])
    digests.check(file_regression)


_POLICIES: Final = """
from blis_tui.plugins import ROUTING, SCHEDULING, FcfsQueue

class Fair:
    rule = "The first."
    def __init__(self, settings): self._count = 0
    def choose(self, request, fleet, context): return 0, "first"
    def state(self): return ()

@ROUTING.plugin("good", "Always the first.")
class Good(Fair): pass

@ROUTING.plugin("forgetful", "Hides what it remembers.")
class Forgetful(Fair):
    def choose(self, request, fleet, context):
        self._count += 1
        return self._count % len(fleet), "next"

@ROUTING.plugin("failing", "Raises.")
class Failing(Fair):
    def choose(self, request, fleet, context):
        if request.input_tokens: raise ValueError("no way")

@ROUTING.plugin("outside", "Chooses what is not there.")
class Outside(Fair):
    def choose(self, request, fleet, context): return 99, "far"

@SCHEDULING.plugin("plain", "In order.")
class Plain(FcfsQueue):
    def __init__(self, settings): super().__init__()

@SCHEDULING.plugin("unmade", "Takes no settings.")
class Unmade(FcfsQueue): pass
"""


def test_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Checks of policies that are right, forget, raise and choose nonsense; alone, together and beside documents."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(_POLICIES, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    (tmp_path / "none.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "bad.blis.yaml").write_text("kind: Experiment\n", encoding="utf-8")
    small = "--set workload.requests=12"
    digests = Digests()
    for number, line in enumerate(
        (
            f"check mine.py {small}",
            f"check mine.py {small} --format json",
            f"check mine.py --set policy.routing.kind=good {small} --seed 3",
            f"check mine.py --experiment round-robin {small}",
            "check mine.py --experiment nothing",
            "check mine.py --set engine.nonsense=1",
            f"check mine.py bad.blis.yaml {small}",
            "check wrong.py",
            "check none.py",
            "check missing.py",
            "check --experiment quickstart bad.blis.yaml",
            "check bad.blis.yaml --format json",
            f"run quickstart {small} --plugins mine.py --set policy.routing.kind=good --format table",
            f"run quickstart {small} --plugins mine.py --set policy.routing.kind=failing",
            f"run quickstart {small} --plugins mine.py --set policy.routing.kind=outside",
            f"run quickstart {small} --plugins none.py",
        )
    ):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)


def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)
