"""The course of a recording and of the other side in some ten stretches of time."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.twin.agreement import Pair
    from blis_tui.twin.course import Levels

STRETCHES: Final = 10
KV: Final = "KV in use"
LEVELS: Final = ("waiting", "running", KV, "preemptions")
"""What is told of the end of each stretch: requests, requests, a share of all blocks, how many there were so far."""
LATENCIES: Final = ("ttft", "e2e")
"""What is told of the requests that were sent in it: means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the time; figures by the names in ``LEVELS`` and ``LATENCIES``, None where they are not known."""

    until_us: int
    """Its end; it begins at that of the one before, the first one at 0."""
    requests: int
    """Sent in it, and answered on both sides."""
    left: Mapping[str, float | None]
    """Latencies in milliseconds; likewise on the right."""
    right: Mapping[str, float | None]


def stretches(
    pairs: Sequence[Pair], left: Mapping[str, Levels], right: Mapping[str, Levels], count: int = STRETCHES
) -> list[Stretch]:
    """Equal parts of the time from 0 to the last answer of either side; none where nothing was answered."""
    ends = [pair.sent_us + round(max(pair.left["e2e"], pair.right["e2e"])) for pair in pairs]
    end_us = max(ends, default=0)
    found = []
    for number in range(count if ends else 0):
        from_us, until_us = number * end_us // count, (number + 1) * end_us // count
        sent = [pair for pair in pairs if max(pair.sent_us, 0) in range(from_us, until_us)]
        sides = (
            {
                **{name: _at(levels.get(name), until_us) for name in LEVELS},
                **{name: _mean_ms([pair[name] for pair in latencies]) for name in LATENCIES},
            }
            for levels, latencies in ((left, [one.left for one in sent]), (right, [one.right for one in sent]))
        )
        one, other = sides
        found.append(Stretch(until_us=until_us, requests=len(sent), left=one, right=other))
    return found


def _at(levels: Levels | None, time_us: int) -> float | None:
    """A figure then: nothing before it was first told, unknown where it never is."""
    return None if levels is None else levels.at(time_us) or 0.0


def _mean_ms(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) / 1e3 if values else None
