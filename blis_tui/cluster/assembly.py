"""Assembles the stages of a cluster: those that every cluster has, and those that an experiment configures.

Modules needed only for the latter are imported inside these functions.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.streams import Streams
from blis_tui.cluster.admission_control import AdmissionControl
from blis_tui.cluster.factory import InstanceFactory
from blis_tui.cluster.instance_registry import ALL_ROLES, DECODING, PREFILLING, InstanceRegistry
from blis_tui.cluster.pipeline import Admission, Arrivals, Dispatcher, Pipeline
from blis_tui.cluster.router import Router
from blis_tui.engine.events import EventQueue
from blis_tui.workload.source import awaits_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from blis_tui.cluster.decisions import Reroute
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment
    from blis_tui.workload.source import RequestSource


def assembled(
    experiment: Experiment,
    source: RequestSource,
    ledger: Ledger,
    observers: Observers,
    routes: Mapping[str, Reroute],
    share: Collection[int] | None = None,
) -> Pipeline:
    """Create a cluster's stages before the first event: see ``Cluster`` for the arguments.

    Raises:
        PolicyError: a policy does not exist, or rejects its settings.
    """
    queue, streams = EventQueue(), Streams(experiment.seed)
    ended: list[tuple[Request, int]] = []
    if awaits_answers(source):
        from blis_tui.cluster.options.closed_loop import NotifyingLedger

        ledger = NotifyingLedger(ledger, ended)
    registry = InstanceRegistry(experiment, InstanceFactory(experiment, queue, ledger, observers))
    pipeline = Pipeline(queue, observers, ledger, registry)
    fleet = registry.fleet_of(ALL_ROLES)
    control = AdmissionControl(experiment, registry, fleet, streams, observers)
    admission = pipeline.admission = Admission(pipeline, control)
    entrance: Callable[[RoutedRequest, int], int] = admission.enter
    if experiment.cluster.varies:
        from blis_tui.cluster.options.lifecycle import LifecycleControl

        pipeline.lifecycle = lifecycle = LifecycleControl(experiment, pipeline, streams)
        registry.followers.append(lifecycle)
    pipeline.dispatcher = _dispatcher(experiment, pipeline, streams, dict(routes), share)
    admission.onward = pipeline.dispatcher.dispatch
    if experiment.policy.gateway is not None:
        from blis_tui.cluster.options.gateway import GatewayControl

        pipeline.gateway = gateway = GatewayControl(experiment, experiment.policy.gateway, pipeline, fleet)
        registry.followers.append(gateway)
        admission.onward = gateway.enter
    if experiment.policy.deferral == "idle-only":
        from blis_tui.cluster.options.gateway import IdleOnly

        pipeline.deferral = deferral = IdleOnly(experiment, pipeline, entrance)
        registry.followers.append(deferral)
        entrance = deferral.enter
    entrance = pipeline.lifecycle.counted(entrance)
    pipeline.arrivals = _arrivals(experiment, source, pipeline, entrance, ended)
    reads = admission.control.reads_signals or pipeline.dispatcher.router.reads_signals
    looks = reads or pipeline.dispatcher.regrets is not None
    if looks or registry.followers or registry.counts_tenants or registry.watch.early:
        registry.enable_reports()
    return pipeline


def _dispatcher(
    experiment: Experiment,
    pipeline: Pipeline,
    streams: Streams,
    routes: dict[str, Reroute],
    share: Collection[int] | None,
) -> Dispatcher:
    registry, split = pipeline.registry, experiment.cluster.disaggregation
    whole = ALL_ROLES if split is None or split.undisaggregated == "all" else DECODING
    router = Router(experiment, experiment.policy.routing, registry.fleet_of(whole), streams, pipeline.observers)
    registry.routers.append(router)
    if share is not None:
        from blis_tui.cluster.share import ShareDispatcher

        return ShareDispatcher(experiment, pipeline, router, routes, share)
    if split is None:
        return Dispatcher(experiment, pipeline, router, routes)
    from blis_tui.cluster.options.disaggregation import DecodeFirst, PrefillFirst

    halves = (("prefill", split.prefill_routing, PREFILLING), ("decode", split.decode_routing, DECODING))
    for role, config, roles in halves:
        path = f"policy/{role}-routing"
        registry.routers.append(Router(experiment, config, registry.fleet_of(roles), streams, pipeline.observers, path))
    kind = DecodeFirst if split.order == "decode-first" else PrefillFirst
    splitter = kind(experiment, split, pipeline, registry.routers, routes)
    registry.followers.append(splitter)
    return splitter


def _arrivals(
    experiment: Experiment,
    source: RequestSource,
    pipeline: Pipeline,
    entrance: Callable[[RoutedRequest, int], int],
    ended: list[tuple[Request, int]],
) -> Arrivals:
    if not awaits_answers(source):
        return Arrivals(experiment, source, pipeline, entrance)
    from blis_tui.cluster.options.closed_loop import Feedback

    return Feedback(experiment, source, pipeline, entrance, ended)
