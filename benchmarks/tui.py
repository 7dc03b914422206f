"""Measure the terminal interface: python benchmarks/tui.py. Prints each figure with its bar; needs no terminal.

First paint is a whole process on a pseudo-terminal, from its start to the first screen with an event list. Key to paint
is the time from a key to the end of the repaint it causes, while a run is played at full speed. The long run has a
million events.
"""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import select
import statistics
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory

import blis_tui
from blis_tui.debugger.debugger import arrive
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.widgets.event_list import EventList

LONG = {"workload.requests": 22_000}
SIZE = (140, 40)


def show(name: str, value: float, bar: float, unit: str) -> None:
    verdict = "ok" if value < bar else "OVER"
    print(f"{name:<58} {value:9.1f} {unit:<4} bar {bar:7.0f}  {verdict}")


def first_paint_s(*command: str) -> float:
    """Seconds from the start of the process until the events are on the screen."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "blis_tui", *command])
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
    return BlisApp(Start(experiment=experiment, source=experiment.name))


async def key_to_paint_ms(presses: int = 90) -> list[float]:
    """While a run is played at full speed: from a key to the end of the first paint begun after it was handled."""
    figures: list[float] = []
    running = app(blis_tui.load("quickstart", set=LONG))
    async with running.run_test(size=SIZE) as pilot:
        screen = running.screen
        assert isinstance(screen, DebuggerScreen)
        paints: list[tuple[float, float]] = []
        paint = screen._compositor_refresh  # noqa: SLF001  (there is no public way to know that something was painted)

        def watched() -> None:
            began = time.perf_counter()
            paint()
            paints.append((began, time.perf_counter()))

        screen._compositor_refresh = watched  # type: ignore[method-assign]  # noqa: SLF001
        screen.bench.driver.speed.change(100)
        await pilot.press("space")
        keys = ("2", "1", "down", "up", "4", "5")
        for number in range(presses):
            await asyncio.sleep(0.03)
            handled: list[float] = []
            began = time.perf_counter()
            running.simulate_key(keys[number % len(keys)])
            running.call_later(lambda into=handled: into.append(time.perf_counter()))
            while not handled or not paints or paints[-1][0] < handled[0]:
                await asyncio.sleep(0)
            painted = next(end for start, end in paints if start >= handled[0])
            figures.append((painted - began) * 1e3)
            del paints[:-1]
        assert screen.bench.driver.busy
    return figures


async def long_run() -> None:
    """Step back and jump in a run of a million events."""
    running = app(blis_tui.load("quickstart", set=LONG))
    async with running.run_test(size=SIZE) as pilot:
        screen = running.screen
        assert isinstance(screen, DebuggerScreen)
        began = time.perf_counter()
        await pilot.press("end")
        while screen.bench.driver.busy:
            await asyncio.sleep(0.05)
        took = time.perf_counter() - began
        events = screen.bench.debugger.event
        print(f"{'run to the end':<58} {took:9.1f} s    {events:,} events, {took / events * 1e6:.1f} us each")

        async def timed(*keys: str) -> float:
            began = time.perf_counter()
            await pilot.press(*keys)
            while screen.bench.driver.busy:
                await asyncio.sleep(0.001)
            await pilot.pause()
            return (time.perf_counter() - began) * 1e3

        idle = statistics.median([await timed("f20") for _ in range(5)])
        back = [await timed("[") for _ in range(12)]
        show("step back at the end, slowest of 12 (key to settled)", max(back) - idle, 150, "ms")
        for part in (0.83, 0.5, 0.21):
            arrive(screen.bench.debugger.seek(int(events * part)))
            screen.moved()
            back = [await timed("[") for _ in range(6)]
            show(f"step back at {part:.0%} of the run, slowest of 6", max(back) - idle, 150, "ms")
        rows = screen.query_one(EventList)
        jumps = []
        for event in (5, events - 5, events // 2, events // 3, 77, events * 9 // 10):
            began = time.perf_counter()
            screen.bench.select(event=event)
            screen.show_view()
            await pilot.pause()
            jumps.append((time.perf_counter() - began) * 1e3)
        assert rows.view is not None
        show("jump of the event list in a million rows, slowest of 6", max(jumps) - idle, 50, "ms")


def main() -> None:
    with TemporaryDirectory() as folder:
        os.environ.update(
            BLIS_TUI_STATE_DIR=folder, BLIS_TUI_CONFIG_DIR=folder, TEXTUAL_ANIMATIONS="none", TERM="xterm-256color"
        )
        os.chdir(Path(__file__).resolve().parents[1])
        for command in (("tui", "quickstart"), ()):
            paints = sorted(first_paint_s(*command) for _ in range(5))
            show(f"first paint of `blis-tui {' '.join(command)}`, median of 5", paints[2] * 1e3, 800, "ms")
        figures = sorted(asyncio.run(key_to_paint_ms()))
        show("key to paint while running, p50", figures[len(figures) // 2], 60, "ms")
        show("key to paint while running, p95", figures[int(len(figures) * 0.95)], 60, "ms")
        asyncio.run(long_run())
        show("memory of all this at its peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 300, "MiB")


if __name__ == "__main__":
    main()
