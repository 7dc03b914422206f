"""What moves a run on a screen of the debugger, and what a reader can ask about it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial, partialmethod
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.debugger.places import parse_instance, parse_place
from blis_tui.debugger.summary import WARNINGS, WORST
from blis_tui.tui.actions import shown_key
from blis_tui.tui.driver import BACK_TO_BREAKPOINT, GOING, TO_BREAKPOINT, TO_END, TO_LAST_CHANGE, TO_NEXT_CHANGE
from blis_tui.tui.panes.pane import KINDS, changes_of, pick
from blis_tui.tui.panes.router import decision_of
from blis_tui.tui.screens.stage import Stage
from blis_tui.tui.screens.windows import PromptScreen
from blis_tui.tui.shell import LoadedBy, shell

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.records import RoutingDecision
    from blis_tui.debugger.history import Move
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.results.conditions.breakpoints import Watch
    from blis_tui.tui.view import View

_UNIT_US: Final = 100_000
"""Simulated time of one move through time, in microseconds."""
_MORE: Final = 10
"""Number of short moves in a long one."""


class Moves(Stage):
    """A stage whose run is moved by keys."""

    # ---- step ----

    def action_step_event(self) -> None:
        """Go to the next event."""
        self.halt()
        debugger = self.session.debugger
        if debugger.at_end:
            self.say_end()
        else:
            debugger.step()
            self.moved()

    action_step_forward = action_step_event

    def action_step_phase(self) -> None:
        """Go to the next phase."""
        self.halt()
        if self.session.debugger.step_phase():
            self.moved()
        else:
            self.say_end()

    action_step_forward_phase = action_step_phase

    def action_step_batch(self) -> None:
        """Go to the end of the current step, or of the next one."""
        if self.session.debugger.at_end and not self.halt():
            self.say_end()
            return
        self.go(self.session.debugger.finish_batch(), "finishing the batch")

    def action_step_back(self) -> None:
        """Go to the previous event."""
        self._go_back(self.session.debugger.seek(self.session.debugger.event - 1))

    def action_step_back_phase(self) -> None:
        """Go to the previous phase."""
        self._go_back(self.session.debugger.back_phase())

    def action_step_back_batch(self) -> None:
        """Go to the end of the previous step."""
        self._go_back(self.session.debugger.back_batch())

    def _go_back(self, way: Move) -> None:
        if self.session.debugger.event:
            self.go(way, "going back")
        else:
            self.say_start()

    def say_start(self) -> None:
        """Notify that this is the start."""
        self.notify("This is the start: n goes to the first event.", markup=False)

    def say_end(self) -> None:
        """Notify that this is the end, and why."""
        failure = self.session.debugger.failure
        if failure is None:
            self.notify("This is the end of the run: [ goes back, home goes to the start.", markup=False)
        else:
            self.notify(str(failure), title="The simulation failed", severity="error", markup=False)

    # ---- run ----

    def action_run_toggle(self) -> None:
        """Play, or pause."""
        if self.halt():
            return
        if self.session.debugger.at_end:
            self.say_end()
        else:
            self.play()

    def action_run_to_breakpoint(self) -> None:
        """Run at full speed to the next breakpoint."""
        self._run_watched(self.session.debugger.run, TO_BREAKPOINT)

    def action_run_back_to_breakpoint(self) -> None:
        """Go back to the latest breakpoint."""
        self._run_watched(self.session.debugger.run_back, BACK_TO_BREAKPOINT)

    def _run_watched(self, way: Callable[[Watch], Move], label: str) -> None:
        watch = self.session.watch()
        if watch is None and self.session.breakpoints:
            key = shown_key(shell(self.app).keymap.keys["break.list"][0])
            self.notify(f"Every breakpoint is off: {key} lists them, space turns one on.", markup=False)
        elif watch is None:
            self.notify("There is no breakpoint: b sets one here, B writes one.", markup=False)
        else:
            self._jump(way(watch), label)

    def _jump(self, move: Move, label: str) -> None:
        """Go somewhere, and remember the position left."""
        self.session.leave()
        self.go(move, label)

    def action_run_to_cursor(self) -> None:
        """Go to the event at the cursor."""
        about, event = self.box_in_use.at_cursor(), self.session.selection.event
        if event is None:
            self.notify("Move the cursor of the event list first.", markup=False)
            return
        if about is not None and about.kind == "event":
            event = int(about.value)
        self._jump(self.session.debugger.seek(event), "to the cursor")

    def action_run_to_end(self) -> None:
        """Go to the last event."""
        # At the end, the ranking of slow requests is more useful than the last selection.
        self.session.clear_request()
        self._jump(self.session.debugger.to_end(), TO_END)

    def action_run_to_start(self) -> None:
        """Go to the start, before the first event."""
        self._jump(self.session.debugger.seek(0), "to the start")

    def action_run_speed_mode(self) -> None:
        """Switch between events per second and simulated time."""
        speed = self.session.driver.speed
        speed.by_time = not speed.by_time
        self._change_speed(0)

    def _change_speed(self, by: int) -> None:
        driver = self.session.driver
        driver.speed.change(by)
        driver.pace()
        self.notify(f"Speed: {driver.speed.text()}", timeout=1.5, markup=False)
        self.show_view()

    action_run_slower = partialmethod(_change_speed, -1)
    action_run_faster = partialmethod(_change_speed, 1)

    # ---- jumps ----

    def action_go_to(self) -> None:
        """Ask for a place to go to."""
        about = "An event (1234), a time (1.5s, 200ms, 300us), a request by name (request_12), start or end."
        prompt = PromptScreen("Go to", about, placeholder="1234", check=parse_place, doing="go")
        self.app.push_screen(prompt, self.go_to_text)

    def go_to_text(self, text: str | None) -> None:
        """Go to a place as the user wrote it; None = stay."""
        if text is None:
            return
        place = parse_place(text)
        if place.request is not None:
            self.session.select(request=place.request)
        self._jump(place.move(self.session.debugger), GOING)

    def _go_time(self, by_us: int) -> None:
        debugger = self.session.debugger
        if by_us > 0 and debugger.at_end:
            self.say_end()
            return
        if by_us < 0 and not debugger.event:
            self.say_start()
            return
        self.go(debugger.seek_time(max(0, debugger.time_us + by_us)), "through time")

    action_go_time_back = partialmethod(_go_time, -_UNIT_US)
    action_go_time_forward = partialmethod(_go_time, _UNIT_US)
    action_go_time_back_more = partialmethod(_go_time, -_UNIT_US * _MORE)
    action_go_time_forward_more = partialmethod(_go_time, _UNIT_US * _MORE)

    def _go_to_change(self, *, back: bool) -> None:
        text = self.box_in_use.changes() or changes_of(self._view(), self.at_cursor())
        self._jump(self.session.to_change(text, back=back), TO_LAST_CHANGE if back else TO_NEXT_CHANGE)

    action_go_last_change = partialmethod(_go_to_change, back=True)
    action_go_next_change = partialmethod(_go_to_change, back=False)

    def _go_metric(self, path: str) -> None:
        summary = self.session.summary
        if summary is None:
            self.notify("The whole run is not known yet.", markup=False)
        elif path == WORST and summary.worst is None:
            self.notify("No request of this run got a token.", markup=False)
        elif path != WORST and not summary.warnings:
            self.notify("This run has no warnings.", markup=False)
        else:
            self.session.select(metric=path)
            self._jump(self.session.to_metric(path), GOING)

    action_go_worst = partialmethod(_go_metric, WORST)
    action_go_warning = partialmethod(_go_metric, f"{WARNINGS}.0")

    def action_go_back_in_history(self) -> None:
        """Go back to the position before the last jump."""
        event = self.session.previous()
        if event is None:
            self.notify("There is no earlier place: jumps are remembered, steps are not.", markup=False)
        else:
            self.go(self.session.debugger.seek(event), "going back")


class Asking(Moves):
    """A stage whose reader can ask questions."""

    @property
    @abstractmethod
    def loaded_by(self) -> LoadedBy:
        """Return what its experiment was loaded from."""

    # ---- why ----

    def action_ask_why(self) -> None:
        """Explain what the cursor is on; of an instance, the latest event there; of a document's line, its key."""
        path = self.box_in_use.copied(path=True) if self.arrangement.active == "spec" else ""
        key = self.session.explain_key(path) if path else None
        if key is not None:
            from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415  (only needed for questions)

            self.hold()
            waits = self.session.driver.busy
            self.app.push_screen(WhyScreen(None, key, run_waits=waits), lambda _reference: self.resume())
            return
        subject = self.at_cursor()
        about = KINDS[subject.kind].explains(self._view(), subject.value)
        if about is None:
            self.notify(f"Nothing has happened on {subject.text} yet.", markup=False)
        else:
            self.why(about)

    def why(self, about: Subject) -> None:
        """Explain an event, or what happened to a request; a run in progress waits meanwhile."""
        from blis_tui.debugger.why.explain import explain  # noqa: PLC0415  (only needed for questions)
        from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415

        self.hold()
        explanation = explain(self.session.debugger, about)
        if explanation is not None:
            screen = WhyScreen(self.session.debugger, explanation, run_waits=self.session.driver.busy)
            self.app.push_screen(screen, self._follow)

    def _follow(self, reference: Subject | None) -> None:
        """Go to a reference in an explanation; a waiting run goes on, unless the reference leads elsewhere."""
        self.resume()
        message = None if reference is None else pick(self._view(), reference, go=True)
        if message is not None:
            self.picked(message)

    # ---- what if ----

    def action_ask_whatif(self) -> None:
        """Ask what another instance would change: the candidate at the cursor, or one that the user names."""
        self.halt()
        decision = decision_of(self._view_at_cursor())
        if decision is None:
            self.notify("No request has been routed yet.", markup=False)
        elif self.session.debugger.routes:
            self.notify("A decision of this run has already been changed: ask in the original run.", markup=False)
        elif self.arrangement.active == "router" and self._points_at_another(decision):
            self._what_if(decision, str(self.session.selection.instance))
        else:
            self._ask_which(decision)

    def _view_at_cursor(self) -> View:
        """Return the view as if what the cursor is on were selected."""
        view, subject = self.session.view(), self.at_cursor()
        about = None if subject.kind == "instance" else KINDS[subject.kind].explains(view, subject.value)
        if about is None:
            return view
        if about.kind == "request":
            return replace(view, selection=replace(view.selection, event=None, request=about.value))
        return replace(view, selection=replace(view.selection, event=int(about.value)))

    def _ask_which(self, decision: RoutingDecision) -> None:
        """Ask for the instance to which a request should go."""
        from blis_tui.runs.reroute import require_instance  # noqa: PLC0415  (only needed for questions)

        count = len(self.session.debugger.moment().state.instances)

        def check(text: str) -> None:
            instance = parse_instance(text)
            require_instance(instance, count)
            if instance == decision.instance:
                raise InputError(f"{decision.request_id} went there already: name another one.")

        about = f"{decision.request_id} went to instance {decision.instance}."
        about += f" Which one should it go to instead, 0 to {count - 1}?"
        other = next((each.instance for each in decision.top if each.instance != decision.instance), 0)
        prompt = PromptScreen("What if", about, placeholder=str(other), check=check, doing="replays the run")
        self.app.push_screen(prompt, partial(self._what_if, decision))

    def _points_at_another(self, decision: RoutingDecision) -> bool:
        chosen = self.session.selection.instance
        return chosen != decision.instance and any(each.instance == chosen for each in decision.top)

    def _what_if(self, decision: RoutingDecision, instance: str | None) -> None:
        if instance is not None:
            from blis_tui.tui.screens.whatif import WhatIfScreen  # noqa: PLC0415  (only needed for questions)

            self.app.push_screen(
                WhatIfScreen(self.session.experiment, self.loaded_by, decision, parse_instance(instance))
            )
