"""Imports a BLIS policy bundle as a Policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.importers.draft import Draft, as_name
from blis_tui.importers.section import Fate, Input, Section
from blis_tui.shipped import builtin

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
"""Policies of BLIS, its default first; the default replaces those that do not exist here."""

_VICTIMS: Final = {"fcfs": "tail", "priority": "priority"}

_SETTINGS: Final[Mapping[str, Mapping[str, tuple[str, float | None]]]] = {
    "token-bucket": {
        "token_bucket_capacity": ("capacity_tokens", 10_000),
        "token_bucket_refill_rate": ("refill_tokens_per_s", 1000),
    },
    "tier-shed": {
        "tier_shed_threshold": ("overload_threshold", None),
        "tier_shed_min_priority": ("min_priority", None),
    },
    "gaie-legacy": {
        "gaie_qd_threshold": ("queue_depth_threshold", None),
        "gaie_kv_threshold": ("kv_utilization_threshold", None),
    },
}
"""Admission policy -> BLIS's names of its settings: our name, and the value if omitted or 0."""

_LOST: Final = {
    "node_pools": "instances and hardware are set in the experiment: `cluster`, `hardware`",
    "autoscaler": "autoscaling is set in the experiment",
    "instance_lifecycle": "all instances are ready at the start",
}


def import_policy(path: Path, *, name: str | None = None) -> Imported:
    """Convert a policy bundle. Omitted parts get BLIS's default.

    Args:
        path: the YAML file.
        name: name of the document; default: that of the file.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a policy bundle.
    """
    given = Input.read(path)
    root = given.root()
    if root.data and not root.data.keys() & {*_KEYS, *_LOST, "tenant_budgets"}:
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
        **_priorities(parts["admission"]),
        **_budgets(root),
    }
    parts["admission"].finish()
    parts["priority"].finish()
    for key, why in _LOST.items():
        root.lose(key, why)
    root.finish()
    origins: dict[DataPath, DataPath] = {(key,): (key,) for key in ("admission", "routing", "priority", "preemption")}
    origins |= {
        ("scheduling",): ("scheduler",),
        ("slo_priorities",): ("admission", "slo_priorities"),
        ("tenant_budgets",): ("tenant_budgets",),
        ("tenant_budgets", "fractions"): ("tenant_budgets",),
    }
    for one in _SETTINGS.values():
        origins |= {("admission", ours): ("admission", theirs) for theirs, (ours, _) in one.items()}
    for at, _ in enumerate(parts["routing"].sections("scorers")):
        origins[("routing", "scorers", at)] = ("routing", "scorers", at)
        origins[("routing", "scorers", at, "kind")] = ("routing", "scorers", at, "name")
        origins[("routing", "scorers", at, "weight")] = ("routing", "scorers", at, "weight")
    return Draft(
        source=given,
        kind="Policy",
        name=as_name(path.stem) if name is None else name,
        description=f"Imported from the BLIS policy bundle {path.name}.",
        body=body,
        origins=origins,
    ).finish()


def _policy(section: Section, slot: str, key: str = "policy") -> str:
    """Return the policy for ``slot``, or BLIS's default if that cannot be converted."""
    default = _NAMES[slot][0]
    chosen = section.choice(key, _NAMES[slot], otherwise=default)
    if any(plugin.name == chosen for plugin in builtin().of(f"policy.{slot}")):
        return chosen
    section.lose(key, f"there is no `{chosen}`; `{default}` is used instead")
    return default


def _admission(section: Section) -> dict[str, Json]:
    kind = _policy(section, "admission")
    settings: dict[str, Json] = {}
    for owner, known in _SETTINGS.items():
        for theirs, (ours, usual) in known.items():
            value = section.number(theirs)
            if owner != kind:
                section.note(Fate.NO_EFFECT, theirs, f"only a `{owner}` has it")
            elif value or usual is not None:
                settings[ours] = value or usual
    section.lose("slo_targets", "set targets as `expect` in the experiment")
    return {"kind": kind, **settings}


def _priorities(section: Section) -> dict[str, Json]:
    given = section.section("slo_priorities")
    if given is None or not given.data:
        return {}
    return {"slo_priorities": {name: given.number(name) for name in given.data}}


def _budgets(root: Section) -> dict[str, Json]:
    given = root.section("tenant_budgets")
    if given is None or not given.data:
        return {}
    return {"tenant_budgets": {"fractions": {name: given.number(name) for name in given.data}}}


def _routing(section: Section) -> dict[str, Json]:
    kind = _policy(section, "routing")
    scorers = section.sections("scorers")
    for key in ("cache_weight", "load_weight"):
        section.note(Fate.NO_EFFECT, key, "`scorers` say the weights")
    if kind != "weighted":
        section.note(Fate.NO_EFFECT, "scorers", "only `weighted` routing has them")
        section.finish()
        return {"kind": kind}
    section.finish()
    listed: list[Json] = []
    for one in scorers:
        name = one.text("name")
        weight = one.number("weight", required=True)
        one.finish()
        listed.append({"kind": name, "weight": weight})
    return {"kind": kind, "scorers": listed} if listed else {"kind": kind}


def _preemption(section: Section) -> dict[str, Json]:
    victim = _VICTIMS[section.choice("policy", tuple(_VICTIMS), otherwise="fcfs")]
    section.finish()
    return {"victim": victim, "restore": "recompute"}
