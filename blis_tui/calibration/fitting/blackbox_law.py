"""The law of ``blackbox``, for hardware of which nothing is known but what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.laws import Term
from blis_tui.spec.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.fitting.laws import Array, Loads
    from blis_tui.spec.model import Pool

TERMS: Final = ("beta0", "beta1", "beta2", "alpha0", "alpha1", "alpha2")
"""Us per step, prompt token and decode; per request and prompt token before the queue; per output token behind it."""


class BlackboxLaw:
    """``blackbox``; nothing is known about the model, so what is expected of coefficients comes with them."""

    def __init__(self, base: Sequence[float], spread: Sequence[float]) -> None:
        both = zip(TERMS, base, spread, strict=True)
        self.terms = tuple(Term(name, value, wide, 0.0) for name, value, wide in both)

    def config(self, values: Array) -> PluginConfig:
        """The step-time model with these coefficients."""
        beta, alpha = values[:3].tolist(), values[3:].tolist()
        return PluginConfig(kind="blackbox", settings={"alpha": tuple(alpha), "beta": tuple(beta)})

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:  # noqa: ARG002  (it is linear)
        """One, prompt tokens, decodes."""
        decodes = loads.decodes * pool.engine.verify_width
        nothing = np.zeros_like(decodes)
        return np.stack([np.ones_like(decodes), loads.new, decodes, nothing, nothing, nothing], axis=1)

    def queue(self, tokens: Array) -> Array:
        """One, and prompt tokens."""
        nothing = np.zeros_like(tokens)
        return np.stack([nothing, nothing, nothing, np.ones_like(tokens), tokens, nothing], axis=1)

    def client(self, tokens: Array) -> Array:
        """Detokenization and streaming of each token so far."""
        found = np.zeros((len(tokens), len(TERMS)))
        found[:, TERMS.index("alpha2")] = tokens
        return found
