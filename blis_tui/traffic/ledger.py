"""Requests as columns of numbers: a few bytes for each, however many there are."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from blis_tui.engine.request import Media, Segments
from blis_tui.errors import InputError
from blis_tui.traffic.reuse import InfiniteCache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.traffic.opening import Asked

_Value = TypeVar("_Value", bound=Hashable)

GROUPINGS: Final = ("client", "tenant", "slo_class", "model")
"""What requests are told apart by."""


class Repeated(Generic[_Value]):
    """A column of few different values: each stored once, rows as numbers of four bytes."""

    __slots__ = ("_codes", "rows", "values")

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
    """What the requests of a workload asked for, in order of arrival.

    Args:
        asked: the requests.
        block_size_tokens: tokens of a block of the cache that prefixes are looked up in.

    Attributes:
        arrival_us: when they arrived.
        input_tokens: tokens of their prompts.
        output_tokens: tokens of their answers.
        found_tokens: tokens of their prompts that an infinite cache would find.
        names: grouping -> which group each belongs to.
        e2e_us: what their answers took, where that was recorded; -1 = it was not.
        sessions: which conversation each belongs to; empty = none.
        heads: what its prompt shares with others.
        reasoning: row -> tokens of its answer that are reasoning, where any are.
        media: row -> tokens of its prompt that are no text, where any are.

    Raises:
        InputError: there are none.
    """

    def __init__(self, asked: Iterable[Asked], block_size_tokens: int) -> None:
        self.block_size_tokens = block_size_tokens
        self.arrival_us, self.input_tokens, self.output_tokens, self.found_tokens = (array("q") for _ in range(4))
        self.e2e_us = array("q")
        self.names = {grouping: Repeated[str]() for grouping in GROUPINGS}
        self.sessions = Repeated[str]()
        self.heads = Repeated[Segments]()
        self.reasoning: dict[int, int] = {}
        self.media: dict[int, Media] = {}
        cache = InfiniteCache(block_size_tokens)
        names, sessions, heads = self.names, self.sessions, self.heads
        for row, one in enumerate(asked):
            request = one.request
            if request.reasoning is not None and request.reasoning.tokens:
                self.reasoning[row] = request.reasoning.tokens
            if any(request.media):
                self.media[row] = request.media
            self.arrival_us.append(request.arrival_us)
            self.input_tokens.append(request.input_tokens)
            self.output_tokens.append(request.output_tokens)
            content: Segments = getattr(request, "content", ())
            self.found_tokens.append(cache.ask(request.segments, request.model, content))
            names["client"].append(one.client)
            names["tenant"].append(request.tenant)
            names["slo_class"].append(request.slo_class)
            names["model"].append(request.model)
            sessions.append(request.session_id)
            self.e2e_us.append(one.e2e_us)
            heads.append(request.segments)
        if not self.arrival_us:
            raise InputError("there are no requests", help="a longer horizon, or more of the trace, has some")

    def __len__(self) -> int:
        return len(self.arrival_us)

    def text_tokens(self, row: int) -> int:
        """Tokens of a prompt that are text."""
        media = self.media.get(row)
        return self.input_tokens[row] - (media.tokens if media is not None else 0)

    def groups(self, grouping: str) -> dict[str, list[int]]:
        """The rows of each group, in the order in which the groups first appear."""
        names = self.names[grouping]
        found: list[list[int]] = [[] for _ in names.values]
        for row, code in enumerate(names.rows):
            found[code].append(row)
        return dict(zip(names.values, found, strict=True))
