"""Documents of Kubernetes: what containers start, the GPU a pod is for, autoscalers, kustomizations."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import yaml

from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Location, Source, Span, as_list, as_map, copied
from blis_tui.base.text import printable
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.foreign.servers import ENGINES, engine_of, start_of, version_of
from blis_tui.spec.foreign.shell import Command, Word
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.fleets import Part
    from blis_tui.spec.foreign.reading import Input

_MOST_VALUES: Final = 100_000
"""A file with more values than that, with its anchors followed, is none that a person wrote."""
_CLUSTERS: Final = re.compile(r"\$\((\w+)\)")
_GPUS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "h200": "h200",
        r"\bh20\b": "h20",
        "h100.*nvl": "h100-nvl",
        "h100.*pcie": "h100-pcie",
        "h100": "h100",
        "gb300": "gb300",
        "gb200": "gb200",
        "b300": "b300",
        "b200": "b200",
        "l40s": "l40s",
        r"\bl40\b": "l40",
        "a100.*80": "a100-80",
        "a100.*40": "a100-40",
        "a6000": "rtx-a6000",
        "6000.*ada": "rtx-6000-ada",
        "pro.6000": "rtx-pro-6000",
        "a10g": "a10g",
        r"\bl4\b": "l4",
        "mi300x": "mi300x",
        "mi325x": "mi325x",
        "mi355x": "mi355x",
        "3090": "rtx-3090",
        "4090": "rtx-4090",
        "5090": "rtx-5090",
    }
)
_NODES: Final = ("nodeSelector", "affinity", "nodeSelectorTerms")


def documents(source: Source) -> list[dict[str, Json]]:
    """Return the maps of a file, with anchors and merge keys followed.

    Raises:
        SpecError: it is no YAML, or too large.
    """
    try:
        objects = [as_map(cast("Json", document)) for document in yaml.safe_load_all(source.text)]
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        place = Location(source, Span(line, column, column + 1))
        text = printable(str(getattr(error, "problem", None) or "not YAML"))
        raise SpecError(
            [located("BLIS0001", text, place, hint="templates such as `{{TOKEN}}` are filled in first")]
        ) from None
    if sum(1 for document in objects for _ in values(document)) >= _MOST_VALUES:
        raise SpecError([located("BLIS0001", "too many values", Location(source, Span(1, 1, 2)))])
    return objects


def values(value: Json, most: int = _MOST_VALUES) -> Iterator[Json]:
    """Yield a value and all inside of it, but no more than ``most``."""
    left = [value]
    while left and most > 0:
        node = left.pop()
        most -= 1
        yield node
        left += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def place_in(text: str, sources: Sequence[Source], after: Location | None = None) -> Location:
    """Return where a text stands in the first of several files that has it, if possible behind a place."""
    first = text.strip().partition("\n")[0]
    for source in sources:
        begin = after.span.line - 1 if after is not None and after.source is source else 0
        for at in (*range(begin, len(source.lines)), *range(begin)):
            if first and (column := source.lines[at].find(first)) >= 0:
                return Location(source, Span(at + 1, column + 1, column + 1 + len(first)))
    return after or Location(sources[0], Span(1, 1, 2))


def number(value: Json, otherwise: int = 1) -> int:
    """Return how many a value says, also as a text; ``otherwise`` if it says none."""
    if isinstance(value, str) and value.isdigit() and len(value) < 7:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def gpu_of(*parts: Json) -> str:
    """Return the hardware that node selectors and affinities name; empty = none that is known.

    An A100 of unsaid memory is none.
    """
    nodes = [as_map(value).get(key) for part in parts for value in values(part) for key in _NODES]
    return gpu_named(*(label for node in nodes for label in values(node) if isinstance(label, str)))


def gpu_named(*labels: str) -> str:
    """Return the hardware that one of several labels of nodes names; empty = none that is known."""
    names = (name for label in labels for pattern, name in _GPUS.items() if re.search(pattern, label, re.IGNORECASE))
    return next(names, "")


def image_of(value: Json) -> str:
    """Return an image, which may be written as a map of its parts."""
    image = as_map(value)
    name = "/".join(str(image[key]) for key in ("registry", "repository", "name") if image.get(key))
    return f"{name}:{image.get('tag') or 'latest'}" if image else str(value or "")


def environment(container: Mapping[str, Json], maps: Mapping[str, Mapping[str, Json]]) -> dict[str, str]:
    """Return the variables of a container that are written down; ``maps`` has ConfigMaps by name."""
    known: dict[str, str] = {}
    for reference in as_list(container.get("envFrom")):
        named = as_map(as_map(reference).get("configMapRef")).get("name")
        known.update({str(key): str(value) for key, value in maps.get(str(named), {}).items()})
    for pair in [as_map(entry) for key in ("env", "envs") for entry in as_list(container.get(key))]:
        source = as_map(as_map(pair.get("valueFrom")).get("configMapKeyRef"))
        value = pair.get("value", maps.get(str(source.get("name")), {}).get(str(source.get("key"))))
        if value is not None:
            known[str(pair.get("name"))] = _substituted(str(value), known)
    return known


def _substituted(word: str, known: Mapping[str, str]) -> str:
    """Fill in ``$(NAME)`` as Kubernetes does."""
    return _CLUSTERS.sub(lambda match: known.get(match[1], match[0]), word)


def part_of(
    container: Mapping[str, Json],
    sources: Sequence[Source],
    part: Part,
    *,
    variables: Mapping[str, str],
    maps: Mapping[str, Mapping[str, Json]] = MappingProxyType({}),
    stands: Mapping[str, str] = MappingProxyType({}),
) -> Part | None:
    """Return the servers that a container starts; None = it starts none.

    Args:
        container: its image, command, arguments and variables, as in a pod.
        sources: the files where its words stand.
        part: what is known of them beside the command.
        variables: values that win over the container's.
        maps: ConfigMaps by name, whose values are variables and files.
        stands: arguments that are made of keys -> the key that stands in a file.
    """
    image = image_of(container.get("image"))
    known = {**environment(container, maps), **variables}
    texts = [
        _substituted(str(word), known)
        for key in ("command", "args")
        for word in (
            as_list(container.get(key)) or ([container.get(key)] if isinstance(container.get(key), str) else [])
        )
    ]
    if len(texts) == 1 and " " in texts[0].strip():  # a whole command as one argument
        texts = ["/bin/sh", "-c", texts[0]]
    named = place_in(f"name: {part.name.rpartition('/')[2]}", sources)
    place = place_in(image.rpartition("/")[2].partition(":")[0] or part.name, sources, named)
    words = [Word(text, place_in(stands.get(text.partition("=")[0], text), sources, place)) for text in texts]
    files = {name: str(text) for config_map in maps.values() for name, text in config_map.items()}
    engine = engine_of(image)
    tried = [(engine, words) for engine in ENGINES if words]
    tried += [(engine, [Word("docker", place), Word(image, place), *words])] if engine else []
    for engine, line in tried:
        if (start := start_of(engine, Command(tuple(line), known, files))) is not None:
            return part._replace(start=start._replace(version=start.version or version_of(image)))
    return None


SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler")
_LEAST: Final = ("minReplicas", "minReplicaCount", "min_replicas", "minInstances")
_MOST: Final = ("maxReplicas", "maxReplicaCount", "max_replicas", "maxInstances")
_METRICS: Final = ("metrics", "triggers", "metricsSources", "scaleMetric", "targetMetric", "metric")
_SECONDS: Final = 1_000_000
_INTERVAL_S: Final = 15
"""Time between two evaluations of Kubernetes' own autoscaler."""


def autoscaler_of(
    spec: dict[str, Json],
    given: Input,
    path: DataPath,
    *,
    instances: int,
    decided: Mapping[str, Json] = MappingProxyType({}),
) -> dict[str, Json]:
    """Return the keys of ``cluster.autoscaler``, having noted them; none if the number of instances never changes.

    Args:
        spec: limits, metrics and windows, under the names of any of these autoscalers.
        given: where it is noted.
        path: its path in the input.
        instances: the number of instances at the start.
        decided: keys for what decides in its place, whose decisions it carries out.
    """
    least = next((number(spec[key]) for key in _LEAST if key in spec), min(1, instances))
    most = next((number(spec[key]) for key in _MOST if key in spec), 0)
    if most <= max(1, least):
        given.note(Fate.NO_EFFECT, path, "the number of instances stays as it is")
        return {}
    behavior = _below(spec, "behavior")
    up, down = (as_map(as_map(behavior).get(key)).get("stabilizationWindowSeconds") for key in ("scaleUp", "scaleDown"))
    scaler: dict[str, Json] = {
        "interval_us": number(_below(spec, "pollingInterval"), _INTERVAL_S) * _SECONDS,
        "min_instances": least,
        "max_instances": most,
    }
    if isinstance(up, int) and up > 0:
        scaler["scale_up_stabilization_window_us"] = up * _SECONDS
    if isinstance(down, int) and down >= 0:
        scaler["scale_down_stabilization_window_us"] = down * _SECONDS
    given.note(Fate.TAKEN, path, f"`cluster.autoscaler`: {least} to {most} instances")
    if decided:
        return {**scaler, **decided}
    if rule := _rule(spec):
        rule |= {"behavior": False} if behavior is None else _policies(as_map(behavior), given, path)
        scaler |= {"interval_us": _INTERVAL_S * _SECONDS, "rule": rule}  # a ScaledObject only polls to begin and to end
        text = f"`cluster.autoscaler.rule`: {rule['target']:g} of `{rule['metric']}` an instance ({rule['source']})"
        given.note(Fate.TAKEN, path, text)
        return scaler
    measured = next((shown for key in _METRICS if (shown := _shown(spec.get(key)))), "what the platform measures")
    text = f"it looks at {measured}; simulated is one by queues and KV use (`kv_utilization_threshold` …)"
    given.note(Fate.APPROXIMATED, path, printable(text))
    return scaler


def _policies(behavior: dict[str, Json], given: Input, path: DataPath) -> dict[str, Json]:
    """Return the policies of a ``behavior`` as settings of the rule, having noted those that it has no place for."""
    found: dict[str, Json] = {}
    for key, ours in (("scaleUp", "scale_up"), ("scaleDown", "scale_down")):
        direction = as_map(behavior.get(key))
        if (select := direction.get("selectPolicy", "Max")) in ("Min", "Disabled"):
            found[f"{ours}_select"] = select
        for policy in map(as_map, as_list(direction.get("policies"))):
            name = f"{ours}_{str(policy.get('type')).lower()}"
            value, period_s = number(policy.get("value"), 0), number(policy.get("periodSeconds"), 0)
            if name not in (f"{ours}_pods", f"{ours}_percent") or value < 1 or period_s < 1:
                given.note(Fate.NOT_CARRIED, path, f"one of its policies under `{key}` is none of Kubernetes'")
            elif name in found:
                text = f"of several policies of one type under `{key}`, the first is simulated"
                given.note(Fate.APPROXIMATED, path, text)
            else:
                found[name] = {"value": value, "period_s": period_s}
    return found


_MEASURED: Final = re.compile(
    r"(?:sum\(\s*)?(?:vllm[:_])?(num_requests_waiting|num_requests_running|kv_cache_usage_perc|gpu_cache_usage_perc)"
    r"(?:\s*\{[^{}]*\})?(?:\s*\))?"
)
"""One of vLLM's gauges, or its sum over servers."""
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(m?)")
"""A number of Kubernetes; ``m`` = thousandths."""


def _rule(spec: dict[str, Json]) -> dict[str, Json]:
    """Return ``cluster.autoscaler.rule`` for an autoscaler that looks at one gauge of vLLM; empty for others."""
    looks = [*as_list(spec.get("metrics")), *as_list(spec.get("triggers"))]
    look = as_map(looks[0]) if len(looks) == 1 else {}
    source = str(look.get("type", ""))
    inside = as_map(look.get(source.lower()))
    if source == "prometheus" and look.get("metricType", "AverageValue") == "AverageValue":
        metadata = as_map(look.get("metadata"))
        source, name, aim = "External", metadata.get("query"), metadata.get("threshold")
    elif source in ("External", "Pods"):
        name, aim = as_map(inside.get("metric")).get("name"), as_map(inside.get("target")).get("averageValue")
    else:
        return {}
    measured, quantity = _MEASURED.fullmatch(str(name).strip()), _QUANTITY.fullmatch(str(aim))
    if measured is None or quantity is None:
        return {}
    target = float(quantity[1]) / (1000 if quantity[2] else 1)
    metric = measured[1].replace("gpu_cache", "kv_cache")
    return {"kind": "hpa", "metric": metric, "target": target, "source": source} if target else {}


def _below(spec: dict[str, Json], key: str) -> Json:
    """Return the value of a key wherever it is below; None = nowhere."""
    return next((as_map(value)[key] for value in values(spec) if key in as_map(value)), None)


def _shown(metrics: Json) -> str:
    """Return the names of metrics and their targets."""
    if isinstance(metrics, str):
        return f"`{metrics}`"
    texts = []
    for metric in as_list(metrics):
        inside = as_map(metric)
        inside = as_map(
            next((inside[key] for key in ("pods", "external", "object", "resource") if key in inside), inside)
        )
        metadata = as_map(inside.get("metadata"))
        name = as_map(inside.get("metric")).get("name") or inside.get("targetMetric") or inside.get("name")
        name = metadata.get("metricName") or name or metadata.get("query") or inside.get("type")
        target = as_map(inside.get("target"))
        aim = next((target[key] for key in ("averageValue", "value", "averageUtilization") if key in target), None)
        aim = aim or metadata.get("threshold") or inside.get("targetValue")
        texts.append(f"`{name}`" + (f" (target {aim})" if aim is not None else ""))
    return " and ".join(texts[:5])


KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_LISTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets"), "name"),
        "ports": "containerPort",
        "volumeMounts": "mountPath",
    }
)
"""Lists whose entries are merged by this key; all others are replaced."""
_MERGED: Final = re.compile(r"(?:apps/|batch/|autoscaling/)?v\d\w*")
"""Kinds that Kubernetes itself has; of others, all lists are replaced."""
_DEEPEST: Final = 20
_NOT_DONE: Final = ("helmCharts", "transformers", "generators", "replacements", "vars")


def kustomized(path: Path, depth: int = 0) -> tuple[list[dict[str, Json]], list[Source]]:
    """Return the documents that a kustomization makes, and the files they come from, those that change them first.

    Raises:
        InputError: a file cannot be read.
        SpecError: a base is elsewhere, a patch changes nothing that is there, or it cannot be applied.
    """
    return _Kustomization(path, depth).made()


class _Kustomization:
    def __init__(self, path: Path, depth: int) -> None:
        self._source = read_source(path)
        self._folder = path.parent
        self._depth = depth
        self._sources = [self._source]
        self._data: dict[str, Json] = next((document for document in documents(self._source) if document), {})

    def made(self) -> tuple[list[dict[str, Json]], list[Source]]:
        if self._depth > _DEEPEST:
            raise self._error(self._source.name, "kustomizations name each other", "")
        left = next((key for key in _NOT_DONE if self._data.get(key)), None)
        if left is not None:
            raise self._error(left, f"`{left}` is not followed", "import what `kustomize build` prints")
        objects: list[dict[str, Json]] = []
        below: list[Source] = []
        for key in ("resources", "bases", "components"):
            for name in as_list(self._data.get(key)):
                more, read = self._resource(str(name))
                objects, below = objects + more, below + read
        objects += [_generated(generator) for generator in as_list(self._data.get("configMapGenerator"))]
        objects = [copied(document) for document in objects]  # type: ignore[misc]
        for patch in self._patches():
            self._patch(as_map(patch), objects)
        for image in map(as_map, as_list(self._data.get("images"))):
            _set_image(image, objects)
        for replicas in map(as_map, as_list(self._data.get("replicas"))):
            for document in objects:
                if as_map(document.get("metadata")).get("name") == replicas.get("name"):
                    as_map(document.setdefault("spec", {}))["replicas"] = number(replicas.get("count"), 0)
        return objects, self._sources + below

    def _error(self, text: str, message: str, hint: str) -> SpecError:
        place = place_in(text, [self._source])
        return SpecError([located("BLIS1004", message, place, hint=hint or None)])

    def _resource(self, name: str) -> tuple[list[dict[str, Json]], list[Source]]:
        path = self._folder / name
        if not path.exists():
            elsewhere = "://" in name or "?ref=" in name or name.startswith(("github.com", "git@"))
            text = f"the base `{printable(name)}` is {'elsewhere' if elsewhere else 'not here'}"
            raise self._error(name, text, "put a copy of it beside, or import what `kustomize build` prints")
        if path.is_dir():
            inside = next(
                (path / kustomization for kustomization in KUSTOMIZATIONS if (path / kustomization).is_file()), None
            )
            if inside is None:
                raise self._error(name, f"the folder `{printable(name)}` has no kustomization.yaml", "")
            return kustomized(inside, self._depth + 1)
        source = read_source(path)
        return [document for document in documents(source) if document], [source]

    def _patches(self) -> list[Json]:
        """Return all patches in the form of ``patches``."""
        listed = as_list(self._data.get("patchesStrategicMerge"))
        merges: list[Json] = [{"patch": patch} if "\n" in str(patch) else {"path": patch} for patch in listed]
        return [*merges, *as_list(self._data.get("patchesJson6902")), *as_list(self._data.get("patches"))]

    def _patch(self, entry: dict[str, Json], objects: list[dict[str, Json]]) -> None:
        source = self._source
        text = entry.get("patch")
        if text is None:
            path = self._folder / str(entry.get("path"))
            if not path.is_file():
                raise self._error(str(entry.get("path")), f"the patch `{printable(str(path))}` is not here", "")
            source = read_source(path)
            self._sources.insert(0, source)
            text = source.text
        inline = Source(source.name, str(text), source.directory)
        target = as_map(entry.get("target"))
        # A list of operations is no map, so it is put into one.
        operations = re.match(r"\s*(?:#.*\n\s*|---\s*)*(?:- |\[)", str(text)) is not None
        if operations:
            lines = [line for line in str(text).splitlines() if line.strip() != "---"]
            inline = Source(source.name, "list:\n" + "\n".join(f"  {line}" for line in lines), source.directory)
        for patch in [document for document in documents(inline) if document]:
            wanted = target or {"kind": patch.get("kind"), "name": as_map(patch.get("metadata")).get("name")}
            chosen = [document for document in objects if _is(document, wanted)]
            shown = f"{wanted.get('kind') or ''} {wanted.get('name') or ''}".strip() or "anything"
            if not chosen:
                raise self._error(str(wanted.get("name") or ""), f"no resource is the {shown} of a patch", "")
            for patched in chosen:
                if operations:
                    for operation in map(as_map, as_list(patch.get("list"))):
                        self._operate(patched, operation)
                else:
                    made = merged(patched, patch, named=_MERGED.fullmatch(str(patched.get("apiVersion"))) is not None)
                    kept = {"kind": patched.get("kind"), "metadata": patched.get("metadata")}
                    patched.clear()
                    patched.update({**as_map(made), **(kept if target else {})})

    def _operate(self, document: dict[str, Json], operation: dict[str, Json]) -> None:
        """Apply one operation of a JSON patch."""
        path = str(operation.get("path") or "")
        what = str(operation.get("op"))
        steps = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        wrong = self._error(path, f"the patch `{printable(what)} {printable(path)}` cannot be applied", "")
        if not steps or what not in ("add", "replace", "remove", "test"):
            raise wrong
        inside: Json = document
        for step in steps[:-1]:
            if isinstance(inside, list) and step.isdigit() and int(step) < len(inside):
                inside = inside[int(step)]
            elif isinstance(inside, dict) and step in inside:
                inside = inside[step]
            else:
                raise wrong
        last = steps[-1]
        if isinstance(inside, dict) and what != "test":
            if what == "remove":
                inside.pop(last, None)
            else:
                inside[last] = copied(operation.get("value"))
        elif isinstance(inside, list) and (last == "-" or (last.isdigit() and int(last) <= len(inside))):
            at = len(inside) if last == "-" else int(last)
            if what == "add":
                inside.insert(at, copied(operation.get("value")))
            elif what != "test":
                inside[at : at + 1] = [copied(operation.get("value"))] if what == "replace" else []
        elif what != "test":
            raise wrong


def _is(document: dict[str, Json], target: Mapping[str, Json]) -> bool:
    """Return whether a patch is for a document."""
    metadata = as_map(document.get("metadata"))
    pairs = ((target.get("kind"), document.get("kind")), (target.get("name"), metadata.get("name")))
    try:
        return all(pattern is None or re.fullmatch(str(pattern), str(other)) is not None for pattern, other in pairs)
    except re.error:
        return all(wanted in (None, other) for wanted, other in pairs)


def merged(base: Json, patch: Json, *, named: bool, key: str = "") -> Json:
    """Return a value with a strategic merge patch applied; ``named`` merges entries of lists by their names."""
    if isinstance(base, dict) and isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {name: value for name, value in patch.items() if name != "$patch"}
        made = {name: value for name, value in base.items() if name not in patch or patch[name] is not None}
        for name, value in patch.items():
            if value is not None and name != "$patch":
                made[name] = merged(made.get(name), value, named=named, key=name)
        return made
    by = _LISTED.get(key, "")
    if not (named and by and isinstance(base, list) and isinstance(patch, list)):
        return copied(patch)
    entries = list(base)
    for entry in patch:
        at = next((at for at, old in enumerate(entries) if as_map(old).get(by) == as_map(entry).get(by)), None)
        if as_map(entry).get("$patch") == "delete":
            entries = entries if at is None else entries[:at] + entries[at + 1 :]
        elif at is None:
            entries.append(copied(entry))
        else:
            entries[at] = merged(entries[at], entry, named=named)
    return entries


def _set_image(image: dict[str, Json], objects: list[dict[str, Json]]) -> None:
    """Set name and tag of an image wherever a container has it."""
    for container in [as_map(value) for document in objects for value in values(document)]:
        named, sign, tag = str(container.get("image") or "").partition(":")
        if named and named == image.get("name") and isinstance(container.get("image"), str):
            tag = str(image.get("newTag") or tag)
            end = f"@{image['digest']}" if image.get("digest") else f":{tag}" if tag else sign
            container["image"] = f"{image.get('newName') or named}{end}"


def _generated(entry: Json) -> dict[str, Json]:
    """Return the ConfigMap of a generator, as far as its values stand in the kustomization."""
    generator = as_map(entry)
    pairs = [str(text).partition("=")[::2] for text in as_list(generator.get("literals"))]
    return {"kind": "ConfigMap", "metadata": {"name": generator.get("name")}, "data": dict(pairs)}
