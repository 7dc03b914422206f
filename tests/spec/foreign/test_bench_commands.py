"""Commands of load generators, as workloads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import BlisError, SpecError
from blis_tui.spec.foreign.load_generators import import_load
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from pathlib import Path

GUIDELLM = "guidellm benchmark --target x --rate-type concurrent --rate 8,32 --data prompt_tokens=100,output_tokens=20"
LENGTHS = "--synthetic-input-tokens-mean 900 --synthetic-input-tokens-stddev 300 --output-tokens-mean 220"
AIPERF = f"aiperf profile -m a {LENGTHS}"


def load(line: str, **named: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(import_load(line.split(), {}, **named).text)
    return found


@pytest.mark.parametrize(
    ("line", "workload"),
    [
        (
            "vllm bench serve --random-input-len 100 --random-output-len 10 --num-prompts 5 --request-rate 2",
            {"requests": 5, "rate_per_s": 2.0},
        ),
        (
            "vllm bench serve --random-input-len 100 --random-output-len 10 --max-concurrency 9",
            {"requests": 1000, "arrivals": {"kind": "closed-loop", "users": 9}},
        ),
        (
            "python3 -m sglang.bench_serving --random-input 2000 --random-range-ratio 0.5 --request-rate inf",
            {"rate_per_s": 10_000.0, "input_tokens": {"kind": "uniform", "min": 1000, "max": 2000}},
        ),
        (
            f"{AIPERF} --request-rate 6 --concurrency 48 --request-count 1800 --request-rate-mode constant",
            {"requests": 1800, "rate_per_s": 6.0, "arrivals": {"kind": "constant"},
             "input_tokens": {"kind": "gaussian", "mean": 900.0, "std_dev": 300.0, "min": 1, "max": 2400}},
        ),
        (
            f"genai-perf profile {LENGTHS} --concurrency 8 -- -v --request-count 7",
            {"requests": 80, "arrivals": {"kind": "closed-loop", "users": 8}},
        ),
    ],
)  # fmt: skip
def test_a_command_is_a_workload(line: str, workload: dict[str, Any]) -> None:
    found = load(line)
    (client,) = found["clients"]
    assert {key: {**found, **client}[key] for key in workload} == workload


@pytest.mark.parametrize(
    ("line", "endpoint"),
    [
        ("vllm bench serve", None),
        ("vllm bench serve --backend vllm --endpoint /v1/completions", None),
        ("vllm bench serve --backend openai-chat --endpoint /v1/chat/completions", "chat"),
        ("vllm bench serve --endpoint-type openai-chat --max-concurrency 4", "chat"),
        ("python3 benchmarks/benchmark_serving.py --backend=openai-chat --request-rate 2", "chat"),
        ("python3 -m sglang.bench_serving --backend sglang --apply-chat-template", None),
        ("python3 -m sglang.bench_serving --backend sglang-oai-chat --max-concurrency 4", "chat"),
        (f"{AIPERF} --concurrency 8", "chat"),
        (f"{AIPERF} --request-rate 8 --endpoint-type chat", "chat"),
        (f"{AIPERF} --concurrency 8 --endpoint-type completions", None),
        (f"genai-perf profile {LENGTHS} --concurrency 8", None),
        (f"genai-perf profile {LENGTHS} --concurrency 8 --endpoint-type chat", "chat"),
        (f"{GUIDELLM} --rate 8", "chat"),
        (f"{GUIDELLM} --rate 8 --request-type text_completions", None),
        (f"{GUIDELLM} --rate 8 --request-type chat_completions", "chat"),
        (f"{GUIDELLM} --rate 8 --backend kind=openai_http,request_format=/v1/completions", None),
    ],
)
def test_which_endpoint_requests_use(line: str, endpoint: str | None) -> None:
    assert load(line).get("endpoint") == endpoint


def test_of_several_rates_one_is_chosen() -> None:
    with pytest.raises(SpecError, match="each of the rates 8, 32 is a benchmark of its own"):
        load(GUIDELLM)
    (client,) = load(GUIDELLM, rate=32)["clients"]
    assert client["arrivals"] == {"kind": "closed-loop", "users": 32}
    assert (client["input_tokens"]["value"], client["output_tokens"]["value"]) == (100, 20)


def test_in_a_script(tmp_path: Path) -> None:
    script = tmp_path / "bench.sh"
    script.write_text(f"sleep 5\nfor n in 1 8; do {AIPERF} --concurrency $n; done\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"2 commands measure a server(?s:.*)choose one with `--var NAME=VALUE`"):
        import_load(script, {})
    found = yaml.safe_load(import_load(script, {"n": "8"}).text)
    assert found["clients"][0]["arrivals"]["users"] == 8


def test_an_option_that_is_not_in_the_workload_is_said() -> None:
    line = "vllm bench serve --random-input-len 9 --port 1 --model m --ramp-up-strategy linear --seed 3"
    notes = {".".join(map(str, note.path)): note.fate for note in import_load(line.split(), {}).notes if note.path}
    assert notes == {
        "load.port": Fate.NO_EFFECT,
        "load.model": Fate.ELSEWHERE,
        "load.ramp-up-strategy": Fate.NOT_CARRIED,
        "load.seed": Fate.ELSEWHERE,
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vllm serve x", "no command measures a server"),
        ("vllm bench serve --dataset-name sharegpt", "the lengths of `sharegpt` are not in the command"),
        ("vllm bench serve --request-rate 1 --burstiness 0", "`--burstiness` must be more than 0"),
        ("aiperf profile --concurrency 3", "does not say how long answers are"),
        ("guidellm benchmark --rate-type sweep --data prompt_tokens=1,output_tokens=1", "has no rate of its own"),
    ],
)
def test_what_a_command_lacks_is_said(line: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(line)


@given(st.sampled_from([AIPERF, "vllm bench serve", GUIDELLM]), st.lists(st.tuples(
    st.sampled_from(["--request-rate", "--concurrency", "--num-prompts", "--rate", "--data", "--random-input-len",
                     "--random-range-ratio", "--max-seconds", "--burstiness", "--request-count", "--max-concurrency"]),
    st.sampled_from(["0", "-1", "nan", "1e99", "inf", "", "x=1", "3", "0.5"])), max_size=5))  # fmt: skip
def test_any_options_give_a_workload_or_an_error(command: str, options: list[tuple[str, str]]) -> None:
    with suppress(BlisError):
        words = [*command.split(), *(word for pair in options for word in pair)]
        assert yaml.safe_load(import_load(words, {}).text)["kind"] == "Workload"
