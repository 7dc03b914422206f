"""Result files: their exact form, and that they appear whole or not at all."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blis_tui.base.canonical import to_json, to_sorted_json
from blis_tui.base.errors import InputError
from blis_tui.engine.records import RECORD_KINDS, Dropped
from blis_tui.output.result_files import atomic_text, write_text
from blis_tui.output.tables import csv_line, csv_lines
from blis_tui.results.record_lines import record_dict, record_line
from blis_tui.results.request_log import PLAIN_COLUMNS, RequestRow
from tests.builders import Outcome, experiment, request


def test_canonical_json_has_one_form() -> None:
    assert to_json({"b": -0.0, "a": [1, 0.1, "é", None, True]}) == (
        '{\n  "b": 0.0,\n  "a": [\n    1,\n    0.1,\n    "é",\n    null,\n    true\n  ]\n}\n'
    )
    assert to_sorted_json({"b": 1, "a": (1.0, {"b": 2})}) == '{"a":[1.0,{"b":2}],"b":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"a": float("nan")})


def test_the_request_table_leaves_empty_what_never_happened_and_quotes_names() -> None:
    never = (None, None, None, None, None, None)
    row = RequestRow('a,"b"', "rejected", None, 5, *never, 8, 0, 0, 0, "standard", "", "", None, 3, "", 0, None)
    assert csv_line(RequestRow._fields[: len(PLAIN_COLUMNS)]) == (
        "request_id,state,instance,arrival_us,queued_us,scheduled_us,first_token_us,completed_us,ttft_us,e2e_us,"
        "input_tokens,output_tokens,cached_tokens,preemptions,slo_class,tenant_id,session_id,round_index,"
        "requested_output_tokens,prefix_group,prefix_tokens,deadline_us\n"
    )
    (line,) = csv_lines([[cell] for cell in row[: len(PLAIN_COLUMNS)]])
    assert line == '"a,""b""",rejected,,5,,,,,,,8,0,0,0,standard,,,,3,,0,\n'


def test_records_keep_their_field_order() -> None:
    assert record_line(Dropped(3, 10, "r", 0, "too long")) == (
        '{"kind":"dropped","event":3,"time_us":10,"request_id":"r","instance":0,"reason":"too long"}\n'
    )


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    holds: bool


_VALUES = st.one_of(
    st.integers(), st.booleans(), st.none(), st.text(), st.lists(st.text()).map(tuple), st.tuples(st.builds(_Part))
)


@given(values=st.lists(_VALUES, min_size=3, max_size=3))
@example(values=["%s %d", (), '\u2028"\n'])
@example(values=[True, (_Part("%", holds=False),), -1])
def test_a_line_is_what_the_encoder_of_json_gives(values: list[Any]) -> None:
    """Field by field, in the order of the class, without spaces."""

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return [plain(one) for one in value]
        return {"name": value.name, "holds": value.holds} if isinstance(value, _Part) else value

    expected = {"kind": "dropped", "event": 3, "time_us": 10}
    expected |= dict(zip(("request_id", "instance", "reason"), map(plain, values), strict=True))
    line = json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert record_line(Dropped(3, 10, *values)) == line


def test_every_kind_of_record_is_plain_json() -> None:
    outcome = Outcome(experiment(blocks=6), [request(i, 0, 8, 8, deadline_us=1500) for i in range(4)])
    for record in outcome.records:
        assert json.loads(record_line(record)) == record_dict(record)
        assert record.kind in RECORD_KINDS
        # The line writer relies on it: floats would need the canonical writer's care.
        assert not any(isinstance(value, float) for value in record_dict(record).values())
    assert {"preempted", "step", "first-token", "timed-out"} <= {record.kind for record in outcome.records}


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_text(target, "old\n")
    with pytest.raises(ZeroDivisionError), atomic_text(target) as out:
        out.write(f"new, but {1 / 0}")
    assert target.read_text() == "old\n"
    write_text(target, "new\n")
    assert target.read_bytes() == b"new\n"
    assert list(tmp_path.iterdir()) == [target]
    (tmp_path / "ordinary").touch()
    assert target.stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_text(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_errors_of_the_writer_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"), atomic_text(tmp_path / "a.txt") as out:
        out.write((tmp_path / "elsewhere").read_text())
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path / "missing" / "report.json", "x")
