"""OpenAI's completions and chat API: parses or rejects requests, and formats answers.

It includes the extensions of vLLM 0.32 that load generators use: prompts as token ids, ``ignore_eos``, ``min_tokens``,
``return_token_ids``, ``continuous_usage_stats``. Parameters without effect here (temperatures, penalties, log
probabilities) are accepted and ignored.
"""

from __future__ import annotations

from reprlib import repr as brief
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.live.serving.shared_prefixes import encode, encode_chat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEFAULT_TOKENS: Final = 16
"""Default ``max_tokens`` of completions, as in OpenAI's API and vLLM."""
_LARGEST_TOKEN: Final = (1 << 31) - 1
_LONGEST_NAME: Final = 1000
_LEAST_BYTES, _BYTES_PER_TOKEN = 8 << 20, 16


def most_bytes(longest: int) -> int:
    """Return how large a body may be: room for a prompt of ``longest`` token ids, and for images, which are ignored."""
    return max(_LEAST_BYTES, _BYTES_PER_TOKEN * longest)


class RefusedError(Exception):
    """A rejected request: an HTTP status, and the reason."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.parameter = parameter

    def document(self) -> dict[str, object]:
        """Return the error document in vLLM's format."""
        kind = "NotFoundError" if self.status == 404 else "BadRequestError" if self.status < 500 else "InternalError"
        kind = "RateLimitError" if self.status == 429 else kind
        return {"error": {"message": self.message, "type": kind, "param": self.parameter, "code": self.status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A parsed request."""

    chat: bool
    model: str
    prompt: Sequence[int]
    max_tokens: int | None
    """None = as many as there is room for."""
    min_tokens: int
    ignore_eos: bool
    stream: bool
    usage: bool
    """Whether a stream ends with token counts; the next field: whether each chunk has them."""
    usage_in_chunks: bool
    token_ids: bool
    user: str


def parse_request(document: object, *, chat: bool, longest: int) -> ParsedRequest:
    """Parse a request body.

    Args:
        document: the body.
        chat: whether it came to the chat endpoint.
        longest: the most tokens that a prompt may have; one that has more is not read to its end.

    Raises:
        RefusedError: the request is invalid or unsupported.
    """
    if not isinstance(document, dict):
        raise RefusedError(400, "the body is not a JSON object")
    if _integer(document, "n", 1) != 1 or _integer(document, "best_of", 1) != 1:
        raise RefusedError(400, "only one choice is generated here", "n")
    options = document.get("stream_options")
    options = options if isinstance(options, dict) else {}
    prompt = _conversation(document, longest) if chat else _prompt(document, longest)
    if len(prompt) > longest:
        message = f"This model's maximum context length is {longest} tokens; the prompt has more."
        raise RefusedError(400, message, "messages" if chat else "prompt")
    limit = document.get("max_completion_tokens", document.get("max_tokens")) if chat else document.get("max_tokens")
    if limit is None and not chat:
        limit = _DEFAULT_TOKENS
    if limit is not None and (type(limit) is not int or limit < 1):
        raise RefusedError(400, f"max_tokens must be at least 1, got {brief(limit)}.", "max_tokens")
    return ParsedRequest(
        chat=chat,
        model=_name(document, "model"),
        prompt=prompt,
        max_tokens=limit,
        min_tokens=_integer(document, "min_tokens", 0),
        ignore_eos=_flag(document, "ignore_eos"),
        stream=_flag(document, "stream"),
        usage=options.get("include_usage") is True,
        usage_in_chunks=options.get("continuous_usage_stats") is True,
        token_ids=_flag(document, "return_token_ids"),
        user=_name(document, "user"),
    )


def _prompt(document: Mapping[str, object], longest: int) -> Sequence[int]:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        tokens = encode(prompt, longest + 1)
    elif isinstance(prompt, list) and all(type(token) is int and 0 <= token <= _LARGEST_TOKEN for token in prompt):
        tokens = prompt
    else:
        raise RefusedError(400, "`prompt` must be one text, or one list of token ids", "prompt")
    if not tokens:
        raise RefusedError(400, "the prompt is empty", "prompt")
    return tokens


def _conversation(document: Mapping[str, object], longest: int) -> list[int]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError(400, "`messages` must be a list of messages", "messages")
    turns = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RefusedError(400, "each message needs a role", "messages")
        turns.append((message["role"], _text(message.get("content"))))
    return encode_chat(turns, longest)


def _text(content: object) -> str:
    """Return a message's text; for a message in parts, that of its text parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _name(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise RefusedError(400, f"`{name}` must be a text, got {brief(value)}", name)
    if value is not None and len(value) > _LONGEST_NAME:
        raise RefusedError(400, f"`{name}` has more than {_LONGEST_NAME} characters", name)
    return value or ""


def _flag(document: Mapping[str, object], name: str) -> bool:
    value = document.get(name)
    if value is not None and not isinstance(value, bool):
        raise RefusedError(400, f"`{name}` must be true or false, got {brief(value)}", name)
    return value is True


def _integer(document: Mapping[str, object], name: str, otherwise: int) -> int:
    value = document.get(name)
    if value is None:
        return otherwise
    if type(value) is not int or value < 0:
        raise RefusedError(400, f"`{name}` must be a whole number, got {brief(value)}", name)
    return value


@dataclass(slots=True)
class Shape:
    """The format of the answers to one request."""

    wanted: ParsedRequest
    identifier: str
    created: int
    model: str

    def usage(self, tokens: int, cached: int) -> dict[str, object]:
        """Return token counts."""
        prompt = len(self.wanted.prompt)
        counts: dict[str, object] = {"prompt_tokens": prompt, "total_tokens": prompt + tokens}
        return {**counts, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached}}

    def chunk(self, text: str, ids: Sequence[int], finish: str | None, usage: object = None) -> dict[str, object]:
        """Return a chunk of a stream."""
        content: dict[str, object] = {"delta": {"content": text}} if self.wanted.chat else {"text": text}
        return self._document([self._choice(content, ids, finish)], usage, chunk=True)

    def _choice(self, content: Mapping[str, object], ids: Sequence[int], finish: str | None) -> dict[str, object]:
        ended = {"logprobs": None, "finish_reason": finish}
        return {"index": 0, **content, **ended, **({"token_ids": list(ids)} if self.wanted.token_ids else {})}

    def first_chunk(self) -> dict[str, object] | None:
        """Return the first chunk of a stream, if any."""
        if not self.wanted.chat:
            return None
        delta = {"role": "assistant", "content": ""}
        return self._document([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], None, chunk=True)

    def ending(self, usage: object) -> dict[str, object]:
        """Return the token counts at the end of a stream."""
        return self._document([], usage, chunk=True)

    def whole(self, text: str, ids: Sequence[int], finish: str, usage: object) -> dict[str, object]:
        """Return a complete answer."""
        content: dict[str, object] = {"message": {"role": "assistant", "content": text}}
        content = content if self.wanted.chat else {"text": text}
        return self._document([self._choice(content, ids, finish)], usage, chunk=False)

    def _document(self, choices: list[dict[str, object]], usage: object, *, chunk: bool) -> dict[str, object]:
        kind = "text_completion" if not self.wanted.chat else "chat.completion.chunk" if chunk else "chat.completion"
        document: dict[str, object] = {"id": self.identifier, "object": kind, "created": self.created}
        document |= {"model": self.model, "choices": choices}
        if usage is not None:
            document["usage"] = usage
        return document
