"""A report as a table for people."""

from __future__ import annotations

from dataclasses import replace

import blis_tui
from blis_tui.records.summary import summary_text


def test_of_many_tenants_the_largest_are_shown_and_the_others_counted() -> None:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 5}))
    (group,) = report.slo_classes.values()
    tenants = {f"tenant-{n}": replace(group, completed=n) for n in range(12)}
    text = summary_text(replace(report, tenants=tenants))
    shown = [n for n in range(12) if f"tenant-{n}: end to end" in text]
    assert shown == [7, 8, 9, 10, 11]
    assert "… 7 more tenants" in text
    assert "more tenants" not in summary_text(replace(report, tenants={"a": group, "b": group}))
