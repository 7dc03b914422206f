"""Resolves every reference of an experiment and fills in every default, which gives one document.

Limits that it leaves out are what the engine's server takes on the GPU (``model.defaults``).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import about
from blis_tui.base.errors import InputError, PolicyError, SpecError
from blis_tui.base.input_files import MAX_TRACE_BYTES, input_digest, real_path
from blis_tui.base.source import as_map
from blis_tui.engine.kv.capacity import kv_capacity, states_beside_kv
from blis_tui.model.defaults import (
    CHUNK,
    FEWEST_RUNNING,
    LENGTH,
    MOST_PREFILL_TOKENS,
    SEQS,
    SHARE,
    TOKENS,
    Server,
    default_of,
    host_us,
    intake_us,
    kernels,
    running_requests,
    static_share,
    vllm_limits,
)
from blis_tui.model.keys import AUTO
from blis_tui.spec.build import batching_traits, build_model_part, groups_in, memory_of, stack_of
from blis_tui.spec.compose import (
    DOCUMENT,
    TEST_KEYS,
    Problems,
    checked,
    directory_of,
    fill_slot,
    inherit,
    naming_directory,
    shown,
    unreadable_path,
)
from blis_tui.spec.hf import canonical_config, contradictions, missing_fields, sampling_of
from blis_tui.spec.library import find
from blis_tui.spec.operator_files import coverage_error, table_digest, table_names, tables_of
from blis_tui.spec.overrides import apply_override
from blis_tui.spec.pools import SLOTS, complete_pools, owner_of, slot_of, slots, stacks, where
from blis_tui.spec.read import ForeignFileError
from blis_tui.spec.reader import complete, complete_key
from blis_tui.spec.schema import default, properties_of
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.model import Model
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.overrides import Override


@dataclass(frozen=True, slots=True)
class Resolved:
    """One complete document, and the path of its trace (None for a generated workload)."""

    document: Document
    trace_path: Path | None
    files: tuple[Path, ...]
    """Every file it was made from, including the trace but not standard input."""
    plugins: Registry | None = None
    """Plug-ins that it may name; None = those of this package."""


def resolve(document: Document, overrides: tuple[Override, ...] = (), plugins: Registry | None = None) -> Resolved:
    """Inherit, override, check and complete an experiment and all its references.

    Raises:
        SpecError: with the problems of all files involved.
    """
    problems = Problems(plugins)
    chain = (real_path(document.source.name),)
    overrides = _set_parent(document, overrides, problems)
    document = inherit(document, problems, chain)
    _set_slot_defaults(document)
    own = tuple(override for override in overrides if not _is_deferred(document, override, overrides))
    checked(document, "Experiment", own, problems)
    for slot, kind in list(slots(document)):
        size = len(slot)
        deferred = tuple(
            override.below(size) for override in overrides if _path(override)[:size] == slot and override not in own
        )
        fill_slot(document, slot, kind, deferred, problems)
    problems.stop()
    for slot, kind in slots(document):
        if kind == "Model":
            expand_model(document, problems, slot)
    trace_path = pin_trace(document, problems)
    problems.stop()
    complete_pools(document)
    document.data = complete(document.data, "Experiment", plugins)
    _strip(document)
    for problem in fill_limits(document, plugins):
        problems.add(problem)
    _fill_coefficients(document, problems)
    for slot, kind in slots(document):
        if kind == "Model":
            as_map(document.get(*slot)).pop("generation_config", None)
    problems.stop()
    files = [*problems.files, *([] if trace_path is None else [trace_path])]
    return Resolved(document, trace_path, tuple(files), plugins)


def _set_parent(document: Document, overrides: tuple[Override, ...], problems: Problems) -> tuple[Override, ...]:
    """Apply overrides of ``extends``, which decide what is inherited; return the others."""
    others = tuple(other for other in overrides if other.steps[0] != "extends")
    for override in overrides:
        if override not in others and (problem := apply_override(document, override, "Experiment")) is not None:
            problems.add(problem)
    return others


def _set_slot_defaults(document: Document) -> None:
    """Set slots that were left out to their default documents, so that overrides can reach into them."""
    if isinstance(document.data, dict):
        for slot in SLOTS:
            if slot not in document.data and (name := default("Experiment", slot)) is not None:
                document.data[slot] = name


def _path(override: Override) -> DataPath:
    """Return the path that an override assigns to; steps of digits are list positions."""
    return tuple(int(step) if step.isdecimal() and step.isascii() else step for step in override.steps)


def _is_deferred(document: Document, override: Override, overrides: tuple[Override, ...]) -> bool:
    """Return whether an override reaches into a referenced document, so that it must wait until that is read."""
    path = _path(override)
    slot = slot_of(path)
    if not slot or slot == path:
        return False
    whole = [other.value.data for other in overrides if _path(other) == slot]
    return isinstance(whole[-1] if whole else document.get(*slot), str)


def expand_model(document: Document, problems: Problems, at: DataPath = ("model",)) -> None:
    """Rename the fields of the configuration of the model at ``at`` to their canonical names."""
    model = document.get(*at)
    config = document.get(*at, "config")
    if not isinstance(config, dict) or not isinstance(model, dict):
        message = "the model has neither `config` nor `config_file`"
        hint = "give one of them; an experiment can also name a whole model, such as `model: qwen3-14b`"
        problems.add(about(document, at, "BLIS2018", message, key=True, hint=hint))
        return
    known = frozenset(properties_of("Model", "config"))
    model["config"] = canonical_config(config, known)


def pin_trace(document: Document, problems: Problems) -> Path | None:
    """Set the digest of the recorded workload; the resolved document keeps only the file's base name."""
    trace = document.get("workload", "trace")
    if not isinstance(trace, dict):
        return None
    at = ("workload", "trace", "file")
    path = directory_of(document, at) / str(trace["file"])
    try:
        digest = input_digest(path, limit=MAX_TRACE_BYTES)
    except InputError as error:
        message = error.message.replace(str(path), str(trace["file"]))
        problems.add(unreadable_path(document, at, message))
        return None
    if trace.get("sha256", digest) != digest:
        message = f"`{trace['file']}` does not match its `sha256`"
        hint = f"its SHA-256 is {digest}" if _may_tell(document, at, path) else "`sha256sum` computes what it is now"
        problems.add(about(document, at, "BLIS2015", message, hint=hint))
    trace["sha256"] = digest
    trace["file"] = path.name
    return real_path(path)


def _may_tell(document: Document, at: DataPath, path: Path) -> bool:
    """Return whether the digest of a file may be told: of those beside the document, and of those a user names.

    A document from elsewhere may name any file of this machine, and a digest gives away what a short one contains.
    """
    beside = real_path(directory_of(document, at))
    return document.place(at).source.is_argument or real_path(path).is_relative_to(beside)


def _strip(document: Document) -> None:
    """Remove what is not simulated: headers of referenced documents, and keys about golden tests."""
    if isinstance(document.data, dict):
        for key in TEST_KEYS:
            document.data.pop(key, None)
    for slot, _ in slots(document):
        part = document.get(*slot)
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
    """Fill in omitted coefficients from ``specs/latency/``, for each pool separately."""
    given = as_map(document.get("latency"))
    inherit_it: list[DataPath] = []
    for owner in stacks(document):
        own = document.get(*owner, "latency")
        if owner and isinstance(own, dict):
            own.update(_coefficients(document, owner, own, problems))
        else:
            inherit_it.append(owner)
    filled = [_coefficients(document, owner, given, problems) for owner in inherit_it]
    alike = all(row == filled[0] for row in filled)
    for owner, latency in zip(inherit_it, filled, strict=True):
        if owner and not alike:
            as_map(document.get(*owner))["latency"] = latency
        else:
            given.update(latency)


def _coefficients(document: Document, owner: DataPath, latency: dict[str, Json], problems: Problems) -> dict[str, Json]:
    """Return a step-time model with the coefficients for a pool."""
    plugins = problems.plugins or builtin()
    if latency["kind"] == AUTO:
        stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
        choice: Json = {"kind": chosen_kind(stack, plugins)}
        latency = as_map(complete_key(choice, "Experiment", "latency", problems.plugins))
    kind = str(latency["kind"])
    at = where(document, owner, "latency")
    if kind == "operators":
        return _with_tables(document, owner, latency, problems)
    settings = plugins.find("latency", kind).settings
    missing = [field.name for field in fields(settings) if "counts" in field.metadata and field.name not in latency]
    if not missing:
        return latency
    path = find("Latency", kind, naming_directory(document, at))
    if path is None:
        message = f"no coefficients are shipped for `{kind}`"
        hint = f"give {' and '.join(f'`{name}`' for name in missing)}"
        problems.add(about(document, at, "BLIS2011", message, hint=hint))
        return latency
    try:
        table = problems.read(path, DOCUMENT)
    except ForeignFileError:
        problems.add(about(document, at, "BLIS1008", f"{shown(path)} is not a document of kind `Latency`"))
        return latency
    except SpecError as error:
        problems.take(error)
        return latency
    if not checked(table, "Latency", (), problems):
        return latency
    source = complete(table.data, "Latency", problems.plugins)
    if isinstance(source, dict) and "rows" in source:
        source = _matching_row(document, owner, source["rows"], problems)
    if not isinstance(source, dict):
        return latency
    return {**latency, **{name: source.get(name, []) for name in missing}}


def _with_tables(document: Document, owner: DataPath, latency: dict[str, Json], problems: Problems) -> dict[str, Json]:
    """Return the settings of measured operators with the tables of the pool's GPU, pinned by their content."""
    hardware = str(document.get(*where(document, owner, "hardware", "metadata", "name")))
    name = latency.get("tables") or tables_of(hardware)
    if not isinstance(name, str) or name not in table_names():
        message = f"no operator tables are named `{name}`" if name else f"no operators were measured on {hardware}"
        hint = f"there are tables for {', '.join(table_names())}; or use another kind, such as trained-physics"
        problems.add(about(document, where(document, owner, "latency"), "BLIS2011", message, hint=hint))
        return latency
    sampling = latency.get("sampling") or sampling_of(as_map(document.get(*where(document, owner, "model"))))
    host = _of_host(document, owner, str(latency.get("engine", "vllm")))
    left_out = {key: us for key, us in host.items() if latency.get(key) is None}
    return {**latency, **left_out, "tables": name, "tables_sha256": table_digest(name), "sampling": sampling}


def _of_host(document: Document, owner: DataPath, engine: str) -> Mapping[str, Json]:
    """Return what the host of a pool's engine takes, by its version, scheduler and load."""
    batching = as_map(document.get("policy", "batching"))
    scheduled = batching.get("kind") == "vllm-v1"
    rules = batching.get("version", "") if scheduled else ""
    own = str(document.get(*where(document, owner, "engine", "version")) or "")
    version = own or str(rules)
    host = host_us(engine, version, asynchronous=not scheduled or batching.get("async_scheduling") is not False)
    if engine != "vllm" or not scheduled:
        return host
    config = as_map(document.get(*where(document, owner, "model", "config")))
    intake = intake_us(str(document.get("workload", "endpoint")), version, str(config.get("model_type")))
    return {**host, **intake, **(kernels(engine, own) if config.get("num_local_experts") else {})}


def _matching_row(document: Document, owner: DataPath, rows: Json, problems: Problems) -> Json:
    """Return the first measured row for a pool's model, hardware and tensor parallelism."""
    model, hardware, split = (
        document.get(*where(document, owner, *path))
        for path in (("model", "metadata", "name"), ("hardware", "metadata", "name"), ("tensor_parallel",))
    )
    known: list[str] = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        if (row["model"], row["hardware"], row["tensor_parallel"]) == (model, hardware, split):
            return row
        known.append(f"{row['model']} / {row['hardware']} / {row['tensor_parallel']}")
    same_model = [candidate for candidate in known if candidate.startswith(f"{model} /")]
    message = f"no blackbox coefficients for {model} on {hardware} with tensor_parallel {split}"
    known = list(dict.fromkeys(same_model or known))
    listed = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    at = (*owner, "latency") if document.get(*owner, "latency") is not None or not owner else owner
    problems.add(
        about(
            document,
            at,
            "BLIS2011",
            message,
            hint=f"the measured ones are (or give alpha and beta): {listed}",
        )
    )
    return None


# The step-time model that `latency: auto` stands for: the first one that covers model and GPU.


def _operators_cover(stack: Mapping[str, object]) -> bool:
    """Return whether operators were measured on the GPU in the types that the model needs."""
    model, hardware, split = stack.get("model"), stack.get("hardware"), stack.get("tensor_parallel")
    config = model.get("config") if isinstance(model, dict) else None
    if not isinstance(config, dict) or missing_fields(config) or contradictions(config):
        return False  # the checks of documents report it
    metadata = hardware.get("metadata") if isinstance(hardware, dict) else None
    name = tables_of(str(metadata.get("name"))) if isinstance(metadata, dict) else None
    if name is None or not isinstance(split, int):
        return False
    try:
        return coverage_error(name, build_model_part(stack), split) is None
    except (PolicyError, InputError):
        return False


def _always(_stack: Mapping[str, object]) -> bool:
    return True


CHOICES: Final[tuple[tuple[str, Callable[[Mapping[str, object]], bool]], ...]] = (
    ("operators", _operators_cover),
    ("fitted", _always),
    ("trained-physics", _always),
)
"""Kinds in order of preference, each with a test of a stack; a kind that is no registered plug-in is skipped."""


def chosen_kind(stack: Mapping[str, object], plugins: Registry) -> str:
    """Return the kind of step-time model for a stack.

    Args:
        stack: model, hardware, engine and ``tensor_parallel``, as :func:`blis_tui.spec.build.stack_of` returns them.
        plugins: the available kinds.
    """
    known = plugins.names("latency")
    return next(kind for kind, covers in CHOICES if kind in known and covers(stack))


_BATCHING: Final = ("policy", "batching")
_LIMITS: Final = (TOKENS, SEQS, SHARE)


def fill_limits(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Replace ``auto`` by numbers in a complete experiment, in place, for each stack separately.

    Yields:
        A problem if GPUs of different sizes would need different settings of the one batching rule.
    """
    owners = stacks(document)
    yield from _fill_chunk(document, owners)
    filled = {owner: _filled(document, owner, plugins) for owner in owners}
    inherited = [owner for owner in owners if not owner or "engine" not in as_map(document.get(*owner))]
    alike = all(filled[owner] == filled[inherited[0]] for owner in inherited)
    for owner in owners:
        if owner in inherited and owner and not alike:
            _own_engine(document, owner)
        at = owner if owner not in inherited or not alike else ()
        for key, value in filled[owner].items():
            path = (*at, "engine", key)
            document.forget(path)
            as_map(document.get(*path[:-1]))[key] = value


def _own_engine(document: Document, owner: DataPath) -> None:
    """Give a pool a copy of the experiment's engine."""
    engine = as_map(document.get("engine"))
    own = as_map(document.get(*owner))["engine"] = cast("Json", dict.fromkeys(engine))
    for key in as_map(own):
        document.graft((*owner, "engine", key), document.branch(("engine", key)))


def _fill_chunk(document: Document, owners: list[DataPath]) -> Iterator[Diagnostic]:
    """Replace SGLang's ``chunked_prefill_size``, which the one rule of all pools has."""
    path = (*_BATCHING, CHUNK)
    if document.get(*path) != AUTO:
        return
    sizes = {_server(document, owner).hardware: _default(CHUNK, _server(document, owner)) for owner in owners}
    document.forget(path)
    as_map(document.get(*_BATCHING))[CHUNK] = next(iter(sizes.values()))
    if len({*sizes.values()}) > 1:
        listed = ", ".join(f"{size:,} on {name}" for name, size in sizes.items())
        message = f"SGLang takes another `{CHUNK}` on each GPU ({listed}), but all pools have one batching rule"
        yield about(document, _BATCHING, "BLIS2026", message, hint=f"set policy.batching.{CHUNK} to one number")


def _filled(document: Document, owner: DataPath, plugins: Registry | None) -> dict[str, Json]:
    """Return the numbers of the limits of a stack that are left out; layers with a state have no prefix cache."""
    stack, server = _stack(document, owner), _server(document, owner)
    engine, model = as_map(cast("Json", stack["engine"])), _model(stack)
    filled = {key: value for key, value in _values(document, stack, server, model).items() if engine.get(key) == AUTO}
    if filled.get(SEQS) is None and SEQS in filled:
        numbered = {**engine, **filled}
        filled[SEQS] = _running_requests(document, {**stack, "engine": numbered}, model, plugins)
    if model is not None and model.linear is not None:
        at = where(document, owner, "engine", "enable_prefix_caching")
        filled |= {} if at in document.keys else {"enable_prefix_caching": False}
    return filled


def _values(document: Document, stack: Mapping[str, object], server: Server, model: Model | None) -> dict[str, Json]:
    """Return every limit of a stack as if it was left out; None = it follows from the others."""
    engine, batching = as_map(cast("Json", stack["engine"])), as_map(document.get(*_BATCHING))
    longest = None if model is None else model.max_position_embeddings
    values: dict[str, Json] = {}
    if (most := default_of(LENGTH, server)) is not None and longest is not None:
        values[LENGTH] = min(int(most[0]), longest)
    seqs, tokens = _number(engine.get(SEQS)), _number(engine.get(TOKENS))
    if server.engine == "sglang":
        chunk = _number(batching.get(CHUNK))
        prompt_tokens = chunk or _number(batching.get("max_prefill_tokens")) or MOST_PREFILL_TOKENS
        share = static_share(server, prompt_tokens, seqs, split=chunk is not None)
        return {**values, TOKENS: prompt_tokens, SEQS: None, SHARE: share}
    values[SHARE] = float(_default(SHARE, server))
    defaults = int(_default(TOKENS, server)), int(_default(SEQS, server))
    if server.engine == "vllm-v1":
        limit = engine.get(LENGTH)
        all_to_all = as_map(engine.get("all_to_all")).get("backend")
        defaults = vllm_limits(
            (tokens, seqs),
            defaults,
            longest if limit == AUTO else _number(limit),
            whole_prompts=batching.get("enable_chunked_prefill") is False,
            batched_dp=all_to_all == "deepep_low_latency" and engine.get("expert_parallel") is True,
        )
    return {**values, TOKENS: defaults[0], SEQS: defaults[1]}


def _running_requests(
    document: Document, stack: Mapping[str, object], model: Model | None, plugins: Registry | None
) -> int:
    """Return SGLang's ``max_running_requests`` for the KV cache of a stack whose other limits are numbers."""
    engine = as_map(cast("Json", stack["engine"]))
    blocks, size = _number(engine.get("kv_blocks")), _number(engine.get("block_size_tokens")) or 1
    if model is None:
        return FEWEST_RUNNING
    longest = _number(engine.get(LENGTH)) or model.max_position_embeddings
    if blocks is None:
        traits = batching_traits(as_map(document.data), plugins)
        numbered = {**stack, "engine": {key: value for key, value in engine.items() if key != SEQS}}
        try:
            memory = memory_of(numbered, groups_in(as_map(document.data), numbered, traits))
            if model.linear is not None:
                states = states_beside_kv(memory, traits.sizes_pool)
                kv_tokens = kv_capacity(replace(memory, max_num_seqs=states), traits.sizes_pool).blocks * size
                return min(states, running_requests(kv_tokens, longest))
            blocks = kv_capacity(memory, traits.sizes_pool).blocks
        except PolicyError:  # the checks report it
            return FEWEST_RUNNING
    return running_requests(blocks * size, longest)


def source_of(document: Document, path: DataPath) -> str:
    """Return where the value of a limit that was left out comes from; empty = the path is no such limit."""
    owner = owner_of(path)
    inside, key = path[len(owner) : -1], str(path[-1])
    if (key not in (*_LIMITS, LENGTH) or inside != ("engine",)) and path != (*_BATCHING, CHUNK):
        return ""
    server = _server(document, owner or stacks(document)[0])
    if server.engine == "sglang" and key == TOKENS:
        key = CHUNK
    standard = default_of(key, server)
    if standard is None:
        return ""
    row = standard[1]
    return f"default {f'{row.condition()}: ' if row.condition() else 'of '}{row.source}"


def _stack(document: Document, owner: DataPath) -> dict[str, object]:
    return stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)


def _model(stack: Mapping[str, object]) -> Model | None:
    """Return the model of a stack; None = it is incomplete, which the checks report."""
    try:
        return build_model_part(stack)
    except (PolicyError, InputError):
        return None


def _server(document: Document, owner: DataPath) -> Server:
    """Return what the defaults of a stack depend on."""
    stack = _stack(document, owner)
    engine, hardware = as_map(cast("Json", stack["engine"])), as_map(cast("Json", stack["hardware"]))
    batching, model = as_map(document.get(*_BATCHING)), _model(stack)
    memory_gib = hardware["memory_gib"]
    return Server(
        engine=str(batching["kind"]),
        version=str(batching.get("version", "")),
        hardware=str(as_map(hardware["metadata"])["name"]),
        memory_gib=memory_gib if isinstance(memory_gib, int | float) else 0.0,
        tensor_parallel=_number(cast("Json", stack["tensor_parallel"])) or 1,
        pipeline_parallel=_number(engine.get("pipeline_parallel")) or 1,
        latent_attention=model is not None and model.kv_lora_rank > 0,
        graphs=engine.get("enforce_eager") is not True,
    )


def _default(key: str, server: Server) -> float:
    """Return the default of a limit that every engine has, and that is no formula."""
    standard = default_of(key, server)
    return 0.0 if standard is None or isinstance(standard[0], str) else standard[0]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
