"""The session of a run: restored when its screen opens, and saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from textual import work
from textual.worker import get_current_worker

from blis_tui.base.errors import BlisError
from blis_tui.base.units import count_text
from blis_tui.debugger.moments import change_of, with_others
from blis_tui.debugger.places import parse_place
from blis_tui.debugger.saved_sessions import Session
from blis_tui.debugger.saved_sessions import load as load_session
from blis_tui.debugger.saved_sessions import save as save_session
from blis_tui.debugger.summary import summarize, summary_of
from blis_tui.tui.driver import GOING, TO_END
from blis_tui.tui.screens.moves import Asking
from blis_tui.tui.screens.stage import SIZES, Arrangement
from blis_tui.tui.shell import LoadedBy, shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.history import Stop
    from blis_tui.debugger.moments import Moment
    from blis_tui.debugger.summary import Summary
    from blis_tui.model import Experiment


class Remembering(Asking):
    """A stage that continues the last session of its experiment, and saves this one.

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
        self._lost: list[str] = []
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

    def command(self, place: str) -> str:
        """Return the shell command that opens the debugger at a place; empty if decisions have been overridden."""
        if self.session.debugger.routes:
            return ""
        by = LoadedBy(self._called) if self._called else self.loaded_by
        return by.command(place, (origin.asked for origin in self.session.experiment.plugins.origins))

    @work(thread=True, exclusive=True, group="spec")
    def _explain_spec(self) -> None:
        """Resolve the document again, to find the origins of values."""
        lines = self.session.document_lines(self.source, self._overrides)
        self.call_later(self.show_spec, lines)
