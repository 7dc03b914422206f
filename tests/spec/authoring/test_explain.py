"""Explanations of keys and codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.base.diagnostics import CODES
from blis_tui.spec.authoring import explain
from blis_tui.spec.authoring.explain import EXAMPLES, UnknownKeyError, as_data, as_text, look_up, overview
from blis_tui.spec.authoring.key_tree import root
from blis_tui.spec.schema import KINDS
from docs import make_reference as reference

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture


@pytest.mark.parametrize(
    "path",
    [
        "engine.max_num_seqs",
        "workload.clients.arrivals.kind",
        "policy.batching.watermark",
        "Hardware.mfu",
        "latency.beta",
    ],
)
def test_keys(path: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(as_text(*look_up(path)), extension=".txt")


def test_a_key_has_everything_that_its_schema_says() -> None:
    _, (key,) = look_up("engine.max_num_batched_tokens")
    assert (key.type, key.unit, key.default, key.range) == (
        "whole number or `auto`",
        "tokens",
        "auto",
        "1 to 1,000,000,000",
    )
    _, (kind,) = look_up("latency.kind")
    assert {choice.value: choice.description for choice in kind.choices}["roofline"].startswith("Derived from")
    _, (share,) = look_up("workload.clients.0.share")
    assert as_data("Experiment", [share])["default"] == 1.0  # type: ignore[index, call-overload]
    assert [key.only for key in look_up("workload.clients.arrivals.cv")[1]] == ["gamma", "weibull"]
    assert look_up("policy.batching.vllm-v1")[1][0].children["watermark"].default == 0.0


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("engine.max_num_seq", "did you mean `engine.max_num_seqs`?"),
        ("engine.max", "`engine.max_model_len` or `engine.max_num_batched_tokens` or `engine.max_num_seqs`?"),
        ("max_num_seqs", "did you mean `engine.max_num_seqs`?"),
        ("watermrk", "did you mean `policy.batching.watermark`?"),
        ("Hardware.mfo", "did you mean `Hardware.mfu`?"),
        ("engine.kv_blocks.x", "`engine.kv_blocks` has no keys below it"),
        ("zzzz", "known keys are `apiVersion`,"),
    ],
)
def test_an_unknown_key_is_near_a_known_one(path: str, hint: str) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        look_up(path)
    assert hint in str(caught.value.help)


def test_the_keys_of_expectations_are_those_of_both_kinds() -> None:
    """As an error about `expect.0.metric` leads to them."""
    _, (entry,) = look_up("expect.0")
    assert [*entry.children][:5] == ["metric", "min", "max", "equals", "always"]
    assert look_up("expect.0.metric")[1][0].examples[0] == "latency.ttft_ms.p99"
    assert look_up("expect.within")[1][0].type == "text"
    assert not [key for key in entry.children.values() if key.required]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_can_be_explained(kind: str) -> None:
    shown = overview(kind)
    for key in root(kind).walk():
        if key.path:
            assert f"{key.name}:" in shown or kind == "Experiment"
            assert key.description
            keys = look_up(f"{kind}.{key.dotted}")[1]
            assert key.name in [one.name for one in keys]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_a_plug_point_is_described(kind: str) -> None:
    bare = [
        f"{key.dotted} = {choice.value}"
        for key in root(kind).walk()
        if key.name == "kind" and len(key.path) > 1
        for choice in key.choices
        if not choice.description
    ]
    assert bare == []


@pytest.mark.parametrize("code", sorted(EXAMPLES))
def test_an_example_causes_its_code(code: str) -> None:
    explanation = explain.explain(code)
    assert f"[{code}]" in explanation.output
    assert explanation.example
    assert "/tmp" not in explanation.output  # noqa: S108


def test_every_code_has_an_example() -> None:
    assert CODES.keys() - EXAMPLES.keys() == {"BLIS1099", "BLIS2069"}, "add one to blis_tui/spec/authoring/explain.py"
    assert EXAMPLES.keys() <= CODES.keys()


def test_codes_may_be_written_shorter() -> None:
    assert explain.normal_code("blis1001") == explain.normal_code("1001") == "BLIS1001"
    with pytest.raises(explain.UnknownCodeError, match="there is no diagnostic code `BLIS9`"):
        explain.normal_code("BLIS9")


def test_the_text_of_a_code(file_regression: FileRegressionFixture) -> None:
    file_regression.check(explain.explain("BLIS1001").to_text(), extension=".txt")


def test_reference_pages_are_fresh() -> None:
    assert reference.stale() == [], "run `make docs`"
