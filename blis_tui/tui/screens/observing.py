"""Observation of a server: its status, and the process in which it runs."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.text import draw
from blis_tui.base.units import bar_text, count_text, span_text, time_text
from blis_tui.live.observe.following import Following, FollowingRecords, merged
from blis_tui.live.observe.recording import COMPLETED, OUTCOMES
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, TitleBar
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.panes.timeline import round_end
from blis_tui.tui.screens.side_by_side import CompareBox, show_in_boxes

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.live.observe.following import FollowedEvent
    from blis_tui.live.observe.recording_summary import Status
    from blis_tui.tui.observing_start import ObservingStart


_MUTED: Final = "$text-muted"
_RUNNING: Final = "vllm:num_requests_running"
_WAITING: Final = "vllm:num_requests_waiting"
_KV: Final = "vllm:kv_cache_usage_perc"
_LATE_US: Final = 10_000
"""Requests sent with more delay than this are shown as late."""
_GUTTER: Final = 11
_LEAST_NAME: Final = 6
"""Minimum width of a run's name."""
_EVENTS: Final = 200
"""Maximum number of events of several runs that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """The state of the screen."""

    url: str
    statuses: Sequence[Status]
    """All statuses, the latest last."""
    over: bool
    """Whether the run has ended."""
    output: str
    """Its final output."""
    code: int | None
    """Its exit code, once it has ended."""
    runs: tuple[tuple[str, Status], ...] = ()
    """Of several runs, or one of which records are written: their names, and their latest statuses."""
    events: Sequence[FollowedEvent] = ()
    """Their latest events by time, the latest last."""

    @property
    def latest(self) -> Status | None:
        """The latest status."""
        return self.statuses[-1] if self.statuses else None


def title_text(view: Observing) -> Content:
    """Return the server's URL."""
    return Content.assemble(("observe ", "$accent bold"), (view.url, "bold"))


def activity_text(view: Observing) -> Content:
    """Return the time, and the current activity."""
    status = view.latest
    if view.over:
        return (
            Content.styled("■ finished", "$success bold")
            if not view.code
            else Content.styled("■ finished", "$error bold")
        )
    if status is None:
        return Content.styled("asking the server …", _MUTED)
    return Content.assemble(("t ", _MUTED), f"{max(status.time_us, 0) / 1e6:,.1f} s  ", ("▶ running", "$success bold"))


def counts_text(view: Observing, width: int) -> Content:
    """Return the numbers of requests sent, answered and failed, with the reasons."""
    status = view.latest
    if view.runs:
        return _table(view, ("answered", "in flight", "failed"), _counts, width)
    if status is None:
        return Content("")
    done = status.outcomes.get(COMPLETED, 0)
    ended = done + status.failed
    total = status.total
    lines = []
    if total:
        lines.append(
            Content.assemble((bar_text(ended, total, max(width - 22, 8)), "$primary"), f"  {ended:,} of {total:,}")
        )
    lines.append(_row("answered", count_text(done)))
    lines.append(_row("in flight", count_text(status.running)))
    for name, count in status.outcomes.items():
        if name != COMPLETED:
            lines.append(_row(name, f"{count_text(count)}  {OUTCOMES[name]}", "$error"))
    lines.append(_row("tokens", count_text(status.tokens)))
    return Content("\n").join([line.truncate(width, ellipsis=True) for line in lines])


def rates_text(view: Observing, width: int) -> Content:
    """Return rates, latencies, sending delay and server metrics of the latest seconds."""
    status = view.latest
    if view.runs:
        return _table(view, ("requests/s", "tokens/s", "TTFT p50"), _rates, width)
    if status is None:
        return Content("")
    late = "$warning" if status.late_us > _LATE_US else ""
    lines = [
        _row("requests/s", f"{status.requests_per_s:,.1f}"),
        _row("tokens/s", f"{status.tokens_per_s:,.0f}"),
        _row("TTFT p50", "-" if status.ttft_us is None else span_text(status.ttft_us)),
        _row("E2E p50", "-" if status.e2e_us is None else span_text(status.e2e_us)),
        _row("sent late", span_text(max(status.late_us, 0)), late),
    ]
    server = status.server
    if _RUNNING in server:
        lines.append(_row("running", count_text(round(server[_RUNNING]))))
    if _WAITING in server:
        lines.append(_row("waiting", count_text(round(server[_WAITING]))))
    if _KV in server:
        lines.append(_row("KV in use", f"{100 * server[_KV]:.0f} %"))
    return Content("\n").join([line.truncate(width, ellipsis=True) for line in lines])


def _counts(status: Status) -> tuple[str, ...]:
    counts = (status.outcomes.get(COMPLETED, 0), status.running, status.failed)
    return tuple(count_text(count) for count in counts)


def _rates(status: Status) -> tuple[str, ...]:
    ttft = "-" if status.ttft_us is None else span_text(status.ttft_us)
    return f"{status.requests_per_s:,.1f}", f"{status.tokens_per_s:,.0f}", ttft


def _table(view: Observing, heads: tuple[str, ...], cells: Callable[[Status], tuple[str, ...]], width: int) -> Content:
    """Return a line for each run: the run, then its figures; of too many, the first and the last ones."""
    rows = [(name, cells(status)) for name, status in view.runs]
    wide = [max(len(head), *(len(row[at]) for _, row in rows)) for at, head in enumerate(heads)]
    while len(wide) > 1 and sum(wide) + 2 * len(wide) + _LEAST_NAME > width:
        del wide[1]
        heads = (heads[0], *heads[2:])
        rows = [(name, (row[0], *row[2:])) for name, row in rows]
    names = max(min(max(len(name) for name, _ in rows), width - sum(wide) - 2 * len(wide)), _LEAST_NAME)
    lines = [Content.styled(_columns("", heads, names, wide), _MUTED)]
    lines += [Content(_columns(shorten(name, names), row, names, wide)) for name, row in rows]
    return Content("\n").join([line.truncate(width, ellipsis=True) for line in lines])


def _columns(name: str, cells: Sequence[str], names: int, wide: Sequence[int]) -> str:
    figures = "".join(f"  {cell:>{size}}" for cell, size in zip(cells, wide, strict=True))
    return f"{name:<{names}}{figures}"


def events_text(view: Observing, width: int, height: int) -> Content:
    """Return the latest events of several runs by time, the latest last, as many as fit."""
    shown = view.events[-height:] if height > 0 else ()
    where = max((len(event.where) for event in shown), default=0)
    lines = []
    for event in shown:
        style = f"${event.colour}" if event.colour else ""
        head = Content.assemble((f"{time_text(event.time_us):>14}  ", _MUTED), (f"{event.where:<{where}}  ", "bold"))
        text = Content.assemble(head, (f"{event.sign or ' '} ", style), event.text)
        lines.append(text.truncate(width, ellipsis=True))
    return Content("\n").join(lines)


def _row(name: str, text: str, style: str = "") -> Content:
    return Content.assemble((f"{name:<12}", _MUTED), (text, style))


FIGURES: Final = ("in flight", "tokens/s", "TTFT", "KV in use")


def curves_text(view: Observing, width: int, height: int) -> Content:
    """Return the changes since the start, one figure below the other."""
    statuses = view.statuses
    cells = 2 * max(width - _GUTTER, 1)
    rows = max((height - len(FIGURES)) // len(FIGURES), 1)
    lines: list[Content] = []
    for name in FIGURES:
        values = _series(statuses, name)
        if all(value is None for value in values) or not values:
            continue
        shown = [values[place * len(values) // cells] for place in range(cells)] if len(values) > cells else values
        highest = max(value for value in shown if value is not None)
        top = 1.0 if name == "KV in use" else float(round_end(max(int(highest + 0.999), 1)))
        label = (
            f"{100 * top:.0f} %" if name == "KV in use" else span_text(int(top)) if name == "TTFT" else f"{top:,.0f}"
        )
        lines.append(Content.styled(name, "bold"))
        for number, row in enumerate(draw(shown, rows, top, filled=True)):
            head = label if not number else ""
            lines.append(Content.assemble((f"{head:>{_GUTTER - 1}} ", _MUTED), (row, "$primary")))
    return Content("\n").join(lines)


def _series(statuses: Sequence[Status], name: str) -> list[float | None]:
    if name == "in flight":
        return [float(status.running) for status in statuses]
    if name == "tokens/s":
        return [status.tokens_per_s for status in statuses]
    if name == "TTFT":
        return [None if status.ttft_us is None else float(status.ttft_us) for status in statuses]
    return [status.server.get(_KV) for status in statuses]


def output_text(view: Observing, width: int) -> Content:  # noqa: ARG001  (common signature)
    """Return the run's final output."""
    return Content(view.output.rstrip())


def status_of(document: Mapping[str, object]) -> Status:
    """Return a status from the run's JSON.

    Raises:
        TypeError: the JSON is no status.
    """
    from blis_tui.live.observe.recording_summary import Status  # noqa: PLC0415

    return Status(**document)  # type: ignore[arg-type]  # what our own process wrote


def _summary_of(folder: Path) -> str:
    """Return the summary of a recording that has ended, with its warnings."""
    from blis_tui.live.observe.recording import read_recording  # noqa: PLC0415
    from blis_tui.live.observe.recording_summary import summarize, summary_text, warnings  # noqa: PLC0415

    recording = read_recording(folder)
    summary = summarize(recording.requests)
    warned = [f"warning: {warning}\n" for warning in warnings(summary, recording)]
    return "".join([summary_text(summary, recording), *warned])


_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 30.0
"""Time in which a run must have written its data after it was told to end."""
_MOST: Final = 4096
"""Maximum number of statuses kept; beyond that every other one is dropped."""
_LONGEST_LINE: Final = 1 << 20
_NOT_STARTED: Final = 3
"""Exit code if the run cannot be started, as for a file that cannot be read."""


class ObservingScreen(Screen[None]):
    """The run, until it has ended and its result is read.

    Args:
        start: the server and the command; receives the outcome.
    """

    SCOPE = "observing"
    NAME = "observing"
    AUTO_FOCUS = "#counts"
    BINDINGS = bindings(SCOPE)
    DEFAULT_CSS = """
    ObservingScreen {
        #figures { height: auto; max-height: 50%; }
        #figures > CompareBox { width: 1fr; height: auto; max-height: 100%; }
        #curves { height: 1fr; }
        #output { height: auto; max-height: 60%; display: none; }
        &.-over #output { display: block; }
        &.-over.-short #curves { display: none; }
    }
    """

    def __init__(self, start: ObservingStart) -> None:
        super().__init__()
        self.start = start
        self._statuses: list[Status] = []
        self._runs: tuple[tuple[str, Status], ...] = ()
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._left = False

    def compose(self) -> ComposeResult:
        """Create title, figures, curves, output, keys."""
        yield TitleBar(Content(""), id="status")
        with Horizontal(id="figures"):
            yield CompareBox("Requests", counts_text, id="counts")
            yield CompareBox("The latest seconds", rates_text, id="rates")
        title = "Events of requests, by time" if self._merges else "Since the beginning"
        yield CompareBox(title, self._curves, id="curves")
        yield CompareBox("At its end", output_text, id="output")
        yield KeyBar()

    @property
    def _merges(self) -> bool:
        """Whether the events of runs are shown: those of several, and records."""
        return any(isinstance(run, FollowingRecords) for run in self.start.runs) or len(self.start.runs) > 1

    def _curves(self, view: Observing, width: int) -> Content:
        height = self.query_one("#curves").content_size.height
        return events_text(view, width, height) if self._merges else curves_text(view, width, height)

    def on_mount(self) -> None:
        """Start the run."""
        self._watching = asyncio.create_task(self._follow() if self.start.runs else self._watch())
        self._show()

    def on_resize(self, event: Resize) -> None:
        """In a low terminal, prefer the output to the curves."""
        self.set_class(event.size.height < 34, "-short")

    def view(self) -> Observing:
        """Return the state to display."""
        start = self.start
        return Observing(
            url=start.url,
            statuses=tuple(self._statuses),
            over=start.code is not None,
            output=start.output,
            code=start.code,
            runs=self._runs,
            events=merged(start.runs, _EVENTS) if self._merges else (),
        )

    def _show(self) -> None:
        if self._left:
            return
        view = self.view()
        show_in_boxes(self, view, title_text(view), activity_text(view))

    # ---- the run ----

    async def _watch(self) -> None:
        """Read the run's output until it ends."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.start.words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, limit=_LONGEST_LINE
            )
        except OSError as error:
            self._end(f"cannot start {self.start.words[0]}: {error.strerror or error}\n", _NOT_STARTED)
            return
        assert process.stdout is not None  # noqa: S101  (requested above)
        assert process.stderr is not None  # noqa: S101
        output = asyncio.create_task(process.stdout.read())
        errors = ""
        while line := await _line(process.stderr):
            text = line.decode(errors="replace")
            if text.startswith("{"):
                self._note(text)
            else:
                errors += text
        self._end((await output).decode(errors="replace") + errors, await process.wait())

    async def _follow(self) -> None:
        """Look at runs until all have ended, or they are left."""
        runs = self.start.runs
        try:
            while not self._left:
                looks = [await asyncio.to_thread(run.look) for run in runs]
                if self._merges:
                    self._runs = tuple((run.name, status) for run, status in zip(runs, looks, strict=True))
                self._add(max(looks, key=attrgetter("time_us")))
                if all(run.over for run in runs):
                    break
                await asyncio.sleep(_LOOK_S)
            folders = [] if self._left else [run.folder for run in runs if isinstance(run, Following)]
            summaries = [await asyncio.to_thread(_summary_of, folder) for folder in folders]
        except InputError as error:
            self._end(f"{error}\n", _NOT_STARTED)
        else:
            self._end("\n".join(summaries), 0)

    def _end(self, output: str, code: int) -> None:
        self.start.output, self.start.code = output, code
        if not self._left:
            self.add_class("-over")
            self._show()

    def _note(self, line: str) -> None:
        with suppress(ValueError, TypeError):
            self._add(status_of(json.loads(line)))

    def _add(self, status: Status) -> None:
        self._statuses.append(status)
        if len(self._statuses) > _MOST:
            self._statuses = self._statuses[::2]
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's signature)
        """Disable stopping at the end."""
        stops = not self.start.runs and self.start.code is None
        return True if action != "observing_stop" or stops else None

    def action_observing_stop(self) -> None:
        """End the run gracefully, so that its data is written."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)

    async def on_unmount(self) -> None:
        """End the run when leaving, and wait until its data is written; one that does not listen is killed."""
        self._left = True
        self.action_observing_stop()
        if self._watching is None:
            return
        done, _ = await asyncio.wait([self._watching], timeout=_PATIENCE_S)
        if not done and self._process is not None:
            self._process.kill()
        await self._watching


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, very long ones in parts; empty at the end."""
    try:
        return await stream.readuntil()
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed)
