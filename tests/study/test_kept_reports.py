"""Kept results whose checksum holds and whose report is wrong: such a run is made again, and never a traceback."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli
from blis_tui.study.store import _MAGIC
from tests.golden.projects import SPEC
from tests.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP = (
    "sweep demo.blis.yaml --axis engine.max_num_seqs=8,16 --seeds 2 --slo latency.ttft_ms.p99<=9000 --store kept -j 1"
)


def sweep(*more: str) -> Result:
    return CliRunner().invoke(cli, [*SWEEP.split(), *more])


@pytest.fixture(scope="module")
def first_kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with kept results, and what a sweep says of them."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("demo.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 6"), encoding="utf-8")
        done = sweep()
    assert done.exit_code == 0, done.output
    return folder, done.stdout


@pytest.fixture
def kept(first_kept: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """The files with results, and their contents."""
    monkeypatch.chdir(first_kept[0])
    return {path: path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()}


def packed(document: object) -> bytes:
    return _MAGIC + zlib.compress(json.dumps(document).encode())


def unpacked(content: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(zlib.decompress(content[len(_MAGIC) :]))
    return document


def _of_another_run(report: dict[str, Any]) -> None:
    report["meta"]["spec_sha256"] = "0" * 64


def _of_another_seed(report: dict[str, Any]) -> None:
    report["meta"]["seed"] += 1


def _without_latencies(report: dict[str, Any]) -> None:
    del report["latency"]


def _a_text_for_a_number(report: dict[str, Any]) -> None:
    report["latency"]["ttft_ms"]["p99"] = "fast"


def _a_list_for_a_map(report: dict[str, Any]) -> None:
    report["tokens"] = [1]


def _no_number(report: dict[str, Any]) -> None:
    report["latency"]["ttft_ms"]["mean"] = float("nan")


def _a_number_without_end(report: dict[str, Any]) -> None:
    report["throughput"]["requests_per_s"] = 10**400


def _no_text(report: dict[str, Any]) -> None:
    report["warnings"] = [{"id": "\ud800", "message": "\ud800"}]


WRONG = [
    _of_another_run,
    _of_another_seed,
    _without_latencies,
    _a_text_for_a_number,
    _a_list_for_a_map,
    _no_number,
    _a_number_without_end,
    _no_text,
]


@pytest.mark.parametrize("change", WRONG)
def test_a_report_that_cannot_be_is_made_again(
    change: Callable[[dict[str, Any]], None], kept: dict[Path, bytes], first_kept: tuple[Path, str]
) -> None:
    for path, content in kept.items():
        document = unpacked(content)
        report = json.loads(document["report"])
        change(report)
        path.write_bytes(packed({**document, "report": json.dumps(report)}))
    done = sweep()
    assert (done.exit_code, done.stdout) == (0, first_kept[1])
    assert {path: unpacked(path.read_bytes()) for path in kept} == {one: unpacked(text) for one, text in kept.items()}


@pytest.mark.parametrize(
    "entry", [{"why": 5}, {"why": "\ud800"}, {"left_out": [5]}, {"report": None}, {"report": "[]"}]
)
def test_an_entry_of_other_types_is_made_again(
    entry: dict[str, object], kept: dict[Path, bytes], first_kept: tuple[Path, str]
) -> None:
    for path, content in kept.items():
        path.write_bytes(packed({**unpacked(content), **entry}))
    done = sweep()
    assert (done.exit_code, done.stdout) == (0, first_kept[1])


@pytest.mark.parametrize("block", range(4))
def test_mutated_entries_never_give_a_traceback(block: int, kept: dict[Path, bytes]) -> None:
    for seed in range(10 * block, 10 * block + 10):
        random = Random(seed)  # noqa: S311  (no secret)
        for path, content in kept.items():
            document = unpacked(content)
            whole = random.random() < 0.3
            changed = mutated(random, document) if whole else mutated(random, json.loads(document["report"]))
            path.write_bytes(packed(changed if whole else {**document, "report": json.dumps(changed)}))
        more = ("--objective", "min:cost.usd_per_hour", "--format", random.choice(["csv", "jsonl", "table"]))
        done = sweep(*more, "-o", "rows.csv")
        assert done.exception is None or isinstance(done.exception, SystemExit), (seed, done.exception)
        assert done.exit_code in (0, 1), (seed, done.output)
    for path, content in kept.items():
        path.write_bytes(content)
