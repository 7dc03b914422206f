"""A BLIS policy bundle as a Policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.importers.draft import Draft, as_name
from blis_tui.importers.section import Fate, Input, Section
from blis_tui.registry import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.importers.draft import Imported
    from blis_tui.spec.source import DataPath, Json

_KEYS: Final = ("admission", "routing", "priority", "scheduler", "preemption")

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "admission": ("always-admit", "token-bucket", "reject-all", "tier-shed", "gaie-legacy"),
    "routing": ("round-robin", "least-loaded", "weighted", "prefix-affinity", "always-busiest"),
    "priority": ("constant", "slo-based", "inverted-slo"),
    "scheduling": ("fcfs", "priority-fcfs", "sjf", "reverse-priority"),
}
"""Policies of BLIS, its default first, which stands in for those that are not here under the same name."""

_VICTIMS: Final = {"fcfs": "tail", "priority": "priority"}

_CAPACITY: Final = 10_000
_REFILL: Final = 1000
"""What BLIS takes when a token bucket's settings are left out."""

_BUCKET: Final = ("token_bucket_capacity", "token_bucket_refill_rate")
_LOST_ADMISSION: Final = {
    "tier_shed_threshold": "load shedding by class is not simulated",
    "tier_shed_min_priority": "load shedding by class is not simulated",
    "gaie_qd_threshold": "load shedding by class is not simulated",
    "gaie_kv_threshold": "load shedding by class is not simulated",
    "slo_priorities": "classes have fixed ranks: critical, standard, sheddable, batch, background",
    "slo_targets": "set targets as `expect` in the experiment",
}
_LOST_ROUTING: Final = {
    "scorers": "scored routing is not simulated",
    "cache_weight": "scored routing is not simulated",
    "load_weight": "scored routing is not simulated",
}
_LOST: Final = {
    "tenant_budgets": "tenant budgets are not simulated",
    "node_pools": "instances and hardware are set in the experiment: `cluster.instances`, `hardware`",
    "autoscaler": "autoscaling is not simulated",
    "instance_lifecycle": "all instances are ready at the start",
}


def import_policy(path: Path, *, name: str | None = None) -> Imported:
    """Convert a policy bundle. What is left out of it gets BLIS's default.

    Args:
        path: the YAML file.
        name: name of the document; default: that of the file.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is no policy bundle.
    """
    given = Input.read(path)
    root = given.root()
    if root.data and not root.data.keys() & {*_KEYS, *_LOST}:
        given.problem((), "this is not a policy bundle", code="BLIS1001", hint=f"its keys are {', '.join(_KEYS)}")
        given.stop_at_problems()
    parts = {key: root.section(key) or Section(given, (key,)) for key in _KEYS if key != "scheduler"}
    body: dict[str, Json] = {
        "admission": _admission(parts["admission"]),
        "routing": _routing(parts["routing"]),
        "scheduling": {"kind": _policy(root, "scheduling", "scheduler")},
        "priority": {"kind": _policy(parts["priority"], "priority")},
        "batching": {"kind": "blis"},
        "preemption": _preemption(parts["preemption"]),
    }
    parts["priority"].finish()
    for key, why in _LOST.items():
        root.lose(key, why)
    root.finish()
    origins: dict[DataPath, DataPath] = {(key,): (key,) for key in ("admission", "routing", "priority", "preemption")}
    origins |= {
        ("scheduling",): ("scheduler",),
        ("admission", "capacity_tokens"): ("admission", _BUCKET[0]),
        ("admission", "refill_tokens_per_s"): ("admission", _BUCKET[1]),
    }
    return Draft(
        source=given,
        kind="Policy",
        name=as_name(path.stem) if name is None else name,
        description=f"Imported from the BLIS policy bundle {path.name}.",
        body=body,
        origins=origins,
    ).finish()


def _policy(section: Section, slot: str, key: str = "policy") -> str:
    """The policy for ``slot``; BLIS's default for one that cannot be carried over."""
    default = _NAMES[slot][0]
    chosen = section.choice(key, _NAMES[slot], otherwise=default)
    if any(plugin.name == chosen for plugin in builtin().of(f"policy.{slot}")):
        return chosen
    section.lose(key, f"there is no `{chosen}`; `{default}` is used instead")
    return default


def _admission(section: Section) -> dict[str, Json]:
    kind = _policy(section, "admission")
    settings = [section.number(key) for key in _BUCKET]
    for key, why in _LOST_ADMISSION.items():
        section.lose(key, why)
    section.finish()
    if kind == "token-bucket":
        capacity, refill = (setting or usual for setting, usual in zip(settings, (_CAPACITY, _REFILL), strict=True))
        return {"kind": kind, "capacity_tokens": capacity, "refill_tokens_per_s": refill}
    for key in _BUCKET:
        section.note(Fate.NO_EFFECT, key, "only a `token-bucket` has it")
    return {"kind": kind}


def _routing(section: Section) -> dict[str, Json]:
    kind = _policy(section, "routing")
    for key, why in _LOST_ROUTING.items():
        if section.data.get("policy") == "weighted":
            section.lose(key, why)
        else:
            section.note(Fate.NO_EFFECT, key, "only `weighted` routing has it")
    section.finish()
    return {"kind": kind}


def _preemption(section: Section) -> dict[str, Json]:
    victim = _VICTIMS[section.choice("policy", tuple(_VICTIMS), otherwise="fcfs")]
    section.finish()
    return {"victim": victim, "restore": "recompute"}
