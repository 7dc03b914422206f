"""Measure the error that `observe` itself adds to latencies, with a server that answers on a given schedule.

    python benchmarks/observing.py                       200 concurrent streams, spread over 2 s and all at once
    python benchmarks/observing.py --client httpx        the same with another client (or aiohttp), if installed
    python benchmarks/observing.py --streams 400 --gap-ms 20
    python benchmarks/observing.py --many 10000          that many at 500/s: lost requests and memory use

The server is a separate process. Each request tells it when to write each token, counted from when it has read the
request, and it records in each token when it wrote it. Errors are the client's times minus the server's, in
milliseconds: `first token` and `gaps` compare what the server wrote with what the client reports, `sent late` is
relative to the client's own schedule. `server late` is the server's own deviation from its schedule, which the machine
would cause in any program.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from blis_tui.live.observe.exchange import Exchanges, Reply
from blis_tui.live.observe.wire import target_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from blis_tui.live.observe.wire import Wire

Piece = tuple[float, bytes]
Seen = tuple[float, float, list[Piece]]
"""When a request was due, when it was sent, and the pieces of its answer with their times, in seconds."""

SERVER = """
import asyncio, json, socket, sys, time
class Talk(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.rest = transport, b""
    def data_received(self, data):
        self.rest += data
        head, mark, body = self.rest.partition(b"\\r\\n\\r\\n")
        if not mark: return
        wanted = int(head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
        if len(body) < wanted: return
        self.rest, read_s = b"", time.monotonic()
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        due = [read_s + us / 1e6 for us in json.loads(body)["schedule_us"]]
        asyncio.get_running_loop().call_at(due[0], self.token, due, 0)
    def token(self, due, number):
        event = {"choices": [{"text": "token", "token_ids": [number]}]}
        event |= {"due_s": due[number], "wrote_s": time.monotonic()}
        data = b"data: " + json.dumps(event).encode() + b"\\n\\n"
        if number + 1 == len(due):
            done = b"data: [DONE]\\n\\n"
            self.transport.write(b"%x\\r\\n%s\\r\\n%x\\r\\n%s\\r\\n0\\r\\n\\r\\n" % (len(data), data, len(done), done))
            return
        self.transport.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
        asyncio.get_running_loop().call_at(due[number + 1], self.token, due, number + 1)
async def main():
    server = await asyncio.get_running_loop().create_server(Talk, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def ours(port: int, bodies: Sequence[bytes], due_s: Sequence[float]) -> list[Seen]:
    """Send with the client of `observe`."""
    exchanges = Exchanges(target_of(f"http://127.0.0.1:{port}", {}))

    async def one(body: bytes, at_s: float) -> Seen:
        wire: Wire = await exchanges.prepare()
        await asyncio.sleep(max(at_s - time.monotonic(), 0))
        reply = Reply()
        await exchanges.ask("POST", "/v1/completions", body, reply, most=1 << 28, wire=wire)
        return at_s, reply.sent_ns / 1e9, [(stamp_ns / 1e9, data) for stamp_ns, data in reply.pieces]

    under_way = []
    for body, at_s in zip(bodies, due_s, strict=True):  # as `observe` does: no request exists long before it is due
        await asyncio.sleep(max(at_s - 0.5 - time.monotonic(), 0))
        under_way.append(asyncio.create_task(one(body, at_s)))
    found = await asyncio.gather(*under_way)
    exchanges.close()
    return found


async def with_httpx(port: int, bodies: Sequence[bytes], due_s: Sequence[float]) -> list[Seen]:
    """Send with httpx."""
    import httpx  # noqa: PLC0415  (only to compare with)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=600) as client:

        async def one(body: bytes, at_s: float) -> Seen:
            await asyncio.sleep(max(at_s - time.monotonic(), 0))
            sent_s = time.monotonic()
            async with client.stream("POST", f"http://127.0.0.1:{port}/v1/completions", content=body) as answer:
                return at_s, sent_s, [(time.monotonic(), data) async for data in answer.aiter_raw()]

        return await asyncio.gather(*map(one, bodies, due_s))


async def with_aiohttp(port: int, bodies: Sequence[bytes], due_s: Sequence[float]) -> list[Seen]:
    """Send with aiohttp."""
    import aiohttp  # noqa: PLC0415  (only to compare with)

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:

        async def one(body: bytes, at_s: float) -> Seen:
            await asyncio.sleep(max(at_s - time.monotonic(), 0))
            sent_s = time.monotonic()
            async with client.post(f"http://127.0.0.1:{port}/v1/completions", data=body) as answer:
                return at_s, sent_s, [(time.monotonic(), data) async for data in answer.content.iter_any()]

        return await asyncio.gather(*map(one, bodies, due_s))


CLIENTS = {"observe": ours, "httpx": with_httpx, "aiohttp": with_aiohttp}


def load(streams: int, tokens: int, gap_ms: float, spread_s: float) -> tuple[list[bytes], list[float]]:
    """Request bodies with their schedules, and when to send them, in seconds from the start."""
    dice = random.Random(1)  # noqa: S311  (no secret)
    bodies, due_s = [], []
    for _ in range(streams):
        first_us = dice.uniform(50e3, 500e3)
        schedule = [round(first_us + gap_ms * 1e3 * number) for number in range(tokens)]
        bodies.append(json.dumps({"schedule_us": schedule}).encode())
        due_s.append(dice.uniform(0.0, spread_s))
    return bodies, sorted(due_s)


def measure(client: Callable[..., Awaitable[list[Seen]]], bodies: Sequence[bytes], due_s: Sequence[float]) -> None:
    """Run one load, and print its errors."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
    assert server.stdout is not None  # noqa: S101  (it was asked for)
    port = int(server.stdout.readline())
    try:

        async def main() -> tuple[list[Seen], float]:
            start_s, cpu_s = time.monotonic() + 1.0, time.process_time()
            seen = await client(port, bodies, [start_s + one for one in due_s])
            return seen, time.process_time() - cpu_s

        gc.collect()
        gc.freeze()
        report(*asyncio.run(main()))
    finally:
        server.kill()
        server.wait()


def report(seen: Sequence[Seen], cpu_s: float) -> None:
    """Print the errors."""
    first, gaps, late, server_late, tokens = [], [], [], [], 0
    for due_s, sent_s, pieces in seen:
        late.append(sent_s - due_s)
        came, events = [], []
        rest = b""
        for stamp_s, data in pieces:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    came.append(stamp_s)
                    events.append(json.loads(line[6:]))
        tokens += len(events)
        wrote = [event["wrote_s"] for event in events]
        server_late += [event["wrote_s"] - event["due_s"] for event in events]
        first.append(came[0] - wrote[0])
        gaps += [(came[n] - came[n - 1]) - (wrote[n] - wrote[n - 1]) for n in range(1, len(came))]
    print(f"{len(seen):,} answers, {tokens:,} tokens, {cpu_s * 1e6 / tokens:,.0f} us of a core for each token")
    for name, values in (("first token", first), ("gaps", gaps), ("sent late", late), ("server late", server_late)):
        absolute = sorted(abs(value) for value in values)
        if absolute:
            cells = [absolute[min(int(len(absolute) * share), len(absolute) - 1)] * 1e3 for share in (0.5, 0.99, 1.0)]
            print(f"  {name:12} median {cells[0]:9.3f}  p99 {cells[1]:9.3f}  max {cells[2]:9.3f} ms")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=CLIENTS, default="observe")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--gap-ms", type=float, default=50.0)
    parser.add_argument("--many", type=int, default=0)
    options = parser.parse_args()
    client = CLIENTS[options.client]
    if options.many:
        bodies, due_s = load(options.many, 10, options.gap_ms, options.many / 500)
        measure(client, bodies, due_s)
        print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")
        return
    for name, spread_s in (("spread over 2 s", 2.0), ("all in one moment", 0.0)):
        print(f"{options.client}: {options.streams} streams, {name}: ", end="")
        measure(client, *load(options.streams, options.tokens, options.gap_ms, spread_s))


if __name__ == "__main__":
    main()
