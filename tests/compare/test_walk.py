"""The walker: every kind of difference, and nothing but differences."""

import copy
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.compare.walk import ABSENT, Change, pointer, walk

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from("abc/~"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab/~"), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1, 1, []),
        (1, 2, [("", 1, 2)]),
        (1, 1.0, [("", 1, 1.0)]),
        (1, True, [("", 1, True)]),
        (0.0, -0.0, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": None}, {}, [("/a", None, ABSENT)]),
        ({}, {"a": None}, [("/a", ABSENT, None)]),
        ({"a": {"x": 1}}, {"a": [1]}, [("/a", {"x": 1}, [1])]),
        ([1, 2], [1, 3, 4], [("/1", 2, 3), ("/2", ABSENT, 4)]),
        ([1, 2], [1], [("/1", 2, ABSENT)]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, [("/a~1b/~0", 1, 2)]),
        (
            {"a": 1, "b": {"c": [1]}},
            {"z": 0, "b": {"c": [2]}},
            [("/a", 1, ABSENT), ("/b/c/0", 1, 2), ("/z", ABSENT, 0)],
        ),
    ],
)
def test_each_kind_of_difference(old: object, new: object, expected: list[tuple[str, object, object]]) -> None:
    found = [(change.path, change.old, change.new) for change in walk(old, new)]
    assert [(path, repr(before), repr(after)) for path, before, after in found] == [
        (path, repr(before), repr(after)) for path, before, after in expected
    ]


def test_kinds_have_names() -> None:
    assert [change.kind for change in walk({"a": 1, "b": 1}, {"b": 2, "c": 3})] == ["removed", "changed", "added"]


@given(PLAIN, PLAIN)
def test_swapping_the_documents_swaps_the_changes(old: object, new: object) -> None:
    there = {(change.path, repr(change.old), repr(change.new)) for change in walk(old, new)}
    back = {(change.path, repr(change.new), repr(change.old)) for change in walk(new, old)}
    assert there == back


@given(PLAIN)
def test_a_copy_is_equal(document: object) -> None:
    assert walk(document, copy.deepcopy(document)) == []


@given(PLAIN, PLAIN)
def test_no_difference_means_the_same_json(old: object, new: object) -> None:
    if not walk(old, new):
        assert json.dumps(old, sort_keys=True).replace("-0.0", "0.0") == json.dumps(new, sort_keys=True).replace(
            "-0.0", "0.0"
        )


def test_depth_is_no_limit() -> None:
    old: object = 1
    new: object = 2
    for _ in range(5000):
        old, new = {"a": old}, {"a": new}
    (change,) = walk(old, new)
    assert change.path == "/a" * 5000


def test_pointer_of_nothing_is_the_document() -> None:
    assert pointer(()) == ""
    assert Change("", 1, 2).kind == "changed"


def test_a_megabyte_is_quick() -> None:
    """Printed, not asserted."""
    document = {f"row{number}": {"a": number, "b": [number / 7, "text"], "c": None} for number in range(20_000)}
    other = json.loads(json.dumps(document))
    size = len(json.dumps(document))
    start = time.perf_counter()
    assert walk(document, other) == []
    equal = time.perf_counter() - start
    other["row7"]["a"] = -1
    start = time.perf_counter()
    assert len(walk(document, other)) == 1
    print(f"{size} bytes: equal {equal * 1e3:.1f} ms, one change {(time.perf_counter() - start) * 1e3:.1f} ms")
