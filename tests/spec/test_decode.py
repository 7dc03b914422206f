"""Resolved documents -> experiments: nothing that a document says is lost, and nothing wrong is taken."""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, cast

import pytest

from blis_tui import model
from blis_tui.base.errors import InputError
from blis_tui.model.keys import Key, keys_of
from blis_tui.spec.build import build_experiment
from blis_tui.spec.definitions import DEFINITIONS
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.source import DataPath

COMPUTED = {
    "Autoscaler": {"bounds"},
    "Gateway": {"tick_us"},
    "Hardware": {"name", "host_link_gb_per_s", "interconnect_gb_per_s"},
    "Policy": {"name"},
    "Pool": {"operators"},
    "Trace": {"path", "tokenizer"},
    "Workload": {"name"},
    "Experiment": {"name", "description", "course", "pools", "sha256", "document", "plugins"},
}
"""Fields of records that no single key of a document says."""
NOT_WRITTEN = {"AdapterMix", "Budget", "KvTiers", "LinearLayers", "Model", "PluginConfig"}
"""Records that are worked out from something else."""


def records() -> Iterator[type]:
    for one in map(vars(model).__getitem__, model.__all__):
        if isinstance(one, type) and is_dataclass(one) and one.__name__ not in NOT_WRITTEN:
            yield one


@pytest.mark.parametrize("record", list(records()), ids=lambda one: one.__name__)
def test_every_field_says_its_key(record: type) -> None:
    silent = {field.name for field in fields(record) if "key" not in field.metadata}
    assert silent == COMPUTED.get(record.__name__, set())


def test_every_record_is_part_of_a_schema() -> None:
    def reached(kind: type) -> Iterator[type]:
        yield kind
        for key, _ in keys_of(kind).values():
            kinds = key.kind if isinstance(key.kind, tuple) else (key.kind,)
            entries = [each.kind for each in key.kind.values()] if isinstance(key.kind, dict) else []
            for each in (*kinds, *entries):
                if isinstance(each, type) and each.__module__.startswith("blis_tui"):
                    yield from reached(each)

    roots = [
        definition.of for file in DEFINITIONS.values() for definition in file.values() if definition.of is not None
    ]
    assert set(records()) <= {kind for root in roots for kind in reached(root)}


# ---- whole experiments ----

EVERYTHING = {
    "cluster.signals": {"refresh_interval_us": 5},
    "cluster.lifecycle": {"warm_up_requests": 2},
    "policy.gateway": {"saturation": "never", "dispatch": "tick", "bands": True},
    "policy.tenant_budgets": {"fractions": {"acme": 0.5}},
    "slo_targets": {"batch": {"ttft_ms": 100}},
    "fitness": {"weights": {"throughput": 2}},
    "engine.lora": {"max_loras": 2},
    "engine.host_link": {},
    "workload.clients.0.network": {"rtt_ms": 3},
    "workload.clients.0.adapters": {"count": 3, "zipf": 1},
    "workload.clients.0.session": {"turns": 2, "calls": [{"id": "a"}]},
    "workload.clients.0.reasoning": {"ratio": 0.5},
    "workload.clients.0.multimodal": {"images": {"tokens": 10}},
}


@pytest.fixture(scope="module")
def document() -> Mapping[str, object]:
    return load("quickstart", overrides=EVERYTHING).document


def maps(value: object, path: DataPath = ()) -> Iterator[DataPath]:
    """The paths of all values in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from maps(part, (*path, key))


def changed(document: Mapping[str, object], path: DataPath, value: object) -> dict[str, object]:
    """A copy with another value at a path; without it where the value is None."""
    made: dict[str, object] = copy.deepcopy(dict(document))
    node: object = made
    for step in path[:-1]:
        node = cast("dict[str | int, object]", node)[step]
    if value is None:
        del cast("dict[str | int, object]", node)[path[-1]]
    else:
        cast("dict[str | int, object]", node)[path[-1]] = value
    return made


def test_a_value_of_another_type_anywhere_is_refused_or_read_by_nobody(document: Mapping[str, object]) -> None:
    refused = 0
    wrong: tuple[object, ...] = ({"never": {}}, None)
    for path in maps(document):
        for value in wrong:
            try:
                build_experiment(changed(document, path, value))
            except InputError:
                refused += 1
    assert refused > 150


def test_the_same_document_gives_the_same_experiment(document: Mapping[str, object]) -> None:
    one, two = build_experiment(document), build_experiment(copy.deepcopy(dict(document)))
    assert one == two
    assert (one.cluster.signals.refresh_interval_us, one.cluster.lifecycle) == (5, model.Lifecycle(warm_up_requests=2))
    gateway, client = one.policy.gateway, one.workload.clients[0]
    assert gateway is not None
    assert (gateway.dispatch, gateway.tick_us, gateway.bands) == ("tick", 1000, True)
    assert one.slo_targets == {"batch": model.SloTarget(ttft_ms=100.0)}
    assert one.fitness == {"throughput": 2.0}
    assert one.pools[0].engine.lora == model.Lora(max_loras=2, max_cpu_loras=2)
    assert one.pools[0].engine.host_link == model.HostLink()
    assert client.adapters is not None
    assert client.adapters.names == ("adapter-1", "adapter-2", "adapter-3")
    assert client.adapters.weights == pytest.approx((1, 1 / 2, 1 / 3))
    assert client.multimodal is not None
    assert client.multimodal.images is not None
    assert client.multimodal.images.tokens == model.PluginConfig(kind="constant", settings={"value": 10})


def test_keys_are_told_once() -> None:
    assert {type(key) for record in records() for key, _ in keys_of(record).values()} == {Key}


@pytest.mark.parametrize(
    ("rates", "each"),
    [((0.8, 0.4), (0.8, 0.5)), ((0.8, 0.0, 0.0), (0.8, 0.0, 0.0)), ((0.0,), (0.0,)), ((1.0, 1.0), (1.0, 1.0))],
)
def test_how_likely_each_draft_is_follows_from_how_many_are_accepted(
    rates: tuple[float, ...], each: tuple[float, ...]
) -> None:
    """The product of the first ones is the rate of that place; none follows one that is never accepted."""
    settings = model.Speculative(draft_tokens=len(rates), acceptance_rates=rates)
    assert settings.acceptance_probabilities == pytest.approx(each)
