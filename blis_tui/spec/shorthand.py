"""Short forms: a word where a map with a ``kind`` is expected, a number where lengths are.

A word alone is that kind with its default settings; a number alone is a distribution that always gives it. The schemas
say where (``type: [object, string]`` with the words, ``type: [object, integer]``), and everything after the first check
sees the long form only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.schema import short_forms
from blis_tui.spec.source import Document

if TYPE_CHECKING:
    from blis_tui.registry import Registry
    from blis_tui.spec.source import DataPath, Json


def expand(document: Document, kind: str, plugins: Registry | None = None) -> None:
    """Write out the short forms of a document of that kind, in place; all parts are where the short form was."""
    for path, long_form in list(short_forms(document.data, kind, plugins)):
        place = document.place(path)
        parts: dict[DataPath, Json] = {(): long_form, **{(key,): value for key, value in long_form.items()}}
        document.graft(path, Document(long_form, place.source, values=dict.fromkeys(parts, place)))
