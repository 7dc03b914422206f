"""Moments: events that a reader keeps, and the report of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on, work

from blis_tui._version import ENGINE, __version__
from blis_tui.base.errors import InputError
from blis_tui.base.units import count_text, plural
from blis_tui.debugger.moments import Shown, change_of, report
from blis_tui.tui.driver import TICK_S
from blis_tui.tui.panes.events import full_text
from blis_tui.tui.panes.moments import MomentWanted
from blis_tui.tui.screens.breakpoints import Breakpoints
from blis_tui.tui.screens.export import new_report, picture_name, write_report, zipped
from blis_tui.tui.screens.windows import ConfirmScreen, MomentScreen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.debugger.moments import Moment

_REPORT: Final = "moments"
"""The group of the worker that draws the report of moments."""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class Moments(Breakpoints):
    """A stage whose reader can keep events, and write a report of them."""

    # ---- keep ----

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

    # ---- report ----

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
