"""``power-of-two`` takes the least loaded of a few that are drawn."""

import pytest

from blis_tui.cluster.policies.routing import PowerOfTwo, PowerOfTwoSettings
from tests.cluster.seen import Seen, context, fleet, incoming

SEEN = fleet(*(Seen(waiting=count) for count in (4, 3, 2, 1)))


def test_the_busiest_is_never_taken_and_all_others_are() -> None:
    policy, drawing = PowerOfTwo(PowerOfTwoSettings(choices=2)), context()
    taken = [policy.choose(incoming(), SEEN, drawing)[0] for _ in range(200)]
    assert set(taken) == {1, 2, 3}
    assert taken.count(3) > taken.count(2) > taken.count(1)  # 3, 2 and 1 of 6 pairs


def test_with_as_many_choices_as_instances_it_is_the_least_loaded() -> None:
    assert PowerOfTwo(PowerOfTwoSettings(choices=9)).choose(incoming(), SEEN, context()) == (3, "load 1 of 4 drawn")


@pytest.mark.parametrize(("numbers", "taken"), [((3, 2), 3), ((1, 0), 1), ((0, 2), 0)])
def test_among_equals_it_is_the_first_drawn(
    numbers: tuple[int, int], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing, drawn = context(), iter(numbers)
    monkeypatch.setattr(type(drawing.stream), "below", lambda _stream, _limit: next(drawn))
    equal = fleet(*(Seen(waiting=1) for _ in range(4)))
    assert PowerOfTwo(PowerOfTwoSettings(choices=2)).choose(incoming(), equal, drawing)[0] == taken
