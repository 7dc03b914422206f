"""A run as one file: its experiment with all references, its recorded workload, its golden, and a position to open.

A bundle is a zip file that contains a project with one golden test: after unpacking, `pytest` runs it. It is stored
uncompressed and with fixed dates, so that equal runs give equal bytes, except for the Python version in the golden. It
contains no code: plug-ins are named with their versions, and are loaded only if the user asks for them again. It is
closed: its experiment names no files but its own trace, and documents that ship.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, BinaryIO, Final, cast

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, SpecError, TraceError
from blis_tui.base.input_files import MAX_TRACE_BYTES, open_input, parse_json, read_input, real_path
from blis_tui.base.source import as_map
from blis_tui.golden.case import DEFAULT, cases_of
from blis_tui.golden.compare import compare
from blis_tui.golden.golden_store import HEADER, REPORT, GoldenFiles, files_of
from blis_tui.golden.produce import produce
from blis_tui.golden.session import describe
from blis_tui.output.result_files import atomic_bytes, atomic_text
from blis_tui.results.conditions.breakpoints import parse_breakpoint
from blis_tui.runs.comparison import stored
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.compose import TEST_KEYS, is_path, shown
from blis_tui.spec.load import load
from blis_tui.spec.pools import slots
from blis_tui.spec.read import read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import RawIOBase

    from blis_tui.base.source import Document, Json
    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import Golden
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.runs.comparison import Stored
    from blis_tui.runs.simulation import Simulation

SUFFIX: Final = ".blis"
FORMAT: Final = 1
_ABOUT: Final = "bundle.json"
_GOLDENS: Final = "golden"
_PYTEST: Final = "[pytest]\ntestpaths = .\n"
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SPEC: Final = re.compile(rf"{_NAME}\.blis\.yaml")
_TRACE: Final = "trace."
_TRACE_NAME: Final = re.compile(rf"{re.escape(_TRACE)}[A-Za-z0-9.]*")
_MEMBER: Final = re.compile(
    rf"{re.escape(_ABOUT)}|pytest\.ini|{_SPEC.pattern}|{_GOLDENS}/{_NAME}\.(report|golden)\.json|{_TRACE_NAME.pattern}"
)
_MOST_MEMBERS: Final = 6
_MOST_ENTRIES: Final = 16
"""Maximum number of members and folders."""
_MOST_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of all members together, without the recorded workload."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An unpacked bundle."""

    source: str
    """Its file."""
    spec: Path
    case: Case
    files: GoldenFiles
    at: str | None
    """Position to open first, in the form of `--at`."""
    breaks: tuple[str, ...]
    """Breakpoints to set."""
    moments: tuple[object, ...]
    """The moments that a reader has kept, as the debugger reads them."""
    golden: Golden
    """The results in the bundle."""


def pack(
    target: str,
    source: str,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    at: str | None = None,
    breaks: Sequence[str] = (),
    moments: Sequence[Json] = (),
    plugins: Registry | None = None,
    accept: Callable[[Golden, Experiment], None] = lambda _golden, _experiment: None,
    go_on: Callable[[Simulation], bool] | None = None,
) -> int:
    """Run an experiment and write it with its results to a file; return the number of events.

    Args:
        target: the file.
        source: the experiment, as :func:`blis_tui.spec.load.load` takes it.
        overrides: ``path=value`` texts.
        seed: replaces the document's.
        at: position to open first.
        breaks: breakpoints to set.
        moments: events that a reader has kept, as the debugger writes them.
        plugins: plug-ins that the experiment may name.
        accept: called with the results before anything is written; may raise.
        go_on: called now and then; may raise to stop the run.

    Raises:
        SpecError: the experiment is not valid.
        InputError: a file cannot be read or written.
        SimulationError: it cannot go on.
        ConditionError: a breakpoint is invalid.
    """
    experiment = load(source, overrides=list(overrides), seed=seed, plugins=plugins)
    for text in breaks:
        parse_breakpoint(text, experiment)
    name = trace_name(experiment)
    composed = compose(source, overrides=overrides, seed=seed, plugins=plugins, trace_name=name)
    with atomic_bytes(target) as out:
        how = (out, experiment, composed.to_yaml())
        return write_bundle(*how, at=at, breaks=breaks, moments=moments, accept=accept, go_on=go_on)


def trace_name(experiment: Experiment) -> str:
    """Return the name of the recorded workload in a bundle; empty if there is none."""
    trace = experiment.workload.trace
    return "" if trace is None else _TRACE + "".join(Path(trace.path).suffixes[-2:]).removeprefix(".")


def write_bundle(
    out: BinaryIO,
    experiment: Experiment,
    text: str,
    *,
    at: str | None = None,
    breaks: Sequence[str] = (),
    moments: Sequence[Json] = (),
    accept: Callable[[Golden, Experiment], None] = lambda _golden, _experiment: None,
    go_on: Callable[[Simulation], bool] | None = None,
) -> int:
    """Run an experiment and write its bundle; return the number of events.

    Args:
        out: the output file.
        experiment: the experiment.
        text: the experiment as a document, with its trace named as by :func:`trace_name`.
        at: as for :func:`pack`.
        breaks: valid breakpoints, otherwise as for :func:`pack`.
        moments: as for :func:`pack`.
        accept: as for :func:`pack`.
        go_on: as for :func:`pack`.

    Raises:
        InputError: a file cannot be read.
        SimulationError: it cannot go on.
    """
    trace, carried = experiment.workload.trace, trace_name(experiment)
    spec = f"{experiment.name}.blis.yaml"
    with TemporaryDirectory(prefix="blis-") as folder:
        # Run it from its own document, as it will be after unpacking.
        with atomic_text(Path(folder) / spec, asked_for=False) as document:
            document.write(text)
        if trace is not None:
            with atomic_bytes(Path(folder) / carried, asked_for=False) as copy:
                _copy(trace.path, copy)
        golden = produce(load(Path(folder) / spec, plugins=experiment.plugins), spec=spec, case=DEFAULT, go_on=go_on)
        accept(golden, experiment)
        files = GoldenFiles(Path(_GOLDENS), experiment.name)
        about: dict[str, Json] = {"format": FORMAT, "spec": spec, "at": at, "breaks": list(breaks)}
        members = {
            _ABOUT: to_json(about | ({"moments": list(moments)} if moments else {})),
            "pytest.ini": _PYTEST,
            spec: text,
            files.file(HEADER).as_posix(): golden.header(),
            files.file(REPORT).as_posix(): golden.report,
        }
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as bundle:
            for member, content in members.items():
                bundle.writestr(zipfile.ZipInfo(member, _DATE), content.encode())
            if trace is not None:
                with bundle.open(zipfile.ZipInfo(carried, _DATE), "w", force_zip64=True) as rows:
                    _copy(str(Path(folder) / carried), rows)
    return golden.chain.events


def _copy(path: str, out: IO[bytes]) -> None:
    with open_input(path, limit=MAX_TRACE_BYTES) as rows:
        while chunk := rows.read(_CHUNK):
            out.write(chunk)


@contextmanager
def unpacked(path: str, plugins: Registry | None = None) -> Iterator[Bundle]:
    """Unpack a bundle into a temporary folder, which is deleted at the end.

    Args:
        path: the file.
        plugins: plug-ins that its experiment may name.

    Raises:
        InputError: it is no bundle of this format, is damaged, or exceeds the limits of bundles.
        SpecError: its experiment is not valid here.
    """
    with TemporaryDirectory(prefix="blis-") as name, _named(path, folder := real_path(name)):
        with open_input(path, limit=_MOST_BYTES + MAX_TRACE_BYTES) as raw:
            about = _read(path, raw, folder)
        yield _bundle(path, folder, about, plugins)


@contextmanager
def _named(path: str, folder: Path) -> Iterator[None]:
    """Have errors name the bundle instead of the folder, which will be gone."""

    def renamed(text: str) -> str:
        return text.replace(str(folder), path)

    try:
        yield
    except SpecError as error:
        raise SpecError(
            [
                replace(
                    diagnostic,
                    file=renamed(diagnostic.file),
                    message=renamed(diagnostic.message),
                    help=diagnostic.help and renamed(diagnostic.help),
                )
                for diagnostic in error.diagnostics
            ]
        ) from error
    except TraceError as error:
        raise TraceError([replace(problem, file=renamed(problem.file)) for problem in error.problems]) from error
    except InputError as error:
        raise InputError(renamed(error.message), help=error.help and renamed(error.help)) from error


class _SmallReads(BufferedReader):
    """A file that is read in small pieces only: the list of a zip file's members is read at once, whatever its size."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(_CHUNK + 1 if size is None or size < 0 else min(size, _CHUNK + 1))
        if len(data) > _CHUNK:
            raise ValueError("its list of members is longer than that of a bundle")
        return data


def _read(path: str, raw: BinaryIO, folder: Path) -> object:
    try:
        with _SmallReads(cast("RawIOBase", raw)) as file, zipfile.ZipFile(file) as opened:
            return _unpack(opened, folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, ValueError) as error:
        raise _foreign(path, error) from error


def _unpack(opened: zipfile.ZipFile, folder: Path) -> object:
    """Write its members below a folder; return the bundle's description."""
    entries = opened.infolist()
    members = [entry for entry in entries if not entry.is_dir()]
    if len(members) > _MOST_MEMBERS or len(entries) > _MOST_ENTRIES:
        raise ValueError(f"it has {len(entries):,} members")
    left = {True: MAX_TRACE_BYTES, False: _MOST_BYTES}
    for member in members:
        if _MEMBER.fullmatch(member.filename) is None:
            raise ValueError("the name of a member leads out of it, or is none that bundles have")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("a member is compressed in a way that bundles are not")
        is_trace = member.filename.startswith(_TRACE)
        target = folder / PurePosixPath(member.filename)
        if target.exists():
            raise ValueError(f"it has two members {member.filename}")
        target.parent.mkdir(exist_ok=True)
        with opened.open(member) as content, atomic_bytes(target, asked_for=False) as out:
            while chunk := content.read(_CHUNK):  # the size in the member's header cannot be trusted
                left[is_trace] -= len(chunk)
                if left[is_trace] < 0:
                    raise ValueError("it holds more than bundles do")
                out.write(chunk)
    about = folder / _ABOUT
    return parse_json(about.read_text(encoding="utf-8")) if about.is_file() else None


def _bundle(path: str, folder: Path, about: object, plugins: Registry | None) -> Bundle:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        form = about.get("format") if isinstance(about, dict) else None
        raise _foreign(path, f"it has format {form!r}" if form is not None else f"it has no {_ABOUT}")
    name, at, breaks = about.get("spec"), about.get("at"), about.get("breaks", [])
    moments = about.get("moments", [])
    if (
        not isinstance(name, str)
        or _SPEC.fullmatch(name) is None
        or not (at is None or isinstance(at, str))
        or not isinstance(breaks, list)
        or not all(isinstance(text, str) for text in breaks)
        or not isinstance(moments, list)
    ):
        raise _foreign(path, f"what {_ABOUT} says is not understood")
    spec = folder / name
    if spec.is_file() and (outside := _outside(read_document(spec, shown(spec)))):
        raise _foreign(path, f"its experiment refers to others with `{outside}`")
    cases = cases_of(spec, plugins) if spec.is_file() else ()
    if len(cases) != 1:
        raise _foreign(path, "it holds no experiment")
    (case,) = cases
    files = files_of(spec, case.name, folder=folder / _GOLDENS, root=folder)
    return Bundle(
        source=path,
        spec=spec,
        case=case,
        files=files,
        golden=files.read(),
        at=at,
        breaks=tuple(breaks),
        moments=tuple(moments),
    )


def _outside(document: Document) -> str:
    """Return the first key that may name a file outside the bundle; empty = none. Names find what ships."""
    keys = as_map(document.data)
    for key in TEST_KEYS:
        if key in keys:
            return key
    for at in (("extends",), *(slot for slot, _ in slots(document))):
        reference = document.get(*at)
        if isinstance(reference, str) and is_path(reference):
            return ".".join(map(str, at))
        if isinstance(reference, dict) and "config_file" in reference:
            return ".".join(map(str, (*at, "config_file")))
    trace = as_map(document.get("workload", "trace")).get("file", _TRACE)
    return "" if isinstance(trace, str) and _TRACE_NAME.fullmatch(trace) else "workload.trace.file"


def verified(bundle: Bundle, go_on: Callable[[Simulation], bool] | None = None) -> str:
    """Run the bundle; return how its results differ here from the stored ones, or an empty text if they do not.

    Raises:
        BlisError: its experiment cannot be loaded or run here.
    """
    experiment = bundle.case.load()
    result = produce(experiment, spec=bundle.golden.spec, case=bundle.case.name, go_on=go_on)
    difference = compare(bundle.golden, result, bundle.case.comparison)
    if not (difference.report or difference.records or difference.spec):
        return ""  # only the order of keys in the header differs
    opened = replace(bundle.case, spec=Path(bundle.source))  # by this name it can be opened again
    return describe(opened, bundle.files, bundle.golden, result, difference, experiment)


def _foreign(path: str, why: object) -> InputError:
    return InputError(
        f"{path} is not a bundle of format {FORMAT}: {why}", help="`blis-tui bundle SPEC -o FILE` writes one"
    )


_JSON: Final = ".json"
_MOST_JSON_BYTES: Final = 64 * 1024 * 1024


def is_stored(source: str) -> bool:
    """Return whether a name is that of a file with results; other names are experiments."""
    return source.endswith((_JSON, SUFFIX))


def read_stored(source: str, plugins: Registry | None = None) -> Stored:
    """Return the results in a file, and their experiment if the bundle or the golden's header has it.

    Raises:
        InputError: it cannot be read, or is neither a report nor a bundle.
        SpecError: the experiment of a bundle is not valid here.
    """
    if source.endswith(SUFFIX):
        with unpacked(source, plugins) as bundle:
            return stored(source, parse_json(bundle.golden.report), bundle.golden.document)
    bare = stored(source, _parsed(Path(source)))
    header = Path(source.removesuffix(REPORT) + HEADER)
    if not source.endswith(REPORT) or not header.is_file():
        return bare
    golden = _parsed(header)
    return stored(source, bare.figures, _document(golden, bare.sha256))


def _document(golden: object, sha256: str) -> Mapping[str, object] | None:
    """Return the experiment in a golden's header if it matches the report beside it."""
    if not isinstance(golden, dict) or golden.get("spec_sha256") != sha256:
        return None
    document = golden.get("document")
    return document if isinstance(document, dict) else None


def _parsed(path: Path) -> object:
    try:
        return parse_json(read_input(path, limit=_MOST_JSON_BYTES))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}", help="`diff` takes reports that `run -o` wrote") from error
