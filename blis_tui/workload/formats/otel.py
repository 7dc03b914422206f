"""Spans of model calls, by the semantic conventions of OpenTelemetry for generative AI.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/. The file contains OTLP JSON, as one object or
one after the other (as the Collector's file exporter writes them), or spans alone. A span counts as a request if it has
the token counts of prompt and answer, and is not an agent's span, which repeats the sums of its calls.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.cells import timestamp_ns
from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_rows import JsonRow, brief, count_of, csv_only, json_values
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns, omissions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_INPUT: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
"""Current names, and those before version 1.27."""
_BUDGET: Final = "gen_ai.request.max_tokens"
_OPERATION: Final = "gen_ai.operation.name"
_CALLS: Final = frozenset(("", "chat", "text_completion", "generate_content"))
_UNIX_EPOCH_NS: Final = timestamp_ns("1970-01-01 00:00:00") or 0
_LATEST_NS: Final = 2**63
_STARTS: Final = ("startTimeUnixNano", "start_time")
_TRACE_IDS: Final = ("traceId", "trace_id")
_SPAN_IDS: Final = ("spanId", "span_id")
_ENDS: Final = ("endTimeUnixNano", "end_time")


@TRACES.plugin(
    "otel", "OpenTelemetry GenAI spans (OTLP JSON or JSON lines) with gen_ai.usage.input_tokens and output_tokens."
)
def otel(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Requests arrive when their spans start, counted from the earliest; the calls of a conversation form a session."""
    csv_only(trace, problems)
    starts: list[int] = []
    inputs, outputs = array("q"), array("q")
    took, budgets = array("q"), array("q")
    sessions = Interned[str]()
    spans = others = again = 0
    known: set[bytes] = set()
    for line, value in json_values(text):
        for span in _spans(line, value, problems):
            spans += 1
            call = _call(span)
            others += call is None
            if call is not None and _is_known(span, known):
                again += 1
            elif call is not None and (trace.limit is None or len(starts) < trace.limit):
                starts.append(call[0])
                inputs.append(call[1])
                outputs.append(call[2])
                sessions.extend([call[3]])
                took.append(call[4])
                budgets.append(call[5])
        if len(starts) == trace.limit:
            break
    problems.check()
    if not starts and not text.cut:
        message = f"none of {spans} spans is a call of a model with `{_INPUT[0]}` and `{_OUTPUT[0]}`"
        problems.fail(1, "", message, "is it the trace of a client with GenAI instrumentation?")
    first = min(starts, default=0)
    arrivals = array("q", ((start - first) // 1000 for start in starts))
    return TraceColumns(
        arrival_us=arrivals,
        input_tokens=inputs,
        output_tokens=outputs,
        session_id=sessions,
        e2e_us=took,
        max_output_tokens=budgets if any(budgets) else None,
        left_out=omissions(
            LeftOut(others, "span", "without a model call and its token counts"),
            LeftOut(again, "span", "with the ids of an earlier one"),
        ),
    )


def _is_known(span: JsonRow, known: set[bytes]) -> bool:
    """Whether a span of this trace had the same id before; if not, record it."""
    ids = [span.text(names[0]) or span.text(names[1]) for names in (_TRACE_IDS, _SPAN_IDS)]
    if not ids[1]:
        return False
    key = "/".join(ids).encode("utf-8", "replace")
    if key in known:
        return True
    known.add(key)
    return False


def _spans(line: int, value: object, problems: Problems) -> Iterator[JsonRow]:
    """Iterate over the spans of an export, or the single one."""
    row = JsonRow.of(line, value, problems)
    if row is None:
        return
    if "resourceSpans" not in row.data:
        if "attributes" in row.data:
            yield row
        else:
            row.note(
                "", "it is neither an OTLP export nor a span", "an export has `resourceSpans`, a span `attributes`"
            )
        return
    for resource in _objects(row, "resourceSpans"):
        for scope in _objects(resource, "scopeSpans"):
            yield from _objects(scope, "spans")


def _objects(row: JsonRow, key: str) -> Iterator[JsonRow]:
    """Iterate over the objects in a list."""
    value = row.data.get(key, [])
    if not isinstance(value, list):
        row.note(key, f"`{key}` is {brief(value)}, not a list")
        return
    for number, entry in enumerate(value):
        child = JsonRow.of(row.line, entry, row.problems, f"{row.at(key)}[{number}]")
        if child is not None:
            yield child


def _call(span: JsonRow) -> tuple[int, int, int, str, int, int] | None:
    """Return start in nanoseconds, prompt, answer, conversation, duration and budget of a call; None = no valid call.

    A budget below the answer was counted differently, so none is returned.
    """
    attributes = _attributes(span)
    names = [next((name for name in group if name in attributes), None) for group in (_INPUT, _OUTPUT)]
    if attributes.get(_OPERATION, "") not in _CALLS or names[0] is None or names[1] is None:
        return None
    prompt = count_of(_number(attributes[names[0]]), span.line, span.at(names[0]), span.problems, least=1)
    output = count_of(_number(attributes[names[1]]), span.line, span.at(names[1]), span.problems)
    start = _time(span, _STARTS)
    if prompt is None or output is None or start is None:
        return None
    conversation = str(attributes.get("gen_ai.conversation.id", "")).encode("utf-8", "replace").decode()
    end = _time(span, _ENDS) if any(key in span.data for key in _ENDS) else None
    if end is not None and end < start:
        key = next(name for name in _ENDS if name in span.data)
        span.note(key, "the call ends before it begins", "are both times of one clock, in nanoseconds?")
        return None
    budget = _number(attributes.get(_BUDGET))
    declared = budget if isinstance(budget, int) and budget >= output else 0
    return start, prompt, output, conversation, -1 if end is None else (end - start) // 1000, declared


def _attributes(span: JsonRow) -> Mapping[str, object]:
    """Return a span's attributes: OTLP lists keys and typed values, SDKs write a map."""
    attributes = span.data.get("attributes", [])
    if isinstance(attributes, dict):
        return attributes
    made: dict[str, object] = {}
    for entry in attributes if isinstance(attributes, list) else ():
        if isinstance(entry, dict) and isinstance(value := entry.get("value"), dict) and value:
            made[str(entry.get("key"))] = next(iter(value.values()))
    return made


def _number(value: object) -> object:
    """Convert OTLP's 64-bit integers, which are text, to numbers."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value


def _time(span: JsonRow, keys: tuple[str, str]) -> int | None:
    key = next((name for name in keys if name in span.data), keys[0])
    value = _number(span.data.get(key))
    if isinstance(value, str) and (time_ns := timestamp_ns(value)) is not None:
        value = time_ns - _UNIX_EPOCH_NS
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST_NS:
        return value
    what = "begins" if keys is _STARTS else "ends"
    span.note(key, f"{brief(span.data.get(key))} is not a time", f"it says when the call {what}, in nanoseconds")
    return None
