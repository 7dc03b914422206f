"""A script with a kind of record and a pane of its own: seen wherever records and panes are, with nothing patched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError, SimulationError
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.engine.records import RECORD_KINDS, Record
from blis_tui.golden.determinism import find_nondeterminism
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.results.record_lines import record_line
from blis_tui.spec.user_plugins import load_plugins
from blis_tui.tui.drawing.event_filter import parse_filter
from blis_tui.tui.panes.events import event_line, full_text
from tests.plugins.probing import at_end, edited, left_as_found, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with left_as_found():
        yield


# ---- records ----


def test_the_record_file_has_what_was_emitted_at_each_decision() -> None:
    simulation = blis_tui.Simulation(loaded())
    lines: list[str] = []
    simulation.subscribe("all", lambda record: lines.append(record_line(record)))
    simulation.run()
    records = [json.loads(line) for line in lines]
    routed = {one["request_id"]: one for one in records if one["kind"] == "routed"}
    probed = {one["request_id"]: one for one in records if one["kind"] == "cache-probed"}
    assert len(probed) == 40
    for name, one in probed.items():
        decision = routed[name]
        assert (one["event"], one["time_us"], one["instance"]) == tuple(
            decision[key] for key in ("event", "time_us", "instance")
        )
        assert decision["reason"] == f"{one['hit_tokens']} tokens cached"
        assert 0 <= one["least_tokens"] <= one["hit_tokens"]
    assert max(one["hit_tokens"] for one in probed.values()) > 0


def test_whether_anything_is_told_changes_nothing() -> None:
    assert find_nondeterminism(loaded()) == ""
    heard, quiet = blis_tui.Simulation(loaded()), blis_tui.Simulation(loaded())
    seen: list[Record] = []
    heard.subscribe("cache-probed", seen.append)
    heard.run()
    quiet.run()
    assert heard.report().to_json() == quiet.report().to_json()
    assert len(seen) == 40


def test_list_filter_and_breakpoints_know_it() -> None:
    debugger = at_end(loaded())
    tape = debugger.tape
    events = [event for event in range(1, debugger.frontier + 1) if tape.has(event, "cache-probed")]
    assert len(events) == 40
    assert {tape.kind(event) for event in events} == {"routed"}  # it accompanies the decision
    assert event_line(tape, events[0]).look.sign == "→"
    matches = parse_filter("cache-probed", tape)
    assert matches is not None
    assert [event for event in range(1, debugger.frontier + 1) if matches(tape.row(event))] == events
    assert [event for event, _ in tape.values_of_kind("cache-probed", debugger.frontier)] == events[::-1]
    assert [event for event, _ in tape.values_of_kind("cache-probed", events[3] - 1)] == events[2::-1]
    run_to_stop(debugger.seek(0))
    stop = run_to_stop(debugger.run(Watch([parse_breakpoint("cache-probed", debugger.experiment)])))
    assert debugger.event == events[0]
    assert stop.hits[0].sentence.startswith("0 tokens of request_")


def test_an_event_of_its_own_is_told_too(tmp_path: Path) -> None:
    debugger = at_end(loaded(edited(tmp_path, "        own_event=False,\n", "")))
    tape = debugger.tape
    events = [event for event in range(1, debugger.frontier + 1) if tape.kind(event) == "cache-probed"]
    assert len(events) == 40
    assert [event for event, _ in tape.values_of_kind("cache-probed", debugger.frontier)] == events[::-1]
    assert "tokens cached on instance" in full_text(tape, events[-1])


def test_wrong_fields_are_an_error_with_the_line(tmp_path: Path) -> None:
    script = edited(tmp_path, "cached[place], min(cached))", "cached[place])")
    quiet = blis_tui.Simulation(loaded(script))
    quiet.run()
    heard = blis_tui.Simulation(loaded(script))
    heard.subscribe("cache-probed", print)
    with pytest.raises(SimulationError, match="least_tokens") as caught:
        heard.run()
    assert f"{script}:" in str(caught.value)


@pytest.mark.parametrize("value", ["'many'", "cached[place] / 2", "2**64"])
def test_a_figure_that_the_debugger_cannot_keep_is_an_error_with_the_line(tmp_path: Path, value: str) -> None:
    """The tape keeps what was before it, and nothing of the event."""
    script = edited(tmp_path, "fleet.members[place], cached[place], min", f"fleet.members[place], {value}, min")
    debugger = Debugger(loaded(script))
    assert run_to_stop(debugger.run()).reason == "failed"
    message = str(debugger.failure)
    assert "TypeError at event 3: the figure `hit_tokens` of a record `cache-probed` is " in message
    assert f"{script}:" in message
    assert len(debugger.tape) == 2
    assert full_text(debugger.tape, 1).endswith("request_0 arrived: 2,209 prompt tokens, up to 150 output tokens")


def test_a_script_that_was_edited_is_loaded_again(tmp_path: Path) -> None:
    old = loaded(edited(tmp_path, "sign=", "colour='error', sign="))
    new = loaded(edited(tmp_path, "sign=", "colour='success', sign="))
    assert RECORD_KINDS["cache-probed"].shown.colour == "success"
    assert old.plugins.origins != new.plugins.origins


# ---- panes ----


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('key="P"', 'key="ctrl+x"', r"cache_probes\.py:\d+: the key of the pane `Probes` is 'ctrl\+x'"),
        ('@pane("Probes"', '@pane(""', "a pane cannot be called ''"),
    ],
)
def test_a_pane_that_cannot_be(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        load_plugins([edited(tmp_path, old, new)])


def test_two_panes_of_one_name(tmp_path: Path) -> None:
    body = "from blis_tui.plugins import pane\n@pane('Probes', 'Nothing')\ndef nothing(view, width):\n    return ()\n"
    (tmp_path / "one.py").write_text(body, encoding="utf-8")
    (tmp_path / "two.py").write_text(f"# another\n{body}", encoding="utf-8")
    known = load_plugins([tmp_path / "one.py"])
    assert len(known.modules) == 1
    with pytest.raises(PolicyError, match="there are two panes `Probes`"):
        load_plugins([tmp_path / "one.py", tmp_path / "two.py"])
