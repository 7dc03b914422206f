"""The short help names what most people need, the whole one everything, and each way leads to the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click
import pytest
from click.testing import CliRunner

from blis_tui.cli.help import NEIGHBOURS, RARE
from blis_tui.cli.main import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Each command, with its path."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from commands(inner, (*path, name))


ALL: Final = dict(commands())


def shown(line: str) -> str:
    done = CliRunner().invoke(cli, line.split(), prog_name="blis-tui")
    assert done.exit_code == 0, done.output
    return done.output


def options_in(text: str) -> set[str]:
    """The options that have a line of their own."""
    listed = text.partition("\nOptions:\n")[2]
    begun = [line.strip().partition("  ")[0] for line in listed.splitlines() if line.startswith("  -")]
    return {word for left in begun for word in re.findall(r"--[a-z-]+", left)}


def options_of(command: click.Command) -> set[str]:
    known = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    return {option for one in known for option in (*one.opts, *one.secondary_opts) if option.startswith("--")}


def test_fourteen_commands_are_shown_each_with_a_whole_sentence() -> None:
    section = shown("--help").partition("Commands:\n")[2].partition("\n\n")[0]
    lines = dict(line.strip().split(maxsplit=1) for line in section.splitlines())
    assert len(lines) == 14
    assert lines == {name: text for name, (_, _, text) in COMMANDS.items() if name in lines}
    assert all(text.endswith(".") for text in lines.values())


def test_every_other_command_is_named_by_its_neighbour_and_by_the_whole_help() -> None:
    assert {*COMMANDS} - {*NEIGHBOURS, "completion"} == {
        line.split()[0] for line in shown("--help").partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    }
    for name, near in NEIGHBOURS.items():
        assert f"blis-tui {name}" in shown(f"{near} --help").partition("See also:\n")[2]
    for name in COMMANDS:
        assert f"\n  {name} " in shown("--help-all")


@pytest.mark.parametrize("path", RARE)
def test_rare_options_are_those_of_the_whole_help(path: str) -> None:
    options = options_of(ALL[path])
    assert options >= RARE[path]
    brief, whole = options_in(shown(f"{path} --help")), options_in(shown(f"{path} --help-all"))
    assert whole - {"--help", "--help-all"} == options
    assert {*options & brief} == {option for option in options if not _is_rare(ALL[path], option)}
    assert f"{len(RARE[path])} more option" in shown(f"{path} --help")
    assert "more option" not in shown(f"{path} --help-all")


def _is_rare(command: click.Command, option: str) -> bool:
    path = next(path for path, one in ALL.items() if one is command)
    (parameter,) = [param for param in command.params if option in (*param.opts, *param.secondary_opts)]
    return bool(RARE[path] & {*parameter.opts})


@pytest.mark.parametrize("path", [path for path in ALL if path and path not in RARE])
def test_a_command_without_rare_options_has_one_help(path: str) -> None:
    assert options_in(shown(f"{path} --help")) == {*options_of(ALL[path]), "--help"}


@pytest.mark.parametrize("path", [path for path, one in ALL.items() if isinstance(one, click.Group)])
def test_no_sentence_about_a_command_is_cut(path: str) -> None:
    assert "..." not in shown(f"{path} --help".strip()).partition("Commands:\n")[2]
