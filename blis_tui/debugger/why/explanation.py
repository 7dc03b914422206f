"""The form of an explanation: plain sentences with links to requests, events and instances."""

from __future__ import annotations

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.text import printable


class Subject(NamedTuple):
    """What a link in a sentence, a line of a pane or the cursor is about."""

    kind: str
    """``request``, ``event`` or ``instance``; on the screen also what else a line can be about."""
    value: str
    """The request's name, or the number of the event (from 1) or instance (from 0) in digits."""

    @property
    def text(self) -> str:
        """The text shown for it in a sentence."""
        return f"{self.kind} {int(self.value):,}" if self.kind in ("event", "instance") else self.value


def request_ref(name: str) -> Subject:
    """Return a request as a subject."""
    return Subject("request", name)


def event_ref(event: int) -> Subject:
    """Return an event as a subject."""
    return Subject("event", str(event))


def instance_ref(index: int) -> Subject:
    """Return an instance as a subject."""
    return Subject("instance", str(index))


Sentence = tuple[str | Subject, ...]
"""Text with references in it."""


def say(*pieces: str | Subject) -> Sentence:
    """Return a sentence made of these pieces."""
    return pieces


def sentence_text(sentence: Sentence) -> str:
    """Return a sentence as plain text."""
    return "".join(piece.text if isinstance(piece, Subject) else piece for piece in sentence)


def listing(refs: list[Subject], limit: int = 3) -> Sentence:
    """Return references separated by commas, at most ``limit``, and how many more there are."""
    pieces: list[str | Subject] = []
    for place, ref in enumerate(refs[:limit]):
        if place:
            pieces.append(", ")
        pieces.append(ref)
    if len(refs) > limit:
        pieces.append(f" and {len(refs) - limit:,} more")
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class ExplanationRow:
    """A row of a table: a label, a figure with its unit, a percentage of the whole, and a remark."""

    label: str
    figure: str
    share: str = ""
    note: Sentence = ()
    inner: bool = False
    """Whether the row is a part of the row above it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A heading with sentences, and a table below them."""

    heading: str
    sentences: tuple[Sentence, ...] = ()
    rows: tuple[ExplanationRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer to "why?". ``about``: the subject; ``headline``: the answer in one sentence."""

    about: Subject
    title: str
    headline: str
    parts: tuple[Part, ...] = ()

    def to_text(self) -> str:
        """Return the whole explanation as plain text, for copying."""
        lines = [self.title, "", self.headline]
        for part in self.parts:
            lines += ["", part.heading]
            lines += [f"  {sentence_text(sentence)}" for sentence in part.sentences]
            width = max((len(row.label) + 2 * row.inner for row in part.rows), default=0)
            figures = max((len(row.figure) for row in part.rows), default=0)
            for row in part.rows:
                label = ("  " if row.inner else "") + row.label
                note = sentence_text(row.note)
                lines.append(f"  {label:<{width}}  {row.figure:>{figures}}  {row.share:>5}  {note}".rstrip())
        return "\n".join(map(printable, lines)) + "\n"
