"""The notebooks show the current output of their cells, which run here one by one without Jupyter."""

from __future__ import annotations

import ast
import importlib.util
import json
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from blis_tui.cli import run
from blis_tui.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[1]
NOTEBOOKS: Final = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS: Final = {"fit-your-server": "scipy"}


def cells(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each code cell with its text."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), cell


def kept(cell: dict[str, Any]) -> list[str]:
    """The stored output of a cell: what it printed, then its value."""
    values = [one["data"].get("text/html", one["data"]["text/plain"]) for one in cell["outputs"] if "data" in one]
    printed = [one["text"] for one in cell["outputs"] if one["output_type"] == "stream"]
    return ["".join(one) for one in [*printed, *values]]


def shown(code: str, names: dict[str, object]) -> list[str]:
    """The same from running it now."""
    if code.startswith("!"):
        return [one for one in map(from_shell, code.splitlines()) if one]
    printed = StringIO()
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value: object = None
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102  (the notebook's own)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307  (as above)
    html = getattr(value, "_repr_html_", None)
    return [one for one in (printed.getvalue(), html() if html else "" if value is None else repr(value)) if one]


def from_shell(line: str) -> str:
    """The output of a shell line in a notebook."""
    command, _, target = line.partition(" > ")
    done = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    if not target:
        return done.output
    Path(target).write_text(done.stdout, encoding="utf-8")
    return done.stderr


def test_there_are_some() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_what_its_cells_give(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures draw what a cell above them prints; here their code only runs, with a stand-in for matplotlib."""
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    plots = MagicMock()
    plots.pyplot.subplots.return_value = MagicMock(), MagicMock()
    monkeypatch.setitem(sys.modules, "matplotlib", plots)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots.pyplot)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "columns", lambda most, _: min(most, 80))  # Jupyter's commands print to a terminal
    names: dict[str, object] = {}
    for code, cell in cells(path):
        found = shown(code, names)
        if cell["metadata"].get("tags") == ["picture"]:
            assert plots.pyplot.show.called
            assert [one["data"].keys() for one in cell["outputs"]] == [{"image/png", "text/plain"}]
        else:
            assert found == kept(cell), "`make notebooks` runs it again"


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed (extra `docs`)")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_gives_the_same(path: Path) -> None:
    from docs.make_notebooks import executed  # noqa: PLC0415  (needs the extra)

    again = executed(path)
    for (_, before), now in zip(cells(path), (cell for cell in again.cells if cell.cell_type == "code"), strict=True):
        if before["metadata"].get("tags") != ["picture"]:
            # Lines are as long as the kernel's terminal is wide, and that varies.
            assert [one.split() for one in kept(before)] == [one.split() for one in kept(now)]
