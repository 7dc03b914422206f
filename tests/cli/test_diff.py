"""``blis-tui diff`` as a user meets it."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.runs.comparison import stored

SMALL = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: small}
seed: 7
model: qwen3-14b
hardware: h100
workload:
  requests: 30
  rate_per_s: 10
  clients:
    - {id: chat, input_tokens: {kind: constant, value: 640}, output_tokens: {kind: constant, value: 40}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.blis.yaml").write_text(SMALL)
    (tmp_path / "other.blis.yaml").write_text(SMALL.replace("seed: 7", "seed: 8").replace("small", "other"))
    monkeypatch.chdir(tmp_path)


def diff(*args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["diff", *args], input=text)


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_golden(output_format: str, file_regression: FileRegressionFixture) -> None:
    result = diff("small.blis.yaml", "--set-b", "cluster.instances=2", "--format", output_format)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    file_regression.check(result.stdout, extension=".txt" if output_format == "text" else ".json")


def test_help(file_regression: FileRegressionFixture) -> None:
    file_regression.check(diff("--help").stdout)


def test_the_json_documents_keys_are_stable() -> None:
    document = json.loads(diff("small.blis.yaml", "--set-b", "cluster.instances=2", "--format", "json").stdout)
    assert list(document) == [
        *("a", "b", "notes", "spec", "results_differ", "metrics_differing", "metrics", "requests"),
    ]
    assert list(document["a"]) == ["experiment", "source", "overrides", "spec_sha256", "seed"]
    assert list(document["spec"][0]) == ["path", "kind", "old", "new"]
    assert list(document["metrics"][0]) == ["metric", "a", "b", "change", "relative", "verdict"]
    assert list(document["requests"]) == [
        *("common", "other", "only_a", "only_b", "compared", "threshold", "slower", "faster"),
        *("different_ends", "most_affected"),
    ]
    assert list(document["requests"]["most_affected"][0]) == ["request_id", "b_request_id", "a_us", "b_us", "change_us"]


def test_equal_rows_are_hidden_unless_all_are_asked_for() -> None:
    few, many = (diff("small.blis.yaml", "--set-b", "cluster.instances=2", *extra).stdout for extra in ([], ["--all"]))
    assert "requests.completed" not in few
    assert "latency.ttft_ms.p95" not in few
    assert "requests.completed" in many
    assert "latency.ttft_ms.p95" in many


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("small.blis.yaml", "small.blis.yaml"), ExitCode.OK),
        (("small.blis.yaml", "small.blis.yaml", "--exit-code"), ExitCode.OK),
        (("small.blis.yaml", "--set-b", "metadata.name=x", "--exit-code"), ExitCode.OK),
        (("small.blis.yaml", "--set-b", "cluster.instances=2"), ExitCode.OK),
        (("small.blis.yaml", "--set-b", "cluster.instances=2", "--exit-code"), ExitCode.CHECK_FAILED),
        (("small.blis.yaml",), ExitCode.USAGE),
        (("small.blis.yaml", "nope"), ExitCode.IO),
        (("small.blis.yaml", "nope.yaml"), ExitCode.IO),
        (("small.blis.yaml", "--set-b", "cluster.instances=0"), ExitCode.USAGE),
        (("small.blis.yaml", "--set-b", "cluster.instance=1"), ExitCode.USAGE),
    ],
)
def test_exit_codes(args: tuple[str, ...], expected: ExitCode) -> None:
    result = diff(*args)
    assert result.exit_code == expected, result.output
    assert (result.stderr == "") == (expected in {ExitCode.OK, ExitCode.CHECK_FAILED})
    assert "Traceback" not in result.output


def seeds(*args: str) -> tuple[int, int, list[str]]:
    document = json.loads(diff(*args, "--format", "json").stdout)
    return document["a"]["seed"], document["b"]["seed"], document["notes"]


def test_both_sides_have_the_same_seed_unless_told() -> None:
    files = ("small.blis.yaml", "other.blis.yaml")
    assert seeds(*files) == (7, 7, ["B's own seed is 8; to use it, add --set-b seed=8"])
    assert seeds(*files, "--seed", "3") == (3, 3, [])
    assert seeds(*files, "--set-b", "seed=8") == (7, 8, [])
    assert seeds(*files, "--set", "seed=5") == (5, 5, [])
    assert seeds("small.blis.yaml", "--set-b", "seed=9") == (7, 9, [])


def test_overrides_of_both_and_of_one_side() -> None:
    document = json.loads(
        diff(
            *("small.blis.yaml", "--set", "cluster.instances=2", "--set-a", "engine.max_num_seqs=8"),
            *("--set-b", "engine.max_num_seqs=9", "--format", "json"),
        ).stdout
    )
    assert document["spec"] == [{"path": "engine.max_num_seqs", "kind": "changed", "old": 8, "new": 9}]
    assert document["a"]["overrides"] == ["cluster.instances=2", "engine.max_num_seqs=8"]


def test_an_experiment_may_come_from_standard_input() -> None:
    result = diff("-", "small.blis.yaml", text=SMALL.replace("value: 40", "value: 41"))
    assert "workload.clients[chat].output_tokens.value  41 -> 40" in result.stdout


def test_the_same_bytes_every_time() -> None:
    args = ("small.blis.yaml", "--set-b", "cluster.instances=2", "--format", "json", "--all")
    assert diff(*args).stdout_bytes == diff(*args).stdout_bytes


def run(*args: str) -> None:
    assert CliRunner().invoke(cli, ["run", *args]).exit_code == ExitCode.OK


def test_a_kept_report_is_compared_as_its_run_is() -> None:
    run("small.blis.yaml", "--set", "cluster.instances=2", "-o", "two.json")
    simulated = json.loads(diff("small.blis.yaml", "--set-b", "cluster.instances=2", "--format", "json").stdout)
    for kept in (
        json.loads(diff("small.blis.yaml", "two.json", "--format", "json").stdout),
        json.loads(diff("small.blis.yaml", "two.json", "--format", "json", "--seed", "7").stdout),
    ):
        assert kept["metrics"] == simulated["metrics"]
        assert (kept["spec"], kept["requests"]) == (None, None)  # no report has them
    same = diff("two.json", "small.blis.yaml", "--set-b", "cluster.instances=2", "--exit-code")
    assert (same.exit_code, "specification: the same" in same.stdout) == (ExitCode.OK, True)
    other = diff("two.json", "small.blis.yaml", "--exit-code")
    assert (other.exit_code, "specification: different" in other.stdout) == (ExitCode.CHECK_FAILED, True)


def test_an_experiment_takes_the_seed_of_the_report_that_it_is_compared_with() -> None:
    run("small.blis.yaml", "--seed", "99", "-o", "kept.json")
    for sides in (("kept.json", "small.blis.yaml"), ("small.blis.yaml", "kept.json")):
        found = json.loads(diff(*sides, "--format", "json").stdout)
        assert (found["a"]["seed"], found["b"]["seed"], found["results_differ"]) == (99, 99, False)


def test_a_bundle_and_a_golden_bring_their_experiment() -> None:
    assert CliRunner().invoke(cli, ["bundle", "small.blis.yaml", "-o", "small.blis"]).exit_code == ExitCode.OK
    found = diff("small.blis", "small.blis.yaml", "--set-b", "cluster.instances=2").stdout
    assert "specification: 1 difference\n    cluster.instances  1 -> 2\n" in found
    golden = Path(__file__).parents[2] / "golden"
    same = diff(str(golden / "burst.report.json"), "burst", "--exit-code")
    assert (same.exit_code, "specification: no differences" in same.stdout) == (ExitCode.OK, True)


def with_figure(figure: str) -> str:
    """A report with one figure that no run writes."""
    meta = '{"experiment": "small", "seed": 1, "spec_sha256": ""}'
    return f'{{"meta": {meta}, "requests": {{}}, "latency": {{"mean": {figure}}}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "wrong.json is not a report"),
        ("[1]", "wrong.json is not a report"),
        ("{", "wrong.json is not JSON"),
        ('{"meta": {"experiment": 1}, "requests": {}}', "does not say which experiment it reports"),
        (with_figure("1" + 400 * "0"), "`latency.mean` has more than 100 digits"),
        (with_figure("1e999"), "`latency.mean` is inf"),
        (with_figure("NaN"), "`latency.mean` is nan"),
    ],
)
def test_a_file_that_is_no_report(text: str, message: str) -> None:
    Path("wrong.json").write_text(text)
    result = diff("wrong.json", "small.blis.yaml")
    assert (result.exit_code, message in result.stderr) == (ExitCode.IO, True)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"hit_rate":', '"hit_rate": "lots", "was":', '`kv.hit_rate` is "lots", not a number'),
        ('"completed":', '"completed": true, "was":', "`requests.completed` is true, not a number"),
        ('"steps":', '"steps": "many", "was":', '`instances.0.steps` is "many", not a number'),
    ],
)
def test_a_figure_that_is_no_number_is_told_of_with_its_place(before: str, after: str, message: str) -> None:
    run("small.blis.yaml", "-o", "kept.json")
    text = Path("kept.json").read_text()
    assert before in text
    Path("wrong.json").write_text(text.replace(before, after, 1))
    for sides in (("wrong.json", "kept.json"), ("kept.json", "wrong.json")):
        result = diff(*sides)
        assert result.exit_code == ExitCode.IO
        assert f"error: wrong.json is not a report: {message}" in result.stderr


def test_reports_whose_figures_are_texts_where_they_should_be_are_read() -> None:
    for path in sorted((Path(__file__).parents[2] / "golden").glob("*.report.json")):
        assert stored(path.name, json.loads(path.read_text(encoding="utf-8"))).source == path.name


def test_other_rules_of_simulation_are_told_of() -> None:
    run("small.blis.yaml", "-o", "kept.json")
    Path("later.json").write_text(Path("kept.json").read_text().replace('"engine": "1"', '"engine": "2"'))
    assert 'note: A was made by engine "1", B by engine "2"' in diff("kept.json", "later.json").stdout
    (note,) = json.loads(diff("later.json", "kept.json", "--format", "json").stdout)["notes"]
    assert note.startswith('A was made by engine "2", B by engine "1"')
    assert "note:" not in diff("kept.json", "kept.json").stdout


def test_kept_results_stay_as_they_are() -> None:
    run("small.blis.yaml", "-o", "kept.json")
    for args in (
        ("kept.json", "small.blis.yaml", "--set-a", "seed=1"),
        ("kept.json", "kept.json", "--seed", "1"),
        ("kept.json", "kept.json", "--set", "seed=1"),
    ):
        assert diff(*args).exit_code == ExitCode.USAGE
    assert diff("missing.json", "kept.json").exit_code == ExitCode.IO


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the experiments above and a policy that one names."""
    (tmp_path / "specs" / "policies").mkdir(parents=True)
    policy = tmp_path / "specs" / "policies" / "mine.yaml"
    policy.write_text("apiVersion: blis/v1\nkind: Policy\nmetadata: {name: mine}\nscheduling: sjf\n")
    (tmp_path / "named.blis.yaml").write_text(SMALL + "policy: mine\n")
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_an_edit_against_the_last_commit(repository: Path) -> None:
    assert diff("named.blis.yaml", "--working-tree").stdout == "specification: no differences\n"
    named = repository / "named.blis.yaml"
    named.write_text(named.read_text().replace("hardware: h100", "hardware: h200") + "engine: {max_num_seqs: 8}\n")
    policy = repository / "specs" / "policies" / "mine.yaml"
    policy.write_text(policy.read_text().replace("sjf", "fcfs"))
    index = (repository / ".git" / "index").read_bytes()
    shown = diff("named.blis.yaml", "--working-tree", "--exit-code")
    assert shown.exit_code == ExitCode.CHECK_FAILED
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[0].startswith("specification: ")
    assert {"policy.scheduling.kind sjf -> fcfs", "engine.max_num_seqs 1,024 -> 8"} <= {*lines}
    assert "hardware.memory_gib 80 -> 141" in lines
    found = json.loads(diff("specs/policies/mine.yaml", "--working-tree", "--format", "json").stdout)
    assert found == [{"path": "scheduling.kind", "kind": "changed", "old": "sjf", "new": "fcfs"}]
    assert (repository / ".git" / "index").read_bytes() == index


def test_what_git_does_not_have_is_told(repository: Path) -> None:
    (repository / "new.blis.yaml").write_text(SMALL)
    result = diff("new.blis.yaml", "--working-tree")
    assert (result.exit_code, "git's last commit has no new.blis.yaml" in result.stderr) == (ExitCode.IO, True)
    assert diff("small.blis.yaml", "other.blis.yaml", "--working-tree").exit_code == ExitCode.USAGE
    (repository / "small.blis.yaml").write_text("apiVersion: blis/v1\n")
    assert diff("small.blis.yaml", "--working-tree").exit_code == ExitCode.USAGE
    assert diff("nowhere/small.blis.yaml", "--working-tree").exit_code == ExitCode.IO


def test_outside_of_a_repository_git_says_so() -> None:
    result = diff("small.blis.yaml", "--working-tree")
    assert (result.exit_code, "git rev-parse fails" in result.stderr) == (ExitCode.IO, True)
