"""Requests as columns of numbers: a few bytes each, however many there are."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from blis_tui.base.errors import InputError
from blis_tui.engine.request import Segments, declared_segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.request import Media, Request
    from blis_tui.live.traffic.opening import RequestTiming


_Value = TypeVar("_Value", bound=Hashable)

GROUPINGS: Final = ("client", "tenant", "slo_class", "model")
"""Attributes by which requests are grouped."""


class InternedColumn(Generic[_Value]):
    """A column with few different values: each stored once, rows as numbers of four bytes."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self.rows = array("i")
        self._codes: dict[_Value, int] = {}

    def append(self, value: _Value) -> None:
        """Add a row."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        self.rows.append(code)


class Ledger:
    """The requests of a workload, in order of arrival.

    Args:
        asked: the requests.
        block_size_tokens: block size of the cache that prefixes are looked up in.
        recorded: whether they come from a trace, which may say nothing of what prompts share.

    Attributes:
        arrival_us: arrival times.
        input_tokens: prompt lengths.
        output_tokens: answer lengths.
        found_tokens: prompt tokens that an infinite cache would hit.
        names: grouping -> the group of each request.
        e2e_us: recorded durations of answers; -1 = not recorded.
        sessions: the conversation of each request; empty = none.
        heads: the prompt's shareable head.
        reasoning: row -> reasoning tokens of its answer, if any.
        media: row -> media tokens of its prompt, if any.
        unfitted: key of a client that no fit sets -> requests that would need it.

    Raises:
        InputError: there are no requests.
    """

    def __init__(self, asked: Iterable[RequestTiming], block_size_tokens: int, *, recorded: bool = False) -> None:
        self.block_size_tokens = block_size_tokens
        self._recorded = recorded
        self.arrival_us, self.input_tokens, self.output_tokens, self.found_tokens = (array("q") for _ in range(4))
        self.e2e_us = array("q")
        self.names = {grouping: InternedColumn[str]() for grouping in GROUPINGS}
        self.sessions = InternedColumn[str]()
        self.heads = InternedColumn[Segments]()
        self.reasoning: dict[int, int] = {}
        self.media: dict[int, Media] = {}
        self.unfitted = Counter[str]()
        cache = InfiniteCache(block_size_tokens)
        names, sessions, heads = self.names, self.sessions, self.heads
        for row, timing in enumerate(asked):
            request = timing.request
            if request.reasoning is not None and request.reasoning.tokens:
                self.reasoning[row] = request.reasoning.tokens
            if any(request.media):
                self.media[row] = request.media
            self._note_unfitted(request)
            self.arrival_us.append(request.arrival_us)
            self.input_tokens.append(request.input_tokens)
            self.output_tokens.append(request.output_tokens)
            self.found_tokens.append(cache.ask(request))
            names["client"].append(timing.client)
            names["tenant"].append(request.tenant)
            names["slo_class"].append(request.slo_class)
            names["model"].append(request.model)
            sessions.append(request.session_id)
            self.e2e_us.append(timing.e2e_us)
            heads.append(declared_segments(request))
        if not self.arrival_us:
            raise InputError("there are no requests", help="a longer horizon, or more of the trace, has some")

    def _note_unfitted(self, request: Request) -> None:
        if request.adapter:
            self.unfitted["adapters"] += 1
        if request.deadline_us:
            self.unfitted["timeout_us"] += 1
        if request.declared_tokens != request.output_tokens:
            self.unfitted["max_output_tokens"] += 1

    def __len__(self) -> int:
        return len(self.arrival_us)

    @property
    def prefixes_known(self) -> bool:
        """Whether it is known what prompts share; not if they come from a trace that names no prefix at all."""
        return not self._recorded or any(self.heads.values)

    def text_tokens(self, row: int) -> int:
        """Number of text tokens of a prompt."""
        media = self.media.get(row)
        return self.input_tokens[row] - (media.tokens if media is not None else 0)

    def groups(self, grouping: str) -> dict[str, list[int]]:
        """Return the rows of each group, in the order in which the groups first appear."""
        names = self.names[grouping]
        rows_of_names: list[list[int]] = [[] for _ in names.values]
        for row, code in enumerate(names.rows):
            rows_of_names[code].append(row)
        return dict(zip(names.values, rows_of_names, strict=True))


# Hits in an infinite prefix cache, computed from segments without any engine.
#
# Requests are processed in order of arrival; each prompt is in the cache for all later ones. Two prompts share their
# beginning as long as they have the same sequence of segments, however far the last segment continues. Hits are whole
# blocks.


class _Branch:
    """Prompts that continue with one segment: the longest part of it, and what follows, by the part's length."""

    __slots__ = ("longest", "next")

    def __init__(self) -> None:
        self.longest = 0
        self.next: dict[int, dict[str, _Branch]] = {}


class InfiniteCache:
    """All prompts and answers so far.

    Requests that do not name their answers (`Request.content`) have them found in their own session: where a later
    prompt continues a whole earlier one with a segment as long as its answer, that segment is the answer.

    Args:
        block_size_tokens: tokens of a block.
    """

    def __init__(self, block_size_tokens: int) -> None:
        self._block = block_size_tokens
        self._models: dict[str, dict[str, _Branch]] = {}
        self._answers: dict[tuple[str, str, Segments], int] = {}
        """Model, session and whole prompt -> tokens of the answer."""

    def ask(self, request: Request) -> int:
        """Return the hit tokens of a request's prompt, and add the prompt and its answer to the cache."""
        model, session, segments = request.model, request.session_id, request.segments
        if not segments and not request.content:
            return 0
        root = self._models.setdefault(model, {})  # models share nothing
        matched, place = _longest_match(root, segments)
        while session and 0 < place < len(segments):
            if self._answers.get((model, session, segments[:place])) != segments[place][1]:
                break
            _add(root, segments[: place + 1])
            matched, place = _longest_match(root, segments)
        _add(root, request.content)
        if session and request.content == segments and sum(tokens for _, tokens in segments) == request.input_tokens:
            self._answers[model, session, segments] = request.output_tokens
        return matched // self._block * self._block


def _add(branches: dict[str, _Branch], segments: Segments) -> None:
    """Add content to the cache."""
    for name, tokens in segments:
        branch = branches.get(name)
        if branch is None:
            branch = branches[name] = _Branch()
        branch.longest = max(branch.longest, tokens)
        branches = branch.next.setdefault(tokens, {})


def _longest_match(branches: dict[str, _Branch], segments: Segments) -> tuple[int, int]:
    """Return the number of tokens of a prompt's head that are in the cache, and that of its segments before them."""
    matched = 0
    for place, (name, tokens) in enumerate(segments):
        branch = branches.get(name)
        if branch is None:
            return matched, place
        matched += min(tokens, branch.longest)
        following = branch.next.get(tokens)
        if following is None:
            return matched, place
        branches = following
    return matched, len(segments)
