"""Measure the terminal interface: python benchmarks/tui.py. Prints each figure with its target; needs no terminal.

First paint is the time of a process on a pseudo-terminal from its start to the first screen with an event list, with
compiled modules at hand, as installed. Key to paint is the time from a key press to the end of the repaint it causes,
while a run plays at full speed. The long run has a million events.
"""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import select
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui.debugger.history import run_to_stop
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.screens.debugger import DebuggerScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.dom import DOMNode

LONG = {"workload.requests": 22_000}
SIZE = (140, 40)
PATIENCE_S = 120


def show(name: str, value: float, bar: float, unit: str) -> None:
    verdict = "ok" if value < bar else "OVER"
    print(f"{name:<58} {value:9.1f} {unit:<4} bar {bar:7.0f}  {verdict}")


def first_paint_s(*command: str) -> float:
    """Seconds from the start of the process until the events are on the screen."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "blis_tui", *command])  # noqa: S606  (that is the point)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    seen = b""
    while b"Events" not in seen and b"xperiments" not in seen:
        ready, _, _ = select.select([terminal], [], [], 20)
        if not ready:
            raise TimeoutError("nothing was painted")
        seen += os.read(terminal, 65536)
    took = time.perf_counter() - began
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(terminal)
    return took


def app(experiment: blis_tui.Experiment) -> BlisApp:
    return BlisApp(Start(experiment=experiment, source=experiment.name, at="0"))


class Watcher:
    """Records when a screen was painted."""

    def __init__(self, running: BlisApp) -> None:
        self.app = running
        if not isinstance(running.screen, DebuggerScreen):
            raise TypeError("the debugger is not on the screen")
        self.screen = running.screen
        self.driver = self.screen.session.driver
        self._handled = False
        self._painted_s = 0.0
        self._run = running.run_action
        running.run_action = self._run_action  # type: ignore[method-assign,assignment]
        self._paint = self.screen._compositor_refresh  # noqa: SLF001  (nothing public tells of a paint)
        self.screen._compositor_refresh = self._watched  # type: ignore[method-assign]  # noqa: SLF001

    def _watched(self) -> None:
        self._paint()
        self._painted_s = time.perf_counter()

    async def _run_action(
        self, action: str, namespace: DOMNode | None = None, namespaces: Mapping[str, DOMNode] | None = None
    ) -> bool:
        done = await self._run(action, namespace, namespaces)
        self._handled = True
        return done

    @property
    def _settled(self) -> bool:
        """Whether the effect of the action is on the screen."""
        screen = self.screen
        dirty = screen._dirty_widgets or screen._layout_required  # noqa: SLF001  (as above)
        return self._handled and not dirty and (self.driver.playing or not self.driver.busy)

    async def key(self, key: str) -> float:
        """Milliseconds from a key to the end of the paint that shows its effect."""
        return await self._until_painted(lambda: self.app.simulate_key(key))

    async def call(self, action: Callable[[], object]) -> float:
        """The same for a call."""

        def handled() -> None:
            action()
            self._handled = True

        return await self._until_painted(handled)

    async def _until_painted(self, action: Callable[[], object]) -> float:
        self._handled = False
        began = time.perf_counter()
        action()
        while not (self._settled and self._painted_s > began):
            if time.perf_counter() > began + PATIENCE_S:
                raise TimeoutError("nothing was painted")
            await asyncio.sleep(0)
        return (self._painted_s - began) * 1e3

    async def rest(self) -> None:
        """Wait until the application is idle."""
        while self.driver.busy:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)


async def key_to_paint_ms(presses: int = 120) -> list[float]:
    """Measure keys while a run plays at full speed."""
    running = app(blis_tui.load("quickstart", set=LONG))
    async with running.run_test(size=SIZE):
        watcher = Watcher(running)
        watcher.driver.speed.change(100)
        await watcher.key("space")
        figures = []
        for number in range(presses):
            await asyncio.sleep(0.03)
            figures.append(await watcher.key(("2", "1", "down", "up", "4", "5")[number % 6]))
        if not watcher.driver.busy:
            raise RuntimeError("the run ended too early to measure anything")
    return sorted(figures)


RESTING: Final = (
    *("1", "up", "down", "left_square_bracket", "right_square_bracket", "left_square_bracket"),
    *("2", "left_square_bracket", "3", "4", "5", "l", "l", "left_square_bracket", "tab"),
)
"""Keys that move, select, show other panes or rank requests."""


async def resting_keys_ms(watcher: Watcher, events: int, places: int = 12) -> list[float]:
    """Measure keys at places all over a recorded run, as a reader presses them: a few in a second, then a pause."""
    figures = []
    for place in range(places):
        run_to_stop(watcher.screen.session.debugger.seek(events * (place + 1) // (places + 1)))
        watcher.screen.moved()
        await watcher.rest()
        for key in RESTING:
            figures.append(await watcher.key(key))
            await asyncio.sleep(0.1)
        await watcher.rest()
    return sorted(figures)


async def long_run() -> None:
    """Measure stepping back and jumping in a run of a million events."""
    running = app(blis_tui.load("quickstart", set=LONG))
    async with running.run_test(size=SIZE):
        watcher = Watcher(running)
        debugger = watcher.screen.session.debugger
        began = time.perf_counter()
        await watcher.key("end")
        await watcher.rest()
        took = time.perf_counter() - began
        events = debugger.event
        print(f"{'run to the end, shown while it runs':<58} {took:9.1f} s    {events:,} events")
        back = [await watcher.key("left_square_bracket") for _ in range(12)]
        show("step back at the end, slowest of 12", max(back), 150, "ms")
        for part in (0.83, 0.5, 0.21):
            run_to_stop(debugger.seek(int(events * part)))
            watcher.screen.moved()
            await watcher.rest()
            back = [await watcher.key("left_square_bracket") for _ in range(6)]
            show(f"step back at {part:.0%} of the run, slowest of 6", max(back), 150, "ms")
        keys = await resting_keys_ms(watcher, events)
        show("any key in the long run, p50", keys[len(keys) // 2], 50, "ms")
        show("any key in the long run, p99", keys[int(len(keys) * 0.99)], 50, "ms")
        screen = watcher.screen
        jumps = []
        for event in (5, events - 5, events // 2, events // 3, 77, events * 9 // 10):

            def jump(to: int = event) -> None:
                screen.session.select(event=to)
                screen.show_view()

            jumps.append(await watcher.call(jump))
            await watcher.rest()
        show("jump of the event list in a million rows, slowest of 6", max(jumps), 50, "ms")


def main() -> None:
    with TemporaryDirectory() as folder:
        os.environ.update(
            BLIS_TUI_STATE_DIR=folder, BLIS_TUI_CONFIG_DIR=folder, TEXTUAL_ANIMATIONS="none", TERM="xterm-256color"
        )
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without compiled modules, imports take three times as long
        os.environ.setdefault("PYTHONPYCACHEPREFIX", folder)
        os.chdir(Path(__file__).resolve().parents[1])
        for command in (("tui", "quickstart"), ()):
            paints = sorted(first_paint_s(*command) for _ in range(5))
            show(f"first paint of `blis-tui {' '.join(command)}`, median of 5", paints[2] * 1e3, 800, "ms")
        figures = asyncio.run(key_to_paint_ms())
        show("key to paint while running, p50", figures[len(figures) // 2], 60, "ms")
        show("key to paint while running, p95", figures[int(len(figures) * 0.95)], 60, "ms")
        asyncio.run(long_run())
        show("memory of all this at its peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 300, "MiB")


if __name__ == "__main__":
    main()
