"""``blis-tui golden``: what is listed, asked and decided, of a project with a golden test in each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import click
import pytest
from click.testing import CliRunner

from blis_tui.cli import golden as command
from blis_tui.cli.main import cli
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import Baseline, files_of
from blis_tui.golden.review import find, survey
from blis_tui.golden.session import GoldenSettings, run_case
from tests.golden.projects import SPEC
from tests.recorded import Digests, lasting

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

_SMALL: Final = SPEC.replace("requests: 25", "requests: 6").replace("beta: [5000, 20, 30]", "beta: [9000, 20, 30]")
_LESS: Final = _SMALL.replace("kv_blocks: 60", "kv_blocks: 40")
_LINES: Final = (
    *(f"golden status --format {style}" for style in ("table", "json", "diff", "markdown", "github", "gitlab")),
    *("golden status --json", "golden status same*", "golden status same* --format diff", "golden status none"),
    *("golden review", "golden review same", "golden review none", "golden review --accept --reject"),
    *("golden record same", "golden record none", "golden record --full changed"),
    *("golden review --reject changed", "golden review --accept new other*", "golden status", "golden record"),
    *("golden review", "golden status --golden-dir nowhere", "golden status --root ."),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project to work in, not on CI: with the golden ``same``, and three results that wait."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nblis_checks = observers\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    for name, golden, waiting in (("same", _SMALL, ""), ("changed", _SMALL, _LESS), ("other", _LESS, _SMALL)):
        produce(tmp_path, name, golden, "unseen")
        if waiting:
            produce(tmp_path, name, waiting, "new")
    produce(tmp_path, "new", _SMALL, "new")
    return tmp_path


def produce(folder: Path, name: str, text: str, mode: Literal["new", "unseen"]) -> None:
    """Run the golden test of an experiment as pytest does."""
    spec = folder / f"{name}.blis.yaml"
    spec.write_text(text, encoding="utf-8")
    for case in cases_of(spec):
        files = files_of(spec, case.name, folder=folder / "golden", root=folder)
        run_case(case, files, spec.name, GoldenSettings(mode=mode, checks=()))


def test_lines(here: Path, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    machine = Baseline.here()
    for number, line in enumerate(_LINES):
        done = CliRunner(env={"COLUMNS": "100"}).invoke(cli, line.split())
        output = lasting(done.output, here).replace(machine.python, "PYTHON").replace(machine.system, "SYSTEM")
        files = sorted(path.name for path in (here / "golden").iterdir())
        digests.add(f"{number} {line}", str(done.exit_code), output, *files)
    digests.check(file_regression)


@pytest.mark.parametrize(
    ("keys", "left", "shown"),
    [
        ("aaa", "", 3),
        ("rrr", "", 3),
        ("q", "changed new other", 1),
        ("sss", "changed new other", 3),
        ("saq", "changed other", 3),
        ("xdAq", "new other", 2),
        ("DSrs", "changed other", 3),
    ],
)
def test_each_result_that_waits_is_asked_about(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keys: str,
    left: str,
    shown: int,
) -> None:
    """Accept, reject, skip, show again, quit, in small or capital letters; other keys mean nothing."""
    report = here / "golden" / "changed.report.json"
    before, pressed = report.read_text(encoding="utf-8"), iter(keys)
    monkeypatch.setattr(click, "getchar", lambda: next(pressed))
    command._ask_about(find(here / "golden", (), pending=True), here, None, force=False)
    assert not list(pressed)
    output = capsys.readouterr().out
    assert " ".join(sorted(entry.name for entry in survey(here / "golden", here) if entry.waiting)) == left
    assert [f"--- {number} of 3 ---" in output for number in (1, 2, 3)] == [shown > number for number in range(3)]
    assert output.count("[q]uit: ") == len(keys)
    looks = output.count("first divergence: event") + output.count("new golden")
    assert looks == shown + keys.lower().count("d"), output
    accepted = keys[0] == "a" or "A" in keys
    assert (report.read_text(encoding="utf-8") != before) is accepted
