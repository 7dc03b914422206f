"""Warnings: found where they belong, with the right numbers, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger, arrive
from blis_tui.debugger.lints.lints import LINTS, Checkup, check_all, warnings
from blis_tui.debugger.lints.tally import Tally, account_of
from blis_tui.debugger.tape import Happening
from blis_tui.debugger.why.explanation import event_ref, instance_ref, request_ref, said
from tests.debugger.pressed_runs import RUNS, experiment, finished

if TYPE_CHECKING:
    from blis_tui.debugger.lints.checks import Finding


def followed(debugger: Debugger) -> Tally:
    tally = Tally(debugger.experiment)
    assert tally.follow(debugger.tape, len(debugger.tape))
    return tally


def checkup(debugger: Debugger) -> Checkup:
    return check_all(followed(debugger), debugger.tape, debugger.experiment)


def run(name: str, **changed: object) -> Debugger:
    debugger = Debugger(blis_tui.load(name, set={key.replace("__", "."): value for key, value in changed.items()}))
    arrive(debugger.run())
    return debugger


def finding(found: Checkup, check: str) -> Finding:
    return next(one for one in found.findings if one.check == check)


# ---- the sums ----


@pytest.mark.parametrize("name", RUNS)
def test_steps_and_requests_agree_everywhere(name: str) -> None:
    """Little's law holds exactly after every event, not only within a percent, and so do the tokens at the end."""
    debugger = finished(name)
    tally = Tally(debugger.experiment)
    while not tally.follow(debugger.tape, 23):
        assert tally.present_us() == tally.stays_us(), tally.event
    assert tally.present_us() == tally.stays_us() > 0
    assert not tally.staying
    assert tally.unsound < 0
    assert tally.prefill_tokens == tally.ended_prefill_tokens > 0
    assert tally.decode_tokens == tally.ended_decode_tokens > 0


def test_the_size_of_the_slices_does_not_matter() -> None:
    debugger = finished("kv-pressure")
    whole = followed(debugger)
    sliced = Tally(debugger.experiment)
    while not sliced.follow(debugger.tape, 100):
        pass
    names = [name for name in vars(whole) if not name.startswith("_")]
    assert {name: getattr(whole, name) for name in names} == {name: getattr(sliced, name) for name in names}


def test_present_is_what_snapshots_show() -> None:
    debugger = Debugger(experiment("time-outs"))
    arrive(debugger.run())
    tally = Tally(debugger.experiment)
    tally.follow(debugger.tape, 1500)
    arrive(debugger.seek(1500))
    instance = debugger.simulation.snapshot().instances[0]
    assert tally.instances[0].present == instance.waiting_count + instance.running_count


def test_an_account_notices_a_gap() -> None:
    """The books of one request: a chunk that does not continue the one before is found."""

    def life(second: int) -> list[Happening]:
        moments = [
            ("arrived", 100, 9),
            ("scheduled", 0, 60),
            ("chunk", 0, 60),
            ("chunk", second, 40),
            ("completed", 9, 5000),
        ]
        return [Happening(place, place, what, first, second) for place, (what, first, second) in enumerate(moments)]

    assert account_of(life(60), keeps_output=False).sound
    assert account_of(life(60), keeps_output=False).decode_tokens == 8
    assert not account_of(life(61), keeps_output=False).sound
    assert not account_of(life(60)[:3] + life(60)[4:], keeps_output=False).sound


# ---- defects ----


def test_defects_of_the_simulator_are_found() -> None:
    debugger = finished("prefixes")
    tally = followed(debugger)
    tally.stayed_us = tally.stayed_us * 98 // 100
    found = check_all(tally, debugger.tape, debugger.experiment)
    assert found.findings[0].check == "littles-law"
    assert found.findings[0].severity == "error"
    tally = followed(debugger)
    tally.ended_decode_tokens -= 1
    assert finding(check_all(tally, debugger.tape, debugger.experiment), "tokens").severity == "error"
    tally = followed(debugger)
    tally.unsound = 3
    assert finding(check_all(tally, debugger.tape, debugger.experiment), "tokens").ref == request_ref(
        debugger.tape.name(3)
    )


def test_half_a_percent_is_no_defect() -> None:
    debugger = finished("prefixes")
    tally = followed(debugger)
    tally.stayed_us = tally.stayed_us * 995 // 1000
    assert not any(one.check == "littles-law" for one in check_all(tally, debugger.tape, debugger.experiment).findings)


# ---- warnings ----


def test_memory_pressure() -> None:
    debugger = finished("kv-pressure")
    found = checkup(debugger)
    assert [one.check for one in found.findings] == ["kv-high", "thrashing", "head-of-line"]
    counts = {name: sum(one.what == "preempted" for one in debugger.tape.life(name)) for name in debugger.tape.names()}
    thrashing = finding(found, "thrashing")
    worst = max(counts, key=lambda name: counts[name])
    assert thrashing.ref == request_ref(worst)
    assert said(thrashing.sentence) == (
        f"{sum(count >= 3 for count in counts.values())} requests were preempted 3 times or more;"
        f" most often {worst}, {counts[worst]} times. There were {sum(counts.values())} preemptions in all."
    )
    assert warnings(debugger.tape, debugger.experiment) == found.findings


def test_more_memory_ends_them() -> None:
    found = checkup(run("kv-pressure", engine__kv_blocks=4000))
    assert found.findings == ()
    assert len(found.passed) + len(found.skipped) == len(LINTS)


def test_overload() -> None:
    calm = checkup(run("fcfs", workload__rate_per_s=2))
    assert not any(one.check in ("overload", "max-num-seqs", "token-budget") for one in calm.findings)
    sentence = said(finding(checkup(finished("classes")), "max-num-seqs").sentence)
    assert "(max_num_seqs)" in sentence
    crowded = checkup(run("unfair-tenants"))
    assert "The queue keeps growing" in said(finding(crowded, "overload").sentence)


def test_requests_that_were_not_served() -> None:
    found = checkup(run("admission-control"))
    rejected = finding(found, "rejected")
    assert said(rejected.sentence).startswith("50 requests of 500 (10 %) were turned away; the first: event ")
    late = checkup(finished("time-outs"))
    assert finding(late, "timed-out").severity == "warning"
    short = run("kv-pressure", engine__max_model_len=600, workload__requests=60)
    dropped = finding(checkup(short), "dropped")
    assert dropped.severity == "error"
    first = next(event for event in range(1, short.frontier) if short.tape.kind(event) == "dropped")
    assert dropped.ref == event_ref(first)


def test_imbalance() -> None:
    debugger = finished("three instances")
    assert not any(one.check == "imbalance" for one in checkup(debugger).findings)
    tally = followed(debugger)
    tally.instances[2].busy_us *= 9
    assert finding(check_all(tally, debugger.tape, debugger.experiment), "imbalance").ref == instance_ref(2)


def test_prefixes() -> None:
    assert "shared prefixes are found in the cache" in checkup(run("shared-prefixes", workload__requests=80)).passed
    client = {
        "id": "chat",
        "arrivals": {"kind": "poisson"},
        "input_tokens": {"kind": "constant", "value": 100},
        "output_tokens": {"kind": "constant", "value": 10},
        "prefix": {"group": "all", "tokens": 12},
    }
    found = checkup(run("kv-pressure", workload__clients=[client], workload__requests=60))
    assert "none is as long as a block (16 tokens)" in said(finding(found, "prefix-cache").sentence)


def test_token_budget() -> None:
    found = checkup(run("fcfs"))
    assert "budget of 2,048 tokens took 60 %" in said(finding(found, "token-budget").sentence)


def test_warm_up() -> None:
    """Long answers and a short run: the batch grows until the arrivals end."""
    client = {
        "id": "novels",
        "arrivals": {"kind": "poisson"},
        "input_tokens": {"kind": "constant", "value": 50},
        "output_tokens": {"kind": "constant", "value": 4000},
    }
    found = checkup(run("quickstart", workload__clients=[client], workload__requests=40, workload__rate_per_s=10))
    assert "still filling" in said(finding(found, "warm-up").sentence)


@pytest.mark.parametrize("name", ["quickstart", "steady-chat", "chunked-prefill", "mixture-of-experts"])
def test_ordinary_runs_have_no_warnings(name: str) -> None:
    assert checkup(run(name)).findings == ()


def test_at_the_start_checks_say_why_they_are_not_made() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    arrive(debugger.seek(3))
    found = checkup(debugger)
    assert found.findings == ()
    assert dict(found.skipped)["the queue does not keep growing"] == "too few requests have arrived yet"
    assert all(reason for _, reason in found.skipped)


def test_every_warning_says_what_to_do() -> None:
    seen: dict[str, Finding] = {}
    for name in RUNS:
        for one in checkup(finished(name)).findings:
            seen[one.check] = one
    assert len(seen) >= 6
    for one in seen.values():
        assert said(one.sentence).endswith(".")
        assert one.advice.endswith(".")
        assert any(lint.name == one.check for lint in LINTS)
