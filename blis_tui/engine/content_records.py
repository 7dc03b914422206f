"""What requests consist of beside plain text: media in the prompt, and their encoder; reasoning before the answer."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.adapters.records import AdapterReady as _AdapterReady  # noqa: F401  (kinds come in that order)
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class AnswerBegun(Record):
    """A request that reasons got the first token of the answer itself; ``ttfat_us`` is what its client measures."""

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
    """When the first token behind its reasoning was generated, at the engine."""
    ttfat_us: int
    """Time from arrival to that token, as the client sees it."""
    reasoning_tokens: int
    """Tokens that it got before, all of them reasoning."""


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
    """A prompt was computed only up to an item of its media, or not at all, because the encoder could not take that.

    ``reason`` is ``budget``: the rest of what the encoder may take in a step is too little; ``cache``: so is the room
    in its cache that no request needs; or ``whole``: the step does not reach the item's end, and its tokens may not be
    computed in parts. It is told once for each wait.
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
    """Tokens left, of the budget or in the cache; of ``whole``, tokens that the step could compute."""


@dataclass(frozen=True, slots=True)
class MediaEncoded(Record):
    """A step computed media of a prompt: what was encoded for it, and what was in the encoder's cache."""

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
    """Tokens of media that were encoded for it in this step."""
    cached_tokens: int
    """Tokens of media that the encoder's cache had when the prompt came to them."""
