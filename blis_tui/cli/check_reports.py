"""What ``check`` found as other tools read it: JSON, JUnit's XML for CI, SARIF for code review."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from blis_tui._version import __version__
from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import CODES, render_text
from blis_tui.base.text import printable_lines
from blis_tui.cli.standard_streams import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.diagnostics import Diagnostic


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
            "diagnostics": [asdict(one) for one in outcome.diagnostics],
        }
        for outcome in outcomes
    ]
    ok = all(outcome.ok for outcome in outcomes) and not any(policy.code for policy in policies or ())
    checked = {} if policies is None else {"policies": [asdict(policy) for policy in policies]}
    return to_json({"ok": ok, "documents": documents, **checked})


def as_junit(outcomes: Sequence[Outcome], policies: Sequence[Checked] | None) -> str:
    """Return a JUnit report: a test case for each document and policy."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415  (the other formats need none)

    failures = sum(bool(one.diagnostics) for one in outcomes) + sum(bool(one.code) for one in policies or ())
    counts = {
        "tests": str(len(outcomes) + len(policies or ())),
        "failures": str(failures),
        "errors": str(sum(bool(one.unreadable) for one in outcomes)),
    }
    suite = ET.Element("testsuite", {"name": "blis-tui check", **counts})
    for one in outcomes:
        case = ET.SubElement(suite, "testcase", {"classname": "document", "name": _xml(one.file)})
        if one.unreadable:
            ET.SubElement(case, "error", {"message": _xml(one.unreadable)}).text = _xml(one.unreadable)
        elif one.diagnostics:
            text = _xml(render_text(one.diagnostics, limit=None))
            ET.SubElement(case, "failure", {"message": _xml(one.diagnostics[0].message)}).text = text
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
    found = [one for outcome in outcomes for one in outcome.diagnostics]
    failed = [one for one in policies or () if one.code]
    rules = [_rule(code) for code in sorted({one.code for one in found})]
    rules += [{"id": rule} for rule in sorted({_rule_of(one) for one in failed})]
    index = {str(rule["id"]): at for at, rule in enumerate(rules)}
    results = [_result(one, index[one.code]) for one in found]
    results += [
        {
            "ruleId": _rule_of(one),
            "ruleIndex": index[_rule_of(one)],
            "level": "error",
            "message": {"text": f"{one.point} {one.name}: {one.verdict}" + (f": {one.found}" if one.found else "")},
        }
        for one in failed
    ]
    notes = [{"level": "error", "message": {"text": one.unreadable}} for one in outcomes if one.unreadable]
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


def _result(one: Diagnostic, rule: int) -> dict[str, object]:
    message = "\n".join([one.message, *one.notes, *([f"help: {one.help}"] if one.help else [])])
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(one.file)}}
    if one.line:
        place["region"] = {"startLine": one.line, "startColumn": one.column, "endColumn": one.end_column}
    return {
        "ruleId": one.code,
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
