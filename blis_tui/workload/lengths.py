"""Distributions of prompt and output lengths, in whole tokens, at least 1.

Samples are rounded to the nearest whole number, halves up. What is no number of tokens (an overflow to
infinity, or beyond 2**53) counts as 1, as in BLIS.
"""

from __future__ import annotations

from bisect import bisect_left
from math import fsum
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.engine.portable_math import exp, power
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import Lengths

_INFINITY: Final = float("inf")
_TOO_LONG: Final = 2.0**53


class TokenCounts(Protocol):
    """A distribution of token counts."""

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        ...


def _tokens(value: float) -> int:
    """Round to whole tokens, at least 1; 1 for what is out of all bounds, NaN included."""
    return (int(value + 0.5) or 1) if 0.0 < value < _TOO_LONG else 1


class ConstantTokens:
    """Always the same: ``value``."""

    __slots__ = ("_value",)

    def __init__(self, lengths: Lengths) -> None:
        self._value = _tokens(_parameter(lengths, "value"))

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (one signature for all)
        """A number of tokens, at least 1."""
        return self._value


class GaussianTokens:
    """Normal with ``mean`` and ``std_dev``, clamped to [``min``, ``max``]: values beyond gather there."""

    __slots__ = ("_max", "_mean", "_min", "_std_dev")

    def __init__(self, lengths: Lengths) -> None:
        self._mean = _parameter(lengths, "mean")
        self._std_dev = _parameter(lengths, "std_dev")
        self._min = _parameter(lengths, "min", 1.0)
        self._max = _parameter(lengths, "max", _INFINITY)

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        value = self._mean + self._std_dev * stream.normal()
        if value < self._min:
            value = self._min
        elif value > self._max:
            value = self._max
        return _tokens(value)


class ExponentialTokens:
    """Exponential with ``mean``; optionally clamped to [``min``, ``max``]."""

    __slots__ = ("_max", "_mean", "_min")

    def __init__(self, lengths: Lengths) -> None:
        self._mean = _parameter(lengths, "mean")
        self._min = _parameter(lengths, "min", 0.0)
        self._max = _parameter(lengths, "max", _INFINITY)

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        return _tokens(min(self._max, max(self._min, self._mean * stream.exponential())))


class LognormalTokens:
    """``exp`` of a normal (``mu``, ``sigma``); optionally clamped to [``min``, ``max``]."""

    __slots__ = ("_max", "_min", "_mu", "_sigma")

    def __init__(self, lengths: Lengths) -> None:
        self._mu = _parameter(lengths, "mu")
        self._sigma = _parameter(lengths, "sigma")
        self._min = _parameter(lengths, "min", 0.0)
        self._max = _parameter(lengths, "max", _INFINITY)

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        value = exp(self._mu + self._sigma * stream.normal())
        return _tokens(min(self._max, max(self._min, value)))


class ParetoLognormalTokens:
    """A mixture: Pareto (``alpha``, from ``xm`` up) with probability ``mix_weight``, else lognormal.

    The body of production prompt lengths is lognormal, their tail a power law.
    """

    __slots__ = ("_inverse_alpha", "_mix_weight", "_mu", "_sigma", "_xm")

    def __init__(self, lengths: Lengths) -> None:
        alpha = _parameter(lengths, "alpha")
        if alpha <= 0.0:
            raise PolicyError(f"alpha of pareto-lognormal lengths is {alpha}", help="it must be positive")
        self._inverse_alpha = 1.0 / alpha
        self._xm = _parameter(lengths, "xm")
        self._mu = _parameter(lengths, "mu")
        self._sigma = _parameter(lengths, "sigma")
        self._mix_weight = _parameter(lengths, "mix_weight")

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        if stream.uniform() < self._mix_weight:
            root = power(stream.uniform_open(), self._inverse_alpha)
            return _tokens(self._xm / root) if root > 0.0 else 1
        return _tokens(exp(self._mu + self._sigma * stream.normal()))


class EmpiricalTokens:
    """Listed token counts with their weights; weights that are not positive are left out."""

    __slots__ = ("_cumulative", "_tokens")

    def __init__(self, lengths: Lengths) -> None:
        kept = [(tokens, weight) for tokens, weight in lengths.weights if weight > 0.0]
        if not kept:
            raise PolicyError("empirical lengths have no positive weight")
        total = fsum(weight for _, weight in kept)
        cumulative = []
        so_far = 0.0
        for _, weight in kept:
            so_far += weight
            cumulative.append(so_far / total)
        # Rounding may leave the last one below a sample.
        cumulative[-1] = 1.0
        self._tokens = tuple(max(1, tokens) for tokens, _ in kept)
        self._cumulative = tuple(cumulative)

    def sample(self, stream: Stream) -> int:
        """A number of tokens, at least 1."""
        return self._tokens[bisect_left(self._cumulative, stream.uniform())]


_KINDS: Final[Mapping[str, Callable[[Lengths], TokenCounts]]] = {
    "constant": ConstantTokens,
    "empirical": EmpiricalTokens,
    "exponential": ExponentialTokens,
    "gaussian": GaussianTokens,
    "lognormal": LognormalTokens,
    "pareto-lognormal": ParetoLognormalTokens,
}

KINDS: Final = tuple(_KINDS)
"""The names of all length distributions, sorted."""


def create_lengths(lengths: Lengths) -> TokenCounts:
    """Build the distribution that ``lengths`` names.

    Raises:
        PolicyError: no such distribution, or a parameter is missing or out of range.
    """
    build = _KINDS.get(lengths.kind)
    if build is None:
        raise PolicyError(
            f"no length distribution {lengths.kind!r}",
            help=f"the length distributions are {', '.join(KINDS)}",
        )
    return build(lengths)


def _parameter(lengths: Lengths, name: str, default: float | None = None) -> float:
    """One parameter as a float; ``default`` when it is left out and may be."""
    value = lengths.params.get(name, default)
    if value is None:
        raise PolicyError(f"{lengths.kind} lengths require the parameter {name!r}")
    return float(value)
