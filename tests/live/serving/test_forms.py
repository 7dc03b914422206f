"""Answers in a form: JSON that the client's schema accepts, in each API that has such a parameter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.live.serving.forms import Form
from blis_tui.live.serving.shared_prefixes import encode
from tests.live.serving.test_apis import LIMITS, drawn
from tests.live.serving.test_core import made
from tests.live.serving.test_server import serving
from tests.live.serving.test_tools import SCHEMA, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, object]
USER: list[Document] = [{"role": "user", "content": "How is the weather there?"}]


@given(SCHEMAS, st.integers(1, 100))
def test_a_text_in_a_form_is_json_of_its_tokens(schema: Document, wanted: int) -> None:
    answer = Form.of(schema, "response_format").answer(3, wanted)
    text, ids = answer.piece(0, answer.length)
    jsonschema.validate(json.loads(text), schema)
    assert list(ids) == encode(text)


def chat_body(form: Document) -> Document:
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "schema": form}}
    return {"messages": USER, "response_format": schema}


def responses_body(form: Document) -> Document:
    schema = {"type": "json_schema", "name": "weather", "schema": form}
    return {"input": "How is the weather there?", "text": {"format": schema}}


def messages_body(form: Document) -> Document:
    return {"messages": USER, "max_tokens": 500, "output_config": {"format": {"type": "json_schema", "schema": form}}}


BODIES: dict[str, tuple[Callable[[Document], Document], str]] = {
    "/v1/chat/completions": (chat_body, "response_format"),
    "/v1/responses": (responses_body, "text"),
    "/v1/messages": (messages_body, "output_config"),
}


def said(document: object) -> str:
    """The text of a whole answer, and that it has ended by itself."""
    assert isinstance(document, dict)
    if "choices" in document:
        assert document["choices"][0]["finish_reason"] == "stop"
        return str(document["choices"][0]["message"]["content"])
    if "output" in document:
        assert document["status"] == "completed"
        return str(document["output"][0]["content"][0]["text"])
    assert document["stop_reason"] == "end_turn"
    return str(document["content"][0]["text"])


@pytest.mark.parametrize("path", BODIES)
async def test_each_api_answers_in_the_form(path: str) -> None:
    body, parameter = BODIES[path]
    async with serving(made(**drawn(40, 40))) as client:
        _, whole = await client.post(path, **body(SCHEMA))
        status, wrong = await client.post(path, **body({"$ref": "#"}))
        _, cut = await client.post(path, **{**body(SCHEMA), LIMITS[path]: 5})
        requests = client.endpoint.core.requests
    text = said(whole)
    jsonschema.validate(json.loads(text), SCHEMA)
    assert len(encode(text)) == 40  # words fill its first text up to the drawn length
    assert [request.output_tokens for request in requests] == [40, 5]
    assert status == 400
    assert f"the JSON of `{parameter}` would have more than 64 levels" in wrong["error"]["message"]  # type: ignore[index]
    assert "length" in json.dumps(cut) or "max_" in json.dumps(cut)


async def test_a_form_is_streamed_as_a_text() -> None:
    async with serving(made(**drawn(40, 40))) as client:
        chunks = await client.events("/v1/chat/completions", **chat_body(SCHEMA))
    deltas = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]  # type: ignore[index]
    jsonschema.validate(json.loads("".join(deltas)), SCHEMA)


async def test_a_call_that_must_be_goes_before_a_form() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    async with serving() as client:
        body = {**chat_body({"const": 5}), "tools": tools, "tool_choice": "required"}
        _, document = await client.post("/v1/chat/completions", **body)
    assert document["choices"][0]["message"]["tool_calls"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("form", "answer", "says"),
    [
        ({"type": "json_object"}, "{}", ""),
        ({"type": "json_schema", "json_schema": {"schema": {"const": [1, "x"]}}}, '[1, "x"]', ""),
        ({"type": "json_schema"}, "", "`response_format` has no schema"),
        ({"type": "json_schema", "json_schema": 5}, "", "`response_format` has no schema"),
        ({"type": "grammar"}, "", "must have the type"),
        ("json", "", "must have the type"),
    ],
)
async def test_forms_are_understood_or_refused(form: object, answer: str, says: str) -> None:
    async with serving(made(**drawn(20, 20))) as client:
        status, document = await client.post("/v1/chat/completions", messages=USER, response_format=form)
        _, plain = await client.post("/v1/chat/completions", messages=USER, response_format={"type": "text"})
    assert isinstance(document, dict)
    if says:
        assert (status, document["error"]["param"]) == (400, "response_format")
        assert says in document["error"]["message"]
    else:
        assert said(document) == answer
        assert document["usage"]["completion_tokens"] == len(encode(answer))
    assert len(encode(said(plain))) == 20
