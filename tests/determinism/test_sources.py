"""Nothing in the sources of results depends on the process, the machine or the moment."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .elsewhere import ROOT
from .source_rules import findings

if TYPE_CHECKING:
    from pathlib import Path

PURE = ("model", "engine", "cluster", "workload", "results")
"""Packages that may import the standard library and each other only."""
GROUND = ("base/canonical.py", "base/streams.py", "base/portable_math.py")
SCANNED = (*PURE, *GROUND, "output", "runs/simulation.py", "spec/build.py", "spec/hf.py")
"""All that takes part between a resolved document and output bytes."""

ALLOWED: dict[tuple[str, str], str] = {
    ("blis_tui/engine/cohort.py", "sum()"): "of counts, which are whole numbers",
    ("blis_tui/base/portable_math.py", "sum()"): "of whole numbers: this is what all others call",
    ("blis_tui/output/result_files.py", ".glob"): "what was left behind is deleted, in any order",
}
"""File and rule -> why it may break it."""


def sources(parts: tuple[str, ...] = SCANNED) -> list[Path]:
    """The files of these modules and packages."""
    paths = [ROOT / "blis_tui" / part for part in parts]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def test_sources_follow_the_rules() -> None:
    wrong = []
    used = set()
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        for line, rule, reason in findings(path.read_text(encoding="utf-8")):
            if (name, rule) in ALLOWED:
                used.add((name, rule))
            else:
                wrong.append(f"{name}:{line}: {rule}: {reason}")
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    assert used == set(ALLOWED), "an exception is no longer needed"


def test_all_sources_are_scanned() -> None:
    names = {path.relative_to(ROOT / "blis_tui").as_posix() for path in sources()}
    assert {"engine/instance.py", "engine/kv/pool.py", "base/canonical.py", "output/tables.py"} <= names


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import random", "import random"),
        ("import numpy.random as np", "import numpy.random"),
        ("from time import monotonic", "import time"),
        ("import uuid", "import uuid"),
        ("from secrets import token_hex", "import secrets"),
        ("import os\nos.urandom(4)", ".urandom"),
        ("from os import urandom", ".urandom"),
        ("import os\nos.environ['A']", ".environ"),
        ("from datetime import datetime\ndatetime.now()", ".now"),
        ("from datetime import date\ndate.today()", ".today"),
        ("hash('a')", "hash()"),
        ("id(object())", "id()"),
        ("sum([0.1])", "sum()"),
        ("list(map(sum, []))", "sum()"),
        ("pow(2.0, 0.5)", "pow()"),
        ("import math\nmath.exp(1)", "math.exp"),
        ("from math import log", "math.log"),
        ("from math import pow as p", "math.pow"),
        ("from math import gamma, sqrt", "math.gamma"),
        ("import math\nmath.hypot(1, 2)", "math.hypot"),
        ("x = 2.5\nx ** 2", "**"),
        ("x = 2.5\nx **= 2", "**"),
        ("x = 2.0 ** 0.5", "**"),
        ("for x in {1, 2}: print(x)", "order of a set"),
        ("[x for x in {y for y in 'ab'}]", "order of a set"),
        ("list(set('ab'))", "order of a set"),
        ("tuple(frozenset('ab'))", "order of a set"),
        ("','.join({'a', 'b'})", "order of a set"),
        ("a = set('ab')\nfor x in a: print(x)", "order of a set"),
        ("a = set('ab')\nb = a - {'a'}\n[*b]", "order of a set"),
        ("a = set('ab')\nb = a\na.pop()", "order of a set"),
        ("first, = {1}", "order of a set"),
        ("def f(a: set[str]) -> None:\n    dict.fromkeys(a)", "order of a set"),
        ("def f() -> frozenset[str]: ...\nfor x in f(): print(x)", "order of a set"),
        ("class A:\n    a: set[int] | None = None\n    def f(self): return list(self.a)", "order of a set"),
        ("class A:\n    def __init__(self): self.a = set()\n    def f(self): yield from self.a", "order of a set"),
        ("list({}.keys() & {}.keys())", "order of a set"),
        ("for x in set('ab').union('c'): print(x)", "order of a set"),
    ],
)
def test_rules_find(source: str, rule: str) -> None:
    assert rule in [finding.rule for finding in findings(source)]


@pytest.mark.parametrize(
    "source",
    [
        "from math import ceil, floor, frexp, fsum, inf, isfinite, isnan, isqrt, ldexp, nan, sqrt",
        "import math\nmath.sqrt(2)",
        "X = 2**30\nY = 2.0**-53\nZ = 10**9",
        "from datetime import date",
        "a = {'a', 'b'}\n'a' in a\nlen(a)\nsorted(a)\nmin(a)\nmax(a)\nfrozenset(a)",
        "for x in {1: 2}: print(x)",
        "a = [1]\na.pop()",
        "for x in sorted({1, 2}): print(x)",
        "class A:\n    id: str\n    now = 1\nprint(A.now, A.id)",
        "a = 5 - 3\nfor x in range(a): print(x)",
    ],
)
def test_rules_let_pass(source: str) -> None:
    assert findings(source) == []


def modules_after(code: str) -> list[str]:
    """The modules that ``code`` loads in a new process, besides those Python starts with."""
    program = f"""
import json, sys
started = set(sys.modules)
try:
    {code}
finally:
    print("\\n" + json.dumps(sorted(set(sys.modules) - started)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    return [str(name) for name in loaded]


def test_version_loads_nothing_heavy() -> None:
    loaded = modules_after("sys.argv = ['blis-tui', '--version']; from blis_tui.cli.main import main; main()")
    roots = {name.partition(".")[0] for name in loaded}
    assert roots & {"click", "blis_tui"} == {"click", "blis_tui"}
    assert not roots & {"textual", "rich", "jsonschema", "referencing", "yaml", "platformdirs", "deepdiff"}
    assert not [name for name in loaded if name.startswith(tuple(f"blis_tui.{part}" for part in PURE))]


def test_engine_loads_the_standard_library_only() -> None:
    names = [
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for path in sources(PURE)
    ]
    assert len(names) > 30
    loaded = modules_after(f"import {', '.join(sorted(names))}")
    assert set(names) <= set(loaded)
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"blis_tui"}
    assert foreign == set()
