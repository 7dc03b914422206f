"""Which requests of two runs of one workload are the same.

Names count arrivals. Requests that are sent when an answer has come (later calls of sessions, prompts of closed loops)
may arrive in another order in another run, and then carry each other's names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.results.request_log import RequestRow


class Matched(NamedTuple):
    """The requests of two runs, matched."""

    pairs: list[tuple[RequestRow, RequestRow]]
    """The same request in both runs, in the order of the first."""
    different: int
    """Requests of the first run whose counterpart in the second is another request."""
    only_a: int
    only_b: int


def match(a: Sequence[RequestRow], b: Sequence[RequestRow], *, arrivals: bool) -> Matched:
    """Match the requests of two runs: calls of sessions by session and number, others by name.

    Args:
        a: the requests of one run.
        b: the requests of the other one.
        arrivals: requests are the same if they have the same prompt length and arrive (a session: begins) at the same
            time; otherwise if prompt and answer have the same lengths, as in two runs of one workload.
    """
    asked_a, asked_b = (_asked(rows, arrivals=arrivals) for rows in (a, b))
    others = {_identity(row): (row, asked) for row, asked in zip(b, asked_b, strict=True)}
    pairs: list[tuple[RequestRow, RequestRow]] = []
    found = 0
    for row, asked in zip(a, asked_a, strict=True):
        other, asked_there = others.get(_identity(row), (None, asked))
        if other is None:
            continue
        found += 1
        if asked == asked_there:
            pairs.append((row, other))
    return Matched(pairs, found - len(pairs), len(a) - found, len(others) - found)


def _identity(row: RequestRow) -> str | tuple[str, int]:
    return row.request_id if row.round_index is None else (row.session_id, row.round_index)


def _asked(rows: Sequence[RequestRow], *, arrivals: bool) -> list[tuple[int, int]]:
    """Return what must be equal in both runs, for each request."""
    if not arrivals:
        return [(row.input_tokens, row.requested_output_tokens) for row in rows]
    begun: dict[str, int] = {}
    for row in rows:
        if row.round_index is not None:
            begun[row.session_id] = min(begun.get(row.session_id, row.arrival_us), row.arrival_us)
    return [(row.input_tokens, begun.get(row.session_id, row.arrival_us)) for row in rows]
