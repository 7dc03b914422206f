"""Write the rows of a study to a file, as ``blis-tui sweep`` does."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from blis_tui.study.parquet import write_rows
from blis_tui.study.tables import rows_csv, rows_jsonl
from blis_tui.tui.screens.files import FilesScreen, Kind, text_bytes
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from blis_tui.study.rows import StudyResult

KINDS: Final = (
    Kind("csv", "csv", "one row per run"),
    Kind("jsonl", "jsonl", "one JSON object per run"),
    Kind("picture", "svg", "this screen as a picture"),
)
PARQUET: Final = Kind("parquet", "parquet", "one row per run, for data frames")
"""Where the package that writes it is installed."""


class StudyExport(FilesScreen):
    """Offers the kinds of files; enter writes one into the working folder.

    Args:
        result: what is known.
        picture: draws the screen below as SVG.
    """

    def __init__(self, result: StudyResult, picture: Callable[[], str]) -> None:
        *tables, picture_kind = KINDS
        kinds = (*tables, PARQUET, picture_kind) if find_spec("pyarrow") else KINDS
        super().__init__(kinds, f"All {plural(len(result.rows), 'run')} that are known.")
        self._result = result
        self._picture = picture()

    @property
    def stem(self) -> str:
        """The study."""
        return self._result.study.name

    def writer(self, kind: Kind) -> Callable[[BinaryIO], object]:
        """The rows of all runs, whatever the screen below shows."""
        if kind.id == "picture":
            return text_bytes(lambda out: out.write(self._picture))
        if kind.id == "parquet":
            return partial(write_rows, result=self._result)
        lines = rows_csv if kind.id == "csv" else rows_jsonl
        return text_bytes(lambda out: out.writelines(lines(self._result)))
