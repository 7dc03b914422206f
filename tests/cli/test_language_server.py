"""The language server, as an editor drives it: by the protocol, over standard input and output."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from blis_tui.spec.shipped import shipped_specs

SPEC = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: x}
model: llama-3.1-8b-instruct
hardware: h100
seed:   7
engine:
  max_num_seqs: 8
workload:
  requests: 5
  rate_per_s: 5
  clients:
    - id: "𝄞"
      arrivals: {kind: gamma, cv: 2}
      input_tokens: 10
      output_tokens: 5
expect:
  - {metric: latency.ttft_ms.p99, max: 300000}
"""
PATIENCE_S = 120


class Editor:
    """A client with one open file at a time."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "blis_tui", "lsp"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.folder = folder
        self.uri = ""
        self.sent = 0
        self.version = 0
        self.answers: Queue[dict[str, Any]] = Queue()
        self.notifications: Queue[dict[str, Any]] = Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.server.stdout is not None
        while header := self.server.stdout.readline():
            length = int(header.partition(b":")[2])
            while self.server.stdout.readline().strip():
                pass
            message = json.loads(self.server.stdout.read(length))
            (self.answers if "id" in message else self.notifications).put(message)

    def close(self) -> None:
        """Close the streams of a server that has ended."""
        self.reader.join(PATIENCE_S)
        for stream in (self.server.stdin, self.server.stdout):
            assert stream is not None
            stream.close()

    def tell(self, method: str, params: object, **more: object) -> None:
        """Send a notification, or a request with an ``id``."""
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.server.stdin is not None
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def ask(self, method: str, **params: object) -> Any:
        """The result of a request."""
        self.sent += 1
        self.tell(method, params, id=self.sent)
        answer = self.answers.get(timeout=PATIENCE_S)
        assert answer["id"] == self.sent
        assert "error" not in answer, answer
        return answer["result"]

    def at(self, method: str, line: int, character: int) -> Any:
        """The result of a request about a place."""
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", textDocument={"uri": self.uri}, position=place)

    def problems(self) -> list[dict[str, Any]]:
        """The next diagnostics that are published."""
        while (message := self.notifications.get(timeout=PATIENCE_S))["method"] != "textDocument/publishDiagnostics":
            pass
        assert message["params"]["uri"] == self.uri
        return list(message["params"]["diagnostics"])

    def open(self, text: str, name: str = "x.blis.yaml") -> list[dict[str, Any]]:
        """What is wrong with a file, once it is open."""
        path = self.folder / name
        path.write_text(text)
        self.uri = path.as_uri()
        document = {"uri": self.uri, "languageId": "yaml", "version": 0, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return self.problems()

    def edit(self, start: tuple[int, int], end: tuple[int, int], text: str) -> list[dict[str, Any]]:
        """What is wrong after a part of the text was replaced."""
        self.version += 1
        change = {"range": _range(start, end), "text": text}
        named = {"uri": self.uri, "version": self.version}
        self.tell("textDocument/didChange", {"textDocument": named, "contentChanges": [change]})
        return self.problems()


def _range(start: tuple[int, int], end: tuple[int, int]) -> dict[str, dict[str, int]]:
    return {
        "start": {"line": start[0], "character": start[1]},
        "end": {"line": end[0], "character": end[1]},
    }


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    made = Editor(tmp_path_factory.mktemp("editor"))
    made.ask("initialize", capabilities={}, processId=None, rootUri=made.folder.as_uri())
    made.tell("initialized", {})
    yield made
    made.ask("shutdown")
    made.tell("exit", None)
    assert made.server.wait(PATIENCE_S) == 0
    made.close()


def test_errors_come_while_one_writes_with_a_fix(editor: Editor) -> None:
    assert editor.open(SPEC) == []
    (wrong,) = editor.edit((7, 13), (7, 14), "")
    assert (wrong["code"], wrong["source"]) == ("BLIS1001", "blis-tui")
    assert wrong["range"] == _range((7, 2), (7, 13))
    (fix,) = editor.ask(
        "textDocument/codeAction",
        textDocument={"uri": editor.uri},
        range=wrong["range"],
        context={"diagnostics": [wrong]},
    )
    assert fix["title"] == "Change to `max_num_seqs`"
    assert fix["edit"]["changes"] == {editor.uri: [{"range": wrong["range"], "newText": "max_num_seqs"}]}
    assert editor.edit((7, 2), (7, 13), "max_num_seqs") == []


def test_units_and_missing_keys_have_fixes(editor: Editor) -> None:
    text = SPEC.replace("      output_tokens: 5\n", "      timeout_us: 2s\n      output_tokens: {kind: exponential}\n")
    found = editor.open(text, "fixes.blis.yaml")
    answers = editor.ask(
        "textDocument/codeAction",
        textDocument={"uri": editor.uri},
        range=found[0]["range"],
        context={"diagnostics": found},
    )
    edits = {fix["title"]: fix["edit"]["changes"][editor.uri][0] for fix in answers}
    assert edits["Change to `2000000`"] == {"range": _range((15, 18), (15, 20)), "newText": "2000000"}
    assert edits["Add `mean: 256`"] == {"range": _range((16, 39), (16, 39)), "newText": ", mean: 256"}


def test_columns_are_of_utf_16(editor: Editor) -> None:
    text = SPEC.replace('- id: "𝄞"', '- {id: "𝄞𝄞", share: x, arrivals: poisson, input_tokens: 10, output_tokens: 5}')
    cut = text.index("\n      arrivals"), text.index("\nexpect")
    (wrong, *_) = editor.open(text[: cut[0]] + text[cut[1] :], "wide.blis.yaml")
    start = wrong["range"]["start"]
    assert wrong["code"] == "BLIS1003"
    assert start == {"line": 12, "character": text.splitlines()[12].index("share: x") + len("share: ") + 2}


def test_completion_of_keys_values_and_names(editor: Editor) -> None:
    editor.open(SPEC)
    (item,) = [one for one in editor.at("completion", 7, 6) if one["label"] == "max_num_batched_tokens"]
    assert item["detail"] == "whole number or `auto` · tokens · default auto · 1 to 1,000,000,000"
    assert item["textEdit"] == {"range": _range((7, 2), (7, 6)), "newText": "max_num_batched_tokens: "}
    assert "Maximum nu" in item["documentation"]["value"]
    assert {"poisson", "gamma", "closed-loop"} <= {one["label"] for one in editor.at("completion", 13, 23)}
    names = {one["label"]: one["detail"] for one in editor.at("completion", 4, 10)}
    assert names.keys() >= {"h100", "b200"}
    assert "H100" in names["h100"]
    assert "latency.ttft_ms.p99" in {one["label"] for one in editor.at("completion", 17, 14)}


def test_hover_explains_keys_values_and_metrics(editor: Editor) -> None:
    editor.open(SPEC)
    assert "**engine.max_num_seqs** — " in editor.at("hover", 7, 5)["contents"]["value"]
    assert "Gamma-distributed" in editor.at("hover", 13, 25)["contents"]["value"]
    assert "Time" in editor.at("hover", 17, 20)["contents"]["value"]
    assert editor.at("hover", 12, 12) is None or "id" in editor.at("hover", 12, 12)["contents"]["value"]


def test_a_name_leads_to_its_file(editor: Editor) -> None:
    editor.open(SPEC)
    place = editor.at("definition", 4, 12)
    assert place["uri"] == (shipped_specs() / "hardware/h100.yaml").resolve().as_uri()
    assert editor.at("definition", 5, 9) is None


def test_what_can_be_done_with_an_experiment(editor: Editor) -> None:
    editor.open(SPEC)
    lenses = editor.ask("textDocument/codeLens", textDocument={"uri": editor.uri})
    assert [lens["command"]["title"] for lens in lenses] == ["run", "golden", "plan"]
    run = lenses[0]["command"]
    printed = editor.ask("workspace/executeCommand", command=run["command"], arguments=run["arguments"])
    assert "5 requests" in printed


def test_the_layout_is_that_of_fmt(editor: Editor) -> None:
    editor.open(SPEC)
    (edit,) = editor.ask(
        "textDocument/formatting", textDocument={"uri": editor.uri}, options={"tabSize": 2, "insertSpaces": True}
    )
    assert "seed: 7\n" in edit["newText"]


def test_text_that_is_no_yaml_yet_is_understood(editor: Editor) -> None:
    (wrong, *_) = editor.open(SPEC + "policy:\n  routing: {kind: weighted, scorers: [{kind: ", "begun.blis.yaml")
    assert wrong["code"] == "BLIS0001"
    assert "queue-depth" in {one["label"] for one in editor.at("completion", 19, 47)}


def test_of_other_yaml_it_says_nothing(editor: Editor) -> None:
    assert editor.open("services:\n  a: {image: b}\n", "compose.yaml") == []
    assert editor.at("completion", 1, 2) == []
    assert editor.at("hover", 0, 2) is None
    assert editor.ask("textDocument/codeLens", textDocument={"uri": editor.uri}) == []
