"""What reports say of the encoder of media, where steps schedule it."""

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
    """Tokens of media that were encoded; those of a preempted request may be encoded again."""
    cached_tokens: int
    """Tokens of media that were in the encoder's cache when a prompt came to them."""
    hit_rate: float
    """The share (0 to 1) of media tokens that were in the cache: cached, divided by encoded and cached."""
    evicted_items: int
    """Number of items that left the cache to make room for others."""
    holds: int
    """How often a prompt was computed only up to an item, or not at all, because the encoder could not take that."""
    held_us: int
    """Microseconds until these prompts went on, added up."""


def encoder_report(instances: Sequence[Instance]) -> EncoderReport | None:
    """The figures of these instances; None = none of them schedules an encoder."""
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
