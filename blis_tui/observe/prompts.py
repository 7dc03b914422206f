"""What is asked for: prompts of the lengths that a workload wants, with what they share, and the requests around them.

A prompt is a sequence of segments (``Request.segments``) and what is its own. Each has its tokens from a hash of the
run's prompt seed and its name: equal segments are equal tokens, and no two runs share any, unless they have one seed.
What a server answered stands in the prompts that continue it.
"""

from __future__ import annotations

import json
from array import array
from hashlib import shake_128
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.observe.answers import Answer

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
"""A token each for most tokenizers, with the space before it."""
_ANSWER: Final = "/answer"
_SAID: Final = "/said"


@dataclass(frozen=True, slots=True)
class TextScale:
    """How many tokens a server makes of words: ``fixed + per_word * words``."""

    per_word: float = 1.0
    fixed: float = 0.0

    def words(self, tokens: int, *, alone: bool = False) -> int:
        """How many words give that many tokens; ``alone``: with what is added once to every prompt."""
        return max(round((tokens - (self.fixed if alone else 0.0)) / self.per_word), 1 if alone else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests are put.

    Attributes:
        api: ``completions`` or ``chat``.
        dialect: ``vllm``, whose extensions make lengths exact and tell token ids, or ``openai``.
        model: the model's name, for requests that name none.
        stream: whether answers come token by token.
        exact: whether answers have exactly the length that the workload wants; else the model may end them before.
        text: whether prompts are words, not token ids.
        vocabulary: token ids are below that.
        longest: tokens that a prompt and its answer may have; None = unknown.
        seed: what prompts are made from.
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
        """Where requests go."""
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


class Prompts:
    """The requests of one run, as bodies in JSON."""

    def __init__(self, asking: Asking, scale: TextScale | None = None) -> None:
        self.asking = asking
        self.scale = scale or TextScale()
        self._answers: dict[str, tuple[list[int], str]] = {}

    def body(self, request: Request) -> bytes:
        """The body that asks for a request."""
        asking = self.asking
        document: dict[str, object] = {"model": request.adapter or request.model or asking.model}
        if asking.api == "chat":
            document["messages"] = self._messages(request)
        else:
            document["prompt"] = self._text(request) if asking.text else self._ids(request)
        room = None if asking.longest is None or asking.text else max(asking.longest - request.input_tokens, 1)
        return _encoded(document | self.common(request.output_tokens, request.max_output_tokens, room))

    def common(self, output_tokens: int, budget: int = 0, room: int | None = None) -> dict[str, object]:
        """What asks for an answer of so many tokens, whatever the prompt.

        ``room``: what the model's longest context leaves for it; vLLM cuts ``max_tokens`` to that, and then refuses
        ``min_tokens`` that are more.
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
        """A prompt of that many words, to see how many tokens they are."""
        text = self._words(name, words)
        message = {"messages": [{"role": "user", "content": text}]} if self.asking.api == "chat" else {"prompt": text}
        return _encoded({"model": self.asking.model, **message, **self.common(1)})

    def warm_up(self, number: int, input_tokens: int, output_tokens: int) -> bytes:
        """A request that no other prompt has anything in common with."""
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

    def heard(self, request: Request, answer: Answer) -> None:
        """Remember an answer that other prompts may begin with."""
        if len(request.content) > len(request.segments):
            self._answers[request.content[-1][0]] = (answer.tokens if answer.told_ids else [], answer.text)

    # ---- token ids ----

    def _ids(self, request: Request) -> list[int]:
        ids: list[int] = []
        for name, tokens in request.segments:
            ids += self._segment(name, tokens)
        return ids + self._drawn(_own(request), max(request.input_tokens - len(ids), 0))

    def _segment(self, name: str, tokens: int) -> list[int]:
        known = self._answer(name)[0]
        found = known[len(known) - min(tokens, len(known)) :]
        return found + self._drawn(name, tokens - len(found))

    def _answer(self, name: str) -> tuple[list[int], str]:
        """An answer by the name of its segment, or of that which leaves its reasoning out."""
        key = name.removesuffix(_SAID) + _ANSWER if name.endswith(_SAID) else name
        return self._answers.get(key, ([], ""))

    def _drawn(self, name: str, tokens: int) -> list[int]:
        """Tokens that only this name has."""
        most = self.asking.vocabulary
        return [number % most for number in self._numbers(name, tokens)]

    def _numbers(self, name: str, count: int) -> array[int]:
        drawn = shake_128(f"{self.asking.seed}\0{name}".encode()).digest(4 * count)
        return array("I", drawn)

    # ---- text ----

    def _messages(self, request: Request) -> list[dict[str, str]]:
        """What is the server's own stands as its answer, everything else as the user's."""
        found: list[dict[str, str]] = []
        left = request.input_tokens
        for name, tokens in request.segments:
            if not tokens:
                continue
            left -= tokens
            text = self._answer(name)[1]
            role = "assistant" if text else "user"
            found.append({"role": role, "content": text or self._words(name, self.scale.words(tokens))})
        if left > 0 or not found:
            words = self.scale.words(left, alone=True)
            found.append({"role": "user", "content": self._words(_own(request), words)})
        return _merged(found)

    def _text(self, request: Request) -> str:
        return " ".join(message["content"] for message in self._messages(request))

    def _words(self, name: str, count: int) -> str:
        return " ".join([_WORDS[number % len(_WORDS)] for number in self._numbers(name, count)])


def _own(request: Request) -> str:
    """The name of what no other prompt has."""
    return f"{request.request_id}/{request.index}"


def _merged(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Messages of one side that follow each other, as one."""
    found: list[dict[str, str]] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1]["content"] += " " + message["content"]
        else:
            found.append(message)
    return found


def _encoded(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
