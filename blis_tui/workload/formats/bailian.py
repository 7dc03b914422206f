"""Traces of Alibaba's Bailian (Qwen): requests of conversations, with the ids of their prompts' blocks.

Source: https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon (README.md). ``timestamp`` counts seconds from the
start of the trace. Each of the ``hash_ids`` stands for 16 tokens and everything before them. ``parent_chat_id`` is the
request before it in the conversation, -1 = none; all requests that lead to the same first one are a session. The
``type`` of a request (text, search, image, file) is not read: its tokens are counted like any others.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_blocks import IDS, Blocks, block_ids
from blis_tui.workload.traces.trace_rows import JsonRow, csv_only, json_lines
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns, omissions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

BLOCK_TOKENS: Final = 16
_US_PER_S: Final = 1_000_000
_ROOT: Final = -1
_PARENT: Final = "parent_chat_id"


@TRACES.plugin(
    "bailian", "Bailian (Qwen): JSON lines with chat_id, parent_chat_id, timestamp in seconds, lengths and hash_ids."
)
def bailian(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Prompts share the blocks with common ids, and have their whole length in the file."""
    csv_only(trace, problems)
    arrivals, inputs, outputs, turns = array("q"), array("q"), array("q"), array("q")
    chats, parents = array("q"), array("q")
    blocks = Blocks(trace.block_size_tokens or BLOCK_TOKENS)
    unnamed = 0
    for line, value in json_lines(text):
        row = JsonRow.of(line, value, problems)
        if row is not None:
            prompt = row.whole("input_length", least=1)
            cells = (
                *(row.time_us("timestamp", _US_PER_S), prompt, row.whole("output_length"), row.whole("chat_id")),
                *(_parent(row), row.whole("turn", least=1) if "turn" in row.data else 1),
            )
            ids = block_ids(row, prompt, blocks.block_tokens, whole=True) if row.data.get(IDS) else []
            if ids is not None and None not in cells:
                for column, cell in zip((arrivals, inputs, outputs, chats, parents, turns), cells, strict=True):
                    column.append(cell or 0)
                blocks.add(ids)
                unnamed += not ids
        if len(arrivals) == trace.limit:
            break
    problems.check()
    why = f"of blocks (`{IDS}`) that are missing or empty: these prompts share nothing"
    return TraceColumns(
        arrival_us=arrivals,
        input_tokens=inputs,
        output_tokens=outputs,
        segments=Interned(blocks.segments(inputs, whole=trace.pacing == "answers")) if blocks.any else None,
        session_id=Interned(f"chat-{root}" for root in _roots(chats, parents)),
        round_index=turns,
        left_out=omissions(LeftOut(unnamed, "list", why)),
    )


def _parent(row: JsonRow) -> int | None:
    """Return the chat that a request continues, -1 = none; None = it is invalid, which is noted."""
    if row.data.get(_PARENT, _ROOT) == _ROOT and not isinstance(row.data.get(_PARENT), bool):
        return _ROOT
    return row.whole(_PARENT)


def _roots(chats: array[int], parents: array[int]) -> Iterator[int]:
    """Iterate over the first request of each one's conversation that is in the file."""
    parent = dict(zip(chats, parents, strict=True))
    roots: dict[int, int] = {}
    for chat in chats:
        path: dict[int, None] = {}
        node = chat
        while node not in roots and node not in path and parent[node] in parent:
            path[node] = None
            node = parent[node]
        root = roots.get(node, node)
        for passed in (*path, node):
            roots[passed] = root
        yield root
