"""How far off a study's means may be: what the report of each point says, all in one."""

from __future__ import annotations

import blis_tui
from blis_tui.pictures.study_page import study_page
from blis_tui.study.point_summary import expected_of, step_times_lines, summaries
from blis_tui.study.study_text import study_text

SET = {"workload.requests": 120, "engine.max_num_seqs": 40, "expect": []}


def test_the_errors_are_those_of_each_points_report_with_the_points_that_have_none() -> None:
    result = blis_tui.sweep(
        "quickstart", axes={"hardware": ["h100", "l40s"], "workload.rate_per_s": [4, 300]}, set=SET, seeds=1
    )
    reports = {}
    for row in result:
        changes = {**SET, "hardware": row.coordinates["hardware"]}
        changes["workload.rate_per_s"] = row.coordinates["workload.rate_per_s"]
        report = blis_tui.run(blis_tui.load("quickstart", set=changes, seed=row.seed))
        ((_, known),) = expected_of(result.study, row).values()
        assert known == next(iter(report.expected_errors().values()))
        reports[row.point.number] = known
    calm, crowded = (reports[number].bands for number in (0, 1))
    assert set(calm) == {"ttft", "itl", "e2e"}
    assert set(crowded) == {"itl"}
    lines = list(step_times_lines(result.study, summaries(result)))
    medians = [f"{median:.0f} %" for median in sorted(one["itl"].median for one in (calm, crowded))]
    assert f"ITL ±{' to '.join(dict.fromkeys(medians))}, " in lines[0]
    assert f"TTFT ±{calm['ttft'].median:.0f} %, " in lines[0]
    assert lines[1].startswith(
        "Accuracy of hardware h100, rate_per_s 300 (step times: operators): TTFT and E2E not measured: a load"
    )
    on_l40s = (
        "Accuracy of hardware l40s, rate_per_s 4; hardware l40s, rate_per_s 300 (step times: operators): not measured:"
    )
    assert lines[2].startswith(on_l40s)
    assert len(lines) == 3
    for line in lines:
        assert line in " ".join(study_text(result).split())
        assert line in study_page(result).replace("&#x27;", "'")
