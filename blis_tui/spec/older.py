"""How older documents spell what is spelt otherwise now: ``blis-tui upgrade`` rewrites them by it, and hints name it.

A key that is renamed, moved or taken away gets a row here; ``docs/versions.md`` says how long rows stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.spec.source import DataPath

FORMATS: Final = ("blis/v1",)
"""All versions of the documents' format (``apiVersion``), oldest first; the last one is what is understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """A key that documents had."""

    format: str
    """The last version of the format in which it was understood; of the present one, before its release."""
    holders: tuple[str, ...]
    """The keys of the maps in which it stood."""
    key: str
    now: str
    """The key in the same map, with dots a path of the experiment, empty = there is none any more."""
    instead: str = ""
    """What to say instead, where there is none."""
    kind: str = ""
    """The ``kind`` of the map in which it stood; empty = any. Another kind's key of that name is no older one."""

    def sentence(self) -> str:
        """What became of it."""
        return f"it is `{self.now}` now" if self.now else f"it is gone: {self.instead}"


_EAGER: Final = "what launching operators takes is `hardware.launch_us`"
OLDER: Final = (
    Older(format="blis/v1", holders=("autoscaler",), key="kv_cache_threshold", now="kv_utilization_threshold"),
    Older(format="blis/v1", holders=("latency", "step_time"), key="kv_cache", now="kv_read", kind="fitted"),
    Older(format="blis/v1", holders=("latency", "step_time"), key="eager_step_us", now="", instead=_EAGER),
    Older(format="blis/v1", holders=("latency", "step_time"), key="eager_layer_us", now="", instead=_EAGER),
    Older(format="blis/v1", holders=("batching",), key="enforce_eager", now="engine.enforce_eager"),
)
"""All of them, oldest first."""


def older_of(path: DataPath, key: str, kind: str = "", older: tuple[Older, ...] = OLDER) -> Older | None:
    """The row of a key in the map at ``path``, or of a path with dots, as ``set`` and ``cases`` have them.

    ``kind``: the ``kind`` of the map in which it stands; empty = not known.
    """
    *above, name = key.split(".")
    holder = above[-1] if above else next((step for step in reversed(path) if isinstance(step, str)), "")
    return next(
        (one for one in older if one.key == name and holder in one.holders and one.kind in ("", kind or one.kind)), None
    )
