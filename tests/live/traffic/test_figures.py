"""The figures of a description, each computed another way."""

import csv
import gzip
import json
import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from blis_tui.api import load, run
from blis_tui.base.errors import InputError
from blis_tui.live.traffic import traffic_figures as figures
from blis_tui.live.traffic.describe import facts, group_cells
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import TRACES

TRACES_FOLDER = Path(__file__).parents[3].parent / "shared" / "data" / "traces"
HEADER = "request_id,arrival_time_us,input_tokens,output_tokens,tenant_id,slo_class,model,session_id,round_index\n"


def description(source: object, *, block: int = 16, recorded: bool = False, **settings: object) -> figures.Description:
    traffic = open_traffic(str(source), Choice(**settings))  # type: ignore[arg-type]
    return figures.describe(traffic, Ledger(traffic.requests, block, recorded=recorded))


@pytest.fixture(scope="module")
def rows() -> list[tuple[int, int, int, str, str]]:
    """Two minutes and a half of requests of two tenants."""
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(120_000, 1250)).astype(int)
    return [
        (int(at), int(rng.integers(1, 3000)), int(rng.geometric(0.01)), "ab"[int(rng.random() < 0.3)], f"s{number % 7}")
        for number, at in enumerate(arrivals)
    ]


@pytest.fixture(scope="module")
def found(rows: list[tuple[int, int, int, str, str]], tmp_path_factory: pytest.TempPathFactory) -> figures.Description:
    path = tmp_path_factory.mktemp("trace") / "requests.csv"
    lines = [f"r{n},{at},{i},{o},{who},batch,,{session},0\n" for n, (at, i, o, who, session) in enumerate(rows)]
    path.write_text(HEADER + "".join(lines))
    return description(path)


def test_rates_and_peaks(found: figures.Description, rows: list[tuple[int, int, int, str, str]]) -> None:
    times = [row[0] for row in rows]
    assert found.requests == len(rows)
    assert found.rate.mean_per_s == pytest.approx(1 / np.mean(np.diff(times)) * 1e6)
    assert found.duration_s == (times[-1] - times[0]) / 1e6
    for window, peak in ((1, found.rate.peak_second), (60, found.rate.peak_minute)):
        counts, edges = np.histogram(times, np.arange(times[0], times[-1] + window * 10**6 + 1, window * 10**6))
        assert peak.requests == max(counts)
        assert peak.at_s == edges[np.argmax(counts)] / 1e6
    assert sum(found.arrivals.requests) == len(rows)
    assert len(found.arrivals.requests) <= 120


def test_burstiness(found: figures.Description, rows: list[tuple[int, int, int, str, str]]) -> None:
    times = np.array([row[0] for row in rows])
    gaps = np.diff(times)
    assert found.burstiness.gap_cv == pytest.approx(np.std(gaps) / np.mean(gaps))
    for window, value in ((1, found.burstiness.dispersion_second), (60, found.burstiness.dispersion_minute)):
        edges = np.arange(times[0], times[-1] + 1, window * 10**6)
        counts, _ = np.histogram(times[times < edges[-1]], edges)
        assert value == pytest.approx(np.var(counts) / np.mean(counts))


@pytest.mark.parametrize("column", [1, 2])
def test_lengths(found: figures.Description, rows: list[tuple[int, int, int, str, str]], column: int) -> None:
    values = [(row[1], row[2])[column - 1] for row in rows]
    lengths = (found.input_tokens, found.output_tokens)[column - 1]
    bins = (found.input_histogram, found.output_histogram)[column - 1]
    assert (lengths.total, lengths.min, lengths.max) == (sum(values), min(values), max(values))
    assert lengths.mean == pytest.approx(np.mean(values))
    percentiles = [lengths.p50, lengths.p90, lengths.p95, lengths.p99]
    assert percentiles == pytest.approx(np.percentile(values, [50, 90, 95, 99]))
    counted = Counter(int(np.log2(value)) for value in values)
    assert {one.from_tokens: one.requests for one in bins if one.requests} == {2**k: n for k, n in counted.items()}
    assert all(one.to_tokens == 2 * one.from_tokens - 1 for one in bins)


def test_groups(found: figures.Description, rows: list[tuple[int, int, int, str, str]]) -> None:
    assert list(found.tenants) == ["a", "b"]
    assert (found.clients, found.models, list(found.slo_classes)) == ({}, {}, ["batch"])
    for name, group in found.tenants.items():
        own = [row for row in rows if row[3] == name]
        gaps = np.diff([row[0] for row in own])
        assert (group.requests, group.share) == (len(own), len(own) / len(rows))
        assert group.rate_per_s == pytest.approx(group.share * (found.rate.mean_per_s or 0))
        assert group.gap_cv == pytest.approx(np.std(gaps) / np.mean(gaps))
        assert group.input_mean == pytest.approx(statistics.mean(row[1] for row in own))
        assert group.output_mean == pytest.approx(statistics.mean(row[2] for row in own))


def test_sessions(found: figures.Description, rows: list[tuple[int, int, int, str, str]]) -> None:
    sessions = {name: [row[0] for row in rows if row[4] == name] for name in dict.fromkeys(row[4] for row in rows)}
    turns = [len(arrivals) for arrivals in sessions.values()]
    assert found.sessions is not None
    assert (found.sessions.sessions, found.sessions.requests, found.sessions.turns_max) == (7, len(rows), max(turns))
    assert found.sessions.turns_mean == pytest.approx(statistics.mean(turns))
    assert found.sessions.turns_p50 == pytest.approx(statistics.median(turns))
    gaps = [later - earlier for arrivals in sessions.values() for earlier, later in pairwise(arrivals)]
    assert found.sessions.gap_p50_s == pytest.approx(statistics.median(gaps) / 1e6)


def test_one_request_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n7,20,0\n")
    one = description(path)
    assert (one.rate.mean_per_s, one.burstiness.gap_cv, one.burstiness.dispersion_second) == (None, None, None)
    assert (one.first_arrival_s, one.duration_s, one.rate.peak_minute.requests) == (7e-6, 0.0, 1)
    assert [(b.from_tokens, b.to_tokens, b.requests) for b in one.output_histogram] == [(0, 0, 1)]


def test_clients_are_those_of_the_document() -> None:
    found = description("mixed-slo")
    assert {name: group.requests for name, group in found.clients.items()} == {
        "chat": 177,
        "autocomplete": 176,
        "reports": 147,
    }
    classes = {"chat": "standard", "autocomplete": "critical", "reports": "batch"}
    assert {classes[name]: group for name, group in found.clients.items()} == found.slo_classes
    assert found.tenants == {}


def test_a_workload_in_an_experiment_is_that_of_the_run() -> None:
    found = description("steady-chat", overrides=("workload.requests=40",))
    rows = list(run(load("steady-chat", set={"workload.requests": 40})).rows)
    assert (found.requests, found.seed) == (40, load("steady-chat").seed)
    assert found.input_tokens.total == sum(row.input_tokens for row in rows)
    assert found.first_arrival_s == rows[0].arrival_us / 1e6


def test_a_closed_loop_takes_an_experiment() -> None:
    arrivals = "workload.clients.0.arrivals={kind: closed-loop, users: 4}"
    changes = ("workload={requests: 30, clients: [{id: u, input_tokens: 100, output_tokens: 20}]}", arrivals)
    found = description("quickstart", overrides=changes)
    assert (found.requests, found.rate.peak_second.requests > 4, found.input_tokens.mean) == (30, True, 100.0)


def test_a_horizon_ends_it_and_so_does_a_limit() -> None:
    assert description("quickstart", overrides=("horizon_us=1000000",)).requests < 20
    assert description("quickstart", requests=7).requests == 7
    endless = description("chatbot", overrides=("requests=null",))
    assert (endless.requests, endless.cut) == (10_000, 10_000)
    with pytest.raises(InputError, match="there are no requests"):
        description("quickstart", overrides=("horizon_us=1",))


# ---- real files ----

needs_traces = pytest.mark.skipif(not TRACES_FOLDER.is_dir(), reason="the public traces are not on this machine")


@needs_traces
@pytest.mark.parametrize(
    ("name", "requests", "prompt", "answer"), [("conv", 19_366, 1155, 211), ("code", 8819, 2048, 28)]
)
def test_azure(name: str, requests: int, prompt: int, answer: int) -> None:
    path = TRACES_FOLDER / f"AzureLLMInferenceTrace_{name}.csv"
    found = description(path)
    assert (found.requests, round(found.input_tokens.mean), round(found.output_tokens.mean)) == (
        requests,
        prompt,
        answer,
    )
    with path.open(newline="") as file:
        tokens = sum(int(row["ContextTokens"]) for row in csv.DictReader(file))
    assert found.input_tokens.total == tokens


@needs_traces
@pytest.mark.skipif("mooncake" not in [plugin.name for plugin in builtin().of(TRACES.path)], reason="no reader of it")
def test_mooncake() -> None:
    path = TRACES_FOLDER / "mooncake_conversation.jsonl.gz"
    found = description(path, block=512)
    assert (found.requests, round(found.input_tokens.mean), round(found.output_tokens.mean)) == (12_031, 12_035, 343)
    assert round(100 * found.prefix_reuse.blocks_share, 1) == 36.6
    known: dict[int, None] = {}
    reused = blocks = 0
    with gzip.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            whole = row["hash_ids"][: row["input_length"] // 512]
            reused += sum(one in known for one in whole)
            blocks += len(row["hash_ids"])
            known.update(dict.fromkeys(row["hash_ids"]))
    assert (found.prefix_reuse.found_blocks, found.prefix_reuse.blocks) == (reused, blocks)


def test_what_a_trace_does_not_say_of_prefixes_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(HEADER + "a,0,900,5,x,batch,m,,0\nb,5,900,5,y,batch,m,,0\n")
    found = description(path, recorded=True)
    assert not found.prefix_reuse.recorded
    assert facts(found)["prefix reuse"] == "not recorded: the trace names no prefixes that prompts share"
    assert group_cells(found.tenants["x"], found.prefix_reuse)[-1] == "-"
    shared = HEADER.replace("round_index", "prefix_group,prefix_tokens")
    path.write_text(shared + "a,0,900,5,x,batch,m,,,0\nb,5,900,5,y,batch,m,,g,90\n")
    assert facts(description(path, recorded=True))["prefix reuse"].startswith("0.0 % of prompt tokens, 0.0 % of 114")
    assert description("chatbot", requests=5).prefix_reuse.recorded
