"""Requests that reason before they answer: when the first token of the answer itself comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.clientview import client_ttfat_us

if TYPE_CHECKING:
    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request


def note_answers(cohort: DecodeCohort, end: int, latency: StepTimeModel) -> None:
    """Members that had done with reasoning got the first token of their answer in the advance that ended then."""
    for request in cohort.answers.pop(cohort.clock, ()):
        _note(request, end, latency)


def note_if_answer(request: Request, end: int, latency: StepTimeModel) -> None:
    """The same for a request that got a token outside of the cohort; it may be another one."""
    reasoning = request.reasoning
    if reasoning is not None and request.generated_tokens == reasoning.tokens + 1:
        _note(request, end, latency)


def _note(request: Request, end: int, latency: StepTimeModel) -> None:
    reasoning = request.reasoning
    assert reasoning is not None  # noqa: S101  (only those who reason are noted)
    reasoning.first_answer_us = end
    reasoning.ttfat_us = client_ttfat_us(request, latency)
