"""The tables of ``docs/memory.md`` and ``docs/lab/memory.md``: ``python docs/make_memory.py`` runs the experiments."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Final

import blis_tui
from blis_tui.cli.options import cases_by_name
from blis_tui.spec.shipped import builtin

PAGE: Final = Path(__file__).resolve().parent / "memory.md"
LAB: Final = PAGE.with_name("lab") / PAGE.name
OVERLOAD: Final = "kv-overload"
SCENARIOS: Final = (OVERLOAD, "vllm-preemption", "kv-pressure")
_VICTIMS: Final = tuple(plugin.name for plugin in builtin().of("policy.preemption.victim"))
_RESTORES: Final = tuple(plugin.name for plugin in builtin().of("policy.preemption.restore"))
_FIRST_CHUNK: Final[dict[str, object]] = {"reserve_full_input": False}
_CAUSES: Final[tuple[tuple[str, dict[str, object], str], ...]] = (
    ("`vllm-v1`", {}, "all"),
    ("`vllm-v1`, `reserve_full_input: false`", _FIRST_CHUNK, "all"),
    ("`vllm-v1`", {}, "prompt"),
    ("`vllm-v1`, `reserve_full_input: false`", _FIRST_CHUNK, "prompt"),
    ("`blis`", {"kind": "blis"}, "all"),
    ("`blis`", {"kind": "blis"}, "prompt"),
    ("`vllm-v1`, `watermark: 0.01`", {"watermark": 0.01}, "all"),
    ("`vllm-v1`, `watermark: 0.05`", {"watermark": 0.05}, "all"),
    ("`vllm-v1`, `watermark: 0.1`", {"watermark": 0.1}, "all"),
)
"""Name of the rule, its settings, and what its victims recompute."""
_COMPARED: Final = ("tail", "cheapest-recompute")
_TIERS: Final = ("none", "mirror", "threshold", "offload")


def _run(name: str, changes: dict[str, object]) -> blis_tui.Report:
    simulation = blis_tui.Simulation(blis_tui.load(name, set=changes), check="off")
    simulation.run()
    return simulation.report(verify=False)


@cache
def run(name: str, victim: str, restore: str) -> blis_tui.Report:
    """A shipped experiment with another preemption."""
    changes: dict[str, object] = {"policy.preemption.victim": victim, "policy.preemption.restore": restore}
    if victim == "priority":  # other rules read no priority
        changes["policy.priority"] = "slo-class"
    if restore == "recompute":  # the default, but stated: only then the report counts the tokens
        changes["policy.preemption.recompute"] = "prompt" if name == "kv-pressure" else "all"
    return _run(name, changes)


def recomputed_tokens(report: blis_tui.Report) -> int:
    """How many tokens a run recomputed."""
    return 0 if report.preemption is None else report.preemption.recomputed_tokens


def overload_table() -> str:
    """Victim x restore on the overload experiment."""
    lines = [
        "| victim | restore | goodput, requests/s | p99 TTFT, ms | p99 ITL, ms | preemptions | recomputed tokens |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for victim in _VICTIMS:
        for restore in _RESTORES:
            report = run(OVERLOAD, victim, restore)
            goodput = 0.0 if report.slo is None else report.slo.goodput_rps
            ttft, itl = report.latency.ttft_ms.p99 or 0.0, report.latency.itl_ms.p99 or 0.0
            counts = f"{report.kv.preemptions:,} | {recomputed_tokens(report):,}"
            lines.append(f"| `{victim}` | `{restore}` | {goodput:.2f} | {ttft:,.0f} | {itl:.1f} | {counts} |")
    return "\n".join(lines)


def tiers_table() -> str:
    """The kinds of KV tiers on ``kv-tiers``."""
    lines = [
        "| `kv_tiers` | p50 TTFT, ms | p99 TTFT, ms | cached tokens | blocks back | GB moved | longer steps, ms |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    cases = cases_by_name("kv-tiers", None, None)
    for kind in _TIERS:
        report = _run("kv-tiers", dict(cases[kind].overrides))
        ttft, below = report.latency.ttft_ms, report.kv_tiers
        back = "" if below is None else f"{below.reloaded:,}"
        moved = "" if below is None else f"{below.bytes_moved / 1e9:.1f}"
        added = "" if below is None else f"{below.added_us / 1e3:.1f}"
        times = f"{ttft.p50 or 0:,.0f} | {ttft.p99 or 0:,.0f}"
        lines.append(f"| `{kind}` | {times} | {report.tokens.cached:,} | {back} | {moved} | {added} |")
    return "\n".join(lines)


def scenarios_table() -> str:
    """Recomputed tokens of every shipped experiment whose KV cache is too small."""
    columns = (("tail", "recompute"), ("cheapest-recompute", "recompute"), ("tail", "auto"))
    heads = " | ".join(f"`{victim}`, `{restore}`" for victim, restore in columns)
    lines = [f"| recomputed tokens | {heads} |", "|---|--:|--:|--:|"]
    for name in SCENARIOS:
        counts = [recomputed_tokens(run(name, victim, restore)) for victim, restore in columns]
        lines.append(f"| `{name}` | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join(lines)


def causes_table() -> str:
    """Why cheap victims are good or bad: the overload experiment with one change at a time."""
    lines = [
        "| batching | recompute | "
        + " | ".join(f"`{victim}`: preempted | tokens again | goodput" for victim in _COMPARED)
        + " |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for words, batching, recompute in _CAUSES:
        cells: list[str] = []
        for victim in _COMPARED:
            preemption = {"victim": victim, "restore": "recompute", "recompute": recompute}
            changes: dict[str, object] = {f"policy.preemption.{key}": value for key, value in preemption.items()}
            changes |= {f"policy.batching.{key}": value for key, value in batching.items()}
            report = _run(OVERLOAD, changes)
            goodput = 0.0 if report.slo is None else report.slo.goodput_rps
            cells.append(f"{report.kv.preemptions:,} | {recomputed_tokens(report):,} | {goodput:.2f}")
        lines.append(f"| {words} | `{recompute}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def texts() -> dict[Path, str]:
    """The pages with up-to-date tables."""
    tables = {
        PAGE: {"overload": overload_table(), "scenarios": scenarios_table(), "tiers": tiers_table()},
        LAB: {"causes": causes_table()},
    }
    return {path: _with_tables(path.read_text(encoding="utf-8"), made) for path, made in tables.items()}


def _with_tables(page: str, tables: dict[str, str]) -> str:
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    for where, text in texts().items():
        where.write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote the tables of {where}\n")
