"""Leaves out of a document what it would have anyway: keys without which it means the same.

Keys are cut from the text, so that comments and layout stay; each shorter text is read again and compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError
from blis_tui.base.source import Source, as_map, dotted
from blis_tui.spec.authoring.edits import cut
from blis_tui.spec.authoring.layout import has_anchors, normal_text
from blis_tui.spec.cases import expanded_cases
from blis_tui.spec.compose import TEST_KEYS, Problems
from blis_tui.spec.load import resolve_document
from blis_tui.spec.read import parse
from blis_tui.spec.validate import validated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.source import DataPath, Json
    from blis_tui.model.plug_ins import Registry

_KEPT: Final = frozenset({"apiVersion", "kind", "metadata", *TEST_KEYS})
"""Keys of a document that are no part of what it means, or that a document must have."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A text without what equals a default."""

    text: str
    dropped: tuple[str, ...]
    """Paths of the keys that were left out."""
    left_alone: str = ""
    """Why the text is as it was; empty = there is no reason."""


def trim(source: Source, plugins: Registry | None = None) -> Trimmed:
    """Leave out each key without which the document, and each of its cases, is the same.

    Raises:
        SpecError: the document is not valid.
        InputError: a file that it names cannot be read.
    """
    text = normal_text(source.text)
    if has_anchors(text):
        return Trimmed(source.text, (), "anchors, whose parts depend on each other")
    return _Trimmer(Source(source.name, text, source.directory), plugins).trimmed()


class _Trimmer:
    def __init__(self, source: Source, plugins: Registry | None) -> None:
        self._source = source
        self._plugins = plugins
        self._meaning = self._meant(source.text)
        self._dropped: list[str] = []

    def trimmed(self) -> Trimmed:
        text = self._below(self._source.text, ())
        return Trimmed(text if self._dropped else self._source.text, tuple(self._dropped))

    def _meant(self, text: str) -> list[Json]:
        """Return what a text means: the complete document, and its cases."""
        source = Source(self._source.name, text, self._source.directory)
        checked = validated(parse(source), plugins=self._plugins)
        if checked.kind != "Experiment":
            return [checked.data]
        cases = expanded_cases(parse(source), Problems(self._plugins))
        each = (case.overrides for case in cases if case.overrides)
        return [
            checked.data,
            *(resolve_document(parse(source), overrides, self._plugins).document.data for overrides in each),
        ]

    def _is_same(self, text: str) -> bool:
        try:
            return self._meant(text) == self._meaning
        except BlisError:
            return False

    def _below(self, text: str, path: DataPath) -> str:
        """Return the text without keys of a map that are not needed, and of the maps inside."""
        keys = as_map(parse(Source("-", text)).get(*path))
        text, needed = self._without(text, [(*path, key) for key in keys if path or key not in _KEPT])
        for place in needed:
            for inner in _maps(parse(Source("-", text)).get(*place), place):
                text = self._below(text, inner)
        return text

    def _without(self, text: str, paths: Sequence[DataPath]) -> tuple[str, Sequence[DataPath]]:
        """Return the text without those keys of a map that are not needed, and the others."""
        shorter = text
        for path in paths:
            shorter = cut(shorter, path)
        if not paths or self._is_same(shorter):
            self._dropped += [dotted(path) for path in paths]
            return shorter, ()
        if len(paths) == 1:
            return text, paths
        half = len(paths) // 2
        text, first = self._without(text, paths[:half])
        text, second = self._without(text, paths[half:])
        return text, (*first, *second)


def _maps(value: Json, path: DataPath) -> Iterator[DataPath]:
    """Yield the paths of the maps that a value is, or that are listed in it."""
    if isinstance(value, dict):
        yield path
    for at, entry in enumerate(value) if isinstance(value, list) else ():
        yield from _maps(entry, (*path, at))
