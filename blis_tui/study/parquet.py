"""The request table as a Parquet file: the columns and values of the CSV file, with types."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, get_type_hints

from blis_tui.base.errors import InputError, install_command
from blis_tui.results.request_log import RequestRow

if TYPE_CHECKING:
    from typing import BinaryIO

    from blis_tui.results.request_log import RequestTable
    from blis_tui.study.study_rows import StudyResult, Value

_ROWS: Final = 65_536
"""Rows per row group, which limits the number of Python objects held at once."""


def require_parquet() -> None:
    """Raise InputError if the package that writes Parquet is not installed."""
    try:
        import_module("pyarrow")
    except ImportError:
        raise InputError(
            "a Parquet file needs an extra package", help=f"{install_command('parquet')}, or name a .csv file"
        ) from None


def write_requests(out: BinaryIO, rows: RequestTable) -> None:
    """Write the table; what never happened is null, and texts that are empty in CSV are empty."""
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra that may not be there)
    from pyarrow.parquet import ParquetWriter  # type: ignore[import-untyped]  # noqa: PLC0415

    types = get_type_hints(RequestRow)
    schema = pa.schema([(name, pa.string() if types[name] is str else pa.int64()) for name in rows.columns])
    with ParquetWriter(out, schema, compression="zstd") as writer:
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            arrays = [pa.array([getattr(row, field.name) for row in part], type=field.type) for field in schema]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def write_rows(out: BinaryIO, result: StudyResult) -> None:
    """Write the rows of a study; a column has the common type of its values, else text."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415

    table: dict[str, list[Value]] = {name: [] for name in result.columns()}
    for record in result.each_record():
        for name, value in record.items():
            table[name].append(value)
    for name, values in table.items():
        types = {float if type(cell) is int else type(cell) for cell in values if cell is not None}
        if len(types) > 1:
            table[name] = [None if cell is None else str(cell) for cell in values]
    arrays = {name: pa.array(values) for name, values in table.items()}
    whole = pa.table(arrays)
    with ParquetWriter(out, whole.schema, compression="zstd") as writer:
        writer.write_table(whole)
