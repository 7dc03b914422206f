"""What routing policies choose, seen in the records of small clusters."""

from dataclasses import replace

from blis_tui.engine.records import Routed
from blis_tui.engine.request import Request
from blis_tui.model import Experiment, PluginConfig, Setting
from tests.builders import Outcome, experiment, request


def routed_by(kind: str, instances: int = 2, **settings: Setting) -> Experiment:
    made = experiment(instances=instances, max_num_seqs=4)
    return replace(made, policy=replace(made.policy, routing=PluginConfig(kind=kind, settings=settings)))


def choices(made: Experiment, requests: list[Request]) -> list[int]:
    return [record.instance for record in Outcome(made, requests).records if isinstance(record, Routed)]


def test_least_loaded_avoids_who_has_work() -> None:
    # Each answer takes long: whoever comes next goes where nobody is, and then there is a tie again.
    first, second = choices(routed_by("least-loaded"), [request(0, 0, 8, 50), request(1, 200, 8, 50)])
    assert first != second


def test_always_busiest_sends_everybody_to_the_first() -> None:
    assert choices(routed_by("always-busiest", 3), [request(i, 50 * i, 8, 50) for i in range(5)]) == [0] * 5


def test_a_session_stays_where_it_is() -> None:
    requests = [request(i, 5 * i, 8, 50) for i in range(8)]
    for one in requests:
        one.session_id = "ab"[one.index % 2]
    found = choices(routed_by("session-affinity", 4), requests)
    assert found[::2] == [found[0]] * 4
    assert found[1::2] == [found[1]] * 4
    assert found[0] != found[1]


def test_power_of_two_takes_the_less_loaded_of_all_it_draws() -> None:
    # Of two instances both are drawn: the answer is that of least-loaded.
    requests = [request(i, 40 * i, 8, 30) for i in range(12)]
    found = choices(routed_by("power-of-two", choices=2), requests)
    assert abs(found.count(0) - found.count(1)) <= 2


def test_the_estimated_first_token_counts_cached_prompts_and_queues() -> None:
    shared = (("system", 40),)
    requests = [
        request(0, 0, 44, 2, segments=shared),
        request(1, 5_000, 44, 2, segments=shared),  # its prompt is where the first one was
        *(request(2 + i, 10_000, 44, 40) for i in range(6)),  # these fill both
        request(9, 10_400, 4, 1),
    ]
    found = choices(routed_by("least-estimated-ttft"), requests)
    assert found[0] == found[1]
    assert abs(found[2:8].count(0) - 3) <= 1
