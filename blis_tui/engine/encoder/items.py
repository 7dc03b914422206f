"""The media of a prompt, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.request import MediaItem, declared_segments

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


def items_of(request: Request) -> tuple[MediaItem, ...]:
    """Return the media items of a prompt, by position.

    If the workload gives only token counts, as traces do, each modality is one item. The items follow the shared head
    of the prompt, before its text, or start the prompt if they do not fit there. Such an item equals another one if it
    covers the same part of the same segment.
    """
    media = request.media
    if not request.media_items and media.tokens:
        head = 0
        for _, tokens in declared_segments(request):
            head += tokens
        place = head if head + media.tokens <= request.input_tokens else 0
        items: list[MediaItem] = []
        for tokens in media:
            if tokens:
                items.append(MediaItem(place, tokens, content_at(request, place, tokens)))
                place += tokens
        request.media_items = tuple(items)
    return request.media_items


def content_at(request: Request, place: int, length: int) -> str:
    """Name the content of ``length`` tokens at a position; prompts with the same segment there get the same name."""
    start = 0
    for name, tokens in declared_segments(request):
        if place < start + tokens:
            return f"{name}@{place - start}+{length}"
        start += tokens
    return f"{request.request_id}@{place}+{length}"
