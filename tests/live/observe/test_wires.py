"""Connections: whatever is sent arrives whole, whatever comes is passed on, and an end is told once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from blis_tui.live.observe.wire import StampedWire, TransportWire, connect, target_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from blis_tui.live.observe.wire import Wire

    Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Heard:
    """What came of a connection, in order."""

    data: bytes = b""
    stamps_ns: list[int] = field(default_factory=list)
    ends: list[OSError | None] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self.data += data
        self.stamps_ns.append(stamp_ns)
        self.news.set()

    def end(self, error: OSError | None, stamp_ns: int) -> None:
        self.ends.append(error)
        self.stamps_ns.append(stamp_ns)
        self.news.set()

    async def until(self, true: Callable[[Heard], bool]) -> None:
        while not true(self):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)


@asynccontextmanager
async def wired(behave: Behave, *, transport: bool) -> AsyncIterator[Wire]:
    """A connection to a server; of the encrypted kind, but without encryption."""
    tasks: list[asyncio.Task[None] | None] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        try:
            await behave(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire: Wire
    if transport:
        _, wire = await asyncio.get_running_loop().create_connection(TransportWire, "127.0.0.1", port)
    else:
        wire = await connect(target_of(f"http://127.0.0.1:{port}", {}))
        assert isinstance(wire, StampedWire)
    try:
        yield wire
    finally:
        wire.close()
        server.close()
        await asyncio.gather(*(task for task in tasks if task is not None))
        await asyncio.sleep(0)  # transports close in the next turn


@pytest.mark.parametrize("transport", [False, True])
async def test_more_than_a_kernel_takes_at_once_arrives_whole(*, transport: bool) -> None:
    sent, got = bytes(range(256)) * 40_000, []

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        got.append(await reader.readexactly(len(sent)))
        writer.write(b"thanks")
        await writer.drain()

    heard = Heard()
    async with wired(slowly, transport=transport) as wire:
        before = wire.usable
        sent_ns = wire.send(sent, heard)
        assert wire.usable is transport  # nothing else may be sent before the rest
        await heard.until(lambda one: bool(one.ends))
        assert before
        assert not wire.usable
    assert got == [sent]
    assert (heard.data, heard.ends) == (b"thanks", [None])
    assert sent_ns <= heard.stamps_ns[0] <= heard.stamps_ns[-1]


@pytest.mark.parametrize("transport", [False, True])
async def test_a_connection_that_breaks_is_an_error_and_is_not_used_again(*, transport: bool) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"half")
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: reset
        writer.transport.abort()

    heard = Heard()
    async with wired(breaks, transport=transport) as wire:
        wire.send(b"ask", heard)
        await heard.until(lambda one: bool(one.ends))
        (error,) = heard.ends
        assert isinstance(error, OSError)
        assert not wire.usable
        if transport:
            with pytest.raises(OSError, match="closed"):
                wire.send(b"again", heard)
        wire.close()
    assert len(heard.ends) == 1


async def test_what_nobody_asked_for_closes_the_connection() -> None:
    async def speaks(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()

    async with wired(speaks, transport=False) as wire:
        for _ in range(200):
            if not wire.usable:
                break
            await asyncio.sleep(0.01)
        assert not wire.usable


async def test_a_transport_that_was_never_opened_cannot_send() -> None:
    wire = TransportWire()
    assert not wire.usable
    wire.close()
    wire.data_received(b"x")
    wire.connection_lost(None)
    with pytest.raises(OSError, match="closed"):
        wire.send(b"x", Heard())
    for lost, end_text in ((ValueError("bad record"), "bad record"), (OSError("reset"), "reset"), (None, None)):
        heard = Heard()
        wire._sink = heard
        wire.connection_lost(lost)
        assert [end and str(end) for end in heard.ends] == [end_text]
