"""Sessions of a trace become clients that hold sessions, like those that they were made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

import blis_tui
from blis_tui.live.traffic.fit import Fitted, fit
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.output.tables import requests_csv

if TYPE_CHECKING:
    from pathlib import Path

CHAT: dict[str, Any] = {
    "id": "chat",
    "prefix": {"group": "system", "tokens": 96},
    "input_tokens": {"kind": "lognormal", "mu": 4.5, "sigma": 0.5},
    "output_tokens": {"kind": "lognormal", "mu": 3.5, "sigma": 0.5},
    "session": {
        "turns": {"kind": "uniform", "min": 2, "max": 6},
        "think_time_ms": {"kind": "lognormal", "mu": 6.5, "sigma": 0.6},
    },
}


def written(tmp_path: Path, workload: dict[str, object]) -> Path:
    report = blis_tui.run(blis_tui.load("quickstart", set={"workload": workload, "expect": []}))
    path = tmp_path / "requests.csv"
    path.write_text("".join(requests_csv(report.rows, report.rows.columns)))
    return path


def fitted(path: Path) -> Fitted:
    ledger = Ledger(open_traffic(str(path), Choice()).requests, 16)
    return fit(ledger, "like", "requests.csv", (), stage_s=None, plugins=None)


def test_conversations_are_found_again(tmp_path: Path) -> None:
    found = fitted(written(tmp_path, {"sessions": 150, "rate_per_s": 5.0, "clients": [CHAT]}))
    document = yaml.safe_load(found.text)
    (client,) = document["clients"]
    assert document["sessions"] == 150
    assert document["rate_per_s"] == pytest.approx(5.0, rel=0.25)
    assert client["prefix"] == {"group": "system", "tokens": 96}
    session = client["session"]
    assert session["history"] == "full"
    assert "pacing" not in session  # the file says when answers were there
    assert session["think_time_ms"]["kind"] == "lognormal"
    assert session["think_time_ms"]["mu"] == pytest.approx(6.5, abs=0.15)
    assert client["input_tokens"]["mu"] == pytest.approx(4.5, abs=0.15)
    assert found.clients[0].turns is not None
    assert found.agreement["turns"].ks is not None
    assert found.agreement["turns"].ks < 0.15
    assert found.agreement["prompt tokens"].ks is not None
    assert found.agreement["prompt tokens"].ks < 0.15


def test_without_times_of_answers_sessions_go_by_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    rows = [f"{2000 * session + 700 * turn},{50 + turn},5,s{session}" for session in range(60) for turn in range(3)]
    path.write_text("arrival_time_ms,input_tokens,output_tokens,session_id\n" + "\n".join(rows) + "\n")
    (client,) = yaml.safe_load(fitted(path).text)["clients"]
    assert client["session"] == {
        "turns": {"kind": "constant", "value": 3},
        "think_time_ms": {"kind": "constant", "value": 700},
        "history": "none",  # prompts are too short for what was said before
        "pacing": "clock",
    }


def test_requests_beside_sessions_stand_for_themselves(tmp_path: Path) -> None:
    lone = {"id": "lone", "input_tokens": 50, "output_tokens": 5, "tenant": "batch"}
    found = fitted(written(tmp_path, {"requests": 300, "rate_per_s": 8.0, "clients": [CHAT, lone]}))
    document = yaml.safe_load(found.text)
    kinds = {one["id"]: "session" in one for one in document["clients"]}
    assert kinds == {"batch": False, "system-sessions": True}
    assert document["requests"] == 300
