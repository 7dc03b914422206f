"""The debugger's screen: breakpoints, moments, panes, copies and what can be typed."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, replace
from functools import partial, partialmethod
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on, work
from textual.worker import get_current_worker

from blis_tui._version import ENGINE, __version__
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.units import count_text, plural
from blis_tui.debugger.moments import Shown, change_of, report, with_others
from blis_tui.debugger.places import parse_place, place_of_request
from blis_tui.debugger.saved_sessions import Session
from blis_tui.debugger.saved_sessions import load as load_session
from blis_tui.debugger.saved_sessions import save as save_session
from blis_tui.debugger.summary import summarize, summary_of
from blis_tui.debugger.traces import AT, parse_wanted
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.tui.actions import shown_key
from blis_tui.tui.bars import TabBar
from blis_tui.tui.boxes import Box
from blis_tui.tui.drawing.event_filter import parse_filter
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.driver import GOING, TICK_S, TO_END
from blis_tui.tui.panes import PANES
from blis_tui.tui.panes.breakpoints import Wanted
from blis_tui.tui.panes.events import EventList, full_text
from blis_tui.tui.panes.moments import MomentWanted
from blis_tui.tui.panes.pane import KINDS, copied
from blis_tui.tui.panes.request import Marked, MoreRanked, mark_at
from blis_tui.tui.panes.timeline import Timeline
from blis_tui.tui.panes.values import Arranged
from blis_tui.tui.screens.export import ExportScreen, new_report, picture_name, write_report, zipped
from blis_tui.tui.screens.moves import Asking
from blis_tui.tui.screens.stage import SIZES, Arrangement
from blis_tui.tui.screens.windows import ConfirmScreen, JumpScreen, MomentScreen, PromptScreen, read_changes
from blis_tui.tui.shell import QUOTED, LoadedBy, PaletteEntry, Verb, completed, shell
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from textual.events import Key

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.event_store import EventRow
    from blis_tui.debugger.history import Stop
    from blis_tui.debugger.moments import Moment
    from blis_tui.debugger.summary import Summary
    from blis_tui.debugger.traces import Printout
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.suggestions import Suggestion
    from blis_tui.tui.panes import PaneInfo

_REPORT: Final = "moments"
"""The group of the worker that draws the report of moments."""
_TIMELINE: Final = "t"
"""Letter of the timeline in jump mode; no pane has it."""
_INSTANCE: Final = re.compile(r"(?:instance[_ ]?|i)([0-9]{1,9})")
_OFFERED: Final = 40
"""Maximum number of entries of one kind in the command palette."""
_NEEDED: Final = {action: info.id for info in PANES for action in info.pane.actions}
"""Actions that need a pane which not all experiments have."""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class DebuggerScreen(Asking):
    """A run to step through, play, go back in and ask questions about.

    Args:
        experiment: the experiment.
        source: its name or path, as the user gave it, which also identifies the remembered session.
        at: first position: an event, a time or a request.
        breaks: breakpoints to set.
        overrides: the ``--set`` arguments.
        moments: events that somebody has kept, besides the remembered ones.
        called: the name by which others open it; empty = ``source``.
        remembers: whether the last session is restored, and this one saved.
        routes: routing decisions to override, as for ``Simulation``.

    Raises:
        InputError: ``at`` is invalid.
        ConditionError: a breakpoint is invalid.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        source: str,
        at: str | None = None,
        breaks: Sequence[str] = (),
        overrides: Sequence[str] = (),
        moments: Sequence[Moment] = (),
        called: str = "",
        remembers: bool = True,
        routes: RouteOverrides | None = None,
    ) -> None:
        super().__init__(experiment, source=source, routes=routes)
        self._called, self._remembers = called, remembers
        self._goal = None if at is None else parse_place(at)
        self._overrides = tuple(overrides)
        self._filter = ""
        self._lost: list[str] = []
        self._absent: dict[str, PaneInfo] | None = None
        self._remembered = load_session(called or source) if remembers else Session(source)
        self._restore()
        self.session.moments = with_others(self.session.moments, moments)
        for text in breaks:
            self.session.put(text)

    def _restore(self) -> None:
        """Restore the remembered session, without invalid parts."""
        session = self._remembered
        for text, enabled in session.breakpoints:
            try:
                self.session.put(text, enabled=enabled)
            except BlisError as error:
                self._lost.append(f"{text}: {error.message}")
        self.session.moments = session.moments
        layout = session.layout
        self.session.driver.speed.restore(str(layout.get("speed", "")))
        self.session.watches = tuple(text for text in str(layout.get("watches", "")).split("\n") if text)
        arrangement = Arrangement()
        for name in ("lower", "right", "active"):
            pane = self.panes.get(str(layout.get(name, "")))
            if pane is not None:
                arrangement = arrangement.with_active(pane)
        size = str(layout.get("size", ""))
        if size in SIZES:
            arrangement = arrangement.with_size(SIZES.index(size))
        self.arrangement = arrangement
        self.forget_arrangements()

    def begin(self) -> None:
        """Go to the first position: without one, to the end of the run, with its summary."""
        self._explain_spec()
        if self._remembered.problem:
            self.notify(self._remembered.problem, severity="warning", markup=False)
        if self._lost:
            self.notify("\n".join(self._lost), title="Breakpoints not set", severity="warning", markup=False)
        if self._goal is not None:
            self.go(self._goal.move(self.session.debugger), GOING)
        else:
            self.activate("summary")
            self.forget_arrangements()
            self._summarize()
            if self._remembered.position_event:
                self.session.visited.append(self._remembered.position_event)

    @work(thread=True, exclusive=True, group="summary")
    def _summarize(self) -> None:
        """Simulate the run a second time, with nothing that listens, which takes a fraction of the time."""
        session, worker = self.session, get_current_worker()
        try:
            summary = summarize(session.experiment, session.debugger.routes, lambda _: not worker.is_cancelled)
        except BlisError:  # the recorded run says so, at its event
            summary = None
        if not worker.is_cancelled:
            self.call_later(self._summarized, summary)

    def _summarized(self, summary: Summary | None) -> None:
        """Show the summary; then record the run up to its end, unless the reader has a place in it already."""
        if summary is not None:
            self.show_summary(summary)
        if self._goal is None and not self.session.debugger.event and not self.session.driver.busy:
            self.go(self.session.debugger.to_end(), TO_END)

    def stopped(self, stop: Stop, label: str = "") -> None:
        """Show where a move ended; at the first end, mention the position of the last session."""
        super().stopped(stop, label)
        debugger = self.session.debugger
        if self.session.summary is None and debugger.at_end and debugger.failure is None:
            self.show_summary(summary_of(debugger.simulation))
        remembered, self._remembered = self._remembered, Session(self.source)
        if label == TO_END and remembered.position_event and self._goal is None:
            event = count_text(remembered.position_event)
            self.notify(f"The last session ended at event {event}:\nbackspace goes there.", markup=False)
        kept = self.session.moment_at(debugger.event) if label == GOING else None
        if kept is not None and (changed := change_of(kept, debugger)):
            self.notify(f"Not what was kept: {changed}.", title=kept.name, severity="warning", markup=False)

    def on_unmount(self) -> None:
        """Save the session."""
        self.remember()

    def remember(self) -> None:
        """Save the session now, because the terminal may be closed at any moment."""
        if not self._remembers:
            return
        problem = save_session(self.session.session(self._called or self.source, asdict(self.arrangement)))
        if problem:
            self.app.notify(problem, severity="warning", markup=False)

    @property
    def loaded_by(self) -> LoadedBy:
        """Return what its experiment was loaded from."""
        return shell(self.app).loaded_by(self) or LoadedBy(self.source, self._overrides)

    def bug_report_facts(self) -> dict[str, str]:
        """Return the facts about this run that a bug report should contain."""
        return self.session.debugger.bug_report_facts()

    # ---- breakpoints ----

    def action_break_toggle(self) -> None:
        """Set or remove a breakpoint for what the cursor is on."""
        subject = self.at_cursor()
        text = KINDS[subject.kind].breaks(self._view(), subject.value)
        there = self.session.toggle(text)
        self.remember()
        self.notify(f"Breakpoint {'set' if there else 'removed'}: {text}", timeout=2, markup=False)
        self.show_view()

    def put_breakpoint(self, text: str, place: int | None = None) -> None:
        """Set a breakpoint, instead of the one at a place. Raises ConditionError if it is invalid."""
        self.session.put(text, place)
        self.remember()
        self.show_view()

    def put_watch(self, text: str, place: int | None = None) -> None:
        """Watch something, instead of what is watched at a place."""
        listed = list(self.session.watches)
        if place is None:
            listed.append(text)
        else:
            listed[place] = text
        self.session.watches = tuple(dict.fromkeys(listed))
        self.remember()
        self.activate("breakpoints")
        self.show_view()

    def print_values(self, text: str) -> None:
        """Print an expression at each hit of a breakpoint. Raises ConditionError if the text is invalid."""
        wish = self.session.read_print(text)
        self.activate("values")
        self.go(self.session.print_values(wish), "finding hits")

    def action_break_edit(self, place: int | None = None) -> None:
        """Add a breakpoint, or edit the one at a place."""

        def put(text: str | None) -> None:
            if text is not None:
                self.put_breakpoint(text, place)

        self.app.push_screen(
            PromptScreen(
                "Breakpoint",
                "Stop after an event: preempted · first preemption · request request_12 · time 1.5s · invariant, "
                "or when a condition becomes true: kv.utilization > 0.9 and preemptions > 0",
                value="" if place is None else self.session.breakpoints[place].text,
                placeholder="preempted",
                check=self.session.read_breakpoint,
                complete=self.session.complete_breakpoint,
                doing="set it",
            ),
            put,
        )

    def action_break_watch(self, place: int | None = None) -> None:
        """Add a watch, or edit the one at a place."""

        def put(text: str | None) -> None:
            if text is not None:
                self.put_watch(text, place)

        self.app.push_screen(
            PromptScreen(
                "Watch",
                "A metric or a condition: waiting · kv.utilization · instance[0].kv.free · running >= 8",
                value="" if place is None else self.session.watches[place],
                placeholder="kv.utilization",
                check=self.session.read_watch,
                doing="watch it",
            ),
            put,
        )

    def action_break_print(self) -> None:
        """Ask for an expression and a breakpoint, and print the values at its hits."""

        def find(text: str | None) -> None:
            if text is not None:
                self.print_values(text)

        stops = [point.text for point in self.session.breakpoints if point.enabled]
        prompt = PromptScreen(
            "Print values",
            "An expression at each hit of a breakpoint: kv.utilization at preempted · ttft_ms at first-token",
            value=f"kv.utilization{AT}{stops[0]}" if stops else "",
            placeholder=f"kv.utilization{AT}preempted",
            check=self.session.read_print,
            doing="find them",
        )
        self.app.push_screen(prompt, find)

    @on(Arranged)
    def _arranged(self, message: Arranged) -> None:
        if self.session.printout is not None:
            self.session.printout = self.session.printout.arranged(message.how)
            self.show_view()

    def _filter_values(self, printout: Printout) -> None:
        """Ask for a filter of the printed values."""

        def use(text: str | None) -> None:
            if text is not None:
                self.session.printout = replace(printout, wanted=text.strip())
                self.show_view()

        about = "Comparisons of the value and parts of requests' names, which must all match: > 0.9 request_1"
        prompt = PromptScreen(
            "Filter values",
            about,
            value=printout.wanted,
            placeholder="> 0.9",
            check=parse_wanted,
            doing="shows what matches",
            without="shows all values",
        )
        self.app.push_screen(prompt, use)

    @on(Wanted)
    def _breakpoint_wanted(self, message: Wanted) -> None:
        place, own = message.place, len(self.session.breakpoints)
        if place < own:
            if message.what == "edit":
                self.action_break_edit(place)
            elif message.what == "switch":
                self.session.switch(place)
            else:
                self.session.remove(place)
        elif message.what == "edit":
            self.action_break_watch(place - own)
        elif message.what == "remove":
            watches = list(self.session.watches)
            del watches[place - own]
            self.session.watches = tuple(watches)
        self.remember()
        self.show_view()

    # ---- moments ----

    def action_moment_keep(self) -> None:
        """Keep the present event; if it is kept already, edit its moment."""
        self.halt()
        session, event = self.session, self.session.debugger.event
        kept = session.moment_at(event)
        if kept is not None:
            self._edit_moment(kept)
            return

        def keep(given: tuple[str, str] | None) -> None:
            if given is not None and session.debugger.event == event:
                self.keep_moment(*given)

        about = full_text(session.debugger.tape, event)
        self.app.push_screen(MomentScreen("Keep this moment", _sentence(about), name=session.name_for(event)), keep)

    def keep_moment(self, name: str, note: str = "") -> None:
        """Keep the present event; one that is kept already gets another name, and keeps its note unless it is given."""
        kept = self.session.moment_at(self.session.debugger.event)
        self.session.keep(name, note or ("" if kept is None else kept.note))
        self._moments_changed(f"Kept: {name}")

    def _edit_moment(self, moment: Moment) -> None:
        def put(given: tuple[str, str] | None) -> None:
            if given is not None:
                self.session.edit_moment(moment, *given)
                self._moments_changed()

        about = f"Event {count_text(moment.event)}: {moment.sentence}"
        self.app.push_screen(MomentScreen("Moment", _sentence(about), name=moment.name, note=moment.note), put)

    @on(MoreRanked)
    def _more_ranked(self) -> None:
        self.session.rank_more()
        self.show_view()

    @on(Marked)
    def _marked(self, message: Marked) -> None:
        self.session.mark(message.request, switches=message.switches)
        self.show_view()

    @on(MomentWanted)
    def _moment_wanted(self, message: MomentWanted) -> None:
        moment = self.session.moment_at(message.event)
        if moment is None:
            return
        if message.what == "edit":
            self._edit_moment(moment)
            return

        def remove(sure: bool | None) -> None:
            if sure:
                self.session.forget(moment.event)
                self._moments_changed(f"Removed: {moment.name}")

        if moment.note:
            text = f"{moment.name}\n\n{moment.note}"
            self.app.push_screen(ConfirmScreen("Remove this moment and its note?", text, doing="removes them"), remove)
        else:
            remove(True)

    def _moments_changed(self, message: str = "") -> None:
        self.remember()
        if message:
            self.notify(message, timeout=2, markup=False)
        self.show_view()

    def action_run_stop(self) -> None:
        """Stop; or undo the last action that narrowed the view."""
        events = self.query_one(EventList)
        if self.halt():
            return
        if self._filter:
            self._filter = ""
            events.set_filter(None)
        elif self.arrangement.size != "shared":
            self._resize(-len(SIZES))
        elif self.session.selection.session is not None and self.arrangement.active == "sessions":
            self.session.clear_session()
            self.show_view()
        elif self.session.selection.request is not None:
            self.session.clear_request()
            self.show_view()

    # ---- views ----

    def action_look_rank(self) -> None:
        """Pause, and show the ranking of requests; if it is shown already, by the next figure."""
        self.halt()
        if self.arrangement.active == "request" or not self.session.selection.ranking:
            self.session.rank()
        self.activate("request")
        self.show_view()

    def action_look_mark(self) -> None:
        """Mark the request at the cursor of the ranking, or remove its mark."""
        message = mark_at(self._view(), self.box_in_use.at_cursor())
        if message is None or self.arrangement.active != "request":
            key = shown_key(shell(self.app).keymap.keys["look.rank"][0])
            self.notify(f"Marks are for requests of a ranking: {key} shows one.", markup=False)
        else:
            self._marked(message)

    def action_look_measure(self) -> None:
        """Show the fleet map; if it is shown already, with the next measure."""
        if self.arrangement.active == "fleet":
            self.session.measure()
        self.activate("fleet")
        self.show_view()

    def action_look_arrivals(self) -> None:
        """Show arrivals by the next grouping."""
        if not self.query_one(Timeline).turn():
            self.notify("All requests come from the same client, and none has a tenant.", markup=False)

    def _read_filter(self, text: str) -> Callable[[EventRow], bool] | None:
        """Parse a filter of events. Raises InputError if it is invalid."""
        return parse_filter(text, self.session.debugger.tape)

    def filter_events(self, text: str) -> None:
        """Show only the events that match."""
        self._filter = text
        self.query_one(EventList).set_filter(self._read_filter(text), text)
        self.activate("events")

    def action_look_filter(self) -> None:
        """Ask for a filter of the event list, or of the printed values where they are in use."""
        if self.arrangement.active == "values" and self.session.printout is not None:
            self._filter_values(self.session.printout)
            return

        def use(text: str | None) -> None:
            if text is not None:
                self.filter_events(text)

        about = (
            "Words that must all match: preempted · step · completed · request_12 · i0 · -arrived. escape clears it."
        )
        prompt = PromptScreen(
            "Filter events",
            about,
            value=self._filter,
            placeholder="preempted",
            check=self._read_filter,
            doing="shows what matches",
            without="shows all events",
        )
        self.app.push_screen(prompt, use)

    def _to_hit(self, *, back: bool) -> None:
        if not self._filter:
            self.notify("There is no filter: / sets one.", markup=False)
            return
        debugger = self.session.debugger
        matches = parse_filter(self._filter, debugger.tape)
        if matches is not None:
            self.go(debugger.seek_match(matches, back=back), "searching")

    action_look_next_hit = partialmethod(_to_hit, back=False)
    action_look_previous_hit = partialmethod(_to_hit, back=True)

    # ---- panes ----

    def on_key(self, event: Key) -> None:
        """Handle the keys of plug-ins' panes, which have lower priority than the table's."""
        pane = next((pane for pane in self.panes.values() if pane.brought and event.character == pane.key), None)
        if pane is not None:
            event.stop()
            self.activate(pane.id)
            return
        if self._absent is None:
            self._absent = dict(self._absent_pane_keys())
        absent = self._absent.get(event.key) or self._absent.get(event.character or "")
        if absent is not None:
            why = absent.pane.lacks(self.session.experiment)
            self.notify(f"This run has no {absent.name.lower()}{why}", markup=False)

    def _absent_pane_keys(self) -> Iterator[tuple[str, PaneInfo]]:
        """Yield keys of panes that this experiment lacks, with the pane."""
        keymap = shell(self.app).keymap.keys
        for pane in PANES:
            if pane.id not in self.panes:
                others = [name.replace("_", ".", 1) for name, needed in _NEEDED.items() if needed == pane.id]
                for name in (f"pane.{pane.id}", *others):
                    yield from ((key, pane) for key in keymap[name])

    action_pane_show = Asking.activate
    action_break_list = partialmethod(Asking.activate, "breakpoints")
    action_look_diff = partialmethod(Asking.activate, "changes")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the experiment has what an action needs."""
        needed = parameters[0] if action == "pane_show" else _NEEDED.get(action)
        return needed is None or needed in self.panes

    def action_pane_next(self) -> None:
        """Go to the next visible pane, or to the next one if only one fits."""
        shown = self.arrangement.shown(self.size.width)
        order = shown if len(shown) > 1 else tuple(self.panes)
        place = order.index(self.arrangement.active) if self.arrangement.active in order else -1
        self.activate(order[(place + 1) % len(order)])

    def _resize(self, by: int) -> None:
        """Change the size of the active pane."""
        self.arrangement = self.arrangement.with_size(by)
        self.place_panes()

    action_pane_bigger = partialmethod(_resize, 1)
    action_pane_smaller = partialmethod(_resize, -1)

    def action_pane_jump(self) -> None:
        """Start jump mode."""

        def jump(pane: str | None) -> None:
            if pane == "timeline":
                self.query_one(Timeline).focus()
            elif pane is not None:
                self.activate(pane)

        shown = self.arrangement.shown(self.size.width)
        targets = [(_TIMELINE, "timeline", self.query_one(Timeline).region)]
        targets += [(self.panes[name].letter, name, self.query_one(f"#{name}", Box).region) for name in shown]
        tabs = self.query_one(TabBar).places()
        targets += [(self.panes[name].letter, name, region) for name, region in tabs if name not in shown]
        self.app.push_screen(JumpScreen(targets), jump)

    # ---- copy and export ----

    def _copy(self, *, path: bool) -> None:
        """Copy the value or the path at the cursor."""
        subject = self.at_cursor()
        text = self.box_in_use.copied(path=path) or copied(self._view(), subject, path=path)
        text = text or f"{self._called or self.source} --at {subject.value}"  # an event
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied: {text}", timeout=2, markup=False)

    action_copy_value = partialmethod(_copy, path=False)
    action_copy_path = partialmethod(_copy, path=True)

    def _copied_subject(self) -> Subject:
        """Return the event or request that copies of the cursor's subject are about."""
        subject = self.at_cursor()
        about = KINDS[subject.kind].explains(self._view(), subject.value)
        return event_ref(self.session.debugger.event) if about is None else about

    def action_copy_command(self) -> None:
        """Copy the shell command that opens the debugger at the event, or at the arrival of the request."""
        about = self._copied_subject()
        text = self.command(about.value if about.kind == "event" else place_of_request(about.value))
        if not text:
            self.notify("Routing decisions of this run were overridden: no command opens it.", markup=False)
            return
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied: {text}", timeout=2, markup=False)

    def action_copy_yaml(self) -> None:
        """Copy what is known of the event, or of the request, as YAML."""
        about = self._copied_subject()
        self.app.copy_to_clipboard(self.session.as_yaml(about))
        self.notify(f"Copied as YAML: {about.text}", timeout=2, markup=False)

    def action_export_open(self) -> None:
        """Open the export window."""
        self.halt()
        breaks = [point.text for point in self.session.breakpoints if point.enabled]
        self.app.push_screen(
            ExportScreen(
                self.session.debugger,
                self.app.export_screenshot,
                breaks,
                self.session.printout,
                moments=self.session.moments,
                write_moments=self._write_moments,
            )
        )

    # ---- the report of moments ----

    def command(self, place: str) -> str:
        """Return the shell command that opens the debugger at a place; empty if decisions have been overridden."""
        if self.session.debugger.routes:
            return ""
        by = LoadedBy(self._called) if self._called else self.loaded_by
        return by.command(place, (origin.asked for origin in self.session.experiment.plugins.origins))

    async def at_rest(self) -> None:
        """Wait until a move is over and what it leads to is drawn."""
        while self.session.driver.busy:  # noqa: ASYNC110  (a driver has no event: the clock asks it, too)
            await asyncio.sleep(TICK_S)
        for _ in range(2):  # what is laid out the first time may scroll the second time
            drawn = asyncio.Event()
            self.call_after_refresh(drawn.set)
            await drawn.wait()

    async def report_files(self, stem: str) -> dict[str, str]:
        """Visit each moment and draw it, then come back; return the report and its pictures, by file name."""
        debugger, arrangement, shown = self.session.debugger, self.arrangement, []
        here, files = debugger.event, {}
        with self.arrangement_restored():
            for pane in ("changes", "instances"):  # a list of moments says nothing about any of them
                if "moments" in (arrangement.lower, arrangement.active):
                    self.activate(pane)
            for moment in self.session.moments:
                await self._visit(moment.event)
                changed, picture = change_of(moment, debugger), ""
                if debugger.event == moment.event:
                    picture = picture_name(stem, moment)
                    files[picture] = self.app.export_screenshot()
                shown.append(
                    Shown(moment=moment, command=self.command(str(moment.event)), picture=picture, changed=changed)
                )
            self.go(debugger.seek(here), "going back")
        await self.at_rest()
        return {f"{stem}.md": report(f"{self.session.experiment.name}: moments", tuple(self._about()), shown), **files}

    async def _visit(self, event: int) -> None:
        """Go to an event, again if the reader goes elsewhere meanwhile; or to the end, if the run has no such event."""
        debugger = self.session.debugger
        beyond = False
        while not beyond:
            if debugger.event != event:
                self.go(debugger.seek(event), "drawing moments")
            await self.at_rest()
            if debugger.event == event:
                return
            beyond = debugger.failure is not None or (debugger.at_end and debugger.event < event)

    def _about(self) -> Iterator[str]:
        """Yield what a report says about the run."""
        experiment = self.session.experiment
        yield f"Seed {experiment.seed}, experiment {experiment.sha256[:12]}, blis-tui {__version__}, engine {ENGINE}."
        if self.session.debugger.routes:
            yield "Routing decisions of this run were overridden: no command opens it."

    def _write_moments(self, name: str) -> None:
        """Write the report of the moments, unless one is being drawn."""
        if any(worker.group == _REPORT and not worker.is_finished for worker in self.workers):
            self.notify("A report of the moments is being drawn already.", severity="warning", markup=False)
        else:
            self._draw_moments(name)

    @work(group=_REPORT)
    async def _draw_moments(self, name: str) -> None:
        """Write the report of the moments into the working folder, or send it to the browser."""
        stem = new_report(name, self.session.moments)
        files = await self.report_files(stem)
        if self.app.is_web:
            self.app.deliver_binary(zipped(files), save_filename=f"{stem}.zip")
            self.notify(f"{stem}.zip is being sent to your browser.", markup=False)
            return
        try:
            write_report(Path.cwd(), files)
        except InputError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            pictures = plural(len(files) - 1, "picture")
            self.notify(f"Written: {Path.cwd() / stem}.md and {pictures}", markup=False)

    # ---- the experiment ----

    def action_spec_edit(self) -> None:
        """Edit the file, and load it again."""
        from blis_tui.spec.load import locate  # noqa: PLC0415
        from blis_tui.tui.editor import edit  # noqa: PLC0415

        self.halt()
        problem = edit(self.app, locate(self.source))
        if problem:
            self.notify(problem, severity="warning", markup=False)
        else:
            shell(self.app).reopen_experiment(self.source, at=str(self.session.debugger.event))

    def action_compare_open(self) -> None:
        """Compare with the same experiment, one value changed."""
        about = "The other side is this experiment with a value changed, as with --set: cluster.instances=2"
        loaded: list[Experiment] = []

        def change(text: str) -> None:
            loaded[:] = [self._changed(text)]

        def compare(text: str | None) -> None:
            if text is not None:
                self._compare(text, loaded[0])

        prompt = PromptScreen("Compare with", about, placeholder="policy=vllm-v1", doing="compares", on_enter=change)
        self.app.push_screen(prompt, compare)

    def compare_with(self, text: str) -> None:
        """Compare with changed values. Raises BlisError if there is no such experiment."""
        self._compare(text, self._changed(text))

    def _compare(self, text: str, other: Experiment) -> None:
        time_us = self.session.debugger.time_us if self.session.debugger.event else None
        by = self.loaded_by
        changed = by._replace(overrides=(*by.overrides, *read_changes(text)))
        shell(self.app).open_compare(
            self.session.experiment, other, (self.source, text), time_us=time_us, loaded_by=(by, changed)
        )

    def _changed(self, text: str) -> Experiment:
        """Return this experiment with changed values."""
        from blis_tui.spec.load import load  # noqa: PLC0415

        experiment, overrides = self.session.experiment, (*self._overrides, *read_changes(text))
        return load(self.source, overrides=overrides, seed=experiment.seed, plugins=experiment.plugins)

    @work(thread=True, exclusive=True, group="spec")
    def _explain_spec(self) -> None:
        """Resolve the document again, to find the origins of values."""
        lines = self.session.document_lines(self.source, self._overrides)
        self.call_later(self.show_spec, lines)

    # ---- palette ----

    def palette_verbs(self) -> Iterable[Verb]:
        """Return what can be typed with a text after it."""
        session = self.session
        return (
            Verb("at", "Go to an event, a time or a request.", self.go_to_text, parse_place, self._requests, "go.to"),
            Verb(
                "break",
                "Set a breakpoint at a kind of event or a condition.",
                self.put_breakpoint,
                session.read_breakpoint,
                session.suggestions,
                "break.edit",
            ),
            Verb(
                "watch",
                "Watch a metric or a condition.",
                self.put_watch,
                session.read_watch,
                partial(session.suggestions, watch=True),
                "break.watch",
            ),
            Verb(
                "print",
                "Print an expression at each hit of a breakpoint.",
                self.print_values,
                session.read_print,
                session.print_suggestions,
                "break.print",
            ),
            Verb(
                "filter", "Show only the events that match.", self.filter_events, self._read_filter, asks="look.filter"
            ),
            Verb("why", "Explain a request or an event.", self._why_text, self._about_text, self._requests, "ask.why"),
            Verb("keep", "Keep the present event under a name.", self.keep_moment, asks="moment.keep"),
            Verb("compare", "Compare with a changed value.", self.compare_with, read_changes, asks="compare.open"),
        )

    def palette_names(self, start: str) -> Iterator[tuple[str, str]]:
        """Yield requests, sessions, instances and moments whose names begin so."""
        tape, low = self.session.debugger.tape, start.lower()
        names = chain(
            ((f"instance_{index}", "instance") for index in range(self._instances())),
            ((name, "request") for name in tape.names()),
            ((tape.sessions.name(place), "session") for place in range(len(tape.sessions))),
            ((kept.name, "moment") for kept in self.session.moments),
        )
        return islice((entry for entry in names if entry[0].lower().startswith(low)), _OFFERED)

    def palette_named(self, text: str) -> PaletteEntry | None:
        """Return what goes to a request, a session, an instance, a moment, an event or a time."""
        tape = self.session.debugger.tape
        if tape.number(text) is not None:
            return PaletteEntry("Request", text, partial(self.picked, Picked(request=text, go=True)), "Show its life.")
        if tape.sessions.place(text) is not None:
            return PaletteEntry("Session", text, partial(self._show_session, text), "Show its calls.")
        instance = _INSTANCE.fullmatch(text)
        if instance is not None and int(instance[1]) < self._instances():
            go = partial(self.picked, Picked(instance=int(instance[1]), go=True))
            return PaletteEntry("Instance", instance[1], go, "Show its queue and its batch.")
        kept = next((moment for moment in self.session.moments if moment.name == text), None)
        if kept is not None:
            return PaletteEntry("Moment", text, partial(self.go_to_text, str(kept.event)), "Go to its event.")
        try:
            place = parse_place(text.replace("event_", "event "))
        except InputError:
            return None
        if place.request is not None:
            return None
        return PaletteEntry("Go to", text, partial(self.go_to_text, text.replace("event_", "event ")))

    def _instances(self) -> int:
        """Return the number of instances so far."""
        return len(self.session.debugger.simulation.snapshot(0).instances)

    def _show_session(self, name: str) -> None:
        self.activate("sessions")
        self.picked(Picked(session=name))

    def _requests(self, start: str) -> Iterable[Suggestion]:
        return completed(start, ((name, "request") for name in self.session.debugger.tape.names()))

    def _about_text(self, text: str) -> Subject:
        """Return the event or request of a text. Raises InputError if none is recorded under it."""
        place, tape = parse_place(text), self.session.debugger.tape
        if place.request is not None and tape.number(place.request) is not None:
            return request_ref(place.request)
        if place.event is not None and place.event <= len(tape):
            return event_ref(place.event)
        raise InputError(f"No event or request of the run so far is named {shorten(text, QUOTED)!r}.")

    def _why_text(self, text: str) -> None:
        self.why(self._about_text(text))

    def palette_entries(self, query: str) -> Iterable[PaletteEntry]:
        """Yield requests by name, the slowest first; the event of a number; breakpoints; moments; plug-ins' panes."""
        yield from self._places(query)
        for place, point in enumerate(self.session.breakpoints):
            word = "disable" if point.enabled else "enable"
            yield PaletteEntry("Breakpoint", f"{point.text} ({word})", partial(self._switch, place))
        for kept in self.session.moments:
            yield PaletteEntry("Moment", kept.name, partial(self.go_to_text, str(kept.event)), "Go to its event.")
        for pane in self.panes.values():
            if pane.brought is not None:
                yield PaletteEntry("Panes", pane.name, partial(self.activate, pane.id), f"{pane.about}.")

    def _places(self, query: str) -> Iterator[PaletteEntry]:
        debugger = self.session.debugger
        for name, _ in debugger.tape.slowest(debugger.event, _OFFERED):
            yield PaletteEntry("Why was it slow", name, partial(self.why, request_ref(name)))
        word = query.rpartition(" ")[2]
        if word.isdecimal():
            yield PaletteEntry("Event", word, partial(self.go_to_text, word), "Go to this event.")
        if word:
            names = (name for name in debugger.tape.names() if word in name)
            for _, name in zip(range(_OFFERED), names, strict=False):
                yield PaletteEntry(
                    "Request", name, partial(self.picked, Picked(request=name, go=True)), "Show its life."
                )

    def _switch(self, place: int) -> None:
        self.session.switch(place)
        self.remember()
        self.show_view()
