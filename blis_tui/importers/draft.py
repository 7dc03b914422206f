"""A document under construction: its data, the origin of each value, its validation, and its text."""

from __future__ import annotations

import copy
import re
from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import SpecError
from blis_tui.spec.checks import check_model
from blis_tui.spec.compose import Problems, checked
from blis_tui.spec.diagnostics import in_order
from blis_tui.spec.source import Document
from blis_tui.spec.validate import validate
from blis_tui.spec.workload_checks import check_workload
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from blis_tui.importers.section import Input, Note
    from blis_tui.spec.source import DataPath, Json

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
        if problems.found:
            raise SpecError(in_order(problems.found))


def as_name(text: str) -> str:
    """Convert a text to a valid document name: lower-case letters, digits, ``.`` and ``-``."""
    name = _NAME.sub("-", text.lower())[:_LONGEST_NAME].strip(".-")
    return name or "imported"
