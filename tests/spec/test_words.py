"""Errors that pointed at another place, or said too little."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from blis_tui.base.errors import SpecError
from blis_tui.cli.main import cli
from blis_tui.spec.load import load
from blis_tui.spec.subjects import subjects

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\nmodel: qwen3-14b\nhardware: h100\n"


def blis(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def path_and_hint(client: str) -> tuple[str, str]:
    """The path and the hint of the one error."""
    text = f"{HEAD}workload: {{requests: 9, rate_per_s: 1, clients: [{{id: a, {client}}}]}}\n"
    with pytest.raises(SpecError) as caught:
        load("-", stdin_text=text)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.path.removeprefix("workload.clients.0."), diagnostic.help or ""


def test_the_longer_of_prompt_and_answer_is_too_long() -> None:
    assert path_and_hint("input_tokens: 5, output_tokens: 1000000000")[0] == "output_tokens"
    assert path_and_hint("input_tokens: 1000000000, output_tokens: 5")[0] == "input_tokens"


def test_what_is_missing_is_told_with_an_example() -> None:
    path, hint = path_and_hint("input_tokens: {kind: gaussian, mean: 200, std_dev: 3, min: 1}, output_tokens: 5")
    assert (path, hint.partition(" (")[0]) == ("input_tokens", "add it, such as `max: 800`")
    _, hint = path_and_hint("input_tokens: {kind: exponential, mean: -200}, output_tokens: 5")
    assert hint == "mean of the values drawn, before they are clamped"


def test_lognormal_lengths_have_the_mean_that_is_given() -> None:
    text = "{{kind: lognormal, {}, sigma: 0.5}}"
    lengths = [text.format(one) for one in ("mean: 400", "mu: 5.866464547")]  # ln(400) - 0.125
    requests = 3000
    totals = []
    for length in lengths:
        document = f"{HEAD}workload: {{requests: {requests}, rate_per_s: 1, clients: [{{id: a, input_tokens: {length}"
        found = load("-", stdin_text=f"{document}, output_tokens: 1}}]}}\n")
        from blis_tui.workload.source import create_source  # noqa: PLC0415

        source = create_source(found.workload, 1, found.plugins)
        totals.append(sum(request.input_tokens for request in iter(source.next_request, None)))
    assert totals[0] == totals[1]
    assert 380 < totals[0] / requests < 420


def test_a_trace_that_is_no_document_has_advice_for_the_command_line(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("timestamp,prompt_tokens,completion_tokens\n1,5,5\n2,5,5\n")
    assert "add `--set 'trace.time_unit=s'` (or ms, us, ns)" in blis("workload", "describe", str(log)).stderr
    assert blis("workload", "describe", str(log), "--set", "trace.time_unit=s").exit_code == 0
    log.write_text("time,prompt,completion\n1,hello world,hi\n")
    assert "input_tokens: NAME, output_tokens: NAME" in blis("workload", "describe", str(log)).stderr


def test_a_benchmark_without_times_is_replayed_at_a_rate(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"input_lens": [3, 4], "output_lens": [1, 2], "request_throughput": 7.9123456}))
    described = blis("workload", "describe", str(result))
    assert "does not say when requests arrived" in described.stderr
    assert "`--set 'trace.rate_per_s=7.912'`" in described.stderr
    assert blis("workload", "describe", str(result), "--set", "trace.rate_per_s=8").exit_code == 0


def test_names_from_elsewhere_lead_somewhere() -> None:
    assert "did you mean `weighted`?" in blis("run", "quickstart", "--set", "policy.routing=prefix-aware").stderr
    unknown = blis("run", "quickstart", "--set", "model=llama-3.3-70b-fp8").stderr
    assert "did you mean `llama-3.3-70b-instruct-fp8`?" in unknown
    unknown = blis("run", "quickstart", "--set", "model=acme-70b").stderr
    assert "spec import model config.json --name acme-70b" in " ".join(unknown.split())


def test_all_errors_can_be_seen(tmp_path: Path) -> None:
    many = tmp_path / "many.yaml"
    many.write_text(HEAD + "workload: chatbot\n" + "".join(f"wrong{number}: 1\n" for number in range(25)))
    few = blis("check", str(many)).stderr
    assert few.count("error[") == 20
    assert "... and 5 more errors: `blis-tui check --all` shows them" in few
    assert blis("check", "--all", str(many)).stderr.count("error[") == 25


@pytest.mark.parametrize(
    ("word", "begin"),
    [
        ("INV-4", "INV-4: an invariant"),
        ("inv-10", "INV-10: an invariant"),
        ("INV-PD-3", "INV-PD-3: an invariant"),
        ("prefix_cache_hits", "tokens.cached: a metric of reports"),
    ],
)
def test_what_failures_and_other_tools_name_is_explained(word: str, begin: str) -> None:
    assert subjects(word)[0].text.startswith(begin)


def test_a_latency_is_explained_with_its_metric() -> None:
    assert any("latency.ttft_ms " in subject.text for subject in subjects("ttft"))
    assert "usable in `expect`" in subjects("kv.hit_rate")[0].text
