"""Values that a file of this program may have been given by others: plausible in form, wrong in content."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 1.5, -0.5, 1e308, -1e308, 2**63, 10**30, 10**400),
    *("", "x", "0", "-1", "1e9", "/etc/hostname", "../x", "\x00", "\x1b[31m", "\u202e", "é" * 200, "\ud800"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, ["x"] * 3),
)


def mutated(random: Random, value: Any, changes: int = 3) -> Any:
    """Return a copy of plain data in which some parts are lost, others, or elsewhere."""
    found = deepcopy(value)
    for _ in range(random.randint(1, changes)):
        places = list(_places(found))
        if not places:
            break
        holder, key = random.choice(places)
        kind = random.choice(["other", "other", "lost", "elsewhere", "extra"])
        if kind == "lost":
            del holder[key]
        elif kind == "extra" and isinstance(holder, dict):
            holder[random.choice(["extra", "", "kind", "file"])] = deepcopy(random.choice(ODD))
        else:
            other, at = random.choice(places)
            holder[key] = deepcopy(other[at]) if kind == "elsewhere" else deepcopy(random.choice(ODD))
    return found


def _places(value: Any) -> Any:
    """Yield each holder of a part, with its key."""
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _places(inner)
