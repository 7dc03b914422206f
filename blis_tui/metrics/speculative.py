"""What reports say of speculative decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.speculative.draft_tallies import DraftTallies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeReport:
    """Drafts and what became of them, on all instances together, in vLLM's terms."""

    num_drafts: int
    """Drafts that were verified: one for each request and step with any drafted token."""
    num_draft_tokens: int
    """Tokens of all these drafts, accepted or not."""
    num_accepted_tokens: int
    """Draft tokens that were accepted, those beyond the end of an answer among them; the bonus token behind each draft
    does not count."""
    draft_acceptance_rate: float
    """``num_accepted_tokens / num_draft_tokens``, from 0 to 1."""
    mean_acceptance_length: float
    """Tokens that a draft brings: 1 (the bonus token) + ``num_accepted_tokens / num_drafts``; 0 where there were no
    drafts."""
    acceptance_rates: tuple[float, ...]
    """By position in the draft: drafts of which that token was accepted, as a share (0 to 1) of ``num_drafts``."""
    tokens_per_step: float
    """Output tokens that a request gained per decode step, steps without a draft included; at an answer's end, and
    where a draft was cut short, fewer than ``mean_acceptance_length``."""


def speculative_report(instances: Sequence[Instance]) -> SpeculativeReport | None:
    """The figures of these instances; None where none speculates."""
    found = [one.batch.speculative.tallies for one in instances if one.batch.speculative is not None]
    if not found:
        return None
    total = DraftTallies(accepted_runs=[0] * max(len(one.accepted_runs) for one in found))
    for one in found:
        total.add(one)
    drafts = total.num_drafts
    positions = [total.accepted_at(position) for position in range(1, len(total.accepted_runs))]
    return SpeculativeReport(
        num_drafts=drafts,
        num_draft_tokens=total.num_draft_tokens,
        num_accepted_tokens=total.num_accepted_tokens,
        draft_acceptance_rate=total.num_accepted_tokens / total.num_draft_tokens if drafts else 0.0,
        mean_acceptance_length=1.0 + total.num_accepted_tokens / drafts if drafts else 0.0,
        acceptance_rates=tuple(count / drafts if drafts else 0.0 for count in positions),
        tokens_per_step=total.output_tokens / total.decodes if total.decodes else 0.0,
    )
