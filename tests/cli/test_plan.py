"""``blis-tui plan``: what it prints, and how it fails."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli

SHORT = (
    "quickstart",
    *("--set", "workload.clients.0.input_tokens=500", "--set", "workload.clients.0.output_tokens=100"),
    *("--set", "engine.max_num_seqs=2", "--set", "workload.requests=200", "--seeds", "2", "--jobs", "1"),
)
"""An instance serves about one request a second."""
SLO = ("--slo", "latency.ttft_ms.p90<=500")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments, "--no-progress"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def test_the_answer_is_a_sentence_with_the_runs_that_it_rests_on(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    arguments = (*SHORT, *SLO, "--rate", "2.1", "--store", str(store), "--set", "hardware.cost_per_hour_usd=2.5")
    table = plan(*arguments)
    assert table.exit_code == 0, table.output
    data = plan(*arguments, "--format", "json", "-o", str(file))
    assert data.exit_code == 0
    assert data.output == ""
    document = json.loads(file.read_text(encoding="utf-8"))
    (one,) = document["configurations"]
    size = one["size"]
    assert table.output.startswith(
        f"{size} instances of qwen3-14b on h100 ({size} GPUs, {2.5 * size:.2f} USD/h) sustain 2.1 requests/s"
        " with latency.ttft_ms.p90 <= 500."
    )
    # Of the runs that were made, those at the answer and beside it are there whole.
    whole = {tried["size"]: tried for tried in one["tried"] if len(tried["runs"]) == 2}
    assert {size - 1, size} <= whole.keys()
    for at, tried in whole.items():
        figures = [run["figures"]["latency.ttft_ms.p90"] for run in tried["runs"]]
        assert tried["holding"] == len([figure for figure in figures if figure <= 500])
        assert (tried["holding"] == 2) == (at >= size)
        (line,) = [line for line in table.output.splitlines() if line[1:].split()[:1] == [str(at)]]
        assert f"{tried['holding']} of 2" in line


def test_nothing_that_holds_is_a_failed_check() -> None:
    result = plan(*SHORT, "--slo", "latency.ttft_ms.p90<=1", "--max-rate", "--store", "none")
    assert result.exit_code == 1
    assert "no rate holds, because even on an idle cluster latency.ttft_ms.p90" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*SHORT, "--rate", "5"), 2, "no bound given: add one, such as --slo 'latency.ttft_ms.p99<=300'"),
        ((*SHORT, *SLO, "--rate", "5", "--max-rate"), 2, "cannot be combined"),
        ((*SHORT, *SLO, "--rate", "5", "--export", "vllm", "-"), 2, "--export needs a file"),
        ((*SHORT, *SLO, "--rate", "0"), 2, "Invalid value for '--rate': 0.0 is not in the range x>0"),
        ((*SHORT, "--slo", "latency.ttft_ms.p99<=-1"), 2, "`latency.ttft_ms.p99` is never below 0"),
        ((*SHORT, "--slo", "kv.hit_rate>=30"), 2, "`kv.hit_rate` is a share, never above 1"),
        ((*SHORT, "--slo", "sessions.started<=30"), 2, "only where clients hold sessions"),
        ((*SHORT, "--slo", "cost.usd_per_hour<=30"), 2, "h100 has no price: --price h100=2.5"),
        ((*SHORT, "--slo", "requests.completed>=30"), 2, "`requests.completed` counts over a whole run"),
        ((*SHORT, "--slo", "kv.preemptions<=3"), 2, "or allow none at all: kv.preemptions<=0"),
        ((*SHORT, *SLO, "--sizes", "cluster.instances=1..2", "--max-rate"), 2, "--sizes and --max-rate cannot"),
        ((*SHORT, *SLO, "--precision", "0.1", "--rate", "5"), 2, "--precision is for --max-rate"),
        ((*SHORT, *SLO, "--sizes", "cluster.instances=9..2"), 2, "9 is more than 2"),
        ((*SHORT, *SLO, "--sizes", "many"), 2, "write it as cluster.instances=1..64"),
        ((*SHORT, *SLO, "--axis", "cluster.instances=1,2"), 2, "is the key that may grow"),
        (
            (*SHORT, *SLO, "--set", "cluster.instances=4"),
            2,
            "--set cluster.instances has no effect: it is what may grow (--sizes)",
        ),
        (
            (*SHORT, *SLO, "--rate", "5", "--set", "workload.rate_per_s=9"),
            2,
            "--set workload.rate_per_s has no effect: it is what is planned for (--rate)",
        ),
        ((*SHORT, *SLO, "--sizes", "instances=1..4"), 2, "  = help: it is `cluster.instances` here\n"),
        ((*SHORT, *SLO, "--tensor-parallel", "1,2,1"), 2, "`1` is listed twice"),
        ((*SHORT, *SLO, "--confidence", "1"), 2, "--confidence"),
        ((*SHORT, "--slo", "latency.ttft_ms.p98<=120"), 2, "there is no metric named"),
        (
            (*SHORT, *SLO, "--hardware", "h100,h900"),
            2,
            "no hardware is named `h900`\n --> --hardware\n  |\n1 | h100,h900\n",
        ),
        ((*SHORT, *SLO, "--tensor-parallel", "a"), 2, "found the text `a`\n --> --tensor-parallel\n  |\n1 | a\n"),
        ((*SHORT, *SLO, "--sizes", "nothing.here=1..3"), 2, "unknown key `nothing`\n --> --sizes"),
        (
            (*SHORT, *SLO, "--sizes", "cluster.instances=1..20000"),
            2,
            "must be at most 10000, found `20000`\n --> --sizes",
        ),
        (
            (*SHORT, *SLO, "--rate", "1e9"),
            2,
            "90 s at 1e+09 requests/s are 90,000,000,000, and a run has at most 200,000",
        ),
        ((*SHORT, *SLO, "--rate", "1e7", "--duration", "1e-3"), 2, "`rate_per_s` must be at most 1000000"),
        ((*SHORT, *SLO, "--rate", "1e-300"), 2, "comes after more than 146,000 years"),
        ((*SHORT, *SLO, "--set", "workload.rate_per_s=300000"), 2, "let them arrive for at most 0.6667 s: --duration"),
        ((*SHORT, *SLO, "--rate", "0.001", "--set", "horizon_us=1000"), 2, "no request arrives before the run ends"),
        (("nowhere", *SLO), 3, "no study and no experiment is named `nowhere`"),
    ],
)
def test_mistakes_are_told(arguments: tuple[str, ...], code: int, message: str) -> None:
    result = plan(*arguments)
    assert result.exit_code == code, result.output
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("rate", ["1e9", "1e-300"])
def test_a_rate_that_no_run_can_have_is_an_error_at_its_option_before_anything_runs(rate: str) -> None:
    result = CliRunner().invoke(cli, ["plan", *SHORT, *SLO, "--rate", rate, "--progress", "--store", "none"])
    assert result.exit_code == 2
    assert "--> --rate" in result.output
    assert "runs" not in result.output.replace("a run has", "")


def test_an_experiment_that_ends_early_is_planned_for_by_what_arrives_until_then() -> None:
    """Requests that come one by one come later than that, and would say that nothing holds."""
    result = plan(*SHORT, *SLO, "--rate", "5", "--set", "horizon_us=100000000", "--duration", "1", "--store", "none")
    assert "even on an idle cluster" not in result.output
    assert result.exit_code == 0, result.output


def test_a_load_without_one_rate_is_told(tmp_path: Path) -> None:
    users = tmp_path / "users.blis.yaml"
    users.write_text(
        """
apiVersion: blis/v1
kind: Experiment
metadata: {name: users}
model: qwen3-14b
hardware: h100
workload:
  requests: 20
  clients:
    - id: chat
      arrivals: {kind: closed-loop, users: 4}
      input_tokens: 100
      output_tokens: 10
""",
        encoding="utf-8",
    )
    result = plan(str(users), *SLO, "--max-rate", "--store", "none", "--jobs", "1")
    assert result.exit_code == 3
    assert "the rate of this workload cannot be varied: its clients are users of a closed loop" in result.output
    # For the load as it is, there is an answer.
    assert plan(str(users), *SLO, "--seeds", "1", "--store", "none", "--jobs", "1").exit_code == 0


def test_a_case_of_the_experiment_is_planned_for() -> None:
    ends = ("--set", "workload.requests=40", "--set", "horizon_us=1000000000000", "--duration", "1")
    few = (*ends, "--jobs", "1", "--store", "none")
    slo = ("--slo", "latency.e2e_ms.p90<=9000", "--format", "json")
    result = plan("lora-adapters", "--case", "round-robin", *few, *slo)
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.output)["configurations"]
    seen = {run["figures"]["latency.e2e_ms.p90"] for tried in one["tried"] for run in tried["runs"]}
    other = plan("lora-adapters", *few, *slo)
    (one,) = json.loads(other.output)["configurations"]
    assert seen != {run["figures"]["latency.e2e_ms.p90"] for tried in one["tried"] for run in tried["runs"]}
    assert plan("lora-adapters", "--case", "none", *few, *SLO).exit_code == 2
