"""The bounds of what a document may mean: the last value that works, and the first that does not."""

from __future__ import annotations

import pytest

import blis_tui

CHATS = {"id": "chats", "input_tokens": {"kind": "constant", "value": 100}}
SMALL = {
    "workload": {"requests": 20, "rate_per_s": 100.0, "clients": [CHATS]},
    "workload.clients.0.output_tokens": {"kind": "constant", "value": 61},
    "expect": [],
}
"""Requests of 161 tokens, close enough together to share steps."""
WHOLE_PROMPTS = {"policy": "vllm-v1", "policy.batching.enable_chunked_prefill": False}


@pytest.mark.parametrize(
    ("code", "settings", "bound", "works", "fails"),
    [
        ("BLIS2006", {"engine.block_size_tokens": 16, "engine.max_model_len": "none"}, "engine.kv_blocks", 10, 9),
        ("BLIS2007", {}, "engine.max_model_len", 161, 160),
        (
            "BLIS2019",
            {**WHOLE_PROMPTS, "engine.max_model_len": 161, "engine.kv_blocks": 30},
            "engine.max_num_batched_tokens",
            161,
            160,
        ),
    ],
)
def test_the_last_value_that_is_allowed_serves_every_request(
    code: str, settings: dict[str, object], bound: str, works: int, fails: int
) -> None:
    made = blis_tui.load("quickstart", set={**SMALL, **settings, bound: works})
    assert blis_tui.run(made).requests.completed == 20
    with pytest.raises(blis_tui.SpecError) as caught:
        blis_tui.load("quickstart", set={**SMALL, **settings, bound: fails})
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
