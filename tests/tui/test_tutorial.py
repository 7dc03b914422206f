"""What the tutorial shows is what happens: its commands are run in one folder, in its order, and its keys pressed."""

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

PAGE: Final = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"^```(?P<language>\w+)(?P<about>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
PRESSED: Final = re.compile(r"Press ((?:`[^`]+` ?)+):.*?^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES: Final = {"blis-tui": "blis_tui", "pytest": "pytest"}
IN_ONE_PROCESS: Final = ["--jobs", "1"]
"""What is printed does not depend on it; others would have to start."""


def saved(folder: Path, about: str, text: str) -> None:
    """A file that the reader is asked to write, or to add to."""
    path = folder / re.findall(r'title="(.*?)"', about)[0]
    before = path.read_text(encoding="utf-8") if about.endswith("append") else ""
    path.write_text(before + text, encoding="utf-8")


def calls(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown behind it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def as_shown(shown: str) -> re.Pattern[str]:
    """Whatever stands for an ellipsis: lines where it stands alone, else the rest of a line."""
    lines = [".*?" if line == "…\n" else re.escape(line).replace("…", "[^\n]*") for line in shown.splitlines(True)]
    return re.compile("".join(lines), re.DOTALL)


def test_its_commands_print_what_is_shown(tmp_path: Path) -> None:
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith(("CI", "GITHUB", "PYTEST", "BLIS"))
        },
        "PYTEST_ADDOPTS": "-p blis_tui.pytest_plugin -p no:cacheprovider -o blis_checks=observers",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    ran = 0
    for block in BLOCK.finditer(PAGE):
        if "title=" in block["about"]:
            saved(tmp_path, block["about"], block["text"])
        for command, shown in calls(block["text"]) if block["language"] == "console" else ():
            program, *arguments = command.replace("'", "").split()
            here = IN_ONE_PROCESS if arguments[0] in {"plan", "sweep"} else []
            run = run_module(MODULES[program], [*arguments, *here], cwd=tmp_path, env=environment)
            ran += 1
            assert as_shown(shown).fullmatch(run.stdout), f"{command}\n{run.stdout}{run.stderr}"
    assert ran == len(re.findall(r"^\$ ", PAGE, re.MULTILINE)) > 8


@pytest.mark.parametrize(("keys", "shown"), PRESSED.findall(PAGE), ids=["end to end", "first token"])
async def test_its_keys_show_what_is_shown(keys: str, shown: str, tmp_path: Path) -> None:
    about, text = next((match["about"], match["text"]) for match in BLOCK.finditer(PAGE) if "title=" in match["about"])
    saved(tmp_path, about, text)
    async with debugging(str(tmp_path / "chat.blis.yaml"), requests=None, at_once=True) as here:
        await here.press(*[{"?": "question_mark"}.get(key, key) for key in re.findall(r"`([^`]+)`", keys)], "y")
        said = " ".join(here.app.clipboard.split())
        for line in shown.splitlines():
            assert " ".join(line.split()) in said
