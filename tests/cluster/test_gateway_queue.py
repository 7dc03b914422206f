"""The gateway's queue: who is taken in, who has to go, and who is next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.cluster.gateway_queue import GatewayQueue
from blis_tui.cluster.routed_request import NO_NEXT_STAGE, RoutedRequest
from blis_tui.engine.request import Request
from blis_tui.model import SLO_PRIORITIES, Gateway, PluginConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.gateway_queue import Held


def settings(
    *,
    order: str = "fifo",
    max_depth: int = 0,
    when_full: str = "reject",
    bands: bool = False,
    per_band_capacity: int = 0,
    fairness: str = "global-strict",
    weights: dict[str, float] | None = None,
    usage_limit: float = 1.0,
) -> Gateway:
    return Gateway(
        order=order,
        saturation=PluginConfig(kind="never"),
        dispatch="on-completion",
        tick_us=0,
        max_depth=max_depth,
        when_full=when_full,
        bands=bands,
        per_band_capacity=per_band_capacity,
        fairness=fairness,
        weights=weights or {},
        request_ttl_us=0,
        usage_limit=usage_limit,
        slo_targets_us={"critical": 50, "batch": 1000},
    )


def offer(
    queue: GatewayQueue, number: int, slo_class: str = "standard", tenant: str = "", *, tokens: int = 8, now: int = 0
) -> tuple[Held | None, Held | None]:
    request = Request(number, str(number), now, tokens, 1, slo_class=slo_class, tenant=tenant)
    return queue.offer(RoutedRequest(request, lambda routed, now: NO_NEXT_STAGE), SLO_PRIORITIES[slo_class], now)


def filled(made: Gateway, asked: Sequence[tuple[str, ...]]) -> GatewayQueue:
    queue = GatewayQueue(made)
    for number, (slo_class, *tenants) in enumerate(asked):
        offer(queue, number, slo_class, *tenants, now=number)
    return queue


def out(queue: GatewayQueue, saturation: float = 0.0) -> list[int]:
    """Everybody in the order in which they are dispatched."""
    found = []
    while (held := queue.next(saturation)) is not None:
        found.append(held.routed.request.index)
    return found


CLASSES = [("batch",), ("standard",), ("critical",), ("standard",)]


@pytest.mark.parametrize(
    ("order", "bands", "expected"),
    [
        ("fifo", False, [0, 1, 2, 3]),
        ("priority", False, [2, 1, 3, 0]),
        ("slo-deadline", False, [2, 0, 1, 3]),  # without a target: last
        ("fifo", True, [2, 1, 3, 0]),
    ],
)
def test_the_order_decides_who_is_next(order: str, bands: bool, expected: list[int]) -> None:
    assert out(filled(settings(order=order, bands=bands), CLASSES)) == expected


@pytest.mark.parametrize(
    ("when_full", "newcomer", "victim"),
    [
        ("reject", "critical", None),
        ("shed-least-urgent", "critical", 2),  # of equals the latest
        ("shed-least-urgent", "standard", None),
        ("shed-sheddable", "critical", None),
    ],
)
def test_a_full_queue_turns_somebody_away(when_full: str, newcomer: str, victim: int | None) -> None:
    queue = filled(settings(max_depth=3, when_full=when_full), [("critical",), ("standard",), ("standard",)])
    held, gone = offer(queue, 3, newcomer)
    assert (held is None, gone is None) == (victim is None, victim is None)
    assert gone is None or (gone.routed.request.index, gone.gone) == (victim, True)
    assert len(queue) == 3


def test_of_sheddable_classes_the_least_urgent_goes() -> None:
    queue = filled(settings(max_depth=3, when_full="shed-sheddable"), [("background",), ("sheddable",), ("standard",)])
    _, gone = offer(queue, 3, "batch")
    assert gone is not None
    assert gone.routed.request.slo_class == "background"


def test_a_full_band_is_full_whoever_waits_in_others() -> None:
    made = settings(bands=True, per_band_capacity=1, when_full="shed-least-urgent")
    queue = filled(made, [("background",), ("standard",)])
    assert offer(queue, 2, "standard") == (None, None)
    assert offer(queue, 3, "critical")[0] is not None
    assert len(queue) == 3


def test_bands_of_less_urgent_requests_halt_earlier() -> None:
    made = settings(bands=True, usage_limit=0.5)
    asked = [("critical",), ("standard",), ("batch",)]
    # The ceilings are 1, 0.75 and 0.5; a band that was served once keeps its place.
    assert out(filled(made, asked), 0.4) == [0, 1, 2]
    assert out(filled(made, asked), 0.5) == [0, 1]
    assert out(filled(made, asked), 0.75) == [0]
    assert out(filled(made, asked), 1.0) == []


def test_tenants_take_turns() -> None:
    asked = [("standard", "b"), ("standard", "b"), ("standard", "a"), ("standard", "a"), ("standard", "c")]
    assert out(filled(settings(fairness="round-robin"), asked)) == [2, 0, 4, 3, 1]


@pytest.mark.parametrize("fairness", ["round-robin", "weighted"])
def test_requests_without_a_tenant_are_a_tenant_of_their_own(fairness: str) -> None:
    assert out(filled(settings(fairness=fairness), [("standard", "a"), ("standard", "")])) == [1, 0]


def test_weights_are_turns_of_tokens() -> None:
    queue = GatewayQueue(settings(fairness="weighted", weights={"a": 2.0}))
    for number in range(9):
        offer(queue, number, tenant="ab"[number % 2], tokens=512)
    assert [number % 2 for number in out(queue)] == [0, 0, 1, 0, 0, 1, 0, 1, 1]


def test_small_weights_wait_for_their_turn_and_are_not_forgotten() -> None:
    queue = GatewayQueue(settings(fairness="weighted", weights={"a": 0.25}))
    for number in range(6):
        offer(queue, number, tenant="ab"[number % 2], tokens=512)
    assert [number % 2 for number in out(queue)] == [1, 1, 1, 0, 0, 0]


def test_its_state_says_who_waits_and_whose_turn_it_was() -> None:
    queue = filled(settings(fairness="round-robin"), [("standard", "b"), ("standard", "a")])
    before = queue.state()
    assert queue.next(0.0) is not None
    assert (
        queue.state()
        != before
        == filled(settings(fairness="round-robin"), [("standard", "b"), ("standard", "a")]).state()
    )


def test_a_share_that_would_need_turns_without_end_is_refused() -> None:
    """A tenant alone in the queue gets its quantum again and again until the prompt is paid for."""
    gateway = {"fairness": "weighted", "weights": {"a": 1e-18}}
    with pytest.raises(SpecError, match=r"`a` must be at least 0\.001"):
        blis_tui.load("quickstart", set={"policy.gateway": gateway})
