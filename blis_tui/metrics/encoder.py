"""The report's section on the media encoder, for runs whose steps schedule it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderReport:
    """The encoders of all instances together."""

    encoded_tokens: int
    """Media tokens that were encoded; those of a preempted request may be encoded again."""
    cached_tokens: int
    """Media tokens found in the encoder's cache when the prompt reached them."""
    hit_rate: float
    """The share (0 to 1) of media tokens found in the cache: cached, divided by encoded plus cached."""
    evicted_items: int
    """Media items evicted from the cache to make room for others."""
    holds: int
    """How often a prompt was computed only up to a media item, or not at all, because the encoder had no capacity for
    it."""
    held_us: int
    """The sum of the times until these prompts continued, in microseconds."""


def encoder_report(instances: Sequence[Instance]) -> EncoderReport | None:
    """Return the encoder figures of these instances; None if none of them schedules an encoder."""
    found = [one.batch.encoder.books() for one in instances if one.batch.encoder is not None]
    if not found:
        return None
    totals = [0] * len(found[0])
    for books in found:
        for place, count in enumerate(books):
            totals[place] += count
    encoded, cached, evicted, holds, held_us = totals
    return EncoderReport(
        encoded_tokens=encoded,
        cached_tokens=cached,
        hit_rate=cached / (encoded + cached) if cached else 0.0,
        evicted_items=evicted,
        holds=holds,
        held_us=held_us,
    )
