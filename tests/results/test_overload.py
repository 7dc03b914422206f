"""The verdict of `overload` on random systems whose capacity is known, because each was run at it."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pytest

import blis_tui
from tests.nightly import every

if TYPE_CHECKING:
    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.report import Report

STAGES = {
    "plain": "and the queue ",
    "bursty": "and the queue ",
    "sessions": "and the queue ",
    "routed": "and the queue ",
    "gateway": "and the queue of the gateway ",
    "front-end": "and the queue in front of the API server ",
    "prefill": "and the queue of pool prefill ",
    "decode": "and the number of requests on instances of pool decode ",
}
"""Kind of system -> what a growing queue is called there."""
TURNS = 4
ALL_AT_ONCE, MANY = 400, 2000
"""Requests of the runs that measure what a system serves."""


def tokens(chance: Random, least: int, most: int) -> dict[str, object]:
    """A distribution of lengths whose mean lies between two numbers."""
    mean = chance.randint(least, most)
    kind = chance.choice(["constant", "uniform", "exponential"])
    if kind == "constant":
        return {"kind": kind, "value": mean}
    if kind == "uniform":
        return {"kind": kind, "min": max(1, mean // 2), "max": mean + mean // 2}
    return {"kind": kind, "mean": mean, "max": 8 * mean}


def system(kind: str, seed: int) -> dict[str, object]:
    """The keys of a random system, all of which the quickstart has already or may have."""
    chance = Random(f"{kind} {seed}")  # noqa: S311
    client: dict[str, object] = {"id": "load", "input_tokens": tokens(chance, 16, 300)}
    client["output_tokens"] = tokens(chance, 60, 160) if kind == "decode" else tokens(chance, 8, 60)
    client["arrivals"] = {"kind": "gamma", "cv": 2.0} if kind == "bursty" else {"kind": "poisson"}
    places = chance.choice([4, 8, 16, 32])
    made: dict[str, object] = {
        "seed": seed,
        "latency": {"kind": "roofline"},
        "policy": {"batching": chance.choice(["vllm-v1", "blis"])},
        "cluster": {"instances": 1},
        "engine": {"max_num_seqs": places, "max_num_batched_tokens": chance.choice([256, 1024])},
        "expect": [],
    }
    if kind == "sessions":
        # With it, more sessions at a time mean fewer of their prompts in the cache, and fewer calls served.
        made["engine"] = {"max_num_seqs": places, "enable_prefix_caching": False}
        client["session"] = {"turns": TURNS, "think_time_ms": chance.choice([100, 500, 2000])}
    elif kind == "routed":
        made["cluster"] = {"instances": chance.randint(2, 4)}
        made["policy"] = {"routing": chance.choice(["round-robin", "least-loaded"])}
    elif kind == "gateway":
        limit = {"kind": "concurrency", "max_concurrency": chance.choice([places, 2 * places])}
        made["policy"] = {"routing": "least-loaded", "gateway": {"bands": True, "saturation": limit}}
        made["cluster"] = {"instances": chance.randint(1, 2)}
    elif kind == "front-end":
        made["engine"] = {"front_end": {"request_us": 30_000, "processes": chance.randint(1, 2)}, "max_num_seqs": 64}
    elif kind in {"prefill", "decode"}:
        made["cluster"] = {"disaggregation": {"prefill_instances": 1, "decode_instances": 1}}
        # Waiting requests hold their prompts' blocks; when these are used up, requests are dropped, which is no queue.
        made["engine"] = {"max_num_seqs": places, "kv_blocks": 200_000}
        if kind == "prefill":
            client |= {"input_tokens": tokens(chance, 600, 1200), "output_tokens": tokens(chance, 2, 4)}
            made["engine"] = {"max_num_seqs": 32, "max_num_batched_tokens": 512, "kv_blocks": 200_000}
    made["workload"] = {"clients": [client]}
    return made


def run(made: dict[str, object], rate_per_s: float, requests: int) -> Report:
    """Run a system under a load, in requests per second also where these belong to sessions."""
    workload = made["workload"]
    assert isinstance(workload, dict)
    sessions = "session" in workload["clients"][0]
    some = {"sessions": requests // TURNS} if sessions else {"requests": requests}
    load = {**workload, **some, "rate_per_s": rate_per_s / TURNS if sessions else rate_per_s}
    return blis_tui.run(blis_tui.load("quickstart", set={**made, "workload": load}))


def capacity_per_s(made: dict[str, object]) -> float:
    """What the system serves while more arrives than that, by the middle half of the requests.

    If all arrived at once, they would be computed in step, and fewer served. An API server hands on what waits in
    bunches, so there the whole time counts.
    """
    rate, served = 100_000.0, 0.0
    engine = made.get("engine")
    edge = 0 if isinstance(engine, dict) and "front_end" in engine else 4
    for requests in (ALL_AT_ONCE, MANY):
        ends = sorted(row.completed_us for row in run(made, rate, requests).rows if row.completed_us is not None)
        first, last = (len(ends) // edge, 3 * len(ends) // edge) if edge else (0, len(ends) - 1)
        served = 1e6 * (last - first) / (ends[last] - ends[first])
        rate = 2 * served
    return served


CAPACITIES_PER_S = {
    "plain": 17.31,
    "bursty": 100.9,
    "sessions": 19.43,
    "routed": 84.68,
    "gateway": 10.58,
    "front-end": 32.09,
    "prefill": 26.81,
    "decode": 85.7,
}
"""Kind of system -> the capacity of the first random one, which is measured again each night."""


@cache
def known_capacity_per_s(kind: str, seed: int) -> float:
    """That of a random system, which is asked for its verdict below it and above."""
    return capacity_per_s(system(kind, seed)) if seed else CAPACITIES_PER_S[kind]


def overload(report: Report) -> Finding | None:
    return next((warning for warning in report.warnings if warning.id == "overload"), None)


def stable(kind: str, seed: int) -> str:
    """Run a system at 0.5 to 0.9 of its capacity, for a minute or more; return what is wrong with the verdict."""
    made, chance = system(kind, seed), Random(f"stable {kind} {seed}")  # noqa: S311
    capacity, load = known_capacity_per_s(kind, seed), chance.choice([0.9, chance.uniform(0.5, 0.9)])
    rate = load * capacity
    requests = max(chance.choice([100, 300, 1000]), min(3000, int(60 * rate)))
    finding = overload(run(made, rate, requests))
    return "" if finding is None else f"{kind} {seed}, {load:.2f} of {capacity:.1f}/s, {requests}: {finding.message}"


def unstable(kind: str, seed: int) -> str:
    """Run a system at 1.15 to 2 times its capacity, long enough; return what is wrong with the verdict."""
    made, chance = system(kind, seed), Random(f"unstable {kind} {seed}")  # noqa: S311
    capacity, load = known_capacity_per_s(kind, seed), chance.choice([1.15, chance.uniform(1.15, 2.0)])
    requests = LONG_ENOUGH.get(kind, 3000)
    finding = overload(run(made, load * capacity, requests))
    if finding is None:
        return f"{kind} {seed}, {load:.2f} of {capacity:.1f}/s, {requests}: not found"
    return "" if STAGES[kind] in finding.message else f"{kind} {seed}: {finding.message}"


LONG_ENOUGH = {"bursty": 5000, "sessions": 5000}
"""Requests after which 1.15 times the capacity shows, because growth exceeds what chance does to arrivals."""


@pytest.mark.parametrize("kind", STAGES)
def test_a_stable_system_is_never_called_overloaded(kind: str) -> None:
    assert stable(kind, 0) == ""


@pytest.mark.parametrize("kind", STAGES)
def test_more_than_a_system_serves_is_found_where_it_piles_up(kind: str) -> None:
    assert unstable(kind, 0) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", every(8, STAGES))
def test_capacities_are_what_systems_serve(kind: str) -> None:
    assert capacity_per_s(system(kind, 0)) == pytest.approx(CAPACITIES_PER_S[kind], rel=0.01)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", STAGES)
def test_stable_systems_are_never_called_overloaded(kind: str) -> None:
    assert [wrong for seed in range(1, 3) if (wrong := stable(kind, seed))] == []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", STAGES)
def test_overloaded_systems_are_found(kind: str) -> None:
    assert [wrong for seed in range(1, 3) if (wrong := unstable(kind, seed))] == []


# ---- cases from the field ----


def case(source: str, **changes: object) -> Report:
    return blis_tui.run(blis_tui.load(source, set={key.replace("__", "."): value for key, value in changes.items()}))


def short_classifications(rate_per_s: float, processes: int = 1) -> Report:
    """Prompts of 128 tokens and answers of 4: the API server is what limits them."""
    client = {"id": "b", "arrivals": "poisson", "input_tokens": 128, "output_tokens": 4}
    return case(
        "quickstart",
        model="gpt-oss-120b",
        cluster={"tensor_parallel": 2},
        engine={"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "front_end": {"processes": processes}},
        workload={"requests": 3000, "rate_per_s": rate_per_s, "clients": [client]},
        expect=[],
    )


def test_requests_that_wait_for_the_api_server_are_an_overload_of_it() -> None:
    report = short_classifications(340)
    finding = overload(report)
    assert finding is not None
    assert "and the queue in front of the API server kept growing" in finding.message
    assert finding.keys == ("engine.front_end.processes", "cluster.instances", "workload.rate_per_s")
    waits = [(row.arrival_us, row.queued_us) for row in report.rows]
    first, last = min(at for at, _ in waits), max(at for at, _ in waits)
    start = last - (last - first) // 4
    there = sum(max(0, min(last, queued) - max(start, arrived)) for arrived, queued in waits if queued is not None)
    assert finding.figures["waiting_last_quarter"] == pytest.approx(there / (last - start), rel=0.01)
    assert overload(short_classifications(100)) is None
    assert overload(short_classifications(260, processes=2)) is None


def long_prompts_among_chats(requests: int, rate_per_s: float, share: float) -> Report:
    chat = {"id": "chat", "share": 1 - share, "arrivals": "poisson", "input_tokens": 300, "output_tokens": 150}
    rag = {"id": "rag", "share": share, "arrivals": "poisson", "input_tokens": 100_000, "output_tokens": 300}
    return case(
        "quickstart",
        model="llama-3.1-8b-instruct",
        cluster={"instances": 1},
        engine={"max_num_batched_tokens": 2048},
        workload={"requests": requests, "rate_per_s": rate_per_s, "clients": [chat, rag]},
        expect=[],
    )


def test_a_backlog_that_nothing_works_off_is_an_overload_though_it_does_not_grow() -> None:
    finding = overload(long_prompts_among_chats(3000, 11.6, 0.015))
    assert finding is not None
    assert finding.message.startswith("Requests wait behind a backlog that is never worked off: in the second half")
    assert "and the queue never fell below " in finding.message
    assert finding.figures["waiting_least"] > 128
    assert overload(long_prompts_among_chats(1500, 8, 0.007)) is None


def two_pools(rate_per_s: float, **changes: object) -> Report:
    return case(
        "quickstart",
        model="qwen2.5-7b-instruct",
        hardware="l40s",
        cluster={"disaggregation": {"prefill_instances": 1, "decode_instances": 1}},
        workload={
            "requests": 1500,
            "rate_per_s": rate_per_s,
            "clients": [{"id": "b", "arrivals": "poisson", "input_tokens": 1024, "output_tokens": 50}],
        },
        expect=[],
        **changes,
    )


def test_the_overloaded_pool_is_named_with_the_key_of_its_instances() -> None:
    finding = overload(two_pools(20))
    assert finding is not None
    assert "and the queue of pool prefill kept growing" in finding.message
    assert finding.keys == ("cluster.disaggregation.prefill_instances", "workload.rate_per_s")
    assert overload(two_pools(6)) is None


def test_a_link_that_is_too_slow_is_named() -> None:
    slow = {"bandwidth_gb_per_s": 0.3, "contention": "fair-share"}
    finding = overload(two_pools(6, **{"cluster.disaggregation.transfer": slow}))
    assert finding is not None
    assert "the number of requests whose KV blocks are in transfer kept growing" in finding.message
    assert finding.keys == ("cluster.disaggregation.transfer.bandwidth_gb_per_s", "workload.rate_per_s")


def test_users_who_wait_for_their_answers_are_no_overload() -> None:
    """However long the queue: there are never more requests than users."""
    users = {"id": "u", "arrivals": {"kind": "closed-loop", "users": 1000}, "input_tokens": 50, "output_tokens": 20}
    workload = {"requests": 3000, "clients": [users]}
    assert overload(case("quickstart", workload=workload, engine__max_num_seqs=8, expect=[])) is None


def test_what_sessions_were_due_to_send_is_told_beside_what_came() -> None:
    """Sessions that wait for answers are no lower load because answers take long."""
    made = system("sessions", 1)
    due = 1.5 * capacity_per_s(made)
    report = run(made, due, 3000)
    finding, sessions = overload(report), report.sessions
    assert finding is not None
    assert sessions is not None
    assert sessions.due_calls_per_s is not None
    assert sessions.calls_per_s is not None
    starts = sorted(row.arrival_us for row in report.rows if row.round_index == 0)
    seconds = (starts[-1] - starts[0]) / 1e6
    assert sessions.due_calls_per_s == pytest.approx(TURNS * (len(starts) - 1) / seconds)
    assert sessions.due_calls_per_s == pytest.approx(due, rel=0.1)
    came = [row for row in report.rows if starts[0] < row.arrival_us <= starts[-1]]
    assert sessions.calls_per_s == pytest.approx(len(came) / seconds)
    assert sessions.calls_per_s < 0.9 * sessions.due_calls_per_s
    assert f"The sessions that began were due to send {sessions.due_calls_per_s:,.1f} requests/s" in finding.message
