"""A recording as tracks for Perfetto: requests, the engine's steps, and its metrics."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from blis_tui.output.perfetto import REQUEST, Counter, Lanes, Packets

if TYPE_CHECKING:
    from typing import BinaryIO

    from blis_tui.live.recording.recording import Observed, Recording
    from blis_tui.output.perfetto import Argument

_COUNTERS = (
    ("running", "requests", "vllm:num_requests_running", 1.0),
    ("waiting", "requests", "vllm:num_requests_waiting", 1.0),
    ("KV cache used", "per mille", "vllm:kv_cache_usage_perc", 1000.0),
    ("preemptions", "requests", "vllm:num_preemptions_total", 1.0),
)


def write_timeline(out: BinaryIO, recording: Recording) -> None:
    """Write the whole trace."""
    packets = Packets(out)
    server = packets.process(1, f"server {recording.server.model}".rstrip())
    _write_requests(packets, server, recording)
    _write_steps(packets, packets.track(server, "steps", 1), recording)
    for name, unit, metric, scale in _COUNTERS:
        counter = Counter(packets, server, name, unit)
        for scrape in recording.scrapes:
            if metric in scrape.values and scrape.time_us >= 0:
                counter.value = round(scrape.values[metric] * scale)
                counter.write(scrape.time_us)


def _write_steps(packets: Packets, track: int, recording: Recording) -> None:
    """Write the steps; log lines are late, so a step begins no earlier than the previous one's end."""
    before_us = 0
    for step in recording.steps:
        if step.end_us is not None and step.end_us >= before_us:
            told: dict[str, Argument] = {"prefill_tokens": step.prefill_tokens, "decode_requests": step.decode_requests}
            begin_us = max(step.end_us - step.duration_us, before_us)
            packets.begin(track, begin_us, "step", f"step {step.number}", told)
            packets.end(track, step.end_us)
            before_us = step.end_us


def _write_requests(packets: Packets, server: int, recording: Recording) -> None:
    lanes = Lanes(packets, server, "requests", 2)
    taken: list[tuple[int, int]] = []
    for row in recording.requests:
        while taken and taken[0][0] <= row.sent_us:
            lanes.release(heappop(taken)[1])
        lane = lanes.take()
        heappush(taken, (max(row.done_us, row.sent_us), lane))
        _write_request(packets, lane, row)


def _write_request(packets: Packets, lane: int, row: Observed) -> None:
    told: dict[str, Argument] = {"input_tokens": row.prompt, "output_tokens": row.tokens}
    packets.begin(lane, row.sent_us, REQUEST, row.request_id, told)
    if row.chunks:
        first_us, last_us = row.chunks[0][0], row.chunks[-1][0]
        packets.begin(lane, row.sent_us, "phase", "to first token", {})
        packets.end(lane, first_us)
        packets.begin(lane, first_us, "phase", "decode", {})
        packets.end(lane, last_us)
    packets.end(lane, max(row.done_us, row.sent_us), {"outcome": row.outcome, "error": row.error})
