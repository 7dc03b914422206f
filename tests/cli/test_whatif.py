"""``blis-tui whatif`` as a user meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.base.canonical import to_json
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from tests.results.clusters import DOCUMENTS


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gateway", "split"):
        (tmp_path / f"{name}.blis.yaml").write_text(to_json(DOCUMENTS[name]))
    monkeypatch.chdir(tmp_path)


def whatif(*args: str) -> Result:
    return CliRunner().invoke(cli, ["whatif", *args])


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_golden(output_format: str, file_regression: FileRegressionFixture) -> None:
    result = whatif("gateway.blis.yaml", "--request", "request_8", "--route-to", "1", "--format", output_format)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    file_regression.check(result.stdout, extension=".txt" if output_format == "table" else ".json")


def test_a_split_request(file_regression: FileRegressionFixture) -> None:
    result = whatif("split.blis.yaml", "--request", "request_20", "--route-to", "0")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    assert max(map(len, result.stdout.split("first divergence")[0].splitlines())) <= 100
    file_regression.check(result.stdout, extension=".txt")


def test_help(file_regression: FileRegressionFixture) -> None:
    file_regression.check(whatif("--help").stdout)


def test_all_figures_are_shown_on_request() -> None:
    args = ("gateway.blis.yaml", "--request", "request_8", "--route-to", "1", "--format", "json")
    few, every = (json.loads(whatif(*args, *more).stdout)["metrics"] for more in ((), ("--all",)))
    assert 0 < len(few) < len(every)


def test_seed_and_values_may_be_others() -> None:
    args = ("gateway.blis.yaml", "--request", "request_8", "--route-to", "1", "--format", "json")
    assert json.loads(whatif(*args, "--seed", "9", "--set", "workload.requests=20").stdout)["seed"] == 9


def test_what_cannot_be_is_a_matter_of_usage() -> None:
    result = whatif("gateway.blis.yaml", "--request", "request_8", "--route-to", "7")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr == "error: there is no instance 7\n  = help: the cluster has 2 instances: 0 to 1\n"
    assert whatif("gateway.blis.yaml", "--request", "request_8").exit_code == ExitCode.USAGE


def test_true_regret_of_a_sample(file_regression: FileRegressionFixture) -> None:
    result = whatif("split.blis.yaml", "--every", "8")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    file_regression.check(result.stdout, extension=".txt")
    found = json.loads(whatif("split.blis.yaml", "--every", "8", "--format", "json").stdout)
    assert f"{found['judged']} of {found['decisions']} routing decisions" in result.stdout
    args = ("quickstart", "--set", "cluster.instances=4", "--set", "workload.requests=20", "--every", "9")
    for more, replays in (((), 9), (("--counterfactual", "1"), 3)):
        assert json.loads(whatif(*args, *more, "--format", "json").stdout)["replays"] == replays


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ((), "give --request and --route-to, or --every"),
        (("--every", "5", "--request", "request_1"), "leave out --request, --route-to and --event"),
        (("--request", "request_1", "--route-to", "1", "--most", "3"), "need --every"),
        (("--every", "1", "--most", "3"), "more than 3"),
        (("--every", "0"), "0 is not in the range"),
    ],
)
def test_questions_that_are_none(args: tuple[str, ...], wrong: str) -> None:
    result = whatif("split.blis.yaml", *args)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert wrong in result.stderr
