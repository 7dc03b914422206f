"""Breakpoints: how they are written, where they stop, what they say, and what the input field offers."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import InvariantError
from blis_tui.cluster.records import (
    Deferred,
    Dispatched,
    GatewayTick,
    Held,
    Resumed,
    RoutingDecision,
    Split,
    TransferFinished,
    TransferStarted,
)
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.engine.records import (
    RECORD_KINDS,
    Admitted,
    Arrived,
    Completed,
    Dropped,
    FirstToken,
    Preempted,
    Prefilled,
    Queued,
    Record,
    Rejected,
    Routed,
    Scheduled,
    StepFinished,
    TimedOut,
)
from blis_tui.model import Expectation
from blis_tui.results.conditions.breakpoints import (
    FIRST,
    Breakpoint,
    Breaks,
    Hit,
    Misses,
    Reaches,
    RecordMatch,
    Watch,
    about_request,
    parse_breakpoint,
    sentence,
)
from blis_tui.results.conditions.language import ConditionError
from blis_tui.results.conditions.suggestions import suggestions
from tests.builders import experiment
from tests.cluster.fleets import fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.snapshot import RequestSnapshot

MADE = experiment(instances=2)
STEP = StepFinished(5, 900, 1, 1234, ("a",), ("b",), (), 3, 90, ("c",), 12_500, (), (), 0, 4, 9, -1)
ALL: dict[str, Record] = {
    record.kind: record
    for record in (
        Arrived(1, 0, "r", 10, 20, "standard", ""),
        Admitted(2, 0, "r", "always-admit"),
        Rejected(2, 0, "r", "token-bucket", "insufficient tokens"),
        Routed(3, 0, "r", 1, "round-robin", "its turn"),
        Queued(4, 0, "r", 1, 0),
        Dropped(4, 0, "r", 1, "prompt of 99 tokens, max_model_len is 16"),
        Scheduled(5, 0, "r", 1, 0, 10, 0),
        Preempted(5, 0, "r", 1, "s", 30, 2),
        STEP,
        FirstToken(5, 900, "r", 1, 913_400, 1_250_500),
        Completed(6, 0, "r", 1, 20, 1_250_500, 3_000_000, length_capped=False),
        TimedOut(7, 0, "r", 1, was_running=True, output_tokens=3),
        Prefilled(6, 0, "r", 1),
        Deferred(2, 0, "r", 3),
        Resumed(2, 0, "r"),
        Held(2, 0, "r", 3, 12),
        Dispatched(3, 0, "r", 1_500, 11, 900_000),
        GatewayTick(3, 0, 11, 1_000_000),
        Split(3, 0, "r", "split", "300 prompt tokens"),
        TransferStarted(6, 0, "r", 1, 0, 4_096, 2),
        TransferFinished(7, 0, "r", 1_500),
        RoutingDecision(3, 0, "r", 1, "weighted", 4, 0, 250_000, ("load-balance",), (1_000_000,), ()),
    )
}


def made_up(kind: str) -> Record:
    """A record of a kind whose fields do not matter."""
    values = {"int": 1, "float": 1.5, "bool": True, "str": "r"}
    record = RECORD_KINDS[kind]
    return record(*(values.get(str(field.type), ()) for field in fields(record)))  # type: ignore[arg-type]


class Scripted:
    """A simulation whose figures and invariants a test sets."""

    def __init__(self, **figures: float) -> None:
        self.figures: dict[str, float] = {"event": 1234, "time_us": 1_500_007, **figures}
        self.requests: dict[str, RequestSnapshot] = {}
        self.broken = ""

    def figure(self, name: str, instance: int | None = None) -> float:
        return self.figures[name if instance is None else f"{name}@{instance}"]

    def request(self, name: str) -> RequestSnapshot | None:
        return self.requests.get(name)

    def verify(self) -> None:
        if self.broken:
            raise InvariantError("INV-4", self.broken, time_us=7, event=9)


def watch(*texts: str) -> Watch:
    return Watch(parse_breakpoint(text, MADE) for text in texts)


def sentences(hits: Sequence[Hit]) -> list[str]:
    return [hit.sentence for hit in hits]


def stopped(text: str, *records: Record, made: Breakpoint | None = None) -> str:
    """What a breakpoint says after one event; empty when it does not stop."""
    hits = Watch([made or parse_breakpoint(text, MADE)]).check(Scripted(), records)
    return hits[0].sentence if hits else ""


# ---- what they say ----


def test_every_kind_of_record_has_its_sentence() -> None:
    assert {kind: sentence(record) for kind, record in ALL.items()} == {
        "arrived": "r arrived",
        "admitted": "r was admitted",
        "rejected": "r was rejected: insufficient tokens",
        "routed": "r was routed to instance 1",
        "queued": "r was queued on instance 1",
        "dropped": "r was dropped by instance 1: prompt of 99 tokens, max_model_len is 16",
        "scheduled": "r was scheduled on instance 1",
        "preempted": "r was preempted on instance 1 for s",
        "step": "instance 1 ran step 1,234",
        "first-token": "r got its first token after 1,250.5 ms",
        "completed": "r completed after 3,000 ms",
        "timed-out": "r timed out on instance 1",
        "prefilled": "the prompt of r is computed",
        "deferred": "r was deferred: 3 requests in flight",
        "resumed": "r comes back: the cluster is idle",
        "held": "r waits in the gateway's queue, 12 requests in it",
        "dispatched": "r was dispatched after 1.5 ms",
        "gateway-tick": "the gateway checked its queue, 11 requests left in it",
        "split": "r: split, 300 prompt tokens",
        "transfer-started": "the KV blocks of r are leaving instance 1, 2 transfers in progress",
        "transfer-finished": "the KV blocks of r have arrived after 1.5 ms",
        "routing-decision": (
            "weighted chose instance 1 of 4 candidates for r, regret 0 ppm, 250,000 ppm against the true state"
        ),
    }


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_kind_alone_stops_at_its_records_and_no_others(kind: str) -> None:
    every = {other: ALL.get(other) or made_up(other) for other in RECORD_KINDS}
    assert stopped(kind, *every.values()) == sentence(every[kind])
    assert not stopped(kind, *(record for other, record in every.items() if other != kind))
    assert parse_breakpoint(kind, MADE).condition.needs == {kind}


def test_several_records_of_a_kind_are_counted() -> None:
    records = [Preempted(5, 0, name, 0, "z", 1, 1) for name in ("a", "b", "c")]
    assert stopped("preempted", *records) == "a was preempted on instance 0 for z (and 2 more)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("request r", "r arrived"),
        ('request "r"', "r arrived"),
        ("request r timed-out", "r timed out on instance 1"),
        ("request s", "r was preempted on instance 1 for s"),  # for whom counts, too
        ("request s preempted", ""),  # but s itself was not preempted
        ("request a", "a took part in step 1,234 of instance 1"),
        ("request a step", "a took part in step 1,234 of instance 1"),
        ("request nobody", ""),
        ("instance 1", "r was routed to instance 1"),
        ("instance 1 completed", "r completed after 3,000 ms"),
        ("instance 0", ""),
        ("instance 0 completed", ""),
    ],
)
def test_requests_and_instances_with_and_without_a_kind(text: str, expected: str) -> None:
    assert stopped(text, *ALL.values()) == expected


def test_a_request_name_may_contain_blanks_and_quotes() -> None:
    record = Rejected(1, 0, 'a "b" c', "p", "r")
    assert stopped(r'request "a \"b\" c" rejected', record) == 'a "b" c was rejected: r'


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("preemption", "preempted"),
        ("drop", "dropped"),
        ("timeout", "timed-out"),
        ("rejection", "rejected"),
        ("completion", "completed"),
        ("completed", "completed"),
    ],
)
def test_first_is_meant_for_one_hit(word: str, kind: str) -> None:
    made = parse_breakpoint(f"first {word}", MADE)
    assert made.once
    assert not parse_breakpoint(kind, MADE).once
    assert stopped("", ALL[kind], made=made) == sentence(ALL[kind])


def test_first_knows_every_kind() -> None:
    for kind in RECORD_KINDS:
        made = parse_breakpoint(f"first {kind}", MADE)
        assert (made.once, made.condition) == (True, RecordMatch(kind))


# ---- latency bounds ----


def test_slo_misses_by_explicit_bounds() -> None:
    assert stopped("slo-miss ttft 1250500us", ALL["first-token"]) == ""
    assert (
        stopped("slo-miss ttft 1250ms", ALL["first-token"])
        == "r got its first token after 1,250.5 ms, the bound is 1,250 ms"
    )
    assert stopped("slo-miss e2e 2.5s", *ALL.values()) == "r completed after 3,000 ms, the bound is 2,500 ms"
    assert stopped("slo-miss ttft 1s e2e 4s", ALL["completed"]) == ""
    assert parse_breakpoint("first slo-miss ttft 1s e2e 4s", MADE).once


def test_the_worst_of_several_misses_is_told() -> None:
    records = [FirstToken(5, 0, name, 0, 1, ttft) for name, ttft in (("a", 10_500), ("b", 30_000), ("c", 9000))]
    assert (
        stopped("slo-miss ttft 10ms", *records) == "b got its first token after 30 ms, the bound is 10 ms (and 1 more)"
    )


@pytest.mark.parametrize(
    ("expectations", "ttft_us", "e2e_us"),
    [
        ((Expectation(metric="latency.ttft_ms.p99", max=250.0),), 250_000, None),
        ((Expectation(metric="latency.e2e_ms.mean", max=9.5),), None, 9500),
        # The statistic nearest to "every single request" counts, not the tightest number.
        (
            (
                Expectation(metric="latency.ttft_ms.p50", max=100),
                Expectation(metric="latency.ttft_ms.p99", max=300),
                Expectation(metric="latency.ttft_ms.p90", max=200),
                Expectation(metric="latency.e2e_ms.max", max=5000),
            ),
            300_000,
            5_000_000,
        ),
    ],
)
def test_slo_misses_by_what_the_experiment_expects(
    expectations: tuple[Expectation, ...], ttft_us: float | None, e2e_us: float | None
) -> None:
    made = replace(MADE, expect=expectations)
    assert parse_breakpoint("slo-miss", made).condition == Misses(ttft_us, e2e_us)


def test_an_experiment_without_bounds_needs_them_named() -> None:
    made = replace(
        MADE,
        expect=(
            Expectation(metric="latency.ttft_ms.p99", min=1),
            Expectation(metric="latency.itl_ms.p99", max=1),
            Expectation(metric="latency.ttft_ms.min", max=1),
        ),
    )
    with pytest.raises(ConditionError) as caught:
        parse_breakpoint("slo-miss", made)
    assert "such as `slo-miss ttft 250ms`" in str(caught.value)


# ---- edges ----


def test_a_condition_on_the_state_stops_where_it_becomes_true() -> None:
    state = Scripted(**{"kv.utilization": 0.5, "running": 3})
    found = watch("kv.utilization > 90%")
    found.reset(state)
    seen = []
    for value in (0.89, 0.93, 0.95, 0.9, 0.91):
        state.figures["kv.utilization"] = value
        seen.append(sentences(found.check(state, ())))
    assert seen == [
        [],
        ["kv.utilization > 90% became true (0.93)"],
        [],
        [],
        ["kv.utilization > 90% became true (0.91)"],
    ]


def test_a_change_is_any_other_value() -> None:
    state = Scripted(running=3)
    state.figures["kv.utilization"] = 0.5
    found = watch("change running", "change kv.utilization > 0.9", "change r1.phase")
    found.reset(state)
    assert sentences(found.check(state, ())) == []
    state.figures |= {"running": 4, "kv.utilization": 0.95}
    assert sentences(found.check(state, ())) == [
        "running is 4 requests, it was 3 requests",
        "kv.utilization > 0.9 is yes, it was no",
    ]
    assert sentences(found.check(state, ())) == []
    simulation = blis_tui.Simulation(blis_tui.load("quickstart"))
    simulation.run(max_events=5)
    live = simulation.request("request_0")
    assert live is not None
    state.requests["r1"] = replace(live, phase="waiting")
    assert sentences(found.check(state, ())) == ["r1.phase is waiting, it was none"]
    first = FirstToken(12, 1_500_000, "d", 1, 1_512_500, 250_000)
    ttft = watch("change ttft_ms")
    ttft.reset(state)
    changes = [sentences(ttft.check(state, records)) for records in ((first,), (), (first,))]
    assert changes == [["ttft_ms is 250 ms"], [], []]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [("change", 6, "a metric is missing"), ("change kv.usd", 7, "unknown name `kv.usd`"), ("change 'a'", 7, "a text")],
)
def test_what_is_no_change_is_explained_at_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(ConditionError, match=message) as caught:
        parse_breakpoint(text, MADE)
    assert (caught.value.source, caught.value.column) == (text, column)


def test_what_is_true_at_the_start_is_no_news() -> None:
    state = Scripted(running=9)
    found = watch("running > 3")
    found.reset(state)
    assert not found.check(state, ())
    state.figures["running"] = 2
    found.reset(state)
    state.figures["running"] = 4
    assert sentences(found.check(state, ())) == ["running > 3 became true (4 requests)"]


def test_several_figures_are_told_by_name_with_their_units() -> None:
    state = Scripted(**{"kv.used": 1500, "busy_us@1": 12_345.0, "time_ms": 1.5})
    found = watch("kv.used > 1000 and instance[1].busy_us > 5ms or time_ms > 9 and kv.used > 2")
    (hit,) = found.check(state, ())
    assert hit.sentence.endswith(
        " became true (kv.used: 1,500 blocks, instance[1].busy_us: 12,345 us, time_ms: 1.5 ms)"
    )


def test_a_condition_on_events_stops_at_each_of_them() -> None:
    state = Scripted(running=9)
    found = watch("step.stalled > 0 and running > 3")
    found.reset(state)
    for _ in range(2):
        assert sentences(found.check(state, (STEP,))) == [
            "step.stalled > 0 and running > 3 is true (step.stalled: 1 request, running: 9 requests)"
        ]
    assert not found.check(state, (ALL["arrived"],))


def test_what_does_not_exist_is_not_told() -> None:
    assert (
        stopped('kind == "preempted" or ttft_ms > 3', ALL["preempted"]) == 'kind == "preempted" or ttft_ms > 3 is true'
    )


@pytest.mark.parametrize(
    ("text", "figure", "before", "sentence_"),
    [
        ("time 1.5s", "time_us", 1_499_999, "time 1.5s is reached (event 1,234 at 1.500 007 s)"),
        ("event 1000", "event", 999, "event 1,000 is reached (event 1,234 at 1.500 007 s)"),
    ],
)
def test_times_and_event_numbers_stop_at_or_after_once_passed(
    text: str, figure: str, before: float, sentence_: str
) -> None:
    state = Scripted()
    there = state.figures[figure]
    found = watch(text)
    state.figures[figure] = before
    found.reset(state)
    assert not found.check(state, ())
    state.figures[figure] = there
    assert sentences(found.check(state, ())) == [sentence_]
    assert not found.check(state, ())
    found.reset(state)
    assert not found.check(state, ())


def test_a_broken_invariant_stops_where_it_breaks() -> None:
    state = Scripted()
    found = watch("invariant")
    found.reset(state)
    assert not found.check(state, ())
    state.broken = "3 blocks are missing"
    (hit,) = found.check(state, ())
    assert hit.sentence.startswith("INV-4 does not hold")
    assert "3 blocks are missing" in hit.sentence
    assert not found.check(state, ())


# ---- the watch ----


def test_only_enabled_breakpoints_are_looked_for() -> None:
    off = replace(parse_breakpoint("preempted", MADE), enabled=False)
    on = parse_breakpoint("timed-out", MADE)
    found = Watch([off, on])
    assert found.needs == {"timed-out"}
    assert [hit.breakpoint for hit in found.check(Scripted(), tuple(ALL.values()))] == [on]
    assert not Watch([off])
    assert found
    assert Watch([off]).check(Scripted(), tuple(ALL.values())) == ()


def test_hits_come_in_the_order_of_the_breakpoints() -> None:
    texts = ("completed", "request r arrived", "instance 1 queued")
    hits = watch(*texts).check(Scripted(), tuple(ALL.values()))
    assert [hit.breakpoint.text for hit in hits] == list(texts)


def test_breakpoints_in_a_real_run_stop_where_the_records_say() -> None:
    made = blis_tui.load("kv-pressure", set={"workload.requests": 60})
    texts = ["preempted", "kv.utilization >= 99%", "time 2s", "event 500", "request request_7", "invariant"]
    found = Watch(parse_breakpoint(text, made) for text in texts)
    simulation = blis_tui.Simulation(made)
    collected: list[Record] = []
    everything: list[Record] = []
    for kind in found.needs:
        simulation.subscribe(kind, collected.append)
    simulation.subscribe("all", everything.append)
    stops: dict[str, list[int]] = {text: [] for text in texts}
    utilization = []
    times = []
    found.reset(simulation)
    while simulation.step() is not None:
        for hit in found.check(simulation, tuple(collected)):
            stops[hit.breakpoint.text].append(simulation.events)
        collected.clear()
        utilization.append(simulation.figure("kv.utilization") >= 0.99)
        times.append(simulation.now_us)
    assert stops["preempted"] == sorted({one.event for one in everything if isinstance(one, Preempted)})
    assert stops["preempted"]
    assert stops["kv.utilization >= 99%"] == [
        event
        for event, (before, now) in enumerate(zip([False, *utilization], utilization, strict=False), 1)
        if now and not before
    ]
    assert stops["time 2s"] == [1 + next(place for place, now in enumerate(times) if now >= 2_000_000)]
    assert stops["event 500"] == [500]
    assert stops["request request_7"][0] == next(
        one.event for one in everything if isinstance(one, Arrived) and one.request_id == "request_7"
    )
    assert stops["invariant"] == []


# ---- how they are written ----


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("preempted", RecordMatch("preempted")),
        ("  first-token ", RecordMatch("first-token")),
        ("request request_12", RecordMatch(request="request_12")),
        ("request r-1/2 completed", RecordMatch("completed", request="r-1/2")),
        ("instance 1", RecordMatch(instance=1)),
        ("instance 0 step", RecordMatch("step", instance=0)),
        ("time 1.5s", Reaches("time_us", 1_500_000, "time 1.5s")),
        ("time 250ms", Reaches("time_us", 250_000, "time 250ms")),
        ("event 1234", Reaches("event", 1234, "event 1,234")),
        ("invariant", Breaks()),
        ("slo-miss ttft 250ms", Misses(250_000, None)),
        ("slo-miss e2e 2s ttft 5us", Misses(5, 2_000_000)),
    ],
)
def test_words_that_are_no_conditions(text: str, condition: object) -> None:
    found = parse_breakpoint(text, MADE)
    assert found.condition == condition
    assert found.text == text.strip()
    assert found.enabled


@pytest.mark.parametrize(
    "text",
    [
        "event > 1234",
        "event>3 and running > 2",
        'request == "request_12"',
        "instance == 1",
        "instance[1].running > 3",
        "instance [1].running > 3",
        'kind == "preempted"',
        "not running > 3",
        "(running > 3)",
        "1 < running",
    ],
)
def test_conditions_may_start_with_the_same_words(text: str) -> None:
    assert hasattr(parse_breakpoint(text, MADE).condition, "condition")


@pytest.mark.parametrize(
    ("text", "column", "message", "help_"),
    [
        ("", 0, "no breakpoint is given", "`first timeout`"),
        ("  ", 2, "no breakpoint is given", "`first timeout`"),
        ("premted", 0, "unknown word `premted`", "did you mean `preempted`?"),
        ("slomiss", 0, "unknown word `slomiss`", "did you mean `slo-miss`?"),
        ("frist preemption", 0, "unknown word `frist`", "did you mean `first`?"),
        ("preempted request_5", 10, "unexpected `request_5`", "`request NAME preempted`"),
        ("preempted and running > 3", 10, "unexpected `and`", '`kind == "preempted" and ...`'),
        ("first", 5, "what to wait for is missing", "`first preemption`"),
        ("first preemptions", 6, "`first` does not support `preemptions`", "did you mean `preemption`?"),
        ("first drop now", 11, "unexpected `now`", "nothing more"),
        ("request", 7, "the name of a request is missing", "`request request_12`"),
        ("request r cmpleted", 10, "there is no record kind `cmpleted`", "did you mean `completed`?"),
        ("request r completed now", 20, "unexpected `now`", "nothing more"),
        ("instance", 8, "the number of an instance is missing", "`instance 0`"),
        ("instance 2", 9, "there is no instance 2", "numbered 0 to 1"),
        ("instance one", 9, "`one` is not a whole number", "`instance 0`"),
        ("instance 1 prempted", 11, "there is no record kind `prempted`", "did you mean `preempted`?"),
        ("time", 4, "a time is missing", "`time 1.5s`"),
        ("time 1500", 5, "`1500` is not a time with a unit", "us, ms or s"),
        ("time 5m", 5, "`5m` is not a time with a unit", "us, ms or s"),
        ("event", 5, "the number of an event is missing", "`event 1234`"),
        ("event 1.5", 6, "`1.5` is not a whole number", "`event 1234`"),
        ("event ²", 6, "`²` is not a whole number", "`event 1234`"),
        ("invariant INV-4", 10, "unexpected `INV-4`", "nothing more"),
        ("slo-miss ttft", 13, "a time is missing", "`slo-miss ttft 250ms`"),
        ("slo-miss itl 3ms", 9, "`itl` is not a latency of a request", "`ttft`"),
        ("slo-miss ttft 3ms ttft 4ms", 18, "a second bound of `ttft`", ""),
        ("running", 0, "`running` alone is not a condition", "`running > 0`"),
        ("kv.usd > 3", 0, "unknown name `kv.usd`", "`kv.used`"),
        ("running >", 9, "something is missing after `>`", ""),
        ("x" * 501, 500, "at most 500 characters", ""),
    ],
)
def test_mistakes_are_located_and_explained(text: str, column: int, message: str, help_: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_breakpoint(text, MADE)
    assert message in caught.value.message
    assert caught.value.column == column
    assert help_ in (caught.value.help or "")


WORDS = st.sampled_from(
    [
        *("first", "request", "instance", "time", "event", "slo-miss", "invariant", "preempted", "ttft", "e2e"),
        *("preemption", "0", "1", "9", "1.5s", "running", ">", "==", "and", '"', '"a b"', "[0]", "\ud800", "\n"),
    ]
)


@given(st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map(" ".join)))
def test_junk_is_either_understood_or_explained_with_a_place(text: str) -> None:
    try:
        found = parse_breakpoint(text, MADE)
    except ConditionError as error:
        place, end, shown = error.column, error.end_column, str(error)
    else:
        place, end, shown = 0, 1, found.text
        assert parse_breakpoint(found.text, MADE) == found
    assert 0 <= place <= len(text)
    assert place < end
    assert shown


# ---- what the input field offers ----


def offered(text: str) -> list[str]:
    return [suggestion.text for suggestion in suggestions(text, MADE)]


def test_an_empty_field_offers_everything_with_its_meaning() -> None:
    found = suggestions("", MADE)
    words = [suggestion.word for suggestion in found]
    assert words[:3] == ["first", "request", "instance"]
    assert set(RECORD_KINDS) | {"kv.used", "step.stalled", "instance[0].waiting"} <= set(words)
    assert len(words) == len(set(words))
    meanings = {suggestion.word: suggestion.meaning for suggestion in found}
    assert all(meanings.values())
    assert meanings["preempted"] == "a running request lost its KV blocks and went back to the queue"
    assert meanings["step.duration_ms"] == "duration of the step, in ms"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pree", ["preempted", "preempted-by-priority", "preemptions"]),
        ("first ", [f"first {word}" for word in dict.fromkeys((*FIRST, "slo-miss", *sorted(RECORD_KINDS)))]),
        ("first dr", ["first drop", "first drafts-verified", "first dropped"]),
        ("first slo-miss ", ["first slo-miss ttft", "first slo-miss e2e"]),
        ("request ", []),
        ("request r7 comp", ["request r7 completed"]),
        ("instance ", ["instance 0", "instance 1"]),
        ("instance 1 timed", ["instance 1 timed-out"]),
        ("slo-miss e", ["slo-miss e2e"]),
        ("time ", []),
        ("kv.ut", ["kv.utilization"]),
        ("instance[1].wai", ["instance[1].waiting"]),
        ("kv.used > instance[1].kv.u", ["kv.used > instance[1].kv.used", "kv.used > instance[1].kv.utilization"]),
        ("running > 3 and kv.to", ["running > 3 and kv.total"]),
        ("not step.d", ["not step.duration_ms", "not step.decode_requests"]),
        ("running > 3 ", ["running > 3 and", "running > 3 or"]),
        ("running > 3 a", ["running > 3 and"]),
        ("running ", [f"running {sign}" for sign in ("<", "<=", ">", ">=", "==", "!=")]),
        ("kind == ", [f'kind == "{kind}"' for kind in sorted(RECORD_KINDS)]),
        ('kind == "pre', ['kind == "preempted"']),
        ("running", []),
        ("zzz", []),
    ],
)  # fmt: skip
def test_what_the_input_field_offers(text: str, expected: list[str]) -> None:
    assert offered(text)[: len(expected) or None] == expected


@given(st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=5).map(" ".join)))
def test_every_offer_continues_what_was_typed(text: str) -> None:
    for suggestion in suggestions(text, MADE):
        assert suggestion.text.startswith(text)
        assert len(suggestion.text) > len(text)


@pytest.mark.parametrize(
    "name", ["request_12", "1234", "my request", 'a"b', "'a'", "[x]", "back\\slash", "preempted", "-"]
)
def test_a_breakpoint_about_a_request_of_any_name(name: str) -> None:
    condition = parse_breakpoint(about_request(name), MADE).condition
    assert isinstance(condition, RecordMatch)
    assert condition == RecordMatch(request=name)


# ---- instances that come during a run ----


def test_figures_of_an_instance_count_once_it_has_come() -> None:
    made = fleet("GROWING")
    watch = Watch((parse_breakpoint("instance[3].queue > 1", made),))
    debugger = Debugger(made)
    stop = run_to_stop(debugger.run(watch))
    assert stop.hits
    waiting, records = 0, list[Record]()
    simulation = blis_tui.Simulation(made)
    simulation.subscribe("all", records.append)
    simulation.run(max_events=debugger.event)
    for record in records:
        if isinstance(record, Queued | Scheduled) and record.instance == 3:
            waiting += 1 if isinstance(record, Queued) else -1
        assert waiting < 2 or record.event == debugger.event
    assert waiting == 2


def test_an_instance_may_have_any_number_where_instances_come() -> None:
    parse_breakpoint("instance 40 routed", fleet("GROWING"))
    with pytest.raises(ConditionError, match="there is no instance 12"):
        parse_breakpoint("instance[12].queue > 1", fleet("WEIGHTED"))
