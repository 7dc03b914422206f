"""Moments: an event that is kept is known again, and told apart from another of the same number."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.moments import (
    START,
    Moment,
    Shown,
    change_of,
    from_data,
    report,
    time_of,
    to_data,
    what_is,
    with_moment,
    with_others,
    without_moment,
)

SETTINGS: Final = {"workload.requests": 20}


def opened(**changes: object) -> Debugger:
    """A small run, recorded to its end."""
    made = Debugger(blis_tui.load("kv-pressure", set={**SETTINGS, **changes}))
    run_to_stop(made.to_end())
    return made


def kept(debugger: Debugger, event: int, name: str = "here", note: str = "") -> Moment:
    return Moment(
        event=event,
        time_us=time_of(debugger.tape, event),
        what=what_is(debugger.tape, event),
        sentence="what it did",
        sha256=debugger.experiment.sha256,
        name=name,
        note=note,
    )


def test_no_two_events_of_a_run_are_the_same() -> None:
    debugger = opened()
    events = range(debugger.frontier + 1)
    assert len({(what_is(debugger.tape, event), time_of(debugger.tape, event)) for event in events}) == len(events)
    assert (what_is(debugger.tape, 0), time_of(debugger.tape, 0)) == (START, 0)
    assert all(change_of(kept(debugger, event), debugger) == "" for event in events)


def test_another_event_of_the_number_is_told_with_the_reason() -> None:
    debugger = opened()
    changed = opened(**{"engine.kv_blocks": 60, "workload.rate_per_s": 3.0})
    moment = kept(debugger, 100)
    told = change_of(moment, changed)
    assert told.startswith("the experiment has changed: event 100 is now ")
    assert what_is(changed.tape, 100) in told or "is now at" in told
    assert change_of(replace(moment, what="completed request_9"), debugger).startswith("this run is another: ")
    later = change_of(replace(moment, time_us=moment.time_us + 1), debugger)
    assert later.startswith("this run is another: event 100 is now at ")


def test_beyond_what_is_recorded_nothing_is_known_and_beyond_the_end_no_event_is() -> None:
    whole = opened()
    moment = kept(whole, whole.frontier)
    begun = Debugger(whole.experiment)
    assert change_of(moment, begun) == ""
    shorter = opened(**{"workload.requests": 10})
    assert change_of(moment, shorter) == (f"the experiment has changed: it ends after {shorter.frontier:,} events")


def test_they_are_in_order_and_one_for_each_event() -> None:
    debugger = opened()
    found: tuple[Moment, ...] = ()
    for event, name in ((30, "late"), (5, "early"), (30, "later"), (0, "first")):
        found = with_moment(found, kept(debugger, event, name))
    assert [one.name for one in found] == ["first", "early", "later"]
    assert [one.event for one in without_moment(found, 5)] == [0, 30]
    assert from_data(to_data(reversed(found))) == found


def test_the_own_moment_of_an_event_stays_beside_those_of_others() -> None:
    debugger = opened()
    own, other, more = (kept(debugger, event, name) for event, name in ((5, "own"), (5, "other"), (3, "more")))
    assert with_others([own], [other, more]) == (more, own)


def test_what_is_no_moment_in_a_file_is_left_out() -> None:
    (good,) = to_data([kept(opened(), 5)])
    assert isinstance(good, dict)
    wrong = [{**good, key: value} for key, value in (("event", -1), ("event", True), ("time_us", 1.5), ("note", None))]
    assert from_data([None, "x", {}, *wrong, good]) == from_data([good])
    assert len(from_data([good])) == 1


def test_a_report_shows_texts_as_they_are() -> None:
    moment = kept(opened(), 5, "a *bold* [name](x) <b>", "why?\x1b[2J\nnext")
    text = report(
        "run_1", ["Seed 7."], [Shown(moment=moment, command="blis-tui tui x --at 5", changed="it is another")]
    )
    assert text.startswith("# run\\_1\n\nSeed 7.\n\n## 1. a \\*bold\\* \\[name\\](x) \\<b\\>\n\n")
    assert "\x1b" not in text
    assert "\n\n> It is another.\n\n```sh\nblis-tui tui x --at 5\n```\n" in text
    assert "![" not in text


def test_what_begins_a_note_is_no_markup_and_names_of_pictures_are_links() -> None:
    moment = kept(opened(), 5)
    for note, shown in (
        ("- first", "\\- first"),
        ("1. first", "1\\. first"),
        ("---", "\\---"),
        ("    4 > 3 &lt; $x$", "4 \\> 3 \\&lt; \\$x\\$"),
        ("30 ms late", "30 ms late"),
    ):
        assert f"\n\n{shown}\n\n" in report("run", [], [Shown(moment=replace(moment, note=note), command="x")])
    text = report("run", [], [Shown(moment=moment, command="", picture="late (1)-5.svg")])
    assert "![here](late%20%281%29-5.svg)" in text
