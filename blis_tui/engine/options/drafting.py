"""What drafts add to a step: drafting time and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.plan import StepPart
from blis_tui.engine.records import DraftDone, DraftsVerified

if TYPE_CHECKING:
    from blis_tui.engine.options.draft_cohort import SpeculativeCohort
    from blis_tui.engine.plan import Done, Plan
    from blis_tui.engine.records import Observers


class Drafting(StepPart):
    """The drafts of one instance.

    Args:
        index: of the instance.
        cohort: the requests that verify the drafts.
        drafting_us: time of drafting, in a step with any drafts.
        observers: receive its records.
    """

    def __init__(self, index: int, cohort: SpeculativeCohort, drafting_us: int, observers: Observers) -> None:
        self._index = index
        self._cohort = cohort
        self._drafting_us = drafting_us
        self._observers = observers

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (does not depend on time)
        """Return the step's duration including drafting."""
        cohort = self._cohort
        cohort.noting = DraftsVerified in self._observers.kinds
        cohort.latest = []
        drafts = any(cohort.drafts.values()) or any(ghost.tokens > 1 for ghost in plan.ghosts)
        return duration_us + self._drafting_us if drafts else duration_us

    def tell(self, done: Done) -> None:
        """Emit the outcome of the drafts."""
        cohort, observers = self._cohort, self._observers
        if not cohort.latest:
            return
        verified = tuple(DraftDone(*row[1:]) for row in sorted(cohort.latest))
        drafted = whole_sum([draft.draft_tokens for draft in verified])
        accepted = whole_sum([draft.accepted_tokens for draft in verified])
        gained = whole_sum([draft.output_tokens for draft in verified])
        observers.emit(DraftsVerified(observers.event, done.start_us, self._index, drafted, accepted, gained, verified))
