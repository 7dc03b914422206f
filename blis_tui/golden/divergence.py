"""The first event at which a result parts from its golden, and what stood there on both sides.

What can be said depends on what is left of the golden run. Its record stream, where it was stored, or its experiment,
where this engine still gives the golden's records for it: then the exact event, with both sides. Otherwise only the
chain of digests: then the window of events among which it lies, and this side's records there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.golden.chain import ChainRecorder, parting_window
from blis_tui.golden.wording import field_pair, record_words
from blis_tui.inputs import parse_json
from blis_tui.records.tables import record_line
from blis_tui.simulation import Simulation
from blis_tui.spec.build import build_experiment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot
    from blis_tui.engine.records import Record
    from blis_tui.golden.store import Golden, Place
    from blis_tui.spec.model import Experiment

NEIGHBOURS: Final = 3
"""Records shown before the first that differs."""

_SHOWN_OF_WINDOW: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two runs part.

    ``event`` is the first event with a different record, or None when only its window is known. ``golden`` and
    ``found`` are the record lines on both sides (None = the stream has ended there), ``before`` the last ones they
    share.
    """

    after: int
    """Both sides agree up to and including this event."""
    until: int
    """They differ at this event at the latest."""
    event: int | None
    before: tuple[str, ...] = ()
    golden: str | None = None
    found: str | None = None
    state: str = ""
    """The request and the instance concerned, just before the event, in words."""

    def text(self) -> str:
        """For people: the event, the records around it, and the state before."""
        if self.event is None:
            lines = [f"first divergence: between event {self.after} (still equal) and event {self.until}"]
            lines += [f"  + {_words(line)}" for line in self.before]
            lines.append("    (`blis-tui golden record --full` stores the records: then the exact event can be found)")
            return "\n".join(lines)
        lines = [f"first divergence: event {self.event}"]
        lines += [f"    {_words(line)}" for line in self.before]
        lines += [f"  - {_words(self.golden)}", f"  + {_words(self.found)}"]
        lines += [f"    {line}" for line in _field_changes(self.golden, self.found)]
        if self.state:
            lines += ["state before it:", *(f"    {line}" for line in self.state.splitlines())]
        return "\n".join(lines)


def find_divergence(golden: Golden, result: Golden, experiment: Experiment, place: Place) -> Divergence | None:
    """Where ``experiment``, whose result is at hand, parts from its golden; None when their records are equal."""
    window = parting_window(golden.chain, result.chain)
    if window is None:
        return None
    after, until = window
    old = _stored(place) or _again(golden, experiment)
    if old is None:
        lines = tuple(line for line in _lines(experiment, after, until))[:_SHOWN_OF_WINDOW]
        return Divergence(after=after, until=until, event=None, before=lines)
    return _first_difference(old, experiment, after, until)


def _first_difference(old: Iterable[str], experiment: Experiment, after: int, until: int) -> Divergence:
    """Walk both streams side by side from the start: what they share is cheap to skip."""
    shared: list[str] = []
    for golden, found in zip_longest(old, _lines(experiment, 0, None)):
        if golden != found:
            event = min(_event(line) for line in (golden, found) if line is not None)
            return Divergence(
                after=after,
                until=until,
                event=event,
                before=tuple(shared),
                golden=golden,
                found=found,
                state=_state(experiment, event, golden, found),
            )
        shared.append(found)
        del shared[:-NEIGHBOURS]
    raise AssertionError("streams with different digests are equal")


def _event(line: str) -> int:
    """The event that a record belongs to.

    Raises:
        InputError: the line, which somebody stored, is not a record.
    """
    try:
        record = parse_json(line)
    except ValueError:
        record = None
    event = record.get("event") if isinstance(record, dict) else None
    if not isinstance(event, int):
        raise InputError(f"the stored record stream is damaged: {line[:60]!r} is not a record")
    return event


def _stored(place: Place) -> Iterator[str] | None:
    """The golden's record lines, where somebody stored them."""
    lines = place.read_records()
    return None if lines is None else (line.rstrip("\n") for line in lines)


def old_experiment(golden: Golden, experiment: Experiment) -> Experiment | None:
    """The experiment that a golden is the result of; None when this version cannot make it any more.

    Args:
        golden: the stored result.
        experiment: what its case is now: a recorded workload is read from where this one finds it.
    """
    trace = experiment.workload.trace
    try:
        old = build_experiment(golden.document, trace_path=None if trace is None else trace.path)
    except Exception:  # noqa: BLE001  (an old document this version cannot run is no error, only less to tell)
        return None
    return old if old.sha256 == golden.spec_sha256 else None


def gives_the_golden(old: Experiment, golden: Golden) -> bool:
    """Whether this engine still gives a golden's records for its experiment."""
    try:
        simulation = Simulation(old)
        recorder = ChainRecorder()
        simulation.subscribe("all", recorder)
        simulation.run()
    except Exception:  # noqa: BLE001  (as above)
        return False
    return recorder.finish(simulation.events).sha256 == golden.chain.sha256


def _again(golden: Golden, experiment: Experiment) -> Iterator[str] | None:
    """The golden's record lines, by running its experiment again; None when this engine no longer gives them."""
    old = old_experiment(golden, experiment)
    return None if old is None or not gives_the_golden(old, golden) else _lines(old, 0, None)


def _lines(experiment: Experiment, after: int, until: int | None) -> Iterator[str]:
    """The record lines of the events ``(after, until]``."""
    simulation = Simulation(experiment)
    simulation.run(max_events=after)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    while not simulation.done and (until is None or simulation.events < until):
        simulation.step()
        for record in records:
            yield record_line(record).rstrip("\n")
        records.clear()


def record_lines(experiment: Experiment) -> Iterator[str]:
    """The whole record stream, line by line with its line ends, without holding it in memory."""
    for line in _lines(experiment, 0, None):
        yield line + "\n"


def _words(line: str | None) -> str:
    return "the run has ended" if line is None else record_words(json.loads(line))


def _field_changes(golden: str | None, found: str | None) -> list[str]:
    """Which fields of two records of the same kind differ."""
    if golden is None or found is None:
        return []
    before, after = json.loads(golden), json.loads(found)
    if before["kind"] != after["kind"]:
        return []
    pairs = [(field_pair(name, before[name]), field_pair(name, after[name])) for name in before]
    return [f"{name}: {old} -> {new}" for (name, old), (_, new) in pairs if old != new]


def _state(experiment: Experiment, event: int, golden: str | None, found: str | None) -> str:
    """The request and the instance that the parting records are about, just before the event, in this run."""
    simulation = Simulation(experiment)
    simulation.run(max_events=event - 1)
    snapshot = simulation.snapshot()
    about = [json.loads(line) for line in (golden, found) if line is not None]
    numbers = dict.fromkeys(record["instance"] for record in about if record.get("instance", -1) >= 0)
    lines = [_instance(snapshot.instances[number]) for number in numbers]
    names = dict.fromkeys(record["request_id"] for record in about if "request_id" in record)
    live = [*snapshot.in_transit]
    for instance in snapshot.instances:
        live += [*instance.waiting, *instance.running]
    lines += [_request(request) for request in live if request.request_id in names]
    return "\n".join(lines)


def _instance(instance: InstanceSnapshot) -> str:
    kv = instance.kv
    queue = ", ".join(request.request_id for request in instance.waiting[:5])
    more = f" and {len(instance.waiting) - 5} more" if len(instance.waiting) > 5 else ""
    return (
        f"instance {instance.index}: {len(instance.running)} running, {len(instance.waiting)} waiting"
        f"{f' ({queue}{more})' if queue else ''}, {kv.used_blocks} of {kv.total_blocks} KV blocks used, "
        f"step {instance.steps}, {instance.preemptions} preemptions"
    )


def _request(request: RequestSnapshot) -> str:
    return (
        f"request {request.request_id}: {request.phase}, {request.computed_tokens} of {request.target_tokens} tokens "
        f"computed, {request.generated_tokens} generated, {request.held_blocks} blocks, "
        f"{request.preemptions} preemptions, arrived at {request.arrival_us} us"
    )
