"""Traces of coding agents in the form of Weka's kv-cache-tester (also AgentX): one object for each conversation.

Source: https://github.com/ai-dynamo/aiperf (``src/aiperf/dataset/loader/weka_trace_models.py``, which defines it). An
object has ``block_size``, ``hash_id_scope`` (``local``: ids of blocks mean something within it only) and ``requests``:
calls (``n``, streaming ``s``) and subagents with calls of their own. ``t`` counts seconds from the beginning of the
conversation; in a subagent, times before its own count from that. ``in`` and ``out`` are tokens, ``hash_ids`` name the
prompt's whole blocks, ``api_time`` is how long the answer took, in seconds.

A conversation, with its subagents, is a session. A file says when calls come within a conversation, but not when
conversations begin: several need ``rate_per_s``, which counts conversations.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_blocks import IDS, Blocks, block_ids
from blis_tui.workload.traces.trace_rows import JsonRow, csv_only, json_values
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns, omissions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_US_PER_S: Final = 1_000_000
_CALLS: Final = ("n", "s")
_SCOPES: Final = ("local", "global")
_TOOK: Final = "api_time"
_SIZE: Final = "block_size"
_REQUESTS: Final = "requests"


@TRACES.plugin("weka", "Weka (AgentX): JSON with conversations of agents: block_size, hash_id_scope and requests.")
def weka(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Prompts share the blocks with common ids; names of models, kinds of content and totals are ignored."""
    csv_only(trace, problems)
    rows = _Rows(trace)
    for line, value in json_values(text):
        row = JsonRow.of(line, value, problems)
        if row is not None:
            rows.read(row)
        if len(rows.inputs) == trace.limit:
            break
    problems.check()
    if not rows.inputs and not text.cut:
        problems.fail(1, "", "no conversation has a call of a model", "is it the trace of an agent?")
    return rows.columns()


class _Rows:
    """The calls read so far."""

    def __init__(self, trace: Trace) -> None:
        self.inputs, self._outputs, self._times = array("q"), array("q"), array("q")
        self._took, self._rounds = array("q"), array("q")
        self._sessions = Interned[str]()
        self._names = set[str]()
        self._trace = trace
        self._blocks: Blocks | None = None
        self._conversations = self._unnamed = self._ids = 0

    def read(self, conversation: JsonRow) -> None:
        """Read a conversation; note what is wrong with it."""
        size, scope = conversation.whole(_SIZE, least=1), conversation.text("hash_id_scope")
        if scope not in _SCOPES:
            conversation.note("hash_id_scope", f"it is not one of {', '.join(_SCOPES)}", "it says what equal ids mean")
        if self._blocks is None and size is not None:
            self._blocks = Blocks(size)
        if size is None or self._blocks is None or scope not in _SCOPES:
            return
        if size != self._blocks.block_tokens:
            message = f"it is {size}, in others {self._blocks.block_tokens}"
            conversation.note(_SIZE, message, "ids of blocks of different sizes share nothing: split the file")
            return
        name = conversation.text("id") or "conversation"
        if name in self._names or name == "conversation":
            name = f"{name}-{self._conversations}"
        self._names.add(name)
        self._conversations += 1
        numbers: dict[int, int] | None = {} if scope == "local" else None
        calls = sorted(_calls(conversation), key=lambda call: call[0])
        for turn, (time_us, call) in enumerate(calls):
            if len(self.inputs) == self._trace.limit:
                break
            self._add(name, turn, time_us, call, numbers)

    def _add(self, name: str, turn: int, time_us: int, call: JsonRow, numbers: dict[int, int] | None) -> None:
        """Add a call; ``numbers``: those of the conversation's ids, if they mean something within it only."""
        prompt, output = call.whole("in", least=1), call.whole("out")
        took = -1 if call.data.get(_TOOK) is None else call.time_us(_TOOK, _US_PER_S)
        blocks = self._blocks
        if blocks is None or prompt is None or output is None or took is None:
            return
        known = bool(call.data.get(IDS))
        ids = block_ids(call, prompt, blocks.block_tokens, whole=True, stated=True) if known else []
        if ids is None:
            return
        if numbers is not None:
            for block in ids:
                if numbers.setdefault(block, self._ids) == self._ids:
                    self._ids += 1
            ids = [numbers[block] for block in ids]
        self.inputs.append(prompt)
        self._outputs.append(output)
        self._times.append(time_us)
        self._took.append(took)
        self._rounds.append(turn)
        self._sessions.extend([name])
        blocks.add(ids)
        self._unnamed += not ids

    def columns(self) -> TraceColumns:
        """Return the calls."""
        alone = self._conversations == 1 and self._trace.rate_per_s is None
        why = f"of blocks (`{IDS}`) that are missing or empty: these prompts share nothing"
        blocks = self._blocks
        whole = self._trace.pacing == "answers"
        return TraceColumns(
            arrival_us=self._times if alone else None,
            since_start_us=None if alone else self._times,
            input_tokens=self.inputs,
            output_tokens=self._outputs,
            segments=None if blocks is None or not blocks.any else Interned(blocks.segments(self.inputs, whole=whole)),
            session_id=self._sessions,
            round_index=self._rounds,
            e2e_us=self._took if any(duration >= 0 for duration in self._took) else None,
            left_out=omissions(LeftOut(self._unnamed, "list", why)),
        )


def _calls(row: JsonRow, begin_us: int | None = None) -> Iterator[tuple[int, JsonRow]]:
    """Iterate over the calls of a conversation, or of a subagent that begins then, with times, noting problems."""
    requests = row.data.get(_REQUESTS)
    if not isinstance(requests, list):
        row.note(_REQUESTS, f"there is no list `{_REQUESTS}`", "it has the calls in order")
        return
    for number, value in enumerate(requests):
        call = JsonRow.of(row.line, value, row.problems, f"{row.at(_REQUESTS)}[{number}]")
        time_us = None if call is None else call.time_us("t", _US_PER_S)
        if call is None or time_us is None:
            continue
        time_us += begin_us if begin_us is not None and time_us < begin_us else 0
        kind = call.data.get("type")
        if kind in _CALLS:
            yield time_us, call
        elif kind == "subagent" and begin_us is None:
            yield from _calls(call, time_us)
        else:
            call.note("type", "it is no kind of call", "a call is `n` or `s`, and a conversation has `subagent`, too")
