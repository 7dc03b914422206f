"""A report of golden tests as one self-contained HTML file, without external scripts and without images."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui.plain_page import Markup, Table, plain_page
from blis_tui.records.files import write_text
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PERCENTILES: Final = ("p50", "p90", "p95", "p99")
_WIDTH: Final = 160
_ROW_HEIGHT: Final = 12

_STYLE: Final = """table { width: 100%; } th, td { padding: .35rem .6rem; vertical-align: top; }
.passed td:nth-child(2) { color: #17693a; } .skipped td:nth-child(2) { color: #6b7280; }
.failed td:nth-child(2) { color: #b3261e; font-weight: 600; }
pre { background: #f4f6fa; padding: .8rem; overflow-x: auto; font-size: 12px; }
svg text { font-size: 9px; }
@media (prefers-color-scheme: dark) { pre { background: #1e2530; }
.passed td:nth-child(2) { color: #6fcf97; } .failed td:nth-child(2) { color: #ff8a80; } }
"""


def write_html(target: Path, results: Sequence[Mapping[str, object]]) -> None:
    """Write the results of golden tests. Raises InputError if the file cannot be written."""
    rows = sorted(results, key=lambda one: (one.get("outcome") != "failed", str(one["nodeid"])))
    failed = len([one for one in rows if one.get("outcome") == "failed"])
    body = [
        f"<p>{plural(len(rows), 'test')}, {failed} failed.</p>",
        Table(
            head=("test", "result", "requests", "output tokens/s", "time to first token, ms"),
            rows=map(_row, rows),
            words=(1, 4),
            classes=[_outcome(one) for one in rows],
        ).html(),
        *(_details(one) for one in rows if one.get("text")),
    ]
    write_text(target, plain_page("Golden tests", body, _STYLE))


def _outcome(one: Mapping[str, object]) -> str:
    return str(one.get("outcome", ""))


def _row(one: Mapping[str, object]) -> tuple[str, ...]:
    report = one.get("report")
    figures: tuple[str, ...] = ("", "", "")
    if isinstance(report, dict) and "latency" in report:  # not a study, which has many
        figures = (
            f"{report['requests']['completed']:,}",
            f"{report['throughput']['output_tokens_per_s']:,.1f}",
            Markup(_bars(report["latency"]["ttft_ms"])),
        )
    return (str(one["nodeid"]), f"{_outcome(one)} ({one.get('status', '')})", *figures)


def _details(one: Mapping[str, object]) -> str:
    return f"<h2>{escape(str(one['nodeid']))}</h2><pre>{escape(str(one['text']))}</pre>"


def _bars(distribution: Mapping[str, float | None]) -> str:
    """Return percentiles as horizontal bars; the longest fills the width."""
    values = [(name, value) for name in _PERCENTILES if (value := distribution.get(name)) is not None]
    if not values:
        return "nothing observed"
    longest = max(value for _, value in values) or 1.0
    height = _ROW_HEIGHT * len(values)
    parts = [f"<svg width='{_WIDTH + 90}' height='{height}' role='img' aria-label='percentiles'>"]
    for i, (name, value) in enumerate(values):
        y = i * _ROW_HEIGHT
        width = max(1, round(_WIDTH * value / longest))
        parts.append(f"<rect x='26' y='{y + 2}' width='{width}' height='8' fill='#4c7bd9'/>")
        parts.append(f"<text x='0' y='{y + 9}'>{name}</text><text x='{width + 30}' y='{y + 9}'>{value:,.1f}</text>")
    return "".join([*parts, "</svg>"])
