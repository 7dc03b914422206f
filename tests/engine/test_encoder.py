"""What the encoder of media takes: in which steps, and how much."""

from __future__ import annotations

from itertools import pairwise

import pytest

import blis_tui
from blis_tui.engine.latency.encoding import media_tokens
from blis_tui.engine.latency.model import Chunk
from blis_tui.engine.records import StepFinished
from blis_tui.engine.request import Media, Request
from blis_tui.errors import SpecError

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


def in_chunks(made: Request, *edges: int) -> list[int]:
    spans = pairwise(edges)
    return [media_tokens(Chunk(made, start, end - start, made.input_tokens)) for start, end in spans]


def test_media_count_where_they_are_computed_and_add_up() -> None:
    assert in_chunks(request(100, 40, 0), 0, 100) == [40]
    assert in_chunks(request(100, 40, 0), 0, 50, 75, 100) == [20, 10, 10]
    # 40 of the 80 tokens behind the head; none in it, and none of what comes after the prompt.
    assert in_chunks(request(100, 40, 20), 0, 20, 60, 100, 120) == [0, 20, 20, 0]
    # All may be shared: they are anywhere in it.
    assert in_chunks(request(100, 40, 100), 0, 50, 100) == [20, 20]
    # In parts of three: 0 to 14, 14 to 28, and so on; their sum is exact.
    found = in_chunks(request(91, 43, 0), *range(0, 91, 7), 91)
    assert sum(found) == 43
    assert set(found) <= {3, 4}
    assert in_chunks(request(100, 0, 0), 0, 100) == [0]


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
    "wrong", [{}, {"token_us": 0}, {"token_us": -1}, {"token_us": "x"}, {"token_us": 1, "cache": 2}]
)
def test_what_an_encoder_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        blis_tui.load("quickstart", set={"engine.encoder": wrong})
