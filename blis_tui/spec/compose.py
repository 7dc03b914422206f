"""Composes one checked document from files: inheritance, overrides, schema."""

from __future__ import annotations

import os
import re
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, about, in_order
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.input_files import real_path
from blis_tui.base.source import Document, as_map
from blis_tui.spec.library import find, find_by_id, how_to_add, is_id, names
from blis_tui.spec.overrides import Override, apply_override
from blis_tui.spec.pools import DIVISION, SLOTS
from blis_tui.spec.read import ForeignFileError, read_document
from blis_tui.spec.reader import read
from blis_tui.spec.schema import KINDS, default, takes_null

if TYPE_CHECKING:
    from blis_tui.base.source import DataPath, Json
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.reader import Reading

_HEADER = ("apiVersion", "kind", "metadata")

TEST_KEYS: Final = ("cases", "matrix", "tags", "skip", "xfail", "golden", "twins")
"""Keys of an experiment that describe its tests; they are neither inherited nor simulated."""


MAX_PARENTS: Final = 32
"""Maximum length of an inheritance chain."""

DOCUMENT: Final = re.compile(
    rb"""apiVersion["']?\s*:\s*["']?blis/|\bkind["']?\s*:\s*["']?(?:%s)\b""" % "|".join(KINDS).encode()
)
"""A sign that a file is meant to be a document, even if it is broken."""
_MODEL_CONFIG: Final = re.compile(rb"model_type|architectures|hidden_size|num_hidden_layers|num_attention_heads")
"""A sign that a file is meant to be a model configuration."""


@dataclass(slots=True)
class Problems:
    """Diagnostics collected across the files of one experiment, and the list of those files."""

    plugins: Registry | None = None
    """Additional plug-ins that the documents may name; None = none."""
    found: list[Diagnostic] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def read(self, path: Path, signs: re.Pattern[bytes]) -> Document:
        """Read a document like :func:`read_document`, and record its file."""
        self.files.append(path)
        return read_document(path, shown(path), signs)

    def add(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic."""
        self.found.append(diagnostic)

    def take(self, error: SpecError) -> None:
        """Add all diagnostics of an error."""
        self.found.extend(error.diagnostics)

    def stop(self) -> None:
        """Raise SpecError with all diagnostics, sorted by position, if there are any."""
        if self.found:
            raise SpecError(in_order(self.found))


def is_path(reference: str) -> bool:
    """Return whether a reference is a path rather than a name: it has a slash or a document's suffix."""
    return "/" in reference or "\\" in reference or reference.endswith((".yaml", ".yml", ".json"))


def directory_of(document: Document, path: DataPath) -> Path:
    """Return the base of a relative path written at ``path``: the file's folder, or the working directory."""
    return document.place(path).source.directory or Path()


def naming_directory(document: Document, path: DataPath) -> Path:
    """Return the folder whose ``specs/`` is searched first for a name written at ``path``.

    A name given on the command line is looked up as if it stood in the experiment itself.
    """
    source = document.place(path).source
    return (document.source if source.is_argument else source).directory or Path()


def unreadable_path(document: Document, path: DataPath, message: str, name: str = "") -> Diagnostic:
    """Return the diagnostic for an unreadable path written at ``path``; ``name``: of a document it may mean."""
    argument = document.place(path).source.is_argument
    base = "the working directory" if argument else "the file that contains them"
    hint = f"paths are relative to {base}"
    return about(document, path, "BLIS2002", message, hint=f"write `{name}`; {hint}" if name else hint)


def open_reference(document: Document, path: DataPath, kind: str, problems: Problems) -> Document | None:
    """Read the document of a kind that the text at ``path`` names, or record why that fails."""
    reference = document.get(*path)
    if not isinstance(reference, str):
        return None
    directory = naming_directory(document, path)
    target = _locate(document, path, kind, reference)
    if isinstance(target, Diagnostic):
        problems.add(target)
        return None
    try:
        return problems.read(target, DOCUMENT)
    except ForeignFileError:
        header = f"`apiVersion: blis/v1` and `kind: {kind}`"
        message = f"{shown(target)} is not a document of kind `{kind}`"
        problems.add(about(document, path, "BLIS1008", message, hint=f"such a document has {header}"))
    except InputError as error:
        problems.add(unreadable_path(document, path, error.message, _shipped_name(reference, kind, directory)))
    except SpecError as error:
        problems.take(error)
    return None


def _shipped_name(reference: str, kind: str, directory: Path) -> str:
    """Return the name that was probably meant by a path to nothing: `chatbot.yaml` for `chatbot`; empty = none."""
    name = Path(reference).name.partition(".yaml")[0].partition(".yml")[0].partition(".blis")[0]
    return name if find(kind, name, directory) is not None else ""


def _locate(document: Document, path: DataPath, kind: str, reference: str) -> Path | Diagnostic:
    """Return the file that a reference at ``path`` means: a path, a name, or a model's Hugging Face id.

    ``organisation/name`` is a path if such a file exists, otherwise an id.
    """
    directory = naming_directory(document, path)
    if not is_path(reference):
        if (file := find(kind, reference, directory)) is not None:
            return file
        message = f"no {kind.lower()} is named `{reference}`"
        from blis_tui.spec.hints import document_hint  # noqa: PLC0415  (only needed for wrong documents)

        hint = document_hint(kind, reference, names(kind, directory))
        if kind == "Model" and not hint.startswith("did you mean"):
            hint = how_to_add(reference, directory)
    else:
        written = directory_of(document, path) / reference
        if kind != "Model" or not is_id(reference) or written.is_file():
            return written
        if (file := find_by_id(reference, directory)) is not None:
            return file
        message = f"no model has the Hugging Face id `{reference}`, and no file has this path"
        hint = how_to_add(reference, directory)
    return about(document, path, "BLIS2001", message, hint=hint)


def shown(path: Path) -> str:
    """Return a path as messages show it: relative to the working directory if it lies below."""
    try:
        below = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118  (text, as it is asked for of every file)
        real = os.path.realpath(path)
    except (ValueError, OSError):  # a path with a NUL character; a deleted folder
        return str(path)
    return real.removeprefix(below) if real.startswith(below) else str(path)


def inherit(document: Document, problems: Problems, chain: tuple[Path, ...] = ()) -> Document:
    """Return the document merged with its ``extends`` chain: maps are merged, lists and scalars replaced, nulls drop.

    A map in place of a document's name is merged into that document, like an override that reaches into it.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("extends"), str):
        return document
    for key in _HEADER:
        if key not in data:
            problems.add(about(document, (), "BLIS1002", f"the document lacks the key `{key}`"))
    if isinstance(metadata := data.get("metadata"), dict) and "name" not in metadata:  # which would be the parent's
        problems.add(about(document, ("metadata",), "BLIS1002", "`metadata` lacks the key `name`", key=True))
    parent = open_reference(document, ("extends",), "Experiment", problems)
    if parent is None:  # keeping `extends` makes the schema accept what the parent would have defined
        return document
    where = real_path(parent.source.name)
    if where in chain:
        circle = " -> ".join(path.name for path in (*chain[chain.index(where) :], where))
        problems.add(about(document, ("extends",), "BLIS2003", f"an experiment extends itself: {circle}"))
        return document
    if len(chain) > MAX_PARENTS:
        message = f"more than {MAX_PARENTS} experiments extend one another, from {chain[0].name} to {where.name}"
        problems.add(
            about(document, ("extends",), "BLIS2003", message, hint="extend an experiment closer to the first")
        )
        return document
    if not _is_experiment(parent, problems):
        return document
    del data["extends"]
    parent = inherit(parent, problems, (*chain, where))
    if isinstance(parent.data, dict):
        for key in TEST_KEYS:
            parent.data.pop(key, None)
        expand(parent, "Experiment", problems.plugins)  # maps merge with the long form of the parent's short forms
        _follow_names(parent, document, problems)
        _drop(parent, document)
        _choose_requests(parent, document)
        _choose_instances(parent, document)
        merge(parent, document, ())
        parent.source = document.source
        return parent
    return document


def _is_experiment(parent: Document, problems: Problems) -> bool:
    """Check the parent before merging hides its problems: it must be an experiment with a valid header."""
    data, header_data = parent.data, parent.data
    header = parent
    if isinstance(data, dict):
        header_data = {
            **{key: data[key] for key in _HEADER if key in data},
            "extends": "others",
        }  # `extends` keeps the schema from reporting other missing keys
        header = Document(header_data, parent.source, parent.keys, parent.values)
    diagnostics = check_document(header, "Experiment", read(header_data, "Experiment", problems.plugins))
    problems.found.extend(diagnostics)
    return not diagnostics


def _follow_names(base: Document, top: Document, problems: Problems) -> None:
    """Where ``top`` changes keys of a document that ``base`` only names, insert that document into ``base``.

    A map with its own ``kind`` is a whole document; it replaces the name and changes nothing in another document.
    """
    for slot, kind in SLOTS.items():
        change = top.get(slot)
        if not isinstance(change, dict) or "kind" in change or not isinstance(base.data, dict):
            continue
        if slot not in base.data and (name := default("Experiment", slot)) is not None:
            base.data[slot] = name
        if isinstance(base.get(slot), str):
            fill_slot(base, (slot,), kind, (), problems)


def _drop(base: Document, top: Document, path: DataPath = ()) -> None:
    """Drop the inherited keys for which ``top`` says null, unless null is a value of theirs."""
    below, above = as_map(base.get(*path)), as_map(top.get(*path))
    for key, value in list(above.items()):
        here = (*path, key)
        if isinstance(value, dict):
            _drop(base, top, here)
        elif value is None and key in below and not takes_null("Experiment", here):
            del below[key], above[key]
            base.forget(here)
            base.keys.pop(here, None)


def _choose_requests(base: Document, top: Document) -> None:
    """Drop inherited clients for a trace, an inherited rate for stages, and vice versa: each pair is exclusive."""
    below, above = base.get("workload"), top.get("workload")
    if not isinstance(below, dict) or not isinstance(above, dict):
        return
    if "trace" in above and "clients" not in above and "clients" in below:
        for key in ("clients", "rate_per_s", "stages", "exact_stage_counts", "requests"):
            below.pop(key, None)
    elif "clients" in above and "trace" not in above:
        below.pop("trace", None)
    if "stages" in above and "rate_per_s" not in above:
        below.pop("rate_per_s", None)
    elif "rate_per_s" in above and "stages" not in above:
        for key in ("stages", "exact_stage_counts"):
            below.pop(key, None)


def _choose_instances(base: Document, top: Document) -> None:
    """Drop inherited instance counts if the cluster lists its own pools, which have counts of their own."""
    below, above = as_map(base.get("cluster")), as_map(top.get("cluster"))
    if "pools" in above:
        below.pop("instances", None)
        split = as_map(below.get("disaggregation"))
        for key in DIVISION:
            split.pop(key, None)


def merge(base: Document, top: Document, path: DataPath) -> None:
    """Merge the map at ``path`` of ``top`` into that of ``base``, in place."""
    below, above = base.get(*path), top.get(*path)
    if not isinstance(below, dict) or not isinstance(above, dict):
        raise TypeError("only maps can be merged")
    if path in top.values:
        base.values[path] = top.values[path]
    for key, value in above.items():
        here = (*path, key)
        if here in top.keys:
            base.keys[here] = top.keys[here]
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merge(base, top, here)
        else:
            base.graft(here, top.branch(here))
            if here in top.keys:
                base.keys[here] = top.keys[here]


def expand(document: Document, kind: str, plugins: Registry | None = None) -> Reading:
    """Read a document of a kind, and expand its short forms in place; all parts get the position of the short form.

    A bare word means that kind with default settings; a bare number means a distribution that always returns it. The
    schemas define where (``type: [object, string]`` with the words, ``type: [object, integer]``). After the first
    check, all code sees only long forms.
    """
    reading = read(document.data, kind, plugins)
    for path, long_form in reading.long_forms:
        place = document.place(path)
        parts: dict[DataPath, Json] = {(): long_form, **{(key,): value for key, value in long_form.items()}}
        document.graft(path, Document(long_form, place.source, values=dict.fromkeys(parts, place)))
    return reading


def checked(document: Document, kind: str, overrides: tuple[Override, ...], problems: Problems) -> bool:
    """Apply overrides and check the schema; return False if anything is wrong."""
    before = len(problems.found)
    reading = expand(document, kind, problems.plugins)
    for override in overrides:
        problem = apply_override(document, override, kind)
        reading = expand(document, kind, problems.plugins)
        if problem is not None:
            problems.add(problem)
    written = {place for override in overrides for place in override.places if place.source.name != "--set"}
    at = {(place.source.name, place.span.line, place.span.column) for place in written}
    for diagnostic in check_document(document, kind, reading):
        # The line that sets a key is not for the paths of cases, axes and other options.
        wrong = diagnostic.help is not None and (diagnostic.file, diagnostic.line, diagnostic.column) in at
        problems.found.append(
            replace(diagnostic, help=str(diagnostic.help).partition(": write ")[0]) if wrong else diagnostic
        )
    return len(problems.found) == before


def check_document(document: Document, kind: str, reading: Reading) -> list[Diagnostic]:
    """Return what is wrong in a document that was read as one of a kind; of one of another kind, only that."""
    data: Json = document.data
    if isinstance(data, dict):
        stated = data.get("kind")
        if isinstance(stated, str) and stated in KINDS and stated != kind:
            message = f"expected kind `{kind}`, found kind `{stated}`"
            hint = "use `blis-tui sweep` to run a study" if stated == "Study" else None
            return [about(document, ("kind",), "BLIS1008", message, hint=hint)]
    if not reading.violations:
        return []
    from blis_tui.spec.messages import explained  # noqa: PLC0415  (only needed for wrong documents)

    return explained(document, reading.violations)


def fill_slot(
    document: Document, slot: DataPath, kind: str, overrides: tuple[Override, ...], problems: Problems
) -> None:
    """Replace the reference at ``slot`` by the document that it names."""
    if not isinstance(document.get(*slot), str):
        if kind == "Model":
            inline_config_file(document, slot, problems)
        return
    referenced = open_reference(document, slot, kind, problems)
    if referenced is None:
        return
    if kind == "Model":
        inline_config_file(referenced, (), problems)
    checked(referenced, kind, overrides, problems)
    place = document.keys.get(slot)
    document.graft(slot, referenced)
    if place is not None:
        document.keys[slot] = place


def inline_config_file(document: Document, at: DataPath, problems: Problems) -> None:
    """Replace ``config_file`` by ``config`` with the file's content."""
    part = document.get(*at)
    if not isinstance(part, dict) or not isinstance(name := part.get("config_file"), str):
        return
    path = (*at, "config_file")
    if "config" in part:
        problems.add(about(document, path, "BLIS2018", "give `config` or `config_file`, not both", key=True))
        return
    target = directory_of(document, path) / name
    try:
        config = problems.read(target, _MODEL_CONFIG)
    except ForeignFileError:
        message = f"{shown(target)} is not a Hugging Face configuration"
        hint = "it should be a model's config.json, with `model_type` and `hidden_size`"
        problems.add(about(document, path, "BLIS1008", message, hint=hint))
        return
    except InputError as error:
        problems.add(unreadable_path(document, path, error.message))
        return
    except SpecError as error:
        problems.take(error)
        return
    del part["config_file"]
    part["config"] = None
    document.graft((*at, "config"), config)
    if at:  # an inline body was checked before its file was read
        reading = read(document.data, "Experiment", problems.plugins)
        problems.found.extend(check_document(document, "Experiment", reading))
