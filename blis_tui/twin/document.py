"""A twin as plain data, and its requests as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from blis_tui.records.tables import csv_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.twin.agreement import Agreement
    from blis_tui.twin.twin import Twin


def twin_document(twin: Twin) -> dict[str, object]:
    """The comparison; times in milliseconds where the name says nothing else."""
    document: dict[str, object] = {
        "measured": twin.left.name,
        "simulated" if twin.simulated else "then": twin.right.name,
        "requests": {"both": len(twin.pairs), "only_measured": twin.only_left, "only_other": twin.only_right},
        "latency_ms": _errors(twin.errors),
        "counts": {
            name: {"measured": count, "other": twin.right.counts[name]}
            for name, count in twin.left.counts.items()
            if name in twin.right.counts
        },
    }
    if twin.batches is not None:
        document["batches"] = asdict(twin.batches)
    if twin.seen:
        document["seen"] = {name: asdict(seen) for name, seen in twin.seen.items()}
    document["course"] = [
        {"until_us": one.until_us, "requests": one.requests, "measured": dict(one.left), "other": dict(one.right)}
        for one in twin.course
    ]
    if twin.simulated:
        document["parting"] = None if twin.parting is None else asdict(twin.parting)
        document["explained"] = [{"name": rung.name, "latency_ms": _errors(rung.errors)} for rung in twin.rungs]
    if (halves := twin.halves) is not None:
        document["halves"] = {
            "fitted_us": [asdict(fitted) for fitted in halves.fitted],
            "one_speed_latency_ms": _errors(halves.steady),
            "its_speed_latency_ms": _errors(halves.drifting),
        }
    document["notes"] = list(twin.notes)
    return document


def _errors(errors: Mapping[str, Agreement]) -> dict[str, object]:
    return {metric: asdict(found) for metric, found in errors.items()}


def pairs_csv(twin: Twin) -> Iterator[str]:
    """Each request with both sides' latencies in microseconds, line by line."""
    names = [f"{metric}_us" for metric in ("ttft", "itl", "e2e")]
    yield csv_line(["request_id", "sent_us", *(f"{side}_{name}" for side in ("measured", "other") for name in names)])
    for pair in twin.pairs:
        cells = [side.get(metric) for side in (pair.left, pair.right) for metric in ("ttft", "itl", "e2e")]
        yield csv_line([pair.name, pair.sent_us, *(None if cell is None else round(cell) for cell in cells)])
