"""Short forms mean the same as the long ones, wherever they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.spec.authoring.key_tree import root
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\n"
LONG = HEAD + (
    "model: qwen3-14b\nhardware: h100\nlatency: {kind: trained-physics}\n"
    "workload:\n  requests: 9\n  rate_per_s: 1\n  clients:\n"
    "    - id: a\n      arrivals: {kind: gamma}\n"
    "      input_tokens: {kind: constant, value: 30}\n      output_tokens: {kind: constant, value: 100}\n"
    "policy: {scheduling: {kind: sjf}, batching: {kind: vllm-v1}}\n"
)
SHORT = HEAD + (
    "model: qwen3-14b\nhardware: h100\nlatency: trained-physics\n"
    "workload:\n  requests: 9\n  rate_per_s: 1\n  clients:\n"
    "    - id: a\n      arrivals: gamma\n      input_tokens: 30\n      output_tokens: 1e2\n"
    "policy: {scheduling: sjf, batching: vllm-v1}\n"
)


def test_a_word_is_that_kind_and_a_number_a_constant_length() -> None:
    assert load("-", stdin_text=SHORT).sha256 == load("-", stdin_text=LONG).sha256


def test_overrides_are_short_and_reach_into_short_forms() -> None:
    changes = ["workload.clients.0.arrivals=gamma", "workload.clients.0.arrivals.cv=2", "policy.scheduling=fcfs"]
    long = ["workload.clients.0.arrivals.cv=2", "policy.scheduling.kind=fcfs"]
    text = SHORT.replace("arrivals: gamma", "arrivals: poisson")
    assert load("-", stdin_text=text, overrides=changes).sha256 == load("-", stdin_text=LONG, overrides=long).sha256


def test_words_in_a_list_are_short_forms_too() -> None:
    long = ["policy.routing={kind: weighted, scorers: [{kind: queue-depth}, {kind: kv-utilization, weight: 2}]}"]
    short = ["policy.routing={kind: weighted, scorers: [queue-depth, {kind: kv-utilization, weight: 2}]}"]
    assert load("-", stdin_text=SHORT, overrides=short).sha256 == load("-", stdin_text=LONG, overrides=long).sha256


def test_extends_merges_a_map_with_what_a_short_form_stands_for(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SHORT)
    (tmp_path / "top.yaml").write_text(HEAD + "extends: base.yaml\npolicy: {batching: {watermark: 0.1}}\n")
    batching = load(tmp_path / "top.yaml").policy.batching
    assert (batching.kind, batching.settings["watermark"]) == ("vllm-v1", 0.1)
    (tmp_path / "top.yaml").write_text(HEAD + "extends: base.yaml\npolicy: {batching: blis}\n")
    assert load(tmp_path / "top.yaml").policy.batching.kind == "blis"


def test_origins_are_where_the_short_form_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    origins = compose("./mine.yaml").origins
    assert origins["latency", "kind"] == "mine.yaml:6"
    assert origins["workload", "clients", 0, "input_tokens", "value"] == "mine.yaml:13"


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("sjf", "fifo", "unknown value `fifo`", "did you mean `fcfs`?"),
        (
            "input_tokens: 30",
            "input_tokens: normal",
            "expected a map or a whole number, found the text `normal`",
            "write it like `{kind: gaussian, mean: 256, std_dev: 100, min: 2, max: 800}`",
        ),
        (
            "input_tokens: 30",
            "input_tokens: 2.5",
            "expected a map or a whole number, found the number `2.5`",
            "write it like `{kind: constant, value: 256}`",
        ),
        (
            "input_tokens: 30",
            "input_tokens: 0",
            "`input_tokens` must be at least 1, found `0`",
            "a distribution of token counts; a plain number is a fixed count",
        ),
    ],
)
def test_what_is_no_short_form_shows_the_line_to_write(old: str, new: str, message: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("-", stdin_text=SHORT.replace(old, new))
    assert [(diagnostic.message, diagnostic.help) for diagnostic in caught.value.diagnostics] == [(message, hint)]


@pytest.mark.parametrize("kind", ["Experiment", "Policy", "Workload"])
def test_every_map_with_a_kind_has_a_short_form(kind: str) -> None:
    """So that the rule is one rule: a word where all kinds have default settings, a number for lengths and ratios."""
    for key in root(kind).walk():
        if key.variants and "kind" in key.children and key.path:
            needed = [any(one.required for one in variant.keys.values()) for variant in key.variants]
            plain = not any(needed) or key.name in ("kv_tiers", "latency", "rule")  # all but few may stand alone there
            alone = "list of maps, or their kinds alone" if key.is_list else "map, or its kind alone"
            number = "map or number" if key.name == "ratio" else "map or whole number"
            assert key.type == (alone if plain else number), key.dotted
