"""Policies of users: from a script or a package, through everything that uses policies."""

from __future__ import annotations

import inspect
import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import InputError, PolicyError, SimulationError, SpecError, StalledError
from blis_tui.cli.main import cli
from blis_tui.engine.records import Routed
from blis_tui.golden.produce import CHECKS, produce, produce_checked
from blis_tui.golden.session import plugin_lines
from blis_tui.spec.plug_points import POINTS
from blis_tui.spec.user_plugins import load_plugins
from docs import make_plugins as plugins_page
from tests.golden.projects import SPEC, blis_in, files, project, pytest_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).parent
SMALL = {"workload.requests": 30, "cluster.instances": 3}
OWN = {**SMALL, "policy.routing": "cache-then-least"}
HEAD = """\
from blis_tui.plugins import ADMISSION, BATCHING, LATENCY, ROUTING, NoSettings, Plan, RunningFirst, setting
from dataclasses import dataclass
"""
BROKEN = (
    HEAD
    + """
@ROUTING.plugin("broken", "For tests.")
class Broken:
    rule = ""
    def __init__(self, settings): {init}
    def choose(self, request, fleet, context): {choose}
    def state(self): return ()
"""
)


def written(folder: Path, text: str) -> str:
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def broken(folder: Path, *, init: str = "pass", choose: str = "return (0, '')") -> str:
    return written(folder, BROKEN.format(init=init, choose=choose))


def run_with(plugins: str, changes: Mapping[str, object]) -> None:
    blis_tui.run(blis_tui.load("quickstart", set={**SMALL, **changes}, plugins=[plugins]))


def test_a_document_alone_imports_nothing(script: str) -> None:
    with pytest.raises(SpecError, match="unknown value `cache-then-least`"):
        blis_tui.load("quickstart", set=OWN)
    assert blis_tui.load("quickstart", set=OWN, plugins=[script]).policy.routing.settings == {
        "cached_token_worth": 0.01
    }
    with pytest.raises(SpecError, match="unknown value `cache-then-least`"):
        blis_tui.load("quickstart", set=OWN)


def test_its_settings_are_checked_like_any(script: str) -> None:
    settings = {"policy.routing": {"kind": "cache-then-least", "cached_token_worth": -1}}
    with pytest.raises(SpecError, match="at least 0"):
        blis_tui.load("quickstart", set=settings, plugins=[script])
    with pytest.raises(SpecError, match="did you mean `cache-then-least`"):
        blis_tui.load("quickstart", set={"policy.routing": "cache-then-leas"}, plugins=[script])


def test_the_script_routes_to_the_least_loaded(script: str) -> None:
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=OWN, plugins=[script]), check="all")
    reasons: list[Routed] = []
    simulation.subscribe(Routed, reasons.append)
    simulation.run()
    assert {reason.instance for reason in reasons} == {0, 1, 2}
    assert reasons[0].reason == "score 0.00, 3 alike"
    assert simulation.report().requests.completed == 30


def test_a_prompt_goes_where_its_prefix_is_cached(script: str) -> None:
    changes = {**OWN, "workload.clients.0.prefix": {"group": "system", "tokens": 640}, "workload.rate_per_s": 1}
    report = blis_tui.run(blis_tui.load("quickstart", set=changes, plugins=[script]))
    turns = blis_tui.run(blis_tui.load("quickstart", set={**changes, "policy.routing": "round-robin"}))
    assert report.tokens.cached == 29 * 640 > turns.tokens.cached


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("names", [{"policy.routing": "fewest-in-flight"}, {"policy.batching": "shortest-prefill"}])
def test_a_package_offers_its_policies(names: dict[str, str]) -> None:
    limits = {"engine.max_num_seqs": 4, "engine.max_model_len": 2048}  # its rule splits no prompt
    changes = {**SMALL, "workload.rate_per_s": 300, **limits, **names}
    experiment = blis_tui.load("quickstart", set=changes, plugins=["Blis_Example"])
    (used,) = experiment.plugins_used()
    assert used.origin is not None
    assert (used.origin.name, used.origin.version) == ("blis-example", "0.3")
    simulation = blis_tui.Simulation(experiment, check="all")
    simulation.run()
    assert simulation.report().requests.completed == 30
    result, trouble = produce_checked(experiment, spec="x", case="default", checks=CHECKS)
    assert trouble == ""
    assert result.plugins == (
        {
            "plug_point": next(iter(names)),
            "name": next(iter(names.values())),
            "from": "blis-example",
            "version": "0.3",
        },
    )


@pytest.mark.usefixtures("site")
def test_a_rule_may_admit_somebody_else_than_the_head() -> None:
    limits = {"engine.max_num_seqs": 2, "engine.max_model_len": 2048}
    changes = {**SMALL, "cluster.instances": 1, "workload.rate_per_s": 1000, **limits}
    experiment = blis_tui.load(
        "quickstart", set={**changes, "policy.batching": "shortest-prefill"}, plugins=["blis-example"]
    )
    simulation = blis_tui.Simulation(experiment, check="all")
    order: list[str] = []
    simulation.subscribe("scheduled", lambda record: order.append(record.request_id))
    simulation.run()
    assert len(order) == 30
    assert order != sorted(order, key=lambda name: int(name.removeprefix("request_")))


@pytest.mark.parametrize(
    ("choose", "answer"),
    [
        ("return (3, 'beyond')", r"answers \(3, 'beyond'\)"),
        ("return (-1, 'before')", r"answers \(-1, 'before'\)"),
        ("return 0", "answers 0 for"),
        ("return (0.0, '')", r"answers \(0\.0, ''\)"),
    ],
)
def test_an_impossible_choice_is_an_error_of_the_policy(choose: str, answer: str, tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=f"the routing policy `broken` {answer}") as caught:
        run_with(broken(tmp_path, choose=choose), {"policy.routing": "broken"})
    assert caught.value.help == "`choose` returns a place in the fleet, 0 to 2, and a reason"


def test_an_exception_in_a_policy_names_its_line(tmp_path: Path) -> None:
    name = broken(tmp_path, choose="return fleet[99], ''")
    with pytest.raises(SimulationError, match="IndexError at event 3: ") as caught:
        run_with(name, {"policy.routing": "broken"})
    assert caught.value.help == f"it happens at {name}:8 in `Broken.choose`"


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        ("raise GeneratorExit", "GeneratorExit at event 3: "),
        (
            "raise type('Mute', (Exception,), {'__str__': None})",
            "Mute at event 3: (its text cannot be made: TypeError)",
        ),
    ],
)
def test_so_does_one_that_is_no_usual_exception(raised: str, message: str, tmp_path: Path) -> None:
    name = broken(tmp_path, choose=raised)
    with pytest.raises(SimulationError) as caught:
        run_with(name, {"policy.routing": "broken"})
    assert caught.value.message == message
    assert caught.value.help == f"it happens at {name}:8 in `Broken.choose`"


def test_a_method_with_other_arguments_is_told_as_such(tmp_path: Path) -> None:
    """No line of the plug-in has raised the exception, and it has answered nothing."""
    script = Path(broken(tmp_path, choose="return 0, ''"))
    script.write_text(script.read_text().replace("(self, request, fleet, context)", "(self, request, fleet)"))
    with pytest.raises(SimulationError, match=r"TypeError at event 3: Broken\.choose\(\) takes 3 positional") as caught:
        run_with(str(script), {"policy.routing": "broken"})
    message = "one of the plug-ins `broken` takes other arguments than its protocol says, or answers something else"
    assert caught.value.help == message


def test_a_policy_without_what_its_plug_point_needs_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(
        """
from blis_tui.plugins import ROUTING

@ROUTING.plugin("first", "Always the first.")
class First:
    def __init__(self, settings): pass
    def choose(self, request, fleet, context): return 0, "first"
    def state(self): return ()
"""
    )
    overrides = {"policy.routing": "first"}
    experiment = blis_tui.load("quickstart", set=overrides, plugins=[str(tmp_path / "first.py")])
    with pytest.raises(PolicyError, match=r"routing policy `first` of first.py has no `rule`") as caught:
        blis_tui.Simulation(experiment)
    assert caught.value.help == "it needs: choose, rule, state"


def test_a_factory_that_raises_is_an_error_of_the_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"the routing policy `broken` of own\.py cannot be made") as caught:
        run_with(broken(tmp_path, init="1 / 0"), {"policy.routing": "broken"})
    assert caught.value.message.endswith("cannot be made: ZeroDivisionError: division by zero")
    assert caught.value.help == f"it happens at {tmp_path / 'own.py'}:7 in `Broken.__init__`"


def test_an_admission_policy_says_why(tmp_path: Path) -> None:
    text = f"""{HEAD}
@ADMISSION.plugin("open", "For tests.")
class Open:
    rule = ""
    def __init__(self, settings): pass
    def refusal(self, request, fleet, context): return None
    def state(self): return ()
"""
    with pytest.raises(SimulationError, match="the admission policy `open` answers None for request_0"):
        run_with(written(tmp_path, text), {"policy.admission": "open"})


def test_a_rule_that_plans_nothing_stalls(tmp_path: Path) -> None:
    text = f"""{HEAD}
@BATCHING.plugin("idle", "For tests.")
class Idle(RunningFirst):
    def __init__(self, settings): pass
    def plan(self, batch): return Plan()
"""
    with pytest.raises(StalledError):
        run_with(written(tmp_path, text), {"policy.batching": "idle"})


def test_a_victim_rule_under_which_nobody_gets_on_is_told_what_helps(tmp_path: Path) -> None:
    text = f"""{HEAD}
from blis_tui.plugins import VICTIM
@VICTIM.plugin("oldest", "For tests.")
class Oldest:
    rule = "the oldest"
    serves_behind_preempted = False
    def __init__(self, settings): pass
    def choose(self, seats): return next(iter((*seats.running.values(), *seats.finishing.values())))
"""
    plugins, few = [written(tmp_path, text)], {"workload.requests": 12, "engine.kv_blocks": 100}
    with pytest.raises(StalledError, match="requests are preempted again and again") as caught:
        blis_tui.run("kv-pressure", set={**few, "policy.preemption.victim": "oldest"}, plugins=plugins)
    assert caught.value.help == "raise `engine.kv_blocks`, or preempt others (`policy.preemption.victim`)"


def test_a_step_time_model_needs_no_coefficients(tmp_path: Path) -> None:
    text = f"""{HEAD}
from blis_tui.plugins import Overheads
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    step_us: int = setting("A step takes so long.", default=1000, minimum=1)
@LATENCY.plugin("fixed", "Every step takes the same time.", Settings)
class Fixed(Overheads):
    def __init__(self, settings, pool):
        super().__init__(queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)
        self._step_us = settings.step_us
    def step_time_us(self, load): return self._step_us
"""
    changes = {**SMALL, "latency": {"kind": "fixed", "step_us": 7000}}
    experiment = blis_tui.load("quickstart", set=changes, plugins=[written(tmp_path, text)])
    assert experiment.document["latency"] == {"kind": "fixed", "step_us": 7000}
    assert blis_tui.run(experiment).latency.itl_ms.p50 == 7.0


def test_coefficients_have_the_names_that_a_step_time_model_gives_them(tmp_path: Path) -> None:
    text = f"""{HEAD}
from blis_tui.plugins import Overheads, coefficients
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    slopes: tuple[float, ...] = coefficients("Microseconds per prompt token and per decode.", 2)
@LATENCY.plugin("line", "A step takes its time per token.", Settings)
class Line(Overheads):
    def __init__(self, settings, pool):
        super().__init__(queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)
        self._prefill, self._decode = settings.slopes
    def step_time_us(self, load):
        return 1 + int(self._prefill * sum(one.new for one in load.chunks) + self._decode * load.decode_requests)
"""
    plugins = [written(tmp_path, text)]
    with pytest.raises(blis_tui.SpecError, match="no coefficients are shipped for `line`") as caught:
        blis_tui.load("quickstart", set={**SMALL, "latency": "line"}, plugins=plugins)
    assert "give `slopes`" in str(caught.value)
    given = {**SMALL, "workload.requests": 1, "latency": {"kind": "line", "slopes": [0.0, 9]}}
    assert blis_tui.run("quickstart", set=given, plugins=plugins).latency.itl_ms.p50 == 0.01


def test_what_a_step_time_model_remembers_goes_back_with_the_simulation(tmp_path: Path) -> None:
    """Its step times depend on the load alone, but not how long requests wait before they stand in the queue."""
    text = f"""{HEAD}
from blis_tui.plugins import Overheads
@LATENCY.plugin("slower", "Each request waits longer than the one before it.", NoSettings)
class Slower(Overheads):
    def __init__(self, settings, pool):
        super().__init__(queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)
        self.asked = 0
    def step_time_us(self, load): return 5000
    def queueing_time_us(self, request):
        self.asked += 1
        return 1000 * self.asked
"""
    changes = {**SMALL, "latency": "slower"}
    experiment = blis_tui.load("quickstart", set=changes, plugins=[written(tmp_path, text)])
    simulation = blis_tui.Simulation(experiment)
    simulation.run(max_events=10)
    mark, saved = simulation.mark(), simulation.checkpoint()
    simulation.run()
    expected = simulation.report().to_json()
    ways: tuple[Callable[[], object], ...] = (partial(simulation.return_to, mark), partial(simulation.restore, saved))
    for back in ways:
        back()
        simulation.run()
        assert simulation.report().to_json() == expected


def with_field(field: str, name: str = "own") -> str:
    mark = f"@ROUTING.plugin({name!r}, 'For tests.', Settings)\nclass Own: pass\n"
    return f"{HEAD}\n@dataclass\nclass Settings:\n    {field}\n{mark}"


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("x = 1", "own.py offers no plug-ins", "mark a class"),
        ("1 / 0", "cannot be imported: ZeroDivisionError", "own.py:1"),
        ("import sys\nsys.exit(3)", "cannot be imported: SystemExit: 3", "own.py:2"),
        ("def x(:", "cannot be imported: SyntaxError", "own.py:1"),
        ("x = '\0'", "cannot be imported: SyntaxError", "own.py"),
        ("raise GeneratorExit", "cannot be imported: GeneratorExit: ", "own.py:1"),
        (
            "class Mute(Exception):\n    __str__ = None\nraise Mute",
            "cannot be imported: Mute: (its text cannot be made: TypeError)",
            "own.py:3",
        ),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError", "own.py:1"),
        (
            with_field("a: int = 1"),
            "its setting `a` says nothing about itself",
            "setting(",
        ),
        (with_field("a: list = setting('A.', default=())"), "has no type", "bool, int"),
        (
            with_field("a: int = setting('A.', default=0.5)"),
            "default of its setting `a` is 0.5",
            "integer",
        ),
        (
            with_field("a: int = setting('A.', default=True)"),
            "default of its setting `a` is True",
            "integer",
        ),
        (
            with_field("a: int = setting('A.', default=0, minimum=1)"),
            "default of its setting `a` is 0",
            "at least 1, as the setting says",
        ),
        (
            with_field("a: float = setting('A.', default=1.0, exclusiveMaximum=1)"),
            "default of its setting `a` is 1.0",
            "less than 1, as the setting says",
        ),
        (
            with_field("a: str = setting('A.', default='b', enum=('c', 'd'))"),
            "default of its setting `a` is 'b'",
            "one of 'c', 'd', as the setting says",
        ),
        (
            with_field("a: int = setting('A.', default=0, minimal=1)"),
            "`minimal` of its setting `a` is no keyword of JSON Schema",
            "there are minimum, ",
        ),
        (
            with_field("a: int = setting('A.', default=0, minimum='1')"),
            "`minimum` of its setting `a` cannot be '1'",
            None,
        ),
        (
            with_field("a: str = setting('A.', default='b', pattern='(')"),
            "`pattern` of its setting `a` cannot be '('",
            None,
        ),
        (
            with_field("kind: int = setting('A.', default=0)"),
            "its setting cannot be called `kind`",
            "choose another name",
        ),
        (
            with_field("a: Unknown = setting('A.')"),
            "types of its settings cannot be read",
            None,
        ),
        (
            with_field("pass", "round-robin"),
            "blis-tui has one of this name",
            "choose another name",
        ),
        (with_field("pass", "Not a name"), "`Not a name` cannot be its name", "lower-case"),
    ],
)
def test_what_cannot_be_used_is_one_error_with_its_place(
    text: str, message: str, advice: str | None, tmp_path: Path
) -> None:
    name = written(tmp_path, text)
    with pytest.raises(PolicyError) as caught:
        load_plugins([name])
    assert message in caught.value.message
    assert name in str(caught.value)
    assert (caught.value.help is None) == (advice is None)
    assert (advice or "") in (caught.value.help or "")


def test_two_scripts_with_one_name_collide(script: str, tmp_path: Path) -> None:
    copy = written(tmp_path, Path(script).read_text(encoding="utf-8") + "\n")
    with pytest.raises(PolicyError, match=r"my_policies\.py has one of this name at `policy\.routing`"):
        load_plugins([script, copy])


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot read the plug-ins"):
        load_plugins([tmp_path / "nowhere.py"])
    written(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match="no installed package `own` offers plug-ins") as caught:
        load_plugins(["own"])
    assert caught.value.help == "none is installed; for the script, write own.py"


def test_commands_take_them(script: str, tmp_path: Path) -> None:
    asked = ["--plugins", script]
    own = ["quickstart", "--set", "workload.requests=30", "--set", "policy.routing=cache-then-least"]
    runner = CliRunner()
    report = runner.invoke(cli, ["run", *own, *asked])
    assert json.loads(report.stdout)["requests"]["completed"] == 30
    resolved = runner.invoke(cli, ["spec", "resolve", *own, *asked, "-o", str(tmp_path / "own.blis.yaml")])
    assert resolved.exit_code == 0
    assert runner.invoke(cli, ["check", str(tmp_path / "own.blis.yaml"), *asked]).exit_code == 0
    refused = runner.invoke(cli, ["check", str(tmp_path / "own.blis.yaml")])
    assert refused.exit_code == 2
    assert "unknown value `cache-then-least`" in refused.stderr
    explained = runner.invoke(cli, ["explain", "policy.routing.cached_token_worth", *asked])
    assert "Requests in flight that one cached token outweighs." in explained.stdout
    differs = runner.invoke(cli, ["diff", *own[:3], "--set-b", "policy.routing=cache-then-least", *asked])
    assert "cache-then-least" in differs.stdout
    assert runner.invoke(cli, ["run", *own, "--plugins", "nowhere.py"]).exit_code == 3
    assert runner.invoke(cli, ["run", *own, "--plugins", "nothing"]).exit_code == 2


def test_a_golden_names_them_with_their_version(script: str, tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(Path(script).read_text(encoding="utf-8"), encoding="utf-8")
    folder = project(tmp_path, SPEC.replace("policy: blis", "policy: {routing: cache-then-least}"))
    assert "unknown value `cache-then-least`" in pytest_in(folder).stdout
    first = pytest_in(folder, "--blis-update=unseen", "--blis-plugins=my_policies.py")
    assert first.returncode == 0, first.stdout
    assert files(folder) == ["demo.golden.json", "demo.report.json"]
    (named,) = json.loads((folder / "golden/demo.golden.json").read_text(encoding="utf-8"))["plugins"]
    assert (named["name"], named["from"]) == ("cache-then-least", "my_policies.py")
    assert named["version"].startswith("sha256:")
    (folder / "pytest.ini").write_text("[pytest]\nblis_plugins = my_policies.py\n", encoding="utf-8")
    assert pytest_in(folder).returncode == 0
    for more in ((), ("--plugins", "my_policies.py")):  # pytest's configuration names it already
        assert blis_in(folder, "golden", "record", *more).stdout == "stored demo\n"
    with (folder / "my_policies.py").open("a", encoding="utf-8") as out:
        out.write("CacheThenLeast.choose = lambda self, *_: (len(_[1]) - 1, 'the last')\n")
    changed = pytest_in(folder)
    assert "the plug-in `cache-then-least` has changed: my_policies.py sha256:" in changed.stdout
    assert "first divergence: event 3" in changed.stdout
    assert "blis-tui tui demo.blis.yaml --plugins my_policies.py --at 3\n" in changed.stdout
    assert blis_in(folder, "golden", "diff").stdout.count("first divergence") == 1
    assert blis_in(folder, "golden", "status").stdout.startswith("changed  demo  ")


def test_so_does_that_of_a_study(script: str, tmp_path: Path) -> None:
    folder = project(tmp_path, SPEC.replace("policy: blis", "policy: {routing: cache-then-least}"))
    (folder / "demo.blis.yaml").rename(folder / "demo.yaml")
    own = folder / "my_policies.py"
    own.write_text(Path(script).read_text(encoding="utf-8"), encoding="utf-8")
    study = "{apiVersion: blis/v1, kind: Study, metadata: {name: s}, experiment: ./demo.yaml, seeds: [1, 2]}\n"
    (folder / "s.study.yaml").write_text(study, encoding="utf-8")
    asked = ("--blis-plugins=my_policies.py",)
    first = pytest_in(folder, "--blis-update=unseen", *asked)
    assert first.returncode == 0, first.stdout
    (named,) = json.loads((folder / "golden/s.study.golden.json").read_text(encoding="utf-8"))["plugins"]
    assert (named["plug_point"], named["name"]) == ("policy.routing", "cache-then-least")
    with own.open("a", encoding="utf-8") as out:
        out.write("# a comment\n")
    assert pytest_in(folder, *asked).returncode == 0
    with own.open("a", encoding="utf-8") as out:
        out.write("CacheThenLeast._score = lambda self, *_: 1 / 0\n")
    changed = pytest_in(folder, *asked)
    assert "the plug-in `cache-then-least` has changed: my_policies.py sha256:" in changed.stdout


def test_each_project_has_the_plug_ins_that_its_configuration_names(script: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    inner = project(tmp_path / "inner", SPEC.replace("policy: blis", "policy: {routing: cache-then-least}"))
    (inner / "my policies.py").write_text(Path(script).read_text(encoding="utf-8"), encoding="utf-8")
    named = "[tool.pytest.ini_options]\nblis_checks = 'observers'\nblis_plugins = ['my policies.py']\n"
    (inner / "pytest.ini").unlink()
    (inner / "pyproject.toml").write_text(named, encoding="utf-8")
    outer = project(tmp_path)
    assert pytest_in(outer, "--blis-update=unseen").returncode == 0
    assert files(outer) == files(inner) == ["demo.golden.json", "demo.report.json"]
    assert pytest_in(inner).returncode == 0
    assert blis_in(outer, "golden", "status", "--root", "inner").returncode == 0


def test_the_page_shows_the_tested_examples() -> None:
    page = (HERE.parents[1] / "docs/plugins.md").read_text(encoding="utf-8")
    for example in (
        "my_policies.py",
        "least_work.py",
        "cache_probes.py",
        "example_package/blis_example/batching.py",
        "example_package/pyproject.toml",
    ):
        assert f"\n{(HERE / example).read_text(encoding='utf-8')}```\n" in page
    assert not plugins_page.stale(), "run `make docs`"


def test_the_reference_has_every_protocol_with_its_words() -> None:
    page = (HERE.parents[1] / "docs/reference/python/plugins.md").read_text(encoding="utf-8")
    for row in POINTS:
        assert re.search(rf"^\| \[`{re.escape(row.point.path)}`\]", page, re.MULTILINE)
        protocol = row.point.protocol
        for name, value in vars(protocol).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                [signature] = re.findall(rf"    def {name}\(.*", inspect.getsource(value))
                assert f'{signature}\n        """{(value.__doc__ or "?").splitlines()[0]}' in page, (protocol, name)


def test_goldens_without_them_do_not_mention_them() -> None:
    result = produce(blis_tui.load("quickstart", set={"workload.requests": 2}), spec="x", case="default")
    assert '"plugins"' not in result.header()
    assert plugin_lines(result, result) == []


def test_a_checkpoint_of_another_version_is_refused(script: str, tmp_path: Path) -> None:
    other = written(tmp_path, Path(script).read_text(encoding="utf-8") + "\n")
    simulation, two = (
        blis_tui.Simulation(blis_tui.load("quickstart", set=OWN, plugins=[name])) for name in (script, other)
    )
    checkpoint = simulation.checkpoint()
    with pytest.raises(InputError, match="not a checkpoint of this experiment"):
        two.restore(checkpoint)
    simulation.restore(checkpoint)


@pytest.mark.parametrize("name", ["blis-example", "blis_example", "Blis.Example"])
def test_a_package_is_checked_by_any_of_its_names(name: str, site: Path) -> None:
    assert site.is_dir()
    budget = ("--set", "engine.max_num_batched_tokens=40960", "--set", "workload.requests=5")
    done = CliRunner().invoke(cli, ["check", name, *budget])
    assert done.exit_code == 0, done.output
    assert "fewest-in-flight" in done.output
    assert "shortest-prefill" in done.output


def test_an_order_with_a_setting_is_checked_and_serves_the_least_work_first(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["check", str(HERE / "least_work.py")])
    assert (done.exit_code, done.output) == (0, "policy.scheduling least-work: ok\n")
    oracle = written(tmp_path, (HERE / "least_work.py").read_text(encoding="utf-8").replace("request.max_", "request."))
    done = CliRunner().invoke(cli, ["check", oracle, "--format", "json"])
    (policy,) = json.loads(done.output)["policies"]
    assert policy["verdict"] == "ok"
    assert policy["note"].startswith("own.py:30 reads `output_tokens`, which no server knows")
    wish = {"policy.scheduling": {"kind": "least-work", "output_token_worth": 3}, "engine.max_num_seqs": 1}
    rows = blis_tui.run("fcfs", set={**wish, "workload.requests": 60}, plugins=[str(HERE / "least_work.py")]).rows
    work = {row.request_id: row.input_tokens + 3 * row.max_output_tokens for row in rows}
    waited = [(row.queued_us or 0, row.scheduled_us or 0, work[row.request_id]) for row in rows]
    passed = 0
    for came, left, own in waited:
        behind = [(other_came, other) for other_came, other_left, other in waited if other_came < left < other_left]
        assert own <= min((other for _, other in behind), default=own)
        passed += len([1 for other_came, _ in behind if other_came < came])
    assert passed > 100  # as many times a request went before one that had come earlier
