"""Columns of a recorded workload read like the lists that they were made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.workload.traces.trace_table import Interned, Texts

CELLS = st.lists(st.text(st.characters(exclude_categories=()), max_size=3), max_size=9)  # halves of characters, too


@given(CELLS, CELLS, st.integers(-12, 12) | st.none(), st.integers(-12, 12) | st.none())
@pytest.mark.parametrize("kind", [Texts, Interned])
def test_a_column_reads_like_a_list(
    kind: type[Texts | Interned[str]], first: list[str], more: list[str], start: int | None, stop: int | None
) -> None:
    column = kind(first)
    assert (len(column), list(column)) == (len(first), first)
    column.extend(more)
    cells = first + more
    assert (len(column), list(column)) == (len(cells), cells)
    assert column[start:stop] == cells[start:stop]
    assert [column[row] for row in range(len(cells))] == cells
    for beyond in (-1, len(cells)):
        with pytest.raises(IndexError):
            column[beyond]
