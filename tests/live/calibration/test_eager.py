"""Servers without CUDA graphs: coefficients of their steps have the launches in them."""

from __future__ import annotations

from dataclasses import replace

from blis_tui.live.calibration.measured import Data
from blis_tui.live.calibration.run import calibrated
from blis_tui.live.calibration.simulated_load import compared
from tests.live.calibration.servers import measure, served


def test_launches_are_part_of_the_coefficients_and_do_not_count_twice() -> None:
    one = served("llama-3.1-8b-instruct", 6.0, 800, requests=35)
    (pool,) = one.pools
    eager = replace(one, pools=(replace(pool, engine=replace(pool.engine, enforce_eager=True)),))
    recording = measure(eager)
    found = calibrated([Data(recording, eager)])
    # As it is, the experiment agrees with itself; so nothing better is found, and its launches stay a key.
    assert found.fit.kept
    assert not any("enforce_eager" in it for it in found.fit.statements)
    slower = replace(eager, pools=(replace(eager.pools[0], hardware=replace(pool.hardware, launch_us=70.0)),))
    other = Data(measure(slower), eager)
    found = calibrated([other])
    assert any("do not set engine.enforce_eager or engine.cudagraph_mode" in it for it in found.fit.statements)
    ((_, pairs),) = compared([Data(other.recording, one)], found.fit.latency).items()
    steps = [both for pair in pairs if (both := pair.values("tpot")) is not None]
    assert all(abs(simulated / took - 1.0) < 0.1 for took, simulated in steps)
