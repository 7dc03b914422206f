"""A routing policy that tells what it found in each cache, and a pane of the debugger that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.plugins import ROUTING, Description, PaneLine, Record, pane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.plugins import Context, Fleet, IncomingRequest, NoSettings, PaneView


@dataclass(frozen=True, slots=True)
class CacheProbed(Record):
    """The router looked for a prompt in the prefix caches."""

    shown = Description(
        "cache-probed",
        sign="%",
        meaning="the router looked for a prompt in the prefix caches",
        sentence="{hit_tokens:token} of {request_id} are cached on instance {instance}",
        line="{hit_tokens:token} cached on instance {instance}, {least_tokens:,} where least is",
        figures=("hit_tokens", "least_tokens"),
        own_event=False,
    )

    request_id: str
    instance: int
    hit_tokens: int
    """Tokens of the prompt that the chosen instance has."""
    least_tokens: int
    """Tokens that the instance has which has fewest."""


@ROUTING.plugin("most-cached", "The most of the prompt cached; of equals, the first.")
class MostCached:
    """Looks at nothing but prefix caches."""

    rule = "The instance that has most of the prompt in its prefix cache."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The first of those with most."""
        cached = [signals.cache.cached_tokens(request.segments) for signals in fleet]
        place = cached.index(max(cached))
        context.emit(CacheProbed, request.request_id, fleet.members[place], cached[place], min(cached))
        return place, f"{cached[place]} tokens cached"

    def state(self) -> tuple[object, ...]:
        """Nothing to remember."""
        return ()


@pane("Probes", "What the router found in the prefix caches", key="P")
def probes(view: PaneView, width: int) -> Iterator[PaneLine]:
    """One line for each routed request, the latest first."""
    for record in view.past_records("cache-probed"):
        text = f"{record.request} {record.values['hit_tokens']} tokens on instance {record.instance}"
        yield PaneLine(text[:width], "bold" if record.request == view.request else "", event=record.event)
