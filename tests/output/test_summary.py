"""A report as a table for people."""

from __future__ import annotations

from dataclasses import replace

import blis_tui
from blis_tui.base.units import share_text
from blis_tui.output.section_text import summary_text


def test_of_many_tenants_the_largest_are_shown_and_the_others_counted() -> None:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 5}))
    (group,) = report.slo_classes.values()
    tenants = {f"tenant-{n}": replace(group, completed=n) for n in range(12)}
    text = summary_text(replace(report, tenants=tenants))
    shown = [n for n in range(12) if f"\ntenant-{n} " in text]
    assert shown == [7, 8, 9, 10, 11]
    assert [text.count(f"\ntenant-{n} ") for n in shown] == [2] * 5  # first tokens, and end to end
    assert "… 7 more tenants" in text
    assert "more tenants" not in summary_text(replace(report, tenants={"a": group, "b": group}))


def test_the_instances_are_named_with_how_they_are_split() -> None:
    few = {"workload.requests": 5, "workload.rate_per_s": 1, "expect": []}
    lines = summary_text(blis_tui.run(blis_tui.load("pipeline-bubble", set=few))).splitlines()
    assert "instances   1 of llama-3.1-70b-instruct on h100, TP 1, PP 4" in lines


def test_where_instances_come_and_go_all_that_came_are_counted() -> None:
    report = blis_tui.run(blis_tui.load("autoscaling"))
    [line] = [row for row in summary_text(report).splitlines() if row.startswith("instances")]
    assert report.lifecycle is not None
    came = f"{len(report.lifecycle.instances)} of qwen3-14b on h100, TP 1, counting all that were ever started"
    assert line.split(maxsplit=1) == ["instances", came]


def test_the_hit_rate_is_that_of_the_cached_tokens_beside_it() -> None:
    """Tokens count as cached when a request is scheduled first; blocks are hits after a preemption, too."""
    pressed = blis_tui.run(blis_tui.load("kv-pressure"))
    assert pressed.tokens.cached == pressed.kv.hit_rate == 0 < pressed.kv.block_hit_rate
    assert "prefix cache hit rate 0.0 %, 113 preemptions" in summary_text(pressed)
    shared = blis_tui.run(blis_tui.load("shared-prefixes", set={"workload.requests": 40}))
    assert shared.kv.hit_rate == shared.tokens.cached / shared.tokens.input
    assert f"prefix cache hit rate {100 * shared.kv.hit_rate:.1f} %, " in summary_text(shared)


def test_a_label_of_the_last_seconds_stands_beside_the_score_of_the_end_as_such() -> None:
    split = blis_tui.run(blis_tui.load("disaggregation"))
    assert split.saturation is not None
    assert (split.saturation.label, split.saturation.score) == ("backlogged", 0.0)
    verdict = f"{split.saturation.label}, the most frequent verdict of the run (composite; score 0.000 at the end)"
    assert verdict in summary_text(split)
    assert split.duration_us < 30_000_000
    longer = blis_tui.run(blis_tui.load("instance-dies"))
    assert longer.duration_us > 30_000_000
    assert "stable, the most frequent verdict of the last 30 s (" in summary_text(longer)


def test_a_small_cache_that_preempts_nobody_says_so() -> None:
    (finding,) = [warning for warning in blis_tui.run(blis_tui.load("kv-tiers")).warnings if warning.id == "kv-cache"]
    assert "none was preempted" in finding.message
    assert "0 of" not in finding.message
    assert "max_num_seqs" not in finding.advice  # there are no preemptions to trade for waiting
    assert "engine.max_num_seqs" not in finding.keys


def test_of_a_shared_tier_it_says_what_others_have_stored() -> None:
    report = blis_tui.run(blis_tui.load("kv-store", set={"workload.requests": 40, "expect": []}))
    assert report.kv_tiers is not None
    store = report.kv_tiers.tiers["store"]
    assert 0 < store.from_others < store.reloaded
    text = " ".join(summary_text(report).split())
    share = f"hit rate {share_text(store.hit_rate)}"
    assert f"({store.reloaded:,} from store ({share}, {store.from_others:,} stored by others))" in text
    assert "stored by others" not in summary_text(blis_tui.run(blis_tui.load("kv-tiers")))


def test_a_tenant_called_as_a_class_hides_nothing_of_it() -> None:
    report = blis_tui.run(blis_tui.load("unfair-tenants"))
    named = {"batch": report.tenants["interactive"], "critical": report.tenants["bulk"]}
    text = summary_text(replace(report, tenants=named))
    for kind, groups in (("SLO class", report.slo_classes), ("tenant", named)):
        table = text[text.index(f"TTFT by {kind}, ms") : text.index(f"E2E by {kind}, ms")]
        shown = {line.split()[0]: line.split()[1] for line in table.splitlines()[1:] if line}
        assert shown == {name: f"{group.ttft_ms.mean:,.2f}" for name, group in groups.items()}


def test_tables_fit_a_narrow_terminal_with_fewer_decimals_and_shortened_names() -> None:
    report = blis_tui.run(blis_tui.load("unfair-tenants"))
    time = report.tenants["bulk"].ttft_ms
    figures = [time.mean, time.p50, time.p90, time.p95, time.p99, time.max]
    long = replace(report, tenants={name * 19: group for name, group in report.tenants.items()})
    for shown, width, decimals in ((report, 116, 2), (report, 78, 1), (long, 80, 0), (long, 300, 2)):
        text = summary_text(shown, width)
        assert max(map(len, text.splitlines())) <= width
        table = text[text.index("TTFT by tenant, ms") : text.index("E2E by tenant, ms")]
        [bulk] = [line for line in table.splitlines() if line.startswith("bulk")]
        assert bulk.split()[1:] == [f"{figure:,.{decimals}f}" for figure in figures if figure is not None]
        whole = [name in table for name in shown.tenants]
        assert all(whole) if (shown, width) != (long, 80) else not any(whole) and table.count("…") == len(whole)


def test_where_nothing_arrived_nothing_is_said_to_have_come_at_once() -> None:
    none = summary_text(blis_tui.run(blis_tui.load("quickstart", set={"horizon_us": 1, "expect": []})))
    assert "offered     nothing\n" in none
    assert "steady      nothing arrived\n" in none
    one = summary_text(blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 1, "expect": []})))
    assert "offered     all at the same time\n" in one


def test_the_fullest_cache_is_that_with_the_largest_share_in_use() -> None:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 20}))
    large, small = report.instances
    full = replace(small, kv=replace(small.kv, blocks=400, peak_used=400))
    half = replace(large, kv=replace(large.kv, blocks=2000, peak_used=800))
    text = summary_text(replace(report, instances=(half, full)))
    assert "400 of 400 blocks of instance 1 at peak" in text


def test_long_times_do_not_run_together() -> None:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 5}))
    hours = replace(report.latency.ttft_ms, mean=1_234_567.89, p50=12_345_678.9, max=123_456_789.01)
    text = summary_text(replace(report, latency=replace(report.latency, ttft_ms=hours)))
    (line,) = [row for row in text.splitlines() if row.startswith("time to first token")]
    assert line.split()[4:6] == ["1,234,567.89", "12,345,678.90"]
    assert line.split()[-1] == "123,456,789.01"
