"""Semantic checks: the third layer of checks, on the resolved experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, about
from blis_tui.base.errors import PolicyError
from blis_tui.base.source import as_list, as_map
from blis_tui.engine.kv.capacity import kv_capacity, minimum_tensor_parallel
from blis_tui.engine.kv.keys import MAX_SHARED_BLOCKS
from blis_tui.model import ANY_INSTANCE, CourseExpectation, Expectation
from blis_tui.spec.build import (
    Part,
    batching_traits,
    block_size_in,
    build_hardware_part,
    build_model_part,
    decode,
    groups_in,
    memory_of,
    stack_of,
)
from blis_tui.spec.cluster_checks import check_cluster
from blis_tui.spec.engine_checks import (
    check_batching,
    check_drafts,
    check_lora,
    check_memory,
    check_operators,
    check_recorded,
    check_states,
    check_version,
)
from blis_tui.spec.hf import contradictions, missing_fields
from blis_tui.spec.metric_names import all_metrics, entry_metrics, is_metric, is_open_ended, name_in
from blis_tui.spec.pools import is_own, pool_paths, stacks, where
from blis_tui.spec.workload_checks import check_answer_targets, check_workload

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.engine.kv.capacity import InstanceMemory, KvCapacity, KvGroups
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.model.plug_ins import Registry


def check(document: Document, plugins: Registry | None = None) -> list[Diagnostic]:
    """Return all semantic problems of a resolved experiment; ``plugins``: the plug-ins that it may name."""
    owners = stacks(document)
    problems = [problem for owner in owners for problem in check_model(document, where(document, owner, "model"))]
    sound = not problems
    problems += check_workload(document)
    problems += check_answer_targets(document)
    problems += check_version(document)
    problems += check_memory(document)
    problems += check_batching(document, plugins)
    problems += check_drafts(document)
    problems += check_lora(document)
    problems += check_cluster(document)
    problems += _check_warm_up(document)
    problems += expectation_problems(document, ("expect",))
    problems += _course_problems(document)
    if sound:
        used = [_Stack(document, owner) for owner in owners]
        problems += [problem for stack in used for problem in (*_check_heads(stack), *_check_stages(stack))]
        problems += [problem for owner in owners for problem in check_states(document, owner)]
        problems += [problem for owner in owners for problem in check_operators(document, owner)]
        problems += [problem for owner in owners for problem in check_recorded(document, owner)]
        problems += _check_wide(document, plugins)
        problems += _check_shared_tiers(document)
        if not problems:
            traits = batching_traits(as_map(document.data), plugins)
            problems += [problem for stack in used for problem in _check_capacity(stack, traits)]
    return problems


def _check_warm_up(document: Document) -> Iterator[Diagnostic]:
    """Check that requests can arrive between the end of the warm-up and the horizon."""
    start, end = document.whole("warm_up_us"), document.whole("horizon_us")
    if start is not None and end is not None and start >= end:
        message = f"warm_up_us {start} is not below horizon_us {end}: no request would count"
        yield about(document, ("warm_up_us",), "BLIS2008", message, hint="lower it, or raise horizon_us")


class _Stack:
    """The stack that instances run, and where the document defines it.

    Attributes:
        document: the experiment.
        owner: the pool with the stack; empty = all pools that use the experiment's stack.
        model: the model they serve.
        hardware: the accelerator they run on.
        split: accelerators per instance.
        role: their role under disaggregation, if all have the same.
    """

    def __init__(self, document: Document, owner: DataPath) -> None:
        data = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
        self._data = data
        self.document = document
        self.owner = owner
        self.model = build_model_part(data)
        self.hardware = build_hardware_part(data)
        self.split = document.whole(*self.at("tensor_parallel")) or 1
        pools = [owner] if owner else [path for path in pool_paths(document) if not is_own(document, path)]
        roles = dict.fromkeys(document.get(*pool, "role") for pool in pools)
        self.role = next(iter(roles)) if len(roles) == 1 else "any"

    def at(self, *path: str) -> DataPath:
        """Return where the document defines a key of the stack."""
        return where(self.document, self.owner, *path)

    def groups(self, traits: EngineBehavior) -> KvGroups | None:
        """Return the groups of layers whose KV blocks the instances manage apart; None = they do not."""
        return groups_in(as_map(self.document.data), self._data, traits)

    def block_size(self, traits: EngineBehavior) -> int:
        """Return the tokens per KV block of the instances."""
        return block_size_in(self._data, self.groups(traits))

    def memory(self, traits: EngineBehavior) -> InstanceMemory:
        """Return what the instances' memory budget depends on."""
        return memory_of(self._data, self.groups(traits))

    def about(self, path: tuple[str, ...], code: str, message: str, hint: str | None) -> Diagnostic:
        """Return a diagnostic about the stack, placed at the pool's name if the key itself is outside the pool."""
        at = self.at(*path)
        if self.owner and at[: len(self.owner)] != self.owner:
            at = (*self.owner, "name")
            message = f"pool `{self.document.get(*at)}`: {message}"
        return about(self.document, at, code, message, key=path == ("model",), hint=hint)

    def serves(self, client: Mapping[str, Json]) -> bool:
        """Return whether a client's requests may go to these instances."""
        return client.get("model") in (None, "", self.model.name)


def _check_wide(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Check ranks and expert parallelism if any engine has keys for them."""
    engines = [as_map(document.get(*where(document, owner, "engine"))) for owner in stacks(document)]
    keys = ("data_parallel", "expert_parallel", "expert_imbalance", "all_to_all")
    if any(key in engine for engine in engines for key in keys):
        from blis_tui.spec.engine_checks import check_wide  # noqa: PLC0415  (few documents have ranks)

        yield from check_wide(document, plugins)


def _check_shared_tiers(document: Document) -> Iterator[Diagnostic]:
    """Check KV tiers that instances share, if there are any."""
    engines = [as_map(document.get(*where(document, owner, "engine"))) for owner in stacks(document)]
    tiers = [as_map(tier) for engine in engines for tier in as_list(as_map(engine.get("kv_tiers")).get("tiers"))]
    if any(tier.get("shared") for tier in tiers):
        from blis_tui.spec.shared_tier_checks import check_shared_tiers  # noqa: PLC0415  (few documents have them)

        yield from check_shared_tiers(document)


def check_model(document: Document, at: DataPath = ("model",)) -> Iterator[Diagnostic]:
    """Check that the (canonical) configuration of the model at ``at`` is complete and consistent."""
    path = (*at, "config")
    config = document.get(*path)
    if not isinstance(config, dict):
        return
    if missing := [f"`{name}`" for name in missing_fields(config)]:
        listed = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        hint = "the model's config.json has what is missing"
        yield about(document, path, "BLIS2018", f"the model's configuration lacks {listed}", key=True, hint=hint)
    else:
        for text in contradictions(config):
            yield about(document, path, "BLIS2018", text, key=True)


def _check_heads(stack: _Stack) -> Iterator[Diagnostic]:
    model, split = stack.model, stack.split
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    if heads % split:
        message = f"tensor_parallel {split} does not divide the {heads} attention heads of {model.name}"
    elif kv_heads % split and split % kv_heads:
        message = f"tensor_parallel {split} does not divide the {kv_heads} key/value heads of {model.name}"
    else:
        return
    usable = [str(n) for n in range(1, 65) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
    yield stack.about(("tensor_parallel",), "BLIS2004", message, f"possible values are {', '.join(usable[:12])}")


def _check_stages(stack: _Stack) -> Iterator[Diagnostic]:
    """Has every stage of a pipeline a layer?"""
    path, layers = ("engine", "pipeline_parallel"), stack.model.num_hidden_layers
    stages = stack.document.whole(*stack.at(*path)) or 1
    if stages > layers:
        message = f"pipeline_parallel {stages} is more than the {layers} layers of {stack.model.name}"
        yield stack.about(path, "BLIS2004", message, "a stage has one layer at least")


def _check_capacity(stack: _Stack, traits: EngineBehavior) -> Iterator[Diagnostic]:
    """Check that the model fits, and that the smallest request of each client fits into the remaining memory."""
    document = stack.document
    block_size = stack.block_size(traits)
    blocks = document.whole(*stack.at("engine", "kv_blocks"))
    if blocks is None:
        memory = stack.memory(traits)
        try:
            capacity = kv_capacity(memory, traits.sizes_pool)
        except PolicyError as error:
            yield stack.about(("model",), "BLIS2018", error.message, error.help)
            return
        if capacity.blocks <= 0:
            yield stack.about(
                ("model",),
                "BLIS2005",
                f"{stack.model.name} does not fit on {stack.hardware.name} with tensor_parallel {stack.split}: "
                f"{capacity.needed_gib - capacity.available_gib:.1f} GiB short of a KV cache",
                _fitting(memory, capacity, traits.sizes_pool),
            )
            return
        blocks = capacity.blocks
    limit, slots = document.get(*stack.at("engine", "max_model_len")), blocks * block_size
    longest = limit if isinstance(limit, int) else None
    if (groups := stack.groups(traits)) is not None:
        budget = document.whole(*stack.at("engine", "max_num_batched_tokens")) or 1
        slots = groups.longest(blocks, block_size, budget, longest, traits)
    room = f"{blocks} blocks of {block_size} tokens hold {slots}"
    if groups is not None and groups.states:
        room += f" of one request, as {groups.states} hold its states"
    if limit == "auto":
        longest = min(stack.model.max_position_embeddings, slots)
    yield from _check_smallest(stack, slots, longest, room)
    if not traits.chunked_prefill:
        yield from _check_whole_prompts(stack, longest)


def _check_whole_prompts(stack: _Stack, longest: int | None) -> Iterator[Diagnostic]:
    """Check that without chunked prefill a step can take the longest sequence, which would otherwise wait forever."""
    path = ("engine", "max_num_batched_tokens")
    budget = stack.document.whole(*stack.at(*path)) or 0
    if longest is None:
        message = "without chunked prefill, max_model_len must not be `none`"
        yield stack.about(("engine", "max_model_len"), "BLIS2019", message, "give a number or `auto`")
    elif budget < longest:
        message = f"without chunked prefill, a step of {budget} tokens cannot take a sequence of {longest}"
        hint = "raise max_num_batched_tokens, lower max_model_len, or enable chunked prefill"
        yield stack.about(path, "BLIS2019", message, hint)


def _fitting(memory: InstanceMemory, capacity: KvCapacity, sizing: str) -> str:
    split = minimum_tensor_parallel(memory, sizing)
    figures = f"needs {capacity.needed_gib:.1f} GiB of {capacity.available_gib:.1f} GiB"
    if memory.states_bytes:
        states = f"{memory.states_bytes / 2**30:.1f} GiB are states of {memory.max_num_seqs:,} requests"
        return f"{figures}, of which {states}; lower engine.max_num_seqs, or raise tensor_parallel"
    return f"{figures}; " + ("no tensor_parallel is enough" if split is None else f"tensor_parallel {split} is enough")


def _check_smallest(stack: _Stack, slots: int, longest: int | None, hint: str) -> Iterator[Diagnostic]:
    document = stack.document
    block_size = document.whole(*stack.at("engine", "block_size_tokens")) or 1
    prefills = stack.role == "prefill"
    here = f" of pool `{document.get(*stack.owner, 'name')}`" if stack.owner else ""
    for at, client in enumerate(map(as_map, as_list(document.get("workload", "clients")))):
        if not stack.serves(client):
            continue
        path = ("workload", "clients", at)
        prompt = _smallest(document, (*path, "input_tokens")) + (document.whole(*path, "prefix", "tokens") or 0)
        answer, declared = _smallest(document, (*path, "output_tokens")), _smallest_budget(document, path)
        total = prompt + min(answer, declared)
        name, longer = client.get("id"), "input_tokens" if prompt >= answer else "output_tokens"
        room = prompt + declared if longest is None else total  # longer budgets are truncated to this
        # The last generated token never enters the KV cache.
        if (prompt if prefills else room - 1) > slots:
            message = f"the smallest request of client `{name}`, {room} tokens, exceeds the KV cache{here}"
            yield about(document, (*path, longer), "BLIS2006", message, key=True, hint=hint)
        elif longest is not None and total > longest:
            message = f"the smallest request of client `{name}`, {total} tokens, exceeds max_model_len{here}"
            help_ = f"max_model_len is {longest}; prompt and output count together"
            yield about(document, (*path, longer), "BLIS2007", message, key=True, hint=help_)
        elif (shared := (document.whole(*path, "prefix", "tokens") or 0) // block_size) > MAX_SHARED_BLOCKS:
            message = f"the prefix of client `{name}` is {shared} KV blocks, at most {MAX_SHARED_BLOCKS} can be shared"
            help_ = "raise engine.block_size_tokens, or shorten the prefix"
            yield about(document, (*path, "prefix", "tokens"), "BLIS2020", message, hint=help_)


def _smallest_budget(document: Document, client: DataPath) -> int:
    """Return the smallest output budget that a client's requests declare; 1 if they declare none."""
    path = (*client, "max_output_tokens")
    answer = _smallest(document, (*client, "output_tokens"))
    match document.get(*path):
        case None:
            return answer
        case {"ratio": int() | float() as ratio}:
            return max(1, int(ratio * answer + 0.5))
        case dict():
            return _smallest(document, path)
        case _:
            return 1


def _smallest(document: Document, path: DataPath) -> int:
    """Return the smallest value of a length distribution, at least 1."""
    kind = document.get(*path, "kind")
    if kind == "constant":
        return document.whole(*path, "value") or 1
    if kind == "empirical":
        weights = document.get(*path, "weights")
        counts = [int(tokens) for tokens, weight in weights.items() if weight] if isinstance(weights, dict) else []
        return min(counts, default=1)
    if kind == "histogram":
        pairs = zip(as_list(document.get(*path, "edges")), as_list(document.get(*path, "counts")), strict=False)
        return max(1, next((edge for edge, count in pairs if count and isinstance(edge, int)), 1))
    return document.whole(*path, "min") or 1


@dataclass(frozen=True, slots=True)
class _Known:
    """What breakpoints may refer to, before there is an experiment."""

    instance_numbers: int
    expect: tuple[Expectation, ...]


def _course_problems(document: Document) -> Iterator[Diagnostic]:
    """Yield problems of expectations about the course of the run."""
    entries = list(enumerate(map(as_map, as_list(document.get("expect")))))
    if all("metric" in entry for _, entry in entries):
        return
    from blis_tui.results.conditions.course import problems  # noqa: PLC0415  (few experiments have such expectations)

    instances = sum(document.whole(*path, "instances") or 0 for path in pool_paths(document) or [("cluster",)])
    named = [decode(Expectation, Part(entry, "")) for _, entry in entries if "metric" in entry]
    known = _Known(ANY_INSTANCE if document.get("cluster", "autoscaler") else instances, tuple(named))
    for number, entry in entries:
        if "metric" not in entry:
            for key, message, hint in problems(decode(CourseExpectation, Part(entry, "")), known):
                yield about(document, ("expect", number, key), "BLIS2070", message, hint=hint)


def expectation_problems(
    document: Document, at: DataPath, others: Collection[str] = (), noun: str = "expectation"
) -> Iterator[Diagnostic]:
    """Yield problems of the expectations listed at ``at``; ``others``: metrics besides the report's."""
    for number, entry in enumerate(map(as_map, as_list(document.get(*at)))):
        if "metric" not in entry:
            continue
        path = (*at, number)
        metric = str(entry.get("metric"))
        if not is_metric(metric) and metric not in others and not is_open_ended(metric):
            named = name_in(metric)
            known = all_metrics().union(others) if named is None else entry_metrics(*named[:2])
            from blis_tui.spec.hints import metric_hint  # noqa: PLC0415  (only needed for wrong documents)

            near = metric_hint(metric, known)
            yield about(document, (*path, "metric"), "BLIS2013", f"there is no metric named `{metric}`", hint=near)
        if not entry.keys() & {"min", "max", "equals"}:
            message = f"the {noun} on `{metric}` has no bound"
            yield about(document, (*path, "metric"), "BLIS2012", message, hint="add `min`, `max` or `equals`")
        low, high = document.number(*path, "min"), document.number(*path, "max")
        if low is not None and high is not None and low > high:
            yield about(document, (*path, "min"), "BLIS2008", f"min {low:.15g} is greater than max {high:.15g}")
