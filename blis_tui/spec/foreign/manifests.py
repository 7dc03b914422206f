"""Imports Kubernetes manifests, kustomizations and compose files that start servers as an Experiment."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.base.source import Document, as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.autoscalers import KINDS as SCALERS
from blis_tui.spec.foreign.autoscalers import autoscaler_of
from blis_tui.spec.foreign.endpoint_picker import pickers
from blis_tui.spec.foreign.fleets import ROLES, Fleet, Part, imported
from blis_tui.spec.foreign.kustomize import NAMES as KUSTOMIZATIONS
from blis_tui.spec.foreign.kustomize import kustomized
from blis_tui.spec.foreign.operators import BASES, OPERATORS, Deployed
from blis_tui.spec.foreign.pods import documents, gpu_of, number, part_of, values
from blis_tui.spec.foreign.reading import Fate, Input
from blis_tui.spec.foreign.server_conversion import TITLES
from blis_tui.spec.foreign.server_starts import Start
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json, Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.server_conversion import Wanted

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
    found: Sequence[dict[str, Json]], sources: list[Source], wanted: Wanted, service: str | None = None
) -> Imported:
    """Convert the documents of files; otherwise like :func:`import_kubernetes`."""
    given = Input(Document({}, sources[0]))
    done = Deployed(given, sources, wanted.variables, _maps(found))
    kinds = {str(document.get("kind")) for document in found}
    bases = [one for one in found if BASES.get(str(one.get("kind"))) in kinds]
    done.bases = {str(as_map(one.get("metadata")).get("name")): as_map(one.get("spec")) for one in bases}
    for document in found:
        kind = str(document.get("kind") or "")
        if as_map(document.get("services")) and not kind:
            _compose(document, done)
        elif kind in OPERATORS:
            OPERATORS[kind](document, done)
        elif kind not in SCALERS and BASES.get(kind) not in kinds:
            _workload(document, done)
    beside = [one for one in found if str(one.get("kind")) not in OPERATORS]
    done.pick([made for one in beside for made in pickers(one, sources[0])])
    _scale(found, done)
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
    found: list[dict[str, Json]] = []
    sources: list[Source] = []
    for path in paths:
        inside = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
        kustomization = next((path / name for name in KUSTOMIZATIONS if (path / name).is_file()), None)
        if kustomization is not None or path.name in KUSTOMIZATIONS:
            more, read = kustomized(kustomization or path)
            found, sources = found + more, sources + read
            continue
        if not inside:
            raise InputError(f"{path} has no manifest", help="expected a kustomization.yaml, or *.yaml")
        for one in inside:
            source = read_source(one)
            sources.append(source)
            read_here = documents(source)
            if any(document.get("kind") == "Kustomization" for document in read_here):
                more, read = kustomized(one)
                found, sources = found + more, sources[:-1] + read
            else:
                found += [inner for document in read_here for inner in _items(document)]
    return found, sources


def _items(document: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the documents of a ``List``, otherwise the document itself."""
    listed = document.get("kind") == "List"
    return [as_map(one) for one in as_list(document.get("items"))] if listed else [document]


def _maps(found: Sequence[dict[str, Json]]) -> dict[str, dict[str, Json]]:
    """Return the data of ConfigMaps by their names."""
    maps = [one for one in found if one.get("kind") == "ConfigMap"]
    return {str(as_map(one.get("metadata")).get("name")): as_map(one.get("data")) for one in maps}


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
        for one in templates:
            before = len(done.parts)
            _pods(group.get(one), Part(name, Start(()), copies, gpu), done, variables)
            if len(done.parts) > before:
                return
        return
    roles = as_list(spec.get("roles") or as_map(as_map(spec.get("template")).get("spec")).get("roles"))
    for role in map(as_map, roles):  # AIBrix's StormService
        named = str(role.get("name"))
        known = next((one for one in ROLES if one in named.lower()), "")
        part = Part(f"{named}/{name}", Start(()), copies * number(role.get("replicas")), gpu_of(role) or gpu, known)
        _pods(role, part, done, variables)
    if not roles:
        labels = [as_map(as_map(value).get("labels")) for value in values(document)]
        known = next((role for one in labels for role in ROLES if one.get("llm-d.ai/role") == role), "")
        _pods(spec, Part(name, Start(()), copies, gpu, known), done, variables)


def _pods(spec: Json, part: Part, done: Deployed, variables: Mapping[str, str]) -> None:
    """Find the containers below a value that start servers."""
    for value in values(spec):
        for container in map(as_map, as_list(as_map(value).get("containers"))):
            named = part._replace(name=f"{container.get('name')}/{part.name}")
            done.add(container, named, variables=variables)


def _scale(found: Sequence[dict[str, Json]], done: Deployed) -> None:
    """Take the autoscaler of the servers."""
    for document in found:
        spec = as_map(document.get("spec"))
        if document.get("kind") not in SCALERS:
            continue
        target = str(as_map(spec.get("scaleTargetRef")).get("name") or "")
        scaled = [part for part in done.parts if target in part.name.split("/") or len(done.parts) == 1]
        named = str(as_map(spec.get("subTargetSelector")).get("roleName") or "")
        scaled = [part for part in scaled if not named or named in part.name.split("/")]
        path = done.mark(str(document["kind"]))
        if not scaled:
            done.given.note(Fate.NOT_CARRIED, path, f"it scales `{printable(target)}`, which is no server here")
        else:
            scaler = autoscaler_of(spec, done.given, path, instances=sum(part.copies for part in scaled))
            done.parts = [part._replace(scaler=scaler) if part in scaled else part for part in done.parts]


# ---- compose ----


def _compose(document: dict[str, Json], done: Deployed) -> None:
    """Find the servers among the services of a compose file."""
    known = {**_dotenv(done.sources[0]), **done.variables}
    done.pools = False
    for name, service in as_map(document.get("services")).items():
        one = as_map(service)
        image = _filled(str(one.get("image") or ""), known)
        words: list[Json] = [*_words(one.get("entrypoint"), known), *_words(one.get("command"), known)]
        variables = _variables(one.get("environment"), known)
        copies = as_map(one.get("deploy")).get("replicas", one.get("scale", 1))
        container: dict[str, Json] = {"image": image, "args": words, "env": variables}
        part = Part(name, Start(()), number(copies))
        found = part_of(container, done.sources, part, variables=done.variables)
        done.parts += [found] if found is not None else []


def _variables(value: Json, known: Mapping[str, str]) -> list[Json]:
    """Return the environment of a service, which is a map or a list of ``NAME=VALUE``."""
    pairs = [(key, str(one)) for key, one in as_map(value).items() if one is not None]
    pairs += [str(one).partition("=")[::2] for one in as_list(value) if "=" in str(one)]
    return [{"name": name, "value": _filled(text, known)} for name, text in pairs]


def _words(value: Json, known: Mapping[str, str]) -> list[str]:
    """Return the words of a compose file's command: a list, or a text that is split as a shell does."""
    if isinstance(value, list):
        return [_filled(str(one), known) for one in value]
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
