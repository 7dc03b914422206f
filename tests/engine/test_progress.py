"""Under any overload every run ends, and nobody is preempted more often than docs/semantics.md says."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS
from blis_tui.engine.records import Observers, StepFinished
from blis_tui.model import SLO_CLASSES, HostLink
from blis_tui.results.request_log import RequestLog
from blis_tui.spec.shipped import builtin
from tests.builders import VLLM, ListSource, experiment, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Record
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment, Setting

RULES: Final[tuple[tuple[str, dict[str, Setting]], ...]] = (
    ("blis", {}),
    ("vllm-v1", {}),
    ("vllm-v1", {"async_scheduling": True}),
)
VICTIMS: Final = tuple(plugin.name for plugin in builtin().of("policy.preemption.victim"))
RESTORES: Final = tuple(plugin.name for plugin in builtin().of("policy.preemption.restore"))
CHECKED: Final = [invariant for invariant in INVARIANTS if invariant.identifier != "INV-9"]


def overload(seed: int) -> list[tuple[Experiment, list[Request]]]:
    """One workload and one KV cache, from the largest request's size up, under every rule and victim.

    A request alone takes 100 us a step and 11 us a token; requests come one to five times as fast as those that fit
    together could be served.
    """
    draw = Random(seed)  # noqa: S311  (a test)
    size = draw.choice((1, 2, 4))
    prompts = [draw.randint(1, 24) for _ in range(draw.randint(5, 9))]
    answers = [draw.randint(1, 14) for _ in prompts]
    largest = max(-(-(prompt + answer - 1) // size) for prompt, answer in zip(prompts, answers, strict=True))
    blocks = largest + draw.choice((0, 0, 1, 2, largest // 2, largest, 2 * largest))
    together = max(1, blocks // max(1, largest // 2))
    gap = 110 * 8 / together / draw.uniform(1, 5)
    prefix = draw.choice(((), (("x", 8),)))
    classes = [draw.choice(SLO_CLASSES) for _ in prompts]
    common: dict[str, object] = {
        "max_num_seqs": draw.choice((2, 4, 8)),
        "budget": draw.choice((4, 16, 64)),
        "threshold": draw.choice((0, 0, 3)),
        "block_size": size,
        "blocks": blocks,
        "caching": draw.random() < 0.7,
        "scheduling": draw.choice(("fcfs", "fcfs", "sjf", "priority-fcfs", "reverse-priority")),
        "priority": draw.choice(("constant", "slo-class", "inverted-slo")),
        "host_link": HostLink(
            bandwidth_gb_per_s=draw.choice((1.0, 30.0)),
            blocks=draw.choice((None, largest)),
            overlap=draw.random() < 0.5,
        ),
    }
    cases = []
    for batching, settings in RULES:
        for victim in VICTIMS:
            restore = draw.choice(RESTORES)
            recompute = draw.choice((None, "prompt", "all")) if restore == "recompute" else None
            made = experiment(
                batching=batching,
                settings={**(VLLM if batching == "vllm-v1" else {}), **settings},
                victim=victim,
                restore=restore,
                recompute=recompute,
                **common,  # type: ignore[arg-type]
            )
            requests = [
                request(
                    index,
                    int(index * gap),
                    prompt,
                    answer,
                    segments=prefix if prompt > 8 else (),
                    slo_class=classes[index],
                )
                for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
            ]
            cases.append((made, requests))
    return cases


def work_of(requests: Sequence[Request]) -> int:
    """Their tokens, and one more for each: that many steps suffice if every one brings somebody forward for good."""
    return sum(one.input_tokens + one.output_tokens + 1 for one in requests)


def bound(made: Experiment, requests: Sequence[Request], index: int) -> int:
    """How often a request may be preempted."""
    others = work_of([one for one in requests if one.index != index])
    if made.policy.preemption_victim != "priority":
        return others
    order = sorted(requests, key=lambda one: (one.priority, one.arrival_us, one.index))
    before = order.index(requests[index])
    return before * (before + 3) // 2 * work_of(requests)


def run(made: Experiment, requests: list[Request]) -> int:
    """Run to the end with the invariants checked after every event; the most preemptions of a request."""
    observers = Observers()
    steps: list[Record] = []
    observers.add_all((StepFinished,), steps.append)
    cluster = Cluster(made, ListSource(requests), RequestLog(), observers)
    simple = made.policy.preemption_victim != "priority"
    most = work_of(requests) * (1 if simple else 3)
    while cluster.run(1):
        assert [wrong for invariant in CHECKED if (wrong := invariant.check(cluster))] == []
        assert len(steps) <= most, "it makes no progress"
    for one in requests:
        assert one.preemptions <= bound(made, requests, one.index)
    assert cluster.closed() == len(requests)
    return max(one.preemptions for one in requests)


def test_every_run_ends_under_overload() -> None:
    assert max(run(*case) for seed in range(8) for case in overload(seed)) > 2


@pytest.mark.slow
@pytest.mark.nightly
def test_every_run_ends_under_overload_at_length() -> None:
    assert max(run(*case) for seed in range(8, 58) for case in overload(seed)) > 5
