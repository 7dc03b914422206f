"""Numbers of plug-ins that are none of those asked for are an error that says so, and never another result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError, SimulationError
from tests.plugins.probing import left_as_found

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DRAWS: Final = """
from blis_tui.plugins import {point}
@{point}.plugin("own", "For tests.")
class Own:
    def __init__(self, settings, *more): pass
    def sample(self, stream): return {answer}
"""
TIMES: Final = """
from blis_tui.plugins import LATENCY
@LATENCY.plugin("own", "For tests.")
class Own:
    output_token_overhead_us = post_decode_overhead_us = {overhead}
    def __init__(self, settings, pool): pass
    def step_time_us(self, load): return {step}
    def queueing_time_us(self, request): return {queueing}
"""
TWO: Final = "arrival_us=[0, 1], input_tokens=[5, 6], output_tokens=[1, 2]"
TRACE: Final = """
from blis_tui.plugins import TRACES, Media, MediaItem, TraceColumns
@TRACES.plugin("own", "For tests.")
def own(settings, text, trace, problems):
    text.whole()
    return TraceColumns({columns})
"""
SPLIT: Final = """
from blis_tui.plugins import DECIDER
@DECIDER.plugin("own", "For tests.")
class Own:
    rule = "As it says."
    def __init__(self, settings): pass
    def split(self, request, fleet, place): return {answer}
    def sent(self, request, fleet): pass
    def state(self): return ()
"""
SCALED: Final = """
from blis_tui.plugins import SCALING
@SCALING.plugin("own", "For tests.")
class Own:
    rule = "As it says."
    def __init__(self, settings, autoscaler): pass
    def wanted(self, group, now_us): return {answer}
    def state(self): return ()
"""
SCORES: Final = """
from blis_tui.plugins import SCORING, Weight
@SCORING.plugin("own", "For tests.", Weight)
class Own:
    def __init__(self, settings): self.weight = settings.weight
    def scores(self, request, fleet): return {answer}
    def routed(self, request, fleet, place): pass
    def state(self): return ()
"""
PLACES: Final = {
    "ARRIVALS": ("quickstart", "workload.clients.0.arrivals"),
    "LENGTHS": ("quickstart", "workload.clients.0.input_tokens"),
    "TURNS": ("conversations", "workload.clients.0.session.turns"),
    "RATIOS": ("quickstart", "workload.clients.0.reasoning.ratio"),
}


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    with left_as_found():
        yield


def run(folder: Path, text: str, name: str, changes: dict[str, object]) -> None:
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    blis_tui.run(blis_tui.load(name, set=changes, plugins=[path]))


@pytest.mark.parametrize(
    ("place", "answer", "wanted"),
    [
        ("ARRIVALS", "-5", "a whole number, at least 1"),
        ("ARRIVALS", "float('inf')", "a whole number, at least 1"),
        ("LENGTHS", "0", "a whole number, at least 1"),
        ("LENGTHS", "1500.5", "a whole number, at least 1"),
        ("TURNS", "0", "a whole number, at least 1"),
        ("RATIOS", "1.5", "a share, from 0 to 1"),
        ("RATIOS", "float('nan')", "a share, from 0 to 1"),
    ],
)
def test_what_is_drawn(place: str, answer: str, wanted: str, tmp_path: Path) -> None:
    name, key = PLACES[place]
    text = DRAWS.format(point="LENGTHS" if place == "TURNS" else place, answer=answer)
    size = {"workload.requests": 20} if name == "quickstart" else {"workload.sessions": 5}
    with pytest.raises(SimulationError, match="`sample` of the plug-in `own` answers ") as caught:
        run(tmp_path, text, name, {**size, key: {"kind": "own"}})
    assert caught.value.help == f"it returns {wanted}"


@pytest.mark.parametrize(
    ("step", "queueing", "message", "wanted"),
    [
        ("0", "0", "`step_time_us` of the step-time model `own` answers 0", "at least 1"),
        ("1500.0", "0", "`step_time_us` of the step-time model `own` answers 1500.0", "at least 1"),
        ("1500", "-1", "`queueing_time_us` of the step-time model `own` answers -1", "at least 0"),
        ("1500", "float('inf')", "`queueing_time_us` of the step-time model `own` answers inf", "at least 0"),
    ],
)
def test_times(step: str, queueing: str, message: str, wanted: str, tmp_path: Path) -> None:
    text = TIMES.format(step=step, queueing=queueing, overhead=0)
    with pytest.raises(SimulationError) as caught:
        run(tmp_path, text, "quickstart", {"workload.requests": 20, "latency": "own"})
    assert caught.value.message == message
    assert caught.value.help == f"it returns whole microseconds, {wanted}"


@pytest.mark.parametrize("step", ["load.chunks.clear() or 1500", "setattr(load, 'decode_requests', 1) or 1500"])
def test_a_step_is_not_changed_by_the_question_how_long_it_takes(step: str, tmp_path: Path) -> None:
    text = TIMES.format(step=step, queueing=0, overhead=0)
    with pytest.raises(SimulationError, match="changes the step that it is asked about"):
        run(tmp_path, text, "quickstart", {"workload.requests": 20, "latency": "own"})


def test_overheads(tmp_path: Path) -> None:
    text = TIMES.format(step=1000, queueing=0, overhead=1.5)
    with pytest.raises(PolicyError, match=r"`output_token_overhead_us` of the step-time model `own` is 1\.5"):
        run(tmp_path, text, "quickstart", {"workload.requests": 20, "latency": "own"})


def test_a_whole_number_of_another_kind_counts_as_one(tmp_path: Path) -> None:
    """As those of NumPy are."""
    kind = "class Whole:\n    def __index__(self): return 1500\n"
    times = TIMES.format(step="Whole()", queueing="Whole()", overhead=0)
    run(tmp_path, kind + times, "quickstart", {"workload.requests": 20, "latency": "own"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("arrival_us=[0], input_tokens=[5, 6], output_tokens=[1, 2]", "returns 1 rows of `arrival_us`, and 2 of"),
        ("arrival_us=[0, -1], input_tokens=[5, 6], output_tokens=[1, 2]", "row 1 of `arrival_us` of .* is -1"),
        ("arrival_us=[0, 1], input_tokens=[0, 6], output_tokens=[1, 2]", "row 0 of `input_tokens` of .* is 0"),
        ("arrival_us=[0, 1], input_tokens=[5, 6], output_tokens=[1, 2.5]", r"row 1 of `output_tokens` of .* is 2\.5"),
        (
            f"{TWO}, media=[Media(5, 0, 0), Media(5, 2, 0)]",
            "row 1 .* prompt of 6 tokens cannot have an item",
        ),
        (f"{TWO}, media=[Media(), 5]", "row 1 of `media` or `media_items` of the trace format `own` is invalid"),
        (
            f"{TWO}, media=[Media(), Media(4, 0, 0)], media_items=[(), (MediaItem(0, 3, 'a'),)]",
            "the items have 3 tokens",
        ),
        (f"{TWO}, media=[Media(), Media(4, 0, 0)], media_items=[(), [(0, 4)]]", "row 1 .* is invalid"),
    ],
)
def test_columns_of_a_trace(columns: str, message: str, tmp_path: Path) -> None:
    path, file = tmp_path / "own.py", tmp_path / "requests.txt"
    path.write_text(TRACE.format(columns=columns), encoding="utf-8")
    file.write_text("anything\n", encoding="utf-8")
    about = {"apiVersion": "blis/v1", "kind": "Workload", "metadata": {"name": "own"}}
    changes = {"workload": {**about, "trace": {"file": str(file), "format": "own"}}, "expect": []}
    with pytest.raises(PolicyError, match=message):
        blis_tui.run(blis_tui.load("quickstart", set=changes, plugins=[path]))


@pytest.mark.parametrize("answer", ["None", "True", "('yes', 'why')", "(True, None)", "(True, 'why', 'more')", "'no'"])
def test_whether_a_request_is_split_and_why(answer: str, tmp_path: Path) -> None:
    changes = {"workload.requests": 5, "cluster.disaggregation.decider": "own", "expect": []}
    with pytest.raises(SimulationError, match="the decider `own` answers ") as caught:
        run(tmp_path, SPLIT.format(answer=answer), "disaggregation", changes)
    assert caught.value.help == "`split` returns whether the request is split, and a reason"
    run(tmp_path, SPLIT.format(answer="[0, 'a list will do']"), "disaggregation", changes)


@pytest.mark.parametrize("answer", ["None", "2", "('two', 'why')", "(2, None)", "(2.5, 'why')", "(2, 'why', 'more')"])
def test_how_many_instances_there_should_be_and_why(answer: str, tmp_path: Path) -> None:
    changes = {"workload.requests": 5, "cluster.autoscaler.rule": "own", "expect": []}
    with pytest.raises(SimulationError, match="the scaling rule `own` answers ") as caught:
        run(tmp_path, SCALED.format(answer=answer), "autoscaling", changes)
    assert caught.value.help == "`wanted` returns the number of instances that there should be, and a reason"
    run(tmp_path, SCALED.format(answer="[-1, 'a list will do, and what is below 0 is 0']"), "autoscaling", changes)


RANKS: Final = """
from blis_tui.plugins import SCHEDULING, SortedQueue
@SCHEDULING.plugin("own", "For tests.")
def own(settings): return SortedQueue(rank, "As it says")
def rank(request): return {answer}
"""
PRIORITIES: Final = """
from blis_tui.plugins import PRIORITY
@PRIORITY.plugin("own", "For tests.")
class Own:
    def __init__(self, settings): pass
    def priority(self, request): return {answer}
    def state(self): return ()
"""
RESTORES: Final = """
from blis_tui.plugins import RESTORE
@RESTORE.plugin("own", "For tests.")
class Own:
    rule, uses_host = "As it says", True
    def __init__(self, settings): pass
    def swaps(self, costs): return {answer}
"""
WHOLE: Final = "type('Whole', (), {'__index__': lambda self: 3})()"


@pytest.mark.parametrize("answer", ["None", "float('nan')", "1.5", "(1, 2)", "'first'"])
def test_ranks_and_priorities(answer: str, tmp_path: Path) -> None:
    """Such as are not numbers, and those with which the order would be any."""
    few = {"workload.requests": 5, "expect": []}
    ranked, urgent = few | {"policy.scheduling": "own"}, few | {"policy.priority": "own", "policy.batching": "vllm-v1"}
    with pytest.raises(SimulationError, match="the rank of request_0 in a `SortedQueue` is "):
        run(tmp_path, RANKS.format(answer=answer), "quickstart", ranked)
    run(tmp_path, RANKS.format(answer=WHOLE), "quickstart", ranked)
    with pytest.raises(SimulationError, match=r"the priority rule `own` answers .* for request_0"):
        run(tmp_path, PRIORITIES.format(answer=answer), "quickstart", urgent)
    run(tmp_path, PRIORITIES.format(answer=WHOLE), "quickstart", urgent)


@pytest.mark.parametrize("answer", ["None", "'no'", "2", "[]"])
def test_whether_a_victim_is_swapped(answer: str, tmp_path: Path) -> None:
    changes: dict[str, object] = {"policy.preemption.restore": "own", "expect": []}
    with pytest.raises(SimulationError, match="the preemption restore `own` answers "):
        run(tmp_path, RESTORES.format(answer=answer), "kv-pressure", changes)
    run(tmp_path, RESTORES.format(answer="1 > 0"), "kv-pressure", changes)


@pytest.mark.parametrize("answer", ["None", "[0.5]", "[0.5, float('nan')]", "['a', 'b']", "(one for one in (1, 2))"])
def test_scores(answer: str, tmp_path: Path) -> None:
    weighted = {"kind": "weighted", "scorers": [{"kind": "own"}, {"kind": "queue-depth"}]}
    changes = {"workload.requests": 5, "policy.routing": weighted}
    with pytest.raises(SimulationError, match=r"the scorer `own` answers .* for 2 places") as caught:
        run(tmp_path, SCORES.format(answer=answer), "quickstart", changes)
    assert caught.value.help == "`scores` returns a number between 0 and 1 for every place in the fleet"
    run(tmp_path, SCORES.format(answer="(1, 0.5)"), "quickstart", changes)


@pytest.mark.parametrize(
    ("base", "method"),
    [
        ("FigureScorer", "figure = 'waiting'\n    def grades(self, values): return [float('nan')] * len(values)"),
        ("SparseScorer", "def sparse(self, request, fleet): return 0.5, {1: float('nan')}"),
        ("SparseScorer", "def sparse(self, request, fleet): return float('nan'), {}"),
    ],
    ids=["grades", "of one place", "of the others"],
)
def test_scores_of_few_values(base: str, method: str, tmp_path: Path) -> None:
    text = f"""
from blis_tui.plugins import SCORING, {base}, Weight
@SCORING.plugin("own", "For tests.", Weight)
class Own({base}):
    {method}
"""
    weighted = {"kind": "weighted", "scorers": [{"kind": "own"}]}
    with pytest.raises(SimulationError, match="ValueError at event 3: a score is not a number") as caught:
        run(tmp_path, text, "quickstart", {"workload.requests": 5, "policy.routing": weighted})
    assert "the plug-ins `own`" in str(caught.value.help)
