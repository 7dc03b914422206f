"""A report of golden tests for people: one self-contained HTML file, no scripts from elsewhere, no images."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui.plain_page import plain_page
from blis_tui.records.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PERCENTILES: Final = ("p50", "p90", "p95", "p99")
_WIDTH: Final = 160
_ROW_HEIGHT: Final = 12

_STYLE: Final = """table { width: 100%; } th, td { padding: .35rem .6rem; vertical-align: top; }
.passed { color: #17693a; } .failed { color: #b3261e; font-weight: 600; } .skipped { color: #6b7280; }
pre { background: #f4f6fa; padding: .8rem; overflow-x: auto; font-size: 12px; }
svg text { font-size: 9px; }
@media (prefers-color-scheme: dark) { pre { background: #1e2530; }
.passed { color: #6fcf97; } .failed { color: #ff8a80; } }
"""


def write_html(target: Path, results: Sequence[Mapping[str, object]]) -> None:
    """Write the results of golden tests. Raises InputError when the file cannot be written."""
    rows = sorted(results, key=lambda one: (one.get("outcome") != "failed", str(one["nodeid"])))
    failed = len([one for one in rows if one.get("outcome") == "failed"])
    body = [
        f"<p>{len(rows)} tests, {failed} failed.</p>",
        "<table><thead><tr><th>test</th><th>result</th><th>requests</th><th>output tokens/s</th>",
        "<th>time to first token, ms</th></tr></thead><tbody>",
        *(_row(one) for one in rows),
        "</tbody></table>",
        *(_details(one) for one in rows if one.get("text")),
    ]
    write_text(target, plain_page("Golden tests", body, _STYLE))


def _row(one: Mapping[str, object]) -> str:
    outcome = str(one.get("outcome", ""))
    report = one.get("report")
    cells = ["", "", ""]
    if isinstance(report, dict) and "latency" in report:  # a study has many
        cells[0] = f"{report['requests']['completed']:,}"
        cells[1] = f"{report['throughput']['output_tokens_per_s']:,.1f}"
        cells[2] = _bars(report["latency"]["ttft_ms"])
    name, status = escape(str(one["nodeid"])), escape(str(one.get("status", "")))
    return (
        f"<tr><td>{name}</td><td class='{escape(outcome)}'>{escape(outcome)} ({status})</td>"
        f"<td class='n'>{cells[0]}</td><td class='n'>{cells[1]}</td><td>{cells[2]}</td></tr>"
    )


def _details(one: Mapping[str, object]) -> str:
    return f"<h2>{escape(str(one['nodeid']))}</h2><pre>{escape(str(one['text']))}</pre>"


def _bars(distribution: Mapping[str, float | None]) -> str:
    """Percentiles as horizontal bars, the longest as wide as the picture."""
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
