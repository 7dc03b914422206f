"""Figures in slices of time, against the same figures kept one by one."""

from hypothesis import given
from hypothesis import strategies as st

from blis_tui.pictures.load_pictures import FIRST_US, LoadTimeSeries, Slices

LIMIT = 8


@given(st.lists(st.tuples(st.integers(0, 20 * FIRST_US), st.integers(0, 50)), max_size=12), st.integers(1, 5000))
def test_a_course_has_the_mean_and_the_peak_of_each_slice(changes: list[tuple[int, int]], rest_us: int) -> None:
    course = LoadTimeSeries(LIMIT)
    values: list[int] = []
    for wait_us, value in changes:
        values += [course.value] * wait_us
        course.set(len(values), value)
    values += [course.value] * rest_us
    course.set(len(values), 0)
    slices = course.slices
    assert len(values) <= LIMIT * slices.slice_us
    assert slices.slice_us == FIRST_US or len(values) > LIMIT * slices.slice_us // 2
    starts = range(0, len(values), slices.slice_us)
    parts = [values[start : start + slices.slice_us] for start in starts]
    assert slices.slices(slices.slice_us, len(parts)) == [(sum(part) / len(part), max(part)) for part in parts]


@given(st.lists(st.tuples(st.integers(0, 100 * FIRST_US), st.integers(0, 50)), min_size=1, max_size=12))
def test_samples_have_their_plain_mean(samples: list[tuple[int, int]]) -> None:
    slices = Slices(LIMIT)
    for time_us, value in samples:
        slices.add(time_us, value)
    found = slices.slices(16 * FIRST_US, LIMIT)
    assert slices.slice_us >= 16 * FIRST_US
    for number, one in enumerate(found):
        there = [value for time_us, value in samples if time_us // slices.slice_us == number]
        assert one == ((sum(there) / len(there), max(there)) if there else (0.0, 0))
