"""The language of conditions: meaning, canonical text, and mistakes that are explained."""

from __future__ import annotations

import operator
from math import isnan, nan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.records import RoutingDecision, ScalingDecided
from blis_tui.cluster.snapshot import RequestSnapshot
from blis_tui.cluster.state import FIGURES
from blis_tui.engine.records import (
    ChunkDone,
    Completed,
    FirstToken,
    Preempted,
    Record,
    Rejected,
    StepFinished,
    streamed_kinds,
)
from blis_tui.results.conditions.language import ConditionError, Expression, parse_condition, parse_expression
from blis_tui.results.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


DECISION = RoutingDecision(12, 1_500_000, "a", 1, "weighted", 4, 0, 250_000, ("load-balance",), (1_000_000,), ())
LOOKS = tuple(
    ScalingDecided(12, 1_500_000, "scale-up", pool, 1, demand, 100, 50, required, spare, "r")
    for pool, demand, required, spare in (("prefill", 900, 700, 0), ("decode", 20, 0, 80))
)
"""One for each role."""


REQUEST = RequestSnapshot(
    request_id="chat-3",
    phase="decode",
    instance=0,
    arrival_us=1,
    queued_us=2,
    scheduled_us=3,
    first_token_us=4,
    deadline_us=None,
    input_tokens=100,
    max_output_tokens=20,
    target_tokens=100,
    computed_tokens=104,
    generated_tokens=5,
    cached_tokens=0,
    held_blocks=7,
    shared_blocks=0,
    priority=0,
    preemptions=1,
    slo_class="standard",
    tenant_id="",
)


class Fixed:
    """A state with figures of our choice; instance ``i`` has 1000 * (i + 1) more of everything."""

    def __init__(self, **figures: float) -> None:
        self._figures = {name.replace("__", "."): value for name, value in figures.items()}

    def figure(self, name: str, instance: int | None = None) -> float:
        return self._figures[name] + (0 if instance is None else 1000 * (instance + 1))

    def request(self, name: str) -> RequestSnapshot | None:
        """The one request that is there."""
        return REQUEST if name == REQUEST.request_id else None


STATE = Fixed(
    running=8,
    waiting=3,
    ended=0,
    event=12,
    kv__used=90,
    kv__total=100,
    kv__utilization=0.9,
    time_us=1_500_000,
    time_ms=1500,
    time_s=1.5,
    busy_us=750_000,
)
STEP = StepFinished(
    event=12,
    time_us=1_500_000,
    instance=1,
    step=4,
    admitted=("a", "b"),
    preempted=("c",),
    chunks=(ChunkDone("a", 0, 30), ChunkDone("d", 64, 12)),
    decode_requests=5,
    decode_context_tokens=900,
    stalled=("e", "f", "g"),
    duration_us=12_500,
    first_tokens=("d", "a"),
    completed=("h", "i", "j", "k"),
    waiting=3,
    running=8,
    kv_used_blocks=90,
    next_step_us=-1,
)
STEP_EVENT: tuple[Record, ...] = (
    Preempted(12, 1_500_000, "c", 1, "b", 40, 3),
    STEP,
    FirstToken(12, 1_500_000, "d", 1, 1_512_500, 250_000),
    FirstToken(12, 1_500_000, "a", 1, 1_512_500, 300_000),
)
LAST_TOKEN: tuple[Record, ...] = (Completed(13, 1_600_000, "h", 0, 7, 100_000, 900_000, length_capped=False),)
REJECTION: tuple[Record, ...] = (Rejected(14, 1_700_000, "z", "reject-all", "because"),)


def holds(text: str, records: Sequence[Record] = STEP_EVENT, state: Fixed = STATE) -> object:
    return parse_condition(text, instances=2).measure(state, records)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # precedence, associativity, sides
        ("running > 7", True),
        ("8 > running", False),
        ("running - 3 - 2 == 3", True),
        ("running - (3 - 2) == 7", True),
        ("running + 2 * waiting == 14", True),
        ("(running + 2) * waiting == 30", True),
        ("running / 2 / 2 == 2", True),
        ("-running + 9 == 1", True),
        ("- -running == 8", True),
        ("not running > 8", True),
        ("not running > 7 or waiting == 3", True),
        ("not (running > 7 or waiting == 3)", False),
        ("running > 8 and waiting > 8 or event == 12", True),
        ("running > 8 and (waiting > 8 or event == 12)", False),
        ("event == 12 or running > 8 and waiting > 8", True),
        ("running <= 8 and running >= 8 and running != 7 and not running != 8 and not running < 8", True),
        # requests
        ('request["chat-3"].phase == "decode"', True),
        ('request["chat-3"].phase != "waiting" and "none" == request_9.phase', True),
        ('request["chat-3"].held_blocks == 7 and request_9.held_blocks == 0', True),
        ('request["chat-3"].generated_tokens + request["chat-3"].computed_tokens > 109', False),
        # units
        ("kv.utilization >= 90%", True),
        ("kv.used / kv.total >= 90%", True),
        ("kv.used >= 90% * kv.total", True),
        ("time_us == 1.5s and time_ms == 1.5s and time_s == 1500ms and time_s == 1500000us", True),
        ("1.5s == time_us and 1500ms == time_s", True),
        ("time_s > 1 and time_ms > 1499 and time_us > 1499999", True),
        ("time_s + 500ms == 2", True),
        ("500ms + time_us == 2s", True),
        ("time_us - 0.5s == 1000ms", True),
        ("time_s == time_ms and time_ms == time_us", True),
        ("busy_us / time_s == 50%", True),
        ("running / time_s > 5 and running / time_s < 6", True),
        ("time_ms / running == 187.5ms", True),
        ("2 * 100ms == 0.2s", True),
        ("1e3us == 1ms and .5s == 500.ms", True),
        # one instance
        ("instance[0].running == 1008 and instance[1].running == 2008", True),
        ("instance [ 1 ] . kv.used == 2090", True),
        # division by zero is nothing, and nothing compares with nothing
        ("running / ended > 0", False),
        ("running / ended <= 0", False),
        ("running / ended == running / ended", False),
        ("running / ended != 1", False),
        ("not running / ended > 0", True),
        # no overflow ends in an exception
        ("1e308 * 1e308 * running > 1e300", True),
    ],
)
def test_meaning_of_conditions_on_the_state(text: str, expected: object) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "records", "expected"),
    [
        ('kind == "preempted"', STEP_EVENT, True),
        ("'step' == kind", STEP_EVENT, True),
        ('kind == "completed"', STEP_EVENT, False),
        ('kind != "completed"', STEP_EVENT, True),
        ('kind != "preempted"', STEP_EVENT, False),
        # whoever takes part in a step, in whatever role
        *[(f'request == "{name}"', STEP_EVENT, True) for name in "abcdefghijk"],
        ('request == "z"', STEP_EVENT, False),
        ('request != "z"', STEP_EVENT, True),
        ('request == "z"', REJECTION, True),
        ("instance == 1", STEP_EVENT, True),
        ("instance == 0", LAST_TOKEN, True),
        ("instance == 0", REJECTION, False),
        ("instance != 0", REJECTION, False),
        ("step.duration_ms == 12.5ms", STEP_EVENT, True),
        ("step.prefill_tokens == 42", STEP_EVENT, True),
        ("step.decode_requests == 5", STEP_EVENT, True),
        ("step.batch_tokens == 47", STEP_EVENT, True),
        ("step.stalled == 3", STEP_EVENT, True),
        ("step.admitted == 2", STEP_EVENT, True),
        ("step.preempted == 1", STEP_EVENT, True),
        ("step.completed == 4", STEP_EVENT, True),
        ("step.duration_ms == 0 and step.prefill_tokens == 0 and step.completed == 0", LAST_TOKEN, True),
        # of several first tokens, the longest
        ("ttft_ms == 300", STEP_EVENT, True),
        ("ttft_ms > 0", LAST_TOKEN, False),
        ("ttft_ms < 1", LAST_TOKEN, False),
        ("e2e_ms == 0.9s", LAST_TOKEN, True),
        ("e2e_ms != 5", STEP_EVENT, False),
        ('kind == "preempted" and kv.utilization > 0.8', STEP_EVENT, True),
    ],
)
def test_meaning_of_conditions_on_the_event(text: str, records: Sequence[Record], expected: object) -> None:
    assert holds(text, records) is expected


def test_a_quoted_name_may_hold_anything() -> None:
    name = 'a "quoted" \\ name\nwith a break'
    text = 'request == "' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert holds(text, (Rejected(1, 0, name, "p", "r"),))
    assert str(parse_condition(text, instances=1)) == text


def test_the_autoscalers_figures_are_those_of_the_role_that_has_the_most() -> None:
    assert holds("scaling.demand == 900 and scaling.required == 700 and scaling.spare == 80", LOOKS)
    assert holds("scaling.supply == 100 and scaling.pending == 50 and scaling.instances == 1", LOOKS)
    assert holds("scaling.demand > 2 * (scaling.supply + scaling.pending)", LOOKS)
    assert not holds("scaling.demand >= 0", STEP_EVENT)
    assert parse_condition("scaling.required > 0", instances=1).needs == {"scaling-decided"}


def test_regret_is_that_against_the_true_state() -> None:
    assert holds("regret == 0.25 and regret.seen == 0", (DECISION,))
    assert not holds("regret >= 0", STEP_EVENT)
    assert parse_condition("regret > 20%", instances=1).needs == {"routing-decision"}


def test_every_name_can_be_asked_for() -> None:
    state = Fixed(**{name.replace(".", "__"): 1.0 for name in FIGURES})
    for name in (*FIGURES, *EVENT_NUMBERS):
        assert holds(f"{name} > -5", (*STEP_EVENT, *LAST_TOKEN, DECISION, *LOOKS), state), name
    for name, figure in FIGURES.items():
        if figure.of_instance is not None:
            assert holds(f"instance[1].{name} - 2000 == 1", (), state), name
    assert all(holds(f'{name} != "step"', ()) for name in EVENT_TEXTS)


@pytest.mark.parametrize(
    ("text", "about_event", "needs"),
    [
        ("running > 3", False, set()),
        ("step.stalled > 0 and running > 3", True, {"step"}),
        ("ttft_ms > 250 or e2e_ms > 9", True, {"first-token", "completed"}),
    ],
)
def test_what_a_condition_needs_is_known(text: str, about_event: bool, needs: set[str]) -> None:
    condition = parse_condition(text, instances=1)
    assert condition.about_event is about_event
    assert condition.needs == needs


@pytest.mark.parametrize("text", ['kind == "step"', 'request != "a"', "instance > 0"])
def test_questions_about_any_record_need_all_kinds(text: str) -> None:
    assert parse_condition(text, instances=1).needs >= streamed_kinds().keys()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  running>3  ", "running > 3"),
        ("((running)) > (3.0)", "running > 3"),
        ("(a_ == 1)".replace("a_", "running") + "and(waiting==2)", "running == 1 and waiting == 2"),
        ("running == 1 and (waiting == 2 and event == 3)", "running == 1 and waiting == 2 and event == 3"),
        ("(running == 1 or waiting == 2) and event == 3", "(running == 1 or waiting == 2) and event == 3"),
        ("kind=='step'", 'kind == "step"'),
        ("time_us > 1500.0ms", "time_us > 1500ms"),
        ("instance[01].kv.used*(1+2)<=-3", "instance[1].kv.used * (1 + 2) <= -3"),
        ("not(not(running > 1e-7))", "not not running > 1e-07"),
        ("request['a \"b'].phase=='decode'", 'request["a \\"b"].phase == "decode"'),
        ("request_7.held_blocks>1", "request_7.held_blocks > 1"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_condition(text, instances=2)) == canonical


@pytest.mark.parametrize(
    ("text", "column", "message", "help_"),
    [
        ("", 0, "no condition is given", "such as"),
        ("   ", 3, "no condition is given", "such as"),
        ("kv.usd > 0.9", 0, "unknown name `kv.usd`", "did you mean `kv.used`?"),
        ("kv > 1", 0, "unknown name `kv`", "`kv.utilization`"),
        ("Running > 1", 0, "unknown name `Running`", "`running`"),
        ("preempted", 0, "unknown name `preempted`", 'write `kind == "preempted"`'),
        ("timed-out", 0, "unknown name `timed`", 'write `kind == "timed-out"`'),
        ("kind == step", 8, "unknown name `step`", '`"step"`'),
        ('kind == "premted"', 8, "there is no record kind `premted`", "did you mean `preempted`?"),
        ('kind > "step"', 5, "texts cannot be ordered", "=="),
        ('"a" == "b"', 7, "only `kind` and `request` are compared with texts", ""),
        ('running == "b"', 0, "only `kind` and `request` are compared with texts", ""),
        ("kind == request", 8, "`kind` is compared with a text in quotes", "such as"),
        ("3 != request", 0, "`request` is compared with a text in quotes", "such as"),
        ('running + "a" > 3', 10, "`+` needs numbers, this is a text", ""),
        ("-kind > 3", 1, "`-` needs a number, this is a text", ""),
        ("-(running > 3)", 1, "`-` needs a number, this is a condition", ""),
        ("(running > 3) * 2 > 1", 0, "`*` needs numbers, this is a condition", ""),
        ("(running > 3) == (waiting > 3)", 0, "a condition cannot be compared", "`and`"),
        ("1 < running < 5", 12, "comparisons do not chain", "write `1 < running and running < ...`"),
        ("running", 0, "`running` alone is not a condition", "such as `running > 0`"),
        ("kv.utilization", 0, "`kv.utilization` alone is not a condition", "> 90%"),
        ("kind", 0, "`kind` alone is not a condition", 'kind == "preempted"'),
        ("running > 3 and waiting", 16, "`waiting` alone is not a condition", "compare it"),
        ("not running", 4, "`running` alone is not a condition", "compare it"),
        ("kv.used > 90%", 10, "`kv.used` is a number of blocks and `90%` is a share", "`kv.used / kv.total`"),
        (
            "kv.utilization > 90",
            17,
            "`kv.utilization` is a share, from 0 to 1: `90` is out of its reach",
            "write `90%`",
        ),
        ("95 >= instance[1].kv.utilization", 0, "`95` is out of its reach", "write `95%`"),
        ("kv.utilization < 190%", 17, "`190%` is out of its reach", ""),
        ("kv.utilization < 3 * 2", 17, "`3 * 2` is out of its reach", ""),
        ("time_ms > kv.used", 10, "they cannot be compared", ""),
        ("time_ms * time_s > 1", 8, "`*` does not apply to them", ""),
        ("time_ms + 90% > 1", 8, "`+` does not apply to them", ""),
        ("running = 3", 8, "`=` means nothing here", "compare with `==`"),
        ("running > 3 && waiting > 3", 12, "`&` means nothing here", "write `and`"),
        ("running > 3 AND waiting > 3", 12, "unexpected `AND`", "write `and`"),
        ("running > 3 waiting > 3", 12, "unexpected `waiting`", "join two conditions"),
        ("running > 3)", 11, "unexpected `)`", "there is no opening bracket"),
        ("(running > 3", 12, "the `(` at column 1 is never closed", ""),
        ("running > ", 10, "something is missing after `>`", ""),
        ("running > 3 and", 15, "something is missing after `and`", ""),
        ("running > * 3", 10, "unexpected `*`", ""),
        ("and", 0, "unexpected `and`", ""),
        ("running > 5m", 11, "unknown unit `m`", "`us`, `ms`, `s`, `%`"),
        ("running > 1e999", 10, "this number is too large", ""),
        ('kind == "step', 8, "a text without its closing quote", ""),
        ("running[0] > 1", 7, "unexpected `[`", "`instance[0].running`"),
        ("instance[2].running > 1", 9, "there is no instance 2", "numbered 0 to 1"),
        ("instance[1.5].running > 1", 9, "the number of an instance is expected here", "such as"),
        ("instance[1ms].running > 1", 9, "the number of an instance is expected here", "such as"),
        ("instance[running] > 1", 9, "the number of an instance is expected here", "such as"),
        ("instance[0.running > 1", 9, "the number of an instance is expected here", "such as"),
        ("instance[0 > 1", 11, "the `[` is never closed", ""),
        ("instance[0] > 1", 12, "a metric must follow", "such as"),
        ("instance[0].arrived > 1", 12, "`arrived` is a metric of the whole cluster", "leave out"),
        ("instance[0].ttft_ms > 1", 12, "an instance has no metric `ttft_ms`", ""),
        ("instance[0].wating > 1", 12, "an instance has no metric `wating`", "did you mean `waiting`?"),
        ("request[7].phase == 1", 8, "the name of a request in quotes is expected here", "such as"),
        ('request["a" == 1', 12, "the `[` is never closed", ""),
        ('request["a"] == 1', 13, "what of it must follow", "such as"),
        ('request["a"].phse == 1', 13, "a request has no metric `phse`", "did you mean `phase`?"),
        ("request_7.phase", 0, "`request_7.phase` alone is not a condition", '`request_7.phase == "decode"`'),
        ("request_7.phase == 1", 19, "a phase is compared with a text in quotes", "such as"),
        ('request_7.phase > "decode"', 16, "phases cannot be ordered", "`==`"),
        ('request_7.phase == "decoded"', 19, "there is no phase `decoded`", "did you mean `decode`?"),
        ("request_7.phase + 1 > 2", 0, "`+` needs numbers, this is a phase", ""),
        ("(" * 21 + "1 > 0" + ")" * 21, 20, "more than 20 nested conditions", ""),
        ("not " * 21 + "1 > 0", 80, "more than 20 nested conditions", ""),
        ("-" * 21 + "1 > 0", 20, "more than 20 nested conditions", ""),
        ("1" + "+1" * 20 + " > 0", 0, "more than 20 nested operations", "simpler"),
        ("1 > 0" + " or 1 > 0" * 60, 500, "at most 500 characters, not 545", ""),
    ],
)
def test_mistakes_are_located_and_explained(text: str, column: int, message: str, help_: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition(text, instances=2)
    error = caught.value
    assert message in error.message
    assert error.column == column
    assert help_ in (error.help or "")


def test_the_only_instance_is_named() -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition("instance[1].running > 1", instances=1)
    assert caught.value.help == "the only one is 0"


def test_an_error_shows_the_text_and_marks_the_mistake() -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition('request == "日本" and kv.usd > 1', instances=1)
    assert str(caught.value).splitlines() == [
        "unknown name `kv.usd`",
        "  |",
        '  | request == "日本" and kv.usd > 1',
        "  |                       ^^^^^^",
        "  = help: did you mean `kv.used`?",
    ]


def test_a_long_text_is_clipped_around_the_mistake() -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition("1 > 0 or " * 40 + "runing > 1" + " or 1 > 0" * 10, instances=1)
    _, _, source, mark, *_ = str(caught.value).splitlines()
    assert len(source) <= 104
    start = mark.index("^")
    assert source[start : start + mark.count("^")] == "runing"


# ---- numbers on their own ----


@pytest.mark.parametrize(
    ("text", "value", "dimension", "unit"),
    [
        ("running", 8, "count", "requests"),
        ("instance[1].kv.used", 2090, "count", "blocks"),
        ("kv.used / kv.total", 0.9, "number", ""),
        ("time_ms - 0.5s", 1000, "time", "ms"),
        ("kv.utilization", 0.9, "share", ""),
        ("step.batch_tokens", 47, "count", "tokens"),
        ("e2e_ms", nan, "time", "ms"),
        ("running / ended", nan, "number", ""),
    ],
)
def test_a_number_can_be_asked_for_on_its_own(text: str, value: float, dimension: str, unit: str) -> None:
    figure = parse_expression(text, instances=2)
    assert figure.measure(STATE, STEP_EVENT) == pytest.approx(value, nan_ok=True)
    assert (figure.quantity.dimension, figure.quantity.unit) == (dimension, unit)
    assert parse_expression(str(figure), instances=2) == figure


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "no metric is given"),
        ("kind", 0, "`kind` is a text, not a number"),
        ("running waiting", 8, "unexpected `waiting`"),
        ("running > 3 waiting", 12, "unexpected `waiting`"),
        ("running >", 9, "something is missing after `>`"),
        ("runing", 0, "unknown name `runing`"),
    ],
)
def test_what_is_neither_a_figure_nor_a_condition_is_explained(text: str, column: int, message: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_expression(text, instances=2)
    assert caught.value.message == message
    assert caught.value.column == column


def test_what_is_shown_has_its_unit() -> None:
    experiment = blis_tui.load("kv-pressure")
    simulation = blis_tui.Simulation(experiment)
    simulation.run(max_events=1000)
    snapshot = simulation.snapshot()
    instance = snapshot.instances[0]

    def value(text: str) -> str:
        return parse_expression(text, instances=experiment.instances).shown(simulation, ())

    assert value("running") == f"{instance.running_count} requests"
    assert value("instance[0].kv.used") == f"{instance.kv.used_blocks:,} blocks"
    assert value("kv.utilization") == f"{100 * instance.kv.used_blocks / instance.kv.total_blocks:.1f} %"
    assert value("running >= 0 and waiting >= 0") == "yes"
    assert value("running < 0") == "no"
    assert value("step.duration_ms") in ("-", "0 ms")
    assert value("running / 0") == "-"
    live = instance.running[0]
    assert value(f"{live.request_id}.phase") == live.phase
    assert value(f"{live.request_id}.held_blocks") == f"{live.held_blocks} blocks"
    assert value("nobody.phase") == "none"


# ---- properties ----

Numeric = tuple[str, float]
Conditional = tuple[str, bool]

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else nan,
}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": lambda a, b: a != b and not isnan(a) and not isnan(b),
}


def _numbers() -> st.SearchStrategy[Numeric]:
    literal = st.one_of(st.integers(0, 20).map(float), st.floats(0, 1e6, allow_subnormal=False)).map(
        lambda value: (repr(value), value)
    )
    figure = st.sampled_from(["running", "waiting", "ended", "event", "instance[1].kv.used"]).map(
        lambda name: (name, 2090.0 if "[" in name else STATE.figure(name))
    )

    def larger(inner: st.SearchStrategy[Numeric]) -> st.SearchStrategy[Numeric]:
        def join(op: str, a: Numeric, b: Numeric) -> Numeric:
            return f"({a[0]} {op} {b[0]})", _ARITHMETIC[op](a[1], b[1])

        return st.one_of(
            st.builds(join, st.sampled_from("+-*/"), inner, inner), inner.map(lambda a: (f"(-{a[0]})", -a[1]))
        )

    return st.recursive(literal | figure, larger, max_leaves=5)


def _conditions() -> st.SearchStrategy[Conditional]:
    def compare(op: str, a: Numeric, b: Numeric) -> Conditional:
        return f"({a[0]} {op} {b[0]})", bool(_ORDER[op](a[1], b[1]))

    def larger(inner: st.SearchStrategy[Conditional]) -> st.SearchStrategy[Conditional]:
        return st.one_of(
            st.builds(lambda a, b: (f"({a[0]} and {b[0]})", a[1] and b[1]), inner, inner),
            st.builds(lambda a, b: (f"({a[0]} or {b[0]})", a[1] or b[1]), inner, inner),
            inner.map(lambda a: (f"(not {a[0]})", not a[1])),
        )

    numbers = _numbers()
    return st.recursive(st.builds(compare, st.sampled_from(sorted(_ORDER)), numbers, numbers), larger, max_leaves=4)


def _parse(text: str) -> Expression | ConditionError:
    try:
        return parse_condition(text, instances=2)
    except ConditionError as error:
        return error


@settings(max_examples=300)
@given(_conditions())
def test_a_condition_means_what_it_says_and_so_does_its_canonical_text(condition: Conditional) -> None:
    text, expected = condition
    error = _parse(text)
    if isinstance(error, ConditionError):  # the language has limits
        assert "nested" in error.message or "characters" in error.message
        return
    assert holds(text, ()) is expected
    canonical = str(error)
    again = parse_condition(canonical, instances=2)
    assert again == error
    assert str(again) == canonical
    assert len(canonical) <= len(text)


WORDS = st.sampled_from(
    [
        *("and", "or", "not", "(", ")", "[", "]", ".", "+", "-", "*", "/", "<", "<=", "==", "!=", ">", ">=", "=", "&"),
        *("running", "kv.utilization", "time_ms", "ttft_ms", "instance", "instance[0].waiting", "kind", "request"),
        *("0", "3.5", "90%", "250ms", "1.5s", "1e999", "7x", '"step"', "'b", '"\\"', "ünïcode", "\x00", "\n", "\ud800"),
    ]
)


@settings(max_examples=500)
@given(st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS).map("".join)))
def test_junk_is_either_understood_or_explained_with_a_place(text: str) -> None:
    error = _parse(text)
    if isinstance(error, ConditionError):
        assert 0 <= error.column <= len(text)
        assert error.column < error.end_column
        assert error.message in str(error)
        return
    assert parse_condition(str(error), instances=2) == error
    figures = Fixed(**dict.fromkeys(("running", "kv__utilization", "time_ms", "waiting"), 1))
    assert error.measure(figures, ()) in {True, False}
