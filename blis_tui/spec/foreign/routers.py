"""How routers choose among servers, under the names that routers, charts and operators have for it."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import printable
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.foreign.server_starts import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Input

_PREFIX: Final = "prefix-affinity"
_CACHED: Final = "precise-prefix-cache"


def _weighted(*scorers: str) -> dict[str, Json]:
    return {"kind": "weighted", "scorers": [{"kind": one, "weight": 1} for one in scorers]}


_LISTED: Final[tuple[tuple[str, dict[str, Json], str], ...]] = (
    ("roundrobin disaggregated", {"kind": "round-robin"}, ""),
    ("disaggregatedprefill", {"kind": "round-robin"}, ""),
    ("random", {"kind": "power-of-two", "choices": 1}, ""),
    ("poweroftwo p2c", {"kind": "power-of-two"}, ""),
    ("session sessionaffinity consistenthash", {"kind": "session-affinity"}, ""),
    ("leastrequest leastload leastloaded leastbusy", {"kind": "least-loaded"}, ""),
    ("leastlatency", {"kind": "least-estimated-ttft"}, "it predicts what the router measures"),
    ("leastkvcache", _weighted("kv-utilization"), ""),
    ("prefixaware prefixcache", _weighted(_PREFIX), "it is `prefix-affinity` alone"),
    ("cacheaware", _weighted(_PREFIX, "load-balance"), "it weighs both, where the router switches"),
    ("kvaware", _weighted(_CACHED), "it is `precise-prefix-cache` alone"),
    ("kv", _weighted(_CACHED, "load-balance"), "it weighs cached blocks and load equally"),
    ("lora loraaffinity", _weighted("lora-affinity"), ""),
)
POLICIES: Final = MappingProxyType({name: (policy, why) for names, policy, why in _LISTED for name in names.split()})
"""Name without signs -> `policy.routing`, and what is otherwise than in the router; empty = nothing."""


_ROUTER: Final = re.compile(r"proxy|router|gateway|load.?balanc|frontend", re.IGNORECASE)
_SAYING: Final = ("--policy", "--routing-logic", "--router-mode")
"""Arguments of routers that name their policy."""


def router_in(texts: Sequence[str]) -> str:
    """Return the word of a command that says that it is a router or a proxy; empty = it is none."""
    return next((one for one in texts[:4] if _ROUTER.search(one)), "")


def routing_said(texts: Sequence[str], given: Input, path: DataPath) -> dict[str, Json]:
    """Return ``policy.routing`` for a router's command, having noted it; nothing if it says none."""
    policy = next((value for name in _SAYING if (value := value_of(texts, name))), "")
    return routing_of(policy, given, path) if policy else {}


def routing_of(name: str, given: Input, path: DataPath) -> dict[str, Json]:
    """Return ``policy.routing`` for a router's policy, having noted it; nothing if it is not known.

    Args:
        name: the policy, as a router calls it.
        given: where it is noted.
        path: its path in the input.
    """
    found = POLICIES.get("".join(one for one in name.lower() if one.isalnum()))
    if found is None:
        given.note(Fate.NOT_CARRIED, path, f"routing `{printable(name)}` is not simulated: instances take turns")
        return {}
    policy, why = found
    shown = policy["kind"] if isinstance(policy["kind"], str) else ""
    text = f"`policy.routing: {shown}`" + (f": {why}" if why else "")
    given.note(Fate.APPROXIMATED if why else Fate.TAKEN, path, text)
    return {"policy.routing": policy}
