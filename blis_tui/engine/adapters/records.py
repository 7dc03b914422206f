"""What is told of LoRA adapters."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.preemption.records import RestoreChosen as _RestoreChosen  # noqa: F401  (kinds come in that order)
from blis_tui.engine.records import Description, Record
from blis_tui.engine.speculative.records import DraftsVerified as _DraftsVerified  # noqa: F401  (likewise)


@dataclass(frozen=True, slots=True)
class AdapterHeld(Record):
    """A waiting request was passed over for the first time because of its LoRA adapter.

    ``reason`` is ``slots``: as many others as may run do (``in_use``); or ``load``: it is not on the accelerators yet.
    ``in_use`` names first what has been in use for the longest.
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
    """``slots``: as many others as may run do; ``load``: it is not on the GPUs yet."""
    in_use: tuple[str, ...]
    """Adapters in use, first what has been for the longest."""


@dataclass(frozen=True, slots=True)
class AdapterEvicted(Record):
    """The LoRA adapter that was used least recently makes room for another one."""

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
    """The adapter that makes room."""
    beneficiary: str
    """The adapter that takes its place."""


@dataclass(frozen=True, slots=True)
class AdapterLoad(Record):
    """A LoRA adapter is loaded from ``host`` or ``storage``, for a request.

    Under ``blis`` it is there when an event says so (``adapter-ready``); under ``vllm-v1`` the step takes that much
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
    """How long that takes."""


@dataclass(frozen=True, slots=True)
class AdapterReady(Record):
    """A LoRA adapter is on the accelerators that was loaded while steps went on."""

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
    """How long loading it took."""
