"""The clients of OpenAI and Anthropic understand what the endpoint says, where they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_serve_api import Served
from tests.live.serving.outside import CLIENTS, needs_clients

if TYPE_CHECKING:
    from pathlib import Path

_OPENAI = """
import json, sys, openai, pydantic
class Weather(pydantic.BaseModel):
    place: str
    days: int
client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="x", max_retries=0)
model = client.models.list().data[0].id
user = {"role": "user", "content": "How is the weather?"}
schema = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
look = {"name": "look", "parameters": schema}
tools, tool = [{"type": "function", "function": look}], {"type": "function", "strict": False, **look}
said = {}
found = client.completions.create(model=model, prompt=["a b", "c"], n=2, max_tokens=4)
said["completions"] = [choice.index for choice in found.choices] + [found.usage.completion_tokens]
chat = dict(model=model, messages=[user], max_tokens=2000)
with client.chat.completions.stream(**chat, n=2) as stream:
    kinds = sorted({event.type for event in stream})
    said["chat"] = [len(stream.get_final_completion().choices), *kinds]
with client.chat.completions.stream(**chat, tools=tools, tool_choice="required") as stream:
    list(stream)
    choice = stream.get_final_completion().choices[0]
call = choice.message.tool_calls[0]
said["chat call"] = [choice.finish_reason, *json.loads(call.function.arguments)]
result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
whole = client.chat.completions.create(model=model, messages=[user, choice.message, result], tools=tools, max_tokens=9)
said["chat goes on"] = [whole.usage.prompt_tokens_details.cached_tokens > 0, whole.usage.completion_tokens]
with client.responses.stream(model=model, input="Hello", max_output_tokens=5) as stream:
    kinds = [event.type for event in stream]
    response = stream.get_final_response()
said["response"] = [kinds[0], kinds[-1], response.status, bool(response.output_text), response.usage.output_tokens]
with client.responses.stream(model=model, input=[user], tools=[tool], tool_choice="required") as stream:
    list(stream)
    output = stream.get_final_response().output
said["response call"] = [output[0].type, *json.loads(output[0].arguments)]
result = {"type": "function_call_output", "call_id": output[0].call_id, "output": "rain"}
whole = client.responses.create(model=model, input=[user, *output, result], tools=[tool], max_output_tokens=9)
said["response goes on"] = [whole.usage.input_tokens_details.cached_tokens > 0, whole.usage.output_tokens]
parsed = client.chat.completions.parse(model=model, messages=[user], response_format=Weather).choices[0].message.parsed
said["chat form"] = [type(parsed).__name__, parsed.days]
parsed = client.responses.parse(model=model, input=[user], text_format=Weather).output_parsed
said["response form"] = [type(parsed).__name__, parsed.days]
for name, ask in (
    ("missing", lambda: client.completions.create(model="gpt", prompt="x")),
    ("refused", lambda: client.responses.create(model=model, input="x", previous_response_id="resp_1")),
    ("embeddings", lambda: client.embeddings.create(model=model, input="x")),
):
    try:
        ask()
    except openai.APIStatusError as error:
        said[name] = [type(error).__name__, error.param]
print(json.dumps(said))
"""
_ANTHROPIC = """
import json, sys, anthropic
client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{sys.argv[1]}", api_key="x", max_retries=0)
model = client.models.list().data[0].id
user = {"role": "user", "content": "How is the weather?"}
schema = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
tools = [{"name": "look", "input_schema": schema}]
said = {}
with client.messages.stream(model=model, max_tokens=5, system="Be brief.", messages=[user]) as stream:
    kinds = [event.type for event in stream]
    message = stream.get_final_message()
said["message"] = [kinds[0], kinds[-1], message.stop_reason, bool(message.content[0].text), message.usage.output_tokens]
asked = dict(model=model, max_tokens=2000, messages=[user], tools=tools)
with client.messages.stream(**asked, tool_choice={"type": "any"}) as stream:
    message = stream.get_final_message()
said["call"] = [message.stop_reason, *message.content[0].input]
results = [{"type": "tool_result", "tool_use_id": message.content[0].id, "content": "rain"}]
talk = [user, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
whole = client.messages.create(model=model, max_tokens=9, messages=talk, tools=tools)
said["goes on"] = [whole.usage.cache_read_input_tokens > 0, whole.usage.output_tokens]
count = client.messages.count_tokens(model=model, messages=talk, tools=tools).input_tokens
said["count"] = count == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
try:
    client.messages.create(model="claude", max_tokens=5, messages=[user])
except anthropic.APIStatusError as error:
    said["missing"] = [type(error).__name__, error.body["error"]["type"]]
print(json.dumps(said))
"""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="it runs on Linux"), needs_clients]


def spoken(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(folder)
    child = Served("quickstart", "--set", "cluster.instances=1", "--speed", "20")
    words = [CLIENTS, "-c", program, (folder / "port").read_text()]
    run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    code, _, err = child.end(15)
    assert run.returncode == 0, run.stderr[-3000:]
    assert (code, "Traceback" in err) == (0, False)
    found: dict[str, object] = json.loads(run.stdout)
    return found


def test_openai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = spoken(_OPENAI, tmp_path, monkeypatch)
    assert said == {
        "completions": [0, 1, 2, 3, 16],
        "chat": [2, "chunk", "content.delta", "content.done"],
        "chat call": ["tool_calls", "place"],
        "chat goes on": [True, 9],
        "response": ["response.created", "response.completed", "incomplete", True, 5],
        "response call": ["function_call", "place"],
        "response goes on": [True, 9],
        "chat form": ["Weather", 1],
        "response form": ["Weather", 1],
        "missing": ["NotFoundError", "model"],
        "refused": ["BadRequestError", "previous_response_id"],
        "embeddings": ["NotFoundError", None],
    }


def test_anthropic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = spoken(_ANTHROPIC, tmp_path, monkeypatch)
    assert said == {
        "message": ["message_start", "message_stop", "max_tokens", True, 5],
        "call": ["tool_use", "place"],
        "goes on": [True, 9],
        "count": True,
        "missing": ["NotFoundError", "not_found_error"],
    }
