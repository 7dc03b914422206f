"""One golden test, from run to verdict: what is compared, what is written, what is said."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from blis_tui.compare.documents import differences
from blis_tui.errors import InputError
from blis_tui.golden.compare import compare
from blis_tui.golden.divergence import find_divergence, record_lines
from blis_tui.golden.produce import produce, unsteady
from blis_tui.golden.store import Baseline
from blis_tui.golden.wording import change_lines
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.golden.case import Case
    from blis_tui.golden.compare import Difference
    from blis_tui.golden.store import Golden, Place
    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Experiment

MODES: Final = ("auto", "no", "new", "unseen", "always")
"""What a run may write. ``no``: nothing. ``new``: every new result beside the golden, for a decision. ``unseen``:
goldens that do not exist yet; changed results as in ``new``. ``always``: the goldens themselves. ``auto``: ``no`` on
CI, else ``new``.
"""

_SHOWN_CHANGES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How golden tests are run."""

    mode: str
    """One of ``MODES``, ``auto`` already decided."""
    checks: tuple[str, ...]
    """Extra ways of running that must give the same bytes (``produce.CHECKS``)."""
    force: bool = False
    """Write goldens also from an interpreter that is not the baseline."""
    full: bool = False
    """Also store the record stream of each golden that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one golden test."""

    status: str
    """``equal``, ``written``, ``missing``, ``changed``, ``unsteady``, ``unexpected`` or ``refused``."""
    text: str
    """What to tell; empty when everything is as it should be."""
    pending: bool = False
    """A new result waits for a decision."""
    report: str = ""
    """The report of this run."""

    @property
    def ok(self) -> bool:
        """Whether the test passes."""
        return self.status in ("equal", "written")


def on_ci() -> bool:
    """Whether a CI system runs this: its environment says so."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def decide_mode(mode: str, *, ci: bool) -> str:
    """``auto`` as ``no`` on CI and ``new`` elsewhere."""
    if mode != "auto":
        return mode
    return "no" if ci else "new"


def judge(
    case: Case, place: Place, spec: str, settings: Settings, go_on: Callable[[Simulation], bool] | None = None
) -> Verdict:
    """Run a case, compare it with its golden, and write what the settings allow.

    Args:
        case: the golden test.
        place: where its golden lies.
        spec: the spec's path as it is stored in the golden.
        settings: what may be written.
        go_on: called now and then while the experiment runs; may raise to stop it before anything is written.

    Raises:
        BlisError: the experiment cannot be loaded or run.
    """
    experiment = case.load()
    result = produce(experiment, spec=spec, case=case.name, go_on=go_on)
    trouble = unsteady(experiment, result, settings.checks)
    if trouble:
        return Verdict(status="unsteady", text=f"the result is not deterministic: {trouble}", report=result.report)
    golden = _read(place, settings)
    difference = None if golden is None else compare(golden, result, case.comparison)
    if golden is None or difference is None:
        verdict = _unseen(place, result, settings)
    elif difference.found:
        verdict = _changed(case, place, golden, result, difference, experiment, settings)
    else:
        place.drop_pending()
        verdict = Verdict(status="equal", text="", report=result.report)
    if settings.full and verdict.ok:
        place.write_records(record_lines(experiment))
    return _with_expectations(verdict)


def _read(place: Place, settings: Settings) -> Golden | None:
    """The golden, if there is one. A damaged one counts as none where goldens are written anew anyway."""
    if not place.exists():
        return None
    try:
        return place.read()
    except InputError:
        if settings.mode == "always":
            return None
        raise


def _unseen(place: Place, result: Golden, settings: Settings) -> Verdict:
    if settings.mode in ("unseen", "always"):
        place.write(result)
        return Verdict(status="written", text="", report=result.report)
    text = f"there is no golden yet: {place.name}"
    if settings.mode == "new":
        place.write(result, pending=True)
        text += f"\nthe new result waits; accept it with\n    blis-tui golden accept {place.name}"
    return Verdict(status="missing", text=text, pending=settings.mode == "new", report=result.report)


def _changed(
    case: Case,
    place: Place,
    golden: Golden,
    result: Golden,
    difference: Difference,
    experiment: Experiment,
    settings: Settings,
) -> Verdict:
    if settings.mode == "always":
        if golden.baseline != Baseline.here() and not settings.force:
            return Verdict(status="refused", text=_refusal(golden), report=result.report)
        place.write(result)
        return Verdict(status="written", text="", report=result.report)
    text = describe(case.name, place, golden, result, difference, experiment)
    if settings.mode in ("new", "unseen"):
        place.write(result, pending=True)
        text += f"\nthe new result waits; look at it, then\n    blis-tui golden accept {place.name}"
    return Verdict(status="changed", text=text, pending=settings.mode != "no", report=result.report)


def describe(
    case: str, place: Place, golden: Golden, result: Golden, difference: Difference, experiment: Experiment
) -> str:
    """Everything there is to say about a difference, the first event at which it shows included."""
    lines = [f"{place.name}: the result of case `{case}` differs from its golden"]
    if difference.engine is not None:
        lines.append(f"the engine has changed: {difference.engine[0]} -> {difference.engine[1]}")
    lines += ["--- golden", "+++ this run"]
    if difference.spec:
        changes = differences(golden.document, result.document)
        schemas = "; the schemas, which hold the defaults, have changed" if difference.schemas else ""
        lines.append(f"experiment: {plural(len(changes), 'difference')}{schemas}")
        lines += change_lines(changes, _SHOWN_CHANGES)
    if difference.changes:
        lines.append(f"report: {plural(len(difference.changes), 'difference')}")
        lines += change_lines(difference.changes, _SHOWN_CHANGES)
    elif difference.records:
        lines.append("the report is the same, but the record stream is not")
    divergence = find_divergence(golden, result, experiment, place)
    if divergence is not None:
        lines.append(divergence.text())
        if find_spec("blis_tui.tui") is not None:  # the terminal interface, where it is there
            event = divergence.until if divergence.event is None else divergence.event
            lines.append(f"see it in the debugger: blis-tui tui {result.spec} --at {event}")
    return "\n".join(lines)


def _refusal(golden: Golden) -> str:
    here = Baseline.here()
    return (
        f"the golden was written by {golden.baseline.python} on {golden.baseline.system}, this is {here.python} on "
        f"{here.system}: goldens are updated only where they were written (or with --blis-force)"
    )


def _with_expectations(verdict: Verdict) -> Verdict:
    """A result that breaks its own expectations or an invariant fails, golden or not."""
    report = json.loads(verdict.report)
    broken = [f"expected: {one['metric']} is {one['value']}" for one in report["expectations"] if not one["ok"]]
    broken += [f"invariant {name}: {text}" for name, text in report["invariants"].items() if text != "ok"]
    if not broken or not verdict.ok:
        return verdict
    return Verdict(status="unexpected", text="\n".join(broken), report=verdict.report)
