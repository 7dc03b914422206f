"""A recording and its simulation side by side on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from textual.app import App
from textual.widgets import Input

from blis_tui.cli import tui as command
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.twin.twin import compare_with_simulation
from blis_tui.tui.app import TwinStart
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.twin import TwinScreen
from tests.live.twin.servers import experiment, recorded
from tests.tui.screens import check_screen, press, screen_text

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.live.observe.recording import Recording
    from blis_tui.tui.app import BlisApp


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Of a server with more blocks of KV cache, and a gap of 2 ms from step to step."""
    return recorded(experiment(), tmp_path_factory.mktemp("recordings") / "monday", gap_us=2000)


def twin(recording: Recording, **changes: object) -> TwinScreen:
    changes = changes or {"latency__beta": [6000, 20, 300], "engine__kv_blocks": 90}
    return TwinScreen(compare_with_simulation(recording, experiment(**changes), "smaller"), recording, "smaller")


class Alone(App[None]):
    """Nothing but the twin."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]  # noqa: RUF012  (Textual's way)

    def __init__(self, screen: TwinScreen) -> None:
        super().__init__()
        self.twin = screen

    def on_mount(self) -> None:
        self.push_screen(self.twin)


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (200, 60)])
async def test_how_it_looks(
    recording: Recording, size: tuple[int, int], file_regression: FileRegressionFixture
) -> None:
    app = Alone(twin(recording))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await check_screen(pilot, file_regression, "twin-start")
        await press(pilot, "D")
        await check_screen(pilot, file_regression, "twin-parting")
        await press(pilot, "t", "t", "O", "O", "M")
        await check_screen(pilot, file_regression, "twin-measured")
        await press(pilot, "tab", "tab", "tab", "tab", "tab", "down", "down")
        await check_screen(pilot, file_regression, "twin-curves")


async def test_keys_move_both_sides_by_time(recording: Recording) -> None:
    app = Alone(twin(recording))
    async with app.run_test(size=(140, 40)) as pilot:
        screen = app.twin
        left, right = screen.view().sides
        first, second = sorted({*left.begins_us, *right.begins_us})[:2]
        await press(pilot, "n")
        assert screen.time_us == (second if first == 0 else first)
        await press(pilot, "n", "left_square_bracket")
        assert screen.time_us == (second if first == 0 else first)
        await press(pilot, "O", "M", "M", "m")
        assert screen.time_us == (second if first == 0 else first) + 1_100_000
        await press(pilot, "o", "home")
        assert screen.time_us == 0
        await press(pilot, "m")
        assert screen.time_us == 0
        await press(pilot, "end")
        assert screen.time_us == max(left.end_us, right.end_us)
        await press(pilot, "n")
        assert screen.time_us == max(left.end_us, right.end_us)
        assert "Every request is in the same state on both sides." in screen_text(app)


async def test_it_goes_to_times_steps_and_requests(recording: Recording) -> None:
    app = Alone(twin(recording))
    async with app.run_test(size=(140, 40)) as pilot:
        screen = app.twin
        left = screen.view().sides[0]
        name, life = list(left.lives.items())[9]
        for place, time_us in (
            ("nobody", 0),
            ("1.5s", 1_500_000),
            (name, life.sent_us),
            ("7", left.begins_us[7]),
            ("nobody", left.begins_us[7]),
        ):
            await press(pilot, "g")
            app.screen.query_one(Input).value = place
            await press(pilot, "enter")
            assert screen.time_us == time_us, place
            if place == "nobody":
                await press(pilot, "escape")


async def test_time_runs_pauses_and_ends(recording: Recording) -> None:
    app = Alone(twin(recording))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = app.twin
        await press(pilot, "c")
        assert screen.busy
        screen._played_s -= 1.0
        screen.tick()
        assert screen.time_us >= 1_000_000
        await press(pilot, "space")
        paused = screen.time_us
        screen.tick()
        assert (screen.busy, screen.time_us) == (False, paused)
        await press(pilot, "c")
        screen._played_s -= 100.0
        screen.tick()
        assert (screen.busy, screen.time_us) == (False, screen.view().end_us)


async def test_the_same_server_parts_nowhere(recording: Recording, tmp_path: Path) -> None:
    own = recorded(experiment(), tmp_path / "same")
    app = Alone(twin(own, seed=7))
    async with app.run_test(size=(140, 40)) as pilot:
        await press(pilot, "D")
        assert app.twin.time_us == 0
        assert "All batches are the same" in screen_text(app)


async def test_a_recording_without_steps_has_one_simulation(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    recorded(experiment(), folder)
    (folder / "steps.csv").unlink()
    app = Alone(twin(read_recording(folder), seed=7))
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "t", "end")
        assert app.twin.rung == 0
        assert "its steps were not recorded" in screen_text(app)
        assert "Divergence: unknown without an engine log" in screen_text(app)


async def test_the_simulation_opens_in_the_debugger_at_that_time(recording: Recording) -> None:
    app = Alone(twin(recording))
    async with app.run_test(size=(140, 40)) as pilot:
        await press(pilot, "O", "enter")
        assert isinstance(app.screen, DebuggerScreen)


async def test_what_is_shown_is_written(
    recording: Recording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file_regression: FileRegressionFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Alone(twin(recording))
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "D", "x")
        app.screen.query_one(Input).value = "here.txt"
        await press(pilot, "enter")
    file_regression.check((tmp_path / "here.txt").read_text(encoding="utf-8"))


# ---- from outside ----


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BlisApp]:
    """A terminal, and the applications that would take it over."""
    apps: list[BlisApp] = []
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(command, "_run", apps.append)
    return apps


async def test_the_terminal_starts_with_a_twin(recording: Recording, started: list[BlisApp]) -> None:
    changes = ("--set", "cluster.instances=1", "--seed", "5")
    result = CliRunner().invoke(cli, ["tui", "quickstart", "--twin", str(recording.folder), *changes])
    assert result.exit_code == ExitCode.OK, result.output
    (app,) = started
    assert isinstance(app.start, TwinStart)
    assert app.start.source == "quickstart"
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, TwinScreen)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tui", "quickstart", "--twin", "nowhere"], ExitCode.IO, "nowhere"),
        (["tui", "quickstart", "--twin", "R", "--at", "1s"], ExitCode.USAGE, "cannot be used with --twin"),
        (["tui", "quickstart", "--twin", "R", "--axis", "seed=1..2"], ExitCode.USAGE, "not to a study"),
        (["tui", "--twin", "R"], ExitCode.USAGE, "give its name as SPEC"),
        (["tui", "quickstart", "--twin", "R", "--set", "engin.x=1"], ExitCode.USAGE, "unknown key `engin`"),
    ],
)
def test_what_is_wrong_is_said_on_the_ordinary_screen(
    recording: Recording, started: list[BlisApp], arguments: list[str], code: ExitCode, said: str
) -> None:
    words = [str(recording.folder) if word == "R" else word for word in arguments]
    result = CliRunner().invoke(cli, words)
    assert said in result.output
    assert result.exit_code == code
    assert not started
