"""Clients that send nonsense, too much, too slowly or nothing: they are refused, and everybody else is answered."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
import zlib
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from blis_tui.live.serving import connections
from blis_tui.live.serving.fields import most_bytes
from blis_tui.live.serving.shared_prefixes import served_csv
from tests.live.serving.test_server import Client, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATH = "/v1/completions"
GOOD: dict[str, object] = {"prompt": "hello there", "max_tokens": 3, "ignore_eos": True}


def port(client: Client) -> int:
    return int(client.url.rpartition(":")[2])


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port(client))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def head(length: int | None, *more: str, path: str = PATH) -> bytes:
    how = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", how, *more, "", ""]).encode()


async def answer_to(client: Client, *sent: bytes, ends: bool = False) -> tuple[int, bytes]:
    """Send raw bytes; return the status and all bytes, or 0 if the connection was closed without an answer."""
    async with connected(client) as (reader, writer):
        with suppress(ConnectionError):
            for piece in sent:
                writer.write(piece)
                await writer.drain()
            if ends:
                writer.write_eof()
        found = b""
        with suppress(ConnectionError):
            found = await asyncio.wait_for(reader.read(-1), 30)
    return (int(found.split()[1]), found) if found else (0, b"")


async def posted(client: Client, body: bytes, *more: str) -> tuple[int, bytes]:
    return await answer_to(client, head(len(body), "Connection: close", *more), body)


async def all_is_well(client: Client) -> None:
    status, document = await client.post(PATH, **GOOD)
    assert status == 200, document


def require_report(client: Client) -> None:
    """Assert that what was served can be written."""
    simulation = client.endpoint.core.simulation
    report = simulation.report(complete=False, verify=False)
    assert report.to_json().encode()
    assert "".join(served_csv(client.endpoint.core.requests, report.rows)).encode()


def nested(depth: int) -> str:
    return '{"messages": [{"role": "user", "content": ' + '[{"text": ' * depth + '"x"' + "}]" * depth + "}]}"


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (PATH, r'{"prompt": "x", "user": "\ud800"}', "half a character"),
        (PATH, r'{"prompt": "x\udfff"}', "half a character"),
        (PATH, '{"prompt": [9223372036854775808]}', "a list of token ids"),
        (PATH, '{"prompt": [2147483648]}', "a list of token ids"),
        (PATH, '{"prompt": [-1]}', "a list of token ids"),
        (PATH, '{"prompt": [1e5]}', "a list of token ids"),
        (PATH, f'{{"prompt": [{"9" * 400}]}}', "`prompt[0]` has more than 100 digits"),
        (PATH, f'{{"prompt": [{"9" * 5000}]}}', "too many digits"),
        (PATH, '{"prompt": "x", "max_tokens": NaN}', "`max_tokens` is nan"),
        (PATH, '{"prompt": "x", "max_tokens": 1e999}', "`max_tokens` is inf"),
        (PATH, '{"prompt": "x", "user": "' + "u" * 2000 + '"}', "`user` has more than 1000 characters"),
        (PATH, '{"prompt": "x", "n": ' + json.dumps(["y" * 9000]) + "}", "`n` must be a whole number, got ['yyy"),
        (PATH, "[" * 20_000, "nested deeper"),
        (PATH, '{"prompt": "x"', "not JSON"),
        (PATH, "", "not JSON"),
        ("/v1/chat/completions", nested(450), "nested deeper"),
        ("/v1/chat/completions", nested(5_000), "nested deeper"),
        ("/tokenize", nested(450), "nested deeper"),
        ("/tokenize", r'{"prompt": "\ud800"}', "half a character"),
    ],
    ids=range(19),
)
async def test_bodies_that_nothing_can_be_made_of_are_refused(path: str, body: str, says: str) -> None:
    async with serving() as client:
        async with client.session.post(client.url + path, data=body.encode()) as answer:
            document = await answer.json()
            assert answer.status == 400
        message = document["error"]["message"]
        assert says in message
        assert len(message) < 400
        await all_is_well(client)
        require_report(client)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b'{"prompt": "x"}'),
        ("gzip", gzip.compress(b'{"prompt": "x"}')[:-1]),
        ("gzip", gzip.compress(b'{"prompt": "x"}')[:20] + b"\0" * 20),
        ("deflate", b"\xff\xff\xff\xff"),
        ("br", b"nonsense"),
    ],
    ids=range(5),
)
async def test_a_body_that_is_not_compressed_as_it_says_is_refused(encoding: str, body: bytes) -> None:
    async with serving() as client:
        status, found = await posted(client, body, f"Content-Encoding: {encoding}")
        assert status == 400, found
        await all_is_well(client)
        status, _ = await posted(client, zlib.compress(json.dumps(GOOD).encode()), "Content-Encoding: deflate")
        assert status == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    most = most_bytes(1024)
    async with serving() as client:
        status, found = await answer_to(client, head(63 << 20), b"x" * 1000)  # the rest never comes
        assert status == 413
        document = json.loads(found.partition(b"\r\n\r\n")[2])
        assert document["error"]["message"] == f"the body is larger than {most >> 20} MiB"
        chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        status, found = await answer_to(client, head(None), *([chunk] * ((most >> 20) + 2)))  # it does not say how much
        assert status in (0, 413)  # what it is told may be lost, because it sends on
        lists = b'{"prompt": [' + b"[]," * (1 << 20) + b"1]}"
        status, found = await posted(client, lists)
        assert (status, b"has more than 1,048,576 lists and objects" in found) == (400, True)
        bomb = gzip.compress(b" " * (most + 1))
        assert (await posted(client, bomb, "Content-Encoding: gzip"))[0] == 413
        await all_is_well(client)


@pytest.mark.parametrize("text", [" ", "a ", "a" * 6, "\\u00e9"])
async def test_a_prompt_that_is_too_long_is_not_cut_into_tokens_first(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def counting(piece: bytes) -> int:
        nonlocal counted
        counted += 1
        return zlib.crc32(piece)

    monkeypatch.setattr("blis_tui.live.serving.shared_prefixes.crc32", counting)
    body = f'{{"prompt": "{text * 150_000}"}}'.encode()
    messages = f'{{"messages": [{{"role": "user", "content": "{text * 150_000}"}}]}}'.encode()
    async with serving() as client:
        for path, sent in ((PATH, body), ("/v1/chat/completions", messages), ("/tokenize", body)):
            async with client.session.post(client.url + path, data=sent) as answer:
                assert answer.status == 400
                message = (await answer.json())["error"]["message"]
            assert message == "This model's maximum context length is 1024 tokens; the prompt has more."
        assert 1024 < counted < 4000
        await all_is_well(client)


# ---- connections ----


async def test_whoever_sends_nothing_or_half_a_request_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    async with serving() as client:
        for sent in (b"", b"POST /v1/comp", head(100)[:-2], head(100), head(100) + b'{"prom', head(None) + b"5\r\nabc"):
            async with connected(client) as (reader, writer):
                writer.write(sent)
                found = await asyncio.wait_for(reader.read(-1), 30)
            assert not found or b" 408 " in found.splitlines()[0]
        async with connected(client) as (reader, writer):  # after an answer, too
            body = json.dumps(GOOD).encode()
            writer.write(head(len(body)) + body)
            assert (await asyncio.wait_for(reader.read(-1), 30)).startswith(b"HTTP/1.1 200 ")
        await all_is_well(client)


async def test_whoever_reads_no_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    async def never_read(response: web.StreamResponse, data: bytes) -> None:
        written.append(data)
        if len(written) > 3:
            await asyncio.sleep(3600)  # as where the buffers of both sides are full

    monkeypatch.setattr(web.StreamResponse, "write", never_read)
    monkeypatch.setattr(connections, "IDLE_S", 0.1)
    async with serving(speed=1.0) as client:
        body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
        with suppress(aiohttp.ClientError):
            async with client.session.post(client.url + PATH, json=body) as answer:
                await answer.read()
        core = client.endpoint.core
        async with asyncio.timeout(60):
            while core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
                await asyncio.sleep(0.01)
        await all_is_well(client)
    assert core.simulation.report(complete=False, verify=False).rows[0].state == "timed-out"


async def test_idle_connections_keep_nobody_out() -> None:
    async with serving(most_connections=8) as client:
        idle = [await asyncio.open_connection("127.0.0.1", port(client)) for _ in range(40)]
        await all_is_well(client)
        # The oldest are closed for those who come.
        assert await asyncio.wait_for(idle[0][0].read(-1), 30) == b""
        for _, writer in idle:
            writer.close()


async def test_with_all_connections_busy_another_one_is_refused() -> None:
    async with serving(speed=1.0, most_connections=2) as client:
        body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
        answers = [await client.session.post(client.url + PATH, json=body) for _ in range(2)]
        for answer in answers:
            await answer.content.readline()
        status, found = await answer_to(client, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status == 503
        assert "2 connections" in json.loads(found.partition(b"\r\n\r\n")[2])["error"]["message"]
        for answer in answers:
            answer.close()
        while client.endpoint.core.running:  # noqa: ASYNC110  (the endpoint tells nobody)
            await asyncio.sleep(0.01)
        await all_is_well(client)


async def test_running_out_of_descriptors_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as client:
        context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        retry = {"message": "Exception in callback BaseSelectorEventLoop._start_serving()", "exception": ValueError(-1)}
        other = {"message": "Exception in callback another()", "exception": ValueError("of its own")}
        with caplog.at_level(logging.WARNING):
            for _ in range(300):
                asyncio.get_running_loop().call_exception_handler({**context})
            for _ in range(300):
                asyncio.get_running_loop().call_exception_handler({**retry})
            asyncio.get_running_loop().call_exception_handler(other)
        await all_is_well(client)
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "no connection can be accepted for now: Too many open files",
        "Exception in callback another()",
    ]


# ---- anything ----

_LINES = (
    b"POST /v1/completions HTTP/1.1",
    b"POST /v1/chat/completions HTTP/1.1",
    b"POST /v1/responses HTTP/1.1",
    b"POST /v1/messages HTTP/1.1",
    b"POST /tokenize HTTP/1.0",
    b"POST /v1/messages/count_tokens HTTP/1.1",
    b"POST /v1/load_lora_adapter HTTP/1.1",
    b"POST /v1/unload_lora_adapter HTTP/1.1",
    b"GET /metrics HTTP/1.1",
    b"GET /v1/models HTTP/1.1",
    b"PUT /v1/completions HTTP/1.1",
    b"GET /nowhere?a=%ff HTTP/1.1",
    b"GARBAGE",
    b"POST /v1/completions HTTP/9.9",
    b"\x16\x03\x01\x02\x00",
)
_HEADERS = (
    b"Host: x",
    b"Content-Encoding: gzip",
    b"Content-Encoding: zstd",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, gzip",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Type: application/json; charset=\xff",
    b"Expect: 100-continue",
    b"Expect: the-worst",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Cookie: " + b"a=b;" * 500,
    b"X: " + b"x" * 9000,
    b": nameless",
    b"X-Real: \x00\x01",
)
_VALUES: tuple[object, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800"),
    *(
        [],
        {},
        [1, 2],
        ["a"],
        [[1, 2]],
        [None],
        [2**63],
        ["\udc00"],
        {"role": "user"},
        [{"role": "user"}],
        "\x00\x1b[2J",
    ),
    *("required", "none", {"type": "any"}, {"type": "tool", "name": "f"}, {"type": "function", "name": "f"}),
    [{"type": "function", "name": "f", "function": {"name": "f", "parameters": {"required": ["a"]}}}],
    [{"name": "f", "input_schema": {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}}],
    [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
    [{"type": "function_call", "name": "f", "arguments": 5}, {"type": "function_call_output", "output": [{}]}],
    [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": 5}]}]}],
    *([{"role": "user", "content": "hi"}], [{"role": "\ud800", "content": [{"text": "a"}, {"text": 5}]}], 5, 30),
)
_KEYS = (
    *("prompt", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "n", "best_of", "model", "user"),
    *("stream", "ignore_eos", "stream_options", "return_token_ids", "input", "instructions", "max_output_tokens"),
    *("system", "tools", "tool_choice", "metadata", "echo", "previous_response_id", "lora_name", "lora_path"),
)


def _request(draw: random.Random) -> bytes:
    """A request that may be wrong in any way."""
    document: dict[str, object] = {**GOOD} if draw.random() < 0.6 else {}
    document |= {draw.choice(_KEYS): draw.choice(_VALUES) for _ in range(draw.randrange(4))}
    body = json.dumps(document).encode()
    if draw.random() < 0.3:
        place = draw.randrange(len(body))
        body = body[:place] + draw.randbytes(draw.randrange(4)) + body[place + draw.randrange(4) :]
    headers = draw.sample(_HEADERS, draw.choice((0, 0, 1, 3)))
    line = draw.choice(_LINES if draw.random() < 0.3 else _LINES[:5])
    length = len(body) + draw.choice((0, 0, 0, 0, -1, 1, 1000))
    sent = b"\r\n".join([line, *headers, b"Connection: close", b"Content-Length: %d" % length, b"", body])
    return sent[: draw.randrange(len(sent))] if draw.random() < 0.15 else sent


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_that_a_client_sends_is_an_error_of_ours(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.3)
    draw = random.Random(seed)  # noqa: S311  (no secret)
    async with serving(speed=1000.0) as client:
        for _ in range(4):
            sent = [_request(draw) for _ in range(24)]
            answers = await asyncio.gather(*(answer_to(client, one, ends=draw.random() < 0.3) for one in sent))
            failed = [(one, found) for one, (status, found) in zip(sent, answers, strict=True) if status == 500]
            assert failed == []
        assert client.endpoint.failure is None
        await all_is_well(client)
        require_report(client)


def test_there_are_no_more_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    raised: list[object] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    for limits, wanted, possible, now in (
        ((1024, 4096), 1000, 1000, []),
        ((256, 4096), 1000, 1000, [(1024, 4096)]),
        ((128, 128), 1000, 104, [(128, 128)]),
        ((256, resource.RLIM_INFINITY), 9000, 9000, [(9024, resource.RLIM_INFINITY)]),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 9000, 9000, []),
        ((8, 8), 1000, 1, [(8, 8)]),
    ):
        raised.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, found=limits: found)
        assert (connections.possible_connections(wanted), raised) == (possible, now)
