"""The table of plug points: every place where a document names an implementation.

A row has the plug point itself (its key, noun and protocol), the place in the schemas that names its plug-ins, and how
``check`` makes an experiment name one. All code that handles every plug point uses this table. A field of an
experiment's records that holds a plug-in's name is marked as such (``plug_in`` of ``blis_tui.model``);
``blis_tui.spec.shipped`` lists the built-in plug-ins of each plug point.

The parts of the schemas that depend on plug-ins, their names and the settings of each, are made here, too
(``with_plugins``). ``docs/make_schemas.py`` makes the rest of ``schemas/`` from the keys of records. Existing entries
keep their order in the file, so a new plug-in only adds lines.
"""

from __future__ import annotations

import copy
import json
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Final, TypeAlias, cast, get_type_hints

from blis_tui.base.classes import dataclass
from blis_tui.base.source import as_list, as_map
from blis_tui.cluster.policy import ADMISSION, DECIDER, ROUTING, SATURATION, SCALING, SCORING
from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.orders import PRIORITY
from blis_tui.engine.queue import SCHEDULING
from blis_tui.engine.restore import RESTORE
from blis_tui.engine.rules.rule import BATCHING
from blis_tui.engine.victims import VICTIM
from blis_tui.model.plug_ins import json_type
from blis_tui.workload.arrivals import ARRIVALS
from blis_tui.workload.distributions import LENGTHS, RATIOS
from blis_tui.workload.traces.read import TRACES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.base.source import Json
    from blis_tui.model.keys import Key
    from blis_tui.model.plug_ins import Plugin, Point, Registry

_Part: TypeAlias = "dict[str, Json]"
_NAME: Final = "NAME"
"""Placeholder for a plug-in's name in :attr:`PlugPointRow.changes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugPointRow:
    """The properties of a plug point."""

    point: Point
    schema: str
    """The schema that names its plug-ins."""
    below: tuple[str, ...]
    """Its path below ``$defs`` in that schema."""
    experiment: str = "quickstart"
    """A shipped experiment in which its plug-ins take effect."""
    changes: tuple[str, ...] = ()
    """Overrides that make an experiment name the plug-in ``NAME``; empty = this takes a file for that plug-in."""

    def naming(self, name: str) -> tuple[str, ...]:
        """Return overrides that make an experiment name a plug-in."""
        return tuple(change.replace(_NAME, name) for change in self.changes)


def _policy(point: Point, *, below: tuple[str, ...] = (), experiment: str = "quickstart") -> PlugPointRow:
    """Create the row of a policy key."""
    key = point.path.rpartition(".")[2]
    place = ("document", "properties", *below, key)
    return PlugPointRow(
        point=point, schema="policy", below=place, experiment=experiment, changes=(f"{point.path}={_NAME}",)
    )


def _client(point: Point, below: tuple[str, ...], *keys: str, experiment: str = "quickstart") -> PlugPointRow:
    """Create the row of keys of a workload's clients."""
    changes = tuple(f"workload.clients.0.{key}={{kind: {_NAME}}}" for key in keys)
    return PlugPointRow(point=point, schema="workload", below=below, experiment=experiment, changes=changes)


POINTS: Final = (
    _policy(ADMISSION),
    _policy(ROUTING),
    PlugPointRow(
        point=SCORING,
        schema="policy",
        below=("scorer",),
        changes=(f"policy.routing={{kind: weighted, scorers: [{{kind: {_NAME}}}]}}",),
    ),
    _policy(SATURATION, below=("gateway", "properties")),
    PlugPointRow(
        point=DECIDER,
        schema="experiment",
        below=("cluster", "properties", "disaggregation", "properties", "decider"),
        experiment="disaggregation",
        changes=(f"{DECIDER.path}={_NAME}",),
    ),
    PlugPointRow(
        point=SCALING,
        schema="experiment",
        below=("cluster", "properties", "autoscaler", "properties", "rule"),
        experiment="autoscaling",
        changes=(f"cluster.autoscaler={{max_instances: 4, interval_us: 1000000, rule: {{kind: {_NAME}}}}}",),
    ),
    _policy(SCHEDULING),
    _policy(PRIORITY),
    _policy(BATCHING),
    _policy(VICTIM, below=("preemption", "properties"), experiment="kv-pressure"),
    _policy(RESTORE, below=("preemption", "properties"), experiment="kv-pressure"),
    PlugPointRow(
        point=LATENCY, schema="experiment", below=("document", "properties", "latency"), changes=(f"latency={_NAME}",)
    ),
    _client(ARRIVALS, ("client", "properties", "arrivals"), "arrivals"),
    _client(LENGTHS, ("lengths",), "input_tokens", "output_tokens"),
    _client(RATIOS, ("ratio",), "reasoning.ratio", experiment="thinking"),
    PlugPointRow(point=TRACES, schema="workload", below=("document", "properties", "trace", "properties", "format")),
)

BY_PATH: Final = {row.point.path: row for row in POINTS}
"""Key of a plug point -> its row."""


def with_plugins(name: str, schema: _Part, plugins: Registry) -> _Part:
    """Return a copy of the schema ``name`` whose plug points offer exactly these plug-ins."""
    schema = copy.deepcopy(schema)
    definitions = _map(schema, "$defs")
    for row in POINTS:
        if row.schema == name:
            node = definitions
            for step in row.below:
                node = _map(node, step)
            _offer(node, definitions, plugins.of(row.point.path))
    if name == "latency":
        _offer_coefficients(definitions, plugins.of("latency"))
    return schema


def _offer(node: _Part, definitions: _Part, plugins: Iterable[Plugin]) -> None:
    """Fill in one plug point."""
    if "properties" not in node:  # takes a name only, without settings
        _list_names(node, plugins)
        return
    listed = _list_names(_map(_map(node, "properties"), "kind"), plugins)
    _branch(node, definitions, listed, "kind", {plugin.name: _definition(plugin) for plugin in listed})
    if "then" in node:
        node["then"] = {"enum": [plugin.name for plugin in listed]}


def _offer_coefficients(definitions: _Part, plugins: Iterable[Plugin]) -> None:
    """Fill in the documents that hold the coefficients of step-time models."""
    document = _map(definitions, "document")
    takes = {
        plugin.name: [part.name for part in fields(plugin.settings) if "counts" in part.metadata] for plugin in plugins
    }
    listed = _list_names(
        _map(_map(document, "properties"), "step_time"), [plugin for plugin in plugins if takes[plugin.name]]
    )
    bodies: dict[str, _Part] = {}
    for plugin in listed:
        given: _Part = {
            part: {"$ref": f"experiment.schema.json#/$defs/{_where(document, plugin)}/properties/{part}"}
            for part in takes[plugin.name]
        }
        row: _Part = {"description": "One row.", "properties": dict(given)}
        rows: _Part = {"description": "The same for every row.", "items": row}
        about = f"As many coefficients as {plugin.name} takes."
        bodies[plugin.name] = {"description": about, "properties": {**given, "rows": rows}}
    _branch(document, definitions, listed, "step_time", bodies)


def _list_names(node: _Part, plugins: Iterable[Plugin]) -> list[Plugin]:
    """Fill an ``enum``: existing names keep their order, then come new ones, and those only for BLIS last."""
    known = as_list(node.get("enum"))

    def place(plugin: Plugin) -> tuple[bool, int]:
        return plugin.of_blis, known.index(plugin.name) if plugin.name in known else len(known)

    listed = sorted(plugins, key=place)
    node["enum"] = [plugin.name for plugin in listed]
    node["enumDescriptions"] = [plugin.summary for plugin in listed]
    return listed


def _branch(node: _Part, definitions: _Part, listed: list[Plugin], key: str, bodies: Mapping[str, _Part]) -> None:
    """Fill ``allOf`` with a rule for each name that refers to its definition."""
    before = list(_references(node).values())
    rules: list[Json] = []
    for plugin in listed:
        where = _where(node, plugin)
        condition: _Part = {"properties": {key: {"const": plugin.name}}, "required": [key]}
        if key == "kind":  # the value may be a bare name instead of a map
            condition = {"type": "object", **condition}
        rules.append({"if": condition, "then": {"$ref": f"#/$defs/{where}"}})
        definitions[where] = _in_order_of(definitions.get(where), bodies[plugin.name])
    node["allOf"] = rules
    for where in before:
        if where not in _references(node).values():
            del definitions[where]


def _references(node: _Part) -> dict[str, str]:
    """Return the definition of each plug-in that the rules of ``allOf`` refer to, by plug-in name."""
    references: dict[str, str] = {}
    for rule in map(as_map, as_list(node.get("allOf"))):
        for part in _map(_map(rule, "if"), "properties").values():
            reference = str(_map(rule, "then")["$ref"])
            references[str(as_map(part)["const"])] = reference.removeprefix("#/$defs/")
    return references


def _where(node: _Part, plugin: Plugin) -> str:
    """Return the name of a plug-in's definition, which includes the plug point because names may repeat."""
    return _references(node).get(plugin.name) or f"{plugin.path.rpartition('.')[2]}-{plugin.name}"


def _definition(plugin: Plugin) -> _Part:
    """Return the schema of the map that configures a plug-in."""
    hints = get_type_hints(plugin.settings)
    properties: _Part = {"kind": {"description": plugin.summary, "const": plugin.name}}
    required: list[Json] = ["kind"]
    for field in fields(plugin.settings):
        about: Key = field.metadata["key"]
        limits = _plain(about.limits)
        kind: _Part = {} if "$ref" in limits else {"type": json_type(hints[field.name])}
        if about.words:
            words: list[Json] = [*about.words]
            kind = {"type": [kind["type"], "string"], "if": {"type": "string"}, "then": {"enum": words}}
        part: _Part = {"description": about.doc, **kind, **limits}
        if about.is_required:
            required.append(field.name)
        elif about.default is not MISSING:
            part["default"] = cast("Json", about.default)
        properties[field.name] = part
    return {
        "description": plugin.summary,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _plain(limits: Mapping[str, object]) -> _Part:
    """Return keywords as they would be after a round trip through JSON."""
    plain: _Part = json.loads(json.dumps(dict(limits)))
    return plain


def _in_order_of(old: Json, new: Json) -> Json:
    """Return ``new`` with the keys of its maps in the order of ``old``."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    keys = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    return {key: _in_order_of(old.get(key), new[key]) for key in keys}


def _map(node: _Part, key: str) -> _Part:
    return as_map(node[key])
