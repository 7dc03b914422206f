"""``blis-tui plugins``: policies of one's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from blis_tui.cli import completion
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_text, tell
from blis_tui.cli.options import known_plugins, seed_option, set_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.registry import Plugin, Registry
    from blis_tui.spec.model import Experiment


@click.group()
def plugins() -> None:
    """Policies of your own: scripts and installed packages that `--plugins` names.

    docs/plugins.md shows how to write one.
    """


@plugins.command(short_help="Check that policies give the same bytes in every run.")
@click.argument("names", metavar="FILE.py|PACKAGE...", nargs=-1, required=True)
@click.option(
    "--experiment",
    "source",
    metavar="SPEC",
    default="quickstart",
    show_default=True,
    shell_complete=completion.experiments,
    help="What to run. Where it names none of the policies, each takes its place in turn.",
)
@set_option
@seed_option
@reported
def check(names: tuple[str, ...], source: str, overrides: tuple[str, ...], seed: int | None) -> None:
    """Check that policies give the same bytes in every run.

    The experiment runs again, without observers, from a checkpoint, and in another process with another hash seed. What
    a policy remembers must show in its `state()`. The first event that differs is named.
    """
    from blis_tui.golden.determinism import find_nondeterminism  # noqa: PLC0415  (heavy imports only when it runs)

    known = known_plugins(names)
    if known is None:
        raise TypeError("there is at least one name")
    failed = False
    for offered, experiment in _experiments(known, source, overrides, seed):
        for plugin in offered:
            print_text(f"{plugin.path} {plugin.name}: ", nl=False)
        found = find_nondeterminism(experiment)
        print_text("differs" if found else "ok")
        if found:
            failed = True
            tell(f"FAIL  {found}")
    if failed:
        sys.exit(ExitCode.CHECK_FAILED)


def _experiments(
    known: Registry, source: str, overrides: tuple[str, ...], seed: int | None
) -> Iterator[tuple[tuple[Plugin, ...], Experiment]]:
    """The experiment, if it names a plug-in; else a variant of it for each."""
    from blis_tui.spec.load import load  # noqa: PLC0415

    experiment = load(source, overrides=overrides, seed=seed, plugins=known)
    if used := experiment.plugins_used():
        yield used, experiment
        return
    for plugin in known.plugins:
        if plugin.origin is None:
            continue
        if plugin.path.startswith("workload."):
            raise click.UsageError(f"{source} does not name `{plugin.name}`: choose another --experiment, or --set it")
        changed = (*overrides, f"{plugin.path}={plugin.name}")
        yield (plugin,), load(source, overrides=changed, seed=seed, plugins=known)
