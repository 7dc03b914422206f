"""Which step-time model `auto` stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.creation import create_latency
from blis_tui.model import PluginConfig
from blis_tui.model.plug_ins import Registry
from blis_tui.spec.build import stack_of
from blis_tui.spec.resolve import chosen_kind
from blis_tui.spec.shipped import builtin
from tests.builders import experiment

AUTO = {"latency": "auto", "expect": []}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "operators"),
        ({"hardware": "a10g", "cluster.tensor_parallel": 2}, "fitted"),
        ({"model.config.torch_dtype": "float32"}, "fitted"),
    ],
)
def test_operators_where_tables_cover_model_and_gpu(settings: dict[str, object], kind: str) -> None:
    made = blis_tui.load("steady-chat", set={**AUTO, **settings})
    named = blis_tui.load("steady-chat", set={**settings, "latency": {"kind": kind}, "expect": []})
    assert made.pools[0].latency.kind == kind
    assert made.sha256 == named.sha256


def test_each_pool_gets_its_own() -> None:
    made = blis_tui.load("mixed-fleet", set=AUTO)
    assert {pool.latency.kind for pool in made.pools} == {"operators"}
    assert len({pool.latency.settings["tables"] for pool in made.pools}) > 1


def test_kinds_that_are_not_there_are_passed_over() -> None:
    stack = stack_of(blis_tui.load("steady-chat", set=AUTO).document)
    without = Registry(plugin for plugin in builtin().plugins if plugin.name != "operators")
    assert chosen_kind(stack, without) == "fitted"


def test_an_experiment_made_by_hand_must_choose() -> None:
    made = experiment()
    pool = replace(made.pools[0], latency=PluginConfig(kind="auto"))
    with pytest.raises(PolicyError, match="no step-time model yet"):
        create_latency(builtin(), pool)
