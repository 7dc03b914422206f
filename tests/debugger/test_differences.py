"""What an event changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.state import GROUPS, Change, _is_ordinary, compare, differences

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.debugger.state import DebuggerState


@pytest.fixture(scope="module")
def debugger() -> Debugger:
    """KV pressure, known far enough for several preemptions."""
    made = Debugger(blis_tui.load("kv-pressure"))
    run_to_stop(made.seek(1300))
    return made


def _moment(debugger: Debugger, event: int) -> DebuggerState:
    run_to_stop(debugger.seek(event))
    return debugger.moment()


def _event(debugger: Debugger, what: str) -> tuple[int, str]:
    """The first event at which that happens to a request, and the request."""
    for name in debugger.tape.names():
        for entry in debugger.tape.life(name):
            if entry.what == what:
                return entry.event, name
    raise AssertionError(what)


def _by_path(moment: DebuggerState) -> dict[str, Change]:
    return {change.path: change for change in differences(moment)}


def test_nothing_is_known_at_the_start_and_while_running(debugger: Debugger) -> None:
    assert differences(_moment(debugger, 0)) == ()
    assert differences(replace(_moment(debugger, 640), before=None, records=())) == ()


def test_an_arrival_is_one_change(debugger: Debugger) -> None:
    event, name = _event(debugger, "arrived")
    changes = _by_path(_moment(debugger, event))
    assert changes[f"requests.{name}"] == Change(group="moved", path=f"requests.{name}", new="in-transit", request=name)
    assert (changes["arrived"].old, changes["arrived"].new) == (0, 1)


def test_a_preemption_comes_first_and_says_for_whom(debugger: Debugger) -> None:
    event, name = _event(debugger, "preempted")
    moment = _moment(debugger, event)
    first = differences(moment)[0]
    assert (first.path, first.old, first.new, first.request) == (f"requests.{name}.phase", "decode", "waiting", name)
    assert first.about.startswith("to free KV blocks for request_")
    changes = _by_path(moment)
    assert changes["instances[0].preemptions"].delta == 1
    assert changes[f"requests.{name}.computed_tokens"].new == 0


def test_ordinary_decodes_are_one_line(debugger: Debugger) -> None:
    event = next(
        event
        for event in range(900, 1300)
        if debugger.tape.is_step(event) and not debugger.tape.step(debugger.tape.row(event).step).prefill_tokens
    )
    moment = _moment(debugger, event)
    assert moment.step is not None
    decodes = [change for change in differences(moment) if change.group == "decode"]
    assert [change.about for change in decodes] == [f"{moment.step.decode_requests} requests decoded one token each"]
    assert not [path for path in _by_path(moment) if path.startswith("requests.request_")]


def test_a_request_that_ends_is_said_to_be_done(debugger: Debugger) -> None:
    _, name = _event(debugger, "completed")
    last = debugger.tape.life(name)[-1].event
    for event in range(last, 0, -1):  # the step that computed its last token
        change = _by_path(_moment(debugger, event)).get(f"requests.{name}")
        if change is not None:
            assert (change.group, change.old, change.new) == ("done", "decode", "done")
            return
    raise AssertionError("never told")


def test_every_path_occurs_once_and_what_matters_comes_first(debugger: Debugger) -> None:
    for event in range(630, 760):
        changes = differences(_moment(debugger, event))
        paths = [change.path for change in changes]
        assert len(paths) == len(set(paths)), event
        places = [GROUPS.index(change.group) for change in changes]
        assert all(one <= other for one, other in pairwise(places))
        assert all(change.old != change.new or change.group in ("preempted", "decode") for change in changes)


def test_old_and_new_are_what_the_states_say(debugger: Debugger) -> None:
    moment = _moment(debugger, 640)
    assert moment.before is not None
    old, new = moment.before.instances[0].kv, moment.after.instances[0].kv
    changes = _by_path(moment)
    for name in ("used_blocks", "cached_free_blocks", "blank_blocks", "hits", "misses"):
        change = changes.get(f"instances[0].kv.{name}")
        was, now = getattr(old, name), getattr(new, name)
        assert (was, now) == ((change.old, change.new) if change else (was, was)), name


def test_who_only_moves_into_the_window_of_a_long_queue_has_not_come(debugger: Debugger) -> None:
    moment = _moment(debugger, 700)
    assert moment.before is not None
    instance = moment.before.instances[0]
    shorter = replace(instance, running=instance.running[:3])
    before = replace(moment.before, instances=(shorter,))
    hidden = {request.request_id for request in instance.running[3:]}
    assert hidden
    told = {change.request for change in compare(before, moment.after, ())}
    assert not told & hidden


def test_a_decode_is_ordinary_only_if_both_counts_grew_by_one() -> None:
    old = SimpleNamespace(phase="decode", generated_tokens=4, computed_tokens=11)
    for generated, computed, ordinary in (
        (5, 12, True),
        (5, 11, False),
        (5, 14, False),
        (6, 12, False),
        (4, 12, False),
    ):
        new = SimpleNamespace(phase="decode", generated_tokens=generated, computed_tokens=computed)
        assert _is_ordinary(cast("RequestSnapshot", old), cast("RequestSnapshot", new)) is ordinary
    assert not _is_ordinary(
        cast("RequestSnapshot", old),
        cast("RequestSnapshot", SimpleNamespace(phase="prefill", generated_tokens=5, computed_tokens=12)),
    )
