"""Sessions: what their calls say, when they are sent, what is found in the prefix cache, and how they end."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from blis_tui import load
from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Streams
from blis_tui.model import Client, PluginConfig, Prefix, Session, SessionCall
from blis_tui.runs.simulation import Simulation
from blis_tui.workload import sessions
from blis_tui.workload.clients import ClientSource
from blis_tui.workload.sessions import Call, SessionDraws, SessionRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow

BLOCK = 16
LENGTHS = {
    "input_tokens": {"kind": "gaussian", "mean": 200, "std_dev": 100, "min": 10, "max": 500},
    "output_tokens": {"kind": "gaussian", "mean": 20, "std_dev": 10, "min": 1, "max": 50},
}
ONE = {"cluster": {"instances": 1}}
CHAT = {
    "id": "chat",
    **LENGTHS,
    "prefix": {"group": "system", "tokens": 100},
    "session": {
        "turns": {"kind": "uniform", "min": 1, "max": 5},
        "think_time_ms": {"kind": "exponential", "mean": 2000},
    },
}


def experiment(*clients: Mapping[str, object], **changes: object) -> Experiment:
    workload = {"requests": 120, "rate_per_s": 3.0, "clients": list(clients)}
    return load("quickstart", set={"workload": workload, "policy": "vllm-v1", "expect": [], **ONE, **changes})


def run(tried: Experiment) -> Simulation:
    simulation = Simulation(tried)
    simulation.run()
    assert simulation.done
    return simulation


def rows(simulation: Simulation) -> list[RequestRow]:
    return list(simulation.report().rows)


def by_session(simulation: Simulation) -> dict[str, list[RequestRow]]:
    found: dict[str, list[RequestRow]] = {}
    for row in rows(simulation):
        found.setdefault(row.session_id, []).append(row)
    return found


def drawn(session: Session, *, prefix: Prefix | None = None, seed: int = 1) -> list[SessionRun]:
    """The first sessions of a client, as they begin."""
    five = PluginConfig(kind="constant", settings={"value": 5})
    client = Client(
        id="one", share=1.0, arrivals=five, input_tokens=five, output_tokens=five, prefix=prefix, session=session
    )
    draws = SessionDraws(client, session, Streams(seed), load("quickstart").plugins)
    return [draws.begin(-1) for _ in range(3)]


def constant(value: int) -> PluginConfig:
    return PluginConfig(kind="constant", settings={"value": value})


@pytest.fixture(scope="module")
def chat() -> Simulation:
    return run(experiment(CHAT))


def test_a_prompt_is_the_conversation_so_far_and_something_new(chat: Simulation) -> None:
    sessions = by_session(chat)
    assert len(sessions) > 30
    assert max(map(len, sessions.values())) == 5
    for turns in sessions.values():
        assert [row.round_index for row in turns] == list(range(len(turns)))
        for before, after in itertools.pairwise(turns):
            new = after.input_tokens - before.input_tokens - before.output_tokens
            assert 10 <= new <= 500
        assert 110 <= turns[0].input_tokens <= 600


def test_nobody_speaks_before_the_answer_is_there(chat: Simulation) -> None:
    waits = [
        after.arrival_us - before.arrival_us - (before.e2e_us or 0)
        for turns in by_session(chat).values()
        for before, after in itertools.pairwise(turns)
    ]
    assert min(waits) >= 1000
    assert 1_200_000 < sum(waits) / len(waits) < 3_000_000


def test_all_that_was_said_before_is_found_in_the_prefix_cache(chat: Simulation) -> None:
    """In whole blocks; the last token of an answer is never computed."""
    for turns in by_session(chat).values():
        for before, after in itertools.pairwise(turns):
            assert after.cached_tokens == (before.input_tokens + before.output_tokens - 1) // BLOCK * BLOCK
        assert turns[0].cached_tokens in (0, 100 // BLOCK * BLOCK)


def test_what_is_said_depends_on_nothing_but_the_seed() -> None:
    """Not on the cluster's speed or policy, and not on who else is there."""
    ours = experiment(CHAT)
    slower = experiment({**CHAT, "share": 1}, {"id": "other", "share": 1, **LENGTHS}, policy="default", hardware="l40s")
    lengths = []
    for tried in (ours, slower):
        simulation = run(tried)
        by_session: dict[str, list[tuple[int, int]]] = {}
        for row in rows(simulation):
            if row.session_id:
                by_session.setdefault(row.session_id, []).append((row.input_tokens, row.output_tokens))
        lengths.append(by_session)
    fast, slow = lengths
    common = [name for name in fast if name in slow]
    assert len(common) > 10
    for name in common:
        both = min(len(fast[name]), len(slow[name]))
        assert fast[name][:both] == slow[name][:both]


def test_a_call_without_an_answer_cancels_the_rest() -> None:
    impatient = {**CHAT, "timeout_us": 150_000}
    simulation = run(experiment(impatient, engine={"max_num_seqs": 2}))
    session = simulation.report().sessions
    assert session is not None
    lost = [turns for turns in by_session(simulation).values() if turns[-1].state == "timed-out"]
    assert lost
    assert all(row.state == "completed" for turns in lost for row in turns[:-1])
    assert session.cancelled == len(lost)
    assert session.started == session.completed + session.cancelled + session.unfinished == len(by_session(simulation))


def test_the_report_counts_what_the_requests_say(chat: Simulation) -> None:
    """By hand from the rows; how many turns a session has is drawn anew."""
    session = chat.report().sessions
    assert session is not None
    sessions = by_session(chat)
    client = chat.experiment.workload.clients[0]
    assert client.session is not None
    draws = SessionDraws(client, client.session, Streams(chat.experiment.seed), chat.experiment.plugins)
    planned = {run.name: run.unanswered for run in (draws.begin(-1) for _ in sessions)}
    over = [turns for name, turns in sessions.items() if len(turns) == planned[name]]
    assert (session.started, session.completed, session.cancelled) == (len(sessions), len(over), 0)
    assert session.unfinished == len(sessions) - len(over) > 0
    assert session.calls == 120
    took = [turns[-1].arrival_us + (turns[-1].e2e_us or 0) - turns[0].arrival_us for turns in over]
    assert session.duration_ms.max == max(took) / 1000
    first = [row.ttft_us or 0 for turns in sessions.values() for row in turns[:1]]
    later = [row for turns in sessions.values() for row in turns[1:]]
    assert session.first_ttft_ms.max == max(first) / 1000
    assert session.later_ttft_ms.max == max(row.ttft_us or 0 for row in later) / 1000
    assert session.later_cached == sum(row.cached_tokens for row in later) / sum(row.input_tokens for row in later)


def test_users_hold_one_session_after_the_other() -> None:
    users = {**CHAT, "arrivals": {"kind": "closed-loop", "users": 3}}
    simulation = run(experiment(users, workload={"requests": 60, "clients": [users]}))
    sessions = by_session(simulation)
    spans = sorted((turns[0].arrival_us, turns[-1].arrival_us + (turns[-1].e2e_us or 0)) for turns in sessions.values())
    assert [begin for begin, _ in spans[:3]] == [0, 0, 0]
    ends = [end for _, end in spans]
    assert len(spans) > 10
    assert all(begin in ends for begin, _ in spans[3:])


AGENT = (
    SessionCall(id="plan", output_tokens=constant(7)),
    SessionCall(id="search", after=("plan",), wait_ms=constant(2), parallel=2, input_tokens=constant(3)),
    SessionCall(id="apart", after=("plan",), history=False),
    SessionCall(id="answer", after=("search", "apart")),
)


def test_calls_of_an_agent_follow_one_another() -> None:
    run = drawn(Session(turns=constant(2), think_time_ms=constant(9), calls=AGENT), prefix=Prefix(group="g", tokens=4))[
        0
    ]
    assert run.unanswered == 10
    assert run.begin() == [0]
    prompt, answer = run.send(0)
    assert (prompt, answer) == ((("g", 4), ("one-0/0", 5)), 7)
    assert run.content(0) == (*prompt, ("one-0/0/answer", 7))
    due = run.follow(0, 1000, 6)
    assert due == [(1, 3000), (2, 3000), (3, 1000)]
    heard = (*prompt, ("one-0/0/answer", 6))
    assert run.send(1)[0] == (*heard, ("one-0/1", 3))
    assert run.send(2)[0] == (*heard, ("one-0/2", 3))
    assert run.send(3)[0] == (("g", 4), ("one-0/3", 5))
    assert run.follow(2, 9000, 5) == []
    assert run.follow(3, 4000, 5) == []
    assert run.follow(1, 5000, 5) == [(4, 9000)]
    history = (*heard, ("one-0/1", 3), ("one-0/1/answer", 5), ("one-0/2/answer", 5), ("one-0/3/answer", 5))
    assert run.send(4)[0] == (*history, ("one-0/4", 5))
    assert run.follow(4, 20_000, 5) == [(5, 29_000)]
    assert run.send(5)[0] == (*history, ("one-0/4", 5), ("one-0/4/answer", 5), ("one-0/5", 5))


@pytest.mark.parametrize("followers", [1, 2, 3, 4])
def test_what_was_said_is_kept_until_the_last_call_that_needs_it(followers: int) -> None:
    def call(*after: int) -> Call:
        return Call(input_tokens=3, output_tokens=2, wait_us=0, after=after, history=0 if after else -1)

    run = SessionRun("s", 0, (), [call(), *(call(0) for _ in range(followers))], paced_by_answers=True)
    run.begin()
    history = (*run.send(0)[0], ("s/0/answer", 2))
    run.follow(0, 0, 2)
    for number in range(1, followers + 1):
        assert run.content(0) == history
        assert run.send(number)[0] == (*history, (f"s/{number}", 3))
    assert run.content(0) == ()


def test_prompts_that_stand_for_themselves() -> None:
    run = drawn(Session(turns=constant(3), history="none"), prefix=Prefix(group="g", tokens=4))[0]
    run.begin()
    assert [run.send(turn)[0] for turn in range(3)] == [(("g", 4), (f"one-0/{turn}", 5)) for turn in range(3)]


def test_a_session_ends_before_its_context_is_too_long() -> None:
    whole = Session(turns=constant(50), max_context_tokens=47)
    assert [run.unanswered for run in drawn(whole)] == [4, 4, 4]
    assert [run.unanswered for run in drawn(whole, prefix=Prefix(group="g", tokens=8))] == [3, 3, 3]
    assert [run.unanswered for run in drawn(Session(turns=constant(9), max_context_tokens=1))] == [1, 1, 1]


def test_a_session_without_end_is_refused() -> None:
    with pytest.raises(PolicyError, match="a session of client 'one' has 1000000 turns of 1 calls"):
        drawn(Session(turns=constant(10**6)))


def test_a_session_may_have_as_many_calls_as_that_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_CALLS", 12)
    calls = (SessionCall(id="one"), SessionCall(id="two", after=("one",), parallel=2))
    assert [run.unanswered for run in drawn(Session(turns=constant(4), calls=calls))] == [12, 12, 12]
    with pytest.raises(PolicyError, match="5 turns of 3 calls"):
        drawn(Session(turns=constant(5), calls=calls))


def test_so_many_sessions_begin_and_all_of_them_end() -> None:
    users = {**CHAT, "id": "users", "arrivals": {"kind": "closed-loop", "users": 3}}
    workload = {
        "sessions": 20,
        "rate_per_s": 3.0,
        "clients": [CHAT, users, {"id": "plain", **LENGTHS}],
        "requests": 300,
    }
    simulation = run(experiment(workload=workload))
    session = simulation.report().sessions
    assert session is not None
    assert (session.started, session.completed) == (20, 20)
    names = by_session(simulation)
    assert len(names) == 21
    assert len(names[""]) == 300 - session.calls


def test_by_the_clock_nobody_waits_for_answers() -> None:
    tried = {**CHAT, "session": {"turns": 4, "think_time_ms": 50, "pacing": "clock"}}
    simulation = run(experiment(tried, engine={"max_num_seqs": 4}))
    for turns in by_session(simulation).values():
        gaps = [after.arrival_us - before.arrival_us for before, after in itertools.pairwise(turns)]
        assert gaps == [50_000] * len(gaps)


def test_a_source_with_an_arrival_process_counts_sessions() -> None:
    """Three a second, of three turns on average: nine requests a second."""
    threes = {**CHAT, "session": {"turns": 3}}
    simulation = run(experiment(threes, workload={"requests": 1200, "rate_per_s": 3.0, "clients": [threes]}))
    assert simulation.report().offered.requests_per_s == pytest.approx(9, rel=0.1)


def test_checkpoints_in_the_middle_of_sessions(chat: Simulation) -> None:
    whole = chat.report().to_json()
    other = Simulation(chat.experiment)
    other.run(max_events=chat.events // 2)
    checkpoint, digest = other.checkpoint(), other.digest()
    fresh = Simulation(chat.experiment)
    fresh.restore(checkpoint)
    assert fresh.digest() == digest
    fresh.run()
    assert fresh.report(verify=True).to_json() == whole


def test_clients_with_sessions_have_other_streams_than_those_without() -> None:
    """Adding sessions to one client leaves the requests of another as they are."""
    plain = {"id": "plain", **LENGTHS}
    alone, beside = (
        ClientSource(tried.workload.clients[0], 1.0, tried.workload, Streams(tried.seed), tried.plugins)
        for tried in (experiment(plain), experiment(plain, CHAT))
    )
    for index in range(20):
        request, other = alone.request(index, 0), beside.request(index, 0)
        assert (request.input_tokens, request.output_tokens) == (other.input_tokens, other.output_tokens)
