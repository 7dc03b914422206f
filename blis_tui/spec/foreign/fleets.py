"""Several servers as one experiment: equal ones are instances, others pools, those with roles are disaggregated."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import as_list, as_map
from blis_tui.base.text import printable
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.spec.foreign.reading import Draft, Fate, Input, Note, as_name
from blis_tui.spec.foreign.servers import TITLES, Converted
from blis_tui.spec.load import load
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Json, Source
    from blis_tui.model import Pool
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.servers import Start, Wanted

ROLES: Final = ("prefill", "decode")
_UNSEEN: Final = "<stdin>"
"""What the finished document is called before it is written."""
_LMCACHE_BYTES: Final = 5.0 * 2**30
"""Host memory that LMCache takes unless told otherwise."""
_OF_POOLS: Final = ("model", "hardware", "latency", "engine")
_FOLLOWERS: Final = ("headless", "node-rank", "data-parallel-rank")
"""Arguments of servers that are a part of another one, unless they are 0."""


class Part(NamedTuple):
    """Equal servers."""

    name: str
    start: Start
    copies: int = 1
    gpu: str = ""
    """Its hardware; empty = not said."""
    role: str = ""
    """``prefill`` or ``decode``, where that is said beside the command."""
    scaler: Mapping[str, Json] = MappingProxyType({})
    """Its autoscaler, under the keys of ``cluster.autoscaler``."""


class Fleet(NamedTuple):
    """What a file deploys."""

    source: Source
    given: Input
    """Notes so far, and problems."""
    parts: Sequence[Part]
    keys: Mapping[str, Json] = MappingProxyType({})
    """Dotted key of the experiment -> value, such as that of ``policy.routing``."""
    loads: Sequence[dict[str, Json]] = ()
    description: str = ""
    pools: bool = True
    """Whether different servers without roles serve the same requests."""


class _Group(NamedTuple):
    """Servers that are converted alike."""

    made: Converted
    body: dict[str, Json]
    name: str
    role: str
    copies: int
    scaler: Mapping[str, Json]


def imported(fleet: Fleet, wanted: Wanted) -> Imported:
    """Convert servers to an experiment.

    Raises:
        SpecError: one has something that is impossible here, or they do not serve the same requests.
    """
    given = fleet.given
    groups = _groups(fleet, wanted)
    _check(fleet, groups)
    given.stop_at_problems()
    origins: dict[DataPath, DataPath] = {}
    body = _combined(groups, given, origins)
    _scale(groups, body)
    for key, value in fleet.keys.items():
        put(body, key, value)
    if sum(group.copies for group in groups) > 1 and "routing" not in as_map(body.get("policy")):
        given.note(Fate.ELSEWHERE, (), "nothing says how requests are routed: the instances take turns")
    body["workload"] = _workload(fleet, wanted)
    draft = Draft(
        source=given,
        kind="Experiment",
        name=wanted.name or as_name(str(body["model"] if isinstance(body["model"], str) else groups[0].made.model)),
        description=fleet.description or f"Imported from a command that starts {TITLES[groups[0].made.engine]}.",
        body=body,
        origins=origins,
    )
    try:
        return draft.finish()
    except SpecError as error:
        raise SpecError([_at_its_argument(diagnostic, draft) for diagnostic in error.diagnostics]) from None


def _scale(groups: Sequence[_Group], body: dict[str, Json]) -> None:
    """Set the autoscaler of all; those of pools limit their own instances, and others keep theirs."""
    scalers = [group.scaler for group in groups]
    if not any(scalers):
        return
    first = dict(next(scaler for scaler in scalers if scaler))
    pools = as_list(as_map(body.get("cluster")).get("pools"))
    for pool, scaler in zip(map(as_map, pools), scalers, strict=False):
        for key in ("min_instances", "max_instances"):
            pool[key] = scaler.get(key, pool["instances"])
            first[key] = (min if key[:3] == "min" else max)(_whole(first[key]), _whole(pool[key]))
    put(body, "cluster.autoscaler", first)


def put(body: dict[str, Json], key: str, value: Json) -> None:
    """Set a dotted key; maps in between are made."""
    *folders, last = key.split(".")
    for folder in folders:
        body = as_map(body.setdefault(folder, {}))
    body[last] = value


def _workload(fleet: Fleet, wanted: Wanted) -> Json:
    if wanted.workload is not None:
        return wanted.workload
    if not fleet.loads:
        text = "no load is given: the workload is `chatbot` (--workload, or a benchmark)"
        fleet.given.note(Fate.ELSEWHERE, (), text)
        return "chatbot"
    if any(offered != fleet.loads[0] for offered in fleet.loads):
        text = f"there are {len(fleet.loads)} loads: the first one is taken (`spec import load` converts others)"
        fleet.given.note(Fate.ELSEWHERE, (), text)
    return fleet.loads[0]


def _groups(fleet: Fleet, wanted: Wanted) -> list[_Group]:
    """Convert all servers; those that become the same are one group."""
    made: list[_Group] = []
    for part in fleet.parts:
        asked = wanted._replace(hardware=wanted.hardware or part.gpu)
        server = Converted(part.start.engine, fleet.source, part.start, asked)
        body = server.convert()
        fleet.given.problems += [problem for problem in server.given.problems if problem not in fleet.given.problems]
        named = next((role for role in ROLES if role in part.name.lower() and server.hands_over), "")
        made.append(_Group(server, body, part.name, part.role or server.role or named, part.copies, part.scaler))
    if {group.role for group in made} == {"prefill", ""}:
        made = [group if group.role else group._replace(role="decode") for group in made]
    leaders = [group for group in made if not any(group.made.options.get(name) for name in _FOLLOWERS)]
    for group in made:
        if leaders and group not in leaders:
            group.made.given.notes.clear()
            group.made.given.note(Fate.NO_EFFECT, (), "it is a part of another server")
            fleet.given.notes += group.made.given.notes
    groups: list[_Group] = []
    for leader in leaders or made:
        at = next((at for at, other in enumerate(groups) if _kind(leader) == _kind(other)), None)
        if at is None:
            groups.append(leader)
        else:
            groups[at] = groups[at]._replace(copies=groups[at].copies + leader.copies)
    return groups


def _kind(group: _Group) -> tuple[object, ...]:
    return group.role, group.body, group.made.host_cache, group.scaler


def _check(fleet: Fleet, groups: Sequence[_Group]) -> None:
    """Note a problem if the servers are no cluster that serves the same requests."""
    roles = {group.role for group in groups}
    models = {group.made.model for group in groups}
    names = ", ".join(f"`{printable(group.name)}`" for group in groups)
    hint = "choose with --service"
    if not groups:
        fleet.given.problem((), "no server is started")
    elif len(models) > 1:
        fleet.given.problem((), f"several servers have different models: {names}", hint=hint)
    elif len({group.made.engine for group in groups}) > 1:
        fleet.given.problem((), f"several servers have different engines: {names}", hint=hint)
    elif len(groups) > 1 and "" in roles and (len(roles) > 1 or not fleet.pools):
        fleet.given.problem((), f"the servers differ, and nothing says their roles: {names}", hint=hint)
    elif "prefill" in roles and "decode" not in roles and len(groups) > 1:
        fleet.given.problem((), f"no server decodes: {names}", hint=hint)


def _combined(groups: Sequence[_Group], given: Input, origins: dict[DataPath, DataPath]) -> dict[str, Json]:
    """Return one experiment of all groups, having taken over their notes."""
    apart = {group.role for group in groups} >= {*ROLES}
    labels = _labels(groups)
    for group, label in zip(groups, labels, strict=True):
        _hand_over(group, apart=apart)
        if apart and group.made.engine == "sglang":
            _without_what_roles_lack(group)
        elif apart and group.made.engine != "vllm":
            _with_vllm_scheduler(group)
        _prefix_cache(group)
        _host_cache(group)
        if label or group.copies > 1:
            key = f"instances: {group.copies}` of pool `{label}" if label else f"cluster.instances: {group.copies}"
            group.made.given.note(Fate.TAKEN, (), f"`{key}`")
        above = (label,) if label else ()
        document = group.made.given.document
        given.document.keys.update({(*above, *path): place for path, place in document.keys.items()})
        given.document.values.update({(*above, *path): place for path, place in document.values.items()})
        given.notes += [_under(above, note) for note in group.made.given.notes]
    if apart and groups[0].made.engine == "sglang":
        _share_reserve(groups)
    first = groups[0]
    if len(groups) == 1:
        copies = first.copies * _whole(as_map(first.body.get("cluster")).get("instances", 1))
        origins.update(first.made.origins)
        if copies > 1:
            put(first.body, "cluster.instances", copies)
        return first.body
    return _pools(groups, labels, given, origins)


def _under(above: DataPath, note: Note) -> Note:
    return Note(fate=note.fate, path=(*above, *note.path), place=note.place, text=note.text)


def _labels(groups: Sequence[_Group]) -> list[str]:
    """Return what notes and pools call the groups: nothing if there is one, else their roles or names."""
    if len(groups) == 1:
        return [""]
    roles = [group.role for group in groups]
    owners = [group.name.rpartition("/")[2] for group in groups]
    owners = owners if len({*owners}) == len(owners) else [group.name for group in groups]
    names = [
        role if role and roles.count(role) == 1 else as_name(name) for role, name in zip(roles, owners, strict=True)
    ]
    return [name if names.count(name) == 1 else f"{name}-{at}" for at, name in enumerate(names)]


def _whole(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def _pools(
    groups: Sequence[_Group], labels: Sequence[str], given: Input, origins: dict[DataPath, DataPath]
) -> dict[str, Json]:
    """Return an experiment with a pool for each group; what all have in common is outside of the pools."""
    body: dict[str, Json] = {key: value for key, value in groups[0].body.items() if key not in ("cluster", "engine")}
    clusters = [dict(as_map(group.body.get("cluster"))) for group in groups]
    engines = [dict(as_map(group.body.get("engine"))) for group in groups]
    shared = {
        key: value
        for key, value in engines[0].items()
        if all(key in engine and engine[key] == value for engine in engines)
    }
    pools: list[Json] = []
    for at, (group, label) in enumerate(zip(groups, labels, strict=True)):
        pool: dict[str, Json] = {"name": label}
        if group.role:
            pool["role"] = group.role
        pool["instances"] = group.copies * _whole(clusters[at].get("instances", 1))
        if any(cluster.get("tensor_parallel", 1) != 1 for cluster in clusters):
            pool["tensor_parallel"] = clusters[at].get("tensor_parallel", 1)
        pool.update(
            {key: group.body[key] for key in _OF_POOLS[:3] if key in group.body and group.body[key] != body.get(key)}
        )
        own = {key: value for key, value in engines[at].items() if key not in shared}
        if own:
            pool["engine"] = own
        pools.append(pool)
        above = ("cluster", "pools", at)
        for path, origin in group.made.origins.items():
            if origin:
                origins[(*above, *(path[1:] if path[0] == "cluster" else path))] = (label, *origin)
                origins.setdefault(path, (label, *origin))
        if group.body.get("policy") != body.get("policy"):
            text = "its scheduler's settings: all pools have those of " + labels[0]
            given.note(Fate.NOT_CARRIED, (label,), text)
    if shared:
        body["engine"] = shared
    apart = {group.role for group in groups} >= {*ROLES}
    way: dict[str, Json] = {"order": "decode-first"} if groups[0].made.engine == "sglang" else {}
    equal = not any(group.scaler for group in groups) and all(
        set(as_map(pool)) <= {"name", "role", "instances"} for pool in pools
    )
    if apart and equal:
        many = [sum(_whole(as_map(pool)["instances"]) for pool in pools if as_map(pool)["role"] == r) for r in ROLES]
        both: dict[str, Json] = {f"{role}_instances": count for role, count in zip(ROLES, many, strict=True)}
        body["cluster"] = {"instances": sum(many), "disaggregation": {**both, **way}}
    else:
        body["cluster"] = {"pools": pools, **({"disaggregation": way} if apart else {})}
    return body


def _hand_over(group: _Group, *, apart: bool) -> None:
    """Note what a connector between servers means, and a role that nothing answers."""
    if group.role and not apart:
        text = f"the other role is not here: a server that does only {group.role} is simulated as one that does all"
        group.made.given.note(Fate.APPROXIMATED, (), text)
    elif group.made.hands_over and not group.role:
        text = f"`{group.made.hands_over}`: nothing says what the server does of each request: it does all"
        group.made.note(Fate.NOT_CARRIED, "kv-transfer-config", text)
    elif group.made.hands_over:
        text = f"`{group.made.hands_over}`: transfers take the time of `cluster.disaggregation.transfer`"
        group.made.note(Fate.TAKEN, "kv-transfer-config", text)


_NOT_WITH_ROLES: Final = MappingProxyType({"kv_tiers": "enable-hierarchical-cache", "lora": "enable-lora"})
"""Keys of an engine that are not simulated with roles of SGLang's servers, with its arguments."""


def _without_what_roles_lack(group: _Group) -> None:
    """Leave out what is not simulated where SGLang's servers have roles."""
    engine = as_map(group.body.get("engine"))
    for key, name in _NOT_WITH_ROLES.items():
        if engine.pop(key, None) is not None:
            group.made.note(Fate.NOT_CARRIED, name, "it is not simulated with roles: see `cluster.disaggregation`")
    if "engine" in group.body and not engine:
        del group.body["engine"]


_RESERVE: Final = "num_reserved_decode_tokens"


def _share_reserve(groups: Sequence[_Group]) -> None:
    """Give all groups what those that decode reserve for each answer: it is a setting of the scheduler of all."""
    rules = [as_map(as_map(group.body["policy"])["batching"]) for group in groups]
    said = [rule.pop(_RESERVE, None) for rule in rules]
    decoding = (tokens for tokens, group in zip(said, groups, strict=True) if group.role == "decode")
    if (tokens := next(decoding, None)) is not None:
        for rule in rules:
            rule[_RESERVE] = tokens


def _with_vllm_scheduler(group: _Group) -> None:
    """Replace the scheduler by vLLM's, where that of an engine cannot have roles."""
    batching, engine = as_map(as_map(group.body["policy"])["batching"]), as_map(group.body.setdefault("engine", {}))
    chunk = batching.get("chunked_prefill_size")
    if isinstance(chunk, int):
        engine.setdefault("max_num_batched_tokens", chunk)
    engine.pop("kv_tiers", None)
    group.body["policy"] = {"batching": {"kind": "vllm-v1"}}
    if as_map(group.body.get("latency")).pop("engine", None) is not None and len(as_map(group.body["latency"])) == 1:
        del group.body["latency"]
    if not engine:
        del group.body["engine"]
    title = TITLES[group.made.engine]
    text = f"with roles, {title}'s scheduler is not simulated: vLLM's has its limits, the rest of its settings is lost"
    group.made.given.note(Fate.NOT_CARRIED, (), text)


_PREFIX_CACHE: Final = "enable-prefix-caching"


def _prefix_cache(group: _Group) -> None:
    """Leave out a prefix cache that is asked for where layers have a state: no copies of states are simulated."""
    engine = as_map(group.body.get("engine"))
    if engine.get("enable_prefix_caching") is not True or group.made.given.problems:
        return
    others = {key: value for key, value in engine.items() if key != "enable_prefix_caching"}
    pool = _pool_of({**group.body, "engine": others})
    if pool is None or pool.model.linear is None:
        return
    group.body.pop("engine")
    if others:
        group.body["engine"] = others
    path = (_PREFIX_CACHE,)
    notes = group.made.given.notes
    notes[:] = [note for note in notes if note.path != path]  # it was taken
    text = "prefix caches with copies of states are not simulated: every prompt is computed whole"
    group.made.note(Fate.NOT_CARRIED, _PREFIX_CACHE, text)


def _pool_of(body: Mapping[str, Json]) -> Pool | None:
    """Return the server that a document describes; None if it has problems, which are said of the whole later."""
    head: dict[str, Json] = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "size"}}
    try:
        (pool,) = load("-", stdin_text=yaml_text({**head, **body, "workload": "chatbot"})).pools
    except SpecError:
        return None
    return pool


def _host_cache(group: _Group) -> None:
    """Make a tier of host memory for KV blocks; its size in blocks is that of the model's."""
    if group.made.host_cache is None or group.made.given.problems:
        return
    name, size, blocks = group.made.host_cache
    if as_map(group.body.get("engine")).get("enable_prefix_caching") is False:
        text = "prefix caching is off, and here nothing is kept in host memory then: prompts are computed whole"
        group.made.note(Fate.NOT_CARRIED, name, text)
        return
    if not size and not blocks:
        size = _LMCACHE_BYTES
        group.made.note(Fate.APPROXIMATED, name, "the size of its host memory is not said: 5 GiB, LMCache's default")
    pool = _pool_of(group.body)
    if pool is None:
        return
    tokens = kv_bytes_per_token(pool.model, pool.tensor_parallel) * pool.tensor_parallel
    per_us = pool.hardware.host_link_gb_per_s * 1e3 * pool.tensor_parallel / tokens
    blocks = blocks or int(size / (tokens * pool.engine.block_size_tokens))
    tier: Json = {"name": "cpu", "blocks": blocks, "bandwidth_tokens_per_us": round(per_us, 4)}
    group.made.set("engine.kv_tiers", {"kind": "offload", "tiers": [tier]}, (name,))


def _at_its_argument(problem: Diagnostic, draft: Draft) -> Diagnostic:
    """Return a problem of the experiment at the argument that it comes from."""
    path = tuple(int(step) if step.isdigit() else step for step in problem.path.split("."))
    for length in range(len(path), 0, -1):
        if origin := draft.origins.get(path[:length]):
            place = draft.source.document.place(origin, key=True)
            return located(problem.code, f"{origin[-1]}: {problem.message}", place, hint=problem.help)
    if problem.file != _UNSEEN:
        return problem
    text = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return located(problem.code, text, draft.source.document.place(()), hint=problem.help)
