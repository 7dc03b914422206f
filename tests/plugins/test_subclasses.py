"""Classes that extend those of this package: what they override and what they remember counts wherever they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.cluster.records import RoutingDecision
from blis_tui.engine.records import Scheduled, StepFinished
from tests.plugins.probing import left_as_found

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD: Final = "from blis_tui.plugins import BATCHING, SCHEDULING, FcfsQueue, RunningFirst, SortedQueue\n"
COUNTING: Final = """
@SCHEDULING.plugin("own", "For tests.")
class Own(SortedQueue):
    __slots__ = "turn", "__seen"
    def __init__(self, settings):
        super().__init__(self.rank, "As they come, in turns of four")
        self.turn, self.__seen = 4, 0
    def rank(self, request): return request.index % self.turn
    def push(self, request):
        self.__seen += 1
        super().push(request)
"""
BACKWARDS: Final = """
@SCHEDULING.plugin("own", "For tests.")
class Own(SortedQueue):
    def __init__(self, settings): super().__init__(rank, "The longest prompt goes first")
    def head(self): return self.ordered()[0]
    def ordered(self): return super().first(None)[::-1]
    def first(self, count): return self.ordered()[:count]
def rank(request): return request.input_tokens
"""
LAST_FIRST: Final = """
@SCHEDULING.plugin("own", "For tests.")
class Own(FcfsQueue):
    order = "Who came last goes first"
    def __init__(self, settings): super().__init__()
    def head(self): return self.ordered()[0]
    def push_front(self, request): self.push(request)
    def ordered(self): return super().first(None)[::-1]
    def first(self, count): return self.ordered()[:count]
"""
RULE: Final = """
@BATCHING.plugin("own", "For tests.")
class Rule(RunningFirst):
    __slots__ = ("__plans",)
    def __init__(self, settings): self.__plans = 0
    def state(self): return (self.__plans,)
    def plan(self, batch):
        self.__plans += 1
        return super().plan(batch)
"""

LATE: Final = """
@BATCHING.plugin("own", "For tests.")
class Rule(RunningFirst):
    def __init__(self, settings): pass
    def admits(self, batch, request): return not batch.running or batch.now - request.queued_us > 200_000
"""


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    with left_as_found():
        yield


def loaded(folder: Path, text: str, **changes: object) -> blis_tui.Experiment:
    path = folder / "own.py"
    path.write_text(HEAD + text, encoding="utf-8")
    settings = {f"policy.{key}": value for key, value in changes.items()}
    small = {"workload.requests": 60, "engine.max_num_seqs": 4, "cluster.instances": 1}
    return blis_tui.load("schedulers", set={**small, **settings}, plugins=[path])


def with_some_waiting(experiment: blis_tui.Experiment) -> blis_tui.Simulation:
    """A run up to where five requests wait."""
    simulation = blis_tui.Simulation(experiment)
    while len(simulation.cluster.instances[0].waiting.items) < 5:
        assert simulation.step() is not None
    return simulation


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (COUNTING, {"scheduling": "own"}),
        (COUNTING, {"scheduling": "own", "batching": "tensorrt-llm"}),
        (BACKWARDS, {"scheduling": "own", "batching": "tensorrt-llm"}),
        (LAST_FIRST, {"scheduling": "own"}),
        (RULE, {"batching": "own"}),
    ],
    ids=["slots of a queue", "and ties in order", "another order", "the last first", "slots of a rule"],
)
def test_a_checkpoint_keeps_what_they_remember(text: str, changes: dict[str, str], tmp_path: Path) -> None:
    experiment = loaded(tmp_path, text, **changes)
    simulation = with_some_waiting(experiment)
    fresh = blis_tui.Simulation(experiment)
    fresh.restore(simulation.checkpoint())
    assert fresh.digest() == simulation.digest()
    for one in (fresh, simulation):
        one.run()
    assert fresh.digest() == simulation.digest()


@pytest.mark.parametrize("text", [BACKWARDS, LAST_FIRST], ids=["sorted", "fcfs"])
@pytest.mark.parametrize("batching", ["blis", "sglang"])
def test_a_queue_that_says_who_goes_first_is_asked_under_every_rule(text: str, batching: str, tmp_path: Path) -> None:
    simulation = with_some_waiting(loaded(tmp_path, text, scheduling="own", batching=batching))
    waiting = simulation.cluster.instances[0].waiting
    ordered = waiting.ordered()
    if text is LAST_FIRST:
        assert [request.index for request in ordered] == list(waiting.items)[::-1]
    else:
        assert ordered == sorted(ordered, key=lambda request: -request.input_tokens)


def test_a_rule_that_lets_nobody_in_is_asked_again_where_only_time_has_passed(tmp_path: Path) -> None:
    """A request comes while another one decodes, and enters with the first step that starts late enough."""
    simulation = blis_tui.Simulation(loaded(tmp_path, LATE, batching="own"))
    batch = simulation.cluster.instances[0].batch
    waited: list[int] = []
    steps: list[int] = []

    def note(record: Scheduled) -> None:
        request = batch.running[max(batch.running)]
        if len(batch.running) > 1:
            waited.append(record.time_us - request.queued_us)

    simulation.subscribe(Scheduled, note)
    simulation.subscribe(StepFinished, lambda record: steps.append(record.duration_us))
    simulation.run()
    assert waited
    assert min(waited) > 200_000
    assert any(wait <= 200_000 + max(steps) for wait in waited)


def test_a_routing_policy_may_have_what_it_likes_by_the_names_that_ours_have(tmp_path: Path) -> None:
    text = """
from blis_tui.plugins import ROUTING
@ROUTING.plugin("own", "For tests.")
class Own:
    rule = "The first."
    shares = "none"
    def __init__(self, settings): pass
    def choose(self, request, fleet, context): return 0, "the first"
    def explain(self): return "as it likes"
    def state(self): return ()
"""
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    own = blis_tui.load("quickstart", set={"workload.requests": 20, "policy.routing": "own"}, plugins=[path])
    decisions: list[RoutingDecision] = []
    simulation = blis_tui.Simulation(own)
    simulation.subscribe(RoutingDecision, decisions.append)
    simulation.run()
    assert [decision.regret_ppm for decision in decisions] == [None] * 20
    assert simulation.report().to_json() == blis_tui.run(own).to_json()
