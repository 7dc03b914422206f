"""Draw the pictures of ``docs/img/``: the terminal interface in states that the README and the guide describe.

    make pictures

Drives the program without a terminal, with the keys a reader would press, in a temporary home folder. The same program
draws the same pictures; ``tests/tui/test_pictures.py`` reports those that no longer match the screen.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import files_of
from blis_tui.golden.produce import produce
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.twin.twin import compare_with_simulation
from blis_tui.spec.shipped import shipped_specs
from blis_tui.tui.app import BlisApp, Start, TwinStart
from blis_tui.tui.observing_start import ObservingStart
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.observing import ObservingScreen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot

IMAGES: Final = Path(__file__).with_name("img")
NORMAL: Final = (140, 40)
NARROW: Final = (80, 24)
STEP: Final = "2761"
"""A step of kv-pressure that preempts one request and completes another while fifteen wait."""
OWN: Final = {
    "support-chat": ("One H200 for support chats, 6 requests a second.", "steady-chat", "hardware: h200"),
    "support-chat-burst": ("The same H200 on the first day of the sale.", "burst", "hardware: h200"),
    "two-l40s": ("Would two L40S do?", "quickstart", "hardware: l40s"),
}
"""The experiments in the home folder that is shown: description, what it extends, what it changes."""
RECORDINGS: Final = Path(__file__).with_name("recordings")
"""A recording of ``quickstart`` on one L40S with ``max_num_seqs`` 8, with the status lines of `observe`:

    blis-tui serve-api quickstart --set cluster.instances=1 --set hardware=l40s --set engine.max_num_seqs=8
    blis-tui observe http://127.0.0.1:8000 --workload chat.yaml --scrape 0.5 -o monday --status-lines
"""
_TOLD: Final = RECORDINGS / "monday.status.jsonl"
_OBSERVING: Final = """
import pathlib, sys, time
sys.stderr.write(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
sys.stderr.flush()
time.sleep(600)
"""
"""Prints the status lines of `observe` up to the middle of the run, and waits to be stopped."""
WITH_GOLDENS: Final = ("burst", "kv-pressure", "quickstart", "shared-prefixes", "sjf", "unfair-tenants")


class Studio:
    """A running program, and the file for its picture."""

    def __init__(self, app: BlisApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, each after the one before has taken effect."""
        for key in keys:
            await self.pilot.press(key)
            await self.calm()

    async def calm(self) -> None:
        """Wait until the screen no longer changes."""
        for _ in range(3):
            await self.pilot.pause()
            await self.app.workers.wait_for_complete()
        while self._busy():
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    def _busy(self) -> bool:
        screen = self.app.screen
        if isinstance(screen, DebuggerScreen):
            return screen.session.driver.busy
        return isinstance(screen, CompareScreen) and screen.busy


# ---- the scenes ----


async def home(studio: Studio) -> None:
    """The list of experiments, with one of the reader's own under the cursor."""
    await studio.press("down")


async def debugger(studio: Studio) -> None:
    """A step that preempts a request, which is selected; the future of the run is known."""
    await studio.press("end", "g", *STEP, "enter", "2", "down", "3")


async def summary(_studio: Studio) -> None:
    """How a run went, as the debugger opens it."""


async def narrow(studio: Studio) -> None:
    """The life of the slowest request on a small terminal."""
    await studio.press("end", "3", "enter", "g", *"3300", "enter", "3")


async def why(studio: Studio) -> None:
    """Why the slowest request was slow."""
    await studio.press("end", "3", "question_mark")


async def compare(studio: Studio) -> None:
    """A run beside the same with more KV blocks, where the two diverge."""
    names = ("kv-pressure", "engine.kv_blocks=900")
    other = blis_tui.load("kv-pressure", set={"engine.kv_blocks": 900})
    studio.app.open_compare(blis_tui.load("kv-pressure"), other, names)
    await studio.calm()
    await studio.press("D")


async def study(studio: Studio) -> None:
    """A study after its sweep: the front, and a point that breaks a bound."""
    studio.app.open_study("token-budget")
    await studio.calm()
    await studio.press("c", "down")


async def fleet(studio: Studio) -> None:
    """A burst: instances load or wait for a node, and the autoscaler's decisions."""
    await studio.press("g", *"33s", "enter", "0", "right")


async def router(studio: Studio) -> None:
    """A routing decision with stale signals, and the instance that would have been better."""
    await studio.press("r", "R", "down", "down")


async def gateway(studio: Studio) -> None:
    """The gateway's queue before busy instances, by urgency and tenant."""
    await studio.press("r", "W")


async def whatif(studio: Studio) -> None:
    """What another routing decision would have done to the request and to all others."""
    await studio.press("r", "R", "down", "down", "down", "i")


async def goldens(studio: Studio) -> None:
    """Golden results, one of which would change."""
    await studio.press("G")


async def twin(studio: Studio) -> None:
    """A recording beside a simulation with another limit, at a point where their requests differ."""
    await studio.press("D", "O", "O")


async def observing(studio: Studio) -> None:
    """A server being loaded: its queue grows."""
    told = len(_TOLD.read_text(encoding="utf-8").splitlines())
    screen = studio.app.screen
    assert isinstance(screen, ObservingScreen)  # noqa: S101  (it begins with that)
    while len(screen.view().statuses) < told:
        await studio.pilot.pause(0.02)
    await studio.calm()


SCENES: Final[dict[str, tuple[Callable[[Studio], Awaitable[None]], tuple[int, int], str]]] = {
    "home": (home, NORMAL, ""),
    "summary": (summary, NORMAL, "kv-pressure"),
    "debugger": (debugger, NORMAL, "kv-pressure"),
    "debugger-narrow": (narrow, NARROW, "kv-pressure"),
    "why": (why, NORMAL, "kv-pressure"),
    "compare": (compare, NORMAL, ""),
    "study": (study, NORMAL, ""),
    "goldens": (goldens, NORMAL, ""),
    "fleet": (fleet, NORMAL, "autoscaling"),
    "router": (router, NORMAL, "stale-signals"),
    "gateway": (gateway, NORMAL, "unfair-tenants"),
    "whatif": (whatif, NORMAL, "stale-signals"),
    "twin": (twin, NORMAL, "quickstart"),
    "observing": (observing, NORMAL, ""),
}
"""Name of the picture -> what to do, columns and rows, the experiment to open (none = the list)."""
_OLD: Final[tuple[dict[str, object], tuple[str, ...]]] = (
    {"cluster.signals.refresh_interval_us": 500_000},
    ("regret > 0.2 and time_s > 1",),
)
SETTINGS: Final[dict[str, tuple[dict[str, object], tuple[str, ...]]]] = {
    "router": _OLD,
    "twin": ({"cluster.instances": 1, "hardware": "l40s", "engine.max_num_seqs": 16}, ()),
    "whatif": _OLD,
    "gateway": (
        {
            "cluster.instances": 3,
            "engine.max_num_seqs": 8,
            "workload.rate_per_s": 60,
            "policy": {
                "slo_priorities": {"critical": 4, "standard": 3, "batch": -1},
                "gateway": {
                    "bands": True,
                    "fairness": "weighted",
                    "max_depth": 200,
                    "saturation": {"kind": "concurrency", "max_concurrency": 8},
                    "usage_limit": 0.8,
                },
            },
        },
        ("gateway.waiting > 60",),
    ),
}
"""Changes to a picture's experiment, and where its run stops."""


async def screenshot(name: str) -> str:
    """A scene as SVG."""
    act, size, experiment = SCENES[name]
    changes, breaks = SETTINGS.get(name, ({}, ()))
    loaded = blis_tui.load(experiment, set=changes) if experiment else None
    start: Start | TwinStart | ObservingStart | None = None
    if name == "observing":
        words = (sys.executable, "-c", _OBSERVING, str(_TOLD))
        start = ObservingStart(url="http://127.0.0.1:8000", words=words)
    elif name == "twin" and loaded:
        recording = read_recording(shutil.copytree(RECORDINGS / "monday", Path("monday")))  # which adds tables to it
        start = TwinStart(
            twin=compare_with_simulation(recording, loaded, experiment), recording=recording, source=experiment
        )
    elif loaded:
        at = None if name == "summary" else "start"
        start = Start(experiment=loaded, source=experiment, at=at, breaks=breaks)
    app = BlisApp(start)
    async with app.run_test(size=size) as pilot:
        studio = Studio(app, pilot)
        await studio.calm()
        await act(studio)
        return app.export_screenshot(title="blis-tui")


# ---- the folders ----


def furnish(folder: Path) -> None:
    """Put the reader's own experiments into a folder."""
    for name, (about, parent, change) in OWN.items():
        text = (shipped_specs() / "experiments" / f"{parent}.blis.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.blis.yaml").write_text(_renamed(text, name, about, change), encoding="utf-8")


def _renamed(text: str, name: str, about: str, change: str) -> str:
    text = re.sub(r"(?m)^  name: .*$", f"  name: {name}", text, count=1)
    text = re.sub(r"(?m)^  description: .*$", f'  description: "{about}"', text, count=1)
    return re.sub(r"(?m)^hardware: .*$", change, text, count=1)


def furnish_goldens(folder: Path) -> None:
    """Put experiments with golden results into a folder; one has a new result, with more KV blocks, to review."""
    for name in WITH_GOLDENS:
        spec = folder / f"{name}.blis.yaml"
        shutil.copy(shipped_specs() / "experiments" / spec.name, spec)
        _store(folder, spec, pending=False)
    spec = folder / "kv-pressure.blis.yaml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("kv_blocks: 600", "kv_blocks: 900"), encoding="utf-8")
    _store(folder, spec, pending=True)


def _store(folder: Path, spec: Path, *, pending: bool) -> None:
    for case in cases_of(spec):
        place = files_of(spec, case.name, folder=folder / "golden", root=folder)
        place.write(produce(case.load(), spec=spec.name, case=case.name), pending=pending)


# ---- the files ----


def picture(svg: str) -> str:
    """Return the export of a screen without the number that it draws for itself."""
    return re.sub(r"terminal-\d+", "terminal", svg)


def furnished(name: str, home: Path) -> Path:
    """The prepared folder below a home in which a picture is taken."""
    folder = home / ("goldens" if name == "goldens" else "capacity")
    folder.mkdir(parents=True, exist_ok=True)
    (furnish_goldens if name == "goldens" else furnish)(folder)
    return folder


def main() -> None:
    """Draw the pictures named on the command line, or all."""
    names = sys.argv[1:] or list(SCENES)
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        raise SystemExit(f"no such picture: {', '.join(unknown)} (there are {', '.join(SCENES)})")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(TEXTUAL_ANIMATIONS="none", TEXTUAL_THEME="blis-dark")
        for name in names:
            home = Path(scratch) / name  # its own, as what one reader did would be remembered for the next
            os.environ.update(HOME=str(home))
            os.environ.update({f"BLIS_TUI_{kind}_DIR": str(home / kind) for kind in ("STATE", "CONFIG")})
            target = IMAGES / f"{name}.svg"
            with chdir(furnished(name, home)):
                target.write_text(picture(asyncio.run(screenshot(name))), encoding="utf-8", newline="\n")
            sys.stdout.write(f"{target.name}: {target.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
