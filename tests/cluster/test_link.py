"""How long KV blocks travel: 1 byte a microsecond, and a base latency of 10."""

import pytest

from blis_tui.cluster.options.disaggregation import Link, OverlappedStep
from blis_tui.model import Transfer


def link(contention: str, base_latency_us: int = 10, bandwidth: float = 0.001) -> Link:
    return Link(
        Transfer(
            bandwidth_gb_per_s=bandwidth,
            base_latency_us=base_latency_us,
            bytes_per_token=1,
            starts="step-end",
            contention=contention,
        )
    )


def test_without_contention_each_has_all_of_it() -> None:
    one = link("none")
    assert [one.start(request, 30, 0) for request in range(3)] == [40, 40, 40]


def test_a_share_may_be_fixed_when_a_transfer_starts() -> None:
    one = link("fixed-at-start")
    assert [one.start(request, 30, 0) for request in range(3)] == [40, 70, 100]
    one.end(0, 40)
    assert one.start(3, 30, 40) == 100


def ends(one: Link, starts: list[tuple[int, int]]) -> dict[int, int]:
    """When transfers that start at these times with so many bytes are through."""
    found: dict[int, int] = {}
    waiting = dict(enumerate(starts))
    now = 0
    while waiting or one.active:
        through = one.next_end(now)
        upcoming = min((start, request) for request, (start, _) in waiting.items()) if waiting else None
        if upcoming is not None and (through is None or upcoming[0] < through[1]):
            now, request = upcoming
            assert one.start(request, waiting.pop(request)[1], now) is None
        else:
            assert through is not None
            request, now = through
            one.end(request, now)
            found[request] = now
    return found


@pytest.mark.parametrize(
    ("starts", "through"),
    [
        ([(0, 30)], [40]),
        ([(0, 30), (5, 0)], [40, 15]),  # nothing to transfer takes the base latency, too
        ([(0, 30), (0, 30)], [70, 70]),
        ([(0, 30), (0, 10)], [50, 30]),  # 10 each by 30, then 20 more alone
        ([(0, 30), (20, 30)], [50, 70]),  # alone until the base latency of the other is over
        ([(0, 30), (35, 30)], [40, 75]),  # the first one is through before that
        ([(0, 30), (20, 5), (20, 5)], [50, 45, 45]),
    ],
)
def test_whose_base_latency_is_over_shares_the_bandwidth(starts: list[tuple[int, int]], through: list[int]) -> None:
    found = ends(link("fair-share"), starts)
    assert [found[request] for request in range(len(starts))] == through


@pytest.mark.parametrize("contention", ["none", "fixed-at-start"])
def test_a_transfer_takes_at_least_a_microsecond(contention: str) -> None:
    assert link(contention, 0, 1e6).start(0, 1, 5) == 1


def test_a_shared_one_too() -> None:
    one = link("fair-share", 0, 1e6)
    one.start(0, 1, 5)
    assert one.next_end(5) == (0, 6)
    assert one.state()[0] == 1


def test_nothing_under_way_ends_never() -> None:
    assert link("fair-share").next_end(5) is None


@pytest.mark.parametrize("contention", ["none", "fixed-at-start"])
def test_layers_go_while_later_ones_are_computed(contention: str) -> None:
    def rest(step_us: int, layers: int) -> int | None:
        return link(contention).start(0, 80, 0, OverlappedStep(step_us, layers))

    assert [rest(1000, layers) for layers in (1, 2, 8)] == [80, 40, 10]
    assert rest(50, 8) == 80 - 40 * 7 // 8
    assert rest(4, 8) == 80 + 10 - 4


def test_layers_that_go_ahead_have_their_share_alone() -> None:
    one = link("fixed-at-start", 0)
    assert [one.start(request, 80, 0, OverlappedStep(60, 8)) for request in (0, 1)] == [80 - 52, 2 * (80 - 26)]
