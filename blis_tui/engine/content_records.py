"""What requests consist of beside plain text: media in the prompt, reasoning before the answer."""

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
        meaning="a request was done with reasoning, and got the first token of its answer",
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
    """The prompt of a request that arrived has tokens that are no text."""

    shown = Description(
        "prompt-media",
        sign="▤",
        meaning="a request arrived whose prompt has images, sound or video",
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
