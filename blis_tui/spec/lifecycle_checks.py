"""What ``cluster.failures``, ``nodes`` and ``autoscaler`` mean: can instances come and go like that?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.spec.diagnostics import about
from blis_tui.spec.pools import stacks, where
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document, Json

_CODE: Final = "BLIS2050"
_KEYS: Final = ("lifecycle", "failures", "nodes", "autoscaler")


def check_lifecycle(document: Document) -> Iterator[Diagnostic]:
    """Everything that is wrong with them."""
    cluster = as_map(document.get("cluster"))
    used = [key for key in _KEYS if key in cluster]
    if not used:
        return
    path = ("cluster", "disaggregation", "transfer", "starts")
    if document.get(*path) == "step-start":
        message = f"`{used[0]}` cannot be combined with `starts: step-start`"
        hint = (
            "the blocks of such a transfer leave before they are computed, so nobody could say what is lost with an"
            " instance: leave `starts` out; `overlap: layer-wise` sends them during the prefill"
        )
        yield about(document, path, _CODE, message, hint=hint)
    yield from _check_pipelines(document, cluster)
    yield from _check_failures(document, cluster)
    yield from _check_nodes(document, cluster)
    if "autoscaler" in cluster:
        yield from _check_bounds(document, cluster)


def _check_pipelines(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Several batches would be under way in an instance that goes."""
    goes = next((key for key in ("failures", "autoscaler") if key in cluster), None)
    for owner in stacks(document):
        path = where(document, owner, "engine", "pipeline_parallel")
        if goes is not None and _number(document.get(*path), 1) > 1:
            message = f"pipeline_parallel with `{goes}` is not simulated"
            yield about(document, path, _CODE, message, hint=f"remove `{goes}`, or set `pipeline_parallel: 1`")


def _pools(cluster: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    return {str(pool.get("name")): pool for pool in map(as_map, as_list(cluster.get("pools")))}


def _number(value: Json, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _counts(cluster: Mapping[str, Json]) -> dict[str, int]:
    """The instances of each pool: those that are listed, or that disaggregation makes, or the only one."""
    if pools := _pools(cluster):
        return {name: _number(pool.get("instances"), 0) for name, pool in pools.items()}
    total = _number(cluster.get("instances"), 1)
    if "disaggregation" not in cluster:
        return {"default": total}
    split = as_map(cluster["disaggregation"])
    prefill, decode = (_number(split.get(f"{role}_instances"), 0) for role in ("prefill", "decode"))
    counts = {"prefill": prefill, "decode": decode, "whole": total - prefill - decode}
    return {name: count for name, count in counts.items() if count > 0}


def _check_failures(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    counts = _counts(cluster)
    names, count = [*counts], 0
    for one in counts.values():
        count += one
    for at, failure in enumerate(map(as_map, as_list(cluster.get("failures")))):
        path: DataPath = ("cluster", "failures", at)
        if ("at_us" in failure) == ("mean_time_between_us" in failure):
            both = "both" if "at_us" in failure else "neither"
            message = f"a failure gives {both} of `at_us` and `mean_time_between_us`"
            yield about(document, path, _CODE, message, hint="give one: `at_us` for once, the other for at random")
        if "instance" in failure and "pool" in failure:
            message = "a failure gives both `instance` and `pool`"
            yield about(document, (*path, "pool"), _CODE, message, key=True, hint="give at most one of them")
        elif "pool" in failure and failure["pool"] not in names:
            message = f"there is no pool named `{failure['pool']}`"
            yield about(document, (*path, "pool"), _CODE, message, hint=f"pools are {', '.join(names)}")
        if _number(failure.get("instance"), 0) >= count and "autoscaler" not in cluster:
            message = f"there is no instance {failure['instance']}"
            yield about(document, (*path, "instance"), _CODE, message, hint=f"they are numbered 0 to {count - 1}")


def _check_nodes(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    if "nodes" not in cluster:
        return
    listed = [as_map(node) for node in as_list(cluster["nodes"])]
    for at, node in enumerate(listed):
        low, first, high = (_number(node.get(key), fill) for key, fill in (("min", 0), ("initial", 1), ("max", 10_000)))
        if not low <= first <= high:
            message = f"node pool `{node.get('name')}`: min {low}, initial {first} and max {high} are not in this order"
            hint = "give min <= initial <= max"
            yield about(document, ("cluster", "nodes", at, "initial"), _CODE, message, key=True, hint=hint)
    gpu = as_map(as_map(document.get("hardware")).get("metadata")).get("name")
    sizes = [_number(node.get("gpus_per_node"), 0) for node in listed if node.get("gpu") == gpu]
    if not sizes:
        message = f"no node pool has the instances' hardware, {gpu}"
        yield about(document, ("cluster", "nodes"), _CODE, message, key=True, hint=f"set `gpu: {gpu}`")
        return
    stages = _number(as_map(document.get("engine")).get("pipeline_parallel"), 1)
    split = _number(cluster.get("tensor_parallel"), 1) * stages
    needs = {
        name: _number(pool.get("tensor_parallel"), split // stages)
        * _number(as_map(pool.get("engine")).get("pipeline_parallel"), stages)
        for name, pool in _pools(cluster).items()
    }
    for name, need in (needs or {"default": split}).items():
        if need > max(sizes):
            message = (
                f"an instance of pool `{name}` needs {need} accelerators on one node, the largest has {max(sizes)}"
            )
            yield about(document, ("cluster", "nodes"), _CODE, message, key=True, hint="raise gpus_per_node")


def _check_bounds(document: Document, cluster: Mapping[str, Json]) -> Iterator[Diagnostic]:
    scaler = as_map(cluster["autoscaler"])
    down, up = scaler.get("scale_down_boundary"), scaler.get("scale_up_threshold")
    if isinstance(down, int | float) and isinstance(up, int | float) and down >= up:
        message = f"scale_down_boundary {down:g} is not below scale_up_threshold {up:g}"
        hint = "what is removed would be added again at once"
        yield about(document, ("cluster", "autoscaler", "scale_down_boundary"), _CODE, message, key=True, hint=hint)
    pools = _pools(cluster)
    for at, (name, count) in enumerate(_counts(cluster).items()):
        pool = pools.get(name, {})
        low, high = (
            _number(pool.get(key, scaler.get(key)), fill) for key, fill in (("min_instances", 1), ("max_instances", 1))
        )
        if not low <= count <= high:
            path: DataPath = ("cluster", "pools", at) if "pools" in cluster else ("cluster", "autoscaler")
            message = f"pool `{name}` starts with {count} instances, the autoscaler's bounds are {low} to {high}"
            yield about(document, path, _CODE, message, key=True, hint="start within min_instances and max_instances")
