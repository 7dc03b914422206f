"""Warnings about a run: a table of checks, each of which knows its sentence, its numbers and what to do about it.

The checks see the whole known run, whatever the reader's position. A check that cannot be made yet says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.lints import checks
from blis_tui.debugger.lints.checks import REJECTED_SHARE, Finding, Seen
from blis_tui.debugger.lints.tally import THRASHING, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.debugger.tape import Tape
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True)
class Lint:
    """A check: its name, what it makes sure of, and how: a warning, or why it cannot be made yet, or ``""``."""

    name: str
    promise: str
    check: Callable[[Seen], Finding | str]


@dataclass(frozen=True, slots=True)
class Checkup:
    """The outcome of all checks over the first ``events`` events."""

    events: int
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    """What the checks that found nothing make sure of."""
    skipped: tuple[tuple[str, str], ...]
    """What could not be checked, and why."""


def check_all(tally: Tally, tape: Tape, experiment: Experiment) -> Checkup:
    """Make every check; defects first."""
    seen = Seen(tally=tally, tape=tape, experiment=experiment)
    findings: list[Finding] = []
    passed: list[str] = []
    skipped: list[tuple[str, str]] = []
    for lint in LINTS:
        found = lint.check(seen)
        if isinstance(found, Finding):
            findings.append(found)
        elif found:
            skipped.append((lint.promise, found))
        else:
            passed.append(lint.promise)
    findings.sort(key=_severity)
    return Checkup(tally.event, tuple(findings), tuple(passed), tuple(skipped))


def warnings(tape: Tape, experiment: Experiment) -> tuple[Finding, ...]:
    """All warnings about what is known of a run, from scratch; keep a ``Tally`` to have them again and again."""
    tally = Tally(experiment)
    tally.follow(tape, len(tape))
    return check_all(tally, tape, experiment).findings


def _severity(finding: Finding) -> int:
    return 0 if finding.severity == "error" else 1


LINTS: Final[tuple[Lint, ...]] = (
    Lint("littles-law", "steps and requests agree on how many are present (Little's law)", checks.littles_law),
    Lint("tokens", "steps and requests agree on the tokens computed", checks.tokens),
    Lint("dropped", "every request can be served", checks.dropped),
    Lint("timed-out", "no request timed out", checks.timed_out),
    Lint("rejected", f"at most {REJECTED_SHARE} % of the requests were turned away", checks.rejected),
    Lint("overload", "the queue does not keep growing", checks.overload),
    Lint("warm-up", "the run is longer than its warm-up", checks.warm_up),
    Lint("imbalance", "no instance has twice the mean load", checks.imbalance),
    Lint("kv-high", "the KV cache is rarely full", checks.kv_high),
    Lint("thrashing", f"nobody was preempted {THRASHING} times", checks.thrashing),
    Lint("token-budget", "steps have tokens to spare", checks.budget),
    Lint("max-num-seqs", "max_num_seqs leaves no tokens unused while requests wait", checks.seqs),
    Lint("head-of-line", "no queue is blocked by its head for long", checks.blocking),
    Lint("prefix-cache", "shared prefixes are found in the cache", checks.prefixes),
)
"""Every check, in the order in which they are told."""
