"""Golden tests on the screen: looking, deciding, checking."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from textual.app import App
from textual.widgets import Input

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import BlisError
from blis_tui.cli.main import cli
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import HEADER, GoldenFiles, files_of
from blis_tui.golden.produce import produce
from blis_tui.golden.review import accept, survey
from blis_tui.golden.session import Outcome
from blis_tui.runs.divergence import record_text
from blis_tui.spec.user_plugins import load_plugins
from blis_tui.tui.bars import TitleBar
from blis_tui.tui.screens import goldens as goldens_screen
from blis_tui.tui.screens.goldens import (
    GoldenList,
    GoldensScreen,
    check,
    checked,
    decision,
    difference,
    matching,
    name_width,
    prepare,
    row,
)
from blis_tui.tui.screens.why import WhyScreen
from blis_tui.tui.screens.windows import ConfirmScreen
from tests.golden.projects import SPEC
from tests.tui.screens import check_screen, press, screen_text, settle

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.pilot import Pilot

    from blis_tui.golden.review import GoldenEntry
    from blis_tui.model import Experiment

CHANGED = SPEC.replace("kv_blocks: 60", "kv_blocks: 90")
CASES = SPEC + "cases:\n  calm: {workload.rate_per_s: 5}\n  rush: {workload.rate_per_s: 50}\n"


class Alone(App[None]):
    """Nothing but the list of goldens; remembers what it was asked to compare."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]  # noqa: RUF012  (Textual's way)

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[tuple[Experiment, Experiment, tuple[str, str], int | None]] = []

    def on_mount(self) -> None:
        self.push_screen(GoldensScreen())

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], event: int | None = None
    ) -> None:
        self.compared.append((left, right, names, event))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, not on CI."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("CI", raising=False)
    return work


def write(folder: Path, name: str, text: str = SPEC) -> Path:
    path = folder / f"{name}.blis.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def store(folder: Path, name: str, *, pending: bool = False) -> list[GoldenFiles]:
    """Store what an experiment gives now, as golden or waiting."""
    spec = folder / f"{name}.blis.yaml"
    found = []
    for case in cases_of(spec):
        place = files_of(spec, case.name, folder=folder / "golden", root=folder)
        place.write(produce(case.load(), spec=spec.name, case=case.name), pending=pending)
        found.append(place)
    return found


def changed(folder: Path, name: str) -> GoldenFiles:
    """A golden test whose experiment has changed, with the new result waiting."""
    write(folder, name)
    store(folder, name)
    write(folder, name, CHANGED)
    return store(folder, name, pending=True)[0]


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one golden test of each kind; only copies of it are worked in."""
    folder = tmp_path_factory.mktemp("one-of-each")
    changed(folder, "alpha")
    write(folder, "beta", CASES)
    store(folder, "beta", pending=True)
    write(folder, "gamma")
    store(folder, "gamma")
    write(folder, "gone")
    store(folder, "gone")
    (folder / "gone.blis.yaml").unlink()
    write(folder, "torn")
    store(folder, "torn")[0].file(HEADER).write_text("{", encoding="utf-8")
    write(folder, "wrong")
    store(folder, "wrong")
    write(folder, "wrong", SPEC.replace("kv_blocks", "kv_block"))
    return folder


@pytest.fixture
def project(folder: Path, one_of_each: Path) -> Path:
    """The working folder, with one of each kind."""
    return shutil.copytree(one_of_each, folder, dirs_exist_ok=True)


def entries(folder: Path) -> dict[str, GoldenEntry]:
    return {entry.name: entry for entry in survey(folder / "golden", folder)}


def states(folder: Path) -> dict[str, str]:
    return {name: entry.state for name, entry in entries(folder).items()}


def cursor(app: App[None]) -> str:
    entry = app.screen.query_one(GoldenList).current
    return "" if entry is None else entry.name


def asks(app: App[None]) -> bool:
    return isinstance(app.screen, ConfirmScreen)


def said(app: App[None]) -> str:
    return "\n".join(f"{note.title} {note.message}" for note in app._notifications)


async def choose(pilot: Pilot[None], name: str) -> None:
    """Put the cursor on a test."""
    await press(pilot, "home")
    while cursor(pilot.app) != name:
        before = pilot.app.screen.query_one(GoldenList).highlighted
        await press(pilot, "down")
        assert pilot.app.screen.query_one(GoldenList).highlighted != before, f"{name} is not listed"


# ---- looking ----


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_how_it_looks(size: tuple[int, int], project: Path, file_regression: FileRegressionFixture) -> None:
    app = Alone()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "goldens")
        await choose(pilot, "torn")
        await check_screen(pilot, file_regression, "goldens-broken")
        await press(pilot, "A")
        await check_screen(pilot, file_regression, "goldens-sure")


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_no_goldens_at_all(size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    app = Alone()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "goldens-none")
        await press(pilot, "a", "r", "c", "v", "A", "slash", "escape", "u")
        assert "There is no golden yet." in screen_text(app)


async def test_every_golden_can_be_looked_at(project: Path) -> None:
    app = Alone()
    expected = {
        "alpha": "first divergence: event",
        "beta@calm": '"meta": {',
        "gamma": "This is the accepted result.",
        "gone": "No experiment has this test any more",
        "torn": "is not a golden file of format 1",
        "wrong": "BLIS1001",
    }
    async with app.run_test(size=(140, 60)) as pilot:
        await settle(pilot)
        assert cursor(app) == "alpha"
        for name, text in expected.items():
            await choose(pilot, name)
            assert text in screen_text(app), name


async def test_a_question_mark_explains_the_state_of_a_golden(project: Path) -> None:
    app = Alone()
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        for name, expected in (
            ("alpha", ("waits for a decision", "a makes the new result the golden", "first divergence")),
            ("gamma", ("is accepted", "c runs the test now")),
            ("gone", ("no experiment has this test",)),
            ("torn", ("cannot be read", "is not a golden file of format 1")),
        ):
            await choose(pilot, name)
            await press(pilot, "question_mark")
            assert isinstance(app.screen, WhyScreen)
            text = " ".join(app.screen._explanation.to_text().split())
            for words in expected:
                assert words in text
            await press(pilot, "escape")
        await choose(pilot, "gamma")
        await press(pilot, "question_mark", "g")
        assert "no other result waits" in said(app)


async def test_an_orphan_that_waits_can_still_be_rejected(folder: Path) -> None:
    changed(folder, "alpha")
    (folder / "alpha.blis.yaml").unlink()
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "no longer has the case" in screen_text(app)
        await press(pilot, "r")
        assert not entries(folder)["alpha"].waiting


async def test_a_search_narrows_the_list(project: Path) -> None:
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"beta rush")
        assert cursor(app) == "beta@rush"
        assert "gamma" not in screen_text(app)
        await press(pilot, *"xx")
        assert "Nothing matches" in screen_text(app)
        await press(pilot, "escape")
        assert "gamma" in screen_text(app)
        assert not app.screen.query_one(Input).display


# ---- deciding ----


async def test_accepting_makes_it_the_golden_and_goes_on_to_the_next(project: Path) -> None:
    new = changed(project, "alpha").read(pending=True).report
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "a")
        assert states(project)["alpha"] == "golden"
        assert entries(project)["alpha"].files.read().report == new
        assert cursor(app) == "beta@calm"
        assert "accepted: alpha. To undo: git checkout -- golden/alpha.*" in said(app)
        await press(pilot, "r")
        assert "rejected: beta@calm. To undo, run pytest" in said(app)
        assert "beta@calm" not in states(project)
        assert cursor(app) == "beta@rush"
        assert "beta@calm" not in screen_text(app).split("─")[0]


@pytest.mark.parametrize("key", ["a", "r"])
async def test_a_result_that_nobody_was_shown_is_not_decided_on(key: str, folder: Path) -> None:
    place = changed(folder, "alpha")
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        write(folder, "alpha", CHANGED.replace("kv_blocks: 90", "kv_blocks: 120"))
        store(folder, "alpha", pending=True)  # pytest has run again
        await press(pilot, key)
        assert "alpha has got another new result since this one was shown" in said(app)
        assert states(folder)["alpha"] == "changed"
        await settle(pilot)
        new = place.read(pending=True).report
        await press(pilot, key)
        assert states(folder)["alpha"] == "golden"
        assert (place.read().report == new) == (key == "a")


async def test_all_that_is_listed_is_decided_after_a_question(project: Path) -> None:
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"beta", "enter", "A")
        assert asks(app)
        await press(pilot, "n")
        assert states(project)["beta@calm"] == "new"
        await press(pilot, "A", "y")
        found = states(project)
        assert (found["alpha"], found["beta@calm"], found["beta@rush"]) == ("changed", "golden", "golden")
        await press(pilot, "escape", "R", "enter")
        assert states(project)["alpha"] == "golden"
        await press(pilot, "R")
        assert not asks(app)
        assert "No result is waiting." in said(app)


async def test_a_result_of_another_machine_is_refused_with_a_hint(folder: Path) -> None:
    place = changed(folder, "alpha")
    header = json.loads(place.file(HEADER).read_text(encoding="utf-8"))
    header["baseline"]["system"] = "Plan9 vax"
    place.file(HEADER).write_text(to_json(header), encoding="utf-8")
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "a")
        assert states(folder)["alpha"] == "changed"
        assert "Not accepted" in said(app)
        assert "Plan9 vax" in said(app)
        assert "help: produce it again there, or accept it with --force" in said(app)


async def test_where_nothing_waits_there_is_nothing_to_decide(project: Path) -> None:
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert " a accept  r reject " in screen_text(app)
        await choose(pilot, "gamma")
        assert "accept  r reject" not in screen_text(app)
        await press(pilot, "a", "r")
        assert states(project)["gamma"] == "golden"


def test_what_was_accepted_says_how_to_undo_it(project: Path) -> None:
    known = {entry.name: entry for entry in survey(Path("golden"), Path())}
    alpha, calm, rush = known["alpha"], known["beta@calm"], known["beta@rush"]
    assert decision([calm], "accepted") == "accepted: beta@calm. To undo: delete golden/beta@calm.*"
    assert decision([alpha, calm, rush], "accepted") == (
        "accepted: 3. To undo: git checkout -- golden/alpha.*; delete golden/beta@calm.* golden/beta@rush.*"
    )
    assert decision([alpha] * 4, "accepted").endswith("golden/alpha.* golden/alpha.* golden/alpha.* …")


# ---- checking ----


async def test_the_plug_ins_of_the_project_are_known(folder: Path) -> None:
    """Those that pytest's configuration names; one that cannot be read is told."""
    (folder / "pytest.ini").write_text("[pytest]\nblis_plugins = own.py\n", encoding="utf-8")
    text = "from blis_tui.plugins import SCHEDULING, FcfsQueue\n"
    text += '@SCHEDULING.plugin("mine", "For tests.")\ndef mine(settings): return FcfsQueue()\n'
    (folder / "own.py").write_text(text, encoding="utf-8")
    spec = write(folder, "alpha", SPEC.replace("policy: blis", "policy: {scheduling: mine}"))
    (case,) = cases_of(spec, load_plugins([folder / "own.py"]))
    files_of(spec, case.name, folder=folder / "golden", root=folder).write(
        produce(case.load(), spec=spec.name, case=case.name)
    )
    app = Alone()
    async with app.run_test(size=(100, 50), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "c")
        assert "matches the golden" in screen_text(app)
        (folder / "own.py").unlink()
        await press(pilot, "u")
        assert "cannot read the plug-ins" in " ".join(screen_text(app).split())


async def test_a_check_says_equal_or_leaves_a_new_result(folder: Path) -> None:
    write(folder, "alpha")
    store(folder, "alpha")
    app = Alone()
    async with app.run_test(size=(100, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "c")
        assert "matches the golden" in screen_text(app)
        assert states(folder) == {"alpha": "golden"}
        write(folder, "alpha", CHANGED)
        await press(pilot, "c")
        assert "differs from the golden" in screen_text(app)
        assert states(folder) == {"alpha": "changed"}
        assert "first divergence" in screen_text(app)
        await press(pilot, "a")
        assert "another result" not in screen_text(app)


async def test_on_ci_a_check_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "alpha")
    store(folder, "alpha")
    write(folder, "alpha", CHANGED)
    monkeypatch.setenv("CI", "true")
    app = Alone()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "c")
        assert "nothing was written, because this runs on CI" in screen_text(app)
        assert states(folder) == {"alpha": "golden"}


def test_a_check_that_is_stopped_leaves_everything_as_it_was(folder: Path) -> None:
    write(folder, "alpha")
    accept(store(folder, "alpha", pending=True)[0])
    write(folder, "alpha", CHANGED.replace("requests: 25", "requests: 4000"))
    told: list[str] = []

    def stop(share: str) -> bool:
        told.append(share)
        return False

    assert check(entries(folder)["alpha"], folder, stop) is None
    assert len(told) == 1
    assert told[0].endswith(" %")
    assert states(folder) == {"alpha": "golden"}


async def test_escape_stops_a_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "alpha")
    store(folder, "alpha")
    asked: list[bool] = []

    def endless(_entry: GoldenEntry, _root: Path, goes_on: object, _plugins: object) -> None:
        assert callable(goes_on)
        while goes_on("7 %"):
            asked.append(True)

    monkeypatch.setattr("blis_tui.tui.screens.goldens.check", endless)
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("c")
        while "checking alpha 7 %" not in screen_text(app):
            await pilot.pause()
        await press(pilot, "escape")
        while "checking" in screen_text(app):
            await pilot.pause()
        assert asked
        assert "1 golden" in screen_text(app)


def test_a_check_that_cannot_run_says_why(folder: Path) -> None:
    place = changed(folder, "alpha")
    entry = entries(folder)["alpha"]
    write(folder, "alpha", SPEC.replace("kv_blocks", "kv_block"))
    with pytest.raises(BlisError, match="BLIS1001"):
        check(entry, folder, lambda _share: True)
    (folder / "alpha.blis.yaml").unlink()
    with pytest.raises(BlisError, match="no longer has the case"):
        check(entry, folder, lambda _share: True)
    place.remove()
    with pytest.raises(BlisError, match="cannot read"):
        check(entry, folder, lambda _share: True)


# ---- both runs ----


async def test_both_runs_are_opened_where_they_part(folder: Path) -> None:
    changed(folder, "alpha")
    app = Alone()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "enter")
        await press(pilot, "v")
    assert len(app.compared) == 2
    left, right, names, event = app.compared[0]
    assert (left.pools[0].engine.kv_blocks, right.pools[0].engine.kv_blocks) == (60, 90)
    assert names == ("alpha (golden)", "alpha (now)")
    assert event
    assert event > 1


def test_a_golden_of_another_engine_is_said_to_be_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(folder, "alpha")
    monkeypatch.setattr(goldens_screen, "ENGINE", "99")
    prepared = prepare(entries(folder)["alpha"], folder)
    assert "as this engine runs it" in prepared.note


def test_a_golden_that_cannot_be_run_again_is_an_error_with_a_hint(folder: Path) -> None:
    place = changed(folder, "alpha")
    header = json.loads(place.file(HEADER).read_text(encoding="utf-8"))
    header["document"] = {"apiVersion": "blis/v0"}
    place.file(HEADER).write_text(to_json(header), encoding="utf-8")
    message = "(?s)can no longer build the experiment of the golden alpha.*help:"
    with pytest.raises(BlisError, match=message):
        prepare(entries(folder)["alpha"], folder)


def test_a_result_of_what_the_experiment_no_longer_is_is_not_compared_with_it(folder: Path) -> None:
    changed(folder, "alpha")
    spec = folder / "alpha.blis.yaml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("kv_blocks: 90", "kv_blocks: 80"), encoding="utf-8")
    with pytest.raises(BlisError, match="has changed since this result was made: run pytest again"):
        prepare(entries(folder)["alpha"], folder)


# ---- presenters ----


def test_rows_are_as_wide_as_there_is_room(project: Path) -> None:
    listed = tuple(entries(project).values())
    for width in (24, 30, 40, 61, 78, 138):
        names = name_width(listed, width)
        for entry in listed:
            text = row(entry, names, width).plain
            assert len(text) <= width
            assert entry.state in text


async def test_the_title_says_what_golden_status_says(project: Path) -> None:
    """Each test is counted in one state, although those that changed or are new also wait."""
    status = CliRunner().invoke(cli, ["golden", "status"]).stdout.splitlines()[-1]
    whole, *parts = map(int, re.findall(r"\d+", status.partition(";")[0]))
    assert whole == sum(parts) == len(entries(project))
    app = Alone()
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        assert app.screen.query_one(TitleBar).right.plain == status


def test_a_search_finds_by_words_of_any_part(project: Path) -> None:
    listed = tuple(entries(project).values())
    assert [entry.name for entry in matching(listed, "NEW calm")] == ["beta@calm"]
    assert matching(listed, "  ") == listed


def test_records_are_told_in_words_that_wrap_below_each_other() -> None:
    record = record_text({"event": 62, "time_us": 19, "kind": "step", "chunks": [], "running": 5, "next_step_us": 194})
    text = difference(f"title\nfirst divergence: event 62\n  - {record}", 50).plain
    assert text.splitlines() == [
        "first divergence: event 62",
        "  - event 62  0.000 019 s  step  running=5",
        "        next_step_us=194",
    ]


def test_verdicts_are_words() -> None:
    assert checked(Outcome(status="equal", text="")).plain == "✓ checked just now: matches the golden"
    unexpected = checked(Outcome(status="unexpected", text="expected: x is 3")).plain
    assert unexpected.endswith("expected: x is 3")
    assert "nondeterministic" in checked(Outcome(status="nondeterministic", text="")).plain
