"""What is fitted to requests whose distributions are known."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from blis_tui.api import load as load_experiment
from blis_tui.api import run
from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Streams
from blis_tui.live.traffic.fit import Fitted, choose_gaps, fit
from blis_tui.live.traffic.kinds import choose
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic, provenance
from blis_tui.model import PluginConfig
from blis_tui.output.tables import requests_csv, rows_csv
from blis_tui.results.report import Report
from blis_tui.spec.shipped import builtin
from blis_tui.spec.validate import validate
from blis_tui.workload.arrivals import create_gaps
from blis_tui.workload.distributions import LENGTHS

LENGTH_KINDS: dict[str, dict[str, float]] = {
    "constant": {"value": 77},
    "uniform": {"min": 100, "max": 900},
    "gaussian": {"mean": 500.0, "std_dev": 120.0, "min": 50, "max": 800},
    "exponential": {"mean": 300.0, "min": 1, "max": 4000},
    "lognormal": {"mu": 5.0, "sigma": 0.9, "min": 1, "max": 9000},
    "pareto-lognormal": {"alpha": 1.2, "xm": 2000.0, "mu": 5.0, "sigma": 0.5, "mix_weight": 0.1},
}


def fitted(source: object, *, stage_s: float | None = None, block: int = 16, **settings: object) -> Fitted:
    traffic = open_traffic(str(source), Choice(**settings))  # type: ignore[arg-type]
    ledger = Ledger(traffic.requests, block)
    return fit(ledger, "mine", traffic.name, provenance(traffic, len(ledger)), stage_s=stage_s, plugins=None)


@pytest.mark.parametrize("kind", LENGTH_KINDS)
def test_the_distribution_that_was_drawn_from_is_recognised(kind: str) -> None:
    drawn = builtin().create(LENGTHS, kind, LENGTH_KINDS[kind])
    stream = Streams(1).stream(kind)
    chosen = choose([drawn.sample(stream) for _ in range(4000)])
    assert (chosen.kind, chosen.ks < 0.035) == (kind, True)
    for name, value in LENGTH_KINDS[kind].items():
        if name not in ("min", "max"):
            assert chosen.data[name] == pytest.approx(value, rel=0.25 if kind == "pareto-lognormal" else 0.05)
    again = builtin().create(LENGTHS, kind, _settings(chosen.data))
    sample = [again.sample(stream) for _ in range(4000)]
    assert choose(sample).kind == kind


def _settings(data: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if key != "kind"}


def test_what_no_formula_is_like_becomes_a_table() -> None:
    values = [10] * 500 + [1000] * 300 + list(range(2000, 2200))
    chosen = choose(values)
    assert (chosen.kind, chosen.ks <= 0.02) == ("empirical", True)
    weights = chosen.data["weights"]
    assert isinstance(weights, dict)
    assert len(weights) <= 100
    mean = sum(int(tokens) * int(str(count)) for tokens, count in weights.items()) / len(values)
    assert mean == pytest.approx(sum(values) / len(values), abs=0.5)
    few = choose([1, 1, 1, 50, 50, 9000] * 300)
    assert (few.data, few.ks) == ({"kind": "empirical", "weights": {"1": 900, "50": 600, "9000": 300}}, 0.0)


@pytest.mark.parametrize(
    ("kind", "cv"), [("constant", None), ("poisson", None), ("gamma", 3.0), ("gamma", 0.4), ("weibull", 2.0)]
)
def test_the_process_that_was_drawn_from_is_recognised(kind: str, cv: float | None) -> None:
    gaps = create_gaps(builtin(), PluginConfig(kind=kind, settings={} if cv is None else {"cv": cv}), 20.0)
    stream = Streams(4).stream(kind)
    times = [0.0]
    for _ in range(4000):
        times.append(times[-1] + gaps.sample(stream))
    chosen = choose_gaps(times)
    assert (chosen.kind, chosen.ks < 0.03) == (kind, True)
    if cv is not None:
        assert chosen.data["cv"] == pytest.approx(cv, rel=0.15)


def test_the_document_is_like_what_it_was_made_from(tmp_path: Path) -> None:
    found = fitted("prefix-heavy", requests=2000, overrides=("requests=null",))
    for name, tolerance in (("requests/s", 0.1), ("CV of gaps", 0.1), ("prompt tokens", 0.05), ("output tokens", 0.1)):
        one = found.agreement[name]
        assert one.fitted == pytest.approx(one.trace, rel=tolerance)
        assert one.ks is None or one.ks < 0.05
    reuse = found.agreement["prefix reuse"]
    assert reuse.fitted == pytest.approx(reuse.trace, abs=0.01)
    assert (found.warnings, found.notes) == ((), ())
    data = yaml.safe_load(found.text)
    assert [(one["prefix"], one["slo_class"]) for one in data["clients"][:1]] == [
        ({"group": "system-prompt", "tokens": 1024}, "batch")
    ]
    path = tmp_path / "mine.yaml"
    path.write_text(found.text)
    assert validate(path).name == "mine"
    assert fitted("prefix-heavy", requests=2000, overrides=("requests=null",)).text == found.text
    assert "#   batch-system-prompt: arrivals " in found.text
    assert json.dumps(found.to_dict())


def test_prefixes_stand_for_longer_chains(tmp_path: Path) -> None:
    # Each prompt goes on from an earlier one of its family, by a part of its own.
    lines = ["arrival_time_us,input_tokens,output_tokens,prefix_segments"]
    for number in range(900):
        family, depth = number % 3, number // 3 * 7 % 10
        parts = [[f"f{family}-{step}", 64] for step in range(depth + 1)]
        cell = json.dumps(parts).replace('"', '""')
        lines.append(f'{number * 50_000 + number % 7 * 9000},{1000 + number % 11},20,"{cell}"')
    path = tmp_path / "chains.csv"
    path.write_text("\n".join(lines) + "\n")
    found = fitted(path)
    reuse = found.agreement["prefix reuse"]
    assert reuse.trace is not None
    assert reuse.trace > 0.3
    clients = yaml.safe_load(found.text)["clients"]
    shared = sum(client["share"] * client["prefix"]["tokens"] for client in clients if "prefix" in client)
    assert shared / 900 / 1005 == pytest.approx(reuse.trace, abs=0.005)
    assert reuse.fitted == pytest.approx(reuse.trace, abs=0.02)
    assert found.notes == (
        "what prompts share is stood for by prefixes of some lengths, each the same for all its requests",
    )


def test_a_rate_that_changes_is_told_and_can_be_followed(tmp_path: Path) -> None:
    rows = [f"{n * 1_000_000},100,20" for n in range(300)]
    rows += [f"{300_000_000 + n * 100_000},100,20" for n in range(3000)]
    path = tmp_path / "ramp.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    assert any("the rate changes over time" in text for text in fitted(path).warnings)
    staged = fitted(path, stage_s=100.0)
    stages = yaml.safe_load(staged.text)["stages"]
    assert [stage["rate_per_s"] for stage in stages] == [1.0] * 3 + [10.0] * 3
    assert (staged.clients[0].arrivals.kind, staged.warnings) == ("constant", ())


def test_the_last_stage_ends_with_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "steady.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n" + "".join(f"{n}00000,9,9\n" for n in range(1000)))
    staged = fitted(path, stage_s=60.0)
    assert yaml.safe_load(staged.text)["stages"] == [
        {"rate_per_s": 10.0, "duration_s": length} for length in (60.0, 40.0)
    ]
    assert yaml.safe_load(fitted(path, stage_s=1e9).text)["stages"] == [{"rate_per_s": 10.0, "duration_s": 100.0}]
    with pytest.raises(PolicyError, match=r"the trace has 99,900 stages of 0.001 s, a document at most 10,000"):
        fitted(path, stage_s=0.001)


def test_too_many_tenants_are_not_told_apart(tmp_path: Path) -> None:
    rows = "".join(f"{n * 1000},9,9,t{n % 50}\n" for n in range(200))
    path = tmp_path / "tenants.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens,tenant_id\n" + rows)
    found = fitted(path)
    assert [(client.id, client.requests) for client in found.clients] == [("requests", 200)]
    assert found.notes == ("tenants are not distinguished: there are too many",)


def test_requests_that_all_arrive_at_once_have_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "batch.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n5,9,9\n5,9,9\n")
    with pytest.raises(PolicyError, match="the requests have no rate: all arrive at once"):
        fitted(path)
    path.write_text("arrival_time_us,input_tokens,output_tokens\n5,9,9\n")
    with pytest.raises(PolicyError, match="one request has no rate, and no distribution"):
        fitted(path)


THINKER = {
    "id": "thinker",
    "input_tokens": {"kind": "uniform", "min": 50, "max": 150},
    "output_tokens": {"kind": "uniform", "min": 100, "max": 300},
    "reasoning": {"ratio": {"kind": "beta", "alpha": 8, "beta": 2}},
    "multimodal": {
        "images": {"probability": 0.5, "count": {"kind": "uniform", "min": 1, "max": 3}, "tokens": 768},
        "audio": {"probability": 0.2, "tokens": {"kind": "uniform", "min": 20, "max": 60}},
    },
}


def traced(tmp_path: Path, client: Mapping[str, object], **load: object) -> tuple[Path, Report]:
    """A run's own table as a trace, and its report."""
    workload = {"rate_per_s": 20, **load, "clients": [client]}
    report = run(load_experiment("quickstart", set={"workload": workload, "expect": []}))
    file = tmp_path / "trace.csv"
    file.write_text("".join(requests_csv(report.rows, report.rows.columns)))
    return file, report


def test_reasoning_and_media_are_carried_over(tmp_path: Path) -> None:
    file, report = traced(tmp_path, THINKER, requests=600)
    found = fitted(file)
    (client,) = yaml.safe_load(found.text)["clients"]
    rows = [*report.rows]
    for name, one in (("images", "image_tokens"), ("audio", "audio_tokens")):
        there = [getattr(row, one) for row in rows if getattr(row, one)]
        assert client["multimodal"][name]["probability"] == round(len(there) / len(rows), 6)
    assert client["multimodal"]["images"]["tokens"]["weights"].keys() == {"768", "1536", "2304"}
    assert "video" not in client["multimodal"]
    assert client["input_tokens"] == {"kind": "uniform", "min": 50, "max": 150}
    path = tmp_path / "fitted.yaml"
    path.write_text(found.text)
    again = run(load_experiment("quickstart", set={"workload": str(path), "expect": []}))
    assert again.reasoning is not None
    assert report.reasoning is not None
    assert again.reasoning.share == pytest.approx(report.reasoning.share, abs=0.01)
    assert again.multimodal is not None
    assert report.multimodal is not None
    assert again.multimodal.image_tokens == pytest.approx(report.multimodal.image_tokens, rel=0.15)
    agreement = found.agreement["reasoning tokens"]
    assert agreement.trace == pytest.approx(sum(row.reasoning_tokens for row in rows) / len(rows))
    assert agreement.ks is not None
    assert agreement.ks < 0.05


@pytest.mark.parametrize("history", ["dropped", "kept"])
def test_what_sessions_keep_of_their_reasoning_is_found(history: str, tmp_path: Path) -> None:
    thinker = {**THINKER, "session": {"turns": 4}, "reasoning": {"ratio": 0.75, "history": history}}
    file, report = traced(tmp_path, thinker, sessions=60)
    (client,) = yaml.safe_load(fitted(file).text)["clients"]
    assert client["session"]["history"] == "full"
    assert client["reasoning"]["history"] == history
    # New text is as long in later prompts as in first ones, whatever stood before it.
    assert (client["input_tokens"]["min"], client["input_tokens"]["max"]) == pytest.approx((50, 150), abs=3)
    shown = sum(row.image_tokens > 0 for row in report.rows if row.round_index == 0) / 60
    assert client["multimodal"]["images"]["probability"] == pytest.approx(shown, abs=0.15)


def test_text_alone_says_nothing_of_either(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, {key: THINKER[key] for key in ("id", "input_tokens", "output_tokens")}, requests=150)
    found = fitted(file)
    assert "reasoning" not in found.text
    assert "multimodal" not in found.text
    assert "beside" not in json.dumps(found.to_dict())


def test_requests_that_arrive_together_are_like_no_process(tmp_path: Path) -> None:
    """Stages do not help: three requests come at each whole second."""
    rows = [f"{at // 3 * 1_000_000},{100 + at % 50},{40 + at % 30}\n" for at in range(300)]
    path = tmp_path / "rounded.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n" + "".join(rows))
    warnings = fitted(path).warnings
    assert warnings[0].startswith("67 % of the requests arrive at the same time as the one before, which no arrival")
    assert not any("try --stage 60, or" in warning for warning in warnings)
    assert any(warning.endswith("); replay the trace itself") for warning in warnings)


def test_what_no_fit_sets_is_noted(tmp_path: Path) -> None:
    columns = "arrival_time_us,input_tokens,output_tokens,adapter,deadline_us,max_output_tokens\n"
    rows = "".join(f"{at * 90_000},{at + 20},{at + 5},sql,{at * 90_000 + 7},{at + 9}\n" for at in range(120))
    (tmp_path / "told.csv").write_text(columns + rows)
    assert fitted(tmp_path / "told.csv").notes == (
        "LoRA adapters are not fitted: add `adapters` to the clients of 120 requests of the trace",
        "deadlines are not fitted: add `timeout_us` to the clients of 120 requests of the trace",
        "budgets of answers are not fitted: add `max_output_tokens` to the clients of 120 requests of the trace",
    )


def test_conversations_with_adapters_have_no_prefix_of_them(tmp_path: Path) -> None:
    columns = "arrival_time_us,input_tokens,output_tokens,session_id,round_index,adapter,e2e_us\n"
    rows = "".join(
        f"{at * 900_000 + turn * 300_000},{40 + 60 * turn},20,s{at},{turn},sql-{at % 2},100000\n"
        for at in range(50)
        for turn in range(2)
    )
    (tmp_path / "tuned.csv").write_text(columns + rows)
    (client,) = yaml.safe_load(fitted(tmp_path / "tuned.csv").text)["clients"]
    assert "prefix" not in client
    assert client["session"]["think_time_ms"] == {"kind": "constant", "value": 200}


def test_answers_of_a_tracev2_have_times(tmp_path: Path) -> None:
    session = {"turns": 3, "think_time_ms": 700}
    client = {"id": "c", "input_tokens": 50, "output_tokens": 9, "session": session}
    chats = {"rate_per_s": 2, "sessions": 20, "clients": [client]}
    experiment = load_experiment("quickstart", set={"workload": chats, "expect": []})
    (tmp_path / "v2.csv").write_text("".join(rows_csv(run(experiment).rows)))
    (found,) = yaml.safe_load(fitted(tmp_path / "v2.csv").text)["clients"]
    assert "pacing" not in found["session"]
    assert found["session"]["think_time_ms"] == {"kind": "constant", "value": 700}


def test_equal_gaps_are_not_far_from_equal_gaps(tmp_path: Path) -> None:
    path = tmp_path / "slow.csv"
    for gap_us in (7_000_000, 9_000_000_000_000):
        rows = "".join(f"{at * gap_us},9,9\n" for at in range(200))
        path.write_text("arrival_time_us,input_tokens,output_tokens\n" + rows)
        found = fitted(path)
        assert (found.clients[0].arrivals.kind, found.warnings) == ("constant", ())
        assert found.agreement["CV of gaps"].ks is None


def test_what_no_document_can_have_is_noted_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    columns = "timestamp_s,input_tokens,output_tokens,session_id\n"
    rows = "".join(f"{at * 999 + turn * 2e6 + turn * at},9,9,s{at}\n" for at in range(30) for turn in range(2))
    path.write_text(columns + rows)
    found = fitted(path)
    assert found.notes[-1] == (
        "more than 999,999,999 milliseconds between turns are fitted as that many: a document cannot have more"
    )
    think_time_ms = yaml.safe_load(found.text)["clients"][0]["session"]["think_time_ms"]
    assert think_time_ms == {"kind": "constant", "value": 999_999_999}
    path.write_text("arrival_time_us,input_tokens,output_tokens\n" + "".join(f"{at // 4},9,9\n" for at in range(99)))
    with pytest.raises(PolicyError, match="more than 1,000,000 requests a second"):
        fitted(path)
