"""Every command in the pages is valid: its program accepts the options, arguments and choices."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest

from blis_tui.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK: Final = re.compile(r"^ *```(?:sh|console|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE: Final = re.compile(r"`(?:\$ )?blis-tui( [^`]*)?`")


def commands(page: Path) -> Iterator[str]:
    """Calls of the program: lines in code blocks, continuations joined, and inline code."""
    text = page.read_text(encoding="utf-8")
    for line in INLINE.findall(text):
        yield " ".join(line.split())
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?blis-tui( .*)?$", line)
            if match:
                yield (match[1] or "").strip()


SHOWN: Final = [
    pytest.param(line, id=f"{page.relative_to(ROOT)}: {line[:60]}")
    for page in PAGES
    for line in dict.fromkeys(commands(page))
]


def first_command(line: str) -> list[str]:
    """Its words up to a comment, a pipe or a redirection."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|><&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|><&;"):
            break
        words.append(word)
    return words


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 50


@pytest.mark.parametrize("line", SHOWN)
def test_a_shown_command_is_one(line: str) -> None:
    words = first_command(line)
    command: click.Command = cli
    context = click.Context(cli, info_name="blis-tui")
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        if name.startswith("-"):
            words.insert(0, name)
            break
        found = command.get_command(context, name)
        assert found is not None, f"`{name}` is no command of {context.command_path}"
        assert not found.hidden, f"`{name}` is an old name"
        command, context = found, click.Context(found, info_name=name, parent=context)
    if "--" in words:  # what is behind it is another program's
        words = words[: words.index("--")]
    unknown = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    assert set(unknown) <= known, f"{command.name} takes no {sorted(set(unknown) - known)}"
