"""Where requests come from."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model.plugin_config import PluginConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prompt prefix shared by all requests of ``group``."""

    group: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A client's connection."""

    rtt_ms: float
    bandwidth_mbps: float | None
    """None = unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """What a client's rate is at some time."""

    at_s: float
    factor: float
    """1 = what its share of the workload's rate is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """A client's rate over time: linear between points."""

    points: tuple[RatePoint, ...]
    """The first at 0, each later than the one before."""
    repeat: bool = False
    """Whether it begins again after the last point; else the rate stays what it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCall:
    """One request of each turn of a session."""

    id: str
    after: tuple[str, ...] = ()
    """Calls of the turn that must be answered before; none = it starts the turn."""
    input_tokens: PluginConfig | None = None
    """None = the client's; likewise below."""
    output_tokens: PluginConfig | None = None
    wait_ms: PluginConfig | None = None
    """From those answers until it is sent, as while a tool works; None = no time."""
    parallel: int = 1
    """It is sent so many times at once, each with lengths of its own."""
    history: bool = True
    """Whether its prompt begins with what was said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Requests that belong together: the turns of a conversation, or the calls of an agent."""

    turns: PluginConfig
    think_time_ms: PluginConfig | None = None
    """From the end of a turn to the next one; None = no time."""
    history: str = "full"
    """``full``: prompts begin with what was said before in the session; ``none``: every prompt stands for itself."""
    pacing: str = "answers"
    """What the next prompt waits for: ``answers`` to those before it, or the ``clock``, from their sending."""
    max_context_tokens: int | None = None
    """A session ends before the turn whose prompt and answer would be longer."""
    calls: tuple[SessionCall, ...] = ()
    """What a turn consists of; none = one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMix:
    """LoRA adapters, and how popular each is."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    """One for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """How requests think before they answer."""

    ratio: PluginConfig
    """Share of the output tokens that are reasoning."""
    history: str = "dropped"
    """What later prompts of a session begin with: the answers alone (``dropped``), or the reasoning, too (``kept``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modality:
    """Items of one kind in prompts."""

    probability: float
    """That a prompt has any."""
    count: PluginConfig
    """How many it has then."""
    tokens: PluginConfig
    """Of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal:
    """What prompts have beside text."""

    images: Modality | None = None
    audio: Modality | None = None
    video: Modality | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One stream of generated requests."""

    id: str
    share: float
    arrivals: PluginConfig
    input_tokens: PluginConfig
    output_tokens: PluginConfig
    prefix: Prefix | None = None
    slo_class: str = "standard"
    tenant: str = ""
    model: str = ""
    """Name of the model that its requests ask for; empty = any."""
    timeout_us: int | None = None
    network: Network | None = None
    repeated_prompts: int = 0
    """It sends so many prompts again and again; 0 = every prompt is new."""
    rate_curve: RateCurve | None = None
    """How its rate changes over time; None = it does not."""
    session: Session | None = None
    """How its requests belong together; then its arrivals are those of sessions. None = they do not."""
    adapters: AdapterMix | None = None
    """Of which each request (each session) asks for one; None = for the base model."""
    reasoning: Reasoning | None = None
    """How its requests think before they answer; None = they do not, or nobody asks."""
    multimodal: Multimodal | None = None
    """What its prompts have beside the text of ``input_tokens``; None = nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A rate for some time."""

    rate_per_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded workload. ``path`` is absolute; ``sha256`` of the content stands for it in the digest."""

    path: str
    format: str
    sha256: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """What is said -> the column that says it, where its name does not."""
    time_unit: str = ""
    """Unit of the arrivals, ``s``, ``ms``, ``us`` or ``ns``; empty = the file tells."""
    limit: int | None = None
    """How many requests of the file are read; None = all."""
    slice: tuple[float, float | None] | None = None
    """Which part of it is replayed, from and until when in seconds (None = its end); None = all."""
    scale_rate: float = 1.0
    """Arrivals are divided by it."""
    rate_per_s: float | None = None
    """How many requests (of conversations, how many of these) arrive in a second where the file does not say when."""
    pacing: str = "clock"
    """What prompts of sessions after the first wait for: the ``clock`` of the trace, or ``answers`` to those before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Generated (``clients``) or recorded (``trace``); exactly one of the two is set."""

    name: str
    requests: int | None = None
    """How many requests of all clients together; ``None`` = until the horizon (or all of the trace)."""
    sessions: int | None = None
    """How many sessions of all clients together begin; ``None`` = as many as there is time for."""
    rate_per_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    """Instead of one rate: one after the other; requests end with the last one."""
    exact_stage_counts: bool = False
    """Whether each stage gets exactly rate x duration requests, as far as they are whole."""
    clients: tuple[Client, ...] = ()
    trace: Trace | None = None
