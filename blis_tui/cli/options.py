"""Options that several commands share."""

from __future__ import annotations

from typing import Final

import click

from blis_tui.cli import completing

set_option: Final = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=completing.assignments,
    help="Replace a value, such as cluster.instances=8.",
)
seed_option: Final = click.option("--seed", type=click.IntRange(min=0), help="Replace the experiment's seed.")
