"""TraceLab: rounds of coding agents, with what the engine reported of their prefixes, as JSON lines.

Source: https://github.com/ai-dynamo/aiperf (``src/aiperf/dataset/loader/_tracelab_convert.py``, which reads them). A
row is a round of a ``session_id``. It was sent at its latest input event (``user_message``, ``tool_result``) in
``timing_events``, and answered at its last output event (``text``, ``reasoning``, ``tool_call``). Of
``input_tokens_total``, the first ``prefix_tokens`` were in the cache: they are what the round before it, by time, and
its answer begin with. ``reasoning_output_tokens`` come before the ``output_tokens``. Which session is another one's
subagent is not in the file: each is a session of its own.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.cells import timestamp_ns
from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_rows import JsonRow, csv_only, json_lines
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns, omissions

if TYPE_CHECKING:
    from blis_tui.engine.request import Segments
    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_EVENTS: Final = "timing_events"
_INPUTS: Final = ("user_message", "tool_result")
_OUTPUTS: Final = ("text", "reasoning", "tool_call")
_THOUGHT: Final = "reasoning_output_tokens"


@TRACES.plugin("tracelab", "TraceLab: JSON lines with session_id, timing_events, input_tokens_total and prefix_tokens.")
def tracelab(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Rounds arrive when they were sent, counted from the earliest; those without times are left out."""
    csv_only(trace, problems)
    starts, took = array("q"), array("q")
    inputs, outputs, thoughts, prefixes = array("q"), array("q"), array("q"), array("q")
    sessions = Interned[str]()
    untimed = 0
    for line, value in json_lines(text):
        row = JsonRow.of(line, value, problems)
        times = None if row is None else _times_us(row)
        if row is None or times is None:
            untimed += row is not None
            continue
        prompt, answer = row.whole("input_tokens_total", least=1), row.whole("output_tokens")
        thought = 0 if row.data.get(_THOUGHT) is None else row.whole(_THOUGHT)
        prefix = 0 if row.data.get("prefix_tokens") is None else row.whole("prefix_tokens")
        name = row.text("session_id")
        if not name:
            row.note("session_id", "there is no text `session_id`", "it says which rounds follow one another")
        if prompt is not None and answer is not None and thought is not None and prefix is not None and name:
            starts.append(times[0])
            took.append(times[1])
            inputs.append(prompt)
            outputs.append(answer + thought)
            thoughts.append(thought)
            prefixes.append(min(prefix, prompt))
            sessions.extend([name])
        if len(inputs) == trace.limit:
            break
    problems.check()
    if not inputs and not text.cut:
        problems.fail(1, "", f"no round has `{_EVENTS}` with its times", "is it a trace of TraceLab?")
    first = min(starts, default=0)
    segments, answers = _contents(starts, sessions, inputs, outputs, prefixes)
    return TraceColumns(
        arrival_us=array("q", (start - first for start in starts)),
        input_tokens=inputs,
        output_tokens=outputs,
        segments=segments,
        answer=answers,
        session_id=sessions,
        reasoning_tokens=thoughts if any(thoughts) else None,
        e2e_us=took if any(duration >= 0 for duration in took) else None,
        left_out=omissions(LeftOut(untimed, "round", f"without the times of `{_EVENTS}`")),
    )


def _times_us(row: JsonRow) -> tuple[int, int] | None:
    """Return when a round was sent, and how long its answer took (-1 = unknown); None = it has no times."""
    events = row.data.get(_EVENTS)
    times_us: dict[bool, list[int]] = {True: [], False: []}
    for number, event in enumerate(events if isinstance(events, list) else ()):
        event_row = JsonRow.of(row.line, event, row.problems, f"{row.at(_EVENTS)}[{number}]")
        kind = "" if event_row is None else event_row.text("event_type")
        if event_row is None or kind not in (*_INPUTS, *_OUTPUTS) or not event_row.text("timestamp"):
            continue
        time_ns = timestamp_ns(event_row.text("timestamp"))
        if time_ns is None:
            event_row.note("timestamp", "it is no time", "write it as 2026-01-31T12:00:00.5Z")
        else:
            times_us[kind in _INPUTS].append(time_ns // 1000)
    sent, answered = times_us[True], times_us[False]
    if not sent and not answered:
        return None
    start = max(sent) if sent else min(answered)
    return start, max(0, max(answered) - start) if answered else -1


def _contents(
    starts: array[int], sessions: Interned[str], inputs: array[int], outputs: array[int], prefixes: array[int]
) -> tuple[list[Segments], list[str]]:
    """Return what each prompt consists of, and the name of its answer, for prompts that begin with it."""
    prompts: list[Segments] = [()] * len(starts)
    answers = [f"answer-{row}" for row in range(len(starts))]
    before: dict[str, Segments] = {}
    for row in sorted(range(len(starts)), key=lambda row: (starts[row], row)):
        kept: list[tuple[str, int]] = []
        rest = prefixes[row]
        for name, tokens in before.get(sessions[row], ()):
            if not rest:
                break
            kept.append((name, min(tokens, rest)))
            rest -= kept[-1][1]
        new = inputs[row] - prefixes[row] + rest
        if new:
            kept.append((f"round-{row}", new))
        prompts[row] = tuple(kept)
        before[sessions[row]] = (*prompts[row], *(((answers[row], outputs[row]),) if outputs[row] else ()))
    return prompts, answers
