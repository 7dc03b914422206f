"""The tables of docs/memory.md are what runs give, and say what the page says they do."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "make_memory.py"
GOLDENS = SCRIPT.parents[1] / "golden"


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


def test_a_store_that_instances_share_finds_what_the_page_says() -> None:
    page = " ".join((SCRIPT.parent / "memory.md").read_text(encoding="utf-8").split())
    reports = {
        case: json.loads((GOLDENS / f"kv-store@{case}.report.json").read_text(encoding="utf-8"))
        for case in ("own", "shared")
    }
    found = {case: round(100 * report["kv"]["hit_rate"]) for case, report in reports.items()}
    ttft = {case: round(report["latency"]["ttft_ms"]["p50"]) for case, report in reports.items()}
    assert f"requests find {found['own']} % of their prompt tokens" in page
    assert f"they find {found['shared']} %" in page
    assert f"comes after {ttft['shared']} ms instead of {ttft['own']}." in page
    store = reports["shared"]["kv_tiers"]["tiers"]["store"]
    assert 2 * store["from_others"] > store["reloaded"]
    assert store["held"] == 12 * 2048 // 16  # each system prompt once
