"""The report's sections on requests that reason before they answer, and on prompts with media."""

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
    """Reasoning and answers of all requests; distributions exclude the warm-up."""

    requests: int
    """Requests that ask for any reasoning tokens."""
    answered: int
    """Requests with reasoning that got a token of the answer itself."""
    reasoning_tokens: int
    """Output tokens generated as reasoning."""
    answer_tokens: int
    """Output tokens generated that are not reasoning, including those of requests that do not reason."""
    share: float
    """``reasoning_tokens`` as a share, from 0 to 1, of all output tokens."""
    ttfat_ms: Distribution
    """Time to first answer token: from arrival to the first token after the reasoning, at the client, for requests that
    reason and got there."""
    reasoning_ms: Distribution
    """Time from the first token to the first answer token, for the same requests as ``ttfat_ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalReport:
    """Composition of prompts: tokens of all requests, whether or not they were served."""

    requests: int
    """Requests whose prompt contains media."""
    text_tokens: int
    """Prompt tokens that are text, including those of text-only requests."""
    image_tokens: int
    """Prompt tokens that stand for images."""
    audio_tokens: int
    """Prompt tokens that stand for audio."""
    video_tokens: int
    """Prompt tokens that stand for video."""


def reasons(experiment: Experiment, cluster: Cluster) -> bool:
    """Return whether the workload states which output tokens are reasoning."""
    table = table_of(cluster.source)
    if table is not None:
        return table.has_column("reasoning_tokens")
    return any(client.reasoning is not None for client in experiment.workload.clients)


def is_multimodal(experiment: Experiment, cluster: Cluster) -> bool:
    """Return whether the workload states which prompt tokens are media."""
    table = table_of(cluster.source)
    if table is not None:
        return table.has_column("media")
    return any(client.multimodal is not None for client in experiment.workload.clients)


def reasoning_report(rows: Sequence[Row], table: RequestTable, warm_up_us: int) -> ReasoningReport:
    """Return the figures of all requests; distributions exclude the warm-up."""
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
    """Return the prompt composition of all requests."""
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
