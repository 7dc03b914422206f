"""How the whole run went: the worst request, bounds, warnings and figures, each of which leads to its event."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import NamedTuple
from blis_tui.base.text import cut
from blis_tui.base.units import count_text, plural, share_text, span_text
from blis_tui.debugger.summary import EXPECTATIONS, WARNINGS, WORST
from blis_tui.debugger.why.explanation import Subject
from blis_tui.model.latencies import LATENCIES
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.drawing.lines import BLANK, Cell, Line, line, remark, words
from blis_tui.tui.panes.pane import Pane, PaneKey, at_selected
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.debugger.summary import Summary
    from blis_tui.results.report import Report
    from blis_tui.results.stats import Distribution

_STATISTICS: Final[tuple[str, ...]] = ("mean", "p50", "p90", "p95", "p99", "max")
_LABEL: Final = 11
"""Width of what a line of figures is about."""
_COLUMN: Final = 12
"""Maximum width of a column of the table."""
_GROUPS: Final = 5
"""Maximum number of SLO classes or tenants."""
_CHOSEN: Final = "$accent bold reverse"
_GO: Final = "enter or a click goes to its event; ? explains that"


class Figure(NamedTuple):
    """A figure: its path in the report, and its text."""

    path: str
    text: str


def summary_lines(summary: Summary | None, width: int, chosen: str | None, *, playing: bool) -> list[Line]:
    """Return the lines.

    Args:
        summary: the whole run; None = it is not known yet.
        width: columns.
        chosen: the selected figure, by its path.
        playing: whether the simulation is running.
    """
    if summary is None:
        end = shown_key(named("run.to_end").keys[0])
        return remark("Simulating the run …" if playing else f"The whole run is not known yet: {end} runs it.", width)
    report = summary.report
    lines = [*_worst(summary, width, chosen), *_warnings(summary, width, chosen), *_expectations(report, width, chosen)]
    lines += [BLANK, *_latencies(report, width, chosen), BLANK]
    for label, figures in _counts(report):
        lines += _figures(label, figures, width, chosen)
    return lines


# ---- lines with one subject ----


def _about(path: str, chosen: str | None, mark: tuple[str, str], rows: Sequence[Content]) -> list[Line]:
    """Return lines about one thing, after a mark; a click on any of them goes to its event."""
    subject = Subject("metric", path)
    lines = []
    for at, row in enumerate(rows):
        head = (f"{mark[0]} " if at == 0 else "  ", mark[1])
        text = row.stylize("bold") if path == chosen else row
        cell = Cell(row.cell_length + 2, subject, _GO, Picked(metric=path, go=True))
        lines.append(Line(partial(Content.assemble, head, text), subject, _GO, cells=partial(iter, (cell,))))
    return lines


def _worst(summary: Summary, width: int, chosen: str | None) -> list[Line]:
    """Return the worst request, by which latency, and how long that was for the median request."""
    worst = summary.worst
    if worst is None:
        return remark("No request got a token.", width)
    median = getattr(summary.report.latency, worst.latency.field).p50
    parts = [
        Content.assemble("worst  ", (worst.request, "bold")),
        Content.assemble((f"{worst.latency.label} ", "$text-muted"), (span_text(int(worst.us + 0.5)), "bold")),
        Content.assemble((f"median {span_text(int(median * 1000 + 0.5))}", "$text-muted")),
    ]
    while len(parts) > 1 and Content("  ").join(parts).cell_length > width - 2:
        parts.pop()
    key = shown_key(named("go.worst").keys[0])
    return _about(WORST, chosen, (key, "$accent bold"), [Content("  ").join(parts)])


def _warnings(summary: Summary, width: int, chosen: str | None) -> list[Line]:
    """Return the first warning in full, and the others by their names."""
    first, *others = summary.warnings or (None,)
    if first is None:
        return [line(("✓ no warnings", "$success"))]
    key = shown_key(named("go.warning").keys[0])
    message = words(first.message, width - 2)
    lines = _about(f"{WARNINGS}.0", chosen, (key, "$warning bold"), message)
    if others:
        figures = [Figure(f"{WARNINGS}.{at}", finding.id) for at, finding in enumerate(others, 1)]
        lines += _figures("also", figures, width, chosen, between=", ")
    return lines


def _expectations(report: Report, width: int, chosen: str | None) -> list[Line]:
    """Return the bounds, those that are broken first."""
    lines: list[Line] = []
    order = sorted(enumerate(report.expectations), key=lambda entry: entry[1].ok)
    for number, verdict in order:
        mark = ("✓", "$success") if verdict.ok else ("✗", "$error bold")
        lines += _about(f"{EXPECTATIONS}.{number}", chosen, mark, words(verdict.sentence(), width - 2))
    return lines


# ---- the table of latencies ----


def _latencies(report: Report, width: int, chosen: str | None) -> list[Line]:
    """Return the latencies of all requests, then of SLO classes and tenants, if there are several."""
    rows = {
        f"latency.{metric.field}": (metric.label, metric.short, getattr(report.latency, metric.field))
        for metric in LATENCIES
    }
    for kind, groups in (("slo_classes", report.slo_classes), ("tenants", report.tenants)):
        if len(groups) > 1:
            names = sorted(groups, key=lambda name: -groups[name].completed)[:_GROUPS]
            for name in names:
                for latency, distribution in (("TTFT", groups[name].ttft_ms), ("E2E", groups[name].e2e_ms)):
                    rows[f"{kind}.{name}.{latency.lower()}_ms"] = (
                        f"{latency} {name}",
                        f"{latency} {name}",
                        distribution,
                    )
    return _table(rows, width, chosen)


def _table(rows: Mapping[str, tuple[str, str, Distribution]], width: int, chosen: str | None) -> list[Line]:
    decimals, statistics = 2, _STATISTICS
    least = max(len(short) for _, short, _ in rows.values())
    while True:
        texts = {path: distribution.texts(statistics, f",.{decimals}f") for path, (_, _, distribution) in rows.items()}
        column = 1 + max(len(cell) for row in (statistics, *texts.values()) for cell in row)
        if least + column * len(statistics) <= width or (not decimals and len(statistics) == 1):
            break
        decimals, statistics = (decimals - 1, statistics) if decimals else (0, statistics[1:])
    room = width - column * len(statistics)
    labels = {path: long if len(long) <= room else short for path, (long, short, _) in rows.items()}
    head = min(max(map(len, labels.values())), room)
    column = max(min((width - head) // len(statistics), _COLUMN), column)
    lines = [line((f"{'ms':<{head}}" + "".join(f"{statistic:>{column}}" for statistic in statistics), "$text-muted"))]
    for path, row in texts.items():
        figures = [Figure(f"{path}.{name}", text) for name, text in zip(statistics, row, strict=True)]
        cells = [Cell(head), *(_cell(figure, column) for figure in figures)]
        draw = partial(_row, cut(labels[path], head).ljust(head), figures, column, chosen)
        lines.append(Line(draw, cells=partial(iter, cells)))
    return lines


def _row(label: str, figures: Sequence[Figure], column: int, chosen: str | None) -> Content:
    parts = [Content.styled(label, "$text-muted")]
    for figure in figures:
        parts += [Content(" " * (column - len(figure.text))), _drawn(figure, chosen)]
    return Content("").join(parts)


def _drawn(figure: Figure, chosen: str | None) -> Content:
    return Content.styled(figure.text, _CHOSEN if figure.path == chosen else "")


def _cell(figure: Figure, width: int) -> Cell:
    """Return the part of a line that a figure takes; without a value it leads nowhere."""
    if figure.text == "-":
        return Cell(width)
    return Cell(width, Subject("metric", figure.path), _GO, Picked(metric=figure.path, go=True))


# ---- counts and rates ----


def _counts(report: Report) -> Iterator[tuple[str, list[Figure]]]:
    """Yield what a line is about, and its figures."""
    requests, tokens, offered, kv = report.requests, report.tokens, report.offered, report.kv
    counted = {
        "completed": (requests.completed, "completed"),
        "rejected": (requests.rejected, "rejected"),
        "dropped_unservable": (requests.dropped_unservable, "dropped"),
        "timed_out": (requests.timed_out, "timed out"),
        "lost": (requests.lost or 0, "lost with their instance"),
        "still_running": (requests.still_running, "still running"),
        "still_queued": (requests.still_queued, "still queued"),
    }
    yield (
        "requests",
        [
            Figure(f"requests.{name}", f"{count_text(count)} {word}")
            for name, (count, word) in counted.items()
            if count or name == "completed"
        ],
    )
    yield (
        "tokens",
        [
            Figure(f"tokens.{name}", f"{count_text(getattr(tokens, name))} {word}")
            for name, word in (("input", "in"), ("output", "out"), ("cached", "cached"))
        ],
    )
    if offered.requests_per_s is not None:
        yield "offered", [Figure("offered.requests_per_s", f"{offered.requests_per_s:,.2f} requests/s")]
    rates = report.throughput
    yield (
        "throughput",
        [
            Figure("throughput.requests_per_s", f"{rates.requests_per_s:,.2f} requests/s"),
            Figure("throughput.output_tokens_per_s", f"{rates.output_tokens_per_s:,.1f} output tokens/s"),
        ],
    )
    yield (
        "KV cache",
        [
            _peak(report),
            Figure("kv.hit_rate", f"{share_text(kv.hit_rate)} hits"),
            Figure("kv.preemptions", plural(kv.preemptions, "preemption")),
            *(
                [Figure("kv.preempted_requests", f"of {plural(kv.preempted_requests, 'request')}")]
                * (kv.preemptions > 0)
            ),
        ],
    )
    yield "simulated", [Figure("duration_us", f"{report.duration_us / 1e6:,.3f} s")]


def _peak(report: Report) -> Figure:
    """Return the peak of the fullest instance."""
    used = [(instance.kv.peak_used / max(instance.kv.blocks, 1), at) for at, instance in enumerate(report.instances)]
    share, at = max(used, key=lambda peak: (peak[0], -peak[1]))
    where = f" at instance {report.instances[at].instance}" if len(used) > 1 else ""
    return Figure(f"instances.{at}.kv.peak_used", f"{share_text(share)} full{where} at peak")


def _figures(label: str, figures: Sequence[Figure], width: int, chosen: str | None, between: str = " · ") -> list[Line]:
    """Return figures side by side after what they are about, in as many lines as needed."""
    rows: list[list[Figure]] = [[]]
    used = _LABEL
    for figure in figures:
        size = len(figure.text) + len(between)
        if rows[-1] and used + size > width:
            rows.append([])
            used = _LABEL
        rows[-1].append(figure)
        used += size
    lines = []
    for at, row in enumerate(rows):
        head = Content.styled((label if at == 0 else "").ljust(_LABEL), "$text-muted")
        parts, cells = [head], [Cell(_LABEL)]
        for place, figure in enumerate(row):
            if place:
                parts.append(Content.styled(between, "$text-muted"))
                cells.append(Cell(len(between)))
            parts.append(_drawn(figure, chosen))
            cells.append(_cell(figure, len(figure.text)))
        lines.append(Line(partial(Content("").join, parts), cells=partial(iter, cells)))
    return lines


# ---- the pane ----


PANE: Final = Pane(
    lines=lambda view, room: summary_lines(view.summary, room.width, view.selection.metric, playing=view.playing),
    hint=lambda view: "" if view.summary is None else "arrows choose · enter: its event · x: the report",
    keys=(
        PaneKey("left", "move(-1)"),
        PaneKey("right", "move(1)"),
        PaneKey("up", "move_row(-1)"),
        PaneKey("down", "move_row(1)"),
    ),
    cursor=at_selected("metric"),
)
