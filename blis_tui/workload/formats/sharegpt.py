"""Conversations as ShareGPT has them: texts without lengths and times.

As in ``vllm bench serve --dataset-name sharegpt``, a conversation is one request: its first message, answered by the
second; conversations without an answer are left out. Source: https://github.com/vllm-project/vllm
(``vllm/benchmarks/datasets.py``).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.trace_json import JsonRow, csv_only, json_values
from blis_tui.workload.trace_table import TraceColumns
from blis_tui.workload.traces import TRACES

if TYPE_CHECKING:
    from blis_tui.registry import NoSettings
    from blis_tui.spec.model import Trace
    from blis_tui.workload.trace_text import Problems, TraceText

BYTES_PER_TOKEN: Final = 4
"""Of a text in UTF-8, as tokenizers of today make of English and, with three bytes a character, of Chinese."""
_LISTS: Final = ("conversations", "conversation", "messages")
_TEXTS: Final = ("value", "content")


@TRACES.plugin(
    "sharegpt", "Conversations (JSON or JSON lines): first message and answer, four bytes a token; needs `rate_per_s`."
)
def sharegpt(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:
    """The file does not say when requests arrive."""
    del settings
    csv_only(trace, problems)
    inputs, outputs = array("q"), array("q")
    found = 0
    for line, value in json_values(text):
        row = JsonRow.of(line, value, problems)
        if row is None:
            continue
        found += 1
        lengths = _lengths(row)
        if lengths is not None:
            inputs.append(lengths[0])
            outputs.append(lengths[1])
        if len(inputs) == trace.limit:
            break
    problems.check()
    if not inputs and not text.cut:
        message = f"none of {found} conversations has a message and an answer"
        problems.fail(1, "", message, 'a conversation is {"conversations": [{"from": …, "value": …}, …]}')
    return TraceColumns(arrival_us=None, input_tokens=inputs, output_tokens=outputs)


def _lengths(row: JsonRow) -> tuple[int, int] | None:
    """Tokens of the first two messages; None = one is missing or empty, or something is wrong, which is noted."""
    key = next((name for name in _LISTS if name in row.data), None)
    if key is None:
        row.note("", "there is no list of messages", "it is called `conversations` or `messages`")
        return None
    messages = row.data[key]
    if not isinstance(messages, list):
        row.note(key, "it is not a list")
        return None
    lengths: list[int] = []
    for number, message in enumerate(messages[:2]):
        text = next((message[name] for name in _TEXTS if name in message), None) if isinstance(message, dict) else None
        if not isinstance(text, str):
            row.note(f"{key}[{number}]", "the message has no text", "it is called `value` or `content`")
            return None
        lengths.append(-(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN))
    return (lengths[0], lengths[1]) if len(lengths) == 2 and all(lengths) else None
