"""What the commands about documents print, and what is said of broken ones, as recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import render_text
from blis_tui.spec.subjects import names
from tests.recorded import SHIPPED, Digests, commands
from tests.spec.test_fuzz import STUDIES, TEXTS, diagnostics_of, mutation

if TYPE_CHECKING:
    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_FOREIGN: Final = Path(__file__).parent / "foreign" / "data"
_BROKEN: Final = 250
_KEYS: Final = (
    *("engine.max_num_seqs", "workload.clients.session", "policy.batching", "expect", "cluster.pools.hardware"),
    *("max_num_seqs", "ttft", "BLIS1001", "INV-4", "preemption", "nonsense", "step.duration_us", "latency.ttft_ms.p99"),
    *(
        "--kind study axes",
        "--kind model num_experts",
        "--kind hardware memory_gib",
        "",
        "engine",
        "--format json engine.lora",
    ),
)
_IMPORTS: Final = (
    *("guidellm guidellm-poisson.yaml", "guidellm guidellm-concurrent.json", "hardware hardware.json -o made"),
    *(f"inference-perf inference-perf{one}.yaml" for one in ("", "-synthetic", "-shared-prefix")),
    *("model config.json", "policy policy-full.yaml", "policy policy-lossy.yaml", "servegen servegen"),
    *("workload workload-v1.yaml", "workload workload-v2.yaml", "workload workload-lossy.yaml"),
)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for line in ("spec list", *(f"spec schema {kind}" for kind in ("experiment", "study", "model"))):
        commands(digests, tmp_path, line, kind="spec")
    for kind in ("experiment", "workload", "policy", "study", "model", "hardware"):
        commands(
            digests, tmp_path, f"spec new {kind}", f"spec new {kind} full --all", f"explain --kind {kind}", kind="new"
        )
    for name in SHIPPED:
        commands(digests, tmp_path, f"spec show {name}", f"spec resolve {name}", kind="shown")
    commands(digests, tmp_path, *(f"explain {key}" for key in (*_KEYS, *(name for name, _ in names()))))
    digests.check(file_regression)


def test_foreign_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture
) -> None:
    folder = shutil.copytree(_FOREIGN, tmp_path / "data")
    monkeypatch.chdir(folder)
    digests = Digests()
    for line in _IMPORTS:
        commands(digests, tmp_path, f"spec import {line}", kind=line.split()[0])
    digests.check(file_regression)


def test_checks_formats_and_upgrades(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    files = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
    for file in files:
        shutil.copy(file, file.name)
        commands(digests, tmp_path, f"check {file.name} --all", f"check {file.name} --format json", kind="check")
        commands(digests, tmp_path, f"spec fmt --diff {file.name}", f"upgrade --diff {file.name}", kind="format")
    digests.check(file_regression)


def test_what_is_said_of_mutated_documents(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for seed in range(_BROKEN):
        random = Random(seed)  # noqa: S311  (no secret)
        for texts in (TEXTS, STUDIES):
            diagnostics = diagnostics_of(mutation(random, texts))
            digests.add("said", render_text(diagnostics, limit=None))
    digests.check(file_regression)
