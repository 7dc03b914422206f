"""Which loads to measure of an unknown server, and whether they find it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import log
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pytest

from blis_tui.base.errors import InputError
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.live.calibration.fitting.calibrate import fit
from blis_tui.live.calibration.fitting.collect import Adviser, grid, information, measured, plan
from blis_tui.live.calibration.fitting.fit import ASSUMED
from blis_tui.live.calibration.fitting.laws import FittedLaw
from blis_tui.live.calibration.fitting.posterior import Posterior
from blis_tui.live.calibration.measured import Data
from blis_tui.live.calibration.other_loads import Load, with_load
from blis_tui.spec.shipped import builtin
from tests.builders import request
from tests.live.calibration.servers import BASE, measure, served, with_coefficients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Experiment

LAW = FittedLaw(FittedSettings())
FEW = [Load(users, prompt, 24) for users in (1, 16) for prompt in (48, 400, 1600)]


@pytest.fixture(scope="module")
def server() -> Experiment:
    return served("llama-3.1-8b-instruct", 3.0, 800)


@pytest.fixture(scope="module")
def rows(server: Experiment) -> dict[Load, np.ndarray]:
    """What each of a few loads tells: slopes of its equations."""
    spread = np.array([term.spread for term in LAW.terms])
    base = np.array([term.base for term in LAW.terms])
    found = {}
    for load in FEW:
        informed = information(LAW, server, load, base, ASSUMED[0])
        assert informed is not None
        found[load] = informed[1] * spread
        found[load].flags.writeable = False
    return found


def stacked(rows: dict[Load, np.ndarray], loads: Sequence[Load]) -> np.ndarray:
    return np.vstack([np.eye(len(LAW.terms)), *(rows[load] for load in loads)])


def log_volume(rows: dict[Load, np.ndarray], loads: Sequence[Load]) -> float:
    """Of where coefficients may lie, as eigenvalues of all equations stacked say it: natural logarithm."""
    return -float(np.sum(np.log(np.linalg.svd(stacked(rows, loads), compute_uv=False))))


def test_each_load_leaves_least_open_beside_those_before_it(server: Experiment, rows: dict[Load, np.ndarray]) -> None:
    found = plan(server, LAW, 2, FEW)
    chosen = [one.load for one in found.loads]
    alone = {load: log_volume(rows, [load]) for load in FEW}
    assert chosen[0] == min(alone, key=lambda load: alone[load])
    volumes = {pair: log_volume(rows, pair) for pair in combinations(FEW, 2)}
    own = log_volume(rows, chosen)
    assert own == pytest.approx(min(volume for pair, volume in volumes.items() if chosen[0] in pair), rel=1e-9)
    # Greedy choices gain at least 1 - 1/e of what the best ones do; here nearly all of it.
    assert own < 0.95 * min(volumes.values())
    # What each gains adds up to all of it.
    assert sum(one.gain for one in found.loads) * log(10) == pytest.approx(-own, rel=1e-6)
    assert [one.gain for one in found.loads] == sorted((one.gain for one in found.loads), reverse=True)


def test_what_is_within_reach_is_what_the_equations_leave(server: Experiment, rows: dict[Load, np.ndarray]) -> None:
    found = plan(server, LAW, len(FEW), FEW)
    inverse = np.linalg.pinv(stacked(rows, FEW))
    covariance = inverse @ inverse.T
    at = [term.name for term in LAW.terms].index("weights")
    expected = 1.645 * float(np.sqrt(covariance[at, at])) * LAW.terms[at].spread / LAW.terms[at].base
    assert found.within["weights"] == pytest.approx(expected, rel=1e-6)
    assert "expert_flops" not in found.within  # the model has none
    assert found.tried == len(FEW)


def test_loads_fit_the_engine(server: Experiment) -> None:
    (pool,) = server.pools
    small = replace(server, pools=(replace(pool, engine=replace(pool.engine, max_num_seqs=16, max_model_len=1024)),))
    loads = grid(small)
    assert max(load.users for load in loads) == 16
    assert max(load.prompt_tokens for load in loads) == 512
    assert max(load.prompt_tokens for load in grid(server)) == 4096


def test_no_load_that_the_engine_serves_is_an_error(server: Experiment) -> None:
    with pytest.raises(InputError, match="serves none of the loads"):
        plan(server, LAW, 2, [])


# ---- a round trip ----

HIDDEN = replace(BASE, weights=1.45, flops=1.9, kv_read=1.6, prefill_attention=3.0, layer_us=61.0, first_token_us=11e3)
LOADS = 2
DRAWS = 3
NOISE = 0.001
MOST_TOKENS = 8192
"""So exact, and with so few tokens of prompts at a time, the first start leads to the server, whatever the load: from
several, a fit takes ten times as long."""


def times(server: Experiment, settings: FittedSettings) -> list[float]:
    """Steps of decodes, of prompts and of both, small and large, and what a request waits before."""
    (pool,) = with_coefficients(server, settings).pools
    latency = create_latency(builtin(), pool)
    found = [
        float(latency.step_time_us(StepLoad([], count, count * context)))
        for count in (1, 8, 64, 256)
        for context in (200, 3000)
    ]
    for decodes in (0, 16):
        for new in (64, 512, 4096):
            for before in (0, 4096):
                chunk = Chunk(request(0, 0, before + new, 1), before, new, before + new)
                found.append(float(latency.step_time_us(StepLoad([chunk], decodes, decodes * 500))))
    return [*found, float(latency.queueing_time_us(request(0, 0, 1000, 1)))]


def off(server: Experiment, loads: Sequence[Load]) -> float:
    """How far such times are from the hidden server's, in the mean: the logarithm of their ratio."""
    data = []
    for number, load in enumerate(loads):
        loaded = with_load(server, load)
        data.append(Data(measure(with_coefficients(loaded, HIDDEN), noise=NOISE, seed=number), loaded))
    settings = fit(data, "fitted", advise=False).latency.settings
    pairs = zip(times(server, FittedSettings(**settings)), times(server, HIDDEN), strict=True)  # type: ignore[arg-type]
    errors = [abs(log(one / other)) for one, other in pairs]
    return sum(errors) / len(errors)


def test_the_load_that_is_advised_is_the_first_that_halves_every_deviation(
    server: Experiment, rows: dict[Load, np.ndarray]
) -> None:
    """Beside what one user with short prompts tells; loads that the engine cannot serve are passed over."""
    base, spread = (np.array([getattr(one, key) for one in LAW.terms]) for key in ("base", "spread"))
    known = rows[FEW[0]]
    posterior = Posterior(LAW.terms, known / spread, known / spread @ base, np.zeros((len(known), 0)), [])
    recording = measured(with_load(server, FEW[0]))
    assert recording is not None
    adviser = Adviser(LAW, Data(recording, server), posterior, base, [ASSUMED[0]])
    before = deviations(rows, FEW[:1])
    advised: dict[str, Load | None] = {}
    for place, term in enumerate(LAW.terms):
        halved = [load for load in FEW[1:] if deviations(rows, [FEW[0], load])[place] <= 0.5 * before[place]]
        advised[term.name] = adviser.best([term.name], [Load(1, 500_000), *FEW[1:]])
        assert advised[term.name] == (halved[0] if halved else None)
    assert len({*advised.values()}) > 2  # none, and different ones
    halved_name = next(name for name, load in advised.items() if load is not None)
    never = next(name for name, load in advised.items() if load is None)
    assert adviser.best([halved_name, never], FEW[1:]) is None
    assert adviser.best([halved_name], []) is None
    load = advised[halved_name]
    assert load is not None
    assert len(adviser.measured_under(load).recording.requests) == load.requests  # type: ignore[union-attr]


def deviations(rows: dict[Load, np.ndarray], loads: Sequence[Load]) -> np.ndarray:
    equations = stacked(rows, loads)
    found: np.ndarray = np.sqrt(np.diag(np.linalg.inv(equations.T @ equations)))
    return found


def test_a_server_that_serves_less_than_half_is_no_measurement(server: Experiment) -> None:
    """Clients measure what they are answered, in the order of arrivals."""
    recording = measured(server)
    assert recording is not None
    assert len(recording.requests) == 150
    arrivals = [one.arrival_us for one in recording.requests]
    assert arrivals == sorted(arrivals)
    few = {count: replace(server, workload=replace(server.workload, requests=count)) for count in (59, 60)}
    assert [measured(one) is None for one in few.values()] == [True, False]
    assert measured(with_load(server, Load(1, 500_000))) is None


@pytest.mark.slow
def test_a_hidden_server_is_found_better_than_with_as_many_random_loads(server: Experiment) -> None:
    every = [
        Load(users, prompt, answer)
        for users in (1, 4)
        for prompt in (64, 512, 4096)
        for answer in (16, 48)
        if users * prompt <= MOST_TOKENS
    ]
    chosen = [load.load for load in plan(server, LAW, LOADS, every).loads]
    own = off(server, chosen)
    pairs = list(combinations(every, LOADS))
    # Evenly among all pairs: no draw of ours. One may be the chosen one, which is not measured again.
    drawn = [pairs[(2 * at + 1) * len(pairs) // (2 * DRAWS)] for at in range(DRAWS)]
    others = [own if {*pair} == {*chosen} else off(server, pair) for pair in drawn]
    assert own < 0.005
    assert own < 0.4 * median(others), (own, others)
