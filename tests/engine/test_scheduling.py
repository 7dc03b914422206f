"""Waiting queues and priorities."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.engine import queue as queues
from blis_tui.engine.orders import PRIORITY, PriorityRule
from blis_tui.engine.queue import SCHEDULING, WaitingQueue
from blis_tui.engine.request import Request
from blis_tui.spec.shipped import builtin
from tests.builders import request

MOVES = ("push", "push", "push", "pop", "remove")


SCHEDULERS = [plugin.name for plugin in builtin().of("policy.scheduling")]


def create_queue(name: str) -> WaitingQueue:
    return builtin().create(SCHEDULING, name, {})


def create_priority(name: str) -> PriorityRule:
    return builtin().create(PRIORITY, name, {})


def pop(queue: WaitingQueue) -> Request:
    head = queue.head()
    queue.remove(head)
    return head


def names(requests: list[Request]) -> list[str]:
    return [one.request_id for one in requests]


def test_fcfs_serves_in_order_and_lets_preempted_requests_in_front() -> None:
    queue = create_queue("fcfs")
    first, second, third = (request(i, i, 8, 1) for i in range(3))
    queue.push(first)
    queue.push(second)
    assert queue.position(second) == 1
    queue.push_front(third)
    assert names(queue.ordered()) == ["2", "0", "1"]
    queue.remove(first)
    assert pop(queue) is third
    assert queue.head() is second


def test_sjf_serves_short_prompts_first_and_older_ones_among_equals() -> None:
    queue = create_queue("sjf")
    for index, (arrival, length) in enumerate([(5, 30), (6, 10), (4, 30), (7, 20)]):
        queue.push(request(index, arrival, length, 1))
    assert names(queue.ordered()) == ["1", "3", "2", "0"]


def test_equal_requests_are_ordered_by_name_as_text() -> None:
    queue = create_queue("priority-fcfs")
    for index in (2, 10, 1):
        queue.push(request(index, 0, 8, 1))
    assert names(queue.ordered()) == ["1", "10", "2"]


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("constant", ["0", "1", "2"]),
        ("slo-based", ["0", "1", "2"]),
        ("inverted-slo", ["2", "1", "0"]),
        ("slo-class", ["1", "2", "0"]),
    ],
)
def test_priorities_order_the_queue_and_reverse_priority_turns_it_round(kind: str, order: list[str]) -> None:
    rule = create_priority(kind)
    requests = [request(i, i, 8, 1, slo_class=slo) for i, slo in enumerate(["batch", "critical", "standard"])]
    for one in requests:
        one.priority = rule.priority(one)
    for scheduler, expected in (("priority-fcfs", order), ("reverse-priority", order[::-1])):
        queue = create_queue(scheduler)
        for one in requests:
            queue.push(one)
        if kind != "constant":
            assert names(queue.ordered()) == expected


@given(
    kind=st.sampled_from(sorted(SCHEDULERS)),
    requests=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(-2, 2)), max_size=12),
    removed=st.integers(0, 11),
)
def test_a_queue_gives_back_exactly_what_was_put_in(
    kind: str, requests: list[tuple[int, int, int]], removed: int
) -> None:
    queue = create_queue(kind)
    inside: list[Request] = []
    for index, (arrival, length, priority) in enumerate(requests):
        one = request(index, arrival, length, 1)
        one.priority = priority
        queue.push(one)
        assert queue.ordered()[queue.position(one)] is one
        inside.append(one)
    if removed < len(inside):
        queue.remove(inside.pop(removed))
    expected = queue.ordered()
    assert sorted(names(expected)) == sorted(names(inside))
    assert [pop(queue) for _ in inside] == expected
    assert not queue.items


@given(
    chunk=st.sampled_from((1, 2, 3)),
    moves=st.lists(
        st.tuples(st.sampled_from(("push", "push", "push", "pop", "remove")), st.integers(0, 9)), max_size=60
    ),
)
def test_a_long_queue_is_a_sorted_list_however_it_is_cut(chunk: int, moves: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "_CHUNK", chunk)
        queue = create_queue("sjf")
        inside: list[Request] = []
        for index, (move, number) in enumerate(moves):
            if move == "push":
                one = request(index, index, number + 1, 1)
                queue.push(one)
                inside.append(one)
                inside.sort(key=lambda one: (one.input_tokens, one.arrival_us))
                assert inside[queue.position(one)] is one
            elif inside and move == "pop":
                assert queue.head() is inside[0]
                assert pop(queue) is inside.pop(0)
            elif inside:
                queue.remove(inside.pop(number % len(inside)))
            assert queue.ordered() == inside
            assert queue.first(2) == inside[:2]
            assert len(queue.items) == len(inside)
        restored = deepcopy(queue)
        assert [pop(restored).index for _ in inside] == [one.index for one in inside]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="known: fcfs, priority-fcfs"):
        create_queue("lifo")
    with pytest.raises(PolicyError, match="known: constant"):
        create_priority("loudest")
