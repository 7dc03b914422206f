"""MLPerf's rows: what is worked out of their settings, without the measurements."""

from __future__ import annotations

import pytest

import blis_tui
from benchmarks.mlperf import PUBLISHED, STEPS, Row, latency_of, spec_of, with_16_bits
from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.operator_settings import OperatorSettings
from blis_tui.engine.latency.operator_tables import OperatorTables

MIXTRAL = Row("rtx-pro-6000", "mixtral-8x7b", "Server", 3767.0, 26.0, 286.0, 146.0, 145.0, 1)


def test_a_share_of_the_weights_in_16_bits_makes_steps_longer_by_its_products() -> None:
    """8.75 bits in the mean are 3 of 32 weights in 16 bits; experts of both kinds stand in the tables."""
    own: dict[str, object] = {"kind": "operators", "engine": "tensorrt-llm", "sampling": "plain"}
    (pool,) = blis_tui.load(spec_of(MIXTRAL, PUBLISHED["rtx-pro-6000", "Server"], own)).pools
    assert pool.operators is not None
    tables = OperatorTables(pool.operators, "tensorrt-llm")
    layers = []
    for kind in ("fp8", "bfloat16"):
        experts = tables.experts(kind, 4096, 14336, 8, 2.0, 1, 1.0 / 16)
        assert experts is not None
        layers.append(32 * experts.at(4096))
    costs = OperatorCosts(pool.operators, pool.model, 1, OperatorSettings(engine="tensorrt-llm"))
    everything = costs.tokens_us(4096) + costs.decode_attention(1024).at(500) + 4096 * 1.8 * costs.moved_us_per_token
    more = 3 / 32 * (layers[1] - layers[0]) / everything
    assert with_16_bits(MIXTRAL, own) - 1.0 == pytest.approx(more, rel=0.1)
    assert latency_of(MIXTRAL, "fitted", 1.0)["steps"] == with_16_bits(MIXTRAL, own)


def test_the_l40s_waits_for_its_host_and_reads_its_cache_as_with_16_bits() -> None:
    row = Row("l40s", "llama3.1-8b", "Server", 1207.0, 9.4, 124.0, 48.0, 128.0, 1)
    (pool,) = blis_tui.load(spec_of(row, PUBLISHED["l40s", "Server"], latency_of(row, "fitted", 1.0))).pools
    assert {name: pool.latency.settings[name] for name in STEPS["l40s"]} == STEPS["l40s"]
    assert pool.model.kv_cache_bytes == 1.0
