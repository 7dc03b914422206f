"""The first event at which two runs differ: one search, over any two streams of records."""

from __future__ import annotations

import json
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from blis_tui.classes import dataclass
from blis_tui.compare.documents import differences, dotted
from blis_tui.compare.wording import value_change
from blis_tui.errors import InvariantError, SimulationError
from blis_tui.printable import printable
from blis_tui.simulation import Simulation
from blis_tui.units import ordinal, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from blis_tui.cluster.reroute import Routes
    from blis_tui.compare.documents import Difference
    from blis_tui.engine.records import Record
    from blis_tui.spec.model import Experiment

T = TypeVar("T")
Fields: TypeAlias = "Mapping[str, object]"
"""A record as plain data."""

NEIGHBOURS: Final = 3
"""Records both sides share that are remembered before the first that differs."""
_SLICE: Final = 64
"""Events simulated, and records compared, at a time."""
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
        """What differs in the two records, where they are of one kind."""
        left, right = self.left, self.right
        if left is None or right is None or left["kind"] != right["kind"]:
            return []
        return differences(counted_from_one(left), counted_from_one(right), dotted)


def search(
    left: Iterable[T], right: Iterable[T], plain: Callable[[T], Fields]
) -> Generator[T, None, Divergence | None]:
    """Look for the first difference of two streams; yields now and then how far it is, None = there is none.

    Args:
        left: the records of the one run, in any form that can be compared.
        right: those of the other, in the same form.
        plain: a record's fields, ``event`` among them.
    """
    shared: deque[T] = deque(maxlen=NEIGHBOURS)
    for count, (one, other) in enumerate(zip_longest(left, right), 1):
        if one != other:
            old, new = (None if record is None else plain(record) for record in (one, other))
            event = min(_whole(fields["event"]) for fields in (old, new) if fields is not None)
            return Divergence(event=event, left=old, right=new, before=tuple(map(plain, shared)))
        shared.append(other)
        if not count % _SLICE:
            yield other
    return None


def first_divergence(left: Iterable[T], right: Iterable[T], plain: Callable[[T], Fields]) -> Divergence | None:
    """The result of a :func:`search`, at once."""
    looking = search(left, right, plain)
    return at_once(looking)


def at_once(work: Generator[object, None, T]) -> T:
    """The result of work that is done a little at a time."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def _whole(value: object) -> int:
    """A field that is a whole number in every record."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def record_stream(experiment: Experiment, after: int = 0, routes: Routes | None = None) -> Iterator[Record]:
    """The records of a fresh run, from the event behind ``after`` on, without holding them in memory.

    Where the run cannot go on, they end with those of its last whole event. ``routes``: as of a ``Simulation``.
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


def divergence_lines(found: Divergence, marks: tuple[str, str]) -> list[str]:
    """The first event at which two runs differ: what they share before, the two records, and what differs in them.

    Args:
        found: where they part.
        marks: what stands before the record of the one run and of the other.
    """
    changed = found.fields
    lines = [
        f"first divergence: event {found.event}",
        *(f"    {record_text(fields)}" for fields in found.before),
        *(f"  {mark} {record_text(fields)}" for mark, fields in zip(marks, (found.left, found.right), strict=True)),
        *(f"    {one.path}: {value_change(one, _FIELD_COLUMNS)}" for one in changed[:_MOST]),
        *([f"    … {len(changed) - _MOST:,} more"] if len(changed) > _MOST else []),
    ]
    return [printable(line) for line in lines]


def record_text(fields: Fields | None) -> str:
    """A record: event, time, what it is, and those of its fields that say something; None = there is none any more."""
    if fields is None:
        return "the run has ended"
    event, time_us = (_whole(fields[name]) for name in ("event", "time_us"))
    head = f"event {event:,}  {time_text(time_us)}  {fields['kind']}"
    rest = [
        f"{name}={value if isinstance(value, str) else _COMPACT.encode(value)}"
        for name, value in counted_from_one(fields).items()
        if name not in ("event", "time_us", "kind") and value not in ([], "")
    ]
    return "  ".join([head, " ".join(rest)]).rstrip()


def counted_from_one(fields: Fields) -> dict[str, object]:
    """A record's fields, the position in a queue as people count: ``place`` 1st, 2nd, ..."""
    counted: dict[str, object] = {}
    for name, value in fields.items():
        if name == "position" and isinstance(value, int):
            counted["place"] = ordinal(value + 1)
        else:
            counted[name] = value
    return counted
