"""The differences of two plain documents: every kind, and nothing but differences."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.input_files import MAX_DEPTH
from blis_tui.runs.documents import Difference, differences, pointer

ABSENT = object()


def found(old: object, new: object) -> list[tuple[str, object, object]]:
    return [
        (
            difference.path,
            ABSENT if difference.kind == "added" else difference.old,
            ABSENT if difference.kind == "removed" else difference.new,
        )
        for difference in differences(old, new, pointer)
    ]


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
    assert list(map(repr, found(old, new))) == list(map(repr, expected))


def test_kinds_have_names() -> None:
    assert [difference.kind for difference in differences({"a": 1, "b": 1}, {"b": 2, "c": 3}, pointer)] == [
        "removed",
        "changed",
        "added",
    ]


@given(PLAIN, PLAIN)
def test_swapping_the_documents_swaps_the_changes(old: object, new: object) -> None:
    there = {(path, repr(before), repr(after)) for path, before, after in found(old, new)}
    back = {(path, repr(after), repr(before)) for path, before, after in found(new, old)}
    assert there == back


@given(PLAIN)
def test_a_copy_is_equal(document: object) -> None:
    assert found(document, copy.deepcopy(document)) == []


@given(PLAIN, PLAIN)
def test_no_difference_means_the_same_json(old: object, new: object) -> None:
    if not found(old, new):
        assert json.dumps(old, sort_keys=True).replace("-0.0", "0.0") == json.dumps(new, sort_keys=True).replace(
            "-0.0", "0.0"
        )


def test_what_can_be_read_is_not_too_deep() -> None:
    old: object = 1
    new: object = 2
    for _ in range(MAX_DEPTH):
        old, new = {"a": old}, {"a": new}
    assert found(old, new) == [("/a" * MAX_DEPTH, 1, 2)]


def test_no_name_is_private() -> None:
    assert found({"__a": 1}, {"__a": 2}) == [("/__a", 1, 2)]


def test_pointer_of_nothing_is_the_document() -> None:
    assert pointer(()) == ""
    assert differences(1, 2, pointer) == [Difference(path="", kind="changed", old=1, new=2)]
