"""OpenAI's responses API, as vLLM serves it: nothing is stored, and a stream ends with ``response.completed``.

Beyond the API, ``ignore_eos`` (as in vLLM) and ``min_tokens`` are understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.live.serving.api import Asked, Event
from blis_tui.live.serving.conversation import Turn, call_text, conversation_tokens, text_of
from blis_tui.live.serving.fields import (
    RefusedError,
    body_of,
    flag_in,
    integer_in,
    limit_in,
    name_in,
    refuse_fields,
)
from blis_tui.live.serving.forms import form_in
from blis_tui.live.serving.openai_api import openai_error
from blis_tui.live.serving.tools import Function, Tools, as_listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.live.serving.api import Counts, Document, Head, Part, WriterMaker
    from blis_tui.live.serving.forms import Form

_STORED: Final = "nothing is stored here; send the whole conversation as `input`"
_NOT_SIMULATED: Final = {
    "previous_response_id": _STORED,
    "previous_response": _STORED,
    "conversation": _STORED,
    "background": "answers are waited for, or streamed",
    "prompt": "there are no prompt templates",
}
_FAILED_CODES: Final = {429: "rate_limit_exceeded"}
_COPIED: Final[Document] = {
    "instructions": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "reasoning": None,
    "service_tier": "auto",
    "text": None,
    "top_logprobs": None,
    "truncation": "disabled",
    "user": None,
}
"""Parameters that the answer repeats, with their defaults."""


class Responses:
    """``/v1/responses``."""

    def parse(self, document: object, longest: int) -> tuple[Asked, WriterMaker]:
        """Parse a request body.

        Raises:
            RefusedError: the request is invalid or unsupported.
        """
        body = body_of(document)
        refuse_fields(body, _NOT_SIMULATED)
        tools = _tools(body)
        call = tools.call()
        form = text.get("format") if isinstance(text := body.get("text"), dict) else None
        asked = Asked(
            model=name_in(body, "model"),
            prompts=(conversation_tokens(_turns(body), tools.text(), longest, "input"),),
            source="input",
            max_tokens=limit_in(body, "max_output_tokens"),
            limit="max_output_tokens",
            min_tokens=integer_in(body, "min_tokens", 0),
            ignore_eos=flag_in(body, "ignore_eos"),
            stream=flag_in(body, "stream"),
            user=name_in(body, "user"),
            form=call or form_in(form, "text"),
        )
        return asked, lambda head: _ResponseWriter(head, body, call)

    def refusal(self, error: RefusedError) -> Document:
        """Return the error document."""
        return openai_error(error)


# ---- prompts ----


def _turns(body: Mapping[str, object]) -> list[Turn]:
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise RefusedError(400, "`instructions` must be a text", "instructions")
    turns = [Turn("system", instructions)] if instructions else []
    given = body.get("input")
    if isinstance(given, str) and given:
        return [*turns, Turn("user", given)]
    if not isinstance(given, list) or not given:
        raise RefusedError(400, "`input` must be a text or a list of items", "input")
    for item in given:
        turn = _turn(item)
        # A message and its calls are one turn of the assistant, as in a chat.
        if turn is not None and turn.role == "assistant" and turns and turns[-1].role == "assistant":
            turns[-1] = Turn("assistant", turns[-1].text + turn.text)
        elif turn is not None:
            turns.append(turn)
    return turns


def _turn(item: object) -> Turn | None:
    """Return what an item says; None = reasoning, which templates leave out of later prompts.

    Raises:
        RefusedError: it is no item, or one that is stored elsewhere.
    """
    if not isinstance(item, dict):
        raise RefusedError(400, "each item of `input` must be an object", "input")
    kind = item.get("type", "message")
    if kind == "message" and isinstance(item.get("role"), str):
        return Turn(str(item["role"]), text_of(item.get("content")))
    if kind == "function_call" and isinstance(item.get("name"), str):
        return Turn("assistant", call_text(str(item["name"]), item.get("arguments") or "{}"))
    if kind == "function_call_output":
        return Turn("tool", text_of(item.get("output")))
    if kind == "reasoning":
        return None
    message = f"items of type `{str(kind)[:100]}` are not simulated; messages (with a role), calls (with a name) are"
    raise RefusedError(400, message, "input")


def _tools(body: Mapping[str, object]) -> Tools:
    listed = body.get("tools") or []
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise RefusedError(400, "`tools` must be a list of objects", "tools")
    functions = [
        Function.of(tool.get("name"), tool.get("description"), tool.get("parameters"), "tools")
        for tool in listed
        if tool.get("type") == "function"
    ]
    others = [as_listed(tool) for tool in listed if tool.get("type") != "function"]
    choice = body.get("tool_choice") or "auto"
    tools = Tools(functions, others)
    return tools.naming(choice.get("name")) if isinstance(choice, dict) else tools.with_choice(choice)


# ---- answers ----


class _ResponseWriter:
    """Writes a response, whose output is one item: a message, or the call of a function."""

    last_line = ""

    def __init__(self, head: Head, body: Mapping[str, object], call: Form | None) -> None:
        self._head = head
        self._body = body
        self._call = call
        self._number = 0
        self._item_id = f"{'msg' if call is None else 'fc'}_{head.number}"
        self._place = {"item_id": self._item_id, "output_index": 0}
        self._text_place = {**self._place, "content_index": 0}

    def whole(self, parts: Sequence[Part], total: Counts) -> Document:
        """Return a complete answer."""
        (part,) = parts
        status = _status(part)
        return self._response(status, [self._item(part.text, status)], total)

    def opening(self, total: Counts) -> Iterator[Event]:  # noqa: ARG002  (the protocol's signature)
        """Return that the response begins, and what it will be."""
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", response=self._response("in_progress", [], None))
        item = self._item("", "in_progress")
        if self._call is None:
            item["content"] = []
        yield self._event("response.output_item.added", output_index=0, item=item)
        if self._call is None:
            yield self._event("response.content_part.added", **self._text_place, part=_text_part(""))

    def part(self, part: Part) -> Iterator[Event]:
        """Return what has been added to the text or the arguments."""
        if part.text and self._call is None:
            yield self._event("response.output_text.delta", **self._text_place, delta=part.text, logprobs=[])
        elif part.text:
            yield self._event("response.function_call_arguments.delta", **self._place, delta=part.text)

    def closing(self, parts: Sequence[Part], total: Counts) -> Iterator[Event]:
        """Return the whole text or arguments, their item, and the response."""
        (part,) = parts
        item = self._item(part.text, _status(part))
        if self._call is None:
            yield self._event("response.output_text.done", **self._text_place, text=part.text, logprobs=[])
            yield self._event("response.content_part.done", **self._text_place, part=_text_part(part.text))
        else:
            done = {"name": self._call.function, "arguments": part.text}
            yield self._event("response.function_call_arguments.done", **self._place, **done)
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event("response.completed", response=self.whole(parts, total))

    def failure(self, error: RefusedError) -> Iterable[Event]:
        """Return that the response has failed."""
        code = _FAILED_CODES.get(error.status, "server_error")
        failed = {**self._response("failed", [], None), "error": {"code": code, "message": error.message}}
        return (self._event("response.failed", response=failed),)

    def _event(self, kind: str, **fields: object) -> Event:
        self._number += 1
        return Event({"type": kind, "sequence_number": self._number - 1, **fields}, kind)

    def _item(self, text: str, status: str) -> Document:
        item: Document = {"id": self._item_id, "status": status}
        if self._call is None:
            return {**item, "type": "message", "role": "assistant", "content": [_text_part(text)]}
        call_id = f"call_{self._head.number}"
        return {**item, "type": "function_call", "call_id": call_id, "name": self._call.function, "arguments": text}

    def _response(self, status: str, output: Sequence[Document], counts: Counts | None) -> Document:
        head = self._head
        copied = {name: self._body.get(name) for name in _COPIED}
        said = {name: default if copied[name] is None else copied[name] for name, default in _COPIED.items()}
        document: Document = {"id": f"resp_{head.number}", "object": "response", "created_at": head.created}
        document |= {"status": status, "model": head.model, "output": list(output), **said}
        document |= {"background": False, "previous_response_id": None, "prompt": None, "error": None}
        document["incomplete_details"] = {"reason": "max_output_tokens"} if status == "incomplete" else None
        document["usage"] = None if counts is None else _usage(counts)
        return document


def _status(part: Part) -> str:
    return "incomplete" if part.finish == "length" else "completed"


def _text_part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(counts: Counts) -> Document:
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts.prompt + counts.answer,
    }
