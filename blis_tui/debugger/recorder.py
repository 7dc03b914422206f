"""Writes the records of a run to a tape."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from blis_tui.cluster.records import InstanceChanged, Retried, SentByClient, SessionBegun, SessionContinued
from blis_tui.debugger.event_store import CHUNK, LAST_TOKEN, RESUMED, STALLED, STARTED, StopRow, text_fields
from blis_tui.debugger.session_log import SentCall
from blis_tui.engine.records import (
    AnswerBegun,
    Arrived,
    Completed,
    FirstToken,
    Preempted,
    PromptMedia,
    StepFinished,
    streamed_kinds,
)
from blis_tui.engine.stopped import SchedulingStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.engine.records import Description, Record
    from blis_tui.runs.simulation import Simulation

_BUSY_BATCH: Final = 32
"""Requests examined by a step under memory pressure that count as the work of one ordinary event (rough measurement).
"""
_NOTHING: Final = (0, 0, 0)
_BITS: Final = 63
"""Of the largest number on the tape."""


class Recorder:
    """Listens to a simulation from the point where its tape ends.

    Args:
        tape: the tape to write to.
    """

    def __init__(self, tape: EventStore) -> None:
        self._tape = tape
        self._latest: dict[int, tuple[int, int, int]] = {}
        self._stalled: dict[int, frozenset[str]] = {}
        self._gone: dict[str, None] = {}
        """Requests that timed out or were cancelled; steps may go on computing them for a while."""
        self._totals = _NOTHING
        self._steps: dict[int, StepFinished] = {}
        self._learns: dict[type[Record], Callable[..., None]] = {
            Arrived: self._arrived,
            Completed: self._completed,
            FirstToken: self._first_token,
            Preempted: self._preempted,
            Retried: self._retried,
            SessionBegun: self._session,
            SessionContinued: self._next_call,
            PromptMedia: self._media,
            AnswerBegun: self._answer,
        }
        """Handlers for the kinds of records of which the tape keeps more than figures."""

    def listen(self, simulation: Simulation) -> Callable[[], None]:
        """Start to record a simulation, which must be at the tape's end; return a function that stops the recording."""
        self._tape.overview.register_instance(len(simulation.snapshot(0).instances) - 1)
        stops = [
            simulation.subscribe(InstanceChanged, partial(self._welcome, simulation)),
            simulation.subscribe(SentByClient, self._note_client),
            simulation.subscribe(SchedulingStopped, self._note_stop),
            *(simulation.subscribe(kind, self._reader(kind)) for kind in streamed_kinds().values()),
        ]

        def stop() -> None:
            for unsubscribe in stops:
                unsubscribe()

        return stop

    def _welcome(self, simulation: Simulation, record: InstanceChanged) -> None:
        """Register an instance that may be new."""
        self._tape.overview.register_instance(record.instance)
        if record.instance >= len(self._tape.profiles):
            self._tape.profiles.append(simulation.snapshot(0).instances[record.instance].profile)

    def _reader(self, kind: type[Record]) -> Callable[[Record], None]:
        """Return the handler for a kind of record: it notes the request, the instance, and the described figures."""
        if kind is StepFinished:
            return self._step  # type: ignore[return-value]
        tape, code, shown, number_of = self._tape, self._tape.code(kind.kind), kind.shown, self._tape.number
        gone = self._gone
        texts = text_fields(kind.kind)
        names = [(name, name in texts) for name in shown.figures]
        has_reason = "reason" in texts
        learn = self._learns.get(kind)
        brought = not kind.__module__.startswith("blis_tui.")

        def read(record: Record) -> None:
            name: str = getattr(record, "request_id", "")
            instance: int = getattr(record, "instance", -1)
            if kind is Arrived:
                tape.add_request(name)
            number = number_of(name)
            figures: list[int] = []
            for figure, is_name in names:
                value = number_of(getattr(record, figure)) if is_name else getattr(record, figure)
                figures.append(-1 if value is None else value)
            if brought:  # before the tape has a part of the record
                _require_whole_numbers(kind, figures)
            tape.add(record, code, instance, -1 if number is None else number)
            if number is not None and name not in gone:
                tape.note(number, record.event, code, *figures)
            elif figures:
                tape.record_figures(record.event, figures)
            if has_reason:
                reason: str = record.reason  # type: ignore[attr-defined]
                tape.record_reason(record.event, code, -1 if number is None else number, reason)
            if shown.ends:
                self._end(shown, record, name, instance)
            if learn is not None and number is not None:
                learn(record, number)

        return read

    def _end(self, shown: Description, record: Record, name: str, instance: int) -> None:
        """Record the end of a request."""
        if shown.ends == "lost":
            self._tape.overview.loss(record.time_us)
            self._gone[name] = None
        number = self._tape.number(name)
        if number is not None:
            self._tape.sessions.end_call(number, record.event, answered=shown.ends == "done")
        if name in self._stalled.get(instance, ()):
            self._stalled[instance] -= {name}

    # ---- records with storage of their own on the tape ----

    def _arrived(self, record: Arrived, number: int) -> None:  # noqa: ARG002  (one signature for all)
        self._tape.overview.arrival(record.time_us)
        self._tape.arrivals.add("tenant", record.tenant_id, record.event)

    def _completed(self, record: Completed, number: int) -> None:
        self._tape.latencies.completed(number, record)
        self._tape.overview.completion(record.time_us)

    def _first_token(self, record: FirstToken, number: int) -> None:
        self._tape.latencies.first_token(number, record)
        self._tape.overview.first_token(record.time_us, record.ttft_us)

    def _preempted(self, record: Preempted, number: int) -> None:
        if not self._tape.keeps_output:
            self._tape.latencies.lose(number, record.event)

    def _retried(self, record: Retried, number: int) -> None:
        self._tape.latencies.lose(number, record.event)

    def _media(self, record: PromptMedia, number: int) -> None:
        self._tape.note_media(number, (record.image_tokens, record.audio_tokens, record.video_tokens))

    def _answer(self, record: AnswerBegun, number: int) -> None:
        self._tape.note_reasoning(number, record.reasoning_tokens)

    def _session(self, record: SessionBegun, number: int) -> None:
        self._tape.sessions.send(record.session_id, SentCall(record.event, number, -1, -1, 0, 0), record.calls)

    def _next_call(self, record: SessionContinued, number: int) -> None:
        last = self._tape.number(record.last)
        called = (record.call, -1 if last is None else last, record.waited_us, record.history_tokens)
        self._tape.sessions.send(record.session_id, SentCall(record.event, number, *called))

    def _note_client(self, record: SentByClient) -> None:
        """Record which client sent an arriving request."""
        self._tape.arrivals.add("client", record.client, record.event)

    def _note_stop(self, record: SchedulingStopped) -> None:
        """Record why requests stay in the queue."""
        number = self._tape.number(record.request_id)
        amounts = (record.need, record.had, record.kept, record.tried_us)
        self._tape.add_stop(
            record.event, record.step, StopRow(record.cause, -1 if number is None else number, *amounts)
        )

    def _note_stalls(self, record: StepFinished, before: frozenset[str]) -> None:
        """Record which requests get no token from this step on, and which get tokens again."""
        stalled = frozenset(record.stalled)
        for name in record.stalled:
            if name not in before:
                self._note(name, record.event, STALLED)
        for name in sorted(before - stalled - frozenset(record.preempted)):
            self._note(name, record.event, RESUMED)
        self._stalled[record.instance] = stalled

    def _note(self, name: str, event: int, code: int, first: int = -1, second: int = -1) -> None:
        number = self._tape.number(name)
        if number is not None:
            self._tape.note(number, event, code, first, second)

    def _step(self, record: StepFinished) -> None:
        index = record.instance
        prefill = 0
        planned = record.event
        gone = self._gone
        if self._tape.plans_ahead:
            planned = self._planned(record)
            for name in record.admitted:
                if name not in gone:
                    self._note(name, record.event, STARTED)
        for chunk in record.chunks:
            prefill += chunk.new_tokens
            if chunk.request_id not in gone:
                self._note(chunk.request_id, record.event, CHUNK, chunk.computed_tokens, chunk.new_tokens)
        before = self._stalled.get(index)
        if before or record.stalled:
            self._note_stalls(record, before or frozenset())
        for name in record.completed:
            self._note(name, record.event, LAST_TOKEN, record.time_us + record.duration_us)
        old, new = self._latest.get(index, _NOTHING), (record.waiting, record.running, record.kv_used_blocks)
        self._latest[index] = new
        waiting, running, kv = self._totals
        self._totals = (waiting + new[0] - old[0], running + new[1] - old[1], kv + new[2] - old[2])
        self._tape.add_step(
            record,
            (
                record.duration_us,
                len(record.admitted),
                len(record.preempted),
                prefill,
                record.decode_requests,
                len(record.stalled),
                len(record.first_tokens),
                len(record.completed),
                record.waiting,
                record.running,
                record.kv_used_blocks,
                record.step,
                *self._totals,
                planned,
                len(record.chunks),
            ),
            record.running // _BUSY_BATCH if record.stalled or record.preempted else 0,
        )
        self._tape.overview.step(record, prefill + record.decode_requests, self._totals)

    def _planned(self, record: StepFinished) -> int:
        """Return the event in which a step was planned: the start of the previous step if no pause lies between.

        If that earlier plan was empty, the step and its admissions were planned when it started; for ranks that step
        together, when the first of them started.
        """
        before = self._steps.get(record.instance)
        self._steps[record.instance] = record
        if before is None or before.next_step_us != record.time_us:
            return record.event
        for name in record.admitted:
            number = self._tape.number(name)
            event = None if number is None else self._tape.latest(number, "scheduled", record.event)
            if event is not None and event.event > before.event:
                return event.event
        return before.event


def _require_whole_numbers(kind: type[Record], figures: Sequence[object]) -> None:
    """Raise TypeError for a figure of a plug-in's record that the tape cannot keep."""
    for name, value in zip(kind.shown.figures, figures, strict=True):
        if not isinstance(value, int) or value.bit_length() > _BITS:
            raise TypeError(f"the figure `{name}` of a record `{kind.kind}` is {value!r}, and must be a whole number")
