"""The book of single requests: the packed row of each, and side tables for what does not fit into it."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.request import NO_MEDIA, Media, MediaItem, declared_segments

if TYPE_CHECKING:
    from blis_tui.engine.request import Request, Segments

PACKED: Final = Struct("<qqqqqqqqqqqiiiBB")
"""The layout of a packed row."""


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
    """Facts that a packed row has no room for: names, sessions, truncated outputs, budgets; and the groups."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str, Segments, int, str, str], int] = {}
        self.groups: list[Group] = []
        self.names: dict[int, str] = {}
        self.sessions: dict[int, tuple[str, int]] = {}
        self.requested: dict[int, int] = {}
        self.budgets: dict[int, tuple[int, bool]] = {}
        self.retries: dict[int, int] = {}
        self.parts: dict[int, Segments] = {}
        self.extras: dict[int, Extras] = {}

    def page(self) -> RequestBook:
        """Return a book for further requests that leaves this one unchanged and continues its group numbers."""
        more = RequestBook()
        more.numbers = dict(self.numbers)
        more.groups = list(self.groups)
        return more

    def up_to(self, groups: int) -> RequestBook:
        """Return the book as it was at a mark. It shares the facts about single requests, which never change."""
        other = RequestBook()
        other.groups = self.groups[:groups]
        other.numbers = {group: number for number, group in enumerate(other.groups)}
        other.names = self.names
        other.sessions = self.sessions
        other.requested = self.requested
        other.budgets = self.budgets
        other.retries = self.retries
        other.parts = self.parts
        other.extras = self.extras
        return other

    def take_over(self, other: RequestBook) -> list[int]:
        """Add the facts of another process of the same run; return the number of each of its groups here."""
        self.names |= other.names
        self.sessions |= other.sessions
        self.requested |= other.requested
        self.budgets |= other.budgets
        self.retries |= other.retries
        self.parts |= other.parts
        self.extras |= other.extras
        found: list[int] = []
        for group in other.groups:
            found.append(self.numbers.setdefault(group, len(self.groups)))
            if found[-1] == len(self.groups):
                self.groups.append(group)
        return found

    def write(self, ended: list[tuple[Request, int, int]], packed: bytearray, contradictions: list[str]) -> None:
        """Append the rows of ended requests, with their clients' TTFT and E2E, and note contradictions."""
        for request, ttft_us, e2e_us in ended:
            ordered = request.queued_us <= request.scheduled_us <= request.first_token_us <= request.completed_us
            if not (ordered and request.arrival_us <= request.queued_us) and contradicts(request):
                contradictions.append(f"the times of request {request.request_id} contradict each other")
            packed += self.pack(request, ttft_us, e2e_us, request.answer_tokens)

    def pack(self, request: Request, ttft_us: int, e2e_us: int, generated_tokens: int) -> bytes:
        """Return the request's row; facts that do not fit into it go into the side tables."""
        timeout_us = request.deadline_us and request.deadline_us - request.arrival_us
        segments = request.segments if not request.adapter else declared_segments(request)
        common = (request.slo_class, request.tenant, segments[:1], timeout_us, request.model, request.adapter)
        group = self.numbers.get(common)
        if group is None:
            group = self.numbers[common] = len(self.groups)
            self.groups.append(Group(*common))
        index = request.index
        if generated_tokens != request.output_tokens:
            self.requested[index] = request.output_tokens
        if request.declared_tokens != request.output_tokens or request.ignore_eos:
            self.budgets[index] = (request.declared_tokens, request.ignore_eos)
        if request.named and request.request_id != f"request_{index}":
            self.names[index] = request.request_id
        if request.retries:
            self.retries[index] = request.retries
        if len(segments) > 1:
            self.parts[index] = segments
        if request.session_id:
            self.sessions[index] = (request.session_id, request.round_index)
        media = request.media
        if request.reasoning is not None or (media is not NO_MEDIA and media != NO_MEDIA):  # a restored one is a copy
            thought = (-1, -1, -1) if request.reasoning is None else request.reasoning.state()
            self.extras[index] = Extras(*thought, media, request.media_items)
        return PACKED.pack(
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
        )
