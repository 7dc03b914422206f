"""Records about content other than plain text: media in prompts and their encoder, and reasoning before the answer."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.adapters.records import AdapterReady as _AdapterReady  # noqa: F401  (fixes the order of kinds)
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class AnswerBegun(Record):
    """A request with reasoning got the first token of the answer itself; ``ttfat_us`` is what its client measures."""

    shown = Description(
        "answer-begun",
        sign="A",
        colour="success",
        meaning="a request finished reasoning and got the first token of its answer",
        sentence="{request_id} began its answer after {ttfat_us:ms}, behind {reasoning_tokens:reasoning token}",
        figures=("first_answer_us", "ttfat_us"),
        own_event=False,
        result=True,
        change="the first token of its answer",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    first_answer_us: int
    """When the first token after its reasoning was generated, at the engine."""
    ttfat_us: int
    """Time from arrival to that token, as the client sees it."""
    reasoning_tokens: int
    """Tokens generated before it, all of them reasoning."""


@dataclass(frozen=True, slots=True)
class PromptMedia(Record):
    """The prompt of a request that arrived has tokens that are not text."""

    shown = Description(
        "prompt-media",
        sign="▤",
        meaning="a request arrived whose prompt has images, audio or video",
        sentence=(
            "the prompt of {request_id} has {image_tokens:image token}, {audio_tokens:audio token} and"
            " {video_tokens:video token}"
        ),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    image_tokens: int
    """Prompt tokens that stand for images."""
    audio_tokens: int
    """Prompt tokens that stand for audio."""
    video_tokens: int
    """Prompt tokens that stand for video."""


@dataclass(frozen=True, slots=True)
class MediaHeld(Record):
    """A prompt was computed only up to a media item, or not at all, because the encoder could not take the item.

    ``reason`` is ``budget``: the encoder's remaining budget for the step is too small; ``cache``: the encoder cache
    has too little room that no request needs; or ``whole``: the step does not reach the item's end, and the item's
    tokens may not be computed in parts. Each wait has one such record.
    """

    shown = Description(
        "media-held",
        sign="◪",
        colour="warning",
        meaning="a prompt is waiting for the encoder of images, audio or video",
        sentence="{request_id} waits for the encoder ({reason}): {tokens:token} needed, {had:,} left",
        line="waits for the encoder, {reason}",
        brief="encoder",
        figures=("tokens", "had"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    reason: str
    """``budget``, ``cache`` or ``whole``."""
    tokens: int
    """Tokens of the item that the encoder could not take."""
    had: int
    """Tokens left in the budget or in the cache; for ``whole``, tokens that the step could compute."""


@dataclass(frozen=True, slots=True)
class MediaEncoded(Record):
    """A step computed media of a prompt: some items were encoded for it, others were in the encoder's cache."""

    shown = Description(
        "media-encoded",
        sign="◧",
        colour="accent",
        meaning="a step encoded images, audio or video of a prompt, or found them in the encoder's cache",
        sentence="{encoded_tokens:media token} of {request_id} are encoded, {cached_tokens:,} are in the cache",
        line="{encoded_tokens:media token} are encoded, {cached_tokens:,} are in the cache",
        brief="{encoded_tokens:,}",
        figures=("encoded_tokens", "cached_tokens"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    encoded_tokens: int
    """Media tokens that were encoded for it in this step."""
    cached_tokens: int
    """Media tokens that were already in the encoder's cache when the prompt reached them."""
