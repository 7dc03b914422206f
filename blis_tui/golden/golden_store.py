"""Golden files: their location and format, and new results that wait beside them for a decision.

Each golden test has two files. ``NAME.report.json`` has the exact bytes of the report, for review.
``NAME.golden.json`` is a header: the spec and engine of the report, the chain of digests of its record stream, and the
resolved document, so that the old experiment can be run again. On request, ``NAME.records.jsonl.gz`` stores the
records. Files of a waiting result have the suffix ``.new``.

Report and header change together: both texts are first written to one file, ``NAME.accepted.json``, which is deleted
once both are in place. If it is there, a process was killed in between, and ``finish`` does the rest.

A file must be exactly as it was written, except for line ends, which git may change: an edited, reformatted or badly
merged file is rejected, whatever its values are.

The chain of digests is small enough to store and fine enough to locate the first difference. Entry ``i`` is a digest of
all records of the first ``(i + 1) * every`` events. Two streams agree up to the last entry that is equal. The number of
entries is bounded: when the bound is reached, every other entry is dropped and ``every`` doubles.
"""

from __future__ import annotations

import gzip
import os
import platform
import sys
import zlib
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.canonical import to_json, to_line
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import open_input, parse_json, read_input, real_path, unmerged_line
from blis_tui.output.result_files import atomic_bytes, atomic_files, reporting_write_errors, write_text
from blis_tui.results.record_lines import record_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.engine.records import Record

FORMAT: Final = 1
REPORT: Final = ".report.json"
HEADER: Final = ".golden.json"
RECORDS: Final = ".records.jsonl.gz"
PENDING: Final = ".new"
ACCEPTED: Final = ".accepted.json"
_MAX_BYTES: Final = 64 * 1024 * 1024
_ESCAPED: Final = 4
"""How many times larger the accepted texts may be: they are two, and quoted."""
_MAX_RECORDS_BYTES: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The interpreter and system that wrote a golden. They do not affect results, but only one should write goldens."""

    python: str
    system: str

    @classmethod
    def here(cls) -> Baseline:
        """Return the current interpreter and machine."""
        return cls(
            python=f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}",
            system=f"{platform.system()} {platform.machine()}",
        )


_ANEW: Final = "restore it, or delete this golden's files: then pytest offers a new one for review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A stored (or new) result."""

    report: str
    """The report's canonical text."""
    spec: str
    """The experiment file, relative to the folder in which the tests run, with ``/``."""
    case: str
    spec_sha256: str
    engine: str
    schemas_sha256: str
    """Digest of the schemas that checked and completed it, because they contain the defaults."""
    baseline: Baseline
    chain: Chain
    document: Mapping[str, object]
    """The resolved experiment."""
    plugins: tuple[Mapping[str, str], ...] = ()
    """Users' plug-ins that it names, with their origins and versions."""

    def header(self) -> str:
        """Return the text of the header file."""
        plain: dict[str, object] = {
            "format": FORMAT,
            "spec": self.spec,
            "case": self.case,
            "spec_sha256": self.spec_sha256,
            "engine": self.engine,
            "schemas_sha256": self.schemas_sha256,
            "baseline": asdict(self.baseline),
            **({"plugins": self.plugins} if self.plugins else {}),
            "records": {**asdict(self.chain), "entries": " ".join(self.chain.entries)},
            "document": self.document,
        }
        return to_json(plain)


@dataclass(frozen=True, slots=True)
class GoldenFiles:
    """The location of one golden test's files."""

    folder: Path
    """The folder of all golden files."""
    name: str
    """Path below the folder, without suffixes."""

    def file(self, kind: str, *, pending: bool = False) -> Path:
        """Return the file of a kind (``REPORT``, ``HEADER`` or ``RECORDS``)."""
        return self.folder / f"{self.name}{kind}{PENDING if pending else ''}"

    def exists(self, *, pending: bool = False) -> bool:
        """Return whether a golden (or a waiting result) exists."""
        header = os.path.isfile(self.file(HEADER, pending=pending))  # noqa: PTH113  (False for names that are too long)
        return header or (not pending and self._is_half())

    def read(self, *, pending: bool = False) -> Golden:
        """Read the golden.

        Raises:
            InputError: it does not exist, is not as this program writes goldens, or was only half written.
        """
        if not pending and self._is_half():
            raise InputError(
                f"{self.file(HEADER)} was being replaced when a process was killed",
                help="`blis-tui golden review` does the rest, as `pytest` does where it may write goldens",
            )
        header, header_text = self._json(HEADER, pending=pending)
        report, text = self._json(REPORT, pending=pending)
        file = self.file(HEADER, pending=pending)
        try:
            golden = _parse(header, text)
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged_error(file, error) from error
        _require_as_written(self.file(REPORT, pending=pending), text, report_text(report))
        _require_as_written(file, header_text, golden.header())
        _require_one_origin(file, golden, report)
        return golden

    def _json(self, kind: str, *, pending: bool) -> tuple[Mapping[str, object], str]:
        """Return the value of a file, which must be a map, and its text."""
        path = self.file(kind, pending=pending)
        try:
            raw = read_input(path, limit=_MAX_BYTES * (_ESCAPED if kind == ACCEPTED else 1))
        except InputError as error:
            raise InputError(error.message, help=error.help or _ANEW) from error
        try:
            text = raw.decode().replace("\r\n", "\n")
            if (conflict := unmerged_line(text.split("\n"))) is not None:
                raise _damaged_error(path, f"a merge has left a conflict at line {conflict + 1}")
            value = parse_json(text)
            to_json(value)  # rejects NaN and infinities, which Python reads
        except ValueError as error:
            raise _damaged_error(path, error) from error
        if not isinstance(value, dict):
            raise _damaged_error(path, "it is not a map")
        return value, text

    def write(self, golden: Golden, *, pending: bool = False) -> None:
        """Write both files; a golden makes a waiting result, and a record stream that is not its own, obsolete."""
        texts = {HEADER: golden.header(), REPORT: golden.report}
        folder = self.file(HEADER).parent
        with reporting_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if pending:
            self._write_both(texts, pending=True)
            return
        write_text(self.file(ACCEPTED), to_json(texts))
        try:
            self._put_in_place(texts)
        except InputError:
            self._give_up(texts)
            raise
        self._drop_other_records(golden)

    def finish(self) -> None:
        """Put a golden in place that was being written when a process was killed; usually, there is none.

        Raises:
            InputError: it cannot be read or written.
        """
        if not self._is_half():
            return
        accepted, _ = self._json(ACCEPTED, pending=False)
        texts = {kind: text for kind in (HEADER, REPORT) if isinstance(text := accepted.get(kind), str)}
        if len(texts) < 2:
            raise _damaged_error(self.file(ACCEPTED), "it has not the texts of a golden")
        self._put_in_place(texts)
        self._drop_other_records(self.read())

    def _put_in_place(self, texts: Mapping[str, str]) -> None:
        self._write_both(texts)
        self.drop_pending()
        with reporting_write_errors(self.file(ACCEPTED)):
            self.file(ACCEPTED).unlink(missing_ok=True)

    def _write_both(self, texts: Mapping[str, str], *, pending: bool = False) -> None:
        with atomic_files() as together:
            for kind, text in texts.items():
                together.text(self.file(kind, pending=pending)).write(text)
            if pending:
                together.settle()
                header = self.file(HEADER, pending=True)
                with reporting_write_errors(header):
                    header.unlink(missing_ok=True)  # who is killed from here on leaves no pair of different results

    def _give_up(self, texts: Mapping[str, str]) -> None:
        """After an error, forget what should be written, unless the report, which is put in place first, is there."""
        report = self.file(REPORT)
        with suppress(OSError):
            if not report.is_file() or report.read_bytes() != texts[REPORT].encode():
                self.file(ACCEPTED).unlink()

    def _is_half(self) -> bool:
        return os.path.isfile(self.file(ACCEPTED))  # noqa: PTH113  (as in `exists`)

    def drop_pending(self) -> bool:
        """Delete the waiting result; return whether there was one."""
        waiting = [path for kind in (HEADER, REPORT) if (path := self.file(kind, pending=True)).exists()]
        for path in waiting:
            with reporting_write_errors(path):
                path.unlink(missing_ok=True)  # another process may decide, too
        return bool(waiting)

    def remove(self) -> None:
        """Delete all files of this golden."""
        with reporting_write_errors(self.file(HEADER)):
            for kind in (ACCEPTED, HEADER, REPORT, RECORDS):
                self.file(kind).unlink(missing_ok=True)
        self.drop_pending()

    def write_records(self, lines: Iterator[str]) -> None:
        """Store the record stream, compressed; the same stream gives the same bytes."""
        with (
            atomic_bytes(self.file(RECORDS)) as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as out,
        ):
            for line in lines:
                out.write(line.encode())

    def read_records(self, golden: Golden) -> Iterator[str] | None:
        """Return the stored record lines of this golden; None if there are none, or those of another result.

        Raises:
            InputError: they are damaged.
        """
        path = self.file(RECORDS)
        if not path.is_file():
            return None
        digest = sha256()
        for line in _lines(path):
            digest.update(line.encode())
        return _lines(path) if digest.hexdigest() == golden.chain.sha256 else None

    def _drop_other_records(self, golden: Golden) -> None:
        """Delete stored records that are not those of this golden."""
        with suppress(InputError):  # damaged ones are none of its
            if self.read_records(golden) is not None:
                return
        with reporting_write_errors(self.file(RECORDS)):
            self.file(RECORDS).unlink(missing_ok=True)


def _lines(path: Path) -> Iterator[str]:
    try:
        with (
            open_input(path, limit=_MAX_RECORDS_BYTES) as raw,
            gzip.open(raw, "rt", encoding="utf-8", newline="\n") as stored,
        ):
            yield from stored
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise _damaged_error(path, error) from error


def _damaged_error(path: Path, why: object) -> InputError:
    return InputError(f"{path} is not a golden file of format {FORMAT}: {why}", help=_ANEW)


def _require_as_written(path: Path, text: str, expected: str) -> None:
    """Raise InputError if a file's text differs from what this program would write for its values."""
    other = first_line_difference(text, expected)
    if other is not None:
        raise InputError(
            f"{path} has been modified: {other}",
            help=f"was it edited, reformatted or merged? {_ANEW}",
        )


def _require_one_origin(path: Path, golden: Golden, report: Mapping[str, object]) -> None:
    """Raise InputError if header and report of an experiment do not belong together."""
    meta = report.get("meta")
    if not isinstance(meta, dict):  # a study's header is compared with that of the new result
        return
    for name, stated in (("spec_sha256", golden.spec_sha256), ("engine", golden.engine)):
        if stated != (reported := meta.get(name)):
            raise _damaged_error(path, f"its `{name}` is {stated}, but its report says {reported}")


def _parse(header: Mapping[str, object], report: str) -> Golden:
    if header["format"] != FORMAT:
        raise ValueError(f"it has format {header['format']!r}")
    records = header["records"]
    baseline = header["baseline"]
    document = header["document"]
    plugins = header.get("plugins", [])
    if (
        not isinstance(plugins, list)
        or not isinstance(records, dict)
        or not isinstance(baseline, dict)
        or not isinstance(document, dict)
    ):
        raise TypeError("a part of it is not a map")
    return Golden(
        report=report,
        spec=str(header["spec"]),
        case=str(header["case"]),
        spec_sha256=str(header["spec_sha256"]),
        engine=str(header["engine"]),
        schemas_sha256=str(header["schemas_sha256"]),
        baseline=Baseline(python=str(baseline["python"]), system=str(baseline["system"])),
        chain=Chain(**{**records, "entries": tuple(str(records["entries"]).split())}),
        document=document,
        plugins=tuple({str(key): str(value) for key, value in plugin.items()} for plugin in plugins),
    )


def all_goldens(folder: Path) -> Iterator[GoldenFiles]:
    """Yield all goldens and waiting results below a folder, in order of path."""
    seen: dict[str, None] = {}
    ends = (HEADER, HEADER + PENDING, ACCEPTED)
    for path in sorted(folder.rglob("*.json*")):
        for end in ends:
            if path.name.endswith(end):
                seen[path.with_name(path.name.removesuffix(end)).relative_to(folder).as_posix()] = None
    for name in seen:
        yield GoldenFiles(folder, name)


def unused_files(folder: Path) -> Iterator[Path]:
    """Yield the reports and records below a folder that belong to no golden and no waiting result, in order of path."""
    known = {files.name for files in all_goldens(folder)}
    for path in sorted(folder.rglob("*.*")):
        name = path.relative_to(folder).as_posix()
        stem = next((name.removesuffix(end) for end in (REPORT, REPORT + PENDING, RECORDS) if name.endswith(end)), None)
        if stem is not None and stem not in known and path.is_file():
            yield path


def stem_of(spec: Path) -> str:
    """Return the name of a spec without the suffixes that all specs have."""
    return spec.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".blis")


def files_of(spec: Path, case: str, *, folder: Path, root: Path) -> GoldenFiles:
    """Return the golden files of a case; their place below ``folder`` is that of the spec below ``root``.

    Raises:
        ValueError: the spec is not below ``root``.
    """
    relative = _place_below(spec, root)
    stem = stem_of(relative)
    name = stem if case == "default" else f"{stem}@{case}"
    return GoldenFiles(folder, (relative.parent / name).as_posix())


def _place_below(spec: Path, root: Path) -> Path:
    """Return a file's path below a folder. Links keep their own names, so that no two files share a golden."""
    try:
        return Path(os.path.abspath(spec)).relative_to(os.path.abspath(root))  # noqa: PTH100  (follows no links)
    except ValueError:  # the folder may have another path, too
        return real_path(spec).relative_to(real_path(root))


# The text of a report in a golden file, and where another text first differs.

_RUNS: Final = "runs"
"""A key that only studies' reports have."""


def report_text(report: Mapping[str, object]) -> str:
    """Return a report as stored in a golden: as ``blis-tui run`` prints it, or for a study one line per run."""
    runs = report.get(_RUNS)
    if not isinstance(runs, dict):
        return to_json(report)
    head = [f"  {to_line(key)}: {to_line(value)}," for key, value in report.items() if key != _RUNS]
    lines = [f"    {to_line(name)}: {to_line(run)}" for name, run in runs.items()]
    return "\n".join(["{", *head, f'  "{_RUNS}": {{', ",\n".join(lines), "  }", "}"]) + "\n"


@dataclass(frozen=True, slots=True)
class LineDifference:
    """The first line in which two texts differ."""

    number: int
    """Its number, from 1."""
    found: str | None
    """Its text; None = the text ends before it."""
    expected: str | None

    def __str__(self) -> str:
        return f"line {self.number} is {_quoted(self.found)}, and would be {_quoted(self.expected)}"


def _quoted(line: str | None) -> str:
    return "not there" if line is None else f"`{line}`" if line else "empty"


_MOST: Final = 60
"""Maximum number of characters of a line that are shown."""


def first_line_difference(actual: str, expected: str) -> LineDifference | None:
    """Return the first line that is not as expected; None if the texts are equal."""
    if actual == expected:
        return None
    lines = actual.split("\n"), expected.split("\n")
    same = next(
        (at for at, (line, other) in enumerate(zip(*lines, strict=False)) if line != other), min(map(len, lines))
    )
    return LineDifference(same + 1, *_excerpts(*(side[same] if same < len(side) else None for side in lines)))


def _excerpts(actual: str | None, expected: str | None) -> tuple[str | None, str | None]:
    """Return as much of two lines as is shown: their beginnings, unless only what is left out there differs."""
    shown = tuple(None if line is None else line.strip()[:_MOST] for line in (actual, expected))
    if actual is None or expected is None or shown[0] != shown[1]:
        return shown[0], shown[1]
    ends = min(len(actual), len(expected))
    same = next((at for at in range(ends) if actual[at] != expected[at]), ends)
    start = max(same - _MOST // 3, 0)
    left, right = ("…" * bool(start) + line[start : start + _MOST] for line in (actual, expected))
    return left, right


MAX_ENTRIES: Final = 2048
_ENTRY_DIGITS: Final = 8
"""Digits per entry: 32 bits miss a difference once in 4 billion cases, and the next entry then detects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The digests of one record stream."""

    events: int
    """Number of events of the run."""
    records: int
    """Number of records in the stream."""
    sha256: str
    """Digest of the whole stream, equal to that of the file that ``run --records`` writes."""
    every: int
    """Number of events between two entries: a power of two."""
    entries: tuple[str, ...]

    def coarser(self, every: int) -> tuple[str, ...]:
        """Return the entries for every ``every``-th event, a multiple of this chain's own interval."""
        step = every // self.every
        return self.entries[step - 1 :: step]


def divergence_window(old: Chain, new: Chain) -> tuple[int, int] | None:
    """Return the events ``(after, until]`` in which the streams first differ; None if they are equal."""
    if old.sha256 == new.sha256:
        return None
    every = max(old.every, new.every)
    pairs = list(zip(old.coarser(every), new.coarser(every), strict=False))
    for i, (before, after) in enumerate(pairs):
        if before != after:
            return (i * every, (i + 1) * every)
    # All common entries are equal, so the difference comes after the last one.
    return (len(pairs) * every, max(old.events, new.events))


class ChainRecorder:
    """Subscribes to all records of a simulation and computes their chain."""

    def __init__(self) -> None:
        self._hasher = sha256()
        self._records = 0
        self._every = 1
        self._boundary = 1
        self._entries: list[str] = []

    def __call__(self, record: Record) -> None:
        """Add a record."""
        self._close(record.event - 1)
        self._hasher.update(record_line(record).encode())
        self._records += 1

    def finish(self, events: int) -> Chain:
        """Return the chain of a run with this many events."""
        self._close(events)
        return Chain(
            events=events,
            records=self._records,
            sha256=self._hasher.hexdigest(),
            every=self._every,
            entries=tuple(self._entries),
        )

    def _close(self, event: int) -> None:
        """Add the entries of all boundaries up to ``event``."""
        while self._boundary <= event:
            self._entries.append(self._hasher.hexdigest()[:_ENTRY_DIGITS])
            if len(self._entries) == MAX_ENTRIES:
                self._entries = self._entries[1::2]
                self._every *= 2
            self._boundary = self._every * (len(self._entries) + 1)
