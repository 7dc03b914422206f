"""Imports a GuideLLM scenario as a Workload."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from blis_tui.spec.foreign.reading import LARGEST, Draft, Fate, Input, Section, as_name, clamped_normal

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.base.source import Json
    from blis_tui.spec.foreign.reading import Imported

_PROFILES: Final = ("synchronous", "concurrent", "throughput", "constant", "poisson", "async", "sweep")
_UNRELATED: Final = (
    *("target", "backend", "backend_kwargs", "processor", "request_type", "request_format", "output_path", "outputs"),
    *("output_formats", "description", "data_args", "data_sampler", "data_request_formatter", "warmup", "cooldown"),
)
_MOST_PREFIXES: Final = 10_000
_DEFAULT_SPREAD: Final = 5
"""Default bounds of lengths: this many standard deviations from the mean."""


def import_guidellm(path: Path, *, name: str | None = None, rate: float | None = None) -> Imported:
    """Convert a scenario (the input of ``guidellm benchmark run --scenario``).

    Args:
        path: the YAML or JSON file.
        name: name of the document; default: that of the file.
        rate: which of the scenario's rates (or numbers of streams), or another one; default: the only one.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not such a scenario, or its load has no counterpart.
    """
    return from_scenario(Input.read(path), as_name(path.stem) if name is None else name, path.name, rate)


def from_scenario(given: Input, name: str, title: str, rate: float | None) -> Imported:
    """Convert a scenario that has been read; ``title`` says where it comes from.

    Raises:
        SpecError: it is not such a scenario, or its load has no counterpart.
    """
    _underscored(given)
    scenario = given.root()
    scenario = scenario.section("spec") or scenario
    load, limit = _load(scenario, rate)
    kinds = _kinds(scenario)
    for key in _UNRELATED:
        scenario.note(Fate.NO_EFFECT, key, "it is about measuring, not about the requests")
    scenario.note(Fate.ELSEWHERE, "model", "the experiment names the model")
    scenario.note(Fate.ELSEWHERE, "random_seed", "write it as `seed` into the experiment")
    scenario.finish()
    arrivals = load.pop("arrivals", {"kind": "poisson"})
    _as_sessions(scenario, load, kinds)
    clients: list[Json] = [{**kind, "arrivals": arrivals} for kind in kinds]
    body: dict[str, Json] = {**({"requests": limit} if limit else {}), **load, "clients": clients}
    return Draft(
        source=given,
        kind="Workload",
        name=name,
        description=f"Imported from the GuideLLM scenario {title}.",
        body=body,
        origins={("rate_per_s",): (*scenario.path, "rate"), ("clients",): (*scenario.path, "data")},
    ).finish()


def _as_sessions(scenario: Section, load: dict[str, Json], kinds: list[dict[str, Json]]) -> None:
    """Convert request rates of conversations to session rates."""
    session = kinds[0].get("session") if kinds else None
    rate = load.get("rate_per_s")
    turns = session.get("turns") if isinstance(session, dict) else None
    if isinstance(rate, int | float) and isinstance(turns, int):
        load["rate_per_s"] = rate / turns
        text = f"{rate:g} requests a second became {rate / turns:g} conversations of {turns} turns"
        scenario.source.note(Fate.APPROXIMATED, (*scenario.path, "data"), text)


def _underscored(given: Input) -> None:
    """Replace dashes in keys, which some scenarios have, by underscores."""
    data = given.document.data
    if isinstance(data, dict):
        for key in [key for key in data if "-" in key]:
            new = key.replace("-", "_")
            data[new] = copy.deepcopy(data.pop(key))
            for places in (given.document.keys, given.document.values):
                places.update({(new, *path[1:]): place for path, place in places.items() if path[:1] == (key,)})


def _load(scenario: Section, rate: float | None) -> tuple[dict[str, Json], int]:
    """Return rate and arrivals, and the number of requests."""
    profile, rates = _profile(scenario)
    at = (*scenario.path, "profile")
    requests, seconds = scenario.number("max_requests") or 0, _seconds(scenario)
    if profile == "sweep":
        hint = "a sweep finds its rates while it measures: write `profile: constant` (or poisson) and a `rate`"
        scenario.source.problem(at, "the profile `sweep` has no rate of its own", hint=hint)
        return {}, 0
    if rate is not None:
        rates = [rate]
    if len(rates) > 1:
        listed = ", ".join(f"{one:g}" for one in rates)
        scenario.source.problem(
            (*scenario.path, "rate"), f"each of the rates {listed} is a benchmark of its own", hint="choose with --rate"
        )
        return {}, 0
    if profile in {"constant", "async", "poisson"}:
        if not rates:
            scenario.source.problem(at, f"the profile `{profile}` lacks a `rate`", code="BLIS1002")
            return {}, 0
        limit = int(requests) or int(rates[0] * seconds)
        kind = "poisson" if profile == "poisson" else "constant"
        return {"rate_per_s": rates[0], "arrivals": {"kind": kind}}, limit
    if profile == "throughput" and not rates:
        text = "the profile `throughput` sends everything at once"
        scenario.source.problem(at, text, hint="write `profile: concurrent` and as many streams as the server takes")
        return {}, 0
    if seconds and not requests:
        text = f"write `horizon_us: {int(seconds * 1e6)}` into the experiment"
        scenario.note(Fate.ELSEWHERE, "max_seconds", text)
    users = 1 if profile == "synchronous" else int(rates[0]) if rates else 1
    return {"arrivals": {"kind": "closed-loop", "users": max(1, users)}}, int(requests)


def _profile(scenario: Section) -> tuple[str, list[float]]:
    """Return the profile's name and the given rates (or streams)."""
    scenario.get("rate_type")
    inner = scenario.data.get("profile")
    if isinstance(inner, dict):
        part = scenario.section("profile")
        assert part is not None  # noqa: S101  (it is a map)
        kind = part.choice("kind", _PROFILES, otherwise="sweep")
        return kind, _numbers(part, "rate") or _numbers(part, "streams") or _numbers(scenario, "rate")
    key = "profile" if scenario.given("profile") else "rate_type"
    return scenario.choice(key, _PROFILES, otherwise="sweep"), _numbers(scenario, "rate")


def _numbers(section: Section, key: str) -> list[float]:
    """Read one number or a list of them."""
    value = section.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    found = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool) and 0 < one <= LARGEST]
    if len(found) < len(values):
        section.source.problem((*section.path, key), "expected positive numbers", code="BLIS1003")
    return found


def _seconds(scenario: Section) -> float:
    """Read the duration in seconds; 0 = not given."""
    value = scenario.get("max_seconds")
    try:
        seconds = float(value) if isinstance(value, int | float | str) else 0.0
    except (OverflowError, ValueError):
        seconds = -1.0
    if not 0.0 <= seconds <= LARGEST:
        scenario.source.problem((*scenario.path, "max_seconds"), "expected a number of seconds", code="BLIS1003")
        return 0.0
    return seconds


def _kinds(scenario: Section) -> list[dict[str, Json]]:
    """Return one client for each prefix."""
    data = _data(scenario)
    if data is None:
        return []
    if "prompt_tokens" not in data.data:
        text = "the lengths of these data are not in this file"
        data.source.problem(data.path, text, hint="give `prompt_tokens` and `output_tokens`")
        return []
    body: dict[str, Json] = {"input_tokens": _lengths(data, "prompt"), "output_tokens": _lengths(data, "output")}
    data.note(Fate.NO_EFFECT, "source", "texts have no content here")
    data.choice("kind", ("synthetic_text",), otherwise="synthetic_text")
    if (turns := data.whole("turns")) > 1:
        body["session"] = {"turns": turns}
    prefix = data.whole("prefix_tokens")
    count = max(1, data.whole("prefix_count"))
    buckets = data.sections("prefix_buckets")
    data.finish()
    parts = [(1.0, count, prefix)] if prefix else []
    for bucket in buckets:
        weight, number = bucket.number("bucket_weight") or 0, max(1, bucket.whole("prefix_count"))
        parts.append((float(weight), number, bucket.whole("prefix_tokens")))
        bucket.finish()
    if sum(number for _, number, _ in parts) > _MOST_PREFIXES:
        text = f"there are more than {_MOST_PREFIXES:,} prefixes, each of which would be a client"
        data.source.problem(data.path, text, code="BLIS1005", key=True)
        return []
    kinds: list[dict[str, Json]] = []
    for weight, number, tokens in parts:
        for _ in range(number if weight > 0 else 0):
            name = f"prefix-{len(kinds)}"
            shared: dict[str, Json] = {"prefix": {"group": name, "tokens": tokens}} if tokens else {}
            kinds.append({"id": name, "share": weight / number, **body, **shared})
    return kinds or [{"id": "requests", **body}]


def _data(scenario: Section) -> Section | None:
    """Return the description of the data: a map, the only map of a list, or text such as ``prompt_tokens=256,…``."""
    at = (*scenario.path, "data")
    value = scenario.get("data")
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
        scenario.source.document.graft(at, scenario.source.document.branch((*at, 0)))
    if isinstance(value, str) and "=" in value:
        pairs = (part.partition("=") for part in value.split(","))
        parsed: dict[str, Json] = {
            key.strip(): int(number) if number.strip().isdecimal() else number for key, _, number in pairs
        }
        scenario.data["data"] = parsed
        value = parsed
    if not isinstance(value, dict):
        text = "expected `data` as a map, or as text such as `prompt_tokens=256,output_tokens=128`"
        scenario.source.problem(at, text, code="BLIS1003")
        return None
    return Section(scenario.source, at)


def _lengths(data: Section, what: str) -> dict[str, Json]:
    """Convert lengths as GuideLLM draws them: normal within bounds, or uniform if bounds come without a deviation."""
    mean = data.number(f"{what}_tokens", required=True) or 1
    deviation = data.number(f"{what}_tokens_stdev") or 0
    low, high = data.whole(f"{what}_tokens_min"), data.whole(f"{what}_tokens_max")
    if not deviation and low and high and low < high:
        return {"kind": "uniform", "min": low, "max": high}
    low = low or int(mean - _DEFAULT_SPREAD * deviation)
    return clamped_normal(mean, deviation, low, high or int(mean + _DEFAULT_SPREAD * deviation))
