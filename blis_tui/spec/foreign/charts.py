"""Imports values of Helm charts for vLLM: production-stack, llm-d's model service and its scheduler."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Document, Json, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.fleets import ROLES, Part
from blis_tui.spec.foreign.kubernetes import autoscaler_of, documents, gpu_named, gpu_of, number
from blis_tui.spec.foreign.manifests import Deployed, finish, model_of
from blis_tui.spec.foreign.reading import Draft, Fate, Input
from blis_tui.spec.foreign.routing import KIND, picked, pickers, routing_of, unread_file
from blis_tui.spec.foreign.server_arguments import SHARED_STORE
from blis_tui.spec.foreign.servers import Start, value_of
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from blis_tui.base.source import Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.servers import Wanted

VLLM_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "enableChunkedPrefill": "enable-chunked-prefill",
        "enablePrefixCaching": "enable-prefix-caching",
        "maxModelLen": "max-model-len",
        "dtype": "dtype",
        "tensorParallelSize": "tensor-parallel-size",
        "pipelineParallelSize": "pipeline-parallel-size",
        "maxNumSeqs": "max-num-seqs",
        "gpuMemoryUtilization": "gpu-memory-utilization",
        "maxLoras": "max-loras",
    }
)
"""Keys of production-stack's ``vllmConfig`` -> arguments of vLLM."""
_PARALLELISM: Final[Mapping[str, str]] = MappingProxyType(
    {"tensor": "tensor-parallel-size", "pipeline": "pipeline-parallel-size", "data": "data-parallel-size"}
)


def import_helm(paths: Sequence[Path], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert values of Helm charts to an experiment, or an endpoint picker's configuration alone to a policy.

    Args:
        paths: files of values; of several for the same chart, later ones win, as with Helm.
        wanted: what they do not say.
        service: the model to take, if there are several.

    Raises:
        InputError: a file cannot be read.
        SpecError: they are of no known chart, have no server, or something impossible here.
    """
    return of_values([read_source(path) for path in paths], wanted, service)


def of_values(sources: list[Source], wanted: Wanted, service: str | None = None) -> Imported:
    """Convert the values in files; otherwise like :func:`import_helm`."""
    given = Input(Document({}, sources[0]))
    charts: dict[str, dict[str, Json]] = {}
    for source in sources:
        for document in filter(None, documents(source)):
            if document.get("kind") == KIND:
                charts[KIND] = document
                continue
            known = _known(document)
            if not known:
                given.document.source = source
                names = ", ".join(f"{name} (`{keys[0]}`)" for name, (keys, _) in CHARTS.items())
                hint = f"import what `helm template` prints with `spec import kubernetes`; known are {names}"
                given.problem((), "these are values of no known chart", hint=hint)
                given.stop_at_problems()
            for name, inside in known:
                charts[name] = _over(charts.get(name, {}), inside)
    configs = [made for values_ in charts.values() for made in pickers(values_, sources[0])]
    if not any(CHARTS[name][1] for name in charts if name != KIND):
        return _policy(configs, charts, given, sources, wanted)
    done = Deployed(given, sources, wanted.variables)
    for name, document in charts.items():
        if name != KIND and (convert := CHARTS[name][1]) is not None:
            given.note(Fate.TAKEN, (), f"values of {name}")
            convert(document, done)
    done.pick(configs)
    if not configs and (name := unread_file(dict(charts))) != "":
        text = f"`{printable(name)}` is inside the picker's image: nothing of it is known"
        done.note(Fate.NOT_CARRIED, "pluginsConfigFile", text)
    return finish(done, wanted, service)


def _known(document: dict[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """Return charts with their values: those of the document, otherwise those of charts inside of it."""
    inside = [document, *(as_map(part) for value in document.values() for part in (value, *as_map(value).values()))]
    charts = [
        [(name, part) for name, (keys, _) in CHARTS.items() if any(key in part for key in keys)] for part in inside
    ]
    return charts[0] or [pair for each in charts for pair in each]


def _over(base: dict[str, Json], values: dict[str, Json]) -> dict[str, Json]:
    """Return values with others over them, as Helm does: maps are merged, all else is replaced."""
    made = dict(base)
    for key, value in values.items():
        old = made.get(key)
        made[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return made


def _policy(
    configs: Sequence[dict[str, Json]],
    charts: Mapping[str, Json],
    given: Input,
    sources: Sequence[Source],
    wanted: Wanted,
) -> Imported:
    """Convert the configuration of an endpoint picker without servers to a policy."""
    if not configs:
        text = "there is neither a server nor a configuration of the endpoint picker"
        named = unread_file(dict(charts))
        given.problem((), text, hint=f"`{printable(named)}` is inside the picker's image" if named else None)
        given.stop_at_problems()
    keys = picked(configs[0], given, sources, roles=False)
    body: dict[str, Json] = {
        key.removeprefix("policy."): value for key, value in keys.items() if key.startswith("policy.")
    }
    return Draft(
        source=given,
        kind="Policy",
        name=wanted.name or "endpoint-picker",
        description="Imported from a configuration of llm-d's endpoint picker.",
        body=body or {"routing": {"kind": "round-robin"}},
    ).finish()


# ---- production-stack ----


def _production_stack(document: dict[str, Json], done: Deployed) -> None:
    engine, router = as_map(document.get("servingEngineSpec")), as_map(document.get("routerSpec"))
    logic = str(router.get("routingLogic") or "")
    if document.get("cacheserverSpec"):
        done.note(Fate.NOT_CARRIED, "cacheserverSpec", f"a store that servers share: {SHARED_STORE}")
    words = [word for text in as_list(router.get("extraArgs")) for word in str(text).split()]
    labels = {value_of(words, f"--{role}-model-labels"): role for role in ROLES}
    for model in map(as_map, as_list(engine.get("modelSpec"))):
        name = str(model.get("name"))
        cache = as_map(model.get("lmcacheConfig"))
        role = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(cache.get("kvRole")), "")
        role = role or next((known for label, known in labels.items() if label in (name, model.get("modelLabel"))), "")
        copies = number(model.get("replicaCount"))
        gpu = gpu_of(model) or gpu_named(str(model.get("requestGPUType") or ""))
        scaler: Mapping[str, Json] = {}
        if as_map(model.get("keda")).get("enabled"):
            keda = as_map(model.get("keda"))
            scaler = autoscaler_of(keda, done.given, done.mark("keda"), instances=copies)
        stands = {f"--{option}": key for key, option in VLLM_CONFIG.items()}
        stands = {**stands, "--kv-transfer-config": "lmcacheConfig", "--no-enable-prefix-caching": "vllmConfig"}
        done.add(_of_production_stack(model, done), Part(name, Start(()), copies, gpu, role, scaler), stands)
    if logic:
        done.keys.update(routing_of(logic, done.given, done.mark("routingLogic")))


def _of_production_stack(model: dict[str, Json], done: Deployed) -> dict[str, Json]:
    """Return the container that the chart makes of one model."""
    config, cache = as_map(model.get("vllmConfig")), as_map(model.get("lmcacheConfig"))
    words: list[str] = []
    if config and not config.get("enablePrefixCaching"):
        words.append("--no-enable-prefix-caching")
        if "enablePrefixCaching" not in config:
            done.note(Fate.TAKEN, "vllmConfig", "the chart turns prefix caching off unless told otherwise")
    for key, value in config.items():
        option = VLLM_CONFIG.get(key)
        if option is not None and isinstance(value, bool):
            words += [f"--{option}"] if value else [f"--no-{option}"]
        elif option is not None:
            words += [f"--{option}", str(value)]
    words += ["--enable-lora"] if model.get("enableLoRA") else []
    words += [str(argument) for argument in as_list(config.get("extraArgs"))]
    variables = list(as_list(model.get("env")))
    if cache.get("enabled"):
        role = cache.get("kvRole") or "kv_both"
        words += ["--kv-transfer-config", f'{{"kv_connector": "LMCacheConnectorV1", "kv_role": "{role}"}}']
        size = cache.get("cpuOffloadingBufferSize")
        if size is not None:
            variables.append({"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": str(size)})
        for key in ("diskOffloadingBufferSize", "enableController"):
            if key in cache:
                done.note(Fate.NOT_CARRIED, key, "see `engine.kv_tiers`")
    command: list[Json] = ["vllm", "serve", str(model.get("modelURL"))]
    image = f"{model.get('repository')}:{model.get('tag')}"
    return {"name": model.get("name"), "image": image, "command": command, "args": list[Json](words), "env": variables}


# ---- llm-d ----


def _model_service(document: dict[str, Json], done: Deployed) -> None:
    model = as_map(document.get("modelArtifacts"))
    served = model_of(str(model.get("uri") or "")) or str(model.get("name") or "")
    made = {role: as_map(document.get(role)) for role in ROLES}
    both = all(
        component and component.get("create", True) and component.get("replicas") != 0 for component in made.values()
    )
    for role, spec in made.items():
        if not spec or not spec.get("create", True) or spec.get("replicas") == 0:
            continue
        parallel = as_map(spec.get("parallelism"))
        added = [f"--{option}={parallel[key]}" for key, option in _PARALLELISM.items() if parallel.get(key, 1) != 1]
        types = as_list(as_map(spec.get("acceleratorTypes")).get("labelValues"))
        gpu = gpu_of(spec) or gpu_named(*map(str, types))
        copies, scaler = number(spec.get("replicas")), dict[str, Json]()
        scaling = as_map(spec.get("autoscaling") or spec.get("hpa"))
        if scaling.get("enabled"):
            scaler = autoscaler_of(scaling, done.given, done.mark("autoscaling"), instances=copies)
        part = Part(role, Start(()), copies, gpu, role if both else "", scaler)
        for container in map(as_map, as_list(spec.get("containers"))):
            how = container.get("modelCommand", "imageDefault" if "command" not in container else "custom")
            own = as_list(container.get("command"))
            command = ["vllm", "serve", served] if how == "vllmServe" or not own else own
            arguments = [*as_list(container.get("args")), *(added if how != "custom" or not own else [])]
            whole = {**container, "command": list[Json](command), "args": list[Json](arguments)}
            done.add(whole, part, {f"--{option}": key for key, option in _PARALLELISM.items()})


CHARTS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[dict[str, Json], Deployed], None] | None]]] = (
    MappingProxyType(
        {
            "vLLM's production-stack": (("servingEngineSpec", "routerSpec"), _production_stack),
            "llm-d's model service": (("modelArtifacts", "decode", "prefill"), _model_service),
            "llm-d's scheduler": (("inferenceExtension", "inferencePool", "router"), None),
        }
    )
)
"""Chart -> keys by which its values are known, and what finds the servers; None = it has none."""
