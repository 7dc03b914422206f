"""The index behind ``weighted`` routing decides as looking at every instance does, and forgets nothing."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.policies.weighted import Weighted
from blis_tui.engine.records import RECORD_KINDS, Observers, Record
from blis_tui.engine.request import Request
from blis_tui.model import Experiment, PluginConfig, Signals
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, experiment, request

NAMES = (
    "prefix-affinity",
    "precise-prefix-cache",
    "queue-depth",
    "kv-utilization",
    "load-balance",
    "active-requests",
    "running-requests",
    "load-aware",
    "vllm-dp",
)


def _scorer(name: str, weight: float) -> PluginConfig:
    return PluginConfig(kind=name, settings={"weight": weight})


@st.composite
def clusters(
    draw: st.DrawFn, *, names: Sequence[str] = NAMES, blocks: int = 40, most: int = 12, gap_us: int = 400
) -> tuple[Experiment, list[Request]]:
    names = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    scorers = tuple(
        PluginConfig(kind=name, settings={"weight": draw(st.sampled_from((0.3, 1.0, 2.0)))}) for name in names
    )
    made = experiment(instances=draw(st.integers(1, 6)), max_num_seqs=3, blocks=blocks)
    made = replace(
        made,
        policy=replace(made.policy, routing=PluginConfig(kind="weighted", settings={"scorers": scorers})),
        cluster=replace(
            made.cluster,
            signals=Signals(
                results=draw(st.sampled_from(("step-end", "step-start"))),
                refresh_interval_us=draw(st.sampled_from((0, 300))),
                cache_signal_delay_us=draw(st.sampled_from((0, 500))),
            ),
        ),
    )
    requests, now = [], 0
    for index in range(draw(st.integers(2, 25))):
        now += draw(st.integers(0, gap_us))
        group = draw(st.sampled_from(((), (("a", 8),), (("b", 12),), (("a", 8), ("c", 8)))))
        head = group[0][1] + (group[1][1] if len(group) > 1 else 0) if group else 0
        prompt = head + draw(st.integers(1, 20))
        requests.append(request(index, now, prompt, draw(st.integers(1, most)), segments=group))
    return made, requests


def records(
    made: Experiment, requests: list[Request], *, ranks: bool, cut: int = 0, moves: Sequence[int] = ()
) -> list[Record]:
    """Of a run in which, with every second event, one more of ``moves`` leaves the fleet, or comes back."""
    found: list[Record] = []
    observers = Observers()
    observers.add_all(RECORD_KINDS.values(), found.append)
    cluster = Cluster(made, ListSource(requests), RequestLog(), observers)
    router = cluster.dispatcher.router
    assert isinstance(router.policy, Weighted)
    router.policy._can_rank = ranks
    if cut:
        cluster.run(cut)
        router.policy = deepcopy(router.policy)
    for index in moves:
        members = router.fleet.members
        if index not in members:
            cluster.registry.include(index)
        elif len(members) > 1:
            cluster.registry.exclude(index)
        cluster.run(2)
    cluster.run(100_000)
    assert len(cluster.registry.board._listeners) <= 1 + (cut > 0)
    return found


@settings(max_examples=75, deadline=None)
@given(clusters(), st.integers(0, 60), st.lists(st.integers(0, 5), max_size=20))
def test_the_index_finds_what_looking_at_all_finds(
    case: tuple[Experiment, list[Request]], cut: int, moves: list[int]
) -> None:
    made, requests = case
    moves = [index for index in moves if index < made.pools[0].instances]
    ranked = records(made, deepcopy(requests), ranks=True, cut=cut, moves=moves)
    assert ranked == records(made, requests, ranks=False, cut=cut, moves=moves)


def ends(made: Experiment, requests: list[Request], *, ranks: bool) -> list[tuple[int, int]]:
    """Where each request ran and when it ended, in a run to which nobody listens: decodes are put off there."""
    cluster = Cluster(made, ListSource(requests), RequestLog(), Observers())
    router = cluster.dispatcher.router
    assert isinstance(router.policy, Weighted)
    router.policy._can_rank = ranks
    cluster.run(100_000, exact=False)
    assert cluster.registry.board.deferring
    return [(one.instance, one.completed_us) for one in requests]


@settings(max_examples=75, deadline=None)
@given(clusters(names=("kv-utilization", "active-requests"), blocks=400, most=200, gap_us=10_000))
def test_decodes_that_are_put_off_change_no_choice(case: tuple[Experiment, list[Request]]) -> None:
    made, requests = case
    assert ends(made, deepcopy(requests), ranks=True) == ends(made, requests, ranks=False)
