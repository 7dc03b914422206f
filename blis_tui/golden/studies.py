"""Studies as golden tests: one line per run, with the study's figures."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.base.canonical import to_line, to_sorted_json
from blis_tui.base.errors import SpecError
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.golden.golden_store import Baseline, Chain, Golden, report_text
from blis_tui.golden.produce import described_plugins, produce_checked, schemas_digest
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.figures import require_figures
from blis_tui.study.point_summary import study_front, summaries
from blis_tui.study.study_rows import row_of, short_names, value_text
from blis_tui.study.study_text import wanted
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.golden.other_process import OtherProcess
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.study_rows import Row, StudyResult

NO_RECORDS: Final = Chain(events=0, records=0, sha256="", every=1, entries=())
"""The empty chain of studies, for which no record stream is kept."""
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
    """Make all runs of a study as a golden test; also return why they are not reproducible (empty: they are).

    The checks repeat only the last completed run, because a defect usually affects all runs, and repeating each would
    take several times as long. The last one is taken because axes begin with small values.

    Args:
        study: the study.
        spec: path of its file, as stored in the golden.
        case: name of the test.
        checks: variations of a run that must give the same bytes.
        other: a process with another hash seed; by default, a new one.
        is_known: as for :func:`blis_tui.golden.produce.produce_checked`, for the whole study.

    Raises:
        SpecError: no run can have a figure that it uses.
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
        plugins=_plugins(study),
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


def _plugins(study: Study) -> tuple[Mapping[str, str], ...]:
    """Return the descriptions of the users' plug-ins that any run names."""
    if study.plugins is None or not study.plugins.own:
        return ()
    by_name: dict[tuple[str, str], Mapping[str, str]] = {}
    for point in study.points:
        with suppress(SpecError):  # a run that is invalid names nothing
            named = described_plugins(experiment_of(study, point, study.seeds[0]))
            by_name |= {(plugin["plug_point"], plugin["name"]): plugin for plugin in named}
    return tuple(by_name[key] for key in sorted(by_name))


def _report(result: StudyResult) -> str:
    """Return the report as JSON with one line per run."""
    study = result.study
    points = summaries(result)
    front = {point.point.number for point in study_front(study, points)}
    names = wanted(study)
    runs = {name: _line(row, names, front=row.point.number in front) for name, row in _named(result)}
    about = {"study": study.name, "experiment": study.experiment, "points": len(study.points)}
    return report_text({**about, "runs": runs})


def _named(result: StudyResult) -> Iterator[tuple[str, Row]]:
    """Yield each run with a name from its coordinates; equal names are numbered."""
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
    """Return the changes in the study's answer: points that joined or left the front, and changed verdicts."""
    old, new = (json.loads(stored.report)["runs"] for stored in (golden, result))
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
