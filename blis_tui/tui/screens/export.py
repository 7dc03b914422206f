"""Write what the debugger knows to a file: report, requests, records, a trace, a picture of the screen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on, work
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from blis_tui.errors import InputError
from blis_tui.records.files import atomic_bytes
from blis_tui.records.perfetto.timeline import Timeline
from blis_tui.records.tables import record_line, requests_csv
from blis_tui.simulation import Simulation
from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.catalog import shown_folder
from blis_tui.tui.screens.window import Window
from blis_tui.tui.widgets.bars import KeyBar
from blis_tui.tui.widgets.lists import CursorList
from blis_tui.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, TextIO

    from textual.app import ComposeResult

    from blis_tui.cluster.reroute import Routes
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.engine.records import Record
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True)
class Kind:
    """Something to export: its ending and what it is."""

    id: str
    ending: str
    about: str


KINDS: Final = (
    Kind("report", "report.json", "the report up to here"),
    Kind("requests", "requests.csv", "one row per request so far"),
    Kind("records", "records.jsonl", "every record up to here"),
    Kind("trace", "pftrace", "a trace for ui.perfetto.dev"),
    Kind("picture", "svg", "this screen as a picture"),
)


def new_name(stem: str, ending: str) -> str:
    """``STEM.ENDING``, or ``STEM-2.ENDING`` and so on where the working folder has that already."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.{ending}" for number in count(1))
    # A dangling link counts as there, too.
    return next(name for name in names if not os.path.lexists(Path.cwd() / name))


class ExportScreen(Window[None]):
    """Offers the kinds of files; enter writes one into the working folder.

    Args:
        debugger: the run.
        picture: draws the screen below as SVG.
    """

    BINDINGS = bindings(DIALOG)
    DEFAULT_CSS = """
    ExportScreen {
        & > Vertical { width: 72; }
        OptionList, OptionList:focus {
            height: auto;
            border: none;
            padding: 0;
            background: $surface;
            background-tint: transparent;
        }
        #about { color: $text-muted; margin-bottom: 1; }
    }
    """

    def __init__(self, debugger: Debugger, picture: Callable[[], str]) -> None:
        super().__init__()
        self._debugger = debugger
        # Drawn now: once this window is open it would be part of the picture.
        self._picture = picture()

    def compose(self) -> ComposeResult:
        """A line each."""
        with Vertical() as window:
            window.border_title = "Export"
            yield Static(
                f"As of event {count_text(self._debugger.event)}. Enter writes one to {shown_folder(Path.cwd())}",
                id="about",
                markup=False,
            )
            names = {kind: self.file_name(kind) for kind in KINDS}
            width = max(map(len, names.values()))
            yield CursorList(
                *(
                    Option(
                        Content.assemble((f"{name:<{width}}", "bold"), (f"  {kind.about}", "$text-muted")),
                        id=kind.id,
                    )
                    for kind, name in names.items()
                )
            )
        yield KeyBar()

    @property
    def _stem(self) -> str:
        return f"{self._debugger.experiment.name}-{self._debugger.event}"

    def file_name(self, kind: Kind) -> str:
        """What the file is called: run, event, a number where that file is there already, kind."""
        return new_name(self._stem, kind.ending)

    @on(OptionList.OptionSelected)
    def _chosen(self, message: OptionList.OptionSelected) -> None:
        self.write(KINDS[message.option_index])

    def write(self, kind: Kind) -> None:
        """Write a file, and say where it is; the reader may go on meanwhile."""
        self._write(self._stem, kind, self._writer(kind))

    def _writer(self, kind: Kind) -> Callable[[BinaryIO], object]:
        """What writes such a file as of here, in a thread: nothing in it depends on where the reader goes next."""
        simulation = self._debugger.simulation
        run = (self._debugger.experiment, self._debugger.routes, simulation.events)
        if kind.id == "picture":
            return _text(lambda out: out.write(self._picture))
        if kind.id == "records":
            return _text(partial(write_records, *run))
        if kind.id == "trace":
            return partial(_write_trace, *run)
        copy = simulation.twin(simulation.mark())
        if kind.id == "requests":
            return _text(partial(_write_requests, copy))
        return _text(lambda out: out.write(copy.report().to_json()))

    @work(thread=True, exclusive=True, group="export", exit_on_error=False)
    def _write(self, stem: str, kind: Kind, write: Callable[[BinaryIO], object]) -> None:
        first = f"{stem}.{kind.ending}"
        if self.app.is_web:
            out = BytesIO()
            write(out)
            out.seek(0)
            self.app.call_from_thread(self.app.deliver_binary, out, save_filename=first)
            self._done(f"{first} is on its way to your browser.")
            return
        name = new_name(stem, kind.ending)
        try:
            with atomic_bytes(Path.cwd() / name) as file:
                write(file)
        except InputError as error:
            self.app.call_from_thread(self.app.notify, str(error), severity="error", markup=False)
        else:
            kept = "" if name == first else f"\n{first} was there already, and stays as it is."
            self._done(f"Written: {Path.cwd() / name}{kept}")

    def _done(self, said: str) -> None:
        """Close and tell, in one go: once the window is closed, nobody waits for this thread any more."""

        def tell() -> None:
            self.app.notify(said, markup=False)
            self.dismiss(None)

        self.app.call_from_thread(tell)


def _text(write: Callable[[TextIO], object]) -> Callable[[BinaryIO], None]:
    """What writes text, as what writes its bytes."""

    def to_bytes(out: BinaryIO) -> None:
        text = TextIOWrapper(out, encoding="utf-8", newline="\n")
        write(text)
        text.detach()

    return to_bytes


def write_records(experiment: Experiment, routes: Routes, event: int, out: TextIO) -> None:
    """Write the record lines of a run up to an event, by doing it again."""
    simulation = Simulation(experiment, check="off", routes=routes)

    def write(record: Record) -> None:
        out.write(record_line(record))

    simulation.subscribe("all", write)
    simulation.run(max_events=event)


def _write_trace(experiment: Experiment, routes: Routes, event: int, out: BinaryIO) -> None:
    simulation = Simulation(experiment, check="off", routes=routes)
    timeline = Timeline(out, experiment)
    simulation.subscribe("all", timeline.observe)
    simulation.run(max_events=event)
    timeline.finish()


def _write_requests(simulation: Simulation, out: TextIO) -> None:
    table = simulation.report().rows
    out.writelines(requests_csv(table, table.columns))
