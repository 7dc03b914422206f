"""Times of receipt do not depend on what the client is busy with."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from blis_tui.live.observe.wire import StampedWire, receive, stamp_receipts

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY_S = 0.4


@pytest.fixture(autouse=True)
def _stamping() -> Iterator[None]:
    """Linux begins to stamp what it receives a moment after the first socket asks for it, and ends with the last."""
    with socket.socket() as asking:
        stamp_receipts(asking)
        time.sleep(0.1)
        yield


def test_bytes_have_the_time_at_which_they_came_not_that_at_which_they_are_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        sender, _ = server.accept()
        if not stamp_receipts(client):
            pytest.skip("this kernel tells no times of receipt")
        before_ns = time.monotonic_ns()
        sender.sendall(b"token")
        sender.close()
        time.sleep(_BUSY_S)
        data, stamp_ns = receive(client, 100)
        read_ns = time.monotonic_ns()
    assert data == b"token"
    assert before_ns <= stamp_ns + 1_000_000  # two clocks are compared: a millisecond is theirs
    assert stamp_ns < read_ns - _BUSY_S * 0.9e9


class _Sink:
    def __init__(self) -> None:
        self.fed: list[tuple[bytes, int]] = []
        self.heard = asyncio.Event()
        self.over = asyncio.Event()

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self.fed.append((data, stamp_ns))
        self.heard.set()

    def end(self, error: OSError | None, stamp_ns: int) -> None:
        self.over.set()


async def test_a_client_that_is_busy_measures_the_server_and_not_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        sock.setblocking(False)
        peer, _ = server.accept()
        wire, sink = StampedWire(sock), _Sink()
        if not wire.kernel_stamps:
            wire.close()
            pytest.skip("this kernel tells no times of receipt")
        wire.send(b"?", sink)
        answered = threading.Event()

        def answer() -> None:
            peer.recv(1)
            peer.sendall(b"!")
            answered.set()

        threading.Thread(target=answer).start()
        assert answered.wait(10)
        answered_ns = time.monotonic_ns()
        time.sleep(_BUSY_S)  # noqa: ASYNC251  (as if two hundred other answers had to be read first)
        await asyncio.wait_for(sink.heard.wait(), 10)
        peer.close()
        await asyncio.wait_for(sink.over.wait(), 10)
    assert sink.fed[0][0] == b"!"
    assert sink.fed[0][1] < answered_ns + _BUSY_S * 0.5e9
    assert not wire.usable
