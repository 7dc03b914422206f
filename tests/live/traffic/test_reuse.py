"""What an infinite cache finds: counted token by token, and by the engine's own block keys."""

from itertools import takewhile
from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.api import load, run
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.request import Request, Segments
from blis_tui.live.traffic.ledger import InfiniteCache, Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.live.traffic.traffic_figures import describe

CHAINS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=4).map(tuple), min_size=1, max_size=12
)


def asking(segments: Segments, answer: int = 5, session: str = "", model: str = "") -> Request:
    """A request whose whole prompt consists of these segments."""
    tokens = sum(count for _, count in segments)
    return Request(0, "", 0, tokens, answer, tuple(segments), session_id=session, model=model)


def tokens_of(segments: Segments) -> list[object]:
    """Every token of a chain as something of its own: what came before it, its segment, its place there."""
    return [(segments[:at], name, place) for at, (name, count) in enumerate(segments) for place in range(count)]


@given(CHAINS, st.integers(1, 5))
def test_blocks_are_found_that_an_earlier_prompt_had(chains: list[Segments], block: int) -> None:
    cache = InfiniteCache(block)
    earlier: list[list[object]] = []
    for segments in chains:
        tokens = tokens_of(segments)
        common = [len(list(takewhile(bool, map(eq, tokens, one)))) for one in earlier]
        assert cache.ask(asking(segments)) == max(common, default=0) // block * block
        earlier.append(tokens)


@given(CHAINS, st.integers(1, 5))
def test_the_engine_names_the_same_blocks(chains: list[Segments], block: int) -> None:
    cache, keys = InfiniteCache(block), PromptKeys(block)
    known: dict[int, None] = {}
    for segments in chains:
        own = list(keys.shareable(segments))
        found = next((n for n, key in enumerate(own) if key not in known), len(own))
        assert cache.ask(asking(segments)) == found * block
        known.update(dict.fromkeys(own))


def test_models_share_nothing() -> None:
    cache = InfiniteCache(4)
    assert [cache.ask(asking((("a", 8),), model=model)) for model in ("x", "y", "x")] == [0, 0, 8]


TURNS: Segments = (("ask", 8), ("answer", 6), ("more", 10))


def test_answers_are_there_for_what_goes_on_from_them() -> None:
    cache, first = InfiniteCache(4), asking(TURNS[:1])
    first.content = TURNS[:2]
    assert cache.ask(first) == 0
    assert cache.ask(asking(TURNS)) == 12  # of 14
    assert cache.ask(asking((*TURNS, ("other", 9)))) == 24


@pytest.mark.parametrize(
    ("answer", "session", "found"),
    [(6, "s", 12), (5, "s", 8), (6, "", 8), (6, "another", 8)],
    ids=["its answer", "another length", "no session", "another session"],
)
def test_an_answer_without_a_name_is_what_the_next_prompt_of_its_session_continues_with(
    answer: int, session: str, found: int
) -> None:
    cache = InfiniteCache(4)
    assert cache.ask(asking(TURNS[:1], answer, "s" if session else "")) == 0
    assert cache.ask(asking(TURNS, session=session)) == found  # of 14


def test_an_engine_with_room_and_time_finds_the_same() -> None:
    slow = {"workload": "prefix-heavy", "workload.rate_per_s": 0.05, "workload.requests": 60, "cluster.instances": 1}
    experiment = load("quickstart", set=slow)
    traffic = open_traffic("quickstart", Choice(tuple(f"{key}={value}" for key, value in slow.items())))
    description = describe(traffic, Ledger(traffic.requests, experiment.pools[0].engine.block_size_tokens))
    assert description.prefix_reuse.found_tokens == run(experiment).tokens.cached > 0
