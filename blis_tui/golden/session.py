"""One golden test, from run to outcome: what is compared, what is written, what is said."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.compare.documents import experiment_differences
from blis_tui.compare.wording import difference_lines
from blis_tui.errors import InputError
from blis_tui.golden.case import DEFAULT
from blis_tui.golden.compare import compare
from blis_tui.golden.divergence import find_divergence, record_lines
from blis_tui.golden.produce import produce_checked
from blis_tui.golden.project import accept_command, from_here
from blis_tui.golden.store import HEADER, REPORT, Baseline
from blis_tui.metrics.expectations import Verdict
from blis_tui.printable import printable
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.golden.case import Case
    from blis_tui.golden.compare import ResultDifference
    from blis_tui.golden.other_process import OtherProcess
    from blis_tui.golden.store import Golden, GoldenFiles
    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Experiment

MODES: Final = ("auto", "no", "new", "unseen", "always")
"""What a run may write. ``no``: nothing. ``new``: every new result beside the golden, for a decision. ``unseen``:
goldens that do not exist yet; changed results as in ``new``. ``always``: the goldens themselves. ``auto``: ``no`` on
CI, else ``new``.
"""

_SHOWN_DIFFERENCES: Final = 8


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
class Outcome:
    """The outcome of one golden test."""

    status: str
    """``equal``, ``written``, ``missing``, ``changed``, ``nondeterministic``, ``unexpected`` or ``refused``."""
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


def run_case(
    case: Case,
    files: GoldenFiles,
    spec: str,
    settings: Settings,
    go_on: Callable[[Simulation], bool] | None = None,
    other: OtherProcess | None = None,
) -> Outcome:
    """Run a case, compare it with its golden, and write what the settings allow.

    Args:
        case: the golden test.
        files: where its golden lies.
        spec: the spec's path as it is stored in the golden.
        settings: what may be written.
        go_on: called now and then while the experiment runs; may raise to stop it before anything is written.
        other: where to run it with another hash seed; by default, a process of its own.

    Raises:
        BlisError: the experiment cannot be loaded or run.
    """
    golden = _read(files, settings)
    experiment = case.load() if case.is_run else None

    def is_known(result: Golden) -> bool:
        return golden is not None and (golden.report, golden.chain) == (result.report, result.chain)

    trouble = ""
    if case.twin is not None:
        from blis_tui.golden.twins import produce_twin  # noqa: PLC0415  (few projects have recordings)

        result = produce_twin(case.load_experiment(), case.twin, case.spec.parent, spec=spec, case=case.name)
    elif experiment is None:
        from blis_tui.golden.studies import produce_study  # noqa: PLC0415  (few projects have studies)

        study = case.load_study()
        result, trouble = produce_study(
            study, spec=spec, case=case.name, checks=settings.checks, other=other, is_known=is_known
        )
    else:
        result, trouble = produce_checked(
            experiment, spec=spec, case=case.name, checks=settings.checks, go_on=go_on, other=other, is_known=is_known
        )
    if trouble:
        return Outcome(
            status="nondeterministic", text=f"the result is not deterministic: {trouble}", report=result.report
        )
    difference = None if golden is None else compare(golden, result, case.comparison)
    if golden is None or difference is None:
        outcome = _unseen(files, result, settings)
    elif difference.found:
        outcome = _changed(case, files, golden, result, difference, experiment, settings)
    else:
        files.drop_pending()
        outcome = Outcome(status="equal", text="", report=result.report)
    if experiment is None:
        return outcome
    if settings.full and outcome.ok:
        files.write_records(record_lines(experiment))
    return _with_expectations(outcome, case)


def _read(files: GoldenFiles, settings: Settings) -> Golden | None:
    """The golden, if there is one. A damaged one counts as none where goldens are written anew anyway."""
    if not files.exists():
        return None
    try:
        return files.read()
    except InputError:
        if settings.mode == "always":
            return None
        raise


def _unseen(files: GoldenFiles, result: Golden, settings: Settings) -> Outcome:
    if settings.mode in ("unseen", "always"):
        files.write(result)
        return Outcome(status="written", text="", report=result.report)
    text = printable(f"there is no golden yet: {files.name}")
    if settings.mode == "new":
        files.write(result, pending=True)
        text += f"\nthe new result is waiting; accept it with\n    {printable(accept_command(files))}"
    return Outcome(status="missing", text=text, pending=settings.mode == "new", report=result.report)


def _changed(
    case: Case,
    files: GoldenFiles,
    golden: Golden,
    result: Golden,
    difference: ResultDifference,
    experiment: Experiment | None,
    settings: Settings,
) -> Outcome:
    if settings.mode == "always":
        if golden.baseline != Baseline.here() and not settings.force:
            return Outcome(status="refused", text=_refusal(golden), report=result.report)
        files.write(result)
        return Outcome(status="written", text="", report=result.report)
    text = describe(case, files, golden, result, difference, experiment)
    if settings.mode in ("new", "unseen"):
        files.write(result, pending=True)
        text += f"\nthe new result is waiting; review it, then accept it with\n    {printable(accept_command(files))}"
    return Outcome(status="changed", text=text, pending=settings.mode != "no", report=result.report)


def describe(
    case: Case,
    files: GoldenFiles,
    golden: Golden,
    result: Golden,
    difference: ResultDifference,
    experiment: Experiment | None,
) -> str:
    """Everything there is to say about a difference, for an experiment with the first event at which it shows."""
    lines = [printable(f"{files.name}: the result of {case.what} differs from its golden")]
    if difference.engine is not None:
        lines += engine_lines(*difference.engine, alone=only_the_engine(difference))
    lines += plugin_lines(golden, result)
    lines += ["--- golden", "+++ this run"]
    if difference.spec:
        changed = experiment_differences(golden.document, result.document)
        schemas = "; the schemas, which hold the defaults, have changed" if difference.schemas else ""
        if changed or not case.is_study:
            what = "study" if case.is_study else "experiment"
            lines.append(f"{what}: {plural(len(changed), 'difference')}{schemas}")
        lines += difference_lines(changed, _SHOWN_DIFFERENCES)
    lines += answer_lines(case, golden, result, difference)
    if difference.report:
        lines.append(f"report: {plural(len(difference.report), 'difference')}")
        lines += difference_lines(difference.report, _SHOWN_DIFFERENCES)
    elif difference.records:
        lines.append("the report is the same, but the event records differ")
    if difference.text is not None:
        name, other = difference.text
        file = files.file(REPORT if name == "report" else HEADER).name
        lines.append(printable(f"the values of the report are the same, but not the text of {file}: {other}"))
    divergence = None if experiment is None else find_divergence(golden, result, experiment, files)
    if divergence is not None:
        lines.append(divergence.text())
        if command := debugger_command(case, divergence.event):
            lines.append(f"open it in the debugger: {command}")
    return "\n".join(lines)


def answer_lines(case: Case, golden: Golden, result: Golden, difference: ResultDifference) -> list[str]:
    """What has become of a study's answer, or of where a server and its simulation part; empty for a run."""
    if case.is_study:
        from blis_tui.golden.studies import changes  # noqa: PLC0415  (few projects have studies)

        return changes(golden, result)
    if case.twin is not None:
        from blis_tui.golden.twins import answer  # noqa: PLC0415  (few projects have recordings)

        return answer(golden, result, difference.report)
    return []


def debugger_command(case: Case, event: int) -> str:
    """What opens a case in the debugger at an event, typed in the present folder; empty where there is no debugger."""
    if find_spec("blis_tui.tui") is None:
        return ""
    chosen = "" if case.name == DEFAULT else f" --case {quote(case.name)}"
    return printable(f"blis-tui tui {quote(from_here(case.spec))}{chosen} --at {event}")


def engine_lines(golden: str, here: str, *, alone: bool = False) -> list[str]:
    """What it means that a golden was made by another engine, and what to do; ``docs/golden.md`` says it with reasons.

    Args:
        golden: the engine number of the golden.
        here: that of the engine that runs.
        alone: nothing else of the report has changed.
    """
    lines = [f"the engine has changed: {golden} -> {here}"]
    if golden.isdecimal() and here.isdecimal() and int(golden) > int(here):
        return [
            *lines,
            f"    the golden was made by a newer engine: install a blis-tui with engine {golden}, do not accept this",
        ]
    if alone:
        return [*lines, "    nothing else in the report has: accept it"]
    lines.append(
        "    so the same spec may give a different result: see CHANGELOG.md, review the difference and accept it;"
    )
    return [*lines, f"    to rule out a change of your own, compare with a blis-tui with engine {golden} first"]


def only_the_engine(difference: ResultDifference) -> bool:
    """Whether a result is another one only because it names another engine."""
    return (
        not difference.records and not difference.spec and {one.path for one in difference.report} <= {"/meta/engine"}
    )


def plugin_lines(golden: Golden, result: Golden) -> list[str]:
    """Which plug-ins of users are others than those of the golden."""
    old, new = ({(one["plug_point"], one["name"]): one for one in side.plugins} for side in (golden, result))
    lines = []
    for key in dict.fromkeys((*old, *new)):
        was, now = (
            " ".join((side[key]["from"], side[key]["version"])) if key in side else "none" for side in (old, new)
        )
        if was != now:
            lines.append(printable(f"the plug-in `{key[1]}` has changed: {was} -> {now}"))
    return lines


def _refusal(golden: Golden) -> str:
    here = Baseline.here()
    return (
        f"the golden was written by {golden.baseline.python} on {golden.baseline.system}, this is {here.python} on "
        f"{here.system}: goldens are updated only where they were written (or with --blis-force)"
    )


def _with_expectations(outcome: Outcome, case: Case) -> Outcome:
    """A result that breaks an invariant, or other expectations than those known to be broken, fails, golden or not."""
    report = json.loads(outcome.report)
    verdicts = [Verdict(**found) for found in report["expectations"]]
    broken = [
        f"golden.xfail: `{name}` is not an expectation of the experiment"
        for name in case.known
        if name not in {one.metric for one in verdicts}
    ]
    for one in verdicts:
        if one.ok == (one.metric in case.known):
            told = "it holds now: remove it from golden.xfail" if one.ok else "expectation failed"
            broken.append(f"{told}: {one.sentence()}")
            if one.event is not None and (command := debugger_command(case, one.event)):
                broken.append(f"    open it in the debugger: {command}")
    broken += [f"invariant {name}: {text}" for name, text in report["invariants"].items() if text != "ok"]
    if not broken or not outcome.ok:
        return outcome
    return Outcome(status="unexpected", text="\n".join(map(printable, broken)), report=outcome.report)
