"""The law of ``blackbox``, for hardware of which only measurements are known."""

from __future__ import annotations

from math import fsum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.laws import Term
from blis_tui.calibration.steps import StepLog
from blis_tui.spec.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.data import Data
    from blis_tui.calibration.fitting.laws import Array, Loads
    from blis_tui.spec.model import Pool

_LOW: Final = 0.1
"""Quantile of measurements that represents a nearly idle server."""
_QUEUE: Final = (5000.0, 1.5)
"""Expected microseconds per request and prompt token before the queue, and spread; front ends run on CPUs everywhere.
"""
TERMS: Final = ("beta0", "beta1", "beta2", "alpha0", "alpha1")
"""Microseconds per step, prompt token and decode; per request and prompt token before the queue."""


class BlackboxLaw:
    """``blackbox``; the expected coefficients are passed in, because nothing is known of the model.

    The time per output token after its step, ``behind_us`` (``alpha2``), is not fitted: whole answers do not
    distinguish it from step time.
    """

    kind: Final = "blackbox"
    kept: Final = MappingProxyType({"alpha2": "whole answers do not tell it from what a step takes"})
    constant: Final = "beta0"

    def __init__(self, base: Sequence[float], spread: Sequence[float], behind_us: float = 0.0) -> None:
        self._behind_us = behind_us
        both = zip(TERMS, base, spread, strict=True)
        self.terms = tuple(Term(name, value, wide, 0.0) for name, value, wide in both)

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        beta, alpha = values[:3].tolist(), values[3:].tolist()
        return PluginConfig(kind="blackbox", settings={"alpha": (*alpha, self._behind_us), "beta": tuple(beta)})

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:  # noqa: ARG002  (it is linear)
        """Return the slopes 1, prompt tokens, decodes."""
        decodes = loads.decodes * pool.engine.verify_width
        nothing = np.zeros_like(decodes)
        return np.stack([np.ones_like(decodes), loads.new, decodes, nothing, nothing], axis=1)

    def logged(self, slopes: Array) -> Array:
        """Return the slopes unchanged."""
        return slopes

    def queue(self, tokens: Array) -> Array:
        """Return the slopes 1 and prompt tokens."""
        nothing = np.zeros_like(tokens)
        return np.stack([nothing, nothing, nothing, np.ones_like(tokens), tokens], axis=1)

    def client_us(self, tokens: Array) -> Array:
        """Return the time for detokenization and streaming of all tokens."""
        return self._behind_us * tokens

    def others(self, values: Array, pool: Pool) -> list[Array]:  # noqa: ARG002  (it has no maximum)
        """Return nothing."""
        return []


def expected_of(data: Sequence[Data]) -> tuple[list[float], list[float]]:
    """Return the base and the spread of coefficients without prior knowledge."""
    answers: list[float] = []
    firsts: list[float] = []
    prompts: list[float] = []
    busy = lasted = 0.0
    for one in data:
        recording = one.recording
        if isinstance(recording, StepLog):
            answers += [step.duration_us for step in recording.steps if not step.chunks]
            firsts += [step.duration_us for step in recording.steps if step.chunks]
            prompts += [float(step.tokens - step.decode_requests) for step in recording.steps if step.chunks]
            busy += fsum(step.decode_requests for step in recording.steps)
            lasted += len(recording.steps)
            continue
        for it in recording.requests:
            firsts.append(it.ttft_us)
            prompts.append(float(it.input_tokens))
            if it.output_tokens > 1 and it.e2e_us > it.ttft_us:
                answers.append((it.e2e_us - it.ttft_us) / (it.output_tokens - 1))
        ends = [it.arrival_us + it.e2e_us for it in recording.requests]
        busy += fsum(it.e2e_us for it in recording.requests)
        lasted += max(ends) - min(it.arrival_us for it in recording.requests)
    step = float(np.quantile(answers or firsts, _LOW))
    first = float(np.quantile(firsts or answers, _LOW))
    prompt = float(np.mean(prompts)) if prompts else 1.0
    decodes = max(1.0, busy / lasted)
    base = [step, 0.5 * first / prompt, 0.2 * step / decodes, *_QUEUE]
    return base, [step, first / prompt, step / decodes, *_QUEUE]
