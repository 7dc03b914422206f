"""The HTTP endpoint in front of a simulation that keeps pace with the wall clock."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final

from aiohttp import web

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json
from blis_tui.base.streams import Streams
from blis_tui.live.serving import connections
from blis_tui.live.serving.core import ABORTED, LOST, OVER, REJECTED, Core, SubmittedRequest
from blis_tui.live.serving.metrics import CONTENT_TYPE, Metrics
from blis_tui.live.serving.openai_api import RefusedError, Shape, most_bytes, parse_request
from blis_tui.live.serving.shared_prefixes import Answer, Contents
from blis_tui.workload.distributions import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Handler

    from blis_tui.engine.request import Request
    from blis_tui.live.serving.core import RequestUpdate
    from blis_tui.live.serving.kv_events import KvPublisher
    from blis_tui.live.serving.openai_api import ParsedRequest
    from blis_tui.model import Experiment

_MOST_BRACKETS: Final = 1 << 20
"""So many lists take about a second to read, in which nobody else is answered."""
_BACKLOG: Final = 1024
_LINGERING_S: Final = 1.0
"""How long the rest of a refused body is read, so that its client reads the answer."""
_STATUS: Final = {REJECTED: 429, LOST: 503, ABORTED: 499}
"""Outcomes without an answer -> HTTP status; all others are the client's fault."""
_STREAM_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


@dataclass(slots=True)
class _Client:
    """A client that waits for an answer."""

    request: Request
    answer: Answer
    finish: str
    """Why its answer ends: `length` at the most tokens that it may have, otherwise `stop`."""
    news: deque[RequestUpdate] = field(default_factory=deque)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, news: RequestUpdate) -> None:
        """Deliver an update."""
        self.news.append(news)
        self.heard.set()

    async def wait(self) -> None:
        """Wait until an update comes, or none will."""
        self.heard.clear()
        if not self.news:
            await self.heard.wait()

    def latest(self) -> RequestUpdate | None:
        """Return all updates since the last call as one."""
        last = self.news.pop() if self.news else None
        self.news.clear()
        return last


class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        experiment: the serving configuration.
        speed: simulated seconds per second.
        kv_events: publishes KV cache events; None = none are published.

    Attributes:
        core: the simulation.
        failure: why the simulation cannot go on; None = it can.
        late_us: largest lag of the simulation so far, in simulated time.
    """

    def __init__(self, experiment: Experiment, *, speed: float = 1.0, kv_events: KvPublisher | None = None) -> None:
        self.core = Core(experiment)
        self.failure: Exception | None = None
        self.late_us = 0
        self._experiment = experiment
        self._speed = speed
        self._kv_events = kv_events
        self._models = list(dict.fromkeys(pool.model.name for pool in experiment.pools))
        self._metrics = Metrics()
        self._contents = Contents(experiment.pools[0].engine.block_size_tokens)
        self._answers = _Lengths(experiment)
        self._longest = min(
            pool.engine.max_model_len or pool.model.max_position_embeddings for pool in experiment.pools
        )
        self._most_bytes = most_bytes(self._longest)
        self._clients: dict[int, _Client] = {}
        self._work = asyncio.Event()
        self._start_ns = time.monotonic_ns()
        self._created = int(time.time())

    # ---- the clock ----

    def now_us(self) -> int:
        """Simulated time that corresponds to the wall clock."""
        return int((time.monotonic_ns() - self._start_ns) * self._speed) // 1000

    async def keep_pace(self) -> None:
        """Simulate events when they are due, until the simulation cannot go on."""
        while True:
            due_us = self.core.next_us()
            wait_s = None if due_us is None else (due_us - self.now_us()) / self._speed / 1e6
            if wait_s is None or wait_s > 0:
                self._work.clear()
                await _either(self._work, wait_s)
            try:
                self._catch_up()
            except Exception as error:  # noqa: BLE001  (clients must not wait for ever, whatever the error)
                self.failure = error
                for client in self._clients.values():
                    client.heard.set()
                return
            await asyncio.sleep(0)

    def _catch_up(self) -> None:
        now_us = self.now_us()
        due_us = self.core.next_us()
        self.late_us = max(self.late_us, 0 if due_us is None else now_us - due_us)
        for news in self.core.advance(now_us):
            client = self._clients.get(news.number)
            if client is not None:
                client.tell(news)
        if self._kv_events is not None:
            self._kv_events.publish(self.core.simulation.cluster, time.time())

    # ---- HTTP ----

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=self._most_bytes)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_post("/tokenize", self._tokenize)
        return app

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, chat=True)

    async def _serve(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            document = await self._json(request)
            arrived_us = self.now_us()
            wanted = parse_request(document, chat=chat, longest=self._longest)
            client = self._submit(wanted, arrived_us)
        except RefusedError as error:
            return web.json_response(error.document(), status=error.status)
        number = client.request.index
        identifier = f"{'chatcmpl' if chat else 'cmpl'}-{number}"
        shape = Shape(wanted, identifier, int(time.time()), wanted.model or self._models[0])
        try:
            if wanted.stream:
                return await self._stream(request, client, shape)
            return await self._whole(client, shape)
        except RefusedError as error:
            return web.json_response(error.document(), status=error.status)
        except ConnectionResetError:  # the client has hung up, or reads no answer
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=_STATUS[ABORTED])
        finally:
            del self._clients[number]
            self.core.abort(number, self.now_us())  # no effect if it has ended
            self._work.set()

    def _submit(self, wanted: ParsedRequest, arrived_us: int) -> _Client:
        """Submit a request.

        Raises:
            RefusedError: it can never be served.
        """
        if self.failure is not None:
            raise RefusedError(500, f"the simulation cannot continue: {self.failure}")
        if wanted.model and wanted.model not in self._models:
            raise RefusedError(404, f"The model `{wanted.model}` does not exist.", "model")
        count, most = self._answer_tokens(wanted)
        number = len(self.core.requests)
        answer = Answer(number, count, goes_on=not wanted.chat)
        ids = answer.tokens()
        content = self._contents.add(f"r{number}", wanted.prompt, ids)
        several = len(self._models) > 1
        request = self.core.submit(
            SubmittedRequest(
                prompt_tokens=len(wanted.prompt),
                output_tokens=count,
                content=content,
                tenant=wanted.user,
                model=wanted.model if several else "",
            ),
            arrived_us,
        )
        if self._kv_events is not None:
            cluster = self.core.simulation.cluster
            self._kv_events.note(cluster, request, content.hashes, [*wanted.prompt, *ids])
        client = self._clients[number] = _Client(request, answer, "stop" if count < most else "length")
        if client.finish == "length":
            self._metrics.cut.add(number)
        self._work.set()
        return client

    def _answer_tokens(self, wanted: ParsedRequest) -> tuple[int, int]:
        """Return the length of the answer, and how long it may be.

        Raises:
            RefusedError: there is no room for any.
        """
        longest = self._longest
        room = longest - len(wanted.prompt)
        if room < 1:
            count = len(wanted.prompt)
            raise RefusedError(400, f"This model's maximum context length is {longest} tokens; the prompt has {count}.")
        if wanted.max_tokens is not None and wanted.max_tokens > longest:
            limit = wanted.max_tokens
            raise RefusedError(400, f"max_tokens={limit} cannot be greater than max_model_len={longest}.", "max_tokens")
        limit = room if wanted.max_tokens is None else min(wanted.max_tokens, room)
        drawn = None if wanted.ignore_eos else self._answers.draw()
        return (limit if drawn is None else min(max(drawn, wanted.min_tokens, 1), limit)), limit

    async def _news(self, client: _Client) -> RequestUpdate:
        """Wait for the next update about a request.

        Raises:
            RefusedError: it has ended without an answer.
        """
        while (news := client.latest()) is None:
            if self.failure is not None:
                raise RefusedError(500, f"the simulation cannot continue: {self.failure}")
            await client.wait()
        if news.end not in ("", OVER):
            reason = news.reason or "the request ended without an answer"
            raise RefusedError(_STATUS.get(news.end, 400), f"{news.end}: {reason}")
        return news

    async def _whole(self, client: _Client, shape: Shape) -> web.StreamResponse:
        while not (await self._news(client)).end:
            pass
        count = client.request.generated_tokens
        text, ids = client.answer.piece(0, count)
        usage = shape.usage(count, client.request.cached_tokens)
        return web.json_response(shape.whole(text, ids, client.finish, usage))

    async def _stream(self, request: web.Request, client: _Client, shape: Shape) -> web.StreamResponse:
        news = await self._news(client)  # a request that is rejected at once gets no stream
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        if (beginning := shape.first_chunk()) is not None:
            await _event(response, beginning)
        sent, wanted = 0, shape.wanted
        total = client.request.output_tokens
        while True:
            if news.tokens > sent:
                text, ids = client.answer.piece(sent, news.tokens)
                sent = news.tokens
                finish = client.finish if sent >= total else None
                usage = shape.usage(sent, client.request.cached_tokens) if wanted.usage_in_chunks else None
                await _event(response, shape.chunk(text, ids, finish, usage))
            if news.end:
                break
            try:
                news = await self._news(client)
            except RefusedError as error:
                await _event(response, error.document())
                break
        if wanted.usage and sent >= total:
            await _event(response, shape.ending(shape.usage(sent, client.request.cached_tokens)))
        await _read(response.write(b"data: [DONE]\n\n"))
        await _read(response.write_eof())
        return response

    async def _list_models(self, _: web.Request) -> web.StreamResponse:
        models = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "blis-tui",
                "root": name,
                "max_model_len": next(
                    pool.engine.max_model_len or pool.model.max_position_embeddings
                    for pool in self._experiment.pools
                    if pool.model.name == name
                ),
            }
            for name in self._models
        ]
        return web.json_response({"object": "list", "data": models})

    async def _show_metrics(self, _: web.Request) -> web.StreamResponse:
        simulation = self.core.simulation
        live = [client.request for client in self._clients.values() if client.request.completed_us < 0]
        text = self._metrics.text(simulation.cluster, simulation.log, live)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if self.failure is None else 503)

    async def _version(self, _: web.Request) -> web.StreamResponse:
        from blis_tui._version import __version__  # noqa: PLC0415

        return web.json_response({"version": f"blis-tui {__version__}"})

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        try:
            document = await self._json(request)
            chat = isinstance(document, dict) and "messages" in document
            tokens = list(parse_request(document, chat=chat, longest=self._longest).prompt)
        except RefusedError as error:
            return web.json_response(error.document(), status=error.status)
        longest = self._experiment.pools[0].engine.max_model_len
        return web.json_response({"tokens": tokens, "count": len(tokens), "max_model_len": longest})

    async def _json(self, request: web.Request) -> object:
        """Return the document in the body of a request.

        Raises:
            RefusedError: there is none, or it is too large or comes too slowly.
        """
        too_large = RefusedError(413, f"the body is larger than {self._most_bytes >> 20} MiB")
        if (request.content_length or 0) > self._most_bytes:
            raise too_large
        try:
            async with asyncio.timeout(connections.IDLE_S):
                body = await request.read()
        except TimeoutError as error:
            raise RefusedError(408, f"the body has not come within {connections.IDLE_S:g} s") from error
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large from error
        except web.RequestPayloadError as error:
            raise RefusedError(400, "the body is not sent as HTTP says") from error
        body = _unpacked(body, request.headers.get("Content-Encoding", ""), self._most_bytes)
        if len(body) > self._most_bytes:
            raise too_large
        if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS:
            raise RefusedError(400, f"the body has more than {_MOST_BRACKETS:,} lists and objects")
        try:
            return parse_json(body)
        except ValueError as error:
            raise RefusedError(400, f"the body is not JSON: {error}") from error


class _Lengths:
    """Lengths of answers that may end before ``max_tokens``, from the first client of the workload."""

    def __init__(self, experiment: Experiment) -> None:
        clients = experiment.workload.clients
        self._counts = None
        if clients:
            config = clients[0].output_tokens
            self._counts = experiment.plugins.create(LENGTHS, config.kind, config.settings)
        self._stream = Streams(experiment.seed).stream("serving/output")

    def draw(self) -> int | None:
        """Draw the length of the next answer; None = unknown."""
        return None if self._counts is None else self._counts.sample(self._stream)


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return the content of a body, or more than its first ``most`` bytes.

    Raises:
        RefusedError: it is not compressed as it says.
    """
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise RefusedError(400, f"a body compressed with {encoding[:20]!r} cannot be read: gzip and deflate can")
    reading = zlib.decompressobj(zlib.MAX_WBITS | 32)  # with the head of either
    try:
        content = reading.decompress(body, most + 1)
    except zlib.error as error:
        raise RefusedError(400, f"the body is not compressed with {encoding}: {error}") from error
    if len(content) <= most and not reading.eof:
        raise RefusedError(400, f"the body is cut off: its compression with {encoding} does not end")
    return content


async def _event(response: web.StreamResponse, document: object) -> None:
    data = json.dumps(document, separators=(",", ":"))
    await _read(response.write(f"data: {data}\n\n".encode()))


async def _read(writing: Awaitable[None]) -> None:
    """Wait until a client has read enough of what it is sent.

    Raises:
        ConnectionResetError: it does not read.
    """
    try:
        async with asyncio.timeout(connections.IDLE_S):
            await writing
    except TimeoutError as error:
        raise ConnectionResetError("the client does not read its answer") from error


async def _either(event: asyncio.Event, wait_s: float | None) -> None:
    """Wait for an event, at most ``wait_s`` seconds."""
    try:
        await asyncio.wait_for(event.wait(), wait_s)
    except TimeoutError:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen: a host, a port (0 = any free one), and how many connections there may be."""

    host: str
    port: int
    most_connections: int = connections.MOST_CONNECTIONS


async def run(endpoint: Endpoint, address: Address, on_listening: Callable[[int], None], stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set or the simulation cannot go on; ``on_listening`` is told the port.

    Raises:
        InputError: the address cannot be listened on.
    """
    app = endpoint.app()
    # Cancelled handlers abort the requests of clients that have hung up.
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=1.0,
        handler_cancellation=True,
        auto_decompress=False,
        lingering_time=_LINGERING_S,
    )
    accepted = connections.Connections(lambda: _speaker(runner), address.most_connections)

    @web.middleware
    async def answering(request: web.Request, handler: Handler) -> web.StreamResponse:
        with accepted.answering(request.protocol):
            return await handler(request)

    app.middlewares.append(answering)
    await runner.setup()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(accepted.handle_error)
    tasks = [asyncio.create_task(coroutine) for coroutine in (endpoint.keep_pace(), stop.wait(), accepted.close_idle())]
    try:
        listening = await _listening(accepted, address)
        on_listening(int(listening.sockets[0].getsockname()[1]))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        listening.close()
    finally:
        for task in tasks:
            task.cancel()
        await runner.cleanup()
        endpoint.core.close()


async def _listening(accepted: connections.Connections, address: Address) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(accepted.accept, address.host, address.port, backlog=_BACKLOG)
    except OSError as error:
        where = f"{address.host}:{address.port}"
        raise InputError(f"cannot listen on {where}: {error.strerror or error}") from error


def _speaker(runner: web.AppRunner) -> asyncio.Protocol:
    assert runner.server is not None  # noqa: S101  (it is set up)
    return runner.server()
