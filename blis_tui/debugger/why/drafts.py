"""What became of drafted tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.debugger.why.explanation import Part, request_ref, say
from blis_tui.engine.speculative.records import DraftsVerified
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Record

_TOLD: Final = 8
"""Requests of a step that are told one by one."""


def drafts_of(records: Sequence[Record]) -> DraftsVerified | None:
    """What an event verified; None where it verified nothing."""
    return next((one for one in records if isinstance(one, DraftsVerified)), None)


def drafts_part(records: Sequence[Record]) -> Part:
    """What was accepted of the drafts of a step, request by request."""
    found = drafts_of(records)
    if found is None or not found.draft_tokens:
        return Part("Drafts", ())
    accepted = f"{found.accepted_tokens:,} of {plural(found.draft_tokens, 'drafted token')} accepted"
    facts = [say(f"{accepted}; the answers gained {plural(found.output_tokens, 'token')}.")]
    for one in found.verified[:_TOLD]:
        gained = plural(one.output_tokens, "token")
        text = f": {one.accepted_tokens:,} of {one.draft_tokens:,} accepted, {gained} more."
        facts.append(say(request_ref(one.request_id), text))
    left = len(found.verified) - _TOLD
    if left > 0:
        facts.append(say(f"And {plural(left, 'more request')}."))
    return Part("Drafts", tuple(facts))
