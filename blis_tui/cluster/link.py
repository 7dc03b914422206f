"""The link over which KV blocks move from prefill to decode instances."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.cluster.stages import Transfers

if TYPE_CHECKING:
    from blis_tui.spec.model import Transfer

_BYTES_PER_US_OF_GB_PER_S: Final = 1000.0


class OverlappedStep(NamedTuple):
    """The last step of a prefill, during which the KV blocks of all layers but the last are sent."""

    step_us: int
    layers: int

    def bytes(self, size: int, bytes_per_us: float, base_latency_us: int) -> int:
        """Bytes sent during the step: all layers take equally long, and the last one's follow the step."""
        gone = int(max(0, self.step_us - base_latency_us) * bytes_per_us)
        return min(size, gone) * (self.layers - 1) // self.layers


class Link(Transfers):
    """Transfers over a link, and their durations.

    A transfer takes ``base latency + bytes / bandwidth``, rounded up, at least a microsecond. Under ``fair-share``, all
    transfers whose base latency is over share the bandwidth equally at any time, so the end of each moves whenever
    another one starts or ends.
    """

    def __init__(self, settings: Transfer) -> None:
        super().__init__()
        self._settings = settings
        self._bandwidth = settings.bandwidth_gb_per_s * _BYTES_PER_US_OF_GB_PER_S
        self._left: dict[int, float] = {}
        """Under fair share: remaining bytes by request, in the order in which the transfers started."""
        self._moves_us: dict[int, int] = {}
        """When their base latency is over."""
        self._earliest_us: dict[int, int] = {}
        """Earliest possible end: a transfer takes at least a microsecond."""
        self._since_us = 0

    def start(self, request: int, size: int, now: int, ahead: OverlappedStep | None = None) -> int | None:
        """Start a transfer; return its duration, or None if that depends on others.

        Args:
            request: index of the request.
            size: its bytes.
            now: the time.
            ahead: what is sent in advance, layer by layer; None = nothing.
        """
        self.active += 1
        self.peak = max(self.peak, self.active)
        self.started += 1
        self.bytes += size
        settings = self._settings
        bandwidth, latency_us = self._bandwidth, settings.base_latency_us
        share = bandwidth / self.active if settings.contention != "none" else bandwidth
        amount = float(size)
        if ahead is not None:
            amount -= ahead.bytes(size, share, latency_us)
            latency_us = max(0, latency_us - ahead.step_us)
        if settings.contention == "fair-share":
            self._advance(now)
            self._left[request] = amount
            self._moves_us[request] = now + latency_us
            self._earliest_us[request] = now + 1
            return None
        return max(1, ceil(latency_us + amount / share))

    def end(self, request: int, now: int) -> None:
        """Finish a transfer."""
        self.active -= 1
        if self._left:
            self._advance(now)
            del self._left[request], self._moves_us[request], self._earliest_us[request]

    def next_end(self, now: int) -> tuple[int, int] | None:
        """Under fair share, return the request whose transfer ends first if nothing changes, and when.

        Among equals, the transfer that started first.
        """
        self._advance(now)
        left, at = dict(self._left), now
        while left:
            moving, until = self._moving(left, at)
            if moving:
                us_per_byte = len(moving) / self._bandwidth
                rest_us = ceil(min(left[one] for one in moving) * us_per_byte - _ROUNDING_US)
                if until is None or at + rest_us <= until:
                    through = next(one for one in moving if left[one] * us_per_byte <= rest_us + _ROUNDING_US)
                    return through, max(at + rest_us, self._earliest_us[through])
            if until is None:
                break  # only if all transfers have nothing left
            at = self._send(left, moving, at, until)
        return None

    def state(self) -> tuple[object, ...]:
        """Return the transfers in flight as plain values (for digests)."""
        left, moves = tuple(self._left.items()), tuple(self._moves_us.values())
        return (self.active, self.peak, self.started, self.bytes, self._since_us, left, moves)

    def _advance(self, now: int) -> None:
        at = self._since_us
        while at < now and self._left:
            moving, until = self._moving(self._left, at)
            at = self._send(self._left, moving, at, now if until is None else min(until, now))
        self._since_us = now

    def _moving(self, left: dict[int, float], at: int) -> tuple[list[int], int | None]:
        """Return the requests whose base latency is over, and when that of another one will be."""
        later = [self._moves_us[one] for one in left if self._moves_us[one] > at]
        return [one for one in left if self._moves_us[one] <= at], min(later, default=None)

    def _send(self, left: dict[int, float], moving: list[int], at: int, until: int) -> int:
        """Send equal shares from ``at`` to ``until``, while the set of transfers stays the same; return ``until``."""
        for one in moving:
            left[one] = max(0.0, left[one] - (until - at) * self._bandwidth / len(moving))
        return until


_ROUNDING_US: Final = 1e-6
"""Rounding error that may be left of a finished transfer."""
