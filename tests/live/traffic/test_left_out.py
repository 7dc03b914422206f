"""What a trace's format leaves out is said by everything that reads the trace: nothing goes without a word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.model import Trace
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import TRACES, read_trace
from blis_tui.workload.traces.trace_table import LeftOut

if TYPE_CHECKING:
    from pathlib import Path

OUTCOMES: Final = "aab" * 40 + "c"
"""Of each entry of a file: an answer (a), none (b), or a peculiar one that is read row by row (c)."""


def burstgpt() -> str:
    models = {"a": "x", "b": "x", "c": '"x\ny"'}
    rows = [f"{at},{models[outcome]},10,{0 if outcome == 'b' else 5},15,log" for at, outcome in enumerate(OUTCOMES)]
    return "\n".join(["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", *rows]) + "\n"


def vllm_bench() -> str:
    count = len(OUTCOMES)
    return json.dumps({
        "start_times": [float(at) for at in range(count)],
        "input_lens": [10] * count,
        "output_lens": [5] * count,
        "errors": ["failed" if outcome == "b" else "" for outcome in OUTCOMES],
    })  # fmt: skip


def otel() -> str:
    def span(at: int, one: str) -> dict[str, object]:
        usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
        return {"startTimeUnixNano": at * 10**9, "attributes": {"http.method": "GET"} if one == "b" else usage}

    return "".join(json.dumps(span(at, outcome)) + "\n" for at, outcome in enumerate(OUTCOMES))


def sharegpt() -> str:
    messages = [{"value": "a question"}, {"value": "an answer"}]
    return json.dumps([{"conversations": messages[:1] if outcome == "b" else messages} for outcome in OUTCOMES])


def tracelab() -> str:
    def row(at: int, one: str) -> dict[str, object]:
        times = (
            [] if one == "b" else [{"event_type": "text", "timestamp": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"}]
        )
        return {"session_id": f"{at}", "timing_events": times, "input_tokens_total": 10, "output_tokens": 5}

    return "".join(json.dumps(row(at, outcome)) + "\n" for at, outcome in enumerate(OUTCOMES))


FILES: Final = {
    "tracelab": tracelab,
    "burstgpt": burstgpt,
    "vllm-bench": vllm_bench,
    "otel": otel,
    "sharegpt": sharegpt,
}
WHOLE: Final = ("azure", "bailian", "mooncake", "requests", "tracev2", "weka")
"""Formats whose entries are all requests."""


def test_every_format_is_looked_at() -> None:
    assert sorted([*FILES, *WHOLE]) == sorted(plugin.name for plugin in builtin().plugins if plugin.path == TRACES.path)


@pytest.mark.parametrize("form", FILES)
def test_what_is_read_and_what_is_left_out_are_all_of_the_file(form: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(FILES[form](), encoding="utf-8")
    rate = 1.0 if form == "sharegpt" else None
    table = read_trace(Trace(path=str(tmp_path / "trace"), format=form, sha256="", rate_per_s=rate), builtin())
    left = table.left_out[0]
    assert (len(table), left.count) == (len(OUTCOMES) - OUTCOMES.count("b"), OUTCOMES.count("b"))
    assert len(table) + left.count == len(OUTCOMES)


@pytest.mark.parametrize(
    ("pacing", "left"),
    [
        ("clock", [LeftOut(1, "conversation", "without a message and its answer"),
                   LeftOut(5, "message", "after the first answer (see `pacing`)")]),
        ("answers", [LeftOut(1, "conversation", "without a message and its answer"),
                     LeftOut(3, "message", "without an answer, or after one")]),
    ],
)  # fmt: skip
def test_of_conversations_later_messages_are_left_out(pacing: str, left: list[LeftOut], tmp_path: Path) -> None:
    conversations = [["q", "a", "q", "a", "q"], ["q", "a", "", "a"], ["q"]]
    text = json.dumps(
        [{"conversations": [{"value": one * 9} for one in conversation]} for conversation in conversations]
    )
    (tmp_path / "talks.json").write_text(text, encoding="utf-8")
    trace = Trace(path=str(tmp_path / "talks.json"), format="sharegpt", sha256="", rate_per_s=1.0, pacing=pacing)
    assert list(read_trace(trace, builtin()).left_out)[:2] == left


def test_a_trace_that_is_whole_leaves_nothing_out(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n0,1,1\n\n5,1,0\n")
    assert open_traffic(str(tmp_path / "trace.csv"), Choice()).left_out == ()


SPEC: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: replay}
model: llama-3.1-8b-instruct
hardware: h100
workload: {trace: {file: burst.csv, format: burstgpt, pacing: clock}}
policy: default
"""


@pytest.mark.parametrize(
    "command",
    [
        "run replay.blis.yaml --format table",
        "workload describe burst.csv",
        "workload describe burst.csv --format json",
        "workload describe replay.blis.yaml",
        "workload describe answers.blis.yaml",
        "workload convert burst.csv -o out.csv",
        "workload compose burst.csv burst.csv -o out.csv",
        "workload fit burst.csv -o out.yaml",
    ],
)
def test_whoever_reads_a_trace_says_it(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "burst.csv").write_text(burstgpt(), encoding="utf-8")
    (tmp_path / "replay.blis.yaml").write_text(SPEC, encoding="utf-8")
    talking = SPEC.replace("pacing: clock", "pacing: answers, columns: {session_id: Model}")
    (tmp_path / "answers.blis.yaml").write_text(talking, encoding="utf-8")
    result = CliRunner().invoke(cli, command.split())
    assert result.exit_code == 0, result.output
    if "json" in command:
        left = {"count": 40, "what": "request", "why": "without an answer"}
        assert json.loads(result.stdout)["left_out"] == [left]
    else:
        assert "40 requests without an answer" in result.output
    if "fit" in command:
        assert "# Left out: 40 requests without an answer." in (tmp_path / "out.yaml").read_text()
