"""Former spellings of keys, used by ``blis-tui upgrade`` to rewrite documents and by hints.

Every key that is renamed, moved or removed gets a row here; ``docs/versions.md`` says how long rows stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.spec.source import DataPath

FORMATS: Final = ("blis/v1",)
"""All versions of the document format (``apiVersion``), oldest first; only the last one is current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerKey:
    """A former key."""

    format: str
    """The last version of the format with the key; the current one if it was removed before that version's release."""
    holders: tuple[str, ...]
    """The keys of the maps that contained it."""
    key: str
    now: str
    """The new key in the same map, or with dots a path of the experiment; empty = removed."""
    instead: str = ""
    """What to write instead of a removed key."""
    kind: str = ""
    """The ``kind`` of the map that contained it; empty = any. A key of the same name in another kind of map is current.
    """

    def sentence(self) -> str:
        """Return what happened to the key."""
        return f"it is `{self.now}` now" if self.now else f"it is gone: {self.instead}"


_EAGER: Final = "what launching operators takes is `hardware.launch_us`"
FORMER_KEYS: Final = (
    FormerKey(format="blis/v1", holders=("autoscaler",), key="kv_cache_threshold", now="kv_utilization_threshold"),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="kv_cache", now="kv_read", kind="fitted"),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="eager_step_us", now="", instead=_EAGER),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="eager_layer_us", now="", instead=_EAGER),
    FormerKey(format="blis/v1", holders=("batching",), key="enforce_eager", now="engine.enforce_eager"),
)
"""All former keys, oldest first."""


def former_key(
    path: DataPath, key: str, kind: str = "", older: tuple[FormerKey, ...] = FORMER_KEYS
) -> FormerKey | None:
    """Return the row of a key in the map at ``path``, or of a dotted path as in ``set`` and ``cases``.

    ``kind``: the ``kind`` of the map; empty = unknown.
    """
    *above, name = key.split(".")
    holder = above[-1] if above else next((step for step in reversed(path) if isinstance(step, str)), "")
    return next(
        (one for one in older if one.key == name and holder in one.holders and one.kind in ("", kind or one.kind)), None
    )
