"""The state of golden tests as a Markdown comment on a change, and as a self-contained HTML file.

Names of experiments, cases, requests and plug-ins come from documents that strangers may propose. They appear only as
code, so that they cannot mention people, create links, or end a table.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.html import Markup, Table, plain_page
from blis_tui.base.text import clip, printable, printable_lines
from blis_tui.base.units import plural
from blis_tui.golden.case import DEFAULT
from blis_tui.golden.compare import compare, most_important_first
from blis_tui.golden.golden_divergence import find_divergence
from blis_tui.golden.produce import is_up_to_date
from blis_tui.golden.project import Project
from blis_tui.golden.review import case_of, survey
from blis_tui.golden.session import (
    OUTDATED,
    answer_lines,
    debugger_command,
    differs_only_in_engine,
    engine_lines,
    plugin_lines,
)
from blis_tui.output.result_files import write_text
from blis_tui.results.expectations import Verdict
from blis_tui.runs.comparison_text import difference_lines, relative_text, value_texts
from blis_tui.runs.documents import experiment_differences

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import Golden
    from blis_tui.golden.review import GoldenEntry
    from blis_tui.model.plug_ins import Registry
    from blis_tui.runs.documents import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The capabilities of the page that shows a comment."""

    folds: bool
    """Whether it folds `<details>`; if not, such parts are left out."""
    most: int
    """Maximum number of characters of a comment; 0 = unlimited."""


STYLES: Final[Mapping[str, Style]] = {
    "github": Style(folds=True, most=65_000),
    "gitlab": Style(folds=True, most=1_000_000),
    "markdown": Style(folds=False, most=0),
}
"""GitHub accepts 65,536 characters, GitLab 1,000,000 (https://docs.gitlab.com/administration/instance_limits/)."""

_FIGURES: Final = 12
_FOLDED: Final = 60
_NAMES: Final = 10
_VALUE: Final = 40
"""Width of a value in a table, in columns."""
_SHOWN_ELSEWHERE: Final = re.compile(r"/(meta|expectations|invariants|warnings)/.*")


def comment(folder: Path, root: Path, names: Sequence[str], plugins: Registry | None, style: Style) -> tuple[str, bool]:
    """Return the comment, and whether every golden is accepted, valid, and without unexpected failures.

    Args:
        folder: folder of the golden files.
        root: the folder in which the tests run.
        names: goldens or patterns; none = all.
        plugins: additional plug-ins that experiments may name.
        style: the page on which it is shown.
    """
    entries = survey(folder, root, names, plugins)
    changes = [change for entry in entries if (change := _about(entry, root, plugins, style)) is not None]
    if not changes:
        return f"### Golden tests: {plural(len(entries), 'golden')}, nothing has changed\n", True
    counts = {state: len([1 for change in changes if change.state == state]) for state in _STATES}
    states = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    head = f"### Golden tests: {states}, of {plural(len(entries), 'golden')}\n"
    changes.sort(key=lambda change: not change.breaks)  # stable: keeps the order of names otherwise
    if broken := [_code(change.name) for change in changes if change.breaks]:
        more = f" and {len(broken) - _NAMES:,} more" if len(broken) > _NAMES else ""
        head += f"\n**Expectations fail**: {', '.join(broken[:_NAMES])}{more}.\n"
    if any(change.waiting for change in changes):
        review = Project(root, root, folder).review_command()
        head += f"\nIf this is intended: run `pytest` and {_code(review)} in your checkout, and commit the goldens.\n"
    return _cut(head, [change.text for change in changes], style.most), False


_UNEXPECTED: Final = "failing"
_STATES: Final = ("changed", "new", _UNEXPECTED, "obsolete", "broken")


@dataclass(frozen=True, slots=True)
class _TestComment:
    """The part of the comment about one golden test."""

    name: str
    state: str
    """One of ``_STATES``."""
    body: str
    waiting: bool = False
    """Whether a result waits for a decision."""
    breaks: bool = False
    """Whether its current result breaks an expectation or an invariant."""

    @property
    def text(self) -> str:
        """Return its part of the comment."""
        return f"#### {_code(self.name)}: {self.state}\n\n{self.body}"


def _cut(head: str, parts: Sequence[str], most: int) -> str:
    """Return as many whole parts as fit, and how many are left out."""
    text = head
    for number, part in enumerate(parts):
        if most and len(text) + len(part) + 1 > most:
            return f"{text}\n… and {len(parts) - number:,} more: see the log of the tests\n"
        text += f"\n{part}"
    return text


def _about(entry: GoldenEntry, root: Path, plugins: Registry | None, style: Style) -> _TestComment | None:
    """Return the part about a golden test; None if there is nothing to report."""
    if entry.state == "broken":
        return _TestComment(entry.name, "broken", _block(entry.problem))
    if entry.state == "obsolete":
        text = "No experiment has it any more: `pytest --blis-obsolete=delete` removes it.\n"
        return _TestComment(entry.name, "obsolete", text)
    try:
        case = case_of(entry.files, root, plugins)
        new = entry.files.read(pending=entry.waiting)
        breaks = _breaks(new, () if case is None else case.known)
        if case is None or not entry.waiting:
            return (
                _TestComment(entry.name, _UNEXPECTED, _expectations(None, new, case), breaks=True) if breaks else None
            )
        golden = entry.files.read() if entry.state == "changed" else None
        body = _unseen(new, case) if golden is None else _changed(entry, case, golden, new, style)
    except BlisError as error:
        return _TestComment(entry.name, "broken", _block(str(error)))
    where = "" if entry.case == DEFAULT else f", case {_code(entry.case)}"
    return _TestComment(entry.name, entry.state, f"{_code(entry.spec)}{where}\n\n{body}", waiting=True, breaks=breaks)


def _unseen(new: Golden, case: Case) -> str:
    return "\n".join(filter(None, ("It has no golden yet.\n", _expectations(None, new, case))))


def _changed(entry: GoldenEntry, case: Case, golden: Golden, new: Golden, style: Style) -> str:
    difference = compare(golden, new, case.comparison)
    lines = plugin_lines(golden, new)
    if difference.engine is not None:
        lines += engine_lines(*difference.engine, alone=differs_only_in_engine(difference))
    parts = [_block("\n".join(lines))] if lines else []
    if difference.spec:
        changed = experiment_differences(golden.document, new.document)
        parts += [_table("experiment", changed, len(changed))] if changed else []
    if answer := answer_lines(case, golden, new, difference):
        parts.append(_block("\n".join(answer)))
    figures = _figures(difference.report)
    parts.append(_table("metric", figures, len(difference.report)))
    parts.append(_expectations(golden, new, case))
    if difference.records and not difference.report:
        parts.append("The report is the same, but the event records differ.\n")
    if difference.text is not None:
        parts.append(f"The values are the same, but not the text of the {difference.text[0]}.\n")
    if case.is_run:
        parts.append(_divergence(entry, case, golden, new))
    if style.folds and len(difference.report) > len(figures[:_FIGURES]):
        parts.append(_folded(difference.report))
    return "\n".join(filter(None, parts))


def _figures(differences: Sequence[Difference]) -> list[Difference]:
    """Return the differences in figures of the report, the most important first."""
    return most_important_first(difference for difference in differences if not _SHOWN_ELSEWHERE.match(difference.path))


def _table(title: str, differences: Sequence[Difference], total: int) -> str:
    """Return a table of the first differences, old and new; of ``total``, how many are left out."""
    if not differences:
        return ""
    rows = [f"| {title} | golden | now | change |", "|---|--:|--:|--:|"]
    for difference in differences[:_FIGURES]:
        old, new = (_cell(clip(text, _VALUE)) if text else "" for text in value_texts(difference))
        rows.append(
            f"| {_cell(difference.path.lstrip('/').replace('/', '.'))} | {old} | {new} | {relative_text(difference)} |"
        )
    left = total - len(differences[:_FIGURES])
    return "\n".join(rows) + "\n" + (f"\n{plural(left, 'more difference')}.\n" if left else "")


def _expectations(golden: Golden | None, new: Golden, case: Case | None) -> str:
    """Return the experiment's expectations with their old and new verdicts, and broken invariants."""
    before = {} if golden is None else {_expected_text(verdict): verdict for verdict in _verdicts(golden)}
    rows, opens = [], []
    for verdict in _verdicts(new):
        old = before.get(_expected_text(verdict))
        known = case is not None and verdict.metric in case.known
        formerly = "" if old is None else _held(old, known)
        rows.append(f"| {_cell(_expected_text(verdict))} | {formerly} | {_held(verdict, known)} |")
        opens.append("" if known else _opening(verdict, case))
    text = "\n".join(["| expected | golden | now |", "|---|---|---|", *rows]) + "\n" if rows else ""
    return "\n".join(
        filter(
            None,
            [
                text,
                *opens,
                *(f"Invariant {_code(invariant)}.\n" for invariant in _broken_invariants(new)),
            ],
        )
    )


def _opening(verdict: Verdict, case: Case | None) -> str:
    """Return where an expectation of the course was first broken, and the debugger command for that event."""
    if verdict.event is None or case is None:
        return ""
    where = f"{_code(_expected_text(verdict))} failed at event {verdict.event:,}: {_code(verdict.why or '')}.\n"
    command = debugger_command(case, verdict.event)
    return where + (f"\n{_block(command, 'sh')}" if command else "")


def _held(verdict: Verdict, known: bool) -> str:
    """Return the verdict; for a known failure, only holding is news."""
    holds, broken = ("**holds**", "fails (xfail)") if known else ("holds", "**fails**")
    if not verdict.wish():  # an expectation of the course of the run
        return holds if verdict.ok else broken
    value = "nothing" if verdict.value is None else verdict.value
    shown = _cell(f"{value:,.6g}" if isinstance(value, float) else str(value))
    return f"{holds if verdict.ok else broken} ({shown})"


def _expected_text(verdict: Verdict) -> str:
    return f"{verdict.metric} {verdict.wish()}".rstrip()


def _breaks(golden: Golden, known: Collection[str]) -> bool:
    """Return whether an invariant is broken, or the broken expectations differ from the known ones."""
    verdicts = _verdicts(golden)
    as_known = {verdict.metric for verdict in verdicts if not verdict.ok} == set(known)
    return not as_known or bool(_broken_invariants(golden))


def _verdicts(golden: Golden) -> list[Verdict]:
    """Return the verdicts of an experiment; a study's report has none."""
    try:
        return [Verdict(**expectation) for expectation in json.loads(golden.report).get("expectations", [])]
    except TypeError as error:
        raise InputError(f"the expectations of the stored report of {golden.spec} are damaged: {error}") from error


def _broken_invariants(golden: Golden) -> list[str]:
    invariants = json.loads(golden.report).get("invariants", {})
    return [f"{name}: {text}" for name, text in invariants.items() if text != "ok"]


def _folded(differences: Sequence[Difference]) -> str:
    lines = "\n".join(difference_lines(differences, _FOLDED))
    summary = f"All {len(differences):,} differences of the report"
    return f"<details><summary>{summary}</summary>\n\n{_block(lines)}\n</details>\n"


def _divergence(entry: GoldenEntry, case: Case, golden: Golden, new: Golden) -> str:
    """Return the first divergent event, and the debugger command for it."""
    experiment = case.load()
    if not is_up_to_date(new, experiment):
        return f"{OUTDATED[0].upper()}{OUTDATED[1:]}.\n"
    divergence = find_divergence(golden, new, experiment, entry.files)
    if divergence is None:
        return ""
    opens = debugger_command(case, divergence.event)
    return _block(divergence.text()) + (f"\nOpen it in the debugger:\n\n{_block(opens, 'sh')}" if opens else "")


def _code(text: str) -> str:
    """Return a text as inline code, whatever it contains."""
    text = printable(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    fence = "`" * (longest + 1)
    return f"{fence}{pad}{text}{pad}{fence}"


def _cell(text: str) -> str:
    """Return a text as inline code in a table, where even code must escape bars."""
    return _code(text).replace("|", "\\|")


def _block(text: str, language: str = "text") -> str:
    """Return a text as a code block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{printable_lines(text)}\n{fence}\n"


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
    rows = sorted(results, key=lambda result: (result.get("outcome") != "failed", str(result["nodeid"])))
    failed = len([row for row in rows if row.get("outcome") == "failed"])
    body = [
        f"<p>{plural(len(rows), 'test')}, {failed} failed.</p>",
        Table(
            head=("test", "result", "requests", "output tokens/s", "time to first token, ms"),
            rows=map(_row, rows),
            words=(1, 4),
            classes=[_outcome(row) for row in rows],
        ).html(),
        *(_details(row) for row in rows if row.get("text")),
    ]
    write_text(target, plain_page("Golden tests", body, _STYLE))


def _outcome(test: Mapping[str, object]) -> str:
    return str(test.get("outcome", ""))


def _row(test: Mapping[str, object]) -> tuple[str, ...]:
    report = test.get("report")
    figures: tuple[str, ...] = ("", "", "")
    if isinstance(report, dict) and "latency" in report:  # not a study, which has many
        figures = (
            f"{report['requests']['completed']:,}",
            f"{report['throughput']['output_tokens_per_s']:,.1f}",
            Markup(_bars(report["latency"]["ttft_ms"])),
        )
    return (str(test["nodeid"]), f"{_outcome(test)} ({test.get('status', '')})", *figures)


def _details(test: Mapping[str, object]) -> str:
    return f"<h2>{escape(str(test['nodeid']))}</h2><pre>{escape(str(test['text']))}</pre>"


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
