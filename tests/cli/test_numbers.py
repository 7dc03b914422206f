"""Options that take numbers take neither infinity nor what is no number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.cli.options import FiniteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = ("plan", "quickstart", "--slo", "latency.ttft_ms.p99<=200")


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        elif command is not None:
            yield " ".join((*names, name)), command


def test_all_options_that_take_any_number_are_of_this_kind() -> None:
    taken = [
        (name, option.name, option.type)
        for name, command in commands(cli)
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    ]
    assert len(taken) > 10
    assert [(name, option) for name, option, kind in taken if not isinstance(kind, FiniteRange)] == []


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "command",
    [
        (*ASKED, "--rate"),
        (*ASKED, "--rate", "20", "--duration"),
        (*ASKED, "--rate", "20", "--confidence"),
        (*ASKED, "--max-rate", "--precision"),
        ("run", "quickstart", "--openmetrics", "m.txt", "--openmetrics-interval"),
        ("serve-api", "quickstart", "--speed"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_it_is_an_error_of_usage(command: tuple[str, ...], number: str) -> None:
    done = CliRunner().invoke(cli, [*command, number])
    assert done.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in done.stderr
    assert number in done.stderr
