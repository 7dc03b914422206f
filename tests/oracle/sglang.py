"""SGLang's scheduler written a second time, as plainly as possible: token lists, and a tree of them.

A KV block holds one token, and all steps take equally long. The sources are those of
``blis_tui/engine/sglang/rule.py``; no code that makes decisions is shared with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Token = tuple[str, int]
STEP_US = 1000


@dataclass(eq=False)
class Leaf:
    """A stretch of tokens in the tree, with its continuations."""

    tokens: list[Token]
    parent: Leaf | None
    children: list[Leaf] = field(default_factory=list)
    used: int = 0
    holders: int = 0

    def path(self) -> list[Leaf]:
        """The nodes from here up to the root, without the root."""
        return [] if self.parent is None else [self, *self.parent.path()]


class Tree:
    """The tree of all cached tokens."""

    def __init__(self) -> None:
        self.root = Leaf([], None)
        self.clock = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def walk(self, tokens: Sequence[Token]) -> tuple[Leaf, int]:
        """The node where the longest cached prefix ends, and its length; a longer stretch is split there."""
        here, found = self.root, 0
        while found < len(tokens):
            below = next((child for child in here.children if child.tokens[0] == tokens[found]), None)
            if below is None:
                break
            common = 0
            while (
                common < len(below.tokens)
                and found + common < len(tokens)
                and below.tokens[common] == tokens[found + common]
            ):
                common += 1
            if common < len(below.tokens):
                below = self.cut(below, common)
            below.used = self.tick()
            found += common
            here = below
        return here, found

    def cut(self, leaf: Leaf, at: int) -> Leaf:
        """Split off the head of a stretch; the tail counts as used now."""
        above = leaf.parent
        assert above is not None
        head = Leaf(leaf.tokens[:at], above, [leaf], leaf.used, leaf.holders)
        above.children[above.children.index(leaf)] = head
        leaf.tokens, leaf.parent, leaf.used = leaf.tokens[at:], head, self.tick()
        return head

    def insert(self, tokens: Sequence[Token]) -> tuple[Leaf, int]:
        """Insert these tokens; return the node where they end, and how many were there already."""
        here, found = self.walk(tokens)
        if found < len(tokens):
            new = Leaf([*tokens[found:]], here, used=self.tick())
            here.children.append(new)
            here = new
        return here, found

    def leaves(self) -> list[Leaf]:
        """All stretches, parents before children."""
        found = [*self.root.children]
        for leaf in found:
            found += leaf.children
        return found

    def held(self) -> int:
        return sum([len(leaf.tokens) for leaf in self.leaves() if leaf.holders])

    def size(self) -> int:
        return sum([len(leaf.tokens) for leaf in self.leaves()])

    def evict(self) -> bool:
        """Evict the least recently used leaf that no request holds."""
        ends = [leaf for leaf in self.leaves() if not leaf.children and not leaf.holders]
        if not ends:
            return False
        oldest = min(ends, key=lambda end: end.used)
        assert oldest.parent is not None
        oldest.parent.children.remove(oldest)
        return True


@dataclass(eq=False)
class Job:
    """A request."""

    name: str
    arrival_us: int
    prompt: list[Token]
    stop: int
    declared: int
    ignore_eos: bool = False
    priority: int = 0
    generated: int = 0
    computed: int = 0
    shared: int = 0
    target: int = 0
    lock: Leaf | None = None
    entered: int = 0
    counted: int = 0
    retracted: bool = False
    finished: bool = False
    deadline_us: int = 0
    """When its client gives up; 0 = never."""
    gone: bool = False

    def tokens(self, count: int) -> list[Token]:
        """Its first tokens, including generated ones."""
        answer = [(f"answer of {self.name}", at) for at in range(count - len(self.prompt))]
        return [*self.prompt, *answer][:count]


class Settings(NamedTuple):
    """Under SGLang's names."""

    total: int
    max_running_requests: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int
    schedule_conservativeness: float
    enable_mixed_chunk: bool
    overlap: bool
    caching: bool
    schedule_policy: str
    priorities: int
    """1: smaller priorities first; -1: larger ones first; 0: priorities are ignored."""
    threshold: int


@dataclass(eq=False)
class Batch:
    """A step: prefills with what was there and what is new, then decodes."""

    prefills: list[tuple[Job, int, int]]
    decodes: list[Job]
    chunked: Job | None
    preempted: list[str]
    start: int = 0
    completed: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> list[Job]:
        return [*(job for job, _, _ in self.prefills), *self.decodes]


class Scheduler:
    """One instance of SGLang."""

    def __init__(self, settings: Settings, jobs: Sequence[Job]) -> None:
        self.set = settings
        self.coming = sorted(jobs, key=lambda job: job.arrival_us)
        self.jobs = jobs
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.chunked: Job | None = None
        self.full = False
        self.first = min(0.7 * settings.schedule_conservativeness, 1.0)
        self.least = min(self.first * 0.14, 1.0)
        self.ratio = self.first
        self.tree = Tree()
        self.turn = 0
        self.looks = 0
        self.under_way: Batch | None = None
        self.put_back: list[str] = []

    # ---- memory ----

    def private(self) -> int:
        return sum([job.computed - job.shared for job in self.jobs])

    def free(self) -> int:
        return self.set.total - self.private() - self.tree.size()

    def room(self) -> int:
        """Free tokens, and those that no request holds."""
        return self.set.total - self.private() - self.tree.held()

    def make_room(self, tokens: int) -> bool:
        while self.free() < tokens:
            if not self.tree.evict():
                return False
        return True

    def hold(self, job: Job, leaf: Leaf | None) -> None:
        for one in leaf.path() if leaf else ():
            one.holders += 1
        for one in job.lock.path() if job.lock else ():
            one.holders -= 1
        job.lock = leaf

    def store(self, job: Job, tokens: int) -> None:
        """Make its first tokens available in the tree."""
        if not self.set.caching or tokens < max(1, job.shared):
            return
        leaf, _ = self.tree.insert(job.tokens(tokens))
        if len(job.prompt) < tokens:
            self.tree.insert(job.prompt)
        self.hold(job, leaf)
        job.shared = tokens

    def leave(self, job: Job, stored: int) -> None:
        self.store(job, stored)
        self.hold(job, None)
        job.computed = job.shared = 0

    # ---- the loop ----

    def run(self) -> list[Batch]:
        done: list[Batch] = []
        queue: list[Batch] = []
        now = busy = 0
        last: Batch | None = None
        while True:
            while self.coming and self.coming[0].arrival_us <= now:
                self.enter(self.coming.pop(0))
            for job in self.jobs:
                if 0 < job.deadline_us < now and not (job.gone or job.finished):
                    self.abort(job)
            self.under_way = queue[0] if queue else None
            batch = self.plan(last)
            if batch is not None:
                batch.start = max(now, busy)
                busy = batch.start + STEP_US
                batch.preempted, self.put_back = self.put_back, []
                done.append(batch)
                queue.append(batch)
            if queue and (last is not None or not self.set.overlap):
                oldest = queue.pop(0)
                now = max(now, oldest.start + STEP_US)
                self.results(oldest)
            if batch is None and last is None:
                self.ratio = self.first
                if not self.coming:
                    assert not self.waiting
                    return done
                now = max(now, self.coming[0].arrival_us)
            last = batch

    def enter(self, job: Job) -> None:
        self.turn += 1
        job.entered = self.turn
        self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Drop a job that waits or is split; let any other end with its next token."""
        job.gone = True
        if job in self.waiting:
            self.waiting.remove(job)
            job.finished = True
        elif job is self.chunked:
            self.chunked, self.full = None, False
            self.leave(job, 0)
            job.finished = True
        else:
            job.stop = job.generated + 1

    def results(self, batch: Batch) -> None:
        for job in batch.jobs:
            if job.retracted or job.finished or job is batch.chunked:
                continue
            job.generated += 1
            if job.generated >= min(job.stop, job.declared):
                job.finished = True
                batch.completed += [] if job.gone else [job.name]
                self.leave(job, job.computed)
            elif job not in batch.decodes:
                self.store(job, job.target)

    # ---- a plan ----

    def plan(self, last: Batch | None) -> Batch | None:
        if self.chunked is not None:
            self.store(self.chunked, self.chunked.computed)
        if last is not None and last.prefills:
            joining = [job for job in last.jobs if not (job.finished or job.retracted or job is last.chunked)]
            self.full = self.full and len(joining) == len(last.jobs)
            if last.decodes or not self.running:
                self.full = self.full and not (last.decodes or joining)
            self.running += [job for job in joining if job not in self.running]
        left = [job for job in self.running if not job.finished]
        if len(left) < len(self.running) or not left:
            self.full = False
        self.running = left
        return self.prefill() or self.decode()

    def order(self, job: Job) -> tuple[int, int]:
        rank = -job.declared if self.set.schedule_policy == "lof" else 0
        return (self.set.priorities * job.priority, rank)

    def expected(self, job: Job) -> float:
        return min(job.declared - job.generated, 4096) * (1.0 if job.ignore_eos else self.ratio)

    def prefill(self) -> Batch | None:
        settings = self.set
        if settings.priorities:
            self.full = False
        if self.chunked is None and (self.full or not self.waiting):
            return None
        if self.chunked is None and len(self.running) >= settings.max_running_requests and not settings.priorities:
            self.full = True
            return None
        self.waiting.sort(key=self.order)
        if settings.priorities and settings.schedule_policy == "fcfs":
            self.waiting.sort(key=lambda job: (settings.priorities * job.priority, job.entered))
        self.looks += bool(settings.caching and self.waiting)
        if settings.caching and self.waiting and self.looks % 32 == 1:
            for job in reversed(self.waiting[:128]):
                self.tree.walk(job.tokens(len(job.prompt) + job.generated))
        adder = Prefill(self)
        if self.chunked is not None and not adder.go_on(self.chunked):
            self.chunked = None
        for job in [*self.waiting]:
            if adder.spent():
                break
            self.full = self.full or len(adder.taken) >= settings.max_running_requests - len(self.running)
            if self.full and not (settings.priorities and adder.preempt(job)):
                break
            verdict = adder.add(job)
            if verdict == "no token":
                self.full = bool(adder.taken or self.running)
            if verdict != "go on":
                break
        taken = adder.taken
        for job in adder.put_back:
            self.enter(job)
        if not taken:
            return None
        self.waiting = [job for job in self.waiting if job not in [one for one, _, _ in taken]]
        self.chunked = adder.chunked or self.chunked
        if not self.make_room(sum(new for _, _, new in taken)):
            raise MemoryError  # the chunk of a split prompt continues, whatever is free
        for job, start, new in taken:
            job.computed, job.retracted = start + new, False
        return Batch(taken, self.beside(), self.chunked, [])

    def beside(self) -> list[Job]:
        """Requests that decode in the same step."""
        if not self.set.enable_mixed_chunk or not self.running:
            return []
        ending = self.ending()
        self.running = [job for job in self.running if job not in ending]
        self.full = self.full and not ending
        if not self.running or not self.make_room(len(self.running)):
            return []
        decodes, self.running = self.running, []
        for job in decodes:
            job.computed += 1
            job.counted = len(job.prompt) + job.generated
        return decodes

    def ending(self) -> list[Job]:
        """Requests that get their last declared token in the current step."""
        batch = self.under_way
        return [
            job
            for job in self.running
            if batch is not None
            and job in batch.jobs
            and job is not batch.chunked
            and job.generated + 1 >= job.declared
        ]

    def decode(self) -> Batch | None:
        before = len(self.running)
        ending = self.ending()
        self.running = [job for job in self.running if job not in ending]
        if not self.running:
            self.full = self.full and not before
            return None
        if self.make_room(len(self.running)):
            self.ratio = max(self.ratio - (self.first - self.least) / 600, self.least)
        elif ending:
            self.full = False
            return None
        else:
            self.retract()
        if len(self.running) < before:
            self.full = False
        for job in self.running:
            job.computed += 1
        return Batch([], [*self.running], None, [])

    def retract(self) -> None:
        kept = sorted(self.running, key=lambda job: (job.generated, -len(job.prompt)), reverse=True)
        gone: list[Job] = []
        while len(kept) > 1 and (not gone or not self.make_room(len(kept))):
            gone.append(kept.pop())
            self.let_go(gone[-1], len(kept))
        assert self.make_room(len(kept))
        self.running = kept
        declared = sum(job.declared for job in kept)
        self.ratio = min(1.0, (sum(job.generated for job in kept) + 20 * len(kept)) / (declared + 1))
        for job in gone:
            self.enter(job)

    def let_go(self, job: Job, others: int) -> None:
        """Take away its blocks."""
        self.put_back += [] if job.gone else [job.name]
        self.leave(job, 0)
        self.make_room(20 * others)
        job.retracted = True


class Prefill:
    """The prompts of a step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.owner = scheduler
        settings = scheduler.set
        beside = len(scheduler.running) if settings.enable_mixed_chunk else 0
        self.reserved = beside + add(map(scheduler.expected, scheduler.running))
        self.reserved_now = beside
        self.input = settings.max_prefill_tokens - beside
        self.chunk = None if settings.chunked_prefill_size is None else settings.chunked_prefill_size - beside
        self.taken: list[tuple[Job, int, int]] = []
        self.chunked: Job | None = None
        self.put_back: list[Job] = []

    def total(self) -> float:
        return self.owner.room() - self.reserved

    def spent(self) -> bool:
        """Whether the budget of prompts or of the chunk is used up; False if there is no room, the other reason."""
        if self.total() <= 0 or self.owner.room() - self.reserved_now <= 0:
            return False
        return self.input <= 0 or (self.chunk is not None and self.chunk <= 0)

    def take(self, job: Job, start: int, new: int, answer: int) -> None:
        self.taken.append((job, start, new))
        self.reserved += new + 1 + answer
        self.reserved_now += new + 1
        self.input -= new
        if self.chunk is not None:
            self.chunk -= new

    def go_on(self, job: Job) -> bool:
        """Continue the split prompt first."""
        if self.chunk is None:
            return True
        most = min(self.chunk, int(self.total()))
        rest = job.target - job.computed
        new = min(rest, most if most > 0 else self.chunk)
        self.take(job, job.computed, new, min(job.declared, 4096) if new == rest else 0)
        return new < rest

    def add(self, job: Job) -> str:
        """Look at a waiting request: ``go on``, ``no token`` or ``other``."""
        job.target = len(job.prompt) + job.generated
        leaf, start = (
            self.owner.tree.walk(job.tokens(job.target - 1)) if self.owner.set.caching else (self.owner.tree.root, 0)
        )
        rest = job.target - start
        job.counted = rest
        self.owner.hold(job, leaf)
        if not rest + min(job.declared - job.generated, 4096) + 1 < self.total():
            self.owner.hold(job, None)
            return "no token"
        if self.chunk is None and self.taken and rest >= self.input:
            self.owner.hold(job, None)
            return "other"
        if self.chunk is not None and rest > self.chunk:
            if self.chunk <= 0:
                self.owner.hold(job, None)
                return "other"
            self.chunked = job
            new, answer = self.chunk, 0
        else:
            new, answer = rest, min(job.declared, 4096)
        job.shared = job.computed = start  # nothing of its own yet
        self.take(job, start, new, answer)
        job.counted = job.target
        if self.total() <= 0 or self.owner.room() - self.reserved_now <= 0:
            return "no token"
        return "other" if self.spent() else "go on"

    def preempt(self, job: Job) -> bool:
        """Preempt less urgent requests, if that frees enough."""
        owner, sign = self.owner, self.owner.set.priorities
        missing = job.counted + min(job.declared, 4096) - self.total()
        chosen: list[Job] = []
        for request in sorted(owner.running, key=lambda each: (-sign * each.priority, -each.entered)):
            if sign * (request.priority - job.priority) <= owner.set.threshold or (chosen and missing <= 0):
                break
            chosen.append(request)
            missing -= owner.expected(request)
        if not chosen or missing > 0:
            return False
        for one in [each for each in owner.running if each in chosen]:
            self.reserved -= owner.expected(one)
            owner.running.remove(one)
            owner.let_go(one, len(owner.running))
            self.put_back.append(one)
        return True


def add(values: Iterable[float]) -> float:
    """Sum one by one: the last bits depend only on the order."""
    total = 0.0
    for value in values:
        total += value
    return total
