"""``blis-tui plugins``: policies of one's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli import completion
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_text, tell
from blis_tui.cli.options import known_plugins, seed_option, set_option
from blis_tui.errors import SimulationError

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
    shell_complete=completion.experiments,
    help="What to run. Where it names none of the policies, each takes its place in turn. By default, a shipped "
    "experiment in which policies of that kind have something to decide.",
)
@set_option
@seed_option
@reported
def check(names: tuple[str, ...], source: str | None, overrides: tuple[str, ...], seed: int | None) -> None:
    """Check that policies give the same bytes in every run.

    The experiment runs again, without observers, from a checkpoint, and in another process with another hash seed. What
    a policy remembers must show in its `state()`. The first event that differs is named.

    Exit codes: 1 where a run differs, 4 where a policy raises an exception; its line is named.
    """
    from blis_tui.golden.determinism import find_nondeterminism  # noqa: PLC0415  (heavy imports only when it runs)

    known = known_plugins(names)
    if known is None:
        raise TypeError("there is at least one name")
    code = ExitCode.OK
    for offered, experiment in _experiments(known, source, overrides, seed):
        try:
            found, failure = find_nondeterminism(experiment), ExitCode.CHECK_FAILED
        except SimulationError as error:
            found, failure = str(error), ExitCode.SIMULATION
        for plugin in offered:
            print_text(f"{plugin.path} {plugin.name}: {_VERDICTS[failure] if found else 'ok'}")
        if found:
            code = max(code, failure)
            tell(f"FAIL  {found}")
    if code:
        sys.exit(code)


_VERDICTS: Final = {ExitCode.CHECK_FAILED: "differs", ExitCode.SIMULATION: "fails"}


def _experiments(
    known: Registry, source: str | None, overrides: tuple[str, ...], seed: int | None
) -> Iterator[tuple[tuple[Plugin, ...], Experiment]]:
    """The experiment, if it names plug-ins; else for each one that does."""
    from blis_tui.plug_points import BY_PATH  # noqa: PLC0415  (as above)
    from blis_tui.spec.load import load  # noqa: PLC0415

    used: tuple[Plugin, ...] = ()
    if source is not None or overrides:
        experiment = load(source or _ANY, overrides=overrides, seed=seed, plugins=known)
        used = experiment.plugins_used()
        if used:
            yield used, experiment
    for plugin in known.own:
        row = BY_PATH[plugin.path]
        if used:
            if plugin not in used:
                print_text(f"{plugin.path} {plugin.name}: not checked, as the experiment does not name it")
        elif not row.changes:
            advice = f"choose an --experiment whose `{plugin.path}` does, or --set it"
            raise click.UsageError(f"{source or _ANY} does not name `{plugin.name}`: {advice}")
        else:
            changed = (*row.naming(plugin.name), *overrides)
            yield (plugin,), load(source or row.experiment, overrides=changed, seed=seed, plugins=known)


_ANY: Final = "quickstart"
"""What is run where nothing is chosen, and overrides may name plug-ins."""
