"""A page that steps through a run: what it holds is what the debugger says at each event."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.debugger.places import Place
from blis_tui.debugger.why.explain import explain
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.drawing.why import explanation_page
from blis_tui.tui.panes.changes import diff_lines
from blis_tui.tui.panes.events import full_text
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.request import subject
from blis_tui.tui.step_page import PANES, step_page
from tests.tui.pane_harness import debugger, text_of, view_at

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

DATA = re.compile('<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(page: str) -> Any:
    (data,) = DATA.findall(page)
    return json.loads(data)


def pane(data: Any, state: Any, name: str) -> str:
    """The text of a pane, as a reader sees it."""
    lines = (data["lines"][number] for number in state["panes"][PANES.index(name)])
    return "\n".join(html.unescape(re.sub(r"<[^>]*>", "", line)).rstrip() for line in lines)


@pytest.fixture(scope="module")
def page() -> str:
    return step_page(blis_tui.load("kv-pressure"), "kv-pressure", place=Place(event=670), events=40)


def test_panes_say_what_the_debugger_says_there(page: str) -> None:
    """Of a debugger that goes to each event by itself."""
    data = data_of(page)
    assert [state["event"] for state in data["states"]] == list(range(651, 691))
    assert data["opened"] == 670
    for state in data["states"][::3]:
        event = state["event"]
        fresh = debugger("kv-pressure", event)
        view = view_at(fresh)
        assert pane(data, state, "instances") == text_of(instances_lines(view, 72, 40))
        assert pane(data, state, "changes") == text_of(diff_lines(view.moment, 72, playing=False))
        asked = {"why this event": event_ref(event)}
        name = subject(view)
        if name is not None:
            asked["why the request"] = request_ref(name)
        for shown, about in asked.items():
            explanation = explain(fresh, about)
            assert explanation is not None
            lines = explanation_page(explanation, 72).lines
            assert pane(data, state, shown) == "\n".join(line.plain.rstrip() for line in lines)
        assert full_text(fresh.tape, event).endswith(state["text"])


def test_it_ends_with_the_run_and_may_hold_all_of_it() -> None:
    short = [{"id": "c", "input_tokens": 20, "output_tokens": 8}]
    experiment = blis_tui.load("quickstart", set={"workload.requests": 3, "workload.clients": short})
    run = Simulation(experiment)
    run.run()
    events = run.events
    whole = step_page(experiment, "quickstart", events=10_000)
    assert [state["event"] for state in data_of(whole)["states"]] == list(range(1, events + 1))
    assert f"events 1 to {events:,}, the end of the run" in whole
    assert f"state {run.digest()[:12]}" in whole
    last = step_page(experiment, "quickstart", events=5)
    assert data_of(last)["states"][-1]["panes"] != []
    assert [state["event"] for state in data_of(last)["states"]] == list(range(events - 4, events + 1))


def test_it_loads_and_sends_nothing_and_names_cannot_break_out() -> None:
    name = "</script><img src=x onerror=alert(1)>\x1b]0;pwn\x07"
    clients = [{"id": "c", "tenant": name, "input_tokens": 20, "output_tokens": 3}]
    page = step_page(blis_tui.load("quickstart", set={"workload.requests": 4, "workload.clients": clients}), name)
    assert "default-src 'none'" in page
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "\x1b" not in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page)


def test_events_that_are_mentioned_are_links(page: str) -> None:
    links = [int(number) for line in data_of(page)["lines"] for number in re.findall(r"<a href='#(\d+)'>", line)]
    assert any(651 <= number <= 690 for number in links)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--break", "preempted"], "a page has no breakpoints"),
        (["--at", "99999999"], "--at: the run ends after "),
        (["--at", "100s"], "--at: the run ends after "),
        (["--at", "request_99"], "--at: the run has no request `request_99`"),
        (["--events", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--set", "workload.requests=5"]
    done = CliRunner().invoke(cli, ["bundle", "quickstart", "-o", "run.html", *small, *arguments])
    assert done.exit_code == ExitCode.USAGE
    assert says in done.stderr
    assert not list(tmp_path.glob("*.html"))


def test_bundle_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--set", "workload.requests=5", "--at", "request_2", "--events", "20"]
    done = CliRunner().invoke(cli, ["bundle", "quickstart", "-o", "run.html", *small])
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("wrote run.html: a page of ")
    states = data_of((tmp_path / "run.html").read_text(encoding="utf-8"))["states"]
    assert len(states) == 20
    done = CliRunner().invoke(cli, ["bundle", "quickstart", "-o", "run.blis", "--events", "3"])
    assert (done.exit_code, "a bundle holds the whole run" in done.stderr) == (ExitCode.USAGE, True)


BROWSER = r"""
const { readFileSync } = require("node:fs");
const made = () => ({ textContent: "", className: "", innerHTML: "", value: "", hidden: false, attributes: {}, on: {},
  append() {}, focus() {}, blur() {}, scrollIntoView() {},
  setAttribute(name, value) { this.attributes[name] = value; }, removeAttribute(name) { delete this.attributes[name]; },
  addEventListener(name, act) { this.on[name] = act; } });
const [script, data] = JSON.parse(readFileSync(0, "utf8"));
const byId = new Map();
const boxes = [];
global.document = {
  getElementById(id) { if (!byId.has(id)) byId.set(id, made()); return byId.get(id); },
  createElement(name) { const one = made(); if (name === "pre") boxes.push(one); return one; } };
document.getElementById("data").textContent = data;
global.location = { hash: "" };
global.history = { replaceState(_state, _title, hash) { location.hash = hash; } };
const on = {};
global.addEventListener = (name, act) => { on[name] = act; };
(0, eval)(script);
const seen = () => [location.hash, byId.get("place").textContent, boxes[0].innerHTML];
const press = (key) => { on.keydown({ key, target: null, preventDefault() {} }); return seen(); };
const found = [seen(), press("j"), press("k"), press("k"), press("Home"), press("k"), press("End"), press("ArrowDown")];
byId.get("find").value = "PREEMPTED";
found.push(press("N"));
location.hash = "#655";
on.hashchange();
found.push(seen());
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_its_script_goes_where_keys_and_addresses_say(page: str) -> None:
    """In a browser as small as it needs."""
    (data,) = DATA.findall(page)
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, "-e", BROWSER],
        input=json.dumps([script, data]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    states = {state["event"]: state for state in json.loads(data)["states"]}
    preempted = max(event for event, state in states.items() if event < 690 and "preempted" in state["text"])
    events = [670, 671, 670, 669, 651, 651, 690, 690, preempted, 655]
    assert [int(address[1:]) for address, _, _ in found] == events
    for event, (_, place, shown) in zip(events, found, strict=True):
        assert place == f"event {event} · {states[event]['time']}"
        lines = json.loads(data)["lines"]
        assert shown == "\n".join(lines[number] for number in states[event]["panes"][0])
