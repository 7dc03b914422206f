"""A report as text for people: the most important figures."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import cut, printable
from blis_tui.base.units import plural, share_text
from blis_tui.model.latencies import LATENCIES
from blis_tui.output.section_text import instance_lines, section_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.results.report import GroupReport, Report
    from blis_tui.results.sections.offered_load import Offered, Steady
    from blis_tui.results.stats import Distribution

WIDTH: Final = 116
"""Default line width in characters."""
_TENANTS = 5
"""Maximum number of tenants whose latencies are shown."""
_COLUMN: Final = 12
_COLUMNS: Final = ("mean", "p50", "p90", "p95", "p99", "max")


def summary_text(report: Report, width: int = WIDTH) -> str:
    """Return aligned blocks of text: requests, throughput, latencies, KV cache, expectations.

    Args:
        report: the report.
        width: line width in characters; tables exceed it if their figures do.
    """
    blocks = [
        _pairs(main_lines(report), width),
        _latencies(
            "milliseconds",
            {one.label: getattr(report.latency, one.field) for one in LATENCIES},
            width,
        ),
    ]
    blocks += _by("SLO class", report.slo_classes, width)
    blocks += _by("tenant", _largest(report.tenants), width)
    if len(report.tenants) > _TENANTS:
        blocks.append(f"… {plural(len(report.tenants) - _TENANTS, 'more tenant')}: see the JSON report")
    wrong = {name: text for name, text in report.invariants.items() if text not in ("ok", "not checked")}
    if wrong:
        told = [printable(f"  FAIL  {name}: {text}") for name, text in wrong.items()]
        blocks.append("\n".join(["invariants", *told]))
    if report.warnings:
        blocks.append(warnings_text(report, width).rstrip())
    if report.expectations:
        verdicts = [f"  {'ok  ' if one.ok else 'FAIL'}  {printable(one.sentence())}" for one in report.expectations]
        blocks.append("\n".join(["expectations", *verdicts]))
    return "\n\n".join(blocks) + "\n"


def main_lines(report: Report) -> dict[str, str]:
    """Return the names and texts of the main lines: what was run, and how it went."""
    requests = report.requests
    kv = report.kv
    return {
        "experiment": report.meta.experiment + ("" if report.meta.complete else "  (interrupted)"),
        **instance_lines(report),
        "simulated": f"{report.duration_us / 1e6:,.3f} s",
        "requests": ", ".join(
            f"{count:,} {word}"
            for count, word in (
                (requests.completed, "completed"),
                (requests.rejected, "rejected"),
                (requests.dropped_unservable, "dropped"),
                (requests.timed_out, "timed out"),
                (requests.lost or 0, "lost with their instance"),
                (requests.still_running, "still running"),
                (requests.still_queued, "still queued"),
            )
            if count or word == "completed"
        ),
        "tokens": f"{report.tokens.input:,} in, {report.tokens.output:,} out, {report.tokens.cached:,} cached",
        "offered": _offered(report.offered),
        "throughput": f"{report.throughput.requests_per_s:,.2f} requests/s, "
        f"{report.throughput.output_tokens_per_s:,.1f} output tokens/s",
        "steady": _steady(report.steady) if requests.total else "nothing arrived",
        "KV cache": f"{_fullest(report)}, prefix cache hit rate {share_text(kv.hit_rate)},"
        f" {plural(kv.preemptions, 'preemption')}"
        + (f", {plural(kv.allocation_failures, 'allocation')} failed" if kv.allocation_failures else ""),
        **section_lines(report),
    }


def warnings_text(report: Report, width: int = WIDTH) -> str:
    """Describe warnings with advice, wrapped like the diagnostics of documents; empty if there are none."""
    lines: list[str] = []
    for found in report.warnings:
        lines += _wrapped(f"{found.severity}[{found.id}]: ", found.message, "  ", width)
        lines += _wrapped("  = help: ", found.advice, " " * 10, width)
    return "".join(f"{line}\n" for line in lines)


def _wrapped(head: str, text: str, indent: str, width: int) -> list[str]:
    return wrap(
        printable(text),
        width,
        initial_indent=printable(head),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _offered(offered: Offered) -> str:
    """Describe the offered load."""
    if offered.first_arrival_us is None:
        return "nothing"
    if offered.requests_per_s is None:
        return "all at the same time"
    return (
        f"{offered.requests_per_s:,.2f} requests/s, {offered.input_tokens_per_s:,.1f} input tokens/s,"
        f" {offered.output_tokens_per_s:,.1f} output tokens/s"
    )


def _steady(steady: Steady) -> str:
    """Describe the steady-state throughput, without start and drain."""
    if steady.start_us is None or steady.end_us is None:
        return "no time between the first arrival and the last"
    return (
        f"{steady.offered_requests_per_s:,.2f} requests/s offered, {steady.requests_per_s:,.2f} served,"
        f" {steady.output_tokens_per_s:,.1f} output tokens/s"
        f" ({steady.start_us / 1e6:,.1f} s to {steady.end_us / 1e6:,.1f} s)"
    )


def _fullest(report: Report) -> str:
    """Describe the peak KV use of the fullest instance."""
    fullest = max(report.instances, key=lambda one: (one.kv.peak_used / max(1, one.kv.blocks), one.kv.peak_used))
    where = f" of instance {fullest.instance}" if len(report.instances) > 1 else ""
    return f"{fullest.kv.peak_used:,} of {plural(fullest.kv.blocks, 'block')}{where} at peak"


def _by(kind: str, groups: Mapping[str, GroupReport], width: int) -> Iterator[str]:
    """Iterate over tables of latencies by group, if there is more than one group."""
    if len(groups) > 1:
        yield _latencies(f"TTFT by {kind}, ms", {name: one.ttft_ms for name, one in groups.items()}, width)
        yield _latencies(f"E2E by {kind}, ms", {name: one.e2e_ms for name, one in groups.items()}, width)


def _largest(tenants: Mapping[str, GroupReport]) -> Mapping[str, GroupReport]:
    """Select the tenants with the most completed requests."""
    names = sorted(tenants, key=lambda name: -tenants[name].completed)[:_TENANTS]
    return {name: tenants[name] for name in tenants if name in names}


def _pairs(values: dict[str, str], width: int) -> str:
    indent = max(map(len, values)) + 2
    lines: list[str] = []
    for name, text in values.items():
        head = f"{name:<{indent}}"
        lines += _wrapped(head, text, " " * indent, width) or [printable(head)]
    return "\n".join(lines)


def _latencies(title: str, distributions: Mapping[str, Distribution], width: int) -> str:
    """Format a table; if too wide, reduce the column spacing, the decimals, and the length of names."""
    for decimals in (2, 1, 0):
        rows = {name: one.texts(_COLUMNS, f",.{decimals}f") for name, one in distributions.items()}
        cells = [cell for row in (_COLUMNS, *rows.values()) for cell in row]
        least = 1 + max(map(len, cells))
        names = width - len(_COLUMNS) * least
        if max(map(len, (title, *map(printable, rows)))) + 2 <= names:
            break
    heads = 2 + max(len(title), *(min(len(printable(name)), names - 2) for name in rows))
    column = max(least, min(_COLUMN, (width - heads) // len(_COLUMNS)))
    lines = [(title, [*_COLUMNS]), *((cut(printable(name), heads - 2), row) for name, row in rows.items())]
    return "\n".join(name.ljust(heads) + "".join(cell.rjust(column) for cell in row) for name, row in lines)
