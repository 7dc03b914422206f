"""What a decode cohort takes: memory in proportion to its members, not to the size of a block."""

import sys
import tracemalloc

import pytest

from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.latency.model import StepLoad
from tests.builders import Outcome, experiment, request


def _bytes_of(block_size: int) -> int:
    """What a cluster takes in memory, one of whose instances has work."""
    made = experiment(block_size=block_size, instances=200)
    Outcome(made, [])  # all that is imported on the way
    tracemalloc.start()
    try:
        outcome = Outcome(made, [request(0, 0, 3, 3)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.rows["0"].output_tokens == 3
    return taken


def test_idle_instances_take_the_same_memory_whatever_the_block_size() -> None:
    assert _bytes_of(4096) < 1.2 * _bytes_of(4)


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_classes_take_memory_as_they_get_members(size: int) -> None:
    cohort = DecodeCohort(StepLoad(), size)
    assert sys.getsizeof(cohort.classes) == sys.getsizeof([])
    members = [request(index, 0, 10 + index, 5) for index in range(4)]
    for slot, member in enumerate(members):
        member.batch_slot, member.max_output_tokens = slot, 5
        member.computed_tokens, member.generated_tokens = member.input_tokens, 1
        cohort.join(member, 0)
    assert len({id(members) for members in cohort.classes}) <= 1 + len(members)
    assert sorted(cohort.members(), key=lambda member: member.index) == members
    assert [sorted(cohort.classes[-context % size]) for context in (10, 11)] == [
        [slot for slot, member in enumerate(members) if (member.input_tokens - context) % size == 0]
        for context in (10, 11)
    ]
    for member in members:
        cohort.leave(member)
    assert cohort.members() == []
