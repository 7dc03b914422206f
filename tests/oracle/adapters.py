"""LoRA adapters of one instance, written as plainly as possible: lists, searches, and a counter of uses."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from blis_tui.engine.records import AdapterEvicted, AdapterHeld, AdapterLoad, AdapterReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Record
    from blis_tui.model import Pool as PoolSpec

    from .instance import Job

_OVERHEADS = {8: 0.02, 16: 0.035, 32: 0.06}


class Shelf:
    """Adapters on the accelerators and on the host, and waiting requests; ``beside``: loads overlap with steps."""

    def __init__(self, spec: PoolSpec, number: int, *, beside: bool) -> None:
        assert spec.engine.lora is not None
        self.lora = spec.engine.lora
        self.gb_per_s = (self.lora.bandwidth_gb_per_s or spec.hardware.host_link_gb_per_s) * spec.tensor_parallel
        self.number = number
        self.beside = beside
        self.there: list[str] = []
        self.on_host: list[str] = []
        self.last_use: dict[str, int] = {}
        self.uses = 0
        self.running: list[str] = []
        """Adapters of running requests in order of admission; a request that ends counts as the latest."""
        self.coming: tuple[str, int] | None = None
        """The adapter being loaded, and when the load ends."""
        self.loaded_for: list[Job] = []
        self.held_since: dict[Job, int] = {}
        self.news: list[Record] = []
        self.admitted = self.hits = self.from_host = self.from_storage = 0
        self.evictions = self.load_us = self.holds = self.held_us = 0

    def factor(self) -> float:
        """The factor by which adapters lengthen a step."""
        share = self.lora.step_overhead
        if share is None:
            ranks = sorted(_OVERHEADS, key=lambda rank: (abs(rank - self.lora.max_lora_rank), rank))
            share = _OVERHEADS[ranks[0]]
        return 1.0 + share * len(self.in_use())

    def passes(self, job: Job, ending: list[Job]) -> bool:
        """Whether its adapter has a place besides those in use or of ending requests; always if loads overlap."""
        used = {*self.in_use(), *(one.adapter for one in ending if one.adapter)}
        return self.beside or not job.adapter or job.adapter in used or len(used) < self.lora.max_loras

    def hold(self, job: Job, reason: str, now: int, event: int) -> None:
        """Note that a request waits for its adapter."""
        if job in self.held_since:
            return
        self.held_since[job] = now
        self.holds += 1
        used = tuple(self.in_use())
        self.news.append(AdapterHeld(event, now, job.name, self.number, job.adapter, reason, used))

    def has(self, job: Job) -> bool:
        """Whether a request does not have to wait for its adapter."""
        return not self.beside or not job.adapter or job.adapter in self.there

    def ready(self, job: Job, now: int, event: int) -> bool:
        """Whether a request can be scheduled; if not, start to load its adapter if there is a place."""
        if self.has(job):
            return True
        idle = [name for name in self.there if name not in self.in_use()]
        starts = self.coming is None and (len(self.there) < self.lora.max_loras or bool(idle))
        self.hold(job, "load" if starts or self.coming else "slots", now, event)
        if starts:
            self.coming = (job.adapter, now + self._load(job, now, event))
            self.loaded_for.append(job)
        return False

    def _load(self, job: Job, now: int, event: int) -> int:
        adapter, size = job.adapter, self.lora.bytes_per_rank
        assert size is not None
        size *= self.lora.ranks.get(adapter, self.lora.max_lora_rank)
        took = self.lora.base_latency_us + ceil(size / (self.gb_per_s * 1000))
        source = "host" if adapter in self.on_host else "storage"
        if source == "storage":
            took += self.lora.storage_latency_us + ceil(size / (self.lora.storage_gb_per_s * 1000))
            self.from_storage += 1
        else:
            self.on_host.remove(adapter)
            self.from_host += 1
        if len(self.there) == self.lora.max_loras:
            idle = [name for name in self.there if name not in self.in_use()]
            gone = min(idle, key=self.last_use.__getitem__)
            self.there.remove(gone)
            self.on_host.append(gone)
            self.evictions += 1
            self.news.append(AdapterEvicted(event, now, self.number, gone, adapter))
        while len(self.there) + 1 + len(self.on_host) > self.lora.max_cpu_loras:
            self.on_host.pop(0)
        self.load_us += took
        self.news.append(AdapterLoad(event, now, job.name, self.number, adapter, source, took))
        return took

    def admit(self, job: Job, now: int) -> None:
        """A request starts to run."""
        if job.adapter:
            self.running.append(job.adapter)
        if job in self.held_since:
            self.held_us += now - self.held_since.pop(job)

    def stop(self, job: Job) -> None:
        """A request no longer runs."""
        if job.adapter:
            del self.running[len(self.running) - 1 - self.running[::-1].index(job.adapter)]
        self.uses += 1
        self.last_use[job.adapter] = self.uses

    def start(self, admitted: Sequence[Job], now: int, event: int) -> int:
        """How much longer the step takes that admits these requests."""
        total = 0
        for job in admitted:
            if not job.adapter:
                continue
            self.admitted += 1
            if job.adapter in self.there:
                self.hits += job not in self.loaded_for
                self.loaded_for = [one for one in self.loaded_for if one is not job]
            else:
                total += self._load(job, now, event)
                self.there.append(job.adapter)
                if job.adapter not in self.running:  # its request left after the step was planned
                    self.uses += 1
                    self.last_use[job.adapter] = self.uses
        return total

    def arrive(self, now: int, event: int, took: int) -> None:
        """A load that overlaps with steps has ended."""
        assert self.coming is not None
        adapter, _ = self.coming
        self.coming = None
        self.there.append(adapter)
        self.uses += 1
        self.last_use[adapter] = self.uses
        self.news.append(AdapterReady(event, now, self.number, adapter, took))

    def forget(self, job: Job) -> None:
        """A request no longer waits for its adapter."""
        self.held_since.pop(job, None)
        self.loaded_for = [one for one in self.loaded_for if one is not job]

    def wipe(self) -> None:
        """The instance is gone, with its adapters."""
        for gone in (self.there, self.on_host, self.loaded_for, self.running):
            gone.clear()
        self.held_since.clear()
        self.coming = None

    def books(self) -> tuple[int, ...]:
        """The counters that the engine has, too."""
        counts = (self.admitted, self.hits, self.from_host, self.from_storage, self.evictions, self.load_us)
        return (*counts, self.holds, self.held_us)

    def in_use(self) -> list[str]:
        """Adapters of running requests, those in use for the longest first."""
        return list(dict.fromkeys(self.running))
