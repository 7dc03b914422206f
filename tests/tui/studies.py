"""A small study, and its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.errors import InputError
from blis_tui.spec.study.document import experiment_of, open_study_or_experiment, read_study
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import Outcome, key_of
from tests.golden.projects import SPEC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.model import Expectation
    from blis_tui.spec.study.study_records import Study

STUDY = """\
apiVersion: blis/v1
kind: Study
metadata: {name: sizing, description: "How many instances, and how large a cache?"}
experiment: ../../demo.blis.yaml
axes:
  cluster.instances: [1, 2, 3]
  engine.kv_blocks: [40, 60, 90]
constraints:
  - {metric: latency.ttft_ms.p99, max: 20}
objectives:
  - {metric: cost.gpus}
  - {metric: latency.ttft_ms.p99}
"""
"""Nine points, of which few keep to the bound."""
ODD = STUDY.replace("  engine.kv_blocks: [40, 60, 90]\n", "  cluster.tensor_parallel: [1, 2, 3]\n").replace(
    "objectives:", "seeds: 2\nobjectives:"
)
"""Some of its points are no experiments: attention heads cannot be split among three GPUs."""


def write_study(folder: Path, text: str = STUDY, name: str = "sizing") -> Path:
    """The study and its experiment, below a folder."""
    (folder / "demo.blis.yaml").write_text(SPEC, encoding="utf-8")
    path = folder / "specs" / "studies" / f"{name}.study.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load_study(path: Path) -> Study:
    document, base = open_study_or_experiment(str(path))
    return read_study(document, base=base)


def run_study(study: Study) -> MemoryStore:
    """A store that knows every run."""
    store = MemoryStore()
    for _ in Sweep(study, store=store).run(InProcessRunner()):
        pass
    return store


class Unwritable(MemoryStore):
    """A store that cannot keep anything."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        raise InputError("cannot keep results below /cache/runs: Read-only file system", help="name another folder")


def fail(store: MemoryStore, study: Study, number: int) -> None:
    """Let all runs of a point have failed."""
    for seed in study.seeds:
        key = key_of(experiment_of(study, study.points[number], seed))
        store.keep(key, (), Outcome(status="failed", why="out of memory"))
