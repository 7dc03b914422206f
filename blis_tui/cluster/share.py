"""A share of a cluster: some of its instances, where another process simulates the others.

Every process lets all requests arrive and routes them, which costs little, and drops those for other shares. That is
exact where routing and admission read no state of the instances: see :func:`why_whole`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.cluster.instance_registry import shared_stores
from blis_tui.cluster.pipeline import Dispatcher
from blis_tui.cluster.routed_request import NO_NEXT_STAGE
from blis_tui.engine.latency.model import is_pure

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.cluster.decisions import Reroute
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.router import Router
    from blis_tui.model import Experiment


@mypyc_attr(allow_interpreted_subclasses=True)
class ShareDispatcher(Dispatcher):
    """Sends requests to the instances of a share, and drops those that the router sends elsewhere.

    Args:
        share: indices of the instances.
    """

    def __init__(
        self,
        experiment: Experiment,
        pipeline: Pipeline,
        router: Router,
        routes: dict[str, Reroute],
        share: Collection[int],
    ) -> None:
        super().__init__(experiment, pipeline, router, routes)
        self._share = frozenset(share)

    def deliver(self, routed: RoutedRequest, index: int, now: int) -> int:
        """Send a request to its instance's queue if that is part of the share."""
        if index in self._share:
            return super().deliver(routed, index, now)
        self._pipeline.elsewhere += 1
        return NO_NEXT_STAGE


def why_whole(experiment: Experiment, pipeline: Pipeline) -> str:
    """Return why the instances cannot be simulated separately with the same results; empty = they can."""
    registry, settings, policy = pipeline.registry, experiment.cluster, experiment.policy
    reasons = (
        (len(registry.instances) == 1, "there is one instance"),
        (bool(experiment.plugins_used()), "plug-ins may look at the whole cluster"),
        (pipeline.arrivals.await_answers, "some requests are sent when others have ended"),
        (settings.varies, "instances are started and stopped"),
        (settings.disaggregation is not None, "prefill and decode are on different instances"),
        (any(pool.lockstep for pool in experiment.pools), "the ranks of a replica start their steps together"),
        (bool(shared_stores(registry.instances)), "instances share a KV tier"),
        (policy.gateway is not None, "the gateway looks at all instances"),
        (policy.deferral != "none", "deferred requests wait until all instances are idle"),
        (registry.counts_tenants, "budgets of tenants count requests on all instances"),
        (pipeline.dispatcher.router.reads_signals, f"routing `{policy.routing.kind}` looks at all instances"),
        (pipeline.admission.control.reads_signals, f"admission `{policy.admission.kind}` looks at all instances"),
        (pipeline.dispatcher.regrets is not None, "`counterfactual` looks at all instances"),
        (registry.watched, "the control plane follows all instances"),
        (
            not all(is_pure(instance.latency) for instance in registry.instances),
            "step times depend on more than the load",
        ),
    )
    return next((text for applies, text in reasons if applies), "")
