"""What the APIs of the endpoint have in common: what a client asks for, and what it gets.

Each API is a module that parses bodies into an :class:`Asked`, and has a :class:`Writer` for answers in its format.
Parameters without effect here (temperatures, penalties, log probabilities) are accepted and ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.live.serving.fields import RefusedError
    from blis_tui.live.serving.forms import Form

Document = dict[str, object]
MOST_CHOICES: Final = 1024
"""How many answers a request may ask for, over all prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a client asks for, whatever the API.

    Attributes:
        model: the model or adapter; empty = the first model.
        prompts: the tokens of each prompt; each gets ``choices`` answers.
        source: the parameter that they come from.
        max_tokens: the most tokens of an answer; None = as many as there is room for.
        limit: the parameter that says so.
        form: the JSON that the answer must be, of a call or by itself; None = it is words.
        goes_on: whether answers continue the prompt's text.
        user: the client's name for whoever asks.
    """

    model: str
    prompts: Sequence[Sequence[int]]
    source: str
    choices: int = 1
    max_tokens: int | None
    limit: str = "max_tokens"
    min_tokens: int
    ignore_eos: bool
    stream: bool
    user: str
    form: Form | None = None
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What all documents of one answer begin with: its number among all requests, when it was made, and the model."""

    number: int
    created: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tokens of prompts and answers; cached ones are among those of the prompts."""

    prompt: int
    cached: int
    answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is new of one choice, or all of it.

    Attributes:
        choice: its number.
        text: the text, or the arguments of the tool call.
        ids: the tokens.
        counts: those of this choice so far.
        finish: why it ends, ``stop`` or ``length``; empty = it goes on.
    """

    choice: int
    text: str
    ids: Sequence[int]
    counts: Counts
    finish: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a stream, with the name that some APIs give it."""

    document: Mapping[str, object]
    name: str = ""


class Writer(Protocol):
    """Writes the answer to one request in an API's format. A stream is opening, parts, and closing or failure."""

    @property
    def last_line(self) -> str:
        """What ends a stream beside its events; empty = nothing."""

    def whole(self, parts: Sequence[Part], total: Counts) -> Document:
        """Return a complete answer; ``parts`` are all of its choices, with their whole texts."""

    def opening(self, total: Counts) -> Iterable[Event]:
        """Return what is sent before the first token."""

    def part(self, part: Part) -> Iterable[Event]:
        """Return what is sent of a choice when it has grown or ends."""

    def closing(self, parts: Sequence[Part], total: Counts) -> Iterable[Event]:
        """Return what is sent when all choices have ended, whose whole texts are in ``parts``."""

    def failure(self, error: RefusedError) -> Iterable[Event]:
        """Return what ends a stream whose answer cannot be finished."""


class WriterMaker(Protocol):
    """Makes the writer of a request once it has its number."""

    def __call__(self, head: Head) -> Writer:
        """Return the writer."""


class Api(Protocol):
    """An API: how its requests are read, and how it says that one is refused."""

    def parse(self, document: object, longest: int) -> tuple[Asked, WriterMaker]:
        """Parse a request body; a prompt of more than ``longest`` tokens is not read to its end.

        Raises:
            RefusedError: the request is invalid or unsupported.
        """

    def refusal(self, error: RefusedError) -> Document:
        """Return the error document in the API's format."""
