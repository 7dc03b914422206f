"""What is read from a server's metrics."""

from __future__ import annotations

from blis_tui.live.observe.recording import Server
from blis_tui.live.observe.server_reports import differences, settings, values

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="quote\\"d, and } brace"} 1.5e+03
vllm:request_success_total{engine="0",finished_reason="stop"} 2.0
vllm:request_success_total{engine="0",finished_reason="length"} 5.0
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0",num_gpu_blocks="200"} 1.0
python_gc_objects_collected_total{generation="0"} 8145.0
not a sample
vllm:num_requests_waiting{engine="0"} nan?
"""


def test_engines_are_added_up_and_shares_averaged() -> None:
    assert values(TEXT) == {
        "vllm:num_requests_running": 7.0,
        "vllm:kv_cache_usage_perc": 0.375,
        "vllm:prompt_tokens_total": 1500.0,
        "vllm:request_success_total": 7.0,
    }


def test_one_block_is_for_padding() -> None:
    # vLLM 0.32, v1/core/block_pool.py: `self.null_block = self.free_block_queue.popleft()`.
    assert settings(TEXT) == Server(kv_blocks=199, block_size_tokens=32, prefix_caching=True, engines=1)
    assert settings("") == Server()


def test_counters_go_on_from_run_to_run_unless_the_server_was_restarted() -> None:
    name = "vllm:num_preemptions_total"
    assert differences({name: 5.0}, {name: 12.0, "vllm:num_requests_running": 3.0}) == {name: 7.0}
    assert differences({name: 12.0}, {name: 4.0}) == {name: 4.0}
    assert differences({}, {name: 4.0}) == {name: 4.0}
