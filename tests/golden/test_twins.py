"""Recordings of a server as golden tests: does it still behave as it did, and does the simulation still tell so?"""

from __future__ import annotations

import json
from dataclasses import replace
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from blis_tui.base.errors import InputError, SpecError
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.golden.case import cases_of
from blis_tui.golden.comment import STYLES, comment
from blis_tui.golden.golden_store import files_of
from blis_tui.golden.review import accept, difference_text, look, record_full
from blis_tui.golden.session import GoldenSettings, run_case
from tests.live.twin.servers import BASE, DECODE_US, PREFILL_US, STEP_US, experiment, recorded

from .projects import blis_in, pytest_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from blis_tui.golden.golden_store import GoldenFiles
    from blis_tui.golden.session import Outcome
    from blis_tui.live.observe.recording import Observed

REQUESTS = 30
GAP_US, FRONT_US = 800, 12_000


def server_in(folder: Path, *, twin: Mapping[str, object] | None = None, **changes: object) -> Path:
    """An experiment that says what the server is, and that a recording of it is kept."""
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "server"},
        "extends": "quickstart",
        "policy": {"batching": BASE["policy.batching"]},
        "cluster": {"instances": 1},
        "twins": [{"name": "june", "recording": "recordings/server", **(twin or {})}],
        "expect": [],
        **{name: BASE[name] for name in ("latency", "workload", "engine")},
        **changes,
    }
    path = folder / "server.blis.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def record(
    spec: Path, *, front_us: int = FRONT_US, change: Callable[[Observed], Observed] = lambda row: row, **changes: object
) -> None:
    """Load the server, which has these changes, once more."""
    folder = spec.parent / "recordings" / "server"
    if folder.exists():
        rmtree(folder)
    made = experiment(**{"workload__requests": REQUESTS, **changes})
    recorded(made, folder, gap_us=GAP_US, front_us=front_us, change=change)


def run(spec: Path, mode: str) -> tuple[Outcome, GoldenFiles]:
    _, case = cases_of(spec)
    stored = files_of(spec, case.name, folder=spec.parent / "golden", root=spec.parent)
    return run_case(case, stored, spec.name, GoldenSettings(mode=mode, checks=("observers",))), stored


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An experiment with a golden of its server in June."""
    spec = server_in(tmp_path)
    record(spec)
    assert run(spec, "unseen")[0].status == "written"
    return spec


def slower(share: float) -> list[float]:
    """All of a step, the gap behind it included."""
    return [one * share for one in (STEP_US, PREFILL_US, DECODE_US)]


def test_what_is_kept_are_figures_of_both_sides(kept: Path) -> None:
    outcome, stored = run(kept, "no")
    assert outcome.status == "equal"
    assert stored.name == "server@twin+june"
    report = json.loads(stored.read().report)
    lines = (kept.parent / "recordings" / "server" / "requests.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert report["workload"]["requests"] == len(rows) == REQUESTS
    e2e_ms = [(row["chunks"][-1][0] - row["sent_us"]) / 1e3 for row in rows]
    measured, simulated = (report["latency_ms"]["e2e"][side]["mean"] for side in ("measured", "simulated"))
    assert measured == pytest.approx(sum(e2e_ms) / REQUESTS)
    assert simulated == pytest.approx(measured - FRONT_US / 1e3)  # the server is its simulation behind a front end
    assert report["engine"]["front_end_ms"] == FRONT_US / 1e3
    assert report["parting"] is None


def test_a_recording_that_differs_a_little_is_as_in_june(kept: Path) -> None:
    record(kept, latency__beta=slower(1.02), front_us=FRONT_US + 700)
    assert run(kept, "no")[0].status == "equal"
    server_in(kept.parent, twin={"tolerance": {"latency": 0.001}})
    assert run(kept, "no")[0].status == "changed"


def test_a_slower_server_is_no_longer_as_in_june(kept: Path) -> None:
    record(kept, latency__beta=slower(1.3))
    outcome, stored = run(kept, "new")
    assert outcome.status == "changed"
    assert "`twin+june` differs from its golden" in outcome.text
    assert "changed on the server: step time" in outcome.text
    assert "server and simulation first diverge\n  - never\n  + step " in outcome.text
    assert "  - /engine/step_ms/measured" in outcome.text
    assert difference_text(stored, kept.parent) in outcome.text
    assert look(stored, kept.parent).state == "changed"
    text, holds = comment(kept.parent / "golden", kept.parent, (), None, STYLES["github"])
    assert not holds
    assert "changed on the server: step time" in text
    assert "| `engine.step_ms.measured` |" in text
    accept(stored)
    assert run(kept, "no")[0].status == "equal"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"front_us": 3 * FRONT_US}, "changed on the server: front end\n"),
        ({"engine__max_num_seqs": 3}, "changed on the server: step time, batch\n"),
        ({"workload__requests": REQUESTS - 1}, "different requests were sent"),
        (
            {"change": lambda row: replace(row, outcome="broken") if row.request_id == "request_3" else row},
            "different requests have a complete answer",
        ),
    ],
)
def test_what_moved_is_named(changes: Mapping[str, object], says: str, kept: Path) -> None:
    record(kept, **changes)  # type: ignore[arg-type]
    outcome, _ = run(kept, "no")
    assert outcome.status == "changed"
    assert says in outcome.text


def test_a_simulation_that_has_moved_is_told_from_the_server(kept: Path) -> None:
    server_in(kept.parent, engine={**BASE["engine"], "max_num_seqs": 2})  # type: ignore[dict-item]
    outcome, _ = run(kept, "no")
    assert outcome.status == "changed"
    assert "the server is unchanged: the simulation has changed" in outcome.text
    assert "- engine.max_num_seqs  32\n  + engine.max_num_seqs   2" in outcome.text


def test_what_says_nothing_of_the_server_may_change(kept: Path) -> None:
    server_in(kept.parent, workload={**BASE["workload"], "requests": 7})  # type: ignore[dict-item]
    assert run(kept, "no")[0].status == "equal"


def test_it_is_not_one_run(kept: Path) -> None:
    _, case = cases_of(kept)
    with pytest.raises(InputError, match="is a recording with its simulation"):
        case.load()
    assert "no records" in record_full(run(kept, "no")[1], kept.parent)


def test_two_recordings_have_two_names(tmp_path: Path) -> None:
    spec = server_in(tmp_path, twins=[{"name": "june", "recording": one} for one in ("a", "b")])
    with pytest.raises(SpecError, match="two recordings are named `june`"):
        cases_of(spec)
    result = CliRunner().invoke(cli, ["check", str(spec)])
    assert result.exit_code == ExitCode.USAGE
    assert "BLIS2021" in result.stderr


@pytest.mark.slow
def test_pytest_collects_twins(tmp_path: Path) -> None:
    spec = server_in(tmp_path, tags=["server"])
    (tmp_path / "pytest.ini").write_text("[pytest]\nblis_checks = observers\n", encoding="utf-8")
    missing = pytest_in(tmp_path, "--blis-update=unseen", "-m", "server").stdout
    assert "recordings/server is not a recording: it has no recording.json" in missing
    record(spec)
    assert "2 passed" in pytest_in(tmp_path, "--blis-update=unseen", "--blis-report=report.html").stdout
    record(spec, latency__beta=slower(1.5))
    again = pytest_in(tmp_path, "server.blis.yaml::twin+june")
    assert "changed on the server: step time" in again.stdout
    assert blis_in(tmp_path, "golden", "accept", "server@twin*").stdout == "accepted server@twin+june\n"
