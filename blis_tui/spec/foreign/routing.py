"""How routers choose among servers: as routers, charts and operators name it, and llm-d's endpoint picker."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Source, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.kubernetes import documents, number, place_in, values
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.foreign.servers import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Input

_PREFIX: Final = "prefix-affinity"
_CACHED: Final = "precise-prefix-cache"


def _weighted(*scorers: str) -> dict[str, Json]:
    return {"kind": "weighted", "scorers": [{"kind": scorer, "weight": 1} for scorer in scorers]}


_LISTED: Final[tuple[tuple[str, dict[str, Json], str], ...]] = (
    ("roundrobin disaggregated", {"kind": "round-robin"}, ""),
    ("disaggregatedprefill", {"kind": "round-robin"}, ""),
    ("random", {"kind": "power-of-two", "choices": 1}, ""),
    ("poweroftwo p2c", {"kind": "power-of-two"}, ""),
    ("session sessionaffinity consistenthash", {"kind": "session-affinity"}, ""),
    ("leastrequest leastload leastloaded leastbusy", {"kind": "least-loaded"}, ""),
    ("leastlatency", {"kind": "least-estimated-ttft"}, "it predicts what the router measures"),
    ("leastkvcache", _weighted("kv-utilization"), ""),
    ("prefixaware prefixcache", _weighted(_PREFIX), "it is `prefix-affinity` alone"),
    ("cacheaware", _weighted(_PREFIX, "load-balance"), "it weighs both, where the router switches"),
    ("kvaware", _weighted(_CACHED), "it is `precise-prefix-cache` alone"),
    ("kv", _weighted(_CACHED, "load-balance"), "it weighs cached blocks and load equally"),
    ("lora loraaffinity", _weighted("lora-affinity"), ""),
)
POLICIES: Final = MappingProxyType({name: (policy, why) for names, policy, why in _LISTED for name in names.split()})
"""Name without signs -> `policy.routing`, and what is otherwise than in the router; empty = nothing."""


_ROUTER: Final = re.compile(r"proxy|router|gateway|load.?balanc|frontend", re.IGNORECASE)
_SAYING: Final = ("--policy", "--routing-logic", "--router-mode")
"""Arguments of routers that name their policy."""


def router_in(texts: Sequence[str]) -> str:
    """Return the word of a command that says that it is a router or a proxy; empty = it is none."""
    return next((text for text in texts[:4] if _ROUTER.search(text)), "")


def routing_in(texts: Sequence[str], given: Input, path: DataPath) -> dict[str, Json]:
    """Return ``policy.routing`` for a router's command, having noted it; nothing if it says none."""
    policy = next((value for name in _SAYING if (value := value_of(texts, name))), "")
    return routing_of(policy, given, path) if policy else {}


def routing_of(name: str, given: Input, path: DataPath) -> dict[str, Json]:
    """Return ``policy.routing`` for a router's policy, having noted it; nothing if it is not known.

    Args:
        name: the policy, as a router calls it.
        given: where it is noted.
        path: its path in the input.
    """
    entry = POLICIES.get("".join(character for character in name.lower() if character.isalnum()))
    if entry is None:
        given.note(Fate.NOT_CARRIED, path, f"routing `{printable(name)}` is not simulated: instances take turns")
        return {}
    policy, why = entry
    shown = policy["kind"] if isinstance(policy["kind"], str) else ""
    text = f"`policy.routing: {shown}`" + (f": {why}" if why else "")
    given.note(Fate.APPROXIMATED if why else Fate.TAKEN, path, text)
    return {"policy.routing": policy}


KIND: Final = "EndpointPickerConfig"
SCORERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "queue-scorer": "queue-depth",
        "kv-cache-utilization-scorer": "kv-utilization",
        "kv-cache-scorer": "kv-utilization",
        "prefix-cache-scorer": "prefix-affinity",
        "precise-prefix-cache-scorer": "precise-prefix-cache",
        "load-aware-scorer": "load-aware",
        "active-request-scorer": "active-requests",
        "running-requests-size-scorer": "running-requests",
        "running-requests-scorer": "running-requests",
        "lora-affinity-scorer": "lora-affinity",
        "no-hit-lru-scorer": "no-hit-lru",
    }
)
"""The endpoint picker's scorers -> those of `policy.routing`."""
PLUGINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "single-profile-handler": "one profile chooses for all requests",
        "max-score-picker": "`weighted` takes the instance with the highest score",
        "*-profile-handler": "see `cluster.disaggregation`",
        "*-pd-decider": "see `cluster.disaggregation.decider`",
        "prefill-filter": "see `cluster.disaggregation`",
        "decode-filter": "see `cluster.disaggregation`",
        "*-producer": "scorers know what they need",
        "*-source": "scorers know what they need",
        "*-extractor": "scorers know what they need",
        "*-header-handler": "how a request reaches its instances",
        "*-parser": "how a request is read",
        "tokenizer": "prompts are counted in tokens",
        "utilization-detector": "see `policy.gateway`",
    }
)
"""Patterns of other plugins -> why they change nothing, or where it is said."""
_LOAD_AWARE: Final = 128
_UTILISATION: Final = {
    "queueDepthThreshold": "queue_depth_threshold",
    "kvCacheUtilThreshold": "kv_utilization_threshold",
}


def pickers(value: Json, source: Source) -> Iterator[dict[str, Json]]:
    """Yield the configurations in a document: as maps, or as texts of YAML.

    ``pluginsConfigFile`` beside several texts says which one counts.

    Raises:
        SpecError: such a text is no YAML.
    """
    for node in values(value):
        inside = as_map(node)
        if inside.get("kind") == KIND:
            yield inside
        named, texts = inside.get("pluginsConfigFile"), as_map(inside.get("pluginsCustomConfig"))
        chosen = [texts[str(named)]] if str(named) in texts else list(texts.values())
        others = [text for key, text in inside.items() if key in ("configText", "config-text")]
        others += [text for text in as_list(inside.get("args")) if f"kind: {KIND}" in str(text)]
        others += [text for text in as_map(inside.get("data")).values() if f"kind: {KIND}" in str(text)]
        for text in chosen + others:
            if isinstance(text, str):
                yield from (made for made in documents(Source(source.name, text)) if made.get("kind") == KIND)


def unread_file(value: Json) -> str:
    """Return the file of plugins that values name, but do not have: it is inside an image; empty = none."""
    for node in map(as_map, values(value)):
        named = node.get("pluginsConfigFile")
        if named and str(named) not in as_map(node.get("pluginsCustomConfig")):
            return str(named)
    return ""


def picked(config: dict[str, Json], given: Input, sources: Sequence[Source], *, roles: bool) -> dict[str, Json]:
    """Return the keys of the experiment that a configuration says, having noted each plugin.

    Args:
        config: the configuration.
        given: where it is noted.
        sources: the files where it stands.
        roles: whether there are instances for prefill and for decode.
    """
    return _Picker(config, given, sources).keys(roles=roles)


def block_size(config: dict[str, Json]) -> int:
    """Return the tokens of a block that a precise prefix cache counts with; 0 = not said."""
    counting = [as_map(as_map(value).get("tokenProcessorConfig")) for value in values(config)]
    return next((number(plugin["blockSize"], 0) for plugin in counting if "blockSize" in plugin), 0)


class _Picker:
    def __init__(self, config: dict[str, Json], given: Input, sources: Sequence[Source]) -> None:
        self._config = config
        self._given = given
        self._sources = sources
        listed = [as_map(plugin) for plugin in as_list(config.get("plugins"))]
        self._plugins = {str(plugin.get("name") or plugin.get("type")): plugin for plugin in listed}

    def keys(self, *, roles: bool) -> dict[str, Json]:
        keys: dict[str, Json] = {}
        profiles = [as_map(entry) for entry in as_list(self._config.get("schedulingProfiles"))]
        used = {
            str(as_map(reference).get("pluginRef")) for each in profiles for reference in as_list(each.get("plugins"))
        }
        if not profiles:  # one profile of all
            used = {*self._plugins}
            profiles = [{"name": "default", "plugins": [{"pluginRef": name} for name in self._plugins]}]
        for name, plugin in self._plugins.items():
            self._note_plugin(name, str(plugin.get("type")), used=name in used)
        for profile in profiles:
            name = str(profile.get("name"))
            routing = self._routing(profile)
            role = next((role for role in ("prefill", "decode") if role in name.lower()), "")
            if roles and role and routing:
                keys[f"cluster.disaggregation.{role}_routing"] = routing
            elif routing and role in ("", "decode"):
                keys["policy.routing"] = routing
        if roles:
            keys.update(self._decider())
        keys.update(self._saturation())
        return keys

    def _note(self, fate: Fate, name: str, text: str) -> None:
        path = ("plugins", name)
        self._given.document.keys.setdefault(path, place_in(name, self._sources))
        self._given.note(fate, path, text)

    def _note_plugin(self, name: str, type_: str, *, used: bool) -> None:
        why = next((why for pattern, why in PLUGINS.items() if re.fullmatch(pattern.replace("*", ".*"), type_)), None)
        if why is not None:
            self._note(Fate.NO_EFFECT, name, why)
        elif type_ in SCORERS and not used:
            self._note(Fate.NO_EFFECT, name, "no profile has it")
        elif type_ not in SCORERS and type_ not in ("session-affinity-scorer", "random-picker"):
            self._note(Fate.NOT_CARRIED, name, f"`{printable(type_)}` is not simulated")

    def _routing(self, profile: dict[str, Json]) -> dict[str, Json]:
        """Return the routing of a profile; nothing if it has no scorer that is known."""
        scorers: list[Json] = []
        types = []
        for entry in map(as_map, as_list(profile.get("plugins"))):
            name = str(entry.get("pluginRef"))
            plugin = self._plugins.get(name, {"type": name})
            type_, parameters = str(plugin.get("type")), as_map(plugin.get("parameters"))
            types.append(type_)
            kind = SCORERS.get(type_, "")
            if "precise" in str(parameters.get("prefixMatchInfoProducerName")):
                kind = "precise-prefix-cache"
            if not kind:
                continue
            weight = entry.get("weight", 1)
            weight = weight if isinstance(weight, int | float) and not isinstance(weight, bool) else 1
            scorer: dict[str, Json] = {"kind": kind, "weight": weight}
            if kind == "prefix-affinity" and (blocks := number(parameters.get("lruCapacityPerServer"), 0)):
                scorer["capacity_blocks"] = blocks
            self._note(Fate.TAKEN, name, f"scorer `{kind}`, weight {weight}")
            self._parameters(name, kind, parameters)
            scorers.append(scorer)
        if not scorers and "session-affinity-scorer" in types:
            self._note(Fate.TAKEN, "session-affinity-scorer", "`policy.routing: session-affinity`")
            return {"kind": "session-affinity"}
        if not scorers and "random-picker" in types:
            self._note(Fate.TAKEN, "random-picker", "`policy.routing`: an instance at random")
            return {"kind": "power-of-two", "choices": 1}
        if "session-affinity-scorer" in types:
            self._note(Fate.NOT_CARRIED, "session-affinity-scorer", "beside other scorers it is not simulated")
        if "random-picker" in types:
            self._note(Fate.NOT_CARRIED, "random-picker", "it ignores the scores, which decide here")
        return {"kind": "weighted", "scorers": scorers} if scorers else {}

    def _parameters(self, name: str, kind: str, parameters: dict[str, Json]) -> None:
        if kind == "load-aware" and parameters.get("threshold", _LOAD_AWARE) != _LOAD_AWARE:
            text = f"`threshold` is {_LOAD_AWARE}, not {parameters['threshold']}"
            self._note(Fate.APPROXIMATED, name, text)
        sizes = [key for key in ("blockSize", "hashBlockSize", "blockSizeTokens") if key in parameters]
        if kind == "prefix-affinity" and sizes:
            self._note(Fate.APPROXIMATED, name, f"`{sizes[0]}`: prompts are compared by the engine's blocks")

    def _decider(self) -> dict[str, Json]:
        """Return which requests are split."""
        for name, plugin in self._plugins.items():
            type_, parameters = str(plugin.get("type")), as_map(plugin.get("parameters"))
            tokens = number(parameters.get("nonCachedTokens", parameters.get("threshold")), 0)
            if (type_.endswith("pd-decider") or type_ == "pd-profile-handler") and tokens:
                text = f"`cluster.disaggregation.decider`: more than {tokens} tokens that are not cached"
                self._note(Fate.TAKEN, name, text)
                return {"cluster.disaggregation.decider": {"kind": "prefix-threshold", "threshold_tokens": tokens}}
        return {}

    def _saturation(self) -> dict[str, Json]:
        """Return when instances count as saturated, and what is done then."""
        detector = as_map(self._config.get("saturationDetector"))
        plugin = self._plugins.get(str(detector.get("pluginRef")), {})
        detector = {**detector, **as_map(plugin.get("parameters"))}
        limits = {ours: detector[key] for key, ours in _UTILISATION.items() if key in detector}
        flow = as_map(self._config.get("flowControl"))
        queued = bool(flow) or "flowControl" in as_list(self._config.get("featureGates"))
        path = ("flowControl",) if queued else ("saturationDetector",)
        if not (limits or queued):
            return {}
        self._given.document.keys[path] = place_in(path[0], self._sources)
        if not queued:
            self._given.note(
                Fate.TAKEN, path, "`policy.admission: gaie-legacy`: it sheds requests of priorities below 0"
            )
            return {"policy.admission": {"kind": "gaie-legacy", **limits}}
        gateway: dict[str, Json] = {"saturation": {"kind": "utilization", **limits}, "order": "priority", "bands": True}
        lasts = re.fullmatch(r"(\d+)(ms|s|m)", str(flow.get("defaultRequestTTL")))
        if lasts is not None:
            gateway["request_ttl_us"] = int(lasts[1]) * {"ms": 1000, "s": 10**6, "m": 60 * 10**6}[lasts[2]]
        left = sorted({*flow} - {"defaultRequestTTL"})
        self._given.note(Fate.TAKEN, path, "`policy.gateway`")
        if left:
            text = f"`{'`, `'.join(map(printable, left))}`: see `policy.gateway` for what it can have"
            self._given.note(Fate.NOT_CARRIED, path, text)
        return {"policy.gateway": gateway}
