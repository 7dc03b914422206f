"""Steps in time, from lines of a log that come late and together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.live.observe.recording import Observed, Recording, Server, Step
from blis_tui.live.twin.fitting import FEWEST, _solve, pace_of

NUMBERS = st.lists(
    st.tuples(st.integers(1, 9000), st.integers(0, 4000), st.integers(0, 60_000)), min_size=FEWEST, max_size=60
)


def recording(steps: list[Step], rows: list[Observed]) -> Recording:
    return Recording(folder=Path("r"), server=Server(), requests=tuple(rows), steps=tuple(steps))


def step(number: int, end_us: int | None, duration_us: int) -> Step:
    return Step(
        number=number,
        end_us=end_us,
        duration_us=duration_us,
        prefill_requests=0,
        prefill_tokens=0,
        decode_requests=1,
        decode_tokens=1,
        kv_share=None,
    )


def row(sent_us: int, last_us: int) -> Observed:
    return Observed(
        request_id=f"r{sent_us}",
        index=0,
        due_us=sent_us,
        sent_us=sent_us,
        done_us=last_us,
        outcome="completed",
        input_tokens=1,
        output_tokens=1,
        chunks=((last_us, 1),),
        has_token_ids=True,
    )


@given(NUMBERS, st.booleans())
def test_steps_are_where_they_can_have_been(numbers: list[tuple[int, int, int]], late: bool) -> None:
    at_us, steps, truth = 0, [], []
    for number, (duration_us, gap_us, late_us) in enumerate(numbers):
        truth.append((at_us, at_us + duration_us))
        at_us += duration_us
        steps.append(step(number, at_us + (late_us if late else 0), duration_us))
        at_us += gap_us
    pace = pace_of(recording(steps, [row(-1, at_us + 100_000)]))
    assert pace is not None
    assert pace.begins_us is not None
    ends = [begin + one.duration_us for begin, one in zip(pace.begins_us, steps, strict=True)]
    for number, (begin_us, end_us) in enumerate(truth):
        # Never before it happened, never after its line, never over the next one.
        assert begin_us <= pace.begins_us[number]
        assert end_us <= ends[number] <= steps[number].end_us  # type: ignore[operator]
        assert number == len(steps) - 1 or ends[number] <= pace.begins_us[number + 1]
    if not late:
        assert list(pace.begins_us) == [begin for begin, _ in truth]
        assert list(pace.gaps_us[:-1]) == [gap for _, gap, _ in numbers[:-1]]
    assert sum(pace.periods_us[:-1]) == pace.begins_us[-1] - pace.begins_us[0]


def test_a_time_in_which_nobody_is_served_is_no_gap() -> None:
    ends = [1000 * (n + 1) + (500_000 if n >= 15 else 0) for n in range(30)]
    steps = [step(n, end, 800) for n, end in enumerate(ends)]
    pace = pace_of(recording(steps, [row(0, ends[14] + 90), row(ends[14] + 400_000, ends[-1] + 90)]))
    assert pace is not None
    assert set(pace.gaps_us) == {200}
    # The same where somebody was there all the time: then the engine did nothing for half a second.
    busy = pace_of(recording(steps, [row(0, ends[-1] + 90)]))
    assert busy is not None
    assert busy.gaps_us[14] == 500_200


def test_few_steps_say_nothing() -> None:
    assert pace_of(recording([step(n, n * 1000, 800) for n in range(FEWEST - 1)], [row(0, 9)])) is None
    assert pace_of(recording([], [])) is None


@pytest.mark.parametrize(
    ("rows", "times", "solved"),
    [
        ([(1.0, 0.0, 1.0), (1.0, 4.0, 2.0), (1.0, 1.0, 7.0)], [8.0, 19.0, 28.0], [5.0, 2.0, 3.0]),
        ([(1.0, 0.0, 2.0), (1.0, 0.0, 2.0)], [10.0, 14.0], [12.0, 0.0, 0.0]),
        ([(1.0, 0.0, 2.0), (1.0, 0.0, 4.0)], [10.0, 14.0], [6.0, 0.0, 2.0]),
        ([(1.0, 3.0, 3.0), (1.0, 5.0, 5.0), (1.0, 4.0, 4.0)], [8.0, 10.0, 9.0], [5.0, 1.0, 0.0]),
        ([(0.0, 0.0, 0.0)], [7.0], [0.0, 0.0, 0.0]),
        ([], [], [0.0]),
    ],
)
def test_a_term_that_says_nothing_new_is_zero(
    rows: list[tuple[float, ...]], times: list[float], solved: list[float]
) -> None:
    assert _solve(rows, times) == pytest.approx(solved)
