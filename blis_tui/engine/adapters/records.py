"""Records about LoRA adapters."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.preemption.records import RestoreChosen as _RestoreChosen  # noqa: F401  (fixes the order of kinds)
from blis_tui.engine.records import Description, Record
from blis_tui.engine.speculative.records import DraftsVerified as _DraftsVerified  # noqa: F401  (as above)


@dataclass(frozen=True, slots=True)
class AdapterHeld(Record):
    """A waiting request was skipped for the first time because of its LoRA adapter.

    ``reason`` is ``slots``: the maximum number of other adapters is in use (``in_use``); or ``load``: it is not on the
    accelerators yet. ``in_use`` starts with the adapter in use for the longest time.
    """

    shown = Description(
        "adapter-held",
        sign="◫",
        colour="warning",
        meaning="a request is waiting for its LoRA adapter",
        sentence="{request_id} waits for its adapter {adapter} ({reason})",
        line="waits for its adapter, {reason}",
        brief="adapter",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter that it asks for."""
    reason: str
    """``slots``: the maximum number of other adapters is in use; ``load``: it is not on the GPUs yet."""
    in_use: tuple[str, ...]
    """Adapters in use, the one in use for the longest time first."""


@dataclass(frozen=True, slots=True)
class AdapterEvicted(Record):
    """The least recently used LoRA adapter was evicted for another one."""

    shown = Description(
        "adapter-evicted",
        sign="⌫",
        colour="warning",
        meaning="a LoRA adapter was evicted for another one",
        sentence="{adapter} is evicted for {beneficiary}",
        own_event=False,
    )

    instance: int
    """Index of the instance."""
    adapter: str
    """The evicted adapter."""
    beneficiary: str
    """The adapter that takes its place."""


@dataclass(frozen=True, slots=True)
class AdapterLoad(Record):
    """A LoRA adapter is loaded from ``host`` or ``storage`` for a request.

    With ``blis`` batching, the event ``adapter-ready`` ends the load; with ``vllm-v1``, the step takes that much
    longer.
    """

    shown = Description(
        "adapter-load",
        sign="⎘",
        colour="accent",
        meaning="loading of a LoRA adapter started",
        sentence="{adapter} is loaded from {source} for {request_id} in {load_us:span}",
        line="its adapter is loaded in {load_us:span}",
        brief="{load_us:span}",
        figures=("load_us",),
        own_event=False,
    )

    request_id: str
    """The request that it is loaded for."""
    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter's name."""
    source: str
    """Where it comes from: ``host`` or ``storage``."""
    load_us: int
    """Duration of the load."""


@dataclass(frozen=True, slots=True)
class AdapterReady(Record):
    """A LoRA adapter that was loaded concurrently with steps is on the accelerators now."""

    shown = Description(
        "adapter-ready",
        sign="⎗",
        colour="success",
        meaning="a LoRA adapter finished loading",
        sentence="{adapter} is ready, after {load_us:span}",
        line="an adapter is ready after {load_us:span}",
        brief="{load_us:span}",
        figures=("load_us",),
    )

    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter's name."""
    load_us: int
    """Duration of the load."""
