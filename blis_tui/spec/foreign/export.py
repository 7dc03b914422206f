"""Exports an experiment as what starts its servers: commands of vLLM, or Deployments of Kubernetes.

The result is imported again: whatever differs then cannot be said that way, and is listed.
"""

from __future__ import annotations

import json
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError
from blis_tui.base.scalars import flow
from blis_tui.base.source import Source, as_list, as_map, dotted
from blis_tui.base.text import printable
from blis_tui.spec.foreign.kubernetes import documents, gpu_named, number
from blis_tui.spec.foreign.manifests import of_documents
from blis_tui.spec.foreign.reading import as_name
from blis_tui.spec.foreign.server_arguments import VLLM
from blis_tui.spec.foreign.server_commands import Wanted, of_commands
from blis_tui.spec.foreign.shell import commands
from blis_tui.spec.library import find
from blis_tui.spec.load import open_source, resolve_source
from blis_tui.spec.read import read_document
from blis_tui.spec.resolve import resolve
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.base.source import DataPath, Json

_COMPARED: Final = ("model", "hardware", "latency", "policy", "cluster", "engine")
_TAGS: Final = MappingProxyType({"0.10": "v0.10.2", "0.32": "v0.32.0", "0.33": "v0.33.0"})
"""Version of the scheduler's rules -> a tag of vLLM's image with them."""
_ROLES: Final = MappingProxyType({"prefill": "kv_producer", "decode": "kv_consumer"})
_HEAD: Final[dict[str, Json]] = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "exported"}}
_SECONDS: Final = 1_000_000


class Exported(NamedTuple):
    """What starts the servers of an experiment."""

    text: str
    lost: tuple[str, ...]
    """What it cannot say: keys of the experiment with their values."""


class _Servers(NamedTuple):
    """Equal servers of the experiment."""

    name: str
    copies: int
    gpus: int
    arguments: list[str]
    hardware: str


def export_vllm(source: str, overrides: Sequence[str] = ()) -> Exported:
    """Return a script that starts the servers of an experiment.

    Args:
        source: the experiment's name or path.
        overrides: ``path=value`` texts.

    Raises:
        InputError: it cannot be read, its scheduler is not vLLM's, or its model has no id.
        SpecError: it is not valid.
    """
    return _Export(source, overrides).finish(_script)


def export_kubernetes(source: str, overrides: Sequence[str] = ()) -> Exported:
    """Return manifests that deploy the servers of an experiment; otherwise like :func:`export_vllm`."""
    return _Export(source, overrides).finish(_manifest)


class _Export:
    def __init__(self, source: str, overrides: Sequence[str]) -> None:
        self.data = as_map(resolve_source(source, overrides=overrides).document.data)
        batching = as_map(as_map(self.data.get("policy")).get("batching"))
        if batching.get("kind") != "vllm-v1":
            text = f"`policy.batching` is `{printable(str(batching.get('kind')))}`: no server of vLLM has it"
            raise InputError(text, help="export an experiment with vllm-v1 batching")
        self.model = _id_of(_name(self.data.get("model")))
        self.hardware = _name(self.data.get("hardware"))
        head: dict[str, Json] = {**_HEAD, "model": self.model, "hardware": self.hardware, "workload": "chatbot"}
        self.version = str(batching.get("version"))
        bare: dict[str, Json] = {**head, "policy": {"batching": "vllm-v1"}}
        # Unchecked: on one GPU, without any argument, the model need not fit.
        self._bare = as_map(resolve(open_source("-", yaml_text(bare))).document.data)
        self.servers = [*self._servers()]

    def _servers(self) -> Iterator[_Servers]:
        cluster = as_map(self.data.get("cluster"))
        apart = as_map(cluster.get("disaggregation"))
        pools = [as_map(one) for one in as_list(cluster.get("pools"))]
        if not pools and apart:
            pools = [{"name": role, "role": role, "instances": apart.get(f"{role}_instances")} for role in _ROLES]
        for pool in pools or [{"name": "engine", "instances": cluster.get("instances")}]:
            engine = {**as_map(self.data.get("engine")), **as_map(pool.get("engine"))}
            split = pool.get("tensor_parallel") or cluster.get("tensor_parallel")
            data: dict[str, Json] = {**self.data, "engine": engine, "cluster": {"tensor_parallel": split}}
            ranks = number(split) * number(engine.get("pipeline_parallel")) * number(engine.get("data_parallel"))
            role = _ROLES.get(str(pool.get("role")), "")
            arguments = [*self._arguments(data)]
            if role:
                arguments += ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})]
            hardware = _name(pool.get("hardware")) or self.hardware
            yield _Servers(as_name(str(pool["name"])), number(pool.get("instances")), ranks, arguments, hardware)

    def _arguments(self, data: dict[str, Json]) -> Iterator[str]:
        """Yield the arguments of a server, where they are not as they are without any."""
        for name, key in VLLM.taken.items():
            if key in ("", "model"):
                continue
            value, usual = _get(data, key), _get(self._bare, key)
            if value == usual or value in (None, "auto", "none") or isinstance(value, dict | list):
                continue
            if name in VLLM.flags:
                yield f"--{name}" if value else f"--no-{name}"
            else:
                yield from (f"--{name}", str(value))
        engine, scheduling = as_map(data.get("engine")), _get(data, "policy.scheduling.kind")
        if scheduling == "priority-fcfs":
            yield from ("--scheduling-policy", "priority")
        if (many := number(engine.get("data_parallel"))) > 1:
            yield from ("--data-parallel-size", str(many))
        if engine.get("lora") is not None:
            yield "--enable-lora"
        if (drafts := as_map(engine.get("speculative"))) != {}:
            config = {"method": drafts.get("method", "ngram"), "num_speculative_tokens": drafts.get("draft_tokens")}
            yield from ("--speculative-config", json.dumps(config))
        if (mode := engine.get("cudagraph_mode")) is not None and not engine.get("enforce_eager"):
            yield from ("--compilation-config", json.dumps({"cudagraph_mode": mode}))
        tiers = [as_map(one) for one in as_list(as_map(engine.get("kv_tiers")).get("tiers"))]
        if tiers and as_map(engine.get("kv_tiers")).get("kind") == "offload":
            extra: dict[str, Json] = {"num_cpu_blocks": tiers[0].get("blocks")}
            transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
            yield from ("--kv-transfer-config", json.dumps(transfer))

    def finish(self, write: Callable[[_Export], str]) -> Exported:
        """Return what a writer makes, with what it lacks as comments in front."""
        text = write(self)
        wanted = Wanted(self.hardware, workload="chatbot")
        source = Source("exported", text)
        if write is _script:
            again = of_commands("vllm", source, commands(source), wanted)
        else:
            known = all(gpu_named(_label(one.hardware)) == one.hardware for one in self.servers)
            again = of_documents(documents(source), [source], wanted._replace(hardware="") if known else wanted)
        made = as_map(resolve_source("-", stdin_text=again.text).document.data)
        lost = tuple(
            printable(f"{dotted(path)}: {flow(value)}")
            for key in _COMPARED
            for path, value in _different(self.data.get(key), made.get(key), (key,))
        )
        comments = [f"# {printable(str(as_map(self.data.get('metadata')).get('description') or ''))}".rstrip()]
        comments += ["# Not in it: the load" + ("" if not lost else ", and these keys of the experiment:")]
        comments += [f"#   {one}" for one in lost]
        return Exported("\n".join(comments) + "\n" + text, lost)


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
    for one in key.split("."):
        inside = as_map(inside).get(one)
    return inside


def _different(one: Json, other: Json, path: DataPath) -> Iterator[tuple[DataPath, Json]]:
    """Yield what is in the first of two documents and not in the second, but for names."""
    if path[-1] == "metadata" or one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one:
            yield from _different(one[key], other.get(key), (*path, key))
        yield from (((*path, key), None) for key in other if key not in one and key != "metadata")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (entry, others) in enumerate(zip(one, other, strict=True)):
            yield from _different(entry, others, (*path, at))
    else:
        yield path, one


def _script(export: _Export) -> str:
    """Return commands of vLLM: one, or a loop over the GPUs of each instance."""
    lines: list[str] = []
    several = sum(one.copies for one in export.servers) > 1
    if len(export.servers) > 1 and not any("--kv-transfer-config" in one.arguments for one in export.servers):
        text = "its pools have no roles: their servers are no cluster of one script"
        raise InputError(text, help="export it with `spec export kubernetes`")
    gpu, port = 0, 8000
    for one in export.servers:
        words = [shlex.quote(word) for word in one.arguments]
        pairs = [" ".join(pair) for pair in _paired(words)]
        if not several:
            return " \\\n  ".join([f"vllm serve {shlex.quote(export.model)}", *pairs]) + "\n"
        lists = [range(gpu + at * one.gpus, gpu + (at + 1) * one.gpus) for at in range(one.copies)]
        named = " ".join(",".join(map(str, each)) for each in lists)
        front = f"  CUDA_VISIBLE_DEVICES=$gpus vllm serve {shlex.quote(export.model)}"
        lines += [f"port={port}", f"for gpus in {named}; do"]
        lines += [" \\\n    ".join([front, *pairs, "--port $port &"]), "  port=$((port + 1))", "done"]
        gpu, port = gpu + one.copies * one.gpus, port + one.copies
    return "\n".join(lines) + "\n"


def _paired(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield arguments with their values."""
    begin = 0
    for at in range(1, len(words) + 1):
        if at == len(words) or words[at].startswith("--"):
            yield words[begin:at]
            begin = at


def _manifest(export: _Export) -> str:
    """Return a Deployment for each kind of server, and an autoscaler if there is one."""
    made: list[dict[str, Json]] = []
    scaler = as_map(as_map(export.data.get("cluster")).get("autoscaler"))
    for one in export.servers:
        label = _label(one.hardware)
        nodes: dict[str, Json] = {"nvidia.com/gpu.product": label} if gpu_named(label) == one.hardware else {}
        resource = "amd.com/gpu" if label.startswith("AMD") else "nvidia.com/gpu"
        container: dict[str, Json] = {
            "name": "vllm",
            "image": f"vllm/vllm-openai:{_TAGS.get(export.version, 'latest')}",
            "args": ["--model", export.model, *one.arguments],
            "resources": {"limits": {resource: one.gpus}},
        }
        labels: Json = {"app": one.name}
        pod: dict[str, Json] = {"containers": [container], **({"nodeSelector": nodes} if nodes else {})}
        made.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": one.name},
                "spec": {
                    "replicas": one.copies,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            }
        )
        if scaler:
            made.append(_scaler(one.name, scaler))
    return "---\n".join(yaml_text(one) for one in made)


def _label(hardware: str) -> str:
    """Return what nodes with a GPU are labelled."""
    maker = "AMD" if hardware.startswith("mi") else "NVIDIA"
    return f"{maker}-{hardware.upper()}{'GB' if hardware.endswith('80') else ''}"


def _scaler(name: str, scaler: dict[str, Json]) -> dict[str, Json]:
    windows: dict[str, Json] = {
        key: {"stabilizationWindowSeconds": number(scaler.get(f"{ours}_stabilization_window_us"), 0) // _SECONDS}
        for key, ours in (("scaleUp", "scale_up"), ("scaleDown", "scale_down"))
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": scaler.get("min_instances"),
            "maxReplicas": scaler.get("max_instances"),
            "behavior": windows,
        },
    }
