"""The trace for Perfetto, read with Perfetto's own message types, says what the report and the request table say."""

import io
import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # type: ignore[import-untyped]
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig  # type: ignore[import-untyped]

import blis_tui
from blis_tui.engine.records import StepFinished
from blis_tui.output.perfetto import Timeline, number, varint
from blis_tui.results.report import Report

RUNS: dict[str, dict[str, object]] = {
    "quickstart": {"workload.requests": 20},
    "kv-pressure": {"workload.requests": 40},
    "vllm-preemption": {"workload.requests": 40},
    "disaggregation": {"workload.requests": 30},
    "pipeline-bubble": {"workload.requests": 20},
    "instance-dies": {"workload.requests": 60},
    "autoscaling": {"workload.requests": 120},
    "admission-control": {"workload.requests": 60},
    "thinking": {"workload.requests": 60},
    "kv-pressure in chunks": {
        "policy.batching": "blis",
        "workload.requests": 60,
        "engine.max_num_batched_tokens": 48,
        "engine.kv_blocks": 100,
        "expect": [],
    },
}
"""By name of the experiment (its first word). In the last one, some that come back have their whole prompt cached."""


@cache
def traced(name: str) -> tuple[bytes, Report]:
    experiment = blis_tui.load(name.split(maxsplit=1)[0], set=RUNS[name])
    simulation = blis_tui.Simulation(experiment)
    out = io.BytesIO()
    timeline = Timeline(out, experiment)
    simulation.subscribe("all", timeline.observe)
    simulation.run()
    timeline.finish()
    return out.getvalue(), simulation.report()


@dataclass
class Slice:
    process: str
    track: str
    category: str
    name: str
    begin_us: int
    end_us: int = -1
    arguments: dict[str, object] = field(default_factory=dict)
    flows: tuple[int, ...] = ()


@dataclass
class Trace:
    slices: list[Slice]
    counters: dict[tuple[str, str], list[tuple[int, int]]]

    def of(self, category: str) -> list[Slice]:
        return [one for one in self.slices if one.category == category]


@cache
def read(content: bytes) -> Trace:
    """As Perfetto reads it: by time, then in the order of the file; a slice ends the latest one on its track."""
    trace = perfetto_trace_pb2.Trace.FromString(content)
    processes: dict[int, str] = {}
    tracks: dict[int, tuple[str, str]] = {}
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                processes[track.uuid] = track.process.process_name
            else:
                tracks[track.uuid] = (processes[track.parent_uuid], track.name)
        for table in ("event_categories", "event_names", "debug_annotation_names"):
            names[table].update({one.iid: one.name for one in getattr(packet.interned_data, table)})
    found = Trace([], defaultdict(list))
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    event_types = perfetto_trace_pb2.TrackEvent
    for packet in sorted((one for one in trace.packet if one.HasField("track_event")), key=lambda one: one.timestamp):
        event, (time_us, rest) = packet.track_event, divmod(packet.timestamp, 1000)
        assert rest == 0
        process, name = tracks[event.track_uuid]
        arguments = {
            names["debug_annotation_names"][debug_annotation.name_iid]: [
                item.string_value for item in debug_annotation.array_values
            ]
            or (debug_annotation.int_value if debug_annotation.HasField("int_value") else debug_annotation.string_value)
            for debug_annotation in event.debug_annotations
        }
        if event.type == event_types.TYPE_COUNTER:
            found.counters[process, name].append((time_us, event.counter_value))
        elif event.type == event_types.TYPE_SLICE_END:
            ended = open_slices[event.track_uuid].pop()
            ended.end_us = time_us
            ended.arguments |= arguments
        else:
            category = names["event_categories"][event.category_iids[0]]
            called = event.name or names["event_names"][event.name_iid]
            begun = Slice(process, name, category, called, time_us, -1, arguments, tuple(event.flow_ids))
            found.slices.append(begun)
            if event.type == event_types.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append(begun)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_steps_and_requests_are_those_of_the_report(name: str) -> None:
    content, report = traced(name)
    trace = read(content)
    busy: Counter[str] = Counter()
    for step in trace.of("step"):
        busy[step.process] += step.end_us - step.begin_us
    assert busy == {
        f"instance {instance.instance}": instance.busy_us for instance in report.instances if instance.steps
    }
    assert len(trace.of("step")) == sum(instance.steps for instance in report.instances)

    lives = [one for one in trace.of("request") if one.process.startswith("cluster")]
    rows = {row.request_id: row for row in report.rows}
    outcomes = Counter(one.arguments.get("outcome") for one in lives)
    assert outcomes["completed"] == report.requests.completed
    assert outcomes["rejected"] == report.requests.rejected
    assert sorted(one.name for one in lives) == sorted(rows)
    for life in lives:
        row = rows[life.name]
        assert life.begin_us == row.arrival_us
        assert life.arguments.get("ttft_us") == row.ttft_us
        assert life.arguments.get("ttfat_us") == (row.ttfat_us if row.reasoning_tokens else None)
        assert life.arguments.get("e2e_us") == row.e2e_us
        if row.completed_us is not None:
            assert life.end_us == row.completed_us


@pytest.mark.parametrize("name", RUNS)
def test_every_slice_lies_in_the_one_around_it(name: str) -> None:
    """Phases fill a request's stay at an instance without gaps; all that has begun ends, in a run that ends."""
    trace = read(traced(name)[0])
    stays = [one for one in trace.of("request") if one.process.startswith("instance")]
    phases = defaultdict(list)
    for one in trace.of("phase"):
        phases[one.process, one.arguments["request_id"]].append(one)
    assert all(one.end_us >= one.begin_us for one in trace.slices if one.category in ("request", "phase", "step"))
    if name not in ("instance-dies", "autoscaling"):  # where a request may come twice
        for stay in stays:
            within = phases[stay.process, stay.name]
            assert [one.end_us for one in within[:-1]] == [one.begin_us for one in within[1:]]
            assert (within[0].begin_us, within[-1].end_us) == (stay.begin_us, stay.end_us)
            assert within[0].name == "queued"
    counts = Counter(one.name for one in trace.of("phase"))
    assert counts["preempted"] == traced(name)[1].kv.preemptions


@pytest.mark.parametrize("name", ["quickstart", "kv-pressure", "kv-pressure in chunks"])
def test_prompts_are_computed_while_a_request_prefills(name: str) -> None:
    """Whatever was computed before a preemption: each chunk is in a slice of that name, and each of those has some."""
    steps: list[StepFinished] = []
    simulation = blis_tui.Simulation(blis_tui.load(name.split(maxsplit=1)[0], set=RUNS[name]))
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    found = defaultdict(list)
    filled = set()
    for one in read(traced(name)[0]).of("phase"):
        if one.name == "prefill":
            found[one.arguments["request_id"]].append(one)
    for step in steps:
        for chunk in step.chunks:
            (around,) = [
                one
                for one in found[chunk.request_id]
                if one.begin_us <= step.time_us and step.time_us + step.duration_us <= one.end_us
            ]
            assert around.process == f"instance {step.instance}"
            filled.add((chunk.request_id, around.begin_us))
    assert filled == {(request, one.begin_us) for request, slices in found.items() for one in slices}


def test_a_request_is_decoding_from_its_first_token_on() -> None:
    content, report = traced("quickstart")
    decodes = {one.arguments["request_id"]: one.begin_us for one in read(content).of("phase") if one.name == "decode"}
    rows = {row.request_id: row.first_token_us for row in report.rows if row.output_tokens > 1}
    assert decodes == rows


def test_counters_agree_with_the_records_of_steps() -> None:
    experiment = blis_tui.load("kv-pressure", set=RUNS["kv-pressure"])
    simulation = blis_tui.Simulation(experiment)
    steps: list[StepFinished] = []
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    counters = read(traced("kv-pressure")[0]).counters
    assert counters["pool default", "running"] == counters["instance 0", "running"]

    def at(name: str, time_us: int) -> int:
        return [value for when, value in counters["instance 0", name] if when <= time_us][-1]

    for step in steps[:400]:
        assert at("running", step.time_us) == step.running + len(step.completed)
        assert at("waiting", step.time_us) == step.waiting
        assert at("KV blocks used", step.time_us + step.duration_us) == step.kv_used_blocks


def test_arrows_lead_from_the_router_through_the_transfer() -> None:
    content, _ = traced("disaggregation")
    ways = defaultdict(list)
    for one in sorted(read(content).slices, key=lambda one: one.begin_us):
        for flow in one.flows:
            ways[flow].append(one)
    split = [[one.name for one in way[1:]] for way in ways.values() if len(way) > 4]
    assert split
    for names in split:
        assert names[0].startswith("to instance")
        assert "KV transfer" in names


def test_a_request_may_end_before_the_step_that_computes_its_prompt() -> None:
    transfer = {"starts": "step-start", "bandwidth_gb_per_s": 5000, "base_latency_us": 0}
    overrides = {
        "workload.requests": 20,
        "workload.clients.0.output_tokens": 2,
        "cluster.disaggregation.transfer": transfer,
    }
    simulation = blis_tui.Simulation(blis_tui.load("disaggregation", set=overrides))
    out = io.BytesIO()
    timeline = Timeline(out, simulation.experiment)
    simulation.subscribe("all", timeline.observe)
    simulation.run()
    timeline.finish()
    trace = read(out.getvalue())
    assert len([one for one in trace.of("request") if one.process.startswith("cluster")]) == 20
    assert all(one.end_us >= one.begin_us for one in trace.of("request"))


def test_a_run_that_is_cut_leaves_slices_open() -> None:
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=RUNS["quickstart"]))
    out = io.BytesIO()
    timeline = Timeline(out, simulation.experiment)
    simulation.subscribe("all", timeline.observe)
    simulation.run(until_us=2_000_000)
    timeline.finish()
    trace = read(out.getvalue())
    still = [one for one in trace.of("request") if one.end_us < 0 and one.process.startswith("cluster")]
    assert len(still) == simulation.arrived - simulation.ended > 0


def test_the_same_run_gives_the_same_bytes() -> None:
    content, _ = traced("quickstart")
    traced.cache_clear()
    assert traced("quickstart")[0] == content


def test_numbers_take_as_few_bytes_as_they_need() -> None:
    assert [varint(value) for value in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]
    assert number(4, -1) == b"\x20" + b"\xff" * 9 + b"\x01"


def test_queries_of_trace_processor_give_the_figures_of_the_report() -> None:
    """With Perfetto's own engine, where it is installed: the package on PyPI would download it."""
    binary = shutil.which("trace_processor_shell")
    if binary is None:
        pytest.skip("there is no trace_processor_shell")
    content, report = traced("quickstart")
    with TraceProcessor(trace=io.BytesIO(content), config=TraceProcessorConfig(bin_path=binary)) as processor:

        def ask(query: str) -> list[tuple[object, ...]]:
            return [tuple(row.__dict__.values()) for row in processor.query(query)]

        lives = (
            "from slice join process_track on slice.track_id = process_track.id join process using (upid) "
            "where category = 'request' and process.name like 'cluster%'"
        )
        completed = f"{lives} and extract_arg(slice.arg_set_id, 'debug.outcome') = 'completed'"
        assert ask(f"select count(*) as n {completed}") == [(report.requests.completed,)]
        ((mean_us,),) = ask(f"select avg(extract_arg(slice.arg_set_id, 'debug.ttft_us')) as mean {lives}")
        assert mean_us == pytest.approx(fmean(row.ttft_us for row in report.rows if row.ttft_us is not None))
        busy = ask(
            "select process.name as name, sum(slice.dur) / 1000 as busy from slice join process_track on"
            " slice.track_id = process_track.id join process using (upid) where category = 'step' group by name"
        )
        assert busy == [(f"instance {instance.instance}", instance.busy_us) for instance in report.instances]
        assert ask("select count(*) as n from stats where severity = 'error' and value > 0") == [(0,)]
        assert ask("select count(distinct slice_out) as n from flow")[0] != (0,)
