"""The list of experiments and studies, and the details of the selected one."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.fuzzy import FuzzySearch

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural
from blis_tui.tui.catalog import GoldenState
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.drawing.problems import diagnostics_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.catalog import Checked, Found

_CHECK_WIDTH: Final = 10
_GOLDEN_WIDTH: Final = 9
_LABEL_WIDTH: Final = 11
_HEADING: Final = "experiment"
"""The heading above the names."""
_MIN_ABOUT: Final = 12
"""Minimum width of the description; below, it is left out."""

_GOLDEN_STYLES: Final = {"golden": "$success", "pending": "$warning", "orphan": "$warning", "none": "$text-muted"}
_GOLDEN_WORDS: Final = {"golden": "✓ golden", "pending": "! new", "orphan": "! orphan", "none": "-"}


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """An experiment or a study with what is known so far."""

    found: Found
    checked: Checked | None = None
    """Result of its check; None = not checked yet."""
    golden: GoldenState = field(default_factory=GoldenState)
    marked: bool = False
    """Whether it is marked for comparison."""
    about: str = ""
    """Its description, as far as it can be read without a check."""


def matching(entries: Sequence[HomeEntry], query: str) -> tuple[HomeEntry, ...]:
    """Return the entries whose name or path matches a query, the best first."""
    if not query.strip():
        return tuple(entries)
    search = FuzzySearch()
    query = query.strip()
    scored = [(max(search.match(query, text)[0] for text in _texts(entry)), entry) for entry in entries]
    return tuple(entry for score, entry in sorted(scored, key=lambda pair: -pair[0]) if score > 0)


def _texts(entry: HomeEntry) -> tuple[str, ...]:
    return (entry.found.name,) if entry.found.shipped else (entry.found.name, entry.found.shown)


def name_width(entries: Sequence[HomeEntry], width: int) -> int:
    """Return the width of names: that of the longest if there is room."""
    longest = max((len(entry.found.name) for entry in entries), default=0)
    return max(len(_HEADING), min(longest, width // 3))


def row(entry: HomeEntry, names: int, width: int) -> Content:
    """Return a row: mark, name, validity, golden, description."""
    check = check_words(entry.checked)
    golden = Content.styled(_GOLDEN_WORDS[entry.golden.word], _GOLDEN_STYLES[entry.golden.word])
    if entry.found.is_study:
        golden = Content.styled("study", "$text-muted")
    about = width - 2 - names - 2 - _CHECK_WIDTH - 1 - _GOLDEN_WIDTH - 1
    parts = [
        Content.styled("● " if entry.marked else "  ", "$accent bold"),
        _fit(Content.styled(shorten(entry.found.name, names), "bold"), names + 2),
        _fit(check, _CHECK_WIDTH + 1),
        _fit(golden, _GOLDEN_WIDTH + 1),
    ]
    if about >= _MIN_ABOUT:
        parts.append(Content.styled(_words(" ".join(_description(entry).split()), about), "$text-muted"))
    return Content("").join(parts).truncate(width)  # wide characters may still exceed the width


def columns_line(names: int, width: int) -> Content:
    """The headings above the rows."""
    about = width - 2 - names - 2 - _CHECK_WIDTH - 1 - _GOLDEN_WIDTH - 1
    text = f"  {_HEADING:<{names + 2}}{'check':<{_CHECK_WIDTH + 1}}{'golden':<{_GOLDEN_WIDTH + 1}}"
    return Content.styled((text + ("about" if about >= _MIN_ABOUT else ""))[:width], "$text-muted")


def _fit(content: Content, width: int) -> Content:
    return content.pad_right(max(0, width - content.cell_length))


def _words(text: str, width: int) -> str:
    """Return as many whole words as fit."""
    if len(text) <= width:
        return text
    cut = text[: width - 1]
    return (cut if text[width - 1] == " " else cut.rpartition(" ")[0]).rstrip(" ,.;:") + "…"


def check_words(checked: Checked | None) -> Content:
    """Return the validity of an experiment, in a word or two."""
    if checked is None:
        return Content.styled("…", "$text-muted")
    if checked.unreadable:
        return Content.styled("✗ no file", "$error")
    if checked.problems:
        count = len(checked.problems)
        return Content.styled(f"✗ {plural(count, 'error')}" if count < 100 else "✗ 99+", "$error")
    return Content.styled("✓ ok", "$success")


def _description(entry: HomeEntry) -> str:
    checked = entry.checked
    if checked is None:
        return entry.about
    if checked.facts is not None:
        return checked.facts.description
    return checked.unreadable or checked.problems[0].message


def section(title: str) -> Content:
    """Return a heading within the list."""
    return Content.styled(title, "$text-muted bold")


def details(entry: HomeEntry, width: int, *, dense: bool = False) -> Content:
    """Return all that is known about an experiment.

    Args:
        entry: the experiment.
        width: available columns.
        dense: whether to put two short facts on one line, and leave out empty lines.
    """
    more = "  enter shows all" if entry.checked is not None and len(entry.checked.problems) > 1 else ""
    title = Content.assemble((entry.found.name, "bold"), "  ", check_words(entry.checked), (more, "$text-muted"))
    lines: list[Content] = [title]
    facts: list[tuple[str, Content]] = []
    checked = entry.checked
    if checked is None:
        lines += [Content(entry.about)] if entry.about else []
        lines.append(Content.styled("being checked", "$text-muted"))
    elif checked.facts is not None:
        lines += [Content(checked.facts.description)] if checked.facts.description else []
        facts += [(what, Content(how)) for what, how in checked.facts.lines]
    elif checked.unreadable:
        lines.append(Content.styled(checked.unreadable, "$error"))
    else:
        # Long lines are cut instead of wrapped, because marks must stay below what they mark.
        first = diagnostics_text(checked.problems[:1]).split("\n")
        lines += [line.truncate(max(1, width), ellipsis=True) for line in first]
    facts += [] if entry.found.is_study else [("golden", golden_sentence(entry))]
    facts.append(("file", Content(entry.found.shown)))
    lines += [] if dense else [Content("")]
    lines += _fact_lines(facts, width if dense else 0)
    return Content("\n").join(lines)


def _fact_lines(facts: Sequence[tuple[str, Content]], width: int) -> list[Content]:
    """Return facts one per line, or two if both fit into half of the columns."""
    half = width // 2
    lines: list[Content] = []
    waiting = list(facts)
    while waiting:
        line = _labelled(*waiting.pop(0))
        if waiting and line.cell_length < half and _LABEL_WIDTH + waiting[0][1].cell_length <= half:
            line = Content.assemble(_fit(line, half), _labelled(*waiting.pop(0)))
        lines.append(line)
    return lines


def _labelled(label: str, value: Content) -> Content:
    return Content.assemble((f"{label:<{_LABEL_WIDTH}}", "$text-muted"), value)


def golden_sentence(entry: HomeEntry) -> Content:
    """Return what there is to compare results with."""
    golden = entry.golden
    if golden.word == "none":
        return Content.styled("none here", "$text-muted")
    parts = [
        (golden.golden, f"{golden.golden} stored", "$success"),
        (golden.pending, f"{golden.pending} new, waiting for a decision", "$warning"),
        (golden.orphan, f"{golden.orphan} without a case", "$warning"),
    ]
    return Content(", ").join(Content.styled(text, style) for number, text, style in parts if number)


def summary(entries: Sequence[HomeEntry]) -> str:
    """Return the number of experiments and their states, for the title."""
    checked = [entry.checked for entry in entries if entry.checked is not None]
    wrong = len([one for one in checked if one.facts is None])
    studies = len([entry for entry in entries if entry.found.is_study])
    count = plural(len(entries) - studies, "experiment")
    if studies:
        count += ", 1 study" if studies == 1 else f", {studies} studies"
    if len(checked) < len(entries):
        return f"{count}, checking {len(checked)}"
    return f"{count}, {wrong} with errors" if wrong else f"{count}, all valid"
