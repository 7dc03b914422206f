"""Checks a document of any kind on its own, as far as that is possible without an experiment."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import about, suggestion
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, as_map
from blis_tui.spec.build import Part, build_workload, trace_of
from blis_tui.spec.checks import check_model
from blis_tui.spec.cluster_checks import check_policy
from blis_tui.spec.compose import Problems, checked, inline_config_file, is_path
from blis_tui.spec.library import find
from blis_tui.spec.load import open_source, resolve_document
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.reader import complete
from blis_tui.spec.resolve import expand_model, pin_trace
from blis_tui.spec.schema import KINDS
from blis_tui.spec.shipped import builtin
from blis_tui.spec.study.document import read_study
from blis_tui.spec.workload_checks import check_workload
from blis_tui.workload.traces.read import check_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Workload
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.resolve import Resolved
    from blis_tui.spec.study.study_records import Study


@dataclass(frozen=True, slots=True)
class Valid:
    """A valid document; ``data`` is complete (and, for an experiment, resolved)."""

    kind: str
    name: str
    data: Json
    study: Study | None = None
    """The study, if the document is one."""
    resolved: Resolved | None = None
    """The experiment, if the document is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWorkload:
    """A checked Workload document."""

    workload: Workload
    given: dict[str, Json]
    """The document as given, without defaults."""
    files: tuple[Path, ...]
    """Its trace file, if it has one."""


def open_any(source: str | Path, stdin_text: str | None = None) -> Document:
    """Read the document at a path, with the name of an experiment or a study, or ``-`` for ``stdin_text``.

    Raises:
        SpecError: it is not one strict YAML document.
        InputError: it cannot be read.
    """
    if isinstance(source, str) and not is_path(source) and find("Experiment", source, Path.cwd()) is None:
        source = find("Study", source, Path.cwd()) or source
    return open_source(source, stdin_text)


def validate(source: str | Path, *, stdin_text: str | None = None, plugins: Registry | None = None) -> Valid:
    """Read and check one document: see :func:`open_any` and :func:`validated`."""
    return validated(open_any(source, stdin_text), plugins=plugins)


def validated(document: Document, *, plugins: Registry | None = None) -> Valid:
    """Check one document, and complete it in place.

    Raises:
        SpecError: with every problem found.
        TraceError: rows of its trace are invalid; of a large file, only the first rows are checked.
        InputError: a file that it refers to cannot be read.
    """
    kind = _kind(document)
    if kind == "Experiment":
        resolved = resolve_document(document, (), plugins)
        document = resolved.document
        _check_rows(document.get("workload", "trace"), resolved.trace_path, plugins)
        return Valid(kind, str(document.get("metadata", "name")), document.data, resolved=resolved)
    if kind == "Study":
        study = read_study(document, plugins=plugins)
        return Valid(kind, study.name, dict(study.document), study)
    problems = Problems(plugins)
    if kind == "Model":
        inline_config_file(document, (), problems)
    checked(document, kind, (), problems)
    problems.stop()
    trace_path = check_alone(document, kind, problems)
    problems.stop()
    _check_rows(document.get("trace"), trace_path, plugins)
    return Valid(kind, str(document.get("metadata", "name")), document.data)


def _kind(document: Document) -> str:
    """Return the document's own kind.

    Raises:
        SpecError: it has none, or an unknown one.
    """
    if not isinstance(document.data, dict):
        actual = "a list" if isinstance(document.data, list) else "a plain value"
        hint = "begin it with `apiVersion: blis/v1` and `kind: Experiment`; `blis-tui spec new` writes one"
        raise SpecError([about(document, (), "BLIS1003", f"expected a map of keys, found {actual}", hint=hint)])
    kind = document.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind
    if isinstance(kind, str):
        hint = suggestion(kind, KINDS)
        raise SpecError([about(document, ("kind",), "BLIS1004", f"unknown kind `{kind[:40]}`", hint=hint)])
    hint = "add it with one of " + ", ".join(f"`{name}`" for name in KINDS)
    raise SpecError([about(document, (), "BLIS1002", "the document lacks the key `kind`", hint=hint)])


def _check_rows(trace: Json, path: Path | None, plugins: Registry | None) -> None:
    """Check that the rows of a recorded workload are usable. Raises TraceError."""
    if path is None or not isinstance(trace, dict):
        return
    check_trace(trace_of(Part(trace, "workload.trace"), str(path)), plugins or builtin())


def check_alone(document: Document, kind: str, problems: Problems) -> Path | None:
    """Check the document as part of an experiment, and complete it; return the path of its trace, if any."""
    slot, trace_path = kind.lower(), None
    if kind in {"Model", "Workload", "Policy"}:
        inside = Document({slot: document.data}, document.source)
        inside.graft((slot,), document)
        if kind == "Model":
            expand_model(inside, problems)
        elif kind == "Workload":
            trace_path = pin_trace(inside, problems)
        if not problems.found:
            checks = {"Model": check_model, "Workload": check_workload, "Policy": check_policy}
            problems.found.extend(checks[kind](inside))
    document.data = complete(document.data, kind, problems.plugins)
    return trace_path


def open_workload(
    document: Document, *, overrides: Sequence[str] = (), plugins: Registry | None = None
) -> OpenWorkload:
    """Check a Workload document as part of an experiment, and build what it describes.

    Args:
        document: the document as it was read.
        overrides: ``path=value`` texts; paths start in the document.
        plugins: plug-ins that it may name; None = those of this package.

    Raises:
        SpecError: with every problem found.
        InputError: its trace cannot be read.
    """
    problems = Problems(plugins)
    checked(document, "Workload", parse_overrides(overrides), problems)
    given = copy.deepcopy(as_map(document.data))
    problems.stop()
    path = check_alone(document, "Workload", problems)
    problems.stop()
    workload = build_workload(Part(as_map(document.data), "workload"), None if path is None else str(path))
    return OpenWorkload(workload=workload, given=given, files=() if path is None else (path,))
