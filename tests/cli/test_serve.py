"""``blis-tui serve``: who is answered, what each window gets, and what becomes of its program."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from rich.console import Console

from blis_tui.base.errors import install_command
from blis_tui.cli import web_server
from blis_tui.cli.main import cli
from blis_tui.cli.serve import program
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.cli.web_server import (
    DRIVER,
    MAX_COLUMNS,
    MAX_ROWS,
    Program,
    WebServer,
    clamped_size,
    is_own_page,
    with_own_font,
    with_terminal_focus,
)
from blis_tui.tui.settings import default_theme
from tests.tui.server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENCE_S = 60.0

SILENT = [sys.executable, "-c", "import time; time.sleep(600)"]
"""A program that listens to nobody."""
OBEDIENT = [sys.executable, "-S", "-c", "import sys; sys.stdin.buffer.read(1)"]
"""A program that ends as soon as it is told anything."""
SIZES = """
from textual.app import App
from textual.widgets import Label
class Sizes(App):
    def compose(self): yield Label()
    def on_resize(self, event): self.query_one(Label).update(f"<{event.size.width} by {event.size.height}>")
Sizes().run()
"""
MEASURING = [sys.executable, "-c", SIZES]
"""A program that shows the size of its terminal."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment, shown as ``~/lab``, on a terminal with colours and without an editor."""
    folder = tmp_path / "lab"
    folder.mkdir()
    text = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\nextends: quickstart\n"
    (folder / "mine.blis.yaml").write_text(text, encoding="utf-8")
    for name, value in {"HOME": "", "BLIS_TUI_STATE_DIR": "state", "BLIS_TUI_CONFIG_DIR": "config"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("EDITOR", "VISUAL", "NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    return folder


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="blis-tui", terminal_width=100)


@asynccontextmanager
async def answering(words: list[str], *, max_windows: int = 2) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """A server of a program: its address with the token, and a client."""
    made = WebServer(words, host="127.0.0.1", port=0, local=True, max_windows=max_windows)
    runner = web.AppRunner(await made._make_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as session:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/{made.token}/", session
    finally:
        await runner.cleanup()


async def until(window: aiohttp.ClientWebSocketResponse, *wanted: bytes) -> bytes:
    """What a window is told until one of some words comes."""
    shown = bytearray()
    looked = 0
    async with asyncio.timeout(PATIENCE_S):
        while not any(shown.find(word, looked) >= 0 for word in wanted):
            looked = max(0, len(shown) - max(map(len, wanted)))  # a giant terminal is drawn in many messages
            message = await window.receive()
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
            shown += message.data if isinstance(message.data, bytes) else b""
    return bytes(shown)


async def closed(window: aiohttp.ClientWebSocketResponse) -> int | None:
    """Wait until the other side has closed; why it did."""
    while (await window.receive(timeout=PATIENCE_S)).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
        pass
    return window.close_code


async def room(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until one more window may be opened: a program has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while (await session.get(url)).status == 503:  # noqa: ASYNC110  (another process has no event to set)
            await asyncio.sleep(0.01)


# ---- the command ----


def test_each_window_runs_the_same_program() -> None:
    words = program("my file.blis.yaml", ("a=b c", "d=1"), 3)
    assert words[1:4] == ["-m", "blis_tui", "tui"]
    assert words[4:] == ["--set", "a=b c", "--set", "d=1", "--seed", "3", "--", "my file.blis.yaml"]
    assert program(None, (), None)[1:] == ["-m", "blis_tui", "tui"]


def test_the_extra_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blis_tui.cli.web_server", None)
    result = invoke("serve")
    assert result.exit_code == ExitCode.USAGE
    assert install_command("web") in result.output


def test_a_taken_port_is_said() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = invoke("serve", "--port", str(port))
    assert result.exit_code == ExitCode.IO
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use; choose another with --port" in result.output


async def test_a_browser_gets_the_list_and_ctrl_c_ends_quietly(lab: Path) -> None:
    with serving(lab) as (output, process):
        assert output.startswith("blis-tui is at http://127.0.0.1:")
        url = output.split()[3]
        async with aiohttp.ClientSession() as session:
            page = await (await session.get(url)).text()
            socket_url = f"{url.replace('http', 'ws')}ws"
            assert f'"{socket_url}"' in page
            assert "googleapis" not in page
            assert "keys.focus()" in page
            async with session.ws_connect(
                f"{socket_url}?width=80&height=24", origin=url[: url.index("/", 8)]
            ) as window:
                assert b"~/lab" in await until(window, b"~/lab")
                process.send_signal(signal.SIGINT)
                assert await closed(window) == aiohttp.WSCloseCode.GOING_AWAY
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("", "")
    assert process.returncode == ExitCode.OK


def test_other_machines_get_a_warning(lab: Path) -> None:
    with serving(lab, "--host", "0.0.0.0", "mine.blis.yaml") as (output, _):  # noqa: S104  (what is tested)
        warning, address = output.splitlines()
    assert warning.startswith("warning: not encrypted")
    own = re.match(r"blis-tui is at http://127\.0\.0\.1:(\S+/), for others at http://([^:]+):(\S+/) ", address)
    assert own is not None
    assert own[1] == own[3]
    assert own[2] == socket.gethostname()


# ---- who is answered ----


@pytest.mark.parametrize(
    ("host", "origin", "local", "own"),
    [
        ("127.0.0.1:8000", None, True, True),
        ("localhost:8000", "http://localhost:8000", True, True),
        ("[::1]:8000", "http://[::1]:8000", True, True),
        ("127.0.0.1:8000", "https://evil.example", True, False),
        ("127.0.0.1:8000", "http://127.0.0.1:9000", True, False),
        ("evil.example:8000", "http://evil.example:8000", True, False),
        ("evil.example:8000", None, True, False),
        ("[::1", None, True, False),
        ("[::1", None, False, False),
        ("a b", None, True, False),
        ("127.0.0.1:8000", "http://[", True, False),
        ("gpu-box:8000", "http://gpu-box:8000", False, True),
        ("gpu-box:8000", "null", False, False),
    ],
)
def test_only_own_pages_are_answered(host: str, origin: str | None, *, local: bool, own: bool) -> None:
    assert is_own_page(host, origin, local=local) is own


async def test_nothing_is_answered_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    async with answering(SILENT) as (url, session):
        bare, token, _ = url.rsplit("/", 2)
        for path in ("", "ws", "static/css/xterm.css", "download/key", "static/", f"{token[:-1]}/", f"{token}x/"):
            refused = await session.get(f"{bare}/{path}")
            assert (refused.status, "open the complete address" in await refused.text()) == (403, True), path
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(f"{bare}/ws")
        assert (await session.get(f"{url}static/css/xterm.css")).status == 200
        assert (await session.get(url.removesuffix("/"))).status == 200
        for folder in ("static", "static/", "static/js", "static/js/"):
            assert "textual.js" not in await (await session.get(url + folder)).text()
    assert not caplog.records


async def test_pages_of_others_are_refused_even_with_the_token(caplog: pytest.LogCaptureFixture) -> None:
    async with answering(SILENT) as (url, session):
        port = url.split(":")[2].split("/")[0]
        hosts = ["evil.example", "[::1", "a b", "evil.com@127.0.0.1", f"evil.com:x@127.0.0.1:{port}", "@localhost"]
        hosts += ["127.0.0.1/evil", "127.0.0.1?evil", "127.0.0.1#evil", '127.0.0.1"><b', "127.0.0.1:80:90", ""]
        for headers in (*({"Host": host} for host in hosts), {"Origin": "http://127.0.0.1:1"}):
            refused = await session.get(url, headers=headers)
            assert (refused.status, "evil" in await refused.text()) == (403, False), headers
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
            page = await session.get(url, headers={"Host": host})
            assert (page.status, f'"ws://{host}/' in await page.text()) == (200, True), host
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(f"{url}ws", origin="http://evil.example")
    assert not caplog.records


async def test_no_answer_may_be_framed_or_load_what_is_not_the_servers() -> None:
    async with answering(SILENT) as (url, session):
        bare = url.rsplit("/", 2)[0]
        for path in ("", "static/css/xterm.css", "static/nothing", "download/nothing"):
            for address in (url + path, f"{bare}/{path}"):
                headers = (await session.get(address)).headers
                assert headers["X-Frame-Options"] == "DENY"
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert headers["Referrer-Policy"] == "no-referrer"
                assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
                assert "default-src 'none'" in headers["Content-Security-Policy"]
        first, second = [await session.get(url) for _ in range(2)]
        rules = dict(rule.split(" ", 1) for rule in first.headers["Content-Security-Policy"].split("; "))
        page = await first.text()
    host = url.split("/")[2]
    assert rules["connect-src"] == f"'self' ws://{host} wss://{host}"
    nonce = rules["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert nonce not in second.headers["Content-Security-Policy"]
    assert re.findall(r"<script[^>]*>", page) == re.findall(rf'<script nonce="{nonce}"[^>]*>', page) != []
    assert re.findall(r"\son[a-z]+=", page, re.IGNORECASE) == []  # a policy lets no attribute do anything


def test_a_window_has_the_colours_of_its_page_not_of_the_servers_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM", raising=False)
    server = WebServer(SILENT, host="127.0.0.1", port=0, local=True, max_windows=1)
    environment = Program(SILENT, web.WebSocketResponse(), server)._build_environment()
    assert default_theme(os.environ) != default_theme(environment)
    assert Console(_environ=environment, force_terminal=True).color_system == "truecolor"


async def test_what_no_browser_sends_is_a_line_and_an_answer(lab: Path) -> None:
    with serving(lab) as (output, process):
        port = int(output.split(":")[2].split("/")[0])
        for sent in (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\n\x1b[31m: a\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).startswith(b"HTTP/1.0 400 Bad Request")
            writer.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("", ExitCode.OK)
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "error"]
    assert err.replace("\n", "").isprintable()


# ---- what windows get ----


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = '<link\n rel="stylesheet"\n href="https://fonts.googleapis.com/css?family=Roboto%20Mono"\n />\n<b>'
    assert "googleapis" not in with_own_font(page)
    assert with_own_font(page).endswith("\n<b>")


def test_the_page_gives_the_keys_to_the_terminal() -> None:
    page = with_terminal_focus("<body><div id=terminal></div></body></html>")
    assert page.index("terminal") < page.index(".focus()") < page.index("</body>")
    assert page.endswith("</script>\n</body></html>")


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((80, 24), (80, 24)),
        ((99_999_999, 99_999_999), (MAX_COLUMNS, MAX_ROWS)),
        ((0, -5), (1, 1)),
    ],
)
def test_terminals_have_a_size_within_reason(asked: tuple[int, int], given: tuple[int, int]) -> None:
    assert clamped_size(*asked) == given


async def test_no_window_makes_its_program_draw_a_giant_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_COLUMNS", 200), ("MAX_ROWS", 60)):  # drawing the largest takes a second each time
        monkeypatch.setattr(web_server, name, value)
    largest = b"<200 by 60>"
    async with answering(MEASURING) as (url, session):
        async with session.ws_connect(f"{url}ws?width=1000&height=400", max_msg_size=0) as window:
            await until(window, largest)
            await window.send_json(["resize", {"width": 60, "height": 20}])
            await until(window, b"<60 by 20>")
            await window.send_json(["resize", {"width": 10**30, "height": 99_999_999}])
            await until(window, largest)
        async with session.ws_connect(f"{url}ws?width=much&height=") as window:
            await until(window, b"<80 by 24>")


@pytest.mark.parametrize(
    "sent",
    [
        "{",
        "[" * 100_000,
        "9" * 5_000,
        '"stdin"',
        "[]",
        '["stdin", 5]',
        '["resize", {"width": "80", "height": 24}]',
        '["resize", {"width": 1e400, "height": 24}]',
        '["resize", [80, 24]]',
        '["format", "C:"]',
    ],
)
async def test_what_no_page_sends_closes_the_window_with_a_line(sent: str, caplog: pytest.LogCaptureFixture) -> None:
    async with answering(OBEDIENT) as (url, session), session.ws_connect(f"{url}ws") as window:
        await window.send_str(sent)
        assert await closed(window) == aiohttp.WSCloseCode.UNSUPPORTED_DATA
    messages = [record.getMessage() for record in caplog.records if record.name == "blis_tui.cli.web_server"]
    assert messages == ["closed a connection that sent something no blis-tui page sends"]
    assert not any(record.exc_info for record in caplog.records)


async def test_there_is_a_limit_on_windows() -> None:
    async with (
        answering(OBEDIENT, max_windows=2) as (url, session),
        session.ws_connect(f"{url}ws"),
        session.ws_connect(f"{url}ws") as second,
    ):
        refused = await session.get(url)
        assert refused.status == 503
        assert await refused.text() == "2 windows are open, which is the limit: close one, or see --max-windows"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await session.ws_connect(f"{url}ws")
        await second.send_str("nonsense")
        await closed(second)
        await room(session, url)


async def test_a_download_needs_the_token_too(lab: Path) -> None:
    with serving(lab, "mine.blis.yaml") as (output, _):
        url = output.split()[3]
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}ws?width=100&height=30") as window:
            await until(window, "■ end".encode())
            await window.send_json(["stdin", "x"])
            await until(window, b"Export")
            await window.send_json(["stdin", "\r"])
            while (message := await window.receive(timeout=PATIENCE_S)).type is not aiohttp.WSMsgType.TEXT:
                assert message.type is aiohttp.WSMsgType.BINARY, message
            kind, key = message.json()
            assert kind == "deliver_file_start"
            # As the page builds it; every client resolves the dots.
            got = await session.get(f"{url[: url.index('/', 8)]}/download/{key}")
            assert got.status == 200
            assert got.url.path.startswith(f"/{url.split('/')[3]}/download/")
            assert "mine" in await got.text()


# ---- what becomes of programs ----


async def test_a_program_that_does_not_listen_ends_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "_GRACE_S", 0.1)
    packet = "b'__GANGLION__\\nD' + (9).to_bytes(4, 'big') + b'%9d' % os.getpid()"
    deaf = [sys.executable, "-c", f"import os, time; os.write(1, {packet}); time.sleep(600)"]
    async with answering(deaf, max_windows=1) as (url, session):
        async with session.ws_connect(f"{url}ws") as window:
            pid = int(await window.receive_bytes(timeout=PATIENCE_S))
            os.kill(pid, 0)
        await room(session, url)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_program_that_has_much_to_say_ends_by_itself_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than its pipes hold, when its window has gone: a full pipe would keep it, and its place, for good."""
    monkeypatch.setattr(web_server, "_GRACE_S", 10 * PATIENCE_S)
    code = (
        "import os, sys\n"
        "packet = b'D' + (100_000).to_bytes(4, 'big') + bytes(100_000)\n"
        "os.write(1, b'__GANGLION__\\n')\n"
        "sys.stdout.buffer.write(packet)\n"
        "sys.stdout.flush()\n"
        "sys.stdin.buffer.read(1)\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    stream.buffer.write(20 * packet)\n"
        "    stream.flush()\n"
    )
    talkative = [sys.executable, "-S", "-c", code]
    async with answering(talkative, max_windows=1) as (url, session):
        async with session.ws_connect(f"{url}ws") as window:
            await window.receive_bytes(timeout=PATIENCE_S)
        await room(session, url)


async def test_a_window_ends_with_its_program() -> None:
    async with answering([sys.executable, "-c", ""]) as (url, session), session.ws_connect(f"{url}ws") as window:
        assert await closed(window) == aiohttp.WSCloseCode.OK


@pytest.mark.parametrize("busy", [False, True])
def test_a_program_ends_when_its_server_was_killed(*, busy: bool) -> None:
    code = (
        "import os, time\n"
        "from textual.app import App\n"
        "from blis_tui.tui import drivers\n"
        "drivers._GRACE_S = 0.1\n"
        "class Program(App):\n"
        "    def on_ready(self):\n"
        "        os.write(2, b'ready')\n"
        f"        time.sleep({600 * busy})\n"
        "Program().run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TEXTUAL_DRIVER": DRIVER},
    )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        assert process.stderr.read(5) == b"ready"
        process.stdin.close()  # as the system does when the server is gone
        assert process.wait(timeout=PATIENCE_S) == int(busy)
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
