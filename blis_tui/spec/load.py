"""Main entry point: loads a name, a path or standard input as a checked, frozen experiment."""

from __future__ import annotations

from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.base.diagnostics import in_order, suggestion
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import as_map
from blis_tui.spec.build import build_experiment
from blis_tui.spec.checks import check
from blis_tui.spec.compose import is_path, shown
from blis_tui.spec.library import find, names
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.read import MAX_BYTES, decode, parse, read_document
from blis_tui.spec.resolve import Resolved, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Document
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.overrides import Override


def load(
    source: str | Path,
    *,
    overrides: Mapping[str, object] | Sequence[str] = (),
    seed: int | None = None,
    stdin_text: str | None = None,
    plugins: Registry | None = None,
) -> Experiment:
    """Load an experiment.

    Args:
        source: a path, the name of an experiment (in the working directory's own ``specs/`` first, then among the
            shipped ones), or ``-`` for ``stdin_text``.
        overrides: ``path=value`` texts, or a mapping of dotted paths to plain values; later ones win.
        seed: replaces the document's ``seed``.
        stdin_text: the document itself, for ``-``; relative paths in it start from the working directory.
        plugins: plug-ins that it may name; None = those of this package.

    Raises:
        SpecError: with every problem of every file involved, sorted by position.
        InputError: the experiment itself cannot be read.
    """
    return build(resolve_source(source, overrides=overrides, seed=seed, stdin_text=stdin_text, plugins=plugins))


def build(resolved: Resolved) -> Experiment:
    """Return the experiment that a resolved document describes."""
    trace_path = None if resolved.trace_path is None else str(resolved.trace_path)
    return build_experiment(as_map(resolved.document.data), trace_path=trace_path, plugins=resolved.plugins)


def resolve_source(
    source: str | Path,
    *,
    overrides: Mapping[str, object] | Sequence[str] = (),
    seed: int | None = None,
    stdin_text: str | None = None,
    plugins: Registry | None = None,
) -> Resolved:
    """Load like :func:`load`, but return the checked document with the positions of its values."""
    parsed = parse_overrides(overrides, seed)
    resolved = resolve_document(open_source(source, stdin_text), parsed, plugins)
    own = () if source == "-" else (locate(source),)
    return replace(resolved, files=own + resolved.files)


def resolve_document(
    document: Document, overrides: tuple[Override, ...] = (), plugins: Registry | None = None
) -> Resolved:
    """Resolve a document's references, complete it (in place) and check it. Raises SpecError."""
    resolved = resolve(document, overrides, plugins)
    problems = check(resolved.document, resolved.plugins)
    if problems:
        raise SpecError(in_order(problems))
    return resolved


def open_source(source: str | Path, stdin_text: str | None = None) -> Document:
    """Read the document that ``source`` stands for.

    Raises:
        SpecError: it is not one strict YAML document.
        InputError: it cannot be read, or no experiment has that name.
    """
    if source == "-":
        raw = _as_bytes(stdin_text or "")
        if len(raw) > MAX_BYTES:
            raise InputError(f"standard input is larger than {MAX_BYTES // 1024 // 1024} MiB")
        return parse(decode(raw, "<stdin>", Path.cwd()))
    path = locate(source)
    return read_document(path, shown(path))


def _as_bytes(text: str) -> bytes:
    """Return the bytes that a text was decoded from; invalid UTF-8 stays recognisable."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


def locate(source: str | Path) -> Path:
    """Return the file of an experiment given by path or name.

    Raises:
        InputError: no experiment has that name, or it is a bundle of a run.
    """
    if str(source).endswith(".blis"):
        raise InputError(
            f"`{source}` is a bundle, not an experiment",
            help="`blis-tui run` and `blis-tui tui` open it; in Python, `blis_tui.golden.bundle.unpacked` does",
        )
    if isinstance(source, Path):
        return source
    if is_path(source):
        named = source.partition(".")[0]
        if named and not Path(source).exists() and find("Experiment", named, Path.cwd()) is not None:
            known = f"`{named}` alone is the experiment of that name"
            raise InputError(f"cannot read {source}: No such file or directory", help=known)
        return Path(source)
    path = find("Experiment", source, Path.cwd())
    if path is not None:
        return path
    if find("Study", source, Path.cwd()) is not None:
        raise InputError(f"`{source}` is a study, not an experiment", help=f"run it with `blis-tui sweep {source}`")
    if isfile(source):  # noqa: PTH113  (a name too long for a file is no error here)
        known = f"the file of that name does not end in .yaml, .yml or .json: use `./{source}` to read it as a document"
    else:
        known = suggestion(source, names("Experiment", Path.cwd()), otherwise="known names are")
    raise InputError(f"no experiment is named `{source}`", help=known)
