"""The endpoint as clients, Prometheus and cache-aware routers meet it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from blis_tui.base.errors import InputError, SimulationError
from blis_tui.live.serving.connections import MOST_CONNECTIONS
from blis_tui.live.serving.kv_events import KvPublisher
from blis_tui.live.serving.server import Address, Endpoint, run
from blis_tui.live.serving.shared_prefixes import encode
from blis_tui.output.openmetrics import Scrapes
from tests.live.observe.servers import free_port
from tests.live.serving.test_core import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import blis_tui

SPEED = 200.0


class Client:
    """Speaks with an endpoint."""

    def __init__(self, endpoint: Endpoint, session: aiohttp.ClientSession, url: str) -> None:
        self.endpoint = endpoint
        self.session = session
        self.url = url

    async def post(self, path: str, **body: object) -> tuple[int, object]:
        async with self.session.post(self.url + path, json=body) as answer:
            return answer.status, await answer.json()

    async def events(self, path: str, **body: object) -> list[dict[str, object]]:
        async with self.session.post(self.url + path, json={"stream": True, **body}) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            lines = (await answer.text()).split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    async def named(self, path: str, **body: object) -> list[tuple[str, dict[str, object]]]:
        """The events of a stream whose events have names."""
        async with self.session.post(self.url + path, json={"stream": True, **body}) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            *events, last = (await answer.text()).split("\n\n")
        assert last == ""
        lines = [event.split("\n") for event in events]
        assert all(len(one) == 2 for one in lines)
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]

    async def get(self, path: str) -> str:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200
            return await answer.text()


@asynccontextmanager
async def serving(
    experiment: blis_tui.Experiment | None = None,
    speed: float = SPEED,
    kv_events: KvPublisher | None = None,
    most_connections: int = MOST_CONNECTIONS,
) -> AsyncIterator[Client]:
    endpoint = Endpoint(experiment or made(), speed=speed, kv_events=kv_events)
    stop, ports = asyncio.Event(), asyncio.Queue[int]()
    address = Address(host="127.0.0.1", port=0, most_connections=most_connections)
    task = asyncio.create_task(run(endpoint, address, ports.put_nowait, stop))
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield Client(endpoint, session, f"http://127.0.0.1:{await ports.get()}")
    finally:
        stop.set()
        await task


async def test_a_stream_and_a_whole_answer_say_the_same() -> None:
    body = {"prompt": [5] * 40, "max_tokens": 7, "ignore_eos": True, "return_token_ids": True}
    async with serving(made(**{"cluster.instances": 1})) as client:
        status, whole = await client.post("/v1/completions", **body)
        events = await client.events("/v1/completions", stream_options={"include_usage": True}, **body)
    assert status == 200
    assert isinstance(whole, dict)
    choice = whole["choices"][0]
    assert (choice["finish_reason"], len(choice["token_ids"])) == ("length", 7)
    assert encode("x" + choice["text"])[1:] == choice["token_ids"]
    assert whole["usage"] == {
        "prompt_tokens": 40,
        "completion_tokens": 7,
        "total_tokens": 47,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    *chunks, last = events
    assert last["choices"] == []
    assert last["usage"] == {**whole["usage"], "prompt_tokens_details": {"cached_tokens": 32}}  # it was there before
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]  # type: ignore[index]
    assert len(ids) == 7
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"  # type: ignore[index]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])  # type: ignore[index]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


async def test_a_chat_goes_on_with_what_was_said() -> None:
    messages = [{"role": "user", "content": "Tell me of the old town, and of those who went there " * 5}]
    async with serving(made(**{"cluster.instances": 1})) as client:
        _, first = await client.post("/v1/chat/completions", messages=messages, max_tokens=40, ignore_eos=True)
        assert isinstance(first, dict)
        answer = first["choices"][0]["message"]
        assert first["object"] == "chat.completion"
        more = [*messages, answer, {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]
        events = await client.events(
            "/v1/chat/completions", messages=more, max_completion_tokens=5, stream_options={"include_usage": True}
        )
    assert answer["role"] == "assistant"
    assert len(encode(answer["content"])) == 40
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}  # type: ignore[index]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    usage = events[-1]["usage"]
    assert isinstance(usage, dict)
    before = first["usage"]["prompt_tokens"] + 40
    assert usage["prompt_tokens_details"]["cached_tokens"] == before // 16 * 16


async def test_without_ignore_eos_answers_are_as_long_as_the_workload_says() -> None:
    clients = [{"id": "c", "input_tokens": 5, "output_tokens": {"kind": "uniform", "min": 4, "max": 6}}]
    experiment = made(workload={"requests": 1, "rate_per_s": 1, "clients": clients})
    async with serving(experiment) as client:
        answers = [(await client.post("/v1/completions", prompt="hello", max_tokens=5))[1] for _ in range(12)]
        _, least = await client.post("/v1/completions", prompt="hello", max_tokens=40, min_tokens=30)
    ends = [(answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) for answer in answers]  # type: ignore[index]
    assert {count for count, _ in ends} == {4, 5}
    assert all(reason == ("stop" if count < 5 else "length") for count, reason in ends)
    assert least["usage"]["completion_tokens"] == 30  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 5000}, 400, "cannot be greater than max_model_len=1024"),
        ("/v1/completions", {"prompt": [1] * 1024}, 400, "maximum context length is 1024"),
        ("/v1/completions", {"prompt": ""}, 400, "the prompt is empty"),
        ("/v1/completions", {"prompt": [1, "a"]}, 400, "must be a text, a list of token ids, or a list of either"),
        ("/v1/completions", {"prompt": ["a", [1]], "n": 2, "max_tokens": 5000}, 400, "cannot be greater"),
        ("/v1/completions", {"prompt": ["a", 1]}, 400, "must be a text"),
        ("/v1/completions", {"prompt": ["a", ""]}, 400, "the prompt is empty"),
        ("/v1/completions", {"prompt": []}, 400, "the prompt is empty"),
        ("/v1/completions", {"prompt": "x", "n": 0}, 400, "`n` must be at least 1"),
        ("/v1/completions", {"prompt": "x", "n": 1025}, 400, "no more than 1,024 answers at a time, got 1,025"),
        ("/v1/completions", {"prompt": ["x"] * 600, "n": 2}, 400, "no more than 1,024 answers at a time, got 1,200"),
        ("/v1/completions", {"prompt": ["x"] * 1025}, 400, "no more than 1,024 prompts at a time, got 1,025"),
        ("/v1/completions", {"prompt": "x", "n": 2, "best_of": 3}, 400, "`best_of` must be `n`"),
        ("/v1/completions", {"prompt": "x", "echo": True}, 400, "`echo` is not simulated"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, 400, "`suffix` is not simulated"),
        ("/v1/completions", {"prompt": "x", "min_tokens": -1}, 400, "`min_tokens` must be"),
        ("/v1/completions", {"prompt": "x", "model": 5}, 400, "`model` must be a text"),
        ("/v1/completions", {"prompt": "x", "stream": "yes"}, 400, "`stream` must be true or false"),
        ("/v1/completions", {"prompt": "x", "ignore_eos": 1}, 400, "`ignore_eos` must be true or false"),
        ("/v1/completions", {"prompt": "x", "model": "gpt"}, 404, "`gpt` does not exist"),
        ("/v1/chat/completions", {"messages": []}, 400, "`messages` must be"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, "needs a role"),
    ],
)
async def test_what_cannot_be_done_is_refused(path: str, body: dict[str, object], status: int, says: str) -> None:
    async with serving() as client:
        found, document = await client.post(path, **body)
        async with client.session.post(client.url + path, data=b"{") as broken:
            assert broken.status == 400
    assert isinstance(document, dict)
    assert (found, document["error"]["code"]) == (status, status)
    assert says in document["error"]["message"]
    assert client.endpoint.core.requests == []


async def test_whoever_is_rejected_gets_a_429() -> None:
    async with serving(made(**{"policy.admission": "reject-all"})) as client:
        status, document = await client.post("/v1/completions", prompt="x", stream=True)
    assert status == 429
    assert "reject-all" in document["error"]["message"]  # type: ignore[index]


async def test_what_is_cut_to_the_context_ends_there() -> None:
    async with serving() as client:
        _, document = await client.post("/v1/completions", prompt=[1] * 1020, max_tokens=100, ignore_eos=True)
    assert document["usage"]["completion_tokens"] == 4  # type: ignore[index]


async def test_a_client_that_hangs_up_frees_its_blocks() -> None:
    async with serving(speed=1.0) as client:
        async with client.session.post(
            client.url + "/v1/completions",
            json={"prompt": [1] * 64, "max_tokens": 900, "ignore_eos": True, "stream": True},
        ) as answer:
            await answer.content.readline()
        core = client.endpoint.core
        while core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
            await asyncio.sleep(0.01)
    (row,) = core.simulation.report().rows
    assert row.state == "timed-out"
    assert 0 < row.output_tokens < 900


async def test_what_a_server_has_beside_answers() -> None:
    async with serving() as client:
        models = json.loads(await client.get("/v1/models"))
        assert [(one["id"], one["max_model_len"]) for one in models["data"]] == [("qwen3-14b", 1024)]
        assert "blis-tui" in await client.get("/version")
        await client.get("/health")
        _, tokens = await client.post("/tokenize", prompt="hello there")
        assert tokens["tokens"] == encode("hello there")  # type: ignore[index]


async def test_a_simulation_that_cannot_go_on_is_told_to_everybody() -> None:
    async with serving(speed=1.0) as client:
        waiting = asyncio.create_task(client.post("/v1/completions", prompt="x", max_tokens=900, ignore_eos=True))
        while not client.endpoint.core.running:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0.01)

        def fail(until_us: int) -> list[object]:
            raise SimulationError("limits contradict each other")

        client.endpoint.core.advance = fail  # type: ignore[method-assign, assignment]
        status, document = await waiting
    assert status == 500
    assert "limits contradict each other" in document["error"]["message"]  # type: ignore[index]
    assert isinstance(client.endpoint.failure, SimulationError)


# ---- metrics ----


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def test_metrics_are_those_that_a_run_exports() -> None:
    async with serving() as client:
        await asyncio.gather(
            *(
                client.post("/v1/completions", prompt=[n] * (40 + 30 * n), max_tokens=5 + 9 * n, ignore_eos=True)
                for n in range(12)
            )
        )
        text = await client.get("/metrics")
        simulation = client.endpoint.core.simulation
        exported = "".join(Scrapes().text(simulation.cluster, simulation.report().rows))
    served = samples(text)
    other = samples(exported.replace("# EOF\n", ""))
    named = {key: value for key, value in served.items() if key[0] != "vllm:cache_config_info"}
    assert named.keys() == other.keys()
    for key, value in named.items():
        if key[0] != "vllm:request_success_total":
            assert value == pytest.approx(other[key]), key
    assert finished(served) == {"length": 12}  # as the answers say; a run knows how long answers would have been
    config = [dict(labels) for name, labels in served if name == "vllm:cache_config_info"]
    assert {(one["engine"], one["num_gpu_blocks"], one["block_size"]) for one in config} == {
        ("0", "91", "16"),
        ("1", "91", "16"),
    }


def finished(metrics: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, float]:
    """How many requests ended for which reason."""
    found: dict[str, float] = {}
    for (name, labels), value in metrics.items():
        if name == "vllm:request_success_total" and value:
            reason = dict(labels)["finished_reason"]
            found[reason] = found.get(reason, 0) + value
    return found


async def test_metrics_count_answers_by_the_reason_that_they_give() -> None:
    clients = [{"id": "c", "input_tokens": 5, "output_tokens": {"kind": "uniform", "min": 4, "max": 6}}]
    experiment = made(workload={"requests": 1, "rate_per_s": 1, "clients": clients})
    path, messages = "/v1/chat/completions", [{"role": "user", "content": "hello"}]
    async with serving(experiment) as client:
        answers = [(await client.post(path, messages=messages, max_tokens=5))[1] for _ in range(9)]
        await client.get("/metrics")
        answers += [(await client.post(path, messages=messages))[1] for _ in range(3)]
        counted = finished(samples(await client.get("/metrics")))
    reasons = [answer["choices"][0]["finish_reason"] for answer in answers]  # type: ignore[index]
    assert reasons[9:] == ["stop"] * 3  # they end by themselves
    assert counted == {reason: reasons.count(reason) for reason in ("stop", "length")}


async def test_metrics_tell_of_requests_under_way() -> None:
    async with serving(made(**{"cluster.instances": 1}), speed=1.0) as client:
        body = {"prompt": [3] * 50, "max_tokens": 900, "ignore_eos": True, "stream": True}
        async with client.session.post(client.url + "/v1/completions", json=body) as answer:
            await answer.content.readline()
            metrics = samples(await client.get("/metrics"))
    labels = (("engine", "0"), ("model_name", "qwen3-14b"))
    assert metrics["vllm:num_requests_running", labels] == 1
    assert metrics["vllm:prompt_tokens_total", labels] == 50
    assert metrics["vllm:time_to_first_token_seconds_count", labels] == 1
    assert metrics["vllm:generation_tokens_total", labels] >= 1
    assert metrics["vllm:e2e_request_latency_seconds_count", labels] == 0
    assert 0 < metrics["vllm:kv_cache_usage_perc", labels] < 1


# ---- KV events ----


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True):
    """As vLLM 0.32 declares it, ``distributed/kv_events.py``."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True):
    block_hashes: list[int | bytes]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


async def test_kv_events_tell_what_is_in_the_cache() -> None:
    port = free_port()
    context = zmq.asyncio.Context()
    listener = context.socket(zmq.SUB)
    listener.setsockopt_string(zmq.SUBSCRIBE, "kv")
    connected = listener.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    publisher = KvPublisher(f"tcp://127.0.0.1:{port}", "kv")
    listener.connect(f"tcp://127.0.0.1:{port}")
    cached: dict[int | bytes, tuple[int | bytes | None, tuple[int, ...]]] = {}
    numbers, removed = [], 0
    try:
        async with serving(made(**{"cluster.instances": 1}), kv_events=publisher) as client:
            await asyncio.wait_for(connected.recv_multipart(), 60)
            await asyncio.sleep(0.3)  # until the subscription, which follows, has come through: nobody says when
            for n in range(30):
                await client.post("/v1/completions", prompt=[n % 7] * 128, max_tokens=40, ignore_eos=True)
            while True:
                try:
                    frames = await asyncio.wait_for(listener.recv_multipart(), 1)
                except TimeoutError:
                    break
                topic, number, payload = frames
                assert topic == b"kv"
                numbers.append(int.from_bytes(number, "big"))
                batch = msgspec.msgpack.decode(payload, type=Batch)
                assert batch.data_parallel_rank == 0
                for event in batch.events:
                    if isinstance(event, BlockStored):
                        before = event.parent_block_hash
                        assert before is None or before in cached or before in event.block_hashes
                        for place, block_hash in enumerate(event.block_hashes):
                            tokens = tuple(event.token_ids[16 * place : 16 * place + 16])
                            assert len(tokens) == 16
                            cached[block_hash] = (before, tokens)
                            before = block_hash
                    elif isinstance(event, BlockRemoved):
                        removed += len(event.block_hashes)
                        for block_hash in event.block_hashes:
                            del cached[block_hash]
            pool = client.endpoint.core.simulation.cluster.instances[0].pool
            visible = pool.visible_keys(client.endpoint.core.simulation.now_us)
    finally:
        publisher.close()
        connected.close(linger=0)
        listener.disable_monitor()
        listener.close(linger=0)
        context.term()
    assert numbers == list(range(len(numbers)))
    assert removed > 0
    assert cached.keys() == {publisher._blocks[16][key].hash for key in visible}
    assert len(cached) > 20
    # Whoever follows the parents gets the beginning of a prompt that was sent.
    whole: list[tuple[int, ...]] = []
    for one in cached:
        chain: list[int] = []
        at: int | bytes | None = one
        while at is not None and at in cached:
            at, tokens = cached[at]
            chain = [*tokens, *chain]
        if at is None:
            whole.append(tuple(chain))
    prompts = {(n,) * 128 for n in range(7)}
    assert any(chain[:128] in prompts for chain in whole)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1", "nowhere", "tcp://127.0.0.1:x", "tcp://127.0.0.1:99999"])
def test_where_nothing_can_be_published_is_told(endpoint: str) -> None:
    with pytest.raises(InputError, match="cannot publish"):
        KvPublisher(endpoint)
