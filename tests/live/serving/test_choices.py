"""Several prompts and several answers to each: every answer is a request of its own."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from blis_tui.live.serving import server
from tests.live.serving.test_apis import slow
from tests.live.serving.test_core import made
from tests.live.serving.test_server import finished, samples, serving

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPTS = [[1] * 70, [2] * 33, [1] * 70]


def choices_of(document: object) -> list[dict[str, object]]:
    assert isinstance(document, dict)
    found: list[dict[str, object]] = document["choices"]
    return found


async def test_each_choice_of_each_prompt_is_a_request() -> None:
    body = {"prompt": PROMPTS, "n": 2, "max_tokens": 9, "ignore_eos": True, "return_token_ids": True}
    async with serving(made(**{"cluster.instances": 1})) as client:
        status, whole = await client.post("/v1/completions", **body)
        requests = client.endpoint.core.requests
        rows = client.endpoint.core.simulation.report(complete=False).rows
        counted = finished(samples(await client.get("/metrics")))
    assert status == 200
    assert isinstance(whole, dict)
    assert [choice["index"] for choice in choices_of(whole)] == [0, 1, 2, 3, 4, 5]
    assert [request.input_tokens for request in requests] == [70, 70, 33, 33, 70, 70]
    assert len({request.arrival_us for request in requests}) == 1
    # What the engine found in the cache, of what equal prompts begin with: four whole blocks.
    assert [row.cached_tokens for row in rows] == [request.cached_tokens for request in requests]
    assert {request.cached_tokens for request in requests} <= {0, 32, 64}
    assert requests[1].segments[0] == ("r0", 64)
    assert requests[4].segments[0] == ("r0", 64)
    assert len({str(choice["text"]) for choice in choices_of(whole)}) == 6
    cached = sum(requests[at].cached_tokens for at in (0, 2, 4))
    assert whole["usage"] == {
        "prompt_tokens": 70 + 33 + 70,
        "completion_tokens": 6 * 9,
        "total_tokens": 173 + 54,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    assert counted == {"length": 6}


def ids_of(choice: Mapping[str, object]) -> list[int]:
    found = choice.get("token_ids", [])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_chunks_of_choices_come_as_their_tokens_do(path: str) -> None:
    chat = path == "/v1/chat/completions"
    asked: dict[str, object] = {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": ["x", "yy zz"]}
    body = {**asked, "n": 3, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
    number = 3 if chat else 6
    async with serving(slow(), speed=1.0) as client:
        options = {"include_usage": True, "continuous_usage_stats": True}
        *chunks, last = await client.events(path, **body, stream_options=options)
        _, whole = await client.post(path, **body)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == number * 20  # type: ignore[index]
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]  # type: ignore[index]
    indices = [choice["index"] for chunk in chunks for choice in choices_of(chunk)]
    assert set(indices) == set(range(number))
    assert len([index for index, _ in groupby(indices)]) > number  # in turn, not one after the other
    if chat:
        assert indices[:number] == list(range(number))  # OpenAI's clients need the first one first
    for index in range(number):
        mine = [choice for chunk in chunks for choice in choices_of(chunk) if choice["index"] == index]
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + ["length"]
        assert sum(len(ids_of(choice)) for choice in mine) == 20
        if chat:
            assert mine[0]["delta"] == {"role": "assistant", "content": ""}
            assert all("role" not in choice["delta"] for choice in mine[1:])  # type: ignore[operator]
    counts = [usage(chunk)["completion_tokens"] for chunk in chunks if "usage" in chunk]
    assert max(counts) == 20  # each chunk counts the tokens of its choice


def usage(chunk: Mapping[str, object]) -> dict[str, int]:
    found = chunk["usage"]
    assert isinstance(found, dict)
    return found


async def test_choices_are_as_long_as_requests_of_their_own() -> None:
    clients = [{"id": "c", "input_tokens": 5, "output_tokens": {"kind": "uniform", "min": 4, "max": 30}}]
    experiment = made(workload={"requests": 1, "rate_per_s": 1, "clients": clients})
    async with serving(experiment) as client:
        _, together = await client.post("/v1/completions", prompt="hello", max_tokens=25, n=16)
    async with serving(experiment) as client:
        alone = [(await client.post("/v1/completions", prompt="hello", max_tokens=25))[1] for _ in range(16)]
    reasons = [choice["finish_reason"] for choice in choices_of(together)]
    assert set(reasons) == {"stop", "length"}
    assert [choice["text"] for choice in choices_of(together)] == [choices_of(one)[0]["text"] for one in alone]
    assert reasons == [choices_of(one)[0]["finish_reason"] for one in alone]


async def test_a_client_that_hangs_up_ends_all_of_its_choices() -> None:
    async with serving(speed=1.0) as client:
        body = {"prompt": [[1] * 40, [2] * 40], "n": 3, "max_tokens": 900, "ignore_eos": True, "stream": True}
        async with client.session.post(client.url + "/v1/completions", json=body) as answer:
            await answer.content.readline()
        core = client.endpoint.core
        while core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
            await asyncio.sleep(0.01)
        assert client.endpoint._clients == {}
    assert [row.state for row in core.simulation.report(complete=False).rows] == ["timed-out"] * 6


async def test_all_or_none_of_the_prompts_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as client:
        status, document = await client.post("/v1/completions", prompt=[[1] * 10, [1] * 1024], max_tokens=3)
        assert (status, document["error"]["param"]) == (400, "prompt")  # type: ignore[index]
        monkeypatch.setattr(server, "_MOST_TOKENS", 1000)
        status, document = await client.post("/v1/completions", prompt=[1] * 10, n=2, max_tokens=500, ignore_eos=True)
        assert (status, document["error"]["param"]) == (400, "n")  # type: ignore[index]
        assert "no more than 1,000 tokens" in document["error"]["message"]  # type: ignore[index]
        assert client.endpoint.core.requests == []
        status, _ = await client.post("/v1/completions", prompt=[1] * 10, max_tokens=1000, ignore_eos=True)
        assert status == 200  # a single answer may be as long as there is room for


async def test_whoever_is_rejected_for_one_choice_gets_a_429() -> None:
    few = made(
        **{
            "cluster.instances": 1,
            "policy.admission": {"kind": "token-bucket", "capacity_tokens": 60, "refill_tokens_per_s": 1},
        }
    )
    async with serving(few) as client:
        status, document = await client.post("/v1/completions", prompt=[1] * 50, n=2, max_tokens=3, ignore_eos=True)
        assert status == 429, document
        while client.endpoint.core.running:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0.01)
