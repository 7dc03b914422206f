"""Draw the gallery, ``docs/gallery.md`` with ``docs/img/gallery/``: what happens over time in each shipped experiment.

    make gallery

Each picture contains the digest of the records it was drawn from, so that a test detects stale pictures without a run.
"""

from __future__ import annotations

import re
import shutil
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Final, NamedTuple

import blis_tui
from blis_tui.base.units import time_text
from blis_tui.golden.golden_store import ChainRecorder
from blis_tui.pictures.load_pictures import LoadObserver
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.library import FOLDERS, suffix
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.pictures.load_pictures import LoadTable, Slice

PAGE: Final = Path(__file__).with_name("gallery.md")
IMAGES: Final = Path(__file__).with_name("img") / "gallery"
_LINE: Final = 100
"""Line length of the page."""
_COLUMNS: Final = 240
_WIDTH, _LEFT = 760, 40
_TOP, _HIGH, _GAP, _LOW = 14, 84, 12, 40
"""Pixels of the picture: top margin, chart of requests, gap, chart of the KV cache."""
_STYLE: Final = (
    "text{font:11px system-ui,sans-serif;fill:#525c67}.axis{stroke:#b9c1c6}"
    ".running{fill:#0072b2}.waiting{fill:#e69f00}.held{fill:#cc79a7}.kv{fill:none;stroke:#009e73;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){text{fill:#a0aab8}.axis{stroke:#3b4552}}"
)
_ABOUT: Final = """# Gallery

Each shipped experiment over time, summed over all instances: requests that run, wait at an instance
or are held at the gateway, and KV-cache use. `blis-tui tui NAME` opens one in the debugger;
`blis-tui run NAME --html page.html` draws interactive charts.
"""


class Drawn(NamedTuple):
    """A picture, and the texts beside it."""

    name: str
    about: str
    svg: str
    figures: str


def names() -> list[str]:
    """Names of the shipped experiments."""
    folder, ending = shipped_specs() / FOLDERS["Experiment"], suffix("Experiment")
    return sorted(path.name.removesuffix(ending) for path in folder.glob(f"*{ending}"))


def drawn(name: str) -> Drawn:
    """Run an experiment and draw it."""
    experiment = blis_tui.load(name)
    simulation = Simulation(experiment)
    seen, recorder = LoadObserver(simulation), ChainRecorder()
    simulation.subscribe("all", recorder)
    simulation.run()
    report = simulation.report()
    latency = report.latency.ttft_ms
    ttft = "" if latency is None else f" · TTFT p50 {latency.p50:,.0f} ms, p99 {latency.p99:,.0f} ms"
    size = f"{experiment.instances} instance{'s' * (experiment.instances > 1)}"
    figures = f"{size} · {report.requests.completed:,} requests completed in {time_text(report.duration_us)}{ttft}"
    digest = recorder.finish(simulation.events).sha256
    svg = picture(seen.table(simulation, report.duration_us), report.duration_us, digest)
    return Drawn(name, experiment.description, svg, figures)


def picture(table: LoadTable, end_us: int, digest: str) -> str:
    """The chart of load over time."""
    running = _sum(_means(instance.running) for instance in table.instances)
    waiting = _sum(_means(instance.waiting) for instance in table.instances)
    held = [0.0] * len(running) if table.held is None else _means(table.held)
    blocks = max(sum(instance.kv_blocks for instance in table.instances), 1)
    kv = [used / blocks for used in _sum(_means(instance.kv_used) for instance in table.instances)]
    all_waiting = [a + b for a, b in zip(running, waiting, strict=True)]
    top = [a + b for a, b in zip(all_waiting, held, strict=True)]
    most = max(*top, 1.0)
    foot, bottom = _TOP + _HIGH, _TOP + _HIGH + _GAP + _LOW
    shapes = [
        *([_area(all_waiting, top, most, "held")] if table.held is not None else []),
        _area(running, all_waiting, most, "waiting"),
        _area([0.0] * len(running), running, most, "running"),
        f'<path class="kv" d="M{_points(kv, 1.0, bottom, _LOW)}"/>',
    ]
    words = [
        _text(_LEFT - 4, _TOP + 8, f"{most:,.0f}", "end"),
        _text(_LEFT - 4, foot, "0", "end"),
        _text(_LEFT - 4, bottom - _LOW + 8, "100%", "end"),
        _text(_LEFT, bottom + 14, "0 s"),
        _text(_WIDTH, bottom + 14, time_text(end_us), "end"),
        _legend(table.held is not None),
    ]
    axes = "".join(f'<path class="axis" d="M{_LEFT} {y}H{_WIDTH}"/>' for y in (foot, bottom))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 4} {bottom + 20}" data-records="{digest}">'
        f"<style>{_STYLE}</style>{''.join(shapes)}{axes}{''.join(words)}</svg>\n"
    )


def _means(slices: Sequence[Slice]) -> list[float]:
    """Resample to the number of columns of the picture."""
    count = len(slices)
    edges = [at * count // _COLUMNS for at in range(_COLUMNS + 1)] if count > _COLUMNS else list(range(count + 1))
    return [sum(one.mean for one in slices[first:last]) / (last - first) for first, last in pairwise(edges)]


def _sum(courses: Iterator[list[float]]) -> list[float]:
    return [sum(values) for values in zip(*courses, strict=True)]


def _area(lower: Sequence[float], upper: Sequence[float], most: float, kind: str) -> str:
    foot = _TOP + _HIGH
    there = _points(upper, most, foot, _HIGH)
    back = " ".join(reversed(_points(lower, most, foot, _HIGH).split()))
    return f'<path class="{kind}" d="M{there} {back}Z"/>'


def _points(values: Sequence[float], most: float, foot: int, height: int) -> str:
    step = (_WIDTH - _LEFT) / max(len(values) - 1, 1)
    return " ".join(f"{_LEFT + at * step:.1f},{foot - height * value / most:.1f}" for at, value in enumerate(values))


def _text(x: int, y: int, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def _legend(held: bool) -> str:
    parts = [("running", "#0072b2"), ("waiting", "#e69f00"), *([("at the gateway", "#cc79a7")] if held else [])]
    spans = "  ".join(f'<tspan fill="{colour}">■</tspan> {name}' for name, colour in parts)
    return f'<text x="{_LEFT + 4}" y="{_TOP - 4}">{spans}  <tspan fill="#009e73">▬</tspan> KV cache in use</text>'


def section(one: Drawn) -> str:
    """The experiment's section of the page."""
    image = f"![{one.name}: load over time](img/gallery/{one.name}.svg)"
    about, figures = (fill(text, _LINE, break_on_hyphens=False) for text in (one.about, one.figures))
    return f"## {one.name}\n\n{about}\n\n{image}\n\n{figures}\n"


def digest_of(svg: str) -> str:
    """The digest of the records that a picture was drawn from."""
    match = re.search(r'data-records="(\w+)"', svg)
    return "" if match is None else match[1]


def main() -> None:
    """Write the page and its pictures."""
    shutil.rmtree(IMAGES, ignore_errors=True)
    IMAGES.mkdir(parents=True)
    all_drawn = [drawn(name) for name in names()]
    for one in all_drawn:
        (IMAGES / f"{one.name}.svg").write_text(one.svg, encoding="utf-8")
    PAGE.write_text("\n".join([_ABOUT, *map(section, all_drawn)]), encoding="utf-8")


if __name__ == "__main__":
    main()
