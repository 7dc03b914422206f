"""The strict YAML reader: scalars, places, limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import Source
from blis_tui.spec import read
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.read import decode, parse, read_document


def data(text: str) -> object:
    return parse(Source("test", text)).data


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse(Source("test", text))
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("1.0e6", 1e6),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("FALSE", False),
        ("017", 17),
        ("0o17", 15),
        ("0xff", 255),
        ("-0", 0),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("3.10", 3.1),
        ("~", None),
        ("null", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!float 12", 12),
        ("9223372036854775807", 2**63 - 1),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = data(f"key: {text}\n")
    assert found == {"key": value}
    assert isinstance(found, dict)
    assert type(found["key"]) is type(value)


def test_the_pure_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x [1, 2.5, {b: no}]\nc: *x\nd: |\n  text\n  more\ne: 'q'\n"
    fast = parse(Source("test", text))
    monkeypatch.setattr(read, "_PARSER", yaml.SafeLoader)
    slow = parse(Source("test", text))
    assert (
        slow.data
        == fast.data
        == {"a": [1, 2.5, {"b": "no"}], "c": [1, 2.5, {"b": "no"}], "d": "text\nmore\n", "e": "q"}
    )
    assert slow.keys == fast.keys


def test_aliases_are_copies_with_places() -> None:
    document = parse(Source("test", "a: &x {k: 1}\nb: *x\n"))
    a, b = document.get("a"), document.get("b")
    assert a == b
    assert a is not b
    assert document.place(("b",)).span.line == 2
    assert document.place(("b", "k")).span.line == 1


def test_spans_of_keys_and_values() -> None:
    document = parse(Source("test", "é日: wert\nlist:\n  - {a: 1}\n  - two\n"))
    key, value = document.place(("é日",), key=True).span, document.place(("é日",)).span
    assert (key.line, key.column, key.end_column) == (1, 1, 3)
    assert (value.line, value.column, value.end_column) == (1, 5, 9)
    entry = document.place(("list", 0)).span
    assert (entry.line, entry.column, entry.end_column) == (3, 5, 11)
    assert document.place(("list", 1)).span.line == 4
    assert document.place(("list", 0, "missing")).span == entry


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[[{a: "])
def test_deep_nesting_is_one_clean_error(opening: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(Source("test", opening * 100_000))
    *_, last = caught.value.diagnostics
    assert (last.code, last.message) == ("BLIS0010", "nested deeper than 100 levels")


def test_an_alias_may_not_deepen_beyond_the_limit() -> None:
    deep = "[" * 60 + "1" + "]" * 60
    nested = "[" * 60 + "*x" + "]" * 60
    assert codes(f"a: &x {deep}\nb: {nested}\n") == ["BLIS0010"]


def test_alias_bomb() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert codes("\n".join(lines)) == ["BLIS0009"]


def test_an_anchor_can_be_used_before_it_is_redefined() -> None:
    assert data("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_problems_are_collected_in_order_of_position() -> None:
    assert codes("a: .nan\na: 1\n<<: {}\n7: x\nb: !tag v\n") == [
        "BLIS0004",
        "BLIS0002",
        "BLIS0005",
        "BLIS0003",
        "BLIS0013",
    ]


def test_a_byte_order_mark_is_dropped() -> None:
    assert parse(decode(b"\xef\xbb\xbfa: 1\n", "test", None)).data == {"a": 1}


def test_windows_line_ends() -> None:
    document = parse(Source("test", "a: 1\r\nb: 2\r\n"))
    assert document.data == {"a": 1, "b": 2}
    assert document.place(("b",)).span.line == 2


@pytest.mark.parametrize("text", ["", "   \n", "# comment\n", "---\n", "---\n...\n"])
def test_empty_documents(text: str) -> None:
    assert codes(text) == ["BLIS0007"]


@pytest.mark.parametrize("end", ["", "\n", "\n\n  \n"])
def test_what_is_missing_at_the_end_has_its_place_behind_what_there_is(end: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(Source("own.yaml", f"a: 1\nb: {{c: {end}"))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.column, diagnostic.source_line) == (2, 7, "b: {c: ")


@pytest.mark.parametrize(
    ("value", "line", "shown"),
    [("{a: ", 1, "engine={a: "), ("[1,", 1, "engine=[1,"), ("{a: 1,\n b: ", 2, " b: ")],
)
def test_an_argument_has_no_line_that_was_not_written(value: str, line: int, shown: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_overrides([f"engine={value}"])
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.source_line) == (line, shown)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot read"):
        read_document(tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        read_document(Path("a\0b"))


def test_large_files_are_refused_before_parsing(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"# " + b"x" * read.MAX_BYTES)
    with pytest.raises(SpecError) as caught:
        read_document(path)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["BLIS0011"]


def test_surrogates_do_not_get_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes('a: "\\ud800"\n') in (["BLIS0001"], ["BLIS0014"])
    monkeypatch.setattr(read, "_PARSER", yaml.SafeLoader)
    assert codes('a: "\\ud800"\n') == ["BLIS0014"]
