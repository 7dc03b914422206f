"""Instances that die while clients wait: they are served by others, or told."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.live.serving.test_core import made
from tests.live.serving.test_server import Client, serving

if TYPE_CHECKING:
    import blis_tui

DEATH_US = 1_500_000
LONG = {"ignore_eos": True, "max_tokens": 900}
"""It takes 2.9 s."""


def failing(instances: int, **how: object) -> blis_tui.Experiment:
    return made(**{"cluster.instances": instances, "cluster.failures": [{"instance": 0, "at_us": DEATH_US, **how}]})


async def both(client: Client, **body: object) -> tuple[tuple[int, object], list[dict[str, object]]]:
    """The same request twice: whole, and as a stream; the first instance gets the first."""
    whole = asyncio.create_task(client.post("/v1/completions", **body))
    while not client.endpoint.core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
        await asyncio.sleep(0.01)
    events = await client.events("/v1/completions", **body)
    return await whole, events


def tokens_of(events: list[dict[str, object]]) -> int:
    ids: list[int] = []
    for event in events:
        choices = event.get("choices", [])
        assert isinstance(choices, list)
        for choice in choices:
            ids += choice["token_ids"]
    return len(ids)


async def test_requests_of_a_dead_instance_are_retried() -> None:
    async with serving(failing(2), speed=1.0) as client:
        (status, whole), events = await both(client, prompt=[1] * 40, return_token_ids=True, **LONG)
        report = client.endpoint.core.simulation.report(complete=False)
    assert status == 200
    assert whole["usage"]["completion_tokens"] == 900  # type: ignore[index]
    assert tokens_of(events) == 900
    assert report.to_dict()["lifecycle"]["retries"] == 1  # type: ignore[index]
    assert [row.state for row in report.rows] == ["completed"] * 2
    assert report.rows[0].ttft_us > DEATH_US // 2  # type: ignore[operator]  # of the attempt that succeeds


async def test_no_token_of_a_retried_answer_is_streamed_twice() -> None:
    async with serving(failing(2), speed=1.0) as client:
        events = await client.events("/v1/completions", prompt=[1] * 40, return_token_ids=True, **LONG)
        report = client.endpoint.core.simulation.report(complete=False)
    assert report.to_dict()["lifecycle"]["retries"] == 1  # type: ignore[index]
    assert tokens_of(events) == 900
    assert events[-1]["choices"][0]["finish_reason"] == "length"  # type: ignore[index]


async def test_requests_that_are_lost_with_an_instance_get_a_503() -> None:
    async with serving(failing(2, requests="lose"), speed=1.0) as client:
        (status, whole), events = await both(client, prompt=[1] * 40, return_token_ids=True, **LONG)
        states = [row.state for row in client.endpoint.core.simulation.report(complete=False).rows]
        again, _ = await client.post("/v1/completions", prompt="x", max_tokens=2)
    assert status == 503
    assert whole["error"]["type"] == "ServiceUnavailableError"  # type: ignore[index]
    assert whole["error"]["message"].startswith("lost: ")  # type: ignore[index]
    assert tokens_of(events) == 900
    assert states == ["lost", "completed"]
    assert again == 200


STREAMS = {
    "/v1/completions": {"prompt": "x", "max_tokens": 900},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 900},
    "/v1/responses": {"input": "x", "max_output_tokens": 900},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 900},
}


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_is_lost_ends_with_an_error(path: str) -> None:
    async with serving(failing(1, requests="lose", repair_us=10**6), speed=1.0) as client:
        body = {**STREAMS[path], "ignore_eos": True, "stream": True}
        async with client.session.post(client.url + path, json=body) as answer:
            assert answer.status == 200
            events = (await answer.text()).rstrip("\n").split("\n\n")
    if path in ("/v1/completions", "/v1/chat/completions"):
        assert events[-1] == "data: [DONE]"
        error = json.loads(events[-2].removeprefix("data: "))["error"]
        assert (error["code"], error["type"]) == (503, "ServiceUnavailableError")
    elif path == "/v1/responses":
        name, data = events[-1].split("\n")
        assert name == "event: response.failed"
        response = json.loads(data.removeprefix("data: "))["response"]
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        error = response["error"]
    else:
        name, data = events[-1].split("\n")
        assert name == "event: error"
        document = json.loads(data.removeprefix("data: "))
        error = document["error"]
        assert (document["type"], error["type"]) == ("error", "overloaded_error")
    assert error["message"].startswith("lost: ")
    assert len(events) > 20


async def test_with_nobody_left_clients_are_not_waited_for() -> None:
    async with serving(failing(1), speed=1.0) as client:
        start = monotonic()
        status, document = await client.post("/v1/completions", prompt=[1] * 40, n=2, **LONG)
        assert status == 503
        assert "no instance is up, and none will be" in document["error"]["message"]  # type: ignore[index]
        status, document = await client.post("/v1/messages", **STREAMS["/v1/messages"], stream=True)
        assert status == 503
        assert document["error"]["type"] == "overloaded_error"  # type: ignore[index]
        assert monotonic() - start < 20
        assert client.endpoint.failure is None
        assert client.endpoint.core.running == 0


async def test_who_waits_for_a_repair_is_served() -> None:
    async with serving(failing(1, repair_us=500_000), speed=1.0) as client:
        status, document = await client.post("/v1/completions", prompt=[1] * 40, **LONG)
        report = client.endpoint.core.simulation.report(complete=False)
    assert status == 200
    assert document["usage"]["completion_tokens"] == 900  # type: ignore[index]
    assert report.to_dict()["lifecycle"]["retries"] == 1  # type: ignore[index]
    assert report.rows[0].ttft_us > 500_000  # type: ignore[operator]
