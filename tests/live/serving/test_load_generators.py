"""Load generators that people use drive the endpoint, where they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_serve_api import SET, Served
from tests.live.serving.outside import ENVIRONMENT, GUIDELLM, VLLM, needs_guidellm, needs_vllm, tiny_model

_BENCH = """
import argparse, sys
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="it runs on Linux")]


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@needs_vllm
@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(("backend", "path"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_vllm_bench_serve(backend: str, path: str, tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "tiny")
    child = Served("quickstart", *SET)
    port = (tmp_path / "port").read_text()
    words = ["--backend", backend, "--endpoint", path, "--base-url", f"http://127.0.0.1:{port}", "--model", "qwen3-14b"]
    words += ["--tokenizer", str(model), "--dataset-name", "random", "--random-input-len", "80", "--num-prompts", "12"]
    words += ["--random-output-len", "15", "--request-rate", "8", "--ignore-eos", "--disable-tqdm"]
    words += ["--save-result", "--save-detailed", "--result-dir", ".", "--result-filename", "bench.json"]
    run = subprocess.run([VLLM, "-c", _BENCH, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    child.end(15)
    assert run.returncode == 0, run.stderr[-3000:]
    result = json.loads(Path("bench.json").read_text())
    assert (result["completed"], result["failed"]) == (12, 0)
    assert result["total_output_tokens"] == 12 * 15
    # No token comes before the simulation has it: a step takes at least 20 ms.
    assert all(ttft > 0.019 for ttft in result["ttfts"])
    assert all(ttft + sum(gaps) > 15 * 0.019 for ttft, gaps in zip(result["ttfts"], result["itls"], strict=True))


@needs_guidellm
@pytest.mark.usefixtures("_folder")
def test_guidellm(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "tiny")
    child = Served("quickstart", *SET)
    port = (tmp_path / "port").read_text()
    words = ["--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=qwen3-14b"]
    words += ["--profile", "kind=constant,rate=8", "--constraint", "kind=max_requests,count=12"]
    words += ["--tokenizer", f"kind=huggingface_auto,model={model}"]
    words += ["--data", "kind=synthetic_text,prompt_tokens=80,output_tokens=15"]
    words += ["--output", "kind=json,path=guide.json", "--disable-console"]
    run = subprocess.run([GUIDELLM, "run", *words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    child.end(15)
    assert run.returncode == 0, run.stderr[-3000:]
    (benchmark,) = json.loads(Path("guide.json").read_text())["benchmarks"]
    groups = benchmark["requests"]
    assert (len(groups["successful"]), len(groups["errored"])) == (12, 0)
    assert all(one["output_tokens"] == 15 for one in groups["successful"])
    assert all(one["time_to_first_token_ms"] > 19 for one in groups["successful"])
