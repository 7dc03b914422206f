"""Texts, numbers, streams, plain data and files, over many values of each, as recorded."""

from __future__ import annotations

import gzip
import signal
from io import BytesIO, StringIO
from itertools import product
from random import Random
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from blis_tui.base import diagnostics, errors, html, pickling, portable_math, scalars, text, units
from blis_tui.base.canonical import to_json, to_line, to_sorted_json
from blis_tui.base.input_files import (
    DamagedError,
    beginning,
    clear_opened_inputs,
    input_digest,
    note_opened,
    opened_inputs,
    parse_foreign_json,
    parse_json,
    read_input,
    unmerged_line,
    unpacked,
)
from blis_tui.base.interrupted import Interrupted, caused_by_signal
from blis_tui.base.processes import how_it_ended
from blis_tui.base.source import Document, Location, Source, Span, as_list, as_map, copied, dotted, equal
from blis_tui.base.standard_output import Printed, Stream
from blis_tui.base.streams import Streams, stream_key
from tests.recorded import Digests, lasting, outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.base.source import Json

_WHOLE: Final = (
    *range(125),
    *(sign * (10**power + more) for power in range(2, 14) for more in (-1, 0, 1, 499, 500) for sign in (1, -1)),
    *(59_499_999, 59_500_000, 60_000_000, 9_994, 9_995, 99_949, 99_950, 999_499, 999_500, 7_384_000_000),
)
_REAL: Final = (
    *(0.0, -0.0, 1.0, 0.5, -0.25, 9.994, 9.995, 9.996, 99.94, 99.95, 99.96, 100.04, 999.4, 999.5, 1e-7, 1e7, 12.3456),
    *(-1.0, -1000.5, 123.456, 1234.5678, 3.14159e12),
)
_NAMES: Final = (
    *("max_num_seqs", "max-num-seqs", "max_num_seq", "maxnumseqs", "num_seqs_max", "seqs", "kv_blocks", "kv_block"),
    *("prompt_tokens", "output_tokens", "h100", "v100", "a100", "llama-3.1-8b", "lama-3.1-8b", "latency", "latnecy"),
    *("latency.ttft_ms.p99", "latency.ttft.p99", "p99", "", "x", "weighted", "wieghted", "engine", "engin", "x" * 120),
    *("round-robin", "robin-round", "roundrobin", "least-loaded", "least", "kv_blocks_per_gpu", "gpu_kv_blocks_per"),
)
_TEXTS: Final = (
    *("", "plain", "two words", "tab\there", "a\nb\r\nc", "esc\x1b[2J", "wide \u6f22\u5b57", "bidi \u202e", "soft\xad"),
    *("e\u0301", "\ud800", "\U000e0041", "emoji \U0001f600", "null", "~", "yes", "No", "0x1F", "0o17", "017", "1e6"),
    *("1_000", ".5", "5.", "-.inf", ".nan", "+12", "-0", "1e400", "9" * 25, "-9223372036854775809", "1" * 40, "a: b"),
    *('"quoted"', "#no", "path/to.file", "2001-01-01", "18446744073709551615", "18446744073709551616", "0x", "-", "."),
)


def _all(digests: Digests, kind: str, function: Callable[..., object], *values: object) -> None:
    """Take what a function returns, or raises, for each value; several arguments are a tuple."""
    for value in values:
        given = value if isinstance(value, tuple) else (value,)
        try:
            found: object = function(*given)
        except (ArithmeticError, LookupError, TypeError, ValueError, scalars.ScalarError) as error:
            found = f"{type(error).__name__}: {_own_words(error)}"
        digests.add(kind, repr(found))


def _own_words(error: Exception) -> str:
    """What an error says if it was raised in this package's own words; Python's change with its version."""
    frames = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    ours = isinstance(error, ValueError | scalars.ScalarError) and "blis_tui" in frames[-1]
    return str(error) if ours else ""


def test_units(file_regression: FileRegressionFixture) -> None:
    """Every format of numbers, where it changes its unit or the number of its digits, and near that."""
    digests = Digests()
    for function in (
        *(units.time_text, units.span_text, units.count_text, units.bytes_text, units.ordinal, units.milliseconds),
        *(units.ms_text, units.ms_change_text, units.number_text),
    ):
        _all(digests, function.__name__, function, *_WHOLE)
    for real in (units.number_text, units.share_text, units.share_change_text, units.milliseconds):
        _all(digests, f"{real.__name__} of reals", real, *_REAL, None)
    _all(digests, "share digits", units.share_text, *product(_REAL, range(3)))
    _all(digests, "plural", units.plural, *((n, "block") for n in _WHOLE))
    _all(
        digests, "percent", units.percent_text, *product((-1, 0, 1, 2, 99, 199, 200, 201, 999, 1000), (0, 1, 200, 1000))
    )
    _all(digests, "bar", units.bar_text, *product((-1, 0, 1, 3, 7, 8, 20), (0, 1, 8, 16), (-1, 0, 1, 2, 8)))
    _all(
        digests,
        "fine bar",
        units.fine_bar,
        *product((None, -1.0, 0.0, 0.01, 0.4, 0.99, 1.0, 3.0), (0.0, 1.0, 2.5), (1, 5)),
    )
    _all(digests, "in words", lambda *parts: units.in_words(parts), ("a",), ("a", "b"), ("a", "b", "c"))
    spoken = "expired after 3000 us, 12,345 us of 7us, 1us and 2500000 us"
    _all(digests, "spans", units.with_spans, spoken, "none", "5 usual")
    template = (
        "{a:ms} {a:span} {a:time} {a:place} {a:ppm} {a:token} {a:yes|no} {a:,} {a:,d} {a:d} {b:share} {c} {d} {reason}"
    )
    for a, b in product((0, 1, 2, 12, 1_234_567), (0.0, 0.1234, 2.0)):
        digests.add("filled", units.filled(template, {"a": a, "b": b, "c": None, "reason": "after 1500 us"}))
    digests.check(file_regression)


def test_texts(file_regression: FileRegressionFixture) -> None:
    """Tables, wrapped and shortened texts, control characters, curves, and names that are meant."""
    digests = Digests()
    drawn = Random(5)  # noqa: S311  (no secret)
    for width in range(1, 5):
        rows = [tuple("x" * drawn.randrange(9) for _ in range(width)) for _ in range(6)]
        digests.add("aligned", *(line for gap in (1, 2, 5) for line in text.aligned(rows, range(width // 2), gap)))
    for longest in (1, 20, 46, 48, 50, 90):
        named = [("n" * length, "word " * length) for length in (0, 1, 7, longest)]
        digests.add("described", *text.described(named), *text.described([]))
    for shorten in (text.clip, text.cut):
        _all(digests, shorten.__name__, shorten, *product(("", "a", "abcdefghij", "path/to/file"), range(1, 14)))
    for shown in (text.printable, text.escaped, text.printable_lines, diagnostics.cells, scalars.quoted):
        _all(digests, shown.__name__, shown, *_TEXTS)
    for count, height, top in product((0, 1, 2, 7, 20), (1, 2, 5), (0.0, 0.5, 1.0, 3.0)):
        values = [None if drawn.random() < 0.2 else drawn.random() for _ in range(count)]
        for filled in (False, True):
            digests.add("curve", *text.draw(values, height, top, filled=filled))
    places = [(drawn.random() * 1.4 - 0.2, drawn.random() * 1.4 - 0.2) for _ in range(30)]
    digests.add("scatter", *(row for size in ((1, 1), (4, 2), (11, 5)) for row in text.scatter(places, *size)))
    for wrong in _NAMES:
        known = [name for name in _NAMES if name != wrong]
        digests.add(
            "meant",
            diagnostics.nearest(wrong, known),
            diagnostics.begin_alike(wrong, known),
            diagnostics.words_of(wrong),
        )
        for names in (known, known[:3], known[:12], known[:13], []):
            digests.add(
                "suggested",
                diagnostics.suggestion(wrong, names),
                diagnostics.suggestion(wrong, names, meant=["p99", "y"]),
            )
    digests.check(file_regression)


def test_numbers(file_regression: FileRegressionFixture) -> None:
    """Bits of the functions that are the same on every machine, and of all draws of a stream."""
    digests = Digests()
    points = [
        mantissa * 2.0**power for power in range(-1074, 1024, 13) for mantissa in (1.0, 1.1, 1.4142, 1.4143, 1.999)
    ]
    _all(digests, "ln", portable_math.ln, *points, 0.0, -1.0, float("inf"))
    _all(digests, "exp", portable_math.exp, *(sign * point for point in points if point < 1000 for sign in (1, -1)))
    _all(digests, "exp, far", portable_math.exp, 709.78, 709.79, -745.1, -745.2, -708.4, -720.5, float("nan"))
    _all(digests, "power", portable_math.power, *product((0.1, 0.5, 1.0, 2.0, 10.0), (-3.5, -1.0, 0.0, 0.3, 2.0)))
    _all(digests, "gamma", portable_math.gamma, *(number / 7 for number in range(1250)), -1.0)
    for seed, name in product((0, 1, -7, 2**63), ("", "a", "workload/client-3/arrivals")):
        digests.add("key", stream_key(seed, name))
        stream = Streams(seed).stream(name)
        for draw in range(40):
            digests.add("below", stream.below(1 + draw * 77), stream.uniform(), stream.uniform_open())
            digests.add("shaped", stream.exponential(), stream.normal(), stream.gamma(0.1 + draw / 9))
            digests.add("words", stream.words(draw), stream.state())
        again = type(stream)(*stream.__reduce__()[1])
        digests.add("again", again.words(19), stream.words(19), again.normal() == stream.normal())
        _all(digests, "no draws", stream.below, 0, 2**64, 2**64 + 1, -1)
        _all(digests, "no shapes", stream.gamma, 0.0, -1.0)
    digests.check(file_regression)


def test_plain_data(file_regression: FileRegressionFixture) -> None:
    """Scalars, canonical JSON, JSON of others, and documents that remember their places."""
    digests = Digests()
    nested: Json = {"b": [1, -0.0, {"é": None, "a": True}], "a": "\x9b\u202e", "long": [*range(5)], "k": {}, "e": []}
    for function in (scalars.plain_scalar, scalars.is_text, scalars.is_bare):
        _all(digests, function.__name__, function, *_TEXTS)
    for write in (to_json, to_line, to_sorted_json, scalars.flow):
        _all(digests, write.__name__, write, nested, {}, [], *_TEXTS, *_REAL, float("nan"))
    for parse in (parse_json, lambda line: parse_foreign_json(line.encode("utf-8", "surrogatepass"))):
        _all(digests, "parsed", parse, *_JSON)
    _all(digests, "parsed bytes", parse_json, *(one.encode(code) for one in _JSON[:4] for code in ("utf-8", "utf-16")))
    _all(digests, "equal", equal, *product((True, 1, 1.0, 0, False, "1", None), repeat=2))
    values: tuple[Json, ...] = (nested, [1], "x", None)
    for value in values:
        digests.add("copied", copied(value), as_map(value), as_list(value))
    _documents(digests)
    digests.check(file_regression)


_JSON: Final = (
    *('{"a": [1, 2.5, "x"], "b": {"c": null}}', "[]", '"x"', "3", "NaN", "[1e999]", '{"a": [{"b": -Infinity}]}'),
    *('{"deep": [' + "1" * 101 + "]}", "1" * 100, "[" * 100 + "]" * 100, "[" * 101 + "]" * 101, "[" * 102 + "]" * 102),
    *(r'{"half": "\ud800"}', r'["\uD83D\uDE00"]', "{", "", "1" * 5000, '{"' + "k" * 120 + '": 1e400}', "[true, false]"),
)


def _documents(digests: Digests) -> None:
    """Take what a document says of its places, whole and in parts, and with another one put into it."""
    source = Source("a.yaml", "a:\n  - b\u2028c: [1, true]\nwide: 漢字 " + "x" * 200 + "\r\nend")
    other = Source("--set", "a.0=3")
    document = Document({"a": [{"c": [1, True, 2.5]}], "wide": "x"}, source)
    for number, path in enumerate(((), ("a",), ("a", 0), ("a", 0, "c"), ("a", 0, "c", 1), ("wide",))):
        document.values[path] = Location(source, Span(number % 4 + 1, number + 1, number + 3))
        document.keys[path] = Location(source, Span(number % 4 + 1, 1, 2 + number * 40))
    branch = Document({"d": 3}, other, {(): Location(other, Span(1, 1, 4))}, {("d",): Location(other, Span(1, 5, 6))})
    changed = document.copy()
    changed.graft(("a", 0), branch)
    for one in (document, changed, document.branch(("a", 0)), document.branch(("none", 3))):
        digests.add("document", one.data, sorted(one.keys.items(), key=repr), sorted(one.values.items(), key=repr))
        for path in (*document.values, ("a", 0, "d"), ("a", 1), ("a", "x"), ("wide", 0), ("none", "of")):
            digests.add("places", one.get(*path), one.number(*path), one.whole(*path), dotted(path))
            digests.add("places", one.place(path), one.place(path, key=True))
            for key in (False, True):
                diagnostic = diagnostics.about(one, path, "BLIS1001", "wrong\x1b", key=key, hint="try" if key else None)
                digests.add("told", diagnostics.render_text([diagnostic]))
    digests.add("lines", source.lines, source.is_argument, other.is_argument)
    _all(digests, "put", lambda: document.graft(("wide", 0), branch), ())


def test_problems(file_regression: FileRegressionFixture) -> None:
    """Few and many problems of documents and traces, in order and as text, and the errors that carry them."""
    digests = Digests()
    for count in (1, 2, 5, 20, 21, 22, 50):
        found = [
            diagnostics.Diagnostic(
                code=f"BLIS100{number % 3}",
                message=f"it is {number % 7}",
                file=("b.yaml", "a.yaml", "--set")[number % 3],
                line=number % 5,
                column=number % 4,
                end_column=number % 4 + number % 11,
                path=".".join("path"[: number % 4]),
                source_line="" if number % 6 == 0 else "some: text with\ttabs, " * (number % 4 * 3),
                help=None if number % 2 else "do it",
                notes=("a note",) * (number % 3),
            )
            for number in range(count)
        ]
        ordered = diagnostics.in_order([*found, *found])
        digests.add("in order", *ordered)
        digests.add("rendered", diagnostics.render_text(ordered), diagnostics.render_text(ordered, limit=None))
        digests.add("rendered", str(errors.SpecError(found)), errors.SpecError(found).message)
        rows = [
            diagnostics.TraceProblem(
                file="t.csv",
                line=number * 3 % 13,
                column=("arrival_us", "", "input_tokens")[number % 3],
                message=f"`{number}` is wrong {number % 8}",
                help=None if number % 4 else "mend it",
                cell=f"`{number}`",
            )
            for number in range(count)
        ]
        digests.add(
            "traces",
            diagnostics.from_trace_problems(rows),
            str(errors.TraceError(rows)),
            errors.TraceError(rows).message,
        )
    for code in diagnostics.CODES:
        digests.add("codes", diagnostics.located(code, "it", Location(Source("a", "b"), Span(9, 1, 2))))
    raised = (
        errors.BlisError("two\nlines", help="a\x1bb"),
        errors.InvariantError("INV-4", "three", time_us=5, event=6),
        errors.DivergenceError("seven", event=8),
    )
    digests.add(
        "errors",
        *map(str, raised),
        *(vars(blis_error) for blis_error in raised),
        errors.in_words(KeyError("x"), "here"),
    )
    digests.check(file_regression)


def test_files(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    """Files read whole, up to a limit, and decompressed; tables of HTML; printed lines."""
    clear_opened_inputs()
    digests = Digests()
    content = b"".join(b"%d,%d\n" % (number, number * number) for number in range(3000))
    packed = gzip.compress(content, mtime=0)
    for name, written in (
        ("plain", content),
        ("gz", packed),
        ("torn", packed[:-9]),
        ("empty", b""),
        ("short", b"\x1f"),
    ):
        path = tmp_path / name
        path.write_bytes(written)
        for limit in (-1, 0, len(written) - 1, len(written), 1 << 21):
            found = [repr(outcome(read, path, limit=limit)) for read in (read_input, input_digest)]
            if written[:2] != packed[:2]:  # how it is compressed depends on the machine
                digests.add(f"{name}: read", *(lasting(one, tmp_path) for one in found))
        for limit in (0, 100, len(content) - 1, len(content), 1 << 20):
            try:
                digests.add(f"{name}: unpacked", b"".join(unpacked(BytesIO(written), name, limit=limit)))
            except DamagedError as error:
                digests.add(f"{name}: damaged", type(error).__name__, len(error.advice))
        if name != "torn":
            digests.add(f"{name}: begins", *(beginning(BytesIO(written), name, count) for count in (0, 1, 10)))
    digests.add("opened", *(str(opened_input).removeprefix(str(tmp_path)) for opened_input in opened_inputs()))
    clear_opened_inputs()
    note_opened("x")
    digests.add("opened", opened_inputs())
    _all(
        digests, "unmerged", lambda *lines: unmerged_line(lines), ("a", "<<<<<<< x"), ("<<<<<<<x",), ("<<<<<<< y", "b")
    )
    _tables(digests)
    _printed(digests)
    digests.check(file_regression)


def _tables(digests: Digests) -> None:
    """Take tables with and without each part."""
    rows = [("a<b", "1", html.Markup("<b>2</b>")), ("c", "", "3")]
    for words, classes, sortable, caption in product(((), (1,), (1, 2)), ((), ("x", "y'")), (False, True), ("", "c<")):
        for head in (("n", "<v>", "w"), ("", "", "")):
            digests.add(
                "table",
                html.Table(
                    head=head, rows=rows, words=words, classes=classes, sortable=sortable, caption=caption
                ).html(),
            )
    digests.add("table", *(html.plain_table(("n", "v", "w"), rows, numbers=numbers) for numbers in (False, True)))
    digests.add("page", html.plain_page("t<", ["<p>x</p>"], "p {}"))
    digests.add("table", html.html_table("t<", ["a", "b"], [(one, "<") for one in (*_REAL, None, 3)], ["n<"]))


def _printed(digests: Digests) -> None:
    """Take lines that come in pieces, are long, and are many."""
    printed = Printed()
    stream = Stream(printed.write)
    for part in ("a", "b\nc\r\nd", "", "\n", "x" * 2500, "y\n", "\x1b[2J\n", "last"):
        digests.add("printed", stream.write(part), stream.buffer.write(part.encode()), printed.lines(), printed.total)
    digests.add("printed", stream.writable(), stream.buffer.writable(), printed.take(), printed.lines())
    for number in range(1100):
        printed.write(f"{number}\n")
    digests.add("printed", printed.lines()[0], len(printed.lines()), printed.total)


class _Kept(pickling.Picklable):
    """Not of the package: all its slots are its own."""

    __slots__ = ("__hidden", "left_out", "seen")

    def __init__(self) -> None:
        self.__hidden = 1
        self.seen = self.__hidden + 1

    def state(self) -> tuple[object, ...]:
        """What it remembers."""
        return (self.seen,)


class _Open(_Kept):
    """Has attributes beside its slots."""

    def __init__(self) -> None:
        super().__init__()
        self.more = 3


def test_ends(file_regression: FileRegressionFixture) -> None:
    """How processes end, what a signal has caused, and what is kept of objects."""
    digests = Digests()
    codes = (None, 0, 1, 255, -signal.SIGKILL, -signal.SIGTERM, -99)
    _all(digests, "ended", how_it_ended, *codes)
    error, wrapped = RuntimeError("x"), RuntimeError("y")
    wrapped.__cause__ = Interrupted()
    digests.add("signals", *(caused_by_signal(one) for one in (None, error, wrapped, Interrupted())))
    for one in (_Kept(), _Open(), Streams(3), StringIO("x"), len):
        digests.add("kept", pickling.own_attributes(one) if not callable(one) else "", pickling.is_internal_object(one))
        digests.add("kept", pickling.is_internal_class(type(one)))
    digests.add("kept", _Kept().__getstate__(), _Open().__getstate__(), Streams(3).__getstate__())
    plugged = pickling.stateful_plugins(_Kept(), pickling.ValidatedPlugin(_Open()), Streams(3), 7)
    digests.add("kept", *(stateful.state() for stateful in plugged))
    digests.check(file_regression)
