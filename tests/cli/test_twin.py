"""``blis-tui twin`` as a user meets it."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from tests.live.twin.servers import BASE, STEP_US, experiment, recorded

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = {key: one for key, one in BASE.items() if "." not in key}
    about = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "server"}, "extends": "quickstart"}
    policy = {"batching": BASE["policy.batching"]}
    (tmp_path / "server.blis.yaml").write_text(
        json.dumps({**about, **made, "policy": policy, "cluster": {"instances": 1}})
    )
    recorded(experiment(), tmp_path / "june", gap_us=800, front_us=12_000)


def twin(*args: str) -> Result:
    return CliRunner().invoke(cli, ["twin", *args])


def test_a_recording_beside_what_is_said_to_be_the_server(file_regression: FileRegressionFixture) -> None:
    result = twin("june", "server.blis.yaml", "--set", "latency.beta=[7000,20,300]", "--steps", "fitted")
    assert result.exit_code == ExitCode.OK, result.stderr
    file_regression.check(result.stdout)


def test_programs_get_the_same_figures() -> None:
    result = twin("june", "server.blis.yaml", "--format", "json", "--requests", "rows.csv")
    assert result.exit_code == ExitCode.OK, result.stderr
    document = json.loads(result.stdout)
    with open("rows.csv") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    assert document["requests"] == {"both": 60, "only_measured": 0, "only_other": 0}
    for metric, found in document["latency_ms"].items():
        pairs = [
            (float(row[f"measured_{metric}_us"]), float(row[f"other_{metric}_us"]))
            for row in rows
            if row[f"measured_{metric}_us"]
        ]
        assert found["requests"] == len(pairs)
        mean = sum(one for one, _ in pairs) / len(pairs) / 1e3
        assert found["left"]["mean"] == pytest.approx(mean, rel=1e-4)
        assert found["mape"] == pytest.approx(sum(abs(b / a - 1) for a, b in pairs) / len(pairs), rel=1e-3)
    assert [rung["name"] for rung in document["explained"]][-1] == "and the front end (12.0 ms)"
    assert document["explained"][-1]["latency_ms"]["e2e"]["mape"] == 0


def test_a_server_that_has_become_slower_fails_against_its_old_recording(tmp_path: Path) -> None:
    recorded(experiment(), tmp_path / "july", gap_us=800, front_us=12_000)
    recorded(experiment(latency__beta=[STEP_US * 1.2, 20, 300]), tmp_path / "august")
    assert twin("june", "july", "--within", "0").exit_code == ExitCode.OK
    result = twin("june", "august", "--within", "10")
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "FAIL  mean itl differs by +" in result.stderr
    assert "then       august" in result.stdout
    assert "they part" not in result.stdout


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["missing", "server.blis.yaml"], ExitCode.IO, "missing is not a recording: it has no recording.json"),
        (["june", "missing.blis.yaml"], ExitCode.IO, "missing.blis.yaml"),
        (["june", "june", "--steps", "measured"], ExitCode.USAGE, "apply to an experiment, not to a recording"),
        (["june", "server.blis.yaml", "--set", "cluster.instances=2"], ExitCode.USAGE, "compared with one instance"),
        (["june", "server.blis.yaml", "--requests", "june/requests.jsonl"], ExitCode.USAGE, "would overwrite"),
    ],
)
def test_what_cannot_be_compared_is_one_error(args: list[str], code: ExitCode, says: str) -> None:
    result = twin(*args)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", ["recording.json", "requests.jsonl", "steps.csv", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]\n", b"\xff\xfe\n", b'{"version": 7}\n'])
def test_recordings_that_are_damaged_are_one_error(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "june" / name).write_bytes(content)
    result = twin("june", "server.blis.yaml")
    if name.endswith("jsonl") and not content:  # what there is counts
        assert (result.exit_code == ExitCode.OK) == (name == "metrics.jsonl")
    else:
        assert result.exit_code == ExitCode.IO
        assert name in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("requests.jsonl", '"outcome":"completed"', '"outcome":[]', 1),
        ("requests.jsonl", '"request_id":"', '"request_id":"\\ud800', 1),
        ("requests.jsonl", '"chunks":[[', '"chunks":[[' + "9" * 400, 1),
        ("metrics.jsonl", "0.0", "NaN", 1),
        ("metrics.jsonl", "0.0", "1e999", 1),
        ("metrics.jsonl", "0.0", "9" * 400, 1),
        ("steps.csv", "\n0,", "\nx,", 2),
        ("requests.csv", ",completed,", ",completed,,,,", 2),
    ],
    ids=range(8),
)
def test_a_damaged_record_is_told_with_its_file_and_line(
    file: str, old: str, new: str, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "june" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    result = twin("june", "server.blis.yaml")
    assert result.exit_code == ExitCode.IO, result.output
    assert result.stderr.startswith(f"error: june/{file}, line {line}: ")
    assert len(result.stderr) < 500
