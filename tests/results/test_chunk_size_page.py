"""docs/lab/chunk-size.md shows a frontier: with larger chunks the first token comes sooner, gaps are longer."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from docs.make_chunks import CHUNKS, KNOBS, PAGE, PICTURE, point, table

TESTED = (512, 4096, 32768)


def _listed(knob: str) -> dict[int, list[float]]:
    """The rows of a table of the page, by chunk size."""
    text = PAGE.read_text(encoding="utf-8").partition(f"<!-- {knob} -->")[2].partition("<!-- end")[0]
    rows = [[float(cell.replace(",", "")) for cell in re.findall(r"[\d.,]+", row)] for row in text.splitlines()[3:]]
    return {int(tokens): figures for tokens, *figures in rows}


@pytest.mark.parametrize("knob", KNOBS)
def test_the_frontier_is_monotone_both_ways(knob: str) -> None:
    points = [point(knob, tokens) for tokens in TESTED]
    for small, large in pairwise(points):
        assert small.ttft_ms > large.ttft_ms
        assert small.itl_ms < large.itl_ms
        assert small.worst_ms < large.worst_ms
    page = PAGE.read_text(encoding="utf-8")
    assert all(row in page for row in table(knob, points).splitlines()), "`python docs/make_chunks.py` writes the page"


@pytest.mark.parametrize("knob", KNOBS)
def test_so_is_the_table_and_the_picture_shows_it(knob: str) -> None:
    rows = _listed(knob)
    assert tuple(rows) == CHUNKS
    for (ttft, itl, worst), (next_ttft, next_itl, next_worst) in pairwise(rows.values()):
        assert ttft >= next_ttft  # as rounded; the figures themselves are compared above
        assert itl < next_itl
        assert worst < next_worst
    picture = PICTURE.read_text(encoding="utf-8")
    assert all(picture.count(f">{tokens:,}</text>") >= len(KNOBS) for tokens in CHUNKS)
