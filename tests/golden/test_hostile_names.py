"""Golden tests print names of documents and traces, too: to a terminal, and into the log of a CI system."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.golden.projects import SPEC as PLAIN
from tests.golden.projects import blis_in, project, pytest_in
from tests.hostile import SPEC, quoted, require_harmless

if TYPE_CHECKING:
    from pathlib import Path


def test_names_neither_act_on_the_terminal_nor_command_the_ci(tmp_path: Path) -> None:
    project(tmp_path, SPEC.replace("kind: Experiment", f"kind: Experiment\nskip: {quoted('asleep')}"), checks="")
    judged = tmp_path / "judged.blis.yaml"
    plain = tmp_path / "plain.blis.yaml"
    judged.write_text(SPEC, encoding="utf-8")
    plain.write_text(SPEC.replace("expect:", "tags: []").replace("  - {metric:", "#"), encoding="utf-8")
    (tmp_path / "wrong.blis.yaml").write_text(f"kind: Experiment\n{quoted('unknown')}: 1\n", encoding="utf-8")

    first = pytest_in(tmp_path, "-v", "-ra", "--blis-update=unseen").stdout
    require_harmless(first, "asleep requests.completed unknown")
    plain.write_text(plain.read_text("utf-8").replace('"tenant', '"changed'), encoding="utf-8")
    then = pytest_in(tmp_path, "-v", "-ra", GITHUB_ACTIONS="true").stdout
    require_harmless(then, "tenant changed ::error unknown")
    for command in ("status", "diff", "review"):
        require_harmless(blis_in(tmp_path, "golden", command).stdout, "plain")
    assert "changed" in blis_in(tmp_path, "golden", "diff").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no file has such a name")
def test_names_of_files_do_not_act_on_the_terminal_either(tmp_path: Path) -> None:
    """Pytest prints them itself, in every form of its output."""
    project(tmp_path, checks="")
    names = ["a\x1b]0;pwned\x07\u202e", "a\x1b]0;pwned\x07\u202d", "wrong\x1b[31m\n"]
    for name in names[:2]:
        (tmp_path / f"{name}.blis.yaml").write_text(PLAIN, encoding="utf-8")
    (tmp_path / f"{names[2]}.blis.yaml").write_text("kind: Experiment\n", encoding="utf-8")
    (tmp_path / "in\x1b[32m").mkdir()
    (tmp_path / "in\x1b[32m" / "own.blis.yaml").write_text(PLAIN, encoding="utf-8")
    shown = r"a\x1b]0;pwned\x07\u202e.blis.yaml a\x1b]0;pwned\x07\u202d.blis.yaml wrong\x1b[31m\n.blis.yaml"
    for options in (("-ra",), ("-v",), ("-vv", "-rA"), ("--collect-only",)):
        ended = pytest_in(tmp_path, "--color=no", *options, GITHUB_ACTIONS="true")
        require_harmless(ended.stdout, rf"{shown} in\x1b[32m/own.blis.yaml" if "-ra" in options else shown)
    accepted = blis_in(tmp_path, "golden", "review", "--accept")
    assert accepted.returncode == 0, accepted.stderr
    assert "1 failed, 4 passed" in pytest_in(tmp_path, "--color=no").stdout
    (tmp_path / "bell\x07.blis.yaml").write_text(PLAIN, encoding="utf-8")
    chosen = pytest_in(tmp_path, "--color=no", "--blis-update=unseen", "bell\x07.blis.yaml::default")
    assert "1 passed" in chosen.stdout, "it is chosen by its real name"
