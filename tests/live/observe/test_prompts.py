"""Prompts: exact lengths, what they share, and what conversations say again."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.request import Request
from blis_tui.live.observe.answers import Answer
from blis_tui.live.observe.prompts import Prompts, RequestForm, TextScale

ASKING = RequestForm(model="m", seed="s", vocabulary=259)


def request(index: int, tokens: int, *segments: tuple[str, int], content: tuple[tuple[str, int], ...] = ()) -> Request:
    made = Request(index, f"request_{index}", 0, tokens, 5, segments)
    made.content = content or made.segments
    return made


def prompt(prompts: Prompts, asked: Request) -> list[int]:
    found = json.loads(prompts.body(asked))["prompt"]
    assert isinstance(found, list)
    return found


@given(st.integers(0, 400), st.integers(0, 300), st.integers(0, 300))
def test_prompts_have_exactly_their_length_and_share_exactly_their_segments(own: int, one: int, two: int) -> None:
    prompts = Prompts(ASKING)
    parts = [(name, tokens) for name, tokens in (("system", one), ("manual", two)) if tokens]
    left, right = (request(number, one + two + own, *parts) for number in (1, 2))
    a, b = prompt(prompts, left), prompt(prompts, right)
    assert len(a) == len(b) == one + two + own
    assert a[: one + two] == b[: one + two]
    assert all(0 <= token < 259 for token in a)
    if own > 20:
        assert a[one + two :] != b[one + two :]


def test_another_seed_is_another_prompt_and_the_same_seed_the_same() -> None:
    asked = request(1, 100, ("system", 64))
    first, again, other = (prompt(Prompts(RequestForm(model="m", seed=seed)), asked) for seed in ("a", "a", "b"))
    assert first == again
    assert not any(a == b for a, b in zip([first[:64]], [other[:64]], strict=True))


def test_vllm_is_asked_for_exact_lengths_and_ids_and_others_for_what_they_know() -> None:
    asked = request(1, 10)
    vllm = json.loads(Prompts(ASKING).body(asked))
    assert {"ignore_eos": True, "min_tokens": 5, "max_tokens": 5, "return_token_ids": True}.items() <= vllm.items()
    assert vllm["stream_options"] == {"include_usage": True}
    other = json.loads(Prompts(RequestForm(dialect="openai", text=True, model="m", stream=False)).body(asked))
    assert set(other) == {"model", "prompt", "max_tokens", "temperature", "stream"}
    asked.max_output_tokens = 50
    free = json.loads(Prompts(RequestForm(model="m", exact=False)).body(asked))
    assert free["max_tokens"] == 50
    assert "ignore_eos" not in free


def test_no_more_is_asked_for_than_the_context_leaves() -> None:
    # vLLM 0.32 cuts max_tokens to what fits, and answers 400 to min_tokens above that.
    body = json.loads(Prompts(RequestForm(model="m", longest=12)).body(request(1, 10)))
    assert (body["max_tokens"], body["min_tokens"]) == (5, 2)


def test_an_adapter_is_asked_for_by_its_name() -> None:
    asked = Request(1, "r", 0, 10, 5, (("system", 4),), adapter="french")
    body = json.loads(Prompts(ASKING).body(asked))
    assert body["model"] == "french"
    assert len(body["prompt"]) == 10


def test_conversations_say_the_answers_of_the_server_again() -> None:
    prompts = Prompts(ASKING)
    first = request(0, 30, ("c-0/0", 30), content=(("c-0/0", 30), ("c-0/0/answer", 5)))
    first_prompt = prompt(prompts, first)
    prompts.record_answer(first, Answer(tokens=[1, 2, 3, 4, 5], has_token_ids=True))
    second = request(1, 45, ("c-0/0", 30), ("c-0/0/answer", 5), ("c-0/1", 10))
    assert prompt(prompts, second)[:35] == [*first_prompt, 1, 2, 3, 4, 5]
    # Where reasoning is left out, the end of the answer is what is said.
    third = request(2, 42, ("c-0/0", 30), ("c-0/0/said", 2), ("c-0/1", 10))
    assert prompt(prompts, third)[30:32] == [4, 5]


def test_chats_have_the_answers_as_the_assistant_and_the_rest_as_the_user() -> None:
    prompts = Prompts(RequestForm(api="chat", model="m", seed="s"), TextScale(2.0, 6.0))
    first = request(0, 30, ("c-0/0", 30), content=(("c-0/0", 30), ("c-0/0/answer", 5)))
    prompts.record_answer(first, Answer(text="yes indeed"))
    second = request(1, 45, ("c-0/0", 30), ("c-0/0/answer", 5), ("c-0/1", 10))
    messages = json.loads(prompts.body(second))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == "yes indeed"
    assert len(messages[0]["content"].split()) == 15
    alone = json.loads(prompts.body(request(3, 100)))["messages"]
    assert len(alone[0]["content"].split()) == (100 - 6) / 2
