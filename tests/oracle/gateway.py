"""The queue before the router, written as plainly as possible: one list, searched again each time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from .control import urgency

if TYPE_CHECKING:
    from blis_tui.model import Gateway, Policy

    from .instance import Job

_QUANTUM_TOKENS = 512


@dataclass(eq=False)
class Ticket:
    """A request that waits here."""

    job: Job
    number: int
    priority: int
    since_us: int

    @property
    def tenant(self) -> str:
        return self.job.request.tenant


class GatewayQueue:
    """Requests that wait until the instances are less busy."""

    def __init__(self, settings: Gateway, policy: Policy) -> None:
        self.settings = settings
        self._policy = policy
        self.tickets: list[Ticket] = []
        self._came = 0
        self._bands: set[int] = set()
        self._served: dict[int, str] = {}
        self._credit: dict[tuple[int, str], float] = {}

    def _band(self, ticket: Ticket) -> int:
        return ticket.priority if self.settings.bands else 0

    def offer(self, job: Job, now: int) -> tuple[Ticket | None, Ticket | None]:
        """Take in a newcomer: its ticket, if it is accepted, and the request that had to leave for it."""
        settings = self.settings
        ticket = Ticket(job, self._came + 1, urgency(self._policy, job), now)
        self._bands.add(self._band(ticket))
        beside = [one for one in self.tickets if self._band(one) == self._band(ticket)]
        victim = None
        full = 0 < settings.max_depth <= len(self.tickets)
        band_full = settings.bands and 0 < settings.per_band_capacity <= len(beside)
        if band_full:
            return None, None  # all in the band are as urgent as the newcomer, so none has to leave for it
        if full:
            if settings.when_full == "reject":
                return None, None
            victim = min(self.tickets, key=lambda one: (one.priority, -one.number))
            if victim.priority >= ticket.priority:
                return None, None
            if settings.when_full == "shed-sheddable" and victim.priority >= 0:
                return None, None
            self.remove(victim)
        self._came += 1
        self.tickets.append(ticket)
        return ticket, victim

    def full(self, job: Job) -> str:
        """Why a newcomer was turned away."""
        priority = urgency(self._policy, job)
        beside = [ticket for ticket in self.tickets if ticket.priority == priority]
        if self.settings.bands and 0 < self.settings.per_band_capacity <= len(beside):
            return f"the band of priority {priority} is full"
        return "the queue is full"

    def remove(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)
        band = self._band(ticket)
        if not any(self._band(one) == band and one.tenant == ticket.tenant for one in self.tickets):
            self._credit.pop((band, ticket.tenant), None)

    def next(self, saturation: float) -> Ticket | None:
        """Take out the request to dispatch now, if any."""
        if not self.tickets:
            return None
        band = max(self._band(ticket) for ticket in self.tickets)
        bands = sorted(self._bands, reverse=True)
        ceiling = 1.0
        if len(bands) > 1:
            ceiling = 1.0 - bands.index(band) * (1.0 - self.settings.usage_limit) / (len(bands) - 1)
        if saturation >= ceiling:
            return None
        inside = sorted((ticket for ticket in self.tickets if self._band(ticket) == band), key=self._order)
        if self.settings.fairness != "global-strict":
            heads: dict[str, Ticket] = {}
            for ticket in inside:
                heads.setdefault(ticket.tenant, ticket)
            chosen = self._turn(band, heads)
        else:
            chosen = inside[0]
        self.remove(chosen)
        return chosen

    def _order(self, ticket: Ticket) -> tuple[float, int]:
        """The first request within a band."""
        if self.settings.order == "priority":
            return (-ticket.priority, ticket.number)
        if self.settings.order == "slo-deadline":
            target = self.settings.slo_targets_us.get(ticket.job.request.slo_class, inf)
            return (ticket.since_us + target, ticket.number)
        return (0, ticket.number)

    def _turn(self, band: int, heads: dict[str, Ticket]) -> Ticket:
        """The tenant whose turn it is: after the one served last while that one has requests, else the first."""
        tenants = sorted(heads)
        last = self._served.get(band)
        if self.settings.fairness == "weighted" and last in heads:
            cost = heads[last].job.request.input_tokens
            if self._credit.get((band, last), 0.0) >= cost:
                self._credit[band, last] -= cost
                return heads[last]
        if last in heads:
            at = tenants.index(last) + 1
            tenants = tenants[at:] + tenants[:at]
        if self.settings.fairness == "round-robin":
            self._served[band] = tenants[0]
            return heads[tenants[0]]
        while True:
            for tenant in tenants:
                cost = heads[tenant].job.request.input_tokens
                credit = self._credit.get((band, tenant), 0.0)
                credit += _QUANTUM_TOKENS * self.settings.weights.get(tenant, 1.0)
                self._credit[band, tenant] = credit
                if credit >= cost:
                    self._credit[band, tenant] -= cost
                    self._served[band] = tenant
                    return heads[tenant]
