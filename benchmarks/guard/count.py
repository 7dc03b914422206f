"""Count what one input takes, with the `blis_tui` that this process finds: calls, modules, code made at run time.

    python count.py RESULT.json phases SPEC | command ARGUMENT... | plan ARGUMENTS.json | debugger | plain-debugger

All of it is the same on every machine with the same Python and dependencies. It has to run with the first landed
version, too, so it asks for nothing that came later.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import json
import os
import pstats
import sys
import tempfile
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


class Count:
    """What has been counted so far.

    Args:
        plain: do the work and count nothing, for those who take its time.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self.figures: dict[str, int] = {}
        self._made = self._compiled = 0
        if not plain:
            sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Notice code that was made at run time, such as the methods of a dataclass, and modules without bytecode."""
        if event == "exec":
            name = getattr(arguments[0], "co_filename", "")
            self._made += name.startswith("<") and not name.startswith("<frozen")
        elif event == "compile":
            self._compiled += str(arguments[1]).endswith(".py")

    def calls(self, name: str, work: Callable[[], _Result], *, own: bool = False) -> _Result:
        """Do some work and count its calls, of Python and of C functions; ``own``: of this package's alone."""
        if self._plain:
            return work()
        profile = cProfile.Profile()
        profile.enable()
        result = work()
        profile.disable()
        # pstats has no stubs for what it finds: (file, line, name) -> (primitive calls, calls, ...).
        stats: dict[tuple[str, int, str], tuple[int, int]] = getattr(pstats.Stats(profile), "stats")  # noqa: B009
        counted = 0
        for (file, _, _), (_, times, *_) in stats.items():
            counted += times if not own or "blis_tui" in Path(file).parts else 0
        self.figures[f"{name}.calls"] = counted
        return result

    def imports(self) -> None:
        """Count the modules that have been imported, those of them that had to be compiled, and the code made."""
        self.figures["modules"] = len(sys.modules)
        self.figures["made"] = self._made
        self.figures["compiled"] = self._compiled


def phases(count: Count, spec: str) -> None:
    """Run an experiment as ``blis-tui run --requests`` does, phase by phase."""
    for module in ("blis_tui.cli.run", "blis_tui.results.report"):
        import_module(module)  # counted as modules, not as calls
    from blis_tui.output.tables import requests_csv  # noqa: PLC0415
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    # One phase: plug-ins are imported where they are first asked for, when documents are checked or instances made.
    simulation = count.calls("load", lambda: Simulation(load(spec)))
    count.calls("simulation", simulation.run)
    report = count.calls("report", lambda: simulation.report(complete=True))
    count.calls("json", report.to_json)
    # The first version's tables did not know their columns.
    columns = getattr(report.rows, "columns", None)
    options = () if columns is None else (columns,)
    count.calls("rows", lambda: len("".join(requests_csv(report.rows, *options))))
    count.imports()


def command(count: Count, arguments: list[str]) -> None:
    """Run a command, its imports included."""

    def work() -> None:
        from blis_tui.cli.main import cli  # noqa: PLC0415

        cli(arguments, prog_name="blis-tui", standalone_mode=False)

    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        count.calls("whole", work)
    count.imports()


def plan(count: Count, arguments: str) -> None:
    """Ask for a plan, in this process."""
    import blis_tui  # noqa: PLC0415

    asked = json.loads(arguments)
    count.calls("whole", lambda: blis_tui.plan(asked.pop("source"), **asked))
    count.imports()


def debugger(count: Count) -> None:
    """Open the debugger, press a key, and leave.

    Only this package's own calls: how often the event loop of Textual turns depends on the machine.
    """

    async def look() -> None:
        from blis_tui.spec.load import load  # noqa: PLC0415
        from blis_tui.tui.app import BlisApp, Start  # noqa: PLC0415

        # As it was at the anchor.
        experiment = load("quickstart", overrides={"latency": "roofline", "policy.batching": {"kind": "blis"}})
        app = BlisApp(Start(experiment=experiment, source=experiment.name, at="0"))
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await pilot.press("right_square_bracket")
            await pilot.pause()

    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            BLIS_TUI_STATE_DIR=folder, BLIS_TUI_CONFIG_DIR=folder, TEXTUAL_ANIMATIONS="none", TERM="xterm-256color"
        )
        count.calls("own", lambda: asyncio.run(look()), own=True)
    count.imports()


def main() -> None:
    """Count, and write the figures as JSON."""
    result, mode, *rest = sys.argv[1:]
    count = Count(plain=mode.startswith("plain-"))
    match mode.removeprefix("plain-"):
        case "phases":
            phases(count, *rest)
        case "command":
            command(count, rest)
        case "plan":
            plan(count, *rest)
        case _:
            debugger(count)
    Path(result).write_text(json.dumps(count.figures), encoding="utf-8")


if __name__ == "__main__":
    main()
