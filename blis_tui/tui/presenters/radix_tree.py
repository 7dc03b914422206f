"""The nodes of a radix tree, SGLang's prefix cache, in the pane of the KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.tui.presenters.lines import BLANK, Line, fact, flow, line
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot, NodeSnapshot

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
