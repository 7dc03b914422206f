"""Golden tests print names of documents and traces, too: to a terminal, and into the log of a CI system."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
