"""How far a sweep is, in words."""

from __future__ import annotations

import pytest

from blis_tui.spec.study.study_records import Point
from blis_tui.study.study_rows import Row
from blis_tui.study.sweep import Progress, progress_text

ROW = Row(point=Point(0, ()), seed=1, status="done", ok=None)


@pytest.mark.parametrize(
    ("done", "known", "elapsed_s", "expected"),
    [
        (3, 3, 5.0, "3 of 1,200 runs (3 cached)"),
        (30, 0, 1.0, "30 of 1,200 runs, about 39 s left"),
        (300, 200, 60.0, "300 of 1,200 runs (200 cached), about 9 min left"),
        (2, 1, 10.0, "2 of 1,200 runs (1 cached), about 3.3 h left"),
        (1200, 0, 60.0, "1,200 of 1,200 runs"),
    ],
)
def test_the_rest_takes_as_long_as_what_was_run(done: int, known: int, elapsed_s: float, expected: str) -> None:
    assert progress_text(Progress(done=done, known=known, total=1200, latest=ROW), elapsed_s) == expected
