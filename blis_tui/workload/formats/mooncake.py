"""Mooncake traces: requests with the ids of their prompts' blocks, so that prompts share the same prefixes again.

Source: https://github.com/kvcache-ai/Mooncake (``FAST25-release``). ``timestamp`` counts milliseconds from the start of
the trace. Each of the ``hash_ids`` stands for 512 tokens and everything before them; the last block may be shorter.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.base.units import plural
from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_rows import JsonRow, count_of, csv_only, json_lines
from blis_tui.workload.traces.trace_table import Interned, TraceColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.request import Segments
    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

BLOCK_TOKENS: Final = 512
_US_PER_MS: Final = 1000
_NOTHING: Final = -1
_SEVERAL: Final = -2


@TRACES.plugin("mooncake", "Mooncake: JSON lines with timestamp, input_length, output_length and hash_ids.")
def mooncake(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Prompts share the blocks with common ids; other keys are ignored."""
    csv_only(trace, problems)
    arrivals, inputs, outputs = array("q"), array("q"), array("q")
    blocks = _Blocks()
    for line, value in json_lines(text):
        row = JsonRow.of(line, value, problems)
        if row is not None:
            arrival, prompt = row.time_us("timestamp", _US_PER_MS), row.whole("input_length", least=1)
            output, ids = row.whole("output_length"), _ids(row, prompt)
            if arrival is not None and prompt is not None and output is not None and ids is not None:
                arrivals.append(arrival)
                inputs.append(prompt)
                outputs.append(output)
                blocks.add(ids)
        if len(arrivals) == trace.limit:
            break
    problems.check()
    return TraceColumns(
        arrival_us=arrivals, input_tokens=inputs, output_tokens=outputs, segments=Interned(blocks.segments(inputs))
    )


def _ids(row: JsonRow, prompt: int | None) -> list[int] | None:
    """Return the ids of a prompt's blocks."""
    key = "hash_ids"
    value = row.data.get(key)
    if not isinstance(value, list):
        row.note(key, "it is not a list" if key in row.data else f"there is no `{key}`", "list the ids of the blocks")
        return None
    ids = [count_of(one, row.line, key, row.problems) for one in value]
    known = [one for one in ids if one is not None]
    if len(known) < len(ids):
        return None
    if prompt is not None and len(ids) != -(-prompt // BLOCK_TOKENS):
        blocks = f"{plural(-(-prompt // BLOCK_TOKENS), 'block')} of {BLOCK_TOKENS}"
        message = f"a prompt of {prompt:,} tokens has {blocks}, not {len(ids):,}"
        row.note(key, message, "each id stands for 512 tokens, the last one for what is left")
        return None
    return known


class _Blocks:
    """The blocks of all prompts, from which shared segments are derived.

    A block that occurs in one prompt only is private. Blocks that always occur together form one segment: a prompt of
    12,000 tokens then has three or four segments instead of 24.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._ends = array("q")
        self._uses: dict[int, int] = {}
        self._before: dict[int, int] = {}
        """Block -> the block that always precedes it."""

    def add(self, ids: list[int]) -> None:
        """Add the blocks of the next prompt."""
        last = _NOTHING
        for one in ids:
            self._uses[one] = self._uses.get(one, 0) + 1
            if self._before.setdefault(one, last) != last:
                self._before[one] = _SEVERAL
            last = one
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def segments(self, prompts: array[int]) -> Iterator[Segments]:
        """Iterate over what each prompt, given its number of tokens, may share with others."""
        uses, before = self._uses, self._before
        start = 0
        for end, tokens in zip(self._ends, prompts, strict=True):
            ids = self._ids[start:end]
            while ids and uses[ids[-1]] == 1:
                ids.pop()
            found: list[tuple[str, int]] = []
            last, rest = _NOTHING, tokens
            for one in ids:
                part = min(BLOCK_TOKENS, rest)
                if found and before[one] == last and uses[one] == uses[last]:
                    found[-1] = (found[-1][0], found[-1][1] + part)
                else:
                    found.append((str(one), part))
                last, rest = one, rest - part
            yield tuple(found)
            start = end
