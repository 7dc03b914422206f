"""``session-affinity``: a session stays where it is; new ones go to the least loaded instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING, pick

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ROUTING.plugin("session-affinity", "All requests of a session go to the same instance, new ones to the least loaded.")
class SessionAffinity:
    """Remembers where each session is; a request without a session is one of its own."""

    rule = "Session-affinity sends all requests of a session to one instance; new ones go to the least loaded."

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._homes: dict[str, int] = {}

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """Where the session is, if that instance can still be chosen."""
        session = request.session_id
        home = self._homes.get(session) if session else None
        if home in fleet.members:
            return fleet.members.index(home), f"session {session}"
        loads = fleet.loads()
        least = min(loads)
        place = pick([at for at, load in enumerate(loads) if load == least], context)
        if session:
            self._homes[session] = fleet.members[place]
        return place, f"load {least}"

    def forget(self, instance: int) -> None:
        """The instance has gone with its cache: its sessions may be anywhere."""
        self._homes = {session: home for session, home in self._homes.items() if home != instance}

    def state(self) -> tuple[object, ...]:
        """Where the sessions are."""
        return tuple(self._homes.items())
