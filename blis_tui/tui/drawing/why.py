"""An explanation as text of a given width, with the positions of its references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.style import Style

from blis_tui.base.classes import dataclass
from blis_tui.debugger.why.explanation import Subject

if TYPE_CHECKING:
    from blis_tui.debugger.why.explanation import Explanation, ExplanationRow, Part, Sentence

MENTION: Final = "mention"
"""Key of a reference's number in the style of its cells."""
_INDENT: Final = 2
_NARROWEST_NOTE: Final = 18


@dataclass(frozen=True, slots=True)
class Mention:
    """A reference, and the line that contains it."""

    ref: Subject
    line: int


@dataclass(frozen=True, slots=True)
class Page:
    """The lines of an explanation, and the references in them, in order."""

    lines: tuple[Content, ...]
    mentions: tuple[Mention, ...]

    @property
    def content(self) -> Content:
        """All lines as one text."""
        return Content("\n").join(self.lines)


class _Writer:
    """Collects lines and numbers references."""

    def __init__(self, width: int, chosen: int | None) -> None:
        self.width = width
        self.chosen = chosen
        self.lines: list[Content] = []
        self.mentions: list[Mention] = []
        self._refs: list[Subject] = []

    def sentence(self, sentence: Sentence, style: str = "") -> Content:
        """Return a sentence with its references marked."""
        pieces: list[Content] = []
        for piece in sentence:
            if isinstance(piece, Subject):
                number = len(self._refs)
                self._refs.append(piece)
                look = "$accent bold reverse" if number == self.chosen else "$accent underline"
                marked = Content.styled(piece.text, look)
                pieces.append(marked.stylize(Style.from_meta({MENTION: number})))
            else:
                pieces.append(Content.styled(piece, style))
        return Content("").join(pieces)

    def write(self, text: Content, indent: int = 0, hanging: int | None = None) -> None:
        """Write a paragraph; its further lines are indented by ``hanging``."""
        self.put(text.wrap(max(self.width - (indent if hanging is None else hanging), 10)), indent, hanging)

    def put(self, wrapped: list[Content], indent: int = 0, hanging: int | None = None) -> None:
        """Write lines, the first indented by ``indent``, the others by ``hanging``."""
        for number, line in enumerate(wrapped):
            margin = indent if not number or hanging is None else hanging
            self._note_mentions(line)
            self.lines.append(Content(" " * margin) + line if margin else line)

    def _note_mentions(self, line: Content) -> None:
        for span in line.spans:
            number = mention_of(span.style)
            # A wrapped reference belongs to the line where it begins.
            if number is not None and number == len(self.mentions):
                self.mentions.append(Mention(self._refs[number], len(self.lines)))


def mention_of(style: Style | str) -> int | None:
    """Return the number of the reference that a style marks."""
    if isinstance(style, str):
        return None
    number = style.meta.get(MENTION)
    return number if isinstance(number, int) else None


def explanation_page(explanation: Explanation, width: int, chosen: int | None = None) -> Page:
    """Return an explanation in lines of at most that width, with reference ``chosen`` highlighted."""
    writer = _Writer(width, chosen)
    writer.write(Content.styled(explanation.headline, "bold"))
    for part in explanation.parts:
        writer.put([Content("")])
        writer.write(Content.styled(part.heading, "$accent bold"))
        for sentence in part.sentences:
            writer.write(writer.sentence(sentence), _INDENT)
        _write_table(writer, part)
    return Page(tuple(writer.lines), tuple(writer.mentions))


def _write_table(writer: _Writer, part: Part) -> None:
    """Write label, figure and share, with the remark beside them, or below if there is too little room."""
    if not part.rows:
        return
    labels = max(len(row.label) + _INDENT * row.inner for row in part.rows)
    figures = max(len(row.figure) for row in part.rows)
    shares = max(len(row.share) for row in part.rows)
    fixed = _INDENT + labels + 2 + figures + (2 + shares if shares else 0)
    room = writer.width - fixed - 2
    for row in part.rows:
        line = _cells(row, labels, figures, shares)
        note = writer.sentence(row.note, "$text-muted")
        if not note:
            writer.put([line])
        elif room >= _NARROWEST_NOTE:
            first, *rest = note.wrap(room)
            writer.put([line + Content("  ") + first])
            writer.put(rest, fixed + 2, fixed + 2)
        else:
            writer.put([line])
            writer.write(note, 2 * _INDENT + _INDENT * row.inner, 2 * _INDENT + _INDENT * row.inner)


def _cells(row: ExplanationRow, labels: int, figures: int, shares: int) -> Content:
    label = " " * (_INDENT * row.inner) + row.label
    look = "$text-muted" if row.inner else ""
    pieces: list[Content] = [
        Content(" " * _INDENT),
        Content.styled(f"{label:<{labels}}", look),
        Content.styled(f"  {row.figure:>{figures}}", look if row.inner else "bold"),
    ]
    if shares:
        pieces.append(Content.styled(f"  {row.share:>{shares}}", look))
    return Content("").join(pieces)
