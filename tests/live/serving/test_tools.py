"""Tools in prompts, and answers that are calls of them: valid arguments, in the shape of each API."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.live.serving.conversation import call_text
from blis_tui.live.serving.fields import RefusedError
from blis_tui.live.serving.shared_prefixes import encode
from blis_tui.live.serving.tools import Function, Tools
from tests.live.serving.test_apis import drawn, slow
from tests.live.serving.test_core import made
from tests.live.serving.test_server import serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.live.serving.forms import Form

Document = dict[str, object]

SCHEMA: Document = {
    "type": "object",
    "properties": {
        "place": {"type": "string"},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer", "minimum": 2},
        "note": {"type": "string"},
    },
    "required": ["place", "unit", "days"],
}
USER: list[Document] = [{"role": "user", "content": "How is the weather there?"}]
CHAT_TOOLS: list[Document] = [
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
]
RESPONSES_TOOLS: list[Document] = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]  # type: ignore[dict-item]
MESSAGES_TOOLS: list[Document] = [
    {"name": tool["name"], "input_schema": tool["parameters"]} for tool in RESPONSES_TOOLS
]


def call_of(schema: Mapping[str, object]) -> Form:
    tools = Tools([Function.of("look", None, dict(schema), "tools")])
    call = tools.naming("look").call()
    assert call is not None
    return call


def arguments_of(schema: Mapping[str, object], tokens: int = 1) -> object:
    answer = call_of(schema).answer(3, tokens)
    return json.loads(answer.piece(0, answer.length)[0])


# ---- arguments ----

NAMES = st.text('abc"\\ é', min_size=1, max_size=4)
BOUNDS = st.integers(-50, 50)
SIMPLE: st.SearchStrategy[Document] = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.lists(st.one_of(NAMES, st.integers(), st.none()), min_size=1, max_size=3).map(lambda found: {"enum": found}),
    st.one_of(NAMES, st.booleans()).map(lambda value: {"const": value}),
    st.tuples(BOUNDS, st.integers(0, 9), st.sampled_from(["integer", "number"])).map(
        lambda found: {"type": found[2], "minimum": found[0], "maximum": found[0] + found[1]}
    ),
    BOUNDS.map(lambda bound: {"type": "integer", "exclusiveMinimum": bound}),
    BOUNDS.map(lambda bound: {"type": "number", "exclusiveMinimum": bound, "exclusiveMaximum": bound + 1}),
    st.tuples(st.integers(0, 40), st.integers(0, 9)).map(
        lambda found: {"type": "string", "minLength": found[0], "maxLength": found[0] + found[1]}
    ),
    st.sampled_from(["string", "integer"]).map(lambda kind: {"type": [kind, "null"]}),
    st.sampled_from(["string", "integer"]).map(lambda kind: {"anyOf": [{"type": kind}, {"type": "null"}]}),
)


def larger(smaller: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    listed = st.tuples(smaller, st.integers(0, 3)).map(
        lambda found: {"type": "array", "items": found[0], "minItems": found[1]}
    )
    return listed | objects(smaller)


def objects(values: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    return st.tuples(st.dictionaries(NAMES, values, max_size=4), st.randoms(use_true_random=False)).map(
        lambda found: {
            "type": "object",
            "properties": found[0],
            "required": [name for name in found[0] if found[1].random() < 0.7],
            "additionalProperties": False,
        }
    )


SCHEMAS = objects(st.recursive(SIMPLE, larger, max_leaves=6))


@given(SCHEMAS, st.integers(1, 200))
def test_arguments_are_what_the_schema_accepts(schema: Document, wanted: int) -> None:
    call = call_of(schema)
    answer = call.answer(5, wanted)
    text, ids = answer.piece(0, answer.length)
    arguments = json.loads(text)
    jsonschema.validate(arguments, schema)
    assert list(ids) == encode(call_text("look", text))  # what the client sends back is the same tokens
    assert list(ids) == encode(call_text("look", arguments))
    least = call.answer(5, 1).length
    assert answer.length == (max(wanted, least) if call.after else least)


@given(SCHEMAS, st.lists(st.integers(1, 9), max_size=60))
def test_pieces_of_a_call_are_the_call(schema: Document, sizes: list[int]) -> None:
    answer = call_of(schema).answer(2, sum(sizes))
    at, text, ids = 0, "", list[int]()
    for size in sizes:
        piece, tokens = answer.piece(at, at + size)
        at, text, ids = at + size, text + piece, [*ids, *tokens]
    assert (text, ids) == (answer.piece(0, at)[0], list(answer.piece(0, at)[1]))
    assert len(ids) == at  # end tokens follow a call that has fewer


def test_schemas_refer_to_definitions_as_pydantic_writes_them() -> None:
    place = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    schema: Document = {
        "$defs": {"Place": place, "Unit": {"enum": ["c"]}},
        "properties": {
            "where": {"$ref": "#/$defs/Place"},
            "unit": {"allOf": [{"$ref": "#/$defs/Unit"}]},
            "any": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
            "all": True,
        },
        "required": ["where", "unit", "any", "all", "unknown"],
    }
    found = arguments_of(schema)
    jsonschema.validate(found, schema)
    assert isinstance(found, dict)
    assert found["where"] == {"name": "the end"}
    assert (found["unit"], found["any"]) == ("c", 1)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "more than 64 levels"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}, "more than 64 levels"),
        ({"properties": {"a": {"type": "array", "minItems": 10**9}}, "required": ["a"]}, "more than 1,000 values"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}, "required": ["a"]}, "which is nowhere"),
        ({"properties": {"a": {"type": "string", "minLength": 10**9}}, "required": ["a"]}, "1,000,000,000 characters"),
    ],
)
def test_arguments_that_have_no_end_are_refused(schema: Document, says: str) -> None:
    with pytest.raises(RefusedError) as error:
        call_of(schema)
    assert says in error.value.message
    assert (error.value.status, error.value.parameter) == (400, "tools")


@pytest.mark.parametrize("value", [5, "x", [], [5], None, {"a": 5}, True, {"type": 5}, {"type": []}, {"$ref": 5}])
@pytest.mark.parametrize("name", ["properties", "required", "items", "enum", "anyOf", "allOf", "minItems", "type"])
def test_schemas_that_are_none_are_no_errors_of_ours(name: str, value: object) -> None:
    for schema in ({name: value}, {"properties": {"a": {name: value}}, "required": ["a"]}):
        with suppress(RefusedError):
            json.dumps(arguments_of(schema, 30))


# ---- calls over HTTP ----


async def test_a_chat_that_must_call_does() -> None:
    body: Document = {"messages": USER, "tools": CHAT_TOOLS}
    named = {"type": "function", "function": {"name": "wait"}}
    async with serving(made(**drawn(60, 60))) as client:
        _, required = await client.post("/v1/chat/completions", **body, tool_choice="required")
        _, one = await client.post("/v1/chat/completions", **body, tool_choice=named)
        _, cut = await client.post("/v1/chat/completions", **body, tool_choice="required", max_tokens=9)
        _, two = await client.post("/v1/chat/completions", **body, tool_choice="required", n=2)
    assert isinstance(required, dict)
    (choice,) = required["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"], call["id"]) == ("function", "look", "call_0")
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
    assert required["usage"]["completion_tokens"] == 60  # words fill its first text
    assert isinstance(one, dict)
    assert one["choices"][0]["finish_reason"] == "stop"  # as in OpenAI's API
    assert one["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "wait", "arguments": "{}"}
    assert one["usage"]["completion_tokens"] == len(encode(call_text("wait", "{}")))
    assert isinstance(cut, dict)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 9
    assert isinstance(two, dict)
    texts = [choice["message"]["tool_calls"][0]["function"]["arguments"] for choice in two["choices"]]
    assert len(set(texts)) == len({choice["message"]["tool_calls"][0]["id"] for choice in two["choices"]}) == 2


async def test_a_call_is_streamed_as_its_tokens_come() -> None:
    body: Document = {"messages": USER, "tools": CHAT_TOOLS, "tool_choice": "required"}
    async with serving(slow(**drawn(60, 60)), speed=3.0) as client:
        chunks = await client.events("/v1/chat/completions", **body)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]  # type: ignore[index]
    first = deltas[0]["tool_calls"][0]
    assert (first["index"], first["id"], first["type"]) == (0, "call_0", "function")
    assert first["function"] == {"name": "look", "arguments": ""}
    assert deltas[0]["role"] == "assistant"
    assert all(one["tool_calls"][0].keys() == {"index", "function"} for one in deltas[1:])
    text = "".join(one["tool_calls"][0]["function"]["arguments"] for one in deltas)
    jsonschema.validate(json.loads(text), SCHEMA)
    assert len(deltas) > 3
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"  # type: ignore[index]


async def test_a_response_that_must_call_does() -> None:
    body: Document = {"input": "How is the weather there?", "tools": RESPONSES_TOOLS, "tool_choice": "required"}
    async with serving(slow(**drawn(60, 60)), speed=3.0) as client:
        _, whole = await client.post("/v1/responses", **body)
        events = await client.named("/v1/responses", **{**body, "tool_choice": {"type": "function", "name": "wait"}})
        more = await client.named("/v1/responses", **body)
    assert isinstance(whole, dict)
    (item,) = whole["output"]
    assert (item["type"], item["name"], item["status"], whole["status"]) == (
        "function_call",
        "look",
        "completed",
        "completed",
    )
    assert item["call_id"] == "call_0"
    jsonschema.validate(json.loads(item["arguments"]), SCHEMA)
    names = [name for name, _ in events]
    assert names[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert set(names[3:-3]) == {"response.function_call_arguments.delta"}
    assert names[-3:] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    added = events[2][1]["item"]
    assert isinstance(added, dict)
    assert (added["name"], added["arguments"], added["status"]) == ("wait", "", "in_progress")
    assert events[-3][1]["arguments"] == "{}"
    text = "".join(str(document["delta"]) for name, document in more if name.endswith(".delta"))
    assert text == more[-3][1]["arguments"]
    jsonschema.validate(json.loads(text), SCHEMA)
    assert more[-2][1]["item"] == more[-1][1]["response"]["output"][0]  # type: ignore[index]


async def test_a_message_that_must_call_does() -> None:
    body: Document = {"messages": USER, "tools": MESSAGES_TOOLS, "max_tokens": 100}
    async with serving(slow(**drawn(60, 60)), speed=3.0) as client:
        _, whole = await client.post("/v1/messages", **body, tool_choice={"type": "any"})
        events = await client.named("/v1/messages", **body, tool_choice={"type": "tool", "name": "look"})
        _, cut = await client.post("/v1/messages", **{**body, "max_tokens": 9}, tool_choice={"type": "any"})
    assert isinstance(whole, dict)
    assert whole["stop_reason"] == "tool_use"
    (block,) = whole["content"]
    assert (block["type"], block["name"], block["id"]) == ("tool_use", "look", "toolu_0")
    jsonschema.validate(block["input"], SCHEMA)
    assert events[1][1]["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    deltas = [document["delta"] for name, document in events if name == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}  # type: ignore[index]
    jsonschema.validate(json.loads("".join(delta["partial_json"] for delta in deltas)), SCHEMA)  # type: ignore[index]
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert isinstance(cut, dict)
    assert (cut["stop_reason"], cut["content"][0]["input"]) == ("max_tokens", {})


async def test_tools_are_in_the_prompt_unless_they_are_ignored() -> None:
    async with serving() as client:
        counts = []
        for more in ({}, {"tools": CHAT_TOOLS}, {"tools": CHAT_TOOLS, "tool_choice": "none"}):
            body: Document = {"messages": USER, "max_tokens": 2, **more}
            _, document = await client.post("/v1/chat/completions", **body)
            assert isinstance(document, dict)
            assert "tool_calls" not in document["choices"][0]["message"]
            counts.append(document["usage"]["prompt_tokens"])
        _, tokens = await client.post("/tokenize", messages=USER, tools=CHAT_TOOLS)
        _, count = await client.post("/v1/messages/count_tokens", messages=USER, tools=MESSAGES_TOOLS)
    listed = "".join(json.dumps(tool, ensure_ascii=False) for tool in CHAT_TOOLS)
    assert counts[1] > counts[0] + len(listed) / 6
    assert counts[2] == counts[0]
    assert tokens["count"] == counts[1] == count["input_tokens"]  # type: ignore[index]


async def test_a_call_that_is_sent_back_is_in_the_cache() -> None:
    body: Document = {"tools": MESSAGES_TOOLS, "max_tokens": 100}
    async with serving(made(**drawn(60, 60), **{"cluster.instances": 1})) as client:
        _, first = await client.post("/v1/messages", messages=USER, tool_choice={"type": "any"}, **body)
        assert isinstance(first, dict)
        result = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "rain"}
        talk = [*USER, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        _, second = await client.post("/v1/messages", messages=talk, **body)
    assert isinstance(second, dict)
    before = first["usage"]["input_tokens"] + 60
    assert second["usage"]["cache_read_input_tokens"] == before // 16 * 16
    assert second["stop_reason"] == "end_turn"  # with a choice, as with none, it says something


@pytest.mark.parametrize(
    ("more", "parameter", "says"),
    [
        ({"tools": 5}, "tools", "must be a list"),
        ({"tools": [5]}, "tools", "must be of type `function`"),
        ({"tools": [{"type": "web_search"}]}, "tools", "must be of type `function`"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools", "needs a name"),
        ({"tools": CHAT_TOOLS, "tool_choice": 5}, "tool_choice", "must be"),
        ({"tools": CHAT_TOOLS, "tool_choice": {"type": "function"}}, "tool_choice", "must name a function"),
        ({"tool_choice": "required"}, "tool_choice", "needs `tools`"),
        ({"tools": CHAT_TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "must name a function"),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "messages", "`tool_calls` of a message"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages", "needs a function"),
    ],
)
async def test_tools_that_are_none_are_refused(more: Document, parameter: str, says: str) -> None:
    async with serving() as client:
        status, document = await client.post("/v1/chat/completions", **{"messages": USER, **more})
    assert isinstance(document, dict)
    assert (status, document["error"]["param"]) == (400, parameter)
    assert says in document["error"]["message"]


async def test_with_ignore_eos_a_call_goes_on_as_any_answer_does() -> None:
    named = {"type": "function", "function": {"name": "wait"}}
    body: Document = {"messages": USER, "tools": CHAT_TOOLS, "tool_choice": named, "max_tokens": 50, "ignore_eos": True}
    async with serving() as client:
        _, found = await client.post("/v1/chat/completions", **body)
    assert isinstance(found, dict)
    assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (50, "length")
    assert found["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("arguments", ["[" * 100_000, "{", '{"a": NaN}', '"\\ud800"', "9" * 5000, "x" * 50])
async def test_arguments_that_are_no_json_are_the_text_that_they_are(arguments: str) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*USER, {"role": "assistant", "tool_calls": [call]}]
    async with serving(made(**{"engine.max_model_len": 40_000, "engine.kv_blocks": 3000})) as client:
        status, document = await client.post("/v1/chat/completions", messages=messages, max_tokens=1)
    assert status == 200
    assert document["usage"]["prompt_tokens"] > len(arguments) / 6  # type: ignore[index]
