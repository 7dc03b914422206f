"""What preemptions took back: the first token, and the work that headlines must weigh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import Breakdown, Share
from blis_tui.debugger.why.explain import explain_request, main_cause
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import Preempted
from tests.debugger.pressed_runs import finished
from tests.debugger.why.test_why import at, part, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.debugger.why.lifespans import RequestLife


def test_a_preemption_takes_the_first_token_back() -> None:
    heading = "Time to first token"
    before = part(explain_request(at("kv-pressure", 660), "request_24"), heading)
    assert (before.heading, bool(before.rows)) == (f"{heading}: 7.63 ms", True)
    taken = part(explain_request(at("kv-pressure", 662), "request_24"), heading)
    assert (taken.heading, sentences(taken)) == (
        heading,
        "It has no first token now: preemption discarded it at event 662.",
    )
    assert not taken.rows
    # The first of its first tokens came back, but the second one is gone, too.
    again = part(explain_request(at("kv-pressure", 2754), "request_94"), heading)
    assert sentences(again) == "It has no first token now: preemption discarded it at event 2,754."
    end = part(explain_request(at("kv-pressure", 10**9), "request_24"), heading)
    assert end.heading == f"{heading}: 211 ms"
    assert "the last one counts" in sentences(end)


def preempted_lives(run: str) -> Iterator[tuple[RequestLife, RequestSnapshot]]:
    """Every preempted request right after each of its preemptions: what is read of it, and what the engine has."""
    debugger = finished(run)
    tape = debugger.tape
    found = {one.event for name in tape.names() for one in tape.life(name) if one.what == "preempted"}
    for event in sorted(found):
        run_to_stop(debugger.seek(event))
        for record in debugger.records_of(event):
            if isinstance(record, Preempted):
                life = read_life(tape, record.request_id, event)
                live = debugger.request(record.request_id)
                assert life is not None
                if live is None:  # it lost its blocks while its last token was computed, and goes on
                    assert not life.preemptions or life.preemptions[-1].event < event
                    continue
                yield life, live


@pytest.mark.parametrize("run", ["kv-pressure", "vllm-preemption"])
def test_who_has_a_first_token_is_who_has_generated_tokens_in_the_engine(run: str) -> None:
    kept = 0
    for life, live in preempted_lives(run):
        assert (life.first_token is not None) == (live.generated_tokens > 0)
        assert life.first_token is None or life.first_token_loss is None
        kept += life.first_token is not None
    assert (kept > 0) == (run == "vllm-preemption")


def test_what_it_mainly_waited_for_is_what_its_table_says() -> None:
    headline = explain_request(at("kv-pressure", 662), "request_24").headline
    assert headline.endswith("preempted once before; mainly: lost work (62.3 ms).")
    headline = explain_request(at("kv-pressure", 2754), "request_94").headline
    assert headline.endswith("; mainly: too few free KV blocks (524 ms).")


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((("wait", 50, (30, 20)), ("lost", 40, ())), "waiting in the queue (50 us)"),
        ((("wait", 50, (45, 5)), ("lost", 40, ())), "cause 0 (45 us)"),
        ((("wait", 20, (20,)), ("again", 25, (25,)), ("decode", 40, ())), "cause 0 (45 us)"),
        ((("wait", 20, (20,)), ("again", 10, (10,)), ("decode", 40, ())), "decode (40 us)"),
    ],
)
def test_all_waits_are_weighed_together(shares: tuple[tuple[str, int, tuple[int, ...]], ...], told: str) -> None:
    made = tuple(
        Share(kind, kind, us, inner=tuple(Share("c", f"cause {at}", part) for at, part in enumerate(inner)))
        for kind, us, inner in shares
    )
    assert main_cause(Breakdown(sum(share.us for share in made), made)) == f"; mainly: {told}"
