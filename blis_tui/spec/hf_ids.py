"""Hugging Face ids as names of models: which document lists an id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.errors import BlisError
from blis_tui.spec.library import FOLDERS, names, search_path, suffix
from blis_tui.spec.loader import read_document
from blis_tui.spec.nearness import nearest, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z")
_MOST_NEAR: Final = 3
_FILES: Final = (".yaml", ".yml", ".json")


def is_id(reference: str) -> bool:
    """Whether a text has the form of an id, ``organisation/name``; a path to a document may have it, too."""
    return _ID.match(reference) is not None and not reference.endswith(_FILES)


def find_by_id(identifier: str, directory: Path | None = None) -> Path | None:
    """The file of the model that lists the id (in any case), searched for as :func:`library.find` searches."""
    wanted = identifier.lower()
    for folder in search_path(directory):
        for path in sorted(folder.glob(f"{FOLDERS['Model']}/*{suffix('Model')}")):
            if wanted in _ids(path):
                return path
    return None


def _ids(path: Path) -> Iterator[str]:
    """The ids a document lists, in lower case; none where it cannot be read (whoever names it will be similar why)."""
    try:
        listed = read_document(path).get("huggingface_ids")
    except BlisError:
        return
    yield from (one.lower() for one in (listed if isinstance(listed, list) else []) if isinstance(one, str))


def how_to_add(identifier: str, directory: Path | None = None) -> str:
    """Help for an id that no document lists: models of that name or family, and how to make a document."""
    name = identifier.partition("/")[2].lower()
    known = names("Model", directory)
    if name in known:
        return f"did you mean `{name}`? (its document can list the id, under `huggingface_ids`)"
    near = nearest(name, known)
    family = [near] if near else [one for one in known if words_of(one)[0] == words_of(name)[0]][:_MOST_NEAR]
    similar = f"similar ones are {', '.join(f'`{one}`' for one in family)}; " if family else ""
    return f"{similar}to add it: `blis-tui import model config.json --name {name} -o specs/models/{name}.yaml`"
