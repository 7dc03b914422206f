"""What the encoder of media takes: in which steps, and how much."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.engine.latency.model import Chunk
from blis_tui.engine.latency.wrappers import encoded_tokens
from blis_tui.engine.options.encoder import items_of
from blis_tui.engine.records import Dropped, MediaEncoded, MediaHeld, Record, StepFinished
from blis_tui.engine.request import Media, MediaItem, Request
from blis_tui.engine.stopped import SchedulingStopped
from blis_tui.model import Encoder
from tests.builders import Outcome, experiment
from tests.builders import request as made_by_hand

AnyRecord = TypeVar("AnyRecord", bound=Record)
CAMERA = {
    "id": "camera",
    "input_tokens": {"kind": "uniform", "min": 20, "max": 60},
    "output_tokens": 4,
    "multimodal": {"images": {"probability": 0.5, "tokens": 400}},
}


def request(tokens: int, media: int, head: int) -> Request:
    made = Request(0, "r", 0, tokens, 1, (("head", head),) if head else ())
    made.media = Media(image_tokens=media)
    return made


def in_chunks(made: Request, *edges: int, found: int = 0) -> list[int]:
    spans = pairwise(edges)
    return [
        encoded_tokens(Chunk(made, start, end - start, made.input_tokens, found if start == edges[0] else 0))
        for start, end in spans
    ]


def test_an_item_is_encoded_whole_with_the_first_of_its_tokens() -> None:
    assert in_chunks(request(100, 40, 0), 0, 100) == [40]
    assert in_chunks(request(100, 40, 0), 0, 20, 40, 100) == [40, 0, 0]
    # Behind the head, before the text.
    assert in_chunks(request(100, 40, 20), 0, 20, 60, 100, 120) == [0, 40, 0, 0]
    # All may be shared: it is at the beginning. What the prefix cache has of it does not help.
    assert in_chunks(request(100, 40, 100), 0, 50, 100) == [40, 0]
    assert in_chunks(request(100, 40, 0), 30, 60, 100, found=30) == [40, 0]
    assert in_chunks(request(100, 40, 0), 40, 100, found=40) == [0]
    assert in_chunks(request(100, 0, 0), 0, 100) == [0]


def test_items_that_take_the_same_part_of_the_same_segment_are_the_same() -> None:
    alone, *alike = (request(100, 40, head) for head in (0, 100, 100))
    shorter = request(100, 30, 100)
    media_item, other = (items_of(each)[0] for each in alike)
    assert media_item == other == MediaItem(0, 40, media_item.content)
    assert len({media_item.content, items_of(alone)[0].content, items_of(shorter)[0].content}) == 3


def test_steps_take_so_much_longer_as_the_media_they_compute() -> None:
    """One request at a time, so that nothing but the steps of prompts differs."""
    workload = {"requests": 12, "rate_per_s": 1, "clients": [CAMERA]}
    durations = []
    for engine in ({}, {"encoder": {"token_us": 2.5}}):
        simulation = blis_tui.Simulation(
            blis_tui.load("quickstart", set={"workload": workload, "engine": engine, "expect": []})
        )
        steps: dict[str, int] = {}

        def note(step: StepFinished, steps: dict[str, int] = steps) -> None:
            steps.update(dict.fromkeys(step.first_tokens, step.duration_us))

        simulation.subscribe(StepFinished, note)
        simulation.run()
        rows = {row.request_id: row for row in simulation.report().rows}
        durations.append(steps)
    plain, slower = durations
    assert len(plain) == 12
    assert {slower[name] - plain[name] for name, row in rows.items() if row.image_tokens} == {1000}
    assert {slower[name] - plain[name] for name, row in rows.items() if not row.image_tokens} == {0}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"token_us": 0},
        {"token_us": -1},
        {"token_us": "x"},
        {"token_us": 1, "cache": 2},
        {"token_us": 1, "encoder_cache_size": 0},
    ],
)
def test_what_an_encoder_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        blis_tui.load("quickstart", set={"engine.encoder": wrong})


def run_by_hand(version: str, **keys: int) -> Outcome:
    """Three prompts at once, each an image of 8 tokens and 4 of text; the third's image is the first one's."""
    made = experiment(batching="vllm-v1", settings={"version": version})
    (pool,) = made.pools
    encoder = Encoder(
        token_us=2.0,
        max_num_encoder_input_tokens=keys.get("budget", 10),
        encoder_cache_size=keys.get("cache", 10),
        max_tokens_per_mm_item=0,
        disable_chunked_mm_input=False,
    )
    made = replace(made, pools=(replace(pool, engine=replace(pool.engine, encoder=encoder)),))
    requests = [made_by_hand(number, 0, 12, 1) for number in range(3)]
    for one, content in zip(requests, "aba", strict=True):
        one.media = Media(image_tokens=8)
        one.media_items = (MediaItem(0, 8, content),)
    return Outcome(made, requests)


def encoder_of(outcome: Outcome) -> tuple[int, ...]:
    (instance,) = outcome.cluster.instances
    assert instance.batch.encoder is not None
    return instance.batch.encoder.books()[:4]


def records_of(outcome: Outcome, kind: type[AnyRecord]) -> list[AnyRecord]:
    return [record for record in outcome.records if isinstance(record, kind)]


def test_a_budget_and_a_cache_for_one_image() -> None:
    """In 0.32 the second prompt holds up the third, whose image has gone from the cache when it is its turn."""
    outcome = run_by_hand("0.32")
    steps = [record for record in outcome.records if isinstance(record, StepFinished)]
    assert [step.admitted for step in steps] == [("0",), ("1",), ("2",)]
    assert {step.duration_us for step in steps} == {100 + 12 + 2 * 8}
    assert encoder_of(outcome) == (24, 0, 2, 2)
    first, second = records_of(outcome, MediaHeld)
    assert first == MediaHeld(first.event, first.time_us, "1", 0, "budget", 8, 2)
    assert second == MediaHeld(second.event, second.time_us, "2", 0, "budget", 8, 2)
    stops = records_of(outcome, SchedulingStopped)
    assert [(stop.cause, stop.request_id, stop.need, stop.had) for stop in stops] == [
        ("encoder", "1", 8, 2),
        ("encoder", "2", 8, 2),
    ]


def test_who_waits_for_the_encoder_is_passed_over_in_the_next_version() -> None:
    outcome = run_by_hand("0.33")
    steps = [record for record in outcome.records if isinstance(record, StepFinished)]
    assert [step.admitted for step in steps] == [("0", "2"), ("1",)]
    assert [step.duration_us for step in steps] == [100 + 24 + 2 * 8, 100 + 12 + 2 * 8]
    assert encoder_of(outcome) == (16, 8, 1, 1)
    found = {one.request_id: (one.encoded_tokens, one.cached_tokens) for one in records_of(outcome, MediaEncoded)}
    assert found == {"0": (8, 0), "2": (0, 8), "1": (8, 0)}


def test_the_cache_holds_up_what_the_budget_does_not() -> None:
    outcome = run_by_hand("0.32", budget=100)
    assert encoder_of(outcome) == (24, 0, 2, 2)
    assert {one.reason for one in records_of(outcome, MediaHeld)} == {"cache"}
    assert encoder_of(run_by_hand("0.32", budget=100, cache=16)) == (16, 8, 0, 0)


def test_media_that_never_fit_are_not_taken() -> None:
    outcome = run_by_hand("0.32", budget=7)
    assert not [record for record in outcome.records if isinstance(record, StepFinished)]
    reasons = {record.reason for record in outcome.records if isinstance(record, Dropped)}
    assert reasons == {"media of 8 tokens, the encoder's max_num_encoder_input_tokens is 7"}


def test_images_of_a_few_kinds_come_again() -> None:
    """Where each is one of five, the encoder makes each about once: the cache has room for all."""
    camera = {
        **CAMERA,
        "multimodal": {"images": {"count": 2, "tokens": {"kind": "uniform", "min": 90, "max": 110}, "distinct": 5}},
    }
    workload = {"requests": 30, "rate_per_s": 5, "clients": [camera]}
    keys = {"token_us": 2.5, "encoder_cache_size": 600}
    settings = {"workload": workload, "cluster.instances": 1, "engine": {"encoder": keys}, "expect": []}
    report = blis_tui.run(blis_tui.load("quickstart", set=settings))
    assert report.encoder is not None
    assert report.multimodal is not None
    assert 0 < report.encoder.encoded_tokens <= 5 * 110
    assert report.encoder.encoded_tokens + report.encoder.cached_tokens == report.multimodal.image_tokens
    assert report.encoder.hit_rate > 0.8
    assert report.encoder.evicted_items == 0


@pytest.mark.parametrize("kind", ["blis", "nano", "sglang"])
def test_other_engines_do_not_schedule_it(kind: str) -> None:
    with pytest.raises(SpecError, match="does not support the encoder"):
        blis_tui.load(
            "quickstart", set={"policy.batching": kind, "engine.encoder": {"token_us": 1, "encoder_cache_size": 9}}
        )
