"""Images, audio and video in prompts with their tokens, and the LoRA adapters that requests ask for."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import NO_MEDIA, Media, MediaItem
from blis_tui.workload.distributions import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.base.streams import Stream
    from blis_tui.engine.request import Request
    from blis_tui.model import AdapterMix, Modality, Multimodal
    from blis_tui.model.plug_ins import Registry
    from blis_tui.workload.distributions import TokenCounts


class AdapterDraws:
    """Draws a client's adapters, one per request (or session).

    Args:
        mix: the adapters to choose from.
        stream: a stream of its own; each draw takes one number.
    """

    def __init__(self, mix: AdapterMix, stream: Stream) -> None:
        self._names = mix.names
        self._bounds = list(accumulate(mix.weights))
        self._stream = stream

    def draw(self) -> str:
        """Draw the next adapter."""
        place = bisect_right(self._bounds, self._stream.uniform() * self._bounds[-1])
        return self._names[min(place, len(self._names) - 1)]

    def state(self) -> tuple[object, ...]:
        """Return its stream's position."""
        return self._stream.state()


class DrawnItem(NamedTuple):
    """An image, a piece of audio or a video."""

    tokens: int
    content: str
    """Content name; empty = unique, except that repeated prompts share it."""


class DrawnMedia(NamedTuple):
    """The media of a prompt."""

    media: Media
    items: tuple[DrawnItem, ...]
    """The items in order; they precede the prompt's text."""


MAX_ITEMS: Final = 10_000
"""Maximum number of items of one kind in a prompt."""
NOTHING_DRAWN: Final = DrawnMedia(NO_MEDIA, ())


def placed(request: Request, drawn: Iterable[DrawnItem], place: int) -> tuple[MediaItem, ...]:
    """Return the items of a prompt, one after the other from position ``place`` on."""
    from blis_tui.engine.options.encoder import content_at  # noqa: PLC0415  (most workloads have none)

    items: list[MediaItem] = []
    for tokens, content in drawn:
        items.append(MediaItem(place, tokens, content or content_at(request, place, tokens)))
        place += tokens
    return tuple(items)


class MediaDraws:
    """Draws the media of a client's prompts.

    Args:
        client: its name.
        mix: the modalities, how often they occur, and how many tokens an item takes.
        plugins: where distributions are looked up.

    Raises:
        PolicyError: a distribution cannot be built.
    """

    def __init__(self, client: str, mix: Multimodal, plugins: Registry) -> None:
        kinds = {"image": mix.images, "audio": mix.audio, "video": mix.video}
        self._items = [_Items(f"{client}/{name}", kind, plugins) for name, kind in kinds.items()]

    def draw(self, stream: Stream) -> DrawnMedia:
        """Draw the media of the next prompt; each of the client's modalities takes at least one number.

        Raises:
            PolicyError: it has more items than any prompt may have.
        """
        drawn: list[DrawnItem] = []
        counts: list[int] = []
        for source in self._items:
            items = source.draw(stream)
            tokens = whole_sum([item.tokens for item in items])
            counts.append(tokens)
            drawn += items
        return DrawnMedia(Media(*counts), tuple(drawn)) if drawn else NOTHING_DRAWN


class _Items:
    """Draws the items of one modality."""

    def __init__(self, name: str, modality: Modality | None, plugins: Registry) -> None:
        self._name = name
        self._distinct = 0 if modality is None else modality.distinct
        self._known: dict[int, int] = {}
        """Number of a repeated item -> its tokens."""
        self._probability = 0.0 if modality is None else modality.probability
        self._counts: TokenCounts | None = None
        self._tokens: TokenCounts | None = None
        if modality is not None:
            self._counts = plugins.create(LENGTHS, modality.count.kind, modality.count.settings)
            self._tokens = plugins.create(LENGTHS, modality.tokens.kind, modality.tokens.settings)

    def draw(self, stream: Stream) -> list[DrawnItem]:
        if self._counts is None or self._tokens is None or stream.uniform() >= self._probability:
            return []
        count = self._counts.sample(stream)
        if count > MAX_ITEMS:
            raise PolicyError(
                f"a prompt has {count:,} items of {self._name}", help=f"{MAX_ITEMS:,} are the most: give `count` a max"
            )
        return [self._draw_item(self._tokens, stream) for _ in range(count)]

    def _draw_item(self, tokens: TokenCounts, stream: Stream) -> DrawnItem:
        if not self._distinct:
            return DrawnItem(tokens.sample(stream), "")
        number = stream.below(self._distinct)
        if number not in self._known:
            self._known[number] = tokens.sample(stream)
        return DrawnItem(self._known[number], f"{self._name}-{number}")
