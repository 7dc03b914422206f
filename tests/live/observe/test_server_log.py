"""Steps by a server's log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.live.observe.recording import Step
from blis_tui.live.observe.server_reports import Tail, step_of

if TYPE_CHECKING:
    from pathlib import Path

LINE = (
    b"(APIServer pid=11447) INFO 11-23 13:48:59 [loggers.py:199] Engine 000: Iteration(28): 1 context requests, 365"
    b" context tokens, 2 generation requests, 40 generation tokens, iteration elapsed time: 53.72 ms, CPU KV"
    b" cache usage: 10.6%"
)


def test_a_line_is_a_step() -> None:
    step = step_of(LINE, 99)
    assert step == Step(
        number=28,
        end_us=99,
        duration_us=53_720,
        prefill_requests=1,
        prefill_tokens=365,
        decode_requests=2,
        decode_tokens=40,
        kv_share=0.106,
    )
    assert step.requests == 3


def test_lines_of_older_versions_tell_no_kv_cache_and_others_no_step() -> None:
    old = step_of(LINE[: LINE.index(b", CPU KV")], None)
    assert old is not None
    assert (old.kv_share, old.end_us) == (None, None)
    assert step_of(LINE.replace(b" ms,", b" ms (dummy),"), 1) is None
    assert step_of(b'INFO: 127.0.0.1:46124 - "GET /version HTTP/1.1" 200 OK', 1) is None


def test_the_tail_begins_at_the_end_and_hands_over_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"before\n")
    tail = Tail(path)
    assert list(tail.lines()) == []
    with path.open("ab", buffering=0) as log:
        log.write(b"one\ntw")
        assert [line for line, _ in tail.lines()] == [b"one"]
        log.write(b"o\nthree\n")
        assert [line for line, _ in tail.lines()] == [b"two", b"three"]
        log.write(b"half a li")
        assert list(tail.lines()) == []
    path.write_bytes(b"new\n")  # rotated in place
    assert [line for line, _ in tail.lines()] == [b"new"]
    tail.close()


def test_a_line_has_the_time_at_which_it_was_written_not_that_at_which_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    tail = Tail(path)
    path.write_bytes(b"line\n")
    written_ns = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(written_ns, written_ns))
    ((line, stamp_ns),) = tail.lines()
    assert line == b"line"
    assert 60e9 <= time.monotonic_ns() - stamp_ns < 90e9
    tail.close()


def test_a_log_that_cannot_be_read_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        Tail(tmp_path / "missing.log")
    with pytest.raises(InputError, match="not a regular file"):
        Tail(tmp_path)
