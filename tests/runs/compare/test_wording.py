"""How differences are told: as `diff` does, aligned, with no more digits than tell two values apart."""

from __future__ import annotations

import pytest

from blis_tui.runs.comparison_text import difference_lines, value_change
from blis_tui.runs.divergence import record_text
from blis_tui.runs.documents import differences, pointer


def lines_of(old: object, new: object, most: int = 12) -> list[str]:
    return difference_lines(differences(old, new, pointer), most)


def test_a_line_for_what_went_and_one_for_what_came() -> None:
    old = {"kv": {"blocks": 60}, "policy": "fcfs", "requests": 1200, "gone": True}
    new = {"kv": {"blocks": 90}, "policy": "sjf", "requests": 1100, "here": None}
    assert lines_of(old, new) == [
        "  - /kv/blocks     60",
        "  + /kv/blocks     90  +50.00 %",
        "  - /policy     fcfs",
        "  + /policy     sjf",
        "  - /requests   1,200",
        "  + /requests   1,100  -8.33 %",
        "  - /gone       true",
        "  + /here       null",
    ]


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        (17.317780580949194, 18.688333172613667, ["17.3178", "18.6883  +7.91 %"]),
        (0.1, 0.10000001, ["0.1", "0.10000001  < 0.01 %"]),
        (0.1, 0.1 + 2**-55, ["0.10000000000000001", "0.10000000000000003  < 0.01 %"]),
        (1, 1.0, ["1", "1.0"]),
        (-2.0, -1.0, ["-2", "-1  +50.00 %"]),
        (0, 3, ["0", "3"]),
        ("3", 3, ['"3"', "3"]),
        ("", "a b", ['""', "a b"]),
        ("d961cbd072b1" * 5, "752f1ebc1e89" * 5, ["d961cbd072b1…", "752f1ebc1e89…"]),
        ([1], {"a": "x" * 80}, ["[1]", '{"a": "' + "x" * 22 + "…" + "x" * 28 + '"}']),
    ],
)
def test_values_are_short_and_differ(old: object, new: object, texts: list[str]) -> None:
    lines = lines_of({"a": old}, {"a": new})
    assert [line.split("  ", 2)[2].strip() for line in lines] == texts


def test_what_is_left_out_is_counted() -> None:
    assert lines_of({str(n): n for n in range(9)}, {}, 2) == ["  - /0  0", "  - /1  1", "  … 7 more"]


def test_records_are_words_and_count_places_as_people_do() -> None:
    queued = {"kind": "queued", "event": 1307, "time_us": 872279, "request_id": "r1", "instance": 0, "position": 2}
    assert record_text(queued) == "event 1,307  0.872 279 s  queued  request_id=r1 instance=0 place=3rd"
    assert record_text({"kind": "admitted", "event": 1, "time_us": 0, "policy": ""}) == "event 1  0.000 000 s  admitted"
    chunks = {"kind": "step", "event": 1, "time_us": 0, "chunks": [["r1", 5]]}
    assert record_text(chunks).endswith('chunks=[["r1",5]]')
    assert record_text(None) == "the run has ended"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({"a": 60}, {"a": 90}, "60 → 90"),
        ({"a": "x"}, {}, "x"),
        ({}, {"a": [1]}, "[1]"),
        ({"a": "x" * 90}, {"a": 1}, '"xxxxxx…xxxxxxx" → 1'),
        ({"a": 1}, {"a": "y" * 90}, '1 → "yyyyyy…yyyyyyy"'),
    ],
)
def test_a_change_fits_its_room(old: object, new: object, text: str) -> None:
    (difference,) = differences(old, new, pointer)
    assert value_change(difference, 20, "→") == text
