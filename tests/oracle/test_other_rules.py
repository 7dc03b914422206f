"""``nano``, ``llm-serving-sim``, ``tensorrt-llm``: engine and oracle agree on random runs, and every run ends."""

from __future__ import annotations

import pytest
from hypothesis import given

from .draws import Draw, drawn
from .runs import check_many, examples
from .strategies import Scenario, draw_scenario, draw_tensorrt_llm
from .test_against_oracle import check, check_every_event


def _draw(draw: Draw) -> Scenario:
    return draw_scenario(draw, running_first=False)


@examples(60)
@given(drawn(_draw))
def test_they_agree(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.slow
def test_they_agree_at_length() -> None:
    check_many(600, _draw, lambda scenario, _: check(scenario))


@examples(50)
@given(drawn(_draw))
def test_the_books_are_right_after_every_event(scenario: Scenario) -> None:
    check_every_event(scenario)


@examples(25)
@given(drawn(draw_tensorrt_llm))
def test_they_agree_on_tensorrt_llm(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.slow
def test_they_agree_on_tensorrt_llm_at_length() -> None:
    check_many(250, draw_tensorrt_llm, lambda scenario, _: check(scenario), part=6)
