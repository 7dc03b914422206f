"""A recording of a real server as a golden test of the experiment that describes the server."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.keys import choice, key, part
from blis_tui.spec.model.cluster import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTolerance:
    """How far figures of a new recording may be from those that were kept; no run of a server is quite like another."""

    latency: float = key(
        "Share by which means and medians of latencies, and the mean time of a step, may differ.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )
    tail: float = key(
        "Share by which the 99th percentiles of latencies may differ.",
        default=0.25,
        minimum=0,
        maximum=10,
        examples=[0.15],
    )
    counts: float = key(
        "Share by which steps, preemptions, tokens from the prefix cache, generated tokens, running requests and KV"
        " blocks in use may differ; by 2 they always may where they are counted.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )
    error: float = key(
        "By how much the mean absolute error of simulated latencies (a share: 0.08 is 8 %) may differ.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTest:
    """A recording of the server, compared with what was kept of an earlier one and with the simulation."""

    name: str = key("Name of the test: `twin+NAME`.", pattern=NAME, examples=["june"])
    recording: str = key(
        "The folder that `blis-tui observe -o` wrote, relative to this file.",
        minLength=1,
        examples=["recordings/server"],
    )
    steps: str = choice(
        "Where the step times of the simulation come from.",
        {
            "model": "The experiment's step-time model.",
            "measured": "The log in the recording, step by step.",
            "fitted": "A simple model, fitted to that log.",
        },
        default="model",
    )
    tolerance: TwinTolerance = part("How far figures may be from those that were kept.", TwinTolerance, default={})
