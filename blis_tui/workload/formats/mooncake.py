"""Mooncake traces: requests with the ids of their prompts' blocks, so that prompts share the same prefixes again.

Source: https://github.com/kvcache-ai/Mooncake (``FAST25-release``). ``timestamp`` counts milliseconds from the start of
the trace. Each of the ``hash_ids`` stands for 512 tokens and everything before them; the last block may be shorter. A
row, or a first line without a request, may say another ``block_size``; where only the reader knows it, it is
``block_size_tokens``.

Dynamo and AIPerf add sessions (https://github.com/ai-dynamo/aiperf, ``MooncakeTrace`` in
``src/aiperf/dataset/loader/models.py``). A row with a ``session_id`` seen before may have, instead of its time, a
``delay``: milliseconds after the answer before it. ``pacing: answers`` replays that; by the clock, these answers take
no time. Rows without ``hash_ids`` share nothing, and in a session ``input_length`` is then new text after everything
said before (``context_mode: message_array_with_responses``: the whole prompt).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_blocks import IDS, Blocks, block_ids
from blis_tui.workload.traces.trace_rows import JsonRow, brief, csv_only, json_lines
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns

if TYPE_CHECKING:
    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

BLOCK_TOKENS: Final = 512
_US_PER_MS: Final = 1000
_TIME: Final = "timestamp"
_DELAY: Final = "delay"
_SIZE: Final = "block_size"
_SESSION: Final = "session_id"
_PROMPT: Final = "input_length"
_MODE: Final = "context_mode"
_WHOLE: Final = "message_array_with_responses"


@TRACES.plugin(
    "mooncake",
    "Mooncake, also with sessions: JSON lines with timestamp or delay, input_length, output_length and hash_ids.",
)
def mooncake(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Prompts share the blocks with common ids; other keys are ignored."""
    csv_only(trace, problems)
    rows = _Rows(trace)
    for line, value in json_lines(text):
        row = JsonRow.of(line, value, problems)
        if row is not None:
            rows.read(row)
        if len(rows.inputs) == trace.limit:
            break
    problems.check()
    return rows.columns()


class _Rows:
    """The requests read so far, and where each session is."""

    def __init__(self, trace: Trace) -> None:
        self.inputs, self._outputs, self._times = array("q"), array("q"), array("q")
        self._sessions, self._rounds = Interned[str](), array("q")
        self._trace = trace
        self._blocks: Blocks | None = None
        self._size = trace.block_size_tokens
        self._timed: bool | None = None
        """Whether sessions say when they begin; None = no row was read yet."""
        self._known: dict[str, tuple[int, int, int]] = {}
        """Session -> number of its requests, the latest one's time, and the tokens said until then."""
        self._delayed = 0

    def read(self, row: JsonRow) -> None:
        """Read a row, which may be a header; note what is wrong with it."""
        size = row.whole(_SIZE, least=1) if _SIZE in row.data else None
        if size is not None:
            self._agree(row, size)
        if _SIZE in row.data and not self._known and not self.inputs and _PROMPT not in row.data:
            return
        new, output = row.whole(_PROMPT, least=1), row.whole("output_length")
        session = self._session(row)
        turn, last_us, earlier_tokens = self._known.get(session, (0, 0, 0)) if session else (0, 0, 0)
        prompt = None if new is None else new + (0 if self._is_whole(row) else earlier_tokens)
        time_us, ids = self._time_us(row, session, turn, last_us), self._ids(row, prompt)
        if prompt is None or output is None or time_us is None or ids is None or session is None:
            return
        self.inputs.append(prompt)
        self._outputs.append(output)
        self._times.append(time_us)
        self._sessions.extend([session])
        self._rounds.append(turn)
        if self._blocks is not None:
            self._blocks.add(ids)
        if session:
            self._known[session] = (turn + 1, time_us, prompt + output)

    def columns(self) -> TraceColumns:
        """Return the requests."""
        sessions = bool(self._known)
        waits = self._trace.pacing == "answers"
        blocks = self._blocks
        why = "of sessions, for which the next request does not wait (`pacing: answers` does)"
        return TraceColumns(
            arrival_us=self._times if self._timed is not False else None,
            since_start_us=None if self._timed is not False else self._times,
            input_tokens=self.inputs,
            output_tokens=self._outputs,
            segments=None if blocks is None else Interned(blocks.segments(self.inputs, whole=waits and sessions)),
            session_id=self._sessions if sessions else None,
            round_index=self._rounds if sessions else None,
            left_out=(LeftOut(self._delayed, "answer", why),) if self._delayed and not waits else (),
        )

    def _agree(self, row: JsonRow, size: int) -> None:
        """Set the size of a block, or note that the file contradicts itself or the workload."""
        if self._size is None and not self.inputs:
            self._size = size
        elif size != (self._size or BLOCK_TOKENS):
            known = f"`block_size_tokens` is {self._size}" if self._trace.block_size_tokens else "others have"
            known += "" if self._trace.block_size_tokens else f" {self._size or BLOCK_TOKENS}"
            row.note(_SIZE, f"it is {size}, {known}", "ids of blocks of different sizes share nothing: split the file")

    def _session(self, row: JsonRow) -> str | None:
        """Return the session's name, empty if there is none; None = it is invalid, which is noted."""
        name = row.data.get(_SESSION)
        if isinstance(name, str) or (isinstance(name, int) and not isinstance(name, bool)):
            return str(name).encode("utf-8", "replace").decode()
        if name is None:
            return ""
        row.note(_SESSION, f"{brief(name)} is not a name", "write text or a whole number", cell=brief(name))
        return None

    def _is_whole(self, row: JsonRow) -> bool:
        """Whether a row's length is that of its whole prompt, and not of its new text."""
        return IDS in row.data or row.data.get(_MODE) == _WHOLE

    def _time_us(self, row: JsonRow, session: str | None, turn: int, last_us: int) -> int | None:
        """Return when a request is sent, from the trace's or, without times, the session's beginning."""
        later = bool(session) and turn > 0
        delayed, timed = row.data.get(_DELAY) is not None, row.data.get(_TIME) is not None
        if self._timed is None:
            self._timed = timed
        if delayed and not session:
            row.note(_DELAY, f"a row without `{_SESSION}` has a `{_DELAY}`", "it counts from a session's answer")
            return None
        if later and (not timed or (delayed and self._trace.pacing == "answers")):
            self._delayed += 1
            delay_us = row.time_us(_DELAY, _US_PER_MS) if delayed else 0
            if delayed or not self._timed:
                return None if delay_us is None else last_us + delay_us
        if self._timed:
            return row.time_us(_TIME, _US_PER_MS)
        if timed:
            row.note(_TIME, f"it has a `{_TIME}`, earlier rows have none", "say of all when they are sent, or of none")
            return None
        return row.time_us(_DELAY, _US_PER_MS) if delayed else 0

    def _ids(self, row: JsonRow, prompt: int | None) -> list[int] | None:
        """Return the ids of a prompt's blocks; all rows have them or none."""
        if not self.inputs and self._blocks is None and IDS in row.data:
            self._blocks = Blocks(self._size or BLOCK_TOKENS)
        if self._blocks is None and IDS not in row.data:
            return []
        if row.data.get(_MODE) not in (None, _WHOLE):
            message = f"{brief(row.data[_MODE])} says that prompts are new text, `{IDS}` name whole prompts"
            row.note(_MODE, message, f"remove `{IDS}`, or write `{_WHOLE}`", cell=brief(row.data[_MODE]))
            return None
        if self._blocks is None:
            row.note(IDS, "earlier rows have none", "name the blocks of all prompts, or of none")
            return None
        return block_ids(row, prompt, self._blocks.block_tokens, stated=self._size is not None)
