"""``blis-tui check``: checks documents without running them, and users' policies by running them."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from blis_tui._version import __version__
from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import CODES, render_text
from blis_tui.base.errors import BlisError, InputError, PolicyError, SimulationError, SpecError, TraceError
from blis_tui.base.text import printable, printable_lines
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import (
    cases_in_document,
    format_option,
    known_plugins,
    plugins_option,
    seed_option,
    set_option,
)
from blis_tui.cli.standard_streams import ExitCode, print_text, read_standard_input_text, reported, tell, yaml_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import Document
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Plugin, Registry
    from blis_tui.spec.resolve import Resolved


_PATTERN: Final = frozenset("*?[")
"""Wildcard characters of a shell."""


@click.command("check", cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.studies)
@click.option(
    "--experiment",
    "source",
    metavar="SPEC",
    shell_complete=completion.experiments,
    help="For policies: the experiment to run. If it names none of them, each is substituted in turn. By default, a "
    "shipped experiment in which policies of that kind have something to decide.",
)
@set_option
@seed_option
@plugins_option
@click.option("--all", "every", is_flag=True, help="Show all errors of a document, not only the first 20.")
@format_option(
    *("text", "json", "junit", "sarif"),
    about="text: compiler-style errors on stderr. On stdout: json, one document; junit, JUnit's XML, which CI shows; "
    "sarif, SARIF 2.1.0, which code reviews show.",
)
@reported
def check(
    paths: tuple[str, ...],
    source: str | None,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
    every: bool,
    output_format: str,
) -> None:
    """Validate documents of any kind, and your own policies.

    PATH is a document: a file, a folder (every YAML file below it that is not hidden), the name of an experiment or a
    study, or - for standard input. Syntax, schema and semantics are checked; for a recorded workload, so are the rows
    within the first 4 MiB. The cases of an experiment are checked, too: of more than 1,000, a sample that has as many
    of their values as it can. Nothing is simulated.

    PATH can also be code with policies: FILE.py, or an installed package. For each policy, an experiment is run again,
    without observers, from a checkpoint, and in another process with another hash seed: the bytes must be the same.
    Everything a policy remembers must show in its `state()`, and must not change when it is only queried (`scores`).
    After every event (of the first 20,000) the simulator's invariants must hold. The first event that differs, or after
    which one does not hold, is named. --set and --seed apply to that experiment.

    Exit codes: 2 if a document is invalid or a policy cannot be checked, 3 if a document cannot be read or a folder has
    none; 1 if the runs of a policy differ or break an invariant, 4 if a policy raises an exception or one call of it
    takes half a minute.
    """
    code = [path for path in paths if is_code(path)]
    if (source is not None or overrides or seed is not None) and not code:
        raise click.UsageError("--experiment, --set and --seed apply only to policies: name a FILE.py or a package")
    documents = [path for path in paths if path not in code]
    stdin_text = read_standard_input_text() if "-" in documents else None
    known = known_plugins(plugins)
    outcomes = [outcome for path in documents for outcome in _check_all(path, stdin_text, known)]
    as_text = output_format == "text"
    if as_text and documents:
        _print_text(outcomes, every=every)
    policies: list[Checked] = []
    if code:
        from blis_tui.golden.other_process import TimeLimit  # noqa: PLC0415  (not needed for documents alone)

        with TimeLimit():
            own = known_plugins((*plugins, *code))
            for policy in check_policies(own, source, overrides, seed) if own is not None else ():
                policies.append(policy)
                if as_text:
                    _print_policy(policy, policies)
    if not as_text:
        print_text(FORMATS[output_format](outcomes, policies if code else None), nl=False)
    if any(outcome.unreadable for outcome in outcomes):
        sys.exit(ExitCode.IO)
    if not all(outcome.ok for outcome in outcomes):
        sys.exit(ExitCode.USAGE)
    failed = max((policy.code for policy in policies), default=ExitCode.OK)
    if failed:
        sys.exit(failed)


def _print_policy(policy: Checked, so_far: list[Checked]) -> None:
    print_text(f"{policy.point} {policy.name}: {policy.verdict}")
    if policy.found and all(earlier.found != policy.found for earlier in so_far[:-1]):
        tell(f"FAIL  {policy.found}")
    if policy.note and all(earlier.note != policy.note for earlier in so_far[:-1]):
        tell(f"note  {policy.note}")


def _check_all(path: str, stdin_text: str | None, plugins: Registry | None) -> list[Outcome]:
    """Check the documents of a path; a folder without any is an error."""
    try:
        files = yaml_files(path)
    except InputError as error:
        return [Outcome(file=path, unreadable=str(error))]
    return [_check(file, stdin_text, plugins) for file in files]


def _check(source: str, stdin_text: str | None, plugins: Registry | None) -> Outcome:
    from blis_tui.spec.validate import open_any  # noqa: PLC0415  (heavy imports only when the command runs)

    try:
        return replace(check_document(open_any(source, stdin_text), plugins), file=source)
    except (SpecError, TraceError) as error:
        return Outcome(file=source, diagnostics=error.diagnostics)
    except InputError as error:
        pattern = "\n  = help: no file matches: the shell passes on a pattern that matches nothing as it is"
        return Outcome(file=source, unreadable=f"{error}{pattern if _PATTERN.intersection(source) else ''}")


def check_document(document: Document, plugins: Registry | None = None) -> Outcome:
    """Check a document that was read, and its cases.

    Raises:
        SpecError: with every problem found.
        TraceError: rows of its trace are invalid.
        InputError: a file that it refers to cannot be read.
    """
    from blis_tui.spec.validate import validated  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.study.figures import require_expected, require_figures  # noqa: PLC0415

    valid = validated(document.copy(), plugins=plugins)
    if valid.study is not None:
        require_figures(valid.study)
    if valid.resolved is not None:
        require_expected(valid.resolved)
    cases, checked = (0, 0) if valid.resolved is None else _check_cases(document, valid.resolved)
    return Outcome(file=document.source.name, kind=valid.kind, name=valid.name, cases=cases, cases_checked=checked)


def _check_cases(document: Document, experiment: Resolved) -> tuple[int, int]:
    """Check the cases of a sound experiment; return how many there are, and how many were checked.

    Raises:
        SpecError: with the problems of its cases.
    """
    cases = cases_in_document(document, Path(document.source.name), experiment.plugins)
    from blis_tui.spec.cases import check_cases, unknown_expectations  # noqa: PLC0415
    from blis_tui.spec.load import build  # noqa: PLC0415

    if document.get("golden", "xfail") and (unknown := unknown_expectations(document, build(experiment))):
        raise SpecError(unknown)
    if not cases:
        return 0, 0
    from blis_tui.spec.overrides import parse_overrides  # noqa: PLC0415
    from blis_tui.study.figures import require_expected  # noqa: PLC0415

    trace = experiment.trace_path
    checked_cases = check_cases(
        document,
        {case.name: parse_overrides(case.assignments) for case in cases.values()},
        plugins=experiment.plugins,
        trace_bytes=0 if trace is None else trace.stat().st_size,
        also=require_expected,
    )
    if checked_cases.diagnostics:
        raise SpecError(checked_cases.diagnostics)
    return len(cases), checked_cases.count


def _print_text(outcomes: list[Outcome], *, every: bool) -> None:
    from blis_tui.base.diagnostics import MAX_SHOWN, render_text  # noqa: PLC0415
    from blis_tui.base.units import plural  # noqa: PLC0415

    for outcome in outcomes:
        if outcome.ok:
            cases = f"; {plural(outcome.cases, 'case')}" if outcome.cases else ""
            if outcome.cases_checked < outcome.cases:
                cases += f", {outcome.cases_checked:,} of them checked"
            print_text(printable(f"ok  {outcome.file}  ({outcome.kind} {outcome.name}{cases})"))
        elif outcome.unreadable:
            tell(f"error: {outcome.unreadable}\n")
        else:
            tell(render_text(outcome.diagnostics, limit=None if every else MAX_SHOWN) + "\n")
    read = [outcome for outcome in outcomes if not outcome.unreadable]
    bad = sum(not outcome.ok for outcome in read)
    parts = [plural(len(read), "document"), f"{bad} with errors" if bad else "no errors"]
    if len(read) < len(outcomes):
        parts.append(f"{plural(len(outcomes) - len(read), 'path')} not read")
    print_text(", ".join(parts))


# Checks of users' policies: they must give the same bytes in every run.

ANY: Final = "quickstart"
"""The default experiment, in which overrides may name plug-ins."""


def is_code(name: str) -> bool:
    """Return whether a name is that of a script or an installed package, and not of a document."""
    from blis_tui.spec.library import entries  # noqa: PLC0415  (most arguments are decided before)
    from blis_tui.spec.user_plugins import offers_plugins  # noqa: PLC0415

    if name.endswith(".py"):
        return True
    if name == "-" or Path(name).exists() or any(entry.name == name for entry in entries(Path.cwd())):
        return False
    if all(part.isidentifier() for part in name.split(".")) and find_spec(name.partition(".")[0]) is not None:
        return True
    return offers_plugins(name)


def check_policies(
    known: Registry, source: str | None, overrides: tuple[str, ...], seed: int | None
) -> Iterator[Checked]:
    """Repeat an experiment with each policy, and check what must hold after every event."""
    from blis_tui.golden.determinism import (  # noqa: PLC0415  (heavy imports only when it runs)
        find_broken_invariant,
        find_nondeterminism,
    )
    from blis_tui.spec.foresight import foresight  # noqa: PLC0415  (as above)

    for offered, experiment in _experiments(known, source, overrides, seed):
        problem, verdict = "", OK
        if experiment is None:
            verdict = UNNAMED
        elif isinstance(experiment, BlisError):
            problem, verdict = str(experiment), INVALID
        else:
            try:
                problem, verdict = find_nondeterminism(experiment), DIFFERS
                if not problem:
                    problem = find_broken_invariant(experiment)
                    verdict = BREAKS if problem else OK
            except SimulationError as error:
                problem, verdict = str(error), FAILS
            except PolicyError as error:
                problem, verdict = str(error), UNUSABLE
        for plugin in offered:
            note = foresight(plugin)
            yield Checked(point=plugin.path, name=plugin.name, verdict=verdict, found=problem, note=note)


def _experiments(
    known: Registry, source: str | None, overrides: tuple[str, ...], seed: int | None
) -> Iterator[tuple[tuple[Plugin, ...], Experiment | BlisError | None]]:
    """Yield the given experiment if it names plug-ins, else one for each plug-in, or why it cannot be checked."""
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.spec.plug_points import BY_PATH  # noqa: PLC0415  (as above)

    used: tuple[Plugin, ...] = ()
    if source is not None or overrides:
        experiment = load(source or ANY, overrides=overrides, seed=seed, plugins=known)
        used = experiment.plugins_used()
        if used:
            yield used, experiment
    for plugin in known.own:
        row = BY_PATH[plugin.path]
        if used:
            if plugin not in used:
                yield (plugin,), None
        elif not row.changes:
            advice = f"choose an --experiment whose `{plugin.path}` does, or --set it"
            yield (plugin,), InputError(f"{source or ANY} does not name `{plugin.name}`", help=advice)
        else:
            changed = (*row.naming(plugin.name), *overrides)
            try:
                yield (plugin,), load(source or row.experiment, overrides=changed, seed=seed, plugins=known)
            except SpecError as error:  # it has settings that must be given, for example
                yield (plugin,), error


# ---- reports ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of checking one document."""

    file: str
    kind: str = ""
    name: str = ""
    cases: int = 0
    """Number of its cases (`cases`, `matrix`)."""
    cases_checked: int = 0
    """Number of those that were checked: of very many, a sample that has as many of their values as it can."""
    diagnostics: tuple[Diagnostic, ...] = ()
    unreadable: str = ""
    """Why the file could not be read; empty = it could."""

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.diagnostics and not self.unreadable


OK: Final = "ok"
DIFFERS: Final = "differs"
BREAKS: Final = "breaks an invariant"
FAILS: Final = "fails"
UNNAMED: Final = "not checked: the experiment does not name it"
INVALID: Final = "not checked: it needs an --experiment that names it with its settings"
UNUSABLE: Final = "cannot be used"


_CODES: Final = {
    DIFFERS: ExitCode.CHECK_FAILED,
    BREAKS: ExitCode.CHECK_FAILED,
    FAILS: ExitCode.SIMULATION,
    INVALID: ExitCode.USAGE,
    UNUSABLE: ExitCode.USAGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of checking one policy."""

    point: str
    """Where a document names it: ``policy.routing``."""
    name: str
    verdict: str
    found: str = ""
    """The problem, with the first event that differs or the line that raised; empty = none."""
    note: str = ""
    """What a reader of its results should know though it is no problem; empty = nothing."""

    @property
    def code(self) -> ExitCode:
        """The corresponding exit code."""
        return _CODES.get(self.verdict, ExitCode.OK)


_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(outcomes: Sequence[Outcome], policies: Sequence[Checked] | None) -> str:
    """Return everything as one JSON document; None = no policies were checked."""
    documents = [
        {
            "file": outcome.file,
            "ok": outcome.ok,
            "kind": outcome.kind,
            "name": outcome.name,
            "cases": outcome.cases,
            "cases_checked": outcome.cases_checked,
            "unreadable": outcome.unreadable,
            "diagnostics": [asdict(diagnostic) for diagnostic in outcome.diagnostics],
        }
        for outcome in outcomes
    ]
    ok = all(outcome.ok for outcome in outcomes) and not any(policy.code for policy in policies or ())
    checked = {} if policies is None else {"policies": [asdict(policy) for policy in policies]}
    return to_json({"ok": ok, "documents": documents, **checked})


def as_junit(outcomes: Sequence[Outcome], policies: Sequence[Checked] | None) -> str:
    """Return a JUnit report: a test case for each document and policy."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415  (the other formats need none)

    failures = sum(bool(outcome.diagnostics) for outcome in outcomes) + sum(
        bool(policy.code) for policy in policies or ()
    )
    counts = {
        "tests": str(len(outcomes) + len(policies or ())),
        "failures": str(failures),
        "errors": str(sum(bool(outcome.unreadable) for outcome in outcomes)),
    }
    suite = ET.Element("testsuite", {"name": "blis-tui check", **counts})
    for outcome in outcomes:
        case = ET.SubElement(suite, "testcase", {"classname": "document", "name": _xml(outcome.file)})
        if outcome.unreadable:
            ET.SubElement(case, "error", {"message": _xml(outcome.unreadable)}).text = _xml(outcome.unreadable)
        elif outcome.diagnostics:
            text = _xml(render_text(outcome.diagnostics, limit=None))
            ET.SubElement(case, "failure", {"message": _xml(outcome.diagnostics[0].message)}).text = text
    for policy in policies or ():
        case = ET.SubElement(suite, "testcase", {"classname": policy.point, "name": _xml(policy.name)})
        if policy.code:
            text = _xml(policy.found or policy.verdict)
            ET.SubElement(case, "failure", {"message": policy.verdict}).text = text
    whole = ET.Element("testsuites", counts)
    whole.append(suite)
    ET.indent(whole)
    return ET.tostring(whole, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Return a text without characters that XML forbids; they are escaped as in messages."""
    return printable_lines(text)


def as_sarif(outcomes: Sequence[Outcome], policies: Sequence[Checked] | None) -> str:
    """Return a SARIF 2.1.0 log: a result for each problem, a notification for each document that was not read."""
    diagnostics = [diagnostic for outcome in outcomes for diagnostic in outcome.diagnostics]
    failed = [policy for policy in policies or () if policy.code]
    rules = [_rule(code) for code in sorted({diagnostic.code for diagnostic in diagnostics})]
    rules += [{"id": rule} for rule in sorted({_rule_of(policy) for policy in failed})]
    index = {str(rule["id"]): at for at, rule in enumerate(rules)}
    results = [_result(diagnostic, index[diagnostic.code]) for diagnostic in diagnostics]
    results += [
        {
            "ruleId": _rule_of(policy),
            "ruleIndex": index[_rule_of(policy)],
            "level": "error",
            "message": {
                "text": f"{policy.point} {policy.name}: {policy.verdict}"
                + (f": {policy.found}" if policy.found else "")
            },
        }
        for policy in failed
    ]
    notes = [{"level": "error", "message": {"text": outcome.unreadable}} for outcome in outcomes if outcome.unreadable]
    run = {
        "tool": {"driver": {"name": "blis-tui", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": results,
    }
    return to_json({"$schema": _SARIF, "version": "2.1.0", "runs": [run]})


def _rule(code: str) -> dict[str, object]:
    about = CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": about.title},
        "fullDescription": {"text": about.cause},
        "help": {"text": about.remedy},
    }


def _rule_of(policy: Checked) -> str:
    return f"policy-{policy.verdict.partition(':')[0].replace(' ', '-')}"


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, object]:
    message = "\n".join(
        [diagnostic.message, *diagnostic.notes, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    )
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(diagnostic.file)}}
    if diagnostic.line:
        place["region"] = {
            "startLine": diagnostic.line,
            "startColumn": diagnostic.column,
            "endColumn": diagnostic.end_column,
        }
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": message},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: str) -> str:
    """Return a file's name as a URI: relative ones are of the working directory, the root of a repository in CI."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


FORMATS: Final = {"json": as_json, "junit": as_junit, "sarif": as_sarif}
