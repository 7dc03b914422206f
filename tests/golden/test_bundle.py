"""A run as one file: what it holds, how it opens elsewhere, and what is told where it does not fit."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.base.errors import BlisError, InputError
from blis_tui.golden.bundle import pack, unpacked, verified
from blis_tui.golden.golden_store import HEADER, REPORT
from tests.golden.projects import SPEC, blis_in, pytest_in

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL: Final = ["workload.requests=25"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with values of its own, a place and a breakpoint."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "demo.blis.yaml").write_text(SPEC, encoding="utf-8")
    target = folder / "run.blis"
    source = str(folder / "demo.blis.yaml")
    pack(str(target), source, overrides=["engine.kv_blocks=70"], seed=5, at="1.2s", breaks=["preempted"])
    return target


def rewritten(bundle: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A bundle whose members are others."""
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            new.writestr(member, change(member.filename, old.read(member)))
    return target


def test_equal_runs_give_equal_bytes(bundle: Path, tmp_path: Path) -> None:
    again, source = tmp_path / "again.blis", str(bundle.parent / "demo.blis.yaml")
    pack(str(again), source, overrides=["engine.kv_blocks=70"], seed=5, at="1.2s", breaks=["preempted"])
    assert again.read_bytes() == bundle.read_bytes()


def test_it_opens_where_it_was_packed_to_open_with_the_same_results(bundle: Path) -> None:
    with unpacked(str(bundle)) as found:
        experiment = found.case.load()
        assert (experiment.seed, experiment.pools[0].engine.kv_blocks) == (5, 70)
        assert (found.at, found.breaks) == ("1.2s", ("preempted",))
        assert experiment.sha256 == found.golden.spec_sha256
        assert verified(found) == ""
        folder = found.spec.parent
    assert not folder.exists()


@pytest.mark.parametrize("source", ["demo", "trace-replay"])
def test_unpacked_it_is_a_project_whose_golden_holds(source: str, bundle: Path, tmp_path: Path) -> None:
    if source != "demo":
        bundle = tmp_path / "run.blis"
        pack(str(bundle), source)
    with zipfile.ZipFile(bundle) as opened:
        opened.extractall(tmp_path)
    run = pytest_in(tmp_path, CI="true")
    assert run.returncode == 0, run.stdout


def test_from_python_it_gives_what_the_command_line_prints(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with unpacked(str(bundle)) as found:
        report = blis_tui.run(found.case.load()).to_json()
    assert blis_in(bundle.parent, "run", "run.blis").stdout == report
    with pytest.raises(InputError, match=r"run\.blis` is a bundle, not an experiment"):
        blis_tui.run(bundle)
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    code = page[page.index("import blis_tui\nfrom blis_tui.golden.bundle") :].partition("```")[0]
    monkeypatch.chdir(bundle.parent)
    printed: list[str] = []
    exec(code, {"print": lambda *words: printed.extend(map(str, words))})  # noqa: S102  (the page's own)
    assert printed == ["as it was packed", "True"]


def test_a_recorded_workload_goes_along(tmp_path: Path) -> None:
    target = tmp_path / "run.blis"
    events = pack(str(target), "trace-replay")
    with unpacked(str(target)) as found:
        trace = found.case.load().workload.trace
        assert trace is not None
        assert (found.spec.parent / "trace.csv").samefile(trace.path)
        assert found.golden.chain.events == events
        assert verified(found) == ""


def test_another_result_is_told_with_the_first_event_that_differs(bundle: Path, tmp_path: Path) -> None:
    smaller = rewritten(
        bundle, tmp_path / "other.blis", lambda name, text: text.replace(b"kv_blocks: 70", b"kv_blocks: 60")
    )
    with unpacked(str(smaller)) as found:
        difference = verified(found)
    assert "- engine.kv_blocks  70\n  + engine.kv_blocks  60" in difference
    assert "first divergence: event " in difference
    run = blis_in(tmp_path, "run", "other.blis")
    assert run.returncode == 1
    assert run.stderr.startswith("warning: the results of this run differ from those in other.blis\n")
    assert "open it in the debugger: blis-tui tui other.blis --at " in run.stderr
    assert blis_in(bundle.parent, "run", "run.blis").returncode == 0


def test_another_engine_is_told(bundle: Path, tmp_path: Path) -> None:
    def older(name: str, text: bytes) -> bytes:
        return text.replace(b'"engine": "1"', b'"engine": "0"') if name.endswith((HEADER, REPORT)) else text

    with unpacked(str(rewritten(bundle, tmp_path / "old.blis", older))) as found:
        assert "the engine has changed: 0 -> 1" in verified(found)


@pytest.mark.parametrize(
    "name", ["../out.txt", "code.py", "conftest.py", "/out.txt", "a/b/c.txt", "a\\b", ".hidden", "golden/../../out"]
)
def test_nothing_is_written_outside(name: str, bundle: Path, tmp_path: Path) -> None:
    target = tmp_path / "in" / "evil.blis"
    target.parent.mkdir()
    target.write_bytes(bundle.read_bytes())
    with zipfile.ZipFile(target, "a") as opened:
        opened.writestr(name, "x")
    with (
        pytest.raises(InputError, match=r"is not a bundle of format 1: the name of a member leads out of it"),
        unpacked(str(target)),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_holds_more_than_bundles_do_is_refused(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members together count, and what comes out of them, not what their heads say."""
    target = tmp_path / "bomb.blis"
    target.write_bytes(bundle.read_bytes())
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("golden/more.report.json", bytes(1 << 20))
    monkeypatch.setattr("blis_tui.golden.bundle._MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"it holds more than bundles do"), unpacked(str(target)):
        pass
    with zipfile.ZipFile(target, "a") as opened, pytest.warns(UserWarning, match="Duplicate name"):
        opened.writestr("bundle.json", "{}")
    with pytest.raises(InputError, match=r"it has 7 members"), unpacked(str(target)):
        pass


WRONG: Final = {
    "newer": (b'{"format": 2}', "it has format 2"),
    "a list": (b"[]", "it has no bundle.json"),
    "outside": (b'{"format": 1, "spec": "../demo"}', "what bundle.json says is not understood"),
    "numbers": (b'{"format": 1, "spec": "demo.blis.yaml", "breaks": [1]}', "what bundle.json says is not understood"),
    "no document": (b'{"format": 1, "spec": "pytest.ini"}', None),
    "gone": (b'{"format": 1, "spec": "gone.blis.yaml"}', "it holds no experiment"),
    "torn": (b"{", None),
    "no text": (b"\xff", None),
    "deep": (b"[" * 100_000, None),
}


@pytest.mark.parametrize(("about", "why"), WRONG.values(), ids=WRONG)
def test_a_bundle_that_says_something_else_is_refused(
    about: bytes, why: str | None, bundle: Path, tmp_path: Path
) -> None:
    wrong = rewritten(bundle, tmp_path / "wrong.blis", lambda name, text: about if name == "bundle.json" else text)
    with pytest.raises(BlisError, match=why), unpacked(str(wrong)):
        pass


def test_damaged_bundles_are_errors(bundle: Path, tmp_path: Path) -> None:
    whole, target = bundle.read_bytes(), tmp_path / "torn.blis"
    drawn = random.Random(1)  # noqa: S311  (no secret)
    refused = 0
    for _ in range(300):
        torn = bytearray(whole)
        for _ in range(drawn.choice([1, 2, 20])):
            # The list of members is at the end, and each has a head of its own.
            at = drawn.randrange(len(torn)) if drawn.random() < 0.4 else max(0, len(torn) - drawn.randrange(1, 600))
            if drawn.random() < 0.7:
                torn[at : at + 1] = bytes([drawn.randrange(256)])
            else:
                del torn[at : at + drawn.randrange(1, 40)]
        target.write_bytes(torn)
        try:
            with unpacked(str(target)):
                pass
        except BlisError as error:
            refused += bool(str(error))
    assert refused > 200
