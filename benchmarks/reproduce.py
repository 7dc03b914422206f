"""Recompute what the page on accuracy says, from measurements in this repository, and compare.

Nothing is fetched. ``benchmarks/data/`` has the measured servers with users in a closed loop (ai-dynamo/aiconfigurator
and SemiAnalysisAI/InferenceX, Apache-2.0; see ``NOTICE``). The development and training runs, all on H100, may not be
redistributed: what hangs on them is listed as such.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import unseen
from benchmarks.accuracy import (
    CONTRADICTORY,
    KINDS,
    LEFT_OUT,
    MEASURED,
    MEDIANS,
    PAGE,
    SEEN,
    calibration,
    errors_of,
    expected,
    measured_row,
    serving_runs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.accuracy import Run

HERE: Final = Path(__file__).parent
DATA: Final = HERE / "data"
"""The measurements that may be redistributed."""
KEPT_BACK: Final = "h100"
"""The GPU of the runs that may not: medians on it hang on them, too."""
NOT_RECOMPUTED: Final = (
    f"Not recomputed, as their measurements may not be redistributed: the medians on {KEPT_BACK}, the tables of"
    " development and training runs in the lab notebook."
)
ABOUT: Final = (
    "Unseen rows: of what reports quote, all; each server was left out of the fit that its errors are with. Of the"
    " medians by GPU: `trained-physics` and `roofline` saw none of these servers, `fitted` each model but the one"
    " that it is judged on; `operators` as it ships saw them all."
)


@dataclass(frozen=True)
class Checked:
    """A figure of the page, or a run behind its figures, and whether it was found again."""

    name: str
    found: str
    page: str

    @property
    def same(self) -> bool:
        """Whether both agree to the last digit."""
        return self.found == self.page


def quoted(runs: Sequence[Run], every: int, pool: ProcessPoolExecutor) -> Iterator[Checked]:
    """The errors of each server, left out of the fit, from which reports derive what they quote."""
    kept = [run for run in runs if (run.server, run.users) != CONTRADICTORY]
    known = json.loads(MEASURED.read_text())["operators"]["runs"][-len(kept) :]
    without = json.loads(LEFT_OUT.read_text())
    asked = list(zip(kept, known, strict=True))[::every]
    jobs = [pool.submit(measured_row, run, without, more=len(row) == len(_COLUMNS)) for run, row in asked]
    for (run, row), job in zip(asked, jobs, strict=True):
        yield Checked(f"{run.server}, {run.users} users", json.dumps(job.result()), json.dumps(row))


_COLUMNS: Final = ("server", "traits", "errors", "amplification", "trust", "share of TTFT", "with more left out")


def medians(runs: Sequence[Run], pool: ProcessPoolExecutor) -> Iterator[Checked]:
    """The medians by GPU of the page's first table."""
    left_out = json.loads((HERE / "leave_one_out.json").read_text())
    there = [run for run in runs if run.engine == "vllm" and run.hardware != KEPT_BACK]
    kinds = [kind for kind in KINDS if kind != SEEN]
    jobs = {kind: [pool.submit(errors_of, run, kind, left_out) for run in there] for kind in kinds}
    found = expected(there, {kind: [job.result() for job in those] for kind, those in jobs.items()})
    page = json.loads(MEDIANS.read_text())
    for kind, typed_dict_type in found.items():
        for gpu, row in typed_dict_type["gpus"].items():
            for metric, value in row.items():
                if metric != "runs":
                    yield Checked(
                        f"median of {kind}, {gpu}, {metric.upper()}", str(value), str(page[kind][gpu][metric])
                    )


def calibrated() -> Iterator[Checked]:
    """How often quoted errors hold, from the errors of each server."""
    page = PAGE.read_text()
    for row in calibration().splitlines()[2:]:
        yield Checked(row, row, row if row in page else "not on the page")


def never_fitted(pool: ProcessPoolExecutor) -> Iterator[Checked]:
    """The medians of servers that no fit has seen, which reports name."""
    runs = list(unseen.unseen_runs())
    page = json.loads(unseen.MEDIANS.read_text())
    for name, row in unseen.medians(runs, list(pool.map(unseen.UnseenRun.errors, runs))).items():
        yield Checked(f"unseen, {name}", json.dumps(row), json.dumps(page.get(name)))


def reproduce(every: int, jobs: int | None) -> tuple[str, int]:
    """Return a text on every figure, and the number of those that were not found again.

    Args:
        every: take every so many runs; with fewer than all, medians are left out.
        jobs: processes; None = one a core.
    """
    runs = list(serving_runs(DATA))
    with ProcessPoolExecutor(jobs) as pool:
        rows = list(quoted(runs, every, pool))
        whole = [*medians(runs, pool), *never_fitted(pool)] if every == 1 else []
        figures = [*whole, *calibrated()]
    lines = [f"{row.name}: {'as shipped' if row.same else f'{row.found}, shipped: {row.page}'}" for row in rows]
    lines += [
        f"{figure.found if figure.name == figure.found else f'{figure.name}: {figure.found}'}"
        for figure in figures
        if figure.same
    ]
    wrong = [row for row in (*rows, *figures) if not row.same]
    lines += [f"NOT FOUND AGAIN  {one.name}: {one.found}; the page says {one.page}" for one in wrong]
    lines += [
        "",
        f"{len(rows)} runs and {len(figures)} figures recomputed, {len(wrong)} of them otherwise than shipped.",
        NOT_RECOMPUTED,
        ABOUT,
    ]
    return "\n".join(lines) + "\n", len(wrong)
