"""``nano`` and ``llm-serving-sim``: engine and oracle agree on random simulations, and every run ends."""

from __future__ import annotations

import pytest
from hypothesis import given

from .runs import examples
from .strategies import Scenario, scenarios
from .test_against_oracle import check, check_every_event


@examples(150)
@given(scenarios(running_first=False))
def test_they_agree(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.slow
@examples(600)
@given(scenarios(running_first=False))
def test_they_agree_at_length(scenario: Scenario) -> None:
    check(scenario)


@examples(50)
@given(scenarios(running_first=False))
def test_the_books_are_right_after_every_event(scenario: Scenario) -> None:
    check_every_event(scenario)
