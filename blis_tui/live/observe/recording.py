"""The data of a recording: requests with every chunk of their answers, steps, scrapes of metrics, and the server.

All times are microseconds since the start of the schedule, on the client's clock.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from blis_tui.engine.request import Segments

MOST: Final = 1 << 53
"""No time in microseconds (285 years), count or metric is larger; floats are exact up to here."""
MOST_TOKENS: Final = 1 << 32
"""No prompt or answer has more."""
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
"""Outcome of a request -> its meaning."""

SERVED: Final = frozenset({COMPLETED, BROKEN, TIMED_OUT, INTERRUPTED})
"""Outcomes of requests that may have been computed, at least in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One request: what was requested, and what was received."""

    request_id: str
    """Its name."""
    index: int
    """Its position in the order of sending, from 0."""
    due_us: int
    """When it was due."""
    sent_us: int
    """When it was sent; without a connection, when sending failed."""
    done_us: int
    """When its answer was complete, or known not to change any more."""
    outcome: str
    """One of ``OUTCOMES``."""
    input_tokens: int
    """Requested prompt tokens; ``prompt_tokens`` is the server's count."""
    output_tokens: int
    """Requested output tokens; ``completion_tokens`` is the server's count."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Arrival and number of tokens of each chunk of the answer."""
    prompt_tokens: int | None = None
    """The server's count of prompt tokens; None = not reported."""
    completion_tokens: int | None = None
    """The server's count of output tokens; None = not reported."""
    cached_tokens: int | None = None
    """The server's count of prompt tokens found in its prefix cache; None = not reported."""
    told_ids: bool = False
    """Whether the tokens of each chunk are known by id; otherwise they are counted from texts."""
    whole: bool = False
    """Whether its answer was requested in one piece, so that the time of the first token is unknown."""
    merged: int = 0
    """Chunks that were read together with an earlier one, and have its time."""
    status: int = 0
    """HTTP status; 0 = none."""
    finish_reason: str = ""
    """The server's reason for the end of the answer; empty = not reported."""
    error: str = ""
    """Error message; empty = none."""
    segments: Segments = ()
    """The segments of its shared prefix: names and tokens."""
    answer_segment: str = ""
    """Name of its answer in prompts that begin with it; empty = none does."""
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
    """Its call number within its session, from 0."""
    deadline_us: int = 0
    """When its client would have timed out; 0 = never."""

    @property
    def late_us(self) -> int:
        """Delay of its sending."""
        return self.sent_us - self.due_us

    @property
    def tokens(self) -> int:
        """Number of tokens received."""
        total = whole_sum([count for _, count in self.chunks])
        if not self.told_ids and self.completion_tokens is not None and self.outcome == COMPLETED:
            return self.completion_tokens
        return total

    @property
    def guessed(self) -> bool:
        """Whether its tokens are only estimated by the number of chunks."""
        return not self.told_ids and self.completion_tokens is None

    @property
    def ttft_us(self) -> int | None:
        """Time from sending to the first token; None = no token, or an unknown time."""
        return self.chunks[0][0] - self.sent_us if self.chunks and not self.whole else None

    @property
    def e2e_us(self) -> int | None:
        """Time from sending to the last token; None = the answer is incomplete."""
        return self.chunks[-1][0] - self.sent_us if self.chunks and self.outcome == COMPLETED else None

    @property
    def prompt(self) -> int:
        """Prompt tokens: the server's count, if reported."""
        return self.input_tokens if self.prompt_tokens is None else self.prompt_tokens

    @property
    def contradicts(self) -> bool:
        """Whether the server's count differs from the tokens that it sent."""
        told = self.completion_tokens
        return self.told_ids and self.outcome == COMPLETED and told is not None and told != self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step from the engine's log."""

    number: int
    end_us: int | None
    """When its line was read; None = the log was not watched."""
    duration_us: int
    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int
    """Greater than the number of requests if preempted ones are recomputed."""
    kv_share: float | None
    """Share of KV blocks in use after it."""

    @property
    def requests(self) -> int:
        """Number of requests in its batch."""
        return self.prefill_requests + self.decode_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The metrics at one time, summed over the engines behind the endpoint."""

    time_us: int
    """Midpoint between request and answer."""
    values: Mapping[str, float]
    """Values by vLLM's names, without labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server's description of itself; None and empty = not reported."""

    version: str = ""
    model: str = ""
    max_model_len: int | None = None
    block_size_tokens: int | None = None
    kv_blocks: int | None = None
    """KV blocks for requests: vLLM reserves one of those that it reports for padding."""
    prefix_caching: bool | None = None
    engines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was observed in one run."""

    folder: Path
    server: Server
    requests: tuple[Observed, ...]
    """Requests in the order of sending."""
    steps: tuple[Step, ...] = ()
    scrapes: tuple[Scrape, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict)
    """Content of ``recording.json``."""

    @property
    def answered(self) -> Sequence[Observed]:
        """The requests that completed."""
        return [one for one in self.requests if one.outcome == COMPLETED and one.chunks]
