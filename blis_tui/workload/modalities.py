"""Images, audio and video in prompts: how many tokens they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.workload.lengths import LENGTHS

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Modality, Multimodal
    from blis_tui.workload.lengths import TokenCounts


class MediaDraws:
    """What prompts of a client have beside text.

    Args:
        mix: which modalities, how often, and how many tokens an item takes.
        plugins: what the names of distributions may refer to.

    Raises:
        PolicyError: a distribution cannot be built.
    """

    __slots__ = ("_items",)

    def __init__(self, mix: Multimodal, plugins: Registry) -> None:
        self._items = [_Items(one, plugins) for one in (mix.images, mix.audio, mix.video)]

    def draw(self, stream: Stream) -> Media:
        """The tokens of the next prompt's; each modality that the client has takes at least one number."""
        found = Media(*(one.draw(stream) for one in self._items))
        return found if any(found) else NO_MEDIA


class _Items:
    """One modality."""

    __slots__ = ("_counts", "_probability", "_tokens")

    def __init__(self, modality: Modality | None, plugins: Registry) -> None:
        self._probability = 0.0 if modality is None else modality.probability
        self._counts: TokenCounts | None = None
        self._tokens: TokenCounts | None = None
        if modality is not None:
            self._counts = plugins.create(LENGTHS, modality.count.kind, modality.count.settings)
            self._tokens = plugins.create(LENGTHS, modality.tokens.kind, modality.tokens.settings)

    def draw(self, stream: Stream) -> int:
        if self._counts is None or self._tokens is None or stream.uniform() >= self._probability:
            return 0
        total = 0
        for _ in range(self._counts.sample(stream)):
            total += self._tokens.sample(stream)
        return total
