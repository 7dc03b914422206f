"""The state of the debugger screen without widgets: the run, the selection, breakpoints, visited positions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.errors import BlisError
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import Stop
from blis_tui.debugger.moments import Moment, change_of, time_of, what_is, with_moment, without_moment
from blis_tui.debugger.saved_sessions import Session
from blis_tui.debugger.summary import setting
from blis_tui.debugger.traces import AT, Printout, Tracer, parse_print, printed
from blis_tui.debugger.why.explanation import Explanation, ExplanationRow, Part, Subject
from blis_tui.debugger.why.ranked_group import RankedGroup, Wanted
from blis_tui.debugger.why.ranking import ORDERS
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.results.conditions.language import parse_expression
from blis_tui.results.conditions.suggestions import suggestions
from blis_tui.results.record_lines import record_line
from blis_tui.spec.authoring.provenance import Composed, compose
from blis_tui.spec.shipped import data_root
from blis_tui.tui.driver import Driver
from blis_tui.tui.panes.events import event_text
from blis_tui.tui.panes.fleet import MEASURES
from blis_tui.tui.panes.request import RANKED, here_in, marked_in
from blis_tui.tui.view import Selection, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.base.source import Json
    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.history import Move
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.debugger.summary import Summary
    from blis_tui.debugger.traces import Print
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.breakpoints import Breakpoint, Hit
    from blis_tui.results.conditions.language import Expression
    from blis_tui.results.conditions.suggestions import Suggestion

_VISITED: Final = 100
_NAME: Final = 60
"""Maximum length of the name that a moment has by itself."""
_ORIGINS_UNKNOWN: Final = "# What runs here, with everything it refers to; no file has exactly this content (any more)."


class DebugSession:
    """A run and what its reader has set up.

    Attributes:
        debugger: the run and the position in it.
        driver: moves the run.
        selection: what the reader has selected.
        breakpoints: where runs stop.
        moments: the events that the reader has kept.
        document: the resolved experiment, as soon as it is known.
        summary: the whole run, as soon as it is known.
        printout: an expression at each hit of a breakpoint, if the reader asked for one.
        visited: positions left by a jump, the latest last.
        begins_to_read: called when :meth:`trace` has got something to do because a ranking is looked at.
    """

    def __init__(self, experiment: Experiment, *, check: str = "end", routes: RouteOverrides | None = None) -> None:
        self.debugger = Debugger(experiment, check=check, routes=routes)
        self.driver = Driver(self.debugger)
        self.selection = Selection()
        self.breakpoints: tuple[Breakpoint, ...] = ()
        self.moments: tuple[Moment, ...] = ()
        self._watches: tuple[str, ...] = ()
        self._tracer: Tracer | None = None
        self.printout: Printout | None = None
        self.visited: list[int] = []
        self.document: tuple[str, ...] = ()
        self.summary: Summary | None = None
        self._ranking = RankedGroup(self.debugger.tape)
        self.begins_to_read: Callable[[], None] = lambda: None

    @property
    def experiment(self) -> Experiment:
        """The simulated experiment."""
        return self.debugger.experiment

    # ---- views ----

    def view(self, *, briefly: bool = False) -> View:
        """Return everything that the panes show; while running, or ``briefly``, without the present event's records.

        Raises:
            DivergenceError: a replay did not reproduce the present state.
        """
        debugger = self.debugger
        moment = debugger.quick_moment() if briefly or self.driver.busy else debugger.moment()
        view = View(
            moment=moment,
            tape=debugger.tape,
            experiment=debugger.experiment,
            selection=self.selection,
            playing=self.driver.busy,
            checkpoints=debugger.history.events,
            breakpoints=self.breakpoints,
            moments=self.moments,
            changed=partial(change_of, debugger=debugger),
            records_of=debugger.records_of,
            checkup=debugger.checkup,
            latencies=debugger.latencies,
            kv_sharing=debugger.kv_sharing,
            ranking=lambda: self.ranking(view),
            watches=tuple((text, self.value(text, moment)) for text in self.watches),
            traces=() if self._tracer is None else self._tracer.traces,
            printout=self.printout,
            document=self.document,
            summary=self.summary,
        )
        return view

    def ranking(self, view: View) -> RankedGroup:
        """Return the chosen ranking as of a view, as far as it is read."""
        selection = view.selection
        self._ranking.show(Wanted(here_in(view), selection.order, selection.ranked, marked_in(view)))
        if self._ranking.reading:
            self.begins_to_read()
        return self._ranking

    def ranking_grew(self) -> bool:
        """Return whether the ranking has got further since the last call."""
        return self._ranking.look()

    def select(
        self,
        *,
        event: int | None = None,
        request: str | None = None,
        instance: int | None = None,
        session: str | None = None,
        metric: str | None = None,
    ) -> None:
        """Select something; unnamed parts of the selection stay."""
        selection = self.selection
        if event is not None:
            selection = replace(selection, event=event)
        if request is not None:
            selection = replace(selection, request=request, ranking=False)
        if instance is not None:
            selection = replace(selection, instance=None if instance < 0 else instance)
        if session is not None:
            selection = replace(selection, session=session)
        if metric is not None:
            selection = replace(selection, metric=metric)
        self.selection = selection

    def rank(self) -> None:
        """Show the ranking of requests instead of one; if it is shown already, rank by the next figure."""
        selection = self.selection
        if selection.ranking and selection.request is None:
            orders = tuple(ORDERS)
            selection = replace(selection, order=orders[(orders.index(selection.order) + 1) % len(orders)])
        self.selection = replace(selection, request=None, ranking=True)

    def rank_more(self) -> None:
        """Rank more requests; after the most, few again."""
        selection = self.selection
        more = next((count for count in RANKED if count > selection.ranked), RANKED[0])
        self.selection = replace(selection, ranked=more)

    def mark(self, request: str | None, *, switches: bool = False) -> None:
        """Mark a request of the ranking, or with ``switches`` remove its mark if it has one; None = remove all."""
        marked = self.selection.marked
        if request is None:
            marked = ()
        elif request not in marked:
            marked = (*marked, request)
        elif switches:
            marked = tuple(name for name in marked if name != request)
        self.selection = replace(self.selection, marked=marked)

    def measure(self) -> None:
        """Show the next measure on the fleet map."""
        measures = [measure for measure in MEASURES if measure != "transfers" or self.experiment.cluster.disaggregation]
        at = (measures.index(self.selection.measure) + 1) % len(measures)
        self.selection = replace(self.selection, measure=measures[at])

    def clear_request(self) -> None:
        """Clear the selected request."""
        self.selection = replace(self.selection, request=None)

    def clear_session(self) -> None:
        """Show all sessions again."""
        self.selection = replace(self.selection, session=None)

    def clear_unknown_request(self) -> None:
        """Clear the selected request if it has never arrived."""
        if self.selection.request is not None and self.debugger.tape.number(self.selection.request) is None:
            self.clear_request()

    def moved(self) -> None:
        """Select the present event after a change of position."""
        self.selection = replace(self.selection, event=None)

    # ---- breakpoints ----

    def watch(self) -> Watch | None:
        """Return the enabled breakpoints, ready for a run; None if there are none."""
        enabled = tuple(point for point in self.breakpoints if point.enabled)
        return Watch(enabled) if enabled else None

    def toggle(self, text: str) -> bool:
        """Set a breakpoint, or remove the one with that text; return whether it is set now."""
        wanted = self.read_breakpoint(text)
        left = tuple(point for point in self.breakpoints if point.text != wanted.text)
        there = len(left) == len(self.breakpoints)
        self.breakpoints = (*left, wanted) if there else left
        return there

    def put(self, text: str, place: int | None = None, *, enabled: bool = True) -> None:
        """Add a breakpoint, or replace the one at a place; duplicates are ignored.

        Raises BlisError if the text is invalid.
        """
        wanted = replace(self.read_breakpoint(text), enabled=enabled)
        listed = list(self.breakpoints)
        if place is not None:
            listed[place] = wanted
        elif all(point.text != wanted.text for point in listed):
            listed.append(wanted)
        self.breakpoints = tuple({point.text: point for point in listed}.values())

    def switch(self, place: int) -> None:
        """Enable or disable a breakpoint."""
        listed = list(self.breakpoints)
        listed[place] = replace(listed[place], enabled=not listed[place].enabled)
        self.breakpoints = tuple(listed)

    def remove(self, place: int) -> None:
        """Remove a breakpoint."""
        self.breakpoints = (*self.breakpoints[:place], *self.breakpoints[place + 1 :])

    def read_breakpoint(self, text: str) -> Breakpoint:
        """Parse a breakpoint. Raises ConditionError if it is invalid."""
        return parse_breakpoint(text, self.experiment)

    def complete_breakpoint(self, text: str) -> Suggestion | None:
        """Return a completion for the text of a breakpoint; None = no known one."""
        return next(iter(self.suggestions(text)), None)

    def suggestions(self, text: str, *, watch: bool = False) -> Sequence[Suggestion]:
        """Return completions for the text of a breakpoint, or of a watch."""
        suggested = suggestions(text, self.experiment)
        return [suggestion for suggestion in suggested if self._is_watch(suggestion.text)] if watch else suggested

    def _is_watch(self, text: str) -> bool:
        try:
            self.read_watch(text)
        except BlisError:
            return False
        return True

    def print_suggestions(self, text: str) -> Sequence[Suggestion]:
        """Return completions for what to print, or for where."""
        figure, at, where = text.partition(AT)
        if not at:
            return self.suggestions(text, watch=True)
        return [replace(suggestion, text=f"{figure}{at}{suggestion.text}") for suggestion in self.suggestions(where)]

    def disable_one_shot(self, hits: tuple[Hit, ...]) -> None:
        """Disable breakpoints that were to stop only once."""
        done = [hit.breakpoint for hit in hits if hit.breakpoint.once]
        self.breakpoints = tuple(
            replace(point, enabled=False) if point in done else point for point in self.breakpoints
        )

    # ---- moments ----

    def moment_at(self, event: int) -> Moment | None:
        """Return the moment of an event, if it is kept."""
        return next((moment for moment in self.moments if moment.event == event), None)

    def name_for(self, event: int) -> str:
        """Return what a recorded event did in a few words."""
        text = event_text(self.debugger.tape, event, short=True)
        return text if len(text) <= _NAME else f"{text[: _NAME - 1].rstrip()}…"

    def keep(self, name: str, note: str) -> None:
        """Keep the present event, or give its moment another name and note."""
        tape, event = self.debugger.tape, self.debugger.event
        self.moments = with_moment(
            self.moments,
            Moment(
                event=event,
                time_us=time_of(tape, event),
                what=what_is(tape, event),
                sentence=event_text(tape, event),
                sha256=self.experiment.sha256,
                name=name or self.name_for(event),
                note=note,
            ),
        )

    def edit_moment(self, moment: Moment, name: str, note: str) -> None:
        """Give a moment another name and note, wherever the reader is."""
        self.moments = with_moment(self.moments, replace(moment, name=name or moment.name, note=note))

    def forget(self, event: int) -> None:
        """Remove the moment of an event."""
        self.moments = without_moment(self.moments, event)

    # ---- watches ----

    @property
    def watches(self) -> tuple[str, ...]:
        """Figures shown all the time, as written."""
        return self._watches

    @watches.setter
    def watches(self, texts: tuple[str, ...]) -> None:
        self._watches = texts
        figures = []
        for text in texts:
            try:
                figures.append(self.read_watch(text))
            except BlisError:  # its line says why
                continue
        self._tracer = Tracer(self.debugger.beginning(), figures) if figures else None

    @property
    def trails(self) -> bool:
        """Whether values of watches or the ranking are not known yet."""
        traces = self._tracer is not None and self._tracer.until < self.debugger.frontier
        return traces or self._ranking.reading

    def trace(self) -> Iterator[object]:
        """Find the values of watches after all recorded events, and read what the ranking needs."""
        if self._tracer is not None:
            yield from self._tracer.follow(self.debugger.frontier)
        yield from self._ranking.follow()

    def read_watch(self, text: str) -> Expression:
        """Parse a watch. Raises ConditionError if it is invalid."""
        return parse_expression(text, instances=self.experiment.instance_numbers)

    def value(self, text: str, moment: DebuggerState) -> str:
        """Return the value of a watch at the present event and phase, of which ``moment`` has the records."""
        try:
            watch = self.read_watch(text)
        except BlisError as error:
            return error.message
        return self.debugger.ask(lambda simulation: watch.shown(simulation, moment.applied_records))

    # ---- printed values ----

    def read_print(self, text: str) -> Print:
        """Parse what to print, and where. Raises ConditionError if it is invalid."""
        return parse_print(text, self.experiment)

    def print_values(self, wish: Print) -> Move:
        """Find what an expression is at each hit of a breakpoint in the whole run, without moving."""
        debugger = self.debugger
        self.printout = None
        until = debugger.frontier if debugger.failure is not None else None
        rows = yield from printed(debugger.beginning(), wish, until)
        self.printout = Printout(wish=wish, rows=rows)
        return Stop("there")

    # ---- the whole run ----

    def document_lines(self, source: str, overrides: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the resolved document with the origins of its values, as far as they are known."""
        composed = self._composed(source, overrides)
        if composed is None:
            document = cast("Json", dict(self.experiment.document))
            _, *lines = Composed(document, {}, self.experiment.sha256).to_yaml().splitlines()
            return (_ORIGINS_UNKNOWN, *lines)
        # The location of the shipped files is irrelevant to the reader.
        return tuple(composed.to_yaml().replace(f"{data_root()}/", "").splitlines())

    def _composed(self, source: str, overrides: Sequence[str]) -> Composed | None:
        """Return the document from its current files; None if it differs from the running one."""
        experiment = self.experiment
        for seed in (None, experiment.seed):
            try:
                composed = compose(source, overrides=overrides, seed=seed, plugins=self.experiment.plugins)
            except BlisError:
                return None
            if composed.spec_sha256 == experiment.sha256:
                return composed
        return None

    def to_metric(self, path: str) -> Move:
        """Go to the event that set a figure of the summary; what is not recorded yet is recorded first."""
        if self.summary is None:
            return (yield from self.debugger.to_end())
        if not self.debugger.complete:
            yield from self.debugger.to_end()
        target = yield from setting(self.debugger, self.summary, path)
        self.select(request=target.request)
        return (yield from self.debugger.seek(target.event))

    def to_change(self, text: str, *, back: bool) -> Move:
        """Go to the next hit of a breakpoint, or back to the last one; without one, stay."""
        debugger, here = self.debugger, self.debugger.event
        watch = Watch((self.read_breakpoint(text),))
        stop = yield from (debugger.run_back(watch) if back else debugger.run(watch))
        if stop.reason == "breakpoint":
            return stop
        yield from debugger.seek(here)
        return Stop("unchanged")

    def explain_key(self, path: str) -> Explanation | None:
        """Return what a key of the document means; None if it is none, such as a name of the user's own."""
        from blis_tui.spec.authoring.explain import look_up  # noqa: PLC0415  (only needed for questions)

        try:
            _, keys = look_up(path, self.experiment.plugins)
        except BlisError:
            return None
        key = keys[0]
        facts = {
            "type": key.type,
            "unit": key.unit,
            "default": json.dumps(key.default, ensure_ascii=False) if key.has_default else "",
            "range": key.range,
        }
        known = tuple(ExplanationRow(name, "", note=(text,)) for name, text in facts.items() if text)
        parts = [Part("What it takes", rows=known)]
        if key.choices:
            parts.append(Part("Values", tuple((f"{choice.value}: {choice.description}",) for choice in key.choices)))
        if key.children:
            below = key.children.values()
            parts.append(
                Part("Keys below", tuple((f"{inner_key.name}: {inner_key.description}",) for inner_key in below))
            )
        return Explanation(Subject("key", path), path, key.description, tuple(parts))

    # ---- copies ----

    def as_yaml(self, about: Subject) -> str:
        """Return what is known of an event, or of a request up to the present position, as YAML."""
        from yaml import safe_dump  # noqa: PLC0415  (only needed to copy something)

        tape = self.debugger.tape
        if about.kind == "event":
            event = int(about.value)
            known: dict[str, object] = {"event": event, "time_us": time_of(tape, event), "what": what_is(tape, event)}
            known["did"] = event_text(tape, event)
            known["records"] = [json.loads(record_line(record)) for record in self.debugger.records_of(event)]
        else:
            live = self.debugger.request(about.value)
            known = {"request": about.value} if live is None else asdict(live)
            life = tape.life(about.value, self.debugger.event, self.debugger.settled)
            known["life"] = [{"event": entry.event, "time_us": entry.time_us, "what": entry.what} for entry in life]
        return safe_dump(known, sort_keys=False, allow_unicode=True, width=10_000)

    # ---- visited positions ----

    def leave(self) -> None:
        """Remember the present position before a jump."""
        event = self.debugger.event
        if not self.visited or self.visited[-1] != event:
            self.visited.append(event)
            del self.visited[:-_VISITED]

    def previous(self) -> int | None:
        """Return and forget the position left last; None if there is none."""
        while self.visited:
            event = self.visited.pop()
            if event != self.debugger.event:
                return event
        return None

    # ---- persistence ----

    def session(self, source: str, layout: dict[str, str]) -> Session:
        """Return what to remember of the session."""
        return Session(
            source=source,
            position_event=self.debugger.event,
            breakpoints=tuple((point.text, point.enabled) for point in self.breakpoints),
            layout={**layout, "speed": self.driver.speed.state(), "watches": "\n".join(self.watches)},
            moments=self.moments,
        )
