"""A kind of record from elsewhere: one class, and it is everywhere that records are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.event_store import EventStore
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.lockstep import figure_pairs
from blis_tui.debugger.state import compare, differences
from blis_tui.debugger.why.event_stories import event_explanation
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import (
    RECORD_KINDS,
    Arrived,
    Description,
    Observers,
    Record,
    Routed,
    StepFinished,
    described,
)
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.results.conditions.suggestions import suggestions
from blis_tui.results.record_lines import record_line
from blis_tui.tui.drawing.event_filter import parse_filter
from blis_tui.tui.panes.changes import diff_lines
from blis_tui.tui.panes.events import event_line, full_text
from blis_tui.tui.panes.request import inspector_lines
from docs.make_reference import pages
from docs.make_terminal_reference import pages as terminal_pages
from tests.builders import profiles
from tests.tui.pane_harness import text_of, view_at

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Record], type[Record]]]:
    """Two kinds, defined for one test: of a request's routing, and of the cluster's own."""
    known = dict(RECORD_KINDS)

    @dataclass(frozen=True, slots=True)
    class Probed(Record):
        """The router looked for a request's prefix in an instance's cache."""

        shown = Description(
            "cache-probed",
            sign="?",
            meaning="the router looked into a cache",
            sentence="{request_id} found {hit_tokens:token} on instance {instance} in {took_us:ms}",
            line="found {hit_tokens:token} of instance {instance}",
            figures=("hit_tokens",),
            own_event=False,
            change="{hit_tokens:token} of its prompt are cached",
        )

        request_id: str
        instance: int
        hit_tokens: int
        """Tokens that need not be computed."""
        took_us: int

    @dataclass(frozen=True, slots=True)
    class Weighed(Record):
        """The cluster was weighed."""

        shown = Description("cluster-weighed")

        kilograms: int

    emit = Observers.emit

    def more(observers: Observers, record: Record) -> None:
        """As if a policy told what it looked at, and the cluster what it did."""
        if isinstance(record, Routed):
            emit(observers, Probed(record.event, record.time_us, record.request_id, record.instance, 7, 1500))
        if isinstance(record, Arrived) and record.request_id == "request_5":
            emit(observers, Weighed(record.event, record.time_us, 3))
        emit(observers, record)

    monkeypatch.setattr(Observers, "emit", more)
    yield Probed, Weighed
    RECORD_KINDS.clear()
    RECORD_KINDS.update(known)


@pytest.fixture
def debugger(kinds: object) -> Debugger:
    """A run with such records."""
    del kinds
    made = Debugger(blis_tui.load("quickstart", set={"workload.requests": 20}))
    run_to_stop(made.run())
    return made


def _first(debugger: Debugger, kind: str) -> int:
    return next(event for event in range(1, debugger.frontier + 1) if debugger.tape.has(event, kind))


@pytest.mark.usefixtures("kinds")
def test_it_is_in_the_record_file_with_its_fields_in_order() -> None:
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={"workload.requests": 2}))
    lines: list[str] = []
    simulation.subscribe("all", lambda record: lines.append(record_line(record)))
    simulation.run()
    lines = [line for line in lines if "cache-probed" in line]
    assert lines[0].startswith('{"kind":"cache-probed","event":3,')
    assert lines[0].endswith('"request_id":"request_0","instance":0,"hit_tokens":7,"took_us":1500}\n')
    assert len(lines) == 2


def test_the_tape_and_the_life_of_its_request_have_it(debugger: Debugger) -> None:
    event = _first(debugger, "cache-probed")
    assert debugger.tape.kind(event) == "routed"
    [found] = [one for one in debugger.tape.life("request_0") if one.what == "cache-probed"]
    assert (found.event, found.first) == (event, 7)
    assert debugger.tape.values_of("request_0", found)["hit_tokens"] == 7
    life = read_life(debugger.tape, "request_0", debugger.frontier)
    plain = Debugger(blis_tui.load("quickstart", set={"workload.requests": 20}))
    assert life is not None
    run_to_stop(plain.run())
    without = read_life(plain.tape, "request_0", plain.frontier)
    assert without is not None
    assert life.spans == without.spans


def test_it_is_told_where_events_are(debugger: Debugger) -> None:
    event = _first(debugger, "cluster-weighed")
    assert debugger.tape.kind(event) == "cluster-weighed"
    line = event_line(debugger.tape, event)
    assert (line.subject, line.look.sign) == ("cluster", "◇")
    assert full_text(debugger.tape, event).endswith(": cluster cluster weighed")
    matches = parse_filter("cluster-weighed", debugger.tape)
    probed = parse_filter("cache-probed", debugger.tape)
    arrived = parse_filter("arrived", debugger.tape)
    assert matches is not None
    assert probed is not None
    assert arrived is not None
    rows = [debugger.tape.row(event) for event in range(1, debugger.frontier + 1)]
    assert [row.event for row in rows if matches(row)] == [event]
    assert len([row for row in rows if probed(row)]) == len([row for row in rows if arrived(row)]) == 20


def test_breakpoints_stop_at_it_with_its_sentence(debugger: Debugger) -> None:
    run_to_stop(debugger.seek(0))
    points = [parse_breakpoint(text, debugger.experiment) for text in ("cache-probed", "instance 1 routed")]
    stop = run_to_stop(debugger.run(Watch(points)))
    assert [hit.sentence for hit in stop.hits] == ["request_0 found 7 tokens on instance 0 in 1.5 ms"]
    assert "the router looked into a cache" in [
        suggestion.meaning for suggestion in suggestions("cache", debugger.experiment)
    ]


def test_it_is_a_change_and_the_inspector_goes_on(debugger: Debugger) -> None:
    view = view_at(debugger, _first(debugger, "cache-probed"))
    [change] = [difference for difference in differences(view.moment) if difference.group == "cache-probed"]
    assert (change.request, change.about) == ("request_0", "7 tokens of its prompt are cached")
    assert "cache probed" in text_of(diff_lines(view.moment, 140, playing=False))
    assert "instance 0" in text_of(inspector_lines(view, 100, {}))


def test_it_is_explained(debugger: Debugger) -> None:
    text = event_explanation(debugger, _first(debugger, "cluster-weighed")).to_text()
    assert "An event in which cluster weighed." in text


@pytest.mark.usefixtures("kinds")
def test_it_is_in_the_references() -> None:
    page = pages()["records.md"]
    assert "## cache-probed\n\nThe router looked for a request's prefix" in page
    [row] = [line for line in page.splitlines() if line.startswith("| `hit_tokens` | `int`") and "need not" in line]
    assert row.endswith(" | Tokens that need not be computed. |")
    assert "| `cache-probed` | an event in which the router looked into a cache |" in terminal_pages()["conditions.md"]


def test_a_kind_that_nobody_has_defined_is_shown_as_itself() -> None:
    shown = described("sent-away")
    assert (shown.label, shown.line, shown.brief, shown.ends) == ("sent away", "sent away", "sent away", "")


def test_a_kind_is_described_once() -> None:
    with pytest.raises(TypeError, match=r"already that of blis_tui\.engine\.records\.StepFinished"):
        type("Again", (Record,), {"shown": Description("step")})
    assert RECORD_KINDS["step"] is StepFinished
    with pytest.raises(TypeError, match="two figures"):
        Description("odd", line="{duration_us:span}")


# ---- instances come and go ----


def test_an_instance_that_comes_and_goes_is_a_change(debugger: Debugger) -> None:
    run_to_stop(debugger.seek(40))
    state = debugger.moment().after
    fewer = replace(state, instances=state.instances[:1])
    for before, after, values in ((fewer, state, (None, "there")), (state, fewer, ("there", "gone"))):
        [change] = compare(before, after, ())
        assert (change.path, change.old, change.new) == ("instances[1]", *values)
        assert {pair.instance for pair in figure_pairs(before, after) if pair.differs} <= {1}


def test_the_tape_hears_of_an_instance_when_it_has_a_step() -> None:
    tape = EventStore(profiles(blis_tui.load("quickstart")))
    late = StepFinished(1, 5, 3, 1, (), (), (), 2, 10, (), 100, (), (), 4, 2, 6, 105)
    overview = tape.overview
    overview.step(late, 2, (4, 2, 6))
    assert tape.instances == 4
    assert [list(overview.load_of(index)) for index in range(4)] == [[0], [0], [0], [6]]
