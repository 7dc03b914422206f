"""The map of the KV cache."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.why.explanation import request_ref
from blis_tui.tui.boxes import Rows, RowsBox
from blis_tui.tui.panes.kv import BLOCK_STYLES, PANE, holdings, kv_grid, kv_map
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    return debugger("kv-pressure", 900)


@pytest.fixture(scope="module")
def pair() -> Debugger:
    """At a moment when no request of the second instance holds so few blocks of its own that it has no cell."""
    return debugger("shared-prefixes", 1860)


def test_all_blocks_are_on_the_map_and_none_twice(pressed: Debugger, pair: Debugger) -> None:
    for made in (pressed, pair):
        for instance in view_at(made).moment.after.instances:
            found = holdings(instance)
            assert sum(holding.blocks for holding in found) == instance.kv.total_blocks
            assert all(holding.blocks >= 0 for holding in found)


def test_with_one_block_a_cell_every_holding_has_its_cells(pressed: Debugger) -> None:
    instance = view_at(pressed).moment.after.instances[0]
    grid = kv_grid(instance, 60, 10)
    assert (grid.per_cell, grid.hidden, grid.rows) == (1, 0, 10)
    counts = Counter(grid.cells)
    assert all(counts[at] == holding.blocks for at, holding in enumerate(grid.found))


@pytest.mark.parametrize(("columns", "rows"), [(60, 10), (75, 4), (33, 2), (10, 1)])
def test_the_map_fits_into_its_cells(pressed: Debugger, pair: Debugger, columns: int, rows: int) -> None:
    for made in (pressed, pair):
        for instance in view_at(made).moment.after.instances:
            grid = kv_grid(instance, columns, rows)
            assert grid.rows <= rows
            drawn = instance.kv.total_blocks - grid.hidden
            assert (len(grid.cells) - 1) * grid.per_cell < drawn <= len(grid.cells) * grid.per_cell
            assert grid.hidden <= instance.kv.blank_blocks


def test_a_nearly_empty_cache_is_drawn_without_most_of_its_empty_blocks(pair: Debugger) -> None:
    instance = view_at(pair).moment.after.instances[1]
    grid = kv_grid(instance, 75, 6)
    assert grid.hidden > instance.kv.total_blocks // 2
    drawn = {grid.found[at].request for at in grid.cells} - {""}
    assert drawn == {request.request_id for request in instance.running}
    assert "empty blocks not drawn" in text_of(kv_map(view_at(pair), 76, 18))


def test_blocks_that_are_shared_count_once(pair: Debugger) -> None:
    instance = view_at(pair).moment.after.instances[1]
    shared = next(holding for holding in holdings(instance) if holding.kind == "shared")
    assert 0 < shared.blocks < sum(request.shared_blocks for request in instance.running)


def test_blocks_of_requests_outside_the_batch_are_not_called_shared() -> None:
    """Those that wait with a prompt from another instance have names; those that leave have none."""
    split = debugger("disaggregation", 7000)
    queued, leaving = 0, 0
    for event in range(3200, 4000, 7):
        view = view_at(split, event)
        for instance in view.moment.after.instances:
            found = holdings(instance)
            assert all(holding.blocks >= 0 for holding in found)
            shared = sum(holding.blocks for holding in found if holding.kind == "shared")
            assert shared <= sum(request.shared_blocks for request in (*instance.running, *instance.waiting))
            names = {holding.request for holding in found}
            waits = [request for request in instance.waiting if request.held_blocks]
            assert all(request.request_id in names for request in waits)
            queued += len(waits)
            if instance.kv.used_blocks and not instance.running and not waits:
                leaving += 1
                text = text_of(kv_map(view_at(split, event, instance=instance.index), 100, 12))
                assert "of other requests, or shared" in text
                assert "No request holds a block." not in text
    assert queued
    assert leaving


def test_the_selected_request_has_its_own_glyph_and_a_line(pressed: Debugger) -> None:
    name = view_at(pressed).moment.after.instances[0].running[3].request_id
    held = view_at(pressed).moment.after.instances[0].running[3].held_blocks
    text = text_of(kv_map(view_at(pressed, request=name), 60, 18))
    assert text.count(BLOCK_STYLES["selected"].glyph) == held + 1  # and one in the line about it
    assert f"{name}: {held} blocks" in text


def test_blocks_of_states_are_told_from_those_of_tokens() -> None:
    overrides = {"model": "qwen3.5-27b", "hardware": "h200", "latency": "fitted", "policy.batching": "vllm-v1"}
    made = debugger("kv-pressure", 900, **overrides, engine__kv_blocks=60)
    holder = next(request for request in view_at(made).moment.after.instances[0].running if request.held_blocks)
    text = text_of(kv_map(view_at(made, request=holder.request_id), 100, 18))
    assert "states 3 blocks a request" in text
    assert f"{holder.request_id}: {holder.held_blocks} blocks (3 of states)" in text
    assert holder.held_blocks == 3 + -(-holder.computed_tokens // 784)


def test_a_stretch_with_room_has_its_owners_name_in_it(pressed: Debugger) -> None:
    view = view_at(pressed)
    first, second = (request.request_id for request in view.moment.after.instances[0].running[:2])
    mapped = kv_map(view, 120, 18)
    text = text_of(mapped)
    assert f"█ {first} █" in text
    assert f"▓ {second} ▓" in text
    assert all(line.draw().cell_length <= 120 for line in mapped if line.cells is not None)


def test_the_owners_are_listed_where_rows_are_left(pressed: Debugger) -> None:
    view = view_at(pressed)
    requests = view.moment.after.instances[0].running
    most = max(requests, key=lambda request: request.held_blocks - request.shared_blocks)
    rows = [line.draw().plain for line in kv_map(view, 138, 30)]
    listed = next(row for row in rows if row.startswith(f"{most.request_id} "))
    assert listed.startswith(f"{most.request_id} {most.held_blocks - most.shared_blocks} blocks    ")
    assert len(kv_map(view, 60, 12)) <= 12


def test_every_kind_has_its_own_glyph() -> None:
    assert len({look.glyph for look in BLOCK_STYLES.values()}) == len(BLOCK_STYLES)


def test_an_empty_cache_says_so(pressed: Debugger) -> None:
    text = text_of(kv_map(view_at(pressed, 0), 76, 14))
    assert "No request holds a block." in text
    assert "cache hits none yet" in text


async def test_arrows_and_clicks_select_requests(pressed: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pressed, 900))
    async with app.run_test(size=(80, 16)) as pilot:
        await pilot.press("right", "right", "left")
        await pilot.pause()
        names = [request.request_id for request in app.shown.moment.after.instances[0].running]
        assert [message.request for message in app.picked] == [names[0], names[1], names[0]]
        assert pane.at_cursor() == request_ref(names[0])
        # The first line is about the selected request, the second holds the figures: the map begins in the third.
        await pilot.click(offset=(76, 3))
        await pilot.pause()
        assert app.picked[-1].request == names[1]


async def test_the_mouse_tells_whose_block_a_cell_is(pressed: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pressed, 900))
    async with app.run_test(size=(80, 16)) as pilot:
        await pilot.pause()
        await pilot.hover(offset=(4, 2))
        await pilot.pause()
        first = app.shown.moment.after.instances[0].running[0]
        assert str(pane.query_one(Rows).tooltip).startswith(f"{first.request_id}: {first.held_blocks} blocks")


async def test_requests_whose_blocks_are_too_few_for_a_cell_are_selected_by_arrows_all_the_same(
    pressed: Debugger,
) -> None:
    view = view_at(pressed, 900)
    (instance,) = view.moment.after.instances
    names = [request.request_id for request in instance.running]
    grid = kv_grid(instance, 10, 2)
    assert {grid.found[at].request for at in grid.cells} - {""} < set(names)
    stops = [subject.value for line in kv_map(view, 10, 2) for subject in line.subjects()]
    assert list(dict.fromkeys(stops)) == names
    app = OnePane(RowsBox.of(PANE), view)
    async with app.run_test(size=(15, 8)) as pilot:
        await pilot.press(*["down"] * (len(names) + 1))
        await pilot.pause()
        assert [message.request for message in app.picked] == names


# ---- the radix tree ----


@pytest.fixture(scope="module")
def retracting() -> Debugger:
    return debugger("retraction", 900)


def test_a_radix_tree_is_told_node_by_node(retracting: Debugger) -> None:
    """The figures are those of the engine's own tree, added up another way."""
    (instance,) = view_at(retracting).moment.after.instances
    tree = instance.kv.tree
    assert tree is not None
    assert tree.count == len(tree.nodes) > 10
    assert sum(node.tokens for node in tree.nodes) == tree.locked_tokens + tree.evictable_tokens
    assert sum(node.tokens for node in tree.nodes if node.locks) == tree.locked_tokens
    assert tree.evictable_tokens == instance.kv.cached_free_blocks  # blocks of one token
    roots = [node for node in tree.nodes if node.depth == 0]
    assert sum(node.locks for node in roots) == sum(len(node.requests) for node in tree.nodes) == len(instance.running)
    assert min(node.accesses_ago for node in tree.nodes) == 0
    assert [node.accesses_ago for node in roots] == sorted(node.accesses_ago for node in roots)


@pytest.mark.parametrize(("width", "height"), [(78, 12), (78, 20), (118, 34)])
def test_the_tree_takes_half_of_the_pane_at_most(retracting: Debugger, width: int, height: int) -> None:
    rows = text_of(kv_map(view_at(retracting), width, height)).splitlines()
    first = next(at for at, row in enumerate(rows) if row.startswith("radix tree"))
    shown = [row for row in rows[first + 1 :] if row.strip().startswith("└")]
    assert len(rows) <= height
    assert all(len(row) <= width for row in rows)
    assert 2 <= len(shown) <= height // 2
    assert rows[first + 1 + len(shown)].startswith("… ")
    assert "lock" in shown[0]
    assert "used last" in shown[0]


def test_without_a_tree_none_is_shown(pressed: Debugger) -> None:
    assert "radix tree" not in text_of(kv_map(view_at(pressed), 78, 30))


def test_of_several_instances_the_pane_says_how_to_see_a_tree(retracting: Debugger) -> None:
    two = debugger("retraction", 40, cluster__instances=2)
    said = "Select one instance to see its radix tree."
    assert said in " ".join(text_of(kv_map(view_at(two), 78, 30)).split())
    assert said not in text_of(kv_map(view_at(retracting), 78, 30))
