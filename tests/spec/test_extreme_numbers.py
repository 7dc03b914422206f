"""Every number that a document can have is bounded, and extreme ones are accepted and work, or are told."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import SpecError, TraceError
from blis_tui.base.source import as_list, as_map, dotted
from blis_tui.model.keys import LARGEST, LARGEST_SEED, SMALLEST
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.library import names
from blis_tui.spec.load import load, resolve_source
from blis_tui.spec.reader import matches
from blis_tui.spec.schema import KINDS, File, referred, schema
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.schema import Schema

LARGE: Final = ("63", "65536", "1000003", str(10**9), str(10**15), str(2**53 + 1), str(2**63 - 1), str(2**64))
EXTREMES: Final = (
    *("0", "1", "2", "3", "-1", "0.5", "0.999999999", "1e-9", "1e-308", "5e-324", "1e100", "1e308", "1e400"),
    *(".inf", "-.inf", ".nan", "1" + "0" * 400, *LARGE),
)
LONG_RUNS: Final = ("requests", "turns")
"""Keys whose large values only make runs long."""
ANYTHING: Final = {("study", "$defs", "excluded")}
"""What accepts any value of a document, and only compares it."""


def is_number(part: Schema) -> bool:
    types = as_list(part.get("type")) or [part.get("type")]
    return "number" in types or "integer" in types


def numbers_in(node: Json, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """The parts of a schema that accept a number by themselves, with their places."""
    if isinstance(node, dict):
        if is_number(node) and "kind" not in as_map(node.get("properties")):
            yield at, node
        for key, part in node.items():
            yield from numbers_in(part, (*at, key))
    for place, part in enumerate(as_list(node)):
        yield from numbers_in(part, (*at, str(place)))


@pytest.mark.parametrize("name", ["common", *map(str.lower, KINDS)])
def test_every_number_has_bounds_with_which_one_can_calculate(name: str) -> None:
    for at, part in numbers_in(schema(name).get("$defs"), (name, "$defs")):
        if at in ANYTHING:
            continue
        low, high = part.get("minimum"), part.get("maximum")
        assert isinstance(low, int | float), at
        assert isinstance(high, int | float), at
        assert -LARGEST <= low <= high, at
        assert high <= LARGEST or high == LARGEST_SEED, at
        assert low <= 0 or low >= SMALLEST, at


def places_in(data: Json, node: Json, file: File, at: DataPath = ()) -> Iterator[DataPath]:
    """The paths of an experiment where a number can stand, given or left out."""
    part = as_map(node)
    while isinstance(reference := part.get("$ref"), str):
        target, file = referred(reference, file)
        part = as_map(target)
    if is_number(part):
        yield at
    known = as_map(part.get("properties"))
    for key, below in known.items():
        if isinstance(data, dict) and (key in data or is_number(as_map(below))):
            yield from places_in(data.get(key), below, file, (*at, key))
    for key in data if isinstance(data, dict) else ():
        if key not in known:
            yield from places_in(as_map(data)[key], part.get("additionalProperties"), file, (*at, key))
    for place, item in enumerate(as_list(data)):
        yield from places_in(item, part.get("items"), file, (*at, place))
    branches = as_list(part.get("allOf"))
    if "if" in part:
        branches = [*branches, part.get("then" if matches(data, part["if"]) else "else")]
    for branch in branches:
        yield from places_in(data, branch, file, at)


@cache
def places() -> tuple[tuple[str, DataPath], ...]:
    """All that are tried."""
    return tuple(distinct_places())


def distinct_places() -> Iterator[tuple[str, DataPath]]:
    """An experiment and a path for each key of a number that any shipped experiment has or could have."""
    seen: set[DataPath] = set()
    for experiment in names("Experiment", shipped_specs()):
        data = resolve_source(experiment).document.data
        for path in places_in(data, schema("experiment"), File("experiment", None)):
            alike = tuple("*" if isinstance(step, int) else step for step in path)
            if alike not in seen:
                seen.add(alike)
                yield experiment, path


def try_number(experiment: str, path: DataPath, value: str) -> str:
    """The codes of what is told of the number, with its place and a hint; empty = it is accepted, and works."""
    few = [] if experiment == "trace-replay" else ["workload.requests=5"]
    diagnostics: tuple[Diagnostic, ...] = ()
    try:
        simulation = Simulation(load(experiment, overrides=[*few, f"{dotted(path)}={value}"]), check="off")
    except (SpecError, TraceError) as error:
        diagnostics = error.diagnostics
    assert all(diagnostic.help and diagnostic.line for diagnostic in diagnostics), (path, value, diagnostics)
    assert len(diagnostics) <= 1 or all(diagnostic.code >= "BLIS2" for diagnostic in diagnostics), (
        path,
        value,
        diagnostics,
    )
    if diagnostics:
        return " ".join(diagnostic.code for diagnostic in diagnostics)
    if value not in LARGE or not any(str(step) in LONG_RUNS for step in path):
        simulation.run(max_events=300)
        assert "NaN" not in simulation.report().to_json()
    return ""


def test_there_are_enough_places() -> None:
    assert len(places()) > 250


def test_each_number_replaced_by_an_extreme_one() -> None:
    """One of the extremes each, in turn; each night, they all are."""
    random = Random(1)  # noqa: S311  (the same sequence every time)
    codes = [try_number(experiment, path, random.choice(EXTREMES)) for experiment, path in places()]
    assert 0.4 < sum(map(bool, codes)) / len(codes) < 0.9


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("value", EXTREMES, ids=lambda value: value[:20])
def test_each_number_replaced_by_each_extreme_one(value: str) -> None:
    """In every third place, so that three values next to each other are tried in all."""
    for experiment, path in places()[EXTREMES.index(value) % 3 :: 3]:
        try_number(experiment, path, value)


@pytest.mark.parametrize(
    ("experiment", "assignments", "code"),
    [
        ("service-classes", ("model.config.hidden_size=1",), "BLIS2018"),
        ("service-classes", ("model.config.hidden_size=5",), "BLIS2018"),
        ("service-classes", ("model.config.num_attention_heads=1000000",), "BLIS2018"),
        ("kv-tiers", ("model.config.num_attention_heads=65536",), "BLIS2018"),
        ("admission-control", ("model.config.hidden_size=65536",), "BLIS2005"),
        ("admission-control", ("model.config.hidden_size=65536", "latency=operators"), "BLIS2011"),
        ("admission-control", ("model.config.num_local_experts=2",), "BLIS2018"),
        ("admission-control", ("model.config.kv_lora_rank=1",), ""),
        ("kv-overload", ("hardware.peak_tflops.bf16=1e-308",), "BLIS1005"),
        ("kv-overload", ("hardware.peak_tflops.bf16=1e-9",), ""),
        ("pipeline-bubble", ("policy.batching.log_interval=1e308",), "BLIS1005"),
        ("pipeline-bubble", ("policy.batching.log_interval=1e9",), ""),
        ("photos", ("workload.clients.0.multimodal.images.count=1000003",), "BLIS2071"),
        ("quickstart", ("workload.clients.0.share=5e-324",), "BLIS1005"),
        ("quickstart", ("workload.rate_per_s=1e-308",), "BLIS1005"),
        ("quickstart", ("engine.kv_blocks=0.5",), "BLIS1003"),
        ("quickstart", ("seed=1" + "0" * 400,), "BLIS0015"),
        ("quickstart", ("cluster.instances=.nan",), "BLIS0004"),
    ],
)
def test_numbers_that_ended_in_tracebacks_or_at_the_end_of_time(
    experiment: str, assignments: tuple[str, ...], code: str
) -> None:
    few = ["workload.requests=5"]
    if not code:
        simulation = Simulation(load(experiment, overrides=[*few, *assignments]))
        simulation.run(max_events=300)
        assert "NaN" not in simulation.report().to_json()
        return
    with pytest.raises(SpecError) as caught:
        load(experiment, overrides=[*few, *assignments])
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {code}
    assert all(diagnostic.help and diagnostic.line for diagnostic in caught.value.diagnostics)
