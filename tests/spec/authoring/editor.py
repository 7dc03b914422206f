"""A client of yaml-language-server, as an editor is one: diagnostics, completion, hover over standard input/output."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT_S = 90


class Editor:
    """One running server; a context manager."""

    def __init__(self, command: list[str], root: Path) -> None:
        self._process = subprocess.Popen(
            [*command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}
        self._root = root
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        capabilities = {
            "textDocument": {
                "hover": {"contentFormat": ["markdown"]},
                "completion": {"completionItem": {"documentationFormat": ["markdown"], "snippetSupport": True}},
            },
            "workspace": {"configuration": False},
        }
        self._request("initialize", {"processId": None, "rootUri": self._root.as_uri(), "capabilities": capabilities})
        self._notify("initialized", {})
        settings = {"yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}}
        self._notify("workspace/didChangeConfiguration", {"settings": settings})

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def diagnostics(self, path: Path, text: str) -> list[dict[str, Any]]:
        """What the editor underlines in a file with this text."""
        return self.diagnostics_of_all({path: text})[path]

    def diagnostics_of_all(self, texts: Mapping[Path, str]) -> dict[Path, list[dict[str, Any]]]:
        """The same of many files, opened together: the server waits before it looks at each."""
        uris = {path: path.as_uri() for path in texts}
        for path, uri in uris.items():
            self._diagnostics.pop(uri, None)
            self._notify("textDocument/didOpen", {"textDocument": self._document(uri, texts[path])})
        while any(uri not in self._diagnostics for uri in uris.values()):
            self._take(self._messages.get(timeout=TIMEOUT_S))
        for uri in uris.values():
            self._notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        found = {path: self._diagnostics.pop(uri) for path, uri in uris.items()}
        while not self._messages.empty():
            self._take(self._messages.get())
        return found

    def completion(self, path: Path, text: str) -> dict[str, str]:
        """What is offered at the ``|`` in the text: label -> documentation."""
        reply = self._at_mark("textDocument/completion", path, text)
        items = reply["items"] if isinstance(reply, dict) else reply or []
        return {item["label"]: _plain(item.get("documentation", "")) for item in items}

    def hover(self, path: Path, text: str) -> str:
        """What is shown for the word after the ``|`` in the text."""
        reply = self._at_mark("textDocument/hover", path, text)
        return _plain(reply["contents"]) if reply else ""

    def _at_mark(self, method: str, path: Path, text: str) -> Any:
        before, _, after = text.partition("|")
        position = {"line": before.count("\n"), "character": len(before) - before.rfind("\n") - 1}
        # A name of its own for each text: the server remembers what it parsed by name.
        uri = path.with_name(f"{self._number}-{path.name}").as_uri()
        document = self._document(uri, before + after)
        self._notify("textDocument/didOpen", {"textDocument": document})
        reply = self._request(method, {"textDocument": {"uri": uri}, "position": position})
        self._notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        return reply

    def _document(self, uri: str, text: str) -> dict[str, Any]:
        self._number += 1
        return {"uri": uri, "languageId": "yaml", "version": self._number, "text": text}

    def _request(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._messages.get(timeout=TIMEOUT_S)
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message["error"]
                return message["result"]
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        """Something the server says by itself."""
        if message.get("method") == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "id" in message and "method" in message:
            self._send({"id": message["id"], "result": None})

    def _notify(self, method: str, parameters: dict[str, Any]) -> None:
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while line := stream.readline():
            length = 0
            while line.strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                line = stream.readline()
            body = stream.read(length)
            if len(body) < length or not length:  # it ended, or was ended, in the middle of a message
                return
            self._messages.put(json.loads(body))


def _plain(contents: Any) -> str:
    return str(contents["value"] if isinstance(contents, dict) else contents)
