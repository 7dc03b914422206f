"""The LoRA adapters that requests ask for."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import AdapterMix


class AdapterDraws:
    """Draws a client's adapters, one per request (or session).

    Args:
        mix: the adapters to choose from.
        stream: a stream of its own; each draw takes one number.
    """

    __slots__ = ("_bounds", "_names", "_stream")

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
