"""One experiment composed of all its files and defaults, with the origin of each value.

The text is a complete document: it needs no other one, and has the same ``spec_sha256``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.input_files import real_path
from blis_tui.base.scalars import flow
from blis_tui.base.source import as_map
from blis_tui.base.text import printable
from blis_tui.spec.compose import naming_directory
from blis_tui.spec.library import find
from blis_tui.spec.load import build, resolve_source
from blis_tui.spec.pools import owner_of, slot_of
from blis_tui.spec.resolve import source_of
from blis_tui.spec.shipped import data_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.source import DataPath, Document, Json, Location, Source
    from blis_tui.model.plug_ins import Registry

_COMMENT_COLUMN: Final = 56


@dataclass(frozen=True, slots=True)
class Composed:
    """A resolved experiment with the origin of every value."""

    data: Json
    origins: dict[DataPath, str]
    """Path of a plain value or a list of plain values -> ``file:line``, ``default``, ``--set`` or ``computed``.

    Paths of files are relative to the experiment's folder, those of shipped ones ``blis-tui/specs/…``. A path that is
    missing has an unknown origin.
    """
    spec_sha256: str
    files: tuple[Path, ...] = ()
    """The files that were read."""

    def to_data(self) -> Json:
        """Return everything as plain data, for ``--format json``."""
        origins: Json = {".".join(map(str, path)): origin for path, origin in self.origins.items()}
        return {"spec_sha256": self.spec_sha256, "document": self.data, "origins": origins}

    def to_yaml(self) -> str:
        """Return the document with a comment on every line with a value."""
        head = [
            "# One experiment with everything it refers to; each comment says where the value comes from.",
            f"# spec_sha256: {self.spec_sha256}",
        ]
        return "\n".join([*head, *self._lines(self.data, (), "")]) + "\n"

    def _lines(self, value: Json, path: DataPath, indent: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from self._entry(f"{indent}{flow(key)}:", item, (*path, key), f"{indent}  ")
        elif isinstance(value, list):
            for at, item in enumerate(value):
                # The first line of an entry follows the dash.
                first, *rest = self._lines(item, (*path, at), f"{indent}  ")
                yield f"{indent}- {first.removeprefix(indent + '  ')}"
                yield from rest

    def _entry(self, head: str, item: Json, path: DataPath, indent: str) -> Iterator[str]:
        if _is_branch(item):
            yield head
            yield from self._lines(item, path, indent)
        else:
            text = f"{head} {flow(item)}"
            origin = self.origins.get(path)
            yield text if origin is None else f"{text:<{_COMMENT_COLUMN}}  # {printable(origin)}"


def _is_branch(value: Json) -> bool:
    """Return whether a value takes several lines: a map, or a list of maps."""
    return bool(value) and (
        isinstance(value, dict)
        or (isinstance(value, list) and all(isinstance(entry, dict) and entry for entry in value))
    )


def compose(
    source: str,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    stdin_text: str | None = None,
    plugins: Registry | None = None,
    relative_to: Path | None = None,
    trace_name: str = "",
) -> Composed:
    """Resolve an experiment and record the origin of each value.

    Args:
        source: as for :func:`blis_tui.spec.load.load`.
        overrides: ``path=value`` texts.
        seed: replaces the document's ``seed``.
        stdin_text: the document itself, for ``-``.
        plugins: plug-ins that it may name; None = those of this package.
        relative_to: the folder of the output, to which a trace's path becomes relative; without it, the path is
            absolute.
        trace_name: name of the trace beside the output; empty = see ``relative_to``.

    Raises:
        SpecError: the experiment is not valid.
        InputError: it cannot be read.
    """
    resolved = resolve_source(source, overrides=overrides, seed=seed, stdin_text=stdin_text, plugins=plugins)
    document = resolved.document
    trace = resolved.trace_path
    experiment = build(resolved)
    data = cast("Json", dict(experiment.document))
    origins = {path: _origin(document, path, value) for path, value in _leaves(data, ())}
    if trace is not None:
        data = _with_trace(data, trace_name or _named_from(trace, relative_to))
    return Composed(data, origins, experiment.sha256, resolved.files)


def without_origins(document: Mapping[str, object], spec_sha256: str, trace_name: str = "") -> Composed:
    """Return a resolved experiment without origins; ``trace_name``: as for :func:`compose`."""
    data = cast("Json", dict(document))
    return Composed(_with_trace(data, trace_name) if trace_name else data, {}, spec_sha256)


def _with_trace(data: Json, name: str) -> Json:
    """Return the data with another name for the trace's file."""
    document = as_map(data)
    workload = as_map(document["workload"])
    return {**document, "workload": {**workload, "trace": {**as_map(workload["trace"]), "file": name}}}


def _named_from(trace: Path, folder: Path | None) -> str:
    if folder is None:
        return trace.as_posix()
    try:
        return Path(os.path.relpath(trace, real_path(folder))).as_posix()
    except ValueError:  # another drive
        return trace.as_posix()


def _leaves(value: Json, path: DataPath) -> Iterator[tuple[DataPath, Json]]:
    if not _is_branch(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _leaves(item, (*path, at))


def _origin(document: Document, path: DataPath, value: Json) -> str:
    """Return the origin of the value at ``path`` of the resolved document."""
    place = document.values.get(path)
    if document.get(*path) != value or path == ("workload", "trace", "sha256"):
        return "computed" if place is None else f"computed; {_written(document, path, place)}"
    if place is not None:
        return _written(document, path, place)
    inside = path[len(owner_of(path)) :]
    if inside[:1] == ("latency",):
        return _coefficients(document, path[: -len(inside) + 1 or None])
    if inside[:2] == ("model", "config"):
        around = document.place(path)
        return f"{_written(document, path, around)}, from the model's configuration"
    return source_of(document, path) or "default"


def _written(document: Document, path: DataPath, place: Location) -> str:
    source = place.source
    if source.is_argument:
        return source.name
    text = f"{_named(source, document.source)}:{place.span.line}"
    slot = slot_of(path)
    place_of_slot = document.keys.get(slot)
    inherited = source is not document.source and (
        not slot or (place_of_slot is not None and place_of_slot.source is source)
    )
    return f"{text} (extends parent)" if inherited else text


def _coefficients(document: Document, at: DataPath) -> str:
    """Return the file with the coefficients of the step-time model at that path."""
    kind = str(document.get(*at, "kind"))
    path = find("Latency", kind, naming_directory(document, at))
    return "default" if path is None else _path_named(path, document.source)


def _named(source: Source, main: Source) -> str:
    """Return a machine-independent name of a source: a file's path from the experiment's folder, or its own name."""
    if source.directory is None or source.name.startswith(("<", "--")):
        return source.name
    return _path_named(source.directory / Path(source.name).name, main)


def _path_named(path: Path, main: Source) -> str:
    path = real_path(path)
    if path.is_relative_to(shipped := real_path(data_root())):
        return f"blis-tui/{path.relative_to(shipped).as_posix()}"
    return _named_from(path, main.directory)
