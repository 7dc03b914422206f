"""The gateway's queue: priority bands, fairness between tenants within a band, and evictions when it is full."""

from __future__ import annotations

from bisect import insort
from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.model import Gateway

_QUANTUM_TOKENS = 512
"""Tokens that a tenant of weight 1 may send per turn under ``weighted``."""
_NEVER = 1 << 126


@dataclass(order=True, slots=True)
class Held:
    """A request in the queue; sorts in dispatch order."""

    key: tuple[int, int]
    routed: RoutedRequest = field(compare=False)
    priority: int = field(compare=False)
    number: int = field(compare=False)
    """Sequence number by arrival."""
    since_us: int = field(compare=False)
    gone: bool = field(default=False, compare=False)
    """Whether it has left the queue."""


class Band:
    """Requests of one priority, by tenant."""

    def __init__(self) -> None:
        self.flows: dict[str, list[Held]] = {}
        self.served: str | None = None
        """The tenant served last; None = there was none yet."""
        self.credit: dict[str, float] = {}
        """Tokens that tenants may still send in this round."""

    def twin(self) -> Band:
        """Return a band with the same requests but independent turns."""
        twin = Band()
        twin.flows, twin.served, twin.credit = self.flows, self.served, dict(self.credit)
        return twin

    def __len__(self) -> int:
        return whole_sum([len(flow) for flow in self.flows.values()])


class GatewayQueue:
    """Requests that wait until the instances are less busy."""

    def __init__(self, settings: Gateway) -> None:
        self._settings = settings
        self._bands: dict[int, Band] = {}
        self._count = 0
        self._number = 0

    def __len__(self) -> int:
        return self._count

    def held(self) -> Iterator[Held]:
        """Iterate over all requests, band by band."""
        for priority in sorted(self._bands, reverse=True):
            flows = self._bands[priority].flows
            for tenant in sorted(flows):
                yield from flows[tenant]

    def offer(self, routed: RoutedRequest, priority: int, now: int) -> tuple[Held | None, Held | None]:
        """Add a request; return its entry (None = rejected), and the request evicted for it."""
        settings = self._settings
        band = self._band(priority)
        if self.band_is_full(priority):
            return None, None  # all requests in the band are equally urgent
        victim = None
        if 0 < settings.max_depth <= self._count:
            victim = self._victim(priority)
            if victim is None:
                return None, None
            self.remove(victim)
        self._number += 1
        held = Held(self._key(routed, priority, now), routed, priority, self._number, now)
        insort(band.flows.setdefault(routed.incoming.tenant_id, []), held)
        self._count += 1
        return held, victim

    def band_is_full(self, priority: int) -> bool:
        """Whether no request of this priority would be added, however many others there are."""
        settings = self._settings
        return settings.bands and 0 < settings.per_band_capacity <= len(self._band(priority))

    def next(self, saturation: float) -> Held | None:
        """Remove and return the request to dispatch; None = none waits, or the instances are too busy for the next."""
        bands = sorted(self._bands, reverse=True)
        for at, priority in enumerate(bands):
            band = self._bands[priority]
            if not band.flows:
                continue
            if saturation >= self._ceiling(at, len(bands)):
                return None
            held = band.flows[self._turn(band)][0]
            self.remove(held)
            return held
        return None

    def upcoming(self) -> Held | None:
        """Return the next request if no other arrives and the instances are not too busy, without changing anything."""
        for priority in sorted(self._bands, reverse=True):
            band = self._bands[priority]
            if band.flows:
                return band.flows[self._turn(band.twin())][0]
        return None

    def bands(self) -> Iterator[tuple[int, float, Band]]:
        """Iterate over the bands, most urgent first: priority, saturation up to which it is served, requests."""
        priorities = sorted(self._bands, reverse=True)
        for at, priority in enumerate(priorities):
            yield priority, self._ceiling(at, len(priorities)), self._bands[priority]

    def remove(self, held: Held) -> None:
        """Remove a request."""
        held.gone = True
        band = self._bands[held.priority if self._settings.bands else 0]
        tenant = held.routed.incoming.tenant_id
        flow = band.flows[tenant]
        flow.remove(held)
        if not flow:
            del band.flows[tenant]
            band.credit.pop(tenant, None)
        self._count -= 1

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        return (
            self._number,
            tuple((held.key, held.routed.request.index, held.priority, held.since_us) for held in self.held()),
            tuple((key, band.served, tuple(band.credit.items())) for key, band in sorted(self._bands.items())),
        )

    def _band(self, priority: int) -> Band:
        return self._bands.setdefault(priority if self._settings.bands else 0, Band())

    def _key(self, routed: RoutedRequest, priority: int, now: int) -> tuple[int, int]:
        order = self._settings.order
        if order == "priority":
            return (-priority, self._number)
        if order == "slo-deadline":
            target = self._settings.slo_targets_us.get(routed.incoming.slo_class)
            return (_NEVER if target is None else now + target, self._number)
        return (self._number, 0)

    def _ceiling(self, at: int, bands: int) -> float:
        return 1.0 if bands == 1 else 1.0 - at * (1.0 - self._settings.usage_limit) / (bands - 1)

    def _victim(self, priority: int) -> Held | None:
        """Return the request to evict for a new one: the least urgent, then the latest; None = reject the new one."""
        rule = self._settings.when_full
        if rule == "reject" or not self._count:
            return None
        worst = min(self.held(), key=lambda held: (held.priority, -held.number))
        if worst.priority >= priority or (rule == "shed-sheddable" and worst.priority >= 0):
            return None
        return worst

    def _turn(self, band: Band) -> str:
        """Return the tenant whose turn it is."""
        flows = band.flows
        fairness = self._settings.fairness
        if fairness == "global-strict":
            return min(flows, key=lambda tenant: flows[tenant][0])
        tenants = sorted(flows)
        # The tenant after the one served last, if that one still has requests here; otherwise the first, as in BLIS.
        last = band.served
        following = [tenant for tenant in tenants if last in flows and tenant > last] or tenants
        if fairness == "round-robin":
            band.served = following[0]
            return following[0]
        # Deficit round-robin (Shreedhar and Varghese, 1995): a tenant sends as long as its credit covers the prompt.
        if last in flows and band.credit.get(last, 0.0) >= _cost(flows[last][0]):
            tenant = last
        else:
            at = tenants.index(following[0])
            while True:
                tenant = tenants[at % len(tenants)]
                credit = band.credit.get(tenant, 0.0) + _QUANTUM_TOKENS * self._settings.weights.get(tenant, 1.0)
                band.credit[tenant] = credit
                if credit >= _cost(flows[tenant][0]):
                    break
                at += 1
            band.served = tenant
        band.credit[tenant] -= _cost(flows[tenant][0])
        return tenant


def _cost(held: Held) -> int:
    return held.routed.incoming.input_tokens
