"""Builds prompts with the workload's lengths and shared prefixes, and the requests around them.

A prompt is a sequence of segments (``Request.segments``) followed by a unique part. Their tokens come from a hash of
the run's prompt seed and the segment's name: equal segments have equal tokens, and runs with different seeds share
none. Answers of the server are part of the prompts that continue them.
"""

from __future__ import annotations

import json
from array import array
from hashlib import shake_128
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.live.observe.answers import Answer

_WORD_LIST: Final = (
    "the of and to in is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no out up what about into than "
    "them only other time new some could these two may then do first any my now such like our over man me even most "
    "made after also did many before must through back years where much your way well down should because each just "
    "those people how too little state good very make world still own see men work long get here between both life "
    "being under never day same another know while last might us great old year off come since against go came "
    "right used take three"
)
_WORDS: Final = tuple(_WORD_LIST.split())
"""Words that are one token each, with the preceding space, for most tokenizers."""
_ANSWER: Final = "/answer"
_WITHOUT_REASONING: Final = "/said"


@dataclass(frozen=True, slots=True)
class TextScale:
    """The number of tokens that a server counts for words: ``fixed + per_word * words``."""

    per_word: float = 1.0
    fixed: float = 0.0

    def words(self, tokens: int, *, alone: bool = False) -> int:
        """Return the number of words for that many tokens; ``alone``: include the fixed tokens of a prompt."""
        return max(round((tokens - (self.fixed if alone else 0.0)) / self.per_word), 1 if alone else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """The form of requests.

    Attributes:
        api: ``completions`` or ``chat``.
        dialect: ``vllm``, whose extensions give exact lengths and token ids, or ``openai``.
        model: the model's name, for requests that name none.
        stream: whether answers are streamed.
        exact: whether answers have exactly the workload's length; otherwise the model may end them earlier.
        text: whether prompts are words instead of token ids.
        vocabulary: upper bound (exclusive) of token ids.
        longest: maximum tokens of a prompt and its answer; None = unknown.
        seed: seed of prompts.
    """

    api: str = "completions"
    dialect: str = "vllm"
    model: str = ""
    stream: bool = True
    exact: bool = True
    text: bool = False
    vocabulary: int = 256
    longest: int | None = None
    seed: str = ""

    @property
    def path(self) -> str:
        """The path of the endpoint."""
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


class Prompts:
    """The requests of one run, as JSON bodies."""

    def __init__(self, asking: RequestForm, scale: TextScale | None = None) -> None:
        self.asking = asking
        self.scale = scale or TextScale()
        self._answers: dict[str, tuple[list[int], str]] = {}

    def body(self, request: Request) -> bytes:
        """Return the body of a request."""
        asking = self.asking
        document: dict[str, object] = {"model": request.adapter or request.model or asking.model}
        if asking.api == "chat":
            document["messages"] = self._messages(request)
        else:
            document["prompt"] = self._text(request) if asking.text else self._ids(request)
        room = None if asking.longest is None or asking.text else max(asking.longest - request.input_tokens, 1)
        return _encoded(document | self.common(request.output_tokens, request.max_output_tokens, room))

    def common(self, output_tokens: int, budget: int = 0, room: int | None = None) -> dict[str, object]:
        """Return the keys that request an answer of this length, for any prompt.

        ``room``: what the model's maximum context leaves for the answer; vLLM reduces ``max_tokens`` to it, and then
        refuses a larger ``min_tokens``.
        """
        asking = self.asking
        limit = output_tokens if asking.exact else budget or output_tokens
        document: dict[str, object] = {"max_tokens": limit, "temperature": 0, "stream": asking.stream}
        if asking.stream:
            document["stream_options"] = {"include_usage": True}
        if asking.dialect == "vllm":
            document["return_token_ids"] = True
            if asking.exact:
                least = output_tokens if room is None else min(output_tokens, room)
                document |= {"ignore_eos": True, "min_tokens": least}
        return document

    def probe(self, words: int, name: str) -> bytes:
        """Return a prompt of that many words, to find their number of tokens."""
        text = self._words(name, words)
        message = {"messages": [{"role": "user", "content": text}]} if self.asking.api == "chat" else {"prompt": text}
        return _encoded({"model": self.asking.model, **message, **self.common(1)})

    def warm_up(self, number: int, input_tokens: int, output_tokens: int) -> bytes:
        """Return a request that shares no tokens with other prompts."""
        name = f"warm-up-{number}"
        prompt: dict[str, object]
        words = self.scale.words(input_tokens, alone=True)
        if self.asking.api == "chat":
            prompt = {"messages": [{"role": "user", "content": self._words(name, words)}]}
        elif self.asking.text:
            prompt = {"prompt": self._words(name, words)}
        else:
            prompt = {"prompt": self._drawn(name, input_tokens)}
        return _encoded({"model": self.asking.model, **prompt, **self.common(output_tokens)})

    def record_answer(self, request: Request, answer: Answer) -> None:
        """Remember an answer with which other prompts may begin."""
        if len(request.content) > len(request.segments):
            self._answers[request.content[-1][0]] = (answer.tokens if answer.has_token_ids else [], answer.text)

    # ---- token ids ----

    def _ids(self, request: Request) -> list[int]:
        ids: list[int] = []
        for name, tokens in request.segments:
            ids += self._segment(name, tokens)
        return ids + self._drawn(_own(request), max(request.input_tokens - len(ids), 0))

    def _segment(self, name: str, tokens: int) -> list[int]:
        known = self._answer(name)[0]
        content = known[len(known) - min(tokens, len(known)) :]
        return content + self._drawn(name, tokens - len(content))

    def _answer(self, name: str) -> tuple[list[int], str]:
        """Return an answer by the name of its segment, or of the segment without its reasoning."""
        key = name.removesuffix(_WITHOUT_REASONING) + _ANSWER if name.endswith(_WITHOUT_REASONING) else name
        return self._answers.get(key, ([], ""))

    def _drawn(self, name: str, tokens: int) -> list[int]:
        """Return tokens unique to this name."""
        most = self.asking.vocabulary
        return [number % most for number in self._numbers(name, tokens)]

    def _numbers(self, name: str, count: int) -> array[int]:
        drawn = shake_128(f"{self.asking.seed}\0{name}".encode()).digest(4 * count)
        return array("I", drawn)

    # ---- text ----

    def _messages(self, request: Request) -> list[dict[str, str]]:
        """Return the prompt as chat messages; earlier answers have the assistant's role, everything else the user's."""
        messages: list[dict[str, str]] = []
        left = request.input_tokens
        for name, tokens in request.segments:
            if not tokens:
                continue
            left -= tokens
            text = self._answer(name)[1]
            role = "assistant" if text else "user"
            messages.append({"role": role, "content": text or self._words(name, self.scale.words(tokens))})
        if left > 0 or not messages:
            words = self.scale.words(left, alone=True)
            messages.append({"role": "user", "content": self._words(_own(request), words)})
        return _merged(messages)

    def _text(self, request: Request) -> str:
        return " ".join(message["content"] for message in self._messages(request))

    def _words(self, name: str, count: int) -> str:
        return " ".join([_WORDS[number % len(_WORDS)] for number in self._numbers(name, count)])


def _own(request: Request) -> str:
    """Return the name of the part that no other prompt has."""
    return f"{request.request_id}/{request.index}"


def _merged(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Merge consecutive messages with the same role."""
    merged: list[dict[str, str]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += " " + message["content"]
        else:
            merged.append(message)
    return merged


def _encoded(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
