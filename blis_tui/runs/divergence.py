"""Finds the first event at which two runs differ, in any two streams of records."""

from __future__ import annotations

import json
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InvariantError, SimulationError
from blis_tui.base.text import printable
from blis_tui.base.units import ordinal, time_text
from blis_tui.runs.comparison_text import value_change
from blis_tui.runs.documents import differences, dotted
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.runs.documents import Difference

T = TypeVar("T")
Fields: TypeAlias = "Mapping[str, object]"
"""A record as plain data."""

NEIGHBOURS: Final = 3
"""Number of shared records that are kept before the first difference."""
_SLICE: Final = 64
"""Number of events simulated, and of records compared, between two yields."""
_MOST: Final = 8
_FIELD_COLUMNS: Final = 120
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where the records of two runs first differ; None for a side whose run has ended there."""

    event: int
    left: Fields | None
    right: Fields | None
    before: tuple[Fields, ...]
    """The last records that both sides share."""

    @property
    def fields(self) -> list[Difference]:
        """Return the differences between the two records if they are of the same kind."""
        left, right = self.left, self.right
        if left is None or right is None or left["kind"] != right["kind"]:
            return []
        return differences(with_ordinals(left), with_ordinals(right), dotted)


def search(
    left: Iterable[T], right: Iterable[T], plain: Callable[[T], Fields]
) -> Generator[T, None, Divergence | None]:
    """Search for the first difference of two streams; yield now and then to report progress; None = no difference.

    Args:
        left: the records of one run, in any comparable form.
        right: the records of the other run, in the same form.
        plain: returns a record's fields, including ``event``.
    """
    shared: deque[T] = deque(maxlen=NEIGHBOURS)
    for count, (before, after) in enumerate(zip_longest(left, right), 1):
        if before != after:
            old, new = (None if record is None else plain(record) for record in (before, after))
            event = min(_as_int(fields["event"]) for fields in (old, new) if fields is not None)
            return Divergence(event=event, left=old, right=new, before=tuple(map(plain, shared)))
        shared.append(after)
        if not count % _SLICE:
            yield after
    return None


def first_divergence(left: Iterable[T], right: Iterable[T], plain: Callable[[T], Fields]) -> Divergence | None:
    """Return the result of a :func:`search` at once."""
    looking = search(left, right, plain)
    return run_to_end(looking)


def run_to_end(work: Generator[object, None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def _as_int(value: object) -> int:
    """Return a field that is an integer in every record."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def record_stream(experiment: Experiment, after: int = 0, routes: RouteOverrides | None = None) -> Iterator[Record]:
    """Yield the records of a new run after event ``after``, without holding them in memory.

    If the run fails, they end with those of its last complete event. ``routes``: as for ``Simulation``.
    """
    simulation = Simulation(experiment, check="off", routes=routes)
    simulation.run(max_events=after)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    while not simulation.done:
        try:
            simulation.run(max_events=_SLICE)
        except SimulationError as error:
            last = error.event - 1 if isinstance(error, InvariantError) else simulation.events
            yield from (record for record in records if record.event <= last)
            return
        yield from records
        records.clear()


def divergence_lines(divergence: Divergence, marks: tuple[str, str]) -> list[str]:
    """Return the lines on the first difference: shared records before, the two records, and the differing fields.

    Args:
        divergence: the divergence.
        marks: prefixes of the records of the two runs.
    """
    changed = divergence.fields
    lines = [
        f"first divergence: event {divergence.event}",
        *(f"    {record_text(fields)}" for fields in divergence.before),
        *(
            f"  {mark} {record_text(fields)}"
            for mark, fields in zip(marks, (divergence.left, divergence.right), strict=True)
        ),
        *(f"    {difference.path}: {value_change(difference, _FIELD_COLUMNS)}" for difference in changed[:_MOST]),
        *([f"    … {len(changed) - _MOST:,} more"] if len(changed) > _MOST else []),
    ]
    return [printable(line) for line in lines]


def record_text(fields: Fields | None) -> str:
    """Return a record as text: event, time, kind, and the fields with a value; None = the run has ended."""
    if fields is None:
        return "the run has ended"
    event, time_us = (_as_int(fields[name]) for name in ("event", "time_us"))
    head = f"event {event:,}  {time_text(time_us)}  {fields['kind']}"
    rest = [
        f"{name}={value if isinstance(value, str) else _COMPACT.encode(value)}"
        for name, value in with_ordinals(fields).items()
        if name not in ("event", "time_us", "kind") and value not in ([], "")
    ]
    return "  ".join([head, " ".join(rest)]).rstrip()


def with_ordinals(fields: Fields) -> dict[str, object]:
    """Return a record's fields, with a queue position given as an ordinal: ``place`` 1st, 2nd, ..."""
    counted: dict[str, object] = {}
    for name, value in fields.items():
        if name == "position" and isinstance(value, int):
            counted["place"] = ordinal(value + 1)
        else:
            counted[name] = value
    return counted
