"""Finds the best instance by weighted scores without examining all instances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import is_internal_class
from blis_tui.cluster.policies.scoring import FigureScorer, KvUtilization, SparseScorer
from blis_tui.cluster.policy import clamp_score
from blis_tui.cluster.signals import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.cluster.policy import Scorer
    from blis_tui.cluster.signals import Fleet, IncomingRequest, SignalBoard

    Grades = Callable[[Sequence[float]], Sequence[float]]
    """See ``FigureScorer.grades``."""
    Sparse = Callable[[IncomingRequest, Fleet], tuple[float, Mapping[int, float]]]
    """See ``SparseScorer.sparse``."""

_SORT_FIGURE: Final = "kv_utilization"
"""The figure by which a group is sorted."""

Group = tuple[float, ...]
"""The figures that a group's instances have in common."""
Term = tuple[float, "Sequence[float] | None", float]
"""A term of a sum: its share, the score of each group (None = by the fine figure), or, with no groups, this score."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Ranking:
    """The instances of a fleet in groups of equal figures.

    Instances with equal figures have equal scores. Groups are kept up to date as figures change, so a decision examines
    only one instance of each group. Within a group, instances are sorted by the one figure that nearly always differs
    (KV utilization); the smallest is the best. While an instance only decodes, that figure can only grow. The group is
    therefore sorted by a lower bound, and the actual figure is computed only when an instance comes first. Scores of
    individual instances (of prefixes) are added for those instances alone.

    The sums equal those of the plain way bit by bit, because the same numbers are added in the same order.

    Args:
        scorers: only of kinds that can be ranked (see ``can_rank``).
        shares: their shares of the total weight.
        fleet: the instances.
    """

    def __init__(self, scorers: Sequence[Scorer], shares: Sequence[float], fleet: Fleet) -> None:
        self._parts: list[tuple[float, int, Grades | None, Sparse | None]] = []
        """Per scorer: its share; the position of the group figure that it grades, and how; or its sparse scores."""
        self._figures: list[Callable[[SignalBoard, int], float]] = []
        self._has_fine = False
        for scorer, share in zip(scorers, shares, strict=True):
            if isinstance(scorer, SparseScorer):
                self._parts.append((share, 0, None, _checked_sparse(scorer)))
            elif isinstance(scorer, FigureScorer) and scorer.figure == _SORT_FIGURE:
                self._parts.append((share, 0, None, None))
                self._has_fine = True
            elif isinstance(scorer, FigureScorer):
                self._parts.append((share, len(self._figures), _checked_grades(scorer), None))
                self._figures.append(FIGURES[scorer.figure])
        self._members = fleet.members
        self._changed = fleet.board.listen()
        self._groups: dict[Group, list[tuple[float, int]]] = {}
        """Sorted pairs of fine figure and instance index."""
        self._where: dict[int, tuple[Group, tuple[float, int]]] = {}
        """Instance -> its group and its entry there."""
        for index in self._members:
            self._insert(index, fleet.board)

    def best(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, list[int]]:
        """Return the highest sum, and the indices of all instances that have it."""
        members = fleet.members
        if members is not self._members:
            self._follow(members, fleet.board)
        self._update(fleet.board)
        groups = list(self._groups)
        terms: list[Term] = []
        special: list[Mapping[int, float]] = []
        odd: dict[int, int] = {}
        """The places of instances with individual scores."""
        for share, at, grades, sparse in self._parts:
            others = _NONE
            if grades is not None:
                terms.append((share, grades([group[at] for group in groups]), 0.0))
            elif sparse is None:
                terms.append((share, None, 0.0))
            else:
                usual, others = sparse(request, fleet)
                terms.append((share, _NO_COLUMN, usual))
                for place in others:
                    odd[members[place]] = place
            special.append(others)
        highest, ties = self._best_usual(terms, odd, fleet.board)
        for index, place in odd.items():
            group, (fine, _) = self._where[index]
            if self._has_fine:
                fine = fleet.board.kv_used(index) / fleet.board.kv_total[index]
            own = [
                (share, column, others.get(place, usual))
                for (share, column, usual), others in zip(terms, special, strict=True)
            ]
            total = _sum(own, groups.index(group), fine)
            if total > highest:
                highest, ties = total, []
            if total == highest:
                ties.append(index)
        ties.sort()
        return highest, ties

    def _best_usual(self, terms: Sequence[Term], odd: Mapping[int, int], board: SignalBoard) -> tuple[float, list[int]]:
        """Return the best of the instances without individual scores."""
        highest, has_fine, totals = -1.0, self._has_fine, board.kv_total
        ties: list[int] = []
        for number, entries in enumerate(self._groups.values()):
            at = 0
            if entries[0][0] == 0.0:  # who holds no block decodes nothing, so the bound is the figure
                total = _sum(terms, number, 0.0)
                at = bisect_right(entries, _LAST_AT_REST) if total >= highest else len(entries)
                idle = [index for _, index in entries[:at] if index not in odd] if total >= highest else ()
                if idle and total > highest:
                    highest, ties = total, []
                ties += idle
            while at < len(entries):
                fine, index = entries[at]
                if index in odd:
                    at += 1
                    continue
                total = _sum(terms, number, fine)
                if total < highest:
                    break
                if has_fine and (now := board.kv_used(index) / totals[index]) != fine:
                    # It has grown since, so others may come first now.
                    entry = now, index
                    self._where[index] = self._where[index][0], entry
                    del entries[at]
                    insort(entries, entry)
                    continue
                if total > highest:
                    highest, ties = total, []
                ties.append(index)
                at += 1
        return highest, ties

    def _follow(self, members: Sequence[int], board: SignalBoard) -> None:
        """Update the index after instances have come or gone; these are among the changed ones."""
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
            if after[0] == before[0] and after[1] >= before[1] and (before[1][0] or not after[1][0]):
                continue  # the lower bound still holds, and 0 is the figure itself
            self._remove(before)
            group, entry = where[index] = after
            if group in groups:
                insort(groups[group], entry)
            else:
                groups[group] = [entry]
        self._changed.clear()

    def _place(self, index: int, board: SignalBoard) -> tuple[Group, tuple[float, int]]:
        """Return the group of an instance, and its entry there."""
        entry = (board.least_kv_utilization(index) if self._has_fine else 0.0, index)
        figures = self._figures
        if len(figures) == 1:  # the usual case, where a comprehension would cost more than everything else here
            return (figures[0](board, index),), entry
        return tuple([figure(board, index) for figure in figures]), entry

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
_LAST_AT_REST: Final = (0.0, 2**62)
"""After all entries of instances that hold no block."""
_NO_COLUMN: Final[Sequence[float]] = ()


def _sum(terms: Sequence[Term], number: int, fine: float) -> float:
    """Return the sum of an instance, given its group's number and its fine figure."""
    total = 0.0
    for share, column, score in terms:
        if column:
            total += share * column[number]
        elif column is None:
            total += share * (1.0 - fine)  # see ``KvUtilization.grades``: a call would cost more
        else:
            total += share * score
    return total


def can_rank(scorers: Sequence[Scorer]) -> bool:
    """Whether each scorer depends on one figure, or gives most instances the same score.

    A custom scorer of the fine figure is excluded, because it may grade an instance relative to all others, whose
    values are not computed. A class that overrides ``scores`` has to be asked for every instance.
    """
    return all(
        (isinstance(scorer, SparseScorer) and type(scorer).scores is SparseScorer.scores)
        or (
            isinstance(scorer, FigureScorer)
            and type(scorer).scores is FigureScorer.scores
            and (scorer.figure != _SORT_FIGURE or type(scorer) is KvUtilization)
        )
        for scorer in scorers
    )


# Scores are clamped to 0 to 1, which those of built-in scorers do not need.


def _checked_grades(scorer: FigureScorer) -> Grades:
    if is_internal_class(type(scorer)):
        return scorer.grades
    return lambda values: _require_all_scores(values, [clamp_score(score) for score in scorer.grades(values)])


def _require_all_scores(values: Sequence[float], scores: list[float]) -> list[float]:
    if len(scores) != len(values):
        raise ValueError(f"`grades` returns {len(scores)} scores for {len(values)} values")
    return scores


def _checked_sparse(scorer: SparseScorer) -> Sparse:
    return scorer.sparse if is_internal_class(type(scorer)) else lambda *args: _clamped(*scorer.sparse(*args))


def _clamped(usual: float, others: Mapping[int, float]) -> tuple[float, Mapping[int, float]]:
    return clamp_score(usual), {place: clamp_score(score) for place, score in others.items()}
