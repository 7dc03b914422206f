"""What pages show is what happens: their commands are run in one folder, in their order, and their keys pressed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.prefork import run_module
from tests.tui.debugging import debugging

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tutorial", "debugger")}
BLOCK: Final = re.compile(r"^```(?P<language>\w+)(?P<about>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
PRESSED: Final = re.compile(r"Press ((?:`[^`]+` ?)+):.*?^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES: Final = {"blis-tui": "blis_tui", "pytest": "pytest"}
IN_ONE_PROCESS: Final = ["--jobs", "1"]
"""What is printed does not depend on it; others would have to start."""


def saved(folder: Path, about: str, text: str) -> Path:
    """A file that the reader is asked to write, or to add to."""
    path = folder / str(re.findall(r'title="(.*?)"', about)[0])
    before = path.read_text(encoding="utf-8") if about.endswith("append") else ""
    path.write_text(before + text, encoding="utf-8")
    return path


def calls(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown behind it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def as_shown(shown: str) -> re.Pattern[str]:
    """Whatever stands for an ellipsis: lines where it stands alone, else the rest of a line."""
    lines = [".*?" if line == "…\n" else re.escape(line).replace("…", "[^\n]*") for line in shown.splitlines(True)]
    return re.compile("".join(lines), re.DOTALL)


@pytest.mark.parametrize(("name", "commands"), [("tutorial", 9), ("debugger", 1)])
def test_its_commands_print_what_is_shown(name: str, commands: int, tmp_path: Path) -> None:
    page = PAGES[name]
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith(("CI", "GITHUB", "PYTEST", "BLIS"))
        },
        "PYTEST_ADDOPTS": "-p blis_tui.pytest_plugin -p no:cacheprovider -o blis_checks=observers",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    ran = 0
    for block in BLOCK.finditer(page):
        if "title=" in block["about"]:
            saved(tmp_path, block["about"], block["text"])
        for command, shown in calls(block["text"]) if block["language"] == "console" else ():
            program, *arguments = command.replace("'", "").split()
            here = IN_ONE_PROCESS if arguments[0] in {"plan", "sweep"} else []
            run = run_module(MODULES[program], [*arguments, *here], cwd=tmp_path, env=environment)
            ran += 1
            assert as_shown(shown).fullmatch(run.stdout), f"{command}\n{run.stdout}{run.stderr}"
    assert ran == len(re.findall(r"^\$ ", page, re.MULTILINE)) >= commands


@pytest.mark.parametrize(
    ("name", "keys", "shown"),
    [(name, *shown) for name, page in PAGES.items() for shown in PRESSED.findall(page)],
    ids=["end to end", "first token", "fifth of the ranking", "why a chat waits"],
)
async def test_its_keys_show_what_is_shown(name: str, keys: str, shown: str, tmp_path: Path) -> None:
    blocks = BLOCK.finditer(PAGES[name])
    about, text = next((match["about"], match["text"]) for match in blocks if "title=" in match["about"])
    file = saved(tmp_path, about, text)
    async with debugging(str(file), requests=None, at="end", at_once=True) as here:
        await here.press(*[{"?": "question_mark"}.get(key, key) for key in re.findall(r"`([^`]+)`", keys)], "y")
        said = " ".join(here.app.clipboard.split())
        for line in shown.splitlines():
            assert " ".join(line.split()) in said
