"""Expected errors of fitted coefficients under other loads, from simulations.

Coefficients about as likely as the best ones are simulated under another load. The spread of their means around those
of the best ones is the expected error of the best ones, provided that the server follows the step-time model.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, fsum, log, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model import Client, PluginConfig, Workload
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Experiment

METRICS: Final = ("ttft", "tpot", "e2e")
DRAWS: Final = 16
_CHANCE: Final = 1e-3
"""Relative difference of a server's means between runs that differ by a microsecond, by chance of batch composition."""
_WITHIN: Final = 1.2 * 1.75
"""Factor from a standard deviation to a 90 % bound: 1.75 because it is estimated from 16 draws (Student's t), times
1.2, with which 90 % of round trips are within (``benchmarks/calibration.py``): draws do not cover other assignments of
requests to batches, nor the results of other starts."""
REQUESTS: Final = 120
_MANY_USERS: Final = 64
ANSWER_TOKENS: Final = 48


_LONG: Final = 8
"""Ratio of long to short prompts."""


@dataclass(frozen=True, slots=True)
class Load:
    """A closed-loop load."""

    users: int
    prompt_tokens: int
    answer_tokens: int = ANSWER_TOKENS

    @property
    def words(self) -> str:
        """Its description in suggestions."""
        who = "one user at a time" if self.users == 1 else f"{self.users} users"
        return f"a run with {who} and prompts of about {self.prompt_tokens:,} tokens"

    @property
    def requests(self) -> int:
        """Its number of requests."""
        return max(REQUESTS, 2 * self.users)

    @property
    def client(self) -> dict[str, Json]:
        """Return its client for a workload document; lengths vary from half to one and a half times the given ones."""
        lengths = {"input_tokens": self.prompt_tokens, "output_tokens": self.answer_tokens}
        return {
            "id": "users",
            "arrivals": {"kind": "closed-loop", "users": self.users},
            **{
                key: {"kind": "uniform", "min": max(1, tokens // 2), "max": tokens * 3 // 2}
                for key, tokens in lengths.items()
            },
        }


@dataclass(frozen=True, slots=True)
class OtherLoadErrors:
    """The expected errors under another load."""

    load: Load
    within: Mapping[str, float]
    """Metric -> relative error that 90 % of means stay within."""


def candidate_loads(experiment: Experiment, prompt_tokens: float) -> list[Load]:
    """Return loads to try besides prompts of that mean length, those with few users first."""
    (pool,) = experiment.pools
    most = min(pool.engine.max_model_len or pool.model.max_position_embeddings, pool.model.max_position_embeddings)
    short = max(16, min(128, int(prompt_tokens) // 4 or 16))
    long = max(short, min(int(prompt_tokens) * _LONG, 8192, most - 2 * ANSWER_TOKENS))
    places = pool.engine.max_num_seqs
    many = [users for users in (64, 256) if users <= places]
    tried = [(1, short), (1, long), *((users, short) for users in many), *((users, long) for users in many[:1])]
    return [Load(users, tokens) for users, tokens in dict.fromkeys(tried)]


def other_loads(experiment: Experiment, prompt_tokens: float) -> list[Load]:
    """Return the loads for which errors are reported: one user and many, with prompts of that mean length."""
    (pool,) = experiment.pools
    many = min(_MANY_USERS, pool.engine.max_num_seqs)
    tokens = max(1, round(prompt_tokens))
    return [Load(users, tokens) for users in dict.fromkeys((1, many))]


def with_load(experiment: Experiment, load: Load) -> Experiment:
    """Return the experiment under a load."""
    prompt = {"min": max(1, load.prompt_tokens // 2), "max": load.prompt_tokens * 3 // 2}
    answer = {"min": max(1, load.answer_tokens // 2), "max": load.answer_tokens * 3 // 2}
    client = Client(
        id="advised",
        share=1.0,
        arrivals=PluginConfig(kind="closed-loop", settings={"users": load.users}),
        input_tokens=PluginConfig(kind="uniform", settings=prompt),
        output_tokens=PluginConfig(kind="uniform", settings=answer),
    )
    workload = Workload(name="advised", requests=load.requests, clients=(client,))
    return replace(experiment, workload=workload, horizon_us=None, warm_up_us=0, expect=())


def means(experiment: Experiment) -> dict[str, float]:
    """Return the means of TTFT, time per output token and E2E in microseconds, without metrics that no request has.

    Raises:
        BlisError: the engine cannot serve this.
    """
    simulation = Simulation(experiment, check="off")
    simulation.run()
    timings = [
        (row.ttft_us, row.e2e_us, row.output_tokens)
        for row in simulation.report(verify=False).rows
        if row.ttft_us is not None and row.e2e_us is not None
    ]
    times = {
        "ttft": [float(first) for first, _, _ in timings],
        "tpot": [(end - first) / (tokens - 1) for first, end, tokens in timings if tokens > 1],
        "e2e": [float(end) for _, end, _ in timings],
    }
    return {metric: fsum(time) / len(time) for metric, time in times.items() if time and fsum(time) > 0.0}


def within(experiment: Experiment, best: PluginConfig, draws: Sequence[PluginConfig]) -> dict[str, float]:
    """Return the relative error that 90 % of means stay within, by metric, under the experiment's own load.

    Args:
        experiment: the experiment with the load.
        best: the fitted coefficients.
        draws: other coefficients, drawn from their posterior distribution.
    """
    aim = means(with_latency(experiment, best))
    others = [means(with_latency(experiment, plugin_config)) for plugin_config in draws]
    errors = {}
    for metric, value in aim.items():
        off = [log(predicted[metric] / value) ** 2 for predicted in others if metric in predicted]
        errors[metric] = exp(_WITHIN * sqrt(_CHANCE**2 + fsum(off) / max(1, len(off)))) - 1.0
    return errors


def expected_under(
    experiment: Experiment, best: PluginConfig, draws: Sequence[PluginConfig], loads: Sequence[Load]
) -> tuple[OtherLoadErrors, ...]:
    """Return the expected errors under some loads, without those that the engine cannot serve."""
    expected = []
    for load in loads if draws else ():
        try:
            shares = within(with_load(experiment, load), best, draws)
        except BlisError:
            continue
        if shares:
            expected.append(OtherLoadErrors(load, shares))
    return tuple(expected)


def expected_text(errors: OtherLoadErrors) -> str:
    """Return the expected errors as printed."""
    shares = ", ".join(f"{metric.upper()} {100.0 * share:.1f} %" for metric, share in errors.within.items())
    return f"{errors.load.words}: {shares}"
