"""What is told of the encoder."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.content_records import PromptMedia as _PromptMedia  # noqa: F401  (kinds come in that order)
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class MediaHeld(Record):
    """A prompt was computed only up to an item of its media, or not at all, because the encoder could not take that.

    ``reason`` is ``budget``: the rest of what the encoder may take in a step is too little; ``cache``: so is the room
    in its cache that no request needs; or ``whole``: the step does not reach the item's end, and its tokens may not be
    computed in parts. It is told once for each wait.
    """

    shown = Description(
        "media-held",
        sign="◪",
        colour="warning",
        meaning="a prompt waits for the encoder of images, sound or video",
        sentence="{request_id} waits for the encoder ({reason}): {tokens:token} needed, {had:,} left",
        line="waits for the encoder, {reason}",
        brief="encoder",
        figures=("tokens", "had"),
        own_event=False,
    )

    request_id: str
    instance: int
    reason: str
    tokens: int
    """Of the item."""
    had: int
    """Tokens left, of the budget or in the cache; of ``whole``, tokens that the step could compute."""


@dataclass(frozen=True, slots=True)
class MediaEncoded(Record):
    """A step computed media of a prompt: what was encoded for it, and what was in the encoder's cache."""

    shown = Description(
        "media-encoded",
        sign="◧",
        colour="accent",
        meaning="a step encoded images, sound or video of a prompt, or had them in the encoder's cache",
        sentence="{encoded_tokens:media token} of {request_id} are encoded, {cached_tokens:,} are in the cache",
        line="{encoded_tokens:media token} are encoded, {cached_tokens:,} are in the cache",
        brief="{encoded_tokens:,}",
        figures=("encoded_tokens", "cached_tokens"),
        own_event=False,
    )

    request_id: str
    instance: int
    encoded_tokens: int
    cached_tokens: int
