"""Goldens are compared byte for byte: of another text with the same values only the ends of lines may differ."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import InputError
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import HEADER, REPORT, GoldenFiles, files_of, first_line_difference, report_text
from blis_tui.golden.review import accept
from blis_tui.golden.session import GoldenSettings, run_case
from tests.golden.projects import SPEC, project
from tests.golden.test_studies import STUDY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.session import Outcome


DEMO: Final = "demo.blis.yaml"
SIZES: Final = "sizes.study.yaml"
TEXTS: Final = {DEMO: SPEC, SIZES: STUDY.replace("[1, 2]", "[1]")}


def of(folder: Path, name: str = DEMO) -> tuple[Case, GoldenFiles]:
    """The only golden test of a file."""
    spec = folder / name
    (case,) = cases_of(spec)
    return case, files_of(spec, case.name, folder=folder / "golden", root=folder)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose goldens are stored, to be copied."""
    folder = project(tmp_path_factory.mktemp("stored"))
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
        case, files = of(folder, name)
        assert judged(case, files, "unseen").status == "written"
        assert judged(case, files).status == "equal"
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    """A project of its own whose goldens are stored."""
    return shutil.copytree(stored, tmp_path, dirs_exist_ok=True)


def judged(case: Case, files: GoldenFiles, mode: str = "no") -> Outcome:
    return run_case(case, files, case.spec.name, GoldenSettings(mode=mode, checks=()))


def passes_and_text(case: Case, files: GoldenFiles, mode: str = "no") -> tuple[bool, str]:
    """Whether the test passes, and what it says."""
    try:
        outcome = judged(case, files, mode)
    except InputError as error:
        return False, str(error)
    return outcome.ok, outcome.text


def rewritten(files: GoldenFiles, kind: str, change: Callable[[str], str]) -> None:
    path = files.file(kind)
    text = path.read_bytes().decode()
    assert change(text) != text
    path.write_bytes(change(text).encode())


def reordered(text: str) -> str:
    """The same values, their last key first."""
    data = json.loads(text)
    return report_text(dict(reversed(data.items())))


@pytest.mark.parametrize("kind", [REPORT, HEADER])
def test_only_the_ends_of_lines_may_be_others(kind: str, folder: Path) -> None:
    case, files = of(folder)
    rewritten(files, kind, lambda text: text.replace("\n", "\r\n"))
    assert judged(case, files).status == "equal"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps(json.loads(text), indent=4) + "\n",
        lambda text: text.removesuffix("\n"),
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.replace('"events":', '"events": 1,\n    "events":', 1).replace(
            '"total":', '"total": 1,\n    "total":', 1
        ),
        lambda text: text.replace("default", "\\u0064efault", 1),
        lambda text: text.replace('": 25', '": 25.0', 1).replace('"every": ', '"every": 0', 1),
        lambda text: text.replace("{", '{\n  "note": 1,', 1),
        lambda text: "\ufeff" + text,
        lambda text: "<<<<<<< ours\n" + text,
        reordered,
    ],
)
@pytest.mark.parametrize("kind", [REPORT, HEADER])
def test_another_text_is_no_golden_whatever_its_values(kind: str, change: Callable[[str], str], folder: Path) -> None:
    case, files = of(folder)
    rewritten(files, kind, change)
    for mode in ("no", "new"):
        ok, text = passes_and_text(case, files, mode)
        assert not ok
        assert f"{files.file(kind).name}" in text or "report: " in text
    assert judged(case, files, "always").status == "written"
    assert judged(case, files).status == "equal"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spec", "other.blis.yaml"),
        ("case", "other"),
        ("spec_sha256", "0" * 64),
        ("engine", "99"),
        ("plugins", [{"plug_point": "policy.routing", "name": "own", "from": "own.py", "version": "1"}]),
        ("records", {"events": 1}),
        ("records", {"sha256": "0" * 64}),
        ("records", {"entries": "00000000"}),
        ("document", {"seed": 5}),
    ],
)
@pytest.mark.parametrize("name", TEXTS)
def test_every_figure_of_the_header_counts(name: str, key: str, value: object, folder: Path) -> None:
    case, files = of(folder, name)

    def change(text: str) -> str:
        data = json.loads(text)
        data[key] = {**data[key], **value} if isinstance(value, dict) else value
        keys = [*data]
        if key == "plugins":  # where a header has them
            keys.insert(keys.index("records"), keys.pop())
        return report_text({one: data[one] for one in keys})

    rewritten(files, HEADER, change)
    assert not passes_and_text(case, files)[0]


@pytest.mark.parametrize("key", ["baseline", "schemas_sha256"])
def test_who_wrote_a_golden_does_not_count(key: str, folder: Path) -> None:
    case, files = of(folder)
    other = {"baseline": {"python": "CPython 3.99", "system": "Plan 9"}, "schemas_sha256": "0" * 64}[key]
    rewritten(files, HEADER, lambda text: report_text({**json.loads(text), key: other}))
    assert judged(case, files).status == "equal"


def test_a_result_that_differs_in_its_text_alone_waits_and_is_accepted(folder: Path) -> None:
    case, files = of(folder)
    rewritten(files, REPORT, reordered)
    outcome = judged(case, files, "new")
    assert "line 2 is `" in outcome.text
    assert outcome.pending
    accept(files)
    assert judged(case, files).status == "equal"


def test_a_result_takes_the_place_of_a_damaged_golden(folder: Path) -> None:
    case, files = of(folder)
    files.write(files.read(), pending=True)
    rewritten(files, HEADER, lambda _: "{}")
    accept(files, force=True)
    assert judged(case, files).status == "equal"


def test_tolerated_and_redacted_values_leave_the_rest_of_the_text_exact(folder: Path) -> None:
    tolerant = "golden: {records: false, tolerance: {/duration_us: {rel: 0.5}}, redact: [/latency/ttft_ms/p50]}\n"
    (folder / DEMO).write_text(SPEC + tolerant, encoding="utf-8")
    case, files = of(folder)

    def change(text: str) -> str:
        data = json.loads(text)
        data["duration_us"] += 1
        data["latency"]["ttft_ms"]["p50"] = 7
        return report_text(data)

    rewritten(files, REPORT, change)
    assert judged(case, files).status == "equal"
    rewritten(files, REPORT, reordered)
    assert judged(case, files).status == "changed"


def test_the_first_line_that_differs_is_found_at_the_end_of_a_text_too() -> None:
    assert first_line_difference("a\n", "a\n") is None
    assert str(first_line_difference("a\nb\n", "a\nc\n")) == "line 2 is `b`, and would be `c`"
    assert str(first_line_difference("a", "a\nb")) == "line 2 is not there, and would be `b`"
    assert str(first_line_difference("a\n\n", "a\n")) == "line 3 is empty, and would be not there"


def test_two_lines_that_begin_alike_are_shown_where_they_differ() -> None:
    """Reformatted lines differ in their indentation, long ones beyond what is shown of them."""
    assert (
        str(first_line_difference('{\n    "a": {', '{\n  "a": {')) == 'line 2 is `    "a": {`, and would be `  "a": {`'
    )
    assert str(first_line_difference("a ", "a")) == "line 1 is `a `, and would be `a`"
    digits = "0123456789" * 20
    difference = first_line_difference(f"{digits}x{digits}", f"{digits}y{digits}")
    assert difference is not None
    assert difference.found == f"…{digits[-20:]}x{digits[:39]}"
    assert difference.expected == f"…{digits[-20:]}y{digits[:39]}"
