"""Where golden files are, what they have to hold, and what to say when they do not."""

from __future__ import annotations

import hashlib
from contextlib import chdir
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.spec.library import names

FOLDER: Final = Path(__file__).resolve().parents[2] / "golden"
COMMAND: Final = "python -m tests.golden.regenerate"
DIFF_LINES: Final = 40


def experiments() -> list[str]:
    """The experiments that ship, as found on disk."""
    return list(names("Experiment"))


def golden_names(experiment: str) -> tuple[str, str]:
    """The two golden files of an experiment: report, digest of the records."""
    return f"{experiment}.report.json", f"{experiment}.records.sha256"


def produce(experiment: str, *options: str) -> dict[str, bytes]:
    """What the golden files of an experiment should hold: the command line's own bytes, by file name.

    Run from an empty folder: a ``specs/`` in the working directory would hide the shipped ones.
    """
    report, records = golden_names(experiment)
    stream = f"{experiment}.records.jsonl"
    with TemporaryDirectory() as folder, chdir(folder):
        result = CliRunner().invoke(cli, ["run", experiment, "--records", stream, *options], catch_exceptions=False)
        if result.exit_code != 0:
            raise RuntimeError(f"`blis-tui run {experiment}` exits with {result.exit_code}:\n{result.stderr}")
        digest = hashlib.sha256(Path(stream).read_bytes()).hexdigest()
    return {report: result.stdout_bytes, records: f"{digest}  {stream}\n".encode()}


def orphans(known: list[str], folder: Path = FOLDER) -> list[str]:
    """Golden files that belong to no experiment."""
    wanted = {"README.md", *(name for experiment in known for name in golden_names(experiment))}
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".") and path.name not in wanted)


def difference(name: str, content: bytes, folder: Path = FOLDER) -> str:
    """How ``content`` differs from the golden file ``name``, in a few lines; empty when it does not."""
    path = folder / name
    if not path.is_file():
        return f"golden/{name} is missing: make it with `{COMMAND}`, read it, and commit it."
    golden = path.read_bytes()
    if golden == content:
        return ""
    lines = unified_diff(
        golden.decode(errors="replace").splitlines(),
        content.decode(errors="replace").splitlines(),
        f"golden/{name}",
        "this run",
        n=1,
        lineterm="",
    )
    shown = list(islice(lines, DIFF_LINES + 1))
    if len(shown) > DIFF_LINES:
        shown[DIFF_LINES] = "(more lines differ)"
    elif not shown:
        shown = [f"golden/{name} differs in its line ends only"]
    return "\n".join([*shown, f"If this is meant: `{COMMAND}`, read the difference, and commit it."])
