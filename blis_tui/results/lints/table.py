"""Warnings about a run: a table of checks, each of which knows its sentence, its figures and its advice.

Checks use only data that a run keeps anyway, so they cost nothing during the simulation, and the report and the
debugger (at any position) agree. A check that cannot be made yet says why.
"""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.results.lints import limits, load_checks, overload, unread
from blis_tui.results.lints.finding import Finding
from blis_tui.results.lints.load_checks import REJECTED_SHARE
from blis_tui.results.sections.offered_load import THRASHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.results.lints.finding import LintContext


@dataclass(frozen=True, slots=True)
class Lint:
    """A check: its name, what holds if it passes, and its function (see ``results.lints.finding`` for the results)."""

    name: str
    promise: str
    check: Callable[[LintContext], Finding | str]
    common: bool = True
    """Whether it says something about most experiments; others are not listed among what a run confirms."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of all checks after ``event`` events."""

    event: int
    done: bool
    """Whether the run has ended."""
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    """What the checks without a finding confirm."""
    skipped: tuple[tuple[str, str], ...]
    """What could not be checked, and why."""


def check_all(seen: LintContext) -> Checkup:
    """Run every check; return defects first."""
    findings: list[Finding] = []
    passed: list[str] = []
    skipped: list[tuple[str, str]] = []
    for lint in LINTS:
        finding = lint.check(seen)
        if isinstance(finding, Finding):
            findings.append(_for_pools(finding, seen))
        elif finding:
            skipped.append((lint.promise, finding))
        elif lint.common:
            passed.append(lint.promise)
    findings.sort(key=_severity)
    return Checkup(seen.cluster.events, seen.done, tuple(findings), tuple(passed), tuple(skipped))


_INSTANCES: Final = "cluster.instances"


def _for_pools(finding: Finding, seen: LintContext) -> Finding:
    """Return the finding with the key of the instances that the experiment has: of the cluster, or of its pools."""
    cluster = seen.experiment.document.get("cluster")
    pools = cluster.get("pools") if isinstance(cluster, dict) else None
    if not isinstance(pools, list):
        return finding
    own = {name: key for name in finding.keys if (key := _own_key(name, pools, finding.message))}
    own.setdefault(_INSTANCES, "cluster.pools.0.instances" if len(pools) == 1 else "cluster.pools")
    advice = finding.advice
    for name, key in own.items():
        advice = re.sub(rf"(?<![\w.]){re.escape(name)}\b", key, advice)
    return replace(finding, advice=advice, keys=tuple(dict.fromkeys([own.get(name, name) for name in finding.keys])))


def _own_key(key: str, pools: Sequence[object], message: str) -> str:
    """Return a pool's own key that takes the place of one of the whole cluster, for the pool that a message is about.

    Empty: there is none, or the message is not about one pool.
    """
    path = key.removeprefix("cluster.").split(".")
    for number, pool in enumerate(pools):
        if not isinstance(pool, dict) or not (
            len(pools) == 1 or re.search(rf" pool {re.escape(str(pool.get('name')))}\b", message)
        ):
            continue
        part: object = pool
        for step in path:
            part = part.get(step) if isinstance(part, dict) else None
        return f"cluster.pools.{number}.{'.'.join(path)}" if part is not None else ""
    return ""


def explained(name: str) -> str | None:
    """Return what a check looks for, and what it confirms if it passes; None if there is no such check."""
    lint = next((lint for lint in LINTS if lint.name == name), None)
    if lint is None:
        return None
    about = cleandoc(lint.check.__doc__ or lint.promise).replace("``", "`")
    return (
        f"{lint.name}: a warning about a run\n\n{about}\n\nIf it was checked and does not appear: {lint.promise}.\n\n"
        "The warning itself has the figures of the run, what to do about it and the keys that help. It is in the\n"
        "report (`warnings`) and in the debugger's warnings pane.\n"
    )


def _severity(finding: Finding) -> int:
    return 0 if finding.severity == "error" else 1


LINTS: Final[tuple[Lint, ...]] = (
    Lint(
        "littles-law",
        "the number of requests present agrees with the requests' own times (Little's law)",
        load_checks.littles_law,
    ),
    Lint("dropped", "every request can be served", load_checks.dropped),
    Lint("timed-out", "no request timed out", load_checks.timed_out),
    Lint("rejected", f"at most {REJECTED_SHARE} % of the requests were rejected", load_checks.rejected),
    Lint("unfinished", "hardly any request was cut off by the horizon", load_checks.unfinished),
    Lint("stranded", "no request is left waiting for an instance to come up", load_checks.stranded),
    Lint("overload", "no queue keeps growing or stands as a backlog", overload.overload),
    Lint("kv-cache", "the KV cache is large enough", limits.kv_cache),
    Lint("host-link", "a host link is set only where requests are swapped to host memory", limits.host_link),
    Lint("unread-keys", "all policy and engine keys that are set have an effect", unread.unread_keys),
    Lint("adapter-places", "instances have enough slots for the requested LoRA adapters", limits.adapter_places),
    Lint(
        "adapters-without-cost",
        "LoRA adapters are requested only where instances have some",
        limits.adapters_without_cost,
    ),
    Lint(
        "crowded-out",
        "KV blocks reserved for prompts in transfer hardly keep requests from running",
        limits.preempted_for_reserved,
    ),
    Lint(
        "priorities-apart",
        "where SGLang's priority preemption is on, SLO classes can trigger it",
        limits.priorities_apart,
    ),
    Lint("thrashing", f"no request was preempted {THRASHING} times", limits.thrashing),
    Lint("max-num-seqs", "max_num_seqs rarely keeps requests waiting while token budget is left", limits.max_num_seqs),
    Lint("token-budget", "the token budget of steps is not the bottleneck", limits.token_budget),
    Lint(
        "decode-tail", "prefill of others does not stretch the p99 of ITL to four times the median", limits.decode_tail
    ),
    Lint(
        "extrapolated",
        "step times come mostly from measured operators, or do not use operator tables",
        unread.extrapolated,
    ),
    Lint("states", "no layer has a state for each request (linear attention, Mamba-2)", unread.states, common=False),
    Lint(
        "eager-without-cost",
        "the cost of running without CUDA graphs is known where they are off",
        unread.eager_without_cost,
    ),
    Lint("users-in-step", "users of a closed loop do not stay in lockstep", load_checks.users_in_step),
    Lint("imbalance", "no instance has twice the mean load", load_checks.imbalance),
    Lint("unused-capacity", "fewer instances would be full, or too busy to be sure", load_checks.unused_capacity),
    Lint("prefix-cache", "shared prefixes hit the cache", limits.prefix_cache),
    Lint("few-requests", "enough requests completed for a meaningful p99", load_checks.few_requests),
    Lint("start-and-drain", "ramp-up and drain are at most a third of the run", load_checks.edges),
    Lint("unsettled", "the number of requests in the system did not keep growing", overload.unsettled),
)
"""Every check, in the order of the report."""
