"""Requests that reason before they answer: when the first token of the answer itself comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batch import slot_of
from blis_tui.engine.clientview import client_ttfat_us
from blis_tui.engine.content_records import AnswerBegun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request


def note_answers(
    cohort: DecodeCohort, end: int, latency: StepTimeModel, prefilled: Iterable[Request] = ()
) -> Sequence[Request]:
    """Take note of whose answer begins with a token of the step that ended then; they are returned in running order.

    Args:
        cohort: its members that had done with reasoning got that token in its latest advance.
        end: of the step.
        latency: the step-time model of the instance.
        prefilled: who got a token outside of the cohort; these may be other ones.
    """
    begun = cohort.answers.pop(cohort.clock, ())
    for request in begun:
        _note(request, end, latency)
    for request in prefilled:
        reasoning = request.reasoning
        if reasoning is not None and request.generated_tokens == reasoning.tokens + 1:
            _note(request, end, latency)
            begun = [*begun, request]
    return sorted(begun, key=slot_of) if len(begun) > 1 else begun


def _note(request: Request, end: int, latency: StepTimeModel) -> None:
    reasoning = request.reasoning
    assert reasoning is not None  # noqa: S101  (only those who reason are noted)
    reasoning.first_answer_us = end
    reasoning.ttfat_us = client_ttfat_us(request, latency)


def emit_answers(observers: Observers, index: int, start_us: int, begun: Iterable[Request]) -> None:
    """An AnswerBegun record for each whose answer begins in the step; without reasoning its first token says so."""
    if AnswerBegun in observers.kinds:
        for request in begun:
            thought = request.reasoning
            if thought is not None and thought.tokens:
                name, times = request.request_id, (thought.first_answer_us, thought.ttfat_us)
                observers.emit(AnswerBegun(observers.event, start_us, name, index, *times, thought.tokens))
