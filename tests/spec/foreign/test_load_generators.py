"""Workloads of inference-perf, GuideLLM and ServeGen: what becomes of each key, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_regressions.file_regression import FileRegressionFixture

import blis_tui
from blis_tui.base.errors import InputError, SpecError
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.live.traffic.traffic_figures import describe
from blis_tui.spec.foreign.blis import import_policy, import_workload
from blis_tui.spec.foreign.inference_perf import import_inference_perf
from blis_tui.spec.foreign.load_generators import import_guidellm
from blis_tui.spec.foreign.reading import Imported, notes_text
from blis_tui.spec.foreign.servegen import import_servegen

DATA = Path(__file__).with_name("data")


def shown(document: Imported) -> str:
    """The document and its list, without the path to this folder."""
    return (document.text + "=" * 40 + "\n" + notes_text(document.notes)).replace(f"{DATA}/", "").replace(str(DATA), "")


def written(folder: Path, data: object) -> Path:
    path = folder / "given.yaml"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("name", ["shared-prefix", "synthetic"])
def test_inference_perf(name: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown(import_inference_perf(DATA / f"inference-perf-{name}.yaml")))


@pytest.mark.parametrize(
    ("api", "endpoint"), [({"type": "chat"}, "chat"), ("chat", "chat"), ({"type": "completion"}, None), (None, None)]
)
def test_the_endpoint_of_inference_perf(tmp_path: Path, api: object, endpoint: str | None) -> None:
    imported = import_inference_perf(written(tmp_path, PERF | ({"api": api} if api else {})))
    assert yaml.safe_load(imported.text).get("endpoint") == endpoint
    assert [note.path[-1] for note in imported.notes if note.path[-1:] == ("api",)] == ["api"] * (
        api is not None and endpoint is None
    )


def test_what_inference_perf_does_otherwise_is_told(tmp_path: Path) -> None:
    """Between stages it waits; a model may end answers early, if it may."""
    lengths = {"mean": 9, "min": 9, "max": 9}
    data = {"type": "random", "input_distribution": lengths, "output_distribution": lengths}

    def lossy_notes(stages: int, load: dict[str, Any] | None = None, server: object = None) -> list[tuple[str, str]]:
        stage: dict[str, Any] = {"stages": [{"rate": 1, "duration": 5}] * stages}
        given = {"load": stage | (load or {}), "server": server, "data": data}
        notes = import_inference_perf(written(tmp_path, given)).notes
        return [(str(note.path[-1]), note.text) for note in notes if note.lossy]

    ((key, text),) = lossy_notes(2)
    assert (key, text.partition(", without ")[2]) == (
        "stages",
        "1 s and the time that the last answers take between them",
    )
    ((key, text),) = lossy_notes(2, {"interval": 15})
    assert (key, text.partition(", without ")[2][:6]) == ("interval", "15 s a")
    assert lossy_notes(1, {"interval": 15}) == []
    assert lossy_notes(1, None, {"ignore_eos": True, "base_url": "http://a"}) == []
    ((key, _),) = lossy_notes(1, None, {"ignore_eos": False})
    assert key == "ignore_eos"
    ((key, text),) = lossy_notes(1, None, {"new": 5})
    assert (key, text) == ("new", "unknown key")


def test_media_of_inference_perf_are_told_as_lost(tmp_path: Path) -> None:
    lengths = {"mean": 9, "min": 9, "max": 9}
    data = {"type": "random", "input_distribution": lengths, "output_distribution": lengths}
    load = {"stages": [{"rate": 1, "duration": 5}]}
    for media, lost in (({}, []), ({"multimodal": {"images": 2}}, ["images, audio and video are not simulated"])):
        notes = import_inference_perf(written(tmp_path, {"load": load, "data": data | media})).notes
        assert [note.text for note in notes if note.lossy] == lost


def test_each_stage_of_inference_perf_sends_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(import_inference_perf(DATA / "inference-perf-shared-prefix.yaml").text)
    requests = [request.request for request in open_traffic(str(path), Choice()).requests]
    first = [request for request in requests if request.arrival_us < 50_000_000]
    assert (len(first), len(requests)) == (400, 1400)
    assert {request.input_tokens for request in requests} == {2048 + 256}
    prompts = {request.segments for request in requests}
    assert (len(prompts), len({prompt[0] for prompt in prompts})) == (128, 4)  # each group's questions come again


def test_conversations_of_inference_perf_with_one_stage(tmp_path: Path) -> None:
    given = yaml.safe_load((DATA / "inference-perf-shared-prefix.yaml").read_text())
    given["load"]["stages"] = [{"rate": 8, "duration": 80}]
    path = tmp_path / "w.yaml"
    path.write_text(import_inference_perf(written(tmp_path, given)).text)
    changes: dict[str, Any] = {"workload": str(path), "expect": []}
    rows = blis_tui.run(blis_tui.load("quickstart", set=changes)).rows
    assert len(rows) == 640
    assert len({row.session_id for row in rows}) == 4 * 32
    assert {row.round_index for row in rows} == set(range(5))
    assert {(row.prefix_group, row.prefix_tokens) for row in rows} == {(f"group-{one}", 2048) for one in range(4)}


def test_guidellm_with_users(file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown(import_guidellm(DATA / "guidellm-concurrent.json", rate=25)))


def test_guidellm_with_a_rate(file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown(import_guidellm(DATA / "guidellm-poisson.yaml")))


@pytest.mark.parametrize(
    ("imported", "file"),
    [
        (import_guidellm, "guidellm-poisson.yaml"),
        (import_inference_perf, "inference-perf-synthetic.yaml"),
        (import_servegen, "servegen"),
        (import_workload, "workload-v2.yaml"),
        (import_policy, "policy-full.yaml"),
    ],
)
def test_documents_have_the_name_that_is_asked_for_or_that_of_their_file(
    imported: Callable[..., Imported], file: str
) -> None:
    for asked, name in ((None, file.removesuffix(".yaml")), ("other", "other")):
        document = imported(DATA / file, name=asked)
        assert document.name == yaml.safe_load(document.text)["metadata"]["name"] == name


def scenario(tmp_path: Path, **keys: object) -> dict[str, Any]:
    data = {"profile": "constant", "rate": 2, "max_requests": 9, "data": "prompt_tokens=10,output_tokens=5", **keys}
    document: dict[str, Any] = yaml.safe_load(import_guidellm(written(tmp_path, data)).text)
    return document


def test_lengths_of_guidellm(tmp_path: Path) -> None:
    def prompts(data: str) -> object:
        return scenario(tmp_path, data=f"{data},output_tokens=5")["clients"][0]["input_tokens"]

    assert prompts("prompt_tokens=10") == {"kind": "constant", "value": 10}
    assert prompts("prompt_tokens=10,prompt_tokens_min=5,prompt_tokens_max=20") == {
        "kind": "uniform",
        "min": 5,
        "max": 20,
    }
    spread = {"kind": "gaussian", "mean": 100, "std_dev": 10, "min": 50, "max": 150}
    assert prompts("prompt_tokens=100,prompt_tokens_stdev=10") == spread
    assert scenario(tmp_path)["clients"][0]["arrivals"] == {"kind": "constant"}
    users = scenario(tmp_path, profile="synchronous", rate=None)["clients"][0]["arrivals"]
    assert users == {"kind": "closed-loop", "users": 1}
    assert scenario(tmp_path, max_requests=None, max_seconds=30)["requests"] == 60


def test_servegen(file_regression: FileRegressionFixture) -> None:
    file_regression.check(shown(import_servegen(DATA / "servegen")))


def test_a_time_of_servegen() -> None:
    document = yaml.safe_load(import_servegen(DATA / "servegen", span_s=(600, 1200)).text)
    assert [(one["id"], one["share"], one["arrivals"]["cv"]) for one in document["clients"]] == [
        ("chunk-2", 3.0, 10.4),
        ("chunk-10", 0.25, 0.9),
    ]


def test_long_tables_of_servegen_keep_their_mean(tmp_path: Path) -> None:
    table = {tokens: 1 / (tokens + 50) for tokens in range(1, 3000)}
    (tmp_path / "chunk-0-trace.csv").write_text("0,5,1,Gamma,1,1\n")
    (tmp_path / "chunk-0-dataset.json").write_text(
        json.dumps({"0": {"input_tokens": str(table), "output_tokens": "{7: 1.0}"}})
    )
    path = tmp_path / "w.yaml"
    path.write_text(import_servegen(tmp_path).text)
    weights = yaml.safe_load(path.read_text())["clients"][0]["input_tokens"]["weights"]
    assert len(weights) <= 100
    mean = sum(int(tokens) * weight for tokens, weight in weights.items()) / sum(weights.values())
    assert mean == pytest.approx(sum(k * v for k, v in table.items()) / sum(table.values()), rel=1e-3)
    traffic = open_traffic(str(path), Choice(requests=3000))
    description = describe(traffic, Ledger(traffic.requests, 16))
    assert description.rate.mean_per_s == pytest.approx(5.0, rel=0.1)


PERF: dict[str, Any] = {
    "load": {"stages": [{"rate": 1, "duration": 10}]},
    "data": {
        "type": "random",
        "input_distribution": {"min": 1, "max": 9, "mean": 5, "std_dev": 1},
        "output_distribution": {"min": 1, "max": 9, "mean": 5, "std_dev": 1},
    },
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load": {"type": "poisson", "sweep": {"type": "linear"}}}, "a sweep makes its stages while it measures"),
        ({"load": {"type": "constant"}}, "the load has no `stages`"),
        ({"load": {"type": "trace_session_replay", "stages": []}}, "unknown value `trace_session_replay`"),
        ({"load": {"stages": [{"rate": 1}]}}, "this lacks the key `duration`"),
        ({"data": {"type": "shareGPT", "path": "x.json"}}, "the lengths of `shareGPT` data are not in this file"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"num_groups": 0}}}, "there must be 1 to 10000 groups"),
        ({"data": None}, "this lacks the key `data`"),
        ({"load": {"type": "concurrent", "stages": [{}, {}]}}, "only one stage of concurrent users can be imported"),
    ],
)
def test_what_inference_perf_says_that_cannot_be(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        import_inference_perf(written(tmp_path, {**PERF, **change}))
    assert all(diagnostic.line >= 1 for diagnostic in caught.value.diagnostics)
    assert not any(
        "BLIS" in (diagnostic.help or "") for diagnostic in caught.value.diagnostics
    )  # it is another tool's file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "sweep"}, "the profile `sweep` has no rate of its own"),
        ({"profile": "throughput", "rate": None}, "the profile `throughput` sends everything at once"),
        ({"profile": "steady"}, "unknown value"),
        ({"rate": None}, "the profile `constant` lacks a `rate`"),
        ({"rate": [1, 2.5]}, "each of the rates 1, 2.5 is a benchmark of its own"),
        ({"rate": -1}, "expected positive numbers"),
        ({"data": "wikitext"}, "expected `data` as a map"),
        ({"data": {"output_tokens": 5}}, "the lengths of these data are not in this file"),
        ({"max_seconds": "soon"}, "expected a number of seconds"),
        ({"max_seconds": "inf", "max_requests": None}, "expected a number of seconds"),
        ({"rate": 1e300}, "expected positive numbers"),
        ({"data": {"prompt_tokens": 1e300, "output_tokens": 5}}, r"`prompt_tokens` must be at most 2\^64"),
        (
            {"data": {"prompt_tokens": 9, "output_tokens": 5, "prefix_tokens": 9, "prefix_count": 10**9}},
            "more than 10,000 prefixes",
        ),
    ],
)
def test_what_guidellm_says_that_cannot_be(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        scenario(tmp_path, **change)


@pytest.mark.parametrize(
    ("trace", "data", "message"),
    [
        ("0,fast,1,Gamma,1,1\n", "{}", "chunk-0-trace.csv:1: this is not a window of ServeGen"),
        ("0,1\n", "{}", "chunk-0-trace.csv:1: this is not a window of ServeGen"),
        ("0,1,1,Gamma,1,1\n", "{", "chunk-0-dataset.json is not JSON"),
        ("0,1,1,Gamma,1,1\n", "[]", "is not a data set of ServeGen"),
        ("0,1,1,Gamma,1,1\n", '{"0": {"input_tokens": "{1: x}"}}', "`input_tokens` is not a table of token counts"),
        ("0,1,1,Gamma,1,1\n", None, "cannot read .*chunk-0-dataset.json"),
        ("0,nan,1,Gamma,1,1\n", "{}", "chunk-0-trace.csv:1: this is not a window of ServeGen"),
        ("0,1,inf,Gamma,1,1\n", "{}", "chunk-0-trace.csv:1: this is not a window of ServeGen"),
        ("0,1,1,Gamma,1,1\n", '{"0": {"input_tokens": "{1: 1e999}"}}', "`input_tokens` is not a table of token counts"),
        ("0,1,1,Gamma,1,1\n", '{"0": {"input_tokens": "{1e999: 1}"}}', "`input_tokens` is not a table of token counts"),
        (
            "0,1,1,Gamma,1,1\n",
            '{"nan": {"input_tokens": "{5: 1}", "output_tokens": "{5: 1}"}}',
            "`nan` is not the start of a window",
        ),
    ],
)
def test_files_that_are_not_of_servegen(tmp_path: Path, trace: str, data: str | None, message: str) -> None:
    (tmp_path / "chunk-0-trace.csv").write_text(trace)
    if data is not None:
        (tmp_path / "chunk-0-dataset.json").write_text(data)
    with pytest.raises(InputError, match=message):
        import_servegen(tmp_path)


def test_a_pattern_that_is_not_known_is_told(tmp_path: Path) -> None:
    (tmp_path / "chunk-0-dataset.json").write_text('{"0": {"input_tokens": "{5: 1}", "output_tokens": "{5: 1}"}}')
    for pattern, is_noted in (("Zipf", True), ("", False)):
        (tmp_path / "chunk-0-trace.csv").write_text(f"0,1,1,{pattern},1,1\n")
        found = import_servegen(tmp_path)
        assert yaml.safe_load(found.text)["clients"][0]["arrivals"] == {"kind": "poisson"}
        assert any("the pattern `zipf` became poisson" in note.text for note in found.notes) is is_noted


def test_a_folder_without_clients_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="sends anything"):
        import_servegen(tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        import_servegen(tmp_path / "nothing")


SHARED: dict[str, Any] = {
    "load": {"type": "poisson", "stages": [{"rate": 5, "duration": 10}]},
    "data": {
        "type": "shared_prefix",
        "shared_prefix": {"num_groups": 2, "num_prompts_per_group": 3, "system_prompt_len": 64, "question_len": 8},
    },
}


def run_file(**more: object) -> dict[str, Any]:
    """A run file of llm-d-benchmark."""
    return {"endpoint": {"model": "m"}, "harness": {"name": "inference-perf"}, "workload": {"mine": SHARED}, **more}


def test_a_run_file_of_llm_d_benchmark_has_a_configuration(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("alone.yaml", "run.yaml")]
    for path, document in zip(paths, (SHARED, run_file()), strict=True):
        path.write_text(yaml.safe_dump(document))
    alone, wrapped = (yaml.safe_load(import_inference_perf(path, name="one").text) for path in paths)
    assert {**wrapped, "metadata": None} == {**alone, "metadata": None}
    paths[1].write_text(yaml.safe_dump(run_file(harness={"name": "inference-perf", "parallelism": 3})))
    notes = {note.path: note.text for note in import_inference_perf(paths[1]).notes}
    assert notes["harness", "parallelism"] == "each of 3 senders sends this load: multiply its rates"
    assert notes[("endpoint",)] == "it is about the run, not about the requests"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"harness": {"name": "guidellm"}}, "the load is that of `guidellm`"),
        ({"workload": {"a": SHARED, "b": SHARED}}, "`workload` has 2 configurations, one can be imported"),
        ({"workload": {"a": {"load": SHARED["load"]}}}, "this lacks the key `data`"),
    ],
)
def test_a_run_file_with_another_load_is_an_error(more: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run_file(**more)))
    with pytest.raises(SpecError) as caught:
        import_inference_perf(path)
    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [message]
