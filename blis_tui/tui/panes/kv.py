"""The KV cache by holder, and the nodes of a radix tree."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, percent_text, plural
from blis_tui.cluster.snapshot import SharedTierSnapshot
from blis_tui.debugger.why.explanation import request_ref
from blis_tui.results.conditions.breakpoints import CHANGE
from blis_tui.tui.drawing.life_line import GlyphStyle
from blis_tui.tui.drawing.lines import BLANK, Cell, Line, fact, flow, line, remark
from blis_tui.tui.panes.pane import Pane, PaneKey, at_selected, change_of_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot, NodeSnapshot, TierSnapshot
    from blis_tui.debugger.why.explanation import Subject
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
    states: int = 0
    """Of the blocks, those that hold its states in layers without keys and values."""


def holdings(instance: InstanceSnapshot) -> tuple[Holding, ...]:
    """Return all blocks of an instance: by request in order of admission, then shared, then free ones.

    Requests that compute their last tokens hold blocks, too, but are in no batch of a snapshot any more.
    """
    kv, states = instance.kv, _state_blocks(instance)
    holders = [*instance.running, *(request for request in instance.waiting if request.held_blocks)]
    held = [
        Holding(
            "private",
            request.held_blocks - request.shared_blocks,
            request.request_id,
            request.shared_blocks,
            request.computed_tokens,
            states if request.held_blocks else 0,
        )
        for request in holders
    ]
    rest = kv.used_blocks - sum(holding.blocks for holding in held)
    known = instance.running_count == len(instance.running) and rest <= sum(holding.shared for holding in held)
    held += [
        Holding("shared" if known else "others", rest),
        Holding("cached", kv.cached_free_blocks),
        Holding("blank", kv.blank_blocks),
    ]
    return tuple(held)


def _state_blocks(instance: InstanceSnapshot) -> int:
    """Number of blocks that hold the states of one request."""
    groups = instance.profile.limits.kv_groups
    return 0 if groups is None else groups.states


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

    def row(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield the holdings of a row, each with its number of cells there."""
        for at, run in groupby(self.cells[row * self.columns : (row + 1) * self.columns]):
            yield at, len(list(run))


def kv_grid(instance: InstanceSnapshot, columns: int, rows: int) -> KvGrid:
    """Return the map of an instance with the fewest blocks per cell that fit, a power of two."""
    held = holdings(instance)
    total = instance.kv.total_blocks
    filled = total - instance.kv.blank_blocks
    drawn = min(total, filled * _ZOOM) if filled else total
    per_cell = 1
    while drawn > per_cell * columns * rows:
        per_cell *= 2
    drawn = min(total, -(-drawn // (per_cell * columns)) * per_cell * columns)  # full rows
    cells = tuple(_owners(held, drawn, per_cell))
    return KvGrid(instance.index, held, per_cell, cells, columns, total - drawn)


def _owners(held: Sequence[Holding], total: int, per_cell: int) -> Iterator[int]:
    """Yield, for each cell, the holding with most of its blocks; the first one in a tie."""
    ends = list(accumulate(holding.blocks for holding in held))
    for start in range(0, total, per_cell):
        end = min(start + per_cell, total)
        best, most = 0, 0
        for at in range(bisect_right(ends, start), bisect_right(ends, end - 1) + 1):
            part = min(ends[at], end) - max(ends[at] - held[at].blocks, start)
            if part > most:
                best, most = at, part
        yield best


def kv_map(view: View, width: int, height: int) -> list[Line]:
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
    total = sum(instance.kv.total_blocks for instance in shown)
    for instance in shown:
        grid = kv_grid(instance, width, rows)
        lines += map(line, flow([*_figures(instance, alone=alone), _scale(grid.per_cell, grid.hidden)], width))
        lines += [
            Line(partial(_row, grid, row, selected), cells=partial(_cells, grid, row, total))
            for row in range(grid.rows)
        ]
    lines += legend
    if not about:
        hint = _hint(shown)
        if len(shown) > 1 and any(instance.kv.tree is not None for instance in shown):
            hint += " Select one instance to see its radix tree."
        lines += remark(hint, width)
    lines += tree
    return lines + _held_by(shown, width)[: max(height - len(lines), 0)]


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
    parts: list[Part] = []
    for at, size in grid.row(row):
        holding, rest = grid.found[at], size
        look = BLOCK_STYLES[_kind(holding, at, selected)]
        if holding.request not in ("", selected) and len(holding.request) + _AROUND_NAME <= size:
            parts += [(look.glyph, look.style), (f" {holding.request} ", f"{look.style} bold")]
            rest -= len(holding.request) + 3
        parts.append((look.glyph * rest, look.style))
    return Content.assemble(*parts)


def _cells(grid: KvGrid, row: int, total: int) -> Iterator[Cell]:
    """Yield the holdings of a row; the cursor also stops at requests whose blocks are too few for a cell."""
    last = grid.cells[row * grid.columns - 1] if row else -1
    for at, size in grid.row(row):
        yield from _without_cell(grid.found[last + 1 : at])
        holding = grid.found[at]
        about = request_ref(holding.request) if holding.request else None
        yield Cell(size, about, holding_text(holding, total))
        last = at
    if row == grid.rows - 1:
        yield from _without_cell(grid.found[last + 1 :])


def _without_cell(held: Sequence[Holding]) -> Iterator[Cell]:
    yield from (Cell(0, request_ref(holding.request)) for holding in held if holding.request)


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
    if states := _state_blocks(instance):
        figures.append(fact("states", f"{plural(states, 'block')} a request"))
    return figures if alone else [Content.styled(f"instance {instance.index}", "bold"), *figures]


def _below(shown: Sequence[InstanceSnapshot], width: int, *, alone: bool) -> list[Line]:
    """Return a bar for each tier below the GPU's cache; one for a tier that instances share."""
    lines: list[Line] = []
    shared: dict[str, list[SharedTierSnapshot]] = {}
    for instance in shown:
        for tier in instance.kv.below:
            if isinstance(tier, SharedTierSnapshot):
                shared.setdefault(tier.name, []).append(tier)
                continue
            name = tier.name if alone else f"instance {instance.index} {tier.name}"
            lines += _tier(tier, name, f", {count_text(tier.came_back)} reloaded", width)
    for name, tiers in shared.items():
        came, foreign = sum(tier.came_back for tier in tiers), sum(tier.from_others for tier in tiers)
        text = f", {count_text(came)} reloaded {'by this instance' if alone else 'by these instances'}"
        text += f", {count_text(foreign)} of them stored by others" if foreign else ""
        lines += _tier(tiers[0], f"{name} (shared)", text, width)
    return lines


def _tier(tier: TierSnapshot, name: str, came: str, width: int) -> Iterator[Line]:
    filled = round(_BAR * tier.used_blocks / tier.total_blocks) if tier.total_blocks else 0
    look, rest = BLOCK_STYLES["below"], BLOCK_STYLES["blank"]
    parts = (
        Content.assemble(f"{name} ", (look.glyph * filled, look.style), (rest.glyph * (_BAR - filled), rest.style)),
        Content.assemble(
            f"{count_text(tier.used_blocks)} of {plural(tier.total_blocks, 'block')}", (came, "$text-muted")
        ),
    )
    return map(line, flow(parts, width))


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
    held = sorted(
        (holding for each in shown for holding in holdings(each) if holding.request),
        key=lambda holding: -holding.blocks,
    )
    items = (
        Content.assemble(holding.request, (f" {plural(holding.blocks, 'block')}", "$text-muted")) for holding in held
    )
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
    states = f" ({count_text(holding.states)} of states)" if holding.states else ""
    blocks = f"{plural(holding.blocks, 'block')}{states}{shared}"
    return f"{holding.request}: {blocks}, {plural(holding.tokens, 'token')}, {share} of the cache"


def _changes(_view: View, cursor: Subject | None) -> str:
    """Return what stops where the number of blocks changes: those of a request, or all."""
    return f"{CHANGE} kv.used" if cursor is None else change_of_request(cursor.value, "held_blocks")


PANE: Final = Pane(
    lines=lambda view, room: kv_map(view, room.width, room.height),
    keys=(PaneKey("left", "move(-1)"), PaneKey("right", "move(1)")),
    cursor=at_selected("request"),
    changes=_changes,
)
