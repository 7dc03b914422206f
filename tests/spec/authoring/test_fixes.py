"""Quick fixes: what the help of a problem says is done, and the problem is gone."""

from __future__ import annotations

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.authoring.fixes import Fix, fixes
from blis_tui.spec.read import parse
from blis_tui.spec.validate import validated

TEXT = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: x}
model: qwen3-14b
hardware: h100
workload:
  requests: 10
  rate_per_s: 1
  clients:
    - {id: a, input_tokens: 5, output_tokens: 5}
"""


def fixed(text: str) -> tuple[list[Fix], list[str]]:
    """The fixes of the only problem, and the text after each."""
    with pytest.raises(SpecError) as caught:
        validated(parse(Source("-", text)))
    (diagnostic,) = caught.value.diagnostics
    lines = text.splitlines(keepends=True)
    begin = sum(map(len, lines[: diagnostic.line - 1])) + diagnostic.column - 1
    end = begin + diagnostic.end_column - diagnostic.column
    path = tuple(int(step) if step.isdecimal() else step for step in diagnostic.path.split(".") if step)
    found = list(fixes(text, diagnostic.message, diagnostic.help or "", text[begin:end], path))
    made = [
        text[: fix.at] + fix.text + text[fix.at :] if fix.at >= 0 else text[:begin] + fix.text + text[end:]
        for fix in found
    ]
    return found, made


@pytest.mark.parametrize(
    ("added", "value"),
    [
        ("horizon_us: 350ms", "350000"),
        ("warm_up_us: 1.5s", "1500000"),
        ("slo_targets: {batch: {ttft_ms: '2 s'}}", "2000"),
        ("engine: {kv_blocks: 5k}", "5000"),
        ("engine: {gpu_memory_utilization: 90%}", "0.9"),
        ("engine: {max_num_seqs: '64'}", "64"),
        ("engine: {max_num_seq: 64}", "max_num_seqs"),
        ("engine: {enforce_eager: yes}", "true"),
    ],
)
def test_a_value_becomes_what_the_help_says(added: str, value: str) -> None:
    ((fix,), (made,)) = fixed(f"{TEXT}{added}\n")
    assert (fix.text, fix.at) == (value, -1)
    validated(parse(Source("-", made)))


@pytest.mark.parametrize(
    ("gone", "put", "title"),
    [
        ("hardware: h100\n", "", "Add `hardware: h100`"),
        ("id: a, ", "", "Add `id: chat`"),
        ("input_tokens: 5", "input_tokens: {kind: gaussian, mean: 5, std_dev: 1, min: 1}", "Add `max: 800`"),
    ],
)
def test_a_missing_key_is_added_with_its_example(gone: str, put: str, title: str) -> None:
    ((fix,), (made,)) = fixed(TEXT.replace(gone, put))
    assert fix.title == title
    validated(parse(Source("-", made)))


def test_a_missing_key_without_an_example_is_begun() -> None:
    ((fix,), (made,)) = fixed(TEXT.replace(", output_tokens: 5", ""))
    assert fix.title == "Add `output_tokens:`"
    assert "{id: a, input_tokens: 5, output_tokens: }" in made


def test_each_word_that_a_key_takes_is_offered() -> None:
    found, made = fixed(TEXT.replace("input_tokens: 5", "input_tokens: {value: 5}"))
    assert [fix.title for fix in found][:2] == ["Add `kind: constant`", "Add `kind: gaussian`"]
    validated(parse(Source("-", made[0])))


def test_help_that_is_no_value_gives_no_fix() -> None:
    assert fixed(TEXT.replace("rate_per_s: 1", "rate_per_s: -1"))[0] == []
    assert fixed(TEXT.replace("input_tokens: 5", "input_tokens: {p50: 5, p90: 9}"))[0] == []
    assert list(fixes("", "wrong", "write it as `cluster.instances=8`", "x", ())) == []
    assert list(fixes("", "wrong", "write `kind: lognormal`, and its settings beside that", "x", ())) == []
