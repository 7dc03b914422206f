"""Options shared by several commands."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import click

from blis_tui.cli import completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.registry import Registry

_Command = TypeVar("_Command", bound="Callable[..., object]")
_Grouped: TypeAlias = "Callable[..., object]"

KINDS: Final = ("experiment", "model", "hardware", "workload", "policy", "latency", "study")
"""Kinds of document, as commands take them."""
MOST_JOBS: Final = 64
"""Maximum number of processes, about as many as one process can load experiments for."""


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and NaN, which would pass range checks."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; a non-finite one is a usage error."""
        number: float = super().convert(cast("float", value), param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


set_option: Final = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=completion.assignments,
    help="Override the value of a key (`blis-tui explain KEY`), such as cluster.instances=8; repeatable.",
)
seed_option: Final = click.option("--seed", type=click.IntRange(min=0), help="Override the experiment's seed.")
plugins_option: Final = click.option(
    "--plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    help="Run this code and make its plug-ins available to the experiment by name; repeatable.",
)


def _host(_context: click.Context, _option: click.Parameter, given: str) -> str:
    """Refuse names that no host can have, for which Python raises errors of several kinds."""
    try:
        given.encode("idna")
    except UnicodeError:
        raise click.BadParameter("not a valid host name") from None
    return given


host_option: Final = click.option(
    "--host", default="127.0.0.1", show_default=True, callback=_host, help="Address to listen on."
)


def format_option(
    *formats: str, about: str | None = None, default: str | None = None
) -> Callable[[_Command], _Command]:
    """``--format``, one of ``formats``; the first is the default.

    Args:
        formats: the formats.
        about: the help text.
        default: where the command chooses the format, given as None, the rule by which it does, in words.
    """
    kind, usual = click.Choice(formats), formats[0] if default is None else None
    return click.option("--format", "output_format", type=kind, default=usual, show_default=default or True, help=about)


def grouped(name: str, kind: type, *options: Callable[[_Grouped], _Grouped]) -> Callable[[_Command], _Command]:
    """Group options: the command gets them as one value ``name``, a dataclass with a field for each.

    A field without an option keeps its default.
    """
    parts = [one.name for one in fields(kind)]

    def mark(command: _Command) -> _Command:
        @wraps(command)
        def packed(*arguments: object, **given: object) -> object:
            made = kind(**{part: given.pop(part) for part in parts if part in given})
            return command(*arguments, **given, **{name: made})

        marked: _Grouped = packed
        for option in reversed(options):
            marked = option(marked)
        return cast("_Command", marked)

    return mark


def known_plugins(names: Sequence[str]) -> Registry | None:
    """Return the plug-ins that an experiment may name; None = those of this package.

    Raises:
        PolicyError: a requested plug-in does not exist or cannot be used.
        InputError: a script cannot be read.
    """
    if not names:
        return None
    from blis_tui.user_plugins import load_plugins  # noqa: PLC0415  (only needed with plug-ins)

    return load_plugins(names)
