"""Rules of victims do not look at the whole batch, and choose whom a look at the whole batch would choose."""

from __future__ import annotations

import pickle
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.batch import Batch
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.kv.extent import Piece
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.records import Observers
from blis_tui.engine.victims import CheapestRecompute, LeastUrgent
from blis_tui.model import SLO_CLASSES
from blis_tui.model.plug_ins import NoSettings
from blis_tui.results.request_log import RequestLog
from blis_tui.spec.shipped import builtin
from tests.builders import VLLM, ListSource, Outcome, experiment, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blis_tui.engine.request import Request
    from blis_tui.engine.victims import Seats
    from blis_tui.model import Experiment, Setting

RULES: Final[tuple[tuple[str, dict[str, Setting]], ...]] = (
    ("blis", {}),
    ("vllm-v1", dict(VLLM)),
    ("vllm-v1", {**VLLM, "async_scheduling": True}),
    ("nano", {}),
    ("llm-serving-sim", {}),
)


def youngest(batch: Batch) -> Request:
    """By the words of docs/semantics.md, like the others."""
    return max((*batch.running.values(), *batch.finishing.values()), key=lambda one: one.batch_slot)


def least_urgent(batch: Batch | Sandbox) -> Request:
    """The largest (priority, arrival), the latest to come of equals."""
    seated = (*batch.running.values(), *batch.finishing.values())
    return max(seated, key=lambda one: (one.priority, one.arrival_us, one.index))


def cheapest(batch: Batch | Sandbox) -> Request:
    """The smallest product; the youngest of equals; the oldest last; who waits for its last token before all."""
    if batch.finishing:
        return max(batch.finishing.values(), key=lambda one: one.batch_slot)
    slots = sorted(batch.running)
    weights: dict[int, int] = {}
    for place, slot in enumerate(slots[1:], 1):
        one = batch.running[slot]
        kept = batch.kept[one.index] if isinstance(batch, Sandbox) else _kept(batch, one)
        again = batch.cohort.context_tokens(one) - kept * batch.pool.block_size_tokens
        weights[slot] = again * (len(slots) - 1 - place + 2)
    least = min(weights.values(), default=0)
    return batch.running[max((slot for slot, weight in weights.items() if weight == least), default=slots[0])]


def _kept(batch: Batch, one: Request) -> int:
    """Of its leading blocks, those that somebody else holds, too."""
    others = {
        (key, piece.label)
        for other in (*batch.running.values(), *batch.reserved.values())
        if other is not one
        for piece in other.pieces
        for key in piece.keys
    }
    kept = 0
    for piece in one.pieces:
        for key in piece.keys:
            if (key, piece.label) not in others:
                return kept
            kept += 1
    return kept


class Held(BlockPool):
    """A pool that says of requests what it is told to."""

    def __init__(self) -> None:
        super().__init__(10, 4, PromptKeys(4))
        self.kept: dict[int, int] = {}

    def shared_prefix_blocks(self, request: Request) -> int:
        return self.kept[request.index]


class Sandbox:
    """A batch to which anything can happen, in any order, and whose requests may have any tokens to compute again."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)  # noqa: S311  (a test)
        self.running: dict[int, Request] = {}
        self.finishing: dict[int, Request] = {}
        self.stalled: dict[int, Request] = {}
        self.stalls = 0
        self.cohort = DecodeCohort(StepLoad(), 4)
        held = Held()
        self.pool: BlockPool = held
        self.kept = held.kept
        self._next = 0

    def admit(self, tokens: int = 0) -> Request:
        """Somebody comes, and prefills for the time being; without ``tokens`` they are drawn, and some are shared."""
        draw, index = self.draw, self._next
        self._next += 1
        one = request(index, 0, 10, 10**6)
        one.computed_tokens = tokens or draw.choice((draw.randint(1, 9), draw.randint(1, 400)))
        one.shared_blocks = draw.randint(0, one.computed_tokens // 4) if draw.random() < 0.3 and not tokens else 0
        one.pieces = [Piece(0, one.shared_blocks, 0)] if one.shared_blocks else []
        one.batch_slot = index + 3
        self.kept[index] = one.shared_blocks
        self.running[one.batch_slot] = one
        return one

    def some(self, share: float) -> list[Request]:
        """Some of those who run."""
        return [one for one in self.running.values() if self.draw.random() < share]

    def decode(self, share: float) -> None:
        """Some have done with their prompts."""
        for one in self.some(share):
            if one.joined_clock < 0:
                self.cohort.join(one, 0)

    def stall(self, share: float) -> None:
        """Some get nothing in a step."""
        left = [one for one in self.some(share) if one.joined_clock >= 0]
        for one in left:
            self.cohort.leave(one)
        self.stalls += 1
        self.cohort.advance(0, 1, {})
        for one in left:
            self.cohort.join(one, 0)

    def depart(self, one: Request) -> None:
        """Somebody goes, for whatever reason."""
        if one.joined_clock >= 0:
            self.cohort.leave(one)
        del self.running[one.batch_slot]

    def anything(self) -> None:
        """The next thing that happens."""
        draw = self.draw
        what = draw.random()
        if what < 0.3:
            for _ in range(draw.randint(1, 12)):
                self.admit()
        elif what < 0.5:
            self.decode(draw.choice((0.1, 0.9, 1.0)))
        elif what < 0.7:
            for _ in range(draw.choice((1, 5, 60))):
                self.cohort.advance(0, 1, {})
        elif what < 0.75:
            self.stall(0.2)
        elif what < 0.9:
            for one in self.some(draw.choice((0.02, 0.1, 0.3))):
                self.depart(one)
        else:
            for one in self.some(0.2):
                self.kept[one.index] = draw.randint(0, one.shared_blocks)


BY_LOOKING: Final[dict[str, Callable[[Batch], Request]]] = {
    "tail": youngest,
    "priority": least_urgent,
    "cheapest-recompute": cheapest,
}


def crowd(seed: int, victim: str) -> tuple[Experiment, list[Request]]:
    """Many small requests on an instance that has room for half of them; some share prefixes, some give up."""
    draw = Random(seed)  # noqa: S311  (a test)
    many = draw.randint(40, 90)
    size = draw.choice((1, 2, 4))
    gap = draw.choice((0, 0, 20, 150))
    patience = draw.choice((0, 0, 90_000))
    heads = draw.choice(((), (("x", 6),), (("x", 12), ("y", 12))))
    requests = []
    for index in range(many):
        prompt, answer = draw.randint(1, 40), draw.randint(20, 80)
        head = draw.choice(heads) if heads and draw.random() < 0.6 else ("", 0)
        requests.append(
            request(
                index,
                index * gap,
                prompt + head[1],
                answer,
                segments=(head,) if head[1] else (),
                slo_class=draw.choice(SLO_CLASSES),
                deadline_us=index * gap + draw.randint(5_000, patience) if patience else 0,
            )
        )
    batching, settings = draw.choice(RULES[:3] if victim == "cheapest-recompute" else RULES)
    made = experiment(
        batching=batching,
        settings=settings,
        victim=victim,
        max_num_seqs=many,
        budget=draw.choice((200 if batching == "nano" else 30, 200, 2_000)),  # (it cuts no prompts)
        threshold=draw.choice((0, 0, 9)),
        block_size=size,
        blocks=-(-max(140, many * draw.choice((20, 30, 40))) // size),
        caching=draw.random() < 0.7,
        priority=draw.choice(("constant", "slo-class", "inverted-slo")),
        scheduling=draw.choice(("fcfs", "fcfs", "sjf", "priority-fcfs")),
    )
    return made, requests


def follow(made: Experiment, requests: list[Request]) -> tuple[int, int]:
    """Ask after every event, and whenever a victim is chosen; returns how often that was, and the largest batch."""
    by_looking = BY_LOOKING[made.policy.preemption_victim]
    cluster = Cluster(made, ListSource(requests), RequestLog(), Observers())
    choose, most, chosen = Batch.choose_victim, 0, 0

    def compared(batch: Batch) -> Request:
        nonlocal chosen
        chosen += 1
        expected = by_looking(batch)
        found = choose(batch)
        assert found is expected
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "choose_victim", compared)
        while cluster.run(1):
            batch = cluster.instances[0].batch
            most = max(most, len(batch.running))
            if batch.running and cluster.events % 3:
                assert choose(batch) is by_looking(batch)
    assert cluster.closed() == len(requests)
    return chosen, most


@pytest.mark.parametrize("victim", [plugin.name for plugin in builtin().of("policy.preemption.victim")])
def test_whom_a_look_at_everybody_would_choose(victim: str) -> None:
    runs = [follow(*crowd(seed, victim)) for seed in range(6)]
    assert sum(chosen for chosen, _ in runs) > 100
    assert max(most for _, most in runs) > 40


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["priority", "cheapest-recompute"])
def test_whom_a_look_at_everybody_would_choose_at_length(victim: str) -> None:
    assert sum(follow(*crowd(seed, victim))[0] for seed in range(6, 18)) > 250


@pytest.mark.parametrize("rule", [LeastUrgent, CheapestRecompute])
def test_whatever_happens_to_a_batch(rule: type[LeastUrgent | CheapestRecompute]) -> None:
    for seed in range(40):
        batch = Sandbox(seed)
        victims = rule(NoSettings())
        for _ in range(90):
            batch.anything()
            for _ in range(batch.draw.choice((0, 1, 1, 4))):
                if not batch.running:
                    break
                found = victims.choose(batch)
                assert found is (cheapest(batch) if rule is CheapestRecompute else least_urgent(batch))
                batch.depart(found)


def a_hundred(tokens_of_one: int) -> tuple[Sandbox, CheapestRecompute, list[Request]]:
    """Everybody decodes with 1,000 tokens in the cache, but for one, who has 80 younger ones; the index is made."""
    batch, rule = Sandbox(0), CheapestRecompute(NoSettings())
    everybody = [batch.admit(tokens_of_one if place == 19 else 1_000) for place in range(100)]
    batch.decode(1.0)
    assert rule.choose(batch) is everybody[99]
    return batch, rule, everybody


def test_who_has_fewer_younger_ones_than_before_weighs_less() -> None:
    """33 x 82 = 2,706 is more than 1,000 x 2; after 30 of the younger ones have gone 33 x 52 = 1,716 is not."""
    batch, rule, everybody = a_hundred(33)
    for place in range(45, 75):
        batch.depart(everybody[place])
    assert rule.choose(batch) is everybody[19]


def test_who_stalls_does_not_grow_with_the_others() -> None:
    """100 x 82 = 8,200 is more than 1,000 x 2; when the others have 5,000 tokens more, it is less than 6,000 x 2."""
    batch, rule, everybody = a_hundred(100)
    batch.cohort.leave(everybody[19])
    batch.stalls += 1
    for _ in range(5_000):
        batch.cohort.advance(0, 1, {})
    batch.cohort.join(everybody[19], 0)
    assert rule.choose(batch) is everybody[19]


class Counted(dict[int, "Request"]):
    """Running requests that counts at how many of its requests somebody looks."""

    looks = 0

    def items(self) -> Looks:  # type: ignore[override]
        return Looks(self)


class Looks:
    def __init__(self, batch: Counted) -> None:
        self._batch = batch

    def __reversed__(self) -> Iterator[tuple[int, Request]]:
        for slot in dict.__reversed__(self._batch):
            self._batch.looks += 1
            yield slot, self._batch[slot]


@pytest.mark.parametrize("victim", ["priority", "cheapest-recompute"])
def test_a_victim_costs_no_look_at_everybody(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """600 requests run; each is looked at when it has come, and then few are for each victim."""
    running = Counted()
    seen: list[int] = []
    looks: list[int] = []
    choose = Batch.choose_victim

    def counted(batch: Batch) -> Request:
        if not seen:
            running.update(batch.running)
            batch.running = running
        before = running.looks
        found = choose(batch)
        seen.append(len(running))
        looks.append(running.looks - before)
        return found

    monkeypatch.setattr(Batch, "choose_victim", counted)
    requests = [request(index, 0, 20 + index * 7 % 31, 60, slo_class=SLO_CLASSES[index % 5]) for index in range(600)]
    outcome = Outcome(
        experiment(victim=victim, priority="slo-class", max_num_seqs=600, budget=4_000, blocks=600 * 12), requests
    )
    assert {row.state for row in outcome.rows.values()} == {"completed"}
    assert (looks[0], seen[0]) == (600, 600)
    assert len(looks) > 100
    assert sum(looks[1:]) / len(looks) < 60


def test_an_index_is_no_part_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back from one has to look at everybody once, and finds the same."""
    for rule in (LeastUrgent, CheapestRecompute):
        made, requests = crowd(2, "priority" if rule is LeastUrgent else "cheapest-recompute")
        cluster = Cluster(made, ListSource(requests), RequestLog(), Observers())
        batch = cluster.instances[0].batch
        while len(batch.running) < 20:
            assert cluster.run(1)
        before = pickle.dumps(batch.victim)
        found = batch.choose_victim()
        assert pickle.dumps(batch.victim) == before
        again: Batch = pickle.loads(pickle.dumps(batch))  # noqa: S301  (its own)
        assert again.choose_victim().index == found.index


def test_another_batch_is_another_matter() -> None:
    """A rule that is asked about two batches does not mix them up."""
    for victim in ("priority", "cheapest-recompute"):
        batches = []
        for seed in (2, 4):
            made, requests = crowd(seed, victim)
            cluster = Cluster(made, ListSource(requests), RequestLog(), Observers())
            while len(cluster.instances[0].batch.running) < 20:
                assert cluster.run(1)
            batches.append(cluster.instances[0].batch)
        first, second = batches
        for batch in (first, second, first):
            assert first.victim.choose(batch) is BY_LOOKING[victim](batch)


class Walker:
    """A rule as somebody may plug it in: it knows nothing but the batch."""

    rule = "the youngest"
    serves_behind_preempted = False

    def choose(self, seats: Seats) -> Request:
        return max((*seats.running.values(), *seats.finishing.values()), key=lambda one: one.batch_slot)


def test_a_rule_needs_nothing_but_choose() -> None:
    rows = []
    for rule in (None, Walker()):
        made, requests = crowd(2, "tail")
        log = RequestLog()
        cluster = Cluster(made, ListSource(requests), log, Observers())
        if rule is not None:
            cluster.instances[0].batch.victim = rule
        while cluster.run(1_000):
            pass
        assert cluster.instances[0].tallies.preemptions > 20
        rows.append(([*log.table(cluster)], cluster.instances[0].tallies.state()))
    assert rows[0] == rows[1]
