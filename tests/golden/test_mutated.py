"""Goldens and bundles with wrong contents: an error that says so, or a difference, and never a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import BlisError
from blis_tui.base.input_files import input_digest
from blis_tui.golden.bundle import pack, read_stored, unpacked, verified
from blis_tui.golden.case import cases_of
from blis_tui.golden.comment import STYLES, comment
from blis_tui.golden.golden_store import ACCEPTED, HEADER, REPORT, files_of
from blis_tui.golden.produce import produce
from blis_tui.golden.review import accept, difference_text, look, record_full
from blis_tui.golden.session import GoldenSettings, run_case
from tests.mutations import mutated
from tests.nightly import every
from tests.spec.test_fuzz import mutation

from .projects import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = SPEC.replace("requests: 25", "requests: 6")


def changed_text(random: Random, text: str) -> str:
    """A JSON text with other values, or with other characters."""
    if random.random() < 0.8:
        with suppress(ValueError):  # a value that JSON has not
            return to_json(mutated(random, json.loads(text)))
    return mutation(random, (text,))


@pytest.mark.parametrize("block", every(4, range(4)))
def test_mutated_goldens(block: int, tmp_path: Path) -> None:
    (tmp_path / "demo.blis.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (case,) = cases_of(tmp_path / "demo.blis.yaml")
    files = files_of(case.spec, case.name, folder=tmp_path / "golden", root=tmp_path)
    files.write(produce(case.load(), spec="demo.blis.yaml", case=case.name))
    texts = {kind: files.file(kind).read_text(encoding="utf-8") for kind in (HEADER, REPORT)}
    steps: list[Callable[[], object]] = [
        lambda: look(files, tmp_path),
        lambda: difference_text(files, tmp_path),
        lambda: run_case(case, files, "demo.blis.yaml", GoldenSettings(mode="new", checks=())),
        lambda: comment(tmp_path / "golden", tmp_path, (), None, STYLES["github"]),
        lambda: read_stored(str(files.file(REPORT))),
        lambda: record_full(files, tmp_path),
        files.finish,
        lambda: accept(files, force=True),
    ]
    refused = 0
    for seed in range(25 * block, 25 * block + 25):
        random = Random(seed)  # noqa: S311  (no secret)
        for kind, text in texts.items():
            files.file(kind).write_text(text, encoding="utf-8")
            files.file(kind, pending=True).write_text(text, encoding="utf-8")
        kind = random.choice([HEADER, REPORT])
        target, text = files.file(kind, pending=random.random() < 0.5), changed_text(random, texts[kind])
        if random.random() < 0.1:
            target, text = files.file(ACCEPTED), changed_text(random, to_json(texts))
        target.write_bytes(text.encode(errors="surrogatepass"))
        for step in steps:
            try:
                step()
            except BlisError as error:
                refused += bool(str(error))
        files.file(ACCEPTED).unlink(missing_ok=True)
    assert refused > 25


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The contents of a bundle with a trace."""
    folder = tmp_path_factory.mktemp("bundle")
    pack(str(folder / "run.blis"), "trace-replay")
    with zipfile.ZipFile(folder / "run.blis") as opened:
        return {name: opened.read(name).decode() for name in opened.namelist()}


def zipped(target: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(target, "w") as bundle:
        for name, text in members.items():
            bundle.writestr(name, text.encode(errors="surrogatepass"))
    return target


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that are worth reading; bundles are unpacked in another one."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    folder = tmp_path / "outside"
    (folder / "specs" / "workloads").mkdir(parents=True)
    (folder / "secret.csv").write_text("arrival_us,input_tokens,output_tokens\n0,10,5\n", encoding="utf-8")
    (folder / "parent.blis.yaml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


_OPENED: list[str] = []
_NOTES: list[bool] = []
"""Not empty while opened files are noted: an audit hook cannot be removed."""


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _NOTES and event == "open" and isinstance(arguments[0], str | Path) and arguments[1] is not None:
        _OPENED.append(str(arguments[0]))


sys.addaudithook(_note)


def opened_by(bundle: Path) -> tuple[list[str], str]:
    """Open a bundle and run it; return the files opened outside it and outside the installation, and the error."""
    _OPENED.clear()
    _NOTES.append(True)
    error = ""
    try:
        with unpacked(str(bundle)) as found:
            verified(found)
    except BlisError as one:
        error = str(one)
    finally:
        _NOTES.clear()
    own = (str(bundle), tempfile.gettempdir(), sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    return [one for one in _OPENED if not os.path.realpath(one).startswith(own)], error


PEEKS = {
    "trace": ("file: trace.csv", "file: SECRET"),
    "relative trace": ("file: trace.csv", "file: ../../outside/secret.csv"),
    "parent": ("kind: Experiment", "kind: Experiment\nextends: PARENT"),
    "parent of a case": ("kind: Experiment", "kind: Experiment\ncases: {default: {workload.trace.file: SECRET}}"),
    "twin": ("kind: Experiment", "kind: Experiment\ntwins: [{name: a, recording: OUTSIDE}]"),
    "model": ("model:\n", "model: PARENT\nx:\n"),
    "configuration": ("model:\n", "model:\n  config_file: PARENT\n"),
    "workload": ("workload:\n", "workload: OUTSIDE/specs/workloads/x.yaml\nx:\n"),
}


@pytest.mark.parametrize("peek", PEEKS)
def test_a_bundle_reads_nothing_outside(peek: str, members: dict[str, str], outside: Path, tmp_path: Path) -> None:
    old, new = PEEKS[peek]
    for word, path in (("SECRET", "secret.csv"), ("PARENT", "parent.blis.yaml"), ("OUTSIDE", "")):
        new = new.replace(word, str(outside / path))
    text = members["trace-replay.blis.yaml"]
    assert old in text
    changed = {**members, "trace-replay.blis.yaml": text.replace(old, new)}
    opened, error = opened_by(zipped(tmp_path / "evil.blis", changed))
    assert opened == []
    assert "evil.blis is not a bundle of format 1: its experiment refers to others with `" in error
    assert input_digest(outside / "secret.csv", limit=100) not in error
    assert str(tmp_path / "temporary") not in error


def test_links_in_a_bundle_are_texts(members: dict[str, str], outside: Path, tmp_path: Path) -> None:
    target = tmp_path / "evil.blis"
    link = zipfile.ZipInfo("trace.csv")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(target, "w") as bundle:
        for name, text in members.items():
            bundle.writestr(
                link if name == "trace.csv" else name, str(outside / "secret.csv") if name == "trace.csv" else text
            )
    opened, error = opened_by(target)
    assert opened == []
    assert "`trace.csv` does not match its `sha256`" in error
    assert str(tmp_path / "temporary") not in error


@pytest.mark.usefixtures("outside")
def test_a_million_folders_are_refused_before_they_cost_memory(members: dict[str, str], tmp_path: Path) -> None:
    target = zipped(tmp_path / "bomb.blis", members)
    with zipfile.ZipFile(target, "a") as bundle:
        for number in range(30_000):
            bundle.writestr(f"{number:08}/", b"")
    tracemalloc.start()
    opened, error = opened_by(target)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (opened, error.partition("\n")[0]) == (
        [],
        f"{target} is not a bundle of format 1: its list of members is longer than that of a bundle",
    )
    assert used < 16 * 1024 * 1024
    with zipfile.ZipFile(zipped(target, members), "a") as bundle:
        for number in range(20):
            bundle.mkdir(f"{number}")
    assert "it has 26 members" in opened_by(target)[1]


@pytest.mark.parametrize("block", every(3, range(3)))
def test_mutated_bundles(block: int, members: dict[str, str], outside: Path, tmp_path: Path) -> None:
    fine = 0
    for seed in range(40 * block, 40 * block + 40):
        random = Random(seed)  # noqa: S311  (no secret)
        name = random.choice([member for member in members if member != "pytest.ini"])
        text = members[name]
        changed = changed_text(random, text) if name.endswith(".json") else mutation(random, (text,))
        opened, error = opened_by(zipped(tmp_path / "run.blis", {**members, name: changed}))
        assert opened == [], seed
        assert str(tmp_path / "temporary") not in error, (seed, error)
        fine += not error
    assert 0 < fine < 40
