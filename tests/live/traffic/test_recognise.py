"""Formats are told by words that only one tool writes."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from blis_tui.live.traffic.opening import format_of
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import TRACES
from tests.zstandard import zstd

HEADS = {
    "bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 16, "hash_ids": [0]}\n',
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,log\n",
    "tracelab": '{"session_id": "a", "timing_events": []}\n',
    "weka": '{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": []}\n',
    "mooncake": '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    "otel": '{"resourceSpans": []}\n',
    "sharegpt": '[{"id": "a", "conversations": []}]\n',
    "vllm-bench": '{"date": "x", "request_throughput": 5.0, "input_lens": [1]}\n',
    "tracev2": "request_id,client_id,last_chunk_time_us,num_chunks\n",
    "requests": "arrival_time_us,input_tokens,output_tokens\n5,9,9\n",
}
KNOWN = [plugin.name for plugin in builtin().of(TRACES.path)]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_a_file_tells_its_format(tmp_path: Path, name: str, packed: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "trace"
    path.write_bytes(packed(HEADS[name].encode()))
    assert format_of(path, builtin()) == (name if name in KNOWN else "requests")


def test_words_of_others_further_down_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(HEADS["requests"] + "ContextTokens\n")
    assert format_of(path, builtin()) == "requests"
    path.write_bytes(b"\x1f\x8b broken")
    assert format_of(path, builtin()) == "requests"
    path.write_bytes(b"")
    assert format_of(path, builtin()) == "requests"
