"""Finding keys by a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blis_tui.spec.authoring.explain import Value, as_list, search


def paths(text: str) -> list[str]:
    return [key.dotted for _, key in search(text)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("rate", "workload.rate_per_s"),
        ("max_num_seqs", "engine.max_num_seqs"),
        ("--max-num-seqs", "engine.max_num_seqs"),
        ("qps", "workload.rate_per_s"),
        ("tp", "cluster.tensor_parallel"),
        ("prefix", "workload.clients.prefix"),
        ("watermark", "policy.batching.watermark"),
        ("kv cache", "engine.kv_cache_dtype"),
        ("sjf", "policy.scheduling.kind"),
    ],
)
def test_the_best_match_comes_first(text: str, first: str) -> None:
    assert paths(text)[0] == first


def test_names_come_before_descriptions_and_nothing_comes_twice() -> None:
    found = paths("prefix")
    assert found.index("engine.enable_prefix_caching") < found.index("workload.clients.input_tokens")
    assert len(found) == len(set(found))
    assert "workload.clients.output_tokens" not in paths("tp")  # letters within a word are no match


@pytest.mark.parametrize("text", ["zzz", "", ".", "`", "x" * 1000])
def test_nothing_is_found_for_what_is_nowhere(text: str) -> None:
    assert paths(text) == []


def test_the_list_is_short() -> None:
    lines = as_list("tokens", search("tokens")).splitlines()
    assert len(lines) == 2 + 12 + 1
    assert max(map(len, lines)) <= 100
    assert lines[-1].startswith("  ... and ")


def test_a_value_of_many_keys_says_how_many_more() -> None:
    value = Value("gamma", "Gaps.", tuple(f"a.{number}" for number in range(7)), ())
    assert value.to_text().startswith("gamma: a value of `a.0`, `a.1`, `a.2`, `a.3`, `a.4` and 2 more keys\n")
    assert replace(value, paths=("a", "b")).to_text().startswith("gamma: a value of `a` and `b`\n")
