"""What ``--help`` shows: the commands and options that most people need; ``--help-all`` shows the rest, too.

A command or an option that ``--help`` leaves out works like any other, and shells complete it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli.standard_streams import print_text

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL: Final = "--help-all"

_STUDIES: Final = ("--prices", "--plugins", "--dask", "--store", "--progress")
_GOLDENS: Final = ("--root", "--golden-dir", "--plugins")
RARE: Final[Mapping[str, frozenset[str]]] = {
    command: frozenset(options)
    for command, options in {
        "run": (
            *("--records", "--decisions", "--counterfactual", "--trace-output", "--openmetrics"),
            *("--openmetrics-interval", "--check", "--plugins", "--progress"),
        ),
        "tui": ("--plugins", "--axis", "--seeds", "--slo", "--objective", "--jobs", "--early-stop", "--store"),
        "sweep": (*_STUDIES, "--price", "--early-stop"),
        "plan": (*_STUDIES, "--axis", "--duration", "--precision", "--case", "--jobs", "--html"),
        "sensitivity": ("--plugins", "--dask", "--store", "--progress"),
        "shrink": ("--plugins", "--progress"),
        "diff": ("--seed", "--plugins"),
        "whatif": ("--seed", "--plugins", "--event", "--most"),
        "bundle": ("--seed", "--plugins"),
        "workload describe": ("--seed", "--trace-format", "--block-size", "--plugins"),
        "workload convert": ("--trace-format", "--plugins"),
        "workload compose": ("--trace-format", "--plugins"),
        "workload fit": ("--seed", "--trace-format", "--block-size", "--plugins"),
        "observe": (
            *("--case", "--trace-format", "--timeout", "--dialect", "--header", "--api-key-env", "--stream"),
            *("--exact-lengths", "--text", "--vocabulary", "--prompt-seed", "--warm-up", "--scrape", "--seed"),
            *("--plugins", "--progress"),
        ),
        "twin": ("--requests", "--plugins"),
        "calibrate": ("--set", "--base", "--stages", "--repeated-prompts", "--loads"),
        "serve": ("--max-windows", "--set", "--seed", "--plugins"),
        "golden status": _GOLDENS,
        "golden review": (*_GOLDENS, "--force"),
        "golden record": _GOLDENS,
        "golden watch": _GOLDENS,
        "spec resolve": ("--plugins",),
        "check": ("--set", "--seed", "--plugins"),
        "explain": ("--plugins",),
    }.items()
}
"""Options that the help of a command leaves out."""


_SENTENCE: Final = 200
"""More letters than the first sentence of any command has."""
NEIGHBOURS: Final[Mapping[str, str]] = {
    "sensitivity": "plan",
    "shrink": "golden",
    "whatif": "diff",
    "bundle": "run",
    "values": "run",
    "serve-api": "serve",
    "upgrade": "check",
    "lsp": "spec",
}
"""Commands that ``blis-tui --help`` leaves out, and the one whose help names each."""


class Command(click.Command):
    """A command with a short help and a whole one."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` behind ``--help`` where something is left out."""
        parameters = super().get_params(ctx)
        return [*parameters, help_all()] if _rare(ctx) else parameters

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, or those that are not rare and how many more there are."""
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        rare = frozenset() if asks_for_all(ctx) else _rare(ctx)
        shown = [param for param in params if not rare & {*param.opts}]
        with formatter.section("Options"):
            formatter.write_dl([record for option in shown if (record := option.get_help_record(ctx))])
        if rare:
            left = len(params) - len(shown)
            formatter.write(f"\n  {left} more option{'s' * (left > 1)}: {ctx.command_path} {ALL}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that only this one's help names."""
        super().format_epilog(ctx, formatter)
        write_neighbours(ctx, formatter)


class Group(click.Group):
    """A group whose commands have a short help and a whole one."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its whole first sentence."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that only this one's help names."""
        super().format_epilog(ctx, formatter)
        write_neighbours(ctx, formatter)


def write_neighbours(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the commands that belong to this one and that ``blis-tui --help`` leaves out."""
    root = ctx.find_root()
    near = [name for name, to in NEIGHBOURS.items() if ctx.parent is root and to == ctx.info_name]
    if near and isinstance(root.command, click.Group):
        commands = [(name, root.command.get_command(root, name)) for name in near]
        with formatter.section("See also"):
            formatter.write_dl(
                [
                    (f"{root.info_name} {name}", command.get_short_help_str(_SENTENCE))
                    for name, command in commands
                    if command
                ]
            )


def help_all(about: str = "Show this message with all options and exit.") -> click.Option:
    """Return the option that shows the whole help."""
    return click.Option(
        [ALL],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help=about,
    )


def _show_all(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[ALL] = True
        print_text(context.get_help())
        context.exit()


def asks_for_all(context: click.Context) -> bool:
    """Return whether the whole help is to be shown."""
    return bool(context.meta.get(ALL))


def _rare(context: click.Context) -> frozenset[str]:
    """Return the options that the help of the command leaves out; its path without the program's name finds them."""
    return RARE.get(" ".join(context.command_path.split()[1:]), frozenset())
