"""Speculative decoding, by hand. Steps take 100 + prefill + 10 * (1 + drafts) * decodes microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError, SpecError
from blis_tui.base.streams import Stream, stream_key
from blis_tui.debugger.why.event_stories import drafts_part
from blis_tui.debugger.why.explanation import sentence_text
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.options.drafts import AcceptanceSampler
from blis_tui.engine.records import DraftsVerified, Dropped, StepFinished
from blis_tui.model import Speculative
from blis_tui.results.sections.request_kinds import speculative_report
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

CHAT = {
    "policy": "blis",
    "engine.speculative": {"draft_tokens": 3, "acceptance": 0.6},
    "workload.requests": 60,
}


def speculating(drafts: int, acceptance: float, *, draft_token_us: int = 0, **more: object) -> Experiment:
    made = experiment(**more)  # type: ignore[arg-type]
    settings = Speculative(draft_tokens=drafts, acceptance=acceptance, draft_token_us=draft_token_us)
    pool = replace(made.pools[0], engine=replace(made.pools[0].engine, speculative=settings))
    return replace(made, pools=(pool,))


def steps_of(outcome: Outcome) -> list[StepFinished]:
    return [record for record in outcome.records if isinstance(record, StepFinished)]


def gains(outcome: Outcome) -> list[int]:
    """What the answer gained in each decode step."""
    return [record.output_tokens for record in outcome.records if isinstance(record, DraftsVerified)]


@pytest.mark.parametrize(("acceptance", "expected"), [(1.0, [4, 4, 2]), (0.0, [1] * 10)])
def test_an_answer_gains_what_is_accepted_and_one_token_more_and_never_exceeds_its_length(
    acceptance: float, expected: list[int]
) -> None:
    outcome = Outcome(speculating(3, acceptance), [request(0, 0, 8, 11)])
    assert gains(outcome) == expected
    assert outcome.rows["0"].output_tokens == 11
    durations = [step.duration_us for step in steps_of(outcome)]
    assert durations == [108, *(100 + 10 * 4 for _ in expected)]


def test_drafting_takes_its_time_in_steps_that_verify_drafts() -> None:
    outcome = Outcome(speculating(3, 1.0, draft_token_us=7), [request(0, 0, 8, 6)])
    assert [step.duration_us for step in steps_of(outcome)] == [108, 140 + 21, 140 + 21]


@pytest.mark.parametrize(("more", "drafted"), [({"budget": 3}, 2), ({"threshold": 2}, 1), ({"max_model_len": 20}, 3)])
def test_what_bounds_tokens_bounds_drafts(more: dict[str, int], drafted: int) -> None:
    outcome = Outcome(speculating(7, 0.0, **more), [request(0, 0, 8, 9)])
    found = [record.draft_tokens for record in outcome.records if isinstance(record, DraftsVerified)]
    assert found[-1] == drafted
    assert outcome.rows["0"].output_tokens == 9


def test_slots_of_rejected_drafts_are_kept_and_a_request_must_fit_with_its_drafts() -> None:
    """After a prompt of 8 tokens: slots for 8 + 1 + 7 in 4 blocks of 4, then for 9 + 1 + 7 in 5."""
    outcome = Outcome(speculating(7, 0.0, blocks=5), [request(0, 0, 8, 4)])
    assert [step.kv_used_blocks for step in steps_of(outcome)] == [2, 4, 5, 0]
    assert outcome.cluster.instances[0].pool.misses == 5
    [dropped] = Outcome(speculating(7, 0.0, blocks=4), [request(0, 0, 8, 4)]).of_kind(Dropped.kind)
    assert isinstance(dropped, Dropped)
    assert "18 tokens need 5 KV blocks, there are 4" in dropped.reason
    assert Outcome(speculating(7, 0.0, blocks=4), [request(0, 0, 15, 1)]).rows["0"].output_tokens == 1


def test_luck_belongs_to_the_request_and_the_place_in_its_answer() -> None:
    """A number of the stream per place; how many are drafted only decides how many of them are asked for."""
    asked = request(0, 0, 8, 400)
    stream = Stream(stream_key(5, "speculative/0"))
    guessed = [stream.uniform() < 0.7 for _ in range(404)]
    for drafts in (1, 4):
        runs = AcceptanceSampler(5, (0.7,) * drafts).runs(asked)
        for place in range(400):
            wrong = [at for at in range(drafts) if not guessed[place + at]]
            assert runs[place] == (wrong[0] if wrong else drafts)


def test_an_answer_has_the_same_luck_under_any_policy_and_when_it_is_generated_again() -> None:
    """In the small cache the later request is preempted under ``blis`` and generates its answer anew."""
    requests = [request(0, 0, 8, 24), request(1, 0, 8, 24)]

    def ends(outcome: Outcome) -> set[int]:
        at, found = 1, set()
        for record in outcome.records:
            for one in record.verified if isinstance(record, DraftsVerified) else ():
                if one.request_id == "0":
                    at += one.output_tokens
                    found.add(at)
        return found

    large, small, vllm = (
        Outcome(speculating(3, 0.6, caching=False, **more), [again(one) for one in requests])
        for more in (
            {"blocks": 100},
            {"blocks": 10},
            {"batching": "vllm-v1", "settings": {"async_scheduling": False}},
        )
    )
    assert small.rows["1"].preemptions > 0
    assert ends(large) == ends(small) == ends(vllm)


def again(one: Request) -> Request:
    return request(one.index, one.arrival_us, one.input_tokens, one.output_tokens)


def test_rates_by_position_are_those_of_the_report() -> None:
    """What vLLM logs of one run, and this reports of another, can be given as it is."""
    rates = (0.9, 0.5, 0.45, 0.1)
    engine = {"draft_tokens": 4, "acceptance_rates": rates}
    made = blis_tui.load(
        "quickstart", set={"engine.speculative": {**engine, "method": "eagle"}, "workload.requests": 60}
    )
    simulation = blis_tui.Simulation(made)
    simulation.run()
    speculative = simulation.report().speculative
    assert speculative is not None
    assert speculative.acceptance_rates == pytest.approx(rates, abs=0.02)


def test_luck_by_position_is_that_of_each_position() -> None:
    """The number of a place is compared with the chance of the draft that stands there in that step."""
    asked = request(0, 0, 8, 300)
    stream = Stream(stream_key(5, "speculative/0"))
    words = [stream.uniform() for _ in range(303)]
    chances = (0.9, 0.2, 0.7)
    runs = AcceptanceSampler(5, chances).runs(asked)
    for place in range(300):
        length = 0
        while length < 3 and words[place + length] < chances[length]:
            length += 1
        assert runs[place] == length


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"draft_tokens": 2}, "needs either `acceptance` or `acceptance_rates`"),
        ({"draft_tokens": 1, "acceptance": 0.5, "acceptance_rates": [0.5]}, "speculative decoding needs either"),
        ({"draft_tokens": 2, "acceptance_rates": [0.5]}, "1 `acceptance_rates` for 2 `draft_tokens`"),
        ({"draft_tokens": 2, "acceptance_rates": [0.5, 0.6]}, "0.6 is more than 0.5"),
    ],
)
def test_rates_that_no_drafts_have_are_refused(rates: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        blis_tui.load("quickstart", set={"engine.speculative": {**rates, "method": "mtp"}})


def test_reports_count_in_the_terms_of_vllm() -> None:
    """With p = 0.6 and 3 drafts: 0.6 + 0.36 + 0.216 accepted per draft, but for chance."""
    outcome = Outcome(speculating(3, 0.6, budget=1000, blocks=2000), [request(n, 0, 8, 500) for n in range(8)])
    speculative = speculative_report(outcome.cluster.instances)
    assert speculative is not None
    records = [record for record in outcome.records if isinstance(record, DraftsVerified)]
    verified = [one for record in records for one in record.verified]
    assert speculative.num_drafts == len(verified)
    assert speculative.num_draft_tokens == sum(one.draft_tokens for one in verified) == 3 * len(verified)
    assert speculative.num_accepted_tokens == sum(one.accepted_tokens for one in verified)
    assert speculative.draft_acceptance_rate == speculative.num_accepted_tokens / speculative.num_draft_tokens
    assert speculative.mean_acceptance_length == pytest.approx(1 + 0.6 + 0.36 + 0.216, rel=0.03)
    assert speculative.acceptance_rates == pytest.approx((0.6, 0.36, 0.216), rel=0.1)
    assert speculative.tokens_per_step == 8 * 499 / len(verified)
    assert speculative_report(Outcome(experiment(), [request(0, 0, 8, 4)]).cluster.instances) is None


def test_a_step_explains_what_was_accepted() -> None:
    outcome = Outcome(speculating(3, 1.0), [request(0, 0, 8, 11)])
    [record, *_] = [one for one in outcome.records if isinstance(one, DraftsVerified)]
    text = " ".join(sentence_text(sentence) for sentence in drafts_part([record]).sentences)
    assert text == "3 of 3 drafted tokens accepted; the answers gained 4 tokens. 0: 3 of 3 accepted, 4 tokens more."
    assert drafts_part([]).sentences == ()


@pytest.mark.parametrize("batching", ["vllm-v1", "nano", "llm-serving-sim"])
def test_rules_that_cannot_speculate_say_so(batching: str) -> None:
    settings: dict[str, object] = {"async_scheduling": True} if batching == "vllm-v1" else {}
    with pytest.raises(PolicyError, match=r"does not support (speculative decoding|asynchronous scheduling)"):
        Outcome(speculating(3, 0.5, batching=batching, settings=settings), [request(0, 0, 8, 4)])


def test_a_checkpoint_goes_on_as_the_run_did() -> None:
    """Stopping and going back change nothing, and the invariants hold after every event."""
    made = blis_tui.load("quickstart", set=CHAT)
    simulation = blis_tui.Simulation(made, check="all")
    simulation.run(max_events=300)
    kept = simulation.checkpoint()
    simulation.run()
    end = simulation.report().to_json()
    simulation.restore(kept)
    simulation.run()
    assert simulation.report().to_json() == end


@pytest.mark.parametrize(
    "kind", ["roofline", "roofline-phases", "fitted", "trained-physics", "trained-roofline", "operators"]
)
def test_a_decode_of_five_tokens_costs_more_than_one_and_far_less_than_five(kind: str) -> None:
    """What a step reads of the weights, and what it takes anyway, is not multiplied; nor is a step without decodes."""
    changes = {"latency": {"kind": kind}, "hardware": "h100", "model": "llama-3.1-8b-instruct"}
    plain = blis_tui.load("quickstart", set=changes)
    pool = plain.pools[0]
    settings = Speculative(draft_tokens=4, acceptance=0.5)
    wide = replace(pool, engine=replace(pool.engine, speculative=settings))
    step_time_model, five = (create_latency(plain.plugins, each) for each in (pool, wide))
    decodes, prefill = StepLoad([], 8, 8 * 300), StepLoad([Chunk(request(0, 0, 256, 1), 0, 256, 256)])
    assert (
        step_time_model.step_time_us(decodes) < five.step_time_us(decodes) < 2 * step_time_model.step_time_us(decodes)
    )
    assert step_time_model.step_time_us(prefill) == five.step_time_us(prefill)
