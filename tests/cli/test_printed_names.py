"""Names in documents, traces and files may hold anything: no kind of output lets a terminal act on them."""

from __future__ import annotations

import ast
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui.cli
from blis_tui.base.canonical import to_json, to_line, to_sorted_json
from blis_tui.base.text import control_characters, printable, printable_lines
from blis_tui.cli.main import main
from tests.hostile import EVIL, SPEC, quoted, require_harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE: Final = "arrival_time_us,input_tokens,output_tokens,request_id,tenant_id,prefix_group,prefix_length\n" + "".join(
    f'{at * 1000},100,20,"request {at}{EVIL}","tenant {at % 2}{EVIL}","group{EVIL}",32\n' for at in range(20)
)
REPLAY: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: replay}
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: blackbox, alpha: [0, 0, 0], beta: [5000, 20, 30]}
workload: {trace: {file: trace.csv}}
policy: default
cluster: {instances: 2}
"""
WRONG: Final = f"""\
apiVersion: blis/v1
kind: Experiment
metadata: {{name: {quoted("name")}}}
model: {quoted("model")}
hardware: {quoted("./hardware")}
latency: {{kind: {quoted("kind")}}}
workload: {{trace: {{file: {quoted("trace")}, format: {quoted("format")}}}}}
policy: {{routing: {{{quoted("key")}: 1}}}}
{quoted("unknown")}: [{quoted("value")}]
"""
BLIS_WORKLOAD: Final = f"""\
version: "2"
aggregate_rate: 10
num_requests: 20
clients:
  - id: {quoted("client")}
    tenant_id: {quoted("tenant")}
    {quoted("unknown")}: 1
    rate_fraction: 1
    arrival: {{process: poisson}}
    input_distribution: {{type: constant, params: {{value: 100}}}}
    output_distribution: {{type: constant, params: {{value: 10}}}}
"""
FILES: Final = {
    "evil.blis.yaml": SPEC,
    f"file{EVIL}.blis.yaml": SPEC,
    f"loose{EVIL}.yaml": "{ kind:   Policy  }",
    f"broken{EVIL}/recording.json": f'{{"name": {quoted("server")}, {quoted("unknown")}: 1}}',
    "trace.csv": TRACE,
    "cells.csv": TRACE.replace(",100,", f',"many{EVIL}",'),
    f"trace{EVIL}.csv": TRACE,
    f"burst{EVIL}.csv": "Timestamp,Request tokens,Response tokens\n" + "".join(f"{n},50,{n % 3}\n" for n in range(9)),
    "replay.blis.yaml": REPLAY,
    "burst.blis.yaml": REPLAY.replace("trace.csv", f"{json.dumps(f'burst{EVIL}.csv')}, format: burstgpt"),
    "wrong.blis.yaml": WRONG,
    "no.blis.yaml": f"{{{EVIL}",
    "blis.yaml": BLIS_WORKLOAD,
    "specs/workloads/own.yaml": (
        f"{{apiVersion: blis/v1, kind: Workload, metadata: {{name: own, description: {quoted('about')}}},"
        f" clients: [{{id: {quoted('client')}, input_tokens: 1, output_tokens: 1}}], rate_per_s: 1, requests: 2}}\n"
    ),
}


SEEDS: Final = "--store none --jobs 1 --seeds 2"
QUICK: Final = "--store none --jobs 1 --seeds 1 --slo latency.ttft_ms.mean<=2000 --rate 4 --duration 2"


class Project:
    """A folder in which every name that is free has everything in it, and the command line in it."""

    def __init__(self, folder: Path, streams: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch) -> None:
        self._streams = streams
        self._patch = patch
        patch.chdir(folder)
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")

    def __call__(self, *arguments: str) -> str:
        """What a command prints on both streams."""
        self._patch.setattr(sys, "argv", ["blis-tui", *arguments])
        with suppress(SystemExit):
            main()
        out, err = self._streams.readouterr()
        return out.decode() + err.decode()


@pytest.fixture
def blis(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, capfdbinary, monkeypatch)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("run evil.blis.yaml --format table", "tenant tier wish"),
        ("run evil.blis.yaml", "tenant tier wish"),
        ("run replay.blis.yaml --set slo_targets.standard.e2e_ms=1 --format table", "tenant"),
        (f"run file{EVIL}.blis.yaml", "file wish"),
        (f"run nowhere{EVIL}.blis.yaml", "nowhere"),
        (f"run evil.blis.yaml --case case{EVIL}", "case"),
        (f"run evil.blis.yaml --seed seed{EVIL}", "seed"),
        (f"run evil.blis.yaml --set engine.key{EVIL}=1", "key"),
        (f"run evil.blis.yaml -o nowhere{EVIL}/report.json", "nowhere"),
        (f"sub{EVIL}", "sub"),
        ("run wrong.blis.yaml", "unknown model"),
        ("run no.blis.yaml", "no.blis.yaml"),
        (f"validate evil.blis.yaml wrong.blis.yaml file{EVIL}.blis.yaml cells.csv", "file unknown"),
        ("validate wrong.blis.yaml --format json", "unknown"),
        ("validate replay.blis.yaml --format json", "replay"),
        ("run replay.blis.yaml --set workload.trace.file=cells.csv", "many"),
        ("workload describe evil.blis.yaml", "client tenant"),
        ("workload describe evil.blis.yaml --format json", "client tenant"),
        ("workload describe trace.csv", "tenant"),
        (f"workload describe trace{EVIL}.csv", "trace"),
        ("workload describe cells.csv", "many"),
        (f"workload compose trace{EVIL}.csv specs/workloads/own.yaml", "trace"),
        ("workload compose specs/workloads/own.yaml evil.blis.yaml", "client tenant"),
        ("workload fit trace.csv", "tenant"),
        ("whatif replay.blis.yaml --route-to 1 --request EVIL", "request 3"),
        ("whatif replay.blis.yaml --route-to 1 --request EVIL --format json", "request 3"),
        (f"whatif replay.blis.yaml --route-to 1 --request nobody{EVIL}", "nobody"),
        ("whatif evil.blis.yaml --route-to 1 --request request_3", "request_3"),
        (f"diff evil.blis.yaml --set-b workload.clients.0.tenant=new{EVIL} --all", "tenant new"),
        (f"diff evil.blis.yaml file{EVIL}.blis.yaml", "file"),
        (f"sweep replay.blis.yaml --store none --jobs 1 --axis metadata.description=a{EVIL},b{EVIL}", "description"),
        ("sweep burst.blis.yaml --store none --jobs 1 --axis cluster.instances=1,2", "left burst"),
        ("sweep wrong.blis.yaml --store none --jobs 1 --axis seed=1,2", "name"),
        (f"plan evil.blis.yaml --store none --jobs 1 --seeds 1 --slo latency.ttft_ms.p99<={EVIL}", "latency"),
        (f"plan evil.blis.yaml --axis workload.clients.0.id=a{EVIL},b{EVIL} {QUICK}", "id"),
        ("golden status", "golden"),
        (f"golden status name{EVIL}", "golden"),
        (f"golden accept name{EVIL}", "name"),
        ("spec list", "own about"),
        ("spec list --format json", "own about"),
        ("spec resolve evil.blis.yaml", "client tenant"),
        ("spec resolve evil.blis.yaml --format json", "client tenant"),
        ("spec show own --kind workload --resolved", "client"),
        (f"spec show name{EVIL}", "name"),
        (f"explain key{EVIL}", "key"),
        (f"spec fmt --diff loose{EVIL}.yaml wrong.blis.yaml", "loose"),
        (f"upgrade --check file{EVIL}.blis.yaml", "file"),
        (f"spec new experiment name{EVIL}", "name"),
        (f"explain CODE{EVIL}", "CODE"),
        ("calibrate trace.csv --spec replay.blis.yaml", "trace.csv"),
        (f"calibrate trace{EVIL}.csv --spec replay.blis.yaml", "trace"),
        ("import workload blis.yaml", "client unknown"),
        (f"import model file{EVIL}.blis.yaml", "file"),
        (f"check plugin{EVIL}.py", "plugin"),
        (f"tui evil.blis.yaml --at place{EVIL}", ""),
        (f"bundle evil.blis.yaml -o out{EVIL}.blis", "out"),
        (f"bundle evil.blis.yaml -o out{EVIL}.html --events 20", "out"),
        (f"bundle evil.blis.yaml -o nowhere{EVIL}/out.blis", "nowhere"),
        (f"bundle evil.blis.yaml -o out.blis --at place{EVIL}", "place"),
        (f"bundle evil.blis.yaml -o out.blis --break condition{EVIL}", "condition"),
        ("bundle wrong.blis.yaml -o out.blis", "model unknown"),
        (f"run nowhere{EVIL}.blis", "nowhere"),
        (f"sensitivity replay.blis.yaml --slo latency.e2e_ms.mean<=1 {SEEDS}", "cluster.instances"),
        (f"sensitivity evil.blis.yaml --slo latency{EVIL}<=1 {SEEDS}", "latency"),
        ("sensitivity wrong.blis.yaml --slo latency.e2e_ms.mean<=1", "name"),
        ("shrink evil.blis.yaml -o small --runs 2", "wish"),
        (f"shrink evil.blis.yaml -o small{EVIL} --runs 3", "small"),
        (f"shrink replay.blis.yaml -o nowhere{EVIL}/small --runs 3 --expect latency.e2e_ms.mean<=1", "nowhere"),
        (f"shrink replay.blis.yaml -o small --expect wish{EVIL}", "wish"),
        ("shrink wrong.blis.yaml -o small", "model unknown"),
        (f"twin recording{EVIL} replay.blis.yaml", "recording"),
        (f"twin broken{EVIL} replay.blis.yaml", "broken"),
        (f"serve-api evil.blis.yaml --port 0 --kv-events address{EVIL}", "address"),
        (f"serve-api evil.blis.yaml --port 0 --host host{EVIL}", "host"),
        (f"serve evil.blis.yaml --port 0 --host host{EVIL}", "host"),
        ("serve-api wrong.blis.yaml --port 0", "model unknown"),
    ],
)  # fmt: skip
def test_nothing_printed_makes_a_terminal_act(command: str, names: str, blis: Project) -> None:
    words = [word.replace("EVIL", f"request 3{EVIL}") for word in _words(command)]
    require_harmless(blis(*words), names)


def test_nothing_that_a_bundle_prints_makes_a_terminal_act(blis: Project) -> None:
    """What it holds was written elsewhere, and so was its name."""
    blis("bundle", "evil.blis.yaml", "-o", f"bundle{EVIL}.blis")
    require_harmless(blis("run", f"bundle{EVIL}.blis", "--format", "table"), "tenant tier wish")
    require_harmless(blis("run", f"bundle{EVIL}.blis"), "wish")
    Path(f"bundle{EVIL}.blis").write_bytes(b"no bundle")
    require_harmless(blis("run", f"bundle{EVIL}.blis"), "bundle")


def _words(command: str) -> Iterator[str]:
    """The words of a command, in which the evil text is part of a word."""
    for word in command.replace(EVIL, "<evil>").split(" "):
        yield word.replace("<evil>", EVIL)


@pytest.mark.parametrize(
    "command",
    [
        "workload convert trace.csv",
        "workload compose trace.csv trace.csv",
        "sweep replay.blis.yaml --store none --jobs 1 --axis seed=1,2 --format csv",
        "spec show ./trace.csv",
        "spec fmt -",
    ],
)
def test_data_is_exact_but_on_a_terminal(command: str, blis: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = blis(*command.split())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = blis(*command.split())
    assert shown == printable_lines(exact)
    assert control_characters().findall(shown.replace("\n", "")) == []


@pytest.mark.parametrize(
    "command", ["workload fit trace.csv", f"spec resolve file{EVIL}.blis.yaml", "import workload blis.yaml"]
)
def test_names_do_not_break_out_of_the_comments_of_a_document(command: str, blis: Project) -> None:
    blis(*_words(command), "-o", "made.yaml")
    assert blis("check", "made.yaml").startswith("ok  made.yaml")


def test_everything_printed_goes_through_one_place() -> None:
    """Whatever prints by itself is not looked at by the tests above."""
    cli = Path(blis_tui.cli.__file__).parent
    own = (
        cli / "standard_streams.py",
        cli.parent / "base" / "standard_output.py",
    )  # the latter hands on what plug-ins print
    found = []
    for path in sorted(cli.parent.rglob("*.py")):
        text = path.read_text("utf-8")
        named = path not in own and re.search(r"\b(print|secho|echo|write)\(", text)
        for node in ast.walk(ast.parse(text)) if named else ():
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called == "print" or called.endswith(("click.echo", "click.secho", "stdout.write", "stderr.write")):
                found.append(f"{path.name}:{getattr(node, 'lineno', 0)}: {called}")
    assert found == []


def test_texts_for_a_terminal_keep_their_lines_and_lose_nothing_else() -> None:
    assert printable(f"a\tb{EVIL[:3]}é🙂界") == "a b�]0é🙂界"
    assert printable_lines("a\r\nb\tc\x1b\n") == "a\nb\tc�\n"


@given(st.text())
def test_json_says_the_same_without_anything_that_acts(text: str) -> None:
    for written in (to_json([text, {text: 1}]), to_line(text), to_sorted_json({text: text})):
        assert control_characters().findall(written.replace("\n", "")) == []
    assert json.loads(to_json([text])) == [text]
    assert json.loads(to_line(text)) == json.loads(to_sorted_json(text)) == text
