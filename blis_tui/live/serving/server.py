"""The HTTP endpoint in front of a simulation that keeps pace with the wall clock."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final

from aiohttp import web

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.streams import Streams
from blis_tui.live.serving import connections
from blis_tui.live.serving.adapters import Adapters
from blis_tui.live.serving.anthropic_api import Messages, message_prompt
from blis_tui.live.serving.api import MOST_CHOICES, Head
from blis_tui.live.serving.bodies import read_document
from blis_tui.live.serving.core import ABORTED, LOST, OVER, REJECTED, Core, SubmittedRequest
from blis_tui.live.serving.fields import RefusedError, TooLongError, body_of, most_bytes
from blis_tui.live.serving.metrics import CONTENT_TYPE, Metrics
from blis_tui.live.serving.openai_api import Chat, Completions, chat_prompt, completion_prompts
from blis_tui.live.serving.responses_api import Responses
from blis_tui.live.serving.shared_prefixes import Answer, Contents
from blis_tui.live.serving.waiting import Choice, Client
from blis_tui.workload.distributions import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aiohttp.typedefs import Handler

    from blis_tui.live.serving.api import Api, Asked, Event, Writer
    from blis_tui.live.serving.kv_events import KvPublisher
    from blis_tui.live.serving.waiting import Spoken
    from blis_tui.model import Experiment

_MOST_TOKENS: Final = 1 << 21
"""So many tokens of several answers take some seconds to make, in which nobody else is answered."""
_BACKLOG: Final = 1024
_LINGERING_S: Final = 1.0
"""How long the rest of a refused body is read, so that its client reads the answer."""
_STATUS: Final = {REJECTED: 429, LOST: 503, ABORTED: 499}
"""Outcomes without an answer -> HTTP status; all others are the client's fault."""
_STREAM_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_COMPLETIONS: Final = Completions()
_CHAT: Final = Chat()
_RESPONSES: Final = Responses()
_MESSAGES: Final = Messages()
_APIS: Final[dict[str, Api]] = {
    "/v1/completions": _COMPLETIONS,
    "/v1/chat/completions": _CHAT,
    "/v1/responses": _RESPONSES,
    "/v1/messages": _MESSAGES,
}


class Endpoint:
    """An endpoint with the APIs of a vLLM server.

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
        self._adapters = Adapters(experiment)
        self._clients: dict[int, Client] = {}
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
        app = web.Application(client_max_size=self._most_bytes, middlewares=[_refusing])
        for path, api in _APIS.items():
            app.router.add_post(path, self._served_by(api))
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_post("/v1/load_lora_adapter", self._load_adapter)
        app.router.add_post("/v1/unload_lora_adapter", self._unload_adapter)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_post("/tokenize", self._tokenize)
        return app

    def _served_by(self, api: Api) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            document = await read_document(request, self._most_bytes)
            arrived_us = self.now_us()
            asked, written_by = api.parse(document, self._longest)
            number = len(self.core.requests)
            client = self._submit(asked, arrived_us)
            writer = written_by(Head(number=number, created=int(time.time()), model=asked.model or self._models[0]))
            try:
                if asked.stream:
                    return await self._stream(request, client, writer)
                return await self._whole(client, writer)
            except ConnectionResetError:  # the client has hung up, or reads no answer
                if request.transport is not None:
                    request.transport.abort()
                return web.Response(status=_STATUS[ABORTED])
            finally:
                self._leave(client)

        return serve

    def _submit(self, asked: Asked, arrived_us: int) -> Client:
        """Submit a request: each choice of each prompt by itself, at the same time.

        Raises:
            RefusedError: it can never be served.
        """
        if self.failure is not None:
            raise RefusedError(500, f"the simulation cannot continue: {self.failure}")
        model, adapter = self._model_and_adapter(asked.model)
        count = len(asked.prompts) * asked.choices
        several = "n" if asked.choices > 1 else "prompt"
        if count > MOST_CHOICES:
            raise RefusedError(400, f"no more than {MOST_CHOICES:,} answers at a time, got {count:,}", several)
        prompts = [prompt for prompt in asked.prompts for _ in range(asked.choices)]
        lengths = [self._length(asked, prompt) for prompt in prompts]
        tokens = whole_sum([len(prompt) + length for prompt, (length, _) in zip(prompts, lengths, strict=True)])
        if tokens > _MOST_TOKENS and count > 1:
            message = f"no more than {_MOST_TOKENS:,} tokens of prompts and answers at a time, got {tokens:,}"
            raise RefusedError(400, message, several)
        client = Client({}, asked.choices)
        for prompt, (wanted, most) in zip(prompts, lengths, strict=True):
            number = len(self.core.requests)
            answer, length, finish = _answer(asked, number, wanted, most)
            ids = answer.piece(0, length)[1]
            content = self._contents.add(f"r{number}", prompt, ids, adapter)
            request = self.core.submit(
                SubmittedRequest(
                    prompt_tokens=len(prompt),
                    output_tokens=length,
                    content=content,
                    tenant=asked.user,
                    model=model,
                    adapter=adapter,
                ),
                arrived_us,
            )
            if self._kv_events is not None:
                self._kv_events.note(self.core.simulation.cluster, request, content.hashes, [*prompt, *ids])
            client.choices[number] = Choice(len(client.choices), request, answer, finish)
            self._clients[number] = client
            if finish == "length":
                self._metrics.cut.add(number)
        self._work.set()
        return client

    def _model_and_adapter(self, name: str) -> tuple[str, str]:
        """Return the model and the adapter of that name, both empty if nothing has to be said.

        Raises:
            RefusedError: there is neither.
        """
        several = len(self._models) > 1
        if not name or name in self._models:
            return (name if several else ""), ""
        model = self._adapters.loaded.get(name)
        if model is None:
            raise RefusedError(404, f"The model `{name}` does not exist.", "model")
        return (model if several else ""), name

    def _length(self, asked: Asked, prompt: Sequence[int]) -> tuple[int, int]:
        """Return the length that an answer would have, and how long it may be.

        Raises:
            RefusedError: there is no room for any.
        """
        longest = self._longest
        room = longest - len(prompt)
        if room < 1:
            raise TooLongError(longest, asked.source, len(prompt))
        if asked.max_tokens is not None and asked.max_tokens > longest:
            message = f"{asked.limit}={asked.max_tokens} cannot be greater than max_model_len={longest}."
            raise RefusedError(400, message, asked.limit)
        limit = room if asked.max_tokens is None else min(asked.max_tokens, room)
        drawn = None if asked.ignore_eos else self._answers.draw()
        return (limit if drawn is None else min(max(drawn, asked.min_tokens, 1), limit)), limit

    def _leave(self, client: Client) -> None:
        """Forget a client; what it still waits for ends."""
        for number in client.choices:
            del self._clients[number]
            self.core.abort(number, self.now_us())  # no effect if it has ended
        self._work.set()

    async def _changed(self, client: Client) -> list[Choice]:
        """Wait for news about a client's choices.

        Raises:
            RefusedError: one of them has ended without an answer.
        """
        while not (changed := client.changed()):
            if self.failure is not None:
                raise RefusedError(500, f"the simulation cannot continue: {self.failure}")
            await client.wait()
        for choice in changed:
            if choice.news is not None and choice.news.end not in ("", OVER):
                reason = choice.news.reason or "the request ended without an answer"
                raise RefusedError(_STATUS.get(choice.news.end, 400), f"{choice.news.end}: {reason}")
        return changed

    async def _whole(self, client: Client, writer: Writer) -> web.StreamResponse:
        while not client.over:
            for choice in await self._changed(client):
                choice.grown()
        return web.json_response(writer.whole(client.whole(), client.total()))

    async def _stream(self, request: web.Request, client: Client, writer: Writer) -> web.StreamResponse:
        changed = await self._changed(client)  # a request that is rejected at once gets no stream
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        await _send(response, writer.opening(client.total()))
        try:
            while True:
                for choice in changed:
                    if (part := choice.grown()) is not None:
                        await _send(response, writer.part(part))
                if client.over:
                    break
                changed = await self._changed(client)
            await _send(response, writer.closing(client.whole(), client.total()))
        except RefusedError as error:
            await _send(response, writer.failure(error))
        if writer.last_line:
            await _read(response.write(writer.last_line.encode()))
        await _read(response.write_eof())
        return response

    async def _list_models(self, _: web.Request) -> web.StreamResponse:
        models: list[dict[str, object]] = [
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
        models += [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "blis-tui",
                "root": name,
                "parent": of,
            }
            for name, of in self._adapters.loaded.items()
        ]
        return web.json_response({"object": "list", "data": models})

    async def _show_metrics(self, _: web.Request) -> web.StreamResponse:
        simulation = self.core.simulation
        waiting = [client.choices[number].request for number, client in self._clients.items()]
        live = [request for request in waiting if request.completed_us < 0]
        text = self._metrics.text(simulation.cluster, simulation.log, live)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if self.failure is None else 503)

    async def _version(self, _: web.Request) -> web.StreamResponse:
        from blis_tui._version import __version__  # noqa: PLC0415

        return web.json_response({"version": f"blis-tui {__version__}"})

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = body_of(await read_document(request, self._most_bytes))
        if "messages" in body:
            tokens: Sequence[int] = chat_prompt(body, self._longest)
        else:
            tokens, *others = completion_prompts(body, self._longest)
            if others:
                raise RefusedError(400, "`prompt` must be one text or one list of token ids here", "prompt")
        longest = self._experiment.pools[0].engine.max_model_len
        return web.json_response({"tokens": list(tokens), "count": len(tokens), "max_model_len": longest})

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        body = body_of(await read_document(request, self._most_bytes))
        return web.json_response({"input_tokens": len(message_prompt(body, self._longest))})

    async def _load_adapter(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._adapters.load(await read_document(request, self._most_bytes)))

    async def _unload_adapter(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._adapters.unload(await read_document(request, self._most_bytes)))


def _answer(asked: Asked, number: int, length: int, most: int) -> tuple[Spoken, int, str]:
    """Return an answer, its length, and why it ends.

    JSON is as long as its schema needs, and ends by itself when it is complete.
    """
    if asked.form is None:
        return Answer(number, length, goes_on=asked.goes_on), length, "stop" if length < most else "length"
    formed = asked.form.answer(number, length)
    length = most if asked.ignore_eos else min(max(formed.length, asked.min_tokens), most)
    return formed, length, "stop" if formed.length <= length and not asked.ignore_eos else "length"


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


_MISSING: Final = {
    "/detokenize": "there is no tokenizer, so tokens have no texts",
    "/v1/embeddings": "answers are simulated, embeddings are not",
}
"""Why endpoints that vLLM has are missing."""


@web.middleware
async def _refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a refused request in the format of its API."""
    try:
        return await handler(request)
    except RefusedError as error:
        refused = error
        headers = None
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        reason = _MISSING.get(request.path, "docs/observe.md says what there is")
        refused = RefusedError(error.status, f"no {request.method} {request.path[:100]} is simulated: {reason}")
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    api = _MESSAGES if request.path.startswith("/v1/messages") else _CHAT
    return web.json_response(api.refusal(refused), status=refused.status, headers=headers)


async def _send(response: web.StreamResponse, events: Iterable[Event]) -> None:
    for event in events:
        named = f"event: {event.name}\n" if event.name else ""
        data = json.dumps(event.document, separators=(",", ":"))
        await _read(response.write(f"{named}data: {data}\n\n".encode()))


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

    app.middlewares.insert(0, answering)
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
