"""Every plug point: plug-ins of each are known, followed, told and blamed alike."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

import blis_tui
import blis_tui.cluster
import blis_tui.engine
import blis_tui.plugins
import blis_tui.workload
from blis_tui import model
from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.golden.produce import produce
from blis_tui.model import Experiment, PluginConfig
from blis_tui.model.plug_ins import plugins_in
from blis_tui.spec.authoring.glossary import REPRODUCING_BLIS, WORDS
from blis_tui.spec.load import load
from blis_tui.spec.plug_points import BY_PATH, POINTS
from blis_tui.spec.shipped import SHIPPED, builtin
from blis_tui.spec.subjects import subjects
from blis_tui.spec.user_plugins import load_plugins
from blis_tui.study.task import key_of

if TYPE_CHECKING:
    from blis_tui.model.keys import Key
    from blis_tui.spec.plug_points import PlugPointRow

HERE: Final = Path(__file__).parent
ONE_OF_EACH: Final = HERE / "one_of_each.py"
DECIDES: Final = {
    "policy.admission": 'return ""',
    "policy.routing": 'return len(fleet) - 1, "the last"',
    "policy.routing.scorers": "return [1 / (1 + value) for value in values]",
    "policy.gateway.saturation": 'return max(fleet.column("in_flight")) / 4',
    "cluster.disaggregation.decider": 'return True, "every request"',
    "cluster.autoscaler.rule": 'return (group.running + group.waiting + group.outside) // 3, "by requests"',
    "policy.scheduling": "return -request.input_tokens",
    "policy.priority": "return request.input_tokens",
    "policy.batching": "return super().plan(batch)",
    "policy.preemption.victim": "return next(reversed((seats.finishing or seats.running).values()))",
    "policy.preemption.restore": "return costs.swap_us < costs.recompute_us",
    "latency": "return 1000 * max(len(load.chunks) + load.decode_requests, 1)",
    "workload.clients.arrivals": "return self._gap_us",
    "workload.clients.lengths": "return 80",
    "workload.clients.reasoning.ratio": "return 0.5",
    "workload.trace.format": "arrivals, prompts, answers = zip(*rows, strict=True)",
}
"""The line of the script where the plug-in of a plug point decides something."""

every_point = pytest.mark.parametrize("row", POINTS, ids=lambda row: row.point.path)


def script(folder: Path, text: str, name: str = "mine.py") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def naming(row: PlugPointRow, folder: Path) -> list[str]:
    """What makes an experiment name the plug-in that a plug point has in the script."""
    if row.changes:
        return [*row.naming("mine"), "workload.requests=40"]
    rows = script(folder, "0 100 10\n20 300 5\n30 200 7\n", "mine.txt")
    head = "apiVersion: blis/v1, kind: Workload, metadata: {name: mine}"
    return [f"workload={{{head}, trace: {{file: {rows}, format: mine}}}}", "expect=[]"]


def loaded(row: PlugPointRow, plugins: str, folder: Path) -> Experiment:
    return load(row.experiment, overrides=naming(row, folder), plugins=load_plugins([plugins]))


def run_in(folder: Path, row: PlugPointRow, plugins: str, *command: str) -> tuple[int, str, str]:
    sets = [word for change in naming(row, folder) for word in ("--set", change)]
    result = CliRunner().invoke(cli, [*command, row.experiment, *sets, "--plugins", plugins])
    return result.exit_code, result.stdout, result.stderr


# ---- the table ----


def test_the_index_is_what_the_modules_mark() -> None:
    found: dict[str, dict[str, str]] = {path: {} for path in SHIPPED}
    for package in (blis_tui.cluster, blis_tui.engine, blis_tui.workload):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for plugin in plugins_in([importlib.import_module(info.name)]):
                found[plugin.path][plugin.name] = plugin.module
    assert found == SHIPPED, "make docs"


def test_what_is_for_comparing_with_blis_alone_comes_last_and_has_its_chapter() -> None:
    """Of documents, of ``explain`` and of lists: nothing of it stands in front."""
    ours = {plugin.name for plugin in builtin().plugins if plugin.of_blis}
    assert ours >= {"blackbox", "crossmodel", "trained-roofline", "gaie-legacy", "always-busiest", "inverted-slo"}
    for path, names in SHIPPED.items():
        flags = [builtin().find(path, name).of_blis for name in names]
        assert flags == sorted(flags), path
    (term,) = (word for word in WORDS if word.name == REPRODUCING_BLIS)
    assert set(term.also) == ours
    chapter_of_it, itself = subjects("gaie-legacy")
    assert all(f": {name}\n" in chapter_of_it.text for name in ours)
    assert itself.text.startswith("gaie-legacy: a value of `policy.admission`\n")
    docs = Path(__file__).parents[2] / "docs"
    chapter, front = ((docs / name).read_text(encoding="utf-8") for name in ("blis.md", "index.md"))
    assert [name for name in ours if f"`{name}`" not in chapter or f"`{name}`" in front] == []


def test_there_is_a_row_for_whatever_ships() -> None:
    assert BY_PATH.keys() == SHIPPED.keys() == DECIDES.keys()


def test_every_record_that_holds_a_plug_in_says_of_which_plug_point() -> None:
    points = set()
    for record in map(vars(model).__getitem__, model.__all__):
        if isinstance(record, type) and dataclasses.is_dataclass(record) and record is not PluginConfig:
            for field in dataclasses.fields(record):
                key: Key | None = field.metadata.get("key")
                point = "" if key is None else key.point
                assert bool(point) >= ("PluginConfig" in str(field.type)), (record, field.name)
                points.add(point)
    assert points - {""} == BY_PATH.keys() - {"policy.routing.scorers"}  # those are settings of another plug-in


def test_finding_one_imports_no_other() -> None:
    program = """
import sys
from blis_tui.spec.shipped import SHIPPED, builtin
there = lambda: {name for names in SHIPPED.values() for name in names.values() if name in sys.modules}
assert not there(), there()
assert builtin().find("policy.routing", "round-robin").name == "round-robin"
assert there() == {"blis_tui.cluster.policies.routing"}, there()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_authors_find_every_type_of_every_protocol() -> None:
    for row in POINTS:
        source = inspect.getsource(row.point.protocol)
        words = set(re.findall(r"\b[A-Z]\w+", re.sub(r'"""(.|\n)*?"""', "", source))) - {
            "Protocol",
            "Sequence",
            "None",
            "True",
        }
        assert words - {"Collection"} <= vars(blis_tui.plugins).keys(), row.point.path


# ---- each of them ----


@every_point
def test_a_changed_script_is_another_run(row: PlugPointRow, tmp_path: Path) -> None:
    text = ONE_OF_EACH.read_text(encoding="utf-8")
    old, new = (
        loaded(row, script(tmp_path / name, text + more), tmp_path) for name, more in (("old", ""), ("new", "\n"))
    )
    for experiment in (old, new):
        assert [(plugin.path, plugin.name) for plugin in experiment.plugins_used()] == [(row.point.path, "mine")]
    assert old.sha256 == new.sha256
    assert key_of(old) != key_of(new)
    versions = [produce(one, spec="x", case="default").plugins[0]["version"] for one in (old, new)]
    assert versions[0] != versions[1]
    checkpoint = blis_tui.Simulation(old).checkpoint()
    blis_tui.Simulation(old).restore(checkpoint)
    with pytest.raises(InputError, match="not a checkpoint of this experiment"):
        blis_tui.Simulation(new).restore(checkpoint)


@every_point
@pytest.mark.parametrize("raised", ["1 / 0", "raise SystemExit(0)"])
def test_one_that_raises_is_one_error_with_its_place(row: PlugPointRow, raised: str, tmp_path: Path) -> None:
    text = ONE_OF_EACH.read_text(encoding="utf-8")
    lines = text[: text.index(DECIDES[row.point.path])].count("\n") + 1
    broken = script(tmp_path, text.replace(DECIDES[row.point.path], raised))
    code, out, err = run_in(tmp_path, row, broken, "run")
    assert out == ""
    assert f"  = help: it happens at {broken}:{lines} in `" in err
    assert ("ZeroDivisionError" if raised == "1 / 0" else "SystemExit") in err
    assert [line[:5] for line in err.splitlines() if not line.startswith("note:")][-2:] == ["error", "  = h"]
    assert "Traceback" not in err
    assert code == (4 if row.changes else 2)  # a trace is read before anything runs


@every_point
def test_checking_it_runs_an_experiment_that_names_it(
    row: PlugPointRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Experiment] = []

    def note(experiment: Experiment) -> str:
        asked.append(experiment)
        return ""

    for check in ("find_nondeterminism", "find_broken_invariant"):  # run once, for all of them together, below
        monkeypatch.setattr(f"blis_tui.golden.determinism.{check}", note)
    text = ONE_OF_EACH.read_text(encoding="utf-8")
    alone = re.sub(rf"^@(?!{mark_of(row)}\b)[A-Z]+\.plugin\(.*$\n", "", text, flags=re.MULTILINE)
    sets = [] if row.changes else [word for change in naming(row, tmp_path) for word in ("--set", change)]
    command = ["check", script(tmp_path, alone)]
    result = CliRunner().invoke(cli, [*command, *sets])
    assert (result.exit_code, result.stdout) == (0, f"{row.point.path} mine: ok\n")
    experiment, again = asked
    assert experiment is again
    assert [plugin.path for plugin in experiment.plugins_used()] == [row.point.path]
    if not row.changes:
        without = CliRunner().invoke(cli, command)
        assert without.exit_code == 2
        assert "choose an --experiment whose `workload.trace.format` does" in without.stderr


def mark_of(row: PlugPointRow) -> str:
    return next(name for name, var in vars(blis_tui.plugins).items() if var is row.point)


def test_what_fails_outside_of_a_simulation_is_told_alike(tmp_path: Path) -> None:
    decides = DECIDES["workload.clients.lengths"]
    text = ONE_OF_EACH.read_text(encoding="utf-8")
    broken = script(tmp_path, text.replace(decides, "raise OSError('no more')"))
    line = text[: text.index(decides)].count("\n") + 1
    change = "workload.clients.0.input_tokens={kind: mine}"
    described = CliRunner().invoke(cli, ["workload", "describe", "quickstart", "--set", change, "--plugins", broken])
    message = f"error: OSError: no more\n  = help: it happens at {broken}:{line} in `Lengths.sample`\n"
    assert (described.exit_code, described.stdout, described.stderr) == (4, "", message)


def test_what_fails_in_another_process_alone_is_told_without_a_traceback(tmp_path: Path) -> None:
    text = ONE_OF_EACH.read_text(encoding="utf-8")
    here = f"if __import__('os').getpid() != {os.getpid()}: 1 / 0"
    broken = script(tmp_path, text.replace("        del settings\n", f"        {here}\n", 1))
    row = BY_PATH["policy.admission"]
    sets = [word for change in naming(row, tmp_path) for word in ("--set", change)]
    result = CliRunner().invoke(cli, ["check", broken, "--experiment", row.experiment, *sets])
    assert result.exit_code == 4
    assert result.stdout.splitlines()[0] == "policy.admission mine: fails"
    assert "FAIL  in another process, with another hash seed: the admission policy `mine`" in result.stderr
    assert "Traceback" not in result.stderr


SESSION: Final = {"turns": 2, "calls": [{"id": "a", "input_tokens": {"kind": "mine"}}]}
PLACES: Final = {
    "cluster.disaggregation.prefill_routing": ("policy.routing", "mine"),
    "cluster.disaggregation.decode_routing": ("policy.routing", "mine"),
    "cluster.pools": ("latency", [{"name": "p", "instances": 4, "latency": {"kind": "mine"}}]),
    "workload.clients.1.arrivals": ("workload.clients.arrivals", "mine"),
    "workload.clients.1.session": ("workload.clients.lengths", SESSION),
    "workload.clients.0.multimodal.images": ("workload.clients.lengths", {"count": 1, "tokens": {"kind": "mine"}}),
    "workload.clients.1.reasoning": ("workload.clients.reasoning.ratio", {"ratio": {"kind": "mine"}}),
}
"""Keys that name plug-ins elsewhere than the plug point is called after: which plug-ins, and what is said there."""


@pytest.mark.parametrize("path", PLACES)
def test_it_is_found_wherever_it_is_named(path: str) -> None:
    point, value = PLACES[path]
    pools = {"cluster.disaggregation": {"prefill_instances": 2, "decode_instances": 2}} if "pools" not in path else {}
    known = load_plugins([ONE_OF_EACH])
    experiment = load(
        "mixed-fleet" if "pools" in path else "disaggregation", overrides={**pools, path: value}, plugins=known
    )
    assert [plugin.path for plugin in experiment.plugins_used()] == [point]


# ---- all of them together ----

TOGETHER: Final = [
    *(change for row in POINTS if row.point.path != "policy.routing" for change in row.naming("mine")),
    "cluster.disaggregation.prefill_routing=mine",
    "workload.clients.0.reasoning={ratio: {kind: mine}}",
    "workload.requests=40",
    "engine.kv_blocks=2000",
]


def test_all_of_them_pass_the_check_together() -> None:
    sets = [word for change in TOGETHER for word in ("--set", change)]
    result = CliRunner().invoke(cli, ["check", str(ONE_OF_EACH), "--experiment", "disaggregation", *sets])
    assert result.exit_code == 0, result.output
    lines = [f"{path} mine: ok" for path in sorted(BY_PATH.keys() - {"workload.trace.format"})]
    left = "workload.trace.format mine: not checked: the experiment does not name it"
    assert result.stdout.splitlines() == [*lines, left]


def test_changed_sources_of_a_package_are_another_run_whatever_its_version(site: Path) -> None:
    program = """
from blis_tui.spec.load import load
from blis_tui.study.task import key_of
from blis_tui.spec.subjects import subjects
from blis_tui.spec.user_plugins import load_plugins
print(key_of(load("quickstart", overrides=["policy.routing=fewest-in-flight"], plugins=load_plugins(["blis-example"]))))
"""

    def key() -> str:
        return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    first = key()
    assert key() == first
    module = site / "blis_example" / "routing.py"
    module.write_text(module.read_text() + "\n# another\n")
    second = key()
    (site / "blis_example" / "helper.py").write_text("which = 'imported by others'\n")
    assert len({first, second, key()}) == 3
