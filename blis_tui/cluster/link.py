"""The link over which KV blocks go from prefill to decode instances."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from blis_tui.spec.model import Transfer

_BYTES_PER_US_OF_GB_PER_S: Final = 1000.0


class Link:
    """Transfers under way, and how long they take.

    A transfer takes ``base latency + bytes / bandwidth``, rounded up, at least a microsecond. Under ``fair-share`` all
    transfers whose base latency is over share the bandwidth equally at any time, so the end of each moves whenever
    another one starts or ends.

    Attributes:
        active: transfers under way.
        peak: the most there have been at a time.
        started: how many there have been.
        bytes: what they transfer together.
    """

    def __init__(self, settings: Transfer) -> None:
        self._settings = settings
        self._bandwidth = settings.bandwidth_gb_per_s * _BYTES_PER_US_OF_GB_PER_S
        self.active = 0
        self.peak = 0
        self.started = 0
        self.bytes = 0
        self._left: dict[int, float] = {}
        """Under fair share: bytes still to come, the base latency counted as bytes of a lone transfer; by request."""
        self._since_us = 0

    def amount(self, tokens: int, block_size_tokens: int) -> int:
        """The bytes of a prompt: whole blocks, cached ones included."""
        return -(-tokens // block_size_tokens) * block_size_tokens * self._settings.bytes_per_token

    def start(self, request: int, tokens: int, block_size_tokens: int, now: int) -> int | None:
        """A transfer begins; returns how long it takes, None where that depends on the others."""
        self.active += 1
        self.peak = max(self.peak, self.active)
        self.started += 1
        size = self.amount(tokens, block_size_tokens)
        self.bytes += size
        amount = float(size)
        contention = self._settings.contention
        if contention == "fair-share":
            self._advance(now)
            self._left[request] = amount + self._settings.base_latency_us * self._bandwidth
            return None
        bandwidth = self._bandwidth / self.active if contention == "fixed-at-start" else self._bandwidth
        return max(1, ceil(self._settings.base_latency_us + amount / bandwidth))

    def end(self, request: int, now: int) -> None:
        """A transfer is over."""
        self.active -= 1
        if self._left:
            self._advance(now)
            del self._left[request]

    def next_end(self, now: int) -> tuple[int, int] | None:
        """Under fair share: who is through first if nothing changes, and when."""
        if not self._left:
            return None
        self._advance(now)
        request = min(self._left, key=lambda one: (self._left[one], one))
        rest = self._left[request] * len(self._left) / self._bandwidth
        return request, now + max(0, ceil(rest - _ROUNDING_US))

    def state(self) -> tuple[object, ...]:
        """What is under way, as plain values (for digests)."""
        return (self.active, self.peak, self.started, self.bytes, self._since_us, tuple(self._left.items()))

    def _advance(self, now: int) -> None:
        if self._left:
            sent = (now - self._since_us) * self._bandwidth / len(self._left)
            for request in self._left:
                self._left[request] = max(0.0, self._left[request] - sent)
        self._since_us = now


_ROUNDING_US: Final = 1e-6
"""What rounding may leave of a transfer that is through."""
