"""Finds the first event at which a result diverges from its golden, and the records of both sides there.

The precision depends on what is left of the golden run. With its stored record stream, or if this engine still
reproduces the golden's records from its experiment, the exact event and both sides are known. Otherwise only the chain
of digests is left, which gives the window of events that contains it and this side's records there.
"""

from __future__ import annotations

import json
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.golden.golden_store import ChainRecorder, divergence_window
from blis_tui.results.record_lines import record_dict, record_line
from blis_tui.runs.divergence import NEIGHBOURS, divergence_lines, first_divergence, record_stream, record_text
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.build import build_experiment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot
    from blis_tui.engine.records import Record
    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.model import Experiment
    from blis_tui.runs.divergence import Divergence, Fields

_SHOWN_OF_WINDOW: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenDivergence:
    """Where a run diverges from its golden, as exactly as the stored data allows."""

    after: int
    """The last event up to which both certainly agree."""
    until: int
    """The last event by which they certainly differ."""
    exact: Divergence | None
    """The exact divergence, with the golden on the left and this run on the right; None if only the window is known."""
    records: tuple[Fields, ...] = ()
    """If only the window is known, this run's first records in it."""
    state: str = ""
    """The affected request and instance, just before the event, in words."""

    @property
    def event(self) -> int:
        """The first event that differs, or the end of the window."""
        return self.until if self.exact is None else self.exact.event

    def text(self) -> str:
        """Return the event, the records around it, and the state before, as text."""
        if self.exact is None:
            single = self.until == self.after + 1
            where = (
                f"event {self.until}" if single else f"between event {self.after} (still equal) and event {self.until}"
            )
            more = "what the golden had there can be shown" if single else "the exact event can be found"
            shown = [printable(f"  + {record_text(fields)}") for fields in self.records]
            advice = f"    (`blis-tui golden record` stores the records: then {more})"
            return "\n".join([f"first divergence: {where}", *shown, advice])
        lines = divergence_lines(self.exact, ("-", "+"))
        if self.state:
            lines += ["state before it:", *(f"    {line}" for line in self.state.split("\n"))]
        return "\n".join(lines)


def find_divergence(
    golden: Golden, result: Golden, experiment: Experiment, files: GoldenFiles
) -> GoldenDivergence | None:
    """Return where an experiment's result diverges from its golden; None if their records are equal."""
    window = divergence_window(golden.chain, result.chain)
    if window is None:
        return None
    after, until = window
    stored = files.read_records(golden)
    if stored is not None:
        exact = first_divergence(stored, record_lines(experiment), _fields)
    else:
        # Skip the common part, except for the records shown before the first difference; each event has at least one.
        start = max(0, after - NEIGHBOURS)
        old = _repeated(golden, experiment, start, until)
        if old is None:
            inside = takewhile(lambda record: record.event <= until, record_stream(experiment, after))
            records = tuple(map(record_dict, islice(inside, _SHOWN_OF_WINDOW)))
            return GoldenDivergence(after=after, until=until, exact=None, records=records)
        exact = first_divergence(old, record_lines(experiment, start), _fields)
    if exact is None:
        raise AssertionError("streams with different digests are equal")
    return GoldenDivergence(after=after, until=until, exact=exact, state=_state(experiment, exact))


def _fields(line: str) -> Fields:
    """Return the record on a line, whose digest is known."""
    fields: Fields = json.loads(line)
    return fields


def old_experiment(golden: Golden, experiment: Experiment) -> Experiment | None:
    """Return the experiment of a golden; None if this version cannot build it any more.

    Args:
        golden: the stored result.
        experiment: its case's current experiment, whose path of a recorded workload is used.
    """
    trace = experiment.workload.trace
    try:
        old = build_experiment(
            golden.document, trace_path=None if trace is None else trace.path, plugins=experiment.plugins
        )
    except Exception:  # noqa: BLE001  (an old document that this version cannot run only means less detail)
        return None
    return old if old.sha256 == golden.spec_sha256 else None


def repeated(old: Experiment, golden: Golden, start: int, until: int) -> list[str] | None:
    """Run an experiment again; return the golden's record lines after ``start`` up to the event after ``until``.

    Returns None if this engine does not reproduce the golden's records up to ``until``. The additional event
    distinguishes the end of the run from the end of the requested range.
    """
    lines: list[str] = []

    def keep(record: Record) -> None:
        if record.event > start:
            lines.append(record_line(record))

    recorder = ChainRecorder()
    try:
        simulation = Simulation(old)
        simulation.subscribe("all", recorder)
        simulation.subscribe("all", keep)
        simulation.run(max_events=until + 1)
    except Exception:  # noqa: BLE001  (as above)
        return None
    differs = divergence_window(golden.chain, recorder.finish(simulation.events))
    if differs is None:
        return lines
    stopped_early = until < golden.chain.events  # otherwise the digest of the whole stream must match
    return lines if stopped_early and differs[0] >= until else None


def _repeated(golden: Golden, experiment: Experiment, start: int, until: int) -> list[str] | None:
    old = old_experiment(golden, experiment)
    return None if old is None else repeated(old, golden, start, until)


def record_lines(experiment: Experiment, after: int = 0) -> Iterator[str]:
    """Yield the record stream after event ``after``, line by line, without holding it in memory."""
    return map(record_line, record_stream(experiment, after))


def _state(experiment: Experiment, divergence: Divergence) -> str:
    """Return the request and instance of the two records, just before the event, in this run."""
    simulation = Simulation(experiment)
    simulation.run(max_events=divergence.event - 1)
    snapshot = simulation.snapshot()
    about = [fields for fields in (divergence.left, divergence.right) if fields is not None]
    numbers = {fields.get("instance") for fields in about}
    lines = [_instance(instance) for instance in snapshot.instances if instance.index in numbers]
    names = {fields.get("request_id") for fields in about}
    live = [*snapshot.in_transit]
    for instance in snapshot.instances:
        live += [*instance.waiting, *instance.running]
    lines += [_request(request) for request in live if request.request_id in names]
    return "\n".join(map(printable, lines))


def _instance(instance: InstanceSnapshot) -> str:
    kv = instance.kv
    queue = ", ".join(request.request_id for request in instance.waiting[:5])
    more = f" and {len(instance.waiting) - 5} more" if len(instance.waiting) > 5 else ""
    return (
        f"instance {instance.index}: {len(instance.running)} running, {len(instance.waiting)} waiting"
        f"{f' ({queue}{more})' if queue else ''}, {kv.used_blocks} of {kv.total_blocks} KV blocks used, "
        f"step {instance.steps}, {plural(instance.preemptions, 'preemption')}"
    )


def _request(request: RequestSnapshot) -> str:
    return (
        f"request {request.request_id}: {request.phase}, "
        f"{request.computed_tokens} of {plural(request.target_tokens, 'token')} computed, "
        f"{request.generated_tokens} generated, {plural(request.held_blocks, 'block')}, "
        f"{plural(request.preemptions, 'preemption')}, arrived at {request.arrival_us} us"
    )
