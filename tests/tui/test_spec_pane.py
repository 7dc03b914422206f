"""The pane with the resolved experiment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.panes.spec import PANE, coloured, spec_lines, spec_paths, spec_value
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at

DOCUMENT = tuple(
    """\
# One experiment; each comment says where the value comes from.
metadata:
  name: mine                                            # mine.blis.yaml:3
workload:
  clients:
    - id: chats                                         # mine.blis.yaml:9
      share: 1.0                                        # default
engine:
  max_num_seqs: 64                                      # --set engine.max_num_seqs
""".splitlines()
)


def test_wide_enough_the_document_is_shown_as_it_is() -> None:
    assert text_of(spec_lines(DOCUMENT, 90)) == "\n".join(DOCUMENT)


@pytest.mark.parametrize("width", [30, 40])
def test_a_remark_without_room_stands_below_its_value(width: int) -> None:
    lines = [spec_line.draw() for spec_line in spec_lines(DOCUMENT, width)]
    assert all(line.cell_length <= width for line in lines)
    texts = [line.plain for line in lines]
    if width == 30:
        assert texts[texts.index("  name: mine") + 1].strip() == "# mine.blis.yaml:3"
    else:
        assert "  name: mine  # mine.blis.yaml:3" in texts


def test_what_was_set_by_hand_stands_out_and_defaults_do_not() -> None:
    styles = {line: str(coloured(line).spans[-1].style) for line in (DOCUMENT[6], DOCUMENT[8])}
    assert "dim" in styles[DOCUMENT[6]]
    assert "$accent" in styles[DOCUMENT[8]]


def test_a_line_has_a_path_and_a_value() -> None:
    assert (spec_paths(DOCUMENT)[8], spec_value(DOCUMENT[8])) == ("engine.max_num_seqs", "64")
    assert (spec_paths(DOCUMENT)[2], spec_value(DOCUMENT[2])) == ("metadata.name", "mine")
    assert (spec_paths(DOCUMENT)[5], spec_value(DOCUMENT[5])) == ("workload.clients.0.id", "chats")
    assert (spec_paths(DOCUMENT)[6], spec_value(DOCUMENT[6])) == ("workload.clients.0.share", "1.0")


async def test_the_cursor_walks_through_the_document() -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, replace(view_at(debugger("quickstart", 0)), document=DOCUMENT))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press(*["down"] * 8)
        await pilot.pause()
        assert (pane.copied(path=True), pane.copied(path=False)) == ("engine.max_num_seqs", "64")
