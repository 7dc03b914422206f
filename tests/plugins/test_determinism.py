"""Policies that break the promise of equal bytes are found, each by what it does."""

from __future__ import annotations

import fnmatch
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import PolicyError, SimulationError
from blis_tui.cli.main import cli
from blis_tui.golden import session
from blis_tui.golden.case import cases_of
from blis_tui.golden.determinism import find_nondeterminism
from blis_tui.golden.golden_store import files_of
from blis_tui.golden.other_process import TimeLimit
from blis_tui.spec.user_plugins import load_plugins

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.model import Experiment

POLICY = """\
import random, time
from blis_tui.plugins import ROUTING
CALLS = [0]

@ROUTING.plugin("own", "For tests.")
class Own:
    rule = ""
    def __init__(self, settings):
        self.turn = 0
        {init}
    def choose(self, request, fleet, context):
        {choose}
    def state(self):
        return ({state})
"""
SIZE = {"workload.requests": 20, "cluster.instances": 4, "policy.routing": "own"}


def loaded(folder: Path, choose: str, state: str = "", init: str = "") -> Experiment:
    path = folder / "own.py"
    path.write_text(POLICY.format(choose=choose, state=state, init=init), encoding="utf-8")
    return blis_tui.load("quickstart", set=SIZE, plugins=[path])


def found(folder: Path, choose: str, state: str = "", init: str = "") -> str:
    return find_nondeterminism(loaded(folder, choose, state, init))


@pytest.mark.parametrize(
    ("choose", "state"),
    [
        ("return 0, ''", ""),
        ("self.turn += 1; return self.turn % 4, ''", "self.turn,"),
        ("return int(context.stream.uniform() * 4), ''", ""),
        ("return min(range(4), key=lambda at: fleet[at].in_flight), ''", ""),
    ],
)
def test_good_policies_pass(choose: str, state: str, tmp_path: Path) -> None:
    assert found(tmp_path, choose, state) == ""


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        ("return random.randrange(4), ''", "a second run differs at this record:"),
        ("return time.perf_counter_ns() // 7 % 4, ''", "a second run differs at this record:"),
        ("CALLS[0] += 1; return CALLS[0] // 3 % 4, ''", "a second run differs at this record:"),
        (
            "return ['abcd'.index(one) for one in set('abcd')][0], str(set('abcdefgh'))",
            "a run in another process, with another hash seed, differs at this record:",
        ),
        ("self.turn += 1; return self.turn % 4, ''", "Own changes `turn` by event"),
    ],
)
def test_bad_ones_are_found(choose: str, message: str, tmp_path: Path) -> None:
    text = found(tmp_path, choose)
    assert text.startswith(message)
    if "record" in message:
        assert text.count('{"kind":"routed","event":') == 2


ASKED = """\
from blis_tui.plugins import LATENCY, SCHEDULING, SCORING, FcfsQueue, FigureScorer, Overheads, SparseScorer
class Counts:
    asked = 0
    def state(self): return (self.asked,)

@SCORING.plugin("plain", "For tests.")
class Plain(Counts):
    weight = 1.0
    def __init__(self, settings): pass
    def scores(self, request, fleet):
        {change}
        return [1.0] * len(fleet)
    def routed(self, request, fleet, place): self.asked += 1

@SCORING.plugin("figure", "For tests.")
class Figure(Counts, FigureScorer):
    figure, weight = "in_flight", 1.0
    def __init__(self, settings): pass
    def grades(self, values):
        {change}
        return [1.0] * len(values)

@LATENCY.plugin("steps", "For tests.")
class Steps(Counts, Overheads):
    def __init__(self, settings, pool):
        super().__init__(queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)
    def step_time_us(self, load):
        {change}
        return 1000

@SCHEDULING.plugin("queue", "For tests.")
class Queue(Counts, FcfsQueue):
    def __init__(self, settings): super().__init__()
    def head(self):
        {change}
        return super().head()
"""


@pytest.mark.parametrize(
    ("key", "value", "method"),
    [
        ("policy.routing", {"kind": "weighted", "scorers": [{"kind": "plain"}]}, "Plain.scores"),
        ("policy.routing", {"kind": "weighted", "scorers": [{"kind": "figure"}]}, "Figure.grades"),
        ("latency", "steps", "Steps.step_time_us"),
        ("policy.scheduling", "queue", "Queue.head"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_only_answers_changes_nothing(key: str, value: object, method: str, tmp_path: Path) -> None:
    texts = []
    for name, change in (("good", "pass"), ("bad", "self.asked += 1")):
        path = tmp_path / f"{name}.py"
        path.write_text(ASKED.format(change=change), encoding="utf-8")
        size = {"workload.requests": 20, "cluster.instances": 2}
        texts.append(find_nondeterminism(blis_tui.load("quickstart", set={**size, key: value}, plugins=[path])))
    kind, _, called = method.partition(".")
    assert texts[0] == ""
    assert texts[1].startswith(f"{kind} changes what it remembers in `{called}`, from (")
    assert "at event " in texts[1]


PRIORITY = """\
from blis_tui.plugins import PRIORITY, NoSettings
@PRIORITY.plugin("own", "For tests.")
class Own:
    def __init__(self, settings: NoSettings) -> None: pass
    def priority(self, request):
        {change}
        return request.input_tokens
    def state(self): return ()
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pass", ""),
        ("request.max_output_tokens += 1", "Own changes `max_output_tokens` of the request in `priority` at event "),
        ("request.segments = ()", ""),  # as it was
        ("request.segments = (('x', 1),)", "Own changes `segments` of the request in `priority` at event "),
    ],
)
def test_a_priority_rule_only_reads_the_request(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(PRIORITY.format(change=change), encoding="utf-8")
    made = {"workload.requests": 20, "policy.priority": "own", "policy.scheduling": "priority-fcfs"}
    found = find_nondeterminism(blis_tui.load("quickstart", set=made, plugins=[path]))
    assert found.startswith(message)
    assert bool(found) == bool(message)


QUEUE = """\
from blis_tui.plugins import SCHEDULING, {base}
@SCHEDULING.plugin("own", "For tests.")
class Own({base}):
    def __init__(self, settings): super().__init__({arguments})
    {more}
def by_length(request): return -request.input_tokens
"""


@pytest.mark.parametrize(
    ("base", "arguments"), [("FcfsQueue", ""), ("SortedQueue", "by_length, 'The longest prompt goes first'")]
)
@pytest.mark.parametrize("remembers", [False, True])
def test_a_queue_need_not_say_who_waits_but_what_else_it_remembers(
    base: str, arguments: str, remembers: bool, tmp_path: Path
) -> None:
    more = "pushed = 0\n    def push(self, request): self.pushed = 1; super().push(request)" if remembers else ""
    path = tmp_path / "own.py"
    path.write_text(QUEUE.format(base=base, arguments=arguments, more=more), encoding="utf-8")
    size = {"workload.requests": 40, "workload.rate_per_s": 200, "policy.scheduling": "own"}
    text = find_nondeterminism(blis_tui.load("kv-pressure", set=size, plugins=[path]))
    if remembers:
        assert text.startswith("Own changes `pushed` by event")
        assert text.endswith("and has no `state()` that could say so")
    else:
        assert text == ""


def test_a_policy_that_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"of own\.py cannot be saved, as checkpoints need it: .*pickle"):
        found(tmp_path, "return 0, ''", init="self.key = lambda: 0")
    later = found(tmp_path, "self.key = lambda: 0; return 0, ''")
    assert later.startswith("no checkpoint can be taken at event")
    assert "remembers what does not pickle: keep plain values" in later


@pytest.mark.parametrize(
    ("state", "kind"),
    [("self.key,", "object"), ("1, ('a', {2: [len, Own]}),", ""), ("('x', {self.choose}),", "method")],
)
def test_a_state_that_shows_an_address_is_named_with_its_plug_in(state: str, kind: str, tmp_path: Path) -> None:
    experiment = loaded(tmp_path, "return 0, ' at 0x1'", state, "self.key = object()")
    if kind:
        with pytest.raises(SimulationError) as caught:
            blis_tui.Simulation(experiment).digest()
        message = f"`state()` of the routing policy `own` has a value of the kind `{kind}`, which looks another"
        assert caught.value.message.startswith(message)
        assert caught.value.help == "say what is remembered as plain values: text, numbers, and tuples of them"
        assert find_nondeterminism(experiment) == str(caught.value)
    else:
        assert find_nondeterminism(experiment) == ""


def test_one_that_forgets_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = POLICY.format(choose="self.turn += 1; return self.turn % 4, ''", state="self.turn,", init="")
    path.write_text(text + "    def __getstate__(self): return {'turn': 0}\n", encoding="utf-8")
    text = find_nondeterminism(blis_tui.load("quickstart", set=SIZE, plugins=[path]))
    assert text.startswith("the state restored from a checkpoint at event")


def test_the_command_tries_every_policy_of_a_script(script: str, tmp_path: Path) -> None:
    size = ["--set", "workload.requests=20", "--set", "cluster.instances=4"]
    runner = CliRunner()
    good = runner.invoke(cli, ["check", script, *size])
    assert (good.exit_code, good.stdout) == (0, "policy.routing cache-then-least: ok\n")
    path = tmp_path / "own.py"
    path.write_text(POLICY.format(choose="return random.randrange(4), ''", state="", init=""), encoding="utf-8")
    bad = runner.invoke(cli, ["check", str(path), *size, "--set", "policy.routing=own"])
    assert (bad.exit_code, bad.stdout) == (1, "policy.routing own: differs\n")
    assert bad.stderr.startswith("FAIL  a second run differs at this record:\n  first {")


needs_a_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no interval timers")


@needs_a_timer
def test_the_command_goes_on_after_one_that_it_cannot_check(tmp_path: Path) -> None:
    text = """
from dataclasses import dataclass
from blis_tui.plugins import LENGTHS, SCHEDULING, TRACES, SortedQueue, setting

@TRACES.plugin("mine", "For tests.")
def mine(settings, text, trace, problems): ...

@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    tokens: int = setting("How many.", minimum=1)

@LENGTHS.plugin("as-said", "For tests.", Settings)
class AsSaid:
    def __init__(self, settings): self.tokens = settings.tokens
    def sample(self, stream): return self.tokens

@SCHEDULING.plugin("unsaved", "For tests.")
def unsaved(settings): return SortedQueue(lambda request: request.input_tokens, "short prompts first")

@SCHEDULING.plugin("sound", "For tests.")
def sound(settings): return SortedQueue(tokens_of, "short prompts first")

def tokens_of(request): return request.input_tokens
"""
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["check", str(tmp_path / "own.py"), "--set", "workload.requests=20"])
    settings = "not checked: it needs an --experiment that names it with its settings"
    assert result.stdout.splitlines() == [
        f"workload.trace.format mine: {settings}",
        f"workload.clients.lengths as-said: {settings}",
        "policy.scheduling unsaved: cannot be used",
        "policy.scheduling sound: ok",
    ]
    for message in ("quickstart does not name `mine`", "lacks the key `tokens`", "cannot be saved"):
        assert message in result.stderr
    assert result.exit_code == 2


def test_a_policy_that_never_returns_is_broken_off_in_its_line(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGALRM)
    endless = loaded(
        tmp_path, "self.turn += 1\n        while self.turn > 3: len(CALLS)\n        return 0, ''", "self.turn,"
    )
    with pytest.raises(SimulationError) as caught, TimeLimit(0.3):
        find_nondeterminism(endless)
    assert "`choose` has not returned for 0.3 s" in str(caught.value)
    assert "own.py:13" in str(caught.value)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


@needs_a_timer
def test_so_it_is_in_a_golden_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a timer of another's, such as that of pytest-timeout, it is left to that one."""
    script, spec = tmp_path / "own.py", tmp_path / "own.blis.yaml"
    endless = "self.turn += 1\n        while self.turn > 3: len(CALLS)\n        return 0, ''"
    script.write_text(POLICY.format(choose=endless, state="self.turn,", init=""), encoding="utf-8")
    spec.write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: own}\nextends: quickstart\npolicy: {routing: own}\n"
    )
    [case] = cases_of(spec, load_plugins([script]))
    files = files_of(spec, case.name, folder=tmp_path / "golden", root=tmp_path)
    monkeypatch.setattr(session, "TimeLimit", partial(TimeLimit, 0.3))
    with pytest.raises(SimulationError, match=r"`choose` has not returned for 0\.3 s"):
        session.run_case(case, files, spec.name, session.GoldenSettings(mode="no", checks=()))
    signal.setitimer(signal.ITIMER_REAL, 60)
    with TimeLimit(0.3):
        assert 59 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 59
    signal.setitimer(signal.ITIMER_REAL, 0)


@needs_a_timer
def test_so_is_a_script_that_cannot_be_imported_for_that(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("while True:\n    pass\n", encoding="utf-8")
    with pytest.raises(PolicyError, match="`<module>` has not returned") as caught, TimeLimit(0.3):
        load_plugins([path])
    assert "own.py:" in str(caught.value)


@needs_a_timer
def test_calls_that_return_may_take_as_long_together_as_they_like() -> None:
    end_s = time.monotonic() + 0.5
    with TimeLimit(0.15):
        while time.monotonic() < end_s:
            fnmatch.filter(["a"] * 5000, "b*")  # code of others: of the standard library


LEAKY = """\
from blis_tui.plugins import BATCHING, RunningFirst
@BATCHING.plugin("own", "Takes a block, and gives it back at the next step.")
class Own(RunningFirst):
    def __init__(self, settings): self.taken = 0
    def plan(self, batch):
        plan = super().plan(batch)
        {change}
        return plan
    def state(self): return (self.taken,)
"""


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [
        ("pass", "ok", 0),
        ("self.taken ^= 1; batch.pool.free += 1 - 2 * self.taken", "breaks an invariant", 1),
    ],
)
def test_one_that_breaks_an_invariant_for_a_while(change: str, verdict: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(LEAKY.format(change=change), encoding="utf-8")
    sets = ["--set", "workload.requests=20", "--set", "policy.batching=own"]
    checked = CliRunner().invoke(cli, ["check", str(path), *sets])
    assert (checked.exit_code, checked.stdout) == (code, f"policy.batching own: {verdict}\n")
    assert ("FAIL  INV-4 does not hold at t=" in checked.stderr) is bool(code)
