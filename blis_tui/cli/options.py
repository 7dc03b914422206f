"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli import completing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.registry import Registry

set_option: Final = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=completing.assignments,
    help="Replace a value, such as cluster.instances=8.",
)
seed_option: Final = click.option("--seed", type=click.IntRange(min=0), help="Replace the experiment's seed.")
plugins_option: Final = click.option(
    "--plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    help="Run this code, and let the experiment name the policies in it; repeatable.",
)


def known_plugins(names: Sequence[str]) -> Registry | None:
    """What an experiment may name; None = what this package brings.

    Raises:
        PolicyError: what was asked for is not there or cannot be used.
        InputError: a script cannot be read.
    """
    if not names:
        return None
    from blis_tui.user_plugins import load_plugins  # noqa: PLC0415  (only who asks for plug-ins pays for it)

    return load_plugins(names)
