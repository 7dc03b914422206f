"""One routing decision changed: only that one, and what is said about it is what two runs say."""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.records import Retried
from blis_tui.engine.records import Routed
from blis_tui.runs.reroute_text import whatif_text
from tests.results.clusters import DOCUMENTS, document, experiment, outcome, simulated

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow
    from blis_tui.runs.reroute import WhatIf

ASKED = (
    ("split", "request_20", 0),
    ("split", "request_20", 2),
    ("gateway", "request_8", 1),
    ("budgets", "request_31", 1),
)


@cache
def asked(name: str, request: str, route_to: int) -> WhatIf:
    return blis_tui.whatif(experiment(name), request, route_to)


@cache
def forced(name: str, request: str, route_to: int) -> tuple[tuple[RequestRow, ...], tuple[Record, ...]]:
    """The rows and records of the run with the other decision."""
    simulation = blis_tui.Simulation(experiment(name), check="all", routes={request: route_to})
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.run()
    return tuple(simulation.report().rows), tuple(records)


def differing(name: str, request: str) -> int:
    """An instance that the request was not on."""
    row = next(row for row in outcome(name)[0].rows if row.request_id == request)
    return 1 - (row.instance or 0)


@pytest.mark.parametrize(("name", "request_id", "route_to"), ASKED)
def test_only_that_decision_is_forced(name: str, request_id: str, route_to: int) -> None:
    """The same records up to that decision; there the other instance; from there on no reason is `forced`."""
    before, after = outcome(name)[1], forced(name, request_id, route_to)[1]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    what_if = asked(name, request_id, route_to)
    if what_if.chosen == route_to:
        assert before == after
        assert what_if.divergence is None
        return
    old, new = before[shared], after[shared]
    assert isinstance(old, Routed)
    assert isinstance(new, Routed)
    assert (old.request_id, old.instance) == (request_id, what_if.chosen)
    assert (new.request_id, new.instance) == (request_id, route_to)
    assert new.reason == f"forced; the policy chose instance {old.instance}: {old.reason}"
    reasons = [record.reason for record in after if isinstance(record, Routed)]
    assert [reason.startswith("forced") for reason in reasons].count(True) == 1
    assert what_if.divergence is not None
    assert what_if.divergence.event == old.event


@pytest.mark.parametrize(("name", "request_id", "route_to"), ASKED)
def test_what_is_said_is_the_difference_of_two_tables(name: str, request_id: str, route_to: int) -> None:
    what_if, rows = asked(name, request_id, route_to), forced(name, request_id, route_to)[0]
    pairs = {row.request_id: (row, two) for row, two in zip(outcome(name)[0].rows, rows, strict=True)}
    assert (what_if.request.before, what_if.request.after) == pairs.pop(request_id)
    others = what_if.others
    assert others.total == len(pairs)
    assert others.changed == sum(request != two for request, two in pairs.values())
    both = {who: (request.e2e_us, two.e2e_us) for who, (request, two) in pairs.items()}
    changes = {who: two - one for who, (one, two) in both.items() if one is not None and two is not None and one != two}
    assert others.e2e.total_us == sum(changes.values())
    assert (others.e2e.longer, others.e2e.shorter) == (
        sum(change > 0 for change in changes.values()),
        sum(change < 0 for change in changes.values()),
    )
    for listed, sign in ((others.worst, 1), (others.best, -1)):
        expected = sorted((sign * change for change in changes.values() if sign * change > 0), reverse=True)[:5]
        assert [sign * (one.e2e_change_us or 0) for one in listed] == expected
    if changes:
        assert others.e2e.change_ms.max == max(changes.values()) / 1000
        assert others.e2e.change_ms.min == min(changes.values()) / 1000


def test_somebody_is_changed_by_it() -> None:
    assert sum(asked(*one).others.changed for one in ASKED) > 0


def test_a_split_request_is_routed_twice_and_the_first_decision_that_can_is_changed() -> None:
    row = next(row for row in outcome("split")[0].rows if row.prefill_instance is not None and row.instance is not None)
    assert row.prefill_instance is not None
    assert row.instance is not None
    prefill = blis_tui.whatif(experiment("split"), row.request_id, 1 - row.prefill_instance)
    assert (prefill.chosen, prefill.request.after.prefill_instance) == (row.prefill_instance, 1 - row.prefill_instance)
    decode = blis_tui.whatif(experiment("split"), row.request_id, 5 - row.instance)
    assert (decode.chosen, decode.request.after.instance) == (row.instance, 5 - row.instance)
    assert decode.request.after.prefill_instance == row.prefill_instance


DYING = document({"instances": 3, "failures": [{"instance": 1, "at_us": 1_500_000}]}, {})


@cache
def retried() -> tuple[Experiment, list[Routed]]:
    """A run in which an instance dies, and the routing decisions about one request that was on it."""
    made = blis_tui.load(DYING)
    records = simulated(made)[1]
    again = next(record for record in records if isinstance(record, Retried))
    routed = [record for record in records if isinstance(record, Routed) and record.request_id == again.request_id]
    assert len(routed) == 2
    return made, routed


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_request_that_started_again_has_a_decision_for_each_attempt(attempt: int) -> None:
    made, routed = retried()
    wanted = routed[attempt]
    other = next(index for index in (0, 2) if index != wanted.instance)
    what_if = blis_tui.whatif(made, wanted.request_id, other, event=wanted.event)
    assert (what_if.decision.event, what_if.chosen) == (wanted.event, wanted.instance)
    assert [(decision.event, decision.instance) for decision in what_if.decisions] == [
        (one.event, one.instance) for one in routed
    ]
    assert what_if.divergence is not None
    assert what_if.divergence.event == wanted.event
    assert "routed 2 times" in whatif_text(what_if)
    simulation = blis_tui.Simulation(made, routes=what_if.routes)
    records: list[Routed] = []
    simulation.subscribe(Routed, records.append)
    simulation.run()
    forced = [record for record in records if record.reason.startswith("forced")]
    assert [(one.event, one.request_id, one.instance) for one in forced] == [(wanted.event, wanted.request_id, other)]
    row = next(row for row in simulation.report().rows if row.request_id == wanted.request_id)
    assert row == what_if.request.after


def test_without_an_event_the_first_decision_is_changed() -> None:
    made, routed = retried()
    other = 2 if routed[0].instance != 2 else 0
    assert blis_tui.whatif(made, routed[0].request_id, other).decision.event == routed[0].event


def test_an_event_without_such_a_decision_is_one_clear_error() -> None:
    made, (first, second) = retried()
    with pytest.raises(blis_tui.RouteError) as error:
        blis_tui.whatif(made, first.request_id, 0, event=1)
    assert str(error.value) == (
        f"{first.request_id} is not routed at event 1\n  = help: it is at"
        f" event {first.event:,} (to {first.instance}) and event {second.event:,} (to {second.instance})"
    )
    with pytest.raises(blis_tui.RouteError) as error:
        blis_tui.whatif(made, first.request_id, 1, event=second.event)
    assert str(error.value) == (
        f"instance 1 is not a candidate for {first.request_id} at event {second.event:,}\n  = help: the router chose"
        f" {second.instance}; candidates depend on cluster.pools and cluster.disaggregation, and on which instances "
        f"are up then"
    )


def test_the_instance_that_was_chosen_anyway_changes_nothing() -> None:
    row = outcome("gateway")[0].rows[8]
    assert row.instance is not None
    what_if = blis_tui.whatif(experiment("gateway"), row.request_id, row.instance)
    assert (what_if.divergence, what_if.others.changed, what_if.request.e2e_change_us) == (None, 0, 0)
    assert what_if.request.before == what_if.request.after


def test_it_survives_checkpoints_and_shows_in_digests() -> None:
    other = differing("gateway", "request_8")
    simulation = blis_tui.Simulation(experiment("gateway"), routes={"request_8": other})
    plain = blis_tui.Simulation(experiment("gateway"))
    assert simulation.digest() != plain.digest()
    simulation.run(max_events=3)
    checkpoint, mark = simulation.checkpoint(), simulation.mark()
    again = blis_tui.Simulation(experiment("gateway"), routes={"request_8": other})
    again.restore(checkpoint)
    again.run()
    twin = simulation.twin(mark)
    twin.run()
    expected = forced("gateway", "request_8", other)[0]
    assert tuple(again.report().rows) == tuple(twin.report().rows) == expected
    assert again.unused_routes == ()
    with pytest.raises(blis_tui.InputError, match="not a checkpoint of this experiment"):
        plain.restore(checkpoint)


WRONG: dict[str, tuple[str, str, int, dict[str, object]]] = {
    "unknown": ("split", "nobody", 1, {}),
    "no-such-instance": ("split", "request_20", 4, {}),
    "negative": ("split", "request_20", -1, {}),
    "single": ("split", "request_20", 1, {"cluster": {"instances": 1}}),
    "rejected": ("split", "request_20", 1, {"policy.admission": "reject-all"}),
    "cut": ("early", "request_110", 1, {"horizon_us": 2_950_000, "cluster.routing_latency_us": 5_000_000}),
    "no-candidate": ("split", "request_20", 0, {"cluster.disaggregation.decider": "never"}),
}
TEXTS = {
    "unknown": "there is no request `nobody`\n"
    "  = help: names are those of `run --requests`; there are 150, from request_0 to request_149",
    "no-such-instance": "there is no instance 4\n  = help: the cluster has 4 instances: 0 to 3",
    "negative": "there is no instance -1\n  = help: the cluster has 4 instances: 0 to 3",
    "single": "there is no instance 1\n  = help: the cluster has 1 instance: 0",
    "rejected": "request_20 is never routed: it was rejected\n  = help: only a request that is routed can go elsewhere",
    "cut": "request_110 is never routed: the run ended before that\n"
    "  = help: only a request that is routed can go elsewhere",
    "no-candidate": "instance 0 is not a candidate for request_20\n"
    "  = help: the router chose 2; candidates depend on cluster.pools and cluster.disaggregation",
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_one_clear_error(case: str) -> None:
    name, request_id, route_to, changed = WRONG[case]
    document = dict(DOCUMENTS[name])
    if "cluster" in changed:
        document["cluster"] = changed["cluster"]
        changed = {}
    with pytest.raises(blis_tui.RouteError) as error:
        blis_tui.whatif(blis_tui.load(document, set=changed), request_id, route_to)
    assert str(error.value) == TEXTS[case]


def test_an_experiment_is_loaded_first() -> None:
    with pytest.raises(TypeError, match=r"load one with blis_tui.load\(\)"):
        blis_tui.whatif("quickstart", "request_1", 0)  # type: ignore[arg-type]


def test_an_instance_of_another_model_is_no_candidate(tmp_path: Path) -> None:
    spec = tmp_path / "two-models.blis.yaml"
    spec.write_text(TWO_MODELS, encoding="utf-8")
    made = blis_tui.load(spec)
    assert blis_tui.whatif(made, "request_3", 1).chosen in {0, 1}
    with pytest.raises(blis_tui.BlisError, match="instance 2 is not a candidate for request_3"):
        blis_tui.whatif(made, "request_3", 2)


TWO_MODELS = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: two-models}
model: qwen3-14b
hardware: h100
workload:
  requests: 10
  rate_per_s: 20
  clients:
    - id: all
      model: qwen3-14b
      input_tokens: 50
      output_tokens: 5
cluster:
  pools:
    - {name: a, instances: 2}
    - {name: b, instances: 1, model: llama-3.1-8b-instruct}
"""


SESSIONS = {
    "workload": {
        "sessions": 40,
        "rate_per_s": 40,
        "clients": [
            {
                "id": "chat",
                "input_tokens": 500,
                "output_tokens": {"kind": "uniform", "min": 1, "max": 200},
                "session": {"turns": {"kind": "uniform", "min": 1, "max": 5}, "think_time_ms": 500},
                "timeout_us": 5_000_000,
            }
        ],
    },
    "cluster.instances": 2,
    "engine.max_num_seqs": 4,
}


def _calls(rows: tuple[RequestRow, ...]) -> dict[tuple[str, int], RequestRow]:
    return {(row.session_id, row.round_index or 0): row for row in rows}


@pytest.mark.parametrize("timeout_us", [100_000_000, 1_100_000])
def test_calls_of_sessions_are_compared_with_themselves_whatever_their_names(timeout_us: int) -> None:
    """Answers that come sooner or later change the order in which the next prompts come, from which names follow."""
    made = blis_tui.load("quickstart", set={**SESSIONS, "workload.clients.0.timeout_us": timeout_us})
    before = tuple(blis_tui.run(made).rows)
    what_if = blis_tui.whatif(made, "request_0", 1 - (before[0].instance or 0))
    simulation = blis_tui.Simulation(made, routes=what_if.routes)
    simulation.run()
    after = tuple(simulation.report().rows)
    assert [row.session_id for row in before] != [row.session_id for row in after]
    old, new = _calls(before), _calls(after)
    pairs = [(row, new[call]) for call, row in old.items() if call in new and row.request_id != "request_0"]
    times = [(request.e2e_us, two.e2e_us) for request, two in pairs]
    changes = [later - sooner for sooner, later in times if sooner is not None and later is not None]
    assert what_if.others.e2e.total_us == sum(changes)
    assert what_if.others.e2e.longer == sum(change > 0 for change in changes)
    assert (what_if.others.total, what_if.others.not_compared) == (len(pairs), len(before) - 1 - len(pairs))
    assert (what_if.others.not_compared > 0) == (timeout_us == 1_100_000), "calls of cancelled sessions are not sent"
    missing = f"{what_if.others.not_compared} requests not compared"
    assert (missing in whatif_text(what_if)) == (what_if.others.not_compared > 0)


def test_prompts_of_a_closed_loop_that_came_in_another_order_are_not_compared() -> None:
    lengths = {"kind": "uniform", "min": 10, "max": 1000}
    users = {"kind": "closed-loop", "users": 10}
    clients = [{"id": name, "arrivals": users, "input_tokens": lengths, "output_tokens": lengths} for name in "ab"]
    changes = {"workload": {"requests": 200, "clients": clients}, "cluster.instances": 2}
    made = blis_tui.load("quickstart", set=changes)
    before = tuple(blis_tui.run(made).rows)
    what_if = blis_tui.whatif(made, "request_3", 1 - (before[3].instance or 0))
    simulation = blis_tui.Simulation(made, routes=what_if.routes)
    simulation.run()
    after = tuple(simulation.report().rows)
    other = [
        request.request_id
        for request, two in zip(before, after, strict=True)
        if request.input_tokens != two.input_tokens
    ]
    assert other
    assert what_if.others.not_compared >= len(other)
    assert not {change.request_id for change in (*what_if.others.worst, *what_if.others.best)} & {*other}
