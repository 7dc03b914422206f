"""What authors of plug-ins import: plug points, and the types that plug-ins see and answer with.

``docs/plugins.md`` shows how to write one. Nothing inside this package imports this module.
"""

from blis_tui.cluster.policies.scoring import FigureScorer, SparseScorer, Weight
from blis_tui.cluster.policy import (
    ADMISSION,
    DECIDER,
    ROUTING,
    SATURATION,
    SCORING,
    AdmissionPolicy,
    Decider,
    RoutingPolicy,
    Saturation,
    Scorer,
)
from blis_tui.cluster.signals import CacheView, Context, Fleet, IncomingRequest, InstanceSignals
from blis_tui.engine.batch import Batch
from blis_tui.engine.batching.rule import BATCHING, BatchRule, RunningFirst
from blis_tui.engine.batching.traits import Traits
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY, Chunk, Overheads, StepLoad, StepTimeModel
from blis_tui.engine.plan import Plan, Preemption
from blis_tui.engine.preemption.restore import RESTORE, Costs, RestoreRule
from blis_tui.engine.preemption.victims import VICTIM, Seats, VictimRule
from blis_tui.engine.profile import Limits
from blis_tui.engine.records import Description, Record
from blis_tui.engine.request import Media, Request, Segments
from blis_tui.engine.scheduling.priority import PRIORITY, PriorityRule
from blis_tui.engine.scheduling.queue import SCHEDULING, FcfsQueue, SortedQueue, WaitingQueue
from blis_tui.engine.stopped import Stopped
from blis_tui.engine.streams import Stream
from blis_tui.panes import PaneLine, PaneView, Told, pane
from blis_tui.registry import NoSettings, setting
from blis_tui.spec.model import Engine, Hardware, Model, Pool, Trace
from blis_tui.workload.arrivals import ARRIVALS, Gaps
from blis_tui.workload.lengths import LENGTHS, TokenCounts
from blis_tui.workload.ratios import RATIOS, Ratios
from blis_tui.workload.trace_table import LeftOut, TraceColumns
from blis_tui.workload.trace_text import Problems, TraceText
from blis_tui.workload.traces import TRACES

__all__ = [
    "ADMISSION",
    "ARRIVALS",
    "BATCHING",
    "DECIDER",
    "LATENCY",
    "LENGTHS",
    "PRIORITY",
    "RATIOS",
    "RESTORE",
    "ROUTING",
    "SATURATION",
    "SCHEDULING",
    "SCORING",
    "TRACES",
    "VICTIM",
    "AdmissionPolicy",
    "Batch",
    "BatchRule",
    "CacheView",
    "Chunk",
    "Context",
    "Costs",
    "Decider",
    "Description",
    "Engine",
    "FcfsQueue",
    "FigureScorer",
    "Fleet",
    "Gaps",
    "Hardware",
    "IncomingRequest",
    "InstanceSignals",
    "LeftOut",
    "Limits",
    "Media",
    "Model",
    "NoSettings",
    "Overheads",
    "PaneLine",
    "PaneView",
    "Plan",
    "Pool",
    "Preemption",
    "PriorityRule",
    "Problems",
    "Ratios",
    "Record",
    "Request",
    "RestoreRule",
    "RoutingPolicy",
    "RunningFirst",
    "Saturation",
    "Scorer",
    "Seats",
    "Segments",
    "SortedQueue",
    "SparseScorer",
    "StepLoad",
    "StepTimeModel",
    "Stopped",
    "Stream",
    "TokenCounts",
    "Told",
    "Trace",
    "TraceColumns",
    "TraceText",
    "Traits",
    "VictimRule",
    "WaitingQueue",
    "Weight",
    "coefficients",
    "pane",
    "setting",
]
