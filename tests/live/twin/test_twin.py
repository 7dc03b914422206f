"""A twin finds what was done to the server: its step times, its gaps, its front end, its cache, its limits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import blis_tui
from blis_tui.base.errors import InputError, PolicyError
from blis_tui.engine.records import Preempted, StepFinished
from blis_tui.live.observe.recording import TABLE, TIMELINE, TRACE, TRACE_HEADER, Scrape, read_recording
from blis_tui.live.twin.fitting import BLOCK_STEPS, fit, pace_of, predicted_us
from blis_tui.live.twin.simulated_requests import replaying, simulate
from blis_tui.live.twin.twin import Twin, compare_recordings, compare_with_simulation
from tests.live.twin.servers import DECODE_US, PREFILL_US, STEP_US, experiment, recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.live.observe.recording import Observed, Step

FASTER = {"latency__beta": [STEP_US * 0.6, PREFILL_US, DECODE_US]}


def mape(twin: Twin, rung: int, metric: str = "e2e") -> float:
    return twin.rungs[rung].errors[metric].mape


def test_the_server_itself_is_its_own_twin(tmp_path: Path) -> None:
    made = experiment()
    recording = recorded(made, tmp_path / "r")
    twin = compare_with_simulation(recording, made, "same")
    assert len(twin.pairs) == 60
    assert (twin.only_left, twin.only_right) == (0, 0)
    assert all(error.mape == 0 and error.bias == 0 and error.r == pytest.approx(1) for error in twin.errors.values())
    assert twin.parting is None
    assert twin.batches is not None
    assert twin.batches.equal == twin.batches.steps[0] == twin.batches.steps[1]
    assert twin.left.counts == twin.right.counts
    assert twin.left.counts["preemptions"] > 0
    assert twin.seen["running"].r == pytest.approx(1)
    assert twin.seen["KV in use"].left == pytest.approx(twin.seen["KV in use"].right)
    assert twin.notes == ()


LIMITED = [(3.0, waiting, 0.3) for waiting in (1.0, 2.0, 4.0, 2.0, 1.0)]
"""Looks at the metrics: running and waiting requests, KV blocks in use."""


@pytest.mark.parametrize(
    ("looks", "note"),
    [
        ([(1.0, 0.0, 0.1), *LIMITED, (2.0, 1.0, 0.2)], True),
        (LIMITED[1:], False),  # too few to tell
        ([*LIMITED, (2.0, 1.0, 0.2), (2.0, 1.0, 0.2)], False),  # others waited where there was a place
        ([*LIMITED, (4.0, 0.0, 0.2)], False),  # and there is room for more
        ([*LIMITED, (3.0, 1.0, 0.9)], False),  # the KV cache may be what was short
    ],
)
def test_the_metrics_tell_how_many_requests_the_server_runs(
    looks: list[tuple[float, float, float]], note: bool, tmp_path: Path
) -> None:
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    scrapes = tuple(
        Scrape(time_us=number, values=dict(zip(names, look, strict=True))) for number, look in enumerate(looks)
    )
    recording = replace(recorded(experiment(), tmp_path / "r"), scrapes=scrapes)
    notes = [one for one in compare_with_simulation(recording, experiment(), "s").notes if "max_num_seqs" in one]
    statement = "the server ran no more than 3 requests while others waited and KV blocks were free"
    assert notes == ([f"{statement}: --set engine.max_num_seqs=3"] if note else [])
    assert not compare_with_simulation(recording, experiment(engine__max_num_seqs=3), "s").notes


def test_a_recording_that_was_broken_off_is_told(tmp_path: Path) -> None:
    recording = recorded(experiment(), tmp_path / "r")
    broken = replace(recording, about={**recording.about, "complete": False})
    note = f"{broken.folder} was interrupted: requests in progress or still to come are missing or incomplete"
    assert compare_with_simulation(broken, experiment(), "s").notes == (note,)
    assert compare_recordings(recording, broken).notes == (note,)


@pytest.mark.parametrize("file", ["requests.jsonl", "steps.csv", "metrics.jsonl"])
def test_a_file_that_is_cut_off_is_no_recording_with_fewer_requests(file: str, tmp_path: Path) -> None:
    """Unless it was broken off: then its last line may be half written."""
    folder = recorded(experiment(), tmp_path / "r").folder
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) * 2 // 3])
    line = content[: len(content) * 2 // 3].count(b"\n") + 1
    with pytest.raises(InputError, match=rf"{file} is cut off in line {line}, although the recording was complete"):
        read_recording(folder)
    manifest = folder / "recording.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    assert read_recording(folder).folder == folder


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (lambda steps: steps[60:], "and 2,484 were received: steps are missing"),
        (lambda steps: steps[:-100], "and 2,484 were received: steps are missing"),
        (lambda steps: (*steps[:30], *steps), "decodes for 2,484 tokens received: there are steps of others"),
    ],
)
def test_a_log_of_other_steps_names_no_cause(
    part: Callable[[tuple[Step, ...]], tuple[Step, ...]], says: str, tmp_path: Path
) -> None:
    """A log that began late, was cut off, or has what another client asked for."""
    recording = recorded(experiment(), tmp_path / "r")
    other = replace(recording, steps=part(recording.steps))
    twin = compare_with_simulation(other, experiment(engine__max_num_seqs=4), "s")
    (note,) = twin.notes
    assert note.startswith(f"the log of {recording.folder} has ")
    assert note.endswith(f"{says}; it is not used")
    assert twin.left.batches is None
    assert twin.parting is not None
    assert twin.parting.cause == "not known"
    assert compare_recordings(recording, other).notes == (note,)
    with pytest.raises(InputError, match=says):
        compare_with_simulation(other, experiment(), "s", "measured")


def test_of_answers_in_one_piece_only_their_ends_are_compared(tmp_path: Path) -> None:
    made = experiment()
    recording = recorded(made, tmp_path / "r", change=lambda row: replace(row, whole=True))
    twin = compare_with_simulation(recording, made, "same")
    assert len(twin.pairs) == 60
    assert set(twin.errors) == {"e2e"}
    assert twin.errors["e2e"].mape == 0
    assert {stretch.left["ttft"] for stretch in twin.course} == {None}


def test_figures_are_those_of_the_requests(tmp_path: Path) -> None:
    made = experiment()
    recording = recorded(made, tmp_path / "r", change=lambda row: replace(row, chunks=_later(row, 1.1)))
    error = compare_with_simulation(recording, made, "same").errors["e2e"]
    rows = [row.e2e_us for row in recording.requests]
    assert all(row is not None for row in rows)
    assert error.left["mean"] == pytest.approx(sum(rows) / len(rows) / 1e3)  # type: ignore[arg-type]
    percentiles = [np.percentile(rows, percent) / 1e3 for percent in (50, 99)]  # type: ignore[arg-type]
    assert [error.left["p50"], error.left["p99"]] == pytest.approx(percentiles)
    # The simulation's are those that its report has.
    report = blis_tui.run(replaying(made, recording))
    assert (error.right["p50"], error.right["p99"]) == (report.latency.e2e_ms.p50, report.latency.e2e_ms.p99)
    assert error.bias == pytest.approx(1 / 1.1 - 1, abs=1e-4)
    assert error.mape == pytest.approx(1 - 1 / 1.1, abs=1e-4)


def _later(row: Observed, factor: float) -> tuple[tuple[int, int], ...]:
    return tuple((row.sent_us + round((time_us - row.sent_us) * factor), tokens) for time_us, tokens in row.chunks)


def test_wrong_step_times_are_told_by_the_measured_ones(tmp_path: Path) -> None:
    recording = recorded(experiment(), tmp_path / "r")
    twin = compare_with_simulation(recording, experiment(**FASTER), "faster")
    assert mape(twin, 0) > 0.2
    assert mape(twin, 1) == 0
    assert twin.parting is not None
    assert twin.parting.cause == "step time"
    assert "steps before took" in twin.parting.why
    assert twin.rungs[-1].parting is None
    assert compare_with_simulation(recording, experiment(**FASTER), "faster", "measured").errors["e2e"].mape == 0


def test_gaps_between_steps_are_told_apart_from_steps(tmp_path: Path) -> None:
    made = experiment()
    twin = compare_with_simulation(recorded(made, tmp_path / "r", gap_us=2500), made, "same")
    assert mape(twin, 0) == 0
    assert mape(twin, 1) > 0.1
    # Only the gap behind the last step of a busy time is not known, and what is usual is right.
    assert mape(twin, 2) == 0


@pytest.mark.parametrize("gap_us", [0, 1800])
def test_the_front_end_is_what_is_left(gap_us: int, tmp_path: Path) -> None:
    made = experiment()
    twin = compare_with_simulation(recorded(made, tmp_path / "r", gap_us=gap_us, front_us=23_000), made, "same")
    assert twin.rungs[-1].name == "and the front end (23.0 ms)"
    assert mape(twin, 2, "ttft") > 0.1
    assert mape(twin, 3, "ttft") == mape(twin, 3, "e2e") == 0


def test_a_log_without_times_spreads_the_gaps_evenly(tmp_path: Path) -> None:
    made = experiment()
    twin = compare_with_simulation(recorded(made, tmp_path / "r", gap_us=2500, line_late_us=None), made, "same")
    assert mape(twin, 1) > 0.1
    assert mape(twin, 2) < 0.03


def test_lines_that_come_late_and_together_tell_nearly_the_same(tmp_path: Path) -> None:
    # Every eighth line comes in time, those before it come with it.
    made = experiment()
    twin = compare_with_simulation(
        recorded(made, tmp_path / "r", gap_us=1000, line_late_us=lambda number: 12_000 * (7 - number % 8)), made, "same"
    )
    assert mape(twin, 2) < 0.02


def test_another_limit_parts_them_where_it_first_counts(tmp_path: Path) -> None:
    made = experiment()
    recording = recorded(made, tmp_path / "r")
    twin = compare_with_simulation(recording, experiment(engine__max_num_seqs=4), "four")
    assert twin.parting is not None
    assert twin.parting.cause == "batch"
    assert "waited in the simulation" in twin.parting.why
    first = next(n for n, batch in enumerate(twin.left.batches or ()) if batch.requests > 4)
    assert twin.parting.step == first
    more = compare_with_simulation(recording, experiment(engine__kv_blocks=2000), "roomy")
    assert more.notes == ("the server has 110 KV blocks, the experiment 2000: --set engine.kv_blocks=110",)
    assert more.right.counts["preemptions"] == 0
    assert more.parting is not None
    assert more.parting.cause in ("preemption", "batch", "front end")


def test_a_cache_that_finds_more_is_told(tmp_path: Path) -> None:
    prefix = {
        "workload__clients": [
            {"id": "c", "prefix": {"group": "g", "tokens": 160}, "input_tokens": 40, "output_tokens": 20}
        ]
    }
    cold = {"engine__enable_prefix_caching": False}
    recording = recorded(
        experiment(**prefix),
        tmp_path / "r",
        change=lambda row: replace(row, segments=(("g", 160),)),
    )
    assert compare_with_simulation(recording, experiment(**prefix), "same").parting is None
    twin = compare_with_simulation(recording, experiment(**prefix, **cold), "cold", "measured")
    assert twin.parting is not None
    assert twin.parting.cause == "cache"
    assert "160 tokens of request_1 were cached on the server, 0 here" in twin.parting.why


def test_without_a_log_requests_tell_where_they_part(tmp_path: Path) -> None:
    recording = replace(recorded(experiment(), tmp_path / "r"), steps=())
    assert compare_with_simulation(recording, experiment(), "same").parting is None
    twin = compare_with_simulation(recording, experiment(latency__beta=[STEP_US * 8, PREFILL_US, DECODE_US]), "slow")
    assert len(twin.rungs) == 1
    assert twin.batches is None
    assert twin.parting is not None
    assert twin.parting.step is None
    assert "later in the simulation" in twin.parting.text
    with pytest.raises(InputError, match="has no steps"):
        compare_with_simulation(recording, experiment(), "same", "measured")


def test_requests_that_were_given_up_load_the_simulation_until_then(tmp_path: Path) -> None:
    made = experiment()

    def broken(row: Observed) -> Observed:
        if row.request_id != "request_5":
            return row
        return replace(row, outcome="timed-out", done_us=row.sent_us + 50_000, chunks=row.chunks[:1])

    twin = compare_with_simulation(recorded(made, tmp_path / "r", change=broken), made, "same")
    row = twin.rungs[0].run.rows["request_5"]
    assert row.state == "timed-out"
    assert row.deadline_us == row.arrival_us + 50_000
    assert len(twin.pairs) == 59


def test_a_simple_model_is_found_again_on_either_half(tmp_path: Path) -> None:
    made = experiment(workload__requests=150, engine__kv_blocks=2000)
    faster = experiment(**FASTER, engine__kv_blocks=2000)
    twin = compare_with_simulation(recorded(made, tmp_path / "r", front_us=9000), faster, "faster", "fitted")
    assert twin.errors["e2e"].mape < 1e-3
    assert twin.halves is not None
    for fitted in twin.halves.fitted:
        assert (fitted.step_us, fitted.prefill_token_us, fitted.decode_us) == pytest.approx(
            (STEP_US, PREFILL_US, DECODE_US), rel=1e-3
        )
    for errors in (twin.halves.steady, twin.halves.drifting):
        assert errors["e2e"].mape < 5e-3
        assert errors["e2e"].requests == 150


def test_the_speed_of_a_shared_machine_is_that_of_the_steps_beside(tmp_path: Path) -> None:
    pace = pace_of(recorded(experiment(), tmp_path / "r"))
    assert pace is not None
    count = len(pace.steps)
    shared = replace(pace, gaps_us=tuple(step.duration_us * (number > 200) for number, step in enumerate(pace.steps)))
    halves = fit(shared, 0), fit(shared, 1)
    steady, drifting = (predicted_us(shared, halves, at_its_speed=flag) for flag in (False, True))
    errors = [
        [abs(predicted / measured - 1) for predicted, measured in zip(times, shared.periods_us, strict=True)]
        for times in (steady, drifting)
    ]
    assert sum(errors[0]) / count > 0.25
    assert sum(errors[1]) / count < 0.06
    # Nothing is told by itself: what is measured of a block makes no difference to what is predicted of it.
    block = range(5 * BLOCK_STEPS, 6 * BLOCK_STEPS)
    slow = replace(shared, gaps_us=tuple(99_000 if n in block else gap for n, gap in enumerate(shared.gaps_us)))
    other = predicted_us(slow, (fit(slow, 0), fit(slow, 1)), at_its_speed=True)
    assert [other[number] for number in block] == [drifting[number] for number in block]
    assert other[block.start - 1] > drifting[block.start - 1]


def test_two_recordings_are_compared_by_their_requests(tmp_path: Path) -> None:
    june = recorded(experiment(), tmp_path / "june")
    slower = recorded(experiment(latency__beta=[STEP_US * 1.5, PREFILL_US, DECODE_US]), tmp_path / "now")
    same = compare_recordings(june, june)
    assert all(error.mape == 0 for error in same.errors.values())
    twin = compare_recordings(june, slower)
    assert twin.errors["itl"].bias > 0.3
    assert twin.right.step_us > twin.left.step_us  # type: ignore[operator]
    other = recorded(experiment(workload__requests=20), tmp_path / "other")
    assert compare_recordings(other, june).only_right == 40
    renamed = replace(june, requests=tuple(replace(row, request_id=f"x{row.request_id}") for row in june.requests))
    with pytest.raises(InputError, match="0 requests in common"):
        compare_recordings(june, renamed)


def test_two_recordings_of_different_workloads_are_not_compared_by_their_names(tmp_path: Path) -> None:
    june = recorded(experiment(), tmp_path / "june")
    other = recorded(experiment(seed=5), tmp_path / "other")  # its requests have the same names
    message = r"have \d requests? in common with equal lengths; \d+ names stand for others"
    with pytest.raises(InputError, match=message):
        compare_recordings(june, other)
    rows = june.requests
    changed = replace(june, requests=(replace(rows[0], output_tokens=rows[0].output_tokens + 1), *rows[1:]))
    name = rows[0].request_id
    assert compare_recordings(june, changed).notes == (
        f"1 request asked for other lengths on both sides, {name} first",
    )
    assert not compare_recordings(june, june).notes


def test_a_recording_is_of_one_instance(tmp_path: Path) -> None:
    recording = recorded(experiment(), tmp_path / "r")
    with pytest.raises(PolicyError, match="one instance"):
        compare_with_simulation(recording, experiment(cluster__instances=2), "two")
    with pytest.raises(InputError, match="contains no answers"):
        compare_with_simulation(
            replace(recording, requests=tuple(replace(row, chunks=()) for row in recording.requests)), experiment(), "x"
        )


def test_a_request_that_is_followed_has_all_its_tokens() -> None:
    drafts = {"draft_tokens": 4, "acceptance": 0.7, "method": "ngram_gpu"}
    few = {"workload.requests": 20, "cluster.instances": 1, "engine.speculative": drafts, "expect": []}
    found = simulate(blis_tui.load("quickstart", set=few), follow=True)
    for name, row in found.rows.items():
        assert found.answers[name][-1][1] == row.output_tokens
        assert found.answers[name][0][0] == row.first_token_us


def test_reading_a_recording_writes_nothing_into_it(tmp_path: Path) -> None:
    made = experiment(workload__requests=20)
    recording = recorded(made, tmp_path / "r")
    whole = compare_with_simulation(recording, made, "same")
    for name in (TABLE, TRACE, TRACE_HEADER, TIMELINE):  # as where observing was broken off
        (recording.folder / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in recording.folder.iterdir()}
    recording.folder.chmod(0o500)
    try:
        assert compare_with_simulation(recording, made, "same").errors == whole.errors
    finally:
        recording.folder.chmod(0o700)
    assert {path: path.stat().st_mtime_ns for path in recording.folder.iterdir()} == before


def test_the_course_is_that_of_the_rows(tmp_path: Path) -> None:
    recording = recorded(experiment(), tmp_path / "r", front_us=9000)
    server = experiment(engine__kv_blocks=90)
    twin = compare_with_simulation(recording, server, "fewer")
    rows = [json.loads(line) for line in (tmp_path / "r" / "requests.jsonl").read_text().splitlines()]
    scrapes = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    steps: list[StepFinished] = []
    preempted: list[int] = []
    simulation = blis_tui.Simulation(server)  # it has the very requests that were recorded
    simulation.subscribe(StepFinished, steps.append)
    simulation.subscribe(Preempted, lambda record: preempted.append(record.time_us))
    simulation.run()
    simulated = simulation.report().rows
    assert len(twin.course) == 10
    last_us = max(*(row["chunks"][-1][0] for row in rows), *(row.completed_us or 0 for row in simulated))
    from_us = 0
    for stretch in twin.course:
        until_us = stretch.until_us
        assert until_us - from_us == pytest.approx(last_us / 10, abs=2)
        sent = [row for row in rows if from_us <= row["sent_us"] < until_us]
        assert stretch.requests == len(sent)
        seen = [scrape["vllm:num_requests_running"] for scrape in scrapes if scrape["time_us"] <= until_us]
        assert stretch.left["running"] == seen[-1]
        assert stretch.left["waiting"] is None  # this server does not say
        over = [step for step in steps if step.time_us + step.duration_us <= until_us]
        assert (stretch.right["running"], stretch.right["waiting"]) == (over[-1].running, over[-1].waiting)
        assert stretch.right["KV in use"] == over[-1].kv_used_blocks / 90
        assert stretch.right["preemptions"] == len([time_us for time_us in preempted if time_us <= until_us])
        if sent:
            ttft_us = [row["chunks"][0][0] - row["sent_us"] for row in sent]
            e2e_us = [row.e2e_us or 0 for row in simulated if from_us <= row.arrival_us < until_us]
            assert stretch.left["ttft"] == pytest.approx(sum(ttft_us) / len(sent) / 1e3)
            assert stretch.right["e2e"] == pytest.approx(sum(e2e_us) / len(sent) / 1e3)
        from_us = until_us
    assert max(stretch.right["waiting"] or 0 for stretch in twin.course) > 0
    assert max(stretch.right["preemptions"] or 0 for stretch in twin.course) > 0
