"""Traffic, servers, recordings, twins and calibrations, as recorded."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from blis_tui.engine.request import Request
from blis_tui.live.calibration.measured import Measured, notes_of
from blis_tui.live.calibration.measured import read_recording as measured_in
from blis_tui.live.calibration.simulated_load import Pair, agreement, by_batch, by_stage, disagreement, size_of
from blis_tui.live.observe.answers import error_text, read_answer, read_stream, read_whole
from blis_tui.live.observe.exchange import longest_answer
from blis_tui.live.observe.prompts import Prompts, RequestForm, TextScale
from blis_tui.live.observe.recording import (
    OUTCOMES,
    Observed,
    Server,
    read_recording,
    read_request,
    read_scrape,
    read_step,
    request_line,
    scrape_line,
    step_line,
    table_csv,
    write_tables,
    write_timeline,
)
from blis_tui.live.observe.recording_summary import (
    Progress,
    status_text,
    summarize,
    summary_document,
    summary_text,
    warnings,
)
from blis_tui.live.observe.server_reports import differences, settings, step_of, values
from blis_tui.live.observe.wire import target_of
from blis_tui.live.serving.anthropic_api import Messages
from blis_tui.live.serving.api import Counts, Head, Part
from blis_tui.live.serving.core import Core
from blis_tui.live.serving.fields import RefusedError, most_bytes
from blis_tui.live.serving.metrics import Metrics
from blis_tui.live.serving.openai_api import Chat, Completions
from blis_tui.live.serving.responses_api import Responses
from blis_tui.live.serving.shared_prefixes import Answer, Contents, encode, encode_chat, served_csv
from blis_tui.live.traffic.opening import Choice, ends, open_load
from blis_tui.live.twin.course import Levels, sampled
from blis_tui.live.twin.course import of_recording as course_of_recording
from blis_tui.live.twin.course import of_simulation as course_of_simulation
from blis_tui.live.twin.fitting import pace_of
from blis_tui.live.twin.simulated_requests import replaying, simulate
from blis_tui.live.twin.twin import compare_recordings, compare_with_simulation
from blis_tui.live.twin.twin_text import pairs_csv, twin_document, twin_text
from tests.live.calibration.servers import served
from tests.live.observe.servers import METRICS, Replying
from tests.live.observe.servers import serving as server
from tests.live.observe.test_misbehaviour import every_second, observed
from tests.live.serving.test_core import ask, made
from tests.live.serving.test_server import serving
from tests.live.twin.servers import experiment, recorded
from tests.recorded import Digests, commands, lasting, outcome
from tests.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BytesIO

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.live.serving.api import Api
    from tests.live.observe.servers import Asked

_RECORDING: Final = ROOT / "docs" / "recordings" / "monday"
_ONE: Final = "--set cluster.instances=1"
_LINES: Final = (
    *(f"workload describe {name}" for name in ("chatbot", "bursty", "prefix-heavy", "mixed-slo")),
    "workload describe chatbot --format json --requests 200 --html chatbot.html",
    "workload convert mixed-slo --seed 7 --requests 300 -o requests.csv",
    "workload describe requests.csv --block-size 16 --html requests.html",
    "workload compose chatbot bursty -o both.yaml",
    "workload describe both.yaml --requests 300 --format json",
    "workload fit requests.csv -o mine.workload.yaml",
    "workload fit requests.csv --stage 5 --format json --name staged",
    "workload fit requests.csv --requests 5",
    f"run quickstart {_ONE} --set workload.requests=250 --requests served.csv --trace-output bench -o run.json",
    "workload fit served.csv --format json -o served.workload.yaml",
    f"run quickstart {_ONE} --set workload.requests=40 --set expect=[] --requests few.csv -o few.json",
    f"calibrate served.csv --spec quickstart {_ONE} --compare --format json",
    f"calibrate few.csv --spec quickstart {_ONE} --base blackbox -o mine.yaml --html mine.html",
    f"calibrate bench.csv --spec quickstart --compare {_ONE}",
    f"calibrate --collect loads.blis.yaml --spec quickstart {_ONE} --loads 4",
    f"twin monday quickstart {_ONE} --requests twin.csv",
    f"twin monday quickstart {_ONE} --set engine.max_num_seqs=4 --format json",
    f"twin monday quickstart {_ONE} --steps fitted",
    "twin monday monday --within 5",
)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_RECORDING, "monday")
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {' '.join(line.split()[:2])}")
    digests.check(file_regression)


# ---- traffic ----

_AZURE: Final = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    "2023-11-16 18:15:51.2225669,879,55\n"
)
_BURST: Final = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    "7,GPT-4,100,30,130,API log\n9,ChatGPT,20,0,20,API log\n"
)
_MOONCAKE: Final = "".join(
    json.dumps({"timestamp": 900 * n, "input_length": 600 + n, "output_length": 5, "hash_ids": [0, n % 2]}) + "\n"
    for n in range(5)
)
_BENCH: Final = json.dumps(
    {
        "date": "x",
        "request_throughput": 5.0,
        "request_rate": 2.0,
        "input_lens": [10, 20, 30],
        "output_lens": [3, 4, 5],
        "ttfts": [0.1, 0.2, 0.3],
        "itls": [[0.01] * 2, [0.02] * 3, [0.03] * 4],
        "start_times": [1.0, 1.5, 2.25],
    }
)
_SHARE: Final = json.dumps(
    [
        {"id": f"c{n}", "conversations": [{"from": who, "value": "word " * (n + 3)} for who in ("human", "gpt") * 2]}
        for n in range(3)
    ]
)
_FOREIGN: Final = {"a.csv": _AZURE, "b.csv": _BURST, "m.jsonl": _MOONCAKE, "v.json": _BENCH, "s.json": _SHARE}
_KINDS: Final = (
    *("prefix-heavy", "mixed-slo", "bursty", "thinking", "multidoc", "unfair-tenants"),
    *("conversations", "lora-adapters", "photos", "trace-replay"),
)
_TRAFFIC: Final = (
    *(
        f"workload convert {name} {options} -o {name}.csv"
        for name in _FOREIGN
        for options in ("", "--set trace.time_scale=3")
    ),
    *(f"workload describe {name}" for name in _FOREIGN),
    *(f"workload convert {kind} --seed 3 --requests 200 -o {kind}.csv" for kind in _KINDS),
    *(f"workload fit {kind}.csv --format json" for kind in _KINDS),
    *(f"workload describe {kind}.csv --format json --html {kind}.html" for kind in _KINDS[:4]),
    *(f"workload describe {kind} --requests 30" for kind in _KINDS),
    "workload fit prefix-heavy.csv --block-size 4 --stage 2 -o staged.yaml",
    "workload fit mixed-slo.csv -o one.yaml",
    "workload describe one.yaml --requests 100",
    "workload compose prefix-heavy.csv mixed-slo.csv -o both.csv",
    "workload compose one.yaml bursty --name three -o three.yaml",
    "workload describe three.yaml --format json --requests 40",
)


def test_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Files of all that generates load, and shipped workloads, described, converted, fitted and put together."""
    monkeypatch.chdir(tmp_path)
    for name, text in _FOREIGN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    digests = Digests()
    for line in _TRAFFIC:
        commands(digests, tmp_path, line, kind=" ".join(line.split()[:3]))
    digests.check(file_regression)


# ---- serving ----

_MESSAGES: Final = [
    {"role": "user", "content": "Tell me of the old town."},
    {"role": "assistant", "content": "It is old."},
]
_LOOK: Final = {
    "name": "look",
    "parameters": {"properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]},
}
_APIS: Final[tuple[Api, ...]] = (Completions(), Chat(), Responses(), Messages())
_BODIES: Final[tuple[Mapping[str, object], ...]] = (
    {"prompt": "hello there, old friend", "max_tokens": 5},
    {"prompt": [5] * 40, "max_tokens": 7, "ignore_eos": True, "return_token_ids": True, "user": "me"},
    {"prompt": ["one text"], "min_tokens": 3, "stream": True, "stream_options": {"include_usage": True}},
    {"prompt": [[1, 2, 3]], "stream": True, "stream_options": {"continuous_usage_stats": True}},
    {"messages": _MESSAGES, "max_tokens": 4, "max_completion_tokens": 6},
    {"messages": [*_MESSAGES, {"role": "user", "content": [{"type": "text", "text": "Go on"}, {"image": 1}, 3]}]},
    {"messages": _MESSAGES, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}},
    *({"messages": wrong} for wrong in ([], "x", [{"content": "x"}], [{"role": 3}], ["x"], [{"role": "user"}])),
    *(
        {"prompt": wrong}
        for wrong in ("", [], ["a", "b"], [1, "a"], [-1], [True], None, [2**31], [1] * 1023, [1] * 1025)
    ),
    *({"prompt": "x", "max_tokens": wrong} for wrong in (0, 1, -1, 1024, 1025, "3", 2.0, True, None)),
    *({"prompt": "x", key: wrong} for key in ("n", "best_of", "min_tokens") for wrong in (0, 1, 2, -1, "1", None)),
    *(
        {"prompt": "x", key: wrong}
        for key in ("stream", "ignore_eos", "return_token_ids")
        for wrong in ("yes", 1, None)
    ),
    *({"prompt": "x", key: wrong} for key in ("model", "user") for wrong in (5, "gpt", "x" * 1000, "y" * 1001, "")),
    {"prompt": "x", "stream_options": 3},
    {"prompt": ["one", "two text"], "n": 3, "return_token_ids": True},
    {"messages": _MESSAGES, "tools": [{"type": "function", "function": _LOOK}], "tool_choice": "required", "n": 2},
    {"messages": _MESSAGES, "tools": [{"name": "look", "input_schema": {}}], "tool_choice": {"type": "any"}},
    {"messages": _MESSAGES, "system": "Be brief.", "max_tokens": 5, "metadata": {"user_id": "me"}},
    {"input": "hello", "instructions": "Be brief.", "max_output_tokens": 5, "ignore_eos": True},
    {"input": _MESSAGES, "tools": [{"type": "function", **_LOOK}, {"type": "web_search"}], "tool_choice": "required"},
)


def test_requests_of_servers(file_regression: FileRegressionFixture) -> None:
    """What an endpoint makes of documents, right and wrong, and how it puts answers into words."""
    digests = Digests()
    counts = Counts(prompt=5, cached=2, answer=3)
    part = Part(choice=0, text="t", ids=[1, 2], counts=counts, finish="")
    last = Part(choice=0, text="", ids=[], counts=counts, finish="length")
    for body, api in product((*_BODIES, [], "x"), _APIS):
        try:
            request, writer_of = api.parse(body, 1024)
        except RefusedError as error:
            digests.add("refused", api.refusal(error))
            continue
        digests.add("understood", repr(request))
        writer = writer_of(Head(number=1, created=77, model="m"))
        events = [*writer.opening(counts), *writer.part(part), *writer.part(last), *writer.closing([last], counts)]
        digests.add("shaped", *(event.name for event in events), *(event.document for event in events))
        digests.add("shaped", writer.whole([last], counts), writer.last_line)
    for status, api in product((400, 404, 413, 429, 499, 500, 503), _APIS):
        digests.add("refused", api.refusal(RefusedError(status, "why", "what")))
    digests.add("sizes", *(most_bytes(longest) for longest in (1, 1024, 524_288, 524_289, 10**6)))
    for text, most in product(("", "One two, three!", "a" * 50, "\u6f22\u5b57 \U0001f600", "  x "), (None, 0, 1, 5)):
        digests.add("tokens", encode(text, most), encode_chat([("user", text), ("assistant", text)], most))
    for number, count, goes_on in product((0, 7, 4099), (1, 2, 17), (False, True)):
        answer = Answer(number, count, goes_on=goes_on)
        digests.add("answers", answer.piece(0, count), answer.piece(count // 2, count))
    digests.check(file_regression)


async def test_answers_of_servers(file_regression: FileRegressionFixture) -> None:
    """The status and the answer to each document, without times and what depends on them."""
    digests = Digests()
    async with serving(made(**{"cluster.instances": 1}), speed=1000.0) as client:
        for body in _BODIES:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            async with client.session.post(client.url + path, json=body) as answer:
                text = _without_times(await answer.text())
                digests.add(f"{path} {answer.status}", answer.headers["Content-Type"], text)
        for path in ("/v1/models", "/health", "/ping", "/nothing", "/v1/completions"):
            async with client.session.get(client.url + path) as answer:
                digests.add(path, answer.status, _without_times(await answer.text()))
        documents: tuple[object, ...] = ({"prompt": "hello there"}, {"messages": _MESSAGES}, {}, [], {"prompt": ""})
        for document in documents:
            async with client.session.post(client.url + "/tokenize", json=document) as answer:
                digests.add("/tokenize", answer.status, await answer.text())
        for data, encoding in (
            (b"{", ""),
            (b"{}", "gzip"),
            (b"{}", "br"),
            (b"", ""),
            (b"NaN", ""),
            (b"\xff", "identity"),
        ):
            headers = {"Content-Encoding": encoding} if encoding else {}
            async with client.session.post(client.url + "/v1/completions", data=data, headers=headers) as answer:
                digests.add("no JSON", answer.status, (await answer.text())[:60])
    digests.check(file_regression)


def _without_times(text: str) -> str:
    """An answer without its date; of a stream only what all its chunks together say."""
    if not text.startswith("data: "):
        return re.sub(r'"(created|cached_tokens)": \d+', "", text)
    events = [one.removeprefix("data: ") for one in text.split("\n\n") if one]
    chunks = [json.loads(event) for event in events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    texts = [choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices]
    ids = [token for choice in choices for token in choice.get("token_ids", ())]
    usage = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")][-1:]
    kinds = list(dict.fromkeys(f"{chunk['id']} {chunk['object']}" for chunk in chunks))
    return repr((kinds, "".join(texts), ids, usage, choices[-1]["finish_reason"], events[-1]))


def test_core_of_servers(file_regression: FileRegressionFixture) -> None:
    """When tokens come of requests at given times, what the metrics then say, and what is kept for a replay."""
    digests = Digests()
    drawn = Random(3)  # noqa: S311  (no secret)
    for kind, changes in _CORES.items():
        core, contents, metrics = Core(made(**changes)), Contents(16), Metrics()
        for number in range(30):
            prompt = [number % 3] * 16 * drawn.randrange(1, 8) + [number] * drawn.randrange(1, 20)
            at_us = 9000 * number
            digests.add(f"{kind}: news", *core.advance(at_us - 1))
            ask(core, contents, at_us, prompt, drawn.randrange(1, 60))
            if number % 7 == 5:
                core.abort(number - 3, at_us)
            if number % 9 == 8:
                live = [request for request in core.requests if request.completed_us < 0]
                digests.add(f"{kind}: metrics", metrics.text(core.simulation.cluster, core.simulation.log, live))
        while (upcoming := core.next_us()) is not None:
            digests.add(f"{kind}: news", *core.advance(upcoming))
        digests.add(f"{kind}: end", core.running, core.now_us, core.simulation.report().to_json())
        digests.add(f"{kind}: metrics", metrics.text(core.simulation.cluster, core.simulation.log, []))
        digests.add(f"{kind}: kept", *served_csv(core.requests, core.simulation.report().rows))
    digests.check(file_regression)


_CORES: Final[Mapping[str, dict[str, Any]]] = {
    "plain": {"cluster.instances": 1},
    "two": {"engine.kv_blocks": 40},
    "vllm": {"policy.batching": {"kind": "vllm-v1"}, "engine.max_num_seqs": 3},
    "bucket": {"policy.admission": {"kind": "token-bucket", "capacity_tokens": 500, "refill_tokens_per_s": 900}},
}


# ---- observing ----


def _event(*ids: int, text: str = "x", finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish, "token_ids": list(ids)}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def _plain(text: str, key: str = "content", **more: object) -> bytes:
    choice = {"index": 0, "delta": {key: text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


_USAGE: Final = {"prompt_tokens": 5, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
_STREAMS: Final = (
    [_event(1), _event(2, 3), _event(), _event(4, finish="length"), b"data: [DONE]\n\n"],
    [_plain(""), _plain("a"), _plain("b", "reasoning"), _plain("c", usage=_USAGE), b": comment\n", b"data: [DONE]"],
    [_plain("t", usage={"completion_tokens": 2 * n, "prompt_tokens": 1}) for n in range(1, 5)],
    [_event(1), b'data: {"error": {"message": "no memory"}}\n\n', _event(2)],
    [_event(1), b"data: {\n\n", _event(2)],
    [_event(1), b"data: [3]\n\n"],
    [b'data: {"error": "busy"}\n\n', b'data: {"choices": [3]}\n\n', b'data: {"choices": 3, "usage": [1]}\n\n'],
    [_event(-1), _event(2**31), _event(1, usage={"prompt_tokens": -1, "completion_tokens": 10**9}), _plain("z")],
    [b'{"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}}'],
    [b'{"choices": [{"text": "a", "token_ids": [1, 2]}]}'],
    [b'{"error": {"message": "' + b"long " * 100 + b'"}}'],
    [b""],
)


def test_answers(file_regression: FileRegressionFixture) -> None:
    """What clients make of answers, cut anywhere, and of what servers say of themselves."""
    digests = Digests()
    for stream in _STREAMS:
        whole = b"".join(stream)
        pieces = [(100 * number, piece) for number, piece in enumerate(stream)]
        for size in (3, 40, 150):
            cuts = [(at, whole[at : at + size]) for at in range(0, len(whole), size)]
            digests.add("streams", repr(read_stream(cuts)))
        digests.add("streams", repr(read_stream(pieces)), repr(read_whole(whole, 7)))
        for kind, packed, asked in product(("application/json; x", "text/event-stream"), ("", "gzip"), (True, False)):
            headers = {"content-type": kind, "content-encoding": packed}
            digests.add("answers", repr(read_answer(pieces, 9, headers, stream=asked)))
        digests.add("refusals", *(error_text(whole, status, {"retry-after": "7"}) for status in (404, 503)))
    for url in (
        "h",
        "http://h:81/v1/",
        "https://h/a/v1",
        "ftp://h",
        "http://u@h",
        "h?x",
        "h/v1/models",
        "h:x",
        "a b",
        "",
    ):
        target = outcome(target_of, url, {"X-Key": "1"})
        if isinstance(target, str):
            digests.add("addresses", target)
            continue
        heads = [target.head(method, "/v1", length) for method, length in (("GET", 0), ("POST", 3))]
        digests.add("addresses", target.host, target.port, target.root, target.tls is None, *heads)
    for headers in ({"A\n": "1"}, {" ": "1"}, {"Host": "x"}, {"content-length": "3"}, {"A": "\u00e9"}, {"b": "\0"}):
        digests.add("addresses", outcome(target_of, "h", headers))
    digests.add("longest", *map(longest_answer, (0, 1, 100, 10**6)))
    _reports(digests)
    digests.check(file_regression)


def _reports(digests: Digests) -> None:
    """Take what is read of metrics and logs."""
    engines = METRICS.format(preemptions=3, generated=1000)
    second = engines.replace('engine="0"', 'engine="1"').replace("1.0", "7.5").replace("0.25", "0.5")
    odd = 'vllm:num_requests_running{engine="0" 3\nvllm:kv_cache_usage_perc{a="\\"},"} 1e999\nnothing\n# x\n'
    for text in (engines, second, engines + second, odd, "", engines.replace('"200"', '"x"').replace("True", "False")):
        digests.add("metrics", values(text), settings(text))
        digests.add("metrics", differences(values(engines), values(text)), differences(values(text), values(second)))
    line = "Iteration(12): 1 context requests, 90 context tokens, 4 generation requests, 5 generation tokens, "
    for end in (
        "12.345 ms",
        "12 ms, GPU KV cache usage: 55.5%",
        "1.0 ms (dummy)",
        "1.0",
        "9 ms, x KV cache usage: 100.0%",
    ):
        digests.add("steps", step_of(f"x {line}iteration elapsed time: {end}".encode(), 77))


def test_prompts(file_regression: FileRegressionFixture) -> None:
    """Bodies of requests in every form, with shared beginnings and earlier answers."""
    digests = Digests()
    forms = product(
        ("completions", "chat"), ("vllm", "openai"), (False, True), (False, True), (None, 60), (False, True)
    )
    for api, dialect, stream, text, longest, exact in forms:
        asking = RequestForm(
            api=api, dialect=dialect, model="m", stream=stream, exact=exact, text=text, longest=longest, seed="s"
        )
        for scale in (None, TextScale(per_word=1.3, fixed=4.0)):
            prompts = Prompts(asking, scale)
            for request in _requests():
                digests.add(f"{api} {dialect}", prompts.body(request))
                prompts.record_answer(request, read_stream([(1, _event(7, 8, text="seven eight"))]))
            digests.add("probes", asking.path, prompts.probe(9, "p"), prompts.warm_up(2, 30, 4))
    for tokens, alone in product((0, 1, 5, 100), (False, True)):
        digests.add(
            "scales", *(TextScale(*given).words(tokens, alone=alone) for given in ((1.0, 0.0), (1.3, 4.0), (0.5, 9.0)))
        )
    digests.check(file_regression)


def _requests() -> list[Request]:
    """Two calls of a session, and requests with shared beginnings."""
    made = []
    for number in range(5):
        request = Request(number, f"r{number}", 0, 40 + number, 6, (("shared", 20), ("r", number + 1))[: number % 3])
        request.session_id, request.round_index = ("talk", number) if number < 2 else ("", 0)
        request.max_output_tokens = 50 * (number % 2)
        request.adapter = "lora" if number == 4 else ""
        made.append(request)
    return made


def _refused(_asked: Asked, reply: Replying) -> None:
    reply.whole("429 Too Many Requests", {"error": {"message": "busy"}})


def _failing(_asked: Asked, reply: Replying) -> None:
    reply.whole("500 Internal", {"detail": "out of memory"})


def _reset(_asked: Asked, reply: Replying) -> None:
    reply.reset()


def _silent(_asked: Asked, _reply: Replying) -> None:
    pass


def _no_json(_asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.chunk(b"data: {\n\n")
    reply.done()


def _no_end(_asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.token(1, 2)
    reply.writer.close()


def _too_few(_asked: Asked, reply: Replying) -> None:
    reply.head()
    reply.token(1)
    reply.usage(8, 2)
    reply.done()


_ODD: Final = (_refused, _failing, _reset, _silent, _no_json, _no_end, _too_few)
"""What a server does to every second request."""


async def test_observing(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    """What a recording says of servers that misbehave, without times."""
    digests = Digests()
    for odd in _ODD:
        kind = odd.__name__
        async with server(every_second(odd)) as served:  # type: ignore[arg-type]
            recording = await observed(served, tmp_path / kind, 4, 0.5 if odd is _silent else 30)
            bodies = [(one.path, sorted(one.headers), one.body) for one in served.asked if one.path != "/v1/models"]
        rows = [
            (request.outcome, request.status, request.tokens, request.finish_reason, request.error)
            for request in recording.requests
        ]
        digests.add(kind, *(re.sub(r"\d+:|[0-9.]+ s", "", repr(row)) for row in rows), len(bodies))
        digests.add("bodies", *(repr(body) for body in sorted(bodies, key=repr)[:4]), repr(recording.server))
    digests.check(file_regression)


# ---- recordings ----


def _rows(count: int) -> list[Observed]:
    """Requests that ended in every way, with everything that may be told of one."""
    drawn = Random(count)  # noqa: S311  (no secret)
    rows = []
    for number in range(count):
        sent_us = 9000 * number + drawn.randrange(3) * 4000
        chunks = tuple((sent_us + 5000 * (one + 1), drawn.randrange(1, 4)) for one in range(drawn.randrange(5)))
        ended = sorted(OUTCOMES)[number % len(OUTCOMES)] if number % 2 else "completed"
        token_sum = sum(tokens for _, tokens in chunks)
        rows.append(
            Observed(
                request_id=f"r{number}",
                index=number,
                due_us=sent_us - drawn.randrange(2) * 30_000,
                sent_us=sent_us,
                done_us=sent_us + 5000 * len(chunks) + 90,
                outcome=ended,
                input_tokens=30 + number,
                output_tokens=token_sum + (number % 5 == 4),
                chunks=chunks,
                prompt_tokens=(None, 30 + number, 31 + number)[number % 3],
                completion_tokens=(None, token_sum, token_sum, token_sum + 1)[number % 4],
                cached_tokens=(None, 0, 16)[number % 3],
                has_token_ids=number % 3 != 1,
                whole=number % 11 == 10,
                merged=number % 2,
                status=(200, 0, 503)[number % 3],
                finish_reason=("length", "stop", "")[number % 3],
                error="" if ended == "completed" else "it broke",
                segments=(("shared", 16), (f"own{number}", 8))[: number % 3],
                slo_class=("standard", "batch")[number % 2],
                tenant=("", "a")[number % 2],
                session_id=("", "talk")[number % 2],
                round_index=number % 2,
                deadline_us=(0, sent_us + 10_000)[number % 2],
            )
        )
    return rows


def test_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Lines that are written and read, tables, summaries, warnings and the state while it goes on."""
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    whole = recorded(experiment(workload__requests=20), Path("whole"), gap_us=800, front_us=5000)
    for count in (0, 1, 2, 9, 60):
        rows = _rows(count)
        recordings = [
            replace(whole, requests=tuple(rows)),
            replace(whole, requests=tuple(rows), server=Server(), steps=(), scrapes=()),
        ]
        digests.add("lines", *map(request_line, rows), *(read_request(request_line(row)) == row for row in rows))
        digests.add("rows", *((one.late_us, one.tokens, one.guessed, one.ttft_us, one.e2e_us) for one in rows))
        digests.add("rows", *((one.prompt, one.contradicts) for one in rows))
        digests.add("tables", *table_csv(rows))
        summary = summarize(rows)
        for recording in recordings:
            warned = warnings(summary, recording)
            digests.add("summaries", *warned, summary_text(summary, recording))
            digests.add("summaries", summary_document(summary, recording, warned))
        progress = Progress(count or None)
        for number, row in enumerate(rows):
            progress.note(row)
            digests.add("states", status_text(progress.look(row.done_us, number + 1, number % 3)))
    for number, step in enumerate(whole.steps[:9]):
        one = replace(step, kv_share=None if number % 2 else step.kv_share, end_us=None if number % 3 else step.end_us)
        digests.add("steps", step_line(one, 199), step_line(one), repr(outcome(read_step, step_line(one, 199))))
    digests.add("scrapes", *(scrape_line(scrape) for scrape in whole.scrapes), *map(repr, whole.scrapes))
    digests.add("scrapes", *(read_scrape(scrape_line(scrape)) == scrape for scrape in whole.scrapes))
    _damaged(digests, Path())
    digests.check(file_regression)


def _damaged(digests: Digests, folder: Path) -> None:
    """Take what is said of lines that are none, and of tables that are written again."""
    wrong = ("", "[]", "{}", '{"outcome": "completed", "chunks": [[1]]}', '{"outcome": 3}', '{"time_us": -1}', "NaN")
    for name, line in product(("requests.jsonl", "metrics.jsonl", "steps.csv", "recording.json"), wrong):
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / "whole", copy)
        with (copy / name).open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")
        found = outcome(read_recording, copy)
        digests.add("damaged", found if isinstance(found, str) else "read")
    recording = read_recording(folder / "whole")
    write_tables(recording)
    for file in sorted((folder / "whole").iterdir()):
        digests.add(file.name, file.read_bytes().decode("utf-8", "replace"))
    timeline: BytesIO = io.BytesIO()
    write_timeline(timeline, recording)
    digests.add("timeline", timeline.getvalue())


# ---- twins ----

_SERVERS: Final[Mapping[str, dict[str, Any]]] = {
    "same": {},
    "slower": {"latency__beta": [12_000, 20, 300]},
    "smaller": {"engine__kv_blocks": 60},
    "fewer": {"engine__max_num_seqs": 4},
    "budget": {"engine__max_num_batched_tokens": 200},
    "order": {"policy__scheduling": "sjf"},
    "caching": {"engine__enable_prefix_caching": False},
}


def test_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """A recording beside simulations that differ from it in one thing each, and beside other recordings."""
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    first = recorded(experiment(workload__requests=25), Path("first"), gap_us=1500, front_us=9000)
    bare = replace(first, steps=(), scrapes=())
    for kind, changes in _SERVERS.items():
        for recording, steps in ((first, "model"), (first, "fitted"), (first, "measured"), (bare, "model")):
            twin = outcome(compare_with_simulation, recording, experiment(**changes), kind, steps)
            if isinstance(twin, str):
                digests.add(kind, lasting(twin, tmp_path))
                continue
            digests.add(kind, twin_text(twin), twin_document(twin), *pairs_csv(twin))
            digests.add(f"{kind}: parting", repr(twin.parting), *(twin.alike(rung) for rung in twin.rungs))
    other = recorded(experiment(workload__requests=25, engine__kv_blocks=60), Path("other"), line_late_us=None)
    for left, right in ((first, other), (other, first), (first, bare)):
        digests.add("recordings", twin_text(compare_recordings(left, right)))
    levels = Levels((0, 500, 900), (1.0, 3.0, 2.0))
    digests.add("levels", *(sampled(levels, end, cells) for end in (1, 500, 1000) for cells in (1, 3, 10)))
    digests.check(file_regression)


# ---- calibrations ----


def _measured() -> dict[str, str]:
    """Files of load generators, of engines, and what is wrong in each way."""
    rows = [(1 + n * 0.5, 20 + n, 3 + n % 4, 0.02 + n * 0.001) for n in range(30)]
    ends = [start + first + 0.01 * output for start, _, output, first in rows]
    bench = {
        "start_times": [row[0] for row in rows],
        "input_lens": [row[1] for row in rows],
        "output_lens": [row[2] for row in rows],
        "ttfts": [0.0 if n == 5 else row[3] for n, row in enumerate(rows)],
        "itls": [[0.01] * row[2] for row in rows],
    }
    perf = [
        {
            "start_time": start,
            "end_time": end,
            "error": None if n != 3 else "x",
            "info": {"input_tokens": tokens, "output_tokens": output, "output_token_times": [start + first, end]},
        }
        for n, ((start, tokens, output, first), end) in enumerate(zip(rows, ends, strict=True))
    ]
    guide = [
        {"start_time": start, "prompt_tokens": tokens, "output_tokens": output, "time_to_first_token_ms": 1e3 * first}
        | {"request_latency": end - start}
        for (start, tokens, output, first), end in zip(rows, ends, strict=True)
    ]
    plain = "".join(f"{n}000,20,5,{900 + n},{9000 + n}\n" for n in range(30))
    head = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n"
    trace = "".join(f"r{n},{n}000,20,21,5,{n}900,{n}9000,ok\n" for n in range(1, 30))
    columns = "request_id,arrival_time_us,input_tokens,server_input_tokens,output_tokens,"
    line = "INFO Iteration({}): 2 context requests, 101 context tokens, 43 generation requests, 43 generation tokens"
    end = ", iteration elapsed time: 25.94 ms, GPU KV cache usage: 50.0%\n"
    log = "".join(f"{line.format(n)}{end}" for n in range(1, 30))
    steps = "".join(f"{9000 + n},{n},{n * 100},{n % 2},{n % 2 * 50}\n" for n in range(1, 30))
    step_columns = "duration_us,decode_requests,context_tokens,prefill_requests,prefill_tokens\n"
    return {
        "bench": json.dumps(bench),
        "bench, short": json.dumps(bench | {"ttfts": [1.0]}),
        "bench, lacking": json.dumps({"ttfts": []}),
        "bench, sums": json.dumps({"mean_ttft_ms": 3, "request_throughput": 3}),
        "perf": json.dumps(perf),
        "perf, wrong": json.dumps([perf[0], 3]),
        "guide": json.dumps({"benchmarks": [{"requests": {"successful": guide, "errored": [1], "incomplete": None}}]}),
        "guide, many": json.dumps({"benchmarks": [1, 2]}),
        "guide, wrong": json.dumps({"benchmarks": [{"requests": {"successful": [3]}}]}),
        "plain": head + plain,
        "plain, few": head + "0,20,5,900,9000\n",
        "plain, no times": head + plain + "9,20,5,,\n8,20,5,9000,900\n",
        "plain, words": head + plain.replace("20", "x", 1),
        "plain, cut": head + plain + "9,20",
        "plain, twice": head + plain + head,
        "plain, lacking": head.replace(",ttft_us", "") + plain,
        "trace": f"{columns}first_chunk_time_us,last_chunk_time_us,status\n{trace}",
        "log": log,
        "log, restarted": log + log,
        "log, bare": log.replace(", GPU KV cache usage: 50.0%", ""),
        "steps": step_columns + steps,
        "steps, wrong": step_columns + steps.replace("100", "-1", 1),
        "none": "hello\n",
        "empty": " \n",
        "brackets": "[",
        "map": "{}",
    }


def test_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """What is read of files of load generators and engines, and how well simulations agree with it."""
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    pool = served("llama-3.1-8b-instruct", 2.0, 1500).pools[0]
    pool = replace(pool, engine=replace(pool.engine, kv_blocks=1000, block_size_tokens=16))
    for name, text in _measured().items():
        path = Path(f"{name}.txt")
        path.write_text(text, encoding="utf-8")
        found = outcome(measured_in, path, pool)
        digests.add(
            "read", name, found if isinstance(found, str) else repr((found, found.size)).replace("PosixPath(", "Path(")
        )
        if not isinstance(found, str):
            digests.add("notes", name, *notes_of([found], [1.0, 2.0]))
    _agreements(digests)
    commands(digests, tmp_path, f"run quickstart {_ONE} --set workload.requests=30 --requests few.csv -o few.json")
    for number, options in enumerate(("", "--stages 1,2", "--set latency=operators", "--set latency=roofline")):
        commands(digests, tmp_path, f"calibrate few.csv --spec quickstart {_ONE} --compare {options}", kind=f"{number}")
    commands(digests, tmp_path, f"calibrate steps.txt few.csv --spec quickstart {_ONE} --compare --format json")
    digests.check(file_regression)


def _agreements(digests: Digests) -> None:
    """Take grades of simulated times that are right, late, scattered and constant."""
    drawn = Random(4)  # noqa: S311  (no secret)
    for spread, shift, count in product((0.0, 0.01, 0.3, 2.0), (1.0, 1.1, 3.0), (1, 2, 40)):
        asked = [Measured(9e5 * n, 10 * n + 9, 2 + n % 5, 1e4 * (1 + n % 7), 3e4 * (1 + n % 7)) for n in range(count)]
        errors = [shift * (1.0 + spread * (drawn.random() - 0.5)) for _ in asked]
        pairs = [Pair(one, one.ttft_us * off, one.e2e_us * off) for one, off in zip(asked, errors, strict=True)]
        for metric in ("ttft", "itl", "e2e"):
            found = agreement(pairs, metric)
            digests.add("agreement", repr(found), None if found is None else found.grade)
        digests.add("agreement", *(len(one) for one in by_stage(pairs, [2.0, 9.0])), *map(len, by_batch(pairs)))
        digests.add("agreement", size_of(pairs), disagreement({"a": pairs}), disagreement({"a": pairs}, of_means=True))


def test_courses(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    """A recording and a simulation over time, at times between, on and after all that happens."""
    digests = Digests()
    made = experiment(workload__requests=12)
    recording = recorded(made, tmp_path / "r", gap_us=1500, front_us=4000)
    run = simulate(replaying(made, recording), follow=True)
    for course in (course_of_recording(recording, pace_of(recording)), course_of_simulation("s", run)):
        digests.add("courses", course.name, course.end_us, course.begins_us, course.batches, repr(course.step_times))
        for life in course.lives.values():
            digests.add("lives", repr(life), life.ttft_us, life.e2e_us, life.tokens(life.end_us - 1))
        for time_us in (0, 1, 5000, 123_456, 500_000, course.end_us, course.end_us + 1):
            digests.add("times", course.step(time_us), course.in_flight(time_us), course.tokens(time_us))
            digests.add("times", len(course.answered(time_us)))
    two = experiment(cluster__instances=2)
    digests.add("refused", outcome(replaying, two, recording))
    digests.check(file_regression)


def test_loads(file_regression: FileRegressionFixture) -> None:
    """What is opened by name, with limits and seeds, and why some is not."""
    digests = Digests()
    for name in (*_KINDS, "burst", "steady-chat", "quickstart", "nothing", "chatbo"):
        for choice in (Choice(), Choice(requests=5, seed=9), Choice(overrides=("seed=3",))):
            load = outcome(open_load, name, choice)
            if isinstance(load, str):
                digests.add("refused", lasting(load, ROOT))
            else:
                digests.add(name, load.name, lasting(repr(load.workload), ROOT), load.seed, ends(load.workload))
    digests.check(file_regression)
