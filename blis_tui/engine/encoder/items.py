"""The media of a prompt, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.request import MediaItem, declared_segments

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


def items_of(request: Request) -> tuple[MediaItem, ...]:
    """The media of a prompt, by their place in it.

    Where the workload says only how many tokens they take, as traces do, each modality is one item, and they stand
    behind the shared head of the prompt, before its text; at its beginning where they do not fit there. Such an item is
    the same as another one if it takes the same part of the same segment.
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
    """So many tokens at a place of a prompt, as a name: others that have the same segment there have them, too."""
    start = 0
    for name, tokens in declared_segments(request):
        if place < start + tokens:
            return f"{name}@{place - start}+{length}"
        start += tokens
    return f"{request.request_id}@{place}+{length}"
