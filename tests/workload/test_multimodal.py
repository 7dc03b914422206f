"""Prompts that are not only text: how long they are, what the report says of them, and that replays keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.output.tables import requests_csv, rows_csv

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.results.report import Report

CLIENT = {"id": "camera", "input_tokens": 30, "output_tokens": 4, "prefix": {"group": "system", "tokens": 64}}
MIX = {
    "images": {"probability": 0.5, "count": {"kind": "uniform", "min": 1, "max": 3}, "tokens": 100},
    "audio": {"tokens": {"kind": "uniform", "min": 20, "max": 40}},
}


def run(*clients: dict[str, object]) -> Report:
    workload = {"requests": 120, "rate_per_s": 40, "clients": list(clients)}
    return blis_tui.run(blis_tui.load("quickstart", set={"workload": workload, "expect": []}))


@pytest.fixture(scope="module")
def mixed() -> Report:
    return run({**CLIENT, "multimodal": MIX}, {"id": "chat", "input_tokens": 50, "output_tokens": 4})


def test_prompts_are_as_long_as_text_and_media_together(mixed: Report) -> None:
    camera = [row for row in mixed.rows if row.prefix_tokens]
    for row in camera:
        assert row.input_tokens == 64 + 30 + row.image_tokens + row.audio_tokens
        assert row.image_tokens in (0, 100, 200, 300)
        assert 20 <= row.audio_tokens <= 40
        assert row.video_tokens == 0
    with_images = [row.image_tokens for row in camera if row.image_tokens]
    assert len(with_images) == pytest.approx(len(camera) / 2, abs=15)
    assert len(set(with_images)) == 3
    assert not any(row.audio_tokens for row in mixed.rows if not row.prefix_tokens)


def test_the_report_adds_them_up(mixed: Report) -> None:
    assert mixed.multimodal is not None
    rows = list(mixed.rows)
    image, audio = (sum(getattr(row, f"{kind}_tokens") for row in rows) for kind in ("image", "audio"))
    assert (mixed.multimodal.image_tokens, mixed.multimodal.audio_tokens) == (image, audio)
    assert mixed.multimodal.text_tokens == mixed.tokens.input - image - audio
    assert mixed.multimodal.requests == len([row for row in rows if row.audio_tokens])


def test_other_draws_do_not_change(mixed: Report) -> None:
    plain = run(CLIENT, {"id": "chat", "input_tokens": 50, "output_tokens": 4})
    assert plain.multimodal is None
    assert [row.arrival_us for row in plain.rows] == [row.arrival_us for row in mixed.rows]


@pytest.mark.parametrize("form", ["requests", "tracev2"])
def test_what_a_run_writes_replays_alike(form: str, mixed: Report, tmp_path: Path) -> None:
    rows = mixed.rows
    file = tmp_path / "trace.csv"
    file.write_text("".join(requests_csv(rows, rows.columns) if form == "requests" else rows_csv(rows)))
    changes: dict[str, object] = {"workload": {"trace": {"file": str(file), "format": form}}, "expect": []}
    replayed = blis_tui.run(blis_tui.load("quickstart", set=changes))
    # TraceV2 has no room for items.
    columns = [name for name in rows.columns if form == "requests" or name != "media_items"]
    assert [*requests_csv(replayed.rows, replayed.rows.columns)] == [*requests_csv(rows, columns)]
    assert replayed.multimodal == mixed.multimodal


def test_what_was_shown_before_stays_in_the_prompts_of_a_session() -> None:
    client = {"id": "agent", "input_tokens": 10, "output_tokens": 5, "session": {"turns": 3}}
    report = run({**client, "multimodal": {"images": {"tokens": 100}}})
    found = {row.round_index: (row.input_tokens, row.image_tokens) for row in report.rows}
    assert found == {0: (110, 100), 1: (225, 200), 2: (340, 300)}


def test_repeated_prompts_show_the_same_again() -> None:
    report = run({**CLIENT, "repeated_prompts": 3, "multimodal": MIX})
    shown = [(row.input_tokens, row.image_tokens, row.audio_tokens) for row in report.rows]
    assert shown[3:] == shown[:-3]
    assert len(set(shown)) == 3
