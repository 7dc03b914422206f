"""The current metrics of vLLM servers, in Prometheus text format.

A request's contributions are added when it ends. Contributions known earlier (first tokens, prompts) also include
requests in progress.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.client_times import client_ttft_us
from blis_tui.output.openmetrics import (
    AT_DEADLINE,
    FAMILIES,
    GAPS,
    GENERATED,
    INSTANCE_FIGURES,
    US_PER_S,
    about,
    buckets_of_tokens,
    gaps_of,
    longest,
    series_name,
)
from blis_tui.results.request_log import RequestNumbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.output.openmetrics import Family
    from blis_tui.results.request_log import RequestLog

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Sum:
    """Contributions of requests to one metric of one instance."""

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends = ends
        self.total = 0
        self.counts = [0] * (len(ends) + 1)

    def add(self, value: int, scale: int) -> None:
        """Add one contribution."""
        self.total += value
        self.counts[bisect_left(self.ends, value / scale)] += 1

    def copy(self) -> _Sum:
        """Return an independent copy."""
        other = _Sum(self.ends)
        other.total, other.counts = self.total, [*self.counts]
        return other


class Metrics:
    """Sums up ended requests, and exposes the sums together with requests in progress."""

    def __init__(self) -> None:
        self._models: list[str] = []
        """The model of each instance."""
        self._seen = 0
        self._sums: list[list[_Sum]] = []
        self._first_tokens: list[int] = []
        self.cut: set[int] = set()
        """Requests whose answers end with the most tokens that they may have, until they are summed up."""

    def text(self, cluster: Cluster, log: RequestLog, live: Sequence[Request]) -> str:
        """Return the current metrics; ``live`` are the requests in progress."""
        for instance in cluster.instances[len(self._sums) :]:
            pool = cluster.pools[instance.index]
            self._models.append(pool.model.name)
            ends = [
                () if family.counts else family.buckets_s or buckets_of_tokens(longest(pool)) for family in FAMILIES
            ]
            self._sums.append([_Sum(end) for end in ends])
            self._first_tokens.append(0)
        for row in log.rows(self._seen):
            capped = int(row.number in self.cut)
            self.cut.discard(row.number)
            self._add(self._sums, self._first_tokens, row._replace(length_capped=capped))
        self._seen = len(log)
        sums = [[summed.copy() for summed in of_instance] for of_instance in self._sums]
        first_tokens = [*self._first_tokens]
        for request in live:
            if request.instance >= 0:
                self._add(sums, first_tokens, _row(request, cluster.instances[request.instance]))
        return "".join(self._lines(cluster, sums, first_tokens))

    def _add(self, sums: list[list[_Sum]], first_tokens: list[int], row: RequestNumbers) -> None:
        if row.instance < 0:
            return
        for family, summed in zip(FAMILIES, sums[row.instance], strict=True):
            values = family.of(row)
            if values is not None and (values[0] >= 0 or values[0] == AT_DEADLINE):
                summed.add(values[1], family.scale())
        first_tokens[row.instance] += row.first_token_us >= 0 and row.output_tokens > 0

    # ---- text ----

    def _lines(self, cluster: Cluster, sums: list[list[_Sum]], first_tokens: list[int]) -> Iterator[str]:
        instances = cluster.instances
        gaps = [gaps_of(instance) for instance in instances]
        for figure in INSTANCE_FIGURES:
            yield from about(figure.sample, figure.kind, figure.help)
            for instance in instances:
                yield _line(figure.sample, self._labels(instance), figure.of(instance))
        generated = f"{GENERATED[0]}_total"
        yield from about(generated, "counter", GENERATED[1])
        for instance, (counts, _), first in zip(instances, gaps, first_tokens, strict=True):
            yield _line(generated, self._labels(instance), whole_sum(counts) + first)
        yield from self._config(cluster)
        yield from about(GAPS.name, "histogram", GAPS.help)
        for instance, (counts, total_us) in zip(instances, gaps, strict=True):
            yield from _histogram(GAPS.name, self._labels(instance), GAPS.buckets_s, counts, total_us / US_PER_S)
        described = ""
        for place, family in enumerate(FAMILIES):
            if family.name != described:
                described = family.name
                name = f"{family.name}_total" if family.counts else family.name
                yield from about(name, "counter" if family.counts else "histogram", family.help)
            for instance in instances:
                yield from self._series(family, instance, sums[instance.index][place])

    def _labels(self, instance: Instance) -> dict[str, str]:
        return {"engine": str(instance.index), "model_name": self._models[instance.index]}

    def _config(self, cluster: Cluster) -> Iterator[str]:
        """Iterate over the settings of the KV cache; vLLM's count includes a block that no request gets."""
        yield from about("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
        for instance, pool in zip(cluster.instances, cluster.pools, strict=True):
            labels = {
                "block_size": str(pool.engine.block_size_tokens),
                "enable_prefix_caching": str(pool.engine.enable_prefix_caching),
                "engine": str(instance.index),
                "num_gpu_blocks": str(pool.engine.kv_blocks + 1),
            }
            yield _line("vllm:cache_config_info", labels, 1)

    def _series(self, family: Family, instance: Instance, summed: _Sum) -> Iterator[str]:
        labels = {**self._labels(instance), **dict(family.labels)}
        if family.counts:
            yield _line(f"{family.name}_total", labels, summed.total)
        else:
            yield from _histogram(family.name, labels, summed.ends, summed.counts, summed.total / family.scale())


def _row(request: Request, instance: Instance) -> RequestNumbers:
    """Return the books of a request in progress."""
    return RequestNumbers(
        number=request.index,
        arrival_us=request.arrival_us,
        queued_us=request.queued_us,
        scheduled_us=request.scheduled_us,
        first_token_us=request.first_token_us,
        completed_us=-1,
        ttft_us=client_ttft_us(request, instance.latency) if request.first_token_us >= 0 else -1,
        e2e_us=-1,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        cached_tokens=request.cached_tokens,
        instance=request.instance,
        preemptions=request.preemptions,
        group=0,
        state=request.state,
        length_capped=0,
        prefill_instance=-1,
        transfer_start_us=-1,
        transfer_us=-1,
        gateway_us=-1,
    )


def _histogram(
    name: str, labels: Mapping[str, str], ends: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[str]:
    upto = 0
    for end, count in zip((*ends, None), counts, strict=True):
        upto += count
        yield _line(f"{name}_bucket", {**labels, "le": "+Inf" if end is None else repr(end)}, upto)
    yield _line(f"{name}_count", labels, upto)
    yield _line(f"{name}_sum", labels, total)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    return f"{series_name(name, labels)} {float(value)!r}\n"
