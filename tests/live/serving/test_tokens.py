"""Tokens without a tokenizer: conversations continue with the tokens that they had."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blis_tui.live.serving.shared_prefixes import Answer, Contents, encode, encode_chat

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.integers(0, 10_000), st.integers(1, 60), TEXT)
def test_an_answer_that_is_sent_back_is_the_same_tokens(number: int, count: int, question: str) -> None:
    answer = Answer(number, count, goes_on=False)
    text, ids = answer.piece(0, count)
    assert len(ids) == count == len(answer.tokens())
    assert encode(text) == list(ids) == answer.tokens()
    before = encode_chat([("user", question)])
    after = encode_chat([("user", question), ("assistant", text), ("user", "more")])
    assert after[: len(before) + count] == [*before, *ids]


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_a_text_that_is_continued_is_the_same_tokens(number: int, count: int) -> None:
    text, ids = Answer(number, count, goes_on=True).piece(0, count)
    assert encode("Once upon a time" + text) == encode("Once upon a time") + list(ids)


@given(st.integers(0, 99), st.lists(st.integers(1, 9), max_size=8), st.booleans())
def test_pieces_of_an_answer_are_the_answer(number: int, sizes: list[int], goes_on: bool) -> None:
    answer, at, texts = Answer(number, sum(sizes), goes_on=goes_on), 0, ""
    ids: list[int] = []
    for size in sizes:
        text, tokens = answer.piece(at, at + size)
        texts, ids, at = texts + text, [*ids, *tokens], at + size
    assert (texts, ids) == (answer.piece(0, at)[0], answer.tokens())


PROMPTS = st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 9)), max_size=8)


@given(PROMPTS, st.sampled_from([1, 2, 4]))
def test_prompts_share_what_their_tokens_share(prompts: list[tuple[list[int], int]], size: int) -> None:
    """An oracle: how many whole blocks of a prompt begin any content before it, compared token by token."""
    contents = Contents(size)
    before: list[list[int]] = []
    named: dict[tuple[str, int], tuple[int, ...]] = {}
    for number, (prompt, answers) in enumerate(prompts):
        answer = [7 + (number + place) % 2 for place in range(answers)]
        content = contents.add(f"r{number}", prompt, answer)
        assert sum(tokens for _, tokens in content.segments) == len(prompt)
        whole = [*prompt, *answer]
        assert len(content.hashes) == len(whole) // size
        shared = max((common(whole, other) for other in before), default=0) // size
        known = 0
        for name, tokens in content.segments:
            if name != f"r{number}":
                known += tokens
        assert known == min(shared, len(prompt) // size) * size
        # A segment's tokens are always the same, as far as it goes.
        at = 0
        for name, tokens in (*content.segments, (content.answer, len(answer))):
            for place in range(tokens):
                token = tuple(whole[: at + place + 1])
                assert named.setdefault((name, place), token) == token
            at += tokens
        before.append(whole)


def common(left: list[int], right: list[int]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def test_adapters_have_nothing_in_common() -> None:
    contents = Contents(2)
    contents.add("a", [1, 2, 3, 4, 5], [], "french")
    assert contents.add("b", [1, 2, 3, 4, 5], [], "german").segments == (("b", 5),)
    assert contents.add("c", [1, 2, 3, 4, 5], [], "french").segments == (("a", 4), ("c", 1))
