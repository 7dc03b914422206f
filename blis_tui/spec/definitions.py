"""The definitions of each schema, and the class that defines the keys of each.

Only ``docs/make_schemas.py``, which writes the schemas, needs this module.
"""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.keys import LARGEST
from blis_tui.spec import model, written
from blis_tui.spec.model.experiment import FitnessWeights, GoldenComparison
from blis_tui.spec.model.machine import Link
from blis_tui.spec.model.twin import TwinTest, TwinTolerance
from blis_tui.spec.study.model import Objective

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One definition of a schema."""

    of: type | None = None
    """The class that defines its keys; None = ``limits`` define everything."""
    kind: str = ""
    """The kind of document that it describes; empty = a part of documents."""
    doc: str = ""
    """Its description, if it is not the class's docstring."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """Additional JSON Schema keywords."""
    point: str = ""
    """The plug point whose plug-ins are allowed here."""
    short: str = "string"
    """Type of the short form allowed instead of a plug-in's map: its name, or a number."""
    open: bool = False
    """Whether other keys are allowed."""
    required: tuple[str, ...] = ()
    """Keys that a separate document must have, but an inline part need not."""
    nameless: bool = False
    """Whether it has no description, because every key that refers to it has one."""


METADATA: Final = "common.schema.json#/$defs/metadata"
SHARED: Final = {"title": "Shared parts", "description": "Definitions that several kinds of document use."}
"""Title and description of the schema of shared parts."""
SHAPES: Final[Mapping[str, type]] = MappingProxyType({"columns": written.TraceColumns})
"""Names by which records refer to classes in higher layers."""

DEFINITIONS: Final[Mapping[str, Mapping[str, Definition]]] = MappingProxyType(
    {
        "common": {
            "metadata": Definition(of=written.Metadata, nameless=True),
            "coefficients": Definition(
                doc="Coefficients of a step-time model, in the order its document under `specs/latency/` explains;"
                " microseconds unless said otherwise.",
                limits={
                    "type": "array",
                    "items": {"description": "One coefficient.", "type": "number", "minimum": 0, "maximum": LARGEST},
                    "maxItems": 11,
                },
            ),
            "values": Definition(
                of=written.Values,
                limits={
                    "title": "a list of values or a range",
                    "type": ["array", "object"],
                    "minItems": 1,
                    "items": {"description": "One value, as it would stand in the experiment."},
                },
            ),
        },
        "experiment": {
            "document": Definition(
                of=model.Experiment,
                kind="Experiment",
                limits={"if": {"required": ["extends"]}, "else": {"required": ["model", "hardware", "workload"]}},
            ),
            "cluster": Definition(of=model.Cluster),
            "engine": Definition(of=model.Engine),
            "expectation": Definition(of=model.Expectation),
            "course_expectation": Definition(of=model.CourseExpectation),
            "expected": Definition(
                doc="A metric of the report and what it must be, or what must hold in the course of the run.",
                limits={
                    "type": "object",
                    "if": {"anyOf": [{"required": [name]} for name in ("always", "never", "eventually", "count")]},
                    "then": {"$ref": "#/$defs/course_expectation"},
                    "else": {"$ref": "#/$defs/expectation"},
                },
            ),
            "overrides": Definition(
                doc="Values to replace, by dotted path; as with `--set`.",
                limits={
                    "type": "object",
                    "additionalProperties": {"description": "The value, as it would stand in the document."},
                },
            ),
            "golden": Definition(of=GoldenComparison),
            "twin": Definition(of=TwinTest),
            "twin_tolerance": Definition(of=TwinTolerance),
            "pool": Definition(of=model.Pool),
            "nodes": Definition(of=model.NodePool),
            "failure": Definition(of=model.Failure),
            "slo_target": Definition(of=model.SloTarget, limits={"minProperties": 1}),
            "fitness_weights": Definition(of=FitnessWeights, limits={"minProperties": 1}),
            "kv_tier": Definition(of=model.KvTier),
        },
        "hardware": {
            "document": Definition(of=model.Hardware, kind="Hardware"),
            "link": Definition(of=Link),
        },
        "latency": {
            "document": Definition(
                of=written.LatencyDocument,
                kind="Latency",
                limits={"if": {"required": ["rows"]}, "else": {"required": ["alpha", "beta"]}},
            ),
            "row": Definition(of=written.Row),
        },
        "model": {
            "document": Definition(of=written.ModelDocument, kind="Model"),
            "config": Definition(of=written.ModelConfig, open=True),
        },
        "policy": {
            "document": Definition(of=model.Policy, kind="Policy"),
            "scorer": Definition(
                doc="One scorer and its weight; a word alone is the scorer of that name with weight 1.",
                point="policy.routing.scorers",
            ),
            "scorers": Definition(
                doc="Scorers with their weights, added up in this order.",
                limits={
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 64,
                    "items": {"$ref": "#/$defs/scorer"},
                    "examples": [[{"kind": "prefix-affinity", "weight": 3}, {"kind": "queue-depth", "weight": 2}]],
                },
            ),
        },
        "study": {
            "document": Definition(of=written.StudyDocument, kind="Study", required=("experiment",)),
            "excluded": Definition(
                of=written.Excluded,
                limits={
                    "type": ["object", "array", "string", "number", "boolean", "null"],
                    "items": {"description": "A value that is meant."},
                    "minProperties": 1,
                },
            ),
            "objective": Definition(of=Objective),
        },
        "workload": {
            "document": Definition(of=model.Workload, kind="Workload"),
            "column": Definition(
                doc="Name of a column of the file, as its header has it.",
                limits={"type": "string", "minLength": 1, "maxLength": 200},
            ),
            "client": Definition(of=model.Client),
            "session-call": Definition(of=model.SessionCall),
            "lengths": Definition(
                doc="A distribution of token counts; a plain number is a fixed count.",
                point="workload.clients.lengths",
                short="integer",
                limits={
                    "minimum": 1,
                    "maximum": 10**9,
                    "examples": [
                        {"kind": "constant", "value": 256},
                        {"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 2, "max": 800},
                        {"kind": "lognormal", "mu": 5.5, "sigma": 0.8, "max": 4000},
                        {"kind": "exponential", "mean": 128, "max": 1024},
                        {
                            "kind": "pareto-lognormal",
                            "alpha": 1.5,
                            "xm": 100,
                            "mu": 5.5,
                            "sigma": 0.8,
                            "mix_weight": 0.1,
                        },
                        {"kind": "empirical", "weights": {"128": 3, "512": 1}},
                    ],
                },
            ),
            "ratio": Definition(
                doc="A distribution of shares between 0 and 1; a plain number is a fixed share.",
                point="workload.clients.reasoning.ratio",
                short="number",
                limits={"minimum": 0, "maximum": 1},
            ),
            "modality": Definition(of=model.Modality),
        },
    }
)
"""Schema -> its definitions, except those that plug points and ``variants`` add."""
