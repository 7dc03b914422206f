"""From arrival to the end of a request's life: latencies, admission, routing, drops, timeouts, horizon."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from blis_tui.base.errors import PolicyError
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.signals import IncomingRequest, InstanceSignals, declared
from blis_tui.engine.records import RECORD_KINDS, Arrived, Observers, Record, Rejected, Routed, StepFinished
from blis_tui.engine.request import Request
from blis_tui.model import PluginConfig
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, Outcome, experiment, request


def test_admission_and_routing_latency_delay_the_queue() -> None:
    outcome = Outcome(experiment(admission_latency_us=30, routing_latency_us=12), [request(0, 5, 8, 1)])
    assert outcome.rows["0"].queued_us == 47
    assert outcome.rows["0"].ttft_us == 42 + 108


def test_round_robin_deals_in_order_of_routing() -> None:
    outcome = Outcome(experiment(instances=3), [request(i, 0, 8, 1) for i in range(7)])
    routed = [(record.request_id, record.instance) for record in outcome.records if isinstance(record, Routed)]
    assert routed == [(str(i), i % 3) for i in range(7)]


def test_a_token_bucket_starts_full_refills_at_its_rate_and_charges_prompts() -> None:
    bucket = PluginConfig(kind="token-bucket", settings={"capacity_tokens": 20, "refill_tokens_per_s": 10})
    outcome = Outcome(
        experiment(admission=bucket),
        [request(0, 0, 20, 1), request(1, 500_000, 6, 1), request(2, 600_000, 6, 1), request(3, 10_000_000, 21, 1)],
    )
    states = [outcome.rows[str(i)].state for i in range(4)]
    assert states == ["completed", "rejected", "completed", "rejected"]
    reasons = {record.reason for record in outcome.records if isinstance(record, Rejected)}
    assert reasons == {"insufficient tokens"}


def test_reject_all_rejects_all_also_with_one_instance() -> None:
    outcome = Outcome(experiment(admission=PluginConfig(kind="reject-all")), [request(0, 0, 8, 1)])
    assert outcome.rows["0"].state == "rejected"
    assert outcome.rows["0"].instance is None


@pytest.mark.parametrize(
    ("limits", "prompt", "output", "reason"),
    [
        ({"max_model_len": 16}, 16, 1, "prompt of 16 tokens, max_model_len is 16"),
        ({"max_model_len": 16}, 10, 7, "prompt of 10 + 7 output tokens, max_model_len is 16"),
        ({"blocks": 3}, 13, 1, "13 tokens need 4 KV blocks, there are 3"),
        ({"blocks": 3}, 8, 6, "13 tokens need 4 KV blocks, there are 3"),
    ],
)
def test_what_can_never_be_served_is_dropped_with_its_reason(
    limits: dict[str, int], prompt: int, output: int, reason: str
) -> None:
    made = experiment(max_model_len=limits.get("max_model_len"), blocks=limits.get("blocks", 100))
    outcome = Outcome(made, [request(0, 0, prompt, output), request(1, 0, 8, 4)])
    assert [getattr(record, "reason", "") for record in outcome.of_kind("dropped")] == [reason]
    assert outcome.rows["0"].state == "dropped-unservable"
    assert outcome.rows["1"].state == "completed"


def test_the_longest_request_that_fits_the_cache_completes() -> None:
    outcome = Outcome(experiment(blocks=3), [request(0, 0, 8, 5)])
    assert outcome.rows["0"].state == "completed"


def test_a_timeout_that_comes_too_late_does_not_move_the_clock() -> None:
    outcome = Outcome(experiment(), [request(0, 0, 8, 1, deadline_us=60_000_000)])
    assert outcome.cluster.now == 108


def test_a_completion_beats_the_timeout_of_the_same_microsecond() -> None:
    assert Outcome(experiment(), [request(0, 0, 8, 1, deadline_us=108)]).rows["0"].state == "completed"


def test_a_request_that_times_out_while_waiting_or_running_leaves_with_its_blocks() -> None:
    outcome = Outcome(
        experiment(max_num_seqs=1),
        [request(0, 0, 8, 50, deadline_us=500), request(1, 1, 8, 2, deadline_us=400), request(2, 2, 8, 2)],
    )
    states = [outcome.rows[str(i)].state for i in range(3)]
    assert states == ["timed-out", "timed-out", "completed"]
    running, waiting = outcome.rows["0"], outcome.rows["1"]
    # A step's tokens count from its start: the fifth was on its way when the deadline came.
    assert (running.output_tokens, running.first_token_us) == (5, 108)
    assert (waiting.scheduled_us, waiting.output_tokens) == (None, 0)
    assert outcome.cluster.instances[0].pool.used == 0


def test_steps_stay_one_chain_when_the_last_running_request_times_out() -> None:
    outcome = Outcome(experiment(max_num_seqs=1), [request(0, 0, 8, 50, deadline_us=250), request(1, 10, 8, 20)])
    steps = [record for record in outcome.records if isinstance(record, StepFinished)]
    for before, after in pairwise(steps):
        assert after.time_us >= before.time_us + before.duration_us


def test_a_step_in_which_nobody_is_left_does_not_happen() -> None:
    outcome = Outcome(experiment(), [request(0, 0, 8, 50, deadline_us=200)])
    assert len(outcome.of_kind("step")) == 2
    assert outcome.cluster.now == 200


@pytest.mark.parametrize("deadline_us", [50, 100])
def test_a_past_deadline_is_noticed_in_the_queue(deadline_us: int) -> None:
    outcome = Outcome(experiment(alpha=(100.0, 0.0, 0.0)), [request(0, 0, 8, 1, deadline_us=deadline_us)])
    row = outcome.rows["0"]
    assert (row.state, row.queued_us, row.scheduled_us) == ("timed-out", 100, None)


def test_nothing_happens_beyond_the_horizon() -> None:
    requests = [request(0, 0, 8, 3), request(1, 150, 8, 30), request(2, 5000, 8, 1)]
    outcome = Outcome(experiment(horizon_us=400), requests)
    assert set(outcome.rows) == {"0", "1"}
    assert outcome.rows["1"].state == "running"
    assert outcome.cluster.now <= 400


def test_what_policies_are_shown_has_no_future() -> None:
    shown = {*IncomingRequest._fields, *InstanceSignals._fields}
    assert not shown & {"output_tokens", "finish_clock", "request", "requests", "waiting_requests", "running_requests"}
    one = request(0, 0, 8, 77)
    assert 77 not in declared(one)._replace(max_output_tokens=0)
    one.declare(12)
    assert declared(one).max_output_tokens == 12
    assert 77 not in declared(one)
    cluster = Cluster(experiment(instances=2), ListSource([one]), RequestLog(), Observers())
    assert [type(value).__name__ for value in cluster.dispatcher.router.fleet[0]] == ["int"] * 6 + ["CacheView", "int"]


def test_unknown_policies_are_refused_with_the_known_ones() -> None:
    with pytest.raises(PolicyError, match=r"known: always-admit, .*reject-all, .*token-bucket"):
        Outcome(experiment(admission=PluginConfig(kind="by-mood")), [])
    with pytest.raises(PolicyError, match="known: tail, priority"):
        Outcome(experiment(victim="loudest"), [])
    with pytest.raises(PolicyError, match="known: llm-serving-sim, nano, tensorrt-llm, vllm-v1, blis, sglang"):
        Outcome(experiment(batching="orca"), [])


class Counted(ListSource):
    """Requests of which it is known how many have been asked for."""

    def __init__(self, requests: Iterable[Request], at_once: int | None) -> None:
        super().__init__(requests)
        self.asked = 0
        if at_once is not None:
            self.at_once = at_once

    def next_request(self) -> Request | None:
        """One more has been asked for."""
        self.asked += 1
        return super().next_request()


@pytest.mark.parametrize(("at_once", "most"), [(None, 1), (1, 1), (3, 3), (16, 16)])
def test_a_source_is_asked_for_as_many_requests_ahead_as_it_says(at_once: int | None, most: int) -> None:
    source = Counted([request(i, 100 * i, 8, 2) for i in range(40)], at_once)
    records: list[Record] = []
    ahead: list[int] = []
    observers = Observers()

    def arrived(_: Record) -> None:
        ahead.append(source.asked - len(ahead))

    observers.add_all(RECORD_KINDS.values(), records.append)
    observers.add_all((Arrived,), arrived)
    Cluster(experiment(), source, RequestLog(), observers).run(10_000, None)
    assert max(ahead[:-1]) == most + 1  # the one that arrives among them
    assert records == Outcome(experiment(), [request(i, 100 * i, 8, 2) for i in range(40)]).records
