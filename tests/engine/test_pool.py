"""The block pool: order of reuse, sharing, and books that always balance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.base.errors import SimulationError
from blis_tui.engine.kv.keys import MAX_SHARED_BLOCKS, PromptKeys
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.request import Request
from tests.builders import request


def make_pool(total: int = 10, size: int = 4) -> BlockPool:
    return BlockPool(total, size, PromptKeys(size))


def compute(pool: BlockPool, one: Request, tokens: int) -> None:
    pool.extend(one, tokens)
    one.computed_tokens = tokens


def prompt(index: int, tokens: int, shared: int = 0) -> Request:
    return request(index, 0, tokens, 1, segments=(("s", shared),) if shared else ())


def test_tokens_fill_the_last_block_before_a_new_one_is_taken() -> None:
    pool = make_pool()
    one = prompt(0, 9)
    assert pool.missing(one, 5) == 2
    compute(pool, one, 5)
    assert (pool.used, pool.missing(one, 8), pool.missing(one, 9)) == (2, 0, 1)


def test_only_full_blocks_within_the_shared_head_can_be_found() -> None:
    pool = make_pool()
    compute(pool, prompt(0, 12, shared=10), 12)
    assert pool.cached_prefix(prompt(1, 12, shared=10), 3) == 2
    assert pool.cached_prefix(prompt(1, 12, shared=10), 1) == 1
    assert pool.cached_prefix(prompt(1, 12), 3) == 0


def test_shared_blocks_outlive_their_first_holder_until_they_are_reused() -> None:
    pool = make_pool(total=4)
    first = prompt(0, 8, shared=8)
    compute(pool, first, 8)
    pool.release(first, first.computed_tokens)
    assert (pool.free, pool.cached_free()) == (4, 2)
    pool.take(2)  # the two that were never used come first
    assert pool.cached_prefix(prompt(1, 8, shared=8), 2) == 2
    pool.take(1)  # then the last block of the prompt
    assert pool.cached_prefix(prompt(1, 8, shared=8), 2) == 1


def test_pinning_takes_idle_blocks_out_of_the_free_order() -> None:
    pool = make_pool(total=4)
    first, second = prompt(0, 8, shared=8), prompt(1, 8, shared=8)
    compute(pool, first, 8)
    pool.release(first, first.computed_tokens)
    assert pool.idle_among(second, 2) == 2
    pool.pin(second, 2)
    assert (pool.free, pool.hits, second.held_blocks) == (2, 2, 2)
    third = prompt(2, 8, shared=8)
    assert pool.idle_among(third, 2) == 0
    pool.pin(third, 2)
    assert pool.free == 2
    assert pool.audit([(second, 2), (third, 2)]) == ""


def test_requests_with_one_prefix_hold_it_as_one() -> None:
    pool = make_pool()
    first, *others = (prompt(index, 8, shared=8) for index in range(4))
    compute(pool, first, 8)
    for one in others:
        assert pool.idle_among(one, 2) == 0
        pool.pin(one, 2)
        one.computed_tokens = 8
    assert [one.pieces for one in others] == [first.pieces] * 3
    assert [one.shared_blocks for one in (first, *others)] == [2] * 4
    assert (pool.hits, pool.free) == (6, 8)
    assert pool.audit([(one, 2) for one in (first, *others)]) == ""
    for number, one in enumerate((others[1], first, others[0], others[2]), 1):
        assert pool.free == 8
        pool.release(one, one.computed_tokens)
        assert pool.audit([(one, 2) for one in (others[1], first, others[0], others[2])[number:]]) == ""
    assert (pool.free, pool.cached_free()) == (10, 2)


def test_what_is_held_together_is_not_given_to_the_next_when_a_newer_copy_would_be_found() -> None:
    pool = make_pool()
    first, second, third, fourth = (prompt(index, 8, shared=8) for index in range(4))
    compute(pool, first, 8)
    pool.pin(third, 2)
    third.computed_tokens = 8
    compute(pool, second, 8)
    pool.pin(fourth, 2)
    fourth.computed_tokens = 8
    assert third.pieces == first.pieces
    assert fourth.pieces == second.pieces != first.pieces
    for one in (fourth, third, second, first):
        pool.release(one, one.computed_tokens)
    assert pool.audit([]) == ""
    assert (pool.free, pool.cached_free()) == (10, 4)


def test_a_prefix_of_more_blocks_than_memory_could_hold_is_refused() -> None:
    keys = PromptKeys(1)
    assert len(keys.shareable((("s", MAX_SHARED_BLOCKS),))) == MAX_SHARED_BLOCKS
    with pytest.raises(SimulationError, match="1048577 KV blocks"):
        keys.shareable((("s", MAX_SHARED_BLOCKS + 1),))


def test_the_newest_of_equal_blocks_is_found_and_the_older_one_when_it_is_gone() -> None:
    pool = make_pool(total=4)
    first, second = prompt(0, 4, shared=4), prompt(1, 4, shared=4)
    compute(pool, first, 4)
    compute(pool, second, 4)  # side by side: the same content twice
    pool.release(second, second.computed_tokens)
    pool.take(3)  # forgets the second's block, the newer one
    assert pool.cached_prefix(prompt(2, 4, shared=4), 1) == 1
    pool.release(first, first.computed_tokens)
    pool.take(1)
    assert pool.cached_prefix(prompt(2, 4, shared=4), 1) == 0


def test_a_preempted_request_finds_its_own_blocks_again_first_ones_last_to_go() -> None:
    pool = make_pool(total=4)
    one = prompt(0, 14)
    compute(pool, one, 14)
    one.preemptions = 1
    pool.release(one, one.computed_tokens, findable=True)
    one.computed_tokens = 0
    assert pool.cached_prefix(one, 3) == 3
    pool.take(1)  # the half-filled block
    assert pool.cached_prefix(one, 3) == 3
    pool.take(1)
    assert pool.cached_prefix(one, 3) == 2


def test_content_that_was_granted_but_never_computed_is_not_found() -> None:
    pool = make_pool()
    one = prompt(0, 8, shared=8)
    compute(pool, one, 4)
    pool.extend(one, 8)
    one.preemptions = 1
    pool.release(one, one.computed_tokens, findable=True)
    assert pool.cached_prefix(prompt(1, 8, shared=8), 2) == 1
    assert pool.audit([]) == ""


def test_an_audit_notices_books_that_do_not_balance() -> None:
    pool = make_pool()
    one = prompt(0, 8, shared=8)
    compute(pool, one, 8)
    assert "references" in pool.audit([]) or "blocks are not" in pool.audit([])
    assert "counts 1 references, 2 are held" in pool.audit([(one, 2), (one, 2)])
    pool.free -= 1
    assert "stand in the free order" in pool.audit([(one, 2)])


def test_keys_depend_on_the_chain_of_segments_before() -> None:
    keys = PromptKeys(4)
    same = keys.shareable((("a", 6), ("b", 6)))
    assert keys.shareable((("a", 6), ("b", 10)))[:3] == same
    assert keys.shareable((("a", 7), ("b", 5)))[1:] != same[1:]
    assert keys.shareable((("a", 7), ("b", 5)))[0] == same[0]
    assert len({*same, *keys.shareable((("b", 12),))}) == 6


def test_without_prefix_caching_nothing_is_found_again() -> None:
    pool = BlockPool(10, 4, PromptKeys(4), caching=False)
    first, second = prompt(0, 12, shared=8), prompt(1, 12, shared=8)
    compute(pool, first, 12)
    assert pool.cached_prefix(second, 3) == 0
    first.preemptions = 1
    pool.release(first, first.computed_tokens, findable=True)
    assert (pool.cached_prefix(first, 3), pool.cached_prefix(second, 3)) == (0, 0)
    assert (pool.free, pool.cached_free(), pool.audit([])) == (10, 0, "")


def test_what_has_been_delivered_is_seen_while_a_step_here_computes_the_same() -> None:
    pool = make_pool()
    pool.track_pending()
    here, elsewhere, asking = (prompt(index, 8, shared=8) for index in range(3))
    compute(pool, here, 8)
    pool.computed(100, 200)
    pool.hold(elsewhere, 8)
    assert pool.visible_head(asking.segments, 150) == 0
    compute(pool, elsewhere, 8)
    pool.publish_transferred(elsewhere)
    assert pool.visible_head(asking.segments, 150) == 2


def found(pool: BlockPool, blocks: int) -> int:
    """How many leading blocks a prompt of so many finds."""
    return pool.cached_prefix(prompt(99, 4 * blocks, shared=4 * blocks), blocks)


def test_part_of_a_long_prefix_is_held_and_the_rest_is_taken_first() -> None:
    pool = make_pool(total=8)
    first, second = prompt(0, 32, shared=32), prompt(1, 32, shared=32)
    compute(pool, first, 32)
    pool.release(first, first.computed_tokens)
    pool.pin(second, 3)
    second.computed_tokens = 12
    assert (pool.free, pool.cached_free(), second.shared_blocks) == (5, 5, 3)
    pool.take(2)
    assert (found(pool, 8), pool.audit([(second, 3), (prompt(2, 8), 2)])) == (6, "")
    pool.release(second, second.computed_tokens)
    pool.take(3)
    assert (found(pool, 8), pool.cached_free()) == (3, 3)


def test_chunks_of_a_prompt_are_held_as_one_unless_others_hold_some_of_it() -> None:
    pool = make_pool(total=20)
    first, second = prompt(0, 32, shared=32), prompt(1, 32, shared=32)
    for tokens in (8, 16):
        compute(pool, first, tokens)
    assert [piece.blocks for piece in first.pieces] == [4]
    pool.pin(second, 4)
    second.computed_tokens = 16
    compute(pool, first, 32)
    compute(pool, second, 32)
    assert [piece.blocks for piece in first.pieces] == [piece.blocks for piece in second.pieces] == [4, 4]
    assert (pool.shared_prefix_blocks(first), pool.shared_prefix_blocks(second)) == (4, 4)
    assert pool.audit([(first, 8), (second, 8)]) == ""
    pool.release(first, first.computed_tokens)
    assert (pool.used, pool.audit([(second, 8)])) == (8, "")


@pytest.mark.parametrize("as_vllm", [False, True])
def test_copies_of_different_lengths_are_taken_apart(as_vllm: bool) -> None:
    pool = BlockPool(12, 4, PromptKeys(4), as_vllm=as_vllm)
    long, short, other = prompt(0, 24, shared=24), prompt(1, 12, shared=12), prompt(2, 20, shared=20)
    compute(pool, long, 24)
    compute(pool, short, 12)  # side by side: the first three blocks twice
    pool.release(long, long.computed_tokens)
    pool.take(5)  # the three that were never used, and the end of the long one's
    assert (found(pool, 6), pool.audit([(short, 3), (prompt(3, 20), 5)])) == (4, "")
    pool.pin(other, 4)
    assert pool.audit([(short, 3), (other, 4), (prompt(3, 20), 5)]) == ""
    pool.release(short, short.computed_tokens)
    pool.take(pool.free)
    assert found(pool, 6) == 4


def test_what_comes_back_from_below_stays_behind_the_head_even_if_a_copy_of_that_is_taken() -> None:
    pool = make_pool(total=7)
    one, copy = prompt(0, 20, shared=20), prompt(1, 12, shared=12)
    compute(pool, copy, 12)
    compute(pool, one, 12)
    pool.release(copy, copy.computed_tokens)
    pool.release(one, one.computed_tokens)
    keys = pool.keys_after(one, 3, 5)
    pool.restore_blocks(one, 3, keys)  # into one block that was never used, and the last one of the copy's
    assert (pool.free, pool.cached_free(), pool.audit([])) == (7, 7, "")
    pool.take(2)
    assert (found(pool, 5), pool.audit([(prompt(2, 8), 2)])) == (5, "")
    pool.take(4)
    assert found(pool, 5) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 11), st.integers(1, 24), st.integers(0, 5)), max_size=40))
def test_what_a_request_holds_of_a_shared_prompt_is_found_by_all_others(
    moves: list[tuple[bool, int, int, int]],
) -> None:
    """Requests come and go; those that are there hold the head of one of two prompts, and newcomers find all of it."""
    pool = make_pool(total=16)
    running: list[tuple[Request, int]] = []
    for number, (comes, which, tokens, blocks) in enumerate(moves):
        if not comes and running:
            gone, computed = running.pop(which % len(running))
            pool.release(gone, min(gone.computed_tokens, computed))
        else:
            one = request(number, 0, tokens, 1, segments=((f"prompt {which % 2}", tokens),))
            found = pool.cached_prefix(one, blocks)
            if pool.idle_among(one, found) + pool.missing(one, tokens) <= pool.free:
                pool.pin(one, found)
                one.computed_tokens = found * 4
                compute(pool, one, tokens)
                running.append((one, tokens))
        assert pool.audit([(one, one.held_blocks) for one, _ in running]) == ""
        for one, tokens_there in running:
            again = request(1000, 0, tokens_there, 1, segments=one.segments)
            assert pool.cached_prefix(again, 99) == tokens_there // 4
