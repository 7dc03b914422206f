"""The responses and messages APIs: their formats, and that equal conversations are equal, whatever the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.live.serving.anthropic_api import Messages
from blis_tui.live.serving.api import Counts, Head, Part
from blis_tui.live.serving.fields import RefusedError
from blis_tui.live.serving.openai_api import Chat, Completions
from blis_tui.live.serving.responses_api import Responses
from blis_tui.live.serving.shared_prefixes import Answer, encode
from tests.live.serving.test_core import made
from tests.live.serving.test_server import Client, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    import blis_tui
    from blis_tui.live.serving.api import Api, Asked, WriterMaker

Document = dict[str, object]
Talk = list[tuple[str, str]]
"""Roles and texts: a user asks, an assistant answers or calls (as JSON), a tool has results."""

SAID: Talk = [
    ("system", "Be brief, and be kind to those who ask " * 3),
    ("user", "Tell me of the old town " * 6),
    ("assistant", "the day went on and we saw"),
    ("user", "And then?"),
    ("call", '{"place": "town", "days": [1, 2]}'),
    ("tool", "rain, 4 degrees"),
    ("user", "Oh."),
]
SCHEMA: Document = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


def chat_body(talk: Talk, *, tools: bool = False) -> Document:
    messages: list[Document] = []
    for role, text in talk:
        if role == "call":
            call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": text}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif role == "tool":
            messages.append({"role": "tool", "tool_call_id": "call_1", "content": text})
        else:
            messages.append({"role": role, "content": text})
    tool = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": SCHEMA}}
    return {"messages": messages, **({"tools": [tool]} if tools else {})}


def responses_body(talk: Talk, *, tools: bool = False) -> Document:
    body: Document = {}
    items: list[Document] = []
    for role, text in talk:
        if role == "system":
            body["instructions"] = text
        elif role == "call":
            items.append({"type": "function_call", "call_id": "call_1", "name": "look", "arguments": text})
        elif role == "tool":
            items.append({"type": "function_call_output", "call_id": "call_1", "output": text})
        elif role == "user":
            items.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        else:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            items.append({"type": "message", "id": "msg_1", "role": role, "content": content})
    tool = {"type": "function", "name": "look", "description": "Looks", "parameters": SCHEMA, "strict": False}
    return {**body, "input": items, **({"tools": [tool]} if tools else {})}


def messages_body(talk: Talk, *, tools: bool = False) -> Document:
    body: Document = {}
    messages: list[Document] = []
    for role, text in talk:
        if role == "system":
            body["system"] = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        elif role == "call":
            block: Document = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": json.loads(text)}
            messages.append({"role": "assistant", "content": [block]})
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": text}]}
            messages.append({"role": "user", "content": [block]})
        else:
            messages.append({"role": role, "content": text})
    tool = {"name": "look", "description": "Looks", "input_schema": SCHEMA}
    return {**body, "messages": messages, **({"tools": [tool]} if tools else {})}


APIS: dict[str, Api] = {
    "/v1/completions": Completions(),
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
    "/v1/messages": Messages(),
}
BODIES = {
    "/v1/chat/completions": chat_body,
    "/v1/responses": responses_body,
    "/v1/messages": messages_body,
}
LIMITS = {
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
TURN = st.one_of(
    st.tuples(st.just("user"), TEXT),
    st.tuples(st.just("tool"), TEXT),
    st.tuples(st.just("call"), st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=3).map(json.dumps)),
)


@given(st.booleans(), TEXT, st.lists(TURN, min_size=1, max_size=6), st.booleans())
def test_equal_conversations_are_equal_prompts(instructed: bool, text: str, turns: Talk, tools: bool) -> None:
    # Two calls in a row may be one turn of the assistant or two, which is for the client to say.
    talk = [turn for at, turn in enumerate(turns) if turn[0] != "call" or not at or turns[at - 1][0] != "call"]
    talk = [*([("system", text)] if instructed else []), *talk]
    (chat,) = Chat().parse(chat_body(talk, tools=tools), 9000)[0].prompts
    (response,) = Responses().parse(responses_body(talk, tools=tools), 9000)[0].prompts
    (message,) = Messages().parse({**messages_body(talk, tools=tools), "max_tokens": 5}, 9000)[0].prompts
    assert chat == response == message
    assert len(chat) > sum(len(encode(said)) for role, said in talk if role != "call")


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
async def test_equal_conversations_take_the_same_simulated_time(tools: bool) -> None:
    found = {}
    for path, body in BODIES.items():
        limit = {LIMITS[path]: 12, "ignore_eos": True}
        async with serving(made(**{"cluster.instances": 1})) as client:
            for talk in (SAID[:2], SAID[:4], SAID):
                status, document = await client.post(path, **body(talk, tools=tools), **limit)
                assert status == 200, document
            rows = client.endpoint.core.simulation.report(complete=False).rows
        found[path] = [
            (row.input_tokens, row.cached_tokens, row.output_tokens, row.ttft_us, row.e2e_us) for row in rows
        ]
    assert found["/v1/chat/completions"] == found["/v1/responses"] == found["/v1/messages"]
    assert [row[1] > 0 for row in found["/v1/messages"]] == [False, True, True]


async def test_an_answer_that_is_sent_back_is_in_the_cache() -> None:
    async with serving(made(**{"cluster.instances": 1})) as client:
        _, first = await client.post("/v1/responses", input="What of the town?", max_output_tokens=50, ignore_eos=True)
        assert isinstance(first, dict)
        items = [{"role": "user", "content": "What of the town?"}, *first["output"], {"role": "user", "content": "So?"}]
        _, second = await client.post("/v1/responses", input=items, max_output_tokens=5, ignore_eos=True)
        _, third = await client.post("/v1/messages", messages=[{"role": "user", "content": "Hm"}], max_tokens=50)
        assert isinstance(third, dict)
        talk = [
            {"role": "user", "content": "Hm"},
            {"role": "assistant", "content": third["content"]},
            {"role": "user", "content": "So?"},
        ]
        _, fourth = await client.post("/v1/messages", messages=talk, max_tokens=5)
        rows = client.endpoint.core.simulation.report(complete=False).rows
    assert isinstance(second, dict)
    cached = (first["usage"]["input_tokens"] + 50) // 16 * 16
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == cached == rows[1].cached_tokens
    assert isinstance(fourth, dict)
    usage = fourth["usage"]
    assert usage["cache_read_input_tokens"] == rows[3].cached_tokens > 0
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == rows[3].input_tokens
    assert (usage["cache_creation_input_tokens"], usage["output_tokens"]) == (0, 5)


# ---- responses ----


def slow(**changes: object) -> blis_tui.Experiment:
    """So that tokens come apart even where this machine is held up for a moment."""
    return made(**{"latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [20000, 10, 100]}, **changes})


def drawn(low: int, high: int) -> Document:
    clients = [{"id": "c", "input_tokens": 5, "output_tokens": {"kind": "uniform", "min": low, "max": high}}]
    return {"workload": {"requests": 1, "rate_per_s": 1, "clients": clients}}


async def test_a_response_has_what_the_api_says() -> None:
    body: Document = {"input": "hello", "instructions": "be brief", "metadata": {"a": "b"}, "max_output_tokens": 9}
    async with serving(made(**drawn(4, 4))) as client:
        _, found = await client.post("/v1/responses", **body)
        _, cut = await client.post("/v1/responses", **{**body, "max_output_tokens": 3})
    assert isinstance(found, dict)
    assert isinstance(cut, dict)
    (item,) = found["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    (part,) = item["content"]
    assert part["type"] == "output_text"
    assert (part["annotations"], len(encode(part["text"]))) == ([], 4)
    assert (found["id"], found["object"], found["status"]) == ("resp_0", "response", "completed")
    assert found["incomplete_details"] is None
    assert (found["metadata"], found["instructions"], found["max_output_tokens"]) == ({"a": "b"}, "be brief", 9)
    assert found["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 14,
    }
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert cut["output"][0]["status"] == "incomplete"


async def test_the_events_of_a_response_come_in_their_order() -> None:
    body: Document = {"input": "hello", "max_output_tokens": 30, "ignore_eos": True}
    async with serving(slow(), speed=1.0) as client:
        events = await client.named("/v1/responses", **body)
        _, whole = await client.post("/v1/responses", **body)
    assert isinstance(whole, dict)
    names = [name for name, _ in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(names[4:-4]) == {"response.output_text.delta"}
    assert len(names) > 4 + 2 + 4
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [document["type"] for _, document in events] == names
    assert [document["sequence_number"] for _, document in events] == list(range(len(events)))
    text = "".join(str(document["delta"]) for name, document in events if name == "response.output_text.delta")
    assert events[-4][1]["text"] == text
    last = events[-1][1]["response"]
    assert isinstance(last, dict)
    assert last.keys() == whole.keys()
    assert last["output"][0]["content"][0]["text"] == text
    assert len(encode(text)) == last["usage"]["output_tokens"] == 30
    assert last["output"][0] == events[-2][1]["item"]
    assert events[0][1]["response"]["status"] == "in_progress"  # type: ignore[index]
    assert {document["item_id"] for _, document in events if "item_id" in document} == {last["output"][0]["id"]}


# ---- messages ----


async def test_a_message_has_what_the_api_says() -> None:
    body: Document = {"messages": [{"role": "user", "content": "hello"}], "system": "be brief", "max_tokens": 9}
    async with serving(made(**drawn(4, 4))) as client:
        status, found = await client.post("/v1/messages", model="qwen3-14b", **body)
        _, cut = await client.post("/v1/messages", **{**body, "max_tokens": 3})
        _, count = await client.post("/v1/messages/count_tokens", **body)
    assert status == 200
    assert isinstance(found, dict)
    assert isinstance(cut, dict)
    (block,) = found.pop("content")
    assert (block["type"], len(encode(block["text"]))) == ("text", 4)
    usage = found.pop("usage")
    assert usage["output_tokens"] == 4
    assert count == {"input_tokens": usage["input_tokens"]}
    assert found == {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "model": "qwen3-14b",
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    assert cut["stop_reason"] == "max_tokens"


async def test_the_events_of_a_message_come_in_their_order() -> None:
    body: Document = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 30, "ignore_eos": True}
    async with serving(slow(), speed=1.0) as client:
        events = await client.named("/v1/messages", **body)
    names = [name for name, _ in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert len(names) > 2 + 2 + 3
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert [document["type"] for _, document in events] == names
    message = events[0][1]["message"]
    assert isinstance(message, dict)
    assert (message["content"], message["stop_reason"], message["usage"]["output_tokens"]) == ([], None, 0)
    assert events[1][1]["content_block"] == {"type": "text", "text": ""}
    deltas = [document["delta"] for name, document in events if name == "content_block_delta"]
    assert len(encode("".join(delta["text"] for delta in deltas))) == 30  # type: ignore[index]
    assert events[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2][1]["usage"] == {**message["usage"], "output_tokens": 30}


# ---- refusals ----

USER: list[Document] = [{"role": "user", "content": "x"}]
TOOL: Document = {"type": "function", "name": "f", "parameters": {}}


@pytest.mark.parametrize(
    ("body", "parameter", "says"),
    [
        ({}, "input", "`input` must be a text or a list"),
        ({"input": ""}, "input", "`input` must be"),
        ({"input": []}, "input", "`input` must be"),
        ({"input": 5}, "input", "`input` must be"),
        ({"input": ["x"]}, "input", "must be an object"),
        ({"input": [{"type": "reasoning"}]}, "input", "`input` has no message"),
        ({"input": [{"type": "message"}]}, "input", "items of type `message`"),
        ({"input": [{"type": "function_call"}]}, "input", "items of type `function_call`"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "items of type `item_reference`"),
        ({"input": "x", "instructions": 5}, "instructions", "must be a text"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "max_output_tokens must be at least 1"),
        ({"input": "x", "max_output_tokens": 9999}, "max_output_tokens", "cannot be greater than max_model_len"),
        ({"input": "x " * 2000}, "input", "maximum context length is 1024 tokens"),
        ({"input": "x " * 1019}, "input", "the prompt has 1024"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored here"),
        ({"input": "x", "background": True}, "background", "is not simulated"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt", "is not simulated"),
        ({"input": "x", "stream": "yes"}, "stream", "must be true or false"),
        ({"input": "x", "tools": 5}, "tools", "must be a list"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools", "needs a name"),
        ({"input": "x", "tools": [{**TOOL, "parameters": 5}]}, "tools", "must be a JSON schema"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice", "needs `tools`"),
        ({"input": "x", "tools": [TOOL], "tool_choice": "some"}, "tool_choice", "must be"),
        ({"input": "x", "tools": [TOOL], "tool_choice": {"name": "g"}}, "tool_choice", "must name a function"),
        ([], None, "not a JSON object"),
    ],
)
async def test_what_is_no_response_is_refused(body: object, parameter: str | None, says: str) -> None:
    async with serving() as client, client.session.post(client.url + "/v1/responses", json=body) as answer:
        document = await answer.json()
        assert answer.status == 400
        assert client.endpoint.core.requests == []
    assert says in document["error"]["message"]
    assert (document["error"]["param"], document["error"]["code"]) == (parameter, 400)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"messages": USER}, 400, "`max_tokens` is required"),
        ({"messages": USER, "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"messages": USER, "max_tokens": 5000}, 400, "cannot be greater than max_model_len=1024"),
        ({"max_tokens": 5}, 400, "`messages` must be a list"),
        ({"messages": ["x"], "max_tokens": 5}, 400, "needs the role"),
        ({"messages": [{"role": "tool", "content": "x"}], "max_tokens": 5}, 400, "needs the role"),
        ({"messages": [{"role": "user"}], "max_tokens": 5}, 400, "`content` of a message must be"),
        ({"messages": [{"role": "user", "content": ["x"]}], "max_tokens": 5}, 400, "needs a type"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}], "max_tokens": 5},
            400,
            "needs a name",
        ),
        ({"messages": USER, "max_tokens": 5, "system": 5}, 400, "`system` must be"),
        (
            {"messages": USER, "max_tokens": 5, "tools": [{"type": "bash_20250124", "name": "bash"}]},
            400,
            "input_schema",
        ),
        ({"messages": USER, "max_tokens": 5, "tool_choice": "any"}, 400, "must have the type"),
        ({"messages": USER, "max_tokens": 5, "tool_choice": {"type": "any"}}, 400, "needs `tools`"),
        ({"messages": USER, "max_tokens": 5, "mcp_servers": [{}]}, 400, "is not simulated"),
        ({"messages": USER, "max_tokens": 5, "model": "claude"}, 404, "`claude` does not exist"),
        ("x", 400, "not a JSON object"),
    ],
)
async def test_what_is_no_message_is_refused_as_that_api_does(body: object, status: int, says: str) -> None:
    async with serving() as client, client.session.post(client.url + "/v1/messages", json=body) as answer:
        document = await answer.json()
        assert answer.status == status
        assert client.endpoint.core.requests == []
    assert document.keys() == {"type", "error"}
    assert document["type"] == "error"
    assert document["error"]["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]
    assert says in document["error"]["message"]


KEYS = (
    *("prompt", "messages", "input", "instructions", "system", "tools", "tool_choice", "max_tokens", "n", "best_of"),
    *("max_output_tokens", "max_completion_tokens", "metadata", "stream", "stream_options", "model", "user", "echo"),
    *("response_format", "text", "output_config"),
)
INSIDE = (
    *(
        "format",
        "json_schema",
        "schema",
        "role",
        "content",
        "type",
        "text",
        "name",
        "function",
        "arguments",
        "parameters",
        "input_schema",
        "properties",
    ),
    *("required", "items", "minItems", "enum", "tool_calls", "output", "input", "$ref", "anyOf", "minimum", "id"),
)
WORDS = (
    *("user", "assistant", "system", "tool", "text", "tool_use", "tool_result", "function", "function_call", "message"),
    *(
        "function_call_output",
        "reasoning",
        "required",
        "none",
        "auto",
        "any",
        "f",
        "object",
        "array",
        "#",
        "",
        "{",
        "json_schema",
    ),
)
SCALARS = st.one_of(st.sampled_from(WORDS), st.integers(-1, 9), st.booleans(), st.none(), st.floats(-2, 2))
VALUES = st.recursive(
    SCALARS,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(INSIDE), one, max_size=5),
    max_leaves=12,
)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=7), st.sampled_from(list(APIS)))
def test_whatever_a_body_is_it_is_read_or_refused(body: Document, path: str) -> None:
    api = APIS[path]
    try:
        asked, writer = api.parse(body, 1000)
    except RefusedError as error:
        said = (error.message, json.dumps(api.refusal(error)))
    else:
        said = ("", written(asked, writer))
    assert len(said[0]) < 500
    assert said[1]


def written(asked: Asked, writer: WriterMaker) -> str:
    """An answer to what is asked, whole and as a stream."""
    assert all(0 < len(prompt) <= 1000 for prompt in asked.prompts)
    form = asked.form
    text, ids = (form.answer(1, 9) if form is not None else Answer(1, 9, goes_on=asked.goes_on)).piece(0, 9)
    counts = Counts(prompt=len(asked.prompts[0]), cached=0, answer=9)
    part = Part(choice=0, text=text, ids=ids, counts=counts, finish="stop")
    writing = writer(Head(number=1, created=0, model="m"))
    events = [*writing.opening(counts), *writing.part(part), *writing.closing([part], counts)]
    return json.dumps([writing.whole([part], counts), *(event.document for event in events)])


async def test_whoever_is_rejected_hears_it_in_the_format_of_the_api() -> None:
    async with serving(made(**{"policy.admission": "reject-all"})) as client:
        for path, body in BODIES.items():
            for stream in (False, True):
                asked = {**body(SAID), LIMITS[path]: 5, "stream": stream}
                status, document = await client.post(path, **asked)
                assert status == 429
                assert isinstance(document, dict)
                assert "reject-all" in document["error"]["message"]
                assert "rate" in document["error"]["type"].lower()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/detokenize", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/audio/transcriptions", 404),
        ("GET", "/v1/responses/resp_1", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/messages", 405),
    ],
)
async def test_what_there_is_not_is_said_as_json(method: str, path: str, status: int) -> None:
    async with serving() as client, client.session.request(method, client.url + path, data=b"{}") as answer:
        document = await answer.json()
        assert answer.status == status
        assert f"no {method} {path} is simulated" in document["error"]["message"]
        assert ("Allow" in answer.headers) == (status == 405)


async def test_texts_that_differ_in_each_request_do_not_spoil_the_cache() -> None:
    def body(number: int) -> Document:
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version={number}"}
        system = [billing, {"type": "text", "text": "You help with code " * 20}]
        return {"system": system, "messages": USER, "max_tokens": 2}

    async with serving(made(**{"cluster.instances": 1})) as client:
        usages = [await used(client, body(number)) for number in range(2)]
    assert usages[0]["cache_read_input_tokens"] == 0
    assert usages[1]["cache_read_input_tokens"] >= 64


async def used(client: Client, body: Document) -> dict[str, int]:
    _, document = await client.post("/v1/messages", **body)
    assert isinstance(document, dict)
    usage: dict[str, int] = document["usage"]
    return usage


def texts(parts: Sequence[str]) -> list[Document]:
    return [{"type": "text", "text": part} for part in parts]


async def test_parts_of_messages_are_one_text() -> None:
    async with serving() as client:
        whole = await used(client, {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 1})
        parts = await used(client, {"messages": [{"role": "user", "content": texts(["one", " two"])}], "max_tokens": 1})
        image: list[Document] = [{"type": "image", "source": {"type": "url", "url": "x"}}, *texts(["one two"])]
        seen = await used(client, {"messages": [{"role": "user", "content": image}], "max_tokens": 1})
    assert whole["input_tokens"] == parts["input_tokens"] == seen["input_tokens"]
