"""The tables of docs/memory.md are what runs give, and say what the page says they do."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "make_memory.py"


@pytest.mark.slow
def test_the_tables_are_true_and_cheap_victims_are_cheap() -> None:
    spec = importlib.util.spec_from_file_location("make_memory", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.texts() == {path: path.read_text(encoding="utf-8") for path in (module.PAGE, module.LAB)}
    rows = re.findall(r"^\| `[\w-]+` \| ((?:[\d,]+(?: \| )?){3}) \|$", page, re.MULTILINE)
    assert len(rows) == len(module.SCENARIOS)
    for row in rows:
        tail, cheapest, auto = (int(cell.replace(",", "")) for cell in row.split(" | "))
        assert cheapest <= 1.01 * tail, "about as much or less"
        assert auto < tail
    goodput = dict(re.findall(r"^\| `([\w-]+)` \| `recompute` \| ([\d.]+) \|", page, re.MULTILINE))
    assert float(goodput["cheapest-recompute"]) > float(goodput["tail"])
