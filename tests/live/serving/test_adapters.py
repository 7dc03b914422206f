"""LoRA adapters: named as models, loaded and unloaded as with vLLM, and served as the simulation's."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.live.serving import kv_events
from blis_tui.live.serving.adapters import Adapters
from blis_tui.live.serving.core import Core
from tests.live.observe.servers import free_port
from tests.live.serving.test_core import again, made
from tests.live.serving.test_server import Client, serving

if TYPE_CHECKING:
    from pathlib import Path

LORA = {
    "cluster.instances": 1,
    "policy.batching": {"kind": "vllm-v1"},
    "engine.lora": {"max_loras": 1, "max_cpu_loras": 4, "ranks": {"sql": 8, "german": 16}, "bytes_per_rank": 10**6},
    "workload": {
        "requests": 1,
        "rate_per_s": 1,
        "clients": [{"id": "c", "input_tokens": 5, "output_tokens": 5, "adapters": {"names": ["sql", "french"]}}],
    },
}


def with_adapters() -> blis_tui.Experiment:
    return made(**LORA)


async def text(client: Client, path: str, **body: object) -> tuple[int, str]:
    async with client.session.post(client.url + path, json=body) as answer:
        return answer.status, await answer.text()


async def models(client: Client) -> list[tuple[str, str | None]]:
    return [(one["id"], one.get("parent")) for one in json.loads(await client.get("/v1/models"))["data"]]


async def test_requests_name_an_adapter_as_their_model(tmp_path: Path) -> None:
    experiment = with_adapters()
    async with serving(experiment) as client:
        assert await models(client) == [
            ("qwen3-14b", None),
            ("sql", "qwen3-14b"),
            ("french", "qwen3-14b"),
            ("german", "qwen3-14b"),
        ]
        found = []
        for model in ("qwen3-14b", "sql", "sql", "french", "", "qwen3-14b"):
            body = {"prompt": [7] * 64, "max_tokens": 3, "ignore_eos": True, "model": model or None}
            status, document = await client.post("/v1/completions", **body)
            assert status == 200
            assert isinstance(document, dict)
            assert document["model"] == (model or "qwen3-14b")
            found.append(document["usage"]["prompt_tokens_details"]["cached_tokens"])
        core = client.endpoint.core
        report = core.simulation.report(complete=False)
    # An adapter has keys and values of its own.
    assert found == [0, 0, 48, 0, 48, 48]
    assert [request.adapter for request in core.requests] == ["", "sql", "sql", "french", "", ""]
    assert report.to_dict()["adapters"]["loads"] == 2  # type: ignore[index]
    rows = list(report.rows)
    assert rows[1].ttft_us > rows[0].ttft_us + 10_000  # type: ignore[operator]  # it comes from storage
    assert list(again(experiment, core, tmp_path / "served.csv").rows) == rows


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_every_api_serves_adapters(path: str) -> None:
    async with serving(with_adapters()) as client:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
        _, document = await client.post(path, **body, model="french")
        _, response = await client.post("/v1/responses", input="x", max_output_tokens=3, model="french")
    assert document["model"] == response["model"] == "french"  # type: ignore[index]
    assert [request.adapter for request in client.endpoint.core.requests] == ["french"] * 2


async def test_an_unloaded_adapter_is_no_model() -> None:
    async with serving(with_adapters()) as client:
        status, says = await text(client, "/v1/unload_lora_adapter", lora_name="sql")
        assert (status, says) == (200, "Success: LoRA adapter 'sql' removed successfully.")
        assert ("sql", "qwen3-14b") not in await models(client)
        status, document = await client.post("/v1/completions", prompt="x", model="sql")
        assert status == 404
        assert "`sql` does not exist" in document["error"]["message"]  # type: ignore[index]
        assert (await text(client, "/v1/unload_lora_adapter", lora_name="sql"))[0] == 404
        status, says = await text(client, "/v1/load_lora_adapter", lora_name="sql", lora_path="/adapters/sql")
        assert (status, says) == (200, "Success: LoRA adapter 'sql' added successfully.")
        assert (await client.post("/v1/completions", prompt="x", model="sql"))[0] == 200


async def test_a_request_under_way_keeps_its_adapter() -> None:
    async with serving(with_adapters(), speed=1.0) as client:
        body = {"prompt": "x", "model": "sql", "max_tokens": 60, "ignore_eos": True}
        waiting = asyncio.create_task(client.post("/v1/completions", **body))
        while not client.endpoint.core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
            await asyncio.sleep(0.01)
        await text(client, "/v1/unload_lora_adapter", lora_name="sql")
        status, document = await waiting
    assert status == 200
    assert document["usage"]["completion_tokens"] == 60  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("load", {}, 400, "Both 'lora_name' and 'lora_path' must be provided"),
        ("load", {"lora_name": "sql"}, 400, "Both 'lora_name' and 'lora_path'"),
        ("load", {"lora_name": 5, "lora_path": "x"}, 400, "`lora_name` must be a text"),
        ("load", {"lora_name": "sql", "lora_path": "x"}, 400, "has already been loaded"),
        ("load", {"lora_name": "sql", "lora_path": "x", "load_inplace": True}, 200, "Success"),
        ("load", {"lora_name": "sqlite", "lora_path": "x"}, 404, "the experiment has sql, french, german"),
        ("unload", {}, 400, "needs to be provided"),
        ("unload", {"lora_name": "qwen3-14b"}, 404, "cannot be found"),
        ("unload", [], 400, "not a JSON object"),
    ],
)
async def test_what_cannot_be_loaded_is_refused(path: str, body: object, status: int, says: str) -> None:
    async with serving(with_adapters()) as client:
        async with client.session.post(f"{client.url}/v1/{path}_lora_adapter", json=body) as answer:
            assert answer.status == status
            assert says in await answer.text()
        assert len(await models(client)) == 4


async def test_an_experiment_without_adapters_has_none() -> None:
    async with serving() as client:
        status, says = await text(client, "/v1/load_lora_adapter", lora_name="sql", lora_path="x")
    assert status == 404
    assert "the experiment has none" in says


async def test_an_adapter_is_served_where_its_model_is() -> None:
    pools = [{"name": "large", "instances": 1}, {"name": "small", "instances": 1, "model": "llama-3.1-8b-instruct"}]
    lora = {"max_loras": 1, "ranks": {"sql": 8}, "bytes_per_rank": 10**6}
    experiment = made(
        **{
            "cluster": {"pools": [pools[0], {**pools[1], "engine": {"lora": lora}}]},
            "policy.batching": {"kind": "vllm-v1"},
        }
    )
    async with serving(experiment) as client:
        assert await models(client) == [
            ("qwen3-14b", None),
            ("llama-3.1-8b-instruct", None),
            ("sql", "llama-3.1-8b-instruct"),
        ]
        for model in ("sql", "qwen3-14b", "llama-3.1-8b-instruct", "sql"):
            status, document = await client.post("/v1/responses", input="x", max_output_tokens=3, model=model)
            assert status == 200
            assert document["model"] == model  # type: ignore[index]
        requests = client.endpoint.core.requests
    assert [(one.model, one.adapter, one.instance) for one in requests] == [
        ("llama-3.1-8b-instruct", "sql", 1),
        ("qwen3-14b", "", 0),
        ("llama-3.1-8b-instruct", "", 1),
        ("llama-3.1-8b-instruct", "sql", 1),
    ]


def test_adapters_of_the_shipped_experiment_are_served() -> None:
    experiment = blis_tui.load("lora-adapters")
    adapters = Adapters(experiment)
    assert list(adapters.loaded) == [f"customer-{number}" for number in range(1, 17)]
    assert set(adapters.loaded.values()) == {"llama-3.1-8b-instruct"}
    assert Core(experiment).simulation.cluster.instances[0].batch.adapters is not None


async def test_kv_events_name_the_adapter_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(kv_events._Publisher, "publish", lambda _, time_s, events: told.extend(events))
    publisher = kv_events.KvPublisher(f"tcp://127.0.0.1:{free_port()}")
    try:
        async with serving(with_adapters(), kv_events=publisher) as client:
            for model in ("sql", "qwen3-14b", "french"):
                body = {"prompt": [7] * 64, "max_tokens": 3, "ignore_eos": True, "model": model}
                await client.post("/v1/completions", **body)
    finally:
        publisher.close()
    stored = [event for event in told if event["type"] == "BlockStored"]
    assert [event["lora_name"] for event in stored] == ["sql", None, "french"]
    assert len({str(event["block_hashes"]) for event in stored}) == 3
    assert [event["token_ids"] for event in stored] == [[7] * 64] * 3
