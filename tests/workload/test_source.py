"""Request sources: merging, limits, independence of clients, and pickling at any point."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.engine.request import Request
from blis_tui.model import Client, PluginConfig, Prefix, Session, Trace, Workload
from blis_tui.model.plug_ins import Origin, Registry
from blis_tui.spec.shipped import builtin
from blis_tui.workload.source import BATCH_SIZE, GeneratedSource, RequestSource, TraceSource, create_source
from blis_tui.workload.traces.trace_table import TraceColumns, TraceTable

INPUT = PluginConfig(kind="gaussian", settings={"mean": 256, "std_dev": 100, "min": 2, "max": 800})
OUTPUT = PluginConfig(kind="exponential", settings={"mean": 128})
CHAT = Client(
    id="chat",
    share=3.0,
    arrivals=PluginConfig(kind="gamma", settings={"cv": 2.0}),
    input_tokens=INPUT,
    output_tokens=OUTPUT,
    prefix=Prefix(group="system", tokens=512),
    slo_class="critical",
    tenant="acme",
    timeout_us=30_000_000,
)
BATCH = Client(id="batch", share=1.0, arrivals=PluginConfig(kind="poisson"), input_tokens=INPUT, output_tokens=OUTPUT)
MIXED = Workload(name="mixed", requests=400, rate_per_s=20.0, clients=(CHAT, BATCH))

Row = tuple[object, ...]


def row(request: Request) -> Row:
    """Everything a source decides about a request."""
    return (
        request.index,
        request.request_id,
        request.arrival_us,
        request.input_tokens,
        request.output_tokens,
        request.max_output_tokens,
        request.segments,
        request.slo_class,
        request.tenant,
        request.deadline_us,
        request.session_id,
        request.round_index,
    )


def take(source: RequestSource, count: int = 1_000_000) -> list[Request]:
    requests: list[Request] = []
    while len(requests) < count:
        request = source.next_request()
        if request is None:
            break
        requests.append(request)
    return requests


def rows(source: RequestSource, count: int = 1_000_000) -> list[Row]:
    return [row(request) for request in take(source, count)]


def test_requests_come_numbered_and_in_order_of_arrival() -> None:
    requests = take(GeneratedSource(MIXED, 42, builtin()))
    assert len(requests) == 400
    assert [request.index for request in requests] == list(range(400))
    assert requests[7].request_id == "request_7"
    arrivals = [request.arrival_us for request in requests]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 1
    assert arrivals[-1] == pytest.approx(400 / 20 * 1e6, rel=0.3)


def test_a_source_stays_empty() -> None:
    source = GeneratedSource(replace(MIXED, requests=1), 42, builtin())
    assert source.next_request() is not None
    assert source.next_request() is None
    assert source.next_request() is None


def test_clients_get_their_share_of_the_rate() -> None:
    requests = take(GeneratedSource(replace(MIXED, requests=8000), 1, builtin()))
    chat = sum(request.tenant == "acme" for request in requests)
    assert chat / 8000 == pytest.approx(0.75, abs=0.03)


def test_a_client_decides_about_its_requests() -> None:
    requests = take(GeneratedSource(MIXED, 42, builtin()))
    chat = [request for request in requests if request.tenant == "acme"]
    batch = [request for request in requests if not request.tenant]
    assert all(request.segments == (("system", 512),) for request in chat)
    assert all(request.segments is chat[0].segments for request in chat)
    assert all(512 + 2 <= request.input_tokens <= 512 + 800 for request in chat)
    assert all(request.deadline_us == request.arrival_us + 30_000_000 for request in chat)
    assert all(request.slo_class == "critical" for request in chat)
    assert all(request.segments == () and request.deadline_us == 0 for request in batch)


def test_the_seed_decides_everything() -> None:
    assert rows(GeneratedSource(MIXED, 42, builtin())) == rows(GeneratedSource(MIXED, 42, builtin()))
    assert rows(GeneratedSource(MIXED, 42, builtin()), 5) != rows(GeneratedSource(MIXED, 43, builtin()), 5)


def test_generated_workloads_never_change() -> None:
    # Known answers: every generated workload, and so every golden of one, rests on these numbers.
    weibull = replace(BATCH, id="bursts", arrivals=PluginConfig(kind="weibull", settings={"cv": 3.0}), share=2.0)
    workload = replace(MIXED, clients=(*MIXED.clients, weibull))
    found = [one[2:5] for one in rows(GeneratedSource(workload, 42, builtin()), 6)]
    assert found == [
        (393, 232, 152),
        (4154, 153, 322),
        (28527, 912, 188),
        (28985, 685, 2),
        (29239, 831, 67),
        (46510, 327, 239),
    ]


def test_another_client_does_not_change_the_numbers_of_the_first() -> None:
    alone = replace(MIXED, clients=(BATCH,), rate_per_s=5.0, requests=50)
    more = replace(MIXED, clients=(CHAT, BATCH, replace(CHAT, id="other", share=4.0)), rate_per_s=40.0)
    expected = rows(GeneratedSource(alone, 42, builtin()))
    found = [row(request) for request in take(GeneratedSource(more, 42, builtin())) if not request.tenant][:30]
    assert [one[2:] for one in found] == [one[2:] for one in expected[: len(found)]]
    assert len(found) == 30


def test_other_lengths_do_not_change_the_arrivals() -> None:
    longer = replace(BATCH, input_tokens=PluginConfig(kind="constant", settings={"value": 9}))
    base = take(GeneratedSource(replace(MIXED, clients=(BATCH,)), 42, builtin()))
    other = take(GeneratedSource(replace(MIXED, clients=(longer,)), 42, builtin()))
    assert [request.arrival_us for request in base] == [request.arrival_us for request in other]
    assert [request.output_tokens for request in base] == [request.output_tokens for request in other]


def test_clients_that_tie_come_in_their_order() -> None:
    evenly = [replace(BATCH, id=name, tenant=name, share=1.0, arrivals=PluginConfig(kind="constant")) for name in "cab"]
    source = GeneratedSource(replace(MIXED, clients=tuple(evenly), rate_per_s=30.0, requests=9), 0, builtin())
    requests = take(source)
    assert [request.tenant for request in requests] == list("cabcabcab")
    assert [request.arrival_us for request in requests] == [100_000] * 3 + [200_000] * 3 + [300_000] * 3


@given(st.integers(0, 60), st.integers(0, 5))
def test_a_pickled_source_continues_alike(before: int, seed: int) -> None:
    source = GeneratedSource(replace(MIXED, requests=70), seed, builtin())
    take(source, before)
    copy: RequestSource = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert rows(copy) == rows(source)


def test_only_what_no_plug_in_of_ones_own_draws_may_be_asked_for_ahead() -> None:
    own = Registry(builtin().plugins, origins=[Origin("mine", "1.0", "mine", "")])
    assert GeneratedSource(MIXED, 1, builtin()).at_once == TraceSource(small_table()).at_once == BATCH_SIZE
    assert GeneratedSource(MIXED, 1, own).at_once == 1


def test_a_pickle_does_not_grow_with_the_workload() -> None:
    source = GeneratedSource(replace(MIXED, requests=None), 3, builtin())
    early = len(pickle.dumps(source))
    assert len(take(source, 5000)) == 5000
    assert early < 2000
    assert len(pickle.dumps(source)) < early + 100


@pytest.mark.parametrize(
    "workload",
    [
        replace(MIXED, rate_per_s=0.0),
        replace(MIXED, clients=()),
        replace(MIXED, clients=(replace(BATCH, share=0.0),)),
    ],
)
def test_a_workload_without_requests_is_refused(workload: Workload) -> None:
    with pytest.raises(PolicyError, match="workload 'mixed' generates no requests"):
        GeneratedSource(workload, 0, builtin())


def test_a_client_without_a_share_sends_nothing() -> None:
    clients = (replace(CHAT, share=0.0), BATCH)
    assert all(not request.tenant for request in take(GeneratedSource(replace(MIXED, clients=clients), 0, builtin())))


def small_table() -> TraceTable:
    return TraceTable(TraceColumns(arrival_us=[5, 3, 5], input_tokens=[10, 11, 12], output_tokens=[1, 2, 3]))


def test_a_trace_is_replayed_in_order_of_arrival() -> None:
    requests = take(TraceSource(small_table()))
    assert [(request.arrival_us, request.input_tokens, request.output_tokens) for request in requests] == [
        (3, 11, 2),
        (5, 10, 1),
        (5, 12, 3),
    ]
    assert [request.request_id for request in requests] == ["request_0", "request_1", "request_2"]


@pytest.mark.parametrize(("limit", "count"), [(None, 3), (0, 0), (2, 2), (9, 3)])
def test_a_trace_may_be_cut_short(limit: int | None, count: int) -> None:
    source = TraceSource(small_table(), limit)
    assert len(take(source)) == count
    assert source.next_request() is None


def test_a_pickled_trace_source_continues_alike() -> None:
    source = TraceSource(small_table())
    source.next_request()
    copy: RequestSource = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert rows(copy) == rows(source)


def test_the_factory_follows_the_workload(tmp_path: Path) -> None:
    assert isinstance(create_source(MIXED, 1, builtin()), GeneratedSource)
    path = tmp_path / "t.csv"
    path.write_text("arrival_time_us,input_tokens,output_tokens\n1,2,3\n4,5,6\n", encoding="utf-8")
    recorded = Workload(name="r", requests=1, trace=Trace(path=str(path), format="requests", sha256=""))
    assert [request.arrival_us for request in take(create_source(recorded, 1, builtin()))] == [1]


@pytest.mark.parametrize("turns", [1, 2])
def test_with_ignore_eos_answers_are_known_to_use_up_their_budget(turns: int) -> None:
    count = PluginConfig(kind="constant", settings={"value": turns})
    session = None if turns == 1 else Session(turns=count, pacing="clock")
    clients = tuple(replace(CHAT, id=name, ignore_eos=name == "all", session=session) for name in ("all", "some"))
    source = create_source(replace(MIXED, clients=clients, requests=40), 1, builtin())
    asked = list(iter(source.next_request, None))
    assert {(request.client, request.ignore_eos) for request in asked} == {("all", True), ("some", False)}
    assert all(request.max_output_tokens == request.output_tokens for request in asked)
