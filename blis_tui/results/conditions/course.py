"""Expectations about the course of a run, checked after every event, in the language of breakpoints.

The run is repeated for that (:func:`judged`): results do not depend on observers, and the original run keeps its speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass
from blis_tui.model import CourseExpectation, Expectation
from blis_tui.results.conditions.breakpoints import (
    Holds,
    ObservedSimulation,
    RecordMatch,
    duration_us,
    parse_breakpoint,
)
from blis_tui.results.conditions.language import ConditionError
from blis_tui.results.expectations import Verdict, holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.results.conditions.breakpoints import Condition, Known

SUBJECTS: Final = ("always", "never", "eventually", "count")
"""An expectation about the course of a run has exactly one of these keys."""
_ALLOWED_KEYS: Final = {
    "always": (),
    "never": ("after", "within"),
    "eventually": ("after", "within", "by"),
    "count": ("min", "max"),
}
"""The other keys allowed with each."""


class Run(ObservedSimulation, Protocol):
    """A simulation before its first event."""

    @property
    def done(self) -> bool:
        """Whether nothing more will happen."""

    @property
    def events(self) -> int:
        """Number of events so far."""

    @property
    def now_us(self) -> int:
        """Simulated time of the latest event, in microseconds."""

    def run(self, *, max_events: int) -> bool:
        """Process up to ``max_events`` events."""

    def subscribe(self, kind: str, callback: Callable[[Record], None]) -> Callable[[], None]:
        """Call ``callback`` with each record of a kind from now on."""


def subject_of(wish: CourseExpectation) -> str:
    """Return which of ``SUBJECTS`` it has."""
    return next(name for name in SUBJECTS if getattr(wish, name))


def text_of(wish: CourseExpectation) -> str:
    """Describe the expectation in one line, such as ``never preempted within 1s after scaled``; or what it counts."""
    subject = subject_of(wish)
    if subject == "count":
        return f"count({wish.count})"
    within = f" within {wish.within}" if wish.within else ""
    return (
        f"{subject} {getattr(wish, subject)}{within}"
        + (f" after {wish.after}" if wish.after else "")
        + (f" by {wish.by}" if wish.by else "")
    )


def problems(wish: CourseExpectation, known: Known) -> Iterator[tuple[str, str, str | None]]:
    """Iterate over errors in an expectation: key, message, and help."""
    subjects = [name for name in SUBJECTS if getattr(wish, name)]
    if len(subjects) > 1:
        names = " and ".join(f"`{name}`" for name in subjects)
        yield subjects[1], f"{names} in one entry", "make an entry of each"
        return
    subject = subjects[0]
    for name in ("after", "within", "by", "min", "max"):
        if getattr(wish, name) not in ("", None) and name not in _ALLOWED_KEYS[subject]:
            takes = " and ".join(f"`{kind}`" for kind in SUBJECTS if name in _ALLOWED_KEYS[kind])
            yield name, f"`{subject}` takes no `{name}`", f"{takes} {'do' if ' and ' in takes else 'does'}"
    if wish.within and not wish.after:
        yield "within", "`within` without `after`", "say after what, such as `after: scaled`"
    if wish.by and wish.after:
        yield "by", "`by` beside `after`", "say how long behind it: `within: 2s`"
    if subject == "count" and wish.min is None and wish.max is None:
        yield "count", "the count has no bound", "add `min` or `max`"
    for name in (subject, "after"):
        try:
            condition = parse_breakpoint(getattr(wish, name), known).condition if getattr(wish, name) else None
        except ConditionError as error:
            yield name, error.message, error.help
            continue
        if name == "always" and not (isinstance(condition, Holds) and not condition.condition.about_event):
            yield name, "`always` takes a condition on the state", "`never` takes kinds of record and what events say"


def judged(wishes: Sequence[CourseExpectation], known: Known, run: Run) -> tuple[Verdict, ...]:
    """Run a simulation to its end, and judge each expectation.

    Args:
        wishes: the expectations.
        known: the experiment that breakpoints may refer to.
        run: the simulation, before its first event.
    """
    judges = [_judge(wish, known) for wish in wishes]
    records: list[Record] = []
    for kind in sorted(frozenset[str]().union(*(judge.needs for judge in judges))):
        run.subscribe(kind, records.append)
    while not run.done:
        run.run(max_events=1)
        for judge in judges:
            judge.examine(run, records)
        records.clear()
    for judge in judges:
        judge.end(run)
    return tuple(judge.verdict() for judge in judges)


class _Occurrences:
    """Counts how often something happens in an event or holds after it."""

    def __init__(self, text: str, known: Known, *, edges: bool = False) -> None:
        self._condition: Condition = parse_breakpoint(text, known).condition
        self._probe = self._condition.probe()
        self._truth = isinstance(self._condition, Holds) and not edges
        self.needs = self._condition.needs

    def seen(self, run: Run, records: Sequence[Record]) -> tuple[int, str]:
        """Return the count and a description; a condition that stays true counts after every event."""
        condition = self._condition
        if self._truth and isinstance(condition, Holds):
            if not condition.condition.measure(run, records):
                return 0, ""
            return 1, condition.words("is true", run, records)
        description = self._probe.check(run, records)
        if not description:
            return 0, ""
        if isinstance(condition, RecordMatch) and condition.kind:
            return len([record for record in records if condition.fits(record)]), description
        return 1, description

    def describe_false(self, run: Run, records: Sequence[Record]) -> str:
        """Describe a condition that is false; empty if it is true."""
        condition = self._condition
        if isinstance(condition, Holds) and not condition.condition.measure(run, records):
            return condition.words("is false", run, records)
        return ""


@dataclass(frozen=True, slots=True)
class _Violation:
    """The first violation of an expectation."""

    event: int
    time_us: int
    why: str


class _Monitor:
    """Judges one expectation, event by event."""

    def __init__(self, wish: CourseExpectation, known: Known) -> None:
        self.wish = wish
        subject = subject_of(wish)
        self._sight = _Occurrences(getattr(wish, subject), known, edges=subject == "count")
        self._after = _Occurrences(wish.after, known) if wish.after else None
        self._within_us = duration_us(wish.within) if wish.within else None
        self.needs = self._sight.needs | (self._after.needs if self._after else frozenset())
        self.breach: _Violation | None = None

    def examine(self, run: Run, records: Sequence[Record]) -> None:
        """Examine an event."""
        raise NotImplementedError

    def end(self, run: Run) -> None:
        """Handle the end of the run."""

    def verdict(self) -> Verdict:
        """Return whether it holds, and if not, where it was first violated."""
        violation = self.breach
        return Verdict(
            metric=text_of(self.wish),
            min=None,
            max=None,
            equals=None,
            value=violation is None,
            ok=violation is None,
            event=None if violation is None else violation.event,
            time_us=None if violation is None else violation.time_us,
            why=None if violation is None else violation.why,
        )

    def _violate(self, run: Run, why: str) -> None:
        if self.breach is None:
            self.breach = _Violation(run.events, run.now_us, why)


class _Always(_Monitor):
    def examine(self, run: Run, records: Sequence[Record]) -> None:
        if self.breach is None and (why := self._sight.describe_false(run, records)):
            self._violate(run, why)


class _Never(_Monitor):
    def __init__(self, wish: CourseExpectation, known: Known) -> None:
        super().__init__(wish, known)
        self._open_us: int | None = None if wish.after else 0
        """Since when it applies."""

    def examine(self, run: Run, records: Sequence[Record]) -> None:
        count, description = self._sight.seen(run, records)
        if count and self._counts(run.now_us):
            self._violate(run, description)
        # What happens in the triggering event does not come after it.
        if self._after is not None and self._after.seen(run, records)[0]:
            self._open_us = run.now_us

    def _counts(self, now_us: int) -> bool:
        if self._open_us is None:
            return False
        return self._within_us is None or now_us - self._open_us <= self._within_us


class _Eventually(_Monitor):
    def __init__(self, wish: CourseExpectation, known: Known) -> None:
        super().__init__(wish, known)
        if wish.by:
            self._within_us = duration_us(wish.by)
        self._since_us: int | None = None if wish.after else 0
        """Since when it is awaited; None = it is not."""

    def examine(self, run: Run, records: Sequence[Record]) -> None:
        if self._since_us is not None and self._within_us is not None and run.now_us - self._since_us > self._within_us:
            self._violate(run, "it did not happen in time")
            self._since_us = None
        seen, _ = self._sight.seen(run, records)
        if seen:
            self._since_us = None
        elif self._since_us is None and self._after is not None and self._after.seen(run, records)[0]:
            self._since_us = run.now_us

    def end(self, run: Run) -> None:
        if self._since_us is not None:
            self._violate(run, "it had not happened by the end of the run")


class _Count(_Monitor):
    def __init__(self, wish: CourseExpectation, known: Known) -> None:
        super().__init__(wish, known)
        self._counted = 0

    def examine(self, run: Run, records: Sequence[Record]) -> None:
        count, description = self._sight.seen(run, records)
        self._counted += count
        if count and self.wish.max is not None and self._counted > self.wish.max:
            self._violate(run, description)

    def verdict(self) -> Verdict:
        wish, violation = self.wish, self.breach
        bounds = Expectation(metric=text_of(wish), min=wish.min, max=wish.max)
        return Verdict(
            metric=bounds.metric,
            min=bounds.min,
            max=bounds.max,
            equals=None,
            value=self._counted,
            ok=holds(bounds, self._counted),
            event=None if violation is None else violation.event,
            time_us=None if violation is None else violation.time_us,
            why=None if violation is None else violation.why,
        )


_MONITORS: Final = {"always": _Always, "never": _Never, "eventually": _Eventually, "count": _Count}


def _judge(wish: CourseExpectation, known: Known) -> _Monitor:
    return _MONITORS[subject_of(wish)](wish, known)
