"""Older documents become what is understood now: the mechanism with made-up formats, and the real table."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.cli.main import FORMER_COMMANDS, cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.authoring.upgrade import upgrade
from blis_tui.spec.hints import FORMATS, FORMER_KEYS, FormerKey

ROOT: Final = Path(__file__).parents[3]
TEXT: Final = "# head\nkind: Policy\napiVersion: test/v1  # old\ntop: {sizes: 3, other: 4}\n"
MADE_UP: Final = ("test/v1", "test/v2", "test/v3")
ROWS: Final = (
    FormerKey(format="test/v1", holders=("top",), key="sizes", now="size_tokens"),
    FormerKey(format="test/v2", holders=("top",), key="other", now="", instead="say it elsewhere"),
)


def upgraded(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """A document of the present format whose text is these lines."""
    found = upgrade(Source("x", text))
    return found.text, found.changes, found.left


def test_formats_follow_one_another_and_comments_stay() -> None:
    done = upgrade(Source("x", TEXT), MADE_UP, ROWS)
    assert done.text == "# head\nkind: Policy\napiVersion: test/v3  # old\ntop: {size_tokens: 3}\n"
    assert done.changes == (
        "line 4: `top.sizes`: it is `size_tokens` now",
        "line 3: `apiVersion` is `test/v2` now",
        "line 4: `top.other`: it is gone: say it elsewhere",
        "line 3: `apiVersion` is `test/v3` now",
    )
    again = upgrade(Source("x", done.text), MADE_UP, ROWS)
    assert (again.text, again.changes, again.left) == (done.text, (), ())


def test_a_key_of_the_next_format_is_not_an_older_one_before() -> None:
    """What was `other` until the second format is another thing in the third, where the same name may be new."""
    newest = TEXT.replace("test/v1", "test/v3")
    assert upgrade(Source("x", newest), MADE_UP, ROWS).text == newest


@pytest.mark.parametrize(("text", "code"), [("apiVersion: blis/v9\n", "BLIS1004"), ("kind: Policy\n", "BLIS1002")])
def test_unknown_versions_are_refused_with_help(text: str, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        upgrade(Source("x", text))
    assert caught.value.diagnostics[0].code == code
    assert "blis/v1" in str(caught.value.diagnostics[0].help)


HEAD: Final = "apiVersion: blis/v1\nkind: Experiment\n"
EXPERIMENTS: Final[dict[str, tuple[str, str, str]]] = {
    "renamed in a block": (
        "cluster:\n  autoscaler:\n    kv_cache_threshold: 0.8   # of the blocks\n    interval_us: 1\n",
        "cluster:\n  autoscaler:\n    kv_utilization_threshold: 0.8   # of the blocks\n    interval_us: 1\n",
        "line 5: `cluster.autoscaler.kv_cache_threshold`: it is `kv_utilization_threshold` now",
    ),
    "renamed on one line": (
        "latency: {kind: fitted, kv_cache: 1.1}\n",
        "latency: {kind: fitted, kv_read: 1.1}\n",
        "line 3: `latency.kv_cache`: it is `kv_read` now",
    ),
    "of a pool": (
        "cluster: {pools: [{name: a, latency: {kind: fitted, kv_cache: 1.1}}]}\n",
        "cluster: {pools: [{name: a, latency: {kind: fitted, kv_read: 1.1}}]}\n",
        "line 3: `cluster.pools.0.latency.kv_cache`: it is `kv_read` now",
    ),
    "gone from a block": (
        "latency:\n  kind: fitted\n  eager_step_us: 3500   # measured\nseed: 1\n",
        "latency:\n  kind: fitted\nseed: 1\n",
        "line 5: `latency.eager_step_us`: it is gone: what launching operators takes is `hardware.launch_us`",
    ),
    "gone from the end of a line": (
        "latency: {kind: fitted, eager_step_us: 3500}\n",
        "latency: {kind: fitted}\n",
        "line 3: `latency.eager_step_us`: it is gone: what launching operators takes is `hardware.launch_us`",
    ),
    "moved to a part that is not there": (
        "policy: {batching: {kind: nano, enforce_eager: true}}\n",
        "policy: {batching: {kind: nano}}\nengine: {enforce_eager: true}\n",
        "line 3: `policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
    ),
    "moved to a block": (
        "policy:\n  batching:\n    enforce_eager: true\n    kind: nano\nengine:\n  # the batch\n  max_num_seqs: 8\n",
        "policy:\n  batching:\n    kind: nano\nengine:\n  # the batch\n  enforce_eager: true\n  max_num_seqs: 8\n",
        "line 5: `policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
    ),
    "moved to a line": (
        "engine: {max_num_seqs: 8}\npolicy: {batching: {enforce_eager: true, kind: nano}}\n",
        "engine: {enforce_eager: true, max_num_seqs: 8}\npolicy: {batching: {kind: nano}}\n",
        "line 4: `policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
    ),
    "moved to an empty part": (
        "engine: {}\npolicy: {batching: {kind: nano, enforce_eager: true}}\n",
        "engine: {enforce_eager: true}\npolicy: {batching: {kind: nano}}\n",
        "line 4: `policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
    ),
    "in a case, by its path": (
        "cases:\n  eager: {policy.batching.enforce_eager: true, seed: 2}\n",
        "cases:\n  eager: {engine.enforce_eager: true, seed: 2}\n",
        "line 4: `cases.eager.policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
    ),
    "an axis of a matrix": (
        "matrix:\n  latency.kv_cache: [1.0, 1.1]\n",
        "matrix:\n  latency.kv_read: [1.0, 1.1]\n",
        "line 4: `matrix.latency.kv_cache`: it is `kv_read` now",
    ),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(("before", "after", "change"), EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_an_older_key_is_spelt_as_it_is_now(before: str, after: str, change: str, ends: str) -> None:
    text, changes, left = upgraded((HEAD + before).replace("\n", ends))
    assert text.replace("\r\n", "\n") == HEAD + after
    assert (changes, left) == ((change,), ())
    assert upgraded(text) == (text, (), ())


def test_a_value_of_several_lines_goes_with_its_key() -> None:
    text, changes, left = upgraded(f"{HEAD}matrix:\n  latency.eager_step_us:\n    - 1\n    - 2\nseed: 3\n")
    assert (text, len(changes), left) == (f"{HEAD}matrix: {{}}\nseed: 3\n", 1, ())


LEFT: Final[dict[str, tuple[str, str]]] = {
    "a part that the document has not": (
        "apiVersion: blis/v1\nkind: Policy\nbatching: {kind: nano, enforce_eager: true}\n",
        "say `engine: {enforce_eager: …}` there, and take it out here",
    ),
    "both are said": (f"{HEAD}latency: {{kind: fitted, kv_cache: 1.1, kv_read: 1.2}}\n", "rewrite it by hand"),
    "a part that refers": (f"{HEAD}engine: mine\npolicy: {{batching: {{enforce_eager: true}}}}\n", "by hand"),
}


@pytest.mark.parametrize(
    "text",
    [
        "latency: {kind: roofline, kv_cache: 1.1}\n",
        "cluster: {pools: [{name: a, latency: {kind: roofline, kv_cache: 1.1}}]}\n",
        "latency: roofline\nmatrix:\n  latency.kv_cache: [1.0, 1.1]\n",
        "latency: {kind: roofline}\ncases:\n  one: {latency.kv_cache: 1.1}\n",
    ],
)
def test_the_same_key_of_another_kind_is_no_older_one(text: str) -> None:
    assert upgraded(HEAD + text) == (HEAD + text, (), ())


@pytest.mark.parametrize(("text", "instruction"), LEFT.values(), ids=LEFT)
def test_what_cannot_be_rewritten_safely_is_left_and_told(text: str, instruction: str) -> None:
    found, changes, (left,) = upgraded(text)
    assert (found, changes) == (text, ())
    assert instruction in left


def test_each_row_names_a_key_that_is_none_any_more() -> None:
    for row in FORMER_KEYS:
        assert row.format in FORMATS
        for holder in row.holders:
            text = f"apiVersion: blis/v1\nkind: Experiment\n{holder}: {{{row.key}: 1}}\n"
            assert upgrade(Source("x", text)).text != text or upgrade(Source("x", text)).left
    names = [(holder, row.key) for row in FORMER_KEYS for holder in row.holders]
    assert len(set(names)) == len(names)


OLD: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: older}
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: fitted, kv_cache: 1.1}
workload: {requests: 5, rate_per_s: 5, clients: [{id: a, input_tokens: 10, output_tokens: 5}]}
engine: {max_model_len: 2000}
policy: {batching: {kind: nano, enforce_eager: true}}
"""


def test_an_older_experiment_runs_when_it_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "older.blis.yaml"
    path.write_text(OLD, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        blis_tui.load(str(path))
    hints = [str(diagnostic.help) for diagnostic in caught.value.diagnostics]
    assert "it is `kv_read` now; `blis-tui upgrade FILE` rewrites older documents" in hints
    assert "it is `engine.enforce_eager` now; `blis-tui upgrade FILE` rewrites older documents" in hints
    path.write_text(upgrade(Source(str(path), OLD)).text, encoding="utf-8")
    experiment = blis_tui.load(str(path))
    assert experiment.pools[0].engine.enforce_eager
    assert blis_tui.run(str(path)).requests.completed == 5


def test_an_experiment_of_this_projects_own_history_becomes_what_it_is() -> None:
    """It was committed with the older key."""
    text = (ROOT / "specs" / "experiments" / "prompts-first.blis.yaml").read_text(encoding="utf-8")
    older = text.replace("engine.enforce_eager:", "policy.batching.enforce_eager:")
    assert older != text
    assert upgraded(older)[0] == text


def test_the_command_rewrites_files_and_says_what_changed(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    path, other = tmp_path / "specs" / "older.blis.yaml", tmp_path / "specs" / "new.yaml"
    path.write_text(OLD, encoding="utf-8")
    other.write_text("apiVersion: blis/v1\nkind: Policy\n", encoding="utf-8")
    folder = str(tmp_path / "specs")
    checked = CliRunner().invoke(cli, ["upgrade", "--check", folder])
    assert checked.exit_code == ExitCode.CHECK_FAILED
    assert path.read_text(encoding="utf-8") == OLD
    shown = CliRunner().invoke(cli, ["upgrade", "--diff", folder])
    assert "+engine: {enforce_eager: true, max_model_len: 2000}" in shown.stdout
    assert "-latency: {kind: fitted, kv_cache: 1.1}\n+latency: {kind: fitted, kv_read: 1.1}\n" in shown.stdout
    done = CliRunner().invoke(cli, ["upgrade", folder])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"{other} needs no upgrade",
        f"{path}: line 6: `latency.kv_cache`: it is `kv_read` now",
        f"{path}: line 9: `policy.batching.enforce_eager`: it is `engine.enforce_eager` now",
        f"upgraded {path}",
    ]
    assert path.read_text(encoding="utf-8") == upgraded(OLD)[0]
    assert CliRunner().invoke(cli, ["upgrade", "--check", folder]).exit_code == 0


def test_what_is_left_to_be_done_by_hand_is_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "nano.yaml"
    path.write_text(
        "apiVersion: blis/v1\nkind: Policy\nbatching: {kind: nano, enforce_eager: true}\n", encoding="utf-8"
    )
    done = CliRunner().invoke(cli, ["upgrade", str(path)])
    assert done.exit_code == ExitCode.CHECK_FAILED
    assert "take it out here" in done.stderr


def test_the_former_name_answers_with_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "older.blis.yaml"
    path.write_text(OLD, encoding="utf-8")
    former, now = (
        CliRunner().invoke(cli, [*name, "--check", str(path)]) for name in (("spec", "migrate"), ("upgrade",))
    )
    assert former.exit_code == now.exit_code == ExitCode.CHECK_FAILED
    assert former.stderr == now.stderr
    assert "migrate" not in CliRunner().invoke(cli, ["spec", "--help"]).output


def test_the_page_on_versions_has_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row, and what the command says."""
    page = (ROOT / "docs" / "lab" / "former-names.md").read_text(encoding="utf-8")
    for row in FORMER_KEYS:
        now = f"`{row.now}`" if row.now else f"gone: {row.instead}"
        assert f"| `{row.key}` | {', '.join(f'`{holder}`' for holder in row.holders)} | {now} |\n" in page
    for former, command in FORMER_COMMANDS.items():
        assert f"| `{' '.join(former)}` | `blis-tui {' '.join(command)}` |\n" in page
    monkeypatch.chdir(tmp_path)
    (tmp_path / "older.blis.yaml").write_text(OLD, encoding="utf-8")
    done = CliRunner().invoke(cli, ["upgrade", "older.blis.yaml"])
    shown = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert f"$ blis-tui upgrade older.blis.yaml\n{done.stderr}" in shown
