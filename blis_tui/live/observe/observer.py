"""One recording run: query the server, warm it up, load it on schedule, and watch it."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_foreign_json
from blis_tui.live.observe.answers import brief, count_of, error_text, read_answer
from blis_tui.live.observe.exchange import ConnectionBrokenError, Exchanges, Reply, longest_answer
from blis_tui.live.observe.prompts import Prompts, TextScale
from blis_tui.live.observe.recording import Scrape
from blis_tui.live.observe.recording_summary import Progress
from blis_tui.live.observe.sending import Load
from blis_tui.live.observe.server_reports import differences, settings, step_of, values
from blis_tui.live.observe.wire import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from blis_tui.live.observe.answers import Answer
    from blis_tui.live.observe.prompts import RequestForm
    from blis_tui.live.observe.recording import Folder, Observed, Server
    from blis_tui.live.observe.recording_summary import Status
    from blis_tui.live.observe.sending import Limits
    from blis_tui.live.observe.server_reports import KvEvents, Tail
    from blis_tui.live.observe.wire import Target
    from blis_tui.workload.interactive import InteractiveSource
    from blis_tui.workload.source import RequestSource


_PATIENCE_S: Final = 10.0
_MOST_BYTES: Final = 8 << 20
"""Limit of what a server says of itself; the metrics of an engine have some 100 kB."""
_FIRST_TOKENS: Final = 64
"""The most tokens that a first request may ask for."""
_UNTRUSTED: Final = "trust its certificate, or who signed it, in a file of PEM that the variable SSL_CERT_FILE names"
_SHORT, _LONG = 20, 220
"""Numbers of words in the two prompts that measure tokens per word."""
METRICS_PATH: Final = "/metrics"


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answers."""

    server: Server
    metrics: bool
    """Whether it has vLLM's metrics."""


async def fetch(exchanges: Exchanges, path: str) -> Reply | None:
    """Return the answer to a query that not every server supports; None = it does not.

    A broken connection is retried once, because a server may just have closed an idle one, and the query starts no
    computation.

    Raises:
        OSError: the server cannot be reached.
        TimeoutError: it does not answer.
    """
    reply = Reply()
    async with asyncio.timeout(_PATIENCE_S):
        try:
            await exchanges.ask("GET", path, b"", reply, most=_MOST_BYTES)
        except (ConnectionBrokenError, ConnectionError):
            reply = Reply()
            await exchanges.ask("GET", path, b"", reply, most=_MOST_BYTES)
    return reply if reply.status == 200 else None


async def survey(exchanges: Exchanges, address: str) -> Found:
    """Query a server's description.

    Raises:
        InputError: it cannot be reached.
    """
    try:
        models, metrics, version = [await fetch(exchanges, path) for path in ("/v1/models", METRICS_PATH, "/version")]
    except (OSError, TimeoutError) as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else str(error)
        untrusted = isinstance(error, ssl.SSLCertVerificationError)
        hint = _UNTRUSTED if untrusted else "is the server running, and is the address right?"
        raise InputError(f"cannot reach {address}: {why}", help=hint) from error
    text = "" if metrics is None else metrics.body.decode(errors="replace")
    reported = settings(text)
    model = _first_model(models)
    longest, name = model.get("max_model_len"), model.get("id")
    number = _map(version).get("version")
    server = replace(
        reported,
        version=brief(number) if isinstance(number, str) else "",
        model=name if isinstance(name, str) and name == brief(name) else "",
        max_model_len=count_of(longest),
    )
    return Found(server, "vllm:" in text)


async def ask(exchanges: Exchanges, asking: RequestForm, body: bytes, timeout_s: float) -> Answer:
    """Send one request outside of the schedule.

    Raises:
        InputError: it gets no answer.
    """
    reply = Reply()
    try:
        async with asyncio.timeout(timeout_s):
            await exchanges.ask("POST", asking.path, body, reply, most=longest_answer(_FIRST_TOKENS))
    except (OSError, TimeoutError) as error:
        why = f"no end after {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
        raise InputError(f"the server does not answer a first request: {why}") from error
    if reply.status != 200:
        raise InputError(
            f"the server refuses a first request: {error_text(reply.body, reply.status, reply.headers)}",
            help="see --api, --model, --vocabulary and --dialect",
        )
    answer = read_answer(reply.pieces, reply.done_ns, reply.headers, stream=asking.stream)
    if answer.error or not answer.chunks:
        raise InputError(f"the server's first answer has no tokens: {answer.error or 'it is empty'}")
    return answer


async def scale_of(exchanges: Exchanges, prompts: Prompts, timeout_s: float) -> TextScale:
    """Measure how many tokens the server counts per word, from two prompts.

    Raises:
        InputError: it does not report the number of prompt tokens.
    """
    counts = []
    for words in (_SHORT, _LONG):
        answer = await ask(exchanges, prompts.asking, prompts.probe(words, f"probe-{words}"), timeout_s)
        counts.append(answer.usage.prompt_tokens)
    short, long = counts
    if short is None or long is None or long <= short:
        raise InputError(
            "the server does not report the number of prompt tokens, so prompts of a given length cannot be made"
        )
    per_word = (long - short) / (_LONG - _SHORT)
    return TextScale(per_word, max(short - per_word * _SHORT, 0.0))


def _first_model(reply: Reply | None) -> Mapping[str, object]:
    models = _map(reply).get("data")
    return models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}


def _map(reply: Reply | None) -> Mapping[str, object]:
    if reply is None:
        return {}
    try:
        document = parse_foreign_json(reply.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


_LOG_S: Final = 0.002
"""Interval between reads of the server's log; no step is shorter."""
_STATUS_S: Final = 0.25
_WARM_UP_TOKENS: Final = (64, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to observe."""

    target: Target
    address: str
    source: RequestSource | InteractiveSource
    total: int | None
    """Number of requests; None = unknown."""
    asking: RequestForm
    """Form of requests; empty fields are filled with the server's values."""
    limits: Limits
    warm_up: int
    scrape_s: float
    about: Mapping[str, object]
    """Content of ``recording.json`` besides what is found out."""
    lead_s: float = 0.2
    """Time from the last read of the counters to the start of the schedule."""
    settle_s: float = 1.0
    """Time after the last answer within which counters and log are complete."""


class Observer:
    """One run.

    Attributes:
        server: the server's description of itself, once queried.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Folder,
        *,
        log: Tail | None = None,
        kv_events: KvEvents | None = None,
        tell: Callable[[Status], None] | None = None,
    ) -> None:
        self.server: Server | None = None
        self._plan = plan
        self._folder = folder
        self._log = log
        self._kv_events = kv_events
        self._tell = tell
        self._exchanges = Exchanges(plan.target)
        self._progress = Progress(plan.total)
        self._clock = Clock(time.monotonic_ns())
        self._load: Load | None = None
        self._stopped = False
        self._lost_scrapes = 0
        self._running: asyncio.Task[bool] | None = None
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> bool:
        """Observe until the workload ends; return False if stopped before.

        Raises:
            InputError: the server cannot be reached, refuses the first requests, or a file cannot be written.
        """
        self._running = asyncio.current_task()
        try:
            asking, metrics, scale = await self._prepare()
            await self._observe(asking, metrics, scale)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            self._exchanges.close()
            if self._log is not None:
                self._log.close()
            if self._kv_events is not None:
                self._kv_events.close()
            self._folder.close()
        return not self._stopped

    def stop(self) -> None:
        """Stop sending, and abort requests in progress."""
        self._stopped = True
        if self._loading is not None:
            self._loading.cancel()
        elif self._running is not None:
            self._running.cancel()

    # ---- before the run ----

    async def _prepare(self) -> tuple[RequestForm, bool, TextScale]:
        plan = self._plan
        surveyed = await survey(self._exchanges, plan.address)
        self.server = surveyed.server
        dialect = plan.asking.dialect or ("vllm" if surveyed.metrics or surveyed.server.version else "openai")
        asking = replace(plan.asking, dialect=dialect, model=plan.asking.model or surveyed.server.model)
        asking = replace(asking, text=asking.text or dialect == "openai", longest=surveyed.server.max_model_len)
        prompts = Prompts(asking)
        timeout_s = plan.limits.timeout_us / 1e6
        scale = TextScale()
        if asking.text or asking.api == "chat":
            scale = await scale_of(self._exchanges, prompts, timeout_s)
            prompts = Prompts(asking, scale)
        for number in range(plan.warm_up):
            await ask(self._exchanges, asking, prompts.warm_up(number, *_WARM_UP_TOKENS), timeout_s)
        return asking, surveyed.metrics, scale

    # ---- the run ----

    async def _observe(self, asking: RequestForm, metrics: bool, scale: TextScale) -> None:
        assert self.server is not None  # noqa: S101  (queried before)
        plan = self._plan
        before = await self._counters() if metrics else None
        about = {**plan.about, **_form_data(asking), "complete": False}
        about |= {"log": self._log is not None, "kv_events": self._kv_events is not None}
        self._folder.begin(about, self.server)
        if self._log is not None:
            for _ in self._log.lines():  # skip the lines of the warm-up
                pass
        began_s = time.time() + plan.lead_s
        self._clock = Clock(time.monotonic_ns() + round(plan.lead_s * 1e9))
        limits = plan.limits
        self._load = Load(plan.source, Prompts(asking, scale), self._exchanges, self._clock, limits, self._ended)
        beside: list[Coroutine[None, None, None]] = [self._show()]
        if metrics:
            beside.append(self._scrape())
        if self._log is not None:
            beside.append(self._read_log(self._log))
        if self._kv_events is not None:
            beside.append(self._kv_events.listen(self._clock, self._folder.kv_event))
        await self._together(self._load, beside)
        self._report_progress()
        after = None if before is None else await self._counters()
        counters = {} if before is None or after is None else differences(before, after)
        about |= {"complete": not self._stopped, "began_unix_s": round(began_s, 6), "counters": counters}
        self._folder.say(about | {"lost_scrapes": self._lost_scrapes}, self.server)

    async def _together(self, load: Load, beside: list[Coroutine[None, None, None]]) -> None:
        """Load the server while other tasks run; a failure of any ends the run."""
        self._loading = asyncio.create_task(load.run())
        watching = [asyncio.create_task(coroutine) for coroutine in beside]
        try:
            if self._stopped:
                self._loading.cancel()
            done, _ = await asyncio.wait([self._loading, *watching], return_when=asyncio.FIRST_COMPLETED)
            failed = next((finished for finished in done if finished is not self._loading), None)
            if failed is not None:
                failed.result()
            with suppress(asyncio.CancelledError):
                await self._loading
            if not self._stopped:
                await asyncio.sleep(self._plan.settle_s if len(watching) > 1 else 0)
        finally:
            for task in (self._loading, *watching):
                task.cancel()
            await asyncio.gather(self._loading, *watching, return_exceptions=True)

    def _ended(self, row: Observed) -> None:
        self._progress.note(row)
        self._folder.request(row)

    # ---- concurrent tasks ----

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(_STATUS_S)
            self._report_progress()

    def _report_progress(self) -> None:
        if self._tell is not None and self._load is not None:
            self._tell(self._progress.look(self._clock.now_us(), self._load.sent, self._load.running))

    async def _scrape(self) -> None:
        while True:
            asked_us = self._clock.now_us()
            figures = await self._counters()
            heard_us = self._clock.now_us()
            if figures:
                self._progress.server = figures
                self._folder.scrape(Scrape(time_us=(asked_us + heard_us) // 2, values=figures))
            await asyncio.sleep(max(self._plan.scrape_s - (heard_us - asked_us) / 1e6, 0.01))

    async def _counters(self) -> dict[str, float] | None:
        """Return the current metrics; None, and a counted loss, if the server does not answer."""
        try:
            reply = await fetch(self._exchanges, METRICS_PATH)
        except (OSError, TimeoutError):
            reply = None
        if reply is None:
            self._lost_scrapes += 1
            return None
        return values(reply.body.decode(errors="replace"))

    async def _read_log(self, log: Tail) -> None:
        while True:
            for line, written_ns in log.lines():
                if (step := step_of(line, self._clock.us(written_ns))) is not None:
                    self._folder.step(step)
            await asyncio.sleep(_LOG_S)


def _form_data(asking: RequestForm) -> dict[str, object]:
    """Return the form of requests, for the recording."""
    return {
        "api": asking.api,
        "dialect": asking.dialect,
        "asked_model": asking.model,
        "stream": asking.stream,
        "exact_lengths": asking.exact,
        "text_prompts": asking.text or asking.api == "chat",
        "vocabulary": asking.vocabulary,
        "prompt_seed": asking.seed,
    }
