"""Where the shipped documents and schemas are, and how a name or a Hugging Face id finds its document."""

from __future__ import annotations

import re
from os.path import isdir, isfile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import nearest, words_of
from blis_tui.base.errors import BlisError
from blis_tui.base.input_files import real_path
from blis_tui.spec.shipped import data_root, shipped_specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z")
_MOST_NEAR: Final = 3
_FILES: Final = (".yaml", ".yml", ".json")
FOLDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Experiment": "experiments",
        "Hardware": "hardware",
        "Latency": "latency",
        "Model": "models",
        "Policy": "policies",
        "Study": "studies",
        "Workload": "workloads",
    }
)
"""Kind of document -> its folder below a ``specs/`` folder."""


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """A document that can be referenced by name."""

    kind: str
    name: str
    path: Path
    shipped: bool


def schema_path(name: str) -> Path:
    """Return the file of the schema ``name`` (lower case, such as ``model``)."""
    return data_root() / "schemas" / f"{name}.schema.json"


def suffix(kind: str) -> str:
    """Return the suffix of files of a kind; that of experiments and studies lets pytest and editors recognise them."""
    return {"Experiment": ".blis.yaml", "Study": ".study.yaml"}.get(kind, ".yaml")


def own_specs(directory: Path) -> Path | None:
    """Return the ``specs/`` folder that belongs to a file in ``directory``: beside the file, or enclosing it."""
    beside = directory / "specs"
    if isdir(beside):  # noqa: PTH112  (faster, and every name is looked up there)
        return beside
    if "specs" not in directory.parts:
        return None
    return next(parent for parent in (directory, *directory.parents) if parent.name == "specs")


def search_path(directory: Path | None) -> tuple[Path, ...]:
    """Return the ``specs/`` folders in which a file in ``directory`` looks up names, the shipped ones last."""
    shipped = shipped_specs()
    own = None if directory is None else own_specs(real_path(directory))
    return (shipped,) if own is None or own == shipped else (own, shipped)


def find(kind: str, name: str, directory: Path | None = None) -> Path | None:
    """Return the file of the document ``name``, or None."""
    if not _NAME.match(name):
        return None
    for folder in search_path(directory):
        path = folder / f"{FOLDERS[kind]}/{name}{suffix(kind)}"
        if isfile(path):  # noqa: PTH113
            return path
    return None


def names(kind: str, directory: Path | None = None) -> tuple[str, ...]:
    """Return every name of a kind, sorted."""
    return tuple(sorted({entry.name for entry in entries(directory) if entry.kind == kind}))


def entries(directory: Path | None = None) -> Iterator[LibraryEntry]:
    """Yield every document that can be referenced by name, by kind and name; a project's own hide shipped ones."""
    shipped = shipped_specs()
    for kind, folder in sorted(FOLDERS.items()):
        by_name: dict[str, LibraryEntry] = {}
        for root in reversed(search_path(directory)):
            for path in root.glob(f"{folder}/*{suffix(kind)}"):
                name = path.name.removesuffix(suffix(kind))
                by_name[name] = LibraryEntry(kind, name, path, root == shipped)
        yield from (by_name[name] for name in sorted(by_name))


def description(path: Path) -> str:
    """Return a document's description; empty if it has none or cannot be read."""
    from blis_tui.spec.read import read_document  # noqa: PLC0415  (listing names needs no YAML)

    try:
        text = read_document(path).get("metadata", "description")
    except BlisError:
        return ""
    return text if isinstance(text, str) else ""


def is_id(reference: str) -> bool:
    """Return whether a text has the form of an id, ``organisation/name``; a path may have it, too."""
    return _ID.match(reference) is not None and not reference.endswith(_FILES)


def find_by_id(identifier: str, directory: Path | None = None) -> Path | None:
    """Return the file of the model that lists the id (in any case), searched for as :func:`find` searches."""
    wanted = identifier.lower()
    for folder in search_path(directory):
        for path in sorted(folder.glob(f"{FOLDERS['Model']}/*{suffix('Model')}")):
            if wanted in _ids(path):
                return path
    return None


def _ids(path: Path) -> Iterator[str]:
    """Yield the ids that a document lists, in lower case; none if it cannot be read, which loading reports."""
    from blis_tui.spec.read import read_document  # noqa: PLC0415  (listing names needs no YAML)

    try:
        listed = read_document(path).get("huggingface_ids")
    except BlisError:
        return
    yield from (
        identifier.lower() for identifier in (listed if isinstance(listed, list) else []) if isinstance(identifier, str)
    )


def how_to_add(identifier: str, directory: Path | None = None) -> str:
    """Return a hint for an unknown id or name: models of that name or family, and how to write a document."""
    name = identifier.rpartition("/")[2].lower()
    known = names("Model", directory)
    if name in known:
        return f"did you mean `{name}`? (its document can list the id, under `huggingface_ids`)"
    near = nearest(name, known)
    family = (
        [near]
        if near
        else [candidate for candidate in known if words_of(candidate)[:1] == words_of(name)[:1]][:_MOST_NEAR]
    )
    similar = f"similar ones are {', '.join(f'`{candidate}`' for candidate in family)}; " if family else ""
    name = name if _NAME.fullmatch(name) else "NAME"
    return f"{similar}to add it: `blis-tui spec import model config.json --name {name} -o specs/models/{name}.yaml`"
