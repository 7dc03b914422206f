"""SGLang's prefill and decode server once more, from SGLang's own description: lists of requests, polled in loops.

It follows ``disaggregation/prefill.py`` and ``disaggregation/decode.py``: one server of each kind, pages of one token,
no prefix cache, no overlap of steps, answers as long as declared. A step of the first takes 100 us and 1 us a token,
one of the second 50 us, a transfer ``latency_us`` and 1 us a token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

_CLIP: Final = 4096


class Limits(NamedTuple):
    """The two servers."""

    prefill_tokens: int
    decode_tokens: int
    max_running: int
    chunk: int
    reserved: int
    latency_us: int
    max_prefill_tokens: int = 16384


@dataclass
class Req:
    """A request; ``output`` is the number of generated tokens."""

    name: str
    arrival_us: int
    prompt: int
    answer: int
    done: int = 0
    output: int = 0
    first_us: int | None = None
    end_us: int | None = None


@dataclass
class PrefillServer:
    """Computes prompts, the first come first, and keeps them until they are sent."""

    limits: Limits
    waiting: list[Req] = field(default_factory=list)
    chunked: Req | None = None
    inflight: list[Req] = field(default_factory=list)
    sent: list[Req] = field(default_factory=list)
    batch: list[tuple[Req, int]] = field(default_factory=list)
    until_us: int = -1

    def free(self) -> int:
        kept = sum(req.prompt for req in (*self.inflight, *self.sent))
        return self.limits.prefill_tokens - kept - (self.chunked.done if self.chunked else 0)

    def finish(self, now: int) -> list[Req]:
        """End the step; return the requests whose prompts are computed."""
        ended = []
        for req, new in self.batch:
            req.done += new
            if req.done == req.prompt:
                req.first_us, req.output = now, 1
                ended.append(req)
        self.batch = []
        if self.chunked in ended:
            self.chunked = None
        self.inflight += ended
        return ended

    def plan(self, now: int) -> None:
        """Start a step, if there is anything to compute."""
        self.sent = []
        free, rest_chunk, rest_input = self.free(), self.limits.chunk, self.limits.max_prefill_tokens
        total = current = free
        slots = self.limits.max_running - len(self.inflight) - (self.chunked is not None)

        def take(req: Req, new: int, answer: int) -> None:
            nonlocal total, current, rest_chunk, rest_input
            self.batch.append((req, new))
            total, current = total - new - 1 - answer, current - new - 1
            rest_chunk, rest_input = rest_chunk - new, rest_input - new

        if (req := self.chunked) is not None:
            most = min(rest_chunk, total)
            new = min(req.prompt - req.done, most if most > 0 else rest_chunk)
            last = req.done + new == req.prompt
            take(req, new, int(last))
            if last:
                self.chunked = None
        chunked = self.chunked
        while self.waiting and min(total, current, rest_chunk, rest_input) > 0 and len(self.batch) < slots:
            req = self.waiting[0]
            if req.prompt + 1 + 1 >= total:
                break
            self.waiting.pop(0)
            new = min(req.prompt, rest_chunk)
            whole = new == req.prompt
            take(req, new, int(whole))
            if not whole:
                chunked = req
        self.chunked = chunked
        if self.batch:
            self.until_us = now + 100 + sum(new for _, new in self.batch)


@dataclass
class DecodeServer:
    """Makes room for prompts, and generates answers to those that have arrived."""

    limits: Limits
    prealloc: list[Req] = field(default_factory=list)
    transfer: list[Req] = field(default_factory=list)
    arrived: list[Req] = field(default_factory=list)
    waiting: list[Req] = field(default_factory=list)
    running: list[Req] = field(default_factory=list)
    retracted: list[Req] = field(default_factory=list)
    decoding: bool = False
    until_us: int = -1

    def free(self) -> int:
        holders = (*self.transfer, *self.waiting, *self.running)
        return self.limits.decode_tokens - sum(req.prompt + max(0, req.output - 1) for req in holders)

    def active(self) -> int:
        return len(self.transfer) + len(self.waiting) + len(self.running)

    def slots(self) -> int:
        most = self.limits.max_running
        return most * (3 if most <= 32 else 1) - self.active()

    def finish(self, now: int) -> None:
        self.decoding = False
        for req in self.running:
            req.output += 1
            if req.output >= req.answer:
                req.end_us = now
        self.running = [req for req in self.running if req.end_us is None]

    def queues(self) -> list[Req]:
        """Resume retracted requests, make room for new ones and return these, and see who has arrived."""
        reserved = self.limits.reserved
        budget = self.free() - reserved * self.active()
        while self.retracted:
            req = self.retracted[0]
            need = req.prompt + req.output - 1 + reserved
            if need > budget or self.slots() <= 0:
                break
            budget -= need
            self.waiting.append(self.retracted.pop(0))
        ready: list[Req] = []
        if not self.retracted:
            ready = self.preallocate()
        if not self.retracted or not (self.running or self.waiting):
            self.waiting += [req for req in self.transfer if req in self.arrived]
            self.transfer = [req for req in self.transfer if req not in self.arrived]
            self.arrived = []
        return ready

    def preallocate(self) -> list[Req]:
        retractable = sum(req.prompt + req.output for req in self.running)
        single = max([req.prompt + min(req.answer, _CLIP) - retractable for req in self.running], default=0)
        ready: list[Req] = []
        while self.prealloc:
            req = self.prealloc[0]
            room = self.free() - max(self.limits.reserved * self.active(), single)
            need = max(req.prompt + self.limits.reserved, req.prompt + min(req.answer, _CLIP) - retractable)
            if need > room or self.slots() <= 0:
                break
            self.transfer.append(self.prealloc.pop(0))
            ready.append(req)
        return ready

    def plan(self, now: int) -> list[Req]:
        """Start a step, if anybody runs; return those for whose prompts there is room now."""
        ready = self.queues()
        places = max(0, self.limits.max_running - len(self.running))
        self.running += self.waiting[:places]
        self.waiting = self.waiting[places:]
        if not self.running:
            return ready
        if self.free() < len(self.running):
            order = sorted(self.running, key=lambda req: (req.output, -req.prompt), reverse=True)
            while len(order) > 1:
                victim = order.pop()
                self.running.remove(victim)
                self.retracted.append(victim)
                if self.free() >= len(self.running):
                    break
            self.running = order
            if self.free() < len(self.running):
                raise OverflowError("the last request is out of memory")
        self.decoding, self.until_us = True, now + 50
        return ready


def simulate(limits: Limits, requests: list[Req]) -> None:
    """Serve all requests."""
    first, second = PrefillServer(limits), DecodeServer(limits)
    coming = sorted(requests, key=lambda req: req.arrival_us)
    ends: list[tuple[int, Req]] = []
    now = 0
    while any(req.end_us is None for req in requests):
        now = min(
            *(req.arrival_us for req in coming[:1]),
            *(end for end, _ in ends),
            *([first.until_us] if first.batch else []),
            *([second.until_us] if second.decoding else []),
            10**12,
            10**12,
        )
        assert now < 10**12, "nothing happens any more"
        _at(now, first, second, coming, ends)


def _at(now: int, first: PrefillServer, second: DecodeServer, coming: list[Req], ends: list[tuple[int, Req]]) -> None:
    """Let happen what happens at a time: what comes and has been sent first, then the first server, then the second."""
    looks = [False, False]
    while coming and coming[0].arrival_us == now:
        second.prealloc.append(coming.pop(0))
        looks[1] = True
    for end in [end for end in ends if end[0] == now]:
        ends.remove(end)
        first.inflight.remove(end[1])
        first.sent.append(end[1])
        second.arrived.append(end[1])
        looks = [True, True]
    while True:
        if first.batch and first.until_us == now:
            ended = first.finish(now)
            ends += [(now + first.limits.latency_us + req.prompt, req) for req in ended]
            looks[0] = True
        if looks[0] and not first.batch:
            first.plan(now)
        looks[0] = False
        if second.decoding and second.until_us == now:
            second.finish(now)
            looks[1] = True
        ready = second.plan(now) if looks[1] and not second.decoding else []
        looks[1] = False
        if not ready:
            return
        first.waiting += ready
        looks[0] = True
