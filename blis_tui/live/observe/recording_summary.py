"""Status of a run in progress, and summary and warnings of a recording."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.text import printable
from blis_tui.base.units import count_text, plural, span_text
from blis_tui.live.observe.recording import COMPLETED, KV_EVENTS, OUTCOMES, server_document
from blis_tui.results.stats import median_high, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.observe.recording import Observed, Recording


_WINDOW_US: Final = 5_000_000
"""Window of rates and latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a run at one time."""

    time_us: int
    total: int | None
    """Number of requests to send; None = unknown."""
    sent: int
    running: int
    outcomes: Mapping[str, int]
    tokens: int
    """Output tokens so far."""
    requests_per_s: float
    """Answers completed per second in the window. The next field has their tokens."""
    tokens_per_s: float
    ttft_us: int | None
    """Median TTFT of the latest answers; None = there were none."""
    e2e_us: int | None
    late_us: int
    """Maximum delay of sending in the window."""
    server: Mapping[str, float]
    """The latest scrape."""

    @property
    def failed(self) -> int:
        """Requests that did not complete."""
        return whole_sum([count for outcome, count in self.outcomes.items() if outcome != COMPLETED])


class Progress:
    """Sums up rows as they arrive."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.outcomes: dict[str, int] = {}
        self.tokens = 0
        self.server: Mapping[str, float] = {}
        self._latest: deque[Observed] = deque()

    def note(self, row: Observed) -> None:
        """Add a finished request."""
        self.outcomes[row.outcome] = self.outcomes.get(row.outcome, 0) + 1
        self.tokens += row.tokens
        self._latest.append(row)

    def look(self, time_us: int, sent: int, running: int) -> Status:
        """Return the current status."""
        latest = self._latest
        while latest and latest[0].done_us < time_us - _WINDOW_US:
            latest.popleft()
        span_s = max(min(time_us, _WINDOW_US), 1) / 1e6
        done = [row for row in latest if row.outcome == COMPLETED]
        tokens = whole_sum([row.tokens for row in latest])
        return Status(
            time_us=time_us,
            total=self.total,
            sent=sent,
            running=running,
            outcomes=dict(self.outcomes),
            tokens=self.tokens,
            requests_per_s=len(done) / span_s,
            tokens_per_s=tokens / span_s,
            ttft_us=median_high(row.ttft_us for row in done if row.ttft_us is not None),
            e2e_us=median_high(row.e2e_us for row in done if row.e2e_us is not None),
            late_us=max((row.late_us for row in latest), default=0),
            server=self.server,
        )


# The status of a run, in a line.


def status_text(status: Status) -> str:
    """Return the progress, the rates, and the problems."""
    done = status.outcomes.get(COMPLETED, 0)
    total = "" if status.total is None else f" of {count_text(status.total)}"
    parts = [
        f"{max(status.time_us, 0) / 1e6:,.1f} s",
        f"{count_text(done)}{total} answered, {count_text(status.running)} in flight",
        f"{status.requests_per_s:,.1f} requests/s, {status.tokens_per_s:,.0f} tokens/s",
    ]
    if status.ttft_us is not None:
        parts.append(f"TTFT {span_text(status.ttft_us)}")
    if status.failed:
        parts.append(_failures(status.outcomes))
    return "  ".join(parts)


_LATE_SHARE: Final = 0.1
"""If requests are sent later than this share of the median TTFT, the load was not as intended."""
_LATE_US: Final = 5_000
"""Delays up to this are due to the clock's precision."""
_MERGED_SHARE: Final = 0.05
_OTHER_PROMPTS: Final = 0.05
"""Prompts of words may differ from the requested length by this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Statistics of a value over requests, in microseconds."""

    mean_us: float
    p50_us: float
    p99_us: float
    max_us: int

    def to_dict(self) -> dict[str, float]:
        """Return the statistics in milliseconds, as in reports."""
        names = ("mean", "p50", "p99", "max")
        return {name: getattr(self, f"{name}_us") / 1000 for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of a recording."""

    requests: int
    outcomes: Mapping[str, int]
    duration_us: int
    """From the first sending to the end of the last request."""
    input_tokens: int
    output_tokens: int
    ttft: Spread | None
    itl: Spread | None
    """Each request's mean gap between tokens."""
    e2e: Spread | None
    late: Spread | None
    """Delay of sending."""
    shorter: int
    """Answers with fewer tokens than requested. The next field counts longer ones."""
    longer: int
    guessed: int
    """Answers whose tokens are only estimated by their number of chunks."""
    asked_tokens: int
    """For prompts that the server counted, the requested tokens. The next field has the server's count."""
    counted_tokens: int
    contradictions: int
    """Answers whose number of tokens differs from the server's count."""
    merged: int
    """Chunks that were read together with an earlier one."""
    chunks: int
    failures: Mapping[str, str]
    """Outcome -> its first error."""

    @property
    def failed(self) -> int:
        """Requests that did not complete."""
        return self.requests - self.outcomes.get(COMPLETED, 0)


def summarize(rows: Sequence[Observed]) -> Summary:
    """Summarise the requests of a recording."""
    done = [row for row in rows if row.outcome == COMPLETED]
    outcomes = {name: len([row for row in rows if row.outcome == name]) for name in OUTCOMES}
    begin_us = min((row.sent_us for row in rows), default=0)
    known = [row for row in done if not row.guessed]
    counted = [row for row in done if row.prompt_tokens is not None]
    failures: dict[str, str] = {}
    for row in rows:
        if row.outcome != COMPLETED and row.error:
            failures.setdefault(row.outcome, row.error)
    return Summary(
        requests=len(rows),
        outcomes={name: count for name, count in outcomes.items() if count},
        duration_us=max((row.done_us for row in rows), default=0) - begin_us,
        input_tokens=whole_sum([row.prompt for row in done]),
        output_tokens=whole_sum([row.tokens for row in rows]),
        ttft=spread([row.ttft_us for row in done if row.ttft_us is not None]),
        itl=spread([gap for row in done if (gap := mean_gap_us(row)) is not None]),
        e2e=spread([row.e2e_us for row in done if row.e2e_us is not None]),
        late=spread([row.late_us for row in rows]),
        shorter=len([row for row in known if row.tokens < row.output_tokens]),
        longer=len([row for row in known if row.tokens > row.output_tokens]),
        guessed=len(done) - len(known),
        asked_tokens=whole_sum([row.input_tokens for row in counted]),
        counted_tokens=whole_sum([row.prompt for row in counted]),
        contradictions=len([row for row in done if row.contradicts]),
        merged=whole_sum([row.merged for row in rows]),
        chunks=whole_sum([len(row.chunks) for row in rows]),
        failures=failures,
    )


def mean_gap_us(row: Observed) -> int | None:
    """Return the mean gap between a request's tokens; None if it has fewer than two."""
    gaps = row.tokens - 1
    if gaps < 1 or len(row.chunks) < 2:
        return None
    return (row.chunks[-1][0] - row.chunks[0][0]) // gaps


def spread(values: Sequence[int]) -> Spread | None:
    """Return the statistics of values, with the percentiles of reports; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    count = len(ordered)
    return Spread(
        mean_us=whole_sum(ordered) / count,
        p50_us=percentile(ordered, 50),
        p99_us=percentile(ordered, 99),
        max_us=ordered[-1],
    )


def _failures(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count_text(count)} {name}" for name, count in outcomes.items() if name != COMPLETED)


def warnings(summary: Summary, recording: Recording) -> list[str]:
    """Return what distorts the recording, one sentence each."""
    sentences = []
    if summary.failed:
        failures = _failures(summary.outcomes)
        sentences.append(f"{plural(summary.failed, 'request')} without a complete answer: {failures}")
    late, ttft = summary.late, summary.ttft
    if late is not None and ttft is not None and late.p99_us > max(_LATE_US, _LATE_SHARE * ttft.p50_us):
        sentences.append(
            f"at least 1 in 100 requests was sent {span_text(round(late.p99_us))} late, compared with a median time to"
            f" first token of {span_text(round(ttft.p50_us))}: this machine was busy, and the load was not quite as"
            " intended"
        )
    if summary.chunks and summary.merged > _MERGED_SHARE * summary.chunks:
        sentences.append(
            f"{count_text(summary.merged)} of {plural(summary.chunks, 'chunk')} were read together with an earlier one:"
            " gaps between tokens are less exact"
        )
    if summary.contradictions:
        sentences.append(
            f"the server's token count differs from the tokens it sent in {plural(summary.contradictions, 'answer')}"
        )
    sentences += _length_warnings(summary, recording)
    sentences += _server_warnings(summary, recording)
    sentences += _lost_warnings(recording)
    return sentences


def _length_warnings(summary: Summary, recording: Recording) -> list[str]:
    """Return warnings about prompts and answers whose lengths differ from the requested ones, or are unknown."""
    sentences = []
    if summary.guessed:
        sentences.append(
            f"for {plural(summary.guessed, 'answer')}, the server sent neither token ids nor `usage`: each chunk "
            f"counts as one token, but may contain more"
        )
    if summary.shorter:
        sentences.append(
            f"{plural(summary.shorter, 'answer')} ended before the requested length: they replay as they were"
        )
    if summary.longer and recording.about.get("exact_lengths") is not False:
        sentences.append(
            f"{plural(summary.longer, 'answer')} went beyond the requested length: they replay as they were"
        )
    asked, counted = summary.asked_tokens, summary.counted_tokens
    if abs(counted - asked) > _OTHER_PROMPTS * asked:
        sentences.append(
            f"prompts of {count_text(asked)} tokens were requested, the server counted {count_text(counted)}: they "
            f"replay as it counted"
        )
    return sentences


def _lost_warnings(recording: Recording) -> list[str]:
    """Return warnings about missing data besides the answers."""
    about = recording.about
    sentences = []
    if about.get("log") is True and not recording.steps:
        sentences.append(
            "the log has no steps: is it the log of this server, and was it started with "
            "--enable-logging-iteration-details?"
        )
    if about.get("kv_events") is True and not (recording.folder / KV_EVENTS).is_file():
        sentences.append(
            "no KV cache events arrived: does the server publish them (--kv-events-config), and at this address?"
        )
    lost = about.get("lost_scrapes")
    if isinstance(lost, int) and lost:
        tries = plural(lost, "time")
        sentences.append(f"the server's metrics could not be read {tries}: the server's own figures are incomplete")
    return sentences


def _server_warnings(summary: Summary, recording: Recording) -> list[str]:
    """Return warnings about server counters that contradict the answers."""
    counters = recording.about.get("counters")
    if not isinstance(counters, dict):
        return []
    generated = counters.get("vllm:generation_tokens_total")
    if not summary.failed and isinstance(generated, int | float) and round(generated) != summary.output_tokens:
        counts = f"{count_text(round(generated))} tokens generated, {count_text(summary.output_tokens)} came"
        return [f"the server's metrics count {counts}: it served other requests meanwhile, or its counts are wrong"]
    return []


# A recording's summary, as text and as plain data.

_COUNTED = (
    ("preemptions", "vllm:num_preemptions_total"),
    ("prompt tokens from the prefix cache", "vllm:prefix_cache_hits_total"),
)


def summary_text(summary: Summary, recording: Recording) -> str:
    """Return the summary as text."""
    seconds = max(summary.duration_us, 1) / 1e6
    server = recording.server
    done = summary.outcomes.get(COMPLETED, 0)
    lines = [
        f"recording  {recording.folder}",
        f"server     {' '.join([server.model, server.version and f'({server.version})']).strip() or 'unknown'}",
        (
            f"requests   {count_text(done)} of {count_text(summary.requests)} answered in {seconds:,.2f} s"
            f" ({done / seconds:,.2f}/s)"
        ),
        (
            f"tokens     {count_text(summary.input_tokens)} of prompts, {count_text(summary.output_tokens)} of answers"
            f" ({summary.output_tokens / seconds:,.1f}/s)"
        ),
        *(f"{name:10} {count_text(count)}  {summary.failures.get(name, '')}".rstrip() for name, count in _bad(summary)),
        "",
        f"{'ms':10}{'mean':>12}{'p50':>12}{'p99':>12}{'max':>12}",
        *(_line(name, spread) for name, spread in _spreads(summary) if spread is not None),
    ]
    counted = _counters(recording)
    if recording.steps or counted:
        counts = [plural(len(recording.steps), "step")] if recording.steps else []
        counts += [f"{count_text(value)} {name}" for name, value in counted.items()]
        lines += ["", f"by the server: {', '.join(counts)}"]
    return "\n".join(map(printable, lines)) + "\n"


def summary_document(summary: Summary, recording: Recording, warnings: Sequence[str]) -> dict[str, object]:
    """Return the summary as plain data; times in milliseconds."""
    return {
        "recording": str(recording.folder),
        "server": server_document(recording.server),
        "complete": recording.about.get("complete") is True,
        "requests": {"total": summary.requests, **summary.outcomes},
        "duration_s": summary.duration_us / 1e6,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        **{f"{name}_ms": spread.to_dict() for name, spread in _spreads(summary) if spread is not None},
        "steps": len(recording.steps),
        "counters": recording.about.get("counters", {}),
        "errors": dict(summary.failures),
        "warnings": list(warnings),
    }


def _bad(summary: Summary) -> list[tuple[str, int]]:
    return [(name, count) for name, count in summary.outcomes.items() if name != COMPLETED]


def _spreads(summary: Summary) -> tuple[tuple[str, Spread | None], ...]:
    return (("ttft", summary.ttft), ("itl", summary.itl), ("e2e", summary.e2e), ("sent_late", summary.late))


def _line(name: str, spread: Spread) -> str:
    cells = (spread.mean_us, spread.p50_us, spread.p99_us, spread.max_us)
    return f"{name.replace('_', ' '):10}" + "".join(f"{cell / 1000:>12,.2f}" for cell in cells)


def _counters(recording: Recording) -> Mapping[str, int]:
    counters = recording.about.get("counters")
    reported = counters if isinstance(counters, dict) else {}
    return {name: round(reported[key]) for name, key in _COUNTED if isinstance(reported.get(key), int | float)}
