"""The engine and the oracle must agree on everything that both report.

CI runs the same examples every time: some from Hypothesis, which shrinks failures, and many more from seeds, which
failures name. To explore with any number of fresh random examples instead, set the number:
``BLIS_TUI_ORACLE_EXAMPLES=20000 python -m pytest tests/oracle``. Add ``--hypothesis-seed=N`` to make what Hypothesis
finds repeatable.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import StalledError
from blis_tui.cluster.cluster import Cluster
from blis_tui.engine import stopped
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.records import (
    AdapterEvicted,
    AdapterHeld,
    AdapterLoad,
    AdapterReady,
    AnswerBegun,
    DraftsVerified,
    Observers,
    PromptMedia,
    RestoreChosen,
    StepFinished,
    SwappedBack,
)
from blis_tui.engine.stopped import SchedulingStopped
from blis_tui.results.request_log import RequestLog

from .draws import drawn
from .instance import segment_tokens
from .oracle import Oracle, OracleStalledError
from .other_rules import OTHERS
from .runs import books, check_many, event, examples, source_of
from .stops import Stop
from .strategies import Scenario, aborted_decode, draw_scenario, segments, uncomputed_victim

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Record
    from blis_tui.engine.request import Segments

_EVENTS_PER_REQUEST: Final = 6
"""Arrival, admission, routing, queued, left, timeout: all events besides steps."""
_OF_ADAPTERS: Final = (AdapterHeld, AdapterEvicted, AdapterLoad, AdapterReady)
_KINDS: Final = (PromptMedia, StepFinished, AnswerBegun, RestoreChosen, SwappedBack, DraftsVerified, *_OF_ADAPTERS)
_OF_BLOCKS: Final = {stopped.BLOCKS, stopped.WATERMARK, stopped.ANSWERS}
_WITHOUT_AMOUNTS: Final = (stopped.PREEMPTED, stopped.ADAPTER)
_MANY: Final = 1_000_000
"""More events than any scenario has, so that it runs in one go."""


def _most_steps(scenario: Scenario) -> int:
    """How many steps a scenario may take before it counts as stuck.

    With the tail as victim, the head of the running list gets a token in every step until it ends, so there are never
    more steps than tokens. With the least urgent as victim a preemption may cost a step, and its work again. Where
    prompts may go before that head, it gets a token only when the blocks run out, and all of them may be filled anew
    until then. While a batch of that head is under way, others fill the queue of batches.
    """
    if scenario.experiment.policy.batching.kind in OTHERS:
        engine = scenario.experiment.pools[0].engine
        return scenario.tokens * (engine.kv_blocks * engine.block_size_tokens + len(scenario.asked))
    factor = 3 if scenario.experiment.policy.preemption_victim == "priority" else 1
    engine = scenario.experiment.pools[0].engine
    stages = engine.pipeline_parallel
    if engine.speculative is not None:
        factor += 2  # if all drafts are expected to be accepted, blocks may be reserved that are not needed in the end
    return factor * scenario.tokens * (stages + 1 if stages > 1 else 1)


def _oracle(scenario: Scenario, users: int = 0) -> tuple[Oracle, bool]:
    """Run the oracle; return it, and whether it stalled."""
    oracle = Oracle(scenario.experiment, scenario.requests(), _most_steps(scenario), users)
    try:
        oracle.run()
    except OracleStalledError:
        event("stalled")
        return oracle, True
    return oracle, False


class _Run:
    """The engine's run of a scenario."""

    def __init__(self, scenario: Scenario, *, watch: bool = True, users: int = 0) -> None:
        self.scenario = scenario
        self.log = RequestLog()
        self.records: list[Record] = []
        observers = Observers()
        observers.add_all(_KINDS if watch else (), self.records.append)
        self.stopped: list[Record] = []
        if watch:
            observers.add_all((SchedulingStopped,), self.stopped.append)
        self.cluster = Cluster(scenario.experiment, source_of(scenario.requests(), users), self.log, observers)
        self.stalled = False

    @property
    def stops(self) -> list[SchedulingStopped]:
        """Why requests waited."""
        return [record for record in self.stopped if isinstance(record, SchedulingStopped)]

    def run(self, slice_events: int, after_slice: Callable[[Instance], None] | None = None) -> None:
        """Run to the end in slices, and check that it ends."""
        left = _most_steps(self.scenario) + _EVENTS_PER_REQUEST * len(self.scenario.asked)
        try:
            while left >= 0:
                done = self.cluster.run(min(slice_events, left + 1))
                left -= done
                if after_slice:
                    for instance in self.cluster.instances:
                        after_slice(instance)
                if done < slice_events:
                    break
        except StalledError:
            self.stalled = True
        assert left >= 0, "the engine makes no progress"


def _audit(instance: Instance) -> None:
    """Check the pool's bookkeeping against the running requests."""
    pool = instance.pool
    batch = instance.batch
    holders = [(request, batch.cohort.held_blocks(request)) for request in batch.holders()]
    assert pool.audit(holders) == ""
    assert pool.used + pool.free == pool.total
    assert batch.adapters is None or batch.adapters.audit(list(batch.running.values())) == ""
    assert batch.host is None or batch.host.audit([one.index for one in batch.waiting.ordered()]) == ""
    assert all(request.held_blocks == 0 for request in instance.waiting.ordered())


def _compare_records(oracle: Oracle, run: _Run) -> None:
    """Compare step by step, so that a failure shows the first difference."""
    expected = [record for record in oracle.records if isinstance(record, _KINDS)]
    for ours, theirs in zip(expected, run.records, strict=False):
        assert theirs == ours
    assert len(run.records) == len(expected)


def _compare_stops(oracle: Oracle, run: _Run) -> None:
    """Why requests waited, plan by plan: cause, how much was needed and how much was there."""
    experiment = run.scenario.experiment
    batching, engine = experiment.policy.batching.kind, experiment.pools[0].engine
    if batching == "llm-serving-sim" or engine.pipeline_parallel > 1:
        return  # for these the oracle only works out who is served
    tried: dict[tuple[int, int], list[Stop]] = {}
    plans = Counter((stop.instance, stop.time_us) for stop in run.stops)
    for stop, (number, step, expected) in zip(run.stops, oracle.stops, strict=False):
        ours = Stop(stop.cause, stop.need, stop.had, stop.request_id, stop.kept, expected.also)
        assert (stop.instance, stop.step, stop.request_id) == (number, step, expected.name)
        stops = tried.setdefault((stop.instance, stop.tried_us), [])
        if ours == expected or ours == expected._replace(cause=expected.also):
            stops.append(ours)
            continue
        # Nothing that it needs has become free since the attempt, which is therefore reported unchanged.
        assert ours in stops
        # Its cached tokens may have been overwritten, so that tokens are short by now.
        assert ours.cause in _OF_BLOCKS
        assert expected.cause in {*_OF_BLOCKS, stopped.TOKENS}
        assert expected.need > expected.had
        assert stop.tried_us < stop.time_us or plans[stop.instance, stop.time_us] > 1  # two at once
    assert len(run.stops) == len(oracle.stops)
    for stop in run.stops:
        assert stop.tried_us <= stop.time_us
        assert stop.had < stop.need or stop.cause in _WITHOUT_AMOUNTS


def _compare(oracle: Oracle, run: _Run) -> None:
    cluster = run.cluster
    table = run.log.table(cluster)
    assert [books(row, table) for row in sorted(table.plain())] == oracle.books()
    for naive, instance in zip(oracle.instances, cluster.instances, strict=True):
        assert instance.tallies.itl_us == naive.itl_us
        assert (instance.tallies.steps, instance.tallies.busy_us) == (naive.steps, naive.busy_us)
        assert instance.tallies.preemptions == naive.preemptions
        assert (instance.tallies.prefill_tokens, instance.tallies.prefill_us) == (
            naive.prefill_tokens,
            naive.prefill_us,
        )
        assert instance.tallies.beside_prefill_us == naive.beside_prefill_us
        assert instance.tallies.full_budget_us == naive.full_budget_us
        assert (instance.pool.hits, instance.pool.misses) == (naive.pool.hits, naive.pool.misses)
        assert instance.pool.free == len(naive.pool.free)
        assert instance.batch.recomputed_tokens() == naive.recomputed
        tiers, shelves = instance.pool.tiers, naive.pool.tiers
        assert (None if tiers is None else tiers.books()) == (None if shelves is None else shelves.books())
        assert (instance.batch.host is None) == (naive.host is None)
        if instance.batch.host is not None and naive.host is not None:
            assert instance.batch.host.books() == naive.host.books()
        cohort = instance.batch.speculative
        assert (cohort and cohort.tallies.state()) == (naive.drafter and naive.drafter.books())
        encoder, cache = instance.batch.encoder, naive.encoder
        assert (encoder and encoder.books()) == (cache and cache.books())
        assert encoder is None or encoder.audit() == ""
        adapters, shelf = instance.batch.adapters, naive.shelf
        assert (adapters and adapters.books()) == (shelf and shelf.books())
        _audit(instance)
    assert (cluster.now, cluster.events) == (oracle.now, oracle.events)


def _check(scenario: Scenario, users: int = 0) -> None:
    """Compare the oracle with a run that records every step, and with one at full speed."""
    oracle, stalled = _oracle(scenario, users)
    for watch in (True, False):
        run = _Run(scenario, watch=watch, users=users)
        run.run(_MANY)
        assert run.stalled == stalled
        if watch:
            _compare_records(oracle, run)
            _compare_stops(oracle, run)
        if not stalled:
            _compare(oracle, run)


def _check_every_event(scenario: Scenario) -> None:
    """Stop after every event: the bookkeeping must be right each time, and stopping must change nothing."""
    oracle, stalled = _oracle(scenario)
    run = _Run(scenario)
    run.run(1, _audit)
    assert run.stalled == stalled
    _compare_records(oracle, run)
    if not stalled:
        _compare(oracle, run)


check, check_every_event = _check, _check_every_event
"""For other rules, too."""


def test_what_a_victim_was_about_to_compute_is_not_found() -> None:
    """A handmade case, because random scenarios find it too rarely."""
    scenario = uncomputed_victim()
    _check(scenario)
    oracle, _ = _oracle(scenario)
    long, _ = oracle.jobs
    assert (long.preemptions, long.found_now) == (1, 4)


def test_a_block_that_fills_in_the_step_of_a_timeout_has_content() -> None:
    """A handmade case, as above: it needs a victim that returns, for the order in which blocks are reused."""
    scenario = aborted_decode()
    _check(scenario)
    oracle, _ = _oracle(scenario)
    assert (oracle.jobs[2].preemptions, oracle.jobs[2].found_now) == (1, 0)


@examples(200)
@given(st.lists(segments().strategy(), min_size=2, max_size=4), st.sampled_from((1, 2, 4)))
def test_equal_keys_mean_equal_tokens(prompts: list[Segments], size: int) -> None:
    """The pool identifies blocks by key: two keys must be equal exactly if all tokens up to the block's end are."""
    prompt_keys = PromptKeys(size)
    for one, other in combinations(prompts, 2):
        ours, theirs = segment_tokens(one), segment_tokens(other)
        pairs = list(zip(prompt_keys.shareable(one), prompt_keys.shareable(other), strict=False))
        assert len(pairs) == min(len(ours), len(theirs)) // size
        for number, (key, other_key) in enumerate(pairs):
            end = (number + 1) * size
            assert (key == other_key) == (ours[:end] == theirs[:end])


@examples(25)
@given(drawn(draw_scenario))
def test_the_engine_agrees_with_the_oracle(scenario: Scenario) -> None:
    _check(scenario)


@examples(30)
@given(drawn(partial(draw_scenario, starved=True)))
def test_they_agree_where_blocks_are_short(scenario: Scenario) -> None:
    _check(scenario)


@examples(30)
@given(drawn(draw_scenario), st.integers(1, 4))
def test_they_agree_on_users_who_wait_for_their_answers(scenario: Scenario, users: int) -> None:
    _check(scenario, users)


@examples(25)
@given(drawn(partial(draw_scenario, drafts=True)))
def test_they_agree_on_drafts(scenario: Scenario) -> None:
    _check(scenario)


def test_they_agree_on_drafts_at_length() -> None:
    check_many(140, partial(draw_scenario, drafts=True), lambda scenario, _: _check(scenario), part=5)


@examples(25)
@given(drawn(partial(draw_scenario, adapters=True)))
def test_they_agree_on_adapters(scenario: Scenario) -> None:
    _check(scenario)


@examples(25)
@given(drawn(partial(draw_scenario, media=True)))
def test_they_agree_on_media(scenario: Scenario) -> None:
    _check(scenario)


@pytest.mark.slow
def test_they_agree_on_media_at_length() -> None:
    check_many(80, partial(draw_scenario, media=True), lambda scenario, _: _check(scenario), part=6)


def test_they_agree_on_adapters_at_length() -> None:
    check_many(54, partial(draw_scenario, adapters=True), lambda scenario, _: _check(scenario), part=4)


@pytest.mark.slow
def test_the_engine_agrees_with_the_oracle_at_length() -> None:
    check_many(300, draw_scenario, lambda scenario, _: _check(scenario))


@examples(12)
@given(drawn(draw_scenario))
def test_the_books_are_right_after_every_event(scenario: Scenario) -> None:
    _check_every_event(scenario)


def test_the_books_are_right_after_every_event_at_length() -> None:
    check_many(160, draw_scenario, lambda scenario, _: _check_every_event(scenario), part=2)
