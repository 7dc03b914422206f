"""Time travel through one simulation: forward and backward by events, phases and steps, or directly to any place.

To go back, the debugger restores an earlier checkpoint and replays from there. It verifies that the replay reproduces
the same states. Long-running movements are *moves*: generators that advance a little at a time, so that the caller sets
the pace, can show progress, and can stop at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.errors import InvariantError, SimulationError
from blis_tui.debugger.event_store import EventStore
from blis_tui.debugger.history import (
    MAX_CHECKPOINT_BYTES,
    RUN_UP,
    SLICE,
    SPACING,
    History,
    Progress,
    Replay,
    Stop,
    observed,
    watched,
)
from blis_tui.debugger.recorder import Recorder
from blis_tui.debugger.state import LAST_PHASE, WINDOW, DebuggerState, settles
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.cluster.snapshot import KvSharing, PendingEvent, RequestSnapshot, Snapshot
    from blis_tui.debugger.event_store import EventRow
    from blis_tui.debugger.history import EventDetails, Move
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.breakpoints import Watch
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Latencies, Report

_VERIFIED: Final = 10_000
"""Verify the state at every visit only while at most this many requests are live; digests of more take too long."""

_T = TypeVar("_T")


class Debugger:
    """One simulation and the reader's position in it.

    Args:
        experiment: what to simulate.
        check: when to verify the invariants, as for ``Simulation``.
        cap_bytes: memory that checkpoints may take.
        routes: routing decisions to override, as for ``Simulation``.

    Attributes:
        routes: overridden routing decisions.
        tape: what every recorded event did.
        history: the checkpoints.
        phase: for a step, the phase that the reader has reached (an index of ``PHASES``); None at other events.
        failure: the error that ended the simulation at the frontier, if any.
        complete: whether the whole run is recorded, that is, its end has been reached at least once.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        check: str = "end",
        cap_bytes: int = MAX_CHECKPOINT_BYTES,
        routes: RouteOverrides | None = None,
    ) -> None:
        self.experiment = experiment
        self.routes = dict(routes or {})
        self._simulation = Simulation(experiment, check=check, routes=routes)
        clients = experiment.workload.clients
        by_clock = [client.id for client in clients if client.session is not None and client.session.pacing == "clock"]
        self.tape = EventStore([instance.profile for instance in self._simulation.snapshot(0).instances], by_clock)
        self.history = History(self._simulation, cap_bytes=cap_bytes)
        self.phase: int | None = None
        self.failure: SimulationError | None = None
        self._replay = Replay(self._simulation.twin(self.history.before(0).mark), self.history, self.tape)
        self._recorder = Recorder(self.tape)
        self._mute = self._recorder.listen(self._simulation)
        self._recording = True
        self._moment: DebuggerState | None = None
        self.complete = self._simulation.done

    # ---- position ----

    @property
    def event(self) -> int:
        """Number of events up to the current position."""
        return self._simulation.events

    @property
    def settled(self) -> int:
        """The last event whose results are all in effect: the current one, or in the middle of a step the previous."""
        return self.event if settles(self.phase) else self.event - 1

    @property
    def time_us(self) -> int:
        """Simulated time at the current position, in microseconds."""
        return self._simulation.now_us

    @property
    def frontier(self) -> int:
        """Number of recorded events."""
        return len(self.tape)

    @property
    def at_end(self) -> bool:
        """Whether no event follows the current position."""
        return self.event == self.frontier and (self.failure is not None or self._simulation.done)

    @property
    def simulation(self) -> Simulation:
        """The simulation after the current event. Callers may read it, but must move it only through the debugger."""
        return self._simulation

    def ask(self, question: Callable[[Simulation], _T]) -> _T:
        """Return the answer to a question about the simulation at the current position, even in the middle of a step.

        The question must not advance the simulation.
        """
        if settles(self.phase):
            return question(self._simulation)
        twin = self._replay.before(self.event)
        answers: list[_T] = []
        stop = twin.pause_in_steps(lambda: answers.append(question(twin)))
        twin.run(max_events=1)
        stop()
        return answers[0]

    def digest(self) -> str:
        """Return the digest of the state after the current event."""
        return self._simulation.digest()

    def report(self) -> Report:
        """Return the full report as of the current event; tokens and completions count from the time they occur."""
        return self._simulation.report(by_clock=True)

    def bug_report_facts(self) -> dict[str, str]:
        """Return the facts about this run that a bug report should contain."""
        experiment = self.experiment
        return {
            "experiment": experiment.name,
            "spec_sha256": experiment.sha256,
            "seed": str(experiment.seed),
            "event": str(self.event),
        }

    def checkup(self) -> Checkup:
        """Return the checks behind the report's warnings, as of the current position."""
        return self.ask(lambda simulation: simulation.checkup())

    def latencies(self) -> Latencies:
        """Return the latencies of the report, as of the current position."""
        return self.ask(lambda simulation: simulation.latencies())

    def upcoming(self) -> PendingEvent | None:
        """Return the next event, or None at the end."""
        return None if self.at_end else self._simulation.peek()

    def request(self, name: str) -> RequestSnapshot | None:
        """Return a live request at the current position; None if it has not arrived or has ended."""
        return self.ask(lambda simulation: simulation.request(name))

    def kv_sharing(self, name: str) -> KvSharing | None:
        """Return with whom a request that runs at the current position shares KV blocks; None if it does not run."""
        return self.ask(lambda simulation: simulation.kv_sharing(name))

    def quick_moment(self) -> DebuggerState:
        """Return the current position without the event's records, which a running display does not need."""
        return self._moment or self._frozen(None)

    def moment(self) -> DebuggerState:
        """Return the current position, with what the latest event did.

        Raises:
            DivergenceError: a replay did not reproduce the current state, which is a defect of the simulator.
        """
        if self._moment is None:
            present = self._simulation.arrived - self._simulation.ended
            digest = self.history.look(self._simulation) if present <= _VERIFIED else None
            self._moment = self._frozen(self._replay.of(self.event, digest) if self.event else None)
        return self._moment

    def records_of(self, event: int) -> tuple[Record, ...]:
        """Return the records of a recorded event, without moving."""
        if not 0 < event <= self.frontier:
            return ()
        if event == self.event:  # whoever asks for its records asks for its moment, too
            return self._replay.of(event).records
        return self._replay.records_of(event)

    def state_before(self, event: int) -> Snapshot:
        """Return the state just before a recorded event, without moving."""
        return self._replay.of(event).before

    def _frozen(self, done: EventDetails | None) -> DebuggerState:
        return DebuggerState(
            event=self.event,
            phase=self.phase,
            time_us=self.time_us,
            records=() if done is None else done.records,
            before=None if done is None else done.before,
            scheduled=None if done is None else done.scheduled,
            after=self._simulation.snapshot(WINDOW),
            frontier=self.frontier,
            at_end=self.at_end,
            complete=self.complete,
            failure="" if self.failure is None else str(self.failure),
        )

    # ---- single moves ----

    def step(self) -> bool:
        """Go forward one event; return False if no event follows."""
        if self.at_end:
            return False
        before = self.event
        if self._listen():
            done = observed(self._simulation, self.quick_moment().after, lambda: self._advance(1))
            if self.event > before:
                self._replay.remember(self.event, done)
        else:
            self._replay_one()
        return self.event > before

    def step_phase(self) -> bool:
        """Go forward one phase: within a step, or to the next event and, if that is a step, to its first phase."""
        if self.phase is not None and self.phase < LAST_PHASE:
            self._show_phase(self.phase + 1)
            return True
        if not self.step():
            return False
        if self.phase is not None:
            self._show_phase(0)
        return True

    def back_phase(self) -> Move:
        """Go back one phase: within a step, or to the end of the previous event."""
        if self.phase:
            self._show_phase(self.phase - 1)
            return Stop("there")
        return (yield from self.seek(self.event - 1))

    def _show_phase(self, phase: int) -> None:
        self.phase = phase
        self._moment = None

    def finish_batch(self) -> Move:
        """Go to the end of the current step, or of the next step of any instance."""
        if self.phase is not None and self.phase < LAST_PHASE:
            self._show_phase(LAST_PHASE)
            return Stop("there")
        known = self.tape.next_step(self.event)
        if known:
            return (yield from self.seek(known))
        yield from self._go_to_event(self.frontier)
        while not self.at_end:
            self.step()
            if self.phase is not None:
                return Stop("there")
            yield self._progress(None)
        return self._end()

    def back_batch(self) -> Move:
        """Go to the end of the previous step."""
        return (yield from self.seek(self.tape.next_step(self.event, back=True)))

    # ---- moves ----

    def seek(self, event: int) -> Move:
        """Go to an event, recorded or not; stop at the start or the end if it lies beyond."""
        event = max(event, 0)
        yield from self._go_to_event(event)
        return self._end() if self.event < event else Stop("there")

    def to_end(self) -> Move:
        """Go to the last event of the run."""
        yield from self._go_to_event(self.frontier)
        return (yield from self.run())

    def seek_time(self, time_us: int) -> Move:
        """Go to the last event at or before a time."""
        if self.tape.at_time(time_us) < self.frontier or self.complete:
            return (yield from self.seek(self.tape.at_time(time_us)))
        yield from self._go_to_event(self.frontier)
        while self._advance(SLICE, time_us):
            yield self._progress(None)
        return self._end() if self.at_end else Stop("there")

    def seek_request(self, name: str) -> Move:
        """Go to the arrival of a request."""
        if not self.tape.first_event_of(name):
            start = self.event
            yield from self._go_to_event(self.frontier)
            while not self.tape.first_event_of(name) and self._advance(SLICE):
                yield self._progress(None)
            if not self.tape.first_event_of(name):
                yield from self._go_to_event(start)
                return Stop("unknown")
        return (yield from self.seek(self.tape.first_event_of(name)))

    def seek_match(self, matches: Callable[[EventRow], bool], *, back: bool = False) -> Move:
        """Go to the next (or previous) event that matches; simulate further where the tape ends."""
        event: int | None = 0
        for event in self.tape.find(matches, self.event, back=back):
            if event is None:
                yield self._progress(None)
        if not event and not back:
            start = self.event
            yield from self._go_to_event(self.frontier)
            while self._advance(1):
                if matches(self.tape.row(self.event)):
                    event = self.event
                    break
                if not self.event % SLICE:
                    yield self._progress(None)
            if not event:
                yield from self._go_to_event(start)
        if not event:
            return Stop("unknown")
        return (yield from self.seek(event))

    def run(self, watch: Watch | None = None, *, until: int | None = None, until_us: int | None = None) -> Move:
        """Run forward to the next breakpoint, or to the end.

        Args:
            watch: the breakpoints; None = none.
            until: an event at which to stop in any case.
            until_us: the last microsecond to simulate.
        """
        if watch is None:
            return (yield from self._run_plainly(until, until_us))
        return (yield from self._run_watched(watch, until, until_us))

    def _run_plainly(self, until: int | None, until_us: int | None) -> Move:
        while until is None or self.event < until:
            count = SLICE if until is None else min(SLICE, until - self.event)
            if not self._advance(count, until_us):
                return self._end() if self.at_end else Stop("there")
            yield self._progress(until)
        return Stop("there")

    def _run_watched(self, watch: Watch, until: int | None, until_us: int | None) -> Move:
        simulation = self._simulation
        with watched(simulation, watch) as collected:
            while until is None or self.event < until:
                if not self._advance(1, until_us):
                    return self._end() if self.at_end else Stop("there")
                hits = watch.check(simulation, collected)
                collected.clear()
                if hits:
                    return Stop("breakpoint", hits)
                if not self.event % SLICE:
                    yield self._progress(until)
        return Stop("there")

    def run_back(self, watch: Watch) -> Move:
        """Go back to the latest earlier event at which a breakpoint stops, or to the start."""
        event, hits = yield from self._replay.last_hit(watch, self.event - 1)
        yield from self.seek(event)
        return Stop("breakpoint", hits) if event else Stop("start")

    def first_time(self, holds: Callable[[Simulation], bool]) -> Generator[Progress, None, int]:
        """Find the first recorded event after which something holds that then goes on to hold, without moving."""
        return (yield from self._replay.first_time(holds, self.frontier))

    def beginning(self) -> Simulation:
        """Return another simulation of the run, before its first event, for the caller alone."""
        return self._replay.beginning()

    # ---- implementation ----

    def _go_to_event(self, event: int) -> Generator[Progress, None, None]:
        """Go to an event, or to the end of the run if that comes first."""
        start = self.event
        if event == start:
            self._finish_move()
            return
        checkpoint = self.history.before(event)
        if event < start or checkpoint.event > start:
            self.history.return_to(self._simulation, event)
            self._finish_move()
        kept = event - RUN_UP if event < start else 0
        last = event - 1 if event <= self.frontier else event
        while self.event < event:
            if self.event == last:
                self._replay_one()
                return
            goal = kept if self.event < kept else last
            count = min(SLICE, goal - self.event)
            if self._advance(count) < count and self.at_end:
                return
            if self.event == kept:
                self._keep_if_due(spacing=0)
            if self.event < event:
                yield self._progress(event)

    def _replay_one(self) -> None:
        """Replay a recorded event where a move ends, and remember its details, as they are looked at next."""
        before = self._simulation.snapshot(WINDOW)
        done = observed(self._simulation, before, lambda: self._advance(1))
        if self.tape.agrees(done.records):  # otherwise whoever looks at it is told
            self._replay.remember(self.event, done)

    def _advance(self, count: int, until_us: int | None = None) -> int:
        """Run at most ``count`` events, either all recorded or all new; return how many."""
        simulation = self._simulation
        start = simulation.events
        if not self._listen():
            count = min(count, self.frontier - start)
        elif self.failure is not None:
            return 0
        try:
            simulation.run(until_us, max_events=count)
        except SimulationError as error:
            self._fail(error)
        self._finish_move()
        if simulation.events > start:
            self._keep_if_due()
        return simulation.events - start

    def _keep_if_due(self, spacing: int = SPACING) -> None:
        """Keep a checkpoint here if one is due."""
        work = self.tape.work(self.event)
        if self.history.is_due(self._simulation, work, spacing):
            self.history.keep(self._simulation, work=work)

    def _listen(self) -> bool:
        """Record the following events if they are new, otherwise stop recording; return whether they are new."""
        new = self.event >= self.frontier
        if new and not self._recording:
            self._mute = self._recorder.listen(self._simulation)
        elif self._recording and not new:
            self._mute()
        self._recording = new
        return new

    def _fail(self, error: SimulationError) -> None:
        """Handle a simulation that cannot go on: return to the last event that was complete."""
        last = error.event - 1 if isinstance(error, InvariantError) else self._simulation.events
        self.failure = error
        self._mute()
        self._recording = False
        self.tape.cut(last)
        self.history.return_to(self._simulation, last)
        self._simulation.run(max_events=last - self._simulation.events)

    def _finish_move(self) -> None:
        """Finish a move at an event, with all its phases shown; an abandoned move also leaves a valid position."""
        self._moment = None
        is_step = self.event > 0 and self.tape.is_step(self.event)
        self.phase = LAST_PHASE if is_step else None
        if self.at_end:
            self.complete = True

    def _end(self) -> Stop:
        return Stop("end" if self.failure is None else "failed")

    def _progress(self, goal: int | None) -> Progress:
        return Progress(self.event, self.time_us, goal)
