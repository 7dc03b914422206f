"""``sglang``: engine and oracle form the same batches in random runs, and the oracle those that SGLang formed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import given

from blis_tui.base.errors import StalledError
from blis_tui.engine.records import StepFinished
from tests.builders import Outcome, experiment
from tests.builders import request as made_request
from tests.parity.test_sglang import PRIORITIES, RUNS, TIMEOUTS, read

from . import draws as st
from .draws import Draw, at_random, drawn
from .runs import event, examples
from .sglang import STEP_US, Job, Scheduler, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .sglang import Batch

_LEAST_URGENT: Final = 20
_UNKNOWN: Final = {
    *("max_loras_per_batch", "hicache_ratio", "scheduler_recv_interval"),
    *("cut", "ignoring", "disable_priority_preemption"),
}
"""What the oracle does not know of the recorded runs."""


class Asked(NamedTuple):
    """A request."""

    arrival_us: int
    own_tokens: int
    stop: int
    declared: int
    group: str
    shared_tokens: int
    ignore_eos: bool
    priority: int
    deadline_us: int = 0

    def job(self, name: str) -> Job:
        shared = [(self.group, at) for at in range(self.shared_tokens if self.group else 0)]
        own = [(f"prompt of {name}", at) for at in range(self.own_tokens)]
        stop = self.declared if self.ignore_eos else self.stop
        prompt = [*shared, *own]
        job = Job(name, self.arrival_us, prompt, stop, self.declared, self.ignore_eos, self.priority)
        job.deadline_us = self.deadline_us
        return job


class World(NamedTuple):
    """An instance and its requests."""

    settings: Settings
    asked: list[Asked]


def draw_world(draw: Draw) -> World:
    total = draw(st.sampled_from([24, 40, 64, 100]))
    chunk = draw(st.sampled_from([None, 1, 5, 8, 16, 64]))
    caching = draw(st.booleans())
    settings = Settings(
        total=total,
        max_running_requests=draw(st.integers(1, 5)),
        chunked_prefill_size=chunk,
        max_prefill_tokens=draw(st.sampled_from([8, 32, 1000])),
        schedule_conservativeness=draw(st.sampled_from([0.02, 0.1, 0.3, 1.0])),
        enable_mixed_chunk=chunk is not None and draw(st.booleans()),
        overlap=draw(st.booleans()),
        caching=caching,
        schedule_policy=draw(st.sampled_from(["fcfs", "lof"])),
        priorities=draw(st.sampled_from([0, 1, -1])),
        threshold=draw(st.sampled_from([0, 1, 10])),
    )
    asked = []
    for _ in range(draw(st.integers(1, 9))):
        group = draw(st.sampled_from(["", "a", "b"]))
        shared = draw(st.integers(1, total // 4))
        own = draw(st.integers(1, total // 4))
        most = total - own - (shared if group else 0) - 2 - (not caching)
        stop = draw(st.integers(1, min(most, 30)))
        declared = min(most, stop + draw(st.sampled_from([0, 0, 3, 20])))
        ignores = caching and draw(st.booleans())  # without a cache SGLang has another test for these
        arrival_us = draw(st.integers(0, 12)) * draw(st.sampled_from([0, 700, STEP_US]))
        urgency = draw(st.sampled_from([0, 1, 2, 11, _LEAST_URGENT]))
        deadline_us = arrival_us + draw(st.integers(1, 40)) * 999 if draw(st.sampled_from([False, False, True])) else 0
        asked.append(Asked(arrival_us, own, stop, declared, group, shared, ignores, urgency, deadline_us))
    return World(settings, sorted(asked))


def expected(settings: Settings, jobs: Sequence[Job]) -> list[Batch] | None:
    """The oracle's batches; None if SGLang would run out of memory."""
    try:
        return Scheduler(settings, jobs).run()
    except MemoryError:
        return None


def engine(world: World) -> Outcome:
    settings = world.settings
    made = experiment(
        batching="sglang",
        settings={
            "chunked_prefill_size": settings.chunked_prefill_size or "none",
            "max_prefill_tokens": settings.max_prefill_tokens,
            "schedule_conservativeness": settings.schedule_conservativeness,
            "enable_mixed_chunk": settings.enable_mixed_chunk,
            "overlap_schedule": settings.overlap,
            "enable_priority_scheduling": settings.priorities != 0,
            "schedule_low_priority_values_first": settings.priorities > 0,
            "priority_scheduling_preemption_threshold": settings.threshold,
        },
        scheduling=settings.schedule_policy,
        max_num_seqs=settings.max_running_requests,
        block_size=1,
        blocks=settings.total,
        caching=settings.caching,
        beta=(float(STEP_US), 0.0, 0.0),
    )
    requests = []
    for number, one in enumerate(world.asked):
        shared = one.shared_tokens if one.group else 0
        segments = ((one.group, shared),) if one.group else ()
        stop = one.declared if one.ignore_eos else one.stop
        request = made_request(number, one.arrival_us, one.own_tokens + shared, stop, segments=segments)
        request.max_output_tokens, request.ignore_eos, request.priority = one.declared, one.ignore_eos, one.priority
        request.deadline_us = one.deadline_us
        requests.append(request)
    return Outcome(made, requests)


def check(world: World) -> None:
    batches = expected(world.settings, [one.job(str(number)) for number, one in enumerate(world.asked)])
    if batches is None:
        event("out of memory")
        with pytest.raises(StalledError, match="SGLang runs out of memory"):
            engine(world)
        return
    ours = [
        (
            record.time_us,
            [(chunk.request_id, chunk.computed_tokens, chunk.new_tokens) for chunk in record.chunks],
            record.decode_requests,
            list(record.preempted),
            list(record.completed),
        )
        for record in engine(world).records
        if isinstance(record, StepFinished)
    ]
    assert ours == [
        (
            batch.start,
            [(job.name, start, new) for job, start, new in batch.prefills],
            len(batch.decodes),
            batch.preempted,
            batch.completed,
        )
        for batch in batches
    ]


@examples(25)
@given(drawn(draw_world))
def test_they_agree(world: World) -> None:
    check(world)


def test_they_agree_on_worlds_from_seeds() -> None:
    preempted = given_up = 0
    for seed in range(140):
        world = draw_world(at_random(Random(seed)))  # noqa: S311  (no secret)
        check(world)
        jobs = [one.job(str(at)) for at, one in enumerate(world.asked)]
        batches = expected(world.settings, jobs) or []
        preempted += any(batch.preempted for batch in batches)
        given_up += any(job.gone and job.generated for job in jobs)
    assert preempted > 14
    assert given_up > 20, given_up


@pytest.mark.slow
def test_they_agree_at_length() -> None:
    for seed in range(1000, 1200):
        check(draw_world(at_random(Random(seed))))  # noqa: S311  (no secret)


def test_the_oracle_forms_the_batches_of_sglang() -> None:
    compared = given_up = 0
    for run in [*RUNS, *read(PRIORITIES)[:24], *read(TIMEOUTS)]:
        case, deadlines = run["case"], dict(run["case"].get("deadlines", ()))
        if case["schedule_policy"] == "lpm" or (case["ignore_eos"] and case["disable_radix_cache"]):
            continue
        if case["page_size"] > 1 or _UNKNOWN & case.keys() or any(row[5].startswith("@") for row in run["rows"]):
            continue
        compared += 1
        given_up += bool(deadlines)
        jobs = [Asked(*_asked(row, ignore_eos=case["ignore_eos"])).job(row[0]) for row in run["rows"]]
        for job in jobs:
            job.deadline_us = deadlines.get(job.name, 0)
        batches = expected(_settings(case), jobs)
        assert batches is not None
        found = [
            {
                "t": batch.start,
                "batch": [job.name for job in batch.jobs],
                "put back": batch.preempted,
                "completed": batch.completed,
            }
            for batch in batches
        ]
        assert found == [
            {
                "t": step["t"],
                "batch": [name for name, _, _ in step["batch"]],
                "put back": [*step.get("preempted", ()), *step["retracted"]],
                "completed": step["completed"],
            }
            for step in run["steps"]
        ], run["seed"]
    assert compared > 35
    assert given_up > 6


def _asked(row: list[Any], *, ignore_eos: bool) -> tuple[Any, ...]:
    _, arrival_us, own, stop, declared, group, shared, *priority = row
    return (arrival_us, own, stop, declared, group, shared, ignore_eos, priority[0] if priority else 0)


def _settings(case: dict[str, Any]) -> Settings:
    return Settings(
        total=case["max_total_tokens"],
        max_running_requests=case["max_running_requests"],
        chunked_prefill_size=case["chunked_prefill_size"] if case["chunked_prefill_size"] > 0 else None,
        max_prefill_tokens=case["max_prefill_tokens"],
        schedule_conservativeness=case["schedule_conservativeness"],
        enable_mixed_chunk=case["enable_mixed_chunk"],
        overlap=case["overlap"],
        caching=not case["disable_radix_cache"],
        schedule_policy=case["schedule_policy"],
        priorities=0 if "low_first" not in case else 1 if case["low_first"] else -1,
        threshold=case.get("threshold", 0),
    )
