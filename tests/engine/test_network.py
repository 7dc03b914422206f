"""What a client's connection adds to the times it measures."""

import pytest

from blis_tui.engine.request import Connection
from tests.builders import Outcome, experiment, request


@pytest.mark.parametrize(
    ("connection", "ttft_us", "e2e_us"),
    [
        (Connection(40.0, None), 40_000, 40_000),
        (Connection(0.0, 32.0), 1000, 1500),
        (Connection(1.5, 64.0), 2000, 2250),
        (Connection(0.0, 3.2e4), 1, 2),
    ],
)
def test_a_round_trip_and_four_bytes_a_token(connection: Connection, ttft_us: int, e2e_us: int) -> None:
    assert connection.ttft_us(1000) == ttft_us
    assert connection.e2e_us(1000, 500) == e2e_us


def test_only_the_clients_own_times_change() -> None:
    near, far = request(0, 0, 8, 4), request(0, 0, 8, 4)
    far.network = Connection(40.0, 32.0)
    rows = [Outcome(experiment(), [one]).rows["0"] for one in (near, far)]
    assert rows[0].ttft_us is not None
    assert rows[0].e2e_us is not None
    assert rows[1] == rows[0]._replace(ttft_us=rows[0].ttft_us + 40_008, e2e_us=rows[0].e2e_us + 40_012)
