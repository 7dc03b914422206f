"""``blis-tui``, ``tui`` and ``serve`` from the outside."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import aiohttp
import pytest
from click.testing import CliRunner, Result

from blis_tui.cli import tui as command
from blis_tui.cli.exit_codes import ExitCode
from blis_tui.cli.main import cli
from blis_tui.cli.serve import focusing, is_own_page, own_font, program
from tests.tui.server import BLIS, serving

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.tui.app import BlisApp


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="blis-tui", terminal_width=100)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BlisApp]:
    """A terminal, and the applications that would take it over."""
    apps: list[BlisApp] = []
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(command, "_run", apps.append)
    return apps


@pytest.mark.parametrize("name", ["tui", "serve"])
def test_help_texts(name: str, file_regression: FileRegressionFixture) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == ExitCode.OK
    file_regression.check(result.output, extension=".txt")


# ---- starting ----


def test_without_a_terminal_there_is_help() -> None:
    run = subprocess.run(BLIS, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert run.returncode == ExitCode.OK
    assert run.stdout.startswith("Usage: blis-tui")
    assert "tui         Step through an experiment in the terminal." in run.stdout
    assert run.stderr == ""


def test_on_a_terminal_there_is_the_list(started: list[BlisApp]) -> None:
    assert invoke().exit_code == ExitCode.OK
    assert invoke("tui").exit_code == ExitCode.OK
    assert [app.start for app in started] == [None, None]


def test_an_experiment_is_loaded_before_the_screen_is_taken(started: list[BlisApp]) -> None:
    result = invoke(
        "tui", "quickstart", "--at", "1.5s", "--break", "preempted", "--break", "event 7", "--set", "seed=3", "--seed=4"
    )
    assert result.exit_code == ExitCode.OK, result.output
    start = started[0].start
    assert start is not None
    assert (start.experiment.name, start.experiment.seed) == ("quickstart", 4)
    assert (start.source, start.at, start.breaks) == ("quickstart", "1.5s", ("preempted", "event 7"))
    assert (start.overrides, start.seed) == (("seed=3",), 4)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tui", "quickstrt"], ExitCode.IO, "did you mean `quickstart`?"),
        (["tui", "quickstart", "--set", "engin.x=1"], ExitCode.USAGE, "error[BLIS1001]: unknown key `engin`"),
        (["tui", "quickstart", "--break", "preemptd"], ExitCode.USAGE, "did you mean `preempted`?"),
        (["tui", "quickstart", "--break", "instance 7"], ExitCode.USAGE, "instance"),
        (["tui", "quickstart", "--at", ""], ExitCode.USAGE, "no place is given"),
        (["tui", "-"], ExitCode.USAGE, "the keys come from standard input"),
        (["tui", "--at", "3"], ExitCode.USAGE, "name it as SPEC"),
        (["tui", "--seed", "3"], ExitCode.USAGE, "name it as SPEC"),
        (["serve", "--seed", "3"], ExitCode.USAGE, "name it as SPEC"),
        (["serve", "quickstrt"], ExitCode.IO, "did you mean `quickstart`?"),
        (["serve", "--host", "256.1.1.1"], ExitCode.IO, "cannot listen on 256.1.1.1:8000"),
    ],
)
def test_what_is_wrong_is_said_on_the_ordinary_screen(
    started: list[BlisApp], arguments: list[str], code: ExitCode, said: str
) -> None:
    result = invoke(*arguments)
    assert said in result.output
    assert result.exit_code == code
    assert not started


def test_wrong_traces_are_said_on_the_ordinary_screen(started: list[BlisApp], tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n1,-5,3\n")
    spec = tmp_path / "x.blis.yaml"
    spec.write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: x}\nmodel: qwen3-14b\nhardware: h100\n"
        "workload: {trace: {file: trace.csv, format: requests}}\n"
    )
    result = invoke("tui", str(spec))
    assert "trace.csv:2" in result.output
    assert result.exit_code == ExitCode.USAGE
    assert not started


def test_no_terminal_no_interface() -> None:
    run = subprocess.run(
        [*BLIS, "tui", "quickstart"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert run.returncode == ExitCode.USAGE
    assert "`blis-tui run` simulates without one" in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_little_is_imported_to_say_little(arguments: list[str]) -> None:
    code = f"""
import sys
from blis_tui.cli.main import cli
cli({arguments!r}, standalone_mode=False)
print(sorted({{"textual", "rich", "yaml", "jsonschema", "platformdirs"}} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_the_list_of_experiments_needs_no_schemas_to_appear() -> None:
    code = """
import sys
import blis_tui.tui.app, blis_tui.tui.screens.home
print(sorted({"jsonschema", "yaml", "blis_tui.simulation", "blis_tui.tui.screens.debugger"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---- serving ----


def test_each_window_runs_the_same_program() -> None:
    words = shlex.split(program("my file.blis.yaml", ("a=b c", "d=1"), 3))
    assert words[1:] == [
        "-m",
        "blis_tui",
        "tui",
        "--set",
        "a=b c",
        "--set",
        "d=1",
        "--seed",
        "3",
        "--",
        "my file.blis.yaml",
    ]
    assert shlex.split(program(None, (), None))[1:] == ["-m", "blis_tui", "tui"]


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
        ("gpu-box:8000", "http://gpu-box:8000", False, True),
        ("gpu-box:8000", "null", False, False),
    ],
)
def test_only_own_pages_are_answered(host: str, origin: str | None, *, local: bool, own: bool) -> None:
    assert is_own_page(host, origin, local=local) is own


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = '<link\n rel="stylesheet"\n href="https://fonts.googleapis.com/css?family=Roboto%20Mono"\n />\n<b>'
    assert "googleapis" not in own_font(page)
    assert own_font(page).endswith("\n<b>")


def test_the_extra_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    result = invoke("serve")
    assert result.exit_code == ExitCode.USAGE
    assert "pip install 'blis-tui[web]'" in result.output


def test_a_taken_port_is_said() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = invoke("serve", "--port", str(port))
    assert result.exit_code == ExitCode.IO
    assert f"cannot listen on 127.0.0.1:{port}: the port is taken; choose another with --port" in result.output


async def test_a_browser_gets_the_list_and_ctrl_c_ends_quietly(lab: Path) -> None:
    with serving(lab) as (said, process):
        assert said.startswith("blis-tui is at http://127.0.0.1:")
        url = said.split()[3]
        async with aiohttp.ClientSession() as session:
            page = await (await session.get(url)).text()
            assert f"{url.replace('http', 'ws')}/ws" in page
            assert "googleapis" not in page
            assert "keys.focus()" in page
            stolen = await session.get(url, headers={"Host": "evil.example"})
            assert stolen.status == 403
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{url}/ws", origin="http://evil.example")
            assert refused.value.status == 403
            async with session.ws_connect(f"{url}/ws?width=80&height=24", origin=url) as socket_:
                shown = b""
                while b"all valid" not in shown and b"with errors" not in shown:
                    message = await socket_.receive(timeout=20)
                    assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
                    shown += message.data if isinstance(message.data, bytes) else b""
                assert b"~/lab" in shown
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (out, err) == ("", "")
    assert process.returncode == ExitCode.OK


def test_other_machines_get_a_warning(lab: Path) -> None:
    with serving(lab, "--host", "0.0.0.0", "mine.blis.yaml") as (said, _):  # noqa: S104  (what is tested)
        warning, address = said.splitlines()
    assert warning.startswith("warning: no authentication: everybody who reaches 0.0.0.0:")
    own = re.match(r"blis-tui is at http://127\.0\.0\.1:(\d+), for others at http://(\S+):(\d+) ", address)
    assert own is not None
    assert own[1] == own[3]
    assert own[2] == socket.gethostname()


def test_the_page_gives_the_keys_to_the_terminal() -> None:
    page = focusing("<body><div id=terminal></div></body></html>")
    assert page.index("terminal") < page.index(".focus()") < page.index("</body>")
    assert page.endswith("</script>\n</body></html>")
