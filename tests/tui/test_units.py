"""How numbers are written on the screen."""

from __future__ import annotations

import pytest

from blis_tui.base.units import (
    bar_text,
    count_text,
    filled,
    ordinal,
    percent_text,
    plural,
    span_text,
    time_text,
    with_spans,
)


def test_places_are_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 1111)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "1,111th"),
    ]


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0.000 000 s"), (12_345_678, "12.345 678 s"), (1_000_000_007, "1,000.000 007 s")],
)
def test_a_time_is_exact_to_the_microsecond(us: int, text: str) -> None:
    assert time_text(us) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 us"),
        (999, "999 us"),
        (1000, "1.00 ms"),
        (12_345, "12.3 ms"),
        (99_949, "99.9 ms"),
        (99_950, "100 ms"),
        (999_499, "999 ms"),
        (999_500, "1.00 s"),
        (1_617_006, "1.62 s"),
        (59_499_999, "59.5 s"),
        (60_000_000, "1 min 0 s"),
        (200_000_000, "3 min 20 s"),
        (-12_345, "-12.3 ms"),
    ],
)
def test_a_duration_has_three_digits_that_count(us: int, text: str) -> None:
    assert span_text(us) == text


def test_counts_group_thousands_and_nouns_agree() -> None:
    assert count_text(12345) == "12,345"
    assert [plural(n, "block") for n in (0, 1, 2000)] == ["0 blocks", "1 block", "2,000 blocks"]


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 10, "0 %"), (1, 1000, "<1 %"), (71, 100, "71 %"), (999, 1000, ">99 %"), (10, 10, "100 %"), (1, 0, "0 %")],
)
def test_a_share_never_rounds_to_nothing_or_all(part: int, whole: int, text: str) -> None:
    assert percent_text(part, whole) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 8, "░░░░"), (1, 1000, "█░░░"), (4, 8, "██░░"), (999, 1000, "███░"), (8, 8, "████"), (9, 0, "░░░░")],
)
def test_a_bar_is_full_only_when_all_is_used(part: int, whole: int, text: str) -> None:
    assert bar_text(part, whole, 4) == text


def test_durations_within_a_text_are_written_as_all_others() -> None:
    assert with_spans("expired after 3000000 us in the queue") == "expired after 3.00 s in the queue"
    assert with_spans("first token in about 12,345 us, or 7 us") == "first token in about 12.3 ms, or 7 us"
    assert with_spans("because of us and 3 usual ones") == "because of us and 3 usual ones"
    assert filled("{request_id}: {reason}", {"request_id": "5000 us", "reason": "5000 us"}) == "5000 us: 5.00 ms"
