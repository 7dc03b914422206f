"""What is remembered of every request: one packed row each, about 110 bytes, in order of their ends."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from blis_tui.engine.clientview import client_ttft_us
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request

_ROW: Final = Struct("<qqqqqqqqqqqiiiBB")

STATE_NAMES: Final = {
    RequestState.CREATED: "in-transit",
    RequestState.WAITING: "waiting",
    RequestState.RUNNING: "running",
    RequestState.COMPLETED: "completed",
    RequestState.REJECTED: "rejected",
    RequestState.DROPPED_UNSERVABLE: "dropped-unservable",
    RequestState.TIMED_OUT: "timed-out",
}
"""How a request's state reads in files and tables."""


class Row(NamedTuple):
    """A request's books as plain integers; times in microseconds, -1 = never happened."""

    index: int
    arrival_us: int
    queued_us: int
    scheduled_us: int
    first_token_us: int
    completed_us: int
    ttft_us: int
    e2e_us: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    instance: int
    preemptions: int
    group: int
    """Number of its (slo class, tenant) pair; see ``RequestLog.groups``."""
    state: int
    length_capped: int


class RequestLog:
    """The ledger behind reports and request files.

    Attributes:
        groups: the distinct (slo class, tenant) pairs, in order of first appearance.
    """

    __slots__ = ("_group_numbers", "_names", "_packed", "_sessions", "groups")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._names: dict[int, str] = {}
        self._sessions: dict[int, tuple[str, int]] = {}
        self._group_numbers: dict[tuple[str, str], int] = {}
        self.groups: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self._packed) // _ROW.size

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Remember a request that has come to its end."""
        self._packed += self._pack(request, ttft_us, e2e_us, request.generated_tokens)

    def rows(self, cluster: Cluster) -> list[Row]:
        """All requests that have arrived, in order of arrival; those still on their way as they stand now."""
        packed = bytearray(self._packed)
        for request in cluster.in_transit():
            packed += self._pack(request, -1, -1, 0)
        for instance in cluster.instances:
            cohort = instance.cohort
            for request in (*instance.waiting.ordered(), *instance.running.values()):
                ttft = -1 if request.first_token_us < 0 else client_ttft_us(request, instance.latency)
                packed += self._pack(request, ttft, -1, cohort.generated_tokens(request))
        rows = list(map(Row._make, _ROW.iter_unpack(packed)))
        rows.sort()
        return rows

    def name(self, index: int) -> str:
        """The request's name."""
        return self._names.get(index) or f"request_{index}"

    def session(self, index: int) -> tuple[str, int] | None:
        """The request's session and its round in it, if it belongs to one."""
        return self._sessions.get(index)

    def fingerprint(self) -> str:
        """A digest of all closed rows, in order of their ends."""
        return sha256(self._packed).hexdigest()

    def _pack(self, request: Request, ttft_us: int, e2e_us: int, generated_tokens: int) -> bytes:
        group = self._group_numbers.get((request.slo_class, request.tenant))
        if group is None:
            group = self._group_numbers[request.slo_class, request.tenant] = len(self.groups)
            self.groups.append((request.slo_class, request.tenant))
        index = request.index
        if request.request_id != f"request_{index}":
            self._names[index] = request.request_id
        if request.session_id:
            self._sessions[index] = (request.session_id, request.round_index)
        return _ROW.pack(
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
