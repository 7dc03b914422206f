"""OpenAI's completions and chat API.

They include the extensions of vLLM 0.32 that load generators use: prompts as token ids, ``ignore_eos``, ``min_tokens``,
``return_token_ids``, ``continuous_usage_stats``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.live.serving.api import MOST_CHOICES, Asked, Event
from blis_tui.live.serving.conversation import Turn, call_text, conversation_tokens, text_of
from blis_tui.live.serving.fields import (
    RefusedError,
    TooLongError,
    body_of,
    flag_in,
    integer_in,
    limit_in,
    name_in,
    refuse_fields,
)
from blis_tui.live.serving.forms import form_in
from blis_tui.live.serving.shared_prefixes import encode
from blis_tui.live.serving.tools import Function, Tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.live.serving.api import Counts, Document, Head, Part, WriterMaker
    from blis_tui.live.serving.forms import Form

_DEFAULT_TOKENS: Final = 16
"""Default ``max_tokens`` of completions, as in OpenAI's API and vLLM."""
_LARGEST_TOKEN: Final = (1 << 31) - 1
_ERRORS: Final = {404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
_NOT_SIMULATED: Final = {
    "echo": "answers do not repeat their prompts",
    "suffix": "no model here fills in the middle",
    "prompt_embeds": "prompts are texts or token ids",
    "use_beam_search": "each choice is sampled by itself",
}


def openai_error(error: RefusedError) -> Document:
    """Return the error document in vLLM's format."""
    kind = _ERRORS.get(error.status, "BadRequestError" if error.status < 500 else "InternalError")
    return {"error": {"message": error.message, "type": kind, "param": error.parameter, "code": error.status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What an answer has beside its text.

    Attributes:
        usage: whether a stream ends with token counts.
        usage_in_chunks: whether each chunk has them.
        token_ids: whether choices have their tokens.
        call: the call that the answer is.
        named: whether the client has named the function.
    """

    usage: bool
    usage_in_chunks: bool
    token_ids: bool
    call: Form | None = None
    named: bool = False

    @classmethod
    def of(cls, document: Mapping[str, object], call: Form | None = None, *, named: bool = False) -> _Wanted:
        """Read it from a body."""
        options = document.get("stream_options")
        options = options if isinstance(options, dict) else {}
        return cls(
            usage=options.get("include_usage") is True,
            usage_in_chunks=options.get("continuous_usage_stats") is True,
            token_ids=flag_in(document, "return_token_ids"),
            call=call,
            named=named,
        )


class Completions:
    """``/v1/completions``."""

    def parse(self, document: object, longest: int) -> tuple[Asked, WriterMaker]:
        """Parse a request body.

        Raises:
            RefusedError: the request is invalid or unsupported.
        """
        body = body_of(document)
        refuse_fields(body, _NOT_SIMULATED)
        limit = limit_in(body, "max_tokens")
        wanted = _Wanted.of(body)
        asked = Asked(
            model=name_in(body, "model"),
            prompts=completion_prompts(body, longest),
            source="prompt",
            choices=_choices(body),
            max_tokens=_DEFAULT_TOKENS if limit is None else limit,
            min_tokens=integer_in(body, "min_tokens", 0),
            ignore_eos=flag_in(body, "ignore_eos"),
            stream=flag_in(body, "stream"),
            user=name_in(body, "user"),
            goes_on=True,
        )
        return asked, lambda head: _CompletionWriter(head, wanted)

    def refusal(self, error: RefusedError) -> Document:
        """Return the error document."""
        return openai_error(error)


class Chat:
    """``/v1/chat/completions``."""

    def parse(self, document: object, longest: int) -> tuple[Asked, WriterMaker]:
        """Parse a request body.

        Raises:
            RefusedError: the request is invalid or unsupported.
        """
        body = body_of(document)
        refuse_fields(body, {name: _NOT_SIMULATED[name] for name in ("echo", "use_beam_search")})
        tools = _tools(body)
        call = tools.call()
        wanted = _Wanted.of(body, call, named=tools.named)
        limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
        asked = Asked(
            model=name_in(body, "model"),
            prompts=(chat_prompt(body, longest, tools),),
            source="messages",
            choices=_choices(body),
            max_tokens=limit_in(body, limit),
            limit=limit,
            min_tokens=integer_in(body, "min_tokens", 0),
            ignore_eos=flag_in(body, "ignore_eos"),
            stream=flag_in(body, "stream"),
            user=name_in(body, "user"),
            form=call or form_in(body.get("response_format"), "response_format"),
        )
        return asked, lambda head: _ChatWriter(head, wanted, asked.choices)

    def refusal(self, error: RefusedError) -> Document:
        """Return the error document."""
        return openai_error(error)


# ---- prompts ----


def completion_prompts(body: Mapping[str, object], longest: int) -> list[Sequence[int]]:
    """Return the tokens of each prompt.

    Raises:
        RefusedError: there is none, one is neither a text nor token ids, or there are too many for any answers.
        TooLongError: one has more than ``longest`` tokens.
    """
    given = body.get("prompt")
    if not isinstance(given, list) or not given or not isinstance(given[0], str | list):
        return [_prompt(given, longest)]
    if len(given) > MOST_CHOICES:
        raise RefusedError(400, f"no more than {MOST_CHOICES:,} prompts at a time, got {len(given):,}", "prompt")
    return [_prompt(one, longest) for one in given]


def _prompt(prompt: object, longest: int) -> Sequence[int]:
    if isinstance(prompt, str):
        tokens: Sequence[int] = encode(prompt, longest + 1)
    elif isinstance(prompt, list) and all(type(token) is int and 0 <= token <= _LARGEST_TOKEN for token in prompt):
        tokens = prompt
    else:
        raise RefusedError(400, "`prompt` must be a text, a list of token ids, or a list of either", "prompt")
    if not tokens:
        raise RefusedError(400, "the prompt is empty", "prompt")
    if len(tokens) > longest:
        raise TooLongError(longest, "prompt")
    return tokens


def _choices(body: Mapping[str, object]) -> int:
    count = integer_in(body, "n", 1)
    if count < 1:
        raise RefusedError(400, "`n` must be at least 1", "n")
    if integer_in(body, "best_of", count) != count:
        raise RefusedError(400, "`best_of` must be `n`: no choice is better than another here", "best_of")
    return count


def chat_prompt(body: Mapping[str, object], longest: int, tools: Tools | None = None) -> list[int]:
    """Return the tokens of the conversation in a body.

    Args:
        body: with ``messages``, and ``tools`` unless they have been read already.
        longest: the most tokens that it may have.
        tools: its tools.

    Raises:
        RefusedError: it is no conversation.
        TooLongError: it has more than ``longest`` tokens.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError(400, "`messages` must be a list of messages", "messages")
    turns = [_turn(message) for message in messages]
    listed = (_tools(body) if tools is None else tools).text()
    return conversation_tokens(turns, listed, longest, "messages")


def _turn(message: object) -> Turn:
    if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
        raise RefusedError(400, "each message needs a role", "messages")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RefusedError(400, "`tool_calls` of a message must be a list", "messages")
    return Turn(role, text_of(message.get("content")) + "".join(_call_text(call) for call in calls))


def _call_text(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
        raise RefusedError(400, "each of `tool_calls` needs a function with a name", "messages")
    return call_text(name, function.get("arguments") or "{}")


def _tools(body: Mapping[str, object]) -> Tools:
    listed = body.get("tools") or []
    if not isinstance(listed, list):
        raise RefusedError(400, "`tools` must be a list", "tools")
    tools = Tools([_function(tool) for tool in listed])
    choice = body.get("tool_choice") or "auto"
    if not isinstance(choice, dict):
        return tools.with_choice(choice)
    function = choice.get("function")
    return tools.naming(function.get("name") if isinstance(function, dict) else None)


def _function(tool: object) -> Function:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
    if not isinstance(function, dict):
        raise RefusedError(400, "each of `tools` must be of type `function`, with a `function`", "tools")
    return Function.of(function.get("name"), function.get("description"), function.get("parameters"), "tools")


# ---- answers ----


def usage(counts: Counts) -> Document:
    """Return token counts."""
    documents: Document = {"prompt_tokens": counts.prompt, "total_tokens": counts.prompt + counts.answer}
    documents |= {"completion_tokens": counts.answer}
    return {**documents, "prompt_tokens_details": {"cached_tokens": counts.cached}}


class _OpenAIWriter:
    """What completions and chats have in common."""

    kinds: tuple[str, str]
    """The object of a whole answer, and of a chunk."""
    prefix: str
    last_line = "data: [DONE]\n\n"

    def __init__(self, head: Head, wanted: _Wanted) -> None:
        self._head = head
        self._wanted = wanted

    def opening(self, total: Counts) -> Iterable[Event]:  # noqa: ARG002  (the protocol's signature)
        """Return nothing."""
        return ()

    def closing(self, parts: Sequence[Part], total: Counts) -> Iterable[Event]:  # noqa: ARG002  (as above)
        """Return the token counts, if they are wanted."""
        return (Event(self._document([], total, chunk=True)),) if self._wanted.usage else ()

    def failure(self, error: RefusedError) -> Iterable[Event]:
        """Return the error."""
        return (Event(openai_error(error)),)

    def _choice(self, part: Part, content: Mapping[str, object], finish: str | None) -> Document:
        ended = {"logprobs": None, "finish_reason": finish}
        ids = {"token_ids": list(part.ids)} if self._wanted.token_ids else {}
        return {"index": part.choice, **content, **ended, **ids}

    def _chunk(self, part: Part, content: Mapping[str, object], finish: str | None) -> Event:
        counts = part.counts if self._wanted.usage_in_chunks else None
        return Event(self._document([self._choice(part, content, finish)], counts, chunk=True))

    def _document(self, choices: Sequence[Document], counts: Counts | None, *, chunk: bool) -> Document:
        head = self._head
        document: Document = {"id": f"{self.prefix}-{head.number}", "object": self.kinds[chunk]}
        document |= {"created": head.created, "model": head.model, "choices": list(choices)}
        return document if counts is None else {**document, "usage": usage(counts)}


class _CompletionWriter(_OpenAIWriter):
    """Writes completions."""

    kinds = ("text_completion", "text_completion")
    prefix = "cmpl"

    def whole(self, parts: Sequence[Part], total: Counts) -> Document:
        """Return a complete answer."""
        choices = [self._choice(part, {"text": part.text}, part.finish) for part in parts]
        return self._document(choices, total, chunk=False)

    def part(self, part: Part) -> Iterator[Event]:
        """Return a chunk."""
        yield self._chunk(part, {"text": part.text}, part.finish or None)


class _ChatWriter(_OpenAIWriter):
    """Writes answers of a chat."""

    kinds = ("chat.completion", "chat.completion.chunk")
    prefix = "chatcmpl"

    def __init__(self, head: Head, wanted: _Wanted, choices: int) -> None:
        super().__init__(head, wanted)
        self._choices = choices

    def whole(self, parts: Sequence[Part], total: Counts) -> Document:
        """Return a complete answer."""
        choices = []
        for part in parts:
            message: Document = {"role": "assistant", "content": part.text}
            if self._wanted.call is not None:
                called = self._called(part.choice, self._wanted.call, part.text)
                message |= {"content": None, "tool_calls": [called]}
            choices.append(self._choice(part, {"message": message}, self._finish(part)))
        return self._document(choices, total, chunk=False)

    def opening(self, total: Counts) -> Iterator[Event]:  # noqa: ARG002  (the protocol's signature)
        """Return the role of each choice in order, as clients expect the first one first, and what it calls."""
        call = self._wanted.call
        for choice in range(self._choices):
            beginning: Document = {"role": "assistant", "content": ""}
            if call is not None:
                beginning |= {"content": None, "tool_calls": [{"index": 0, **self._called(choice, call, "")}]}
            document = {"index": choice, "delta": beginning, "logprobs": None, "finish_reason": None}
            yield Event(self._document([document], None, chunk=True))

    def part(self, part: Part) -> Iterator[Event]:
        """Return a chunk."""
        call = self._wanted.call
        content: Document = {"content": part.text}
        if call is not None:
            content = {"tool_calls": [{"index": 0, "function": {"arguments": part.text}}]}
        yield self._chunk(part, {"delta": content}, self._finish(part) or None)

    def _called(self, choice: int, call: Form, arguments: str) -> Document:
        identifier = f"call_{self._head.number + choice}"
        return {"id": identifier, "type": "function", "function": {"name": call.function, "arguments": arguments}}

    def _finish(self, part: Part) -> str:
        """Return the reason; as in OpenAI's API, a call that the client has named ends like any answer."""
        called = self._wanted.call is not None and not self._wanted.named
        return "tool_calls" if called and part.finish == "stop" else part.finish
