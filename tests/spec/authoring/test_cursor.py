"""Where a place in a text is, against what the parser says of whole documents."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.spec.authoring.cursor import Cursor, cursor_at, on_row
from blis_tui.spec.read import read_document
from blis_tui.spec.shipped import shipped_specs
from tests.nightly import every

SHIPPED = sorted(path for path in shipped_specs().rglob("*.yaml"))
TEXT = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: x}  # a comment
model: llama
engine:
  max_num_seqs: 8
  ~
workload:
  clients:
    - id: a
      arrivals:
        kind: gamma
        c
      output_tokens: {kind: gaussian, me
    - id: b
      ~
  description: >
    kind: of text
policy:
  routing: {kind: weighted, scorers: [{kind: q
""".replace("~", "")


def at(line: int, column: int) -> Cursor:
    cursor = cursor_at(TEXT.splitlines(), line, column)
    assert cursor is not None
    return cursor


@pytest.mark.parametrize("path", every(3, SHIPPED), ids=lambda path: path.stem)
def test_every_key_and_value_of_a_shipped_document_is_where_the_parser_says(path: Path) -> None:
    document, lines = read_document(path), path.read_text().splitlines()
    for steps, place in document.keys.items():
        if steps and isinstance(steps[-1], str):
            cursor = cursor_at(lines, place.span.line - 1, place.span.end_column - 1)
            assert cursor is not None
            assert (*cursor.path, cursor.word.strip("\"'")) == tuple(step for step in steps if isinstance(step, str))
            assert cursor.key == ""
    for steps, place in document.values.items():
        if steps and not isinstance(document.get(*steps), dict | list | None):
            cursor = cursor_at(lines, place.span.line - 1, place.span.end_column - 1)
            assert cursor is not None
            inside = (*cursor.path, cursor.key) if cursor.key else cursor.path
            assert inside == tuple(step for step in steps if isinstance(step, str))


@pytest.mark.parametrize("path", SHIPPED[:12], ids=lambda path: path.stem)
def test_every_written_key_is_one_that_is_offered_where_it_stands(path: Path) -> None:
    """As if it were written last: without itself among the present ones."""
    document, lines = read_document(path), path.read_text().splitlines()
    for steps, place in document.keys.items():
        if (
            steps
            and isinstance(steps[-1], str)
            and steps[0] not in ("fitness", "cases", "matrix", "adapters", "golden")
        ):
            cursor = cursor_at(lines, place.span.line - 1, place.span.column - 1)
            assert cursor is not None
            if cursor.names():
                assert steps[-1] in cursor.names(), (path, steps)


def test_a_new_line_in_a_map_offers_its_other_keys() -> None:
    cursor = at(6, 2)
    assert (cursor.path, cursor.present) == (("engine",), ("max_num_seqs",))
    assert "max_num_seqs" not in cursor.names()
    assert "max_num_batched_tokens" in cursor.names()


def test_a_kind_beside_it_decides_which_keys_there_are() -> None:
    assert list(at(12, 9).names()) == ["cv"]
    assert at(12, 9).word == "c"
    assert list(at(13, 40).names()) == ["mean", "std_dev", "min", "max"]


def test_another_entry_of_a_list_has_nothing_of_the_one_before() -> None:
    cursor = at(15, 6)
    assert (cursor.path, cursor.present) == (("workload", "clients"), ("id",))
    assert "arrivals" in cursor.names()


def test_a_value_inside_of_flows_that_are_not_closed() -> None:
    cursor = at(19, 46)
    assert (cursor.path, cursor.key, cursor.word) == (("policy", "routing", "scorers"), "kind", "q")
    assert {choice.value for key in cursor.keys("kind") for choice in key.choices} >= {"queue-depth", "prefix-affinity"}


@pytest.mark.parametrize(("line", "column"), [(2, 30), (17, 8)])
def test_comments_and_texts_are_no_keys(line: int, column: int) -> None:
    cursor = cursor_at(TEXT.splitlines(), line, column)
    assert cursor is None or not cursor.keys(cursor.key or cursor.word)


def test_the_word_around_a_place_is_whole() -> None:
    lines = TEXT.splitlines()
    for column in (8, 9, 11):
        found = on_row(lines, 3, column)
        assert found is not None
        assert found[1:] == ("model", "llama")
    found = on_row(lines, 5, 4)
    assert found is not None
    assert found[1:] == ("max_num_seqs", "")


@given(
    st.lists(
        st.one_of(st.sampled_from(TEXT.splitlines()), st.text("ab:-{}[],'\"#&|> \t\u2028é", max_size=30)), max_size=12
    ),
    st.integers(0, 13),
    st.integers(0, 40),
)
def test_whatever_is_written_has_a_place_or_none(lines: list[str], line: int, column: int) -> None:
    cursor = cursor_at(lines, line, column)
    on_row(lines, line, column)
    if cursor is not None:
        assert cursor.column <= column
        cursor.names()
        cursor.keys(cursor.key)
