"""Pointers into reports: to what no report has is an error, and whatever reports have can be named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from blis_tui.base.errors import SpecError
from blis_tui.cli.main import cli
from blis_tui.golden.case import cases_of
from blis_tui.golden.compare import REDACTED, ComparisonOptions, Tolerance, _report_differences, redact
from blis_tui.spec.metric_names import unknown_step
from tests.golden.projects import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDENS = Path(__file__).parents[2] / "golden"


def steps_of(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from steps_of(part, (*path, str(name)))


def test_whatever_reports_have_can_be_named() -> None:
    reports = sorted(GOLDENS.rglob("*.report.json"))
    assert len(reports) > 40
    experiments = [one for path in reports if "meta" in (one := json.loads(path.read_text(encoding="utf-8")))]
    assert {
        path for experiment in experiments for path in steps_of(experiment) if path and unknown_step(path) is not None
    } == set()


@pytest.mark.parametrize(
    ("golden", "path", "hint"),
    [
        ("tolerance: {/latency/ttft/p99: {rel: 1}}", "tolerance./latency/ttft/p99", "/latency/ttft_ms/p99"),
        ("tolerance: {/latency/ttft_ms/p98: {rel: 1}}", "tolerance./latency/ttft_ms/p98", "/latency/ttft_ms/p9"),
        ("redact: [/meta/spec_sha256, /kv/hitrate]", "redact.1", "/kv/hit_rate"),
        ("redact: [/metadata]", "redact.0", ""),
    ],
)
def test_what_no_report_has_is_told(golden: str, path: str, hint: str, tmp_path: Path) -> None:
    spec = tmp_path / "demo.blis.yaml"
    spec.write_text(f"{SPEC}golden: {{{golden}}}\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        cases_of(spec)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.startswith("no report has `/")
    assert (diagnostic.line, diagnostic.path) == (16, f"golden.{path}")
    assert hint in str(diagnostic.help)
    checked = CliRunner().invoke(cli, ["check", str(spec)])
    assert (checked.exit_code, checked.stderr) == (2, f"{caught.value}\n\n")


@pytest.mark.parametrize(("pointer", "name"), [("/~01", "~1"), ("/~1", "/"), ("/~0", "~"), ("/a~1b~0", "a/b~")])
def test_escapes_are_those_of_json_pointers(pointer: str, name: str) -> None:
    report: dict[str, object] = {"~1": 1, "/": 1, "~": 1, "a/b~": 1}
    redact(report, pointer)
    assert [key for key, value in report.items() if value == REDACTED] == [name]


def test_a_tolerance_is_for_numbers_and_not_for_true_and_false() -> None:
    options = ComparisonOptions(tolerance={"/ok": Tolerance(abs=2.0), "/count": Tolerance(abs=2.0)})
    differences = _report_differences('{"ok": true, "count": 5}', '{"ok": false, "count": 6}', options)
    assert [(difference.path, difference.old, difference.new) for difference in differences] == [("/ok", True, False)]
    assert _report_differences('{"count": 5}', '{"count": 7.5}', options) != ()
