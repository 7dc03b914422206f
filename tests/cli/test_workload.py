"""``blis-tui workload`` as a user meets it."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode

CSV = "arrival_time_us,input_tokens,output_tokens\n"


def workload(*args: object) -> Result:
    return CliRunner().invoke(cli, ["workload", *map(str, args)])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.csv").write_text(CSV + "".join(f"{n * n * 9000},{50 + n},{n + 1}\n" for n in range(200)))
    return tmp_path


@pytest.mark.parametrize("command", [(), ("describe",), ("convert",), ("compose",), ("fit",)])
def test_help(command: tuple[str, ...], file_regression: FileRegressionFixture) -> None:
    file_regression.check(workload(*command, "--help").stdout)


@pytest.mark.parametrize("name", ["mixed-slo", "trace-replay"])
def test_describe(name: str, file_regression: FileRegressionFixture) -> None:
    result = workload("describe", name)
    assert result.exit_code == ExitCode.OK
    assert max(map(len, result.stdout.splitlines())) <= 120
    file_regression.check(result.stdout)


def test_describe_as_json_is_stable(file_regression: FileRegressionFixture) -> None:
    first, second = (workload("describe", "trace-replay", "--format", "json").stdout for _ in range(2))
    assert first == second
    file_regression.check(first, extension=".json")


def test_describe_draws_a_page(folder: Path) -> None:
    assert workload("describe", "small.csv", "--html", "page.html").exit_code == ExitCode.OK
    assert "<h1>Workload small.csv</h1>" in (folder / "page.html").read_text()


def test_what_is_converted_is_described_alike(folder: Path) -> None:
    assert workload("convert", "prefix-heavy", "--seed", 5, "--requests", 80, "-o", "out.csv").exit_code == ExitCode.OK
    made, again = (
        json.loads(workload("describe", *args, "--format", "json").stdout)
        for args in (("prefix-heavy", "--seed", 5, "--requests", 80), ("out.csv",))
    )
    different = {key for key in made if made[key] != again[key]}
    assert different == {"name", "source", "seed", "clients"}
    assert len((folder / "out.csv").read_text().splitlines()) == 81
    assert workload("convert", "prefix-heavy", "--seed", 5, "--requests", 80).stdout == (folder / "out.csv").read_text()


CHATS = """\
apiVersion: blis/v1
kind: Experiment
metadata: {{name: chats}}
model: llama-3.1-8b-instruct
hardware: h100
latency: trained-physics
workload:
  rate_per_s: 2.0
  sessions: 20
  clients:
    - id: chat
      input_tokens: {{kind: uniform, min: 30, max: 70}}
      output_tokens: {{kind: uniform, min: 200, max: 400}}
      session: {{turns: 5, think_time_ms: {{kind: uniform, min: 500, max: 3000}}, pacing: {pacing}}}
"""


def of_run(folder: Path, spec: str) -> list[dict[str, str]]:
    """The requests of a run, as its table has them."""
    table = folder / "table.csv"
    assert CliRunner().invoke(cli, ["run", spec, "--requests", str(table), "-o", "report.json"]).exit_code == 0
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("pacing", ["answers", "clock"])
def test_conversations_reuse_their_answers(folder: Path, pacing: str) -> None:
    (folder / "chats.blis.yaml").write_text(CHATS.format(pacing=pacing))
    rows = of_run(folder, "chats.blis.yaml")
    cached = sum(int(row["cached_tokens"]) for row in rows)
    shown = [
        json.loads(workload("describe", name, "--format", "json").stdout) for name in ("chats.blis.yaml", "table.csv")
    ]
    found = [one["prefix_reuse"]["found_tokens"] for one in shown]
    assert found[0] == found[1] >= cached
    if pacing == "answers":
        # An engine finds all but the last token of an answer: a block less where a block ends with it.
        assert found[0] <= 1.02 * cached
    assert list(shown[0]["clients"]) == ["chat"]


def test_conversations_that_go_by_the_clock_need_no_cluster(folder: Path) -> None:
    document = yaml.safe_load(CHATS.format(pacing="clock"))
    (folder / "chats.blis.yaml").write_text(yaml.safe_dump(document))
    alone = {"apiVersion": "blis/v1", "kind": "Workload", "metadata": {"name": "chats"}, **document["workload"]}
    (folder / "chats.yaml").write_text(yaml.safe_dump(alone))
    result = workload("convert", "chats.yaml", "--seed", 3)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    assert result.stdout == workload("convert", "chats.blis.yaml", "--seed", 3).stdout
    assert len(result.stdout.splitlines()) == 101


def test_a_converted_recording_says_when_its_answers_came(folder: Path) -> None:
    (folder / "chats.blis.yaml").write_text(CHATS.format(pacing="answers"))
    rows = of_run(folder, "chats.blis.yaml")
    assert "the times at which they sent in this simulation" in workload("convert", "chats.blis.yaml").stderr
    (folder / "table.csv").rename(folder / "recorded.csv")
    assert workload("convert", "recorded.csv", "-o", "out.csv").exit_code == ExitCode.OK
    again = "{apiVersion: blis/v1, kind: Experiment, metadata: {name: again}, extends: chats.blis.yaml}"
    (folder / "again.blis.yaml").write_text(again)
    trace = "workload={trace: {file: out.csv, pacing: answers}}"
    assert CliRunner().invoke(cli, ["run", "again.blis.yaml", "--set", trace, "--requests", "a.csv"]).exit_code == 0
    with (folder / "a.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == rows


def test_a_rate_that_falls_to_nothing_ends_a_workload(folder: Path) -> None:
    client = {"id": "a", "arrivals": "constant", "input_tokens": 5, "output_tokens": 5}
    curve = {"points": [{"at_s": 0, "factor": 1}, {"at_s": 10, "factor": 0}]}
    document = {"apiVersion": "blis/v1", "kind": "Workload", "metadata": {"name": "short"}, "rate_per_s": 4.0}
    (folder / "w.yaml").write_text(yaml.safe_dump({**document, "clients": [{**client, "rate_curve": curve}]}))
    result = workload("convert", "w.yaml")
    assert (result.stderr, len(result.stdout.splitlines())) == ("", 21)
    ran = CliRunner().invoke(cli, ["run", "quickstart", "--set", "workload=./w.yaml", "--set", "expect=[]"])
    assert json.loads(ran.stdout)["requests"]["completed"] == 20


def test_conversations_without_times_that_wait_for_answers_need_a_cluster(folder: Path) -> None:
    messages = [{"from": name, "value": "text"} for name in ("human", "gpt", "human", "gpt")]
    (folder / "said.json").write_text(json.dumps([{"conversations": messages}]))
    given = ("said.json", "--set", "trace.rate_per_s=2")
    assert workload("convert", *given).stderr == (
        "note: said.json: left out 2 messages after the first answer (see `pacing`)\n"
        "note: said.json: left out 2 token counts that are not in the file: one for each 4 bytes of text"
        " (`bytes_per_token`)\n"
    )
    result = workload("convert", *given, "--set", "trace.pacing=answers")
    assert result.exit_code == ExitCode.USAGE
    assert "the clients of `said.json` wait for their answers" in result.stderr


def test_what_is_left_out_is_told(folder: Path) -> None:
    (folder / "w.yaml").write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: far}\nrate_per_s: 500\n"
        "clients: [{id: a, input_tokens: 5, output_tokens: 5, network: {rtt_ms: 80}}]\n"
    )
    result = workload("convert", "w.yaml", "-o", "out.csv")
    assert result.stderr == (
        "note: `far` is endless: these are its first 10,000 requests (see --requests)\n"
        "note: the file does not include the clients' network: latencies will be those at the cluster\n"
    )


def test_compose_names_the_document_after_its_file(folder: Path) -> None:
    result = workload("compose", "chatbot", "bursty", "-o", "both.yaml")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "")
    assert result.stderr == "note: requests: 1,000 of all clients together, each at its own rate\n"
    assert yaml.safe_load((folder / "both.yaml").read_text())["metadata"]["name"] == "both"
    merged = workload("compose", "small.csv", "small.csv", "-o", "merged.csv")
    assert (merged.exit_code, merged.output) == (ExitCode.OK, "")
    assert len((folder / "merged.csv").read_text().splitlines()) == 401


def test_fit(folder: Path, file_regression: FileRegressionFixture) -> None:
    result = workload("fit", "mixed-slo", "-o", "mine.workload.yaml")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    text = (folder / "mine.workload.yaml").read_text()
    file_regression.check(result.stdout + "=" * 40 + "\n" + text)
    piped = workload("fit", "mixed-slo", "--name", "mine")
    assert (piped.stdout, piped.stderr) == (text, result.stdout)
    assert workload("describe", "mine.workload.yaml").exit_code == ExitCode.OK
    document = json.loads(workload("fit", "mixed-slo", "-o", "mine.workload.yaml", "--format", "json").stdout)
    assert list(document) == ["clients", "agreement", "warnings", "notes"]


def test_what_a_trace_does_not_record_is_neither_described_nor_judged(folder: Path) -> None:
    """Sessions without prefixes: that their prompts repeat what was said is an assumption, not a bad fit."""
    rows = [f"{at * 500_000},{400 + 300 * (at // 9)},{90},s{at % 9}\n" for at in range(36)]
    (folder / "talks.csv").write_text("arrival_time_us,input_tokens,output_tokens,session_id\n" + "".join(rows))
    described = workload("describe", "talks.csv")
    assert "prefix reuse  not recorded: the trace names no prefixes that prompts share\n" in described.stdout
    assert json.loads(workload("describe", "talks.csv", "--format", "json").stdout)["prefix_reuse"]["recorded"] is False
    result = workload("fit", "talks.csv", "-o", "My_talks.v2.yaml")
    assert result.exit_code == ExitCode.OK
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("prefix reuse")]
    assert line.split()[2] == "-"  # of the trace
    assert "note: the trace names no prefixes: it is assumed that prompts of a session begin with what" in result.stdout
    assert "prefix reuse" not in result.stderr
    # Names have other characters than files.
    assert yaml.safe_load((folder / "My_talks.v2.yaml").read_text())["metadata"]["name"] == "my-talks"


def test_fit_warns(folder: Path) -> None:
    result = workload("fit", "small.csv", "-o", "mine.yaml")
    assert result.exit_code == ExitCode.OK
    assert "warning: the rate changes over time" in result.stderr
    assert "# Warning: the rate changes over time" in (folder / "mine.yaml").read_text()


WRONG = {
    "unknown-name": ("describe", "chatbott"),
    "missing-file": ("describe", "nothing.csv"),
    "folder": ("describe", "./"),
    "rows": ("describe", "rows.csv"),
    "columns": ("describe", "columns.csv"),
    "set": ("describe", "small.csv", "--set", "trace.time_unit=h"),
    "document": ("describe", "wrong.yaml"),
    "other-kind": ("describe", "model.yaml"),
    "closed-loop": ("describe", "users.yaml"),
    "no-requests": ("describe", "quickstart", "--set", "horizon_us=1"),
    "overwrites": ("convert", "small.csv", "-o", "small.csv"),
    "unwritable": ("convert", "small.csv", "-o", "no/such/folder.csv"),
    "mixed": ("compose", "small.csv", "chatbot"),
    "stages": ("compose", "chatbot", "stages.yaml"),
    "at-once": ("fit", "once.csv"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_can_go_wrong(name: str, folder: Path, file_regression: FileRegressionFixture) -> None:
    head = "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: w}\n"
    client = "clients: [{id: a, input_tokens: 5, output_tokens: 5%s}]\n"
    for file, text in {
        "rows.csv": CSV + "5,9,9\n6,x,9\n7,9\n",
        "columns.csv": "when,how_many\n5,9\n",
        "once.csv": CSV + "5,9,9\n5,9,9\n",
        "wrong.yaml": head + "rate: 5\n" + client % "",
        "model.yaml": "apiVersion: blis/v1\nkind: Model\nmetadata: {name: m}\n",
        "users.yaml": head + client % ", arrivals: {kind: closed-loop, users: 3}",
        "stages.yaml": head + "stages: [{rate_per_s: 2, duration_s: 5}]\n" + client % "",
    }.items():
        (folder / file).write_text(text)
    before = sorted(path.name for path in folder.iterdir())
    result = workload(*WRONG[name])
    assert (result.stdout, sorted(path.name for path in folder.iterdir())) == ("", before)
    file_regression.check(f"exit code {result.exit_code}\n{result.stderr}".replace(str(folder), ""))


def test_an_unknown_format_names_the_known_ones() -> None:
    result = workload("describe", "small.csv", "--trace-format", "csv")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("error: no trace format `csv`\n  = help: known: ")
