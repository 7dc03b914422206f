"""A server being observed, on the screen."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from blis_tui.cli import tui as command
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.observe.following import Following, follow, merged
from blis_tui.live.observe.recording import REQUESTS, read_recording
from blis_tui.live.observe.recording_summary import Status
from blis_tui.tui.app import BlisApp
from blis_tui.tui.observing_start import ObservingStart
from blis_tui.tui.screens import observing
from blis_tui.tui.screens.observing import ObservingScreen, status_of
from tests.live.observe.servers import Asked, Replying, served, well
from tests.live.observe.test_following import SERVER, begun, recorded, row
from tests.tui.screens import check_screen, draw, press, screen_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.pilot import Pilot

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a run is ended with a signal that Windows has not")

RUN = """
import signal, sys
waiting = []
signal.signal(signal.SIGINT, lambda *_: waiting.append(1))
sys.stderr.write(sys.argv[1])
sys.stderr.flush()
while not waiting:
    signal.pause()
print("recording  r\\nrequests   36 of 40 answered")
sys.stderr.write("warning: requests were sent 12 ms late\\n")
sys.exit(1)
"""
"""Says how it goes, and ends when it is told to."""
SOON = """
from functools import partial
from blis_tui.__main__ import main
from blis_tui.live.observe import observer
observer.Plan = partial(observer.Plan, lead_s=0.02, settle_s=0.05)
observer._STATUS_S = 0.05
main()
"""
"""The program, for a server whose counters are there with the answer."""


def looks() -> list[Status]:
    """Forty requests, of which some go wrong; the server's queue fills and empties."""
    found = []
    for number in range(12):
        done, failed = 3 * number, {"refused": 2, "broken": number // 6} if number > 4 else {}
        found.append(
            Status(
                time_us=250_000 * (number + 1),
                total=40,
                sent=min(5 * (number + 1), 40),
                running=min(5 * (number + 1), 40) - done - sum(failed.values()),
                outcomes={"completed": done, **failed},
                tokens=40 * done,
                requests_per_s=11.5,
                tokens_per_s=100.0 * number,
                ttft_us=20_000 + 3_000 * number if number else None,
                e2e_us=400_000 if number else None,
                late_us=12_000 if number == 11 else 300,
                server={
                    "vllm:num_requests_running": 4.0,
                    "vllm:num_requests_waiting": 2.0,
                    "vllm:kv_cache_usage_perc": number / 16,
                },
            )
        )
    return found


def app_of(statuses: list[Status]) -> BlisApp:
    lines = "".join(f"{json.dumps(asdict(status))}\n" for status in statuses)
    return BlisApp(ObservingStart(url="http://127.0.0.1:8000", words=(sys.executable, "-c", RUN, lines)))


async def until(pilot: Pilot[None], true: Callable[[ObservingScreen], object]) -> ObservingScreen:
    screen = pilot.app.screen
    assert isinstance(screen, ObservingScreen)
    async with asyncio.timeout(60):
        while not true(screen):  # noqa: ASYNC110  (another process is waited for)
            await asyncio.sleep(0.01)
    await draw(pilot)
    return screen


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_how_it_looks(size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    statuses = looks()
    app = app_of(statuses)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda screen: len(screen.view().statuses) == len(statuses))
        await check_screen(pilot, file_regression, "observing")
        await press(pilot, "escape")
        await until(pilot, lambda screen: screen.start.code is not None)
        await check_screen(pilot, file_regression, "observing-over")
        assert isinstance(app.start, ObservingStart)
        assert app.start.code == 1


async def test_leaving_ends_the_run_in_good_order() -> None:
    app = app_of(looks())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await until(pilot, lambda screen: screen.view().statuses)
        await press(pilot, "q")
    assert screen.start.code == 1
    assert "36 of 40 answered" in screen.start.output
    assert "warning: requests were sent 12 ms late" in screen.start.output


async def test_a_run_that_cannot_be_started_is_over(tmp_path: Path) -> None:
    app = BlisApp(ObservingStart(url="http://127.0.0.1:8000", words=(str(tmp_path / "none"),)))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await until(pilot, lambda screen: screen.start.code is not None)
        assert "cannot start" in screen_text(app)
    assert "No such file or directory" in screen.start.output
    assert screen.start.code == ExitCode.IO


async def test_a_very_long_line_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "_LONGEST_LINE", 1 << 16)
    said = "warning: " + "x" * (3 << 16) + "\n"
    run = "import sys; sys.stderr.write('warning: ' + 'x' * (3 << 16) + chr(10))"
    app = BlisApp(ObservingStart(url="http://127.0.0.1:8000", words=(sys.executable, "-c", run)))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await until(pilot, lambda screen: screen.start.code is not None)
    assert (screen.start.code, screen.start.output) == (0, said)


async def test_it_shows_what_a_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n}000,9,4\n" for n in range(9))
    (tmp_path / "t.csv").write_text(f"arrival_us,input_tokens,output_tokens\n{rows}")

    async def slowly(asked: Asked, reply: Replying) -> None:
        await asyncio.sleep(0.4)
        await well(asked, reply)

    with served(slowly) as server:
        words = (sys.executable, "-c", SOON, "observe", server.url, "--trace", "t.csv", "-o", "r")
        app = BlisApp(ObservingStart(url=server.url, words=(*words, "--no-progress", "--status-lines")))
        async with app.run_test(size=(140, 40)) as pilot:
            screen = await until(pilot, lambda screen: screen.start.code is not None)
            assert "9 of 9 answered" in screen_text(app)
    assert (screen.start.code, len(read_recording(tmp_path / "r").requests)) == (ExitCode.OK, 9)
    statuses = screen.view().statuses
    assert max(status.running for status in statuses) == 9
    assert (statuses[-1].running, statuses[-1].outcomes) == (0, {"completed": 9})


def test_lines_that_are_no_look_are_refused() -> None:
    assert status_of(asdict(looks()[3])) == looks()[3]
    with pytest.raises(TypeError):
        status_of({"time_us": 1})


# ---- from outside ----


def test_there_has_to_be_a_terminal() -> None:
    result = CliRunner().invoke(cli, ["observe", "http://x", "--trace", "t.csv", "-o", "r", "--live"])
    assert result.exit_code == ExitCode.USAGE
    assert "needs a terminal" in result.output


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_was_said_and_its_exit_code_outlast_the_screen(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ObservingStart] = []

    def run(app: BlisApp) -> None:
        assert isinstance(app.start, ObservingStart)
        started.append(app.start)
        app.start.code, app.start.output = code, "requests   9 of 9 answered\n"

    words = ["observe", "http://x", "--trace", "t.csv", "-o", "r", "--live"]
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(BlisApp, "run", run)
    monkeypatch.setattr(sys, "argv", ["blis-tui", *words])
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.output) == (code, "requests   9 of 9 answered\n")
    (start,) = started
    assert start.words[3:] == ("observe", "http://x", "--trace", "t.csv", "-o", "r", "--no-progress", "--status-lines")


async def test_a_recording_elsewhere_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "_LOOK_S", 0.01)
    folder = begun(tmp_path / "r")
    following = Following(folder.path)
    app = BlisApp(ObservingStart(url=following.url, runs=(following,)))
    async with app.run_test(size=(80, 24)) as pilot:
        for number in range(3):
            folder.request(row(number))
        await until(pilot, lambda screen: [status.sent for status in screen.view().statuses][-1:] == [3])
        assert "answered" in screen_text(app)
        assert "http://127.0.0.1:8000" in screen_text(app)
        folder.request(row(3, "refused"))
        folder.say({"complete": True, "counters": {}}, SERVER)
        folder.close()
        screen = await until(pilot, lambda screen: screen.start.code is not None)
        assert screen.start.code == 0
        assert "3 of 4" in screen.start.output


async def test_a_recording_that_is_damaged_while_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "_LOOK_S", 0.01)
    folder = begun(tmp_path / "r")
    following = Following(folder.path)
    app = BlisApp(ObservingStart(url=following.url, runs=(following,)))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda screen: screen.view().latest is not None)
        (folder.path / REQUESTS).write_text("nonsense\n")
        screen = await until(pilot, lambda screen: screen.start.code is not None)
        assert screen.start.code == ExitCode.IO
        assert "requests.jsonl" in screen.start.output
        assert "finished" in screen_text(app)
    folder.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--follow", "nowhere"], "nowhere is not a recording"),
        (["quickstart", "--follow", "r"], "--follow shows recordings alone"),
        (["--follow", "r", "--at", "end"], "these options need an experiment"),
    ],
)
def test_what_cannot_be_followed(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    done = CliRunner().invoke(cli, ["tui", *words])
    assert done.exit_code in (ExitCode.USAGE, ExitCode.IO)
    assert said in " ".join(done.output.split())


async def test_a_run_that_does_not_listen_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ignores the signal, as programs do that a script has started in the background."""
    monkeypatch.setattr(observing, "_PATIENCE_S", 0.2)
    deaf = "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsys.stderr.write(sys.argv[1])\n"
    deaf += "sys.stderr.flush()\ntime.sleep(600)\n"
    lines = "".join(f"{json.dumps(asdict(status))}\n" for status in looks())
    app = BlisApp(ObservingStart(url="http://127.0.0.1:8000", words=(sys.executable, "-c", deaf, lines)))
    async with asyncio.timeout(60), app.run_test(size=(80, 24)) as pilot:
        screen = await until(pilot, lambda screen: len(screen.view().statuses) == len(looks()))
        assert screen.start.code is None
    assert screen.start.code == -9


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_several_runs_have_one_timeline(
    size: tuple[int, int], tmp_path: Path, file_regression: FileRegressionFixture
) -> None:
    paths = [tmp_path / "left.jsonl", tmp_path / "right.jsonl"]
    for path, instances in zip(paths, (1, 2), strict=True):
        recorded(path, "quickstart", **{"workload.requests": 60, "cluster.instances": instances})
    runs = tuple(follow(path) for path in paths)
    app = BlisApp(ObservingStart(url="left, right", runs=runs))
    async with app.run_test(size=size) as pilot:
        screen = await until(pilot, lambda screen: len(screen.view().runs) == 2)
        await check_screen(pilot, file_regression, "observing-several")
        latest = merged(runs, 1)[0]
        shown = screen_text(app)
        assert latest.text in shown
        assert all(f"{name} " in shown for name in ("left", "right"))
        assert [(name, status.sent) for name, status in screen.view().runs] == [("left", 60), ("right", 60)]
