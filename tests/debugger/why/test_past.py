"""A request that has ended beside the median one."""

from __future__ import annotations

import re

import pytest

from blis_tui.base.units import count_text
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import e2e_breakdown
from blis_tui.debugger.why.explain import compare, explain_request
from blis_tui.debugger.why.explanation import sentence_text
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import FirstToken, Preempted
from tests.debugger.pressed_runs import finished


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption"])
def test_the_difference_to_the_median_is_told_by_its_largest_part_first(name: str) -> None:
    debugger = finished(name)
    run_to_stop(debugger.seek(debugger.frontier))  # other tests move it
    tape, rows = debugger.tape, debugger.report().rows
    took = sorted(row.e2e_us for row in rows if row.e2e_us is not None)
    signs = dict.fromkeys((True, False), 0)
    for row in rows:
        life = read_life(tape, row.request_id, debugger.frontier)
        own = None if life is None else e2e_breakdown(life, tape)
        if life is None or own is None or row.e2e_us is None:
            continue
        comparison = compare(life, own, tape)
        assert comparison is not None
        assert comparison.faster == len([one for one in took if one < row.e2e_us])
        assert comparison.others == len(took) - 1
        assert comparison.excess_us == row.e2e_us - comparison.median.value
        parts = [us for _, us in comparison.by_group]
        assert sum(parts) == comparison.excess_us
        assert parts == sorted(parts, reverse=comparison.excess_us >= 0)
        signs[comparison.excess_us > 0] += len(dict.fromkeys(parts)) > 1
    assert min(signs.values()) > 3


_SOONER = re.compile(r"Of the ([\d,]+) others that have a first token, ([\d,]+) had theirs sooner\.")


@pytest.mark.parametrize(("name", "share"), [("kv-pressure", 1.0), ("vllm-preemption", 1.0), ("kv-pressure", 0.4)])
def test_first_tokens_that_came_sooner_are_counted(name: str, share: float) -> None:
    """Counted anew in the records; where a preemption discards the output, there is none until it comes again."""
    debugger = finished(name)
    position = int(debugger.frontier * share)
    run_to_stop(debugger.seek(position))
    firsts: dict[str, int] = {}
    for record in (record for event in range(1, position + 1) for record in debugger.records_of(event)):
        if isinstance(record, FirstToken):
            firsts[record.request_id] = record.ttft_us
        elif isinstance(record, Preempted) and name == "kv-pressure":  # vLLM keeps the output
            firsts.pop(record.request_id, None)
    said = 0
    for request, ttft_us in firsts.items():
        explanation = explain_request(debugger, request)
        text = "\n".join(sentence_text(sentence) for part in explanation.parts for sentence in part.sentences)
        match = _SOONER.search(text)
        if match is not None:
            said += 1
            sooner = len([other for other in firsts.values() if other < ttft_us])
            assert (match[1], match[2]) == (f"{len(firsts) - 1:,}", count_text(sooner))
    assert said > 20
