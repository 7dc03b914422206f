"""The best instance by weighted scores, found without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.policies.scoring import FigureScorer, SparseScorer
from blis_tui.cluster.signals import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.policy import Scorer
    from blis_tui.cluster.signals import Fleet, IncomingRequest, SignalBoard

_FINE: Final = "kv_utilization"
"""The figure that sorts a group."""

Group = tuple[float, ...]
"""The figures that its instances have in common."""
Term = tuple[float, "Sequence[float] | None", "FigureScorer | None", float]
"""A part of a sum: its share, and the score: each group's, or what this scorer says of the fine figure, or this."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Ranking:
    """The instances of a fleet in groups of equal figures.

    Instances with equal figures have equal scores. So they stand in groups of equal figures, kept up to date as figures
    change, and a decision looks at one of each group; within a group they are sorted by the one figure that is nearly
    always different (KV utilization), of which the smallest is the best. While nothing but decoding happens to an
    instance that figure only grows: the least it can be sorts the group, and what it is is asked for when the instance
    comes first. Scores that single instances have for themselves (of prefixes) are added for these alone.

    The sums are those of the plain way, bit by bit, because the same numbers are added in the same order.

    Args:
        scorers: only of kinds that can be ranked (see ``can_rank``).
        shares: their parts of all weights.
        fleet: which instances.
    """

    def __init__(self, scorers: Sequence[Scorer], shares: Sequence[float], fleet: Fleet) -> None:
        self._parts = tuple(zip(scorers, shares, strict=True))
        self._coarse = [one for one in scorers if isinstance(one, FigureScorer) and one.figure != _FINE]
        self._figures = [FIGURES[one.figure] for one in self._coarse]
        self._has_fine = any(isinstance(one, FigureScorer) and one.figure == _FINE for one in scorers)
        self._fine = FIGURES[_FINE]
        self._members = fleet.members
        self._changed = fleet.board.listen()
        self._groups: dict[Group, list[tuple[float, int]]] = {}
        """Sorted: fine figure and index of the instance."""
        self._where: dict[int, tuple[Group, tuple[float, int]]] = {}
        """Of each instance its group and its entry there."""
        for index in self._members:
            self._insert(index, fleet.board)

    def best(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, list[int]]:
        """The highest sum, and the indices of all instances that have it."""
        members = fleet.members
        if members is not self._members:
            self._follow(members, fleet.board)
        self._update(fleet.board)
        groups = list(self._groups)
        terms: list[Term] = []
        special: list[Mapping[int, float]] = []
        odd: dict[int, int] = {}
        """The places of those instances that have scores for themselves."""
        at = 0
        for scorer, share in self._parts:
            others = _NONE
            if isinstance(scorer, FigureScorer):
                if scorer.figure == _FINE:
                    terms.append((share, None, scorer, 0.0))
                else:
                    terms.append((share, scorer.grades([group[at] for group in groups]), None, 0.0))
                    at += 1
            elif isinstance(scorer, SparseScorer):
                usual, others = scorer.sparse(request, fleet)
                for place in others:
                    odd[members[place]] = place
                terms.append((share, None, None, usual))
            special.append(others)
        highest = -1.0
        ties: list[int] = []
        for number, group in enumerate(groups):
            highest, ties = self._first(number, group, terms, odd, fleet.board, (highest, ties))
        if odd:
            numbers = {group: number for number, group in enumerate(groups)}
            for index, place in odd.items():
                group, (fine, _) = self._where[index]
                if self._has_fine:
                    fine = self._fine(fleet.board, index)
                own = [
                    (share, column, scorer, others.get(place, usual))
                    for (share, column, scorer, usual), others in zip(terms, special, strict=True)
                ]
                total = _sum(own, numbers[group], fine)
                if total > highest:
                    highest, ties = total, []
                if total == highest:
                    ties.append(index)
        ties.sort()
        return highest, ties

    def _first(
        self,
        number: int,
        group: Group,
        terms: Sequence[Term],
        odd: Mapping[int, int],
        board: SignalBoard,
        best: tuple[float, list[int]],
    ) -> tuple[float, list[int]]:
        """The best so far, and those of a group that have no scores for themselves."""
        highest, ties = best
        entries = self._groups[group]
        at = 0
        while at < len(entries):
            fine, index = entries[at]
            if index in odd:
                at += 1
                continue
            total = _sum(terms, number, fine)
            if total < highest:
                break
            if self._has_fine and (now := self._fine(board, index)) != fine:
                # It has grown since: others may be before it by now.
                entry = now, index
                self._where[index] = group, entry
                del entries[at]
                insort(entries, entry)
                continue
            if total > highest:
                highest, ties = total, []
            ties.append(index)
            at += 1
        return highest, ties

    def _follow(self, members: Sequence[int], board: SignalBoard) -> None:
        """Instances have come or gone: they are among those that have changed."""
        self._members = members
        for index in self._changed:
            at = bisect_left(members, index)
            there = at < len(members) and members[at] == index
            if there and index not in self._where:
                self._insert(index, board)
            elif not there and index in self._where:
                self._remove(self._where.pop(index))

    def _update(self, board: SignalBoard) -> None:
        where, groups = self._where, self._groups
        for index in self._changed:
            if index not in where:
                continue
            before = where[index]
            after = self._place(index, board)
            if after == before:
                continue
            self._remove(before)
            group, entry = where[index] = after
            if group in groups:
                insort(groups[group], entry)
            else:
                groups[group] = [entry]
        self._changed.clear()

    def _place(self, index: int, board: SignalBoard) -> tuple[Group, tuple[float, int]]:
        """The group of an instance, and its entry there."""
        entry = (board.least_kv_utilization(index) if self._has_fine else 0.0, index)
        return tuple([figure(board, index) for figure in self._figures]), entry

    def _remove(self, place: tuple[Group, tuple[float, int]]) -> None:
        group, entry = place
        entries = self._groups[group]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._groups[group]

    def _insert(self, index: int, board: SignalBoard) -> None:
        group, entry = self._where[index] = self._place(index, board)
        insort(self._groups.setdefault(group, []), entry)


_NONE: Final[Mapping[int, float]] = {}


def _sum(terms: Sequence[Term], number: int, fine: float) -> float:
    """The sum of an instance in the group of that number, with that fine figure."""
    total = 0.0
    for share, column, scorer, score in terms:
        if column is not None:
            total += share * column[number]
        elif scorer is not None:
            total += share * scorer.grades((fine,))[0]
        else:
            total += share * score
    return total


def can_rank(scorers: Sequence[Scorer]) -> bool:
    """Whether all scorers look at one figure each, or say the same about most instances."""
    return all(isinstance(one, FigureScorer | SparseScorer) for one in scorers)
