"""The list of experiments."""

from __future__ import annotations

import json
import stat
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input, Static

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import InputError
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import files_of
from blis_tui.golden.produce import produce
from blis_tui.spec.load import load
from blis_tui.tui import catalog
from blis_tui.tui.app import BlisApp
from blis_tui.tui.catalog import Checked, Found, GoldenState, check, facts_of, find_documents, golden_states
from blis_tui.tui.drawing.lines import problem_text
from blis_tui.tui.screens import home
from blis_tui.tui.screens.error import ErrorScreen
from blis_tui.tui.screens.home import ExperimentList, HomeEntry, HomeScreen, details, matching, name_width, row, summary
from blis_tui.tui.screens.windows import PromptScreen
from tests.tui.screens import check_screen, press, screen_text, settle
from tests.tui.stubs import PLAIN, Opened, replace_screens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_regressions.file_regression import FileRegressionFixture

SIZES = [(80, 24), (140, 40)]


def found(name: str, *, shipped: bool = True) -> Found:
    return Found(Path(f"/x/{name}.blis.yaml"), name, name, f"{name}.blis.yaml", shipped)


# ---- what there is ----


def test_experiments_are_found_below_the_folder_and_shipped(lab: Path) -> None:
    listing = find_documents(lab)
    assert listing.complete
    own = [(one.name, one.source, one.shown) for one in listing.found if not one.shipped]
    assert own == [
        ("broken", "broken.blis.yaml", "broken.blis.yaml"),
        ("mine", "mine.blis.yaml", "mine.blis.yaml"),
        ("other", "deep/er/other.blis.yaml", "deep/er/other.blis.yaml"),
    ]
    shipped = [one.source for one in listing.found if one.shipped and not one.is_study]
    assert shipped == sorted(shipped)
    assert "token-budget" in [one.source for one in listing.found if one.is_study]
    assert "quickstart" in shipped


def test_two_files_of_one_name_show_their_folders(lab: Path) -> None:
    (lab / "deep" / "mine.blis.yaml").write_text((lab / "mine.blis.yaml").read_text())
    assert [one.name for one in find_documents(lab).found if not one.shipped] == [
        "broken",
        "mine",
        "deep/mine",
        "other",
    ]


def test_an_own_experiment_does_not_change_what_a_shipped_line_opens(lab: Path) -> None:
    own = lab / "specs" / "experiments" / "quickstart.blis.yaml"
    own.parent.mkdir(parents=True)
    own.write_text((lab / "mine.blis.yaml").read_text())
    line = next(one for one in find_documents(lab).found if one.shipped and one.name == "quickstart")
    assert load(line.source).name == "quickstart"
    assert line.source == str(line.path)


def test_the_search_is_bounded(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_FOUND", 2)
    listing = find_documents(lab)
    assert not listing.complete
    assert len([one for one in listing.found if not one.shipped]) == 2
    monkeypatch.setattr(catalog, "MAX_FOUND", 500)
    monkeypatch.setattr(catalog, "MAX_FOLDERS", 1)
    assert not find_documents(lab).complete


def test_checking_says_facts_or_problems(lab: Path) -> None:
    by_name = {one.name: check(one) for one in find_documents(lab).found if not one.shipped}
    assert by_name["mine"].facts is not None
    assert by_name["mine"].facts.description == "One H100 serves a handful of chats."
    assert dict(by_name["mine"].facts.lines)["workload"] == "inline: 40 requests, 10/s"
    assert [problem.code for problem in by_name["broken"].problems] == ["BLIS2001", "BLIS2001", "BLIS1006", "BLIS1001"]
    gone = check(Found(lab / "gone.blis.yaml", "gone", "gone", "gone", shipped=False))
    assert "cannot read" in gone.unreadable


def test_facts_of_recorded_and_endless_workloads() -> None:
    assert dict(facts_of(load("trace-replay")).lines)["workload"].endswith("recorded office-morning.csv")
    two = dict(facts_of(load("mixture-of-experts")).lines)
    assert two["cluster"] == "1 instance, 2 GPUs each"


LONE: dict[str, object] = {"id": "c", "input_tokens": 9, "output_tokens": 9}
USERS = {"arrivals": {"kind": "closed-loop", "users": 4}}
ENDING = {"rate_curve": {"points": [{"at_s": 0, "factor": 1}, {"at_s": 9, "factor": 0}]}}


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ({"sessions": 9, "rate_per_s": 2, "clients": [{**LONE, "session": {"turns": 2}}]}, "9 sessions, 2/s"),
        ({"stages": [{"rate_per_s": at, "duration_s": 9} for at in (5, 2)], "clients": [LONE]}, "2 stages, 2 to 5/s"),
        ({"requests": 7, "clients": [{**LONE, **USERS}]}, "7 requests, 4 users"),
        ({"requests": 7, "rate_per_s": 1, "clients": [LONE, {**LONE, "id": "u", **USERS}]}, "7 requests, 1/s, 4 users"),
        ({"rate_per_s": 3, "clients": [{**LONE, **ENDING}]}, "requests until the rate is 0, 3/s"),
    ],
)
def test_facts_say_what_ends_a_workload(workload: dict[str, object], told: str) -> None:
    experiment = load("quickstart", overrides={"workload": workload, "expect": []})
    assert dict(facts_of(experiment).lines)["workload"] == f"inline: {told}"


def test_goldens_are_counted_by_experiment(lab: Path) -> None:
    spec = lab / "mine.blis.yaml"
    case = cases_of(spec)[0]
    place = files_of(spec, case.name, folder=lab / "golden", root=lab)
    result = produce(case.load(), spec="mine.blis.yaml", case=case.name)
    place.write(result)
    assert golden_states(lab) == ({spec.resolve(): GoldenState(golden=1)}, 0)
    place.write(result, pending=True)
    states, lost = golden_states(lab)
    assert states[spec.resolve()].word == "pending"
    place.drop_pending()
    header = json.loads(place.file(".golden.json").read_text())
    header["case"] = "gone"
    place.file(".golden.json").write_text(to_json(header))
    assert golden_states(lab)[0][spec.resolve()].word == "orphan"
    spec.unlink()
    assert golden_states(lab) == ({}, 1)
    assert lost == 0
    place.file(".golden.json").write_text("{}")
    assert golden_states(lab) == ({}, 0)


# ---- how it looks ----


def test_search_is_fuzzy_and_puts_the_best_first() -> None:
    entries = [HomeEntry(found(name)) for name in ("kv-pressure", "steady-chat", "vllm-preemption", "quickstart")]
    assert [entry.found.name for entry in matching(entries, "kvp")] == ["kv-pressure"]
    assert matching(entries, "pre")[0].found.name == "kv-pressure"
    assert matching(entries, "zzz") == ()
    assert matching(entries, " ") == tuple(entries)


def test_odd_names_of_files_can_be_shown(lab: Path) -> None:
    (lab / "two\nlines\udce4.blis.yaml").write_text("")
    odd = next(one for one in find_documents(lab).found if one.name.startswith("two"))
    assert odd.name == "two\ufffdlines\ufffd"
    assert odd.shown == "two\ufffdlines\ufffd.blis.yaml"
    assert check(odd).problems[0].code == "BLIS0007"


@pytest.mark.parametrize("width", [40, 56, 77, 120])
def test_rows_fill_no_more_than_their_line(width: int) -> None:
    wide = Checked(catalog.Facts("\u4e00" * 90 + "\nsecond line", ()))
    entries = [
        HomeEntry(found("wide"), wide),
        HomeEntry(found("a" * 70, shipped=False), check(found("a" * 70)), GoldenState(pending=1), marked=True),
        HomeEntry(found("short"), None),
    ]
    names = name_width(entries, width)
    rows = [row(entry, names, width) for entry in entries]
    assert all(line.cell_length <= width and "\n" not in str(line) for line in rows)


def test_words_of_a_description_are_not_cut() -> None:
    entry = HomeEntry(found("short"), Checked(catalog.Facts("Bursty traffic on one accelerator.", ())))
    said = str(row(entry, 8, 60)).rpartition("  ")[2]
    assert said == "Bursty traffic on one…"


def test_details_put_two_short_facts_in_a_line_where_there_is_room() -> None:
    entry = HomeEntry(
        found("x"), Checked(catalog.Facts("About.", (("model", "m"), ("hardware", "h"), ("policy", "p" * 50))))
    )
    dense = str(details(entry, 78, dense=True)).splitlines()
    assert dense[2].split() == ["model", "m", "hardware", "h"]
    assert "" not in dense
    assert len(str(details(entry, 78)).splitlines()) == len(dense) + 3


def test_the_summary_counts() -> None:
    entry, other = HomeEntry(found("a"), Checked(None, unreadable="no")), HomeEntry(found("b"))
    assert summary([entry, other]) == "2 experiments, checking 1"
    assert summary([entry]) == "1 experiment, 1 with errors"


# ---- the screen ----


async def test_descriptions_come_before_the_first_check(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Event()
    checking: Callable[[Found], Checked] = vars(home)["check"]

    def wait(found: Found) -> Checked:
        allowed.wait(60)
        return checking(found)

    monkeypatch.setattr(home, "check", wait)
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        try:
            early = ""
            for _ in range(1000):  # a thread reads them
                if "One H100 serves" in (early := screen_text(app)):
                    break
                await pilot.pause(0.01)
        finally:
            allowed.set()
        for about in ("Three mistakes.", "One H100 serves a handful of chats.", "checking 0"):
            assert about in early
        assert "✓ ok" not in early
        await settle(pilot)
        assert "✓ ok" in screen_text(app)
        assert "✗ 4 errors" in screen_text(app)


@pytest.mark.parametrize("size", SIZES)
async def test_home(lab: Path, file_regression: FileRegressionFixture, size: tuple[int, int]) -> None:
    app = BlisApp()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "down")
        await check_screen(pilot, file_regression, "home")


@pytest.mark.parametrize("size", SIZES)
async def test_home_with_the_cursor_on_a_broken_experiment(
    lab: Path, file_regression: FileRegressionFixture, size: tuple[int, int]
) -> None:
    app = BlisApp()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "home-broken")


@pytest.mark.parametrize("size", SIZES)
async def test_home_in_an_empty_folder(
    empty: Path, file_regression: FileRegressionFixture, size: tuple[int, int]
) -> None:
    app = BlisApp()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert "n writes one" in screen_text(app)
        await check_screen(pilot, file_regression, "home-empty")


@pytest.mark.parametrize("size", SIZES)
async def test_searching(lab: Path, file_regression: FileRegressionFixture, size: tuple[int, int]) -> None:
    app = BlisApp()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"pre")
        await check_screen(pilot, file_regression, "home-search")
        shown = app.screen.query_one(ExperimentList)
        assert [option.id for option in shown.options if option.id]
        await press(pilot, *"zzz")
        assert "No name matches 'prezzz'. esc shows all" in screen_text(app)
        assert "  experiment  check      golden" in screen_text(app)
        await pilot.resize_terminal(size[0] + 40, size[1])
        await settle(pilot)
        assert "  experiment  check      golden" in screen_text(app)
        await press(pilot, "escape")
        assert app.screen.query_one(Input).value == ""
        assert "In this folder" in screen_text(app)
        assert app.focused is shown


async def test_short_names_leave_room_for_their_heading(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"sjf")
        assert "  experiment  check      golden" in screen_text(app)


async def test_enter_opens_what_was_found(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"mine", "enter")
        assert isinstance(app.screen, Opened)
        assert app.screen.named == {"source": "mine.blis.yaml", "at": None, "breaks": (), "overrides": ()} | PLAIN
        assert getattr(app.screen.arguments[0], "name", "") == "mine"
        await press(pilot, "q")
        assert isinstance(app.screen, HomeScreen)
        assert app.return_code is None
        await pilot.press("q")
        assert app.return_code == 0


async def test_a_broken_experiment_shows_its_problems_and_can_be_mended(
    lab: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture
) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "enter")
        await check_screen(pilot, file_regression, "error")
        await pilot.resize_terminal(140, 40)
        await settle(pilot)
        await check_screen(pilot, file_regression, "error")
        await press(pilot, "r")
        assert "4 problems" in screen_text(app)
        await press(pilot, "e")
        assert "No editor is set" in screen_text(app)
        edited = use_editor(monkeypatch, lab.parent, "cp mine.blis.yaml broken.blis.yaml")
        suspendable(monkeypatch, app)
        await press(pilot, "e")
        assert isinstance(app.screen, Opened)
        assert edited.read_text().split() == ["+4", "broken.blis.yaml"]
        await press(pilot, "q")
        assert isinstance(app.screen, HomeScreen)
        assert "all valid" in screen_text(app)  # the list has looked again


async def test_long_errors_are_wrapped_and_quoted_lines_are_scrolled_to(lab: Path) -> None:
    (lab / "broken.blis.yaml").write_text("model: [a,\n" + "name: " + "x" * 76 + "\n  y: }\n")
    app = BlisApp()
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "enter")
        text = screen_text(app)
        assert isinstance(app.screen, ErrorScreen)
        shown = " ".join(text.split())
        for diagnostic in app.screen._diagnostics:
            assert diagnostic.message in shown
        assert app.screen.query_one(Static).size.width > 0
        await pilot.resize_terminal(140, 40)
        await settle(pilot)
        assert app.screen._diagnostics[0].message in screen_text(app)


def test_sentences_are_wrapped_and_quoted_lines_are_not() -> None:
    quoted = "4 | " + "word " * 20
    printed = (
        f"error[BLIS1001]: {'many words ' * 8}\n --> a.yaml:4:1\n  |\n{quoted}\n  | ^^^^\n  = help: {'do it ' * 12}"
    )
    lines = problem_text(printed, 40).plain.splitlines()
    assert quoted.rstrip() in [line.rstrip() for line in lines]
    others = [line for line in lines if not line.startswith("4 |")]
    assert max(map(len, others)) <= 40
    assert " ".join(" ".join(lines).split()) == " ".join(printed.split())
    assert lines[1].startswith("  many")
    assert lines[-1].startswith(" " * len("  = help: "))
    assert problem_text(printed).plain == printed


async def test_what_is_refused_on_enter_stays_to_be_corrected(empty: Path) -> None:
    asked: list[str] = []

    def refuse(text: str) -> None:
        asked.append(text)
        if text != "good":
            raise InputError("error[BLIS1]: " + "a reason " * 60)

    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        given: list[str | None] = []
        app.push_screen(PromptScreen("Ask", "About.", on_enter=refuse), given.append)
        await settle(pilot)
        await press(pilot, *"goo")
        assert asked == []
        await press(pilot, "enter")
        assert app.screen.query_one(Input).value == "goo"
        text = screen_text(app)
        assert "error[BLIS1]: a reason" in text
        assert "╰" in text  # the window ends on the screen
        await press(pilot, *["down"] * 9)
        assert "error[BLIS1]" not in screen_text(app)
        await press(pilot, "d")
        assert "a reason" not in screen_text(app)
        await press(pilot, "enter")
        assert (given, asked) == (["good"], ["goo", "good"])


def use_editor(monkeypatch: pytest.MonkeyPatch, folder: Path, does: str) -> Path:
    """Set $EDITOR to a program that writes down its arguments, then does something; returns the file it writes."""
    told = folder / "told"
    program = folder / "vim"
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\n{does}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(program))
    return told


def suspendable(monkeypatch: pytest.MonkeyPatch, app: BlisApp) -> None:
    """A test has no terminal to hand over."""

    @contextmanager
    def suspend() -> Iterator[None]:
        yield

    monkeypatch.setattr(app, "suspend", suspend)


async def test_editing_goes_to_the_first_problem_and_checks_again(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = use_editor(monkeypatch, lab.parent, "cp mine.blis.yaml broken.blis.yaml")
    app = BlisApp()
    suspendable(monkeypatch, app)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await settle(pilot)
        assert "✗ 4 errors" in screen_text(app)
        await press(pilot, "e")
        assert told.read_text().split() == ["+4", "broken.blis.yaml"]
        assert "all valid" in screen_text(app)
        cursor = app.screen.query_one(ExperimentList).cursor_path
        assert cursor == lab / "broken.blis.yaml"


async def test_shipped_experiments_are_not_edited(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = use_editor(monkeypatch, lab.parent, "true")
    app = BlisApp()
    suspendable(monkeypatch, app)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "end", "e")
        assert "is shipped with blis-tui: read-only" in screen_text(app)
    assert not told.exists()


@pytest.mark.parametrize("size", SIZES)
async def test_a_new_experiment(
    empty: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture, size: tuple[int, int]
) -> None:
    replace_screens(monkeypatch)
    (empty / "taken.blis.yaml").write_text("")
    app = BlisApp()
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "n")
        await check_screen(pilot, file_regression, "new")
        await press(pilot, *"taken", "enter")
        assert "taken.blis.yaml exists already." in screen_text(app)
        await check_screen(pilot, file_regression, "new-taken")
        await press(pilot, "space")
        assert "'taken ' is not a valid name" not in screen_text(app)
        await press(pilot, *"Up")
        assert "is not a valid name" in screen_text(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, HomeScreen)
        await press(pilot, "n", *"mine", "enter")
        assert "Wrote mine.blis.yaml." in screen_text(app)
        assert "No editor is set" in screen_text(app)
        assert app.screen.query_one(ExperimentList).cursor_path == empty / "mine.blis.yaml"
        assert load(empty / "mine.blis.yaml").name == "mine"
        await press(pilot, "enter")
        assert isinstance(app.screen, Opened)


async def test_two_marked_experiments_are_compared(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "down", "space", "down", "space")
        assert screen_text(app).count("● ") == 2
        await press(pilot, "v")
        assert isinstance(app.screen, Opened)
        left, right, names, *_ = app.screen.arguments
        assert (getattr(left, "seed", 0), getattr(right, "seed", 0)) == (7, 8)
        assert names == ("mine", "other")
        await press(pilot, "q", "up", "up", "space")
        assert screen_text(app).count("● ") == 2


async def test_one_experiment_is_compared_with_a_change(
    lab: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture
) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "down", "v")
        await check_screen(pilot, file_regression, "compare-with")
        await press(pilot, *"seed", "enter")
        assert "'seed' has no value" in screen_text(app)
        await press(pilot, "equals_sign", "9", "enter")
        assert isinstance(app.screen, Opened)
        left, right, names, *_ = app.screen.arguments
        assert (getattr(left, "seed", 0), getattr(right, "seed", 0)) == (7, 9)
        assert names == ("mine", "mine seed=9")


async def test_a_change_that_is_wrong_is_explained(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "down", "v", *"sede=9", "enter")
        assert "unknown key `sede`" in screen_text(app)
        await press(pilot, "q")
        assert isinstance(app.screen, HomeScreen)


async def test_reloading_finds_what_is_new(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "down")
        (lab / "another.blis.yaml").write_text((lab / "mine.blis.yaml").read_text())
        (lab / "broken.blis.yaml").unlink()
        await press(pilot, "r")
        text = screen_text(app)
        assert "another" in text
        assert "broken" not in text
        assert app.screen.query_one(ExperimentList).cursor_path == lab / "mine.blis.yaml"


async def test_a_click_opens(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.click(ExperimentList, offset=(10, 2))
        await settle(pilot)
        assert isinstance(app.screen, Opened)
        assert app.screen.named["source"] == "mine.blis.yaml"


async def test_a_new_experiment_is_seen_although_the_list_was_narrowed(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        monkeypatch.setattr(app, "suspend", nullcontext)
        await settle(pilot)
        await press(pilot, "slash", *"broken")
        app.screen.query_one(ExperimentList).focus()
        await press(pilot, "n", *"fresh", "enter")
        assert (lab / "fresh.blis.yaml").exists()
        assert app.screen.query_one(Input).value == ""
        assert app.screen.query_one(ExperimentList).cursor_path == lab / "fresh.blis.yaml"
