"""One golden test from run to outcome: what is compared, written, and reported."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.golden.case import DEFAULT
from blis_tui.golden.compare import compare, most_important_first, tolerance_lines
from blis_tui.golden.golden_divergence import find_divergence, record_lines
from blis_tui.golden.golden_store import HEADER, REPORT, Baseline
from blis_tui.golden.other_process import TimeLimit
from blis_tui.golden.produce import is_up_to_date, produce_checked
from blis_tui.golden.project import accept_command, plugins_option, relative_to_cwd
from blis_tui.results.expectations import Verdict
from blis_tui.runs.comparison_text import difference_lines
from blis_tui.runs.documents import experiment_differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.golden.case import Case
    from blis_tui.golden.compare import ResultDifference
    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.golden.other_process import OtherProcess
    from blis_tui.model import Experiment
    from blis_tui.runs.simulation import Simulation

MODES: Final = ("auto", "no", "new", "unseen", "always")
"""What a run may write. ``no``: nothing. ``new``: every new result beside the golden, for a decision. ``unseen``:
goldens that do not exist yet, and changed results as in ``new``. ``always``: the goldens themselves. ``auto``: ``no``
on CI, else ``new``.
"""

_SHOWN_DIFFERENCES: Final = 8
_NOT_KEPT: Final = "\nthe new result is not kept: to review and accept it, run pytest with --blis-update=new"
OUTDATED: Final = "the experiment, or a plug-in of it, has changed since this result was made: run pytest again"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSettings:
    """How golden tests are run."""

    mode: str
    """One of ``MODES`` except ``auto``, which is already decided."""
    checks: tuple[str, ...]
    """Variations of the run that must give the same bytes (``produce.CHECKS``)."""
    force: bool = False
    """Whether to write goldens even from an interpreter other than the baseline."""
    full: bool = False
    """Whether to store the record stream of each golden that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one golden test."""

    status: str
    """``equal``, ``written``, ``missing``, ``changed``, ``nondeterministic``, ``unexpected`` or ``refused``."""
    text: str
    """The message; empty if nothing is wrong."""
    pending: bool = False
    """Whether a new result waits for a decision."""
    report: str = ""
    """The report of this run."""

    @property
    def ok(self) -> bool:
        """Whether the test passes."""
        return self.status in ("equal", "written")


def on_ci() -> bool:
    """Return whether the environment indicates a CI system."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def decide_mode(mode: str, *, ci: bool) -> str:
    """Return the mode, with ``auto`` replaced by ``no`` on CI and ``new`` elsewhere."""
    if mode != "auto":
        return mode
    return "no" if ci else "new"


def run_case(
    case: Case,
    files: GoldenFiles,
    spec: str,
    settings: GoldenSettings,
    go_on: Callable[[Simulation], bool] | None = None,
    other: OtherProcess | None = None,
) -> Outcome:
    """Run a case, compare it with its golden, and write what the settings allow.

    Args:
        case: the golden test.
        files: location of its golden.
        spec: the spec's path as it is stored in the golden.
        settings: what may be written.
        go_on: called now and then while the experiment runs; may raise to stop it before anything is written.
        other: a process with another hash seed; by default, a new one.

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
        with TimeLimit() if case.plugins is not None else nullcontext():
            result, trouble = produce_study(
                study, spec=spec, case=case.name, checks=settings.checks, other=other, is_known=is_known
            )
    else:
        with TimeLimit() if experiment.plugins_used() else nullcontext():
            result, trouble = produce_checked(
                experiment,
                spec=spec,
                case=case.name,
                checks=settings.checks,
                go_on=go_on,
                other=other,
                is_known=is_known,
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


def _read(files: GoldenFiles, settings: GoldenSettings) -> Golden | None:
    """Return the golden, if there is one; a damaged one counts as missing if goldens are rewritten anyway."""
    try:
        if settings.mode != "no":
            files.finish()
        return files.read() if files.exists() else None
    except InputError:
        if settings.mode == "always":
            return None
        raise


def _unseen(files: GoldenFiles, result: Golden, settings: GoldenSettings) -> Outcome:
    if settings.mode in ("unseen", "always"):
        files.write(result)
        return Outcome(status="written", text="", report=result.report)
    text = printable(f"there is no golden yet: {files.name}")
    waits = False
    if settings.mode == "new":
        advice, waits = _wait(files, result, "accept it with")
        text += advice
    else:
        text += _NOT_KEPT
    return Outcome(status="missing", text=text, pending=waits, report=result.report)


def _wait(files: GoldenFiles, result: Golden, decide: str) -> tuple[str, bool]:
    """Lay a new result beside the golden; returns what to say of it, and whether it waits there.

    Where nothing may be written, as in a checkout that is read-only, what has changed is told all the same.
    """
    try:
        files.write(result, pending=True)
    except InputError as error:
        return "\n" + printable(f"the new result is not kept: {error}"), False
    return f"\nthe new result is waiting; {decide}\n    {printable(accept_command(files))}", True


def _changed(
    case: Case,
    files: GoldenFiles,
    golden: Golden,
    result: Golden,
    difference: ResultDifference,
    experiment: Experiment | None,
    settings: GoldenSettings,
) -> Outcome:
    if settings.mode == "always":
        if golden.baseline != Baseline.here() and not settings.force:
            return Outcome(status="refused", text=_refusal(golden), report=result.report)
        files.write(result)
        return Outcome(status="written", text="", report=result.report)
    text = describe(case, files, golden, result, difference, experiment)
    waits = False
    if settings.mode in ("new", "unseen"):
        advice, waits = _wait(files, result, "review it, then accept it with")
        text += advice
    elif difference.engine is None:  # otherwise the text says what to do
        text += _NOT_KEPT
    return Outcome(status="changed", text=text, pending=waits, report=result.report)


def describe(
    case: Case,
    files: GoldenFiles,
    golden: Golden,
    result: Golden,
    difference: ResultDifference,
    experiment: Experiment | None,
) -> str:
    """Describe a difference completely; for an experiment, with the first event that shows it."""
    lines = [printable(f"{files.name}: the result of {case.what} differs from its golden")]
    if difference.engine is not None:
        lines += engine_lines(*difference.engine, alone=differs_only_in_engine(difference))
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
        lines += difference_lines(most_important_first(difference.report), _SHOWN_DIFFERENCES)
    if case.is_run:
        lines += tolerance_lines(golden, result, case.comparison)
    if difference.records and not difference.report:
        lines.append("the report is the same, but the event records differ")
    if difference.text is not None:
        name, other = difference.text
        file = files.file(REPORT if name == "report" else HEADER).name
        lines.append(printable(f"the values of the report are the same, but not the text of {file}: {other}"))
    if experiment is None:
        return "\n".join(lines)
    if not is_up_to_date(result, experiment):
        return "\n".join([*lines, OUTDATED])
    divergence = find_divergence(golden, result, experiment, files)
    if divergence is not None:
        lines.append(divergence.text())
        if command := debugger_command(case, divergence.event):
            lines.append(f"open it in the debugger: {command}")
    return "\n".join(lines)


def answer_lines(case: Case, golden: Golden, result: Golden, difference: ResultDifference) -> list[str]:
    """Return the changes in a study's answer, or in where server and simulation diverge; empty for a run."""
    if case.is_study:
        from blis_tui.golden.studies import changes  # noqa: PLC0415  (few projects have studies)

        return changes(golden, result)
    if case.twin is not None:
        from blis_tui.golden.twins import answer  # noqa: PLC0415  (few projects have recordings)

        return answer(golden, result, difference.report)
    return []


def debugger_command(case: Case, event: int) -> str:
    """Return the command that opens a case in the debugger at an event; empty if the debugger is not installed."""
    if find_spec("blis_tui.tui") is None:
        return ""
    chosen = "" if case.name == DEFAULT else f" --case {quote(case.name)}"
    loaded = "" if case.plugins is None else plugins_option(origin.asked for origin in case.plugins.origins)
    return printable(f"blis-tui tui {quote(relative_to_cwd(case.spec))}{chosen}{loaded} --at {event}")


def engine_lines(golden: str, here: str, *, alone: bool = False) -> list[str]:
    """Explain a golden made by another engine, and what to do; ``docs/golden.md`` has the reasons.

    Args:
        golden: the engine number of the golden.
        here: the number of the current engine.
        alone: whether nothing else in the report has changed.
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


def differs_only_in_engine(difference: ResultDifference) -> bool:
    """Return whether a result differs only in the engine number."""
    return (
        not difference.records
        and not difference.spec
        and {change.path for change in difference.report} <= {"/meta/engine"}
    )


def plugin_lines(golden: Golden, result: Golden) -> list[str]:
    """Return which users' plug-ins differ from those of the golden."""
    old, new = (
        {(plugin["plug_point"], plugin["name"]): plugin for plugin in side.plugins} for side in (golden, result)
    )
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
    """Return a failure that says so if the result breaks an invariant, or other expectations than the known ones."""
    report = json.loads(outcome.report)
    verdicts = [Verdict(**expectation) for expectation in report["expectations"]]
    broken = [
        f"golden.xfail: `{name}` is not an expectation of the experiment"
        for name in case.known
        if name not in {verdict.metric for verdict in verdicts}
    ]
    for verdict in verdicts:
        if verdict.ok == (verdict.metric in case.known):
            verdict_text = "it holds now: remove it from golden.xfail" if verdict.ok else "expectation failed"
            broken.append(f"{verdict_text}: {verdict.sentence()}")
            if verdict.event is not None and (command := debugger_command(case, verdict.event)):
                broken.append(f"    open it in the debugger: {command}")
    broken += [f"invariant {name}: {text}" for name, text in report["invariants"].items() if text != "ok"]
    if not broken:
        return outcome
    text = "\n".join(filter(None, (outcome.text, *map(printable, broken))))
    return replace(outcome, status="unexpected" if outcome.ok else outcome.status, text=text)
