"""A small server on this machine that answers as it is told to: well, late, wrongly, or not at all."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 1.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
vllm:num_preemptions_total{{engine="0",model_name="m"}} {preemptions}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {generated}
vllm:cache_config_info{{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="200"}} 1.0
"""
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 1024}]}


@dataclass
class Asked:
    """A request as it came."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, object]

    @property
    def tokens(self) -> int:
        """How many it wants."""
        return int(str(self.body["max_tokens"]))


Behaviour = "Callable[[Asked, Replying], object]"


@dataclass
class Replying:
    """What can be done to a client."""

    writer: asyncio.StreamWriter

    def head(self, status: str = "200 OK", *, length: int | None = None) -> None:
        how = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        self.writer.write(f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n{how}\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, document: object) -> None:
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def token(self, *ids: int, finish: str | None = None) -> None:
        choice = {"index": 0, "text": "x" * len(ids), "finish_reason": finish, "token_ids": list(ids)}
        self.event({"choices": [choice]})

    def usage(self, prompt: int, completion: int) -> None:
        self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")

    def whole(self, status: str, document: object) -> None:
        body = json.dumps(document).encode()
        self.head(status, length=len(body))
        self.writer.write(body)

    def reset(self) -> None:
        """Close so that the client's next read fails."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def prompt_tokens(asked: Asked) -> int:
    prompt = asked.body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    words = prompt if isinstance(prompt, str) else " ".join(one["content"] for one in asked.body["messages"])  # type: ignore[attr-defined]
    return 4 + 2 * len(words.split())


async def well(asked: Asked, reply: Replying) -> None:
    """Every token in a chunk of its own."""
    if not asked.body.get("stream"):
        usage = {"prompt_tokens": prompt_tokens(asked), "completion_tokens": asked.tokens}
        choice = {"index": 0, "text": "x", "finish_reason": "length", "token_ids": [7] * asked.tokens}
        reply.whole("200 OK", {"choices": [choice], "usage": usage})
        return
    reply.head()
    for number in range(asked.tokens):
        reply.token(100 + number, finish="length" if number == asked.tokens - 1 else None)
        await reply.writer.drain()
    reply.usage(prompt_tokens(asked), asked.tokens)
    reply.done()


@dataclass
class Server:
    """A server that listens.

    Attributes:
        behave: what it does to a request; by default it answers well.
        asked: the requests that came, in order.
        pages: what it says at a path, instead of what it would.
    """

    behave: Callable[[Asked, Replying], object] = well
    asked: list[Asked] = field(default_factory=list)
    metrics: bool = True
    port: int = 0
    generated: int = 1000
    pages: dict[str, bytes] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def was_asked(self, count: int) -> None:
        """Wait for so many requests."""
        while len(self.asked) < count:
            self._news.clear()
            await self._news.wait()

    async def kill(self) -> None:
        """As a process that ends: nobody listens any more, and every connection is gone."""
        assert self._server is not None
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        # asyncio forgets a connection that it has accepted for a server closed meanwhile: it would stay open, and mute.
        for _ in range(4):
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            while True:
                await self._answer(reader, Replying(writer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            del self._tasks[task]
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, reply: Replying) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = line.split()[1]
        if path.startswith("/v1/") and body:
            asked = Asked(len(self.asked), path, headers, json.loads(body))
            self.asked.append(asked)
            self._news.set()
            result = self.behave(asked, reply)
            if asyncio.iscoroutine(result):
                await result
        elif (page := self.pages.get(path)) is not None:
            reply.head(length=len(page))
            reply.writer.write(page)
        elif path.endswith("/v1/models"):
            reply.whole("200 OK", MODELS)
        elif path.endswith("/metrics") and self.metrics:
            text = METRICS.format(preemptions=3, generated=self.generated).encode()
            reply.head(length=len(text))
            reply.writer.write(text)
        else:
            reply.whole("404 Not Found", {"error": {"message": "no such page"}})


@asynccontextmanager
async def serving(behave: Callable[[Asked, Replying], object] = well, *, metrics: bool = True) -> AsyncIterator[Server]:
    """A server in this event loop."""
    server = Server(behave, metrics=metrics)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@contextmanager
def served(behave: Callable[[Asked, Replying], object] = well, *, metrics: bool = True) -> Iterator[Server]:
    """A server in a thread, for what has an event loop of its own."""
    server = Server(behave, metrics=metrics)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.kill(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
