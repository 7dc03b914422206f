"""Each key of BLIS's formats: what it becomes, or what the list says about it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.api import load, run
from blis_tui.base.errors import InputError, SpecError
from blis_tui.spec.foreign.blis import import_hardware, import_policy, import_workload
from blis_tui.spec.foreign.hf_config import import_model
from blis_tui.spec.foreign.reading import Fate, Imported, as_name, notes_text
from blis_tui.spec.validate import validate

DATA = Path(__file__).with_name("data")
WORKLOADS = ["workload-v1", "workload-v2", "workload-lossy", "inference-perf"]
POLICIES = ["policy-full", "policy-lossy"]
CLIENT: dict[str, Any] = {
    "id": "c",
    "rate_fraction": 1.0,
    "input_distribution": {"type": "constant", "params": {"value": 20}},
    "output_distribution": {"type": "constant", "params": {"value": 10}},
}
GPU = {"TFlopsPeak": 100, "BwPeakTBs": 2, "mfuPrefill": 0.5, "mfuDecode": 0.3, "MemoryGiB": 80}
CONFIG = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
EXPERIMENT = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {{name: e}}\nmodel: {0}\nhardware: {1}\nworkload: {2}\npolicy: {3}\nhorizon_us: 4000000\nengine: {{lora: {{max_loras: 4}}}}\n"  # noqa: E501


def windows(*spans: tuple[int, int, float | None]) -> dict[str, Any]:
    """The life of a client: from and until when in seconds, and its rate then."""
    found = [
        {"start_us": start * 1_000_000, "end_us": end * 1_000_000, "trace_rate": rate} for start, end, rate in spans
    ]
    return {"lifecycle": {"windows": found}}


def shown(documents: list[Imported]) -> str:
    """Documents and list as one text, without the path to this folder."""
    notes = notes_text(documents[0].notes).replace(f"{DATA}/", "")
    return "".join(document.text for document in documents) + "=" * 40 + "\n" + notes


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "given.yaml"
    path.write_text(json.dumps(data, indent=1))
    return path


def fates(imported: Imported) -> dict[str, Fate]:
    return {".".join(map(str, note.path)): note.fate for note in imported.notes}


def client(tmp_path: Path, **keys: object) -> tuple[dict[str, Any], dict[str, Fate]]:
    """The first client of a workload whose only client says ``keys``; and what the list says about that client."""
    given = {"version": "2", "aggregate_rate": 2, "num_requests": 5, "clients": [{**CLIENT, **keys}]}
    imported = import_workload(written(tmp_path, given))
    found = yaml.safe_load(imported.text)["clients"][0]
    return found, {key.removeprefix("clients.0."): fate for key, fate in fates(imported).items()}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads(name: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown([import_workload(DATA / f"{name}.yaml")]))


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown([import_policy(DATA / f"{name}.yaml")]))


def test_hardware(file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown(import_hardware(DATA / "hardware.json")))


def test_model(file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown([import_model(DATA / "config.json")]))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("policy", POLICIES)
def test_an_experiment_of_imported_documents_runs(workload: str, policy: str, tmp_path: Path) -> None:
    documents = [
        import_model(DATA / "config.json"),
        import_hardware(DATA / "hardware.json")[0],
        import_workload(DATA / f"{workload}.yaml"),
        import_policy(DATA / f"{policy}.yaml"),
    ]
    for document in documents:
        path = tmp_path / f"{document.kind}.yaml"
        path.write_text(document.text)
        assert validate(path).name == document.name
    experiment = tmp_path / "e.blis.yaml"
    experiment.write_text(EXPERIMENT.format(*(f"./{document.kind}.yaml" for document in documents)))
    assert run(load(experiment)).requests.completed > 0


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"type": "gaussian", "params": {"mean": 9, "std_dev": 2, "min": 0, "max": 20.9}},
            {"kind": "gaussian", "mean": 9, "std_dev": 2, "min": 1, "max": 20},
        ),
        (
            {"type": "gaussian", "params": {"mean": 9, "std_dev": 2, "min": 7, "max": 7}},
            {"kind": "constant", "value": 7},
        ),
        (
            {"type": "gaussian", "params": {"mean": 9.5, "std_dev": 0, "min": 1, "max": 99}},
            {"kind": "constant", "value": 10},
        ),
        ({"type": "exponential", "params": {"mean": 9.5}}, {"kind": "exponential", "mean": 9.5}),
        (
            {"type": "exponential", "params": {"mean": 9, "min": 2, "max": 50}},
            {"kind": "exponential", "mean": 9, "min": 2, "max": 50},
        ),
        ({"type": "lognormal", "params": {"mu": 5, "sigma": 1}}, {"kind": "lognormal", "mu": 5, "sigma": 1}),
        (
            {"type": "pareto_lognormal", "params": {"alpha": 2, "xm": 9, "mu": 5, "sigma": 1, "mix_weight": 0.1}},
            {"kind": "pareto-lognormal", "alpha": 2, "xm": 9, "mu": 5, "sigma": 1, "mix_weight": 0.1},
        ),
        ({"type": "constant", "params": {"value": 10.9}}, {"kind": "constant", "value": 10}),
        ({"type": "constant", "params": {"value": 0}}, {"kind": "constant", "value": 1}),
        (
            {"type": "empirical", "params": {"128": 0.5, "16": 0.25, "8": 0}},
            {"kind": "empirical", "weights": {"16": 0.25, "128": 0.5}},
        ),
    ],
)
def test_lengths(theirs: object, ours: object, tmp_path: Path) -> None:
    found, fates = client(tmp_path, input_distribution=theirs)
    assert found["input_tokens"] == ours
    assert not fates


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"process": "poisson"}, {"kind": "poisson"}),
        ({"process": "constant"}, {"kind": "constant"}),
        ({"process": "gamma"}, {"kind": "gamma"}),
        ({"process": "gamma", "cv": 3.5}, {"kind": "gamma", "cv": 3.5}),
        ({"process": "weibull", "cv": 0.5}, {"kind": "weibull", "cv": 0.5}),
        ({}, {"kind": "poisson"}),
    ],
)
def test_arrivals(theirs: object, ours: object, tmp_path: Path) -> None:
    found, fates = client(tmp_path, arrival=theirs)
    assert (found["arrivals"], fates) == (ours, {})


@pytest.mark.parametrize(
    ("keys", "ours"),
    [
        ({"id": "x y"}, {"id": "x y"}),
        ({"id": ""}, {"id": "client-0"}),
        ({"rate_fraction": 0.25}, {"share": 0.25}),
        ({"tenant_id": "acme"}, {"tenant": "acme"}),
        ({"slo_class": "batch"}, {"slo_class": "batch"}),
        ({"slo_class": ""}, {}),
        ({"timeout": 5000}, {"timeout_us": 5000}),
        ({"timeout": 0}, {}),
        ({"prefix_group": "g", "prefix_length": 64}, {"prefix": {"group": "g", "tokens": 64}}),
        ({"prefix_group": "g"}, {"prefix": {"group": "g", "tokens": 50}}),
        ({"streaming": False, "network": None, "model": "", "concurrency": 0}, {}),
    ],
)
def test_keys_of_clients(keys: dict[str, object], ours: dict[str, object], tmp_path: Path) -> None:
    plain, _ = client(tmp_path)
    found, fates = client(tmp_path, **keys)
    assert (found, fates) == ({**plain, **ours}, {})


@pytest.mark.parametrize(
    ("keys", "key", "fate"),
    [
        ({"model": "llama"}, "model", Fate.NOT_CARRIED),
        ({"adapter": "x"}, "adapter", Fate.ELSEWHERE),
        ({"slo_target_us": 9}, "slo_target_us", Fate.NOT_CARRIED),
        ({"think_time_us": 9}, "think_time_us", Fate.NO_EFFECT),
        ({"lifecycle": {"windows": []}}, "lifecycle", Fate.NO_EFFECT),
        (
            {"reasoning": {"reason_ratio_distribution": {"type": "lognormal"}}},
            "reasoning.reason_ratio_distribution",
            Fate.NOT_CARRIED,
        ),
        ({"multimodal": {"image_distribution": {}}}, "multimodal", Fate.APPROXIMATED),
        ({"streaming": True}, "streaming", Fate.NO_EFFECT),
        ({"closed_loop": True}, "closed_loop", Fate.NO_EFFECT),
        ({"network": {"rtt_ms": 3}}, "network", Fate.NO_EFFECT),
        ({"prefix_length": 3}, "prefix_length", Fate.NO_EFFECT),
        ({"arrival": {"process": "poisson", "cv": 2}}, "arrival.cv", Fate.NO_EFFECT),
        ({"arrival": {"process": "gamma", "shape": 2}}, "arrival.shape", Fate.NOT_CARRIED),
        ({"arrival": {"process": "gamma", "cv": 11}}, "arrival.cv", Fate.NO_EFFECT),
        ({"arrival": {"pace": 3}}, "arrival.pace", Fate.NOT_CARRIED),
        ({"unheard_of": 1}, "unheard_of", Fate.NOT_CARRIED),
    ],
)
def test_keys_of_clients_that_are_listed(keys: dict[str, object], key: str, fate: Fate, tmp_path: Path) -> None:
    assert client(tmp_path, **keys)[1] == {key: fate}


@pytest.mark.parametrize(
    ("keys", "ours", "listed"),
    [
        ({"num_requests": 9}, {"requests": 9}, {}),
        ({"num_requests": 0, "horizon": 5}, {}, {"horizon": Fate.ELSEWHERE}),
        ({"num_requests": 0}, {}, {"": Fate.ELSEWHERE}),
        ({"num_requests": 9, "seed": 3}, {"requests": 9}, {"seed": Fate.ELSEWHERE}),
        ({"num_requests": 9, "category": "language"}, {"requests": 9}, {"category": Fate.NO_EFFECT}),
        (
            {"num_requests": 9, "goodput_slo_targets": {"a": 1}},
            {"requests": 9},
            {"goodput_slo_targets": Fate.NOT_CARRIED},
        ),
        ({"num_requests": 9, "servegen_data": {"path": "x"}}, {"requests": 9}, {"servegen_data": Fate.NOT_CARRIED}),
        ({"num_requests": 9, "typo": 1}, {"requests": 9}, {"typo": Fate.NOT_CARRIED}),
        ({"num_requests": 9, "version": 2}, {"requests": 9}, {}),
    ],
)
def test_keys_of_workloads(
    keys: dict[str, object], ours: dict[str, object], listed: dict[str, Fate], tmp_path: Path
) -> None:
    imported = import_workload(written(tmp_path, {"version": "2", "aggregate_rate": 2, "clients": [CLIENT], **keys}))
    document = yaml.safe_load(imported.text)
    assert {key: document[key] for key in document if key == "requests"} == ours
    assert fates(imported) == listed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither `clients` nor `cohorts`"),
        ([], "expected a map of keys"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "rate_fraction": None}]}, "lacks the key `rate_fraction`"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "rate_fraction": 0}]}, "`share` must be greater than 0"),
        ({"aggregate_rate": "x", "clients": [CLIENT]}, "expected a number, found `x`"),
        ({"aggregate_rate": 0, "clients": [CLIENT]}, "no `aggregate_rate`"),
        ({"aggregate_rate": 0, "clients": [{**CLIENT, **windows((0, 9, 2))}, CLIENT]}, "windows` with a `trace_rate`"),
        ({"aggregate_rate": 0, "clients": [{**CLIENT, **windows((0, 9, 2), (9, 12, None))}]}, "key `trace_rate`"),
        ({"clients": [{**CLIENT, **windows((0, 9, 2))}], "cohorts": [{**CLIENT, "population": 1}]}, "has a `spike`"),
        ({"aggregate_rate": -1, "clients": [CLIENT]}, "`rate_per_s` must be greater than 0"),
        ({"aggregate_rate": 1, "version": 3, "clients": [CLIENT]}, "unknown version `3`"),
        ({"aggregate_rate": 1, "category": "poems", "clients": [CLIENT]}, "unknown value `poems`"),
        ({"version": "2", "aggregate_rate": 1, "clients": [{**CLIENT, "slo_class": "realtime"}]}, "`realtime`"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "arrival": {"process": "gama"}}]}, "did you mean `gamma`?"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "arrival": {"process": "gamma", "cv": -1}}]}, "`cv` must be"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "input_distribution": None}]}, "lacks the key `input_distri"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "input_distribution": {"type": "zipf"}}]}, "`zipf`"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "timeout": -4}]}, "`timeout` must be at least 0"),
        ({"aggregate_rate": 1, "cohorts": [CLIENT]}, "lacks the key `population`"),
        ({"aggregate_rate": 1, "clients": [{**CLIENT, "arrival": {"process": "gamma", "cv": 1e-300}}]}, "`cv` must be"),
        ({"aggregate_rate": 1, "cohorts": [{**CLIENT, "population": 1, "spike": 7}]}, "expected a map, found"),
        ({"aggregate_rate": 1e300, "clients": [CLIENT]}, "`aggregate_rate` must be at most 2^64"),
        ({"servegen_data": {"path": "x"}}, "nothing of the workload can be imported"),
        (
            {"inference_perf": {"stages": [{"rate": 1, "duration": 1}] * 2, "shared_prefix": {}}},
            "only a load of one stage",
        ),
        ({"inference_perf": {"stages": []}}, "lacks the key `shared_prefix`"),
        ({"inference_perf": {"stages": [{"rate": 1, "duration": 1}], "shared_prefix": {}}}, "must be positive"),
    ],
)
def test_workloads_that_cannot_be_imported(given: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        import_workload(written(tmp_path, given))
    assert message in str(caught.value)
    assert all(
        diagnostic.line >= 1 and diagnostic.file.endswith("given.yaml") for diagnostic in caught.value.diagnostics
    )


def test_a_wrong_parameter_is_marked_in_the_input(tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text((DATA / "workload-v2.yaml").read_text().replace("sigma: 0.5", "sigma: 11"))
    with pytest.raises(SpecError) as caught:
        import_workload(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.source_line[diagnostic.column - 1 : diagnostic.end_column - 1] == "11"


def test_cohorts_share_the_rate_with_what_is_left_out(tmp_path: Path) -> None:
    both = {"spike": {"start_time_us": 0, "duration_us": 1}, "drain": {"start_time_us": 0, "ramp_duration_us": 1}}
    cohorts = [{**CLIENT, "population": 2, "rate_fraction": 3}, {**CLIENT, "population": 2, **both}]
    imported = import_workload(written(tmp_path, {"aggregate_rate": 8, "num_requests": 5, "cohorts": cohorts}))
    document = yaml.safe_load(imported.text)
    assert [(one["id"], one["share"]) for one in document["clients"]] == [("c-0", 1.5), ("c-1", 1.5)]
    assert document["rate_per_s"] == 6
    assert fates(imported) == {
        "cohorts.1.spike": Fate.NOT_CARRIED,
        "cohorts.1.drain": Fate.NOT_CARRIED,
        "aggregate_rate": Fate.APPROXIMATED,
    }


def factor_at(curve: dict[str, Any], time_s: float) -> float:
    """By the plain rule: linear between points, then the last one's."""
    points = [(one["at_s"], one["factor"]) for one in curve["points"]]
    for (start, low), (end, high) in pairwise(points):
        if start <= time_s <= end:
            return float(low + (high - low) * (time_s - start) / (end - start))
    return float(points[-1][1])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (
            {"spike": {"start_time_us": 2_000_000, "duration_us": 3_000_000}},
            {0: 0, 1.9: 0, 2.1: 1, 4.9: 1, 5.1: 0, 99: 0},
        ),
        ({"drain": {"start_time_us": 2_000_000, "ramp_duration_us": 4_000_000}}, {0: 1, 2: 1, 4: 0.5, 6: 0, 99: 0}),
        (
            {"diurnal": {"peak_hour": 12, "peak_to_trough_ratio": 5}},
            {12.5 * 3600: 1, 0.5 * 3600: 0.2, 6.5 * 3600: 0.6, 18.5 * 3600: 0.6, 90_000: 0},
        ),
    ],
)
def test_courses_of_cohorts(pattern: dict[str, object], expected: dict[float, float], tmp_path: Path) -> None:
    given = {"aggregate_rate": 8, "num_requests": 5, "cohorts": [{**CLIENT, "population": 1, **pattern}]}
    (found,) = yaml.safe_load(import_workload(written(tmp_path, given)).text)["clients"]
    assert {at: factor_at(found["rate_curve"], at) for at in expected} == pytest.approx(expected)


def test_windows_of_clients(tmp_path: Path) -> None:
    windows = [{"start_us": 0, "end_us": 2_000_000}, {"start_us": 5_000_000, "end_us": 7_000_000}]
    found, listed = client(tmp_path, lifecycle={"windows": windows})
    assert [factor_at(found["rate_curve"], at) for at in (0, 1, 1.9, 2.1, 4.9, 5.1, 6.9, 7.1)] == [
        1,
        1,
        1,
        0,
        0,
        1,
        1,
        0,
    ]
    assert not listed


def test_windows_with_rates_of_their_own(tmp_path: Path) -> None:
    """Each time has the rates that the windows say then, whatever the shares of the clients are."""
    spike = {"start_time_us": 30_000_000, "duration_us": 20_000_000, "trace_rate": 9}
    given = {
        "aggregate_rate": 0,
        "clients": [
            {**CLIENT, "id": "a", **windows((0, 20, 6), (10, 20, 2), (40, 60, 3))},
            {**CLIENT, "id": "b", "rate_fraction": 7, **windows((20, 40, 5))},
        ],
        "cohorts": [{**CLIENT, "id": "m", "population": 3, "spike": spike}],
    }
    imported = import_workload(written(tmp_path, given))
    document = yaml.safe_load(imported.text)
    shares = [one["share"] for one in document["clients"]]
    rates = [document["rate_per_s"] * share / sum(shares) for share in shares]
    expected = {
        5: [6, 0, 0, 0, 0],
        15: [8, 0, 0, 0, 0],
        25: [0, 5, 0, 0, 0],
        35: [0, 5, 3, 3, 3],
        45: [3, 0, 3, 3, 3],
        55: [3, 0, 0, 0, 0],
        65: [0, 0, 0, 0, 0],
    }
    for at, there in expected.items():
        found = [rate * factor_at(one["rate_curve"], at) for rate, one in zip(rates, document["clients"], strict=True)]
        assert found == pytest.approx(there), at
    listed = fates(imported)
    assert listed["clients.0.lifecycle"] is listed["cohorts.0.spike"] is Fate.APPROXIMATED
    path = tmp_path / "imported.yaml"
    path.write_text(imported.text)
    report = run(load("quickstart", set={"workload": str(path), "horizon_us": 80_000_000, "expect": []}))
    arrivals = [row.arrival_us / 1e6 for row in report.rows]
    for start, end, count in ((0, 10, 60), (10, 20, 80), (20, 30, 50), (30, 40, 140), (40, 50, 120), (50, 60, 30)):
        sent = [at for at in arrivals if start <= at < end]
        assert len(sent) == pytest.approx(count, abs=4 * count**0.5)
    assert max(arrivals) < 60


def test_a_rate_of_a_window_beside_a_rate_of_all_is_listed(tmp_path: Path) -> None:
    assert client(tmp_path, **windows((0, 9, 2)))[1] == {"lifecycle.windows.0.trace_rate": Fate.NOT_CARRIED}


def test_the_single_session_of_the_only_client(tmp_path: Path) -> None:
    client_of_one = {
        **CLIENT,
        "reasoning": {"multi_turn": {"max_rounds": 3, "think_time_us": 5000, "single_session": True}},
    }
    imported = import_workload(written(tmp_path, {"aggregate_rate": 2, "clients": [client_of_one]}))
    assert not [note for note in imported.notes if note.lossy]
    path = tmp_path / "imported.yaml"
    path.write_text(imported.text)
    report = run(load("quickstart", set={"workload": str(path), "expect": []}))
    assert report.requests.completed == 3
    assert len({row.session_id for row in report.rows}) == 1
    # Of several clients each would have one: how many there are of all together says something else.
    two = import_workload(
        written(tmp_path, {"aggregate_rate": 2, "clients": [client_of_one, {**client_of_one, "id": "d"}]})
    )
    assert fates(two)["clients.1.reasoning.multi_turn.single_session"] is Fate.NOT_CARRIED
    assert "sessions:" not in two.text


def test_users_of_clients(tmp_path: Path) -> None:
    users = {**CLIENT, "concurrency": 4, "think_time_us": 20_000}
    imported = import_workload(written(tmp_path, {"num_requests": 50, "clients": [users]}))
    document = yaml.safe_load(imported.text)
    (found,) = document["clients"]
    assert "rate_per_s" not in document
    assert found["arrivals"] == {"kind": "closed-loop", "users": 4}
    assert found["session"] == {"turns": 50, "think_time_ms": 20, "history": "none"}
    assert found["timeout_us"] == 300_000_000  # as in BLIS, if nothing else is said


def test_conversations_reasoning_and_images_of_clients(tmp_path: Path) -> None:
    multi_turn = {"max_rounds": 4, "think_time_us": 1_000_000, "context_growth": "accumulate"}
    percents = {"type": "gaussian", "params": {"mean": 60, "std_dev": 10, "min": 0, "max": 90}}
    constant = {"type": "constant", "params": {"value": 7}}
    media = {f"{part}_distribution": constant for part in ("text", "image", "image_count")}
    found, listed = client(
        tmp_path, reasoning={"multi_turn": multi_turn, "reason_ratio_distribution": percents}, multimodal=media
    )
    assert found["session"] == {"turns": 4, "think_time_ms": 1000, "history": "full"}
    ratio = {"kind": "gaussian", "mean": 0.6, "std_dev": 0.1, "min": 0.0, "max": 0.9}
    assert found["reasoning"] == {"ratio": ratio, "history": "kept"}
    seven = {"kind": "constant", "value": 7}
    assert found["input_tokens"] == seven
    assert found["multimodal"] == {"images": {"count": seven, "tokens": seven}}
    assert not listed
    open_loop, _ = client(tmp_path, reasoning={"multi_turn": multi_turn}, closed_loop=False)
    assert open_loop["session"]["pacing"] == "clock"


@pytest.mark.parametrize(
    ("given", "slot", "ours"),
    [
        ({}, "admission", {"kind": "always-admit"}),
        ({"admission": {"policy": "always-admit"}}, "admission", {"kind": "always-admit"}),
        ({"admission": {"policy": "reject-all"}}, "admission", {"kind": "reject-all"}),
        (
            {"admission": {"policy": "token-bucket"}},
            "admission",
            {"kind": "token-bucket", "capacity_tokens": 10000, "refill_tokens_per_s": 1000},
        ),
        (
            {"admission": {"policy": "token-bucket", "token_bucket_capacity": 5, "token_bucket_refill_rate": 2}},
            "admission",
            {"kind": "token-bucket", "capacity_tokens": 5, "refill_tokens_per_s": 2},
        ),
        ({"admission": {"policy": "tier-shed"}}, "admission", {"kind": "tier-shed"}),
        (
            {"admission": {"policy": "tier-shed", "tier_shed_threshold": 5, "tier_shed_min_priority": 2}},
            "admission",
            {"kind": "tier-shed", "overload_threshold": 5, "min_priority": 2},
        ),
        (
            {"admission": {"policy": "gaie-legacy", "gaie_qd_threshold": 3, "gaie_kv_threshold": 0.5}},
            "admission",
            {"kind": "gaie-legacy", "queue_depth_threshold": 3, "kv_utilization_threshold": 0.5},
        ),
        ({"admission": {"slo_priorities": {"batch": -7}}}, "slo_priorities", {"batch": -7}),
        ({"tenant_budgets": {"acme": 0.5}}, "tenant_budgets", {"fractions": {"acme": 0.5}}),
        *(
            ({"routing": {"policy": name}}, "routing", {"kind": name})
            for name in ("round-robin", "least-loaded", "weighted", "always-busiest")
        ),
        (
            {"routing": {"policy": "weighted", "scorers": [{"name": "vllm-dp", "weight": 2}]}},
            "routing",
            {"kind": "weighted", "scorers": [{"kind": "vllm-dp", "weight": 2}]},
        ),
        ({"scheduler": "sjf"}, "scheduling", {"kind": "sjf"}),
        ({"scheduler": "reverse-priority"}, "scheduling", {"kind": "reverse-priority"}),
        ({"priority": {"policy": "inverted-slo"}}, "priority", {"kind": "inverted-slo"}),
        ({"preemption": {"policy": "fcfs"}}, "preemption", {"victim": "tail", "restore": "recompute"}),
        ({"preemption": {"policy": "priority"}}, "preemption", {"victim": "priority", "restore": "recompute"}),
    ],
)
def test_keys_of_policies(given: object, slot: str, ours: object, tmp_path: Path) -> None:
    imported = import_policy(written(tmp_path, given))
    assert (yaml.safe_load(imported.text)[slot], fates(imported)) == (ours, {})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"admission": {"slo_targets": {"a": 1}}}, "admission.slo_targets"),
        ({"routing": {"policy": "prefix-affinity"}}, "routing.policy"),
        *(
            ({"scheduler": "fcfs", key: {"a": 1}}, key)
            for key in ("node_pools", "autoscaler", "instance_lifecycle", "misspelt")
        ),
    ],
)
def test_keys_of_policies_that_are_lost(given: object, key: str, tmp_path: Path) -> None:
    assert fates(import_policy(written(tmp_path, given))) == {key: Fate.NOT_CARRIED}


@pytest.mark.parametrize(
    "given",
    [
        {"routing": {"policy": "weighted", "scorers": [{"name": "luck", "weight": 1}]}},
        {"routing": {"policy": "weighted", "scorers": [{"name": "vllm-dp", "weight": -1}]}},
        {"admission": {"slo_priorities": {"urgent": 1}}},
        {"tenant_budgets": {"acme": 2}},
        {"scheduler": "lifo"},
        {"admission": {"policy": "nope"}},
        {"routing": 3},
        {"preemption": {"policy": "x"}},
    ],
)
def test_policies_that_blis_does_not_know(given: object, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        import_policy(written(tmp_path, given))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"MemoryGiB": None}, "lacks the key `MemoryGiB`"),
        ({"TFlopsPeak": "many"}, "expected a number"),
        ({"mfuDecode": 1.5}, "`decode` must be at most 1"),
    ],
)
def test_wrong_hardware(keys: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        import_hardware(written(tmp_path, {"H100": {**GPU, **keys}}))


def test_hardware_whose_names_collide(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="would both be named `h-100`"):
        import_hardware(written(tmp_path, {"H 100": GPU, "h_100": GPU}))


@pytest.mark.parametrize(
    ("keys", "listed"),
    [
        ({}, {}),
        ({"sliding_window": None}, {}),
        ({"sliding_window": 128}, {}),
        ({"sliding_window": 128, "use_sliding_window": False}, {}),
        ({"layer_types": ["full_attention"]}, {}),
        ({"layer_types": ["sliding_attention"]}, {}),
        ({"layer_types": ["linear_attention"]}, {"layer_types": Fate.APPROXIMATED}),
        ({"rope_parameters": {"rope_type": "yarn"}}, {"rope_parameters": Fate.NOT_CARRIED}),
        ({"rope_parameters": {"rope_type": "default"}}, {}),
        ({"torch_dtype": None}, {"": Fate.APPROXIMATED}),
        ({"quantization_config": {"quant_method": "mxfp4"}}, {}),
        ({"quantization_config": {"quant_method": "nf4"}}, {"quantization_config": Fate.APPROXIMATED}),
        ({"quantization_config": {"bits": 4}}, {}),
        ({"quantization_config": {"quant_method": "fp8"}}, {}),
        ({"bos_token_id": 1}, {"": Fate.NO_EFFECT}),
        ({"hidden_act": "gelu_new"}, {"hidden_act": Fate.APPROXIMATED}),
        ({"hidden_act": "gelu_pytorch_tanh", "model_type": "gemma2"}, {}),
        ({"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": []}, {}),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2, "mlp_only_layers": [0]},
            {"decoder_sparse_step": Fate.NOT_CARRIED, "mlp_only_layers": Fate.NOT_CARRIED},
        ),
        ({"decoder_sparse_step": 2}, {}),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2},
            {"interleave_moe_layer_step": Fate.APPROXIMATED},
        ),
    ],
)
def test_keys_of_models(keys: dict[str, object], listed: dict[str, Fate], tmp_path: Path) -> None:
    assert fates(import_model(written(tmp_path, {**CONFIG, **keys}))) == listed


@pytest.mark.parametrize(
    ("keys", "tied"),
    [
        ({}, False),
        ({"model_type": "llama"}, False),
        ({"model_type": "gemma2"}, True),
        ({"model_type": "gemma2", "tie_word_embeddings": False}, False),
        ({"model_type": "llama", "tie_word_embeddings": True}, True),
    ],
)
def test_embeddings_are_shared_if_that_is_the_default_of_the_type(
    keys: dict[str, object], tied: bool, tmp_path: Path
) -> None:
    """Configurations leave out what is the default of their type."""
    path = tmp_path / "model.yaml"
    path.write_text(import_model(written(tmp_path, {**CONFIG, **keys, "hidden_act": "silu"}), name="m").text)
    for model in (str(path), {"config": {**CONFIG, **keys}}):
        found = load("quickstart", set={"model": model, "engine.kv_blocks": 500, "latency": "roofline"})
        assert found.pools[0].model.tie_word_embeddings is tied


def test_the_memory_of_a_gated_gelu_is_known(tmp_path: Path) -> None:
    gemma = {**CONFIG, "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh"}
    path = tmp_path / "model.yaml"
    path.write_text(import_model(written(tmp_path, gemma), name="m").text)
    assert load("quickstart", set={"model": str(path), "latency": "roofline"}).pools[0].engine.kv_blocks > 1000


def test_a_models_part_for_text_wins(tmp_path: Path) -> None:
    nested = {"text_config": CONFIG, "hidden_size": 7, "model_type": "pair"}
    config = yaml.safe_load(import_model(written(tmp_path, nested)).text)["config"]
    assert (config["hidden_size"], config["model_type"]) == (1024, "pair")


def test_a_model_without_layers(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="lacks `num_hidden_layers`"):
        import_model(written(tmp_path, {**CONFIG, "num_hidden_layers": None}))


def test_names_of_models(tmp_path: Path) -> None:
    folder = tmp_path / "Tiny_Chat"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert import_model(path).name == "tiny-chat"
    assert import_model(path, name="other").name == "other"
    path.write_text(json.dumps({**CONFIG, "_name_or_path": "acme/Big.Chat"}))
    assert import_model(path).name == "big.chat"


@pytest.mark.parametrize(("text", "name"), [("A100 SXM", "a100-sxm"), ("__", "imported"), ("x" * 200, "x" * 100)])
def test_names(text: str, name: str) -> None:
    assert as_name(text) == name


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "[1]: 2\n", "1: a\n<<: b\n", "1: a\n1: b\n", ""])
def test_what_is_no_yaml_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(text)
    with pytest.raises(SpecError):
        import_policy(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        import_policy(tmp_path / "nothing.yaml")
