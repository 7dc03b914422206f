"""The resolved experiment: frozen records with every default and every reference filled in.

Only ``base`` lies below, and the standard library is enough: engine, cluster and workload know these
records, but not YAML, schemas or files. Units are in the names; ``None`` means "off" or "unlimited". See ``schemas/``.
"""

from __future__ import annotations

from blis_tui.model.control_plane import (
    Autoscaler,
    Cluster,
    Delay,
    Disaggregation,
    Failure,
    Lifecycle,
    NodePool,
    Signals,
    Transfer,
)
from blis_tui.model.engine import AllToAll, ApiServer, Encoder, Engine, HostLink, KvTier, KvTiers, Lora, Speculative
from blis_tui.model.experiment import ANY_INSTANCE, CourseExpectation, Expectation, Experiment, Pool, SloTarget
from blis_tui.model.machine import Hardware, Model
from blis_tui.model.policy import (
    SLO_CLASSES,
    SLO_PRIORITIES,
    Gateway,
    PluginConfig,
    Policy,
    Setting,
    TenantBudgets,
    named_in,
)
from blis_tui.model.workload import (
    AdapterMix,
    Budget,
    Client,
    Modality,
    Multimodal,
    Network,
    Prefix,
    RateCurve,
    RatePoint,
    Reasoning,
    Session,
    SessionCall,
    Stage,
    Trace,
    Workload,
)

__all__ = [
    "ANY_INSTANCE",
    "SLO_CLASSES",
    "SLO_PRIORITIES",
    "AdapterMix",
    "AllToAll",
    "ApiServer",
    "Autoscaler",
    "Budget",
    "Client",
    "Cluster",
    "CourseExpectation",
    "Delay",
    "Disaggregation",
    "Encoder",
    "Engine",
    "Expectation",
    "Experiment",
    "Failure",
    "Gateway",
    "Hardware",
    "HostLink",
    "KvTier",
    "KvTiers",
    "Lifecycle",
    "Lora",
    "Modality",
    "Model",
    "Multimodal",
    "Network",
    "NodePool",
    "PluginConfig",
    "Policy",
    "Pool",
    "Prefix",
    "RateCurve",
    "RatePoint",
    "Reasoning",
    "Session",
    "SessionCall",
    "Setting",
    "Signals",
    "SloTarget",
    "Speculative",
    "Stage",
    "TenantBudgets",
    "Trace",
    "Transfer",
    "Workload",
    "named_in",
]
