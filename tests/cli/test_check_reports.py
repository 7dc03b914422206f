"""What `check` prints for other tools, against its own JSON."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from blis_tui.cli.check import DIFFERS, OK, Checked, as_junit, as_sarif
from blis_tui.cli.main import cli

WRONG = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: "x<&\\u0007"}
model: llama-3.1-8b-instruct
hardware: h100
engine: {max_num_seq: 8}
workload: chatbot
latency: rooflin
"""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    (tmp_path / "a<b.yaml").write_text(WRONG)
    return [str(tmp_path / "a<b.yaml"), "quickstart", str(tmp_path / "none.yaml")]


def printed(kind: str, paths: list[str]) -> str:
    result = CliRunner().invoke(cli, ["check", "--format", kind, *paths])
    assert result.exit_code == 3
    return result.stdout


def test_sarif_has_each_problem_at_its_place(paths: list[str]) -> None:
    documents = json.loads(printed("json", paths))["documents"]
    (run,) = json.loads(printed("sarif", paths))["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    expected = [one for document in documents for one in document["diagnostics"]]
    assert len(run["results"]) == len(expected) == 3
    for result, one in zip(run["results"], expected, strict=True):
        (place,) = (each["physicalLocation"] for each in result["locations"])
        assert rules[result["ruleIndex"]] == result["ruleId"] == one["code"]
        assert place["artifactLocation"]["uri"] == Path(one["file"]).as_uri()
        assert "%3C" in place["artifactLocation"]["uri"]  # the name has a `<`
        region = {"startLine": one["line"], "startColumn": one["column"], "endColumn": one["end_column"]}
        assert place["region"] == region
        assert result["message"]["text"].startswith(one["message"])
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == documents[2]["unreadable"]


def test_junit_has_a_case_for_each_document(paths: list[str]) -> None:
    documents = json.loads(printed("json", paths))["documents"]
    suites = ET.fromstring(printed("junit", paths).encode())  # noqa: S314  (our own output)
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("3", "1", "1")
    cases = list(suites.iter("testcase"))
    assert [case.get("name") for case in cases] == [document["file"] for document in documents]
    wrong, sound, unread = cases
    assert [len(case) for case in cases] == [1, 0, 1]
    assert sound.get("classname") == "document"
    assert all(one["message"] in (wrong[0].text or "") for one in documents[0]["diagnostics"])
    assert unread[0].tag == "error"


def test_policies_are_cases_and_results() -> None:
    found = [
        Checked(point="policy.routing", name="mine", verdict=DIFFERS, found="event 5 is another"),
        Checked(point="policy.routing", name="sound", verdict=OK),
    ]
    (run,) = json.loads(as_sarif([], found))["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["policy-differs"]
    assert run["results"][0]["message"]["text"] == "policy.routing mine: differs: event 5 is another"
    junit = ET.fromstring(as_junit([], found).encode())  # noqa: S314  (our own output)
    assert (junit.get("tests"), junit.get("failures")) == ("2", "1")
    assert [(one.get("classname"), one.get("name"), len(one)) for one in junit.iter("testcase")] == [
        ("policy.routing", "mine", 1),
        ("policy.routing", "sound", 0),
    ]
