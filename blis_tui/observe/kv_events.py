"""KV cache events that a server publishes over ZeroMQ, in batches encoded with MessagePack.

Source: vLLM 0.32.0, ``distributed/kv_events.py`` (``--kv-events-config``).
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec
import zmq
import zmq.asyncio

from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.observe.clock import Clock

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
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    finite = not isinstance(value, float) or isfinite(value)
    return value if value is None or (isinstance(value, str | int | float) and finite) else str(value)
