"""Anthropic's messages API, as vLLM serves it, and its counts of tokens.

Beyond the API, ``ignore_eos`` and ``min_tokens`` are understood as in vLLM's other APIs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.input_files import parse_json
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
from blis_tui.live.serving.tools import Function, Tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.live.serving.api import Counts, Document, Head, Part, WriterMaker
    from blis_tui.live.serving.forms import Form

_ERRORS: Final = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "ctx": "user", "msg": "user"}
"""Roles, with those that Claude Code sends beside them, as vLLM reads them."""
_BILLING: Final = "x-anthropic-billing-header"
"""Begins a system text that differs in each request; vLLM leaves it out, because it would spoil the prefix cache."""
_CHOICES: Final = {"auto": "auto", "any": "required", "tool": "", "none": "none"}


class Messages:
    """``/v1/messages``."""

    def parse(self, document: object, longest: int) -> tuple[Asked, WriterMaker]:
        """Parse a request body.

        Raises:
            RefusedError: the request is invalid or unsupported.
        """
        body = body_of(document)
        refuse_fields(body, {"container": "there are none", "mcp_servers": "none is called"})
        tools = _tools(body)
        call = tools.call()
        config = body.get("output_config")
        form = config.get("format") if isinstance(config, dict) else None
        limit = limit_in(body, "max_tokens")
        if limit is None:
            raise RefusedError(400, "`max_tokens` is required", "max_tokens")
        metadata = body.get("metadata")
        user = name_in(metadata, "user_id") if isinstance(metadata, dict) else ""
        asked = Asked(
            model=name_in(body, "model"),
            prompts=(message_prompt(body, longest, tools),),
            source="messages",
            max_tokens=limit,
            min_tokens=integer_in(body, "min_tokens", 0),
            ignore_eos=flag_in(body, "ignore_eos"),
            stream=flag_in(body, "stream"),
            user=user,
            form=call or form_in(form, "output_config"),
        )
        return asked, lambda head: _MessageWriter(head, call)

    def refusal(self, error: RefusedError) -> Document:
        """Return the error document."""
        kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}


# ---- prompts ----


def message_prompt(body: Mapping[str, object], longest: int, tools: Tools | None = None) -> list[int]:
    """Return the tokens of the conversation in a body.

    Args:
        body: with ``system``, ``messages``, and ``tools`` unless they have been read already.
        longest: the most tokens that it may have.
        tools: its tools.

    Raises:
        RefusedError: it is no conversation.
        TooLongError: it has more than ``longest`` tokens.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError(400, "`messages` must be a list of messages", "messages")
    system = _system_text(body.get("system"))
    turns: list[Turn] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or role not in _ROLES:
            raise RefusedError(400, "each message needs the role `user` or `assistant`", "messages")
        if role == "system":
            system += _system_text(message.get("content"))
        else:
            turns += _turns(_ROLES[str(role)], message.get("content"))
    if system:
        turns.insert(0, Turn("system", system))
    listed = (_tools(body) if tools is None else tools).text()
    return conversation_tokens(turns, listed, longest, "messages")


def _system_text(content: object) -> str:
    if content is not None and not isinstance(content, str | list):
        raise RefusedError(400, "`system` must be a text or a list of text blocks", "system")
    if isinstance(content, list):
        texts = [text_of([block]) for block in content]
        return "".join(text for text in texts if not text.startswith(_BILLING))
    return content or ""


def _turns(role: str, content: object) -> Iterator[Turn]:
    """Iterate over the turns of a message: the results of tools are turns of their own, before what else it says."""
    if not isinstance(content, str | list):
        raise RefusedError(400, "`content` of a message must be a text or a list of blocks", "messages")
    if isinstance(content, str):
        yield Turn(role, content)
        return
    said = ""
    results = 0
    for block in content:
        if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
            raise RefusedError(400, "each block of `content` needs a type", "messages")
        if kind == "tool_result":
            results += 1
            yield Turn("tool", text_of(block.get("content")))
        elif kind == "tool_use":
            if not isinstance(name := block.get("name"), str):
                raise RefusedError(400, "each `tool_use` block needs a name", "messages")
            said += call_text(name, block.get("input") or {})
        elif kind == "text":
            said += text_of([block])
    if said or not results:
        yield Turn(role, said)


def _tools(body: Mapping[str, object]) -> Tools:
    listed = body.get("tools") or []
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise RefusedError(400, "`tools` must be a list of objects", "tools")
    if not all(isinstance(tool.get("input_schema"), dict) for tool in listed):
        raise RefusedError(400, "each of `tools` needs an `input_schema`: tools of a server are not simulated", "tools")
    tools = Tools(
        [Function.of(tool.get("name"), tool.get("description"), tool["input_schema"], "tools") for tool in listed]
    )
    choice = body.get("tool_choice")
    if choice is None:
        return tools
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in _CHOICES:
        message = "`tool_choice` must have the type `auto`, `any`, `tool` or `none`"
        raise RefusedError(400, message, "tool_choice")
    return tools.naming(choice.get("name")) if kind == "tool" else tools.with_choice(_CHOICES[str(kind)])


# ---- answers ----


class _MessageWriter:
    """Writes a message, whose content is one block: a text, or the use of a tool."""

    last_line = ""

    def __init__(self, head: Head, call: Form | None) -> None:
        self._head = head
        self._call = call

    def whole(self, parts: Sequence[Part], total: Counts) -> Document:
        """Return a complete answer."""
        (part,) = parts
        if self._call is None:
            block: Document = {"type": "text", "text": part.text}
        else:
            block = {**self._tool_use(self._call), "input": _input(part.text)}
        return self._message([block], self._reason(part), total)

    def opening(self, total: Counts) -> Iterator[Event]:
        """Return that the message and its block begin."""
        yield _event("message_start", message=self._message([], None, total))
        block = {"type": "text", "text": ""} if self._call is None else {**self._tool_use(self._call), "input": {}}
        yield _event("content_block_start", index=0, content_block=block)

    def part(self, part: Part) -> Iterator[Event]:
        """Return what has been added to the block."""
        if part.text and self._call is None:
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": part.text})
        elif part.text:
            delta = {"type": "input_json_delta", "partial_json": part.text}
            yield _event("content_block_delta", index=0, delta=delta)

    def closing(self, parts: Sequence[Part], total: Counts) -> Iterator[Event]:
        """Return that the block and the message end."""
        (part,) = parts
        yield _event("content_block_stop", index=0)
        delta = {"stop_reason": self._reason(part), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=_usage(total))
        yield _event("message_stop")

    def failure(self, error: RefusedError) -> Iterable[Event]:
        """Return the error."""
        return (Event(Messages().refusal(error), "error"),)

    def _tool_use(self, call: Form) -> Document:
        return {"type": "tool_use", "id": f"toolu_{self._head.number}", "name": call.function}

    def _reason(self, part: Part) -> str:
        if part.finish == "length":
            return "max_tokens"
        return "end_turn" if self._call is None else "tool_use"

    def _message(self, content: Sequence[Document], reason: str | None, total: Counts) -> Document:
        document: Document = {"id": f"msg_{self._head.number}", "type": "message", "role": "assistant"}
        document |= {"model": self._head.model, "content": list(content)}
        return {**document, "stop_reason": reason, "stop_sequence": None, "usage": _usage(total)}


def _event(kind: str, **fields: object) -> Event:
    return Event({"type": kind, **fields}, kind)


def _input(arguments: str) -> object:
    """Return the arguments of a call as a value; those that are cut off at the most tokens have none."""
    try:
        return parse_json(arguments)
    except ValueError:
        return {}


def _usage(counts: Counts) -> Document:
    """Return token counts: in this API, cached tokens are not among those of the input."""
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.answer,
    }
