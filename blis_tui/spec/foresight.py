"""Whether a user's plug-in reads what no server knows in advance: the length of an answer that has not ended."""

from __future__ import annotations

import ast
from inspect import getsourcefile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from blis_tui.model.plug_ins import Plugin

_SEES_REQUESTS: Final = (
    "policy.scheduling",
    "policy.priority",
    "policy.batching",
    "policy.preemption.victim",
    "policy.preemption.restore",
)
"""Plug points whose plug-ins get the engine's requests; the control plane's get what their clients declared."""
_UNKNOWN: Final = "output_tokens"


def foresight(plugin: Plugin) -> str:
    """Return where the file of a plug-in reads ``output_tokens`` of something; empty = nowhere, or it sees none.

    It looks at names alone, so it also finds those of requests that have ended, which are known.
    """
    source = getsourcefile(plugin.make) if plugin.path in _SEES_REQUESTS and callable(plugin.make) else None
    if source is None:
        return ""
    path = Path(source)
    if not path.is_file():  # it is in an archive
        return ""
    lines = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr == _UNKNOWN and isinstance(node.ctx, ast.Load)
    ]
    if not lines:
        return ""
    more = "" if len(lines) == 1 else f" (and {len(lines) - 1} more)"
    return (
        f"{path.name}:{min(lines)}{more} reads `{_UNKNOWN}`, which no server knows before the answer has ended: such a"
        " policy is an oracle to compare others with (clients declare `max_output_tokens`)"
    )
