"""``blis-tui observe`` as a user meets it."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.observe import observer
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.observe.wire import target_of
from tests.cli.test_signals import Child
from tests.hostile import EVIL, SPEC, require_harmless
from tests.live.observe import servers
from tests.live.observe.servers import Asked, Replying, free_port, prompt_tokens, served, well

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.live.observe.recording import Recording

TRACE = "arrival_us,input_tokens,output_tokens\n" + "".join(f"{5_000 * n},{10 + n},{3 + n % 3}\n" for n in range(8))
WORKLOAD = """\
apiVersion: blis/v1
kind: Workload
metadata: {name: talks}
requests: 12
clients:
  - id: talk
    arrivals: {kind: closed-loop, users: 2}
    input_tokens: 20
    output_tokens: 5
    session: {turns: 3}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # What these servers count is there with the answer, so there is nothing to wait for before and after.
    monkeypatch.setattr(observer, "Plan", partial(observer.Plan, lead_s=0.02, settle_s=0.05))
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "talks.yaml").write_text(WORKLOAD)


def observe(*args: str) -> Result:
    return CliRunner().invoke(cli, ["observe", *args])


def recorded(folder: Path) -> Recording:
    return read_recording(folder / "r")


def test_a_trace_is_sent_as_it_is_and_every_answer_recorded(tmp_path: Path) -> None:
    with served() as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--format", "json")
    assert result.exit_code == ExitCode.OK, result.stderr
    document = json.loads(result.stdout)
    assert document["requests"] == {"total": 8, "completed": 8}
    assert document["output_tokens"] == sum(3 + n % 3 for n in range(8))
    assert document["server"] == {
        "model": "m",
        "max_model_len": 1024,
        "block_size_tokens": 16,
        "kv_blocks": 199,
        "prefix_caching": True,
        "engines": 1,
    }
    recording = recorded(tmp_path)
    assert [row.input_tokens for row in recording.requests] == [row.prompt for row in recording.requests]
    assert [(row.input_tokens, row.tokens) for row in recording.requests] == [(10 + n, 3 + n % 3) for n in range(8)]
    assert [row.due_us for row in recording.requests] == [5_000 * n for n in range(8)]
    assert all(
        row.has_token_ids and row.sent_us >= row.due_us and row.chunks[0][0] >= row.sent_us
        for row in recording.requests
    )
    assert recording.scrapes[0].values["vllm:kv_cache_usage_perc"] == 0.25
    # The request that warmed the server up is none of the recording's.
    assert len(server.asked) == 9


def test_a_table_tells_people_the_same(tmp_path: Path) -> None:
    with served() as server:
        result = observe(server.url + "/v1/", "--trace", "trace.csv", "-o", "r", "--requests", "5", "--warm-up", "0")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert "5 of 5 answered" in result.stdout
    assert "server     m" in result.stdout
    assert len(server.asked) == 5
    assert "the server's metrics count 0 tokens generated, 19 came" in result.stderr  # as it says of itself


def test_conversations_go_on_with_the_answers_of_the_server(tmp_path: Path) -> None:
    running = [0, 0]

    async def counting(asked: Asked, reply: Replying) -> None:
        running[0] += 1
        running[1] = max(running)
        await well(asked, reply)
        running[0] -= 1

    with served(counting) as server:
        result = observe(server.url, "--workload", "talks.yaml", "-o", "r", "--warm-up", "0")
    assert result.exit_code == ExitCode.OK, result.stderr
    recording = recorded(tmp_path)
    assert len(recording.requests) == 12
    assert running[1] <= 2
    by_session: dict[str, list[list[int]]] = {}
    prompts = [asked.body["prompt"] for asked in server.asked]
    for row in recording.requests:
        prompt = next(one for one in prompts if isinstance(one, list) and len(one) == row.input_tokens)
        prompts.remove(prompt)
        by_session.setdefault(row.session_id, []).append(prompt)
    assert len(by_session) in {4, 5}  # two of which may be under way when the last request is sent
    answer = [100, 101, 102, 103, 104]
    longest = [prompt for session in by_session.values() for prompt in session if len(prompt) == 70]
    assert longest
    for prompt in longest:  # 20, its answer of 5, 20, its answer, 20
        assert prompt[20:25] == prompt[45:50] == answer


def test_a_chat_is_measured_in_the_tokens_of_the_server(tmp_path: Path) -> None:
    # A server that makes 2 tokens of each word and adds 4 of its own: prompts come out as long as they should.
    with served() as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--api", "chat", "--header", "X-Team=a b")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert {asked.path for asked in server.asked} == {"/v1/chat/completions"}
    assert {asked.headers["x-team"] for asked in server.asked} == {"a b"}
    assert all(abs(row.prompt - row.input_tokens) <= 1 for row in recorded(tmp_path).requests)
    assert prompt_tokens(server.asked[-1]) == recorded(tmp_path).requests[-1].prompt


def test_other_servers_get_words_and_no_extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with served(metrics=False) as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--no-stream")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert all("return_token_ids" not in asked.body for asked in server.asked)
    assert all(isinstance(asked.body["prompt"], str) for asked in server.asked)
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer secret"}
    assert "secret" not in (tmp_path / "r" / "recording.json").read_text()
    recording = recorded(tmp_path)
    assert [len(row.chunks) for row in recording.requests] == [1] * 8
    assert recording.scrapes == ()


def test_equal_prompt_seeds_are_equal_prompts_and_runs_share_none_by_default() -> None:
    with served() as server:
        for folder, more in (("a", ["--prompt-seed", "x"]), ("b", ["--prompt-seed", "x"]), ("c", []), ("d", [])):
            observe(server.url, "--trace", "trace.csv", "-o", folder, "--warm-up", "0", *more)
    prompts = [[asked.body["prompt"] for asked in server.asked[8 * n : 8 * n + 8]] for n in range(4)]
    assert prompts[0] == prompts[1]
    assert not any(one in prompts[0] + prompts[2] for one in prompts[3])


def test_the_log_of_the_server_tells_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "Plan", partial(observer.Plan, settle_s=0.4))  # the last line comes after the answer
    log = tmp_path / "server.log"
    log.write_text("before\n")
    line = (
        "INFO: Iteration({}): 1 context requests, 10 context tokens, 0 generation requests, 0 generation tokens,"
        " iteration elapsed time: 2.50 ms, GPU KV cache usage: 50.0%\n"
    )

    async def logging(asked: Asked, reply: Replying) -> None:
        await well(asked, reply)
        with log.open("a") as out:
            out.write(line.format(asked.number))

    with served(logging) as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--log", "server.log")
    assert result.exit_code == ExitCode.OK, result.stderr
    steps = recorded(tmp_path).steps
    assert [step.number for step in steps] == list(range(1, 9))  # that of the warm-up is left out
    assert {(step.duration_us, step.kv_share) for step in steps} == {(2500, 0.5)}
    ends = [step.end_us for step in steps]
    assert ends == sorted(ends)  # type: ignore[type-var]


def test_requests_without_an_answer_are_said_and_counted(tmp_path: Path) -> None:
    def full(asked: Asked, reply: Replying) -> object:
        if asked.number % 4:
            return well(asked, reply)
        reply.whole("503 Service Unavailable", {"error": {"message": "queue is full"}})
        return None

    with served(full) as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--warm-up", "0", "--format", "json")
    assert result.exit_code == ExitCode.CHECK_FAILED
    document = json.loads(result.stdout)
    assert document["requests"] == {"total": 8, "completed": 6, "rejected": 2}
    assert document["errors"] == {"rejected": "HTTP 503: queue is full"}
    assert "2 requests without a complete answer: 2 rejected" in result.stderr
    assert len(recorded(tmp_path).requests) == 8


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], ExitCode.USAGE, "name the requests to send"),
        (["--trace", "trace.csv", "--workload", "talks.yaml"], ExitCode.USAGE, "cannot be combined"),
        (["--trace", "missing.csv"], ExitCode.IO, "missing.csv"),
        (["--workload", "prefix-heavy", "--set", "requests=null"], ExitCode.USAGE, "`prefix-heavy` is endless"),
        (["--trace", "trace.csv", "--log", "missing.log"], ExitCode.IO, "cannot read missing.log"),
        (["--trace", "trace.csv", "--header", "X"], ExitCode.USAGE, "not of the form NAME=VALUE"),
        (["--trace", "trace.csv", "--kv-events", "nowhere"], ExitCode.IO, "not an address to listen to"),
        (["--trace", "trace.csv", "--vocabulary", "1"], ExitCode.USAGE, "--vocabulary"),
        (["--trace", "trace.csv", "--header", "content-length=5"], ExitCode.IO, "'content-length' cannot be set"),
        (["--trace", "trace.csv", "-o", ""], ExitCode.IO, "the folder name is empty"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    args: list[str], code: ExitCode, says: str, tmp_path: Path
) -> None:
    with served() as server:
        result = observe(server.url, "-o", "r", *args)
    assert result.exit_code == code, result.stderr
    assert says in result.stderr
    assert not server.asked
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://u:p@x", "http://x?y", "http://[::1", "http://x:99999", "http://x/a b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    result = observe(url, "--trace", "trace.csv", "-o", "r")
    assert result.exit_code == ExitCode.IO
    assert "such as http://127.0.0.1:8000" in result.stderr


@pytest.mark.parametrize("path", ["v1/completions", "v1/chat/completions/", "proxy/v1/models"])
def test_an_endpoint_is_not_taken_for_the_server(path: str) -> None:
    result = observe(f"http://127.0.0.1:1/{path}", "--trace", "trace.csv", "-o", "r")
    assert result.exit_code == ExitCode.IO
    assert "--api selects the endpoint" in result.stderr


def test_what_was_to_be_recorded_and_did_not_come_is_said(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("")
    beside = ("--log", "server.log", "--kv-events", f"tcp://127.0.0.1:{free_port()}")
    with served() as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", *beside)
    assert result.exit_code == ExitCode.OK, result.stderr
    assert "warning: the log has no steps: " in result.stderr
    assert "warning: no KV cache events arrived: " in result.stderr


def test_a_header_takes_the_place_of_the_one_that_is_sent_else(tmp_path: Path) -> None:
    with served() as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r", "--header", "host=models.example.org")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert {asked.headers["host"] for asked in server.asked} == {"models.example.org"}
    assert target_of("x", {"HOST": "y"}).head("GET", "/", 0).lower().count(b"host:") == 1


def test_a_server_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    result = observe(f"http://127.0.0.1:{free_port()}", "--trace", "trace.csv", "-o", "r")
    assert result.exit_code == ExitCode.IO
    assert result.stderr.startswith("error: cannot reach http://127.0.0.1:")
    assert not (tmp_path / "r").exists()


def test_a_server_that_refuses_the_first_request_is_told_before_the_load_begins(tmp_path: Path) -> None:
    def refuses(asked: Asked, reply: Replying) -> None:
        reply.whole("400 Bad Request", {"error": {"message": "Token id 255 is out of vocabulary"}})

    with served(refuses) as server:
        result = observe(server.url, "--trace", "trace.csv", "-o", "r")
    assert result.exit_code == ExitCode.IO
    assert "the server refuses a first request: HTTP 400: Token id 255 is out of vocabulary" in result.stderr
    assert len(server.asked) == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_ctrl_c_ends_in_good_order_with_what_there_is(tmp_path: Path) -> None:
    with served() as server:
        args = ["--workload", "chatbot", "--seed", "1", "--set", "rate_per_s=20", "--progress"]
        child = Child("observe", server.url, *args, "-o", str(tmp_path / "r"), ready=b"requests/s")
        code, out, err = child.end(signal.SIGINT)
    assert code == ExitCode.INTERRUPTED, err
    recording = recorded(tmp_path)
    assert f"of {len(recording.requests)} answered" in out
    assert recording.about["complete"] is False
    assert (tmp_path / "r" / "trace.csv").is_file()


def test_what_a_server_calls_itself_and_answers_does_not_act_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while it is recorded, nor when the recording is compared."""

    async def hostile(asked: Asked, reply: Replying) -> None:
        if asked.number % 3:
            await well(asked, reply)
        else:
            reply.whole("400 Bad Request", {"error": {"message": f"refused{EVIL}", "type": f"kind{EVIL}"}})

    model = {"id": f"served{EVIL}", "object": "model", "owned_by": f"owner{EVIL}", "max_model_len": 1024}
    monkeypatch.setattr(servers, "MODELS", {"object": "list", "data": [model]})
    (tmp_path / f"trace{EVIL}.csv").write_text(TRACE)
    folder = f"r{EVIL}"
    with served(hostile) as server:
        first = observe(server.url, "--trace", f"trace{EVIL}.csv", "-o", folder, "--warm-up", "0")
    assert first.exception is None or isinstance(first.exception, SystemExit), first.exception
    require_harmless(first.stdout + first.stderr, "served r refused")
    (tmp_path / "evil.blis.yaml").write_text(SPEC)
    for other in ("evil.blis.yaml", folder, f"nowhere{EVIL}"):
        again = CliRunner().invoke(cli, ["twin", folder, other])
        assert again.exception is None or isinstance(again.exception, SystemExit), again.exception
        require_harmless(again.stdout + again.stderr, "r" if other == folder else "")
    calibrated = CliRunner().invoke(cli, ["calibrate", folder, "--spec", "evil.blis.yaml"])
    require_harmless(calibrated.stdout + calibrated.stderr, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "trace.csv", "--case", "a"], "--case selects a case of an experiment"),
        (["--workload", "kv-tiers", "--case", "mirrored"], "kv-tiers has no case `mirrored`: did you mean"),
    ],
)
def test_cases_that_are_none(arguments: list[str], message: str) -> None:
    result = observe("http://127.0.0.1:9", *arguments, "-o", "r")
    assert result.exit_code == ExitCode.USAGE
    assert message in result.output
