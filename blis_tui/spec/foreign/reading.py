"""Reads foreign documents with their places, and notes what became of each part; the document under construction."""

from __future__ import annotations

import copy
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, about, in_order, suggestion
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, Source, dotted
from blis_tui.base.text import printable
from blis_tui.spec.checks import check_model
from blis_tui.spec.compose import Problems, checked
from blis_tui.spec.messages import show
from blis_tui.spec.read import parse, read_source
from blis_tui.spec.validate import validate
from blis_tui.spec.workload_checks import check_workload
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from blis_tui.base.source import DataPath, Json, Location


_NUMBER_KEY: Final = re.compile(r"key `([^`]+)` is not text")
LARGEST: Final = 2**64
"""Larger numbers are mistakes, and products of them are no numbers."""
_KEY_IS_NOT_TEXT: Final = "BLIS0003"


class Fate(StrEnum):
    """What becomes of a key."""

    TAKEN = "taken"
    """Converted; noted only where all arguments of a command are listed."""
    NOT_CARRIED = "not carried"
    """Lost: results will differ."""
    APPROXIMATED = "approximated"
    """Converted to another form: results may differ."""
    ELSEWHERE = "set elsewhere"
    """Belongs in the experiment, not in this document."""
    NO_EFFECT = "no effect"
    """Omitted or written differently, without consequences for a simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One key and what became of it."""

    fate: Fate
    path: DataPath
    place: Location
    text: str

    @property
    def lossy(self) -> bool:
        """Whether it may change simulation results."""
        return self.fate in {Fate.NOT_CARRIED, Fate.APPROXIMATED}

    def to_text(self) -> str:
        """Format its line in the list: place, key, fate, reason."""
        span = self.place.span
        where = f"{self.place.source.name}:{span.line}:{span.column}"
        return printable(f"{where}: {dotted(self.path) or 'the document'}: {self.fate}: {self.text}")


def notes_text(notes: Sequence[Note]) -> str:
    """Format all notes in input order, file by file, with a summary line; empty if there are none."""
    if not notes:
        return ""
    ordered = sorted(notes, key=lambda note: (note.place.source.name, note.place.span.line, note.place.span.column))
    counts = [(fate, sum(note.fate is fate for note in notes)) for fate in Fate]
    total = ", ".join(f"{count} {fate}" for fate, count in counts if count)
    return "\n".join([*(note.to_text() for note in ordered), total]) + "\n"


class Input:
    """A foreign document, its problems, and what cannot be converted.

    Attributes:
        document: its data with their places.
        notes: what became of keys without a counterpart.
        problems: why it cannot be imported.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.notes: list[Note] = []
        self.problems: list[Diagnostic] = []

    @classmethod
    def read(cls, path: Path) -> Input:
        """Read a YAML or JSON file strictly, except that keys may be plain numbers, as Go and Python allow.

        Raises:
            InputError: the file cannot be read.
            SpecError: it is not one strict YAML document.
        """
        source = read_source(path)
        try:
            return cls(parse(source))
        except SpecError as error:
            text = _with_quoted_keys(source.text, error.diagnostics)
            if text is None:
                raise
            return cls(parse(Source(str(path), text, path.parent)))

    def note(self, fate: Fate, path: DataPath, text: str) -> None:
        """Note what became of the key at ``path``."""
        place = self.document.place(path, key=True)
        self.notes.append(Note(fate=fate, path=path, place=place, text=text))

    def problem(
        self, path: DataPath, message: str, *, code: str = "BLIS1004", hint: str | None = None, key: bool = False
    ) -> None:
        """Note why the document cannot be imported."""
        self.problems.append(about(self.document, path, code, message, hint=hint, key=key))

    def stop_at_problems(self) -> None:
        """Raise SpecError with all problems, if there are any."""
        if self.problems:
            raise SpecError(in_order(self.problems))

    def root(self) -> Section:
        """Return the document as a map.

        Raises:
            SpecError: it is not a map.
        """
        if not isinstance(self.document.data, dict):
            self.problem((), "expected a map of keys", code="BLIS1003")
            self.stop_at_problems()
        return Section(self, ())


def _with_quoted_keys(text: str, diagnostics: Collection[Diagnostic]) -> str | None:
    """Return the text with every numeric key quoted; None = it has other errors, too."""
    lines = text.split("\n")
    for diagnostic in sorted(diagnostics, key=lambda problem: (problem.line, -problem.column)):
        match = _NUMBER_KEY.match(diagnostic.message)
        at = diagnostic.column - 1
        if (
            diagnostic.code != _KEY_IS_NOT_TEXT
            or match is None
            or not lines[diagnostic.line - 1].startswith(match.group(1), at)
        ):
            return None
        line, key = lines[diagnostic.line - 1], match.group(1)
        lines[diagnostic.line - 1] = f'{line[:at]}"{key}"{line[at + len(key) :]}'
    return "\n".join(lines)


class Section:
    """A map of the input. Keys count as known once they are looked up; :meth:`finish` lists the others."""

    def __init__(self, source: Input, path: DataPath) -> None:
        self.source = source
        self.path = path
        data = source.document.get(*path)
        self.data: dict[str, Json] = data if isinstance(data, dict) else {}
        self._known: list[str] = []

    def get(self, key: str) -> Json:
        """Return the value of ``key``; None = omitted."""
        self._known.append(key)
        return self.data.get(key)

    def given(self, key: str) -> bool:
        """Whether ``key`` has a value: absent, null, zero, false and empty values do not count, as in Go."""
        return bool(self.get(key))

    def text(self, key: str) -> str:
        """Return a text; empty = omitted."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            self._wrong(key, "text")
            return ""
        return value or ""

    def number(self, key: str, *, required: bool = False) -> float | int | None:
        """Return a finite number; None = omitted."""
        value = self.get(key)
        if value is None:
            if required:
                self.source.problem(self.path, f"this lacks the key `{key}`", code="BLIS1002", key=True)
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number")
            return None
        if abs(value) > LARGEST:
            message = f"`{key}` must be at most 2^64, found {show(value)}"
            self.source.problem((*self.path, key), message, code="BLIS1005")
            return None
        return value

    def whole(self, key: str, *, low: int = 0) -> int:
        """Return a whole number of at least ``low``; 0 if omitted."""
        value = self.number(key)
        if value is None:
            return 0
        if value != int(value):
            self._wrong(key, "a whole number")
            return 0
        if value < low:
            message = f"`{key}` must be at least {low}, found `{value}`"
            self.source.problem((*self.path, key), message, code="BLIS1005")
        return int(value)

    def choice(self, key: str, names: Collection[str], *, otherwise: str) -> str:
        """Return one of ``names``; ``otherwise`` if omitted."""
        value = self.text(key) or otherwise
        if value not in names and value != otherwise:
            hint = suggestion(value, names, otherwise="what can be imported is")
            self.source.problem((*self.path, key), f"unknown value {show(value)}", hint=hint)
            return otherwise
        return value

    def section(self, key: str) -> Section | None:
        """Return the map at ``key``; None = omitted."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._wrong(key, "a map")
            return None
        return Section(self.source, (*self.path, key))

    def sections(self, key: str) -> list[Section]:
        """Return the maps in the list at ``key``."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self._wrong(key, "a list of maps")
            return []
        return [Section(self.source, (*self.path, key, at)) for at in range(len(value))]

    def note(self, fate: Fate, key: str, text: str) -> None:
        """Note what became of ``key``, if it has a value."""
        if self.given(key):
            self.source.note(fate, (*self.path, key), text)

    def lose(self, key: str, why: str) -> None:
        """Note that ``key`` cannot be converted, if it has a value."""
        self.note(Fate.NOT_CARRIED, key, why)

    def finish(self) -> None:
        """Note every key that was never looked up."""
        for key in self.data:
            if key not in self._known:
                self.source.note(Fate.NOT_CARRIED, (*self.path, key), "unknown key")

    def _wrong(self, key: str, wanted: str) -> None:
        message = f"expected {wanted}, found {show(self.data[key])}"
        self.source.problem((*self.path, key), message, code="BLIS1003")


_NAME: Final = re.compile("[^a-z0-9.-]+")
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A finished, validated document."""

    kind: str
    name: str
    text: str
    """YAML, ready for a file."""
    notes: tuple[Note, ...]


@dataclass(slots=True, kw_only=True)
class Draft:
    """A document made from ``source``."""

    source: Input
    kind: str
    name: str
    description: str
    body: dict[str, Json]
    origins: dict[DataPath, DataPath] = field(default_factory=dict)
    """Path in this document -> path in the input it was made from."""

    def finish(self) -> Imported:
        """Validate the document and write it.

        Raises:
            SpecError: the input has something that is impossible here; errors refer to places in the input.
        """
        self.source.stop_at_problems()
        data: dict[str, Json] = {
            "apiVersion": "blis/v1",
            "kind": self.kind,
            "metadata": {"name": self.name, "description": self.description},
            **self.body,
        }
        self._check(copy.deepcopy(data))
        text = yaml_text(data)
        validate("-", stdin_text=text)
        return Imported(kind=self.kind, name=self.name, text=text, notes=tuple(self.source.notes))

    def _check(self, data: dict[str, Json]) -> None:
        given = self.source.document
        document = Document(data, given.source)
        for path, origin in self.origins.items():
            document.values[path] = given.place(origin)
            document.keys[path] = given.place(origin, key=True)
        problems = Problems()
        if checked(document, self.kind, (), problems) and self.kind in {"Model", "Workload"}:
            slot = self.kind.lower()
            inside = Document({slot: data}, given.source)
            inside.graft((slot,), document)
            problems.found.extend(check_model(inside) if self.kind == "Model" else check_workload(inside))
        problems.stop()


def as_name(text: str) -> str:
    """Convert a text to a valid document name: lower-case letters, digits, ``.`` and ``-``."""
    name = _NAME.sub("-", text.lower())[:_LONGEST_NAME].strip(".-")
    return name or "imported"


def clamped_normal(mean: float, std_dev: float, low: int, high: int) -> dict[str, Json]:
    """Return a normal distribution between two bounds; a constant if it cannot vary."""
    low = max(1, low)
    high = max(low, high)
    if low == high or std_dev <= 0.0:
        return {"kind": "constant", "value": min(max(low, int(mean + 0.5)), high)}
    return {"kind": "gaussian", "mean": min(max(mean, low), high), "std_dev": std_dev, "min": low, "max": high}
