"""Replaces limits that a document leaves out by what the engine's server takes on the GPU (``spec.model.defaults``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.diagnostics import about
from blis_tui.base.errors import InputError, PolicyError
from blis_tui.base.source import as_map
from blis_tui.engine.kv.capacity import kv_capacity
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
    running_requests,
    static_share,
    vllm_limits,
)
from blis_tui.model.keys import AUTO
from blis_tui.spec.build import batching_traits, build_model_part, groups_in, memory_of, stack_of
from blis_tui.spec.pools import owner_of, stacks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.model import Model
    from blis_tui.model.plug_ins import Registry

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
    """Return the numbers of the limits of a stack that are left out."""
    stack, server = _stack(document, owner), _server(document, owner)
    engine, model = as_map(cast("Json", stack["engine"])), _model(stack)
    found = {key: value for key, value in _values(document, stack, server, model).items() if engine.get(key) == AUTO}
    if found.get(SEQS) is None and SEQS in found:
        numbered = {**engine, **found}
        found[SEQS] = _running_requests(document, {**stack, "engine": numbered}, model, plugins)
    return found


def _values(document: Document, stack: Mapping[str, object], server: Server, model: Model | None) -> dict[str, Json]:
    """Return every limit of a stack as if it was left out; None = it follows from the others."""
    engine, batching = as_map(cast("Json", stack["engine"])), as_map(document.get(*_BATCHING))
    longest = None if model is None else model.max_position_embeddings
    found: dict[str, Json] = {}
    if (most := default_of(LENGTH, server)) is not None and longest is not None:
        found[LENGTH] = min(int(most[0]), longest)
    seqs, tokens = _number(engine.get(SEQS)), _number(engine.get(TOKENS))
    if server.engine == "sglang":
        chunk = _number(batching.get(CHUNK))
        prompt_tokens = chunk or _number(batching.get("max_prefill_tokens")) or MOST_PREFILL_TOKENS
        share = static_share(server, prompt_tokens, seqs, split=chunk is not None)
        return {**found, TOKENS: prompt_tokens, SEQS: None, SHARE: share}
    found[SHARE] = float(_default(SHARE, server))
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
    return {**found, TOKENS: defaults[0], SEQS: defaults[1]}


def _running_requests(
    document: Document, stack: Mapping[str, object], model: Model | None, plugins: Registry | None
) -> int:
    """Return SGLang's ``max_running_requests`` for the KV cache of a stack whose other limits are numbers."""
    engine = as_map(cast("Json", stack["engine"]))
    blocks, size = _number(engine.get("kv_blocks")), _number(engine.get("block_size_tokens")) or 1
    if model is None:
        return FEWEST_RUNNING
    if blocks is None:
        traits = batching_traits(as_map(document.data), plugins)
        numbered = {**stack, "engine": {key: value for key, value in engine.items() if key != SEQS}}
        try:
            memory = memory_of(numbered, groups_in(as_map(document.data), numbered, traits))
            blocks = kv_capacity(memory, traits.sizes_pool).blocks
        except PolicyError:  # the checks report it
            return FEWEST_RUNNING
    return running_requests(blocks * size, _number(engine.get(LENGTH)) or model.max_position_embeddings)


def source_of(document: Document, path: DataPath) -> str:
    """Return where the value of a limit that was left out comes from; empty = the path is no such limit."""
    owner = owner_of(path)
    inside, key = path[len(owner) : -1], str(path[-1])
    if (key not in (*_LIMITS, LENGTH) or inside != ("engine",)) and path != (*_BATCHING, CHUNK):
        return ""
    server = _server(document, owner or stacks(document)[0])
    if server.engine == "sglang" and key == TOKENS:
        key = CHUNK
    found = default_of(key, server)
    if found is None:
        return ""
    row = found[1]
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
    found = default_of(key, server)
    return 0.0 if found is None or isinstance(found[0], str) else found[0]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
