"""Imports an inference-perf configuration as a Workload, alone or in a run file of llm-d-benchmark.

Such a file (https://github.com/llm-d/llm-d-benchmark) has configurations by name under ``workload``, beside the
endpoint, the ``harness`` (inference-perf here) and where results go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.source import as_list, as_map
from blis_tui.base.units import plural
from blis_tui.model.defaults import CHAT
from blis_tui.spec.foreign.reading import Draft, Fate, Input, as_name, clamped_normal

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported, Section

_UNRELATED: Final = ("metrics", "report", "storage", "tokenizer", "circuit_breakers", "logLevel", "goodput")
_OF_THE_LOADER: Final = (
    *("num_workers", "worker_max_concurrency", "worker_max_tcp_connections"),
    *("request_retries", "request_retry_backoff_sec"),
)
_OF_THE_CONNECTION: Final = ("type", "base_url", "api_key", "cert_path", "key_path")
_LOADS: Final = ("constant", "poisson", "concurrent")
_SYNTHETIC: Final = ("synthetic", "random")
_PAUSE_S: Final = 1.0
"""Default of ``interval``."""
_MOST_GROUPS: Final = 10_000
_MOST_TURNS: Final = 1000
_NAMES: Final = {"num_groups": "num_unique_system_prompts", "num_prompts_per_group": "num_users_per_system_prompt"}
"""Keys of ``shared_prefix``, and their names in older versions."""


def import_inference_perf(path: Path, *, name: str | None = None) -> Imported:
    """Convert a configuration.

    Args:
        path: the YAML file.
        name: name of the document; default: that of the file.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not such a configuration, or its load has no counterpart.
    """
    given = Input.read(path)
    root = _configuration(given)
    load = root.section("load")
    data = root.section("data")
    for key, part in (("load", load), ("data", data)):
        if part is None:
            given.problem(root.path, f"this lacks the key `{key}`", code="BLIS1002", key=True)
    given.stop_at_problems()
    assert load is not None  # noqa: S101  (otherwise a problem was raised)
    assert data is not None  # noqa: S101
    server = root.section("server")
    if server is not None:
        _server(server)
    chat = CHAT in (root.get("api"), as_map(root.get("api")).get("type"))
    for key in _UNRELATED if chat else ("api", *_UNRELATED):
        root.note(Fate.NO_EFFECT, key, "it is about measuring, not about the requests")
    root.finish()
    kinds = _kinds(data)
    body, arrivals = _load(load, clients=max(1, len(kinds)))
    if any("session" in kind for kind in kinds):
        body, arrivals = _conversations(load, body, arrivals, kinds)
    timeout = load.number("request_timeout")
    common: dict[str, Json] = {"timeout_us": int(timeout * 1e6)} if timeout else {}
    load.finish()
    clients: list[Json] = [
        {"id": f"group-{at}", "arrivals": arrivals, **kind, **common} for at, kind in enumerate(kinds)
    ]
    return Draft(
        source=given,
        kind="Workload",
        name=as_name(path.stem) if name is None else name,
        description=f"Imported from the inference-perf configuration {path.name}.",
        body={**body, **({"endpoint": CHAT} if chat else {}), "clients": clients},
        origins={("clients",): data.path, ("stages",): (*load.path, "stages")},
    ).finish()


def _configuration(given: Input) -> Section:
    """Return the configuration: the document, or the one in a run file of llm-d-benchmark."""
    root = given.root()
    if root.given("load") or (named := root.section("workload")) is None:
        return root
    harness = root.section("harness")
    tool = "" if harness is None else harness.text("name")
    if tool not in ("", "inference-perf"):
        given.problem(("harness", "name"), f"the load is that of `{tool}`", hint="inference-perf's can be imported")
    if len(named.data) != 1:
        message = f"`workload` has {plural(len(named.data), 'configuration')}, one can be imported"
        given.problem(("workload",), message, key=True, hint="keep one of them")
    given.stop_at_problems()
    if harness is not None and harness.whole("parallelism", low=1) > 1:
        text = f"each of {harness.get('parallelism')} senders sends this load: multiply its rates"
        harness.source.note(Fate.NOT_CARRIED, ("harness", "parallelism"), text)
    for key in root.data:
        if key not in ("workload", "harness"):
            root.note(Fate.NO_EFFECT, key, "it is about the run, not about the requests")
    section = named.section(next(iter(named.data)))
    given.stop_at_problems()
    assert section is not None  # noqa: S101  (otherwise a problem was raised)
    return section


def _server(server: Section) -> None:
    server.note(Fate.ELSEWHERE, "model_name", "the experiment names the model")
    for key in _OF_THE_CONNECTION:
        server.note(Fate.NO_EFFECT, key, "it is about the connection")
    if server.get("ignore_eos") is False:
        text = "answers have the given lengths here; the model may end them earlier"
        server.source.note(Fate.APPROXIMATED, (*server.path, "ignore_eos"), text)
    server.finish()


def _load(load: Section, *, clients: int) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the rates, and each client's arrivals."""
    kind = load.choice("type", _LOADS, otherwise="constant")
    for key in _OF_THE_LOADER:
        load.note(Fate.NO_EFFECT, key, "it is about the machine that sends the load")
    load.note(Fate.ELSEWHERE, "base_seed", "write it as `seed` into the experiment")
    load.lose(
        "lora_traffic_split",
        "write `adapters` of the clients, with `names` and `weights`",
    )
    if load.given("sweep"):
        load.source.problem((*load.path, "sweep"), "a sweep makes its stages while it measures", key=True,
                            hint="write the stages that it made under `stages`")  # fmt: skip
        return {}, {}
    stages = load.sections("stages")
    if not stages:
        load.source.problem(load.path, "the load has no `stages`", code="BLIS1002", key=True)
        return {}, {}
    if kind == "concurrent":
        return _users(load, stages, clients=clients)
    _tell_pause(load, stages)
    parts: list[Json] = []
    counts = []
    for stage in stages:
        rate, duration = stage.number("rate", required=True) or 0, stage.number("duration", required=True) or 0
        stage.finish()
        parts.append({"rate_per_s": rate, "duration_s": duration})
        counts.append(rate * duration / clients)
    body: dict[str, Json] = {"stages": parts}
    if kind == "poisson":
        if all(count == int(count) for count in counts):
            body["exact_stage_counts"] = True
        else:
            text = f"{clients} groups: how many requests a stage gets is drawn, not exactly rate x duration"
            load.note(Fate.APPROXIMATED, "stages", text)
    return body, {"kind": kind}


def _tell_pause(load: Section, stages: list[Section]) -> None:
    """Note what lies between stages: inference-perf lets all answers end, and waits."""
    pause = load.number("interval")
    if len(stages) > 1:
        key = "stages" if pause is None else "interval"
        text = f"stages follow one another at once, without {_PAUSE_S if pause is None else pause:g} s and the time"
        load.note(Fate.APPROXIMATED, key, f"{text} that the last answers take between them")
    else:
        load.note(Fate.NO_EFFECT, "interval", "there is only one stage")


def _conversations(
    load: Section, body: dict[str, Json], arrivals: dict[str, Json], kinds: list[dict[str, Json]]
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Convert users who each hold one conversation as long as the load lasts, at the given total rate."""
    of_each = [int(str(kind.pop("users"))) for kind in kinds]
    users = sum(of_each)
    stages = [as_map(stage) for stage in as_list(body.get("stages"))]
    if arrivals.get("kind") == "closed-loop":
        for kind in kinds:
            kind["session"] = {"turns": _MOST_TURNS}
        text = f"each user's conversations have {_MOST_TURNS} turns"
        load.note(Fate.APPROXIMATED, "stages", text)
        return body, arrivals
    if len(stages) != 1:
        for kind, prompts in zip(kinds, of_each, strict=True):
            del kind["session"]
            kind["repeated_prompts"] = prompts
        at = ("data", "shared_prefix", "enable_multi_turn_chat")
        text = "each request stands for itself: of loads with one stage, conversations are carried over"
        load.source.note(Fate.NOT_CARRIED, at, text)
        return body, arrivals
    rate, duration = (float(str(stages[0][key])) for key in ("rate_per_s", "duration_s"))
    turns = max(1, -int(-(rate * duration) // users))
    think_ms = max(1, int(1000 * users / rate + 0.5)) if rate > 0 else 1
    for kind in kinds:
        thought: dict[str, Json] = {"think_time_ms": think_ms} if turns > 1 else {}
        kind["session"] = {"turns": min(turns, _MOST_TURNS), **thought, "pacing": "clock"}
    text = f"{users} conversations of {turns} turns begin within {think_ms} ms; then each sends every {think_ms} ms"
    load.note(Fate.APPROXIMATED, "stages", text)
    return {"sessions": users, "rate_per_s": rate}, {"kind": "constant"}


def _users(load: Section, stages: list[Section], *, clients: int) -> tuple[dict[str, Json], dict[str, Json]]:
    """Convert users who wait for their answers."""
    if len(stages) > 1:
        text = "only one stage of concurrent users can be imported; write one workload for each"
        load.source.problem((*load.path, "stages"), text, key=True)
        return {}, {}
    (stage,) = stages
    users, requests = stage.whole("concurrency_level", low=1), stage.whole("num_requests", low=1)
    stage.finish()
    if users % clients:
        text = f"{users} users of {clients} groups became {clients * -(-users // clients)}: as many for each group"
        stage.note(Fate.APPROXIMATED, "concurrency_level", text)
    body: dict[str, Json] = {"requests": requests} if requests else {}
    return body, {"kind": "closed-loop", "users": max(1, -(-users // clients))}


def _kinds(data: Section) -> list[dict[str, Json]]:
    """Return the requests of each client."""
    kind = data.text("type")
    data.note(Fate.NO_EFFECT, "path", "the data are generated")
    data.lose("multimodal", "images, audio and video are not simulated")
    shared = data.section("shared_prefix")
    inputs, outputs = data.section("input_distribution"), data.section("output_distribution")
    data.finish()
    if kind == "shared_prefix" and shared is not None:
        return _shared_prefix(shared)
    if kind in _SYNTHETIC and inputs is not None and outputs is not None:
        return [{"input_tokens": _distribution(inputs), "output_tokens": _distribution(outputs)}]
    wanted = "`shared_prefix` or `synthetic` with `input_distribution` and `output_distribution`"
    data.source.problem((*data.path, "type"), f"the lengths of `{kind[:40]}` data are not in this file",
                        hint=f"what can be imported is {wanted}")  # fmt: skip
    return []


def _distribution(section: Section) -> dict[str, Json]:
    """Convert lengths, which are normal within bounds."""
    kind = section.choice("type", ("normal", "uniform", "fixed"), otherwise="normal")
    low, high = section.whole("min", low=0), section.whole("max", low=1)
    mean, std_dev = section.number("mean"), section.number("std_dev")
    section.note(Fate.NO_EFFECT, "total_count", "as many are drawn as there are requests")
    section.finish()
    center = (low + high) / 2 if mean is None else mean
    high = high or int(center)
    if kind == "uniform" and low < high:
        return {"kind": "uniform", "min": max(1, low), "max": high}
    return clamped_normal(center, 0.0 if kind == "fixed" or std_dev is None else std_dev, low, high)


def _shared_prefix(shared: Section) -> list[dict[str, Json]]:
    """Return a client for each system prompt; its questions repeat."""

    def count(key: str) -> int:
        return shared.whole(key) or shared.whole(_NAMES[key])

    groups, prompts = count("num_groups"), count("num_prompts_per_group")
    prefix = shared.whole("system_prompt_len")
    lengths: list[Json] = []
    for key in ("question", "output"):
        own, constant = shared.section(f"{key}_distribution"), shared.whole(f"{key}_len")
        lengths.append(_distribution(own) if own is not None else {"kind": "constant", "value": max(1, constant)})
    multi_turn = bool(shared.get("enable_multi_turn_chat"))
    shared.note(Fate.NO_EFFECT, "max_model_len", "it bounds conversations only")
    shared.note(Fate.NO_EFFECT, "seed", "texts have no content here")
    shared.lose("multimodal", "images, audio and video are not simulated")
    shared.finish()
    if not 0 < groups <= _MOST_GROUPS or prompts < 1:
        text = f"there must be 1 to {_MOST_GROUPS} groups and at least 1 prompt in each"
        shared.source.problem(shared.path, text, code="BLIS1005", key=True)
        return []
    question, output = lengths
    return [
        {
            "input_tokens": question,
            "output_tokens": output,
            # Each user has one conversation that lasts as long as the load.
            **({"session": {"turns": 1}, "users": prompts} if multi_turn else {"repeated_prompts": prompts}),
            **({"prefix": {"group": f"group-{group}", "tokens": prefix}} if prefix else {}),
        }
        for group in range(groups)
    ]
