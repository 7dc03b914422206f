"""Whole runs: words for servers that take no ids, users who wait, limits, logs, events of the cache, progress."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
import zmq
import zmq.asyncio

from blis_tui.base.errors import InputError
from blis_tui.live.observe.exchange import Exchanges
from blis_tui.live.observe.observer import Observer, Plan, scale_of
from blis_tui.live.observe.prompts import Prompts, RequestForm, TextScale
from blis_tui.live.observe.recording import Folder, read_recording
from blis_tui.live.observe.sending import Limits
from blis_tui.live.observe.server_reports import KvEvents, Tail
from blis_tui.live.observe.wire import target_of
from blis_tui.workload.interactive import InteractiveSource
from blis_tui.workload.source import create_source
from tests.live.observe.servers import Asked, Replying, prompt_tokens, serving, well
from tests.live.observe.test_misbehaviour import APART_US, trace
from tests.live.observe.test_server_log import LINE
from tests.workload.test_closed_loop import experiment as closed_loop

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.engine.request import Request
    from blis_tui.live.observe.recording import Recording
    from blis_tui.live.observe.recording_summary import Status

REQUESTS = 6


def plan_of(url: str, **changes: object) -> Plan:
    made = Plan(
        target=target_of(url, {}),
        address=url,
        source=trace([APART_US * number for number in range(REQUESTS)]),
        total=REQUESTS,
        asking=RequestForm(seed="test", dialect=""),
        limits=Limits(timeout_us=20_000_000),
        warm_up=2,
        scrape_s=0.02,
        about={"kept": 7},
        lead_s=0.02,
        settle_s=0.1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def run(plan: Plan, folder: Path, **beside: object) -> Recording:
    observer = Observer(plan, Folder(folder), **beside)  # type: ignore[arg-type]
    assert await asyncio.wait_for(observer.run(), 60)
    return read_recording(folder)


# ---- what is sent ----


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_servers_that_take_words_are_asked_how_many_tokens_a_word_has(
    tmp_path: Path, api: str, *, stream: bool
) -> None:
    """This one counts 4 tokens, and 2 for each word."""

    async def behave(asked: Asked, reply: Replying) -> None:
        if asked.path.endswith("/completions") and "messages" not in asked.body:
            await well(asked, reply)
            return
        usage = {"prompt_tokens": prompt_tokens(asked), "completion_tokens": asked.tokens}
        if not asked.body.get("stream"):
            choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "length"}
            reply.whole("200 OK", {"choices": [choice], "usage": usage})
            return
        reply.head()
        for _ in range(asked.tokens):
            reply.event({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]})
        reply.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        reply.event({"choices": [], "usage": usage})
        reply.done()

    async with serving(behave, metrics=False) as server:
        asking = RequestForm(api=api, seed="test", stream=stream, dialect="openai", text=True)
        exchanges = Exchanges(target_of(server.url, {}))
        assert await scale_of(exchanges, Prompts(replace(asking, model="m")), 10) == TextScale(2.0, 4.0)
        exchanges.close()
        probed = len(server.asked)
        source = trace([APART_US * number for number in range(REQUESTS)])
        recording = await run(plan_of(server.url, asking=asking, source=source), tmp_path / "r")
        sent = server.asked[probed + 2 :]
    assert probed == 2
    assert [prompt_tokens(one) for one in sent[-REQUESTS:]] == [8] * REQUESTS
    assert len(sent) == 2 + REQUESTS  # the first two warm the server up
    assert {one.body["model"] for one in sent} == {"m"}
    assert {one.path for one in sent} == {"/v1/chat/completions" if api == "chat" else "/v1/completions"}
    assert [request.prompt_tokens for request in recording.requests] == [8] * REQUESTS
    assert [request.outcome for request in recording.requests] == ["completed"] * REQUESTS
    assert {request.whole for request in recording.requests} == {not stream}


@pytest.mark.parametrize("counts", [None, 7])
async def test_without_counts_of_prompt_tokens_no_prompt_has_a_given_length(counts: int | None) -> None:
    def behave(asked: Asked, reply: Replying) -> None:
        usage = {} if counts is None else {"usage": {"prompt_tokens": counts, "completion_tokens": 1}}
        reply.whole("200 OK", {"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], **usage})

    async with serving(behave) as server:
        exchanges = Exchanges(target_of(server.url, {}))
        asking = RequestForm(stream=False, dialect="openai", text=True, model="m")
        with pytest.raises(InputError, match="does not report the number of prompt tokens"):
            await scale_of(exchanges, Prompts(asking), 10)
        exchanges.close()


# ---- when it is sent ----


def users(requests: int) -> InteractiveSource:
    """Four users who send their next request when the answer has come."""
    made = closed_loop(workload__requests=requests)
    source = create_source(made.workload, made.seed, made.plugins)
    assert isinstance(source, InteractiveSource)
    return source


@pytest.mark.parametrize(
    ("limits", "sent"), [({}, 12), ({"requests": 5}, 5), ({"duration_us": 550_000}, 8), ({"duration_us": -1}, 0)]
)
async def test_users_send_when_their_answer_has_come_within_limits(
    tmp_path: Path, limits: dict[str, int], sent: int
) -> None:
    """Four users, and a server that takes 0.3 s for each answer."""
    most = [0, 0]

    async def behave(asked: Asked, reply: Replying) -> None:
        most[0] += 1
        most[1] = max(most)
        await asyncio.sleep(0.3)
        most[0] -= 1
        await well(asked, reply)

    async with serving(behave) as server:
        plan = plan_of(server.url, source=users(12), warm_up=0, limits=Limits(timeout_us=20_000_000, **limits))
        recording = await run(plan, tmp_path / "r")
    rows = recording.requests
    assert len(rows) == sent
    assert most[1] == min(sent, 4)
    ends = sorted(one.done_us for one in rows)
    for place, one in enumerate(sorted(rows, key=lambda row: row.sent_us)):
        assert one.sent_us >= (ends[place - 4] if place >= 4 else 0)


@pytest.mark.parametrize(
    ("limits", "sent"),
    [({}, 6), ({"requests": 4}, 4), ({"duration_us": 2 * APART_US}, 3), ({"duration_us": 2 * APART_US - 1}, 2)],
)
async def test_a_schedule_ends_at_its_limits(tmp_path: Path, limits: dict[str, int], sent: int) -> None:
    """The last moment of the duration belongs to it."""
    async with serving() as server:
        plan = plan_of(server.url, warm_up=0, limits=Limits(timeout_us=20_000_000, **limits))
        recording = await run(plan, tmp_path / "r")
    due = sorted(request.due_us for request in recording.requests)  # they end in any order
    assert due == [APART_US * number for number in range(sent)]


async def test_a_deadline_of_a_request_ends_it_before_the_limit_of_all(tmp_path: Path) -> None:
    async with serving(lambda _asked, _reply: asyncio.sleep(60)) as server:
        source = trace([0])
        hurried = source.next_request
        source.next_request = lambda: _with_deadline(hurried(), 90_000)  # type: ignore[method-assign]
        recording = await run(plan_of(server.url, warm_up=0, source=source), tmp_path / "r")
    (row,) = recording.requests
    assert (row.outcome, row.error) == ("timed-out", "no end after 0.09 s")
    assert 90_000 <= row.done_us < 5_000_000


def _with_deadline(request: Request | None, deadline_us: int) -> Request | None:
    if request is not None:
        request.deadline_us = deadline_us
    return request


# ---- what is read beside ----


async def test_the_log_counters_and_progress_of_a_run_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"started\n" + LINE + b"\n")
    statuses: list[Status] = []

    async def behave(asked: Asked, reply: Replying) -> None:
        server.generated += 10
        with log.open("ab") as out:
            out.write(LINE.replace(b"Iteration(28)", b"Iteration(%d)" % (100 + asked.number)) + b"\nno step\n")
        await asyncio.sleep(0.1)
        await well(asked, reply)

    async with serving(behave) as server:
        recording = await run(plan_of(server.url), tmp_path / "r", log=Tail(log), tell=statuses.append)
    about = json.loads((tmp_path / "r" / "recording.json").read_text())
    assert about["kept"] == 7
    assert (about["complete"], about["log"], about["kv_events"]) == (True, True, False)
    assert [step.number for step in recording.steps] == [102 + number for number in range(REQUESTS)]  # no warm-up
    assert about["counters"]["vllm:generation_tokens_total"] == 10 * REQUESTS
    assert (statuses[-1].sent, statuses[-1].running) == (REQUESTS, 0)
    assert len(recording.scrapes) >= 2
    times = [scrape.time_us for scrape in recording.scrapes]
    assert times == sorted(times)


async def test_scrapes_that_fail_are_counted(tmp_path: Path) -> None:
    async with serving() as server:

        async def behave(asked: Asked, reply: Replying) -> None:
            server.metrics = False
            await asyncio.sleep(0.1)
            await well(asked, reply)

        server.behave = behave
        await run(plan_of(server.url, warm_up=0), tmp_path / "r")
    about = json.loads((tmp_path / "r" / "recording.json").read_text())
    assert about["lost_scrapes"] >= 2
    assert about["counters"] == {}


# ---- events of the KV cache ----

BATCHES = [
    ([b"", b"\0" * 7 + b"\1", msgspec.msgpack.encode([1.5, [["BlockStored", [b"\xff\0", 3], None]], 0])], 1),
    ([b"", b"\0" * 6 + b"\2\1", msgspec.msgpack.encode([2.5, [{"type": "x", 1: float("inf")}]])], 513),
    ([b"", b"\0" * 7 + b"\4", msgspec.msgpack.encode([3, []])], 4),
]
DAMAGED = [
    [b"only"],
    [b"", b"\0" * 8],
    [b"", b"\0" * 7, msgspec.msgpack.encode([1, []])],
    [b"", b"\0" * 9, msgspec.msgpack.encode([1, []])],
    [b"", b"\0" * 8, b"\xc1"],
    [b"", b"\0" * 8, msgspec.msgpack.encode([1])],
    [b"", b"\0" * 8, msgspec.msgpack.encode([1, 2])],
    [b"", b"\0" * 8, msgspec.msgpack.encode({"a": 1})],
    [b"", b"\0" * 8, b"\x91" * 9000],
    [b"", b"\0" * 8, msgspec.msgpack.encode([1, []]), b"more"],
]


async def test_batches_of_events_are_heard_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    """Hashes in bytes become hexadecimal, and what JSON does not have becomes text."""
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    events = KvEvents(f"tcp://127.0.0.1:{port}", "")
    try:
        assert await asyncio.wait_for(publisher.recv(), 30) == b"\1"  # it listens to all topics

        async def behave(asked: Asked, reply: Replying) -> None:
            if not asked.number:
                for frames in (*DAMAGED, *(one for one, _ in BATCHES)):
                    await publisher.send_multipart(frames)
            await well(asked, reply)

        async with serving(behave) as server:
            await run(plan_of(server.url, warm_up=0), tmp_path / "r", kv_events=events)
    finally:
        publisher.close(linger=0)
        context.term()
    heard = [json.loads(line) for line in (tmp_path / "r" / "kv-events.jsonl").read_text().splitlines()]
    assert [one["sequence"] for one in heard] == [number for _, number in BATCHES]
    assert [one["server_time_s"] for one in heard] == [1.5, 2.5, 3]
    assert [one["events"] for one in heard] == [[["BlockStored", ["ff00", 3], None]], [{"type": "x", "1": "inf"}], []]
    assert all(0 <= one["time_us"] < 30_000_000 for one in heard)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="'nowhere' is not an address to listen to"):
        KvEvents("nowhere")
