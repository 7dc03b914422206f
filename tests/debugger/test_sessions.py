"""Sessions: what is remembered comes back, and nothing that is wrong with a file or a folder is an exception."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blis_tui.debugger.moments import Moment, to_data
from blis_tui.debugger.saved_sessions import FORMAT, STATE_VARIABLE, Session, load, save, session_path, state_folder

KEPT = Moment(event=3, time_us=9_038, what="routed request_0", sentence="request_0 routed", sha256="ab", name="first")
FULL = Session(
    "quickstart",
    1234,
    (("preempted", True), ('request "日本"', False)),
    {"active": "kv", "speed": 2.5, "wide": True, "size": 3},
    (KEPT,),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    monkeypatch.setenv(STATE_VARIABLE, str(state))
    return state


def test_what_is_saved_comes_back(folder: Path) -> None:
    assert save(FULL) == ""
    session = load("quickstart")
    assert session == FULL
    assert session.problem == ""
    assert session_path("quickstart").parent == folder / "sessions"
    assert [path.suffix for path in (folder / "sessions").iterdir()] == [".json"]


def test_saving_again_replaces(folder: Path) -> None:
    save(FULL)
    save(Session("quickstart", 7))
    assert load("quickstart") == Session("quickstart", 7)


def test_one_that_could_not_be_read_again_does_not_replace_the_last(folder: Path) -> None:
    assert save(FULL) == ""
    long = Moment(event=1, time_us=1, what="", sentence="", sha256="", name="log", note="x" * 1024**2)
    assert "larger than 1 MiB" in save(replace(FULL, moments=(long,)))
    assert load("quickstart") == FULL


def test_the_first_time_is_a_fresh_session_without_complaint() -> None:
    assert load("quickstart") == Session("quickstart")
    assert load("quickstart").problem == ""


def test_a_file_has_one_session_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.blis.yaml"
    path.write_text("x")
    (tmp_path / "link.blis.yaml").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    save(Session(str(path), 5))
    for source in ("./mine.blis.yaml", "mine.blis.yaml", str(tmp_path / "link.blis.yaml"), str(path)):
        assert load(source) == Session(source, 5)
    other = tmp_path / "other" / "mine.blis.yaml"
    assert load(str(other)) == Session(str(other))


def test_a_name_and_the_file_it_stands_for_are_one() -> None:
    own = Path(__file__).parents[2] / "specs" / "experiments" / "quickstart.blis.yaml"
    save(FULL)
    assert load(str(own)).position_event == FULL.position_event


@pytest.mark.parametrize("source", ["-", "no-such-experiment", "", "a\0b.yaml", "\ud800", "x" * 10_000, "日本/語.yaml"])
def test_any_text_can_be_a_source(source: str) -> None:
    wanted = Session(source, 3, (("preempted", True),))
    assert save(wanted) == ""
    assert load(source) == wanted


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"{}", "another version"),
        (json.dumps({"format": FORMAT + 1}).encode(), "another version"),
        (b" " * (1024 * 1024 + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_used_costs_its_content_and_says_why(content: bytes, reason: str) -> None:
    save(FULL)
    session_path("quickstart").write_bytes(content)
    session = load("quickstart")
    assert session == Session("quickstart")
    assert session.problem.startswith("The last session could not be restored: ")
    assert reason in session.problem
    assert session.problem.endswith(".")
    assert save(FULL) == ""
    assert load("quickstart") == FULL


@pytest.mark.parametrize(
    ("changes", "expected", "lost"),
    [
        ({"position_event": -1}, replace(FULL, position_event=0), "the position"),
        (
            {"position_event": True},
            replace(FULL, position_event=0),
            "the position",
        ),
        (
            {"position_event": "9"},
            replace(FULL, position_event=0),
            "the position",
        ),
        ({"breakpoints": None}, Session("quickstart", 1234, (), FULL.layout, FULL.moments), "some breakpoints"),
        (
            {
                "breakpoints": [
                    {"text": "step", "enabled": True},
                    {"text": 5, "enabled": True},
                    {"text": "a"},
                    "b",
                    None,
                ]
            },
            Session("quickstart", 1234, (("step", True),), FULL.layout, FULL.moments),
            "some breakpoints",
        ),
        ({"layout": []}, Session("quickstart", 1234, FULL.breakpoints, {}, FULL.moments), "some of the layout"),
        (
            {"layout": {"tab": "kv", "odd": {"deep": 1}, "none": None}},
            Session("quickstart", 1234, FULL.breakpoints, {"tab": "kv"}, FULL.moments),
            "some of the layout",
        ),
        ({"moments": None}, Session("quickstart", 1234, FULL.breakpoints, FULL.layout), "some moments"),
        (
            {"moments": [{"event": True}, None, to_data([KEPT])[0]]},
            Session("quickstart", 1234, FULL.breakpoints, FULL.layout, (KEPT,)),
            "some moments",
        ),
    ],
)
def test_what_makes_no_sense_in_a_file_is_left_out(changes: dict[str, object], expected: Session, lost: str) -> None:
    save(FULL)
    path = session_path("quickstart")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    session = load("quickstart")
    assert session == expected
    assert session.problem == f"The last session was restored without {lost}: its file is damaged."


def test_a_folder_that_cannot_be_made_costs_a_sentence(folder: Path) -> None:
    folder.write_text("a file stands in the way")
    assert save(FULL).startswith("The session could not be saved: cannot make the folder ")
    assert load("quickstart").problem.startswith("The last session could not be restored: ")


def test_a_file_that_cannot_be_written_costs_a_sentence() -> None:
    session_path("quickstart").mkdir(parents=True)
    assert save(FULL).startswith("The session could not be saved: cannot write ")
    assert load("quickstart").problem.startswith("The last session could not be restored: ")


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_read_only_folder_costs_a_sentence(folder: Path) -> None:
    (folder / "sessions").mkdir(parents=True)
    (folder / "sessions").chmod(0o500)
    assert save(FULL).startswith("The session could not be saved: cannot write ")


def test_a_file_appears_whole_or_not_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(FULL)

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    assert "No space left on device" in save(Session("quickstart", 1))
    monkeypatch.undo()
    monkeypatch.setenv(STATE_VARIABLE, str(folder))
    assert load("quickstart") == FULL
    assert len(list((folder / "sessions").iterdir())) == 1


def test_without_the_variable_it_is_the_users_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(STATE_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder().name == "blis-tui"


PLAIN = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
JSON = st.recursive(
    st.none() | PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


MOMENT = {
    **dict.fromkeys(("event", "time_us"), st.integers(0, 2**70)),
    **dict.fromkeys(("what", "sentence", "sha256", "name", "note"), st.text()),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**70),
    st.lists(st.tuples(st.text(), st.booleans())).map(tuple),
    st.dictionaries(st.text(), PLAIN),
    st.lists(st.builds(Moment, **MOMENT), max_size=3),
)
def test_every_session_comes_back(
    position: int,
    breakpoints: tuple[tuple[str, bool], ...],
    layout: dict[str, bool | float | str],
    moments: list[Moment],
) -> None:
    kept = {moment.event: moment for moment in moments}
    wanted = Session("quickstart", position, breakpoints, layout, tuple(kept[event] for event in sorted(kept)))
    assert save(wanted) == ""
    assert load("quickstart") == wanted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {"format": st.just(FORMAT)},
        optional={"position_event": JSON, "breakpoints": JSON, "layout": JSON, "moments": JSON},
    )
)
def test_any_content_gives_a_session_that_can_be_saved(content: dict[str, object]) -> None:
    save(FULL)
    session_path("quickstart").write_text(json.dumps(content))
    session = load("quickstart")
    assert save(session) == ""
    assert load("quickstart") == session
