"""Follow every reference of an experiment and fill in every default: many files become one document."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from blis_tui.errors import InputError, SpecError
from blis_tui.inputs import MAX_TRACE_BYTES, input_digest, real_path
from blis_tui.registry import builtin
from blis_tui.spec.compose import (
    SLOTS,
    TEST_KEYS,
    Problems,
    checked,
    directory_of,
    fill_slot,
    inherit,
    naming_directory,
    no_file,
)
from blis_tui.spec.diagnostics import about, in_order
from blis_tui.spec.hf import canonical_config
from blis_tui.spec.library import find
from blis_tui.spec.overrides import apply_override
from blis_tui.spec.schema import complete, default, properties_of

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.registry import Registry
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.source import Document, Json


@dataclass(frozen=True, slots=True)
class Resolved:
    """One complete document, and where its trace lies (``None`` for a generated workload)."""

    document: Document
    trace_path: Path | None
    files: tuple[Path, ...]
    """Every file it was made from, trace included (no standard input)."""
    plugins: Registry | None = None
    """What its names may refer to; None = this package's own plug-ins."""


def resolve(document: Document, overrides: tuple[Override, ...] = (), plugins: Registry | None = None) -> Resolved:
    """Inherit, override, check and complete an experiment and everything it refers to.

    Raises:
        SpecError: with the problems of all files involved.
    """
    problems = Problems(plugins)
    chain = (real_path(document.source.name),)
    overrides = _set_parent(document, overrides, problems)
    document = inherit(document, problems, chain)
    _set_slot_defaults(document)
    own = tuple(one for one in overrides if not _is_deferred(document, one, overrides))
    checked(document, "Experiment", own, problems)
    for slot, kind in SLOTS.items():
        deferred = tuple(one.below(1) for one in overrides if one.steps[0] == slot and one not in own)
        fill_slot(document, slot, kind, deferred, problems)
    _stop_at(problems)
    expand_model(document, problems)
    trace_path = pin_trace(document, problems)
    _stop_at(problems)
    document.data = complete(document.data, "Experiment", plugins)
    _strip(document)
    _fill_coefficients(document, problems)
    _stop_at(problems)
    files = [*problems.files, *([] if trace_path is None else [trace_path])]
    return Resolved(document, trace_path, tuple(files), plugins)


def _stop_at(problems: Problems) -> None:
    if problems.found:
        raise SpecError(in_order(problems.found))


def _set_parent(document: Document, overrides: tuple[Override, ...], problems: Problems) -> tuple[Override, ...]:
    """Apply the overrides of ``extends``, which decide what there is to inherit; returns the others."""
    others = tuple(one for one in overrides if one.steps[0] != "extends")
    for override in overrides:
        if override not in others and (problem := apply_override(document, override, "Experiment")) is not None:
            problems.add(problem)
    return others


def _set_slot_defaults(document: Document) -> None:
    """Slots that were left out name their default document, so that overrides can reach into it."""
    if isinstance(document.data, dict):
        for slot in SLOTS:
            if slot not in document.data and (name := default("Experiment", slot)) is not None:
                document.data[slot] = name


def _is_deferred(document: Document, override: Override, overrides: tuple[Override, ...]) -> bool:
    """Whether an override reaches into a referenced document (and so has to wait until it is read)."""
    slot = override.steps[0]
    if slot not in SLOTS or len(override.steps) == 1:
        return False
    whole = [one.value.data for one in overrides if one.steps == (slot,)]
    return isinstance(whole[-1] if whole else document.get(slot), str)


def expand_model(document: Document, problems: Problems) -> None:
    """One name per meaning in the model's configuration."""
    config = document.get("model", "config")
    model = document.get("model")
    if not isinstance(config, dict) or not isinstance(model, dict):
        message = "the model has neither `config` nor `config_file`"
        problems.add(about(document, ("model",), "BLIS2018", message, key=True))
        return
    known = frozenset(properties_of("Model", "config"))
    model["config"] = canonical_config(config, known)


def pin_trace(document: Document, problems: Problems) -> Path | None:
    """Digest of the recorded workload; the resolved document keeps only the file's name beside it."""
    trace = document.get("workload", "trace")
    if not isinstance(trace, dict):
        return None
    at = ("workload", "trace", "file")
    path = directory_of(document, at) / str(trace["file"])
    try:
        found = input_digest(path, limit=MAX_TRACE_BYTES)
    except InputError as error:
        message = error.message.replace(str(path), str(trace["file"]))
        problems.add(no_file(document, at, message))
        return None
    if trace.get("sha256", found) != found:
        message = f"`{trace['file']}` does not match its `sha256`"
        problems.add(about(document, at, "BLIS2015", message, hint=f"its SHA-256 is {found}"))
    trace["sha256"] = found
    trace["file"] = path.name
    return real_path(path)


def _strip(document: Document) -> None:
    """Drop what is no part of the simulation: headers of referenced documents, and how golden tests use this one."""
    if isinstance(document.data, dict):
        for key in TEST_KEYS:
            document.data.pop(key, None)
    for slot in SLOTS:
        part = document.get(slot)
        if isinstance(part, dict):
            part.pop("apiVersion", None)
            part.pop("kind", None)
            part.pop("huggingface_ids", None)
            if "metadata" not in part:
                metadata: Json = {"name": "inline", "description": ""}
                rest = dict(part)
                part.clear()
                part.update({"metadata": metadata, **rest})


def _fill_coefficients(document: Document, problems: Problems) -> None:
    """Coefficients that the experiment leaves out come from ``specs/latency/``."""
    latency = document.get("latency")
    if not isinstance(latency, dict) or ("alpha" in latency and "beta" in latency):
        return
    kind = str(latency["kind"])
    settings = (problems.plugins or builtin()).find("latency", kind).settings
    if not any("counts" in one.metadata for one in fields(settings)):
        return
    path = find("Latency", kind, naming_directory(document, ("latency",)))
    if path is None:
        message = f"no coefficients are shipped for `{kind}`"
        problems.add(about(document, ("latency",), "BLIS2011", message, hint="give `alpha` and `beta`"))
        return
    try:
        table = problems.read(path)
    except SpecError as error:
        problems.take(error)
        return
    if not checked(table, "Latency", (), problems):
        return
    source = complete(table.data, "Latency", problems.plugins)
    if isinstance(source, dict) and "rows" in source:
        source = _matching_row(document, source["rows"], problems)
    if not isinstance(source, dict):
        return
    for name in ("alpha", "beta"):
        latency.setdefault(name, source.get(name, []))


def _matching_row(document: Document, rows: Json, problems: Problems) -> Json:
    """The first measured row for this model, hardware and tensor parallelism."""
    model, hardware = document.get("model", "metadata", "name"), document.get("hardware", "metadata", "name")
    split = document.get("cluster", "tensor_parallel")
    known: list[str] = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        if (row["model"], row["hardware"], row["tensor_parallel"]) == (model, hardware, split):
            return row
        known.append(f"{row['model']} / {row['hardware']} / {row['tensor_parallel']}")
    same_model = [one for one in known if one.startswith(f"{model} /")]
    message = f"no blackbox coefficients for {model} on {hardware} with tensor_parallel {split}"
    known = list(dict.fromkeys(same_model or known))
    listed = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    problems.add(
        about(
            document,
            ("latency",),
            "BLIS2011",
            message,
            hint=f"the measured ones are (or give alpha and beta): {listed}",
        )
    )
    return None
