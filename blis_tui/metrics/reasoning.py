"""What reports say of requests that reason before they answer, and of prompts that are not only text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import Distribution, of_samples
from blis_tui.workload.source import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.metrics.request_log import RequestTable, Row
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningReport:
    """Reasoning and answers of all requests; the distributions are of those that reason.

    ``ttfat_ms``: arrival to the first token of the answer itself (time to first answer token), as clients measure it.
    ``reasoning_ms``: from the first token to that one.
    """

    requests: int
    """That reason."""
    answered: int
    """Those of them that got a token of their answer."""
    reasoning_tokens: int
    """Generated; likewise below."""
    answer_tokens: int
    share: float
    """Of all output tokens, that of reasoning."""
    ttfat_ms: Distribution
    reasoning_ms: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalReport:
    """What prompts consist of: tokens of all requests, whether or not they were served."""

    requests: int
    """With a prompt that is not only text."""
    text_tokens: int
    image_tokens: int
    audio_tokens: int
    video_tokens: int


def reasons(experiment: Experiment, cluster: Cluster) -> bool:
    """Whether it is said what of answers is reasoning."""
    table = table_of(cluster.source)
    if table is not None:
        return table.says("reasoning_tokens")
    return any(client.reasoning is not None for client in experiment.workload.clients)


def is_multimodal(experiment: Experiment, cluster: Cluster) -> bool:
    """Whether it is said what of prompts is no text."""
    table = table_of(cluster.source)
    if table is not None:
        return table.says("media")
    return any(client.multimodal is not None for client in experiment.workload.clients)


def reasoning_report(rows: Sequence[Row], table: RequestTable, warm_up_us: int) -> ReasoningReport:
    """The figures of all requests; the distributions leave the warm-up out."""
    requests = answered = thought = tokens = 0
    to_answer: list[int] = []
    spans: list[int] = []
    for row in rows:
        extras = table.extras(row.number)
        tokens += row.output_tokens
        if extras.reasoning_tokens > 0:
            requests += 1
            answered += extras.ttfat_us >= 0
            thought += min(extras.reasoning_tokens, row.output_tokens)
            if extras.ttfat_us >= 0 and row.arrival_us >= warm_up_us:
                to_answer.append(extras.ttfat_us)
                spans.append(extras.ttfat_us - row.ttft_us)
    return ReasoningReport(
        requests=requests,
        answered=answered,
        reasoning_tokens=thought,
        answer_tokens=tokens - thought,
        share=thought / tokens if tokens else 0.0,
        ttfat_ms=of_samples(to_answer),
        reasoning_ms=of_samples(spans),
    )


def multimodal_report(rows: Sequence[Row], table: RequestTable) -> MultimodalReport:
    """The figures of all requests."""
    requests = text = image = audio = video = 0
    for row in rows:
        media = table.extras(row.number).media
        requests += any(media)
        text += row.input_tokens - media.tokens
        image += media.image_tokens
        audio += media.audio_tokens
        video += media.video_tokens
    return MultimodalReport(
        requests=requests, text_tokens=text, image_tokens=image, audio_tokens=audio, video_tokens=video
    )
