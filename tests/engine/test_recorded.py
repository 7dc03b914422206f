"""One instance under every rule and option, and what a step takes on many servers, as recorded."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.records import RECORD_KINDS, Observers
from blis_tui.results.request_log import RequestLog
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from tests.builders import request
from tests.oracle.draws import Draw, at_random
from tests.oracle.runs import source_of
from tests.oracle.strategies import Scenario, draw_overload, draw_scenario, draw_tensorrt_llm, draw_two_phases
from tests.oracle.test_sglang import draw_world, engine
from tests.recorded import Digests, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

_SCENARIOS: Final[dict[str, Callable[[Draw], Scenario]]] = {
    "plain": draw_scenario,
    "starved": partial(draw_scenario, starved=True),
    "drafts": partial(draw_scenario, drafts=True),
    "adapters": partial(draw_scenario, adapters=True),
    "media": partial(draw_scenario, media=True),
    "other-rules": partial(draw_scenario, running_first=False),
    "two-phases": draw_two_phases,
    "tensorrt-llm": draw_tensorrt_llm,
    "overload": draw_overload,
}
_EACH: Final = 100
_LOADS: Final = (
    StepLoad(),
    StepLoad([], 1, 900),
    StepLoad([], 37, 37 * 1100),
    StepLoad([], 300, 300 * 4000),
    StepLoad([Chunk(request(0, 0, 700, 5), 0, 700, 700)], 0, 0),
    StepLoad([Chunk(request(1, 0, 9000, 5), 4096, 2048, 6144), Chunk(request(2, 0, 40, 5), 0, 40, 40)], 12, 30_000),
)
_SERVERS: Final = {
    "model": (
        "llama-3.1-8b-instruct",
        "qwen3-30b-a3b",
        "deepseek-v3",
        "gpt-oss-120b",
        "mixtral-8x7b-v0.1",
        "qwen3-14b",
    ),
    "hardware": ("h100", "a100-80", "l40s", "b200", "mi300x", "rtx-4090", "h200"),
    "cluster.tensor_parallel": (1, 2, 4, 8),
    "latency": ("auto", "fitted", "operators", "roofline", "trained-physics", "blackbox"),
    "policy.batching": ("vllm-v1", "sglang", "blis", "nano", "tensorrt-llm"),
}


def _run(digests: Digests, scenario: Scenario, *, watch: bool) -> None:
    """Run, seen by nobody (so that decodes may be put off) or watched."""
    records: list[Record] = []
    observers = Observers()
    observers.add_all(RECORD_KINDS.values() if watch else (), records.append)
    log = RequestLog()
    cluster = Cluster(scenario.experiment, source_of(scenario.requests(), 0), log, observers)
    try:
        cluster.run(100_000)
    except StalledError as error:
        digests.add("stalled", str(error))
    for record in records:
        digests.add(record.kind, record)
    digests.add("requests", *map(tuple, sorted(log.table(cluster).plain())))
    for instance in cluster.instances:
        digests.add("tallies", instance.tallies.state())
        digests.add(
            "pools", (instance.pool.hits, instance.pool.misses, instance.pool.free, instance.batch.recomputed_tokens())
        )


@pytest.mark.parametrize("name", _SCENARIOS)
def test_random_runs(name: str, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for seed in range(_EACH):
        for watch in (True, False):
            _run(digests, _SCENARIOS[name](at_random(Random(seed))), watch=watch)  # noqa: S311  (no secret)
    digests.check(file_regression)


def test_random_runs_of_sglang(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for seed in range(2 * _EACH):
        try:
            found = engine(draw_world(at_random(Random(seed))))  # noqa: S311  (no secret)
        except StalledError as error:
            digests.add("stalled", str(error))
            continue
        for record in found.records:
            digests.add(record.kind, record)
    digests.check(file_regression)


def _server(random: Random) -> Experiment:
    return load("quickstart", overrides={path: random.choice(values) for path, values in _SERVERS.items()})


def _times(experiment: Experiment) -> list[int]:
    model = create_latency(builtin(), experiment.pools[0])
    return [model.step_time_us(load) for load in _LOADS]


def test_memory_and_step_times_of_many_servers(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    random = Random(1)  # noqa: S311  (no secret)
    for _ in range(3 * _EACH):
        found = outcome(_server, random)
        if isinstance(found, str):
            digests.add("refused", found)
            continue
        (pool,) = found.pools
        digests.add(f"engine of {found.policy.batching.kind}", pool.engine)
        digests.add(f"step times {pool.latency.kind}", outcome(_times, found))
    digests.check(file_regression)
