"""What requests declare, and nothing else, decides until an answer ends (INV-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.streams import Streams
from blis_tui.engine.records import Completed, StepFinished
from blis_tui.engine.request import Request
from blis_tui.spec.shipped import builtin
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.engine.records import Record
    from blis_tui.runs.simulation import Simulation

REQUESTS = 40
CHANGED = 7
"""The request whose answer differs; nothing is as soon done."""
RULES: dict[str, dict[str, object]] = {
    "blis": {"kind": "blis"},
    "vllm-v1": {"kind": "vllm-v1"},
    "in turns with its scheduler": {"kind": "vllm-v1", "async_scheduling": False},
    "tensorrt-llm": {"kind": "tensorrt-llm"},
    "nano": {"kind": "nano"},
    "llm-serving-sim": {"kind": "llm-serving-sim"},
    "vllm-v1 0.33": {"kind": "vllm-v1", "version": "0.33"},
    "sglang": {"kind": "sglang"},
    "sglang, mixed chunks in a plain loop": {"kind": "sglang", "enable_mixed_chunk": True, "overlap_schedule": False},
}
CONTROL: dict[str, dict[str, object]] = {
    "plain": {},
    "pressed": {"engine.kv_blocks": 90},
    "router": {"cluster.instances": 3, "policy.routing": "least-estimated-ttft"},
    "gateway": {
        "cluster.instances": 2,
        "policy.gateway": {"saturation": {"kind": "concurrency"}, "order": "priority"},
        "policy.admission": "tier-shed",
    },
    "split": {"cluster.disaggregation": {"prefill_instances": 1, "decode_instances": 1}, "cluster.instances": 2},
}


def rows(answer: int, seed: int) -> str:
    """A trace in which one request answers at this length; what it declares is always the same."""
    stream = Streams(seed).stream("rows")
    lines = ["arrival_time_us,input_tokens,output_tokens,max_output_tokens"]
    now = 0
    for index in range(REQUESTS):
        now += int(stream.uniform() * 8_000)
        prompt, tokens = 10 + int(stream.uniform() * 390), 40 + int(stream.uniform() * 80)
        declared = str(tokens + int(stream.uniform() * 30)) if stream.uniform() < 0.5 else ""
        if index == CHANGED:
            tokens, declared = answer, "160"
        lines.append(f"{now},{prompt},{tokens},{declared}")
    return "\n".join(lines) + "\n"


def simulation_of(
    trace: Path, rule: dict[str, object], control: dict[str, object], *, check: str
) -> tuple[Simulation, list[Record]]:
    """A simulation, and a list that gets its records."""
    changes: dict[str, object] = {
        "workload": {"trace": {"file": str(trace)}},
        "expect": [],
        "cluster.instances": 1,
        "latency": "roofline",
        "engine": {"max_num_seqs": 12, "max_num_batched_tokens": 2048, "max_model_len": 1024, "kv_blocks": 250},
        **control,
        "policy.batching": rule,
    }
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changes), check=check)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    return simulation, records


def test_every_batching_rule_is_among_them() -> None:
    assert {rule["kind"] for rule in RULES.values()} == {plugin.name for plugin in builtin().of("policy.batching")}


@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize("rule", RULES)
def test_nothing_differs_until_the_shorter_answer_ends(rule: str, control: str, tmp_path: Path) -> None:
    if control == "split" and RULES[rule]["kind"] not in {"blis", "vllm-v1"}:
        pytest.skip("it does not split requests")
    sides = []
    checks: tuple[tuple[int, str], ...] = ((20, "all"), (150, "off"))  # they are the same up to there
    for answer, check in checks:
        trace = tmp_path / f"{answer}.csv"
        trace.write_text(rows(answer, seed=3))
        sides.append(simulation_of(trace, RULES[rule], CONTROL[control], check=check))
    (simulation, shorter), (other, longer) = sides
    name = f"request_{CHANGED}"
    while not any(isinstance(record, Completed) and record.request_id == name for record in shorter):
        simulation.run(max_events=20)
    # Of a split request, it is the decoding instance's step.
    *_, end = (at for at, record in enumerate(shorter) if isinstance(record, StepFinished) and name in record.completed)
    other.run(max_events=simulation.events)
    assert shorter[:end] == longer[:end]
    assert end > 4 * CHANGED
    assert shorter != longer


def test_a_reservation_goes_by_what_is_declared() -> None:
    """Two prompts of 8 tokens fit, 12 declared tokens each: the second waits though both answer with 1 token."""
    first, second = request(0, 0, 8, 2), request(1, 0, 8, 1)
    made = experiment(batching="tensorrt-llm", blocks=8, max_num_seqs=4)
    together = Outcome(made, [first, second])
    assert together.rows["1"].scheduled_us == 0
    for one in (first := request(0, 0, 8, 2), second := request(1, 0, 8, 1)):
        one.declare(12)
    apart = Outcome(made, [first, second])
    assert (apart.rows["1"].scheduled_us or 0) > 0


def test_a_declared_budget_that_never_fits_is_turned_down_whatever_the_answer() -> None:
    for tokens in (1, 5):
        one = request(0, 0, 8, tokens)
        one.declare(4 * 10)
        assert Outcome(experiment(blocks=10), [one]).rows["0"].state == "dropped-unservable"
        one = request(0, 0, 8, tokens)
        one.declare(4 * 10 - 8 + 1)
        assert Outcome(experiment(blocks=10), [one]).rows["0"].state == "completed"


@pytest.mark.parametrize("limit", [None, 30, 50])
def test_without_a_budget_the_limits_are_the_budget(limit: int | None) -> None:
    """A cache of 40 tokens has room for a prompt of 8 and 33 output tokens, the last of which is not kept."""
    one = request(0, 0, 8, 100)
    one.declare(None)
    row = Outcome(experiment(batching="vllm-v1", blocks=10, max_model_len=limit), [one]).rows["0"]
    assert (row.state, row.output_tokens) == ("completed", 33 if limit != 30 else 22)


def test_who_starts_again_declares_the_same() -> None:
    one = Request(0, "a", 0, 8, 20)
    one.declare(None)
    one.max_output_tokens = 17  # as an instance's limits have it
    one.restart()
    assert (one.max_output_tokens, one.declared_tokens) == (0, -1)
    one.declare(9)
    one.max_output_tokens = 5
    one.restart()
    assert (one.max_output_tokens, one.declared_tokens) == (9, 9)
