"""ShareGPT conversations: texts without lengths and times.

As in ``vllm bench serve --dataset-name sharegpt``, a conversation is one request: its first message, answered by the
second; conversations without an answer are left out. Source: https://github.com/vllm-project/vllm
(``vllm/benchmarks/datasets.py``). With ``pacing: answers`` it is a session with a request for each pair of messages,
whose prompt begins with all earlier messages; everything after a message without text or answer is left out.

WildChat (https://huggingface.co/datasets/allenai/WildChat, exported as JSON) and chats in OpenAI's form (``messages``)
are the same; what the ``system`` says in them is part of the next message. Their tokens are estimated from the bytes of
the texts (``bytes_per_token``), or counted by a tokenizer (``workload convert --tokenizer``,
https://github.com/huggingface/tokenizers).
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from importlib import import_module
from itertools import takewhile
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, cast

from blis_tui.base.errors import InputError
from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_rows import JsonRow, csv_only, json_values
from blis_tui.workload.traces.trace_table import Interned, LeftOut, TraceColumns, omissions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_LISTS: Final = ("conversations", "conversation", "messages")
_TEXTS: Final = ("value", "content")
_SYSTEM: Final = ("system", "developer")


@TRACES.plugin(
    "sharegpt", "Conversations (JSON or JSON lines): first message and answer, `bytes_per_token`; needs `rate_per_s`."
)
def sharegpt(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """The file has no arrival times."""
    csv_only(trace, problems)
    whole, count = trace.pacing == "answers", _counter(trace)
    inputs, outputs, rounds = array("q"), array("q"), array("q")
    sessions = Interned[str]()
    conversations = silent = later = 0
    in_list = text.head()[:1] == "["  # all of which is often on one line
    for number, (line, value) in enumerate(json_values(text)):
        row = JsonRow.of(line, value, problems, f"[{number}]" if in_list else "")
        if row is None:
            continue
        conversations += 1
        earlier_tokens = 0
        messages = _messages(row)
        turns = _turns(row, messages, count, whole=whole)
        silent += not turns
        later += len([entry for entry in messages if not _instructs(entry)]) - 2 * len(turns) if turns else 0
        for turn, (prompt, answer) in enumerate(turns):
            if len(inputs) == trace.limit:
                break
            inputs.append(earlier_tokens + prompt)
            outputs.append(answer)
            rounds.append(turn)
            sessions.extend([f"conversation-{conversations - 1}" if whole else ""])
            earlier_tokens += prompt + answer
        if len(inputs) == trace.limit:
            break
    problems.check()
    if not inputs and not text.cut:
        message = (
            f"none of {conversations:,} conversations has a message and an answer"
            if conversations
            else "it has no conversations"
        )
        problems.fail(1, "", message, 'a conversation is {"conversations": [{"from": …, "value": …}, …]}')
    why = "without an answer, or after one" if whole else "after the first answer (see `pacing`)"
    left_out = omissions(
        LeftOut(silent, "conversation", "without a message and its answer"), LeftOut(later, "message", why)
    )
    if not trace.tokenizer and inputs:
        why = f"that are not in the file: one for each {trace.bytes_per_token:g} bytes of text (`bytes_per_token`)"
        left_out += (LeftOut(2 * len(inputs), "token count", why),)
    columns = TraceColumns(arrival_us=None, input_tokens=inputs, output_tokens=outputs, left_out=left_out)
    return replace(columns, session_id=sessions, round_index=rounds) if whole else columns


def _messages(row: JsonRow) -> Sequence[object]:
    """Return the messages of a conversation, noting problems."""
    key = next((name for name in _LISTS if name in row.data), None)
    if key is None:
        row.note("", "there is no list of messages", "it is called `conversations` or `messages`")
        return ()
    messages = row.data[key]
    if not isinstance(messages, list):
        row.note(key, "it is not a list", "it lists messages")
        return ()
    return messages


class _Tokenizer(Protocol):
    """A tokenizer of Hugging Face's ``tokenizers``."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding:
        """Tokenize a text."""
        ...


class _Encoding(Protocol):
    """A tokenized text."""

    @property
    def ids(self) -> Sequence[int]:
        """Its tokens."""
        ...


def _counter(trace: Trace) -> Callable[[str], int]:
    """Return what counts, or estimates, the tokens of a text.

    Raises:
        InputError: the named tokenizer cannot be used.
    """
    if not trace.tokenizer:
        return lambda text: ceil(len(text.encode("utf-8", "replace")) / trace.bytes_per_token)
    advice = f"leave out --tokenizer: then {trace.bytes_per_token:g} bytes of text count as one token"
    try:
        module = import_module("tokenizers")
    except ImportError as error:
        raise InputError("--tokenizer needs the package `tokenizers`", help=f"install it, or {advice}") from error
    try:
        tokenizer = cast("_Tokenizer", module.Tokenizer.from_file(trace.tokenizer))
    except Exception as error:  # the library raises no narrower one
        message = f"{trace.tokenizer} is not a tokenizer: {error}"
        raise InputError(message, help="name the `tokenizer.json` of a model") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _instructs(message: object) -> bool:
    """Whether a message is no one's turn, but the system's part of the next one."""
    return isinstance(message, dict) and message.get("role") in _SYSTEM


def _turns(
    row: JsonRow, messages: Sequence[object], count: Callable[[str], int], *, whole: bool
) -> list[tuple[int, int]]:
    """Return token counts of messages and answers, up to the first missing or empty one, noting problems.

    ``whole``: of all, not only of the first two.
    """
    key = next((name for name in _LISTS if name in row.data), "")
    lengths: list[int] = []
    instructions = 0
    for number, message in enumerate(messages):
        if len(lengths) == 2 and not whole:
            break
        text = next((message[name] for name in _TEXTS if name in message), None) if isinstance(message, dict) else None
        if not isinstance(text, str):
            row.note(f"{key}[{number}]", "the message has no text", "it is called `value` or `content`")
            return []
        if _instructs(message):
            instructions += count(text)
        else:
            lengths.append(instructions + count(text))
            instructions = 0
    return [*takewhile(all, zip(lengths[::2], lengths[1::2], strict=False))]
