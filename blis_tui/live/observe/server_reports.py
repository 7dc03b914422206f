"""What a server says of itself: metrics under vLLM's names, KV cache events, and steps in its log.

KV cache events that a server publishes over ZeroMQ, in batches encoded with MessagePack.

Source: vLLM 0.32.0, ``distributed/kv_events.py`` (``--kv-events-config``).

Steps from an engine's log, each line with the client's time, because vLLM's own times are whole seconds.

Source of the format: vLLM 0.32.0, ``v1/metrics/loggers.py`` (``--enable-logging-iteration-details``).
"""

from __future__ import annotations

import os
import re
import stat
import time
from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec
import zmq
import zmq.asyncio

from blis_tui.base.errors import InputError
from blis_tui.live.observe.recording import MOST, Server, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from io import FileIO
    from pathlib import Path

    from blis_tui.live.observe.wire import Clock


GAUGES: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS: Final = (
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
)
"""Counters that continue from run to run, so that only differences matter."""
SUMS: Final = tuple(
    f"vllm:{name}_{part}"
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "iteration_tokens_total",
    )
    for part in ("sum", "count")
)
"""Sums of histograms, of which also only differences matter."""
_MEAN: Final = frozenset({"vllm:kv_cache_usage_perc"})
"""Gauges that are a share of each engine, and so are averaged."""
_WANTED: Final = frozenset((*GAUGES, *COUNTERS, *SUMS))
_CONFIG: Final = "vllm:cache_config_info"
_LONGEST_LINE: Final = 1 << 16
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL: Final = re.compile(r'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*,?')
_WHOLE: Final = re.compile(r"[0-9]{1,15}")
_END: Final = re.compile(r"[ \t]*\}")
_VALUE: Final = re.compile(r"[ \t]+(\S+)|(?<=\})(\S+)")


def samples(text: str, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of samples in Prometheus text format.

    Other lines are ignored, and so are values that are negative, not finite, or larger than any can be. The time is
    proportional to the text's length, whatever is in it.
    """
    for line in text.split("\n"):
        if (match := _NAME.match(line)) is None or match[0] not in wanted or len(line) > _LONGEST_LINE:
            continue
        labels, place = _labels(line, match.end())
        if (number := _VALUE.match(line, place)) is not None and (value := _value(number[1] or number[2])) is not None:
            yield match[0], labels, value


def _labels(line: str, place: int) -> tuple[dict[str, str], int]:
    """Return the labels that begin at a place, and the place after them; labels that do not end have no value."""
    labels: dict[str, str] = {}
    if line[place : place + 1] != "{":
        return labels, place
    place += 1
    while (match := _LABEL.match(line, place)) is not None:
        labels[match[1]] = match[2]
        place = match.end()
    end = _END.match(line, place)
    return labels, len(line) if end is None else end.end()


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= MOST else None


def values(text: str) -> dict[str, float]:
    """Return the recorded values of a scrape by name: sums over engines, and means of shares."""
    sampled: dict[str, list[float]] = {}
    for name, _, value in samples(text, _WANTED):
        sampled.setdefault(name, []).append(value)
    totals = {name: _together(name, sampled[name]) for name in (*GAUGES, *COUNTERS, *SUMS) if name in sampled}
    return {name: total for name, total in totals.items() if total <= MOST}


def _together(name: str, parts: list[float]) -> float:
    total = 0.0
    for part in parts:
        total += part
    return total / len(parts) if name in _MEAN else total


def settings(text: str) -> Server:
    """Return the settings in the metrics: the number of blocks, and of engines."""
    blocks: int | None = None
    size: int | None = None
    caching: bool | None = None
    engines = 0
    for _, labels, _ in samples(text, (_CONFIG,)):
        engines += 1
        blocks = _whole(labels.get("num_gpu_blocks"))
        size = _whole(labels.get("block_size"))
        caching = {"True": True, "False": False}.get(labels.get("enable_prefix_caching", ""))
    return Server(
        block_size_tokens=size,
        kv_blocks=None if blocks is None else max(blocks - 1, 0),
        prefix_caching=caching,
        engines=engines or None,
    )


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the growth of each counter; a counter that decreased was reset, and counts from 0."""
    return {
        name: after[name] - (before.get(name, 0.0) if after[name] >= before.get(name, 0.0) else 0.0)
        for name in (*COUNTERS, *SUMS)
        if name in after
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


_SEQUENCE_BYTES: Final = 8
_MOST_BYTES: Final = 64 << 20
"""Publishers of larger messages are not listened to."""


class KvEvents:
    """Subscribes to one publisher.

    Raises:
        InputError: its address is invalid.
    """

    def __init__(self, endpoint: str, topic: str = "") -> None:
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MOST_BYTES)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise InputError(
                f"{endpoint!r} is not an address to listen to: {error}", help="such as tcp://127.0.0.1:5557"
            ) from error

    async def listen(self, clock: Clock, heard: Callable[[Mapping[str, object]], None]) -> None:
        """Pass on every batch as plain data until cancelled; ignore invalid messages."""
        while True:
            frames = await self._socket.recv_multipart()
            if (batch := _batch(frames)) is not None:
                heard({"time_us": clock.now_us(), **batch})

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._context.term()


def _batch(frames: list[bytes]) -> Mapping[str, object] | None:
    if len(frames) != 3 or len(frames[1]) != _SEQUENCE_BYTES:
        return None
    try:
        decoded = msgspec.msgpack.decode(frames[2])
    except (ValueError, RecursionError):
        return None
    if not isinstance(decoded, list) or len(decoded) < 2 or not isinstance(decoded[1], list):
        return None
    sequence = int.from_bytes(frames[1], "big")
    return {"sequence": sequence, "server_time_s": _plain(decoded[0]), "events": _plain(decoded[1])}


def _plain(value: object) -> object:
    """Return a value as JSON data: hashes in bytes as hexadecimal, what JSON does not have as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    finite = not isinstance(value, float) or isfinite(value)
    return value if value is None or (isinstance(value, str | int | float) and finite) else str(value)


_ITERATION: Final = re.compile(
    rb"Iteration\((\d{1,12})\): (\d{1,9}) context requests, (\d{1,9}) context tokens, (\d{1,9}) generation requests, "
    rb"(\d{1,9}) generation tokens, iteration elapsed time: (\d{1,9}(?:\.\d{1,9})?) ms( \(dummy\))?"
    rb"(?:, \w{1,99} KV cache usage: (\d{1,2}(?:\.\d+)?|100(?:\.0+)?)%)?"
)
_READ_BYTES: Final = 1 << 16
_LONGEST_LOG_LINE: Final = 1 << 16


def step_of(line: bytes, end_us: int | None) -> Step | None:
    """Return the step in a line of a log; None = it contains none."""
    match = _ITERATION.search(line)
    if match is None or match[7]:
        return None
    number, prefills, prefill_tokens, decodes, decode_tokens = (int(text) for text in match.groups()[:5])
    return Step(
        number=number,
        end_us=end_us,
        duration_us=round(float(match[6]) * 1000),
        prefill_requests=prefills,
        prefill_tokens=prefill_tokens,
        decode_requests=decodes,
        decode_tokens=decode_tokens,
        kv_share=None if match[8] is None else float(match[8]) / 100,
    )


class Tail:
    """The end of a growing file, line by line.

    Raises:
        InputError: it cannot be read, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(f"cannot read {path}: it is not a regular file")
            self._file: FileIO = path.open("rb", buffering=0)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield complete lines since the last call, with their times in nanoseconds of ``monotonic_ns``.

        The time is the file's last modification, so late reading does not matter; of several lines, only the last one
        has its exact time. A truncated file is read from its start.
        """
        while True:
            try:
                if os.fstat(self._file.fileno()).st_size < self._file.tell():
                    self._file.seek(0)
                    self._rest = b""
                read = self._file.read(_READ_BYTES)
                written_ns = _written_ns(self._file)
            except OSError:
                return
            if not read:
                return
            *whole_lines, rest = (self._rest + read).split(b"\n")
            self._rest = rest[-_LONGEST_LOG_LINE:]
            for line in whole_lines:
                yield line, written_ns

    def close(self) -> None:
        """Stop watching."""
        self._file.close()


def _written_ns(file: FileIO) -> int:
    """Return when a file was last written, in nanoseconds of ``monotonic_ns``."""
    age_ns = time.time_ns() - os.fstat(file.fileno()).st_mtime_ns
    return time.monotonic_ns() - max(age_ns, 0)
