"""Sessions: requests that belong together, such as the turns of a conversation or the calls of an agent.

A session is a sequence of turns, a turn is a graph of calls, and a call is one request. A call is sent when all calls
that it waits for have been answered, and its prompt begins with the earlier conversation. A session's contents are
drawn when it starts, from a stream of its own, so they do not depend on the cluster's speed or on other sessions.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import NO_MEDIA
from blis_tui.model import SessionCall
from blis_tui.workload.distributions import LENGTHS, counts, ratios_of, tokens_of
from blis_tui.workload.prompt_content import NOTHING_DRAWN, MediaDraws, placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.streams import Stream, Streams
    from blis_tui.engine.request import Media, MediaItem, Request, Segments
    from blis_tui.model import Client, PluginConfig, Session
    from blis_tui.model.plug_ins import Registry
    from blis_tui.workload.distributions import TokenCounts
    from blis_tui.workload.prompt_content import AdapterDraws, DrawnMedia

MAX_CALLS: Final = 100_000
"""Maximum number of calls of one session. Each takes some 200 bytes while the session lasts."""

_ONE_CALL: Final = (SessionCall(id="turn"),)
"""The default turn."""


@dataclass(frozen=True, slots=True)
class Call:
    """One drawn request of a session.

    Attributes:
        input_tokens: new text of its prompt, in addition to the history.
        output_tokens: its answer.
        wait_us: time from the answers that it waits for until it is sent.
        after: the calls that it waits for, by their position in the session.
        history: the first of them, if the prompt begins with that call's prompt and answer; -1 = it does not.
        reasoning_tokens: reasoning tokens of its answer; they come first.
        drawn: the media in its new text.
    """

    input_tokens: int
    output_tokens: int
    wait_us: int
    after: tuple[int, ...]
    history: int
    reasoning_tokens: int = 0
    drawn: DrawnMedia = NOTHING_DRAWN


class Sent(NamedTuple):
    """Details of a sent call for its record.

    Attributes:
        session: the session's name.
        call: its position in the session, from 0.
        calls: number of the session's calls.
        after: the requests that it waited for.
        last: the one of them that was answered last or, with clock pacing, sent last; among equals the first.
        waited_us: time since then.
        earlier_tokens: tokens of its prompt other than its new text.
    """

    session: str
    call: int
    calls: int
    after: tuple[str, ...]
    last: str
    waited_us: int
    earlier_tokens: int


class SessionRun:
    """A session in progress.

    Attributes:
        name: its name.
        adapter: the LoRA adapter that its calls ask for; empty = the base model.
        user: the user who holds it, in a closed loop; -1 = an open loop.
        paced_by_answers: whether calls wait for answers; otherwise for the sending of earlier calls.
        drops_reasoning: whether later prompts omit the reasoning of answers.
        failed: whether a call of it got no answer.
        scheduled: number of calls that have a time but are not sent yet.
        unanswered: number of calls that have not ended.
        ended_us: when the latest ended call ended.
    """

    __slots__ = (
        "_answers",
        "_calls",
        "_contents",
        "_followers",
        "_head",
        "_last",
        "_media",
        "_missing",
        "_names",
        "_places",
        "_ready_us",
        "_unsent_followers",
        "adapter",
        "drops_reasoning",
        "ended_us",
        "failed",
        "name",
        "paced_by_answers",
        "scheduled",
        "unanswered",
        "user",
    )

    def __init__(self, name: str, user: int, head: Segments, calls: Sequence[Call], *, paced_by_answers: bool) -> None:
        self.name = name
        self.adapter = ""
        self.user = user
        self.paced_by_answers = paced_by_answers
        self.drops_reasoning = False
        self.failed = False
        self.scheduled = 0
        self.unanswered = len(calls)
        self.ended_us = 0
        self._head = head
        self._calls = calls
        self._missing = [len(call.after) for call in calls]
        self._ready_us = [0] * len(calls)
        self._names = [""] * len(calls)
        self._last = [""] * len(calls)
        self._contents: list[Segments] = [()] * len(calls)
        self._media = [NO_MEDIA] * len(calls)
        self._places = [0] * len(calls)
        """Position of each call's new text in its prompt."""
        self._answers = [call.output_tokens for call in calls]
        self._followers: list[list[int]] = [[] for _ in calls]
        for number, call in enumerate(calls):
            for earlier in call.after:
                self._followers[earlier].append(number)
        self._unsent_followers = [len(followers) for followers in self._followers]

    def begin(self) -> list[int]:
        """Return the calls that start the session."""
        first = [number for number, missing in enumerate(self._missing) if not missing]
        self.scheduled = len(first)
        return first

    def offset_us(self, number: int) -> int:
        """Time from the session's beginning to the sending of a call that waits for no other."""
        return self._calls[number].wait_us

    def send(self, number: int) -> tuple[Segments, int]:
        """Send a call: return its prompt's segments, all of which are shareable, and the tokens of its answer."""
        call = self._calls[number]
        self.scheduled -= 1
        segments = self._head
        self._media[number] = call.drawn.media
        if call.history >= 0:
            segments = self._heard(call.history) + self._joining(call)
            self._media[number] = call.drawn.media.beside(self._media[call.history])
        for _, tokens in segments:
            self._places[number] += tokens
        segments += ((f"{self.name}/{number}", call.input_tokens),)
        self._contents[number] = self._with_answer(segments, number)
        for earlier in call.after:
            self._unsent_followers[earlier] -= 1
            if not self._unsent_followers[earlier]:
                self._contents[earlier] = ()  # no longer needed, and it grows with every turn
        return segments, call.output_tokens

    def tell(self, number: int, request: Request) -> Sent:
        """Return the details of a call that was sent as this request."""
        self._names[number] = request.request_id
        call = self._calls[number]
        after = tuple(self._names[earlier] for earlier in call.after)
        waited_us = request.arrival_us - self._ready_us[number] if after else 0
        earlier_tokens = request.input_tokens - call.input_tokens
        return Sent(self.name, number, len(self._calls), after, self._last[number], waited_us, earlier_tokens)

    def content(self, number: int) -> Segments:
        """Return the eventual content of a call's KV blocks: its prompt and its answer."""
        return self._contents[number]

    def reasoning_tokens(self, number: int) -> int:
        """Number of reasoning tokens in a call's answer."""
        return self._calls[number].reasoning_tokens

    def media(self, number: int) -> Media:
        """Media tokens of a call's prompt, its history included."""
        return self._media[number]

    def media_items(self, number: int, request: Request) -> tuple[MediaItem, ...]:
        """Return the media items of a call's prompt."""
        items: list[tuple[MediaItem, ...]] = []
        while number >= 0:
            call = self._calls[number]
            items.append(placed(request, call.drawn.items, self._places[number]))
            number = call.history
        return tuple(chain.from_iterable(reversed(items)))

    def follow(self, number: int, time_us: int, answer_tokens: int | None = None) -> list[tuple[int, int]]:
        """Return calls and times that follow a call's answer or (if ``answer_tokens`` is None) its sending."""
        if answer_tokens is not None and answer_tokens != self._answers[number]:
            self._answers[number] = answer_tokens
            self._contents[number] = self._with_answer(self._contents[number][:-1], number)
        due = []
        for later in self._followers[number]:
            first = self._missing[later] == len(self._calls[later].after)
            if first or time_us > self._ready_us[later]:
                self._ready_us[later], self._last[later] = time_us, self._names[number]
            self._missing[later] -= 1
            if not self._missing[later]:
                due.append((later, self._ready_us[later] + self._calls[later].wait_us))
        self.scheduled += len(due)
        return due

    def _with_answer(self, prompt: Segments, number: int) -> Segments:
        tokens = self._answers[number]
        return (*prompt, (self._answer(number), tokens)) if tokens else prompt

    def _heard(self, number: int) -> Segments:
        """Return the beginning of a prompt that continues a call: the call's prompt and its answer as retained."""
        content = self._contents[number]
        return content[:-1] + self._kept_answer(number) if self._dropped(number) else content

    def _joining(self, call: Call) -> Segments:
        """Return the answers that a prompt has besides its history: those of the other calls that it waited for."""
        segments: Segments = ()
        for earlier in call.after:
            segments += () if earlier == call.history else self._kept_answer(earlier)
        return segments

    def _kept_answer(self, number: int) -> Segments:
        """Return what later prompts have of an answer.

        Without its reasoning, the answer is different content for an engine, because it no longer follows the
        reasoning.
        """
        dropped = self._dropped(number)
        if not dropped:
            return ((self._answer(number), self._answers[number]),)
        left = self._answers[number] - dropped
        return ((f"{self.name}/{number}/said", left),) if left else ()

    def _dropped(self, number: int) -> int:
        """Number of tokens of an answer that later prompts omit."""
        return min(self._answers[number], self._calls[number].reasoning_tokens) if self.drops_reasoning else 0

    def _answer(self, number: int) -> str:
        return f"{self.name}/{number}/answer"

    def state(self) -> tuple[object, ...]:
        """Return everything that determines its future, as plain values (for digests)."""
        parts = (tuple(self._missing), tuple(self._ready_us), tuple(self._answers))
        return (self.name, self.user, self.failed, self.scheduled, self.unanswered, self.ended_us, *parts)


@dataclass(frozen=True, slots=True)
class _Node:
    """One call of every turn: its distributions, and its place among the calls of the turn."""

    inputs: TokenCounts
    outputs: TokenCounts
    wait_ms: TokenCounts | None
    after: tuple[int, ...]
    history: bool


class _Streams(NamedTuple):
    """The random streams of one session."""

    lengths: Stream
    reasoning: Stream
    media: Stream


class SessionDraws:
    """The sessions of one client, one after the other.

    Args:
        client: the client.
        session: the session settings.
        streams: the experiment's streams.
        plugins: where distributions are looked up.
        adapters: the adapters to choose from; all calls of a session ask for the same one.

    Raises:
        PolicyError: a distribution cannot be built.
    """

    def __init__(
        self,
        client: Client,
        session: Session,
        streams: Streams,
        plugins: Registry,
        adapters: AdapterDraws | None = None,
    ) -> None:
        self._client = client.id
        self._adapters = adapters
        self._session = session
        self._streams = streams
        self._head: Segments = () if client.prefix is None else ((client.prefix.group, client.prefix.tokens),)
        self._begun = 0
        self._ratios = ratios_of(client, plugins)
        self._drops_reasoning = client.reasoning is not None and client.reasoning.history == "dropped"
        self._media = None if client.multimodal is None else MediaDraws(client.id, client.multimodal, plugins)
        self._turns = _distribution(plugins, session.turns)
        self._think_ms = None if session.think_time_ms is None else _distribution(plugins, session.think_time_ms)
        self._nodes: list[_Node] = []
        places: dict[str, tuple[int, ...]] = {}
        for call in session.calls or _ONE_CALL:
            begin = len(self._nodes)
            places[call.id] = tuple(range(begin, begin + call.parallel))
            node = _Node(
                _distribution(plugins, call.input_tokens or client.input_tokens),
                _distribution(plugins, call.output_tokens or client.output_tokens),
                None if call.wait_ms is None else _distribution(plugins, call.wait_ms),
                tuple(place for name in call.after for place in places[name]),
                call.history,
            )
            self._nodes += [node] * call.parallel
        awaited = {place for node in self._nodes for place in node.after}
        self._last = tuple(place for place in range(len(self._nodes)) if place not in awaited)
        """The calls that end a turn: no other call waits for them."""

    def begin(self, user: int) -> SessionRun:
        """Begin the next session, held by that user; -1 = an open loop.

        Raises:
            PolicyError: it has more calls than any session may have.
        """
        name = f"{self._client}-{self._begun}"
        path = f"workload/{self._client}/session-{self._begun}"
        streams = _Streams(*(self._streams.stream(f"{path}{part}") for part in ("", "/reasoning", "/multimodal")))
        self._begun += 1
        calls = self._draw(streams)
        run = SessionRun(name, user, self._head, calls, paced_by_answers=self._session.pacing == "answers")
        run.drops_reasoning = self._drops_reasoning
        if self._adapters is not None:
            run.adapter = self._adapters.draw()
        return run

    def state(self) -> int:
        """Return the number of sessions begun, which with the seed determines all further ones."""
        return self._begun

    def _draw(self, streams: _Streams) -> list[Call]:
        turns = self._turns.sample(streams.lengths)
        if turns * len(self._nodes) > MAX_CALLS:
            raise PolicyError(
                f"a session of client {self._client!r} has {turns} turns of {len(self._nodes)} calls",
                help=f"{MAX_CALLS} calls are the most: give `session.turns` a max",
            )
        limit = self._session.max_context_tokens
        calls: list[Call] = []
        contexts: list[int] = []
        for turn in range(turns):
            first = len(calls)
            calls += self._draw_turn(streams, first)
            for call in calls[first:]:
                contexts.append(self._context(call, calls, contexts))
            if turn and limit is not None and max(contexts[first:]) > limit:
                return calls[:first]
        return calls

    def _draw_turn(self, streams: _Streams, first: int) -> list[Call]:
        """Draw the calls of a turn; ``first`` is the position of its first call in the session."""
        stream = streams.lengths
        think_ms = self._think_ms.sample(stream) if first and self._think_ms is not None else 0
        previous = tuple(first - len(self._nodes) + place for place in self._last) if first else ()
        calls = []
        for node in self._nodes:
            wait_ms = 0 if node.wait_ms is None else node.wait_ms.sample(stream)
            after = tuple(first + place for place in node.after)
            if not after:
                after, wait_ms = previous, think_ms
            tokens = node.inputs.sample(stream)
            history = after[0] if after and node.history and self._session.history == "full" else -1
            drawn = NOTHING_DRAWN if self._media is None else self._media.draw(streams.media)
            answer = node.outputs.sample(stream)
            thought = 0 if self._ratios is None else tokens_of(self._ratios.sample(streams.reasoning), answer)
            tokens += drawn.media.tokens
            calls.append(Call(tokens, answer, wait_ms * 1000, after, history, thought, drawn))
        return calls

    def _context(self, call: Call, calls: Sequence[Call], contexts: Sequence[int]) -> int:
        """Number of tokens of a prompt and its answer."""
        tokens = call.input_tokens + call.output_tokens
        if call.history < 0:
            return tokens + (self._head[0][1] if self._head else 0)
        tokens += contexts[call.history] - self._dropped(calls[call.history])
        tokens += whole_sum(
            [
                calls[earlier].output_tokens - self._dropped(calls[earlier]) if earlier != call.history else 0
                for earlier in call.after
            ]
        )
        return tokens

    def _dropped(self, call: Call) -> int:
        return call.reasoning_tokens if self._drops_reasoning else 0


def _distribution(plugins: Registry, config: PluginConfig) -> TokenCounts:
    return counts(plugins.create(LENGTHS, config.kind, config.settings), config.kind)
