"""The rows of a study in files: all forms say the same."""

import csv
import io
import json

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from blis_tui.study.parquet import write_rows
from blis_tui.study.study_rows import StudyResult, Value, rows_csv, rows_jsonl
from blis_tui.study.sweep import Sweep
from tests.study.studies import NoRunner, study_of


def text(value: Value) -> str:
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


def test_csv_parquet_and_json_lines_agree(result: StudyResult) -> None:
    records = result.records()
    lines = list(csv.DictReader(io.StringIO("".join(rows_csv(result)))))
    assert lines == [{name: text(value) for name, value in record.items()} for record in records]

    file = io.BytesIO()
    write_rows(file, result)
    assert pq.read_table(file).to_pylist() == records

    for line, record in zip(rows_jsonl(result), records, strict=True):
        values = json.loads(line)
        flat = {**values.pop("coordinates"), **values.pop("figures"), **values}
        assert {name: flat.get(name) for name in record} == record


def test_coordinates_that_are_no_cells_are_json() -> None:
    routing = ["round-robin", {"kind": "least-loaded"}]
    runs = Sweep(study_of({"policy.routing": routing}))
    list(runs.run(NoRunner()))
    result = runs.result()
    assert [record["policy.routing"] for record in result.records()] == ["round-robin", '{"kind": "least-loaded"}']
    assert [json.loads(line)["coordinates"]["policy.routing"] for line in rows_jsonl(result)] == routing
