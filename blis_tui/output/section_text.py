"""A report as text for people: the most important figures, and optional sections as lines of a name and a text."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import aligned, cut, printable
from blis_tui.base.units import in_words, plural, share_text
from blis_tui.model.latencies import LATENCIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.results.expected_error import Expectation
    from blis_tui.results.report import GroupReport, Report
    from blis_tui.results.sections.control import (
        DisaggregationReport,
        GatewayReport,
        PreemptionReport,
        RoutingReport,
        Saturation,
    )
    from blis_tui.results.sections.instances import TiersReport
    from blis_tui.results.sections.offered_load import Offered, Steady
    from blis_tui.results.sections.quality import SloReport
    from blis_tui.results.sections.request_kinds import ReasoningReport, SessionReport
    from blis_tui.results.sections.types import RanksReport
    from blis_tui.results.stats import Distribution

WIDTH: Final = 116
"""Default line width in characters."""
_TENANTS = 5
"""Maximum number of tenants whose latencies are shown."""
_COLUMN: Final = 12
_COLUMNS: Final = ("mean", "p50", "p90", "p95", "p99", "max")


def summary_text(report: Report, width: int = WIDTH) -> str:
    """Return aligned blocks of text: requests, throughput, latencies, KV cache, expectations.

    Args:
        report: the report.
        width: line width in characters; tables exceed it if their figures do.
    """
    blocks = [
        _pairs(main_lines(report), width),
        _latencies(
            "milliseconds",
            {latency.label: getattr(report.latency, latency.field) for latency in LATENCIES},
            width,
        ),
    ]
    blocks += _by("SLO class", report.slo_classes, width)
    blocks += _by("tenant", _largest(report.tenants), width)
    if len(report.tenants) > _TENANTS:
        blocks.append(f"… {plural(len(report.tenants) - _TENANTS, 'more tenant')}: see the JSON report")
    wrong = {name: text for name, text in report.invariants.items() if text not in ("ok", "not checked")}
    if wrong:
        failures = [printable(f"  FAIL  {name}: {text}") for name, text in wrong.items()]
        blocks.append("\n".join(["invariants", *failures]))
    if report.warnings:
        blocks.append(warnings_text(report, width).rstrip())
    if report.expectations:
        verdicts = [
            f"  {'ok  ' if expectation.ok else 'FAIL'}  {printable(expectation.sentence())}"
            for expectation in report.expectations
        ]
        blocks.append("\n".join(["expectations", *verdicts]))
    return "\n\n".join(blocks) + "\n"


def main_lines(report: Report) -> dict[str, str]:
    """Return the names and texts of the main lines: what was run, and how it went."""
    requests = report.requests
    kv = report.kv
    return {
        "experiment": report.meta.experiment + ("" if report.meta.complete else "  (interrupted)"),
        **instance_lines(report),
        "simulated": f"{report.duration_us / 1e6:,.3f} s",
        "requests": ", ".join(
            f"{count:,} {word}"
            for count, word in (
                (requests.completed, "completed"),
                (requests.rejected, "rejected"),
                (requests.dropped_unservable, "dropped"),
                (requests.timed_out, "timed out"),
                (requests.lost or 0, "lost with their instance"),
                (requests.still_running, "still running"),
                (requests.still_queued, "still queued"),
            )
            if count or word == "completed"
        ),
        "tokens": f"{report.tokens.input:,} in, {report.tokens.output:,} out, {report.tokens.cached:,} cached",
        "offered": _offered(report.offered),
        "throughput": f"{report.throughput.requests_per_s:,.2f} requests/s, "
        f"{report.throughput.output_tokens_per_s:,.1f} output tokens/s",
        "steady": _steady(report.steady) if requests.total else "nothing arrived",
        "KV cache": f"{_fullest(report)}, prefix cache hit rate {share_text(kv.hit_rate)},"
        f" {plural(kv.preemptions, 'preemption')}"
        + (f", {plural(kv.allocation_failures, 'allocation')} failed" if kv.allocation_failures else ""),
        **section_lines(report),
    }


def warnings_text(report: Report, width: int = WIDTH) -> str:
    """Describe warnings with advice, wrapped like the diagnostics of documents; empty if there are none."""
    lines: list[str] = []
    for warning in report.warnings:
        lines += _wrapped(f"{warning.severity}[{warning.id}]: ", warning.message, "  ", width)
        lines += _wrapped("  = help: ", warning.advice, " " * 10, width)
    return "".join(f"{line}\n" for line in lines)


def _wrapped(head: str, text: str, indent: str, width: int) -> list[str]:
    return wrap(
        printable(text),
        width,
        initial_indent=printable(head),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _offered(offered: Offered) -> str:
    """Describe the offered load."""
    if offered.first_arrival_us is None:
        return "nothing"
    if offered.requests_per_s is None:
        return "all at the same time"
    return (
        f"{offered.requests_per_s:,.2f} requests/s, {offered.input_tokens_per_s:,.1f} input tokens/s,"
        f" {offered.output_tokens_per_s:,.1f} output tokens/s"
    )


def _steady(steady: Steady) -> str:
    """Describe the steady-state throughput, without start and drain."""
    if steady.start_us is None or steady.end_us is None:
        return "no time between the first arrival and the last"
    return (
        f"{steady.offered_requests_per_s:,.2f} requests/s offered, {steady.requests_per_s:,.2f} served,"
        f" {steady.output_tokens_per_s:,.1f} output tokens/s"
        f" ({steady.start_us / 1e6:,.1f} s to {steady.end_us / 1e6:,.1f} s)"
    )


def _fullest(report: Report) -> str:
    """Describe the peak KV use of the fullest instance."""
    fullest = max(
        report.instances,
        key=lambda instance: (instance.kv.peak_used / max(1, instance.kv.blocks), instance.kv.peak_used),
    )
    where = f" of instance {fullest.instance}" if len(report.instances) > 1 else ""
    return f"{fullest.kv.peak_used:,} of {plural(fullest.kv.blocks, 'block')}{where} at peak"


def _by(kind: str, groups: Mapping[str, GroupReport], width: int) -> Iterator[str]:
    """Iterate over tables of latencies by group, if there is more than one group."""
    if len(groups) > 1:
        yield _latencies(f"TTFT by {kind}, ms", {name: group.ttft_ms for name, group in groups.items()}, width)
        yield _latencies(f"E2E by {kind}, ms", {name: group.e2e_ms for name, group in groups.items()}, width)


def _largest(tenants: Mapping[str, GroupReport]) -> Mapping[str, GroupReport]:
    """Select the tenants with the most completed requests."""
    names = sorted(tenants, key=lambda name: -tenants[name].completed)[:_TENANTS]
    return {name: tenants[name] for name in tenants if name in names}


def _pairs(values: dict[str, str], width: int) -> str:
    indent = max(map(len, values)) + 2
    lines: list[str] = []
    for name, text in values.items():
        head = f"{name:<{indent}}"
        lines += _wrapped(head, text, " " * indent, width) or [printable(head)]
    return "\n".join(lines)


def _latencies(title: str, distributions: Mapping[str, Distribution], width: int) -> str:
    """Format a table; if too wide, reduce the column spacing, the decimals, and the length of names."""
    for decimals in (2, 1, 0):
        rows = {name: distribution.texts(_COLUMNS, f",.{decimals}f") for name, distribution in distributions.items()}
        cells = [cell for row in (_COLUMNS, *rows.values()) for cell in row]
        least = 1 + max(map(len, cells))
        names = width - len(_COLUMNS) * least
        if max(map(len, (title, *map(printable, rows)))) + 2 <= names:
            break
    heads = 2 + max(len(title), *(min(len(printable(name)), names - 2) for name in rows))
    column = max(least, min(_COLUMN, (width - heads) // len(_COLUMNS)))
    lines = [(title, [*_COLUMNS]), *((cut(printable(name), heads - 2), row) for name, row in rows.items())]
    return "\n".join(name.ljust(heads) + "".join(cell.rjust(column) for cell in row) for name, row in lines)


def instance_lines(report: Report) -> dict[str, str]:
    """Describe what was simulated, and how well its step times are known."""
    lines: dict[str, str] = {}
    if report.pools is None:
        (step_time,) = report.step_time.values()
        split = f"TP {step_time.tensor_parallel}" + (
            f", PP {step_time.pipeline_parallel}" if step_time.pipeline_parallel else ""
        )
        split += f", DP {step_time.data_parallel}" if step_time.data_parallel else ""
        split += f", EP {step_time.expert_parallel}" if step_time.expert_parallel else ""
        came = ", counting all that were ever started" if report.lifecycle else ""
        what = "ranks of " if step_time.data_parallel else "of "
        lines["instances"] = f"{len(report.instances):,} {what}{step_time.model} on {step_time.hardware}, {split}{came}"
    lines["step times"] = _by_pool({name: model.kind for name, model in report.step_time.items()})
    expected = report.expected_errors()
    lines["accuracy"] = _by_pool({name: accuracy_text(known, "--explain accuracy") for name, known in expected.items()})
    return lines


def _by_pool(texts: dict[str, str]) -> str:
    """Join the texts of pools; pools with the same text share one entry."""
    pools: dict[str, list[str]] = {}
    for name, text in texts.items():
        pools.setdefault(text, []).append(name)
    named = [f"{', '.join(names)}: {text}" for text, names in pools.items()]
    return "; ".join(pools if len(pools) == 1 else named)


METRIC_NAMES: Final = {"ttft": "TTFT", "itl": "ITL", "e2e": "E2E"}


def accuracy_text(known: Expectation, more: str = "blis-tui explain accuracy") -> str:
    """Describe the expected error of each mean in a line, and why any is unknown.

    Args:
        known: the expected errors.
        more: the command or option that explains them.
    """
    parts = []
    if known.bands:
        listed = ", ".join(
            f"{METRIC_NAMES[metric]} ±{percent_text(band.median)}" for metric, band in known.bands.items()
        )
        counts = [band.servers for band in known.bands.values()]
        servers = " to ".join(dict.fromkeys(f"{count:,}" for count in (min(counts), max(counts))))
        parts.append(f"{listed} (median, {servers} measured servers like this; `{more}`)")
    if known.reasons:
        parts.append(not_measured_text(known))
    return "; ".join(parts) or "no mean latency that could be off"


def accuracy_table(expected: Mapping[str, Expectation]) -> str:
    """Return the expected errors of the means with their ranges, by pool."""
    about = "accuracy: errors of mean latencies on measured servers like this; + = the simulation is slower"
    rows = [("", "", "median", "9 of 10 within", "servers")]
    reasons = []
    for pool, known in expected.items():
        name = pool if len(expected) > 1 else ""
        for metric, band in known.bands.items():
            within = f"{band.low:+.0f} to {band.high:+.0f} %"
            rows.append((name, METRIC_NAMES[metric], f"{band.median:.1f} %", within, f"{band.servers:,}"))
        if known.reasons:
            reasons.append(f"{name}: {not_measured_text(known)}" if name else not_measured_text(known))
    return "\n".join([about, *(aligned(rows, right=(2, 3, 4)) if len(rows) > 1 else ()), *reasons]) + "\n"


def percent_text(percent: float) -> str:
    """Describe an error in as few digits as it is known to."""
    return f"{percent:.0f} %" if percent >= 0.95 else f"{percent:.1f} %"


def expected_data(kind: str, known: Expectation) -> dict[str, object]:
    """Return the expected error as plain data, with the kind of step-time model."""
    return {
        "kind": kind,
        "expected_error_percent": None if known.error is None else asdict(known.error),
        "not_measured": dict(known.reasons),
    }


def not_measured_text(known: Expectation) -> str:
    """Describe why errors are unknown, and of which metrics if others are known."""
    why: dict[str, list[str]] = {}
    for metric, reason in known.reasons.items():
        why.setdefault(reason, []).append(METRIC_NAMES[metric])
    if len(why) == 1 and not known.bands:
        return f"not measured: {next(iter(why))}"
    return "; ".join(f"{in_words(metrics)} not measured: {reason}" for reason, metrics in why.items())


def _media(report: Report) -> dict[str, str]:
    lines: dict[str, str] = {}
    if (media := report.multimodal) is not None:
        counts = f"{media.image_tokens:,} image, {media.audio_tokens:,} audio and {media.video_tokens:,} video tokens"
        lines["multimodal"] = f"{counts} beside {media.text_tokens:,} of text, in {plural(media.requests, 'prompt')}"
    if (encoder := report.encoder) is not None:
        hits = f"{share_text(encoder.hit_rate)} cache hits, {plural(encoder.evicted_items, 'item')} evicted"
        lines["encoder"] = (
            f"{encoder.encoded_tokens:,} media tokens encoded, {hits}, {plural(encoder.holds, 'wait')} for it"
        )
    return lines


def _of_the_engine(report: Report) -> dict[str, str]:
    """Lines about what only some engines report."""
    lines: dict[str, str] = {}
    if (prompts := report.prompt_throughput) is not None:
        lines["prompts"] = f"{prompts.tokens_per_s:,.1f} tokens/s, {prompts.cached_tokens:,} cached ones included"
    if log := report.throughput_log:
        most = max(log, key=lambda line: line.prompt_tokens_per_s + line.generation_tokens_per_s)
        rates = f"{most.prompt_tokens_per_s:,.1f} prompt and {most.generation_tokens_per_s:,.1f} generated tokens/s"
        lines["engine log"] = f"{plural(len(log), 'interval')}, at most {rates} (from {most.start_us / 1e6:,.1f} s on)"
    return lines


def section_lines(report: Report) -> dict[str, str]:
    """Return the names and texts of all lines that apply."""
    return {
        **_of_the_engine(report),
        **_of_steps(report),
        **_of_pools(report),
        **_of_requests(report),
        **_of_the_control_plane(report),
        **_verdicts(report),
    }


def _of_steps(report: Report) -> dict[str, str]:
    """Lines about pipelines, ranks, drafts and adapters."""
    lines: dict[str, str] = {}
    if (pipeline := report.pipeline) is not None:
        lines["pipeline"] = f"{pipeline.batches:.2f} batches at once, bubble {share_text(pipeline.bubble_share)}"
    if report.ranks is not None:
        lines["ranks"] = _ranks(report.ranks)
    if (drafts := report.speculative) is not None:
        accepted = f"{share_text(drafts.draft_acceptance_rate)} of {drafts.num_draft_tokens:,} drafted tokens accepted"
        lines["speculative"] = f"{accepted}, {drafts.tokens_per_step:.2f} tokens per request and step"
    if (adapters := report.adapters) is not None:
        loaded = f"{plural(adapters.loads, 'load')} of {plural(adapters.adapters, 'adapter')}"
        loaded += f" ({adapters.loads_from_storage:,} from storage)"
        held = f"{share_text(adapters.hit_rate)} hits, {plural(adapters.holds, 'request')} held"
        lines["LoRA"] = f"{loaded}, {plural(adapters.evictions, 'eviction')}, {held}"
    return lines


def _of_pools(report: Report) -> dict[str, str]:
    lines: dict[str, str] = {}
    for name, pool in (report.pools or {}).items():
        prefilled = f"{pool.prefilled:,} prefilled, " if pool.prefilled else ""
        served = f"{pool.routed:,} routed, {prefilled}{pool.completed:,} completed"
        blocks = f"{pool.kv.peak_used:,} of {plural(pool.kv.blocks, 'block')} at peak"
        made_of = f"{pool.instances:,} of {pool.model} on {pool.hardware}"
        lines[f"pool {name}"] = f"{made_of}, busy {share_text(pool.busy_share)}, {served}, {blocks}"
    for model in report.models or ():
        lines[f"model {model.model}"] = f"{model.completed:,} completed, {model.output_tokens:,} output tokens"
    return lines


def _of_requests(report: Report) -> dict[str, str]:
    """Lines about special kinds of requests."""
    lines: dict[str, str] = {}
    if report.sessions is not None:
        lines |= _sessions(report.sessions)
    if (thought := report.reasoning) is not None:
        lines["reasoning"] = _reasoning(thought)
    lines |= _media(report)
    if report.slo is not None:
        lines |= _slo(report.slo)
    if report.fairness is not None and report.fairness.tenants > 1:
        lines["fairness"] = f"{report.fairness.jain_index:.3f} (Jain), {plural(report.fairness.tenants, 'tenant')}"
    return lines


def _of_the_control_plane(report: Report) -> dict[str, str]:
    """Lines about rejected, deferred, held, split, preempted and offloaded requests."""
    lines: dict[str, str] = {}
    turned_away = [f"{count:,} by {cause}" for cause, count in (report.rejections or {}).items() if count]
    if turned_away:
        lines["rejected"] = ", ".join(turned_away)
    if report.deferrals is not None:
        lines["deferred"] = f"{report.deferrals.deferred:,}, {report.deferrals.waiting:,} of them still waiting"
    if report.gateway is not None:
        lines["gateway"] = _gateway(report.gateway)
    if report.disaggregation is not None:
        lines["split"] = _disaggregation(report.disaggregation)
    if report.routing is not None:
        lines["regret"] = _regret(report.routing)
    if report.preemption is not None:
        lines["restored"] = _preemption(report.preemption)
    if report.kv_tiers is not None:
        lines["KV tiers"] = _tiers(report.kv_tiers)
    return lines


def _verdicts(report: Report) -> dict[str, str]:
    """Lines about the criteria by which BLIS judges runs."""
    lines: dict[str, str] = {}
    if report.anomalies is not None:
        anomalies = report.anomalies
        inversions = plural(anomalies.priority_inversions, "priority inversion")
        lines["anomalies"] = f"{inversions}, {plural(anomalies.head_of_line_blocking, 'blocked queue')}"
    if report.saturation is not None:
        lines["saturation"] = _saturation(report.saturation, report.duration_us)
    if report.fitness is not None:
        lines["fitness"] = f"{report.fitness.score:,.6f}"
    return lines


def _ranks(ranks: RanksReport) -> str:
    who = f"{plural(ranks.ranks, 'rank')} of {plural(ranks.replicas, 'replica')}, {plural(ranks.steps, 'step')}"
    idle, waits = share_text(ranks.dummy_share), share_text(ranks.waiting_share)
    return f"{who}: {idle} dummy batches, {waits} of busy time spent waiting for the slowest rank"


def _slo(slo: SloReport) -> dict[str, str]:
    lines = {"goodput": f"{_share(slo.good, slo.injected)}, {slo.goodput_rps:,.2f} requests/s"}
    if len(slo.classes) > 1:
        for name, class_ in slo.classes.items():
            lines[f"  {name}"] = f"{_share(class_.good, class_.injected)}, {class_.goodput_rps:,.2f} requests/s"
    return lines


def _sessions(session: SessionReport) -> dict[str, str]:
    ended = f"{session.completed:,} completed, {session.cancelled:,} cancelled, {session.unfinished:,} unfinished"
    took = session.duration_ms
    if took.p50 is not None and took.p99 is not None:
        ended += f", p50 {took.p50 / 1e3:,.1f} s, p99 {took.p99 / 1e3:,.1f} s"
    lines = {"sessions": f"{session.started:,} with {plural(session.calls, 'request')}: {ended}"}
    if session.due_calls_per_s is not None:
        lines["due"] = (
            f"{session.due_calls_per_s:,.2f} requests/s of sessions that started, {session.calls_per_s:,.2f} came"
        )
    first, later = session.first_ttft_ms.p50, session.later_ttft_ms.p50
    if first is not None and later is not None:
        cached = f"{share_text(session.later_cached)} of later prompts cached"
        lines["first tokens"] = f"p50 {first:,.2f} ms in first calls, {later:,.2f} ms in later ones, {cached}"
    return lines


def _reasoning(reasoning: ReasoningReport) -> str:
    tokens = f"{plural(reasoning.reasoning_tokens, 'token')} ({share_text(reasoning.share)} of output)"
    text = f"{tokens}, {plural(reasoning.requests, 'request')}"
    first = reasoning.ttfat_ms
    if first.p50 is not None and first.p99 is not None:
        text += f", time to first answer token p50 {first.p50:,.2f} ms, p99 {first.p99:,.2f} ms"
    return text


def _saturation(saturation: Saturation, duration_us: int) -> str:
    from blis_tui.results.sections.control import WINDOW_US  # noqa: PLC0415  (few runs need it)

    last = "run" if duration_us <= WINDOW_US else f"last {WINDOW_US // 1_000_000} s"
    over = f"{saturation.label}, the most frequent verdict of the {last}"
    return f"{over} ({saturation.detector}; score {saturation.score:.3f} at the end)"


def _share(good: int, injected: int) -> str:
    share = f" ({share_text(good / injected)})" if injected else ""
    return f"{good:,} of {injected:,} met their targets{share}"


def _gateway(gateway: GatewayReport) -> str:
    wait = gateway.wait_ms
    waits = "" if wait.p50 is None or wait.p99 is None else f", wait p50 {wait.p50:,.2f} ms, p99 {wait.p99:,.2f} ms"
    depth = f"depth {gateway.peak_depth:,} at peak, {gateway.depth:,} at the end"
    return f"{gateway.held:,} of {gateway.offered:,} held{waits}, {depth}"


def _disaggregation(split: DisaggregationReport) -> str:
    took = split.transfer_ms
    times = "" if took.p50 is None or took.p99 is None else f" (p50 {took.p50:,.2f} ms, p99 {took.p99:,.2f} ms)"
    return (
        f"{plural(split.split, 'request')}, {plural(split.transfers, 'transfer')}{times}"
        f" of {split.transferred_bytes / 1e9:,.3f} GB,"
        f" {split.peak_concurrent_transfers:,} at once, {split.dropped_at_decode:,} dropped at decode"
    )


def _regret(routing: RoutingReport) -> str:
    if not routing.scored:
        return f"none: the routing policy has no scores ({plural(routing.decisions, 'decision')})"
    seen, true = routing.regret.seen, routing.regret.true
    text = f"{routing.regretted:,} of {plural(routing.scored, 'decision')} against the true state"
    return f"{text}, by up to {true.max:.3f} (mean {true.mean:.4f}; as the router saw it {seen.mean:.4f})"


def _preemption(preemption: PreemptionReport) -> str:
    text = f"{plural(preemption.recomputed_tokens, 'token')} recomputed"
    if preemption.swapped_out or preemption.host_full:
        text += f", {plural(preemption.swapped_out, 'victim')} swapped out"
        text += f" ({preemption.bytes_moved / 1e9:,.3f} GB moved both ways"
        text += f", {preemption.added_us / 1e3:,.2f} ms added to steps)"
    return text


def _tiers(tiers: TiersReport) -> str:
    hits = ", ".join(
        f"{tier.reloaded:,} from {name} (hit rate {share_text(tier.hit_rate)}"
        + (f", {tier.from_others:,} stored by others)" if tier.from_others else ")")
        for name, tier in tiers.tiers.items()
    )
    moved = f"{tiers.bytes_moved / 1e9:,.3f} GB moved both ways, {tiers.added_us / 1e3:,.2f} ms added to steps"
    back = f"{tiers.reloaded:,} reloaded ({hits}), {tiers.thrashing:,} thrashing"
    return f"{plural(tiers.offloaded, 'block')} offloaded, {back}, {moved}"
