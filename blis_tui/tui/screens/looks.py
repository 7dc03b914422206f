"""What a reader looks at: rankings, filters, and the panes that are shown."""

from __future__ import annotations

from functools import partialmethod
from typing import TYPE_CHECKING, Final

from textual import on

from blis_tui.tui.actions import shown_key
from blis_tui.tui.bars import TabBar
from blis_tui.tui.boxes import Box
from blis_tui.tui.drawing.event_filter import parse_filter
from blis_tui.tui.panes import PANES
from blis_tui.tui.panes.events import EventList
from blis_tui.tui.panes.request import Marked, MoreRanked, mark_at
from blis_tui.tui.panes.timeline import Timeline
from blis_tui.tui.screens.moments import Moments
from blis_tui.tui.screens.stage import SIZES
from blis_tui.tui.screens.windows import JumpScreen, PromptScreen
from blis_tui.tui.shell import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.events import Key

    from blis_tui.debugger.event_store import EventRow
    from blis_tui.tui.panes import PaneInfo

_TIMELINE: Final = "t"
"""Letter of the timeline in jump mode; no pane has it."""
_NEEDED: Final = {action: info.id for info in PANES for action in info.pane.actions}
"""Actions that need a pane which not all experiments have."""


class Looks(Moments):
    """A stage whose reader chooses what is shown."""

    _filter = ""
    _absent: dict[str, PaneInfo] | None = None

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

    @on(MoreRanked)
    def _more_ranked(self) -> None:
        self.session.rank_more()
        self.show_view()

    @on(Marked)
    def _marked(self, message: Marked) -> None:
        self.session.mark(message.request, switches=message.switches)
        self.show_view()

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

    action_pane_show = Moments.activate
    action_break_list = partialmethod(Moments.activate, "breakpoints")
    action_look_diff = partialmethod(Moments.activate, "changes")

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
