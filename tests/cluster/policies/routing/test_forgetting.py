"""What routers remember of an instance goes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blis_tui.engine.records import Routed
from blis_tui.model import Experiment, PluginConfig
from tests.builders import Outcome, experiment, request
from tests.cluster.test_lifecycle import failure

SHARED = (("system", 16),)


def weighted(*scorers: PluginConfig) -> PluginConfig:
    return PluginConfig(kind="weighted", settings={"scorers": scorers})


def dying(routing: PluginConfig, instances: int = 3) -> Experiment:
    made = experiment(instances=instances)
    cluster = replace(made.cluster, failures=(failure(instance=0, at_us=1000, repair_us=100),))
    return replace(made, cluster=cluster, policy=replace(made.policy, routing=routing))


def routed(made: Experiment, **prompt: object) -> list[tuple[int, str]]:
    """Where each of a few requests goes, one after the other; instance 0 dies after the second and comes back."""
    requests = [request(i, i * 600, 20, 2, segments=SHARED) for i in range(4)]
    for one in requests:
        one.session_id = "s"
    return [
        (record.instance, record.reason) for record in Outcome(made, requests).records if isinstance(record, Routed)
    ]


@pytest.mark.parametrize("only", [1])
def test_prefix_affinity_forgets_what_was_cached(only: int) -> None:
    affinity = PluginConfig(kind="prefix-affinity", settings={"weight": 1.0, "capacity_blocks": 100})
    ways = routed(dying(weighted(affinity), only))
    assert [reason for _, reason in ways] == [
        "score 0.000000",
        "score 0.800000",
        "score 0.000000",
        "score 0.800000",
    ]


def test_sessions_forget_their_home() -> None:
    ways = routed(dying(PluginConfig(kind="session-affinity"), 1))
    assert [reason for _, reason in ways] == ["load 0", "session s", "load 0", "session s"]


def test_who_comes_back_never_had_a_cold_prompt() -> None:
    cold = PluginConfig(kind="no-hit-lru", settings={"weight": 1.0})
    made = dying(weighted(cold))
    requests = [request(i, i * 600, 20, 2) for i in range(5)]
    ways = [record.instance for record in Outcome(made, requests).records if isinstance(record, Routed)]
    assert ways == [0, 1, 0, 2, 1]
