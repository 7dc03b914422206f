"""Servers that operators of Kubernetes make of their own documents: KServe, Dynamo."""

from __future__ import annotations

import shlex
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.source import Json, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.autoscalers import autoscaler_of
from blis_tui.spec.foreign.endpoint_picker import block_size, picked, pickers
from blis_tui.spec.foreign.fleets import ROLES, Part
from blis_tui.spec.foreign.kustomize import merged
from blis_tui.spec.foreign.pods import environment, gpu_of, number, part_of, place_in
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.foreign.routers import router_in, routing_of, routing_said
from blis_tui.spec.foreign.server_starts import Start, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.base.source import Source
    from blis_tui.spec.foreign.reading import Input


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
        found = part_of(container, self.sources, part, variables=known, maps=self.maps, stands=stands)
        self.parts += [found] if found is not None else []
        texts = [str(one) for key in _WORDS for one in as_list(container.get(key))]
        if found is None and (name := router_in([str(container.get("name")), *texts])):
            self.keys.update(routing_said(texts, self.given, self.mark(name)))
        return found is not None

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
    containers = [as_map(one) for one in as_list(as_map(spec.get("template")).get("containers"))]
    own = next((one for one in containers if one.get("name") == "main"), {} if not containers else containers[0])
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
    scaler = autoscaler_of(scaling, done.given, done.mark("scaling"), instances=copies) if scaling else {}
    done.add(container, part._replace(copies=copies, scaler=scaler), stands)


def _at_mount(container: Mapping[str, Json], model: str) -> dict[str, Json]:
    """Return a container whose model is the one that KServe mounts."""
    lists = {key: [str(one).replace(_MOUNT, model or _MOUNT) for one in as_list(container.get(key))] for key in _WORDS}
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
    for one in as_list(predictor.get("containers")):
        done.add(as_map(one), part)
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
        words = [*as_list(runtime.get("args")), *(one for one in arguments if one)]
        variables = [*as_list(runtime.get("env")), *as_list(model.get("env"))]
        done.add(_at_mount({**runtime, "args": list[Json](words), "env": list[Json](variables)}, served), part)


# ---- Dynamo ----

_WORKERS: Final[Mapping[str, str]] = MappingProxyType({"prefill": "prefill", "decode": "decode", "worker": ""})
_BESIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "planner": "the number of instances stays as it is: see `cluster.autoscaler`",
        "epp": "its configuration is not read: see `policy.routing`",
    }
)


def _dynamo(document: dict[str, Json], done: Deployed) -> None:
    spec = as_map(document.get("spec"))
    shared = as_list(spec.get("envs") or spec.get("env"))
    named = {**as_map(spec.get("services")), **_by_name(spec.get("services")), **_by_name(spec.get("components"))}
    mode = ""
    for name, service in named.items():
        one = as_map(service)
        kind = str(one.get("componentType") or one.get("type") or "").lower()
        pod = as_map(one.get("extraPodSpec") or as_map(one.get("podTemplate")).get("spec"))
        containers = [as_map(inside) for inside in as_list(pod.get("containers"))]
        main = as_map(pod.get("mainContainer")) or next((each for each in containers if each.get("name") == "main"), {})
        main = main or (containers[0] if containers else {})
        variables = [*shared, *as_list(one.get("envs") or one.get("env")), *as_list(main.get("env"))]
        container = {**main, "env": list[Json](variables)}
        if one.get("replicas") == 0:
            done.note(Fate.NO_EFFECT, name, "it has no instances")
            continue
        if kind in _BESIDE or "planner" in name.lower():
            done.note(Fate.NOT_CARRIED, name, _BESIDE.get(kind, _BESIDE["planner"]))
            continue
        if kind == "frontend" or "frontend" in name.lower():
            words = [str(word) for key in ("command", "args") for word in as_list(main.get(key))]
            words = [word for text in words for word in text.split()]
            mode = value_of(words, "--router-mode") or environment(container, done.maps).get("DYN_ROUTER_MODE", "")
            continue
        sub = str(one.get("subComponentType") or one.get("role") or "").lower()
        role = _WORKERS.get(sub) or _WORKERS.get(kind, "")
        scaling, copies, scaler = as_map(one.get("autoscaling")), number(one.get("replicas")), {}
        if scaling.get("enabled"):
            scaler = autoscaler_of(scaling, done.given, done.mark("autoscaling"), instances=copies)
        done.add(container, Part(name, Start(()), copies, gpu_of(pod) or gpu_of(one), role, scaler))
    if mode:
        done.given.document.keys[("router mode",)] = place_in(mode, done.sources)
        done.keys.update(routing_of(mode, done.given, ("router mode",)))


def _by_name(components: Json) -> dict[str, Json]:
    listed = [as_map(one) for one in as_list(components)]
    return {str(one.get("name") or one.get("componentName") or at): one for at, one in enumerate(listed)}


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
