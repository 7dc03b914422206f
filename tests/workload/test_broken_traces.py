"""Every broken trace is one error with its place and a hint: exit code 2, and nothing is written."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from blis_tui.base import input_files
from blis_tui.cli.main import cli
from tests.zstandard import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_regressions.file_regression import FileRegressionFixture

BROKEN: Final = Path(__file__).parent / "broken_traces"
ROWS: Final = b"arrival_time_us,input_tokens,output_tokens\n" + b"".join(b"%d,10,5\n" % row for row in range(5000))
COMPRESSED: Final[Mapping[str, Callable[[], bytes]]] = {
    "requests-gzip-damaged.csv.gz": lambda: gzip.compress(ROWS, mtime=0)[:-2000],
    "requests-gzip-bomb.csv.gz": lambda: gzip.compress(ROWS[:42] + b"0,1,1\n" * 40_000, mtime=0),
    "requests-zstd-damaged.csv.zst": lambda: zstd.compress(ROWS)[:-100],
    "requests-zstd-bomb.csv.zst": lambda: zstd.compress(ROWS[:42] + b"0,1,1\n" * 40_000),
}
"""What is made here, as no file of text."""
SETTINGS: Final = {
    "mooncake-columns": "columns: {arrival: timestamp}",
    "mooncake-rate": "rate_per_s: 5",
    "mooncake-mixed-times": "rate_per_s: 5",
    "requests-slice": "slice: {from_s: 10}",
    "sharegpt-no-text": "rate_per_s: 5",
    "sharegpt-nothing": "rate_per_s: 5",
    "sharegpt-place": "rate_per_s: 5",
    "sharegpt-no-answer": "rate_per_s: 5",
    "sharegpt-not-complete": "rate_per_s: 5",
}
"""What the workload says of a trace."""
FORMATS: Final = (
    "requests",
    "azure",
    "burstgpt",
    "tracev2",
    "mooncake",
    "sharegpt",
    "vllm-bench",
    "otel",
    "bailian",
    "weka",
    "tracelab",
)
NAMES: Final = sorted([*(path.name for path in BROKEN.iterdir() if path.suffix != ".txt"), *COMPRESSED])


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40
    assert {next(one for one in FORMATS if name.startswith(one)) for name in NAMES} == set(FORMATS)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_one_error(
    name: str, tmp_path: Path, file_regression: FileRegressionFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(input_files, "_SHORT", 1 << 16)
    case = name.partition(".")[0]
    form = next(one for one in FORMATS if name.startswith(one))
    Path(name).write_bytes(COMPRESSED[name]() if name in COMPRESSED else (BROKEN / name).read_bytes())
    setting = f", {SETTINGS[case]}" if case in SETTINGS else ""
    Path("one.blis.yaml").write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: qwen3-14b\nhardware: h100\n"
        f"latency: roofline\nworkload: {{trace: {{file: {name}, format: {form}{setting}}}}}\n"
    )
    before = sorted(Path.cwd().iterdir())
    result = CliRunner().invoke(cli, ["run", "one.blis.yaml", "-o", "report.json", "--requests", "requests.csv"])
    assert (result.exit_code, result.stdout, sorted(Path.cwd().iterdir())) == (2, "", before)
    # How small a file gets depends on the library that compresses it.
    text = re.sub(r"[0-9,]+ bytes", "N bytes", result.stderr.replace(f"{tmp_path}/", ""))
    assert text.count("error[") == 1
    assert "= help: " in text
    file_regression.check(text, fullpath=BROKEN / f"{case}.txt", encoding="utf-8")
