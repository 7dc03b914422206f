"""``weighted`` routing: scorers, each with its weight, decide together.

It finds the instance with the highest weighted score without looking at all of them: see ``Ranking``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.cluster.policies.routing import pick
from blis_tui.cluster.policies.scoring import FigureScorer, SparseScorer
from blis_tui.cluster.policy import ROUTING, SCORING, Forgetful, Scorer
from blis_tui.cluster.signals import FIGURES
from blis_tui.errors import PolicyError
from blis_tui.registry import nested

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest, SignalBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSettings:
    """Of weighted routing."""

    scorers: tuple[tuple[str, Scorer], ...] = nested(
        "The scorers and their weights; without it, those of llm-d.",
        SCORING,
        "#/$defs/scorers",
        default=(
            {"kind": "precise-prefix-cache", "weight": 2.0},
            {"kind": "queue-depth", "weight": 1.0},
            {"kind": "kv-utilization", "weight": 1.0},
        ),
    )


@ROUTING.plugin("weighted", "The instance with the highest weighted sum of scores.", WeightedSettings)
class Weighted:
    """The highest sum of weight / all weights x score, added up in the order of the scorers; ties are drawn.

    Attributes:
        shares: weight / all weights, of each scorer.
    """

    rule = "Weighted routing takes the instance with the highest weighted sum of scores."

    def __init__(self, settings: WeightedSettings) -> None:
        self._names = [name for name, _ in settings.scorers]
        self._scorers = [scorer for _, scorer in settings.scorers]
        if not settings.scorers:
            raise PolicyError("`weighted` routing needs at least one scorer")
        total = 0.0
        for scorer in self._scorers:
            total += scorer.weight
        self.shares = [scorer.weight / total for scorer in self._scorers]
        self._ranking: Ranking | None = None
        self._can_rank = can_rank(self._scorers)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ranking": None}  # it is an index, made anew when it is needed

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The best place, and its score."""
        if self._can_rank:
            if self._ranking is None:
                self._ranking = Ranking(self._scorers, self.shares, fleet)
            best, indices = self._ranking.best(request, fleet)
            place = fleet.place(pick(indices, context))
        else:
            sums = self.sums(request, fleet)
            best = max(sums)
            place = pick([at for at, total in enumerate(sums) if total == best], context)
        for scorer in self._scorers:
            scorer.routed(request, fleet, place)
        return place, f"score {best:.6f}"

    def sums(self, request: IncomingRequest, fleet: Fleet) -> list[float]:
        """The weighted sum of each place; scores are cut to 0 to 1."""
        sums = [0.0] * len(fleet)
        for share, scorer in zip(self.shares, self._scorers, strict=True):
            scores = scorer.scores(request, fleet)
            sums = [
                total + share * (0.0 if score < 0.0 else min(score, 1.0))
                for total, score in zip(sums, scores, strict=True)
            ]
        return sums

    def explain(self, request: IncomingRequest, fleet: Fleet) -> tuple[tuple[str, list[float]], ...]:
        """Every scorer's name and its scores by place, before weights; it changes nothing."""
        found = (list(scorer.scores(request, fleet)) for scorer in self._scorers)
        return tuple(zip(self._names, found, strict=True))

    def forget(self, instance: int) -> None:
        """The instance has gone with its cache."""
        for scorer in self._scorers:
            if isinstance(scorer, Forgetful):
                scorer.forget(instance)

    def state(self) -> tuple[object, ...]:
        """What the scorers remember."""
        return tuple(scorer.state() for scorer in self._scorers)


_FINE: Final = "kv_utilization"
"""The figure that sorts a group."""

Group = tuple[float, ...]
"""The figures that its instances have in common."""


class Ranking:
    """The instances of a fleet in groups of equal figures.

    Instances with equal figures have equal scores. So they stand in groups of equal figures, kept up to date as figures
    change, and a decision looks at one of each group; within a group they are sorted by the one figure that is nearly
    always different (KV utilization), of which the smallest is the best. Scores that single instances have for
    themselves (of prefixes) are added for these alone.

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
        columns: list[Sequence[float] | None] = []
        usual: list[float] = []
        special: list[Mapping[int, float]] = []
        odd: dict[int, int] = {}
        """The places of those instances that have scores for themselves."""
        at = 0
        for scorer, _ in self._parts:
            column: Sequence[float] | None = None
            constant, others = 0.0, _NONE
            if isinstance(scorer, FigureScorer):
                if scorer.figure != _FINE:
                    column = scorer.grades([group[at] for group in groups])
                    at += 1
            elif isinstance(scorer, SparseScorer):
                constant, others = scorer.sparse(request, fleet)
                for place in others:
                    odd[members[place]] = place
            columns.append(column)
            usual.append(constant)
            special.append(others)
        highest = -1.0
        ties: list[int] = []
        for number, group in enumerate(groups):
            entries = self._groups[group]
            plain = entries if not odd else [entry for entry in entries if entry[1] not in odd]
            if not plain:
                continue
            total = self._sum(number, plain[0][0], columns, usual)
            if total < highest:
                continue
            if total > highest:
                highest, ties = total, []
            for fine, index in plain:
                if fine != plain[0][0] and self._sum(number, fine, columns, usual) != total:
                    break
                ties.append(index)
        if odd:
            numbers = {group: number for number, group in enumerate(groups)}
            for index, place in odd.items():
                group, (fine, _) = self._where[index]
                own = [others.get(place, one) for one, others in zip(usual, special, strict=True)]
                total = self._sum(numbers[group], fine, columns, own)
                if total > highest:
                    highest, ties = total, []
                if total == highest:
                    ties.append(index)
        ties.sort()
        return highest, ties

    def _sum(
        self, number: int, fine: float, columns: Sequence[Sequence[float] | None], constants: Sequence[float]
    ) -> float:
        total = 0.0
        for (scorer, share), column, constant in zip(self._parts, columns, constants, strict=True):
            if column is not None:
                score = column[number]
            elif isinstance(scorer, FigureScorer):
                score = scorer.grades((fine,))[0]
            else:
                score = constant
            total += share * score
        return total

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
        entry = (FIGURES[_FINE](board, index) if self._has_fine else 0.0, index)
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


def can_rank(scorers: Sequence[Scorer]) -> bool:
    """Whether all scorers look at one figure each, or say the same about most instances."""
    return all(isinstance(one, FigureScorer | SparseScorer) for one in scorers)
