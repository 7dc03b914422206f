"""The requests that the shipped experiments, and many others, ask for, as recorded."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from blis_tui.spec.load import load
from blis_tui.workload.source import create_source
from tests.recorded import SHIPPED, Digests, outcome

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

_ARRIVALS: Final[tuple[Any, ...]] = (
    {"kind": "poisson"},
    {"kind": "constant"},
    {"kind": "gamma", "cv": 3.0},
    {"kind": "weibull", "cv": 2.0},
)
_LENGTHS: Final[tuple[Any, ...]] = (
    {"kind": "gaussian", "mean": 300, "std_dev": 200, "min": 2, "max": 900},
    {"kind": "exponential", "mean": 250, "min": 1, "max": 5000},
    {"kind": "lognormal", "mu": 5.0, "sigma": 0.7, "min": 1, "max": 5000},
    {"kind": "uniform", "min": 3, "max": 700},
    {"kind": "empirical", "weights": {"20": 1, "300": 2}},
    128,
)
_MORE: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"prefix": {"group": "system", "tokens": 128}},
    {"session": {"turns": 3, "think_time_ms": 900}},
    {"tenant": "acme", "slo_class": "batch"},
    {"timeout_us": 4_000_000, "max_output_tokens": 200},
    {"max_output_tokens": {"ratio": 2.0}, "repeated_prompts": 3},
    {
        "adapters": {"count": 5, "zipf": 1.0},
        "session": {"turns": {"kind": "uniform", "min": 2, "max": 4}, "history": "full"},
    },
    {"reasoning": {"ratio": 0.4}, "rate_curve": {"points": [{"at_s": 0, "factor": 0.5}, {"at_s": 4, "factor": 2.0}]}},
    {"multimodal": {"images": {"count": 1, "tokens": 90}}},
)
_EACH: Final = 150


def _asked(experiment: Experiment, count: int = 40) -> list[Request]:
    source = create_source(experiment.workload, experiment.seed, experiment.plugins)
    requests: list[Request] = []
    while len(requests) < count and (request := source.next_request()) is not None:
        requests.append(request)
    return requests


def _facts(request: Request) -> list[object]:
    """Each plain value that it has, by name."""
    values = [(name, getattr(request, name)) for name in sorted(dir(request)) if not name.startswith("_")]
    return [(name, value) for name, value in values if value is None or isinstance(value, int | float | str | tuple)]


def _drawn(random: Random) -> list[Request]:
    clients: list[dict[str, Any]] = [
        {
            "id": f"client-{number}",
            "share": random.choice([0.2, 0.5, 1.0]),
            "arrivals": random.choice(_ARRIVALS),
            "input_tokens": random.choice(_LENGTHS),
            "output_tokens": random.choice(_LENGTHS),
            **random.choice(_MORE),
        }
        for number in range(random.randint(1, 3))
    ]
    workload = {"requests": 60, "rate_per_s": random.choice([2, 11.5, 80]), "clients": clients}
    return _asked(load("quickstart", overrides={"workload": workload}, seed=random.randrange(100)))


def test_shipped_experiments(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for name in SHIPPED:
        digests.add(name, *map(_facts, _asked(load(name))))
    digests.check(file_regression)


def test_random_workloads(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    random = Random(1)  # noqa: S311  (no secret)
    for _ in range(_EACH):
        requests = outcome(_drawn, random)
        if isinstance(requests, list):
            digests.add("requests", *map(_facts, requests))
        else:
            digests.add("refused", requests)
    digests.check(file_regression)
