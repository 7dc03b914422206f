"""The book of single requests: the numbers of each, and what few requests have besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.request import NO_MEDIA, Media, MediaItem, declared_segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.request import Request, Segments

NOTED: Final = ("names", "sessions", "requested", "budgets", "retries", "parts", "extras")
"""Facts of which few requests have any."""


class Extras(NamedTuple):
    """Facts that only few workloads state per request; times in microseconds, -1 = never happened."""

    reasoning_tokens: int
    """Reasoning tokens; -1 = not recorded."""
    first_answer_us: int
    ttfat_us: int
    media: Media
    items: tuple[MediaItem, ...]
    """The media by item; empty = not known."""


NO_EXTRAS: Final = Extras(-1, -1, -1, NO_MEDIA, ())


class Group(NamedTuple):
    """Facts that many requests share."""

    slo_class: str
    tenant: str
    segments: Segments
    timeout_us: int
    """Time from arrival to deadline, in microseconds; 0 = none."""
    model: str
    adapter: str


def contradicts(request: Request) -> bool:
    """Return whether the times of an ended request contradict the order of a request's life (INV-5)."""
    completed_us, way = request.completed_us, request.handover
    # If transfers start with the step that completes the prefill, the answer may begin before the first token.
    early = way is not None and 0 <= way.transfer_start_us < request.first_token_us
    return completed_us >= 0 and not (
        request.arrival_us
        <= request.queued_us
        <= request.scheduled_us
        <= request.first_token_us
        <= (completed_us if not early else request.first_token_us)
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestBook(Picklable):
    """What the numbers of requests leave out.

    Args:
        groups: groups that have their numbers already, in order.
        noted: facts about requests, shared with another book; None = there are none yet.

    Attributes:
        groups: facts that requests share -> their number.
        noted: what few requests have (a name of ``NOTED``) -> request number -> it.
    """

    def __init__(
        self,
        groups: Iterable[tuple[str, str, Segments, int, str, str]] = (),
        noted: dict[str, dict[int, object]] | None = None,
    ) -> None:
        self.groups: dict[tuple[str, str, Segments, int, str, str], int] = {
            group: number for number, group in enumerate(groups)
        }
        self.noted: dict[str, dict[int, object]] = {name: {} for name in NOTED} if noted is None else noted

    def take_over(self, other: RequestBook) -> list[int]:
        """Add the facts of another process of the same run; return the number of each of its groups here."""
        for name, facts in other.noted.items():
            self.noted[name].update(facts)
        return [self.groups.setdefault(group, len(self.groups)) for group in other.groups]

    def row(self, request: Request, ttft_us: int, e2e_us: int, generated_tokens: int) -> tuple[int, ...]:
        """Return the request's numbers (``Numbers``), with its client's TTFT and E2E, and note its other facts."""
        timeout_us = request.deadline_us and request.deadline_us - request.arrival_us
        segments = request.segments if not request.adapter else declared_segments(request)
        common = (request.slo_class, request.tenant, segments[:1], timeout_us, request.model, request.adapter)
        group = self.groups.get(common)
        if group is None:
            group = self.groups[common] = len(self.groups)
        index, noted, way, media = request.index, self.noted, request.handover, request.media
        if generated_tokens != request.output_tokens:
            noted["requested"][index] = request.output_tokens
        if request.declared_tokens != request.output_tokens or request.ignore_eos:
            noted["budgets"][index] = (request.declared_tokens, request.ignore_eos)
        if request.named and request.request_id != f"request_{index}":
            noted["names"][index] = request.request_id
        if request.retries:
            noted["retries"][index] = request.retries
        if len(segments) > 1:
            noted["parts"][index] = segments
        if request.session_id:
            noted["sessions"][index] = (request.session_id, request.round_index)
        if request.reasoning is not None or (media is not NO_MEDIA and media != NO_MEDIA):  # a restored one is a copy
            thought = (-1, -1, -1) if request.reasoning is None else request.reasoning.state()
            noted["extras"][index] = Extras(*thought, media, request.media_items)
        return (
            index,
            request.arrival_us,
            request.queued_us,
            request.scheduled_us,
            request.first_token_us,
            request.completed_us,
            ttft_us,
            e2e_us,
            request.input_tokens,
            generated_tokens,
            request.cached_tokens,
            request.instance,
            request.preemptions,
            group,
            request.state,
            request.length_capped,
            -1 if way is None else way.prefill_instance,
            -1 if way is None else way.transfer_start_us,
            -1 if way is None else way.transfer_us,
            request.gateway_us,
        )
