"""One recording run: query the server, warm it up, load it on schedule, and watch it meanwhile."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.observe.clock import Clock
from blis_tui.observe.exchange import Exchanges
from blis_tui.observe.load import Load
from blis_tui.observe.metrics import differences, values
from blis_tui.observe.prompts import Prompts, TextScale
from blis_tui.observe.recording import Scrape
from blis_tui.observe.server_log import step_of
from blis_tui.observe.status import Progress
from blis_tui.observe.survey import METRICS_PATH, ask, fetch, scale_of, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from blis_tui.observe.folder import Folder
    from blis_tui.observe.kv_events import KvEvents
    from blis_tui.observe.load import Limits
    from blis_tui.observe.prompts import RequestForm
    from blis_tui.observe.recording import Observed, Server
    from blis_tui.observe.server_log import Tail
    from blis_tui.observe.status import Status
    from blis_tui.observe.target import Target
    from blis_tui.workload.interactive import InteractiveSource
    from blis_tui.workload.source import RequestSource

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
        found = await survey(self._exchanges, plan.address)
        self.server = found.server
        dialect = plan.asking.dialect or ("vllm" if found.metrics or found.server.version else "openai")
        asking = replace(plan.asking, dialect=dialect, model=plan.asking.model or found.server.model)
        asking = replace(asking, text=asking.text or dialect == "openai", longest=found.server.max_model_len)
        prompts = Prompts(asking)
        timeout_s = plan.limits.timeout_us / 1e6
        scale = TextScale()
        if asking.text or asking.api == "chat":
            scale = await scale_of(self._exchanges, prompts, timeout_s)
            prompts = Prompts(asking, scale)
        for number in range(plan.warm_up):
            await ask(self._exchanges, asking, prompts.warm_up(number, *_WARM_UP_TOKENS), timeout_s)
        return asking, found.metrics, scale

    # ---- the run ----

    async def _observe(self, asking: RequestForm, metrics: bool, scale: TextScale) -> None:
        assert self.server is not None  # noqa: S101  (queried before)
        plan = self._plan
        before = await self._counters() if metrics else None
        about = {**plan.about, **_said(asking), "complete": False}
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
        watching = [asyncio.create_task(one) for one in beside]
        try:
            if self._stopped:
                self._loading.cancel()
            done, _ = await asyncio.wait([self._loading, *watching], return_when=asyncio.FIRST_COMPLETED)
            failed = next((one for one in done if one is not self._loading), None)
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
            found = await self._counters()
            heard_us = self._clock.now_us()
            if found:
                self._progress.server = found
                self._folder.scrape(Scrape(time_us=(asked_us + heard_us) // 2, values=found))
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


def _said(asking: RequestForm) -> dict[str, object]:
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
