"""Where results are kept: whole or not at all, and never another run's."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from blis_tui._version import ENGINE
from blis_tui.base.errors import InputError
from blis_tui.model import Expectation
from blis_tui.study import store as module
from blis_tui.study.store import FolderStore, MemoryStore, Store
from blis_tui.study.task import Outcome

KEY, OTHER = "ab" * 32, "cd" * 32
DONE = Outcome(status="done", report='{"ü": 1}\n')
STOPPED = Outcome(status="stopped", report="{}\n", why="it is over", left_out=("2 rows without an answer",))
BOUND = Expectation(metric="latency.ttft_ms.p99", max=3.0)
LOOSER = Expectation(metric="latency.ttft_ms.p99", max=4.0)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_what_was_kept_is_found_for_the_same_run_and_no_other(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else FolderStore(tmp_path)
    assert store.find(KEY) is None
    store.keep(KEY, (), DONE)
    store.keep(KEY, (BOUND,), STOPPED)
    assert (store.find(KEY), store.find(KEY, (BOUND,))) == (DONE, STOPPED)
    assert (store.find(OTHER), store.find(KEY, (LOOSER,))) == (None, None)


STOPS = Expectation(metric="requests.completed", min=1.0, max=9.0, equals=5.0)


@pytest.mark.parametrize(
    "other",
    [replace(STOPS, min=7.0), replace(STOPS, max=7.0), replace(STOPS, equals=7.0), replace(STOPS, metric="kv.hits")],
)
def test_a_run_that_was_stopped_is_found_only_for_the_very_same_bounds(other: Expectation) -> None:
    store = MemoryStore()
    store.keep(KEY, (STOPS,), STOPPED)
    assert (store.find(KEY, (STOPS,)), store.find(KEY, (other,)), store.find(KEY)) == (STOPPED, None, None)


def test_a_failure_is_not_kept_on_disk(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.keep(KEY, (), Outcome(status="failed", why="killed"))
    assert list(tmp_path.iterdir()) == []


def _damaged(content: bytes) -> list[bytes]:
    head, packed = content.split(b"\n", 1)
    document = json.loads(zlib.decompress(packed))

    def pack(data: object) -> bytes:
        return head + b"\n" + zlib.compress(json.dumps(data).encode())

    flipped = bytearray(content)
    flipped[-10] ^= 1
    return [
        b"",
        content[:-1],
        content[: len(content) // 2],
        bytes(flipped),
        b"another program's\n" + packed,
        content.replace(b"run 2", b"run 1"),
        head + b"\n" + zlib.compress(b"no json"),
        head + b"\n" + zlib.compress(b"\xff\xfe"),
        pack([]),
        pack({"key": KEY}),
        pack({**document, "status": "perhaps"}),
        pack({**document, "key": OTHER}),
        pack({**document, "left_out": None}),
    ]


def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.keep(KEY, (), DONE)
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    content = file.read_bytes()
    for damaged in _damaged(content):
        file.write_bytes(damaged)
        assert store.find(KEY) is None, damaged
    store.keep(KEY, (), DONE)
    assert file.read_bytes() == content
    file.unlink()
    file.mkdir()
    assert store.find(KEY) is None


def test_results_of_another_engine_are_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FolderStore(tmp_path).keep(KEY, (), DONE)
    monkeypatch.setattr(module, "ENGINE", "older")
    assert FolderStore(tmp_path).find(KEY) is None
    FolderStore(tmp_path).keep(KEY, (), STOPPED)
    assert {path.name for path in tmp_path.iterdir()} == {f"engine-{ENGINE}", "engine-older"}


def test_a_folder_that_cannot_be_one_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/dev/null/here")):
        with pytest.raises(InputError, match=r"cannot keep results in .*: (Not a directory|File exists)"):
            FolderStore(folder).require_writable()
        with pytest.raises(InputError, match="cannot keep results"):
            FolderStore(folder).keep(KEY, (), DONE)


def test_asking_whether_it_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    FolderStore(tmp_path / "new").require_writable()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_users_folder_may_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.STORE_VARIABLE, str(tmp_path))
    assert FolderStore.of_user().folder.parent == tmp_path
    monkeypatch.delenv(module.STORE_VARIABLE)
    assert FolderStore.of_user().folder.parent.name == "runs"
