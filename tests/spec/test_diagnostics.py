"""How diagnostics look."""

from __future__ import annotations

from dataclasses import replace

from blis_tui.base.diagnostics import MAX_SHOWN, Diagnostic, TraceProblem, in_order, located, render_text, suggestion
from blis_tui.base.errors import SpecError, TraceError
from blis_tui.base.source import Location, Source, Span


def at(text: str, column: int, end: int) -> Diagnostic:
    place = Location(Source("f.yaml", text), Span(1, column, end))
    return replace(located("BLIS1001", "unknown key", place, path=("a", 0)), help=None)


def test_without_a_hint_of_its_own_it_has_the_remedy_of_its_code() -> None:
    place = Location(Source("f.yaml", "a: 1"), Span(1, 1, 2))
    assert located("BLIS1001", "unknown key", place).help == "correct the spelling or remove the key"
    assert located("BLIS1001", "unknown key", place, hint="did you mean `b`?").help == "did you mean `b`?"


def test_of_two_that_say_the_same_of_a_place_the_first_stays() -> None:
    first = at("abc", 1, 2)
    assert in_order([first, replace(first, help="another hint")]) == [first]


def test_text_form() -> None:
    assert render_text([at("  max_num_seq: 64", 3, 14)]) == (
        "error[BLIS1001]: unknown key\n --> f.yaml:1:3  (a.0)\n  |\n1 |   max_num_seq: 64\n  |   ^^^^^^^^^^^"
    )


def test_the_caret_allows_for_wide_and_combining_characters() -> None:
    lines = render_text([at("日本: é\u0301x", 5, 7)]).splitlines()
    assert lines[-1] == "  |       ^"
    wide = render_text([at("k: 日本", 4, 6)]).splitlines()
    assert wide[-1] == "  |    ^^^^"


def test_tabs_and_control_characters_do_not_reach_the_terminal() -> None:
    text = render_text([at("a:\t\x1b[31mred", 4, 5)])
    assert "\x1b" not in text
    assert "\t" not in text


def test_long_lines_are_clipped_around_the_mark() -> None:
    text = render_text([at("x" * 5000 + "HERE" + "y" * 5000, 5001, 5005)])
    assert "HERE" in text
    assert max(len(line) for line in text.splitlines()) < 200
    source, caret = text.splitlines()[-2:]
    assert source[caret.index("^") : caret.rindex("^") + 1] == "HERE"


def test_only_so_many_are_shown() -> None:
    many = [at("x" * 50, n, n + 1) for n in range(1, MAX_SHOWN + 6)]
    text = render_text(many)
    assert text.count("error[") == MAX_SHOWN
    assert text.endswith("... and 5 more errors: `blis-tui check --all` shows them")
    assert render_text(many, limit=None).count("error[") == len(many)
    assert str(SpecError(many)) == text


def test_order_and_repetition() -> None:
    first, second = at("abc", 1, 2), at("abc", 2, 3)
    assert in_order([second, first, second]) == [first, second]


def test_suggestions() -> None:
    assert suggestion("fcsf", ["fcfs", "sjf"]) == "did you mean `fcfs`?"
    assert suggestion("zzz", ["fcfs", "sjf"]) == "one of `fcfs`, `sjf`"
    assert suggestion("zzz", []) == "there are none"
    assert suggestion("?", [f"n{i:02}" for i in range(20)]).endswith("`n11` and 8 more")


def test_trace_errors_become_diagnostics() -> None:
    problem = TraceProblem(file="t.csv", line=7, column="input_tokens", message="not a number", help="fix it")
    (diagnostic,) = TraceError([problem]).diagnostics
    assert (diagnostic.code, diagnostic.file, diagnostic.line, diagnostic.path) == (
        "BLIS2100",
        "t.csv",
        7,
        "input_tokens",
    )
    assert render_text([diagnostic]).splitlines()[1] == " --> t.csv:7:1  (input_tokens)"
