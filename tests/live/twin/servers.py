"""A recording of a server that is a simulation: everything about it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.engine.records import Preempted, StepFinished
from blis_tui.live.observe.recording import Folder, Observed, Scrape, Server, Step, read_recording, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from blis_tui.engine.records import Record
    from blis_tui.live.observe.recording import Recording

STEP_US, PREFILL_US, DECODE_US = 9000, 20, 300
BASE: Mapping[str, object] = {
    "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
    "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [STEP_US, PREFILL_US, DECODE_US]},
    "cluster.instances": 1,
    "workload": {
        "requests": 60,
        "rate_per_s": 12.0,
        "clients": [
            {
                "id": "c",
                "input_tokens": {"kind": "uniform", "min": 20, "max": 300},
                "output_tokens": {"kind": "uniform", "min": 5, "max": 80},
            }
        ],
    },
    "engine": {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 1024,
        "max_model_len": 1024,
        "block_size_tokens": 16,
        "kv_blocks": 110,
    },
}


def experiment(**changes: object) -> blis_tui.Experiment:
    """What the server is; keys of ``changes`` have two underlines for a dot."""
    return blis_tui.load(
        "quickstart", set={**BASE, **{key.replace("__", "."): change for key, change in changes.items()}}
    )


def recorded(
    made: blis_tui.Experiment,
    folder: Path,
    *,
    gap_us: int = 0,
    front_us: int = 0,
    line_late_us: Callable[[int], int] | None = lambda _: 0,
    change: Callable[[Observed], Observed] = lambda row: row,
) -> Recording:
    """What `observe` would have recorded of it.

    Args:
        made: the server; each of its steps is said to have computed ``gap_us`` less than it took.
        folder: where the recording goes.
        gap_us: from step to step.
        front_us: what requests took to the scheduler, before the time at which they arrive in the simulation.
        line_late_us: how late each step's line came, by its number; None = nobody looked.
        change: what is done to rows.
    """
    records: list[Record] = []
    simulation = blis_tui.Simulation(made)
    for kind in (StepFinished, Preempted):
        simulation.subscribe(kind, records.append)
    simulation.run()
    report = simulation.report()
    steps = [record for record in records if isinstance(record, StepFinished)]
    writing = Folder(folder)
    preemptions = len(records) - len(steps)
    cached = sum(row.cached_tokens for row in report.rows)
    generated = sum(row.output_tokens for row in report.rows)
    counters = {
        "vllm:num_preemptions_total": preemptions,
        "vllm:prefix_cache_hits_total": cached,
        "vllm:generation_tokens_total": generated,
    }
    engine = made.pools[0].engine
    server = Server(kv_blocks=engine.kv_blocks, block_size_tokens=engine.block_size_tokens, max_model_len=1024)
    writing.begin({"complete": True, "workload": "w", "counters": counters}, server)
    for row in report.rows:
        writing.request(change(_observed(row, front_us)))
    for line in _lines(steps, engine.kv_blocks, gap_us, front_us, line_late_us):
        writing.step(line)
    for time_us in range(0, simulation.now_us, 250_000):
        before = [step for step in steps if step.time_us + step.duration_us <= time_us]
        running, used = (before[-1].running, before[-1].kv_used_blocks) if before else (0, 0)
        values = {"vllm:num_requests_running": float(running), "vllm:kv_cache_usage_perc": used / engine.kv_blocks}
        writing.scrape(Scrape(time_us=time_us + front_us, values=values))
    writing.close()
    recording = read_recording(folder)
    write_tables(recording)
    return recording


def _observed(row: object, front_us: int) -> Observed:
    """The server's clock is the client's: requests that arrive there at 0 were sent before, at ``front_us`` less."""
    values = row._asdict()  # type: ignore[attr-defined]
    sent_us = values["arrival_us"]
    first_us = sent_us + values["ttft_us"] + front_us
    last_us = sent_us + values["e2e_us"] + front_us
    tokens = values["output_tokens"]
    return Observed(
        request_id=values["request_id"],
        index=0,
        due_us=sent_us,
        sent_us=sent_us,
        done_us=last_us,
        outcome="completed",
        input_tokens=values["input_tokens"],
        output_tokens=tokens,
        chunks=((first_us, 1), (last_us, tokens - 1)),
        prompt_tokens=values["input_tokens"],
        completion_tokens=tokens,
        cached_tokens=values["cached_tokens"],
        has_token_ids=True,
        status=200,
    )


def _lines(
    steps: list[StepFinished], kv_blocks: int, gap_us: int, front_us: int, late_us: Callable[[int], int] | None
) -> list[Step]:
    lines: list[Step] = []
    answered: dict[str, None] = {}
    for number, step in enumerate(steps):
        again = [chunk for chunk in step.chunks if chunk.request_id in answered]
        fresh = [chunk for chunk in step.chunks if chunk.request_id not in answered]
        answered |= dict.fromkeys(step.first_tokens)
        end_us = step.time_us + step.duration_us - gap_us + front_us
        lines.append(
            Step(
                number=number,
                end_us=None if late_us is None else end_us + late_us(number),
                duration_us=step.duration_us - gap_us,
                prefill_requests=len(fresh),
                prefill_tokens=sum(chunk.new_tokens for chunk in fresh),
                decode_requests=step.decode_requests + len(again),
                decode_tokens=step.decode_requests + sum(chunk.new_tokens for chunk in again),
                kv_share=step.kv_used_blocks / kv_blocks,
            )
        )
    return lines
