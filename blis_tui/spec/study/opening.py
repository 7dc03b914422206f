"""Finds a study, or an experiment to study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.errors import BlisError, InputError
from blis_tui.inputs import real_path
from blis_tui.spec.compose import is_path, shown
from blis_tui.spec.diagnostics import suggestion
from blis_tui.spec.library import find, names
from blis_tui.spec.load import locate, open_source
from blis_tui.spec.loader import read_document
from blis_tui.spec.overrides import as_text
from blis_tui.spec.source import Document

if TYPE_CHECKING:
    from blis_tui.spec.source import Json
    from blis_tui.spec.study.model import Point, Study


def open_study_or_experiment(source: str, stdin_text: str | None = None) -> tuple[Document, Document | None]:
    """Read a study, or an experiment as the second result, with an empty study around it.

    Args:
        source: a path, a name, or ``-`` for ``stdin_text``; a study takes precedence over an experiment of that name.
        stdin_text: the document itself, for ``-``.

    Raises:
        SpecError: it is not one strict YAML document.
        InputError: it cannot be read, or nothing has that name.
    """
    here = Path.cwd()
    if source != "-" and not is_path(source):
        if (path := find("Study", source, here)) is not None:
            return read_document(path, shown(path)), None
        if find("Experiment", source, here) is None:
            known = {*names("Study", here), *names("Experiment", here)}
            hint = suggestion(source, known, otherwise="known names are")
            raise InputError(f"no study and no experiment is named `{source}`", help=hint)
    document = open_source(source, stdin_text)
    if document.get("kind") == "Study":
        return document, None
    name = document.get("metadata", "name")
    header: Json = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": name if isinstance(name, str) else "study"},
        "experiment": "standard input" if source == "-" else source,
    }
    return Document(header, document.source), document


def source_of(study: Study) -> str:
    """Return what a user would type for the study's experiment: its name if that finds the file, else the path."""
    path = study.base.source.name
    try:
        same = real_path(locate(study.experiment)) == real_path(Path(path))
    except BlisError:
        same = False
    return study.experiment if same else path


def override_texts(study: Study, point: Point) -> tuple[str, ...]:
    """Return the ``--set`` arguments that turn the experiment into that of the point."""
    return tuple(as_text(".".join(one.steps), one.value.data) for one in (*study.fixed, *point.overrides))
