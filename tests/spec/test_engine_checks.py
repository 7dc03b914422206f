"""Experiments with measured operators: which tables they get, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.spec.build import build_experiment
from blis_tui.spec.operator_files import table_digest
from blis_tui.spec.shipped import shipped_specs


def shipped(name: str) -> dict[str, Any]:
    """A model's document as it ships."""
    found: dict[str, Any] = yaml.safe_load((shipped_specs() / "models" / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


SCOUT = "llama-4-scout-17b-16e-instruct-fp8-dynamic"
OPERATORS = {"latency": {"kind": "operators"}, "expect": []}


def test_hardware_chooses_the_tables_and_the_document_pins_them() -> None:
    made = blis_tui.load("steady-chat", set=OPERATORS)
    latency = made.pools[0].latency.settings
    assert latency["tables"] == "h100"
    assert latency["tables_sha256"] == table_digest("h100")
    assert made.pools[0].operators is not None


def test_tables_that_changed_are_refused() -> None:
    document = dict(blis_tui.load("steady-chat", set=OPERATORS).document)
    document["latency"] = {**document["latency"], "tables_sha256": "0" * 64}  # type: ignore[dict-item]
    with pytest.raises(InputError, match="not the recorded ones"):
        build_experiment(document)


@pytest.mark.parametrize(
    ("model", "sampling"),
    [("mistral-nemo-instruct-2407", "plain"), ("qwen3-14b", "top-p"), ("qwen2.5-7b-instruct", "penalties")],
)
def test_the_models_generation_config_says_how_tokens_are_sampled(model: str, sampling: str) -> None:
    made = blis_tui.load("steady-chat", set={**OPERATORS, "model": model})
    assert made.pools[0].latency.settings["sampling"] == sampling
    assert "generation_config" not in made.document["model"]  # type: ignore[operator]


@pytest.mark.parametrize("name", ["deepseek-v2-lite", "llama-3.1-8b-instruct", "qwen3-14b", "qwen3-30b-a3b", SCOUT])
def test_a_model_whose_document_does_not_say_samples_as_its_family_does(name: str) -> None:
    """The shipped documents of those families do say it."""
    inline = {key: value for key, value in shipped(name).items() if key != "generation_config"}
    four = {**OPERATORS, "cluster.tensor_parallel": 4}
    made = [blis_tui.load("steady-chat", set={**four, "model": one}) for one in (name, inline)]
    assert [one.pools[0].latency.settings["sampling"] for one in made] == ["top-p", "top-p"]


def test_of_other_families_nothing_is_assumed() -> None:
    """Models of the type ``qwen2`` do not sample alike."""
    inline = {key: value for key, value in shipped("qwen2.5-7b-instruct").items() if key != "generation_config"}
    made = blis_tui.load("steady-chat", set={**OPERATORS, "model": inline})
    assert made.pools[0].latency.settings["sampling"] == "plain"


def test_what_a_model_says_of_sampling_counts_more_than_its_family() -> None:
    inline = {key: value for key, value in shipped("qwen3-14b").items() if key != "generation_config"}
    for one, sampling in ((inline, "top-p"), ({**inline, "generation_config": {}}, "plain")):
        made = blis_tui.load("steady-chat", set={**OPERATORS, "model": one})
        assert made.pools[0].latency.settings["sampling"] == sampling


def test_each_pool_gets_the_tables_of_its_own_hardware() -> None:
    made = blis_tui.load("mixed-fleet", set=OPERATORS)
    names = {pool.hardware.name: pool.latency.settings["tables"] for pool in made.pools}
    assert len(names) > 1
    assert all(name.startswith(str(tables)) for name, tables in names.items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hardware": "a10g"}, "no operators were measured on a10g"),
        ({"latency.tables": "h1000"}, "no operator tables are named `h1000`"),
        ({"model.config.torch_dtype": "float32"}, "no operators of 4-byte numbers were measured"),
    ],
)
def test_what_the_tables_do_not_cover_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(blis_tui.SpecError) as caught:
        blis_tui.load("steady-chat", set={**OPERATORS, **settings})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "BLIS2011"
    assert diagnostic.message == message
    assert diagnostic.help
