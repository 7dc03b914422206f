"""Golden tests with all that can become of them, as recorded: outcomes, lists, differences, comments, bundles."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import product
from shutil import copytree
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

import blis_tui
from blis_tui.base.canonical import to_json
from blis_tui.base.errors import InputError
from blis_tui.golden import determinism
from blis_tui.golden.bundle import is_stored, pack, read_stored, unpacked, verified
from blis_tui.golden.case import cases_of
from blis_tui.golden.comment import STYLES, comment, write_html
from blis_tui.golden.compare import ComparisonOptions, Tolerance, compare
from blis_tui.golden.determinism import find_broken_invariant, find_nondeterminism, record_run
from blis_tui.golden.golden_store import ACCEPTED, HEADER, RECORDS, REPORT, Baseline, GoldenFiles, files_of
from blis_tui.golden.other_process import OtherProcess
from blis_tui.golden.produce import CHECKS, produce, produce_checked
from blis_tui.golden.produce import digests as run_digests
from blis_tui.golden.project import project_of_experiment, project_of_folder
from blis_tui.golden.review import difference_text, find, look, record_full, survey
from blis_tui.golden.session import GoldenSettings, decide_mode, on_ci, run_case
from tests.golden.projects import SPEC
from tests.golden.test_studies import STUDY
from tests.golden.test_twins import record, server_in, slower
from tests.recorded import Digests, commands, lasting, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.golden.golden_store import Golden
    from blis_tui.model import Experiment

_EXPECTING: Final = (
    "expect:\n  - {metric: requests.completed, equals: 25}\n  - {metric: latency.ttft_ms.p99, max: 500}\n"
)
_SMALL: Final = SPEC.replace("requests: 25", "requests: 12")
_CASES: Final = "cases:\n  calm: {workload.rate_per_s: 5}\n  rush: {workload.rate_per_s: 50}\nmatrix: {seed: [1, 2]}\n"
_CHANGES: Final = {
    "same": SPEC,
    "smaller": SPEC.replace("kv_blocks: 60", "kv_blocks: 40"),
    "later": SPEC.replace("beta: [5000, 20, 30]", "beta: [5000, 20, 31]"),
    "fewer": SPEC.replace("requests: 25", "requests: 20"),
    "expecting": SPEC + _EXPECTING,
    "failing": SPEC + _EXPECTING.replace("max: 500", "max: 1"),
    "known": SPEC + _EXPECTING.replace("max: 500", "max: 1") + "golden: {xfail: [latency.ttft_ms.p99, kv.hits]}\n",
    "held": SPEC + _EXPECTING + "golden: {xfail: [latency.ttft_ms.p99]}\n",
    "tolerant": SPEC.replace("20, 30]", "20, 31]")
    + "golden: {records: false, tolerance: {/duration_us: {rel: 0.1}}}\n",
    "described": SPEC.replace("{name: demo}", "{name: demo, description: More.}"),
    "broken": SPEC.replace("kv_blocks", "kv_block"),
}
"""What an experiment may become after its golden was made."""
_MODES: Final = ("no", "new", "unseen", "always")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project to work in, not on CI."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nblis_checks = observers\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def _lasting(text: object, folder: Path) -> str:
    """What is the same on any machine."""
    here = Baseline.here()
    plain = text if isinstance(text, str) else repr(text)
    plain = plain.replace("PosixPath(", "Path(").replace("WindowsPath(", "Path(")
    return lasting(plain, folder).replace(here.python, "PYTHON").replace(here.system, "SYSTEM")


def _run(folder: Path, text: str, settings: GoldenSettings, name: str = "demo.blis.yaml") -> list[object]:
    """Run the golden tests of a file as pytest does; returns what comes of each."""
    spec = folder / name
    spec.write_text(text, encoding="utf-8")
    found: list[object] = []
    cases = outcome(cases_of, spec)
    if isinstance(cases, str):
        return [cases]
    for case in cases:
        files = files_of(spec, case.name, folder=folder / "golden", root=folder)
        found += [replace(case, plugins=None), outcome(run_case, case, files, name, settings)]
    return found


def _kept(folder: Path, text: str, name: str = "demo.blis.yaml") -> None:
    _run(folder, text, GoldenSettings(mode="unseen", checks=()), name)


def _waiting(folder: Path, text: str, name: str = "demo.blis.yaml") -> None:
    _run(folder, text, GoldenSettings(mode="new", checks=()), name)


def _record_state(folder: Path, digests: Digests, kind: str) -> None:
    """Take what lists, differences and comments say of all goldens, and the files."""
    for entry in survey(folder / "golden", folder):
        digests.add(f"{kind}: list", _lasting((entry.state, entry.waiting, entry.to_dict()), folder))
        digests.add(f"{kind}: difference", _lasting(outcome(difference_text, entry.files, folder), folder))
    for style in STYLES.values():
        digests.add(f"{kind}: comment", _lasting(outcome(comment, folder / "golden", folder, (), None, style), folder))
    for file in sorted(path for path in (folder / "golden").rglob("*.json*") if path.suffix != ".gz"):
        digests.add(f"{kind}: files", file.name, _lasting(file.read_text(encoding="utf-8"), folder))


@pytest.mark.parametrize("mode", _MODES)
def test_outcomes(mode: str, here: Path, file_regression: FileRegressionFixture) -> None:
    """What is said and written of an experiment that has changed, or not, in each mode."""
    digests = Digests()
    settings = GoldenSettings(mode=mode, checks=("observers", "checkpoint"))
    digests.add("unseen", *(_lasting(one, here) for one in _run(here, SPEC, settings)))
    _kept(here, SPEC)
    copytree(here, here / "kept")
    for number, (kind, text) in enumerate(_CHANGES.items()):
        folder = copytree(here / "kept", here / f"{number}")
        digests.add(kind, *(_lasting(one, here) for one in _run(folder, text, settings)))
        if mode == "new":
            _record_state(folder, digests, kind)
    digests.check(file_regression)


def _damaged(golden: Path) -> dict[str, tuple[Path, str]]:
    """Ways in which a golden may be damaged: the file, and what is in it then."""
    header, report = golden / f"demo{HEADER}", golden / f"demo{REPORT}"
    head, body = header.read_text(encoding="utf-8"), report.read_text(encoding="utf-8")
    return {
        "torn": (header, head[:200]),
        "no map": (header, "[]"),
        "newer": (header, head.replace('"format": 1', '"format": 2')),
        "numbers": (header, head.replace('"records": {', '"records": 3, "other": {')),
        "edited": (report, body.replace('"completed": 25', '"completed": 24')),
        "reformatted": (report, json.dumps(json.loads(body))),
        "merged": (report, f"<<<<<<< here\n{body}=======\n{body}>>>>>>> there\n"),
        "of another": (header, head.replace('"engine": "1"', '"engine": "2"')),
        "elsewhere": (header, head.replace(Baseline.here().system, "Plan9 vax")),
        "not finite": (report, body.replace("25", "NaN", 1)),
        "windows": (report, body.replace("\n", "\r\n")),
    }


def test_damaged(here: Path, file_regression: FileRegressionFixture) -> None:
    """Each damage to a golden, in each mode, with and without force."""
    digests = Digests()
    _kept(here, _SMALL)
    copytree(here, here / "kept")
    for number, (kind, (file, text)) in enumerate(_damaged(here / "golden").items()):
        folder = copytree(here / "kept", here / f"{number}")
        (folder / file.relative_to(here)).write_text(text, encoding="utf-8", newline="")
        for mode, force in (("no", False), ("new", False), ("always", False), ("always", True)):
            settings = GoldenSettings(mode=mode, checks=(), force=force)
            changed = _SMALL.replace("kv_blocks: 60", "kv_blocks: 50")
            digests.add(kind, *(_lasting(one, here) for one in _run(folder, changed, settings)))
            digests.add(
                f"{kind}: look",
                *(_lasting(look(golden_files, folder), here) for golden_files in find(folder / "golden")),
            )
    digests.check(file_regression)


_LINES: Final = (
    *(f"golden status --format {style}" for style in ("table", "json", "diff", "markdown", "github", "gitlab")),
    "golden status alpha --format diff",
    "golden status nobody",
    "golden review",
    "golden review --accept --reject",
    "golden review gamma",
    "golden review --accept beta@calm+seed=1",
    "golden review --reject beta@calm*",
    "golden record",
    "golden record gone",
    "golden record gamma",
    "golden review --accept alpha",
    "golden review --accept --force",
    "golden status",
    "golden status --golden-dir elsewhere --root .",
    "golden review --root alone",
)


def test_commands(here: Path, file_regression: FileRegressionFixture) -> None:
    """A project with a golden test in each state, through all commands."""
    digests = Digests()
    _kept(here, _SMALL, "alpha.blis.yaml")
    _waiting(here, _SMALL.replace("kv_blocks: 60", "kv_blocks: 40"), "alpha.blis.yaml")
    _waiting(here, _SMALL + _CASES, "beta.blis.yaml")
    for name in ("gamma", "gone", "torn", "wrong", "delta"):
        _kept(here, _SMALL, f"{name}.blis.yaml")
    (here / "gone.blis.yaml").unlink()
    (here / "golden" / f"torn{HEADER}").write_text("{", encoding="utf-8")
    (here / "wrong.blis.yaml").write_text(_SMALL.replace("kv_blocks", "kv_block"), encoding="utf-8")
    (here / "delta.blis.yaml").write_text(_SMALL.replace("kv_blocks: 60", "kv_blocks: 40"), encoding="utf-8")
    (here / "alone").mkdir()
    (here / "alone" / "pytest.ini").write_text("[pytest]\nblis_golden_dir = kept\n", encoding="utf-8")
    for number, line in enumerate(_LINES):
        commands(digests, here, line, kind=f"{number} {line}")
    _record_state(here, digests, "in the end")
    digests.check(file_regression)


def test_divergences(here: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Where results part, by what is left of the golden run: all of it, its records, or digests alone."""
    digests = Digests()
    _kept(here, _SMALL)
    (case,) = cases_of(here / "demo.blis.yaml")
    old = files_of(here / "demo.blis.yaml", case.name, folder=here / "golden", root=here)
    for kind, setting in _PARTING.items():
        _waiting(here, _SMALL.replace(*setting))
        digests.add(f"{kind}: whole", _lasting(outcome(difference_text, old, here), here))
        with monkeypatch.context() as patch:
            patch.setattr("blis_tui.golden.golden_divergence.old_experiment", lambda *_: None)
            digests.add(f"{kind}: digests", _lasting(outcome(difference_text, old, here), here))
    digests.check(file_regression)


_PARTING: Final = {
    "capacity": ("kv_blocks: 60", "kv_blocks: 20"),
    "speed": ("beta: [5000, 20, 30]", "beta: [5000, 20, 31]"),
    "fewer": ("requests: 12", "requests: 11"),
    "more": ("requests: 12", "requests: 14"),
    "policy": ("policy: blis", "policy: sjf"),
}


def test_tolerance(here: Path, file_regression: FileRegressionFixture) -> None:
    """Which differences count, by bounds that are kept or not, and with values that are not compared."""
    digests = Digests()
    golden, other = (_produced(here, text) for text in (_SMALL, _SMALL.replace("20, 30]", "20, 33]")))
    bounds = (Tolerance(), Tolerance(rel=0.5), Tolerance(abs=1.0), Tolerance(rel=0.001, abs=1e9))
    pointers = ("/duration_us", "/latency/ttft_ms/p99", "/requests/completed", "/nothing")
    hidden = ((), ("/latency", "/expectations"), ("/latency/ttft_ms/p99", "/duration_us"), ("/meta/seed", "/a/b/0"))
    for number, (bound, pointer) in enumerate(product(bounds, pointers)):
        redact = hidden[number // 4 - number % 4]
        options = ComparisonOptions(records=number % 3 == 0, tolerance={pointer: bound}, redact=redact)
        digests.add("changed", *(_lasting(compare(golden, one, options), here) for one in (other, golden)))
    digests.check(file_regression)


def _produced(folder: Path, text: str) -> Golden:
    spec = folder / "demo.blis.yaml"
    spec.write_text(text, encoding="utf-8")
    return produce(cases_of(spec)[0].load(), spec=spec.name, case="default")


def test_studies(here: Path, file_regression: FileRegressionFixture) -> None:
    """The answers of a study that changes, and of one whose experiment does."""
    digests = Digests()
    (here / "demo.blis.yaml").write_text(_SMALL, encoding="utf-8")
    _kept(here, STUDY, "sizes.study.yaml")
    small = _SMALL.replace("kv_blocks: 60", "kv_blocks: 40")
    for kind, study, text in (
        ("tighter", STUDY.replace("max: 300", "max: 20"), _SMALL),
        ("other runs", STUDY.replace("[2, 256]", "[2, 4]"), _SMALL),
        ("experiment", STUDY, small),
        ("invalid", STUDY.replace("[1, 2]", "[0, 2]"), _SMALL),
    ):
        (here / "demo.blis.yaml").write_text(text, encoding="utf-8")
        settings = GoldenSettings(mode="new", checks=("observers",))
        digests.add(kind, *(_lasting(one, here) for one in _run(here, study, settings, "sizes.study.yaml")))
        _record_state(here, digests, kind)
    digests.check(file_regression)


def test_twins(here: Path, file_regression: FileRegressionFixture) -> None:
    """A recording that is kept, and servers and simulations that have changed since."""
    digests = Digests()
    spec = server_in(here, twin={"steps": "fitted"})
    record(spec, workload__requests=15)
    _kept(here, spec.read_text(encoding="utf-8"), spec.name)
    kept = spec.read_text(encoding="utf-8")
    for kind, changes, text in (
        ("slower", {"latency__beta": slower(1.3)}, kept),
        ("smaller", {"engine__kv_blocks": 40}, kept),
        ("tolerant", {}, kept.replace('"steps": "fitted"', '"steps": "fitted", "tolerance": {"rel": 0.9}')),
        ("measured", {}, kept.replace('"fitted"', '"measured"')),
        ("simulation", {}, kept.replace('"kv_blocks": 110', '"kv_blocks": 60')),
    ):
        record(spec, workload__requests=15, **changes)
        settings = GoldenSettings(mode="new", checks=("observers",))
        digests.add(kind, *(_lasting(one, here) for one in _run(here, text, settings, spec.name)))
        _record_state(here, digests, kind)
    digests.check(file_regression)


_PACKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("demo.blis.yaml", {}),
    ("demo.blis.yaml", {"overrides": ["engine.kv_blocks=70"], "seed": 5, "at": "1.2s", "breaks": ["preempted"]}),
    ("trace-replay", {"overrides": ["workload.requests=20"]}),
    ("nothing", {}),
)


def test_bundles(here: Path, file_regression: FileRegressionFixture) -> None:
    """What a bundle holds and says, and how it differs where it was edited."""
    digests = Digests()
    (here / "demo.blis.yaml").write_text(_SMALL, encoding="utf-8")
    for number, (source, named) in enumerate(_PACKED):
        target = f"run{number}.blis"
        digests.add("packed", _lasting(outcome(pack, target, source, **named), here))
        if not (here / target).exists():
            continue
        with unpacked(target) as bundle:
            contents = (bundle.at, bundle.breaks, bundle.case.name, bundle.golden.header(), verified(bundle))
            digests.add("unpacked", _lasting(repr(contents), here))
            for file in sorted(path for path in bundle.spec.parent.rglob("*") if path.is_file()):
                digests.add("files", file.name, _lasting(file.read_text(encoding="utf-8"), here))
            older = bundle.golden.header().replace('"engine": "1"', '"engine": "0"')
            changed = bundle.spec.read_text(encoding="utf-8").replace("kv_blocks: 60", "kv_blocks: 40")
            bundle.spec.write_text(changed, encoding="utf-8")
            digests.add("changed", _lasting(outcome(verified, bundle), here), _lasting(older, here))
    digests.check(file_regression)


def test_projects(here: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """Folders of goldens by each way to configure pytest, seen from the project, below it, and elsewhere."""
    digests = Digests()
    settings = "blis_spec_root = specs\nblis_golden_dir = kept\nblis_plugins = own.py package"
    table = 'blis_spec_root = "specs"\nblis_golden_dir = "kept"\nblis_plugins = ["own.py", "package"]'
    for name, text in (
        ("pytest.ini", f"[pytest]\n{settings}"),
        ("tox.ini", f"[pytest]\n{settings}"),
        ("setup.cfg", f"[tool:pytest]\n{settings}"),
        ("pyproject.toml", f"[tool.pytest.ini_options]\n{table}"),
        ("pyproject.toml", f"[tool.pytest]\n{table}"),
        ("pyproject.toml", "[tool.other]"),
        ("pyproject.toml", "[tool"),
        ("tox.ini", "[other]"),
        ("pytest.ini", ""),
        ("pytest.ini", "pytest"),
    ):
        folder = here / f"{len(list(here.iterdir()))}"
        (folder / "specs" / "deep").mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
        spec = folder / "specs" / "deep" / "a.blis.yaml"
        for place in (folder, spec.parent, here):
            monkeypatch.chdir(place)
            found = [outcome(project_of_experiment, spec), outcome(project_of_folder, spec.parent)]
            digests.add(name, *(_lasting(one, here) for one in found))
            for project in (one for one in found if not isinstance(one, str)):
                commands_of = (project.options(), project.review_command(), outcome(project.files, spec, "calm"))
                digests.add(f"{name}: commands", _lasting(commands_of, here))
    for ci in ("", "0", "false", "No", "1", "true"):
        monkeypatch.setenv("CI", ci)
        digests.add("modes", *(decide_mode(mode, ci=on_ci()) for mode in ("auto", *_MODES)))
    digests.check(file_regression)


_POLICIES: Final = """\
import random
from blis_tui.plugins import ROUTING, SCHEDULING, SCORING, FcfsQueue
CALLS = [0]

class Base:
    rule = ""
    def __init__(self, settings):
        self.turn = 0
    def state(self):
        return ()

@ROUTING.plugin("good", "For tests.")
class Good(Base):
    def choose(self, request, fleet, context):
        self.turn += 1
        return self.turn % 3, ""
    def state(self):
        return (self.turn,)

@ROUTING.plugin("hidden", "For tests.")
class Hidden(Base):
    def choose(self, request, fleet, context):
        self.turn += 1
        return self.turn % 3, ""

@ROUTING.plugin("counting", "For tests.")
class Counting(Base):
    def choose(self, request, fleet, context):
        CALLS[0] += 1
        return CALLS[0] // 3 % 3, ""

@SCORING.plugin("asked", "For tests.")
class Asked(Base):
    weight = 1.0
    def scores(self, request, fleet):
        self.turn += 1
        return [1.0] * len(fleet)
    def routed(self, request, fleet, place):
        pass
    def state(self):
        return (self.turn,)

@SCHEDULING.plugin("queue", "For tests.")
class Queue(FcfsQueue):
    def __init__(self, settings):
        super().__init__()
        self.asked = 0
    def state(self):
        return (self.asked,)
    def head(self):
        self.asked += 1
        return super().head()
"""


class _ThisProcess:
    """Stands for another process, whose hash seed makes no difference to these policies."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, function: str, experiment: Experiment) -> object:
        """What the other process would answer."""
        assert function.endswith(":record_run")
        return record_run(experiment)


def test_determinism(here: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    """What is said of policies that keep their promises, and of those that break one each."""
    monkeypatch.setattr(determinism, "OtherProcess", _ThisProcess)
    digests = Digests()
    (here / "own.py").write_text(_POLICIES, encoding="utf-8")
    for key, value in (
        *(("policy.routing", name) for name in ("good", "hidden", "counting")),
        ("policy.routing", {"kind": "weighted", "scorers": [{"kind": "asked"}]}),
        ("policy.scheduling", "queue"),
    ):
        settings = {"workload.requests": 12, "cluster.instances": 3, key: value}
        experiment = blis_tui.load("quickstart", set=settings, plugins=[here / "own.py"])
        digests.add(
            f"{key}: {value}", _lasting(find_nondeterminism(experiment), here), find_broken_invariant(experiment)
        )
    digests.check(file_regression)


def test_engines(here: Path, file_regression: FileRegressionFixture) -> None:
    """Goldens of other engines, of results that are the same and that are not, and those whose text alone differs."""
    digests = Digests()
    for number, (engine, text) in enumerate(product(("0", "2", "x"), (_SMALL, _SMALL.replace("20, 30]", "20, 31]")))):
        folder = here / f"{number}"
        folder.mkdir()
        _kept(folder, _SMALL)
        for kind in (HEADER, REPORT):
            path = folder / "golden" / f"demo{kind}"
            old = path.read_text(encoding="utf-8").replace('"engine": "1"', f'"engine": "{engine}"')
            path.write_text(old, encoding="utf-8")
        _waiting(folder, text)
        _record_state(folder, digests, f"engine {engine}")
    digests.check(file_regression)


def test_cases(here: Path, file_regression: FileRegressionFixture) -> None:
    """The tests in a file, with all that it may say of them, right and wrong; and how they are named."""
    digests = Digests()
    spec = here / "demo.blis.yaml"
    twins = "twins: [{name: a, recording: r}, {name: b, recording: r, steps: fitted, tolerance: {rel: 0.5, abs: 2}}]\n"
    golden = "golden: {records: false, redact: [/latency], tolerance: {/duration_us: {abs: 3, rel: 0.25}}}\n"
    for text in (
        _SMALL + _CASES + twins + golden + "tags: [fast]\n",
        _SMALL + twins.replace("name: b", "name: a"),
        _SMALL + golden.replace("/latency", "/latenc") + "skip: later\n",
        _SMALL + golden.replace("/duration_us", "/requests/complete~1d") + "xfail: known\n",
        _SMALL + golden.replace("/duration_us", "/latency/ttft_ms/p9~0"),
        STUDY,
        "kind: Policy\n",
        "[]",
    ):
        spec.write_text(text, encoding="utf-8")
        cases = outcome(cases_of, spec)
        for one in [cases] if isinstance(cases, str) else cases:
            digests.add("cases", _lasting(one, here))
            if not isinstance(one, str):
                digests.add("named", one.what, one.is_run, _lasting(outcome(one.load), here))
    (here / "demo@calm.blis.yaml").write_text(_SMALL, encoding="utf-8")
    digests.add("cases", _lasting(outcome(cases_of, here / "demo@calm.blis.yaml"), here))
    _kept(here, _SMALL + _CASES)
    for pattern in ("demo*", "demo.blis.yaml", "./*.yaml::calm*", "demo@calm,seed=1", "other", "*.yml", "d/emo"):
        digests.add("found", *(_lasting(golden_files, here) for golden_files in find(here / "golden", [pattern])))
    digests.check(file_regression)


def test_stored(here: Path, file_regression: FileRegressionFixture) -> None:
    """Stored results as others read them, record streams, a golden that was half written, and the page of a run."""
    digests = Digests()
    _kept(here, _SMALL)
    files = GoldenFiles(here / "golden", "demo")
    golden = files.read()
    pack("run.blis", "demo.blis.yaml")
    for source in (f"golden/demo{REPORT}", f"golden/demo{HEADER}", "run.blis", "demo.blis.yaml", "none.json"):
        digests.add("read", is_stored(source), _lasting(outcome(read_stored, source), here))
    files.write_records(iter(["one\n"]))
    digests.add("records", files.read_records(golden))
    record_full(files, here)
    digests.add("records", len(list(files.read_records(golden) or ())), files.file(RECORDS).is_file())
    _waiting(here, _SMALL.replace("kv_blocks: 60", "kv_blocks: 40"))
    digests.add("records", _lasting(outcome(difference_text, files, here), here))
    half = {HEADER: golden.header(), REPORT: golden.report}
    for text in (to_json(half), "{", "{}", to_json({HEADER: golden.header()})):
        files.file(ACCEPTED).write_text(text, encoding="utf-8")
        digests.add("half", files.exists(), _lasting(look(files, here), here), _lasting(outcome(files.finish), here))
        digests.add("half", sorted(path.name for path in files.folder.iterdir()))
    files.file(ACCEPTED).unlink()
    files.remove()
    digests.add("removed", sorted(path.name for path in files.folder.iterdir()))
    report = json.loads(golden.report)
    rows: list[dict[str, object]] = [
        {"nodeid": "b", "outcome": "passed", "status": "equal", "report": report},
        {
            "nodeid": "a<",
            "outcome": "failed",
            "status": "changed",
            "text": "why<",
            "report": report | {"latency": {"ttft_ms": {}}},
        },
        {"nodeid": "c", "outcome": "skipped", "report": {"runs": {}}},
    ]
    write_html(here / "page.html", rows)
    digests.add("page", (here / "page.html").read_text(encoding="utf-8"))
    digests.check(file_regression)


_HERE: Final = "tests.golden.test_recorded"


def _fails(_experiment: Experiment) -> object:
    raise ValueError("nothing")


def _refuses(_experiment: Experiment) -> object:
    raise InputError("not here", help="go there")


def _ends(_experiment: Experiment) -> object:
    os._exit(3)


def test_another_process(here: Path, file_regression: FileRegressionFixture) -> None:
    """What another process says of a run: the same, an error of each kind, and its own end."""
    digests = Digests()
    (here / "demo.blis.yaml").write_text(_SMALL, encoding="utf-8")
    experiment = cases_of(here / "demo.blis.yaml")[0].load()
    with OtherProcess() as other:
        for function in ("blis_tui.golden.produce:digests", *(f"{_HERE}:{one}" for one in ("_fails", "_refuses"))):
            digests.add(function, outcome(other.call, function, experiment))
        digests.add("ends", outcome(other.call, f"{_HERE}:_ends", experiment))
        result, trouble = produce_checked(experiment, spec="demo", case="default", checks=CHECKS, other=other)
        digests.add("checked", trouble, run_digests(experiment))
        again = produce_checked(
            experiment,
            spec="demo",
            case="default",
            checks=CHECKS,
            other=other,
            is_known=lambda golden: golden == result,
        )
        digests.add("checked", again[1])
    digests.check(file_regression)
