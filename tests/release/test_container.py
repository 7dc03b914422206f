"""The Dockerfile, as far as that goes without Docker: its COPY and RUN lines, one after the other, in a clean folder.

Not tried here: the images it is built from, and its user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.wheels import ROOT, with_borrowed

if TYPE_CHECKING:
    from pathlib import Path

TEXT: Final = re.sub(r" *\\\n *", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
LINES: Final = [
    (line.partition(" ")[0], line.partition(" ")[2]) for line in TEXT.splitlines() if line and not line.startswith("#")
]
IGNORE: Final = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def copied() -> list[str]:
    return [name for word, rest in LINES if word == "COPY" for name in rest.split()[:-1]]


def test_what_it_copies_is_all_that_a_build_is_sent() -> None:
    assert "*" in IGNORE
    assert {line[1:] for line in IGNORE if line.startswith("!")} == set(copied())
    assert [name for name in copied() if not (ROOT / name).exists()] == []


def test_it_runs_as_a_user_without_rights() -> None:
    words = [word for word, _ in LINES]
    last = words[max(at for at, word in enumerate(words) if word == "FROM") :]
    assert last.index("USER") < last.index("ENTRYPOINT")
    assert not {"RUN", "COPY"} & set(last[last.index("USER") :])


@pytest.mark.slow
@pytest.mark.nightly
def test_its_steps_make_what_it_starts(tmp_path: Path) -> None:
    programs = with_borrowed(tmp_path / "machine", "hatchling", "hatch-fancy-pypi-readme")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "EXTRAS": "",
        "PIP_NO_BUILD_ISOLATION": "0",  # as pip has it, this turns isolation off
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_COMPILE": "0",
    }
    work = tmp_path / "src"
    done = []
    for word, rest in LINES:
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                place = work / target / (name if target == "./" else "")
                place.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, place)
        elif word == "RUN" and "useradd" not in rest:
            script = re.sub(r"--mount=\S+ ", "", rest).replace("/wheels", str(tmp_path / "wheels"))
            run = subprocess.run(
                ["bash", "-e", "-c", script], cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, run.stdout + run.stderr
            done.append(rest)
    assert len(done) == 2
    start = json.loads(dict(LINES)["ENTRYPOINT"])
    shutil.rmtree(work)
    run = subprocess.run(
        [*start, "run", "quickstart"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout == (ROOT / "golden" / "quickstart.report.json").read_text(encoding="utf-8"), run.stderr
    assert json.loads(dict(LINES)["CMD"]) == ["--help"]
