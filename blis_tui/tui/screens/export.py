"""Exports from the debugger: report, requests, records, a trace, a picture of the screen, moments.

Pictures look the same in every program, without a network.
"""

from __future__ import annotations

import os
import re
import zipfile
from functools import partial
from html import escape, unescape
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from blis_tui.base.units import count_text
from blis_tui.debugger.moments import to_data
from blis_tui.debugger.traces import printed_csv
from blis_tui.output.result_files import atomic_files
from blis_tui.output.tables import requests_csv
from blis_tui.results.record_lines import record_line
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.screens.file_windows import FilesScreen, Kind, text_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO, TextIO

    from blis_tui.base.source import Json
    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.moments import Moment
    from blis_tui.debugger.traces import Printout
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

KINDS: Final = (
    Kind("report", "report.json", "the report up to here"),
    Kind("requests", "requests.csv", "one row per request so far"),
    Kind("records", "records.jsonl", "every record up to here"),
    Kind("trace", "pftrace", "a trace for ui.perfetto.dev"),
    Kind("values", "values.csv", "the printed values"),
    Kind("bundle", "blis", "the whole run, opening here"),
    Kind("picture", "svg", "this screen as a picture"),
)
MOMENTS: Final = Kind("moments", "moments.md", "your moments, with pictures")
"""A report of all moments, whatever the present event is."""


class ExportScreen(FilesScreen):
    """Offers kinds of files; enter writes one into the working folder.

    Args:
        debugger: the run.
        picture: draws the screen below as SVG.
        breaks: the current breakpoints, as written.
        printout: printed values, if there are any.
        moments: the events that the reader has kept.
        write_moments: draws the screen below at each of them and writes the report, given the stem of its name.
    """

    def __init__(
        self,
        debugger: Debugger,
        picture: Callable[[], str],
        breaks: Sequence[str] = (),
        printout: Printout | None = None,
        *,
        moments: Sequence[Moment] = (),
        write_moments: Callable[[str], object] = lambda _stem: None,
    ) -> None:
        # A bundle cannot contain overridden routing decisions.
        left_out = {"bundle": bool(debugger.routes), "values": printout is None}
        kinds = [kind for kind in KINDS if not left_out.get(kind.id)]
        super().__init__([*kinds, MOMENTS] if moments else kinds, f"As of event {count_text(debugger.event)}.")
        self._debugger = debugger
        self._breaks = tuple(breaks)
        self._printout = printout
        self._moments = tuple(moments)
        self._write_moments = write_moments
        # Draw now, because this window would be part of a later picture.
        self._picture = picture()

    @property
    def stem(self) -> str:
        """The run and its present event."""
        return f"{self._debugger.experiment.name}-{self._debugger.event}"

    def write(self, kind: Kind) -> None:
        """Write a file; for pictures of moments, this window must close first."""
        if kind is MOMENTS:
            self.dismiss(None)
            self._write_moments(self._debugger.experiment.name)
        else:
            super().write(kind)

    def file_name(self, kind: Kind) -> str:
        """Return the file's name; moments are of no single event."""
        if kind is MOMENTS:
            return f"{new_report(self._debugger.experiment.name, self._moments)}.md"
        return super().file_name(kind)

    def writer(self, kind: Kind) -> Callable[[BinaryIO], object]:
        """Return the writer of a file as of the present event."""
        simulation = self._debugger.simulation
        run = (self._debugger.experiment, self._debugger.routes, simulation.events)
        if kind.id == "picture":
            return text_bytes(lambda out: out.write(self._picture))
        if kind.id == "values" and self._printout is not None:
            lines = printed_csv(self._printout.wish, self._printout.shown)
            return text_bytes(lambda out: out.writelines(lines))
        if kind.id == "bundle":
            moments = to_data(self._moments)
            return partial(_write_bundle, self._debugger.experiment, self._debugger.event, self._breaks, moments)
        if kind.id == "records":
            return text_bytes(partial(write_records, *run))
        if kind.id == "trace":
            return partial(_write_trace, *run)
        copy = simulation.twin(simulation.mark())
        if kind.id == "requests":
            return text_bytes(partial(_write_requests, copy))
        return text_bytes(lambda out: out.write(copy.report(by_clock=True).to_json()))


def picture_name(stem: str, moment: Moment) -> str:
    """Return the name of the picture of a moment, in a report with that stem."""
    return f"{stem}-{moment.event}.svg"


def new_report(name: str, moments: Sequence[Moment]) -> str:
    """Return the stem of a report of which the working folder has no file yet."""
    stems = (f"{name}.moments{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(
        stem
        for stem in stems
        if not any(map(os.path.lexists, (f"{stem}.md", *(picture_name(stem, moment) for moment in moments))))
    )


def write_report(folder: Path, files: Mapping[str, str]) -> None:
    """Write a report and its pictures, all or none. Raises InputError if one cannot be written."""
    with atomic_files() as together:
        for name, text in files.items():
            together.text(folder / name).write(text)


def zipped(files: Mapping[str, str]) -> BytesIO:
    """Return text files as one zip file, for a browser."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    out.seek(0)
    return out


def write_records(experiment: Experiment, routes: RouteOverrides, event: int, out: TextIO) -> None:
    """Write the record lines of a run up to an event, by repeating the run."""
    simulation = Simulation(experiment, check="off", routes=routes)

    def write(record: Record) -> None:
        out.write(record_line(record))

    simulation.subscribe("all", write)
    simulation.run(max_events=event)


def _write_bundle(
    experiment: Experiment, event: int, breaks: Sequence[str], moments: Sequence[Json], out: BinaryIO
) -> None:
    from blis_tui.golden.bundle import trace_name, write_bundle  # noqa: PLC0415
    from blis_tui.spec.authoring.provenance import without_origins  # noqa: PLC0415  (not needed to open the debugger)

    composed = without_origins(experiment.document, experiment.sha256, trace_name(experiment))
    write_bundle(out, experiment, composed.to_yaml(), at=str(event), breaks=breaks, moments=moments)


def _write_trace(experiment: Experiment, routes: RouteOverrides, event: int, out: BinaryIO) -> None:
    from blis_tui.output.perfetto import Timeline  # noqa: PLC0415  (not needed to open the debugger)

    simulation = Simulation(experiment, check="off", routes=routes)
    timeline = Timeline(out, experiment)
    simulation.subscribe("all", timeline.observe)
    simulation.run(max_events=event)
    timeline.finish()


def _write_requests(simulation: Simulation, out: TextIO) -> None:
    table = simulation.report(by_clock=True).rows
    out.writelines(requests_csv(table, table.columns))


_FONTS: Final = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, 'Courier New', monospace"
"""Fonts of Linux, macOS and Windows with lines and blocks, all of about the same width."""
_CELL: Final = 20 * 0.61
"""Width of a cell in Rich's pictures: the size of the font and its aspect ratio."""
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_TEXT: Final = re.compile(
    r'<text class="([\w-]+)" x="([\d.]+)" (y="[\d.]+") textLength="[\d.]+" ([^>]*)>([^<]*)</text>'
)
_WORD: Final = re.compile(r"\S+")
_FRAME: Final = re.compile(r'(clip-terminal">\s*<rect x="0" y="0" width="[\d.]+" height=")([\d.]+)')
_DESCENDERS: Final = 4
"""Height by which Rich cuts off the last line."""


def portable(svg: str) -> str:
    """Return Rich's picture of a terminal with fonts of the reader's system, and a place for every word.

    Rich loads its font from a network, and trusts that spaces keep their width and wide characters take one cell.
    Programs that ignore ``textLength``, or collapse spaces, would shift everything after them.
    """
    svg = _FONT_FACE.sub("", svg).replace("Fira Code, monospace", _FONTS)
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    svg = _FRAME.sub(lambda match: f"{match[1]}{float(match[2]) + _DESCENDERS:g}", svg)
    return _TEXT.sub(_words, svg)


def _words(match: re.Match[str]) -> str:
    """Return a text of a line as one element for each of its words."""
    look, left, y, rest, content = match.groups()
    text = unescape(content)
    return "".join(
        f'<text class="{look}" x="{float(left) + cell_len(text[: word.start()]) * _CELL:g}" {y}'
        f' textLength="{cell_len(word[0]) * _CELL:g}" lengthAdjust="spacingAndGlyphs" {rest}>{escape(word[0])}</text>'
        for word in _WORD.finditer(text)
    )
