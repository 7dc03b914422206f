"""The planner's answers, against runs made one by one."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import blis_tui
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import Source
from blis_tui.base.units import number_text, plural
from blis_tui.output.section_text import expected_data
from blis_tui.results import expected_error
from blis_tui.results.expected_error import ObservedLoad, SlowerServer, slower_server
from blis_tui.results.measured import medians
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import experiment_of, read_study
from blis_tui.study import steady
from blis_tui.study.planning.answer import Plan, Question
from blis_tui.study.planning.plan import plan
from blis_tui.study.planning.plan_text import answer_text, plan_data, plan_text
from blis_tui.study.planning.slower import mean_prompt
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.study_rows import as_judged, figures_of

TTFT = "latency.ttft_ms.p90"
EASY = "latency.ttft_ms.p50"
"""Known after fewer requests: of that, where no test looks at how a tail is known."""
OF_REQUESTS = ("requests.total", "offered.requests_per_s", "offered.input_tokens_per_s", "offered.last_arrival_us")
SHORT = {
    "workload.requests": 200,
    "workload.clients.0.input_tokens": {"kind": "constant", "value": 500},
    "workload.clients.0.output_tokens": {"kind": "constant", "value": 100},
    "engine.max_num_seqs": 2,
    "latency": "roofline",
    "policy": "blis",
}
"""An instance serves 2.4 requests/s, so runs are of few requests."""
RATE = 4.0
BUSY = 12.0


def question(*, axes: dict[str, Any] | None = None, bound: float = 500.0, metric: str = TTFT, **keys: Any) -> Question:
    study = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": "x"},
        "experiment": "quickstart",
        "set": {**SHORT, **({} if "max_rate" not in keys else {"cluster.instances": 1})},
        "axes": axes or {},
        "seeds": 2,
        "constraints": [{"metric": metric, "max": bound}],
    }
    return Question(study=read_study(parse(Source("x", json.dumps(study)))), **keys)


@pytest.fixture(scope="module", autouse=True)
def _fewer() -> Iterator[None]:
    """Runs that go on, because what they say is not known yet, do so for fewer requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "_CHEAP_REQUESTS", 5_000)
        yield


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """Equal runs of several tests are made once."""
    return MemoryStore()


def by_hand(seed: int, rate_per_s: float, instances: int, **values: object) -> float:
    """The bounded figure in the second half of a long run."""
    seconds = max(300.0, 200 / rate_per_s)
    load = {
        "workload.rate_per_s": rate_per_s,
        "workload.requests": int(seconds * rate_per_s),
        "warm_up_us": int(5e5 * seconds),
    }
    report = blis_tui.run(
        blis_tui.load("quickstart", set={**SHORT, **load, "cluster.instances": instances, **values}, seed=seed)
    )
    return report.latency.ttft_ms.p90 or 0.0


def one_line(found: Plan) -> str:
    """What a plan says, whatever the lines that it is on."""
    return " ".join(plan_text(found).split())


@pytest.fixture(scope="module")
def sized(store: MemoryStore) -> Plan:
    return plan(question(rate_per_s=RATE), InProcessRunner(), store)


def test_the_least_number_of_instances_is_that_of_long_runs(sized: Plan) -> None:
    holding = [all(by_hand(seed, RATE, size) <= 500.0 for seed in (42, 43)) for size in range(1, 6)]
    assert sized.best is not None
    assert sized.best.size == holding.index(True) + 1 > 1


def test_the_size_below_fails_with_every_seed(sized: Plan) -> None:
    best = sized.best
    assert best is not None
    assert best.size is not None
    for size, verdict, agreeing in ((best.size - 1, "fails", 0), (best.size, "holds", 2)):
        tried = best.at(size=size, rate_per_s=RATE)
        assert tried is not None
        assert [row.in_long_run for row in tried.rows] == [verdict, verdict]
        assert tried.holding == agreeing


def test_a_figure_is_that_of_the_stretch_that_counts(sized: Plan) -> None:
    """Cut where it was decided, and with its first half left out, a run by hand has the same figures."""
    assert sized.best is not None
    trial = sized.best.found
    assert trial is not None
    for row in trial.rows:
        report = blis_tui.run(experiment_of(sized.question.study, as_judged(row), row.seed))
        figures = figures_of(report.to_dict(), ())
        latencies = [name for name in figures if name.startswith("latency.")]
        assert len(latencies) > 20
        assert {name: row.figures[name] for name in latencies} == {name: figures[name] for name in latencies}


def test_a_configuration_that_is_no_experiment_says_why(store: MemoryStore) -> None:
    path = "engine.gpu_memory_utilization"
    with pytest.raises(SpecError) as caught:
        blis_tui.load("quickstart", set={**SHORT, path: 0.1})
    found = plan(question(rate_per_s=1.0, bound=2000.0, axes={path: [0.1, 0.9]}), InProcessRunner(), store)
    assert found.candidates[0].why_not == caught.value.diagnostics[0].message != ""
    assert found.best is found.candidates[1]


def test_what_it_says_of_the_answer_is_so(sized: Plan) -> None:
    assert sized.best is not None
    trial = sized.best.found
    assert trial is not None
    assert sized.binding is not None
    assert sized.binding.value == max(trial.values(TTFT))
    assert sized.binding.of_bound == sized.binding.value / 500.0
    assert not sized.opinions, "of no step-time model is the error with this policy known"
    text = plan_text(sized)
    assert text.startswith(f"{sized.best.size} instances of qwen3-14b on h100 ({sized.best.size} GPUs")
    remarks = text.partition("\n- ")[2].splitlines()
    assert max(map(len, remarks)) <= 100
    assert {line[:2] for line in remarks[1:]} == {"- ", "  "}


def test_a_step_time_model_with_another_answer_is_named_however_close_its_figures_are(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its error on such servers is known and small; here it is taken to be."""
    asked = question(rate_per_s=RATE)
    document = {**asked.study.document, "set": {**SHORT, "latency": "fitted", "policy": "default"}}
    document["constraints"] = [{"metric": "latency.itl_ms.p90", "max": 11.7}]
    study = read_study(parse(Source("x", json.dumps(document))))
    found = plan(replace(asked, study=study), InProcessRunner(), store)
    assert {opinion.kind for opinion in found.opinions} == {"operators"}, (
        "trained-physics is 28 % off on H100, roofline 58"
    )
    small = {"h100": {"ttft": 10.0, "itl": 10.0}}
    monkeypatch.setattr(expected_error, "medians", lambda kind: small if kind == "trained-physics" else medians(kind))
    found = plan(replace(asked, study=study), InProcessRunner(), store)
    assert {opinion.kind for opinion in found.opinions} == {"operators", "trained-physics"}
    (other,) = [opinion for opinion in found.opinions if opinion.kind == "trained-physics"]
    assert other.own < 11.7 < other.value < 1.2 * other.own
    assert (other.apart, other.holds) == (False, False)
    sentence = (
        "With the step-time model trained-physics the answer would be different: latency.itl_ms.p90 is"
        f" {number_text(other.value)} here, not {number_text(other.own)}."
    )
    assert sentence in one_line(found)
    assert "the answer would be different" not in one_line(replace(found, opinions=(replace(other, holds=True),)))
    far = replace(other, value=30.0)
    assert one_line(replace(found, opinions=(far, other))).count("the answer would be different") == 1
    first = replace(other, metric=TTFT)  # of several figures, it is one that breaks its bound
    assert sentence in one_line(replace(found, opinions=(first, other)))


def test_the_same_question_gets_the_same_bytes_whatever_is_known(sized: Plan, store: MemoryStore) -> None:
    again = plan(question(rate_per_s=RATE), InProcessRunner(), store)
    assert json.dumps(plan_data(again)) == json.dumps(plan_data(sized))
    afresh = plan(question(rate_per_s=RATE), InProcessRunner(), MemoryStore())
    assert json.dumps(plan_data(afresh)) == json.dumps(plan_data(sized))


@pytest.fixture(scope="module")
def highest(store: MemoryStore) -> Plan:
    return plan(question(max_rate=True, precision=0.3, bound=1000.0), InProcessRunner(), store)


def test_the_highest_rate_lies_between_one_that_holds_and_one_that_does_not(highest: Plan) -> None:
    assert highest.best is not None
    assert highest.best.knee is not None
    low, high = highest.best.knee.holds, highest.best.knee.fails
    assert low is not None
    assert high is not None
    for rate, wanted in ((0.9 * low, True), (1.1 * high, False)):
        for seed in (42, 43):
            assert (by_hand(seed, rate, 1) <= 1000.0) is wanted


def test_the_sentence_has_the_rates_that_are_known(highest: Plan) -> None:
    assert highest.best is not None
    knee = highest.best.knee
    assert knee is not None
    sentence = f"1 instance of qwen3-14b on h100 (1 GPU) sustains {knee.holds:g} requests/s with {TTFT} <= 1000"
    beyond = highest.best.at(size=highest.best.size, rate_per_s=knee.fails)
    assert beyond is not None
    over = f", but not {knee.fails:g}" if beyond.known else f"; whether {knee.fails:g}, too, is not known"
    assert answer_text(highest) == f"{sentence}{over}."
    endless = replace(highest, best=replace(highest.best, knee=replace(knee, fails=None)))
    assert answer_text(endless) == f"{sentence}."


def test_the_interval_is_wider_by_how_well_so_many_arrivals_know_a_rate(highest: Plan, sized: Plan) -> None:
    best = highest.best
    assert best is not None
    assert best.knee is not None
    assert best.knee.holds is not None
    assert best.knee.fails is not None
    assert best.interval is not None
    found_at = best.found
    assert found_at is not None
    arrivals = math.fsum(found_at.values("requests.total"))
    low, high = best.interval
    assert best.knee.holds / low == pytest.approx(1 + arrivals**-0.5)
    assert high / best.knee.fails == pytest.approx(1 + arrivals**-0.5)
    assert f"the knee lies between {low:.3g} and {high:.3g} requests/s" in one_line(highest)
    assert sized.candidates[0].interval is None


def test_of_the_highest_rates_the_highest_is_taken_whatever_it_costs(store: MemoryStore) -> None:
    axes = {"cluster.tensor_parallel": [1, 2]}
    found = plan(question(max_rate=True, axes=axes, precision=0.5, metric=EASY), InProcessRunner(), store)
    rates = [candidate.knee.holds or 0.0 for candidate in found.candidates if candidate.knee is not None]
    assert rates[0] < rates[1]
    assert found.best is found.candidates[1]
    assert found.ties == ()


def test_prices_decide_where_every_gpu_has_one(store: MemoryStore) -> None:
    axes = {"hardware": ["h100", "l40s"]}
    asked = question(axes=axes, rate_per_s=RATE, bound=2000.0, metric=EASY)
    by_gpus = plan(asked, InProcessRunner(), store)
    assert by_gpus.cost == "cost.gpus"
    assert "not all have a price" in one_line(by_gpus)
    for dear, cheap in (("h100", "l40s"), ("l40s", "h100")):
        prices = {dear: 100.0, cheap: 1.0}
        found = plan(replace(asked, study=replace(asked.study, prices=prices)), InProcessRunner(), store)
        assert found.cost == "cost.usd_per_hour"
        assert found.best is not None
        assert found.best.found is not None
        assert found.best.coordinates == {"hardware": cheap}
        assert found.best.found.mean("cost.usd_per_hour") == found.best.found.mean("cost.gpus")
        assert f"{dear} 100" in one_line(found)


def test_configurations_are_compared_and_the_cheapest_is_taken(store: MemoryStore) -> None:
    axes = {"cluster.tensor_parallel": [1, 2]}
    found = plan(question(rate_per_s=RATE, axes=axes), InProcessRunner(), store)
    gpus = [candidate.found.mean("cost.gpus") or 0.0 for candidate in found.candidates if candidate.found is not None]
    assert found.best is not None
    assert found.best.found is not None
    assert found.best.found.mean("cost.gpus") == min(gpus)
    assert "tensor_parallel" in one_line(found)


def test_of_equals_in_price_the_one_farther_from_its_bounds_is_taken_and_the_others_are_told(
    store: MemoryStore, sized: Plan
) -> None:
    axes = {"hardware": ["l40s", "h100"]}
    found = plan(question(rate_per_s=0.2, axes=axes, bound=2000.0), InProcessRunner(), store)
    worst = [max(candidate.found.values(TTFT)) for candidate in found.candidates if candidate.found is not None]
    assert [candidate.size for candidate in found.candidates] == [1, 1]
    assert found.best is found.candidates[worst.index(min(worst))]
    (other,) = found.ties
    assert other is not found.best
    assert f"has as many GPUs; its tightest bound, {TTFT}, is at {max(worst) / 20:.0f} %" in one_line(found)
    assert plan_data(found)["as_cheap"] == [worst.index(max(worst))]
    assert not sized.ties


def of_fleet(bound: float = 1e4, **keys: Any) -> Question:
    """About two pools of different GPUs."""
    fleet = {**question(bound=bound, metric=EASY).study.document, "experiment": "mixed-fleet", "seeds": 1}
    slow: dict[str, Any] = {"policy": "blis", "engine.max_num_seqs": 1, "workload.rate_per_s": 1.0}
    fleet["set"] = {"workload.requests": 40, "latency": "roofline", **slow}
    return Question(study=read_study(parse(Source("x", json.dumps(fleet)))), **keys)


def test_more_instances_than_requests_are_split_between_would_do_nothing(store: MemoryStore) -> None:
    split = {**question().study.document, "experiment": "disaggregation", "seeds": 1}
    split["set"] = {"workload.requests": 20, "latency": "roofline"}
    study = read_study(parse(Source("x", json.dumps(split))))
    with pytest.raises(SpecError, match="split between a fixed number of instances") as caught:
        plan(Question(study=study, rate_per_s=5.0), InProcessRunner(), store)
    assert "two `cluster.pools` with the roles prefill and decode" in str(caught.value.diagnostics[0].help)


def test_a_half_may_grow_if_the_cluster_grows_with_it(store: MemoryStore) -> None:
    """Otherwise its smaller sizes leave instances without work, which are paid for all the same."""
    path, load = "cluster.disaggregation.decode_instances", {"workload.requests": 20, "latency": "roofline"}
    split = {**question(bound=1e4, metric=EASY).study.document, "experiment": "disaggregation", "seeds": 1, "set": load}
    asked = Question(study=read_study(parse(Source("x", json.dumps(split)))), rate_per_s=2.0, size_path=path, most=3)
    with pytest.raises(SpecError, match="instances of neither half get no requests") as caught:
        plan(asked, InProcessRunner(), store)
    assert "cluster.pools.1.instances=1..16" in str(caught.value.diagnostics[0].help)
    sized = {"cluster": {"disaggregation": {"prefill_instances": 2, "decode_instances": 2}}}
    study = read_study(parse(Source("x", json.dumps({**split, "set": {**load, **sized}}))))
    found = plan(replace(asked, study=study), InProcessRunner(), store)
    assert found.best is not None
    assert found.best.size == 1
    assert found.best.found is not None
    assert found.best.found.mean("cost.gpus") == 3


def test_a_size_that_is_no_number_of_instances_has_its_name(store: MemoryStore) -> None:
    found = plan(of_fleet(size_path="cluster.pools.1.instances", most=3), InProcessRunner(), store)
    lines = plan_text(found).splitlines()
    model = "llama-3.1-8b-instruct on"
    what = f"2 instances of {model} h100 and 1 of {model} l40s (3 GPUs, pools.1.instances 1) sustain the load"
    assert lines[0].startswith(what)
    assert lines[2].split()[:2] == ["pools.1.instances", "GPUs"]
    rated = plan(of_fleet(max_rate=True, precision=1.0), InProcessRunner(), store)
    assert plan_text(rated).startswith(f"2 instances of {model} h100 and 2 of {model} l40s (4 GPUs) sustain ")
    seqs = question(rate_per_s=7.0, size_path="engine.max_num_seqs", least=2, most=4)
    text = one_line(plan(seqs, InProcessRunner(), store))
    assert text.startswith("2 instances of qwen3-14b on h100 (2 GPUs, engine.max_num_seqs ")
    assert "One more instance" not in text
    low = of_fleet(bound=1e-3, size_path="cluster.pools.1.instances", most=3, rate_per_s=5.0)
    assert "no value of cluster.pools.1.instances is enough, because even on" in one_line(
        plan(low, InProcessRunner(), store)
    )


def test_the_sum_of_pools_cannot_grow(store: MemoryStore) -> None:
    with pytest.raises(SpecError, match=r"cluster\.instances is the sum of the instances of its pools") as caught:
        plan(of_fleet(rate_per_s=5.0), InProcessRunner(), store)
    assert caught.value.diagnostics[0].help == "name the pool that may grow: --sizes cluster.pools.1.instances=1..16"


def test_what_no_seed_changes_is_one_run(store: MemoryStore) -> None:
    asked = question()
    study = {
        **asked.study.document,
        "experiment": "trace-replay",
        "set": {"policy.routing": "round-robin", "latency": "roofline"},
    }
    study["constraints"] = [{"metric": TTFT, "max": 1e6}]
    found = plan(Question(study=read_study(parse(Source("x", json.dumps(study)))), most=4), InProcessRunner(), store)
    assert found.best is not None
    assert found.best.found is not None
    assert found.best.found.ignores_seed
    assert len(found.best.found.rows) == 1
    text = one_line(found)
    assert "no seed changes it" in text
    assert "seeds agree" not in text
    assert "2 of 2" not in text
    assert "The requests are recorded" not in text


def test_seeds_that_share_their_requests_say_what_else_they_decide(store: MemoryStore) -> None:
    """With measured operators the front end takes another time with each seed: runs differ, and nothing else does."""
    asked = question()
    study = {**asked.study.document, "experiment": "trace-replay", "set": {"policy.routing": "round-robin"}}
    study |= {"constraints": [{"metric": TTFT, "max": 1e6}]}
    found = plan(Question(study=read_study(parse(Source("x", json.dumps(study)))), most=2), InProcessRunner(), store)
    assert found.best is not None
    assert found.best.found is not None
    row, other = found.best.found.rows
    assert row.figures[TTFT] != other.figures[TTFT]
    assert [row.figures[name] for name in OF_REQUESTS] == [other.figures[name] for name in OF_REQUESTS]
    text = one_line(found)
    assert "2 of 2 seeds agree" in text
    assert "the same with every seed; a seed only determines how long the front end takes per request." in text
    assert plan_data(found)["seeds_decide"] == ["how long the front end takes per request"]


def test_rates_of_recorded_requests_are_known_as_they_are() -> None:
    """They are one sample, whatever the seeds: no interval of Poisson arrivals is told."""
    study: dict[str, Any] = {**question().study.document, "experiment": "trace-replay"}
    study |= {"constraints": [{"metric": TTFT, "max": 400}], "set": {"policy.routing": "round-robin"}}
    asked = Question(study=read_study(parse(Source("x", json.dumps(study)))), max_rate=True, precision=0.5)
    found = plan(asked, InProcessRunner(), MemoryStore())
    assert found.best is not None
    assert found.best.knee is not None
    assert found.best.interval == (found.best.knee.holds, found.best.knee.fails)
    assert "distinguish rates" not in one_line(found)
    assert found.best.found is not None
    (half,) = set(found.best.found.values("steady.offered_requests_per_s"))
    rate = found.best.knee.holds
    assert rate is not None
    assert abs(half / rate - 1) > 0.05, "as in most recordings, more or fewer requests come in the second half"
    sentence = f"{rate:g} requests/s is the mean of all recorded arrivals: `steady` covers their second half, in which"
    assert f"{sentence} {number_text(half)} requests/s arrived." in one_line(found)


def test_the_rate_beside_the_answer_is_the_steady_one(sized: Plan) -> None:
    """That of the whole run counts the time in which the cluster fills and drains: it would not be what is held."""
    assert sized.best is not None
    (line,) = [line for line in plan_text(sized).splitlines() if line.startswith("→")]
    trial = sized.best.found
    assert trial is not None
    rates = []
    for row in trial.rows:
        report = blis_tui.run(experiment_of(sized.question.study, as_judged(row), row.seed))
        rates.append(report.steady.requests_per_s or 0.0)
        assert report.steady.requests_per_s != report.throughput.requests_per_s
    assert f"{number_text(min(rates))} to {number_text(max(rates))}" in line


MEASURED = {
    "latency": "auto",
    "policy": "default",
    "model": "llama-3.1-8b-instruct",
    "engine.max_num_seqs": 256,
    "workload.clients.0.input_tokens": 8_000,
    "workload.clients.0.output_tokens": 16,
}
"""What was compared with servers."""


def measured(bound: float, confidence: float | None = None, metric: str = TTFT, **more: Any) -> Question:
    asked = question(bound=bound, metric=metric)
    document = {**asked.study.document, "set": {**SHORT, **MEASURED, **more}, "seeds": 1}
    study = read_study(parse(Source("x", json.dumps(document))))
    return Question(study=study, rate_per_s=BUSY, most=6, confidence=confidence)


def test_with_a_confidence_the_answer_holds_on_servers_as_slow_as_some_were(store: MemoryStore) -> None:
    """Steps take as long as those of the slower servers, and first tokens come later beside that."""
    experiment = blis_tui.load("quickstart", set={**SHORT, **MEASURED})
    seen = ObservedLoad(mean_prompt(experiment))
    slow = slower_server(experiment, experiment.pools[0], seen, 0.9, ("itl", "ttft"))
    assert isinstance(slow, SlowerServer)
    assert min(slow) > 1.0
    own = experiment.document["latency"]
    assert isinstance(own, dict)

    bound = 1000.0
    by_hand_slower = measured(bound / slow.first_tokens, latency={**own, "steps": slow.steps})
    wanted, usual = (plan(one, InProcessRunner(), store).best for one in (by_hand_slower, measured(bound)))
    assert wanted is not None
    assert usual is not None
    assert wanted.size is not None
    assert usual.size is not None
    assert wanted.size > usual.size, "or there is nothing to tell apart"

    found = plan(measured(bound, 0.9), InProcessRunner(), store)
    assert found.best is not None
    assert found.best.size == wanted.size
    assert found.best.found is not None
    assert wanted.found is not None
    assert found.best.found.values(TTFT) == wanted.found.values(TTFT)
    assert found.as_expected is not None
    assert found.as_expected.size == usual.size
    ((_, known),) = found.expected.values()
    assert not any("latency.steps" in reason for reason in known.reasons.values()), "of step times as they are expected"
    text = one_line(found)
    assert f"With step times as expected, the answer is {plural(usual.size, 'instance')}" in text
    assert f"TTFT {slow.first_tokens:.3g} times as long beyond that: 1 in 10 measured servers were" in text
    assert f"have a TTFT above {bound / slow.first_tokens:g} ms, 10 % may" in text

    plain = plan(measured(bound), InProcessRunner(), store)
    assert plain.best is not None
    assert plain.best.size == usual.size
    assert plain.if_slower is not None
    assert not plain.if_slower.holds
    assert plain.on_slower is not None
    assert plain.on_slower.size == wanted.size
    answer = (
        f"and it does not hold: then the answer is {plural(wanted.size, 'instance')} ({plural(wanted.size, 'GPU')})."
    )
    assert answer in one_line(plain)
    assert plan_data(plain)["slower_steps"]["answer_on_slower"]["size"] == wanted.size  # type: ignore[index]
    roomy = plan(replace(measured(10 * bound), rate_per_s=BUSY / 2), InProcessRunner(), store)  # far from its knee
    assert roomy.on_slower is None
    assert "and it holds." in one_line(roomy)


def on_two_gpus(confidence: float | None = None) -> Question:
    """One of them was measured."""
    lengths = {"workload.clients.0.input_tokens": 1_000, "workload.clients.0.output_tokens": 100}
    asked = measured(3000.0, confidence, EASY, **lengths)
    document = {**asked.study.document, "axes": {"hardware": ["h100", "l40s"]}}
    return replace(asked, study=read_study(parse(Source("x", json.dumps(document)))))


def test_each_configuration_says_how_sure_it_is(store: MemoryStore) -> None:
    """Of two GPUs one was measured: a cheaper answer on the other one names the cheapest of those that were."""
    found = plan(on_two_gpus(), InProcessRunner(), store)
    measured_, other = found.candidates
    assert (measured_.measured, other.measured) == (True, False)
    assert found.best_measured is measured_
    table = plan_text(found).splitlines()
    head, *rows = table[next(at for at, line in enumerate(table) if line.endswith("expected error")) :]
    assert "USD/h" not in head, "no prices are given"
    assert head.index("expected error") > head.index("GPUs")
    assert "TTFT ±" in rows[0] or "TTFT not known" in rows[0]
    assert "ITL ±" in rows[0]
    assert "not measured" in rows[1]
    data = plan_data(found)
    assert data["best_measured"] == 0
    beside = plan_text(replace(found, best=other)).splitlines()[0]
    assert "No server like it was measured; the cheapest of those that were measured: " in beside
    assert "on h100" in beside.partition("measured: ")[2]
    assert answer_text(replace(found, best=measured_)).endswith("<= 3000.")
    nowhere = answer_text(replace(found, best=other, best_measured=None))
    assert nowhere.endswith("Of no configuration that does, servers like it were measured.")


def test_what_is_not_known_is_no_failure(store: MemoryStore) -> None:
    found = plan(on_two_gpus(0.9), InProcessRunner(), store)
    lines = [line for line in plan_text(found).splitlines() if line.endswith(found.candidates[1].why_not)]
    assert found.candidates[1].not_known
    assert lines
    assert lines[0].startswith("?")
    assert "✗" not in lines[0]


def test_a_confidence_that_nothing_was_measured_for_is_not_known(store: MemoryStore) -> None:
    found = plan(measured(2000.0, 0.9, metric=EASY, policy="blis"), InProcessRunner(), store)
    assert found.best is None
    plain = plan(measured(2000.0, metric=EASY, policy="blis"), InProcessRunner(), store)
    assert plain.best is not None
    usual, confident = plan_text(plain), plan_text(found)
    assert confident.startswith(
        f"With step times as expected, {answer_text(plain)} Whether it does with a confidence of 0.9"
    )
    assert "of 0.9 is unknown, because nothing like it was measured: `blis` batching" in one_line(found)
    around = [text.split("\n\n")[1] for text in (usual, confident)]
    assert around[0].splitlines() == around[1].splitlines()  # the runs around it
    assert plain.if_slower is None
    slower = "Whether that holds on a slower server is unknown, because nothing like it was measured"
    assert f"{slower}: `blis` batching" in one_line(plain)


def test_a_bound_on_waits_is_not_known_where_only_steps_are(store: MemoryStore) -> None:
    """The order of the queue decides who waits: no server had another one."""
    asked = measured(2000.0, 0.9, metric=EASY, **{"policy.scheduling": "sjf"})
    found = plan(asked, InProcessRunner(), store)
    assert found.best is None
    assert "unknown, because nothing like it was measured: `policy.scheduling: sjf`" in one_line(found)
    bounds: list[Any] = [{"metric": "latency.itl_ms.p50", "max": 500}]
    document = {**asked.study.document, "constraints": bounds}
    of_steps = replace(asked, study=read_study(parse(Source("x", json.dumps(document)))))
    assert plan(of_steps, InProcessRunner(), store).best is not None


def test_errors_are_quoted_for_the_run_that_decides(store: MemoryStore) -> None:
    """By its own load: the knee's answer is near capacity, and no error of TTFT is quoted there."""
    answers = {"workload.clients.0.output_tokens": 64}  # two requests at a time and more, as on all servers
    knee = replace(measured(450.0, metric=EASY, **answers), rate_per_s=None, max_rate=True, precision=0.3)
    near = plan(knee, InProcessRunner(), store)
    assert near.best is not None
    ((kind, known),) = near.expected.values()
    assert kind == "operators"
    assert set(known.reasons) == {"ttft", "e2e"}
    assert "near capacity" in one_line(near)
    calm = plan(measured(2000.0), InProcessRunner(), store)
    ((_, known),) = calm.expected.values()
    assert calm.best is not None
    assert calm.best.found is not None
    (row,) = calm.best.found.rows
    report = blis_tui.run(experiment_of(calm.question.study, as_judged(row), row.seed))
    assert known == next(iter(report.expected_errors().values()))
    data = plan_data(calm)["step_time"]
    assert data == {"default": expected_data("operators", known)}


@pytest.mark.parametrize(
    ("keys", "none", "runs"),
    [({"rate_per_s": 5.0}, "no number of instances is enough", 4), ({"max_rate": True}, "no rate holds", 5)],
    ids=["sizes", "rates"],
)
def test_a_bound_that_an_idle_cluster_breaks_has_no_answer(
    keys: dict[str, Any], none: str, runs: int, store: MemoryStore
) -> None:
    found = plan(question(bound=1.0, **keys), InProcessRunner(), store)
    assert found.best is None
    assert found.candidates[0].why_not.startswith(f"{none}, because even on an idle cluster latency")
    assert found.runs == runs
    assert plan_text(found).startswith(f"Nothing that was tried meets {TTFT} <= 1.")


@pytest.mark.parametrize(
    "bound",
    [
        {"metric": "throughput.requests_per_s", "min": 2.0},
        {"metric": "cost.usd_per_million_output_tokens", "max": 8.0},
    ],
)
def test_what_is_served_per_second_and_what_a_token_costs_are_not_judged_on_an_idle_cluster(
    bound: dict[str, Any], store: MemoryStore
) -> None:
    asked = question(rate_per_s=RATE)
    more = replace(asked.study.constraints[0], **{"max": None, **bound})
    prices = {"h100": 3.0}
    asked = replace(asked, study=replace(asked.study, constraints=(*asked.study.constraints, more), prices=prices))
    found = plan(asked, InProcessRunner(), store)
    assert found.best is not None, one_line(found)
    assert found.best.size is not None


def test_requests_that_meet_at_any_rate_are_parted_by_more_instances(store: MemoryStore) -> None:
    """In bursts they come together however rarely they come: a small cluster is never idle for all of them."""
    bursts = {"workload.clients.0.arrivals": {"kind": "gamma", "cv": 3.0}}
    asked = question(rate_per_s=1.0, bound=60.0)
    document = {**asked.study.document, "set": {**SHORT, **bursts}}
    found = plan(replace(asked, study=read_study(parse(Source("x", json.dumps(document))))), InProcessRunner(), store)
    assert by_hand(42, 0.02, 1, **bursts) > 60.0
    assert found.best is not None
    assert found.best.size is not None
    assert max(by_hand(seed, 1.0, found.best.size, **bursts) for seed in (42, 43)) <= 60.0


def test_with_headroom_the_bounds_hold_at_a_higher_load(store: MemoryStore, sized: Plan) -> None:
    found = plan(question(rate_per_s=RATE / 1.25, headroom=0.25), InProcessRunner(), store)
    assert found.best is not None
    assert sized.best is not None
    assert found.best.size == sized.best.size
    assert found.binding == sized.binding
    assert "All figures are at 4 requests/s, 25 % above the load that is planned for." in one_line(found)


def test_as_many_instances_as_may_be_down_come_on_top(store: MemoryStore, sized: Plan) -> None:
    found = plan(question(rate_per_s=RATE, spare=2), InProcessRunner(), store)
    best, without = found.best, sized.best
    assert best is not None
    assert without is not None
    assert without.size is not None
    assert best.size == without.size + 2
    assert best.found is not None
    assert best.found.mean("cost.gpus") == without.size + 2
    assert found.binding == sized.binding  # of the bounds while they are down
    assert f"so they do while any 2 instances of the {best.size} are down." in one_line(found)


def test_a_pool_that_may_lack_an_instance_is_named_and_nothing_said_of_others(store: MemoryStore) -> None:
    path = "cluster.pools.1.instances"
    text = one_line(plan(of_fleet(size_path=path, most=3, spare=1, rate_per_s=1.0), InProcessRunner(), store))
    assert "The bounds hold with pools.1.instances 1, so they do while any 1 instance of the 2 is down; " in text
    assert "without another one they were not tried." in text


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"max_rate": True, "headroom": 0.1}, "headroom and the highest rate cannot be combined"),
        ({"max_rate": True, "spare": 1}, "spare and the highest rate cannot be combined"),
        ({"rate_per_s": 1.0, "spare": 1, "size_path": "engine.max_num_seqs"}, "is no number of instances"),
        ({"rate_per_s": 1.0, "spare": 4, "most": 4}, "of at most 4 instances, 4 cannot be down"),
    ],
)
def test_questions_that_contradict_themselves(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        plan(question(**keys), InProcessRunner())


def test_without_bounds_there_is_nothing_to_plan_for() -> None:
    asked = question()
    empty = Question(study=read_study(parse(Source("x", json.dumps({**asked.study.document, "constraints": []})))))
    with pytest.raises(InputError, match="nothing to plan for"):
        plan(empty, InProcessRunner())


def test_python_gets_the_same_answer(sized: Plan) -> None:
    study = sized.question.study
    values = {".".join(override.steps): override.value.data for override in study.fixed}
    found = blis_tui.plan(
        "quickstart",
        slos=[f"{TTFT}<=500"],
        rate_per_s=RATE,
        set=values,
        seeds=2,
        sizes=("cluster.instances", 1, 8),
    )
    assert sized.best is not None
    assert found.best is not None
    assert found.best.size == sized.best.size
    assert found.binding == sized.binding
