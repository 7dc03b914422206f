"""The status of observing a server: counts, rates, latencies, the server's metrics, and all of these over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.braille import draw
from blis_tui.classes import dataclass
from blis_tui.observe.recording import COMPLETED, OUTCOMES
from blis_tui.tui.presenters.timeline import round_end
from blis_tui.units import bar_text, count_text, span_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.observe.status import Status

_MUTED: Final = "$text-muted"
_RUNNING: Final = "vllm:num_requests_running"
_WAITING: Final = "vllm:num_requests_waiting"
_KV: Final = "vllm:kv_cache_usage_perc"
_LATE_US: Final = 10_000
"""Requests sent with more delay than this are shown as late."""
_GUTTER: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """The state of the screen."""

    url: str
    statuses: Sequence[Status]
    """All statuses, the latest last."""
    over: bool
    """Whether the run has ended."""
    said: str
    """Its final output."""
    code: int | None
    """Its exit code, once it has ended."""

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
        return [float(one.running) for one in statuses]
    if name == "tokens/s":
        return [one.tokens_per_s for one in statuses]
    if name == "TTFT":
        return [None if one.ttft_us is None else float(one.ttft_us) for one in statuses]
    return [one.server.get(_KV) for one in statuses]


def said_text(view: Observing, width: int) -> Content:  # noqa: ARG001  (common signature)
    """Return the run's final output."""
    return Content(view.said.rstrip())


def status_of(document: Mapping[str, object]) -> Status:
    """Return a status from the run's JSON.

    Raises:
        TypeError: the JSON is no status.
    """
    from blis_tui.observe.status import Status  # noqa: PLC0415

    return Status(**document)  # type: ignore[arg-type]  # what our own process wrote
