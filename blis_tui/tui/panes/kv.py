"""The KV cache by holder, and the nodes of a radix tree."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, percent_text, plural
from blis_tui.debugger.why.explanation import Subject, request_ref
from blis_tui.tui.drawing.life_line import GlyphStyle
from blis_tui.tui.drawing.lines import BLANK, Line, fact, flow, line, words
from blis_tui.tui.panes.pane_rows import GUTTER, Lines, LinesPane
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import MouseMove

    from blis_tui.cluster.snapshot import InstanceSnapshot, NodeSnapshot
    from blis_tui.tui.drawing.lines import Part
    from blis_tui.tui.view import View


_LEAST: Final = 4
"""Minimum number of lines for a tree: a blank one, its figures, and two nodes."""
_DEEPEST: Final = 8
"""Maximum number of indented levels."""
_NAMED: Final = 2
"""Maximum number of requests named per node."""


def tree_lines(shown: Sequence[InstanceSnapshot], width: int, rows: int) -> list[Line]:
    """Return the tree of an instance in at most ``rows`` lines; empty for several instances, or without a tree."""
    tree = shown[0].kv.tree if len(shown) == 1 else None
    if tree is None or not tree.count or rows < _LEAST:
        return []
    figures = [
        fact("radix tree", plural(tree.count, "node")),
        Content.assemble(f"{count_text(tree.locked_tokens)} tokens ", ("locked", "$text-muted")),
        Content.assemble(f"{count_text(tree.evictable_tokens)} tokens ", ("evictable", "$text-muted")),
    ]
    lines = [BLANK, *map(line, flow(figures, width))]
    room = rows - len(lines)
    fits = tree.count <= room and tree.count == len(tree.nodes)
    nodes = tree.nodes if fits else tree.nodes[: max(room - 1, 1)]
    lines += [line(_node(node)) for node in nodes]
    if not fits:
        lines.append(line(Content.styled(f"… {count_text(tree.count - len(nodes))} more", "$text-muted")))
    return lines


def _node(node: NodeSnapshot) -> Content:
    indent = "  " * min(node.depth, _DEEPEST)
    ago = {0: "used last", 1: "used 1 access ago"}.get(node.accesses_ago, f"used {node.accesses_ago:,} accesses ago")
    lock = plural(node.locks, "lock") if node.locks else "unlocked"
    place = ("  on the host, too" if node.device else "  on the host alone") if node.host else ""
    names = ", ".join(node.requests[:_NAMED]) + (" …" if len(node.requests) > _NAMED else "")
    return Content.assemble(
        (f"{indent}└ ", "$text-muted"),
        plural(node.tokens, "token"),
        (f"  {lock}", "$success" if not node.locks else "$primary"),
        (place, "$primary" if node.device else "$warning"),
        (f"  {ago}", "$text-muted"),
        f"  {names}" if names else "",
    )


BLOCK_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        "private": GlyphStyle("█", "private", "$primary"),
        "neighbour": GlyphStyle("▓", "private", "$primary"),
        "selected": GlyphStyle("▚", "selected", "$accent bold"),
        "others": GlyphStyle("▒", "of other requests, or shared", "$primary"),
        "shared": GlyphStyle("◆", "shared", "$success"),
        "cached": GlyphStyle("░", "evictable (cached)", "$success"),
        "below": GlyphStyle("▤", "off the GPU", "$warning"),
        "blank": GlyphStyle("·", "free (empty)", "$text-muted"),
    }
)
"""Look of a cell by the kind of its blocks; private blocks of neighbouring requests alternate between two looks."""
_LEGEND: Final = ("private", "others", "shared", "cached", "blank")
_BAR: Final = 20
"""Width of a tier's bar."""
_AROUND_NAME: Final = 5
"""Cells that a request's area needs besides its name to contain the name."""
_LEAST_ROWS: Final = 2
_ZOOM: Final = 4
"""If less than this fraction (1/n) of a cache is in use, most of its empty blocks are not drawn."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Blocks of one kind: those of one request, or all shared, or all free ones."""

    kind: str
    """A key of ``BLOCK_STYLES``; ``private`` for those of a request."""
    blocks: int
    request: str = ""
    shared: int = 0
    """Shared blocks that the request also holds."""
    tokens: int = 0
    """Tokens of the request in the cache."""


def holdings(instance: InstanceSnapshot) -> tuple[Holding, ...]:
    """Return all blocks of an instance: by request in order of admission, then shared, then free ones.

    Requests that compute their last tokens hold blocks, too, but are in no batch of a snapshot any more.
    """
    kv = instance.kv
    holders = [*instance.running, *(request for request in instance.waiting if request.held_blocks)]
    found = [
        Holding(
            "private",
            request.held_blocks - request.shared_blocks,
            request.request_id,
            request.shared_blocks,
            request.computed_tokens,
        )
        for request in holders
    ]
    rest = kv.used_blocks - sum(holding.blocks for holding in found)
    known = instance.running_count == len(instance.running) and rest <= sum(holding.shared for holding in found)
    found += [
        Holding("shared" if known else "others", rest),
        Holding("cached", kv.cached_free_blocks),
        Holding("blank", kv.blank_blocks),
    ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class KvGrid:
    """An instance's map, with one or more blocks per cell.

    Attributes:
        instance: its index.
        found: the holdings on the map.
        per_cell: blocks per cell; the last cell may have fewer.
        cells: for each cell, the index in ``found`` of the holding with the most blocks.
        columns: cells per row.
        hidden: empty blocks that are not drawn, to make the others visible.
    """

    instance: int
    found: tuple[Holding, ...]
    per_cell: int
    cells: tuple[int, ...]
    columns: int
    hidden: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return -(-len(self.cells) // self.columns)

    def row_of(self, request: str) -> int | None:
        """Return the first row of a request's cells."""
        return next(
            (place // self.columns for place, at in enumerate(self.cells) if self.found[at].request == request), None
        )

    def at(self, row: int, column: int) -> Holding | None:
        """Return the holding of a cell."""
        place = row * self.columns + column
        inside = 0 <= column < self.columns and 0 <= place < len(self.cells)
        return self.found[self.cells[place]] if inside else None


def kv_grid(instance: InstanceSnapshot, columns: int, rows: int) -> KvGrid:
    """Return the map of an instance with the fewest blocks per cell that fit, a power of two."""
    found = holdings(instance)
    total = instance.kv.total_blocks
    filled = total - instance.kv.blank_blocks
    drawn = min(total, filled * _ZOOM) if filled else total
    per_cell = 1
    while drawn > per_cell * columns * rows:
        per_cell *= 2
    drawn = min(total, -(-drawn // (per_cell * columns)) * per_cell * columns)  # full rows
    cells = tuple(_owners(found, drawn, per_cell))
    return KvGrid(instance.index, found, per_cell, cells, columns, total - drawn)


def _owners(found: Sequence[Holding], total: int, per_cell: int) -> Iterator[int]:
    """Yield, for each cell, the holding with most of its blocks; the first one in a tie."""
    ends = list(accumulate(holding.blocks for holding in found))
    for start in range(0, total, per_cell):
        end = min(start + per_cell, total)
        best, most = 0, 0
        for at in range(bisect_right(ends, start), bisect_right(ends, end - 1) + 1):
            part = min(ends[at], end) - max(ends[at] - found[at].blocks, start)
            if part > most:
                best, most = at, part
        yield best


@dataclass(frozen=True, slots=True)
class KvMapText:
    """The lines of the pane, and the positions of maps."""

    lines: tuple[Line, ...]
    grids: tuple[tuple[int, KvGrid], ...]
    """Number of the first line of each map, and the map."""

    def at(self, row: int, column: int) -> Holding | None:
        """Return the holding at a position."""
        for first, grid in self.grids:
            if first <= row < first + grid.rows:
                return grid.at(row - first, column)
        return None

    def line_of(self, request: str) -> int | None:
        """Return the first line of a request's cells."""
        for first, grid in self.grids:
            row = grid.row_of(request)
            if row is not None:
                return first + row
        return None

    def requests(self) -> tuple[str, ...]:
        """Return all requests on the maps, in order."""
        return tuple(holding.request for _, grid in self.grids for holding in grid.found if holding.request)


def kv_map(view: View, width: int, height: int) -> KvMapText:
    """Return the maps of the selected instance or of all, with figures and a legend."""
    instances = view.moment.state.instances
    chosen = view.selection.instance
    shown = instances if chosen is None or not 0 <= chosen < len(instances) else (instances[chosen],)
    selected = view.selection.request or ""
    alone = len(instances) == 1
    legend = [*_below(shown, width, alone=alone), *_legend(shown, width)]
    about = _selected(shown, selected, width)
    tree = tree_lines(shown, width, height // 2)
    heads = [flow([*_figures(instance, alone=alone), _scale(1 << 20, 1 << 20)], width) for instance in shown]
    spent = len(legend) + max(len(about), 1) + sum(map(len, heads)) + len(tree)
    rows = max((height - spent) // len(shown), _LEAST_ROWS)
    lines: list[Line] = [*about]
    grids: list[tuple[int, KvGrid]] = []
    for instance in shown:
        grid = kv_grid(instance, width, rows)
        lines += map(line, flow([*_figures(instance, alone=alone), _scale(grid.per_cell, grid.hidden)], width))
        grids.append((len(lines), grid))
        lines += [Line(partial(_row, grid, row, selected)) for row in range(grid.rows)]
    lines += legend
    if not about:
        hint = _hint(shown)
        if len(shown) > 1 and any(instance.kv.tree is not None for instance in shown):
            hint += " Select one instance to see its radix tree."
        lines += [line(row) for row in words(hint, width, "$text-muted")]
    lines += tree
    lines += _held_by(shown, width)[: max(height - len(lines), 0)]
    return KvMapText(tuple(lines), tuple(grids))


def _hint(shown: Sequence[InstanceSnapshot]) -> str:
    """Return how to select a holder, or who holds the blocks if none can be selected."""
    if any(holding.request for instance in shown for holding in holdings(instance)):
        return "Arrows or a click select a request."
    if any(instance.kv.used_blocks for instance in shown):
        return "The blocks in use are of requests whose last step here is still under way."
    return "No request holds a block."


def _scale(per_cell: int, hidden: int) -> Content:
    cut = f", {plural(hidden, 'empty block')} not drawn" if hidden else ""
    return Content.styled(f"1 cell = {plural(per_cell, 'block')}{cut}", "$text-muted")


def _row(grid: KvGrid, row: int, selected: str) -> Content:
    cells = grid.cells[row * grid.columns : (row + 1) * grid.columns]
    parts: list[Part] = []
    for at, run in groupby(cells):
        holding, size = grid.found[at], len(list(run))
        look = BLOCK_STYLES[_kind(holding, at, selected)]
        if holding.request not in ("", selected) and len(holding.request) + _AROUND_NAME <= size:
            parts += [(look.glyph, look.style), (f" {holding.request} ", f"{look.style} bold")]
            size -= len(holding.request) + 3
        parts.append((look.glyph * size, look.style))
    return Content.assemble(*parts)


def _kind(holding: Holding, at: int, selected: str) -> str:
    if holding.kind != "private":
        return holding.kind
    if holding.request == selected:
        return "selected"
    return "neighbour" if at % 2 else "private"


def _figures(instance: InstanceSnapshot, *, alone: bool) -> list[Content]:
    kv = instance.kv
    share = percent_text(kv.found_tokens, kv.queried_tokens) if kv.queried_tokens else "none yet"
    used = f"{count_text(kv.used_blocks)} of {plural(kv.total_blocks, 'block')}"
    figures = [
        fact("used", f"{used}, {percent_text(kv.used_blocks, kv.total_blocks)}"),
        fact("cache hits", share),
    ]
    return figures if alone else [Content.styled(f"instance {instance.index}", "bold"), *figures]


def _below(shown: Sequence[InstanceSnapshot], width: int, *, alone: bool) -> list[Line]:
    """Return a bar for each tier below the GPU's cache."""
    lines: list[Line] = []
    for instance in shown:
        for tier in instance.kv.below:
            filled = round(_BAR * tier.used_blocks / tier.total_blocks) if tier.total_blocks else 0
            look, rest = BLOCK_STYLES["below"], BLOCK_STYLES["blank"]
            name = tier.name if alone else f"instance {instance.index} {tier.name}"
            share = f"{count_text(tier.used_blocks)} of {plural(tier.total_blocks, 'block')}"
            parts = (
                Content.assemble(
                    f"{name} ", (look.glyph * filled, look.style), (rest.glyph * (_BAR - filled), rest.style)
                ),
                Content.assemble(share, (f", {count_text(tier.came_back)} reloaded", "$text-muted")),
            )
            lines += map(line, flow(parts, width))
    return lines


def _legend(shown: Sequence[InstanceSnapshot], width: int) -> list[Line]:
    total = sum(instance.kv.total_blocks for instance in shown)
    counts = dict.fromkeys(_LEGEND, 0)
    for instance in shown:
        for holding in holdings(instance):
            counts[holding.kind] += holding.blocks
    items = []
    for kind, blocks in counts.items():
        if kind == "others" and not blocks:
            continue
        look = BLOCK_STYLES[kind]
        glyphs = look.glyph + (BLOCK_STYLES["neighbour"].glyph if kind == "private" else "")
        share = f"{count_text(blocks)} ({percent_text(blocks, total)})"
        items.append(Content.assemble((glyphs, look.style), (f" {look.word} ", "$text-muted"), share))
    return [line(row) for row in flow(items, width)]


def _held_by(shown: Sequence[InstanceSnapshot], width: int) -> list[Line]:
    """Return holders with numbers of blocks, the largest first, for the remaining rows."""
    held = sorted((one for each in shown for one in holdings(each) if one.request), key=lambda one: -one.blocks)
    items = (Content.assemble(one.request, (f" {plural(one.blocks, 'block')}", "$text-muted")) for one in held)
    return [BLANK, *map(line, flow(items, width, "    "))] if held else []


def _selected(shown: Sequence[InstanceSnapshot], selected: str, width: int) -> list[Line]:
    look = BLOCK_STYLES["selected"]
    for instance in shown:
        for holding in holdings(instance):
            if holding.request and holding.request == selected:
                text = f" {holding_text(holding, instance.kv.total_blocks)}"
                return [line(row) for row in flow([Content.assemble((look.glyph, look.style), text)], width)]
    return []


def holding_text(holding: Holding, total: int) -> str:
    """Return a holding in words."""
    share = percent_text(holding.blocks, total)
    if not holding.request:
        return f"{BLOCK_STYLES[holding.kind].word}: {plural(holding.blocks, 'block')}, {share}"
    shared = f" and {count_text(holding.shared)} shared" if holding.shared else ""
    blocks = f"{plural(holding.blocks, 'block')}{shared}"
    return f"{holding.request}: {blocks}, {plural(holding.tokens, 'token')}, {share} of the cache"


class _Cells(Lines, can_focus=False, inherit_bindings=False):
    """Lines with cells that have tooltips."""

    text: KvMapText | None = None

    def on_mouse_move(self, event: MouseMove) -> None:
        """Show a tooltip about the cell."""
        event.prevent_default()
        found = None
        if self.text is not None:
            found = self.text.at(event.y + self.scroll_offset.y, event.x - GUTTER)
        total = 0 if self.text is None else sum(sum(one.blocks for one in grid.found) for _, grid in self.text.grids)
        self.tooltip = None if found is None else holding_text(found, total)


class KvMap(LinesPane):
    """The holders of the KV cache's blocks."""

    BINDINGS: ClassVar = [
        Binding("left", "move(-1)", "previous request", show=False),
        Binding("right", "move(1)", "next request", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Create the cells."""
        yield _Cells()

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        cells = self.query_one(_Cells)
        cells.text = kv_map(view, width, max(self.content_size.height, 1))
        return cells.text.lines

    def key_of(self, view: View) -> str:
        """Return the selected request, which is marked on the map."""
        return view.selection.request or ""

    def action_move(self, by: int) -> None:
        """Select the next request on the map."""
        text = self.query_one(_Cells).text
        names = () if text is None else text.requests()
        if not names:
            return
        here = names.index(self._key) if self._key in names else None
        place = (0 if by > 0 else len(names) - 1) if here is None else min(max(here + by, 0), len(names) - 1)
        self._key = names[place]
        at = None if text is None else text.line_of(names[place])
        if at is not None:
            self.query_one(_Cells).reveal(at)
        self.post_message(Picked(request=names[place]))

    def action_move_page(self, by: int) -> None:
        """Scroll by a screen."""
        cells = self.query_one(_Cells)
        cells.scroll_relative(y=by * max(cells.size.height - 1, 1), animate=False)

    def action_choose(self) -> None:
        """Show the selected request."""
        if self._key:
            self.post_message(Picked(request=self._key, go=True))

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Select the request of a clicked cell."""
        event.stop()
        event.prevent_default()
        text = self.query_one(_Cells).text
        found = None if text is None else text.at(event.at, event.column)
        if found is not None and found.request:
            self._key = found.request
            self.post_message(Picked(request=found.request, go=event.chain > 1))

    def at_cursor(self) -> Subject | None:
        """Return the selected request."""
        return request_ref(self._key) if self._key else None
