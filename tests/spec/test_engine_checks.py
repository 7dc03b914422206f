"""Experiments with measured operators: which tables they get, and what is refused."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.errors import InputError
from blis_tui.spec.build import build_experiment
from blis_tui.spec.operator_files import table_digest

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
    (found,) = caught.value.diagnostics
    assert found.code == "BLIS2011"
    assert found.message == message
    assert found.help
