"""``blis-tui serve-api`` as a user meets it."""

from __future__ import annotations

import csv
import json
import signal
import socket
import sys
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import InputError, SimulationError
from blis_tui.cli import serve_api as module
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.observe import observer
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.serving import shared_prefixes
from blis_tui.live.serving.core import SubmittedRequest
from blis_tui.live.serving.shared_prefixes import Contents
from tests.cli.test_signals import Child

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.live.serving.server import Endpoint

SLOW = {
    "cluster.instances": 1,
    "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [20000, 10, 100]},
    "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
    "engine.kv_blocks": 300,
}
SET = [word for key, one in SLOW.items() for word in ("--set", f"{key}={json.dumps(one)}")]
TRACE = "arrival_us,input_tokens,output_tokens\n" + "".join(f"{60_000 * n},{50 + 9 * n},{30 + n}\n" for n in range(10))
posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")


class Served(Child):
    """A server in a process of its own."""

    def __init__(self, *arguments: str, before: str = "") -> None:
        before += (
            "import os, re\nimport blis_tui.cli.serve_api as module\ntell = module.tell\n"
            "def told(text, **more):\n    tell(text, **more)\n"
            "    found = re.search(r':(\\d+)  \\(Ctrl-C', text)\n"
            "    if found: open('port', 'w').write(found[1]); os.write(2, b'ready')\n"
            "module.tell = told\n"
        )
        super().__init__("serve-api", *arguments, "--port", "0", before=before)


def post(port: str, **body: object) -> dict[str, object]:
    request = Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode())
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        found: dict[str, object] = json.loads(answer.read())
        return found


@posix
def test_what_was_served_is_written_at_the_end_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    child = Served("quickstart", *SET, "--speed", "50", "-o", "report.json", "--requests", "served.csv")
    port = (tmp_path / "port").read_text()
    for number in range(5):
        post(port, prompt=[number % 2] * 200, max_tokens=4 + number, ignore_eos=True)
    with pytest.raises(HTTPError, match="404"):
        post(port, prompt="x", model="other")
    code, out, err = child.end(signal.SIGINT)
    assert (code, out) == (ExitCode.OK, "")
    assert "served 5 requests of 5" in err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["requests"]["completed"] == 5
    again = blis_tui.run(blis_tui.load("quickstart", set={**SLOW, "workload": {"trace": {"file": "served.csv"}}}))
    assert again.to_dict()["latency"] == report["latency"]
    assert [row.output_tokens for row in again.rows] == [4, 5, 6, 7, 8]


@posix
def test_what_is_no_http_request_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    child = Served("quickstart", *SET)
    port = int((tmp_path / "port").read_text())
    for sent in (b"GARBAGE\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sent)
            assert b" 400 " in connection.recv(100)
    code, _, err = child.end(signal.SIGINT)
    assert code == ExitCode.OK
    assert "Traceback" not in err
    assert "error: Error handling request from 127.0.0.1: 400, message: Invalid character" in err


@posix
def test_observing_it_closes_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    child = Served("quickstart", *SET, "--requests", "served.csv")
    url = f"http://127.0.0.1:{(tmp_path / 'port').read_text()}"
    # What it counts is there with the answer.
    monkeypatch.setattr(observer, "Plan", partial(observer.Plan, lead_s=0.02, settle_s=0.05))
    observed = CliRunner().invoke(cli, ["observe", url, "--trace", "trace.csv", "-o", "r", "--format", "json"])
    code, _, err = child.end(signal.SIGTERM)
    assert code == ExitCode.OK, err
    assert observed.exit_code == ExitCode.OK, observed.output
    document = json.loads(observed.stdout)
    assert document["server"]["kv_blocks"] == 300
    assert document["counters"]["vllm:generation_tokens_total"] == sum(30 + n for n in range(10))
    twin = CliRunner().invoke(cli, ["twin", "r", "quickstart", *SET, "--format", "json", "--requests", "pairs.csv"])
    assert twin.exit_code == ExitCode.OK, twin.output
    found = json.loads(twin.stdout)
    assert found["requests"] == {"both": 10, "only_measured": 0, "only_other": 0}
    assert found["notes"] == []
    with (tmp_path / "pairs.csv").open() as file:
        pairs = [(float(row["measured_e2e_us"]), float(row["other_e2e_us"])) for row in csv.DictReader(file)]
    assert median(abs(simulated / measured - 1) for measured, simulated in pairs) <= 0.02  # a stall may hit some
    # Which tokens a client gets is certain, when it gets them this machine's business; no simulation is ahead of them.
    recording = read_recording(tmp_path / "r")
    assert [row.tokens for row in recording.requests] == [30 + n for n in range(10)]
    with (tmp_path / "served.csv").open() as file:
        served = [line.split(",") for line in file][2:]  # without the request that warmed it up
    for row, cells in zip(recording.requests, served, strict=True):
        assert row.e2e_us is not None
        assert row.e2e_us > int(cells[9]) - 1000


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["missing"], ExitCode.IO, "missing"),
        (["quickstart", "--set", "engine.max_num_seq=3"], ExitCode.USAGE, "did you mean `max_num_seqs`"),
        (["quickstart", "--speed", "0"], ExitCode.USAGE, "--speed"),
        (["quickstart", "--kv-events", "nowhere"], ExitCode.IO, "cannot publish at 'nowhere'"),
        (["quickstart", "-o", "x", "--requests", "x"], ExitCode.USAGE, "must be different files"),
        (["quickstart", "-o", "no-folder/x"], ExitCode.IO, "cannot write no-folder/x: "),
        (["quickstart", "--requests", "no-folder/x"], ExitCode.IO, "cannot write no-folder/x: "),
    ],
)
def test_what_is_wrong_is_said_before_it_listens(
    args: list[str], code: ExitCode, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["serve-api", *args])
    assert result.exit_code == code
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(cli, ["serve-api", "quickstart", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == ExitCode.IO
    assert result.stderr.startswith("error: cannot listen on 127.0.0.1:")
    assert "Traceback" not in result.output


def test_what_was_served_is_written_even_if_the_simulation_or_another_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def served(endpoint: Endpoint, *_: object) -> None:
        asked = SubmittedRequest(prompt_tokens=3, output_tokens=2, content=Contents(16).add("r0", [1, 2, 3], [4, 5]))
        endpoint.core.submit(asked, 0)
        endpoint.core.advance(10**9)
        raise SimulationError("limits contradict each other")

    monkeypatch.setattr(module, "_served", served)
    result = CliRunner().invoke(cli, ["serve-api", "quickstart", "-o", "report.json", "--requests", "served.csv"])
    assert result.exit_code == ExitCode.SIMULATION
    assert "served 1 request of 1\nerror: limits contradict each other" in result.stderr
    assert json.loads((tmp_path / "report.json").read_text())["requests"]["completed"] == 1
    assert len((tmp_path / "served.csv").read_text().splitlines()) == 2

    def unwritable(*_: object) -> list[str]:
        raise InputError("cannot write served.csv: No space left on device")

    (tmp_path / "report.json").unlink()
    monkeypatch.setattr(shared_prefixes, "served_csv", unwritable)
    result = CliRunner().invoke(cli, ["serve-api", "quickstart", "-o", "report.json", "--requests", "served.csv"])
    assert result.exit_code == ExitCode.IO
    assert "error: cannot write served.csv: No space left" in result.stderr
    assert not (tmp_path / "report.json").exists()  # both or neither
    assert len((tmp_path / "served.csv").read_text().splitlines()) == 2  # as it was


@posix
def test_half_a_character_loses_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    child = Served("quickstart", *SET, "--speed", "50", "-o", "report.json", "--requests", "served.csv")
    port = (tmp_path / "port").read_text()
    post(port, prompt="x", max_tokens=2, user="\U0001f600")
    with pytest.raises(HTTPError, match="400"):
        post(port, prompt="x", max_tokens=2, user="\ud800")
    code, _, err = child.end(signal.SIGINT)
    assert (code, "served 1 request of 1" in err) == (ExitCode.OK, True)
    assert json.loads((tmp_path / "report.json").read_text())["requests"]["completed"] == 1
    assert "\U0001f600" in (tmp_path / "served.csv").read_text(encoding="utf-8")


@posix
def test_idle_clients_take_no_descriptor_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
    child = Served("quickstart", *SET, "--speed", "50", before=few)
    port = (tmp_path / "port").read_text()
    with ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(socket.create_connection(("127.0.0.1", int(port)), timeout=60))
        assert post(port, prompt="x", max_tokens=2)["choices"]
    code, _, err = child.end(signal.SIGINT)
    assert code == ExitCode.OK
    assert err.count("no connection can be accepted for now") <= 1
    assert len(err.splitlines()) <= 4
