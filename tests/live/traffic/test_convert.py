"""What is converted replays alike."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.engine.request import Request
from blis_tui.live.traffic.describe import trace_csv
from blis_tui.live.traffic.opening import Choice, RequestTiming, open_traffic
from blis_tui.model import Trace
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace

FIELDS = (
    *("request_id", "arrival_us", "input_tokens", "output_tokens", "segments", "slo_class", "tenant", "deadline_us"),
    *("session_id", "round_index", "model"),
)


def seen(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in FIELDS}


def replayed(path: Path) -> list[dict[str, object]]:
    table = read_trace(Trace(path=str(path), format="requests", sha256=""), builtin())
    return [seen(table.request(row)) for row in range(len(table))]


@pytest.mark.parametrize("name", ["mixed-slo", "prefix-heavy", "trace-replay", "tenant-budgets", "burst"])
def test_what_ships_replays_alike(tmp_path: Path, name: str) -> None:
    requests = [timing.request for timing in open_traffic(name, Choice(requests=300, seed=3)).requests]
    path = tmp_path / "requests.csv"
    path.write_text("".join(trace_csv(RequestTiming(request=request, client="") for request in requests)))
    assert replayed(path) == [seen(request) for request in requests]


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Request,
            st.just(0),
            st.just(""),
            st.integers(0, 10**9),
            st.integers(100, 10**6),
            st.integers(0, 10**6),
            st.lists(st.tuples(TEXTS.filter(bool), st.integers(1, 30)), max_size=3).map(tuple),
            st.sampled_from(["standard", "batch"]),
            TEXTS,
            st.just(0),
            TEXTS,
            st.integers(0, 9),
            TEXTS,
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_requests_replay_alike(tmp_path_factory: pytest.TempPathFactory, requests: list[Request]) -> None:
    requests.sort(key=lambda request: request.arrival_us)
    for number, request in enumerate(requests):
        request.request_id = f' {number}, so "to" say'
        request.deadline_us = request.arrival_us + 5 if number % 2 else 0
    path = tmp_path_factory.mktemp("csv") / "requests.csv"
    asked = [RequestTiming(request=request, client="") for request in requests]
    path.write_text("".join(trace_csv(asked)), encoding="utf-8")
    assert replayed(path) == [seen(request) for request in requests]


DOCUMENT = """\
apiVersion: blis/v1
kind: Workload
metadata: {{name: w}}
requests: {requests}
rate_per_s: {rate}
clients:
"""
CLIENT = """\
  - id: {0}
    share: {1}
    tenant: {0}
    arrivals: {2}
    input_tokens: {{kind: lognormal, mu: 5.0, sigma: 0.8}}
    output_tokens: {{kind: exponential, mean: 90.0}}
"""


def lines_of(tmp_path: Path, clients: list[tuple[str, int, str]], rate: float, requests: int) -> dict[str, list[str]]:
    """What each client sends, as bytes of the file, without the numbers of the requests."""
    path = tmp_path / "w.yaml"
    text = DOCUMENT.format(rate=rate, requests=requests) + "".join(CLIENT.format(*client) for client in clients)
    path.write_text(text)
    traffic = open_traffic(str(path), Choice(seed=8))
    lines = list(trace_csv(traffic.requests))[1:]
    bare = [line.partition(",")[2] for line in lines]
    return {name: [line for line in bare if f",{name}," in line] for name, _, _ in clients}


@pytest.mark.parametrize("arrivals", ["poisson", "constant", "{kind: gamma, cv: 2.0}", "{kind: weibull, cv: 2.0}"])
def test_another_client_changes_no_byte_of_what_the_others_send(tmp_path: Path, arrivals: str) -> None:
    two = [("anna", 3, arrivals), ("bert", 5, "poisson")]
    alone = lines_of(tmp_path, two, 8.0, 200)
    beside = lines_of(tmp_path, [("carl", 8, arrivals), *two], 16.0, 800)
    for name in ("anna", "bert"):
        assert len(alone[name]) > 50
        assert beside[name][: len(alone[name])] == alone[name]


@pytest.mark.parametrize("timed", [True, False])
def test_a_replay_that_waits_is_written_as_it_was_recorded_or_not_at_all(tmp_path: Path, *, timed: bool) -> None:
    """The file says when requests came, even if a replay waits for answers; with a rate of its own nothing does."""
    (tmp_path / "talks.csv").write_text(
        "arrival_us,input_tokens,output_tokens,session_id\n5,10,2,a\n900,20,3,a\n", encoding="utf-8"
    )
    rate = "" if timed else ", rate_per_s: 2.0"
    (tmp_path / "w.yaml").write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: w}\n"
        f"trace: {{file: talks.csv, pacing: answers{rate}}}\n",
        encoding="utf-8",
    )
    choice = Choice(generating=True)
    if timed:
        found = [request.request.arrival_us for request in open_traffic(str(tmp_path / "w.yaml"), choice).requests]
        assert found == [5, 900]
    else:
        with pytest.raises(PolicyError, match="wait for their answers: when they send depends on the cluster"):
            open_traffic(str(tmp_path / "w.yaml"), choice)
