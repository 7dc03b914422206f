"""Compares a load generator's results with a simulation of its requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.errors import InputError
from blis_tui.base.units import plural
from blis_tui.live.calibration import measured
from blis_tui.live.observe.recording import COMPLETED, Observed, Recording, Server
from blis_tui.live.twin.twin import Twin, compare_with_simulation

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.model import Experiment


def compare_results(path: Path, experiment: Experiment, name: str, run: int | None = None) -> Twin:
    """Compare the requests in a file with a simulation of them.

    Args:
        path: what ``calibrate`` reads: a result of ``vllm bench serve --save-detailed``, GuideLLM, and others.
        experiment: the experiment that describes the server.
        name: the experiment's name.
        run: which of several runs in the file, from 1; None = the only one.

    Raises:
        PolicyError: the experiment has several instances.
        InputError: the file cannot be read, or has no requests.
    """
    recording = measured.read_recording(path, experiment.pools[0], run)
    if not isinstance(recording, measured.Recording):
        raise InputError(f"{path} has steps of an engine, no requests", help="name the results of a load generator")
    rows = tuple(_observed(number, request) for number, request in enumerate(recording.requests))
    made = Recording(folder=path, server=Server(), requests=rows)
    twin = compare_with_simulation(made, experiment, name)
    if not recording.failed:
        return twin
    note = (
        f"{plural(recording.failed, 'request')} without a complete answer: what they added to the load is not simulated"
    )
    return replace(twin, notes=(*twin.notes, note))


def _observed(number: int, request: measured.Measured) -> Observed:
    sent_us = round(request.arrival_us)
    first_us, last_us = sent_us + round(request.ttft_us), sent_us + round(request.e2e_us)
    chunks = ((first_us, 1), (last_us, request.output_tokens - 1)) if request.output_tokens > 1 else ((first_us, 1),)
    return Observed(
        request_id=f"request_{number}",
        index=number,
        due_us=sent_us,
        sent_us=sent_us,
        done_us=last_us,
        outcome=COMPLETED,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        chunks=chunks,
        completion_tokens=request.output_tokens,
        segments=((request.prefix_group, request.prefix_tokens),) if request.prefix_group else (),
    )
