"""The radix tree against a model of it that is a list of prompts, and ``sglang`` in random worlds."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from blis_tui.base.errors import StalledError
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS
from blis_tui.cluster.state import digest
from blis_tui.engine.records import Observers
from blis_tui.engine.request import RequestState
from blis_tui.engine.sglang.radix_tree import RadixTree
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, experiment, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request
    from blis_tui.engine.sglang.radix_tree import Node
    from blis_tui.model import Setting

WORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=4)
"""A prompt: parts of some length, of one of three kinds each."""


def keys(parts: Sequence[tuple[int, int]]) -> tuple[range, ...]:
    """As ``PromptKeys`` makes them: a number for the parts so far, and the place."""
    found, chain, place = [], 1, 0
    for kind, length in parts:
        chain = chain * 3 + kind
        found.append(range((chain << 32) + place, (chain << 32) + place + length))
        place += length
    return tuple(found)


def flat(parts: Sequence[range]) -> list[int]:
    return [key for part in parts for key in part]


def common(left: Sequence[int], right: Sequence[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def path(node: Node) -> list[int]:
    """Everything up to a node."""
    found: list[int] = []
    up: Node | None = node
    while up is not None:
        found = flat(up.keys) + found
        up = up.parent
    return found


@given(st.lists(st.tuples(st.sampled_from(["insert", "match", "hold", "let go", "evict", "copy"]), WORDS), max_size=40))
def test_the_tree_finds_what_was_put_in_and_evicts_the_oldest_leaf_that_nobody_holds(
    moves: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    tree, known = RadixTree(), [[]]  # type: ignore[var-annotated]
    for owner, (move, words) in enumerate(moves):
        prompt = keys(words)
        longest = max(common(flat(prompt), one) for one in known)
        if move == "insert":
            node, found = tree.insert(prompt)
            assert (path(node), found) == (flat(prompt), longest)
            known.append(flat(prompt))
        elif move in ("match", "hold"):
            assert tree.length(prompt) == longest
            node, found = tree.match(prompt)
            assert (path(node), found) == (flat(prompt)[:longest], longest)
            if move == "hold":
                tree.hold(owner, node)
        elif move == "let go" and tree.holders:
            tree.let_go(next(iter(tree.holders)))
        elif move == "evict":
            leaves = [one for one in tree.nodes() if not one.children and not one.references]
            oldest = min(leaves, key=lambda leaf: leaf.used, default=None)
            gone = [] if oldest is None else path(oldest)
            assert tree.evict() == (0 if oldest is None else oldest.blocks)
            kept = [] if oldest is None else gone[: len(gone) - oldest.blocks]
            known = [kept if one[: len(gone)] == gone and gone else one for one in known]
        elif move == "copy":
            before, tree = tree.state(), pickle.loads(pickle.dumps(tree))  # noqa: S301  (our own)
            assert tree.state() == before
        assert tree.audit() == ""
        everything = {tuple(one[: at + 1]) for one in known for at in range(len(one))}
        assert tree.idle + tree.held == len(everything)


Row = tuple[int, int, int, int, int, int]
"""Arrival, shared tokens, all tokens of the prompt, of the answer, deadline, and what is declared beyond the answer,
-1 = its end is ignored."""


def made_of(index: int, row: Row) -> Request:
    now, shared, tokens, output, deadline_us, beyond = row
    segments = (("shared", shared),) if shared else ()
    made = request(index, now, tokens, output, segments=segments, deadline_us=deadline_us)
    made.max_output_tokens += max(0, beyond)
    made.ignore_eos = beyond < 0
    return made


World: TypeAlias = "tuple[dict[str, Setting], str, dict[str, int | bool], list[Row]]"
"""Settings of the rule, the order of the queue, limits, and the requests."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    chunk = draw(st.sampled_from([8, 24, 64, 0]))
    chosen: dict[str, Setting] = {
        "chunked_prefill_size": chunk or "none",
        "max_prefill_tokens": draw(st.sampled_from([16, 200])),
        "schedule_conservativeness": draw(st.sampled_from([0.02, 0.3, 1.0])),
        "enable_mixed_chunk": bool(chunk) and draw(st.booleans()),
        "overlap_schedule": draw(st.booleans()),
        "scheduler_recv_interval": draw(st.sampled_from([1, 1, 4])),
    }
    limits: dict[str, int | bool] = {
        "block_size": draw(st.sampled_from([1, 1, 4])),
        "max_num_seqs": draw(st.integers(2, 6)),
        "caching": draw(st.integers(0, 4)) > 0,
    }
    limits["blocks"] = -(-draw(st.integers(60, 140)) // int(limits["block_size"]))
    requests: list[Row] = []
    now = 0
    for _ in range(draw(st.integers(2, 10))):
        now += draw(st.sampled_from([0, 40, 300, 2500]))
        shared = draw(st.sampled_from([0, 0, 10, 20]))
        tokens, output = shared + draw(st.integers(1, 20)), draw(st.integers(1, 20))
        deadline_us = now + draw(st.sampled_from([400, 1500])) if draw(st.integers(0, 3)) == 0 else 0
        requests.append((now, shared, tokens, output, deadline_us, draw(st.sampled_from([-1, 0, 3]))))
    return chosen, draw(st.sampled_from(["fcfs", "lof", "lpm", "priority-fcfs"])), limits, requests


ENDING_SOON: Final = ((1, 400), (1, 0), (3, 0), (1, 400), (1, 0), (1, 0), (1, 400))
"""Tokens of answers, and deadlines."""


def mixing(block_size: int, blocks: int, seqs: int, rows: list[Row], *, overlap: bool) -> World:
    """A world in which requests whose end is ignored are mixed with decodes, and nothing is cached."""
    chosen: dict[str, Setting] = {
        "chunked_prefill_size": 8,
        "max_prefill_tokens": 16,
        "schedule_conservativeness": 0.02,
        "enable_mixed_chunk": True,
        "overlap_schedule": overlap,
        "scheduler_recv_interval": 1,
    }
    return chosen, "fcfs", {"block_size": block_size, "max_num_seqs": seqs, "caching": False, "blocks": blocks}, rows


def test_a_retracted_request_for_which_sglang_would_wait_forever_is_an_error_that_says_so() -> None:
    chosen: dict[str, Setting] = {
        "chunked_prefill_size": 24,
        "max_prefill_tokens": 16,
        "schedule_conservativeness": 0.3,
    }
    made = experiment(batching="sglang", settings=chosen, block_size=4, max_num_seqs=3, blocks=9, caching=False)
    rows: list[Row] = [(40, 0, 12, 17, 0, 0), (340, 0, 8, 20, 0, -1)]
    requests = [made_of(index, row) for index, row in enumerate(rows)]
    cluster = Cluster(made, ListSource(requests), RequestLog(detours=False), Observers())
    with pytest.raises(StalledError, match="request 1 needs 13 more tokens") as error:
        cluster.run(1000)
    # Its 8 + 5 tokens take 4 of the 9 blocks, one more is kept free: 16 tokens for the 15 to come, and SGLang wants 17.
    assert "would wait forever" in (error.value.help or "")
    assert requests[0].state is RequestState.COMPLETED
    assert requests[1].generated_tokens == 5


def _goes_on(cluster: Cluster) -> bool:
    """Process one event. Worlds in which SGLang itself would not go on are left out, after a look at whether it would.

    It stops where the next chunk of a split prompt finds too few blocks. It waits forever for the request at the head
    if even with nothing else in the cache, no more than one token would be left beside all that it may generate.
    """
    try:
        return cluster.run(1) > 0
    except StalledError as error:
        help_text = error.help or ""
    (batch,) = (instance.batch for instance in cluster.instances)
    if "SGLang itself stops here" in help_text:
        assert batch.pool.free < 0
    else:
        assert "would wait forever" in help_text
        assert not batch.running
        assert batch.pool.free == batch.pool.total
        head, size = batch.waiting.head(), batch.limits.block_size_tokens
        left = (batch.pool.total - 1 - -(-head.target_tokens // size)) * size
        assert left - (head.max_output_tokens - head.generated_tokens) <= 1
    return assume(condition=False)


@settings(max_examples=60, deadline=None)
@given(worlds())
# A prompt that was split at a block leaves some of the chunk, which must not split a second one.
@example(mixing(4, 15, 4, [*[(0, 0, 1, 1, 0, -1)] * 4, (0, 0, 5, 1, 0, 0), (0, 0, 3, 1, 0, -1)], overlap=True))
# A request that is never admitted, since too little would be left at its end, must not hold up the others.
@example(mixing(4, 15, 2, [(0, 20, 37, 15, 400, -1), (0, 0, 1, 1, 0, -1)], overlap=False))
# Who has ended with its first token is of no account to the next step, whether or not that was looked at already.
@example(mixing(1, 60, 2, [(0, 0, 1, tokens, at, -1) for tokens, at in ENDING_SOON], overlap=False))
def test_everything_adds_up_after_every_event_and_a_copy_goes_on_alike(
    world: World,
) -> None:
    chosen, scheduling, limits, rows = world
    requests = [made_of(index, row) for index, row in enumerate(rows)]
    made = experiment(batching="sglang", settings=chosen, scheduling=scheduling, **limits)  # type: ignore[arg-type]
    cluster = Cluster(made, ListSource(requests), RequestLog(detours=False), Observers())
    copied: Cluster | None = None
    events = 0
    while _goes_on(cluster):
        events += 1
        assert events < 5000
        for invariant in INVARIANTS:
            assert invariant.verdict(cluster) == ""
        if events == 20:
            copied = pickle.loads(pickle.dumps(cluster))  # noqa: S301  (our own)
    ended = (RequestState.COMPLETED, RequestState.TIMED_OUT, RequestState.DROPPED_UNSERVABLE)
    assert all(one.state in ended for one in requests)
    (instance,) = cluster.instances
    assert instance.pool.free == instance.pool.total
    if copied is not None:
        copied.run(5000)
        assert digest(copied) == digest(cluster)
