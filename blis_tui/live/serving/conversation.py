"""Conversations as tokens, which are the same for equal conversations, whatever the API they come in.

They are written as chat templates (Hermes, Qwen) do: the role before each turn, tools behind the system message, calls
of tools as JSON in the assistant's turn, and their results as turns of the role ``tool``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.input_files import parse_json
from blis_tui.live.serving.fields import RefusedError, TooLongError
from blis_tui.live.serving.shared_prefixes import encode_chat

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSTRUCTING: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Turn:
    """A role, and what it says."""

    role: str
    text: str


def text_of(content: object) -> str:
    """Return a message's text; for a message in parts, that of its text parts, as images are not simulated."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def call_text(name: str, arguments: object) -> str:
    """Return the call of a tool as the assistant's turn has it.

    Args:
        name: the function.
        arguments: as JSON or its value, which templates write anew; a text that is not JSON is taken as it is.
    """
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except ValueError:
            return _call(name, str(arguments))
    return _call(name, json.dumps(arguments, ensure_ascii=False))


def _call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}</tool_call>'


def arguments_span(name: str, arguments: str) -> tuple[int, int]:
    """Return between which characters of a call's text its arguments are."""
    whole = _call(name, arguments)
    end = len(whole) - len("}</tool_call>")
    return end - len(arguments), end


def conversation_tokens(turns: Sequence[Turn], listed: str, longest: int, parameter: str) -> list[int]:
    """Return the tokens of a conversation with its tools, up to where its answer begins.

    Args:
        turns: the conversation.
        listed: the tools that the assistant may call, as the prompt has them.
        longest: the most tokens that a prompt may have.
        parameter: where the conversation came from, for errors.

    Raises:
        RefusedError: there are no turns.
        TooLongError: it has more than ``longest`` tokens.
    """
    if not turns:
        raise RefusedError(400, f"`{parameter}` has no message", parameter)
    if listed:
        first, rest = (turns[0], turns[1:]) if turns[0].role in _INSTRUCTING else (Turn("system", ""), turns)
        turns = [Turn(first.role, f"{first.text}\n\n{listed}" if first.text else listed), *rest]
    tokens = encode_chat(((turn.role, turn.text) for turn in turns), longest)
    if len(tokens) > longest:
        raise TooLongError(longest, parameter)
    return tokens
