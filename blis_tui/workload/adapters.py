"""Which LoRA adapter a request asks for."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import AdapterMix


class AdapterDraws:
    """The adapters of a client, one request (or session) after the other.

    Args:
        mix: what there is to choose from.
        stream: a stream of its own, of which each draw takes one number.
    """

    __slots__ = ("_bounds", "_names", "_stream")

    def __init__(self, mix: AdapterMix, stream: Stream) -> None:
        self._names = mix.names
        self._bounds = list(accumulate(mix.weights))
        self._stream = stream

    def draw(self) -> str:
        """The next one."""
        place = bisect_right(self._bounds, self._stream.uniform() * self._bounds[-1])
        return self._names[min(place, len(self._names) - 1)]

    def state(self) -> tuple[object, ...]:
        """Where its stream stands."""
        return self._stream.state()
