"""What was observed: requests with every chunk of their answers, steps, scrapes of metrics, and what the server is.

All times are microseconds since the schedule began, on the client's clock.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from blis_tui.engine.request import Segments

COMPLETED: Final = "completed"
REJECTED: Final = "rejected"
REFUSED: Final = "refused"
BROKEN: Final = "broken"
TIMED_OUT: Final = "timed-out"
UNREADABLE: Final = "unreadable"
INTERRUPTED: Final = "interrupted"
OUTCOMES: Final[Mapping[str, str]] = {
    COMPLETED: "the complete answer arrived",
    REJECTED: "the server answered with an error",
    REFUSED: "no connection could be opened",
    BROKEN: "the connection broke, or the answer ended early",
    TIMED_OUT: "the timeout passed before the end of the answer",
    UNREADABLE: "the response is not an answer",
    INTERRUPTED: "observe was stopped before the end of the answer",
}
"""How a request can end -> what that means."""

SERVED: Final = frozenset({COMPLETED, BROKEN, TIMED_OUT, INTERRUPTED})
"""Outcomes of requests that may have been computed, in part at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One request: what was asked for, and what came."""

    request_id: str
    """Its name."""
    index: int
    """Its place in the order in which requests were to be sent, from 0."""
    due_us: int
    """When it was to be sent."""
    sent_us: int
    """When it was; the time at which it could not be, where there was no connection."""
    done_us: int
    """When its answer was complete, or known to stay as it is."""
    outcome: str
    """One of ``OUTCOMES``."""
    input_tokens: int
    """Prompt tokens asked for; the server's own count is ``prompt_tokens``."""
    output_tokens: int
    """Output tokens asked for; the server's own count is ``completion_tokens``."""
    chunks: tuple[tuple[int, int], ...] = ()
    """When each piece of the answer came, and how many tokens it has."""
    prompt_tokens: int | None = None
    """Prompt tokens as the server counts them; None = it does not say."""
    completion_tokens: int | None = None
    """Output tokens as the server counts them; None = it does not say."""
    cached_tokens: int | None = None
    """Prompt tokens found in its prefix cache, as the server counts them; None = it does not say."""
    told_ids: bool = False
    """Whether the tokens of each chunk are known by their ids; else they are counted by their texts."""
    whole: bool = False
    """Whether its answer was asked for in one piece: then it is not known when its first token was there."""
    merged: int = 0
    """Chunks that were read together with an earlier one, and have its time."""
    status: int = 0
    """The status of HTTP; 0 = there was none."""
    finish_reason: str = ""
    """Why its answer ended, as the server says; empty = it does not."""
    error: str = ""
    """What went wrong; empty = nothing."""
    segments: Segments = ()
    """The shared head of its prompt in parts: names and tokens."""
    answer_segment: str = ""
    """What its answer is called in the prompts that begin with it; empty = none does."""
    slo_class: str = "standard"
    """Its SLO class."""
    tenant: str = ""
    """Its tenant; empty = none."""
    model: str = ""
    """The model that it asks for; empty = any."""
    adapter: str = ""
    """The LoRA adapter that it asks for; empty = none."""
    session_id: str = ""
    """The session that it belongs to; empty = none."""
    round_index: int = 0
    """Which call of its session it is, from 0."""
    deadline_us: int = 0
    """When its client would have given it up; 0 = never."""

    @property
    def late_us(self) -> int:
        """How much later than it should it was sent."""
        return self.sent_us - self.due_us

    @property
    def tokens(self) -> int:
        """Tokens that came."""
        total = 0
        for _, count in self.chunks:
            total += count
        if not self.told_ids and self.completion_tokens is not None and self.outcome == COMPLETED:
            return self.completion_tokens
        return total

    @property
    def guessed(self) -> bool:
        """Whether its tokens are only the pieces in which it came."""
        return not self.told_ids and self.completion_tokens is None

    @property
    def ttft_us(self) -> int | None:
        """From sending to the first token; None = there was none, or nobody knows when."""
        return self.chunks[0][0] - self.sent_us if self.chunks and not self.whole else None

    @property
    def e2e_us(self) -> int | None:
        """From sending to the last token; None = the answer is not complete."""
        return self.chunks[-1][0] - self.sent_us if self.chunks and self.outcome == COMPLETED else None

    @property
    def prompt(self) -> int:
        """Tokens of its prompt: the server's count, where it says."""
        return self.input_tokens if self.prompt_tokens is None else self.prompt_tokens

    @property
    def contradicts(self) -> bool:
        """Whether the server counted other tokens than it sent."""
        told = self.completion_tokens
        return self.told_ids and self.outcome == COMPLETED and told is not None and told != self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the engine, as its log tells it."""

    number: int
    end_us: int | None
    """When its line came; None = the log was not watched."""
    duration_us: int
    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int
    """More than the requests where preempted ones are computed again."""
    kv_share: float | None
    """Of the KV blocks, those in use after it."""

    @property
    def requests(self) -> int:
        """Those in its batch."""
        return self.prefill_requests + self.decode_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The metrics at a moment, summed over the engines behind the endpoint."""

    time_us: int
    """In the middle between asking and hearing."""
    values: Mapping[str, float]
    """By vLLM's names, without labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the server is, as far as it says; None and empty = it does not."""

    version: str = ""
    model: str = ""
    max_model_len: int | None = None
    block_size_tokens: int | None = None
    kv_blocks: int | None = None
    """Blocks that requests can have: vLLM keeps one of those that it counts, for padding."""
    prefix_caching: bool | None = None
    engines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was observed of one run."""

    folder: Path
    server: Server
    requests: tuple[Observed, ...]
    """In the order in which they were sent."""
    steps: tuple[Step, ...] = ()
    scrapes: tuple[Scrape, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict)
    """What ``recording.json`` says."""

    @property
    def answered(self) -> Sequence[Observed]:
        """The requests whose whole answer came."""
        return [one for one in self.requests if one.outcome == COMPLETED and one.chunks]
