"""Which adapters requests ask for, and that traces and replays keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.output.tables import requests_csv, rows_csv

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.results.report import Report

CLIENT = {"id": "chat", "input_tokens": 40, "output_tokens": 4, "prefix": {"group": "system", "tokens": 32}}
LORA = {"max_loras": 2, "max_cpu_loras": 3}


def run(client: dict[str, object], requests: int = 300) -> Report:
    workload = {"requests": requests, "rate_per_s": 40, "clients": [{**CLIENT, **client}]}
    return blis_tui.run(blis_tui.load("quickstart", set={"workload": workload, "engine.lora": LORA, "expect": []}))


def asked(report: Report) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in report.rows:
        found[row.adapter] = found.get(row.adapter, 0) + 1
    return found


def test_adapters_are_as_popular_as_their_weights_say() -> None:
    found = asked(run({"adapters": {"names": ["a", "b"], "weights": [3, 1]}}))
    assert found["a"] + found["b"] == 300
    assert found["a"] == pytest.approx(225, abs=25)


def test_by_zipf_the_second_is_asked_for_half_as_often_as_the_first() -> None:
    found = asked(run({"adapters": {"count": 4, "prefix": "t", "zipf": 1.0}}))
    expected = {f"t-{rank}": 300 / rank / (1 + 1 / 2 + 1 / 3 + 1 / 4) for rank in (1, 2, 3, 4)}
    assert found == {name: pytest.approx(count, abs=25) for name, count in expected.items()}


def test_other_draws_do_not_change() -> None:
    plain, adapted = run({}), run({"adapters": {"count": 3}})
    assert [(row.arrival_us, row.input_tokens, row.output_tokens) for row in plain.rows] == [
        (row.arrival_us, row.input_tokens, row.output_tokens) for row in adapted.rows
    ]


def test_a_session_keeps_to_its_adapter() -> None:
    report = run({"adapters": {"count": 3}, "session": {"turns": 3}})
    chosen: dict[str, dict[str, None]] = {}
    for row in report.rows:
        chosen.setdefault(row.session_id, {})[row.adapter] = None
    assert all(len(adapters) == 1 for adapters in chosen.values())
    assert len({name for adapters in chosen.values() for name in adapters}) == 3
    assert report.to_dict()["kv"]["hit_rate"] > 0  # type: ignore[index]


@pytest.mark.parametrize("form", ["requests", "tracev2"])
def test_what_a_run_writes_replays_alike(form: str, tmp_path: Path) -> None:
    simulation = blis_tui.Simulation(
        blis_tui.load(
            "quickstart",
            set={
                "workload": {"requests": 60, "rate_per_s": 40, "clients": [{**CLIENT, "adapters": {"count": 4}}]},
                "engine.lora": LORA,
                "expect": [],
            },
        )
    )
    simulation.run()
    rows = simulation.report().rows
    text = requests_csv(rows, rows.columns) if form == "requests" else rows_csv(rows)
    file = tmp_path / "trace.csv"
    file.write_text("".join(text))
    trace = {"trace": {"file": str(file), "format": form}}
    changes = {"workload": trace, "engine.lora": LORA, "expect": []}
    replayed = blis_tui.run(blis_tui.load("quickstart", set=changes))
    assert [row.adapter for row in replayed.rows] == [row.adapter for row in rows]
    assert [row.e2e_us for row in replayed.rows] == [row.e2e_us for row in rows]
    assert [row.cached_tokens for row in replayed.rows] == [row.cached_tokens for row in rows]


def test_sessions_under_an_adapter_replay_byte_for_byte(tmp_path: Path) -> None:
    """What names the adapter in a prompt is no shared prefix of the file's."""
    client = {**CLIENT, "adapters": {"count": 4}, "session": {"turns": 3, "think_time_ms": 500}}
    workload: dict[str, object] = {"sessions": 20, "rate_per_s": 4, "clients": [client]}
    texts, file = [], tmp_path / "trace.csv"
    for _ in range(2):
        report = blis_tui.run(
            blis_tui.load("quickstart", set={"workload": workload, "engine.lora": LORA, "expect": []})
        )
        texts.append("".join(requests_csv(report.rows, report.rows.columns)))
        file.write_text(texts[0])
        workload = {"trace": {"file": str(file), "format": "requests", "pacing": "answers"}}
    assert texts[1] == texts[0]
    assert "lora/" not in texts[1]
