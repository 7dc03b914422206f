"""Victims and how they come back, by hand. Steps take 100 + prefill + 10 * decodes microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.batch import Batch
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.options.swap import HostMemory, Link, Swapping
from blis_tui.engine.plan import Plan
from blis_tui.engine.records import Preempted, RestoreChosen, Scheduled, StepFinished, SwappedBack
from blis_tui.engine.restore import Cheaper, Costs, Swap
from blis_tui.model import HostLink
from blis_tui.model.plug_ins import NoSettings
from blis_tui.results.sections.control import preemption_report
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request

SLOW = HostLink(bandwidth_gb_per_s=1.31072, base_latency_us=5)
"""100 us for each block of 4 tokens: 2 x 8 heads x 128 x 8 layers x 2 bytes are 32 KiB a token."""


def _three() -> list[Request]:
    """Two long prompts around a short one; 24 tokens of cache hold their prompts, but not their answers."""
    return [request(0, 0, 8, 9), request(1, 0, 3, 9), request(2, 0, 12, 9)]


def _run(requests: list[Request], blocks: int = 6, **more: object) -> Outcome:
    return Outcome(experiment(blocks=blocks, **more), requests)  # type: ignore[arg-type]


def _victims(outcome: Outcome) -> list[str]:
    return [record.request_id for record in outcome.records if isinstance(record, Preempted)]


@pytest.mark.parametrize(("victim", "first"), [("tail", "2"), ("cheapest-recompute", "1")])
def test_whom_a_full_cache_preempts(victim: str, first: str) -> None:
    assert _victims(_run(_three(), victim=victim))[0] == first


def test_a_shared_prefix_need_not_be_recomputed() -> None:
    """Of 12 tokens the last has 8 in common with the oldest: 4 x 2 weigh less than the 5 x 3 of the one between."""
    prefix = (("x", 8),)
    requests = [request(0, 0, 9, 9, segments=prefix), request(1, 0, 5, 9), request(2, 0, 12, 9, segments=prefix)]
    plain = [replace_segments(one) for one in requests]
    assert _victims(_run(requests, blocks=6, victim="cheapest-recompute"))[0] == "2"
    assert _victims(_run(plain, blocks=8, victim="cheapest-recompute"))[0] == "1"


def replace_segments(one: Request) -> Request:
    return request(one.index, one.arrival_us, one.input_tokens, one.output_tokens)


@pytest.mark.parametrize(("recompute", "again", "generated"), [("prompt", 4, 9), ("all", 5, 9), (None, 4, 9)])
def test_what_a_victim_computes_again(recompute: str | None, again: int, generated: int) -> None:
    """Under ``blis``: with ``all`` the token that it had generated is part of its second prefill."""
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    outcome = _run(requests, blocks=3, recompute=recompute, caching=False)
    chosen = [record for record in outcome.records if isinstance(record, Scheduled) and record.request_id == "1"]
    assert chosen[0].new_tokens == 4
    assert chosen[1].new_tokens == again
    assert outcome.rows["1"].output_tokens == generated


def test_a_swapped_victim_goes_on_where_it_was() -> None:
    """Two blocks go in 5 + 200 us and come back in as many, and both steps are longer by that."""
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    outcome = _run(requests, blocks=4, restore="swap", host_link=SLOW, caching=False)
    (choice,) = (record for record in outcome.records if isinstance(record, RestoreChosen))
    (back,) = (record for record in outcome.records if isinstance(record, SwappedBack))
    assert (choice.request_id, choice.choice, choice.blocks, choice.swap_us) == ("1", "swap", 2, 410)
    assert (back.tokens, back.blocks, back.transfer_us) == (8, 2, 205)
    steps = [record for record in outcome.records if isinstance(record, StepFinished)]
    (out,) = (step for step in steps if step.preempted)
    (into,) = (step for step in steps if step.admitted == ("1",))
    assert out.duration_us == 100 + 10 + 205
    assert [(chunk.computed_tokens, chunk.new_tokens) for chunk in into.chunks] == [(8, 1)]
    assert into.duration_us == 100 + 1 + 205
    preemption = preemption_report(outcome.cluster.instances, [1])
    assert (preemption.recomputed_tokens, preemption.swapped_out, preemption.swapped_in, preemption.transfer_us) == (
        0,
        1,
        1,
        410,
    )
    assert (preemption.added_us, preemption.bytes_moved) == (410, 4 * 4 * 32768)
    assert outcome.rows["1"].output_tokens == 9


def test_transfers_that_overlap_make_a_step_as_long_as_the_longer_of_the_two() -> None:
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    outcome = _run(requests, blocks=4, restore="swap", host_link=replace(SLOW, overlap=True), caching=False)
    (out,) = (record for record in outcome.records if isinstance(record, StepFinished) and record.preempted)
    assert out.duration_us == 205
    assert preemption_report(outcome.cluster.instances, [1]).added_us == (205 - 110) + (205 - 101)


def test_what_the_gpu_still_has_is_not_moved_back() -> None:
    """Nothing overwrites the first block of the victim while it waits."""
    requests = [request(0, 0, 4, 6), request(1, 0, 4, 6)]
    outcome = _run(requests, blocks=4, restore="swap", host_link=SLOW)
    (back,) = (record for record in outcome.records if isinstance(record, SwappedBack))
    assert (back.tokens, back.blocks) == (8, 1)


@pytest.mark.parametrize(("cached", "tokens", "used"), [(8, 8, 0), (12, 8, 0), (4, 8, 1), (0, 7, 2)])
def test_whatever_a_victim_gets_back_the_host_keeps_nothing_of_it(cached: int, tokens: int, used: int) -> None:
    """``cached`` of its tokens are in the cache of the GPU, ``tokens`` on the host, in two blocks of four."""
    host = HostMemory(4, Link(bytes_per_block=1000, gb_per_s=1.0, base_latency_us=5), overlap=False)
    pool, latency = BlockPool(6, 4, PromptKeys(4)), Outcome(experiment(), []).cluster.instances[0].latency
    swapping = Swapping(host, Swap(NoSettings()), pool, StepLoad(), {}, latency)
    one = request(0, 0, 12, 1)
    one.computed_tokens = cached
    if cached:
        pool.extend(one, cached)
    held = pool.used
    host.store(one.index, tokens, 2)
    assert swapping.restore_blocks(Plan(), one, cached, tokens) == max(cached, tokens)
    assert (host.free, pool.used - held, host.audit([])) == (4, used, "")
    assert pool.audit([(one, -(-max(cached, tokens) // 4))]) == ""


def test_where_the_host_is_full_a_victim_is_recomputed() -> None:
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    outcome = _run(requests, blocks=4, restore="swap", host_link=replace(SLOW, blocks=1), caching=False)
    preemption = preemption_report(outcome.cluster.instances, [1])
    assert (preemption.swapped_out, preemption.host_full, preemption.recomputed_tokens) == (0, 1, 8)


@pytest.mark.parametrize(("bandwidth", "choice"), [(1.31072, "recompute"), (1310.72, "swap")])
def test_auto_takes_what_costs_less(bandwidth: float, choice: str) -> None:
    """Eight tokens take 8 us to compute again; two blocks there and back 400 us, or 2 us."""
    link = HostLink(bandwidth_gb_per_s=bandwidth, base_latency_us=0)
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    outcome = _run(requests, blocks=4, restore="auto", host_link=link, caching=False)
    first = next(record for record in outcome.records if isinstance(record, RestoreChosen))
    assert (first.choice, first.recompute_us) == (choice, 8)


@pytest.mark.parametrize(("swap_us", "swaps"), [(99, True), (100, False), (101, False)])
def test_auto_recomputes_at_equal_costs(swap_us: int, swaps: bool) -> None:
    assert Cheaper(NoSettings()).swaps(Costs(swap_us, 100)) is swaps


def test_a_swapped_request_that_times_out_leaves_the_host() -> None:
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9, deadline_us=900)]
    outcome = _run(requests, blocks=4, restore="swap", host_link=SLOW, caching=False)
    host = outcome.cluster.instances[0].batch.host
    assert host is not None
    assert (host.swapped_out, host.swapped_in, host.free) == (1, 0, host.total)
    assert outcome.rows["1"].state == "timed-out"


def test_vllm_swaps_too_and_counts_the_token_under_way() -> None:
    requests = [request(0, 0, 4, 9), request(1, 0, 4, 9)]
    settings = {"async_scheduling": True}
    outcome = _run(
        requests, blocks=4, restore="swap", host_link=SLOW, caching=False, batching="vllm-v1", settings=settings
    )
    (back,) = (record for record in outcome.records if isinstance(record, SwappedBack))
    assert back.tokens == 8
    assert {row.output_tokens for row in outcome.rows.values()} == {9}
    assert preemption_report(outcome.cluster.instances, [1]).added_us == 410


@pytest.mark.parametrize("victim", ["tail", "priority", "cheapest-recompute"])
def test_a_step_that_preempts_does_not_walk_the_batch(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decodes stay together, but for the victims."""
    left: list[Request] = []
    leave = DecodeCohort.leave

    def noted(cohort: DecodeCohort, one: Request) -> None:
        left.append(one)
        leave(cohort, one)

    monkeypatch.setattr(DecodeCohort, "leave", noted)
    monkeypatch.setattr(Batch, "dissolve_cohort", lambda _: pytest.fail("the batch is walked"))
    requests = [request(index, 0, 30 + index % 5, 20) for index in range(64)]
    outcome = _run(requests, blocks=64 * 10, max_num_seqs=64, budget=10_000, victim=victim)
    assert len(left) == len(_victims(outcome)) > 5


@pytest.mark.parametrize("victim", ["tail", "cheapest-recompute"])
def test_nor_does_one_whose_prompts_exceed_the_token_budget(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "dissolve_cohort", lambda _: pytest.fail("the batch is walked"))
    requests = [request(index, 0, 60, 60) for index in range(24)]
    outcome = _run(requests, blocks=140, max_num_seqs=24, budget=40, victim=victim)
    assert len(_victims(outcome)) > 5
    assert {row.state for row in outcome.rows.values()} == {"completed"}
