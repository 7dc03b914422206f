"""What a group of requests has in common, and how rare that is among all requests."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import count_text, span_text
from blis_tui.debugger.why.ranking import Lives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.debugger.why.ranking import Position

_LOOKED_AT: Final = 2000
"""Maximum number of all requests that a group is compared with, evenly spread over their order of arrival."""
_MOST: Final = 0.75
"""Share of a group that must have what it is said to have in common."""
_RARER: Final = 1.5
"""How many times rarer that must be among all requests."""
FEWEST: Final = 3
"""A group of fewer requests has nothing in common but chance."""
_MIDDLE: Final = 10
"""A range leaves out a tenth of the group at each end."""


@dataclass(frozen=True, slots=True)
class Common:
    """Something that most of a group have in common, and by which they stand out."""

    text: str
    having: int
    """How many of the group have it."""
    among: int
    """How many of all requests that were looked at have it."""
    looked_at: int

    @property
    def share(self) -> float:
        """Share of all requests that have it."""
        return self.among / self.looked_at


class _Trait(NamedTuple):
    """Something of a request that others may share; None = it has none, or not yet."""

    read: Callable[[EventStore, RequestLife], int | str | None]
    text: Callable[[int | str, int | str], str]
    """Returns a value, or the range between two, in words."""


Values = tuple["int | str | None", ...]
"""The traits of a request, in the order of ``_TRAITS``."""


def traits_of(tape: EventStore) -> Lives[Values]:
    """Return a reader of the traits that requests may share."""
    return Lives(tape, lambda life: tuple(trait.read(tape, life) for trait in _TRAITS))


def looked_at(tape: EventStore, group: Sequence[str]) -> Sequence[int]:
    """Return the numbers of the requests whose traits tell what a group has in common; none for a small group."""
    return [*_numbers(tape, group), *_sample(tape)] if len(group) >= FEWEST else ()


def common(
    tape: EventStore, group: Sequence[str], here: Position, traits: Lives[Values] | None = None
) -> tuple[Common, ...]:
    """Return what most requests of a group have in common, and few of all do; the rarest first.

    A number, such as the prompt's length, is compared by the range of the group without a tenth at each end.

    Args:
        tape: the recorded run.
        group: names of requests that have arrived.
        here: the current position.
        traits: what earlier calls have read.
    """
    if len(group) < FEWEST:
        return ()
    traits = traits_of(tape) if traits is None else traits
    for number in traits.unread(here, looked_at(tape, group)):
        traits.read(number)
    own, every = traits.values(_numbers(tape, group)), traits.values(_sample(tape))
    shared: list[Common] = []
    for at, trait in enumerate(_TRAITS):
        values = [value for each in own if (value := each[at]) is not None]
        if values and (low_high := _range(values)):
            having = _within(values, *low_high)
            among = _within([each[at] for each in every], *low_high)
            shared.append(Common(trait.text(*low_high), having, among, len(every)))
    apart = [each for each in shared if each.having >= max(_MOST, _RARER * each.share) * len(group)]
    return tuple(sorted(apart, key=attrgetter("share")))


def _numbers(tape: EventStore, names: Iterable[str]) -> list[int]:
    return [number for name in names if (number := tape.number(name)) is not None]


def _sample(tape: EventStore) -> range:
    return range(0, tape.requests, -(-tape.requests // _LOOKED_AT))


def _range(values: Sequence[int | str]) -> tuple[int | str, int | str]:
    """Return the most frequent text twice, or the ends of the middle of numbers."""
    numbers = sorted(value for value in values if isinstance(value, int))
    if numbers:
        cut = len(numbers) // _MIDDLE
        return numbers[cut], numbers[-1 - cut]
    texts = [str(value) for value in values]
    most = max(dict.fromkeys(texts), key=texts.count)
    return most, most


def _within(values: Iterable[int | str | None], low: int | str, high: int | str) -> int:
    if isinstance(low, int) and isinstance(high, int):
        return sum(isinstance(value, int) and low <= value <= high for value in values)
    return sum(value == low for value in values)


# ---- what requests may share ----


def _instance(_tape: EventStore, life: RequestLife) -> str | None:
    return str(life.instance) if life.instance >= 0 else None


def _session(tape: EventStore, life: RequestLife) -> str | None:
    number = tape.number(life.name)
    session = None if number is None else tape.sessions.of_request(number)
    return None if session is None else tape.sessions.name(session)


def _sender(by: str) -> Callable[[EventStore, RequestLife], str | None]:
    def read(tape: EventStore, life: RequestLife) -> str | None:
        return tape.arrivals.sender(by, life.entries[0].event)

    return read


def _cached(_tape: EventStore, life: RequestLife) -> int | None:
    scheduled = life.last("scheduled")
    return None if scheduled is None else scheduled.first


def _generated(_tape: EventStore, life: RequestLife) -> int | None:
    end = life.end
    return end.first if end is not None and end.what == "completed" else None


def _preempted(_tape: EventStore, life: RequestLife) -> str | None:
    return "preempted" if life.preemptions else None


def _named(word: str) -> Callable[[int | str, int | str], str]:
    return lambda value, _: f"{word} {value}"


def _amount(word: str) -> Callable[[int | str, int | str], str]:
    def text(low: int | str, high: int | str) -> str:
        ends = [count_text(int(end)) for end in (low, high)]
        return f"{word} {ends[0] if low == high else ' to '.join(ends)}"

    return text


def _arrived(low: int | str, high: int | str) -> str:
    return f"arrived {span_text(int(low))} to {span_text(int(high))}"


_TRAITS: Final = (
    _Trait(_instance, _named("instance")),
    _Trait(_sender("client"), _named("client")),
    _Trait(_sender("tenant"), _named("tenant")),
    _Trait(_session, _named("session")),
    _Trait(_preempted, lambda value, _: str(value)),
    _Trait(lambda _, life: life.arrival_us, _arrived),
    _Trait(lambda _, life: life.input_tokens, _amount("prompt tokens")),
    _Trait(_cached, _amount("cached tokens")),
    _Trait(_generated, _amount("output tokens")),
)
