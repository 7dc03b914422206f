"""What a document would have anyway is left out, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from blis_tui.base.source import Source
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.authoring.edits import cut, inserted
from blis_tui.spec.authoring.trim import trim
from blis_tui.spec.build import digest
from blis_tui.spec.load import load
from blis_tui.spec.read import parse
from blis_tui.spec.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: x}\n"
LONG = f"""\
# what it is about
{HEAD}seed: 42        # the default

# the model
model: qwen3-14b
hardware: h100
workload:
  requests: 10
  rate_per_s: 1
  clients:
    - share: 1.0
      id: a   # who
      # how long
      input_tokens: 5
      output_tokens: {{kind: constant, value: 6}}
      arrivals: poisson
    - {{id: b, share: 1, slo_class: standard, input_tokens: 5, output_tokens: 4, tenant: ""}}
engine:
  # what the model's GPU has
  max_num_seqs: 1024
  enable_prefix_caching: false
  # tokens of a block
  block_size_tokens: 16

horizon_us: none

cluster: {{instances: 2, tensor_parallel: 1}}
cases:
  one: {{seed: 3}}
"""
SHORT = f"""\
# what it is about
{HEAD}
# the model
model: qwen3-14b
hardware: h100
workload:
  requests: 10
  rate_per_s: 1
  clients:
    - id: a   # who
      # how long
      input_tokens: 5
      output_tokens: {{kind: constant, value: 6}}
    - {{id: b, input_tokens: 5, output_tokens: 4}}
engine:
  # what the model's GPU has
  enable_prefix_caching: false
  # tokens of a block

cluster: {{instances: 2}}
cases:
  one: {{seed: 3}}
"""


def test_defaults_go_and_comments_stay() -> None:
    made = trim(Source("x", LONG))
    assert made.text == SHORT
    assert made.dropped[:2] == ("seed", "horizon_us")
    assert digest(load("-", stdin_text=LONG).document) == digest(load("-", stdin_text=SHORT).document)
    again = trim(Source("x", SHORT))
    assert (again.text, again.dropped) == (SHORT, ())


def test_what_is_inherited_anyway_goes(tmp_path: Path) -> None:
    base = f"{HEAD}model: qwen3-14b\nhardware: h100\nworkload: chatbot\nseed: 5\nengine: {{kv_blocks: 900}}\n"
    (tmp_path / "base.yaml").write_text(base)
    text = f"{HEAD}extends: base.yaml\nseed: 42\nengine: {{kv_blocks: 900, max_num_seqs: 7}}\n"
    made = trim(Source("top.yaml", text, tmp_path))
    assert made.text == f"{HEAD}extends: base.yaml\nseed: 42\nengine: {{max_num_seqs: 7}}\n"


def test_what_is_about_tests_stays() -> None:
    cases = "cases: {none: {expect: []}}\nexpect: [{metric: requests.completed, min: 1}]\n"
    text = f"{HEAD}model: qwen3-14b\nhardware: h100\nworkload: chatbot\n{cases}tags: [a]\n"
    assert trim(Source("x", text)).text == text


@pytest.mark.parametrize(
    ("kind", "body", "left"),
    [
        (
            "Workload",
            "requests: null\nrate_per_s: 2\nclients: [{id: a, share: 1, input_tokens: 5, output_tokens: 5}]\n",
            "rate_per_s: 2\nclients: [{id: a, input_tokens: 5, output_tokens: 5}]\n",
        ),
        ("Policy", "routing: round-robin\nscheduling: sjf\n", "scheduling: sjf\n"),
    ],
)
def test_other_documents_have_defaults_too(kind: str, body: str, left: str) -> None:
    head = f"apiVersion: blis/v1\nkind: {kind}\nmetadata: {{name: x}}\n"
    assert trim(Source("x", head + body)).text == head + left


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of all keys."""
    if isinstance(value, list):
        return [place for at, inner in enumerate(value) for place in places(inner, (*path, at))]
    below = value.items() if isinstance(value, dict) else ()
    return [one for key, inner in below for one in ((*path, key), *places(inner, (*path, key)))]


def without(data: Any, path: Sequence[str | int]) -> Any:
    inside = data
    for step in path[:-1]:
        inside = inside[step]
    del inside[path[-1]]
    return data


FILES = sorted(Path("specs").glob("*/*.yaml"))


@pytest.mark.parametrize("seed", range(6))
def test_a_key_is_cut_from_any_text_or_the_text_stays(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    unchanged = total = 0
    for file in random.sample(FILES, 12):
        text = file.read_text(encoding="utf-8")
        if "&" in text or "rows:" in text:
            continue
        if random.random() < 0.5:  # in flow style
            text = yaml_text(parse(Source("-", text)).data)  # type: ignore[arg-type]
        path = random.choice(places(parse(Source("-", text)).data))
        made = cut(text, path)
        total += 1
        unchanged += made == text
        if made != text:
            wanted = without(parse(Source("-", text)).data, path)
            assert parse(Source("-", made)).data == wanted
            comments = [line for line in text.splitlines() if line.startswith("#")]
            assert [line for line in made.splitlines() if line.startswith("#")] == comments
    assert unchanged * 10 <= total


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        ("a: 1\nb: {c: 2}\n", ("b",), "a: 1\nb: {c: 2, k: v}\n"),
        ("a: 1\nb: {}\n", ("b",), "a: 1\nb: {k: v}\n"),
        ("a:\n  b: 1  # one\n\nc: 2\n", ("a",), "a:\n  b: 1  # one\n  k: v\n\nc: 2\n"),
        ("a:\n  - b: |\n      text\n  - c: 1\n", ("a", 0), "a:\n  - b: |\n      text\n    k: v\n  - c: 1\n"),
        ("a: 1", (), "a: 1\nk: v\n"),
    ],
)
def test_a_key_is_put_into_a_map(text: str, path: tuple[str | int, ...], wanted: str) -> None:
    place = inserted(text, path, "k: v")
    assert place is not None
    assert text[: place[0]] + place[1] + text[place[0] :] == wanted


def test_into_what_is_no_map_nothing_is_put() -> None:
    assert inserted("a: [1]\n", ("a",), "k: v") is None
    assert inserted("a: 1\n", ("b",), "k: v") is None
    assert inserted("a: [1\n", (), "k: v") is None


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "x.blis.yaml"
    file.write_text(LONG)
    run = CliRunner().invoke
    checked = run(cli, ["spec", "trim", "--check", str(file)])
    assert (checked.exit_code, file.read_text()) == (ExitCode.CHECK_FAILED, LONG)
    assert "-seed: 42        # the default" in run(cli, ["spec", "trim", "--diff", str(file)]).stdout
    done = run(cli, ["spec", "trim", str(file)])
    assert (done.exit_code, file.read_text()) == (ExitCode.OK, SHORT)
    assert "without `seed`, `horizon_us`" in done.stderr
    file.write_text("a: &x {b: 1}\nc: *x\n")
    assert "left unchanged: it has anchors" in run(cli, ["spec", "trim", str(file)]).stderr
    file.write_text(HEAD)
    assert run(cli, ["spec", "trim", str(file)]).exit_code == ExitCode.USAGE
