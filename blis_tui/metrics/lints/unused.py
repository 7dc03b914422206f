"""Parts of the cluster and of the engine that are configured, but that nothing in the run uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.units import span_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.metrics.lints.finding import LintContext


def unused_of_cluster(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield rules for instances that never start and for requests that are never left whole, and failures to come."""
    cluster = seen.experiment.cluster
    comes_back = any(one.repair_us is not None for one in cluster.failures)
    if cluster.lifecycle is not None and cluster.autoscaler is None and not comes_back:
        yield "cluster.lifecycle", "no instance starts later, or is removed: there is no autoscaler, and no repair"
    elif cluster.lifecycle is not None:
        requests, factor = cluster.lifecycle.warm_up_requests, cluster.lifecycle.warm_up_factor
        if factor != 1 and not requests:
            yield "cluster.lifecycle.warm_up_factor", "with `warm_up_requests: 0`, instances are warm when they start"
        if requests and factor == 1:
            yield (
                "cluster.lifecycle.warm_up_requests",
                "with `warm_up_factor: 1`, cold instances are as fast as warm ones",
            )
    split = cluster.disaggregation
    if split is not None and split.decider.kind == "always" and split.undisaggregated != "decode-pool":
        yield "cluster.disaggregation.undisaggregated", "with `decider: always`, every request is split"
    for number, failure in enumerate(cluster.failures):
        if seen.done and failure.at_us is not None and failure.at_us > seen.duration_us:
            yield f"cluster.failures.{number}", f"the run ended before it, at {span_text(seen.duration_us)}"


def unused_of_engines(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield ranks of LoRA adapters that no request of the whole run asks for, and an encoder of media without any."""
    engines = [pool.engine for pool in seen.experiment.pools]
    if not seen.done:
        return
    named = dict.fromkeys(name for one in engines if one.lora is not None for name in one.lora.ranks)
    if named:
        asked = {seen.table.adapter(row) for row in seen.table.plain()} if seen.table.has_adapters else set()
        for name in named:
            if name not in asked:
                yield f"engine.lora.ranks.{name}", "no request asks for that adapter"
    if any(one.encoder is not None for one in engines) and not seen.table.has_media:
        yield "engine.encoder", "no prompt has images, audio or video"
