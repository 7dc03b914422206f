"""A workload's requests as text, as an HTML page, and as a CSV file that can be replayed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.base.html import plain_page, plain_table
from blis_tui.base.text import aligned, cut, draw, printable
from blis_tui.base.units import fine_bar, number_text, plural, share_text
from blis_tui.engine.request import declared_segments
from blis_tui.output.tables import csv_line
from blis_tui.workload.traces.cells import items_cell, segments_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.live.traffic.fit import Fitted
    from blis_tui.live.traffic.opening import RequestTiming
    from blis_tui.live.traffic.traffic_figures import Bin, Description, Group, Lengths, RequestsOverTime, Reuse


_HEIGHT: Final = 5
_LABEL: Final = 10
_BAR: Final = 24
_GAP: Final = 4
_NAME: Final = 30
_MOST_GROUPS: Final = 12
_COLUMNS: Final = ("mean", "min", "p50", "p90", "p95", "p99", "max")
_SOURCES: Final = {"trace": "recorded", "workload": "workload document", "experiment": "experiment"}
PLAIN_CLASS: Final = "standard"


def as_text(description: Description) -> str:
    """Return blocks of text with lines of at most about 100 characters."""
    blocks = [
        "\n".join(_facts(description)),
        _lengths({"prompts": description.input_tokens, "outputs": description.output_tokens}),
    ]
    blocks += [_groups(heading, groups, description.prefix_reuse) for heading, groups in groupings(description).items()]
    blocks += [_course(description.arrivals), _histograms(description.input_histogram, description.output_histogram)]
    return "\n\n".join(blocks) + "\n"


def groupings(description: Description) -> dict[str, Mapping[str, Group]]:
    """Return the groups under the headings of their tables, for attributes in which requests differ."""
    classes = description.slo_classes
    return {
        heading: groups
        for heading, groups in (
            ("client", description.clients),
            ("tenant", description.tenants),
            ("SLO class", {} if list(classes) == [PLAIN_CLASS] else classes),
            ("model", description.models),
        )
        if groups
    }


def facts(description: Description) -> dict[str, str]:
    """Return the figures of all requests, by name."""
    rate, burst, reuse = description.rate, description.burstiness, description.prefix_reuse
    seed = "" if description.seed is None else f", seed {description.seed}"
    cut = "" if description.cut is None else ", the first of an endless workload"
    figures = {
        "workload": f"{description.name} ({_SOURCES[description.source]}{seed})",
        "requests": f"{description.requests:,} in {description.duration_s:,.1f} s{cut}",
        **({"left out": ", ".join(map(str, description.left_out))} if description.left_out else {}),
        "rate": ("all at once" if rate.mean_per_s is None else f"{rate.mean_per_s:,.3g} requests/s")
        + f", {rate.peak_second.requests:,} in the busiest second (from {rate.peak_second.at_s:,.1f} s)"
        + f", {rate.peak_minute.requests:,} in the busiest minute (from {rate.peak_minute.at_s:,.1f} s)",
        "burstiness": f"CV of gaps {number_text(burst.gap_cv)}, index of dispersion"
        f" {number_text(burst.dispersion_second)} by second,"
        f" {number_text(burst.dispersion_minute)} by minute (Poisson: 1)",
        "tokens": f"{description.input_tokens.total:,} in, {description.output_tokens.total:,} out",
        "prefix reuse": _reuse(reuse),
    }
    if (sessions := description.sessions) is not None:
        gap = "" if sessions.gap_p50_s is None else f", half of the turns within {sessions.gap_p50_s:,.1f} s"
        figures["sessions"] = (
            f"{sessions.sessions:,} of {sessions.turns_mean:,.1f} turns on average, at most {sessions.turns_max:,}{gap}"
        )
    return figures


def _reuse(reuse: Reuse) -> str:
    if not reuse.recorded:
        return "not recorded: the trace names no prefixes that prompts share"
    shares = f"{share_text(reuse.tokens_share)} of prompt tokens, {share_text(reuse.blocks_share)} of"
    return f"{shares} {plural(reuse.blocks, 'block')} of {reuse.block_size_tokens} tokens, by an infinite cache"


def fit_text(fitted: Fitted) -> str:
    """Describe the quality of a fit: figures of trace and document, and what was chosen for each client."""
    figures = [("", "trace", "fitted", "KS")]
    for name, agreement in fitted.agreement.items():
        write = _share if name == "prefix reuse" else number_text
        figures.append(
            (
                name,
                write(agreement.trace),
                write(agreement.fitted),
                "" if agreement.ks is None else f"{agreement.ks:.3f}",
            )
        )
    clients = [("client", "requests", "arrivals", "prompts", "outputs")]
    for client in fitted.clients:
        chosen = (client.arrivals, client.input_tokens, client.output_tokens)
        laws = [f"{law.kind} {law.ks:.3f}" for law in chosen]
        clients.append((cut(client.id, 40), f"{client.requests:,}", laws[0], laws[1], laws[2]))
    lines = [*aligned(figures, range(1, 4), _GAP), "", *aligned(clients, {1}, _GAP)]
    return "\n".join(map(printable, [*lines, *(f"note: {note}" for note in fitted.notes)])) + "\n"


def _share(value: float | None) -> str:
    return "-" if value is None else share_text(value)


def group_cells(group: Group, reuse: Reuse) -> tuple[str, ...]:
    """Return the cells of a group's row, in the order of ``GROUP_COLUMNS``; ``reuse``: that of all requests."""
    return (
        f"{group.requests:,}",
        share_text(group.share),
        number_text(group.rate_per_s),
        number_text(group.gap_cv),
        f"{group.input_mean:,.1f}",
        f"{group.output_mean:,.1f}",
        _share(group.reuse_tokens_share if reuse.recorded else None),
    )


GROUP_COLUMNS: Final = ("requests", "share", "requests/s", "CV of gaps", "tokens in", "out", "reused")


def length_cells(lengths: Lengths) -> tuple[str, ...]:
    """Return the cells of a row of ``LENGTH_COLUMNS``."""
    return tuple(f"{getattr(lengths, column):,.1f}".removesuffix(".0") for column in _COLUMNS)


LENGTH_COLUMNS: Final = _COLUMNS


def _facts(description: Description) -> Iterator[str]:
    figures = facts(description)
    width = max(map(len, figures)) + 2
    for name, text in figures.items():
        yield printable(f"{name:<{width}}{text}")


def _lengths(rows: Mapping[str, Lengths]) -> str:
    cells = [("tokens", *LENGTH_COLUMNS), *((name, *length_cells(row)) for name, row in rows.items())]
    return "\n".join(aligned(cells, range(1, len(cells[0])), _GAP))


def _groups(heading: str, groups: Mapping[str, Group], reuse: Reuse) -> str:
    shown = dict(list(groups.items())[:_MOST_GROUPS])
    rows: list[tuple[str, ...]] = [(heading, *GROUP_COLUMNS)]
    rows += [(cut(name or "(none)", _NAME), *group_cells(group, reuse)) for name, group in shown.items()]
    lines = [*aligned(rows, range(1, len(rows[0])), _GAP)]
    if len(groups) > len(shown):
        lines.append(f"… {len(groups) - len(shown):,} more: see --format json")
    return "\n".join(map(printable, lines))


def _course(course: RequestsOverTime) -> str:
    counts = course.requests
    top = max(counts)
    labels = [f"{top:,}", *[""] * (_HEIGHT - 2), "0"]
    rows = draw(counts, _HEIGHT, float(top), filled=True)
    lines = [f"requests in every {course.window_s:,.3g} s"]
    lines += [f"{label:>{_LABEL}} {row}".rstrip() for label, row in zip(labels, rows, strict=True)]
    start, end = f"{course.start_s:,.1f} s", f"{course.start_s + course.window_s * len(counts):,.1f} s"
    lines.append(f"{'':{_LABEL}} {start}{end:>{max(len(rows[0]) - len(start), len(end) + 1)}}")
    return "\n".join(lines)


def _histograms(prompts: Sequence[Bin], outputs: Sequence[Bin]) -> str:
    by_bin: dict[tuple[int, int], list[int]] = {}
    for side, bins in enumerate((prompts, outputs)):
        for bucket in bins:
            by_bin.setdefault((bucket.from_tokens, bucket.to_tokens), [0, 0])[side] = bucket.requests
    tops = [max(counts[side] for counts in by_bin.values()) for side in (0, 1)]
    lines = [f"{'tokens':>21}  {'prompts':<{_BAR + 9}}{'outputs'}"]
    for low, high in sorted(by_bin):
        label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        cells = [
            f"{fine_bar(count, top, _BAR):<{_BAR}}{count:>7,}"
            for count, top in zip(by_bin[low, high], tops, strict=True)
        ]
        lines.append(f"{label:>21}  {'  '.join(cells)}".rstrip())
    return "\n".join(lines)


_WIDTH: Final = 720
_SVG_HEIGHT: Final = 140
_SVG_BAR: Final = 260
_ROW: Final = 18
_STYLE: Final = "rect, polygon { fill: #4c7bd9; }\n"


def page(description: Description) -> str:
    """Create a page with tables of all figures, the arrival curve and the lengths."""
    parts = [
        plain_table((), ((name, text) for name, text in facts(description).items()), numbers=False),
        "<h2>Requests over time</h2>",
        _arrivals_svg(description.arrivals),
        "<h2>Lengths in tokens</h2>",
        plain_table(
            ("", *LENGTH_COLUMNS),
            (
                ("prompts", *length_cells(description.input_tokens)),
                ("outputs", *length_cells(description.output_tokens)),
            ),
        ),
        _bars("prompts", description.input_histogram),
        _bars("outputs", description.output_histogram),
    ]
    for heading, groups in groupings(description).items():
        parts.append(f"<h2>By {escape(heading)}</h2>")
        rows = ((name or "(none)", *group_cells(group, description.prefix_reuse)) for name, group in groups.items())
        parts.append(plain_table((heading, *GROUP_COLUMNS), rows))
    return plain_page(f"Workload {description.name}", [*parts, f"<p>blis-tui {__version__}</p>"], _STYLE)


def _arrivals_svg(course: RequestsOverTime) -> str:
    counts = course.requests
    top, step = max(counts), _WIDTH / len(counts)
    corners = [f"0,{_SVG_HEIGHT}"]
    for number, count in enumerate(counts):
        y = _SVG_HEIGHT * (1 - count / top)
        corners += [f"{number * step:.1f},{y:.1f}", f"{(number + 1) * step:.1f},{y:.1f}"]
    corners.append(f"{_WIDTH},{_SVG_HEIGHT}")
    end = course.start_s + course.window_s * len(counts)
    return (
        f"<svg width='{_WIDTH}' height='{_SVG_HEIGHT + 34}' viewBox='0 -14 {_WIDTH} {_SVG_HEIGHT + 34}' role='img'"
        f" aria-label='requests over time'><polygon points='{' '.join(corners)}'/>"
        f"<line x1='0' y1='{_SVG_HEIGHT}' x2='{_WIDTH}' y2='{_SVG_HEIGHT}'/>"
        f"<text x='0' y='-3'>at most {top:,} in {course.window_s:,.3g} s</text>"
        f"<text x='0' y='{_SVG_HEIGHT + 15}'>{course.start_s:,.1f} s</text>"
        f"<text x='{_WIDTH}' y='{_SVG_HEIGHT + 15}' text-anchor='end'>{end:,.1f} s</text></svg>"
    )


def _bars(heading: str, bins: Sequence[Bin]) -> str:
    top = max(bucket.requests for bucket in bins)
    height = _ROW * (len(bins) + 1)
    parts = [
        f"<svg width='{_SVG_BAR + 190}' height='{height}' role='img' aria-label='{escape(heading)}'>",
        f"<text x='0' y='12'>{escape(heading)}</text>",
    ]
    for number, bucket in enumerate(bins, 1):
        y = number * _ROW
        width = max(1.0, _SVG_BAR * bucket.requests / top) if bucket.requests else 0.0
        parts.append(
            f"<text x='110' y='{y + 12}' text-anchor='end'>{bucket.from_tokens:,} to {bucket.to_tokens:,}</text>"
            f"<rect x='118' y='{y + 2}' width='{width:.1f}' height='12'/>"
            f"<text x='{124 + width:.0f}' y='{y + 12}'>{bucket.requests:,}</text>"
        )
    return "".join([*parts, "</svg>"])


COLUMNS: Final = (
    *("request_id", "arrival_time_us", "input_tokens", "output_tokens", "prefix_segments"),
    *("slo_class", "tenant_id", "model", "deadline_us", "session_id", "round_index", "adapter"),
    *("reasoning_tokens", "image_tokens", "audio_tokens", "video_tokens", "media_items"),
    *("max_output_tokens", "ignore_eos", "answer_segment", "e2e_us"),
)
"""Columns of every file, even if all cells are empty, so that the file can be written as a stream."""


def trace_csv(asked: Iterable[RequestTiming]) -> Iterator[str]:
    """Iterate over the file's lines, column names first; ``input_tokens`` are whole prompts."""
    yield csv_line(COLUMNS)
    for timing in asked:
        request = timing.request
        named = len(request.content) > len(request.segments)
        yield csv_line(
            (
                *(request.request_id, request.arrival_us, request.input_tokens, request.output_tokens),
                *(segments_cell(declared_segments(request)), request.slo_class, request.tenant, request.model),
                *(request.deadline_us or None, request.session_id, request.round_index, request.adapter),
                *(request.reasoning.tokens if request.reasoning else 0, *request.media),
                *(items_cell(request.media_items), max(0, request.declared_tokens), int(request.ignore_eos)),
                *(request.content[-1][0] if named else "", None if timing.e2e_us < 0 else timing.e2e_us),
            )
        )
