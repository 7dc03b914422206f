"""The interface on a real terminal and in a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.tui.server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OUTER = {"COLUMNS", "LINES", "TMUX", "TMUX_PANE"}
"""What a terminal says of itself to programs in it."""


class Terminal:
    """A tmux window of 80 columns and 24 rows."""

    def __init__(self, name: str, folder: Path, settings: Path) -> None:
        settings.write_text("")  # not the user's
        self._tmux = ["tmux", "-L", name, "-f", str(settings)]
        # Not the size of the terminal that the tests run in, nor the tmux around it. Given even when it is empty of
        # them: readline, which pytest imports, tells the size to children only, past `os.environ`.
        self._environment = {key: value for key, value in os.environ.items() if key not in OUTER}
        # A child of ours, not a daemon: one that cannot start says why.
        self._server = subprocess.Popen([*self._tmux, "-D"], env=self._environment, stdin=subprocess.DEVNULL)
        self._wait_until_reached()
        self._run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(folder), "sh")
        # What is typed before the shell asks for it is echoed in front of its prompt.
        self.until(lambda screen: bool(screen.strip()))

    def _wait_until_reached(self) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while self._ask("show-options", "-s").returncode:
            assert self._server.poll() is None, "the tmux server ended"
            assert time.monotonic() < end_s
            time.sleep(0.02)

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self._tmux, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment)

    def _run(self, *arguments: str) -> str:
        done = self._ask(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._run("send-keys", *keys)

    def screen(self) -> str:
        """What is shown."""
        return self._run("capture-pane", "-p")

    def until(self, shown: Callable[[str], bool]) -> str:
        """Wait until the screen is as wanted."""
        end_s = time.monotonic() + PATIENCE_S
        while not shown(screen := self.screen()):
            assert time.monotonic() < end_s, screen
            time.sleep(0.05)
        return screen

    def state(self) -> str:
        """Cursor shown, alternate screen, mouse reported."""
        return self._run("display-message", "-p", "#{cursor_flag} #{alternate_on} #{mouse_any_flag}").strip()

    def close(self) -> None:
        """End it with all that runs in it."""
        self._run("kill-server")
        self._server.wait(PATIENCE_S)


@pytest.fixture
def terminal(lab: Path, tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("no tmux")
    window = Terminal(f"blis-{os.getpid()}-{time.monotonic_ns()}", lab, tmp_path / "tmux.conf")
    yield window
    window.close()


def test_a_walk_through_the_shell_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    before = terminal.state()
    terminal.type("echo before; " + shlex.join([sys.executable, "-m", "blis_tui"]) + "; echo rc=$?", "Enter")
    terminal.until(lambda screen: "q quit" in screen)
    assert terminal.state() != before
    terminal.type("/")
    terminal.until(lambda screen: "esc show all" in screen)
    terminal.type("kvp")
    # "chunked-prefill" matches until the second letter; an escape with a key right behind it would be another key.
    found = terminal.until(lambda screen: "kv-pressure" in screen and "chunked-prefill" not in screen)
    assert "kv-pressure" in found
    terminal.type("Escape")
    terminal.until(lambda screen: "chunked-prefill" in screen)
    terminal.type("h")
    terminal.until(lambda screen: "Keys: experiments" in screen)
    terminal.type("Escape")
    terminal.until(lambda screen: "Keys: experiments" not in screen)
    terminal.type("q")
    after = terminal.until(lambda screen: "rc=0" in screen)
    assert "\nbefore\n" in after
    assert "experiment " not in after
    assert terminal.state() == before


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_a_signal_leaves_the_terminal_as_it_was(name: str, terminal: Terminal) -> None:
    before = terminal.state()
    blis = shlex.join([sys.executable, "-m", "blis_tui", "tui", "quickstart", "--at", "start"])
    terminal.type(f"sh -c 'echo $$ > pid; exec {blis}'; echo rc=$?", "Enter")
    terminal.until(lambda screen: "at the start" in screen)
    os.kill(int(Path("pid").read_text()), signal.Signals[f"SIG{name}"])
    terminal.until(lambda screen: "rc=130" in screen)
    assert terminal.state() == before


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_a_signal_while_the_end_is_sought_leaves_the_terminal_as_it_was(name: str, terminal: Terminal) -> None:
    """A thread is at work then, on the summary: for much longer than anybody here waits."""
    before = terminal.state()
    blis = shlex.join([sys.executable, "-m", "blis_tui", "tui", "quickstart", "--set", "workload.requests=10000000"])
    terminal.type(f"sh -c 'echo $$ > pid; exec {blis}'; echo rc=$?", "Enter")
    terminal.until(lambda screen: "not known yet" in screen or "Simulating the run" in screen)
    time.sleep(0.5)
    assert "■ end" not in terminal.screen()
    os.kill(int(Path("pid").read_text()), signal.Signals[f"SIG{name}"])
    terminal.until(lambda screen: "rc=130" in screen)
    assert terminal.state() == before


LATE = """
import asyncio
import time
from textual.app import App
from textual.drivers._writer_thread import WriterThread
made = WriterThread.__init__
class Slow:
    def __init__(self, file):
        self.file = file
    def __getattr__(self, name):
        return getattr(self.file, name)
    def write(self, text):
        if "1049l" in text:
            time.sleep(0.2)
        self.file.write(text)
WriterThread.__init__ = lambda self, file: made(self, Slow(file))
async def cut_short(_app):
    raise asyncio.CancelledError
App._close_all = cut_short
import blis_tui.__main__
"""
"""What writes to the terminal has not given it back when all else has ended, and what Textual waits for is cancelled:
it is when a signal comes while another task than the application's is at work."""


def test_a_signal_waits_for_what_gives_the_terminal_back(terminal: Terminal) -> None:
    before = terminal.state()
    Path("late.py").write_text(LATE + "blis_tui.__main__.main()\n", encoding="utf-8")
    blis = shlex.join([sys.executable, "late.py", "tui", "quickstart", "--at", "start"])
    terminal.type(f"sh -c 'echo $$ > pid; exec {blis}'; echo rc=$?", "Enter")
    terminal.until(lambda screen: "at the start" in screen)
    os.kill(int(Path("pid").read_text()), signal.SIGTERM)
    terminal.until(lambda screen: "rc=130" in screen)
    assert terminal.state() == before


CLOSED = """
from textual.drivers.linux_driver import LinuxDriver
from blis_tui.base.interrupted import Interrupted
def closed(_driver):
    raise Interrupted
LinuxDriver._disable_mouse_support = closed
import blis_tui.__main__
"""
"""A signal comes while the terminal is given back, before the thread that reads keys has been told."""


def test_a_signal_at_the_very_end_leaves_no_process_behind(terminal: Terminal) -> None:
    Path("closed.py").write_text(CLOSED + "blis_tui.__main__.main()\n", encoding="utf-8")
    terminal.type(
        shlex.join([sys.executable, "closed.py", "tui", "quickstart", "--at", "start"]) + "; echo rc=$?", "Enter"
    )
    terminal.until(lambda screen: "at the start" in screen)
    terminal.type("C-q")
    terminal.until(lambda screen: "rc=130" in screen)


def test_a_key_typed_right_after_escape_is_not_lost(terminal: Terminal) -> None:
    terminal.type(f"{shlex.join([sys.executable, '-m', 'blis_tui'])} tui kv-pressure --at 50; echo rc=$?", "Enter")
    terminal.until(lambda screen: "event 50 of" in screen)
    terminal.type("/", "completed", "Enter")
    terminal.until(lambda screen: "completed: 0 of" in screen)
    for key in ("Escape", "["):
        terminal.type(key)
        time.sleep(0.06)
    terminal.until(lambda screen: "event 49 of" in screen and "completed: 0 of" not in screen)
    terminal.type("C-q")
    terminal.until(lambda screen: "rc=0" in screen)


def test_an_editor_gets_the_terminal_and_gives_it_back(terminal: Terminal) -> None:
    editor = "sh -c 'echo this is the editor; read line; cp mine.blis.yaml broken.blis.yaml'"
    terminal.type(f"EDITOR={shlex.quote(editor)} " + shlex.join([sys.executable, "-m", "blis_tui"]), "Enter")
    terminal.until(lambda screen: "4 errors" in screen)
    terminal.type("e")
    terminal.until(lambda screen: "this is the editor" in screen)
    terminal.type("Enter")
    terminal.until(lambda screen: any("broken" in line and "✓ ok" in line for line in screen.splitlines()))
    terminal.type("C-q")
    terminal.until(lambda screen: "q quit" not in screen)


def test_a_run_is_stepped_played_gone_back_in_and_asked_why(terminal: Terminal) -> None:
    blis = shlex.join([sys.executable, "-m", "blis_tui"])
    terminal.type(f"{blis} tui kv-pressure --break preempted --at start; echo rc=$?", "Enter")
    terminal.until(lambda screen: "at the start" in screen)
    terminal.type("n", "n", "n", "[")
    terminal.until(lambda screen: "event 2 of 3+" in screen)
    terminal.type("r")
    hit = terminal.until(lambda screen: "was preempted on instance 0" in screen)
    event = next(line for line in hit.splitlines() if " of " in line).split("event ")[1].split()[0]
    terminal.type("[")
    terminal.until(lambda screen: f"event {int(event) - 1} of {event}+" in screen)
    terminal.type("C-r")
    terminal.until(lambda screen: "event 0 " in screen or "at the start" in screen)
    terminal.type("End")
    terminal.until(lambda screen: "■ end" in screen)
    terminal.type("3")
    # The slowest has the cursor once all requests have been read; before that, the question is about the event.
    terminal.until(lambda screen: "By end-to-end latency" in screen and "▸request_" in screen)
    terminal.type("?")
    terminal.until(lambda screen: "slower than all others" in screen and "too few free KV blocks" in screen)
    terminal.type("Escape")
    terminal.until(lambda screen: "slower than all others" not in screen)
    # A press and a release of the mouse's first button on the word `Metrics` of the line of tabs.
    screen = terminal.screen()
    row, line = next((row, line) for row, line in enumerate(screen.splitlines(), 1) if "1 Events" in line)
    column = line.index("Metrics") + 2
    for what in "Mm":
        terminal.type("-l", f"\x1b[<0;{column};{row}{what}")
    terminal.until(lambda screen: "batch tokens" in screen)
    terminal.type("q")
    terminal.until(lambda screen: "rc=0" in screen)
    # What was set is remembered.
    terminal.type(f"{blis} tui kv-pressure; echo rc=$?", "Enter")
    terminal.until(lambda screen: "backspace goes there" in screen)
    terminal.type("8")
    terminal.until(lambda screen: "● preempted" in screen)
    terminal.type("C-q")
    terminal.until(lambda screen: screen.count("rc=0") >= 1 and "● preempted" not in screen)


# ---- browser ----


class Page:
    """A tab of a headless browser, driven through its debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0

    async def call(self, method: str, **parameters: object) -> dict[str, object]:
        """Call a method and wait for its result."""
        self._count += 1
        await self._socket.send_json({"id": self._count, "method": method, "params": parameters})
        while True:
            told = json.loads(await self._socket.receive_str(timeout=PATIENCE_S))
            if told.get("id") == self._count:
                assert "error" not in told, told
                result = told["result"]
                assert isinstance(result, dict)
                return result

    async def value(self, expression: str) -> object:
        """The value of an expression on the page."""
        result = (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"]
        assert isinstance(result, dict)
        return result.get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end_s = time.monotonic() + PATIENCE_S
        while await self.value(expression) is not True:
            assert time.monotonic() < end_s, expression
            await asyncio.sleep(0.1)


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A headless browser with an empty page."""
    profile = folder / "profile"
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --remote-debugging-port=0 --window-size=1100,700"
    )
    process = await asyncio.create_subprocess_exec(
        str(BROWSER),
        *flags.split(),
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = profile / "DevToolsActivePort"
        end_s = time.monotonic() + PATIENCE_S
        while not (told.exists() and "\n" in told.read_text()):
            assert time.monotonic() < end_s, "the browser does not start"
            await asyncio.sleep(0.1)
        address = f"http://127.0.0.1:{told.read_text().split()[0]}"
        async with aiohttp.ClientSession() as session:
            tabs = await (await session.get(f"{address}/json/list")).json()
            tab = next(tab for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.kill()
        await process.wait()


LISTEN = """
window.heard = "";
const Plain = window.WebSocket;
window.WebSocket = class extends Plain {
    constructor(...given) {
        super(...given);
        window.wire = this;
        this.addEventListener("message", async (event) => {
            window.heard += typeof event.data === "string" ? event.data : await new Response(event.data).text();
        });
    }
};
"""
"""Keeps what the page hears, and its connection."""


def distinct_rows(png: bytes) -> int:
    """How many different rows of pixels a picture has: few in a blank one, many where there is text."""
    content, at = b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            content += png[at + 8 : at + 8 + size]
        at += size + 12
    raw = zlib.decompress(content)
    width, colour = int.from_bytes(png[16:20]), png[25]
    stride = 1 + width * {2: 3, 6: 4}[colour]
    return len({raw[row : row + stride] for row in range(0, len(raw), stride)})


@pytest.mark.skipif(BROWSER is None, reason="no chromium")
async def test_a_browser_shows_the_list_and_takes_keys(lab: Path, tmp_path: Path) -> None:
    with serving(lab) as (said, _):
        async with browser(tmp_path) as page:
            await page.call("Page.enable")
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
            blank = base64.b64decode(str((await page.call("Page.captureScreenshot", format="png"))["data"]))
            await page.call("Page.navigate", url=said.split()[3])
            await page.until("(window.heard || '').includes('~/lab')")
            await page.until("document.body.classList.contains('-first-byte')")
            await page.value("window.wire.send(JSON.stringify(['stdin', 'h']))")
            await page.until("window.heard.includes('Keys: experiments')")
            end_s = time.monotonic() + PATIENCE_S
            shown = blank
            while distinct_rows(shown) < 50:
                assert time.monotonic() < end_s, "the page stays blank"
                await asyncio.sleep(0.2)
                shown = base64.b64decode(str((await page.call("Page.captureScreenshot", format="png"))["data"]))
            assert distinct_rows(blank) < 5
            pictures = os.environ.get("BLIS_SCREENS_DIR")
            if pictures:
                await asyncio.to_thread(_write, Path(pictures), shown)


def _write(folder: Path, picture: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "browser.png").write_bytes(picture)
