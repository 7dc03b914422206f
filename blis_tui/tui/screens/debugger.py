"""The debugger's screen: copies, its experiment and others, and what can be typed."""

from __future__ import annotations

import re
from functools import partial, partialmethod
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.debugger.places import parse_place, place_of_request
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.panes.pane import KINDS, copied
from blis_tui.tui.screens.export import ExportScreen
from blis_tui.tui.screens.looks import Looks
from blis_tui.tui.screens.windows import PromptScreen, read_changes
from blis_tui.tui.shell import QUOTED, PaletteEntry, Verb, completed, shell
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.suggestions import Suggestion

_INSTANCE: Final = re.compile(r"(?:instance[_ ]?|i)([0-9]{1,9})")
_OFFERED: Final = 40
"""Maximum number of entries of one kind in the command palette."""


class DebuggerScreen(Looks):
    """A run to step through, play, go back in and ask questions about."""

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
