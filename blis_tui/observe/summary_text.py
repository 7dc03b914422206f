"""A recording's summary, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.observe.lines import server_document
from blis_tui.observe.recording import COMPLETED
from blis_tui.printable import printable
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.observe.recording import Recording
    from blis_tui.observe.summary import Spread, Summary

_COUNTED = (
    ("preemptions", "vllm:num_preemptions_total"),
    ("prompt tokens from the prefix cache", "vllm:prefix_cache_hits_total"),
)


def summary_text(summary: Summary, recording: Recording) -> str:
    """The summary for a terminal."""
    seconds = max(summary.duration_us, 1) / 1e6
    server = recording.server
    done = summary.outcomes.get(COMPLETED, 0)
    lines = [
        f"recording  {recording.folder}",
        f"server     {' '.join([server.model, server.version and f'({server.version})']).strip() or 'unknown'}",
        (
            f"requests   {count_text(done)} of {count_text(summary.requests)} answered in {seconds:,.2f} s"
            f" ({done / seconds:,.2f}/s)"
        ),
        (
            f"tokens     {count_text(summary.input_tokens)} of prompts, {count_text(summary.output_tokens)} of answers"
            f" ({summary.output_tokens / seconds:,.1f}/s)"
        ),
        *(f"{name:10} {count_text(count)}  {summary.failures.get(name, '')}".rstrip() for name, count in _bad(summary)),
        "",
        f"{'ms':10}{'mean':>12}{'p50':>12}{'p99':>12}{'max':>12}",
        *(_line(name, spread) for name, spread in _spreads(summary) if spread is not None),
    ]
    counted = _counters(recording)
    if recording.steps or counted:
        told = [plural(len(recording.steps), "step")] if recording.steps else []
        told += [f"{count_text(value)} {name}" for name, value in counted.items()]
        lines += ["", f"by the server: {', '.join(told)}"]
    return "\n".join(map(printable, lines)) + "\n"


def summary_document(summary: Summary, recording: Recording, warnings: Sequence[str]) -> dict[str, object]:
    """The summary as plain data; times in milliseconds."""
    return {
        "recording": str(recording.folder),
        "server": server_document(recording.server),
        "complete": recording.about.get("complete") is True,
        "requests": {"total": summary.requests, **summary.outcomes},
        "duration_s": summary.duration_us / 1e6,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        **{f"{name}_ms": spread.to_dict() for name, spread in _spreads(summary) if spread is not None},
        "steps": len(recording.steps),
        "counters": recording.about.get("counters", {}),
        "errors": dict(summary.failures),
        "warnings": list(warnings),
    }


def _bad(summary: Summary) -> list[tuple[str, int]]:
    return [(name, count) for name, count in summary.outcomes.items() if name != COMPLETED]


def _spreads(summary: Summary) -> tuple[tuple[str, Spread | None], ...]:
    return (("ttft", summary.ttft), ("itl", summary.itl), ("e2e", summary.e2e), ("sent_late", summary.late))


def _line(name: str, spread: Spread) -> str:
    cells = (spread.mean_us, spread.p50_us, spread.p99_us, spread.max_us)
    return f"{name.replace('_', ' '):10}" + "".join(f"{cell / 1000:>12,.2f}" for cell in cells)


def _counters(recording: Recording) -> Mapping[str, int]:
    counters = recording.about.get("counters")
    found = counters if isinstance(counters, dict) else {}
    return {name: round(found[key]) for name, key in _COUNTED if isinstance(found.get(key), int | float)}
