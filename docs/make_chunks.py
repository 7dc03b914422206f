"""The TTFT-ITL frontier over chunk sizes: the table and the picture of ``docs/lab/chunk-size.md``.

    python docs/make_chunks.py

One prompt of 30,000 tokens arrives while other requests decode, and is prefilled in chunks as large as
``max_num_batched_tokens`` or ``long_prefill_token_threshold`` allows.
"""

from __future__ import annotations

import sys
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import blis_tui
from blis_tui.base.portable_math import ln
from blis_tui.engine.records import FirstToken, StepFinished
from blis_tui.results.stats import of_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE: Final = Path(__file__).parent / "lab" / "chunk-size.md"
PICTURE: Final = Path(__file__).with_name("img") / "chunk-size.svg"
CHUNKS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
KNOBS: Final = ("max_num_batched_tokens", "long_prefill_token_threshold")

_DECODES: Final = 32
_PROMPT: Final = 30_000
_ARRIVAL_US: Final = 1_000_000
_EXPERIMENT: Final = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: chunk-size}
model: llama-3.1-8b-instruct
hardware: h100
workload: {trace: {file: requests.csv}}
policy: vllm-v1
engine: {max_num_seqs: 64, max_num_batched_tokens: 65536, max_model_len: 65536}
"""


class Point(NamedTuple):
    """Latencies with one chunk size."""

    tokens: int
    ttft_ms: float
    """TTFT of the long prompt."""
    itl_ms: float
    """Mean gap between tokens of the other requests while the prompt is prefilled."""
    worst_ms: float
    """The longest of these gaps."""


def point(knob: str, tokens: int) -> Point:
    """Run the scenario with a knob set to a number of tokens."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"decode-{number},0,500,600\n" for number in range(_DECODES)]
        rows.append(f"long,{_ARRIVAL_US},{_PROMPT},1\n")
        table = "request_id,arrival_time_us,input_tokens,output_tokens\n" + "".join(rows)
        Path(folder, "requests.csv").write_text(table, encoding="utf-8")
        spec = Path(folder, "chunk-size.blis.yaml")
        spec.write_text(_EXPERIMENT, encoding="utf-8")
        simulation = blis_tui.Simulation(blis_tui.load(spec, set={f"engine.{knob}": tokens}), check="off")
    gaps: list[int] = []
    ttft_us: dict[str, int] = {}

    def note_gap(step: StepFinished) -> None:
        if any(chunk.request_id == "long" for chunk in step.chunks):
            gaps.append(step.duration_us)

    def note_first(token: FirstToken) -> None:
        ttft_us[token.request_id] = token.ttft_us

    simulation.subscribe(StepFinished, note_gap)
    simulation.subscribe(FirstToken, note_first)
    simulation.run()
    distribution = of_samples(gaps)
    return Point(tokens, ttft_us["long"] / 1000, distribution.mean or 0.0, distribution.max or 0.0)


def frontier(knob: str) -> list[Point]:
    """A point for each chunk size."""
    return [point(knob, tokens) for tokens in CHUNKS]


def table(knob: str, points: Sequence[Point]) -> str:
    """The points as a table."""
    lines = [
        f"| `{knob}` | TTFT of the long prompt, ms | mean ITL meanwhile, ms | longest gap, ms |",
        "|--:|--:|--:|--:|",
    ]
    lines += [f"| {one.tokens:,} | {one.ttft_ms:,.0f} | {one.itl_ms:,.1f} | {one.worst_ms:,.1f} |" for one in points]
    return "\n".join(lines)


_WIDTH: Final = 640
_RIGHT: Final = 580
_HEIGHT: Final = 400
_LEFT: Final = 70
_BOTTOM: Final = 350
_COLORS: Final = {"max_num_batched_tokens": "#4c78a8", "long_prefill_token_threshold": "#e45756"}
_LABELS: Final = {"max_num_batched_tokens": (8, -6, "start"), "long_prefill_token_threshold": (-8, 16, "end")}


def picture(found: Mapping[str, Sequence[Point]]) -> str:
    """An SVG file: TTFT over ITL, both on logarithmic axes, a line for each knob."""
    all_points = [one for points in found.values() for one in points]
    across = _Axis([one.itl_ms for one in all_points], _LEFT, _RIGHT)
    up = _Axis([one.ttft_ms for one in all_points], _BOTTOM, 50)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for value in across.ticks():
        x = across.at(value)
        parts.append(f'<path d="M{x} 50V{_BOTTOM}" stroke="#ddd"/>')
        parts.append(_text(x, _BOTTOM + 16, f"{value:,}", "#666"))
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{value:,}", "#666", anchor="end"))
    parts.append(_text((_LEFT + _WIDTH) // 2, _HEIGHT - 14, "mean ITL of the decodes meanwhile, ms", "#222"))
    parts.append(_text(8, 20, "TTFT of the prompt of 30,000 tokens, ms", "#222", anchor="start"))
    for number, (knob, points) in enumerate(found.items()):
        color, (right, down, anchor) = _COLORS[knob], _LABELS[knob]
        places = [(across.at(one.itl_ms), up.at(one.ttft_ms)) for one in points]
        line = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (x, y), one in zip(places, points, strict=True):
            parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{color}"/>')
            parts.append(_text(x + right, y + down, f"{one.tokens:,}", color, anchor=anchor))
        parts.append(_text(_RIGHT, 66 + 16 * number, knob, color, anchor="end"))
    return "\n".join((*parts, "</svg>", ""))


class _Axis:
    """A logarithmic scale from values to pixels."""

    def __init__(self, values: Sequence[float], first: int, last: int) -> None:
        self._low, self._high = ln(min(values) * 0.9), ln(max(values) * 1.1)
        self._first, self._last = first, last

    def at(self, value: float) -> int:
        return round(self._first + (self._last - self._first) * (ln(value) - self._low) / (self._high - self._low))

    def ticks(self) -> list[int]:
        """The ticks 1, 2, 5, 10, … within the scale."""
        values = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
        return [value for value in values if self._low <= ln(value) <= self._high]


def _text(x: int, y: int, words: str, color: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" font-size="11" text-anchor="{anchor}">{escape(words)}</text>'


def text_of(found: Mapping[str, Sequence[Point]]) -> str:
    """The page with up-to-date tables."""
    page = PAGE.read_text(encoding="utf-8")
    for knob, points in found.items():
        begin, end = f"<!-- {knob} -->\n", f"<!-- end of {knob} -->"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}{table(knob, points)}\n{end}{rest.partition(end)[2]}"
    return page


def frontiers() -> dict[str, list[Point]]:
    """The tables of both knobs."""
    return {knob: frontier(knob) for knob in KNOBS}


if __name__ == "__main__":
    made = frontiers()
    PAGE.write_text(text_of(made), encoding="utf-8")
    PICTURE.write_text(picture(made), encoding="utf-8")
    sys.stderr.write(f"wrote the tables of {PAGE} and {PICTURE}\n")
