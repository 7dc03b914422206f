"""What differs between two runs for single requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.compare.metrics import THRESHOLD, matters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.metrics.request_log import RequestRow

MOST_AFFECTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """A request and its end-to-end times, in microseconds."""

    request_id: str
    a_us: int
    b_us: int

    @property
    def change_us(self) -> int:
        """``b - a``."""
        return self.b_us - self.a_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """How often requests that ended as ``a`` in one run ended as ``b`` in the other."""

    a: str
    b: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChanges:
    """The requests of two runs, matched by name."""

    common: int
    """Requests of both runs: same name, same arrival, same prompt length."""
    other: int
    """Same name, but another arrival or prompt: another request. They are left out of everything below."""
    only_a: int
    only_b: int
    compared: int
    """Of the common ones, those that completed in both runs."""
    slower: int
    """By more than noise, end to end."""
    faster: int
    different_ends: tuple[Fates, ...]
    """Requests that did not end alike, by frequency."""
    most_affected: tuple[Affected, ...]
    """By the size of the change; of equals the earlier arrival."""

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {
            **{name: getattr(self, name) for name in ("common", "other", "only_a", "only_b", "compared")},
            "threshold": THRESHOLD,
            "slower": self.slower,
            "faster": self.faster,
            "different_ends": [asdict(one) for one in self.different_ends],
            "most_affected": [{**asdict(one), "change_us": one.change_us} for one in self.most_affected],
        }


def request_changes(a: Sequence[RequestRow], b: Sequence[RequestRow]) -> RequestChanges:
    """Match the requests of two runs and summarise what became of them."""
    others = {row.request_id: row for row in b}
    fates: Counter[tuple[str, str]] = Counter()
    timed: list[Affected] = []
    matched = common = 0
    for row in a:
        other = others.get(row.request_id)
        if other is None:
            continue
        matched += 1
        if (row.arrival_us, row.input_tokens) != (other.arrival_us, other.input_tokens):
            continue
        common += 1
        if row.state != other.state:
            fates[row.state, other.state] += 1
        if row.e2e_us is not None and other.e2e_us is not None:
            timed.append(Affected(request_id=row.request_id, a_us=row.e2e_us, b_us=other.e2e_us))
    changed = sorted((one for one in timed if one.change_us), key=lambda one: -abs(one.change_us))
    beyond = [one for one in changed if matters(one.a_us, one.b_us)]
    slower = sum(one.change_us > 0 for one in beyond)
    return RequestChanges(
        common=common,
        other=matched - common,
        only_a=len(a) - matched,
        only_b=len(others) - matched,
        compared=len(timed),
        slower=slower,
        faster=len(beyond) - slower,
        different_ends=tuple(Fates(a=one, b=two, count=count) for (one, two), count in fates.most_common()),
        most_affected=tuple(changed[:MOST_AFFECTED]),
    )
