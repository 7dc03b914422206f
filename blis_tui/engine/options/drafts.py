"""An instance's draft counters, and which drafts are accepted."""

from __future__ import annotations

from dataclasses import field
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.streams import Stream, stream_key

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


@dataclass(slots=True)
class DraftTallies:
    """Draft totals of an instance, under vLLM's names."""

    num_draft_tokens: int = 0
    decodes: int = 0
    """Number of decodes, one for each request and step, with drafts or without."""
    output_tokens: int = 0
    """Output tokens from these decodes."""
    accepted_runs: list[int] = field(default_factory=list)
    """How often each number of tokens was accepted, counted once for each request and step with any draft."""

    @property
    def num_drafts(self) -> int:
        """Number of verifications: one for each request and step with any draft token."""
        return self.accepted_at(0)

    @property
    def num_accepted_tokens(self) -> int:
        """Number of accepted draft tokens: no bonus tokens, but also tokens beyond the end of an answer."""
        return whole_sum([accepted * times for accepted, times in enumerate(self.accepted_runs)])

    def accepted_at(self, position: int) -> int:
        """How often the draft token at a position (from 1) was accepted."""
        return whole_sum(self.accepted_runs[position:])

    def add(self, other: DraftTallies) -> None:
        """Add another instance's totals."""
        self.num_draft_tokens += other.num_draft_tokens
        self.decodes += other.decodes
        self.output_tokens += other.output_tokens
        for accepted, times in enumerate(other.accepted_runs):
            self.accepted_runs[accepted] += times

    def state(self) -> tuple[object, ...]:
        """Return all totals as plain values (for digests)."""
        return (self.num_draft_tokens, self.decodes, self.output_tokens, *self.accepted_runs)


# Which draft tokens are accepted.

_MAX_CACHED: Final = 4096
"""Number of requests whose draws are cached; those of others are drawn again."""


class AcceptanceSampler:
    """Determines whether a draft token is accepted, drawn for each request and each position in its answer.

    The stream ``speculative/<request id>`` has one number for each position. So a request has the same luck under any
    policy, on any instance, with any number of drafts, and when its answer is generated again.

    Args:
        seed: of the run.
        chances: for each draft position, the probability of acceptance given that all drafts before it were accepted.

    Attributes:
        draft_tokens: number of tokens drafted at a time.
    """

    def __init__(self, seed: int, chances: tuple[float, ...]) -> None:
        self._seed = seed
        self.draft_tokens = len(chances)
        self._chances = chances
        self._runs: dict[int, bytes] = {}

    def __reduce__(self) -> tuple[type[AcceptanceSampler], tuple[int, tuple[float, ...]]]:
        return AcceptanceSampler, (self._seed, self._chances)

    def runs(self, request: Request) -> bytes:
        """Number of accepted drafts, out of the maximum, by the number of tokens generated so far."""
        runs = self._runs.get(request.index)
        if runs is None:
            if len(self._runs) == _MAX_CACHED:
                del self._runs[next(iter(self._runs))]
            self._runs[request.index] = runs = self._drawn(request)
        return runs

    def _drawn(self, request: Request) -> bytes:
        most = self.draft_tokens
        stream = Stream(stream_key(self._seed, f"speculative/{request.request_id}"))
        limits = [
            ceil(chance * 2.0**53) << 11 for chance in self._chances
        ]  # thresholds for words that correspond to ``uniform() < chance``
        below = limits[0]
        runs = bytearray()
        if any(limit != below for limit in limits):
            words = tuple(stream.words(request.output_tokens + most))
            for at in range(len(words)):
                of_it = zip(words[at : at + most], limits, strict=False)
                runs.append(next((place for place, (word, limit) in enumerate(of_it) if word >= limit), most))
            return bytes(runs)
        run = 0
        for word in reversed(stream.words(request.output_tokens + most)):
            run = run + 1 if word < below else 0
            runs.append(run if run < most else most)
        runs.reverse()
        return bytes(runs)
