"""Stored results as a side of a comparison: a report of ``run``, of a golden, or in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json, read_input
from blis_tui.golden.bundle import SUFFIX, unpacked
from blis_tui.golden.golden_store import HEADER, REPORT
from blis_tui.runs.compare.comparison import stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model.plug_ins import Registry
    from blis_tui.runs.compare.comparison import Stored

_JSON: Final = ".json"
_MOST_BYTES: Final = 64 * 1024 * 1024


def is_stored(source: str) -> bool:
    """Return whether a name is that of a file with results; other names are experiments."""
    return source.endswith((_JSON, SUFFIX))


def read_stored(source: str, plugins: Registry | None = None) -> Stored:
    """Return the results in a file, and their experiment if the bundle or the golden's header has it.

    Raises:
        InputError: it cannot be read, or is neither a report nor a bundle.
        SpecError: the experiment of a bundle is not valid here.
    """
    if source.endswith(SUFFIX):
        with unpacked(source, plugins) as bundle:
            return stored(source, parse_json(bundle.golden.report), bundle.golden.document)
    found = stored(source, _parsed(Path(source)))
    header = Path(source.removesuffix(REPORT) + HEADER)
    if not source.endswith(REPORT) or not header.is_file():
        return found
    golden = _parsed(header)
    return stored(source, found.figures, _document(golden, found.sha256))


def _document(golden: object, sha256: str) -> Mapping[str, object] | None:
    """Return the experiment in a golden's header if it matches the report beside it."""
    if not isinstance(golden, dict) or golden.get("spec_sha256") != sha256:
        return None
    document = golden.get("document")
    return document if isinstance(document, dict) else None


def _parsed(path: Path) -> object:
    try:
        return parse_json(read_input(path, limit=_MOST_BYTES))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}", help="`diff` takes reports that `run -o` wrote") from error
