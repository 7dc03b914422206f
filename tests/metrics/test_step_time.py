"""What reports say of their step times: the error that the accuracy page shows, and none where none is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blis_tui import load
from blis_tui.metrics.step_time import StepTime, expected_errors, step_times

PAGE = (Path(__file__).parents[2] / "docs/accuracy.md").read_text(encoding="utf-8")


def found(**more: object) -> StepTime:
    document: dict[str, object] = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "one"},
        "model": "llama-3.1-8b-instruct",
        "hardware": "h100",
        "workload": "chatbot",
        "report": "full",
    }
    experiment = load({**document, **more})
    (one,) = step_times(experiment, expected_errors(experiment)).values()
    return one


def medians(kind: str, gpu: str) -> dict[str, list[float]]:
    """Medians of the absolute errors of a step-time model on vLLM servers, from the page's rows of single models."""
    row = re.compile(rf"\| [^|*]+ \| [^|*]+ \| {gpu} \| vllm \| (\d+) \| `{kind}` \|([^|]*)\|([^|]*)\|([^|]*)\|")
    rows = row.findall(PAGE)
    return {
        "runs": [float(one[0]) for one in rows],
        **{
            metric: [float(one[at].split("/")[1]) for one in rows if "/" in one[at]]
            for at, metric in enumerate(("e2e", "ttft", "itl"), 1)
        },
    }


@pytest.mark.parametrize("gpu", ["h100", "h200"])
@pytest.mark.parametrize("kind", ["operators", "fitted", "trained-physics", "roofline"])
def test_the_error_is_that_of_the_page(kind: str, gpu: str) -> None:
    """The median of all lies between the medians of the parts."""
    error = found(latency={"kind": kind}, hardware=gpu).expected_error_percent
    assert error is not None
    page = medians(kind, gpu)
    assert error.runs == sum(page["runs"])
    for metric in ("e2e", "ttft", "itl"):
        value = getattr(error, metric)
        assert (value is None) == (not page[metric])
        if value is not None:
            assert min(page[metric]) - 0.1 <= value <= max(page[metric]) + 0.1, metric


def test_the_default_is_the_best_that_covers_the_stack() -> None:
    assert found().kind == "operators"
    assert found(hardware="rtx-4090").kind == "fitted"


def test_nothing_is_claimed_of_gpus_that_were_not_measured() -> None:
    assert found(hardware="l40s").expected_error_percent is None


def test_nothing_is_claimed_of_coefficients_of_ones_own() -> None:
    assert found(latency={"kind": "operators", "moved": 2.5}).expected_error_percent is None
    assert found(latency={"kind": "trained-physics", "alpha": [1.0, 0.0, 0.0]}).expected_error_percent is None
    assert found(latency={"kind": "operators", "sampling": "top-p"}).expected_error_percent is not None


def test_pools_are_told_apart() -> None:
    pools = [{"name": "fast", "instances": 1}, {"name": "slow", "instances": 1, "hardware": "l40s"}]
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "two"},
        "model": "llama-3.1-8b-instruct",
        "hardware": "h100",
        "workload": "chatbot",
        "cluster": {"pools": pools},
    }
    experiment = load(document)
    errors = expected_errors(experiment)
    assert errors["fast"] is not None
    assert errors["slow"] is None
    found = step_times(experiment, errors)
    assert {name: one.hardware for name, one in found.items()} == {"fast": "h100", "slow": "l40s"}
    assert {one.expected_error_percent for one in found.values()} == {None}
