"""Imports Kubernetes manifests, kustomizations and compose files that start servers as an Experiment.

Operators (KServe, Dynamo) make servers of documents of their own.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.source import Document, Json, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.spec.foreign.fleets import ROLES, Fleet, Part, imported
from blis_tui.spec.foreign.kubernetes import (
    KUSTOMIZATIONS,
    SCALERS,
    autoscaler_of,
    documents,
    environment,
    gpu_of,
    kustomized,
    merged,
    number,
    part_of,
    place_in,
    values,
)
from blis_tui.spec.foreign.planner import planner_keys
from blis_tui.spec.foreign.reading import Fate, Input
from blis_tui.spec.foreign.routing import block_size, picked, pickers, router_in, routing_in, routing_of
from blis_tui.spec.foreign.servers import TITLES, Start, value_of
from blis_tui.spec.foreign.variants import KIND as VARIANT
from blis_tui.spec.foreign.variants import asks_variants, variant_keys
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.base.source import Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.servers import Wanted

_WORDS: Final = ("command", "args")


@dataclass(slots=True)
class Deployed:
    """What files deploy, as far as they are read.

    Attributes:
        given: notes and problems.
        sources: the files.
        variables: values that the caller gives.
        maps: data of ConfigMaps by name.
        parts: the servers.
        keys: dotted key of the experiment -> value.
        pools: whether different servers without roles serve the same requests.
        bases: specifications of KServe that services name, by their names.
    """

    given: Input
    sources: list[Source]
    variables: Mapping[str, str]
    maps: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    keys: dict[str, Json] = field(default_factory=dict)
    pools: bool = True
    bases: Mapping[str, dict[str, Json]] = field(default_factory=dict)

    def note(self, fate: Fate, name: str, text: str) -> None:
        """Note what became of a key or a word."""
        self.given.note(fate, self.mark(name), text)

    def mark(self, name: str) -> tuple[str]:
        """Return the path of a key, having noted where it stands."""
        self.given.document.keys[(name,)] = place_in(name, self.sources)
        return (name,)

    def add(
        self,
        container: Mapping[str, Json],
        part: Part,
        stands: Mapping[str, str] = MappingProxyType({}),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Add the servers that a container starts, or the policy of a router; return whether it starts one."""
        known = {**variables, **self.variables}
        server = part_of(container, self.sources, part, variables=known, maps=self.maps, stands=stands)
        self.parts += [server] if server is not None else []
        texts = [str(text) for key in _WORDS for text in as_list(container.get(key))]
        if server is None and (name := router_in([str(container.get("name")), *texts])):
            self.keys.update(routing_in(texts, self.given, self.mark(name)))
        return server is not None

    def scaler(self, spec: dict[str, Json], name: str, copies: int) -> dict[str, Json]:
        """Return the keys of ``cluster.autoscaler`` for an autoscaler, and for what decides in its place."""
        path = self.mark(name)
        decided = variant_keys(self.maps, self.given, path) if asks_variants(spec) else {}
        return autoscaler_of(spec, self.given, path, instances=copies, decided=decided)

    def pick(self, configs: Sequence[dict[str, Json]]) -> None:
        """Take the routing of an endpoint picker, and check that it counts in the engine's blocks."""
        if not configs:
            return
        roles = {part.role for part in self.parts} >= {*ROLES}
        self.keys.update(picked(configs[0], self.given, self.sources, roles=roles))
        size = block_size(configs[0])
        for part in self.parts:
            own = number(value_of([word.text for word in part.start.words], "--block-size"), 16)
            if size and size != own:
                text = f"the scorer counts in blocks of {size} tokens, the engine in blocks of {own}"
                self.given.problem((), text, hint="both must agree, or no block is found")


# ---- KServe ----

PARALLELISM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tensor": "--tensor-parallel-size",
        "pipeline": "--pipeline-parallel-size",
        "data": "--data-parallel-size",
        "dataLocal": "--data-parallel-size-local",
        "expert": "--enable-expert-parallel",
    }
)
_MOUNT: Final = "/mnt/models"
"""Where KServe mounts the model."""
_HUGGINGFACE: Final[Mapping[str, str]] = MappingProxyType(
    {"--model_id": "--model", "--model-id": "--model", "--model_name": "--served-model-name", "--model_dir": ""}
)
"""Arguments of KServe's Hugging Face server -> vLLM's."""
_DEFAULT_SCORERS: Final = (("prefix-affinity", 2), ("load-aware", 1))
"""Of a scheduler without a configuration, for each role alike: KServe, ``controller/v1alpha1/llmisvc/scheduler.go`` at
0217bdab. Later releases take filters and scorers that are not simulated."""
_DEFAULT_THRESHOLD: Final = 100
"""There, too: prompts with no more tokens that are not cached go to decode instances at once."""


def model_of(uri: str) -> str:
    """Return the model of ``hf://ORG/NAME``; empty = it is at another place, whose model nothing says."""
    return uri.removeprefix("hf://").partition(":")[0] if uri.startswith("hf://") else ""


def _llm_inference_service(document: dict[str, Json], done: Deployed) -> None:
    spec = as_map(document.get("spec"))
    below: Json = {}
    for base in map(as_map, as_list(spec.get("baseRefs"))):
        if (named := str(base.get("name"))) in done.bases:
            below = merged(below, done.bases[named], named=True)
        else:
            text = f"`{printable(named)}` is not here: nothing of it is known"
            done.note(Fate.NOT_CARRIED, "baseRefs", text)
    spec = as_map(merged(below, spec, named=True))
    name = str(as_map(document.get("metadata")).get("name"))
    model = as_map(spec.get("model"))
    served = model_of(str(model.get("uri") or "")) or str(model.get("name") or "")
    prefill = as_map(spec.get("prefill"))
    for role, part in (("prefill", prefill), ("decode" if prefill else "", spec)):
        if part:
            _role(
                part,
                served,
                Part(f"{role or name}/{name}", Start(()), gpu=gpu_of(part) or gpu_of(spec), role=role),
                done,
            )
    router = as_map(spec.get("router"))
    configs = [made for source in done.sources[:1] for made in pickers(router, source)]
    if configs:
        done.pick(configs)
    elif "scheduler" in router:
        taken = ", ".join(f"`{kind}` {weight}" for kind, weight in _DEFAULT_SCORERS)
        split = f"; prompts of more than {_DEFAULT_THRESHOLD} uncached tokens are split" if prefill else ""
        done.note(Fate.APPROXIMATED, "scheduler", f"KServe's own configuration decides: {taken}{split}")
        scorers: list[Json] = [{"kind": kind, "weight": weight} for kind, weight in _DEFAULT_SCORERS]
        done.keys["policy.routing"] = {"kind": "weighted", "scorers": scorers}
        if prefill:
            decider: Json = {"kind": "prefix-threshold", "threshold_tokens": _DEFAULT_THRESHOLD}
            done.keys["cluster.disaggregation.decider"] = decider


def _role(spec: dict[str, Json], model: str, part: Part, done: Deployed) -> None:
    """Add the servers of one role: its own command and arguments, and those that KServe adds."""
    containers = [as_map(container) for container in as_list(as_map(spec.get("template")).get("containers"))]
    own = next(
        (container for container in containers if container.get("name") == "main"),
        {} if not containers else containers[0],
    )
    parallel = as_map(spec.get("parallelism"))
    added = []
    for key, option in PARALLELISM.items():
        if parallel.get(key) is True:
            added.append(option)
        elif isinstance(parallel.get(key), int | str) and not isinstance(parallel.get(key), bool):
            added += [option, str(parallel[key])]
    more = environment(own, done.maps).get("VLLM_ADDITIONAL_ARGS", "")
    try:
        words = shlex.split(more)
    except ValueError:
        words = more.split()
    arguments: list[Json] = [*added, *words, *as_list(own.get("args"))]
    container = {**own, "command": as_list(own.get("command")) or ["vllm", "serve", model], "args": arguments}
    if len(as_list(own.get("command"))) > 1 and str(as_list(own.get("command"))[-2]).endswith("c"):  # a script
        container = own
    container = _at_mount(container, model)
    stands = {option: key for key, option in PARALLELISM.items()}
    scaling = as_map(spec.get("scaling"))
    copies = number(spec.get("replicas", scaling.get("minReplicas")))
    scaler = done.scaler(scaling, "scaling", copies) if scaling else {}
    done.add(container, part._replace(copies=copies, scaler=scaler), stands)


def _at_mount(container: Mapping[str, Json], model: str) -> dict[str, Json]:
    """Return a container whose model is the one that KServe mounts."""
    lists = {
        key: [str(word).replace(_MOUNT, model or _MOUNT) for word in as_list(container.get(key))] for key in _WORDS
    }
    return {**container, **{key: list[Json](words) for key, words in lists.items()}}


def _inference_service(document: dict[str, Json], done: Deployed) -> None:
    name = str(as_map(document.get("metadata")).get("name"))
    predictor = as_map(as_map(document.get("spec")).get("predictor"))
    model = as_map(predictor.get("model"))
    copies = number(predictor.get("minReplicas"))
    scaler = {}
    if "maxReplicas" in predictor:
        scaler = autoscaler_of(predictor, done.given, done.mark("predictor"), instances=copies)
    part = Part(name, Start(()), copies, gpu_of(predictor), scaler=scaler)
    for container in as_list(predictor.get("containers")):
        done.add(as_map(container), part)
    if model:
        arguments: list[str] = []
        for word in map(str, as_list(model.get("args"))):
            option, sign, value = word.partition("=")
            arguments.append(f"{_HUGGINGFACE.get(option, option)}{sign}{value}")
        served = model_of(str(model.get("storageUri") or ""))
        worker = as_map(predictor.get("workerSpec"))
        for key, option in (("tensorParallelSize", "tensor"), ("pipelineParallelSize", "pipeline")):
            arguments += [PARALLELISM[option], str(worker[key])] if key in worker else []
        base = as_list(done.bases.get(str(model.get("runtime")), {}).get("containers"))
        command: list[Json] = ["vllm", "serve", *([served] if served else [])]
        runtime = as_map(base[0]) if base else {"command": command}
        words = [*as_list(runtime.get("args")), *(argument for argument in arguments if argument)]
        variables = [*as_list(runtime.get("env")), *as_list(model.get("env"))]
        done.add(_at_mount({**runtime, "args": list[Json](words), "env": list[Json](variables)}, served), part)


# ---- Dynamo ----

_WORKERS: Final[Mapping[str, str]] = MappingProxyType({"prefill": "prefill", "decode": "decode", "worker": ""})
_BESIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "epp": "its configuration is not read: see `policy.routing`",
    }
)


_LENGTHS: Final = ("--max-model-len", "--context-length", "--max-seq-len")
"""Options of engines for the longest request."""


def _dynamo(document: dict[str, Json], done: Deployed) -> None:
    spec = as_map(document.get("spec"))
    shared = as_list(spec.get("envs") or spec.get("env"))
    named = {**as_map(spec.get("services")), **_by_name(spec.get("services")), **_by_name(spec.get("components"))}
    mode, planners, gpus = "", dict[str, list[str]](), list[int]()
    for name, service in named.items():
        component = as_map(service)
        kind = str(component.get("componentType") or component.get("type") or "").lower()
        pod = as_map(component.get("extraPodSpec") or as_map(component.get("podTemplate")).get("spec"))
        containers = [as_map(inside) for inside in as_list(pod.get("containers"))]
        main = as_map(pod.get("mainContainer")) or next((each for each in containers if each.get("name") == "main"), {})
        main = main or (containers[0] if containers else {})
        variables = [*shared, *as_list(component.get("envs") or component.get("env")), *as_list(main.get("env"))]
        container = {**main, "env": list[Json](variables)}
        if component.get("replicas") == 0:
            done.note(Fate.NO_EFFECT, name, "it has no instances")
            continue
        if kind == "planner" or "planner" in name.lower():
            planners[name] = [str(word) for key in ("command", "args") for word in as_list(main.get(key))]
            continue
        if kind in _BESIDE:
            done.note(Fate.NOT_CARRIED, name, _BESIDE[kind])
            continue
        if kind == "frontend" or "frontend" in name.lower():
            words = [str(word) for key in ("command", "args") for word in as_list(main.get(key))]
            words = [word for text in words for word in text.split()]
            mode = value_of(words, "--router-mode") or environment(container, done.maps).get("DYN_ROUTER_MODE", "")
            continue
        sub = str(component.get("subComponentType") or component.get("role") or "").lower()
        role = _WORKERS.get(sub) or _WORKERS.get(kind, "")
        scaling, copies, scaler = as_map(component.get("autoscaling")), number(component.get("replicas")), {}
        if scaling.get("enabled"):
            scaler = autoscaler_of(scaling, done.given, done.mark("autoscaling"), instances=copies)
        if done.add(container, Part(name, Start(()), copies, gpu_of(pod) or gpu_of(component), role, scaler)):
            gpus.append(_gpus(component, main))
    for name, words in planners.items():
        if keys := planner_keys(words, done.maps, gpus, done.given, done.mark(name)):
            held = whole_sum([part.copies * own for part, own in zip(done.parts, gpus, strict=True)])
            if held > number(keys["max_gpus"]):
                del keys["max_gpus"]
                done.note(Fate.NOT_CARRIED, name, f"its budget: the instances that start hold {plural(held, 'GPU')}")
            done.parts = [part._replace(scaler=keys) for part in done.parts]
            lengths = [word for part in done.parts for word in part.start.words if word.text.startswith(_LENGTHS)]
            if len(gpus) > 1 and not lengths:
                text = "queues of prefill instances are compared with `engine.max_model_len`, which nothing says"
                done.note(Fate.ELSEWHERE, name, f"{text}: give it, or `context_length` of the rule")
    if mode:
        done.given.document.keys[("router mode",)] = place_in(mode, done.sources)
        done.keys.update(routing_of(mode, done.given, ("router mode",)))


def _gpus(component: dict[str, Json], container: dict[str, Json]) -> int:
    """Return how many GPUs an instance of a component asks for."""
    limits = (as_map(as_map(of.get("resources")).get("limits")) for of in (component, container))
    return next((number(asked[key]) for asked in limits for key in ("gpu", "nvidia.com/gpu") if key in asked), 1)


def _by_name(components: Json) -> dict[str, Json]:
    listed = [as_map(component) for component in as_list(components)]
    return {
        str(component.get("name") or component.get("componentName") or at): component
        for at, component in enumerate(listed)
    }


OPERATORS: Final[Mapping[str, Callable[[dict[str, Json], Deployed], None]]] = MappingProxyType(
    {
        "LLMInferenceService": _llm_inference_service,
        "InferenceService": _inference_service,
        "DynamoGraphDeployment": _dynamo,
    }
)
"""Kind of document -> what finds its servers."""
BASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LLMInferenceServiceConfig": "LLMInferenceService",
        "ServingRuntime": "InferenceService",
        "ClusterServingRuntime": "InferenceService",
    }
)
"""Kinds that start nothing by themselves -> those that name them."""


_GIVEN: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-?])([^{}]*))?\})")
_NO_GENERATION: Final = ("--task", "--runner", "--is-embedding")
"""Arguments of servers that generate nothing, such as those of embeddings."""
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "LeaderWorkerSet": ("leaderWorkerTemplate", "leaderTemplate", "workerTemplate"),
        "RayCluster": ("", "headGroupSpec", "workerGroupSpecs"),
        "RayClusterFleet": ("template", "headGroupSpec", "workerGroupSpecs"),
    }
)
"""Kinds whose pods are one server -> where that is said, and the first of these templates that starts one."""


def import_kubernetes(paths: Path | Sequence[Path], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert Kubernetes manifests, a kustomization, or a compose file.

    Args:
        paths: the files, each of one or several documents; a folder is its kustomization, or all that it has.
        wanted: what they do not say. Its ``hardware`` may be empty: the GPU is that of the node selector or affinity.
        service: the container, service or resource to take, if there are several.

    Raises:
        InputError: a file cannot be read.
        SpecError: it is no such file, has no server or several that are no cluster, or something impossible here.
    """
    return of_documents(*_read([paths] if isinstance(paths, Path) else list(paths)), wanted, service)


def of_documents(
    objects: Sequence[dict[str, Json]], sources: list[Source], wanted: Wanted, service: str | None = None
) -> Imported:
    """Convert the documents of files; otherwise like :func:`import_kubernetes`."""
    given = Input(Document({}, sources[0]))
    done = Deployed(given, sources, wanted.variables, _maps(objects))
    kinds = {str(document.get("kind")) for document in objects}
    bases = [other for other in objects if BASES.get(str(other.get("kind"))) in kinds]
    done.bases = {str(as_map(base.get("metadata")).get("name")): as_map(base.get("spec")) for base in bases}
    for document in objects:
        kind = str(document.get("kind") or "")
        if as_map(document.get("services")) and not kind:
            _compose(document, done)
        elif kind in OPERATORS:
            OPERATORS[kind](document, done)
        elif kind not in SCALERS and BASES.get(kind) not in kinds:
            _workload(document, done)
    beside = [other for other in objects if str(other.get("kind")) not in OPERATORS]
    done.pick([made for other in beside for made in pickers(other, sources[0])])
    _scale(objects, done)
    return finish(done, wanted, service)


def finish(done: Deployed, wanted: Wanted, service: str | None) -> Imported:
    """Convert the servers that files deploy; ``service`` is the one to take, if they are no cluster.

    Raises:
        SpecError: there is none, or something impossible here.
    """
    given, parts = done.given, _serving(done)
    taken = [part for part in parts if service in (None, *part.name.split("/"))]
    if not taken:
        names = ", ".join(sorted({name for part in parts for name in part.name.split("/")}))
        text = f"no server is called {service}" if parts else "no container starts a known engine"
        given.problem((), text, hint=f"choose among {names}" if parts else None)
        given.stop_at_problems()
    gpus = sorted({part.gpu for part in taken} - {""})
    if not wanted.hardware and (not gpus or (len(gpus) > 1 and any(not part.gpu for part in taken))):
        given.problem((), "the file does not say which GPU", hint="give it with --hardware")
    given.stop_at_problems()
    if not wanted.hardware:
        given.note(Fate.TAKEN, (), f"`hardware: {', '.join(gpus)}`, as the nodes say")
        if any(not part.gpu for part in taken):
            given.note(Fate.APPROXIMATED, (), f"where nothing says which GPU, it is {gpus[0]}, too")
        taken = [part._replace(gpu=part.gpu or gpus[0]) for part in taken]
    about = f"Imported from files that deploy {TITLES[taken[0].start.engine]}."
    return imported(Fleet(done.sources[0], given, taken, done.keys, description=about, pools=done.pools), wanted)


def _read(paths: Sequence[Path]) -> tuple[list[dict[str, Json]], list[Source]]:
    """Return the documents of files and folders, and the files."""
    objects: list[dict[str, Json]] = []
    sources: list[Source] = []
    for path in paths:
        inside = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
        kustomization = next((path / name for name in KUSTOMIZATIONS if (path / name).is_file()), None)
        if kustomization is not None or path.name in KUSTOMIZATIONS:
            more, read = kustomized(kustomization or path)
            objects, sources = objects + more, sources + read
            continue
        if not inside:
            raise InputError(f"{path} has no manifest", help="expected a kustomization.yaml, or *.yaml")
        for file in inside:
            source = read_source(file)
            sources.append(source)
            read_here = documents(source)
            if any(document.get("kind") == "Kustomization" for document in read_here):
                more, read = kustomized(file)
                objects, sources = objects + more, sources[:-1] + read
            else:
                objects += [inner for document in read_here for inner in _items(document)]
    return objects, sources


def _items(document: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the documents of a ``List``, otherwise the document itself."""
    listed = document.get("kind") == "List"
    return [as_map(item) for item in as_list(document.get("items"))] if listed else [document]


def _maps(objects: Sequence[dict[str, Json]]) -> dict[str, dict[str, Json]]:
    """Return the data of ConfigMaps by their names."""
    maps = [config_map for config_map in objects if config_map.get("kind") == "ConfigMap"]
    return {str(as_map(config_map.get("metadata")).get("name")): as_map(config_map.get("data")) for config_map in maps}


def _serving(done: Deployed) -> list[Part]:
    """Return the servers that generate text, having noted the others."""
    left = []
    for part in done.parts:
        if any(word.text in _NO_GENERATION for word in part.start.words):
            text = f"`{printable(part.name.partition('/')[0])}` generates nothing: it is no part of the simulation"
            text += " (of a GPU that both share, `gpu_memory_utilization` says how much is left)"
            done.given.note(Fate.NOT_CARRIED, (), text)
        else:
            left.append(part)
    return left


# ---- kinds of documents ----


def _workload(document: dict[str, Json], done: Deployed) -> None:
    """Find the servers of a Deployment, a StatefulSet, a LeaderWorkerSet, or whatever has containers."""
    kind, name = str(document.get("kind")), str(as_map(document.get("metadata")).get("name"))
    spec = as_map(document.get("spec"))
    copies, gpu = number(spec.get("replicas")), gpu_of(spec)
    if spec.get("replicas") == 0:
        done.note(Fate.NO_EFFECT, name, "it has no instances")
        return
    variables: dict[str, str] = {}
    if kind in _GROUPS:
        folder, *templates = _GROUPS[kind]
        group = as_map(spec.get(folder)) if folder else spec
        group = as_map(group.get("spec") or group)
        size = str(number(group.get("size")))
        variables = {"LWS_GROUP_SIZE": size, "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "leader"}
        for template in templates:
            before = len(done.parts)
            _pods(group.get(template), Part(name, Start(()), copies, gpu), done, variables)
            if len(done.parts) > before:
                return
        return
    roles = as_list(spec.get("roles") or as_map(as_map(spec.get("template")).get("spec")).get("roles"))
    for role in map(as_map, roles):  # AIBrix's StormService
        named = str(role.get("name"))
        known = next((role for role in ROLES if role in named.lower()), "")
        part = Part(f"{named}/{name}", Start(()), copies * number(role.get("replicas")), gpu_of(role) or gpu, known)
        _pods(role, part, done, variables)
    if not roles:
        labels = [as_map(as_map(value).get("labels")) for value in values(document)]
        known = next((role for label in labels for role in ROLES if label.get("llm-d.ai/role") == role), "")
        _pods(spec, Part(name, Start(()), copies, gpu, known), done, variables)


def _pods(spec: Json, part: Part, done: Deployed, variables: Mapping[str, str]) -> None:
    """Find the containers below a value that start servers."""
    for value in values(spec):
        for container in map(as_map, as_list(as_map(value).get("containers"))):
            named = part._replace(name=f"{container.get('name')}/{part.name}")
            done.add(container, named, variables=variables)


def _scale(objects: Sequence[dict[str, Json]], done: Deployed) -> None:
    """Take the autoscaler of the servers, and what decides for it."""
    for document in objects:
        kind, spec = str(document.get("kind")), as_map(document.get("spec"))
        if kind not in SCALERS:
            continue
        target, scaled = _scaled(spec, done)
        named = str(as_map(spec.get("subTargetSelector")).get("roleName") or "")
        scaled = [part for part in scaled if not named or named in part.name.split("/")]
        if not scaled:
            done.note(Fate.NOT_CARRIED, kind, f"it scales `{printable(target)}`, which is no server here")
        else:
            scaler = done.scaler(spec, kind, whole_sum([part.copies for part in scaled]))
            done.parts = [part._replace(scaler=scaler) if part in scaled else part for part in done.parts]
    for document in objects:
        if document.get("kind") == VARIANT:
            _scale_variant(as_map(document.get("spec")), done)


def _scaled(spec: dict[str, Json], done: Deployed) -> tuple[str, list[Part]]:
    """Return the name of what is scaled, and the servers of that name."""
    target = str(as_map(spec.get("scaleTargetRef")).get("name") or "")
    return target, [part for part in done.parts if target in part.name.split("/") or len(done.parts) == 1]


def _scale_variant(spec: dict[str, Json], done: Deployed) -> None:
    """Take the limits of a variant that no autoscaler here scales."""
    target, scaled = _scaled(spec, done)
    if not scaled:
        done.note(Fate.NOT_CARRIED, VARIANT, f"it is about `{printable(target)}`, which is no server here")
    elif not all("rule" in part.scaler or "scale_up_threshold" in part.scaler for part in scaled):
        if "maxReplicas" not in spec or any(part.scaler for part in scaled):
            done.note(Fate.NOT_CARRIED, VARIANT, "no autoscaler here carries its decisions out")
            return
        scaler = done.scaler({"wva": {}, **spec}, VARIANT, whole_sum([part.copies for part in scaled]))
        done.parts = [part._replace(scaler=scaler) if part in scaled else part for part in done.parts]
    if "variantCost" in spec:
        done.note(Fate.NOT_CARRIED, VARIANT, "`variantCost`: pools are compared by `cost_per_hour` of `cluster.nodes`")


# ---- compose ----


def _compose(document: dict[str, Json], done: Deployed) -> None:
    """Find the servers among the services of a compose file."""
    known = {**_dotenv(done.sources[0]), **done.variables}
    done.pools = False
    for name, service in as_map(document.get("services")).items():
        body = as_map(service)
        image = _filled(str(body.get("image") or ""), known)
        words: list[Json] = [*_words(body.get("entrypoint"), known), *_words(body.get("command"), known)]
        variables = _variables(body.get("environment"), known)
        copies = as_map(body.get("deploy")).get("replicas", body.get("scale", 1))
        container: dict[str, Json] = {"image": image, "args": words, "env": variables}
        part = Part(name, Start(()), number(copies))
        server = part_of(container, done.sources, part, variables=done.variables)
        done.parts += [server] if server is not None else []


def _variables(value: Json, known: Mapping[str, str]) -> list[Json]:
    """Return the environment of a service, which is a map or a list of ``NAME=VALUE``."""
    pairs = [(key, str(text)) for key, text in as_map(value).items() if text is not None]
    pairs += [str(text).partition("=")[::2] for text in as_list(value) if "=" in str(text)]
    return [{"name": name, "value": _filled(text, known)} for name, text in pairs]


def _words(value: Json, known: Mapping[str, str]) -> list[str]:
    """Return the words of a compose file's command: a list, or a text that is split as a shell does."""
    if isinstance(value, list):
        return [_filled(str(word), known) for word in value]
    try:
        return shlex.split(_filled(value, known)) if isinstance(value, str) else []
    except ValueError:
        return [str(value)]


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Fill in ``$NAME``, ``${NAME:-default}``; ``$$`` is one sign. What is not known stays."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return known.get(name) or (match[4] if match[3] == "-" else match[0])

    return _GIVEN.sub(value, text.replace("$$", "\0")).replace("\0", "$")


def _dotenv(source: Source) -> dict[str, str]:
    """Return the variables of the ``.env`` file beside a compose file."""
    path = None if source.directory is None else source.directory / ".env"
    if path is None or not path.is_file():
        return {}
    pairs = (line.partition("=") for line in read_source(path).lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, given, value in pairs if given}
