"""A twin as text, at most 100 columns wide."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import aligned, printable
from blis_tui.base.units import count_text, plural, share_change_text, share_text
from blis_tui.live.twin.course import KV, LATENCIES, LEVELS
from blis_tui.live.twin.first_difference import alike_text, where
from blis_tui.live.twin.fitting import BLOCK_STEPS
from blis_tui.output.tables import csv_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.live.twin.course import Agreement
    from blis_tui.live.twin.fitting import Fitted
    from blis_tui.live.twin.twin import Twin


_NAMES: Final = {"ttft": "TTFT", "itl": "ITL", "e2e": "E2E"}
_TITLES: Final = {KV: f"{KV} %", "ttft": "TTFT ms", "e2e": "E2E ms"}
"""Titles of columns whose figures have a unit."""
_GAP: Final = 4
_ABOUT: Final = "ITL: mean gap of a request's tokens; MAPE: mean absolute error of single requests; r: correlation"


def twin_text(twin: Twin) -> str:
    """Return the sides, latencies, engine figures, both sides over time, the first difference, and causes of errors."""
    parts = (_head, _latencies, _engine, _course, _parting, _ladder, _halves)
    blocks = [part(twin) for part in parts]
    return "\n\n".join("\n".join(printable(line.rstrip()) for line in block) for block in blocks if block) + "\n"


def _head(twin: Twin) -> list[str]:
    right = "simulated" if twin.simulated else "then"
    lines = [f"measured   {twin.left.name}", f"{right:10} {twin.right.name}"]
    shared = f"{count_text(len(twin.pairs))} answered on both sides"
    more = [
        f"{count_text(count)} only {side}"
        for count, side in ((twin.only_left, "measured"), (twin.only_right, right))
        if count
    ]
    lines.append(f"requests   {', '.join([shared, *more])}")
    return [*lines, *(f"note: {note}" for note in twin.notes)]


def _latencies(twin: Twin) -> list[str]:
    rows = [("ms", "measured", "simulated" if twin.simulated else "then", "difference", "MAPE", "r")]
    for metric, error in twin.errors.items():
        for figure, left in error.left.items():
            right, of_pairs = error.right[figure], ("", "")
            if figure == "mean":
                of_pairs = share_text(error.mape), "" if error.r is None else f"{error.r:.3f}"
            rows.append((f"{_NAMES[metric]} {figure}", f"{left:,.2f}", f"{right:,.2f}", _off(left, right), *of_pairs))
    return [*aligned(rows, range(1, 6), _GAP), _ABOUT]


def _off(left: float, right: float) -> str:
    """Return the relative difference of the right side."""
    return share_change_text(right / left - 1) if left else ""


def _engine(twin: Twin) -> list[str]:
    left, right = twin.left, twin.right
    rows = [
        (name, f"{count:,}", f"{right.counts[name]:,}", _off(count, right.counts[name]))
        for name, count in left.counts.items()
        if name in right.counts
    ]
    if left.step_us is not None and right.step_us is not None:
        times = (f"{left.step_us / 1e3:,.2f}", f"{right.step_us / 1e3:,.2f}", _off(left.step_us, right.step_us))
        rows.append(("ms from step to step", *times))
    for name, seen in twin.seen.items():
        rows.append((f"{name}, mean of scrapes", f"{seen.left:,.2f}", f"{seen.right:,.2f}", _r(seen.r)))
    lines = [*aligned(rows, range(1, 4), _GAP)]
    if (batches := twin.batches) is not None:
        steps = plural(min(batches.steps), "step")
        lines.append(f"batches: the same in {count_text(batches.equal)} of {steps}, sizes {_r(batches.r)}")
    return lines


def _r(value: float | None) -> str:
    return "" if value is None else f"r {value:.3f}"


def _course(twin: Twin) -> list[str]:
    """Return both sides over time, one line per interval."""
    if not twin.course:
        return []
    columns = [["until s", *(f"{stretch.until_us / 1e6:,.2f}" for stretch in twin.course)]]
    columns.append(["sent", *(count_text(stretch.requests) for stretch in twin.course)])
    for name in (*LEVELS, *LATENCIES):
        sides = [[_figure(name, side[name]) for side in (stretch.left, stretch.right)] for stretch in twin.course]
        widths = [max(map(len, column)) for column in zip(*sides, strict=True)]
        columns.append(
            [_TITLES.get(name, name), *(f"{left:>{widths[0]}} /{right:>{widths[1] + 1}}" for left, right in sides)]
        )
    other = "simulated" if twin.simulated else "then"
    about = f"measured / {other} at the end of each tenth; latencies: means of the requests sent in it"
    return [*aligned(list(zip(*columns, strict=True)), range(len(columns))), about]


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if name == KV else f"{value:,.1f}" if name in LATENCIES else f"{value:,.0f}"


def _parting(twin: Twin) -> list[str]:
    if not twin.simulated:
        return []
    lines = _divergence_lines("first divergence at", twin)
    best = twin.rungs[-1].parting
    if len(twin.rungs) > 1 and best != twin.parting:
        lines += _divergence_lines("with measured steps at", twin, measured=True)
    return lines


def _divergence_lines(head: str, twin: Twin, *, measured: bool = False) -> list[str]:
    parting = twin.rungs[-1].parting if measured else twin.parting
    if parting is None:
        return [f"{head.removesuffix(' at')}: {alike_text(logged=twin.left.batches is not None)}"]
    return [f"{head} {where(parting)}: {parting.text}", f"  {parting.cause}: {parting.why}"]


def _ladder(twin: Twin) -> list[str]:
    if len(twin.rungs) < 2:
        return []
    rows = [("what explains the error (MAPE)", *_NAMES.values(), "batches alike")]
    rows += [(f"  {rung.name}", *_mapes(rung.errors), share_text(twin.alike(rung))) for rung in twin.rungs]
    return [*aligned(rows, range(1, 5), _GAP)]


def _mapes(errors: Mapping[str, Agreement]) -> tuple[str, ...]:
    return tuple(share_text(errors[name].mape) if name in errors else "-" for name in _NAMES)


def _halves(twin: Twin) -> list[str]:
    halves = twin.halves
    if halves is None:
        return []
    rows = [(f"every {BLOCK_STEPS} steps told by those between", *_NAMES.values())]
    rows.append(("  at one speed", *_mapes(halves.steady)))
    rows.append(("  at the speed of the steps beside", *_mapes(halves.drifting)))
    return [*aligned(rows, range(1, 4), _GAP), *(f"  {_law(law)}" for law in halves.fitted)]


def _law(law: Fitted) -> str:
    return f"{law.step_us:,.0f} + {law.prefill_token_us:,.1f}/prefill token + {law.decode_us:,.0f}/decode us"


# A twin as plain data, and its requests as a table.


def twin_document(twin: Twin) -> dict[str, object]:
    """Return the comparison; times in milliseconds unless the name states a unit."""
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
        {
            "until_us": stretch.until_us,
            "requests": stretch.requests,
            "measured": dict(stretch.left),
            "other": dict(stretch.right),
        }
        for stretch in twin.course
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
    return {metric: asdict(error) for metric, error in errors.items()}


def pairs_csv(twin: Twin) -> Iterator[str]:
    """Yield each request with both sides' latencies in microseconds, line by line."""
    names = [f"{metric}_us" for metric in ("ttft", "itl", "e2e")]
    yield csv_line(["request_id", "sent_us", *(f"{side}_{name}" for side in ("measured", "other") for name in names)])
    for pair in twin.pairs:
        cells = [side.get(metric) for side in (pair.left, pair.right) for metric in ("ttft", "itl", "e2e")]
        yield csv_line([pair.name, pair.sent_us, *(None if cell is None else round(cell) for cell in cells)])
