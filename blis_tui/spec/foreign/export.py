"""Exports an experiment as what starts its servers: commands, a compose file, Deployments, values of a chart.

The result is imported again: whatever differs then cannot be said that way, and is listed.
"""

from __future__ import annotations

import json
import shlex
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError
from blis_tui.base.scalars import flow
from blis_tui.base.source import Json, Source, as_list, as_map, dotted
from blis_tui.base.text import printable
from blis_tui.spec.foreign.charts import of_values
from blis_tui.spec.foreign.kubernetes import documents, gpu_named, number
from blis_tui.spec.foreign.manifests import of_documents
from blis_tui.spec.foreign.reading import as_name
from blis_tui.spec.foreign.routing import KIND, SCORERS
from blis_tui.spec.foreign.server_arguments import SGLANG, VLLM
from blis_tui.spec.foreign.server_commands import Wanted, of_commands
from blis_tui.spec.foreign.shell import commands
from blis_tui.spec.foreign.variants import METRIC, thresholds, variant
from blis_tui.spec.library import find
from blis_tui.spec.load import open_source, resolve_source
from blis_tui.spec.read import read_document
from blis_tui.spec.resolve import resolve
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.base.source import DataPath
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.server_arguments import Server

_COMPARED: Final = ("model", "hardware", "latency", "policy", "cluster", "engine")
_TAGS: Final = MappingProxyType({"0.10": "v0.10.2", "0.32": "v0.32.0", "0.33": "v0.33.0"})
"""Version of the scheduler's rules -> a tag of vLLM's image with them."""
_ROLES: Final = MappingProxyType({"prefill": "kv_producer", "decode": "kv_consumer"})
_HEAD: Final[dict[str, Json]] = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "exported"}}
_SECONDS: Final = 1_000_000
_PORT: Final = 8000
_REACHABLE: Final = ("--host", "0.0.0.0", "--port", str(_PORT))  # noqa: S104  (of a container)
"""vLLM in a container is reachable without being told."""


class Exported(NamedTuple):
    """What starts the servers of an experiment."""

    text: str
    lost: tuple[str, ...]
    """What it cannot say: keys of the experiment with their values."""


class _Servers(NamedTuple):
    """Equal servers of the experiment."""

    name: str
    role: str
    copies: int
    gpus: int
    arguments: list[str]
    hardware: str


class _Engine(NamedTuple):
    """An engine whose servers can be started."""

    name: str
    title: str
    batching: str
    """The scheduler that simulates it."""
    known: Server
    command: tuple[str, ...]
    image: str
    more: Callable[[dict[str, Json], dict[str, Json]], Iterator[str]]
    """Yields arguments that are no key of the same kind, from the experiment of a server and a bare one."""


class _Format(NamedTuple):
    """A way to write what starts servers, and to read it again."""

    write: Callable[[_Export], str]
    read: Callable[[_Export, Source, Wanted], Imported]
    engines: tuple[str, ...]


def export(kind: str, source: str, overrides: Sequence[str] = ()) -> Exported:
    """Return what starts the servers of an experiment.

    Args:
        kind: one of ``FORMATS``.
        source: the experiment's name or path.
        overrides: ``path=value`` texts.

    Raises:
        InputError: it cannot be read, no such server has its scheduler, or its model has no id.
        SpecError: it is not valid.
    """
    return export_document(kind, as_map(resolve_source(source, overrides=overrides).document.data))


def export_document(kind: str, data: dict[str, Json]) -> Exported:
    """Return what starts the servers of a resolved experiment; otherwise like :func:`export`."""
    return _Export(data, FORMATS[kind].engines).finish(FORMATS[kind])


class _Export:
    def __init__(self, data: dict[str, Json], engines: Sequence[str]) -> None:
        self.data = data
        batching = as_map(as_map(self.data.get("policy")).get("batching"))
        matching = next(
            (engine for engine in _ENGINES if engine.batching == batching.get("kind") and engine.name in engines), None
        )
        if matching is None:
            wanted = [engine for engine in _ENGINES if engine.name in engines]
            titles = " or ".join(engine.title for engine in wanted)
            text = f"`policy.batching` is `{printable(str(batching.get('kind')))}`: no server of {titles} has it"
            raise InputError(
                text, help=f"export an experiment with {' or '.join(engine.batching for engine in wanted)} batching"
            )
        self.engine: _Engine = matching
        self.model = _id_of(_name(self.data.get("model")))
        self.hardware = _name(self.data.get("hardware"))
        head: dict[str, Json] = {**_HEAD, "model": self.model, "hardware": self.hardware, "workload": "chatbot"}
        version = as_map(self.data.get("engine")).get("version")
        self.tag = f"v{version}" if version else _TAGS.get(str(batching.get("version")), "latest")
        bare: dict[str, Json] = {**head, "policy": {"batching": matching.batching}}
        # Unchecked: on one GPU, without any argument, the model need not fit.
        self._bare = as_map(resolve(open_source("-", yaml_text(bare))).document.data)
        self.servers = [*self._servers()]

    @property
    def image(self) -> str:
        """The container image, with the engine's version, or that whose scheduler is simulated, if there is one."""
        return self.engine.image if ":" in self.engine.image else f"{self.engine.image}:{self.tag}"

    @property
    def several(self) -> bool:
        """Whether there are different servers without roles."""
        return len(self.servers) > 1 and not any(server.role for server in self.servers)

    def labelled(self) -> bool:
        """Whether labels of nodes say the hardware."""
        return all(_selector(server.hardware) for server in self.servers)

    def _servers(self) -> Iterator[_Servers]:
        cluster = as_map(self.data.get("cluster"))
        apart = as_map(cluster.get("disaggregation"))
        pools = [as_map(pool) for pool in as_list(cluster.get("pools"))]
        if not pools and apart:
            pools = [{"name": role, "role": role, "instances": apart.get(f"{role}_instances")} for role in _ROLES]
        for pool in pools or [{"name": "engine", "instances": cluster.get("instances")}]:
            engine = {**as_map(self.data.get("engine")), **as_map(pool.get("engine"))}
            split = pool.get("tensor_parallel") or cluster.get("tensor_parallel")
            data: dict[str, Json] = {**self.data, "engine": engine, "cluster": {"tensor_parallel": split}}
            ranks = number(split) * number(engine.get("pipeline_parallel")) * number(engine.get("data_parallel"))
            role = role if (role := str(pool.get("role"))) in _ROLES else ""
            arguments = [*self._arguments(data)]
            if role and self.engine.name == "sglang":
                arguments += ["--disaggregation-mode", role]
            elif role:
                config: Json = {"kv_connector": "NixlConnector", "kv_role": _ROLES[role]}
                arguments += ["--kv-transfer-config", json.dumps(config)]
            hardware = _name(pool.get("hardware")) or self.hardware
            copies = number(pool.get("instances"))
            yield _Servers(as_name(str(pool["name"])), role, copies, ranks, arguments, hardware)

    def _arguments(self, data: dict[str, Json]) -> Iterator[str]:
        """Yield the arguments of a server, where they are not as they are without any."""
        known = self.engine.known
        for name, key in known.taken.items():
            if key in ("", "model"):
                continue
            value, usual = _get(data, key), _get(self._bare, key)
            if value == usual or value in (None, "auto", "none") or isinstance(value, dict | list):
                continue
            if name not in known.flags:
                yield from (f"--{name}", str(value))
            elif value or self.engine.name == "vllm":  # others have no flags that turn off
                yield f"--{name}" if value else f"--no-{name}"
        yield from self.engine.more(data, self._bare)

    def finish(self, format_: _Format) -> Exported:
        """Return what a format says, with what it lacks as comments in front."""
        text = format_.write(self)
        again = format_.read(self, Source("exported", text), Wanted(self.hardware, workload="chatbot"))
        made = as_map(resolve_source("-", stdin_text=again.text).document.data)
        lost = tuple(
            printable(f"{dotted(path)}: {flow(value)}")
            for key in _COMPARED
            for path, value in _different(self.data.get(key), made.get(key), (key,))
        )
        about = printable(str(as_map(self.data.get("metadata")).get("description") or ""))
        comments = [f"# {about}"] if about else []
        comments += ["# Not in it: the load" + ("" if not lost else ", and these keys of the experiment:")]
        comments += [f"#   {line}" for line in lost]
        return Exported("\n".join(comments) + "\n" + text, lost)


# ---- engines ----


def _vllm_arguments(data: dict[str, Json], bare: dict[str, Json]) -> Iterator[str]:
    engine, scheduling = as_map(data.get("engine")), _get(data, "policy.scheduling.kind")
    if scheduling == "priority-fcfs":
        yield from ("--scheduling-policy", "priority")
    off = [part.get("enable_prefix_caching") is False for part in (engine, as_map(bare.get("engine")))]
    if all(off):  # of models with states; vLLM has it on from 0.26
        yield "--no-enable-prefix-caching"
    if (many := number(engine.get("data_parallel"))) > 1:
        yield from ("--data-parallel-size", str(many))
    if engine.get("lora") is not None:
        yield "--enable-lora"
    if (drafts := as_map(engine.get("speculative"))) != {}:
        config = {"method": drafts.get("method", "ngram"), "num_speculative_tokens": drafts.get("draft_tokens")}
        yield from ("--speculative-config", json.dumps(config))
    if (mode := engine.get("cudagraph_mode")) is not None and not engine.get("enforce_eager"):
        yield from ("--compilation-config", json.dumps({"cudagraph_mode": mode}))
    tiers = [as_map(tier) for tier in as_list(as_map(engine.get("kv_tiers")).get("tiers"))]
    if tiers and as_map(engine.get("kv_tiers")).get("kind") == "offload" and not tiers[0].get("shared"):
        extra: dict[str, Json] = {"num_cpu_blocks": tiers[0].get("blocks")}
        transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
        yield from ("--kv-transfer-config", json.dumps(transfer))


def _sglang_arguments(data: dict[str, Json], bare: dict[str, Json]) -> Iterator[str]:
    engine, batching = as_map(data.get("engine")), as_map(_get(data, "policy.batching"))
    chunk = batching.get("chunked_prefill_size")
    if chunk != _get(bare, "policy.batching.chunked_prefill_size"):
        yield from ("--chunked-prefill-size", str(-1 if chunk == "none" else chunk))
    if engine.get("kv_cache_dtype") == "fp8":
        yield from ("--kv-cache-dtype", "fp8_e4m3")
    if isinstance(blocks := engine.get("kv_blocks"), int):
        yield from ("--max-total-tokens", str(blocks * number(engine.get("block_size_tokens"))))
    if engine.get("enable_prefix_caching") is False:
        yield "--disable-radix-cache"
    if batching.get("overlap_schedule") is False:
        yield "--disable-overlap-schedule"
    if engine.get("cudagraph_mode") == "FULL_DECODE_ONLY":
        yield "--disable-prefill-cuda-graph"
    if engine.get("lora") is not None:
        yield "--enable-lora"
    if as_map(engine.get("kv_tiers")).get("kind") == "hicache":
        yield "--enable-hierarchical-cache"


_ENGINES: Final = (
    _Engine("vllm", "vLLM", "vllm-v1", VLLM, ("vllm", "serve"), "vllm/vllm-openai", _vllm_arguments),
    _Engine(
        "sglang",
        "SGLang",
        "sglang",
        SGLANG,
        ("python3", "-m", "sglang.launch_server", "--model-path"),
        "lmsysorg/sglang:v0.5.23",
        _sglang_arguments,
    ),
)


def _id_of(name: str) -> str:
    """Return the Hugging Face id of a model.

    Raises:
        InputError: it has none.
    """
    path = find("Model", name)
    ids = [] if path is None else as_list(read_document(path).get("huggingface_ids"))
    if not ids:
        text = f"the model `{printable(name)}` has no Hugging Face id, which a command names"
        raise InputError(text, help="give it a document with `huggingface_ids`, and name that as `model`")
    return str(ids[0])


def _name(document: Json) -> str:
    return str(as_map(as_map(document).get("metadata")).get("name") or "")


def _get(data: dict[str, Json], key: str) -> Json:
    inside: Json = data
    for step in key.split("."):
        inside = as_map(inside).get(step)
    return inside


def _different(ours: Json, theirs: Json, path: DataPath) -> Iterator[tuple[DataPath, Json]]:
    """Yield what is in the first of two documents and not in the second, but for names."""
    if path[-1] == "metadata" or ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours:
            yield from _different(ours[key], theirs.get(key), (*path, key))
        if ours.get("kind") == theirs.get("kind"):  # another kind has other keys
            yield from (((*path, key), None) for key in theirs if key not in ours and key != "metadata")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (entry, others) in enumerate(zip(ours, theirs, strict=True)):
            yield from _different(entry, others, (*path, at))
    else:
        yield path, ours


# ---- formats ----


def _no_pools(export: _Export, what: str) -> None:
    """Raise InputError if there are different servers without roles."""
    if export.several:
        text = f"its pools have no roles: their servers are no cluster of one {what}"
        raise InputError(text, help="export it with `spec export kubernetes`")


def _script(export: _Export) -> str:
    """Return commands: one, or a loop over the GPUs of each instance."""
    lines: list[str] = []
    _no_pools(export, "script")
    start = shlex.join([*export.engine.command, export.model])
    gpu, port = 0, 8000
    for server in export.servers:
        words = [shlex.quote(word) for word in server.arguments]
        pairs = [" ".join(pair) for pair in _paired(words)]
        if sum(each.copies for each in export.servers) == 1:
            return " \\\n  ".join([start, *pairs]) + "\n"
        lists = [range(gpu + at * server.gpus, gpu + (at + 1) * server.gpus) for at in range(server.copies)]
        named = " ".join(",".join(map(str, each)) for each in lists)
        front = f"  CUDA_VISIBLE_DEVICES=$gpus {start}"
        lines += [f"port={port}", f"for gpus in {named}; do"]
        lines += [" \\\n    ".join([front, *pairs, "--port $port &"]), "  port=$((port + 1))", "done"]
        gpu, port = gpu + server.copies * server.gpus, port + server.copies
    return "\n".join(lines) + "\n"


def _read_script(export: _Export, source: Source, wanted: Wanted) -> Imported:
    return of_commands(export.engine.name, source, commands(source), wanted)


def _paired(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield arguments with their values."""
    begin = 0
    for at in range(1, len(words) + 1):
        if at == len(words) or words[at].startswith("--"):
            yield words[begin:at]
            begin = at


def _container(export: _Export, servers: _Servers) -> dict[str, Json]:
    """Return the image of a server with its command and arguments."""
    *command, option = export.engine.command
    if export.engine.name == "vllm":  # its image has a command
        return {"image": export.image, "args": ["--model", export.model, *servers.arguments]}
    arguments: list[Json] = [option, export.model, *servers.arguments, *_REACHABLE]
    return {"image": export.image, "command": list[Json](command), "args": arguments}


def _resource(hardware: str) -> str:
    return "amd.com/gpu" if _is_amd(hardware) else "nvidia.com/gpu"


def _pod(export: _Export, servers: _Servers) -> dict[str, Json]:
    """Return the pod of a server: with shared memory for NCCL if it has several GPUs, on nodes with its GPU."""
    container: dict[str, Json] = {
        "name": export.engine.name,
        **_container(export, servers),
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": _PORT}},
        "resources": {"limits": {_resource(servers.hardware): servers.gpus}},
    }
    pod: dict[str, Json] = {"containers": [container]}
    if servers.gpus > 1:
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  (of a container)
        pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    selector = _selector(servers.hardware)
    if selector:
        pod["nodeSelector"] = dict[str, Json]([selector])
    return pod


def _manifest(export: _Export) -> str:
    """Return a Deployment and a Service for each kind of server, and an autoscaler if there is one."""
    made: list[dict[str, Json]] = []
    scaler = as_map(as_map(export.data.get("cluster")).get("autoscaler"))
    for server in export.servers:
        labels: Json = {"app": server.name}
        made.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": server.name},
                "spec": {
                    "replicas": server.copies,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": _pod(export, server)},
                },
            }
        )
        ports: Json = [{"port": _PORT, "targetPort": _PORT}]
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": server.name},
                "spec": {"selector": labels, "ports": ports},
            }
        )
        if scaler:
            made.append(_scaler(server.name, scaler))
    rule = as_map(scaler.get("rule"))
    if rule.get("kind") == "wva":
        made += [variant(server.name, export.model) for server in export.servers]
        made.append(thresholds(rule))
    return "---\n".join(yaml_text(manifest) for manifest in made)


def _read_manifest(export: _Export, source: Source, wanted: Wanted) -> Imported:
    wanted = wanted._replace(hardware="") if export.labelled() else wanted
    return of_documents(documents(source), [source], wanted)


def _compose(export: _Export) -> str:
    """Return a compose file with a service for each kind of server."""
    _no_pools(export, "compose file")
    services: dict[str, Json] = {}
    port = 8000
    for server in export.servers:
        last = port + server.copies - 1
        container = _container(export, server)
        words = [*as_list(container.pop("command", [])), *as_list(container.pop("args"))]
        device: Json = {"driver": "nvidia", "count": server.gpus, "capabilities": ["gpu"]}
        deploy: dict[str, Json] = {"replicas": server.copies}
        if _resource(server.hardware).startswith("nvidia"):
            deploy["resources"] = {"reservations": {"devices": [device]}}
        ports = f"{port}:8000" if server.copies == 1 else f"{port}-{last}:8000"
        services[server.name] = {**container, "command": words, "ports": [ports], "ipc": "host", "deploy": deploy}
        port = last + 1
    return yaml_text({"services": services})


def _read_compose(_: _Export, source: Source, wanted: Wanted) -> Imported:
    return of_documents(documents(source), [source], wanted)


def _values(export: _Export) -> str:
    """Return values of llm-d's charts: those of the model service, and of the scheduler if it decides."""
    roles = {server.role or "decode": server for server in export.servers}
    if len(roles) < len(export.servers):
        text = "llm-d's chart has servers of one kind, or two: for prefill and for decode"
        raise InputError(text, help="export it with `spec export kubernetes`")
    uri = f"hf://{export.model}"
    made: dict[str, Json] = {"modelArtifacts": {"uri": uri, "name": export.model}}
    scaler = as_map(as_map(export.data.get("cluster")).get("autoscaler"))
    for role in ("decode", "prefill"):
        servers = roles.get(role)
        if servers is None:
            made[role] = {"create": False}
            continue
        selector = _selector(servers.hardware)
        words, split = _without(servers.arguments, "--tensor-parallel-size")
        limits: Json = {"limits": {_resource(servers.hardware): servers.gpus}}
        container: dict[str, Json] = {"name": "vllm", "image": export.image, "modelCommand": "vllmServe"}
        made[role] = {
            "create": True,
            "replicas": servers.copies,
            **({"acceleratorTypes": {"labelKey": selector[0], "labelValues": [selector[1]]}} if selector else {}),
            **({"autoscaling": {"enabled": True, **_limits(scaler)}} if scaler else {}),
            "parallelism": {"tensor": int(split or 1)},
            "containers": [{**container, "args": list[Json](words), "resources": limits}],
        }
    config = _picker(export.data)
    return yaml_text(made) + (_PICKED + indent(yaml_text(config), " " * 6) if config else "")


_PICKED: Final = "inferenceExtension:\n  pluginsConfigFile: picker.yaml\n  pluginsCustomConfig:\n    picker.yaml: |\n"


def _read_values(export: _Export, source: Source, wanted: Wanted) -> Imported:
    return of_values([source], wanted._replace(hardware="") if export.labelled() else wanted)


def _without(words: Sequence[str], name: str) -> tuple[list[str], str]:
    """Return arguments without one, and its value."""
    if name not in words:
        return list(words), ""
    at = words.index(name)
    return [*words[:at], *words[at + 2 :]], words[at + 1]


def _picker(data: dict[str, Json]) -> dict[str, Json]:
    """Return the configuration of an endpoint picker that routes alike; empty = none does."""
    apart = as_map(_get(data, "cluster.disaggregation"))
    routings = {role: as_map(apart.get(f"{role}_routing")) for role in _ROLES if f"{role}_routing" in apart}
    plugins: dict[str, Json] = {}
    profiles: list[Json] = []
    size = _get(data, "engine.block_size_tokens")
    for name, routing in routings.items() if routings else [("default", as_map(_get(data, "policy.routing")))]:
        entries: list[Json] = []
        for scorer in map(as_map, as_list(routing.get("scorers"))):
            type_ = _SCORERS.get(str(scorer.get("kind")))
            if type_ is None:
                return {}
            parameters = _parameters(scorer, size)
            plugins[type_] = {"type": type_, **({"parameters": parameters} if parameters else {})}
            entries.append({"pluginRef": type_, "weight": scorer.get("weight", 1)})
        picker = _PICKERS.get(str(routing.get("kind"))) if routing.get("kind") != "weighted" else "max-score-picker"
        if picker is None or (picker == "random-picker" and routing.get("choices") != 1):
            return {}
        plugins[picker] = {"type": picker}
        profiles.append({"name": name, "plugins": [*entries, {"pluginRef": picker}]})
    decider = as_map(apart.get("decider"))
    if decider.get("kind") == "prefix-threshold":
        plugins["pd-profile-handler"] = {
            "type": "pd-profile-handler",
            "parameters": {"threshold": decider.get("threshold_tokens")},
        }
    head: dict[str, Json] = {"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": KIND}
    return {**head, "plugins": list(plugins.values()), "schedulingProfiles": profiles}


def _parameters(scorer: Mapping[str, Json], size: Json) -> dict[str, Json]:
    if scorer.get("kind") == "prefix-affinity" and "capacity_blocks" in scorer:
        return {"lruCapacityPerServer": scorer["capacity_blocks"]}
    return {"tokenProcessorConfig": {"blockSize": size}} if scorer.get("kind") == "precise-prefix-cache" else {}


_SCORERS: Final = {ours: theirs for theirs, ours in reversed([*SCORERS.items()])}
"""Scorer of `policy.routing` -> the endpoint picker's, of several the first."""
_PICKERS: Final = MappingProxyType({"session-affinity": "session-affinity-scorer", "power-of-two": "random-picker"})


_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100-40": "NVIDIA-A100-SXM4-40GB",
        "a100-80": "NVIDIA-A100-SXM4-80GB",
        "a10g": "NVIDIA-A10G",
        "b200": "NVIDIA-B200",
        "b300": "NVIDIA-B300-SXM6-AC",
        "gb200": "NVIDIA-GB200",
        "gb300": "NVIDIA-GB300",
        "h100": "NVIDIA-H100-80GB-HBM3",
        "h100-nvl": "NVIDIA-H100-NVL",
        "h100-pcie": "NVIDIA-H100-PCIe",
        "h20": "NVIDIA-H20",
        "h200": "NVIDIA-H200",
        "l4": "NVIDIA-L4",
        "l40": "NVIDIA-L40",
        "l40s": "NVIDIA-L40S",
        "mi300x": "AMD_Instinct_MI300X_OAM",
        "rtx-3090": "NVIDIA-GeForce-RTX-3090",
        "rtx-4090": "NVIDIA-GeForce-RTX-4090",
        "rtx-5090": "NVIDIA-GeForce-RTX-5090",
        "rtx-6000-ada": "NVIDIA-RTX-6000-Ada-Generation",
        "rtx-a6000": "NVIDIA-RTX-A6000",
        "rtx-pro-6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    }
)
"""Hardware -> what NVIDIA's GPU feature discovery, or AMD's node labeller, writes on nodes with it: the product's name
from the driver."""


def _is_amd(hardware: str) -> bool:
    return hardware.startswith("mi")


def _selector(hardware: str) -> tuple[str, str] | None:
    """Return the label of nodes with a GPU; None = it is not known, or does not tell this GPU."""
    label = _LABELS.get(hardware, "")
    if gpu_named(label) != hardware:
        return None
    return "amd.com/gpu.product-name" if _is_amd(hardware) else "nvidia.com/gpu.product", label


def _scaler(name: str, scaler: dict[str, Json]) -> dict[str, Json]:
    target: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, **_with_policies(_limits(scaler), as_map(scaler.get("rule")))},
    }


def _with_policies(limits: dict[str, Json], rule: dict[str, Json]) -> dict[str, Json]:
    """Return the limits of a HorizontalPodAutoscaler with its policies and its metric."""
    if rule.get("kind") == "wva":
        look: Json = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "1"}}
        return {**limits, "metrics": [{"type": "External", "external": look}]}
    if rule.get("kind") != "hpa":
        return limits
    if not rule["behavior"]:
        return {key: value for key, value in limits.items() if key != "behavior"} | _looks_at(rule)
    behavior: dict[str, Json] = {}
    for key, ours in (("scaleUp", "scale_up"), ("scaleDown", "scale_down")):
        found = ((kind, as_map(rule.get(f"{ours}_{kind.lower()}"))) for kind in ("Pods", "Percent"))
        policies: list[Json] = [
            {"type": kind, "value": one["value"], "periodSeconds": one["period_s"]} for kind, one in found if one
        ]
        behavior[key] = {
            **as_map(as_map(limits["behavior"])[key]),
            **({"policies": policies} if policies else {}),
            **({"selectPolicy": rule[f"{ours}_select"]} if rule[f"{ours}_select"] != "Max" else {}),
        }
    return {**limits, "behavior": behavior, **_looks_at(rule)}


def _looks_at(rule: dict[str, Json]) -> dict[str, Json]:
    """Return the metric of a HorizontalPodAutoscaler."""
    source = str(rule["source"])
    look: Json = {
        "metric": {"name": f"vllm:{rule['metric']}"},
        "target": {"type": "AverageValue", "averageValue": f"{rule['target']:.15g}"},
    }
    return {"metrics": [{"type": source, source.lower(): look}]}


def _limits(scaler: dict[str, Json]) -> dict[str, Json]:
    """Return the limits and windows of an autoscaler."""
    windows: dict[str, Json] = {
        key: {"stabilizationWindowSeconds": number(scaler.get(f"{ours}_stabilization_window_us"), 0) // _SECONDS}
        for key, ours in (("scaleUp", "scale_up"), ("scaleDown", "scale_down"))
    }
    return {
        "minReplicas": scaler.get("min_instances"),
        "maxReplicas": scaler.get("max_instances"),
        "behavior": windows,
    }


FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "vllm": _Format(_script, _read_script, ("vllm",)),
        "sglang": _Format(_script, _read_script, ("sglang",)),
        "compose": _Format(_compose, _read_compose, ("vllm", "sglang")),
        "kubernetes": _Format(_manifest, _read_manifest, ("vllm", "sglang")),
        "llm-d": _Format(_values, _read_values, ("vllm",)),
    }
)
"""What can be exported -> how."""
