"""Sums and variables of a shell, in commands that start servers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.spec.foreign.server_commands import Wanted, import_vllm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$((2 + 3))", 5),
        ("$((2+3*4))", 14),
        ("$(((2 + 3) * 4))", 20),
        ("$((9 - 2 - 3))", 4),
        ("$((9 / 2))", 4),
        ("$((9 % 4))", 1),
        ("$((A * 2))", 16),
        ("$(($A - 1))", 7),
        ("$((${A} / 3))", 2),
        ("$((-A + 20))", 12),
        ("$A", 8),
        ("${A}", 8),
        ("${B:-6}", 6),
        ("${A:-6}", 8),
    ],
)
def test_sums_of_known_numbers_are_computed(tmp_path: Path, written: str, value: int) -> None:
    path = tmp_path / "start.sh"
    path.write_text(f"A=8\nvllm serve Qwen/Qwen3-14B --max-num-seqs {written}\n", encoding="utf-8")
    done = import_vllm(path, Wanted("h100", None, None, None, {}))
    assert re.search(rf"max_num_seqs: {value}\b", done.text)


@pytest.mark.parametrize("written", ["$((A / 0))", "$((2 +))", "$((2 ** 3))", "$((C + 1))", "$(((1))"])
def test_what_is_no_sum_is_quoted_as_it_is_written(tmp_path: Path, written: str) -> None:
    path = tmp_path / "start.sh"
    path.write_text(f"A=8\nvllm serve Qwen/Qwen3-14B --max-num-seqs {written}\n", encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        import_vllm(path, Wanted("h100", None, None, None, {}))
    assert "$((" in str(raised.value)
