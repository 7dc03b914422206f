"""The README shows what really happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from blis_tui.study.store import STORE_VARIABLE
from tests.prefork import run_module

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str, page: str = README) -> str:
    """The fenced block of a language that contains a text."""
    (found,) = (
        text for text in re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if containing in text
    )
    return str(found)


def blis(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_module("blis_tui", arguments, cwd=cwd, env=os.environ)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.blis.yaml"
    path.write_text(block("yaml", "name: mine"), encoding="utf-8")
    return path


def test_the_quickstart_prints_what_is_shown(tmp_path: Path) -> None:
    run = blis("run", "quickstart", "--format", "table", cwd=tmp_path)
    # An ellipsis stands for omitted lines.
    lines = [
        ".*\n" if line == "…\n" else re.escape(line)
        for line in block("text", "experiment  quickstart").splitlines(True)
    ]
    assert re.fullmatch("".join(lines), run.stdout, re.DOTALL)


def test_the_mistake_is_shown_as_shown(mine: Path) -> None:
    shown = block("text", "error[BLIS1001]")
    text = mine.read_text(encoding="utf-8").replace("{max_num_batched_tokens: 4096}", "{max_num_seq: 64}")
    mine.write_text(text, encoding="utf-8")
    assert blis("run", mine.name, cwd=mine.parent).stderr.strip() == shown.strip()


@pytest.mark.parametrize("containing", ["blis_tui.Simulation", "blis_tui.debugger"])
def test_the_python_examples_work(containing: str, tmp_path: Path) -> None:
    code = block("python", containing, (ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    own = {**os.environ, STORE_VARIABLE: str(tmp_path / "runs")}  # not the user's store
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=own, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_figures_of_what_ships_are_right(tmp_path: Path) -> None:
    listed = [line.split()[0] for line in blis("spec", "list", cwd=tmp_path).stdout.splitlines()]
    shown = re.search(
        r"(\d+) experiments.*?(\d+) models, (\d+) GPUs,\s+(\d+) workloads, (\d+) policies", README, re.DOTALL
    )
    assert shown is not None
    kinds = ("experiment", "model", "hardware", "workload", "policy")
    assert [int(count) for count in shown.groups()] == [listed.count(kind) for kind in kinds]


def test_every_policy_and_model_in_the_table_exists() -> None:
    from blis_tui.spec.shipped import builtin  # noqa: PLC0415

    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| (.*?) \|$", page, re.MULTILINE))
    points = [plugin.path for plugin in builtin().plugins if not plugin.path.startswith("workload.")]
    known = {point: [plugin.name for plugin in builtin().of(point) if not plugin.of_blis] for point in points}
    for name, there in known.items():
        assert set(re.findall(r"`([a-z0-9-]+)`", rows[name])) == set(there)


def test_the_pictures_are_there() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    for page in pages:
        for picture in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page.name}: {picture}"
