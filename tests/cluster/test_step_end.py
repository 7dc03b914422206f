"""What a step computes is seen after its end."""

from dataclasses import replace

from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.records import Observers
from blis_tui.model import PluginConfig
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, experiment, request

_BUSY = {"queue_depth_threshold": 5.0, "kv_utilization_threshold": 0.8}


def test_routers_see_what_a_step_computes_after_its_end_also_when_another_one_has_begun() -> None:
    one = request(0, 0, 8, 1, segments=(("x", 8),))
    made = experiment(admission=PluginConfig(kind="gaie-legacy", settings=_BUSY))
    cluster = Cluster(made, ListSource([one, request(1, 20, 3, 1)]), RequestLog(), Observers())
    cluster.run(100, until_us=30)
    # The first step lasts until 108; the second request came when nobody was left in the batch.
    pool = cluster.instances[0].pool
    assert cluster.instances[0].tallies.steps == 2
    assert [pool.visible_head(one.segments, now) for now in (30, 108, 109)] == [0, 0, 2]
    assert [len(pool.visible_keys(now)) for now in (30, 108, 109)] == [0, 0, 2]


def test_blocks_are_seen_until_the_step_of_their_own_request_ends() -> None:
    made = experiment(max_num_seqs=1, beta=(5.0, 1.0, 0.0))
    made = replace(made, policy=replace(made.policy, routing=PluginConfig(kind="least-loaded")))
    # The second one comes while the first step runs, and starts a shorter one, which ends before.
    requests = [request(0, 0, 40, 1), request(1, 10, 8, 1)]
    cluster = Cluster(made, ListSource(requests), RequestLog(), Observers())
    [instance] = cluster.instances
    seen = []
    for time_us in (10, 23, 45):
        cluster.run(100, until_us=time_us)
        seen.append(instance.seen.kv_used)
    assert seen == [12, 10, 0]
