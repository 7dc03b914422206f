"""The simulation behind the endpoint does what a run with the same arrivals does, and tells tokens at their times."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.live.serving.core import Core, RequestUpdate, SubmittedRequest
from blis_tui.live.serving.shared_prefixes import Contents, served_csv
from blis_tui.model import Trace, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from blis_tui.results.request_log import RequestRow

ENGINE: dict[str, object] = {
    "cluster.instances": 2,
    "latency": {"kind": "blackbox", "alpha": [200, 1, 30], "beta": [3000, 10, 100]},
    "engine": {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 256,
        "block_size_tokens": 16,
        "kv_blocks": 90,
        "max_model_len": 1024,
    },
}
KINDS: dict[str, dict[str, object]] = {
    "blis": {},
    "vllm-v1": {"policy.batching": {"kind": "vllm-v1"}},
    "sync": {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False}},
}


@cache
def plain(kind: str) -> blis_tui.Experiment:
    return made(**KINDS[kind])


def made(**changes: object) -> blis_tui.Experiment:
    return blis_tui.load("quickstart", set={**ENGINE, **changes})


def again(experiment: blis_tui.Experiment, core: Core, path: Path) -> blis_tui.Report:
    """The same arrivals, as a table that is run."""
    path.write_text("".join(served_csv(core.requests, core.simulation.report().rows)))
    trace = Trace(path=str(path), format="requests", sha256=sha256(path.read_bytes()).hexdigest())
    return blis_tui.run(replace(experiment, workload=Workload(name="again", trace=trace)))


def ask(core: Core, contents: Contents, at_us: int, prompt: list[int], answer: int) -> int:
    content = contents.add(f"r{len(core.requests)}", prompt, [9] * answer)
    return core.submit(SubmittedRequest(prompt_tokens=len(prompt), output_tokens=answer, content=content), at_us).index


def drive(core: Core, arrivals: list[tuple[int, list[int], int]], stops_us: list[int]) -> list[RequestUpdate]:
    """Submit everything at its time, stopping wherever asked on the way."""
    contents, updates = Contents(16), []
    moments = sorted(
        [(at_us, 0, number) for number, (at_us, _, _) in enumerate(arrivals)] + [(at, 1, 0) for at in stops_us]
    )
    for at_us, kind, number in moments:
        updates += core.advance(at_us - 1)
        if kind:
            updates += core.advance(at_us)
        else:
            ask(core, contents, at_us, *arrivals[number][1:])
    while (upcoming := core.next_us()) is not None:
        updates += core.advance(upcoming)
    return updates


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 400_000),
        st.lists(st.integers(0, 1), min_size=1, max_size=6).map(
            lambda one: [token for token in one for _ in range(16)]
        ),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(arrivals=ARRIVALS, stops=st.lists(st.integers(0, 600_000), max_size=12))
def test_recorded_arrivals_give_the_same_simulation(
    kind: str, arrivals: list[tuple[int, list[int], int]], stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    core = Core(plain(kind))
    news = drive(core, arrivals, stops)
    live = core.simulation.report()
    core.simulation.verify()
    path = tmp_path_factory.mktemp("served") / "served.csv"
    assert list(again(plain(kind), core, path).rows) == list(live.rows)
    check_times(news, live.rows)


def check_times(news: list[RequestUpdate], rows: Iterable[RequestRow]) -> None:
    """Every token came once, the first and the last when the client is said to have had them."""
    assert [new.time_us for new in news] == sorted(new.time_us for new in news)
    for number, row in enumerate(rows):
        updates = [new for new in news if new.number == number]
        counts = [request_update.tokens for request_update in updates if not request_update.end]
        assert counts == sorted(set(counts))
        assert row.ttft_us is not None
        assert row.e2e_us is not None
        assert updates[0].time_us == row.arrival_us + row.ttft_us
        assert (updates[-1].end, updates[-1].tokens) == ("over", row.output_tokens)
        assert updates[-1].time_us == row.arrival_us + row.e2e_us
        assert counts[-1] == row.output_tokens


def test_a_request_never_arrives_in_what_has_happened_already() -> None:
    core, contents = Core(made()), Contents(16)
    core.advance(50_000)
    late = core.requests[ask(core, contents, 10_000, [1] * 32, 4)]
    assert late.arrival_us == 50_001
    core.advance(50_001)
    assert core.requests[ask(core, contents, 50_001, [1] * 32, 4)].arrival_us == 50_002


def test_a_client_that_goes_ends_its_request_and_the_table_replays_that(tmp_path: Path) -> None:
    core, contents = Core(made()), Contents(16)
    for number in range(6):
        ask(core, contents, 1000 * number, [number] * 64, 60)
    core.advance(90_000)
    core.abort(3, 90_000)  # decoding
    core.abort(99, 90_000)  # nobody
    news = core.advance(95_000)
    assert [(new.end, new.time_us) for new in news if new.number == 3][-1] == ("aborted", 90_001)
    assert core.running == 5
    core.abort(3, 99_000)
    while (upcoming := core.next_us()) is not None:
        core.advance(upcoming)
    live = core.simulation.report()
    assert [row.state for row in live.rows].count("timed-out") == 1
    path = tmp_path / "served.csv"
    assert list(again(made(), core, path).rows) == list(live.rows)
    with path.open() as file:
        assert [row["deadline_us"] for row in csv.DictReader(file)].count("90001") == 1


def test_whoever_is_turned_away_hears_why() -> None:
    core, contents = Core(made(**{"policy.admission": "reject-all"})), Contents(16)
    ask(core, contents, 0, [1] * 32, 4)
    (news,) = core.advance(1_000_000)
    assert (news.end, news.tokens) == ("rejected", 0)
    assert "reject-all" in news.reason
    core = Core(made(**{"engine.max_model_len": 1024, "engine.kv_blocks": 3}))
    ask(core, contents, 0, [1] * 640, 4)
    (news,) = core.advance(1_000_000)
    assert news.end == "unservable"
    assert core.running == 0


def test_what_goes_down_with_an_instance_is_lost() -> None:
    core, contents = Core(blis_tui.load("instance-dies", set={"cluster.failures.0.requests": "lose"})), Contents(16)
    for number in range(150):
        ask(core, contents, 80_000 * number, [number % 7] * 64, 200)
    news = core.advance(40_000_000)
    ends = {new.number: new for new in news if new.end}
    assert len(ends) == 150
    lost = [end for end in ends.values() if end.end == "lost"]
    assert lost
    assert 10_000_000 <= min(request_update.time_us for request_update in lost) < 10_050_000  # with the step under way
    assert max(request_update.time_us for request_update in lost) < 10_100_000  # whoever was on the way there
    assert all(end.end in ("over", "lost") for end in ends.values())


GATEWAY = {"policy.gateway": {"saturation": {"kind": "concurrency", "max_concurrency": 4}}}


@pytest.mark.parametrize("more", [{}, GATEWAY], ids=["router", "gateway"])
def test_whoever_waits_where_no_instance_comes_up_again_is_lost(more: dict[str, object]) -> None:
    failures = [{"instance": 0, "at_us": 500_000}, {"instance": 1, "at_us": 600_000}]
    core, contents = Core(made(**{"cluster.failures": failures, **more})), Contents(16)
    for number in range(12):
        ask(core, contents, 1000 * number, [number] * 64, 300)
    assert [new for new in core.advance(550_000) if new.end] == []  # the other instance has them
    ends = [new for new in core.advance(2_000_000) if new.end]
    assert sorted(new.number for new in ends) == list(range(12))
    assert {(new.end, new.reason) for new in ends} == {("lost", "no instance is up, and none will be")}
    ask(core, contents, 3_000_000, [5] * 64, 300)
    assert [new.end for new in core.advance(3_100_000)] == ["lost"]
    assert (core.running, core.next_us()) == (0, None)


def test_conversations_find_what_was_said_in_the_cache() -> None:
    core, contents = Core(made(**{"cluster.instances": 1})), Contents(16)
    first = [1] * 60
    ask(core, contents, 0, first, 20)
    core.advance(1_000_000)
    ask(core, contents, 1_000_001, [*first, *[9] * 20, *[2] * 30], 5)
    while (upcoming := core.next_us()) is not None:
        core.advance(upcoming)
    # 80 tokens were computed before, but for the last one: four whole blocks.
    assert [row.cached_tokens for row in core.simulation.report().rows] == [0, 64]
