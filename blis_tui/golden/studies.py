"""Studies as golden tests: a line for each run, with the figures that the study asks for."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.canonical import to_line, to_sorted_json
from blis_tui.golden.chain import Chain
from blis_tui.golden.produce import produce_checked, schemas_digest
from blis_tui.golden.store import Baseline, Golden, report_text
from blis_tui.printable import printable
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.figures import require_figures
from blis_tui.study.names import short_names, value_text
from blis_tui.study.rows import row_of
from blis_tui.study.scenarios import study_front
from blis_tui.study.summary import summaries
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import Outcome
from blis_tui.study.text import wanted
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.golden.other_process import OtherProcess
    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import Row, StudyResult

NO_RECORDS: Final = Chain(events=0, records=0, sha256="", every=1, entries=())
"""Of studies no record stream is kept."""
_SHOWN: Final = 5


def produce_study(
    study: Study,
    *,
    spec: str,
    case: str,
    checks: tuple[str, ...] = (),
    other: OtherProcess | None = None,
    is_known: Callable[[Golden], bool] = lambda _result: False,
) -> tuple[Golden, str]:
    """Make all runs of a study as a golden test; second, why they cannot be relied on (empty: they can).

    The checks are made of one run, the last that came to its end (axes begin with what is small): what is wrong with
    one is most often wrong with all, and to make every run several times would take several times as long.

    Args:
        study: what to run.
        spec: its file, as it is stored.
        case: which of the file's tests it is.
        checks: ways of repeating a run that must give the same bytes.
        other: where to run it with another hash seed; by default, a process of its own.
        is_known: as of :func:`blis_tui.golden.produce.produce_checked`, asked about the whole study.

    Raises:
        SpecError: no run can have a figure that it asks for.
    """
    require_figures(study)
    sweep = Sweep(study)
    for _ in sweep.run():
        pass
    result = sweep.result()
    made_of = to_sorted_json([study.document, [row.sha256 for row in result.rows]])
    golden = Golden(
        report=_report(result),
        spec=spec,
        case=case,
        spec_sha256=sha256(made_of.encode()).hexdigest(),
        engine=ENGINE,
        schemas_sha256=schemas_digest(),
        baseline=Baseline.here(),
        chain=NO_RECORDS,
        document=study.document,
    )
    last = next((row for row in reversed(result.rows) if row.status == "done"), None)
    if last is None or not checks:
        return golden, ""
    experiment = experiment_of(study, last.point, last.seed)
    alone, trouble = produce_checked(
        experiment, spec=study.name, case="", checks=checks, other=other, is_known=lambda _: is_known(golden)
    )
    outcome = Outcome(status="done", report=alone.report)
    if row_of(study, last.point, last.seed, experiment, outcome) != last:
        return golden, "its last run gives different metrics when it is made alone"
    return golden, f"of its last run, {trouble}" if trouble else ""


def _report(result: StudyResult) -> str:
    """JSON with a line for each run."""
    study = result.study
    points = summaries(result)
    front = {one.point.number for one in study_front(study, points)}
    names = wanted(study)
    runs = {name: _line(row, names, front=row.point.number in front) for name, row in _named(result)}
    about = {"study": study.name, "experiment": study.experiment, "points": len(study.points)}
    return report_text({**about, "runs": runs})


def _named(result: StudyResult) -> Iterator[tuple[str, Row]]:
    """Each run by its coordinates; equal ones are told apart by their numbers."""
    study = result.study
    short = short_names(study.paths)
    seen: dict[str, int] = {}
    for row in result.rows:
        coordinates = row.coordinates
        words = [f"{short[path]}={value_text(coordinates[path])}" for path in study.paths]
        words += [f"seed={row.seed}"] if len(study.seeds) > 1 else []
        name = " ".join(words) or study.name
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}", row


def _line(row: Row, names: Sequence[str], *, front: bool) -> dict[str, object]:
    why = {"why": row.why} if row.status != "done" else {}
    figures = {name: row.figures[name] for name in names if name in row.figures}
    return {"status": row.status, "ok": row.ok, "front": front, **why, **figures}


def changes(golden: Golden, result: Golden) -> list[str]:
    """What has become of the study's answer: points that joined or left the front, and verdicts that turned."""
    old, new = (json.loads(one.report)["runs"] for one in (golden, result))
    both = [name for name in new if name in old]
    changed = [name for name in both if old[name] != new[name]]
    turns = {
        "now hold": [name for name in both if new[name]["ok"] and old[name]["ok"] is False],
        "no longer hold": [name for name in both if new[name]["ok"] is False and old[name]["ok"]],
        "now on the front": [name for name in both if new[name]["front"] and not old[name]["front"]],
        "no longer on the front": [name for name in both if old[name]["front"] and not new[name]["front"]],
        "new": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
    }
    same = golden.spec_sha256 != result.spec_sha256 and golden.document == json.loads(to_line(result.document))
    lines = [f"its experiment `{result.document['experiment']}` has changed"] if same else []
    lines.append(f"{len(changed):,} of {plural(len(both), 'run')} changed")
    for words, names in turns.items():
        if names:
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            lines.append(printable(f"  {words}: {'; '.join(names[:_SHOWN])}{more}"))
    return lines
