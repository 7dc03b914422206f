"""The configuration of Dynamo's planner, as keys of ``cluster.autoscaler``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.portable_math import whole_sum
from blis_tui.base.source import Json, Source, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.kubernetes import documents, number
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.foreign.servers import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import DataPath
    from blis_tui.spec.foreign.reading import Input

_SECOND_US: Final = 1_000_000
_INTERVAL_S: Final = 5
_BUDGET: Final = 8
"""``load_adjustment_interval`` and ``max_gpu_budget`` by default."""
_OF_SLA: Final = ("ttft", "itl", "ttft_ms", "itl_ms", "enable_throughput_scaling", "profile_results_dir")
"""Keys that only the target ``sla`` reads, which was the only one before there was a choice."""


def planner_keys(
    words: Sequence[str],
    maps: Mapping[str, Mapping[str, Json]],
    gpus: Sequence[int],
    given: Input,
    path: DataPath,
) -> dict[str, Json]:
    """Return the keys of ``cluster.autoscaler`` for a planner, having noted them; none if it is not simulated.

    Args:
        words: its arguments.
        maps: ConfigMaps by name, one of which may have its configuration.
        gpus: GPUs of an instance of each role.
        given: where it is noted.
        path: its path in the input.
    """
    config = _config(words, maps)
    fewest, budget = number(config.get("min_endpoint")), config.get("max_gpu_budget", _BUDGET)
    target = str(
        config.get("optimization_target") or ("sla" if any(key in config for key in _OF_SLA) else "throughput")
    )
    if not config or not gpus:
        given.note(Fate.NOT_CARRIED, path, "the number of instances stays as it is: see `cluster.autoscaler`")
    elif config.get("no_operation") is True or config.get("scaling_mode") == "advisory":
        given.note(Fate.NO_EFFECT, path, "it changes nothing")
    elif target not in ("throughput", "latency"):
        text = f"its target `{printable(target)}` goes by a model of its engines; if you know what an instance serves,"
        given.note(Fate.NOT_CARRIED, path, f"{text} `cluster.autoscaler.rule: dynamo-throughput` scales by that")
    elif not isinstance(budget, int) or budget < fewest * whole_sum(gpus):
        text = "`max_gpu_budget` limits nothing, or is less than `min_endpoint` needs"
        given.note(Fate.NOT_CARRIED, path, f"{text}: the number of instances stays as it is")
    else:
        most = max((budget - fewest * (whole_sum(gpus) - own)) // own for own in gpus)
        text = f"`cluster.autoscaler.rule`: `dynamo-load`, for `{target}`, {fewest} to {most} instances"
        given.note(Fate.TAKEN, path, text)
        if len(gpus) > 1:
            text = f"`max_gpus`: the fuller role is given GPUs first where {budget} are too few, no share of them"
            given.note(Fate.APPROXIMATED, path, text)
        interval = config.get("load_adjustment_interval", config.get("load_adjustment_interval_seconds"))
        return {
            "interval_us": number(interval, _INTERVAL_S) * _SECOND_US,
            "min_instances": fewest,
            "max_instances": most,
            "max_gpus": budget,
            "rule": {"kind": "dynamo-load", "optimization_target": target},
        }
    return {}


def _config(words: Sequence[str], maps: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Return the configuration that its arguments give, as text or as a file of a ConfigMap; empty = there is none."""
    text = value_of(words, "--config")
    named = text.rpartition("/")[2]
    text = next((str(data[named]) for data in maps.values() if named in data), text)
    found = documents(Source("planner", text)) if text.lstrip().startswith("{") or "\n" in text else []
    return as_map(found[0]) if found else {}
