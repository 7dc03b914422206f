"""Disaggregation, written as plainly as possible: which requests are split, and how long KV transfers take."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

from tests.builders import number_of

from .control import Memory

if TYPE_CHECKING:
    from blis_tui.model import PluginConfig, Transfer

    from .control import Board
    from .instance import Job

_MEMORY_BLOCKS = 10_000


class Decider:
    """Which requests are split."""

    def __init__(self, config: PluginConfig, board: Board, size: int) -> None:
        self._config = config
        self._board = board
        self._size = size
        self._memory = Memory(_MEMORY_BLOCKS)

    def split(self, job: Job, decode_instance: int) -> tuple[bool, str]:
        request = job.request
        if request.declared_tokens == 0:
            return False, "no answer to decode"
        kind = self._config.kind
        if kind in {"always", "never"}:
            return kind == "always", kind
        threshold = number_of(self._config, "threshold_tokens")
        if kind == "direct-to-decode":
            return request.input_tokens >= threshold, f"{request.input_tokens} prompt tokens"
        if decode_instance < 0:
            cached = self._memory.leading(job, self._size)
        else:
            cached = self._board.cached(decode_instance, job)
        new = request.input_tokens - cached * self._size
        return new > threshold, f"{new} uncached prompt tokens"

    def sent(self, job: Job) -> None:
        """Note that a request was routed to its prefill instance."""
        self._memory.record(job, self._size)


@dataclass
class Way:
    """A transfer; under fair share ``left`` are its remaining bytes, and it moves from ``moves_us`` on."""

    job: Job
    start_us: int
    moves_us: int
    left: Fraction


class Link:
    """Transfers in progress."""

    def __init__(self, settings: Transfer, size: int) -> None:
        self._settings = settings
        self._size = size
        self._bytes_per_us = Fraction(settings.bandwidth_gb_per_s) * 1000
        self._advanced_us = 0
        self.ways: list[Way] = []

    def amount(self, job: Job) -> int:
        """Bytes of whole blocks, cached ones included, except for those that the decode instance has."""
        assert self._settings.bytes_per_token is not None
        return (ceil(job.request.input_tokens / self._size) - job.shared) * self._size * self._settings.bytes_per_token

    def start(self, job: Job, now: int, layers: int) -> int | None:
        """When it ends; None where that depends on the others."""
        settings = self._settings
        self._advance(now)
        sharing = 1 if settings.contention == "none" else len(self.ways) + 1
        latency_us, left = settings.base_latency_us, self.amount(job)
        if settings.overlap == "layer-wise":
            covered_us = max(0, job.last_step_us - latency_us)
            left -= min(left, floor(covered_us * self._bytes_per_us / sharing)) * (layers - 1) // layers
            latency_us = max(0, latency_us - job.last_step_us)
        self.ways.append(Way(job, now, now + latency_us, Fraction(left)))
        if settings.contention == "fair-share":
            return None
        return now + max(1, ceil(latency_us + left * sharing / self._bytes_per_us))

    def end(self, job: Job, now: int) -> None:
        self._advance(now)
        self.ways = [way for way in self.ways if way.job is not job]

    def next_end(self, now: int) -> tuple[int, Job] | None:
        """Under fair share: the transfer that ends first if nothing changes, and when; of equals the earliest."""
        self._advance(now)
        ahead = [Way(way.job, way.start_us, way.moves_us, way.left) for way in self.ways]
        while ahead:
            for way in ahead:
                if way.left <= 0 and now >= max(way.start_us + 1, way.moves_us):
                    return now, way.job
            self._microsecond(ahead, now)
            now += 1
        return None

    def _advance(self, now: int) -> None:
        first_us = min((way.moves_us for way in self.ways), default=now)
        self._advanced_us = max(self._advanced_us, min(first_us, now))  # until then none moves
        while self._advanced_us < now:
            self._microsecond(self.ways, self._advanced_us)
            self._advanced_us += 1

    def _microsecond(self, ways: list[Way], at: int) -> None:
        """Give every moving transfer an equal share of the bandwidth."""
        moving = [way for way in ways if way.moves_us <= at]
        for way in moving:
            way.left -= self._bytes_per_us / len(moving)
