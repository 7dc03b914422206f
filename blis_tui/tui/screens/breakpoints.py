"""Breakpoints, watches and printed values: set, edited and removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on

from blis_tui.debugger.traces import AT, parse_wanted
from blis_tui.tui.panes.breakpoints import Wanted
from blis_tui.tui.panes.pane import KINDS
from blis_tui.tui.panes.values import Arranged
from blis_tui.tui.screens.remembering import Remembering
from blis_tui.tui.screens.windows import PromptScreen

if TYPE_CHECKING:
    from blis_tui.debugger.traces import Printout


class Breakpoints(Remembering):
    """A stage whose reader can set breakpoints, watch metrics and print values."""

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
            suggested=True,
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
