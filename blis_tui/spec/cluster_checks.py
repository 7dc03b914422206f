"""Checks that the parts of a cluster fit together: pools, roles, models, lifecycles, and keys without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, suggestion
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.source import as_list, as_map
from blis_tui.base.units import plural
from blis_tui.spec.pools import SPLIT, pool_paths, where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json

_GATEWAY: Final = ("policy", "gateway")
_ROLES: Final = ("prefill", "decode")
_LIFE: Final = "BLIS2050"
_VARYING: Final = ("lifecycle", "failures", "nodes", "autoscaler")


def check_cluster(document: Document) -> Iterator[Diagnostic]:
    """Yield every semantic problem of the cluster and of its control plane's policy."""
    yield from _check_names(document)
    yield from _check_instances(document)
    yield from _check_roles(document)
    yield from _check_models(document)
    yield from _check_handover(document)
    yield from _check_transfer(document)
    for role in _ROLES:
        yield from _check_scorers(document, (*SPLIT, f"{role}_routing"))
    yield from _check_lifecycle(document)
    yield from _check_own_bounds(document)
    yield from check_policy(document)


def check_policy(document: Document) -> Iterator[Diagnostic]:
    """Yield every semantic problem of the policy at ``policy`` that does not depend on the cluster."""
    yield from _check_scorers(document, ("policy", "routing"))
    yield from _check_gateway(document)


def _name(document: Document, pool: DataPath) -> str:
    return str(document.get(*pool, "name"))


def _count(document: Document, *path: str | int) -> int:
    value = document.get(*path)
    return value if isinstance(value, int) else 0


def _with_role(document: Document, *roles: str) -> list[DataPath]:
    return [pool for pool in pool_paths(document) if document.get(*pool, "role") in roles]


# ---- pools ----


def _check_names(document: Document) -> Iterator[Diagnostic]:
    seen: dict[str, DataPath] = {}
    for pool in pool_paths(document):
        name = _name(document, pool)
        if name in seen:
            line = document.place((*seen[name], "name")).span.line
            message = f"two pools are named `{name}`"
            yield about(document, (*pool, "name"), "BLIS2021", message, hint=f"the first is on line {line}")
        seen.setdefault(name, pool)


def _check_instances(document: Document) -> Iterator[Diagnostic]:
    """Check that the instance counts agree."""
    pools = pool_paths(document)
    instances = _count(document, "cluster", "instances")
    if not pools:
        yield from _check_division(document, instances)
        return
    total = _total(document, pools)
    if instances != total:
        message = f"cluster.instances is {instances}, but the instances of its pools add up to {total}"
        hint = "remove `instances`: it is their sum"
        yield about(document, ("cluster", "instances"), "BLIS2022", message, hint=hint)
    for role in _ROLES:
        path = (*SPLIT, f"{role}_instances")
        given, there = document.get(*path), _total(document, _with_role(document, role))
        if given is not None and there and given != there:
            message = f"{path[-1]} is {given}, but the pools of role `{role}` have {there}"
            yield about(document, path, "BLIS2022", message, hint="remove it: the pools determine it")


def _total(document: Document, pools: list[DataPath]) -> int:
    return whole_sum([_count(document, *pool, "instances") for pool in pools])


def _check_division(document: Document, instances: int) -> Iterator[Diagnostic]:
    """Check the division of a cluster without pools: prefill takes the first instances, decode the next ones."""
    split = document.get(*SPLIT)
    if not isinstance(split, dict):
        return
    missing = [f"`{role}_instances`" for role in _ROLES if f"{role}_instances" not in split]
    if missing:
        message = f"disaggregation without pools needs {' and '.join(missing)}"
        hint = "set how many instances prefill and how many decode, or list pools with roles"
        yield about(document, SPLIT, "BLIS2023", message, key=True, hint=hint)
        return
    prefill, decode = (_count(document, *SPLIT, f"{role}_instances") for role in _ROLES)
    if prefill + decode > instances:
        message = f"{prefill} prefill and {decode} decode instances are more than the {instances} of the cluster"
        hint = f"set cluster.instances to at least {prefill + decode}"
        yield about(document, (*SPLIT, "prefill_instances"), "BLIS2022", message, hint=hint)


def _check_roles(document: Document) -> Iterator[Diagnostic]:
    """Check that pools have roles under disaggregation, and only then."""
    pools, split = pool_paths(document), isinstance(document.get(*SPLIT), dict)
    if not split:
        for pool in _with_role(document, *_ROLES):
            message = (
                f"pool `{_name(document, pool)}` has the role `{document.get(*pool, 'role')}` without disaggregation"
            )
            hint = "add `cluster.disaggregation`, or remove `role`"
            yield about(document, (*pool, "role"), "BLIS2023", message, hint=hint)
        return
    if not pools:
        return
    lacking = []
    if not _with_role(document, "prefill"):
        lacking.append("a pool of role `prefill`")
    if not _with_role(document, "decode", "any"):
        lacking.append("a pool that decodes")
    if lacking:
        message = f"disaggregation needs {' and '.join(lacking)}"
        hint = "give the pools the roles `prefill` and `decode`"
        yield about(document, ("cluster", "pools"), "BLIS2023", message, key=True, hint=hint)


# ---- models ----


def _models(document: Document, pools: list[DataPath]) -> dict[str, list[DataPath]]:
    """Return the pools that serve each model, by model name; ``()`` stands for a cluster without pools."""
    by_model: dict[str, list[DataPath]] = {}
    for pool in pools or [()]:
        name = document.get(*where(document, pool, "model", "metadata", "name"))
        by_model.setdefault(str(name), []).append(pool)
    return by_model


def _check_models(document: Document) -> Iterator[Diagnostic]:
    """Check that models of the same name are equal, and that every model that clients ask for has an instance."""
    served = _models(document, pool_paths(document))
    for name, pools in served.items():
        bodies = [document.get(*where(document, pool, "model", "config")) for pool in pools]
        different = next((pool for pool, body in zip(pools, bodies, strict=True) if body != bodies[0]), None)
        if different is not None:
            message = f"pools serve two different models that are named `{name}`"
            hint = "give each a unique name in its `metadata`: requests select a model by name"
            yield about(document, where(document, different, "model"), "BLIS2021", message, key=True, hint=hint)
    for at, client in enumerate(map(as_map, as_list(document.get("workload", "clients")))):
        wanted = client.get("model")
        if wanted and str(wanted) not in served:
            message = f"no instance serves `{wanted}`, the model of client `{client.get('id')}`"
            hint = suggestion(str(wanted), served, otherwise="the cluster serves")
            yield about(document, ("workload", "clients", at, "model"), "BLIS2024", message, hint=hint)


def _check_handover(document: Document) -> Iterator[Diagnostic]:
    """Check that what a prefill pool computes can be decoded on a decode pool."""
    prefilling, decoding = _with_role(document, "prefill"), _with_role(document, "decode", "any")
    if not isinstance(document.get(*SPLIT), dict) or not prefilling or not decoding:
        return
    there, here = _models(document, prefilling), _models(document, decoding)
    for names, others, what in ((there, here, "decodes"), (here, there, "prefills")):
        for name in (candidate for candidate in names if candidate not in others):
            pool = names[name][0]
            message = f"pool `{_name(document, pool)}` serves {name}, but no pool {what} it"
            hint = "under disaggregation every model needs instances of both kinds"
            yield about(document, (*pool, "name"), "BLIS2025", message, hint=hint)
    for name, pools in there.items():
        for pool in (*pools[1:], *here.get(name, ())):
            yield from _check_kv(document, pools[0], pool)


def _check_kv(document: Document, source: DataPath, target: DataPath) -> Iterator[Diagnostic]:
    """Check that two pools with the same model store their KV cache in the same way."""
    for key, noun in (("block_size_tokens", "blocks"), ("kv_cache_dtype", "KV cache")):
        first, second = (_of_engine(document, pool, key) for pool in (source, target))
        if second != first:
            message = (
                f"the {noun} of pool `{_name(document, source)}` cannot be transferred to pool "
                f"`{_name(document, target)}`: {key} is {first} there and {second} here"
            )
            hint = "give all pools of a model the same"
            yield about(document, where(document, target, "engine", key), "BLIS2025", message, hint=hint)


def _of_engine(document: Document, pool: DataPath, key: str) -> Json:
    """Return a setting of a pool's engine; a KV cache type of ``auto`` gives the model's type."""
    value = document.get(*where(document, pool, "engine", key))
    automatic = key == "kv_cache_dtype" and value == "auto"
    return document.get(*where(document, pool, "model", "config", "torch_dtype")) if automatic else value


def _check_transfer(document: Document) -> Iterator[Diagnostic]:
    """Check for transfer settings that another setting disables."""
    split = as_map(document.get(*SPLIT))
    transfer = as_map(split.get("transfer"))
    if transfer.get("reuse_cached_blocks") is True and split.get("order") != "decode-first":
        message = "`reuse_cached_blocks` has no effect: the decode instance is chosen after the transfer"
        path = (*SPLIT, "transfer", "reuse_cached_blocks")
        yield about(document, path, "BLIS2026", message, key=True, hint="add `order: decode-first`")
    if transfer.get("overlap") == "layer-wise" and transfer.get("starts") == "step-start":
        message = "`overlap: layer-wise` has no effect: the transfer starts with the step that it would overlap"
        path = (*SPLIT, "transfer", "overlap")
        yield about(document, path, "BLIS2026", message, key=True, hint="remove `starts`")


# ---- instances that come and go ----


def _check_lifecycle(document: Document) -> Iterator[Diagnostic]:
    """Check everything about instances that come and go."""
    cluster = as_map(document.get("cluster"))
    used = [key for key in _VARYING if key in cluster]
    if not used:
        return
    path = ("cluster", "disaggregation", "transfer", "starts")
    if document.get(*path) == "step-start":
        message = f"`{used[0]}` cannot be combined with `starts: step-start`"
        hint = (
            "the blocks of such a transfer leave before they are computed, so what is lost with an instance is "
            "undefined: remove `starts`; `overlap: layer-wise` sends them during the prefill"
        )
        yield about(document, path, _LIFE, message, hint=hint)
    yield from _check_failures(document, cluster)
    yield from _check_nodes(document, cluster)
    if "autoscaler" in cluster:
        yield from _check_bounds(document, cluster)


def _pools_by_name(cluster: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    return {str(pool.get("name")): pool for pool in map(as_map, as_list(cluster.get("pools")))}


def _whole(value: Json, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _instances_of(cluster: Mapping[str, Json]) -> dict[str, int]:
    """Return the number of instances of each pool: listed, made by disaggregation, or the only pool."""
    if pools := _pools_by_name(cluster):
        return {name: _whole(pool.get("instances"), 0) for name, pool in pools.items()}
    total = _whole(cluster.get("instances"), 1)
    if "disaggregation" not in cluster:
        return {"default": total}
    split = as_map(cluster["disaggregation"])
    prefill, decode = (_whole(split.get(f"{role}_instances"), 0) for role in ("prefill", "decode"))
    counts = {"prefill": prefill, "decode": decode, "whole": total - prefill - decode}
    return {name: count for name, count in counts.items() if count > 0}


def _check_failures(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    counts = _instances_of(cluster)
    names, count = [*counts], whole_sum(counts.values())
    for at, failure in enumerate(map(as_map, as_list(cluster.get("failures")))):
        path: DataPath = ("cluster", "failures", at)
        if ("at_us" in failure) == ("mean_time_between_us" in failure):
            both = "both" if "at_us" in failure else "neither"
            message = f"a failure has {both} of `at_us` and `mean_time_between_us`"
            yield about(
                document,
                path,
                _LIFE,
                message,
                hint="give one: `at_us` for a single failure, the other for random failures",
            )
        if "instance" in failure and "pool" in failure:
            message = "a failure names both `instance` and `pool`"
            yield about(document, (*path, "pool"), _LIFE, message, key=True, hint="give at most one of them")
        elif "pool" in failure and failure["pool"] not in names:
            message = f"there is no pool named `{failure['pool']}`"
            yield about(document, (*path, "pool"), _LIFE, message, hint=f"pools are {', '.join(names)}")
        if _whole(failure.get("instance"), 0) >= count and "autoscaler" not in cluster:
            message = f"there is no instance {failure['instance']}"
            yield about(document, (*path, "instance"), _LIFE, message, hint=f"they are numbered 0 to {count - 1}")


_MOST_NODES: Final = 10_000


def _check_nodes(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    if "nodes" not in cluster:
        return
    listed = [as_map(node) for node in as_list(cluster["nodes"])]
    for at, node in enumerate(listed):
        low, first, high = (
            _whole(node.get(key), fill) for key, fill in (("min", 0), ("initial", 1), ("max", _MOST_NODES))
        )
        if not low <= first <= high:
            message = (
                f"node pool `{node.get('name')}`: min {low}, initial {first} and max {high} are not in ascending order"
            )
            hint = "give min <= initial <= max"
            yield about(document, ("cluster", "nodes", at, "initial"), _LIFE, message, key=True, hint=hint)
    gpu = as_map(as_map(document.get("hardware")).get("metadata")).get("name")
    fitting = [node for node in listed if node.get("gpu") == gpu]
    sizes = [_whole(node.get("gpus_per_node"), 0) for node in fitting]
    if not sizes:
        message = f"no node pool has the instances' hardware, {gpu}"
        yield about(document, ("cluster", "nodes"), _LIFE, message, key=True, hint=f"set `gpu: {gpu}`")
        return
    for name, need in _gpus_needed(document, cluster).items():
        if need > max(sizes):
            message = (
                f"an instance of pool `{name}` needs {need} accelerators on one node, the largest has {max(sizes)}"
            )
            yield about(document, ("cluster", "nodes"), _LIFE, message, key=True, hint="raise gpus_per_node")
        elif not any("hardware" in pool for pool in _pools_by_name(cluster).values()):
            yield from _check_room(document, fitting, need, _instances_of(cluster).get(name, 0))


def _gpus_needed(document: Document, cluster: Mapping[str, Json]) -> dict[str, int]:
    """Return the accelerators of an instance of each pool."""
    stages = _whole(as_map(document.get("engine")).get("pipeline_parallel"), 1)
    split = _whole(cluster.get("tensor_parallel"), 1) * stages
    needs = {
        name: _whole(pool.get("tensor_parallel"), split // stages)
        * _whole(as_map(pool.get("engine")).get("pipeline_parallel"), stages)
        for name, pool in _pools_by_name(cluster).items()
    }
    return needs or {"default": split}


def _check_room(document: Document, nodes: Sequence[Mapping[str, Json]], need: int, count: int) -> Iterator[Diagnostic]:
    """Could all instances of a pool be placed, each with so many accelerators, once all nodes are there?"""
    room = whole_sum(
        [_whole(node.get("max"), _MOST_NODES) * (_whole(node.get("gpus_per_node"), 0) // need) for node in nodes]
    )
    if count > room:
        message = f"all nodes together have room for {plural(room, 'instance')}, and {count} start"
        yield about(document, ("cluster", "nodes"), _LIFE, message, key=True, hint="raise `max`, or start fewer")


def _check_rule(document: Document, rule: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Check the settings of a scaling rule that depend on each other."""
    if rule.get("kind") == "wva":
        threshold, spare = rule.get("kv_utilization_threshold"), rule.get("kv_spare_trigger")
        if isinstance(threshold, int | float) and isinstance(spare, int | float) and threshold < spare:
            message = f"kv_spare_trigger {spare:.15g} is above kv_utilization_threshold {threshold:.15g}"
            path: DataPath = ("cluster", "autoscaler", "rule", "kv_spare_trigger")
            yield about(document, path, _LIFE, message, key=True, hint="instances would be added without an end")


def _check_bounds(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    scaler = as_map(cluster["autoscaler"])
    down, up = scaler.get("scale_down_boundary"), scaler.get("scale_up_threshold")
    if isinstance(down, int | float) and isinstance(up, int | float) and down >= up:
        message = f"scale_down_boundary {down:.15g} is not below scale_up_threshold {up:.15g}"
        hint = "what is removed would be added again at once"
        yield about(document, ("cluster", "autoscaler", "scale_down_boundary"), _LIFE, message, key=True, hint=hint)
    yield from _check_rule(document, as_map(scaler.get("rule")))
    pools, needs, held = _pools_by_name(cluster), _gpus_needed(document, cluster), 0
    for at, (name, count) in enumerate(_instances_of(cluster).items()):
        pool = pools.get(name, {})
        held += count * needs.get(name, needs.get("default", 1))
        low, high = (
            _whole(pool.get(key, scaler.get(key)), fill) for key, fill in (("min_instances", 1), ("max_instances", 1))
        )
        if not low <= count <= high:
            path: DataPath = ("cluster", "pools", at) if "pools" in cluster else ("cluster", "autoscaler")
            message = f"pool `{name}` starts with {count} instances, the autoscaler's bounds are {low} to {high}"
            yield about(
                document, path, _LIFE, message, key=True, hint="start with a number from min_instances to max_instances"
            )
    if held > _whole(scaler.get("max_gpus"), held):
        message = f"the instances that start hold {plural(held, 'GPU')}, max_gpus is {scaler['max_gpus']}"
        yield about(
            document, ("cluster", "autoscaler", "max_gpus"), _LIFE, message, key=True, hint="raise it, or start fewer"
        )


def _check_own_bounds(document: Document) -> Iterator[Diagnostic]:
    """Check that pools have bounds of their own only where an autoscaler keeps to them."""
    if document.get("cluster", "autoscaler") is not None:
        return
    for pool in pool_paths(document):
        for key in ("min_instances", "max_instances"):
            if document.get(*pool, key) is not None:
                message = f"`{key}` of pool `{_name(document, pool)}` has no effect without an autoscaler"
                hint = "add `cluster.autoscaler`, or remove it: the pool keeps its `instances`"
                yield about(document, (*pool, key), "BLIS2026", message, key=True, hint=hint)


# ---- policies ----


def _check_scorers(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    seen: dict[str, int] = {}
    for at, scorer in enumerate(map(as_map, as_list(document.get(*path, "scorers")))):
        kind = str(scorer.get("kind"))
        if kind in seen:
            message = f"the scorer `{kind}` is listed twice"
            hint = "list it once, with the sum of the weights"
            yield about(document, (*path, "scorers", at), "BLIS2021", message, hint=hint)
        seen.setdefault(kind, at)


def _check_gateway(document: Document) -> Iterator[Diagnostic]:
    """Check for gateway settings that another setting disables."""
    gateway = as_map(document.get(*_GATEWAY))
    if not gateway:
        return
    for key, idle, needs in _NEEDS:
        if gateway.get(key) not in (None, *idle) and not needs(gateway):
            message = f"`{key}` has no effect {_WHY[key]}"
            yield about(document, (*_GATEWAY, key), "BLIS2026", message, key=True, hint=_REMEDY[key])


_NEEDS: Final[tuple[tuple[str, tuple[Json, ...], Callable[[dict[str, Json]], bool]], ...]] = (
    ("per_band_capacity", (0,), lambda gateway: gateway.get("bands") is True),
    ("usage_limit", (1.0,), lambda gateway: gateway.get("bands") is True),
    ("weights", ({},), lambda gateway: gateway.get("fairness") == "weighted"),
    ("slo_targets_us", ({},), lambda gateway: gateway.get("order") == "slo-deadline"),
    ("order", (), lambda gateway: gateway["order"] != "slo-deadline" or bool(gateway.get("slo_targets_us"))),
)
"""A key of the gateway, the values with which it has no effect, and the condition under which it has one."""
_WHY: Final = {
    "per_band_capacity": "without bands",
    "usage_limit": "without bands: it is the limit of the least urgent band",
    "weights": "unless `fairness` is `weighted`",
    "slo_targets_us": "unless `order` is `slo-deadline`",
    "order": "without `slo_targets_us`: no class has a deadline",
}
_REMEDY: Final = {
    "per_band_capacity": "add `bands: true`, or limit the whole queue with `max_depth`",
    "usage_limit": "add `bands: true`",
    "weights": "add `fairness: weighted`",
    "slo_targets_us": "add `order: slo-deadline`",
    "order": "add `slo_targets_us`, such as `{critical: 500000}`",
}
