"""Which name is meant by a misspelt one: slips of every kind, wherever they are, and no more than few."""

from __future__ import annotations

import pytest

from blis_tui.base.diagnostics import begin_alike, nearest


@pytest.mark.parametrize(
    "wrong",
    [
        *("worker", "wroker", "owrker", "workre"),  # two letters swapped: at the beginning, inside, at the end
        *("orker", "wrker", "worke", "xworker", "woxrker", "workerx", "xorker", "worxer", "workex"),
        *("owrxer", "worxre", "xowrker"),  # two slips in six letters, of which one is a swap
    ],
)
def test_two_slips_are_forgiven_in_six_letters(wrong: str) -> None:
    assert nearest(wrong, ["worker"]) == "worker"


@pytest.mark.parametrize("wrong", ["wxrxex", "wxxer", "owxxer", "worxxxer", "rekrow"])
def test_three_are_not(wrong: str) -> None:
    assert nearest(wrong, ["worker"]) is None


def test_fewer_slips_win() -> None:
    assert nearest("kv_blocs", ["kv_blobs", "kv_blocks", "kv_locks"]) in ("kv_blobs", "kv_blocks")
    assert nearest("workers", ["working", "worker", "walker"]) == "worker"


def test_short_words_need_their_first_letter() -> None:
    assert nearest("v100", ["h100"]) is None
    assert nearest("h10", ["h100"]) == "h100"


def test_words_may_be_in_another_order_or_lack() -> None:
    assert nearest("seqs_num_max", ["max_num_seqs", "max_model_len"]) == "max_num_seqs"
    assert nearest("num_seqs", ["max_num_seqs", "max_model_len"]) == "max_num_seqs"
    assert nearest("seqs", ["max_num_seqs"]) is None
    assert nearest("x" * 101, ["x" * 102]) is None


def test_names_that_begin_alike() -> None:
    assert begin_alike("prefix", ["prefix_caching", "prefix-length", "pre", "suffix"]) == [
        "prefix_caching",
        "prefix-length",
        "pre",
    ]
    assert begin_alike("pr", ["prefix"]) == []
