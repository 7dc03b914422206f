"""Imports BLIS's workload specifications, policy bundles and hardware file."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import in_order
from blis_tui.base.source import dotted
from blis_tui.spec.foreign.blis_clients import DEFAULT_PREFIX, Clients
from blis_tui.spec.foreign.reading import Draft, Fate, Input, Section, as_name
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Imported


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

_LOST_OF_POLICIES: Final = {
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
    if root.data and not root.data.keys() & {*_KEYS, *_LOST_OF_POLICIES, "tenant_budgets"}:
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
    for key, why in _LOST_OF_POLICIES.items():
        root.lose(key, why)
    root.finish()
    origins: dict[DataPath, DataPath] = {(key,): (key,) for key in ("admission", "routing", "priority", "preemption")}
    origins |= {
        ("scheduling",): ("scheduler",),
        ("slo_priorities",): ("admission", "slo_priorities"),
        ("tenant_budgets",): ("tenant_budgets",),
        ("tenant_budgets", "fractions"): ("tenant_budgets",),
    }
    for setting in _SETTINGS.values():
        origins |= {("admission", ours): ("admission", theirs) for theirs, (ours, _) in setting.items()}
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
    for scorer in scorers:
        name = scorer.text("name")
        weight = scorer.number("weight", required=True)
        scorer.finish()
        listed.append({"kind": name, "weight": weight})
    return {"kind": kind, "scorers": listed} if listed else {"kind": kind}


def _preemption(section: Section) -> dict[str, Json]:
    victim = _VICTIMS[section.choice("policy", tuple(_VICTIMS), otherwise="fcfs")]
    section.finish()
    return {"victim": victim, "restore": "recompute"}


_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "MemoryGiB": ("memory_gib",),
    "TFlopsPeak": ("peak_tflops", "bf16"),
    "TFlopsFP8": ("peak_tflops", "fp8"),
    "BwPeakTBs": ("memory_bandwidth_tb_per_s",),
    "mfuPrefill": ("mfu", "prefill"),
    "mfuDecode": ("mfu", "decode"),
}
_OPTIONAL: Final = frozenset({"TFlopsFP8"})
_LOST_OF_HARDWARE: Final = {
    "IntraNodeBwGBps": "no step-time model reads links between accelerators",
    "InterNodeBwGBps": "no step-time model reads links between nodes",
    **dict.fromkeys(
        (
            *("BwEffConstant", "TOverheadMicros", "perLayerOverhead", "allReduceLatency", "tpScalingExponent"),
            *("mfuPrefillMultiplier", "mfuDecodeMultiplier", "prefillBwFactor", "decodeBwFactor"),
            *("vectorPeakFraction", "prefillOverheadMicros", "mixedPrefillOverheadMicros"),
        ),
        "a correction of an older roofline model of BLIS",
    ),
}


def import_hardware(path: Path) -> list[Imported]:
    """Convert every accelerator of a hardware file; each document is named like its entry, in lower case.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a hardware file.
    """
    given = Input.read(path)
    root = given.root()
    names: dict[str, str] = {}
    drafts: list[Draft] = []
    for entry in root.data:
        section = root.section(entry)
        if section is None:
            continue
        name = as_name(entry)
        if name in names:
            text = f"`{entry}` and `{names[name]}` would both be named `{name}`"
            given.problem((entry,), text, code="BLIS2017", key=True)
        names[name] = entry
        drafts.append(_draft(given, section, name, entry, path.name))
    if not root.data:
        given.problem((), "the file describes no accelerator", code="BLIS1006")
    given.problems = in_order(given.problems)
    given.stop_at_problems()
    return [draft.finish() for draft in drafts]


def _draft(given: Input, section: Section, name: str, entry: str, file: str) -> Draft:
    body: dict[str, Json] = {}
    origins: dict[DataPath, DataPath] = {(): section.path}
    for theirs, ours in _FIELDS.items():
        value = section.number(theirs, required=theirs not in _OPTIONAL)
        if value is None:
            continue
        origins[ours] = (*section.path, theirs)
        if len(ours) == 1:
            body[ours[0]] = value
        else:
            part = body.setdefault(ours[0], {})
            if isinstance(part, dict):
                part[ours[1]] = value
    for key, why in _LOST_OF_HARDWARE.items():
        section.lose(key, why)
    section.finish()
    text = f"{entry}, imported from the BLIS hardware file {file}."
    return Draft(source=given, kind="Hardware", name=name, description=text, body=body, origins=origins)


_MOST_CLIENTS: Final = 10_000
_CATEGORIES: Final = ("language", "multimodal", "reasoning")
_VERSIONS: Final = ("", "1", "2")
_SOURCES: Final = ("clients", "cohorts", "servegen_data", "inference_perf")


def import_workload(path: Path, *, name: str | None = None) -> Imported:
    """Convert a workload specification.

    Args:
        path: the YAML file.
        name: name of the document; default: that of the file.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a workload specification, or nothing of it can be converted.
    """
    given = Input.read(path)
    root = given.root()
    requests = root.whole("num_requests")
    clients = Clients(upgrade=_version(root) != "2", requests=requests)
    horizon = _settings(root)
    if root.data.get("inference_perf") is None:
        rate = _clients(root, clients)
    else:
        rate, requests = _inference_perf(root, clients, requests)
    root.finish()
    if not clients.found and not given.problems:
        _nothing(root)
    if not requests and not horizon and not clients.one_session:
        given.note(
            Fate.ELSEWHERE, (), "nothing ends the workload: set `horizon_us` in the experiment, or `requests` here"
        )
    body: dict[str, Json] = {"requests": requests} if requests else {}
    if clients.one_session:
        body = {"sessions": 1}
    body |= {**({"rate_per_s": rate} if rate else {}), "clients": [*clients.found]}
    return Draft(
        source=given,
        kind="Workload",
        name=as_name(path.stem) if name is None else name,
        description=f"Imported from the BLIS workload {path.name}.",
        body=body,
        origins={**clients.origins, ("rate_per_s",): ("aggregate_rate",), ("requests",): ("num_requests",)},
    ).finish()


def _version(root: Section) -> str:
    value = root.get("version")
    version = "" if value is None else str(value)
    if version not in _VERSIONS:
        root.source.problem(("version",), f"unknown version `{version[:40]}`", hint="versions are `1` and `2`")
    return version


def _settings(root: Section) -> int:
    """Note keys that are settings of an experiment here; return the horizon."""
    seed, horizon = root.whole("seed", low=-(2**63)), root.whole("horizon")
    sign = "; seeds cannot be negative here" if seed < 0 else ""
    root.note(Fate.ELSEWHERE, "seed", f"write `seed: {abs(seed)}` into the experiment{sign}")
    root.note(Fate.ELSEWHERE, "horizon", f"write `horizon_us: {horizon}` into the experiment")
    root.choice("category", _CATEGORIES, otherwise="")
    root.note(Fate.NO_EFFECT, "category", "it changes nothing in a BLIS run")
    root.lose("goodput_slo_targets", "write them as `slo_targets` into the experiment")
    root.lose("servegen_data", "convert it with `blis convert servegen` and import the result")
    return horizon


def _clients(root: Section, clients: Clients) -> float:
    """Convert clients and cohorts; return their total rate."""
    rate = root.number("aggregate_rate")
    clients.absolute = not rate and _has_own_rates(root)
    clients.alone = len(root.sections("clients")) == 1 and not root.sections("cohorts")
    for section in root.sections("clients"):
        clients.add_client(section)
    for section in root.sections("cohorts"):
        clients.add_cohort(section)
    if not clients.found or not clients.shares:
        return 0.0
    if clients.absolute:
        return fsum(clients.kept_shares)
    if not rate:
        hint = "or windows with a `trace_rate` each, which then are rates in requests a second"
        root.source.problem(("aggregate_rate",), "the workload has no `aggregate_rate`", code="BLIS1002", hint=hint)
        return 0.0
    if len(clients.kept_shares) == len(clients.shares):
        return rate
    kept = rate * fsum(clients.kept_shares) / fsum(clients.shares)
    root.note(Fate.APPROXIMATED, "aggregate_rate", f"{kept:g} of {rate:g}: the share of what is left out is removed")
    return kept


def _has_own_rates(root: Section) -> bool:
    """Whether a client's window or a cohort's spike has a rate."""
    lives = [life for section in root.sections("clients") if (life := section.section("lifecycle")) is not None]
    spikes = [spike for section in root.sections("cohorts") if (spike := section.section("spike")) is not None]
    windows = [window for life in lives for window in life.sections("windows")]
    return any(window.given("trace_rate") for window in (*windows, *spikes))


def _inference_perf(root: Section, clients: Clients, requests: int) -> tuple[float, int]:
    section = root.section("inference_perf")
    others = [key for key in _SOURCES[:-1] if root.given(key)]
    if others:
        text = f"`inference_perf` and `{others[0]}` exclude each other"
        root.source.problem(("inference_perf",), text, code="BLIS2014", key=True)
    load = None if section is None else _add_shared_prefix(section, clients)
    root.note(Fate.NO_EFFECT, "aggregate_rate", "the stage says the rate")
    if load is None:
        return 0.0, 0
    rate, total = load
    return rate, min(requests, total) if requests else total


def _add_shared_prefix(section: Section, clients: Clients) -> tuple[float, int] | None:
    """Fill ``clients`` from an ``inference_perf`` section with one stage.

    Returns:
        Requests a second and total requests; None after a problem.
    """
    stages = section.sections("stages")
    shared = section.section("shared_prefix")
    section.finish()
    if len(stages) != 1 or shared is None:
        text = "only a load of one stage can be imported; write one workload per stage"
        if shared is None:
            text = "this lacks the key `shared_prefix`"
        section.source.problem((*section.path, "stages"), text, key=True)
        return None
    rate = stages[0].number("rate", required=True) or 0.0
    duration_s = stages[0].number("duration", required=True) or 0.0
    stages[0].finish()
    groups = shared.whole("num_unique_system_prompts", low=1)
    users = shared.whole("num_users_per_system_prompt", low=1)
    prefix, question, output = (shared.whole(key) for key in ("system_prompt_len", "question_len", "output_len"))
    shared.lose("enable_multi_turn_chat", "requests are independent here: give the clients a `session`")
    shared.finish()
    if not 0 < groups * users <= _MOST_CLIENTS or rate <= 0 or duration_s <= 0:
        text = f"rate, duration and the number of users (at most {_MOST_CLIENTS}) must be positive"
        section.source.problem(section.path, text, code="BLIS1005", key=True)
        return None
    requests = groups * users * -int(-(rate * duration_s) // (groups * users))
    for group in range(groups):
        for user in range(users):
            at = ("clients", len(clients.found))
            clients.found.append(
                {
                    "id": f"prompt-{group}-user-{user}",
                    "arrivals": {"kind": "poisson"},
                    "input_tokens": {"kind": "constant", "value": max(1, question)},
                    "output_tokens": {"kind": "constant", "value": max(1, output)},
                    "prefix": {"group": f"prompt-{group}", "tokens": prefix or DEFAULT_PREFIX},
                    "slo_class": "standard",
                    "tenant": f"prompt-{group}",
                }
            )
            clients.origins[at] = shared.path
            clients.origins[(*at, "input_tokens", "value")] = (*shared.path, "question_len")
            clients.origins[(*at, "output_tokens", "value")] = (*shared.path, "output_len")
            clients.origins[(*at, "prefix", "tokens")] = (*shared.path, "system_prompt_len")
    text = f"{requests} requests in Poisson arrivals; BLIS stretches each user's to fill {duration_s:g} s exactly"
    section.note(Fate.APPROXIMATED, "stages", text)
    text = "class `standard`, as in newer versions of BLIS; older ones said `batch`"
    section.source.note(Fate.NO_EFFECT, shared.path, text)
    return rate, requests


def _nothing(root: Section) -> None:
    lost = [note for note in root.source.notes if note.lossy]
    reasons = "; ".join(f"{dotted(note.path)}: {note.text}" for note in lost[:3])
    given = [key for key in _SOURCES if root.given(key)]
    if not given:
        root.source.problem((), "the workload has neither `clients` nor `cohorts`", code="BLIS2014")
        return
    root.source.problem((given[0],), "nothing of the workload can be imported", code="BLIS2014", hint=reasons, key=True)
