"""Servers that lie in numbers and texts, or never end: every request has a row, nothing grows without bound."""

from __future__ import annotations

import asyncio
import json
import random
import time
from math import isfinite
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.canonical import to_json
from blis_tui.live.observe.answers import Usage, error_text, read_stream, read_whole
from blis_tui.live.observe.exchange import Exchanges, NotHttpError, Reply, _Reading, longest_answer
from blis_tui.live.observe.prompts import Prompts, RequestForm
from blis_tui.live.observe.recording import (
    MOST,
    Observed,
    Scrape,
    Server,
    read_request,
    read_scrape,
    request_line,
    scrape_line,
    write_tables,
)
from blis_tui.live.observe.recording_summary import summarize, summary_document, summary_text, warnings
from blis_tui.live.observe.sending import Limits, Load
from blis_tui.live.observe.server_reports import _plain, settings, step_of, values
from blis_tui.live.observe.wire import Clock, target_of
from tests.live.observe.servers import Asked, Replying, serving, well
from tests.live.observe.test_misbehaviour import TOKENS, observed, trace

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.live.observe.recording import Recording
    from blis_tui.live.observe.wire import Wire

HUGE = "9" * 400
HALF = "x\ud800"


def event(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


# ---- answers ----


@pytest.mark.parametrize(
    "count", ["-1", "1.5", "true", "1e30", "NaN", "1e999", "10" * 15, HUGE, "9" * 5000, '"5"', "[]"]
)
def test_counts_that_no_answer_can_have_are_not_believed(count: str) -> None:
    usage = (
        f'{{"prompt_tokens": {count}, "completion_tokens": {count}, "prompt_tokens_details": {{"cached_tokens": 3}}}}'
    )
    stream = [(1, event(f'{{"choices": [{{"text": "a", "finish_reason": "stop"}}], "usage": {usage}}}'))]
    answer = read_stream(stream)
    assert (answer.chunks, answer.usage, answer.error) == ([(1, 1)], Usage(cached_tokens=3), "")
    whole = read_whole(f'{{"choices": [{{"text": "a", "finish_reason": "stop"}}], "usage": {usage}}}'.encode(), 1)
    assert (whole.chunks, whole.usage, whole.error) == ([(1, 1)], Usage(cached_tokens=3), "")


@pytest.mark.parametrize("token", ["-1", "2147483648", HUGE, "1.0", "NaN", "null"], ids=range(6))
def test_token_ids_that_no_model_has_are_not_believed(token: str) -> None:
    answer = read_stream([(1, event(f'{{"choices": [{{"text": "a", "token_ids": [5, {token}]}}]}}'))])
    assert (answer.chunks, answer.tokens, answer.has_token_ids) == ([(1, 1)], [], False)


def test_half_characters_become_harmless_where_they_enter() -> None:
    choice = {"text": HALF, "finish_reason": HALF + "y" * 1000}
    answer = read_stream([(1, event(json.dumps({"choices": [choice], "error": {"message": HALF}})))])
    assert (answer.text, answer.error, answer.finish_reason) == ("x\ufffd", "x\ufffd", "x\ufffd" + "y" * 298)
    assert error_text(json.dumps({"error": {"message": HALF}}).encode(), 500) == "HTTP 500: x\ufffd"
    assert error_text(b"\xed\xa0\x80", 500) == "HTTP 500: \ufffd\ufffd\ufffd"


def test_a_stream_of_nothing_is_not_read_to_its_end() -> None:
    pieces = [(1, event('{"choices": [{"text": "a", "token_ids": [1]}]}')), (2, b"data: {}\n" * 200_000)]
    assert read_stream(pieces).error == "the stream has more than 10,000 events without tokens"
    broken = read_stream([(1, event("{")), (2, event('{"choices": [{"text": "a"}]}'))])
    assert (broken.error, broken.chunks) == ("an event is not JSON: {", [])
    deep = read_stream([(1, event("[" * 5000))])
    assert deep.error.startswith("an event cannot be read, because nested deeper than 100 levels: [[[")


async def test_what_is_kept_of_an_answer_is_bounded() -> None:
    reply = Reply()
    reading = _Reading(reply, longest_answer(8))
    reading.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 1)
    reading.feed(b"1\r\nx\r\n" * 10_000, 2)
    assert reply.pieces == [(2, b"x" * 10_000)]  # not ten thousand pieces
    pieces = 0
    while not reading.over.done():
        pieces += 1
        reading.feed(b"1\r\nx\r\n", 3)
    assert 2_000 < pieces < 10_000
    with pytest.raises(NotHttpError, match="the answer is longer than 1 MiB"):
        await reading.over
    assert longest_answer(1 << 40) == 1 << 28


# ---- metrics ----

LONG = 64_000


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running{" + "a" * LONG + "} 1",
        "vllm:num_requests_running{" + 'a="' * (LONG // 3) + "} 1",
        'vllm:num_requests_running{a="' + "\\\\" * (LONG // 2) + "} 1",
        'vllm:num_requests_running{a="' + '\\"' * (LONG // 2) + "} 1",
        "vllm:num_requests_running{" + "} " * (LONG // 2),
        "vllm:num_requests_running{" + " " * LONG,
        "vllm:num_requests_running" + " " * LONG,
        "vllm:num_requests_running{" + "a=" * (LONG // 2) + "} 1",
        "vllm:num_requests_running{" + "a" * 10**6 + "} 1",
        "v" * 10**6,
    ],
    ids=range(10),
)
def test_lines_of_any_form_are_read_in_linear_time(line: str) -> None:
    """Where the time grows with the square, this takes minutes: nothing here measures it."""
    text = "\n".join([line] * 20 + ['vllm:num_requests_running{engine="0"} 3.0'])
    assert values(text) == {"vllm:num_requests_running": 3.0}
    assert settings(text) == Server()


@pytest.mark.parametrize(
    "value", ["NaN", "+Inf", "-Inf", "-1", "1e30", "9" * 5000, "1e400", "x", "1e15x"], ids=range(9)
)
def test_values_that_no_metric_has_are_not_believed(value: str) -> None:
    text = f'vllm:num_preemptions_total{{engine="0"}} {value}\nvllm:num_preemptions_total{{engine="1"}} 2\n'
    assert values(text) == {"vllm:num_preemptions_total": 2.0}


def test_nor_are_sums_that_nothing_counts_up_to() -> None:
    assert values(f'vllm:num_preemptions_total{{engine="0"}} {MOST}\n' * 3) == {}
    text = 'vllm:cache_config_info{num_gpu_blocks="%s",block_size="%s",enable_prefix_caching="maybe"} 1\n'
    assert settings(text % ("9" * 5000, "-16")) == Server(engines=1)
    assert settings(text % ("\u0661", "1_6")) == Server(engines=1)


def test_steps_that_no_engine_has_are_none() -> None:
    line = (
        "Iteration(%s): 1 context requests, %s context tokens, 0 generation requests, 0 generation tokens, "
        "iteration elapsed time: %s ms, GPU KV cache usage: %s%%"
    )
    assert step_of((line % (3, 5, "7.5", "99.5")).encode(), 1) is not None
    for numbers in (("9" * 5000, 5, "7", "1"), (3, "9" * 5000, "7", "1"), (3, 5, "9" * 400, "1"), (3, 5, "1e9", "1")):
        assert step_of((line % numbers).encode(), 1) is None
    over = step_of((line % (3, 5, "7.5", "9999")).encode(), 1)
    assert over is not None
    assert over.kv_share is None


def test_kv_events_are_written_as_json() -> None:
    plain = _plain([float("nan"), float("inf"), 1.5, 2**64, b"\x01", {"a": {1: float("-inf")}}])
    assert plain == ["nan", "inf", 1.5, 2**64, "01", {"a": {"1": "-inf"}}]


# ---- whole runs ----


def require_usable(recording: Recording) -> None:
    """Assert that everything that is made of a recording can be made, from what is written as from what is known."""
    write_tables(recording)
    summary = summarize(recording.requests)
    found = warnings(summary, recording)
    assert summary_text(summary, recording).encode()
    assert to_json(summary_document(summary, recording, found)).encode()
    assert all(isfinite(value) for scrape in recording.scrapes for value in scrape.values.values())


def with_choice(**more: object) -> object:
    def behave(asked: Asked, reply: Replying) -> None:
        reply.head()
        choice = {"index": 0, "text": "x", "finish_reason": None, "token_ids": [1]}
        for _ in range(TOKENS - 1):
            reply.event({"choices": [choice]})
        usage = {"prompt_tokens": 8, "completion_tokens": TOKENS, **more.pop("usage", {})}  # type: ignore[dict-item]
        reply.event({"choices": [choice | {"finish_reason": "length"} | more], "usage": usage})
        reply.done()

    return behave


@pytest.mark.parametrize(
    "more",
    [
        {"finish_reason": HALF},
        {"finish_reason": "\x1b[2J" * 500},
        {"usage": {"completion_tokens": 10**400}},
        {"usage": {"completion_tokens": 10**30, "prompt_tokens": 1e308}},
        {"usage": {"prompt_tokens": float("nan"), "prompt_tokens_details": {"cached_tokens": float("inf")}}},
        {"token_ids": [10**400]},
        {"token_ids": [2**63], "text": HALF},
    ],
    ids=range(7),
)
async def test_a_recording_survives_what_its_server_says(more: dict[str, object], tmp_path: Path) -> None:
    async with serving(with_choice(**more)) as server:  # type: ignore[arg-type]
        name = b"vllm:num_preemptions_total"
        server.pages["/metrics"] = b"%s 1e308\n%s 1e308\nvllm:num_requests_running %s\n" % (name, name, b"9" * 5000)
        server.pages["/version"] = json.dumps({"version": HALF}).encode()
        server.pages["/v1/models"] = json.dumps({"data": [{"id": HALF, "max_model_len": 10**400}]}).encode()
        recording = await observed(server, tmp_path / "r", requests=3, timeout_s=20)
    assert [(row.outcome, row.tokens) for row in recording.requests] == [("completed", TOKENS)] * 3
    assert all(row.completion_tokens in (TOKENS, None) for row in recording.requests)
    assert recording.server == Server(version="x\ufffd", model="x\ufffd")
    require_usable(recording)


async def test_errors_with_half_characters_are_rows(tmp_path: Path) -> None:
    def refuses(asked: Asked, reply: Replying) -> None:
        reply.whole("500 Internal Server Error", {"error": {"message": HALF}})

    async with serving(refuses) as server:
        recording = await observed(server, tmp_path / "r", requests=2)
    assert [(row.outcome, row.error) for row in recording.requests] == [("rejected", "HTTP 500: x\ufffd")] * 2
    require_usable(recording)


@pytest.mark.parametrize(
    "chunk", [b"x" * 65536, b"data: {}\n\n" * 6000, b"\n" * 60_000], ids=["text", "events", "lines"]
)
async def test_an_endless_stream_is_given_up(chunk: bytes, tmp_path: Path) -> None:
    sent = 0

    async def endless(asked: Asked, reply: Replying) -> None:
        nonlocal sent
        reply.head()
        while True:
            reply.chunk(chunk)
            await reply.writer.drain()
            sent += len(chunk)

    async with serving(endless) as server:
        recording = await observed(server, tmp_path / "r", requests=3, timeout_s=60)
    assert {(row.outcome, row.error) for row in recording.requests} == {
        ("unreadable", "the answer is longer than 1 MiB")
    }
    assert sent < 100 << 20
    require_usable(recording)


async def test_metrics_without_end_are_a_lost_scrape(tmp_path: Path) -> None:
    page = b"vllm:num_requests_running 1\n"

    def grows(asked: Asked, reply: Replying) -> object:
        server.pages["/metrics"] = page * ((9 << 20) // len(page))
        return well(asked, reply)

    async with serving(grows) as server:
        server.pages["/metrics"] = page
        recording = await observed(server, tmp_path / "r", requests=2, timeout_s=20)
    assert [row.outcome for row in recording.requests] == ["completed"] * 2
    assert recording.about["lost_scrapes"]
    require_usable(recording)


async def test_the_time_limit_counts_while_no_connection_comes_about(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Exchanges) -> Wire:
        await asyncio.sleep(3600)  # as a host that drops what is sent to it
        raise OSError

    monkeypatch.setattr(Exchanges, "prepare", never)
    rows: list[Observed] = []
    exchanges = Exchanges(target_of("http://127.0.0.1:9", {}))
    clock, limits = Clock(time.monotonic_ns()), Limits(timeout_us=300_000)
    load = Load(trace([100_000]), Prompts(RequestForm(model="m")), exchanges, clock, limits, rows.append)
    await asyncio.wait_for(load.run(), 60)
    assert [(row.outcome, row.error) for row in rows] == [("timed-out", "no end after 0.3 s")]


# ---- anything ----

_ANY: tuple[object, ...] = (
    *(None, True, -1, 0, 3, 2**31, 2**53, 2**63, 10**30, 10**400, 0.5, 1e308, float("nan"), float("-inf")),
    *("", "x", HALF, "\x1b]0;x\x07", "y" * 5000, [], {}, [1, 2], [10**400], ["\ud800"], {"message": HALF}, [[[[]]]]),
)
_KEYS = ("text", "delta", "message", "finish_reason", "token_ids", "index", "content", "reasoning")
_COUNTS = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "total_tokens")
_NUMBERS = ("1", "0", "-1", "NaN", "+Inf", "1e308", "9" * 5000, "9007199254740992", "0.5", "", "x", "1 2 3")


def _mapping(draw: random.Random, keys: tuple[str, ...]) -> dict[str, object]:
    return {draw.choice(keys): draw.choice(_ANY) for _ in range(draw.randrange(4))}


def _document(draw: random.Random) -> object:
    choice: dict[str, object] = {"text": "x", "token_ids": [1], **_mapping(draw, _KEYS)}
    document: dict[str, object] = {"choices": [choice], "usage": {"completion_tokens": 2, **_mapping(draw, _COUNTS)}}
    return document | _mapping(draw, ("choices", "usage", "error", "id")) if draw.random() < 0.3 else document


def _metrics(draw: random.Random) -> bytes:
    names = ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total", "x")
    labels = ("", "{}", '{a="b"}', '{a="\\', "{a", '{a="b",}', '{num_gpu_blocks="' + "9" * 5000 + '"}')
    lines = [f"{draw.choice(names)}{draw.choice(labels)} {draw.choice(_NUMBERS)}" for _ in range(draw.randrange(12))]
    lines.append(f"vllm:cache_config_info{draw.choice(labels)} {draw.choice(_NUMBERS)}")
    return "\n".join(lines).encode() + draw.randbytes(draw.randrange(3))


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_that_a_server_says_ends_a_recording(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)  # noqa: S311  (no secret)

    def anything(asked: Asked, reply: Replying) -> object:
        server.pages["/metrics"] = _metrics(draw)
        if asked.number < 1 or draw.random() < 0.2:  # the first, for the warm-up
            return well(asked, reply)
        if draw.random() < 0.15:
            reply.whole(draw.choice(("500 x", "404 x", "200 OK", "999 \xff")), _document(draw))
            return None
        reply.head()
        for _ in range(draw.randrange(1, 5)):
            payload = json.dumps(_document(draw)).encode()
            if draw.random() < 0.2:
                payload = payload[: draw.randrange(len(payload))] + draw.randbytes(2)
            reply.chunk(b"data: " + payload + b"\n\n")
        if draw.random() < 0.1:
            reply.chunk(draw.randbytes(200))
        reply.done()
        return None

    async with serving(anything) as server:
        server.pages["/v1/models"] = json.dumps({"data": [_mapping(draw, ("id", "max_model_len"))]}).encode()
        server.pages["/version"] = json.dumps(_mapping(draw, ("version",))).encode()
        server.pages["/metrics"] = _metrics(draw)
        recording = await observed(server, tmp_path / "r", requests=40, timeout_s=20)
    assert sorted(row.index for row in recording.requests) == list(range(40))
    require_usable(recording)


def test_lines_are_read_again_whatever_is_in_them() -> None:
    row = Observed(
        request_id="r",
        index=0,
        due_us=0,
        sent_us=1,
        done_us=9,
        outcome="completed",
        input_tokens=8,
        output_tokens=4,
        chunks=((5, 1),),
        finish_reason="\x00\x1b\u2028\ufffd",
    )
    assert read_request(request_line(row)) == row
    scrape = Scrape(time_us=-5, values={"vllm:num_requests_running": float(MOST)})
    assert read_scrape(scrape_line(scrape)) == scrape
