"""``blis-tui diff``: compares two experiments, or stored results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import as_map
from blis_tui.base.text import printable
from blis_tui.cli.help import Command
from blis_tui.cli.options import format_option, grouped, known_plugins, plugins_option
from blis_tui.cli.standard_streams import ExitCode, print_text, read_standard_input_text, reported, tell_left_out

if TYPE_CHECKING:
    from blis_tui.base.source import Json
    from blis_tui.model import Experiment
    from blis_tui.runs.comparison import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """Changes to the experiments, and the plug-ins for them."""

    both: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    seed: int | None
    plugins: tuple[str, ...]


@click.command(cls=Command)
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@grouped(
    "changed",
    _Changed,
    click.option("--set", "both", multiple=True, metavar="PATH=VALUE", help="Override a value in both experiments."),
    click.option("--set-a", "only_a", multiple=True, metavar="PATH=VALUE", help="Override a value in A."),
    click.option("--set-b", "only_b", multiple=True, metavar="PATH=VALUE", help="Override a value in B."),
    click.option("--seed", type=click.IntRange(min=0), help="Seed of both experiments [default: A's]."),
    plugins_option,
)
@format_option("text", "json", about="text: aligned tables; json: canonical JSON.")
@click.option("--all", "everything", is_flag=True, help="Show every metric, including equal ones.")
@click.option(
    "--working-tree",
    is_flag=True,
    help="Compare the file A with git's last commit: what an edit changes. Nothing runs.",
)
@click.option("--exit-code", "exit_code", is_flag=True, help="Exit with 1 if the results differ.")
@reported
def diff(
    a: str,
    b: str | None,
    changed: _Changed,
    output_format: str,
    everything: bool,
    working_tree: bool,
    exit_code: bool,
) -> None:
    """Compare two experiments or results: documents, metrics, requests.

    A and B are names of experiments, paths, or - for standard input; or saved results: a report (`run -o FILE.json`,
    a golden's .report.json) or a bundle (.blis), which are compared as they are. Without B, A is compared with A
    changed by --set-b. --working-tree shows what an edit of the file A changes in the experiment (or another
    document) before it runs: A as in git's last commit, with all that it refers to, against A now. Experiments are
    simulated with the same seed, A's, unless --set-b sets another one.
    """
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.runs.comparison_text import comparison_text  # noqa: PLC0415

    if working_tree:
        if b is not None or changed.only_a or changed.only_b:
            raise click.UsageError("--working-tree compares the file A with git's last commit: there is no B")
        if _print_edited(Path(a), changed, as_json=output_format == "json") and exit_code:
            sys.exit(ExitCode.CHECK_FAILED)
        return
    if b is None and not (changed.only_a or changed.only_b):
        raise click.UsageError("nothing to compare with: give B or --set-b PATH=VALUE")
    comparison = _compare(a, a if b is None else b, changed)
    if output_format == "json":
        text = to_json(comparison.to_dict(everything=everything))
    else:
        text = comparison_text(comparison, everything=everything)
    print_text(text, nl=False)
    tell_left_out(comparison)
    if exit_code and comparison.results_differ:
        sys.exit(ExitCode.CHECK_FAILED)


def _print_edited(file: Path, changed: _Changed, *, as_json: bool) -> bool:
    """Print what a file means now and did not in git's last commit; return whether anything does."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415
    from blis_tui.cli.working_tree import file_in_head  # noqa: PLC0415
    from blis_tui.runs.comparison_text import document_lines  # noqa: PLC0415
    from blis_tui.runs.documents import experiment_differences  # noqa: PLC0415

    now = _meaning(file, changed)
    with file_in_head(file) as path:
        try:
            before = _meaning(path, changed)
        except SpecError as error:
            problem = error.diagnostics[0]
            raise InputError(
                f"{file} was not valid in git's last commit: {problem.message}", help=problem.help
            ) from None
    differences = experiment_differences(before, now)
    lines = [printable(line).rstrip() for line in document_lines(differences, same=True)]
    print_text(
        to_json([difference.to_dict() for difference in differences]) if as_json else "\n".join(lines) + "\n", nl=False
    )
    return bool(differences)


def _meaning(file: Path, changed: _Changed) -> dict[str, Json]:
    """Return a document of any kind with all defaults, an experiment with all that it refers to."""
    from blis_tui.spec.load import open_source, resolve_source  # noqa: PLC0415
    from blis_tui.spec.validate import validated  # noqa: PLC0415

    known = known_plugins(changed.plugins)
    if changed.both or changed.seed is not None or open_source(file).get("kind") == "Experiment":
        made = resolve_source(file, overrides=changed.both, seed=changed.seed, plugins=known)
        return as_map(made.document.data)
    return as_map(validated(open_source(file), plugins=known).data)


def _compare(a: str, b: str, changed: _Changed) -> Comparison:
    from blis_tui.golden.bundle import is_stored, read_stored  # noqa: PLC0415
    from blis_tui.runs.comparison import Simulated, Stored, compare, simulate  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    both, own, seed = changed.both, (changed.only_a, changed.only_b), changed.seed
    known = known_plugins(changed.plugins)
    stdin_text = read_standard_input_text() if "-" in (a, b) else None
    if (both or seed is not None) and is_stored(a) and is_stored(b):
        raise click.UsageError(_AS_THEY_ARE)

    def opened(source: str, only: tuple[str, ...], seed: int | None) -> Experiment | Stored:
        if not is_stored(source):
            seed = None if _sets_seed(only) else seed
            return load(source, overrides=both + only, seed=seed, stdin_text=stdin_text, plugins=known)
        if only:
            raise click.UsageError(_AS_THEY_ARE)
        return read_stored(source, known)

    names = (a, b)
    sides = [opened(name, only, seed) for name, only in zip(names, own, strict=True)]
    notes = []
    if seed is None:
        seed = next((side.seed for side in sides if isinstance(side, Stored)), sides[0].seed)
        right = sides[1]
        if not isinstance(right, Stored) and right.seed != seed and not _sets_seed(own[1]):
            notes.append(f"B's own seed is {right.seed}; to use it, add --set-b seed={right.seed}")
    sides = [
        side if isinstance(side, Stored) or side.seed == seed or _sets_seed(only) else opened(name, only, seed)
        for side, name, only in zip(sides, names, own, strict=True)
    ]
    reports = simulate(*(side for side in sides if not isinstance(side, Stored)))
    compared = [
        side
        if isinstance(side, Stored)
        else Simulated(experiment=side, source=name, overrides=both + only, report=next(reports))
        for side, name, only in zip(sides, names, own, strict=True)
    ]
    return compare(compared[0], compared[1], tuple(notes))


_AS_THEY_ARE: Final = "saved results are compared as they are: --set and --seed cannot be used with them"


def _sets_seed(overrides: tuple[str, ...]) -> bool:
    return any(override.partition("=")[0] == "seed" for override in overrides)
