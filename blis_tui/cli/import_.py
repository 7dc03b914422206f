"""``blis-tui spec import``: converts documents of BLIS, Hugging Face and load generators."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import print_data, require_no_overwrite, tell
from blis_tui.cli.options import FiniteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.importers.draft import Imported

_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_OUTPUT = click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
_NAME = click.option("--name", help="Name of the document [default: from the file].")
_STRICT = click.option("--strict", is_flag=True, help="Exit with 1 if something is lost or approximated.")


@click.group("import")
def import_() -> None:
    """Convert files of BLIS (the simulator in Go), Hugging Face and load generators.

    The result is checked before it is written. Anything that cannot be converted is listed on standard error, each key
    with its location and the reason. The result names no schema for editors: `docs/specs.md` has the line to add.
    """


def _converting(kind: str, about: str) -> None:
    """Add the command that converts documents of a kind."""

    @import_.command(kind, help=about)
    @_FILE
    @_OUTPUT
    @_NAME
    @_STRICT
    @reported
    def command(file: Path, output: Path | None, name: str | None, strict: bool) -> None:
        module = kind.replace("-", "_")
        importer = import_module(f"blis_tui.importers.{module}")  # heavy, so only when the command runs
        convert: Callable[..., Imported] = getattr(importer, f"import_{module}")
        _finish([(output, convert(file, name=name))], strict=strict)


_converting("policy", "Convert a BLIS policy bundle (what --policy-config reads).")
_converting("workload", "Convert a BLIS workload specification, version 1 or 2 (what --workload-spec reads).")
_converting("model", "Convert a model's Hugging Face config.json.")
_converting("inference-perf", "Convert an inference-perf configuration to a workload.")


@import_.command("guidellm")
@_FILE
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="The one of its rates to use, or another rate.")
@_OUTPUT
@_NAME
@_STRICT
@reported
def guidellm(file: Path, rate: float | None, output: Path | None, name: str | None, strict: bool) -> None:
    """Convert a GuideLLM scenario to a workload."""
    from blis_tui.importers.guidellm import import_guidellm  # noqa: PLC0415

    _finish([(output, import_guidellm(file, name=name, rate=rate))], strict=strict)


@import_.command("servegen")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--span", type=FiniteRange(), nargs=2, metavar="START END", help="Use only this part of the trace, in seconds."
)
@_OUTPUT
@_NAME
@_STRICT
@reported
def servegen(
    folder: Path, span: tuple[float, float] | None, output: Path | None, name: str | None, strict: bool
) -> None:
    """Convert a ServeGen folder (chunk-*-trace.csv, chunk-*-dataset.json) to a workload."""
    from blis_tui.importers.servegen import import_servegen  # noqa: PLC0415

    _finish([(output, import_servegen(folder, name=name, span_s=span))], strict=strict)


@import_.command("hardware")
@_FILE
@click.option(
    "-o", "--output", metavar="OUT_DIR", type=click.Path(path_type=Path), help="Folder for one file per accelerator."
)
@_STRICT
@reported
def hardware(file: Path, output: Path | None, strict: bool) -> None:
    """Convert a BLIS hardware file to one document per accelerator."""
    from blis_tui.importers.hardware import import_hardware  # noqa: PLC0415

    documents = import_hardware(file)
    if output is None and len(documents) > 1:
        names = ", ".join(one.name for one in documents)
        raise click.UsageError(f"{file} describes several accelerators ({names}): give a folder with -o")
    folder = output or Path()
    _finish([(None if output is None else folder / f"{one.name}.yaml", one) for one in documents], strict=strict)


def _finish(documents: Sequence[tuple[Path | None, Imported]], *, strict: bool) -> None:
    """Write all documents or none, then list what could not be converted."""
    from blis_tui.importers.section import notes_text  # noqa: PLC0415
    from blis_tui.records.files import atomic_files, reporting_write_errors  # noqa: PLC0415

    require_no_overwrite({f"-o ({one.name})": None if path is None else str(path) for path, one in documents})
    with atomic_files() as files:
        for path, document in documents:
            if path is None or str(path) == "-":
                print_data(document.text)
                continue
            with reporting_write_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            files.text(path).write(document.text)
    # All documents of a file share one list.
    notes = documents[0][1].notes
    tell(notes_text(notes), nl=False)
    if strict and any(note.lossy for note in notes):
        sys.exit(ExitCode.CHECK_FAILED)
