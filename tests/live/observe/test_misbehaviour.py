"""Servers that refuse, break off, hang, lie or talk nonsense: every request has a row that says so; nothing hangs."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.live.observe.exchange import Exchanges
from blis_tui.live.observe.observer import Observer, Plan, ask, survey
from blis_tui.live.observe.prompts import RequestForm
from blis_tui.live.observe.recording import Folder, read_recording
from blis_tui.live.observe.recording_summary import summarize, warnings
from blis_tui.live.observe.sending import Limits
from blis_tui.live.observe.wire import target_of
from blis_tui.workload.source import TraceSource
from blis_tui.workload.traces.trace_table import TraceColumns, TraceTable
from tests.live.observe.servers import Asked, Replying, Server, free_port, serving, well

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from blis_tui.live.observe.recording import Recording

TOKENS = 4
APART_US = 5_000
"""Time between two requests."""


def trace(arrivals_us: Sequence[int], tokens: int = TOKENS) -> TraceSource:
    count = len(arrivals_us)
    columns = TraceColumns(arrival_us=list(arrivals_us), input_tokens=[8] * count, output_tokens=[tokens] * count)
    return TraceSource(TraceTable(columns))


def observer_of(url: str, folder: Path, requests: int = 6, timeout_s: float = 0.5, warm_up: int = 0) -> Observer:
    plan = Plan(
        target=target_of(url, {}),
        address=url,
        source=trace([APART_US * number for number in range(requests)]),
        total=requests,
        asking=RequestForm(dialect="vllm", model="m", seed="test"),
        limits=Limits(timeout_us=round(timeout_s * 1e6)),
        warm_up=warm_up,
        scrape_s=0.02,
        about={},
        lead_s=0.02,
        settle_s=0.05,
    )
    return Observer(plan, Folder(folder))


async def observed(server: Server, folder: Path, requests: int = 6, timeout_s: float = 0.5) -> Recording:
    await asyncio.wait_for(observer_of(server.url, folder, requests, timeout_s).run(), 60)
    return read_recording(folder)


def every_second(odd: object) -> object:
    async def behave(asked: Asked, reply: Replying) -> None:
        if asked.number % 2:
            result = odd(asked, reply)  # type: ignore[operator]
            if asyncio.iscoroutine(result):
                await result
        else:
            await well(asked, reply)

    return behave


def nothing(asked: Asked, reply: Replying) -> object:
    return asyncio.sleep(3600)


def reset_at_once(asked: Asked, reply: Replying) -> None:
    reply.reset()


async def reset_in_the_middle(asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.token(1)
    await reply.writer.drain()
    await asyncio.sleep(0.05)
    reply.reset()


def half_closed(asked: Asked, reply: Replying) -> object:
    reply.head()
    reply.token(1, 2)
    reply.writer.write_eof()
    return asyncio.sleep(3600)


def ends_without_end(asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.token(1, 2)
    reply.writer.write(b"0\r\n\r\n")


async def drips(asked: Asked, reply: Replying) -> None:
    reply.head()
    for number in range(1000):
        reply.token(number)
        await reply.writer.drain()
        await asyncio.sleep(0.2)


def no_http(asked: Asked, reply: Replying) -> None:
    reply.writer.write(b"220 mail.example.org ESMTP\r\n")


def no_json(asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.chunk(b"data: {oops\n\n")
    reply.done()


def empty(asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.done()


def error_in_the_stream(asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.token(1)
    reply.event({"error": {"message": "EngineCore encountered an issue", "code": 500}})
    reply.done()


def out_of_capacity(asked: Asked, reply: Replying) -> None:
    reply.whole("503 Service Unavailable", {"error": {"message": "queue is full", "code": 503}})


def later(asked: Asked, reply: Replying) -> None:
    reply.writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")


def elsewhere(asked: Asked, reply: Replying) -> None:
    reply.writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://x/v1\r\nContent-Length: 0\r\n\r\n")


def compressed(asked: Asked, reply: Replying) -> None:
    body = gzip.compress(b"data: [DONE]\n\n")
    reply.writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def in_one_piece(asked: Asked, reply: Replying) -> None:
    body = b'{"choices": [{"text": "a b", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}'
    kind = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
    reply.writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % kind + body)


def a_page(asked: Asked, reply: Replying) -> None:
    reply.head("502 Bad Gateway", length=22)
    reply.writer.write(b"<html>bad gateway</html>"[:22])


@pytest.mark.parametrize(
    ("odd", "outcome", "tokens", "says"),
    [
        (nothing, "timed-out", 0, "no end after 0.5 s"),
        (drips, "timed-out", None, "no end after 0.5 s"),
        (reset_at_once, "broken", 0, "reset"),
        (reset_in_the_middle, "broken", 1, "reset"),
        (half_closed, "broken", 2, "closed before the end"),
        (ends_without_end, "broken", 2, "without saying that it is complete"),
        (error_in_the_stream, "broken", 1, "EngineCore encountered an issue"),
        (no_http, "unreadable", 0, "not HTTP"),
        (no_json, "unreadable", 0, "not JSON"),
        (empty, "unreadable", 0, "no tokens"),
        (out_of_capacity, "rejected", 0, "HTTP 503: queue is full"),
        (a_page, "rejected", 0, "HTTP 502: <html>bad gateway"),
        (later, "rejected", 0, "HTTP 429 (Retry-After: 7)"),
        (elsewhere, "rejected", 0, "HTTP 307 (Location: https://x/v1)"),
        (compressed, "unreadable", 0, "compressed (gzip)"),
        (in_one_piece, "unreadable", 0, "in one piece"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_every_request_has_a_row_that_says_what_became_of_it(
    odd: object, outcome: str, tokens: int | None, says: str, tmp_path: Path
) -> None:
    async with serving(every_second(odd)) as server:  # type: ignore[arg-type]
        recording = await observed(server, tmp_path / "r")
    rows = recording.requests
    assert sorted(row.index for row in rows) == list(range(6))
    good = [row for row in rows if row.outcome == "completed"]
    bad = [row for row in rows if row.outcome == outcome]
    assert len(good) == len(bad) == 3
    assert all(row.tokens == TOKENS and row.has_token_ids and row.prompt_tokens == 8 and not row.error for row in good)
    for row in bad:
        assert says in row.error
        assert row.e2e_us is None
        assert row.tokens == tokens if tokens is not None else 0 < row.tokens < 100
    summary = summarize(rows)
    assert summary.failed == 3
    assert any(f"3 {outcome}" in warning for warning in warnings(summary, recording))


def without_usage(asked: Asked, reply: Replying) -> None:
    reply.head()
    for number in range(asked.tokens // 2):  # two tokens in a piece, which nobody can know
        reply.event({"choices": [{"text": "ab cd", "finish_reason": "length" if number else None}]})
    reply.done()


async def test_tokens_that_are_only_pieces_are_said_to_be(tmp_path: Path) -> None:
    async with serving(without_usage) as server:
        recording = await observed(server, tmp_path / "r")
    found = warnings(summarize(recording.requests), recording)
    assert [row.tokens for row in recording.requests] == [TOKENS // 2] * 6
    assert any("for 6 answers, the server sent neither token ids nor `usage`" in one for one in found)
    assert not any("ended before" in one for one in found)  # nobody knows


async def test_lengths_that_are_others_than_were_asked_for_are_said(tmp_path: Path) -> None:
    def otherwise(asked: Asked, reply: Replying) -> None:
        reply.head()
        reply.token(*range(asked.tokens + 3), finish="stop")
        reply.usage(5, asked.tokens + 3)
        reply.done()

    async with serving(otherwise) as server:
        recording = await observed(server, tmp_path / "r")
    found = warnings(summarize(recording.requests), recording)
    assert any("6 answers went beyond the requested length" in one for one in found)
    assert any("prompts of 48 tokens were requested, the server counted 30:" in one for one in found)


async def test_metrics_that_cannot_be_read_are_no_counts_and_said(tmp_path: Path) -> None:
    async with serving() as server:
        observer = observer_of(server.url, tmp_path / "r", requests=6)
        running = asyncio.create_task(observer.run())
        await server.was_asked(2)
        server.metrics = False
        await asyncio.wait_for(running, 60)
    recording = read_recording(tmp_path / "r")
    assert recording.about["counters"] == {}
    found = warnings(summarize(recording.requests), recording)
    assert any(one.startswith("the server's metrics could not be read") for one in found)


async def test_counters_that_were_not_read_before_have_not_grown_from_nothing(tmp_path: Path) -> None:
    server = Server()

    def unread_before(asked: Asked, reply: Replying) -> object:
        server.metrics = asked.number >= 2  # what was there before the load is not known
        return well(asked, reply)

    server.behave = unread_before
    await server.start()
    try:
        await asyncio.wait_for(observer_of(server.url, tmp_path / "r", warm_up=1).run(), 60)
    finally:
        await server.kill()
    recording = read_recording(tmp_path / "r")
    assert recording.scrapes
    assert recording.about["counters"] == {}


async def test_a_server_that_closes_idle_connections_unsaid_can_be_asked_what_it_is(tmp_path: Path) -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
            # The client's next question is on its way before it can see that the connection is closed.
            await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer_and_close, "127.0.0.1", 0)
    exchanges = Exchanges(target_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {}))
    try:
        found = await asyncio.wait_for(survey(exchanges, "there"), 20)
    finally:
        exchanges.close()
        server.close()
        await asyncio.gather(*filter(None, tasks))
    assert len(tasks) > 1
    assert found.server.model == ""


async def _first_request(exchanges: Exchanges) -> None:
    await ask(exchanges, RequestForm(model="m"), b"{}", 7.0)


@pytest.mark.parametrize(
    ("asked", "patience_s", "message"),
    [
        (lambda exchanges: survey(exchanges, "there"), 10.0, "cannot reach there: it does not answer"),
        (_first_request, 7.0, "the server does not answer a first request: no end after 7 s"),
    ],
    ids=["its description", "a first request"],
)
async def test_a_server_that_never_answers_is_given_up_in_time(
    asked: Callable[[Exchanges], Awaitable[object]], patience_s: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float | None] = []
    timeout = asyncio.timeout

    def at_once(seconds: float | None) -> asyncio.Timeout:
        waited.append(seconds)
        return timeout(0.05)

    tasks: list[asyncio.Task[None] | None] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        await reader.read()  # until the client hangs up
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    exchanges = Exchanges(target_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {}))
    monkeypatch.setattr(asyncio, "timeout", at_once)
    with pytest.raises(InputError, match=message):
        await asked(exchanges)
    exchanges.close()
    server.close()
    await asyncio.gather(*filter(None, tasks))
    assert waited == [patience_s]


async def test_a_server_that_is_killed_and_comes_back_loses_no_row(tmp_path: Path) -> None:
    async def slowly(asked: Asked, reply: Replying) -> None:
        reply.head()
        for number in range(asked.tokens):
            reply.token(number)
            await reply.writer.drain()
            await asyncio.sleep(0.03)
        reply.usage(8, asked.tokens)
        reply.done()

    first, port = Server(slowly), free_port()
    first.port = port
    await first.start()
    observer = observer_of(first.url, tmp_path / "r", requests=140, timeout_s=30)

    async def kill_and_restart() -> Server:
        await first.was_asked(40)
        await first.kill()
        with socket.socket() as kept:  # nobody listens, and no other test gets the port meanwhile
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", port))
            await asyncio.sleep(0.1)
        second = Server(slowly)
        second.port = port
        await second.start()
        return second

    killing = asyncio.create_task(kill_and_restart())
    await asyncio.wait_for(observer.run(), 60)
    second = await killing
    await second.kill()
    rows = read_recording(tmp_path / "r").requests
    assert sorted(row.index for row in rows) == list(range(140))
    by_outcome = {row.outcome for row in rows}
    assert by_outcome == {"completed", "broken", "refused"}
    # Those under way broke, those after it were refused, and those after that were served again.
    assert rows[-1].outcome == "completed"
    counts = Counter(row.outcome for row in rows)
    heard = len([one for one in first.asked if one.number < len(rows)]) + len(second.asked)
    # All that a server heard was completed or broke; what broke may also have been on its way to the server.
    assert heard - counts["broken"] <= counts["completed"] < heard


async def test_a_server_that_lies_about_its_tokens_is_counted_again(tmp_path: Path) -> None:
    def lies(asked: Asked, reply: Replying) -> None:
        reply.head()
        reply.token(*range(asked.tokens), finish="length")
        reply.usage(8, 1_000_000)
        reply.done()

    async with serving(lies) as server:
        recording = await observed(server, tmp_path / "r", timeout_s=20)  # it answers at once, but on a busy machine
    assert [row.tokens for row in recording.requests] == [TOKENS] * 6
    assert all(row.contradicts and row.completion_tokens == 1_000_000 for row in recording.requests)
    summary = summarize(recording.requests)
    assert summary.output_tokens == 6 * TOKENS
    assert any(
        "token count differs from the tokens it sent in 6 answers" in warning
        for warning in warnings(summary, recording)
    )


async def test_a_connection_closed_after_an_answer_is_not_held_against_the_next(tmp_path: Path) -> None:
    async def closes(asked: Asked, reply: Replying) -> None:
        await well(asked, reply)
        await reply.writer.drain()
        reply.writer.close()  # it did not say that it would

    async with serving(closes) as server:
        recording = await observed(server, tmp_path / "r", requests=12)
    assert [row.outcome for row in recording.requests] == ["completed"] * 12
    assert len(server.asked) == 12


async def test_nothing_is_sent_twice_to_a_server_that_breaks_the_first_request(tmp_path: Path) -> None:
    async with serving(reset_at_once) as server:
        recording = await observed(server, tmp_path / "r", requests=1)
    assert [row.outcome for row in recording.requests] == ["broken"]
    assert len(server.asked) == 1


async def test_stopping_gives_up_what_is_under_way_and_keeps_its_rows(tmp_path: Path) -> None:
    async with serving(every_second(nothing)) as server:  # type: ignore[arg-type]
        observer = observer_of(server.url, tmp_path / "r", requests=200, timeout_s=60)
        running = asyncio.create_task(observer.run())
        await server.was_asked(6)
        async with asyncio.timeout(30):
            while not read_recording(tmp_path / "r").requests:  # noqa: ASYNC110  (nothing tells of a row)
                await asyncio.sleep(0.01)
        observer.stop()
        assert not await asyncio.wait_for(running, 30)
    recording = read_recording(tmp_path / "r")
    found = [row.outcome for row in recording.requests]
    assert set(found) == {"completed", "interrupted"}
    assert 6 <= len(found) < 200
    assert recording.about["complete"] is False


async def test_rows_are_there_while_the_run_still_goes_on(tmp_path: Path) -> None:
    # As if observing itself were killed: what was written before can be read.
    async with serving(every_second(nothing)) as server:  # type: ignore[arg-type]
        observer = observer_of(server.url, tmp_path / "r", requests=16, timeout_s=60)
        running = asyncio.create_task(observer.run())
        await server.was_asked(14)
        recording = read_recording(tmp_path / "r")
        observer.stop()
        await asyncio.wait_for(running, 30)
    assert len(recording.requests) >= 4
    assert all(row.outcome == "completed" for row in recording.requests)
    assert recording.about["complete"] is False
