"""Distributions of token counts and of shares, and the validation of what plug-ins sample.

Distributions of prompt and output lengths, in whole tokens, at least 1.

Samples are rounded to the nearest whole number, halves up. A sample that is not a valid number of tokens (an overflow
to infinity, or beyond 2**53) counts as 1, as in BLIS.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping  # noqa: TC003  (schemas are generated from the types of settings)
from itertools import accumulate, pairwise
from math import fsum, sqrt
from operator import index
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError, SimulationError
from blis_tui.base.pickling import ValidatedPlugin, is_internal_class
from blis_tui.base.portable_math import exp, ln, normal_quantile, power
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import PlugPoint, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blis_tui.base.streams import Stream
    from blis_tui.model import Client
    from blis_tui.model.plug_ins import Registry


N_co = TypeVar("N_co", bound=float, covariant=True)
N = TypeVar("N", bound=float)


class Samples(Protocol[N_co]):
    """A distribution or arrival process."""

    def sample(self, stream: Stream) -> N_co:
        """Return the next number."""


class _ValidatedDistribution(ValidatedPlugin, Generic[N]):
    """A plug-in's distribution whose samples are validated.

    Args:
        plugged: the distribution.
        kind: its name in documents.
        look: converts an answer to a number, or raises ``TypeError`` or ``ValueError``.
        wanted: describes what it should have returned.
    """

    def __init__(self, plugged: Samples[N], kind: str, look: Callable[[object], N], wanted: str) -> None:
        super().__init__(plugged)
        self._drawn = plugged
        self._kind = kind
        self._look = look
        self._wanted = wanted

    def sample(self, stream: Stream) -> N:
        """Return the plug-in's next sample.

        Raises:
            SimulationError: it is not a valid number.
        """
        answer: object = self._drawn.sample(stream)
        try:
            return self._look(answer)
        except (TypeError, ValueError):
            message = f"`sample` of the plug-in `{self._kind}` answers {answer!r}"
            raise SimulationError(message, help=f"it returns {self._wanted}") from None


def counts(made: Samples[int], kind: str) -> Samples[int]:
    """Wrap a distribution of whole numbers, or an arrival process, in validation if it is a plug-in's."""
    return (
        made
        if is_internal_class(type(made))
        else _ValidatedDistribution(made, kind, _count, "a whole number, at least 1")
    )


def shares(made: Samples[float], kind: str) -> Samples[float]:
    """Wrap a distribution of shares in validation if it is a plug-in's."""
    return made if is_internal_class(type(made)) else _ValidatedDistribution(made, kind, _share, "a share, from 0 to 1")


def _count(answer: object) -> int:
    number = index(cast("int", answer))
    if number < 1:
        raise ValueError(number)
    return number


def _share(answer: object) -> float:
    share = float(cast("float", answer))
    if not 0.0 <= share <= 1.0:
        raise ValueError(share)
    return share


_INFINITY: Final = float("inf")
_TOO_LONG: Final = 2.0**53
_MOST: Final = 10**9
"""Maximum number of tokens in documents."""
_MEAN: Final = "Mean of the values drawn, before they are clamped."
_ENDED_SHARE: Final = 0.753
"""Mean length of answers to random prompts relative to their limit: 123,383 of 160 x 1,024 (DeepSeek R1, vLLM's pull
request 28227, which made ``ignore_eos`` the default of ``vllm bench serve`` for random prompts in November 2025)."""
_LONGEST_ANSWERS: Final = 1e6
"""Longest mean lengths considered, relative to the limit: one answer in a million ends by EOS."""
_HALVINGS: Final = 100
_Z95: Final = normal_quantile(0.95)
_FARTHEST_P95: Final = exp(_Z95 * _Z95 / 2.0)
"""The largest 95th percentile of any lognormal distribution, relative to its mean."""


class ContradictionError(PolicyError):
    """Settings of a distribution cannot all hold.

    Attributes:
        path: the setting, with its key or number where it is a table; empty = all together.
    """

    def __init__(self, path: tuple[str | int, ...], message: str, help: str) -> None:  # noqa: A002
        super().__init__(message, help=help)
        self.path = path


class TokenCounts(Protocol):
    """A distribution of token counts."""

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        ...


LENGTHS: Final = PlugPoint[[], TokenCounts]("workload.clients.lengths", "length distribution", TokenCounts)


def _tokens(value: float) -> int:
    """Round to whole tokens, at least 1; return 1 for anything out of bounds, NaN included."""
    return (int(value + 0.5) or 1) if 0.0 < value < _TOO_LONG else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSettings:
    """Settings of constant lengths."""

    value: int = setting("How many.", minimum=1, maximum=_MOST, examples=(256,))


@LENGTHS.plugin("constant", "Always the same.", ConstantSettings)
class ConstantTokens:
    """The constant ``value``."""

    def __init__(self, settings: ConstantSettings) -> None:
        self._value = _tokens(settings.value)

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return the number of tokens, at least 1."""
        return self._value


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformSettings:
    """Settings of uniform lengths."""

    min: int = setting("Smallest value.", minimum=1, maximum=_MOST, examples=(100,))
    max: int = setting("Largest value.", minimum=1, maximum=_MOST, examples=(800,))


@LENGTHS.plugin("uniform", "Every length from min to max is as likely as the others.", UniformSettings)
class UniformTokens:
    """Uniform over the whole numbers from ``min`` to ``max``, as in the random data set of ``vllm bench serve``."""

    def __init__(self, settings: UniformSettings) -> None:
        if settings.max < settings.min:
            raise PolicyError(
                f"uniform lengths from {settings.min} to {settings.max}", help="max must not be below min"
            )
        self._min = settings.min
        self._count = settings.max - settings.min + 1

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        return self._min + stream.below(self._count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSettings:
    """Settings of Gaussian lengths."""

    mean: float = setting(_MEAN, minimum=SMALLEST, maximum=_MOST, examples=(256,))
    std_dev: float = setting(
        "Standard deviation of the values drawn, before they are clamped.", minimum=0, maximum=_MOST, examples=(100,)
    )
    min: int = setting("Smallest value; what is drawn below it becomes it.", minimum=1, maximum=_MOST, examples=(1,))
    max: int = setting("Largest value; what is drawn above it becomes it.", minimum=1, maximum=_MOST, examples=(800,))


@LENGTHS.plugin("gaussian", "Normal distribution, clamped to [min, max] and rounded.", GaussianSettings)
class GaussianTokens:
    """Normal with ``mean`` and ``std_dev``, clamped to [``min``, ``max``]: values beyond accumulate at the bounds."""

    def __init__(self, settings: GaussianSettings) -> None:
        self._mean, self._std_dev = settings.mean, settings.std_dev
        self._min, self._max = settings.min, settings.max
        self._lowest, self._highest = float(settings.min), float(settings.max)

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        drawn = self._mean + self._std_dev * stream.normal()
        # (without min() and max(), and floats with floats, as this runs twice for each request)
        return self._max if drawn > self._highest else self._min if drawn < self._lowest else int(drawn + 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Optional bounds."""

    min: int | None = setting("Smallest value; absent = 1.", default=None, minimum=1, maximum=_MOST)
    max: int | None = setting("Largest value; absent = unlimited.", default=None, minimum=1, maximum=_MOST)

    def pair(self) -> tuple[float, float]:
        """Return both bounds as numbers."""
        return (0 if self.min is None else self.min, _INFINITY if self.max is None else self.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalSettings(_Bounds):
    """Settings of lognormal lengths."""

    mu: float | None = setting(
        "Mean of the logarithm; one of this, `mean` and `median`.",
        default=None,
        minimum=-20,
        maximum=20,
        examples=(5.5,),
    )
    mean: float | None = setting(
        "Mean of the values drawn, before they are clamped, instead of `mu`.",
        default=None,
        minimum=SMALLEST,
        maximum=_MOST,
        examples=(350,),
    )
    median: float | None = setting(
        "Half of the values are below it: instead of `mu`, which is its logarithm.",
        default=None,
        minimum=SMALLEST,
        maximum=_MOST,
        examples=(250,),
    )
    sigma: float | None = setting(
        "Standard deviation of the logarithm; this or `p95`.", default=None, minimum=0, maximum=10, examples=(0.8,)
    )
    p95: float | None = setting(
        "95 % of the values are below it, before they are clamped: instead of `sigma`. With a `mean` it is at most 3.86"
        " times that, and of two distributions the one with the lower `sigma` is taken.",
        default=None,
        minimum=SMALLEST,
        maximum=_MOST,
        examples=(900,),
    )


def _check_lognormal(settings: LognormalSettings) -> None:
    """Raise ContradictionError if there is no such distribution, or more than one."""
    middles = {"mu": settings.mu, "mean": settings.mean, "median": settings.median}
    for keys, example in (
        (middles, "mean: 350"),
        ({"sigma": settings.sigma, "p95": settings.p95}, "p95: 900"),
    ):
        known = [name for name, value in keys.items() if value is not None]
        if len(known) > 1:
            listed = " and ".join(f"`{name}`" for name in known)
            raise ContradictionError((), f"lognormal lengths have both {listed}", f"give one of {_either('and', keys)}")
        if not known:
            text = f"lognormal lengths need {_either('or', keys)}"
            raise ContradictionError((), text, f"give one of them, such as `{example}`")
    if settings.p95 is None:
        return
    what, middle = ("mean", settings.mean) if settings.mean is not None else ("median", settings.median)
    if middle is None:
        what, middle = "median, exp(mu) =", exp(settings.mu or 0.0)
    if settings.p95 < middle:
        text = f"p95 {settings.p95:.15g} is below the {what} {middle:.15g}"
        raise ContradictionError(("p95",), text, "95 of 100 values are below p95: raise it")
    if settings.mean is not None and settings.p95 > _FARTHEST_P95 * settings.mean:
        text = f"no lognormal has the mean {settings.mean:.15g} and the p95 {settings.p95:.15g}"
        most = f"with that mean, p95 is at most {_FARTHEST_P95 * settings.mean:.6g}"
        raise ContradictionError(("p95",), text, f"{most}; give `median` instead of `mean`, or kind `percentiles`")


def _either(word: str, names: Iterable[str]) -> str:
    """Return names as ``a, b or c``."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} {word} {last}"


def _lognormal(settings: LognormalSettings) -> tuple[float, float]:
    """Return mean and standard deviation of the logarithm.

    With the median m, ``ln p95 = ln m + z sigma``; with the mean, ``ln m = ln mean - sigma^2 / 2``, which makes it a
    quadratic equation.
    """
    sigma, middle = settings.sigma, settings.mu
    if middle is None and settings.median is not None:
        middle = ln(settings.median)
    if sigma is None and settings.p95 is not None:
        if middle is not None:
            sigma = max(0.0, (ln(settings.p95) - middle) / _Z95)
        elif settings.mean is not None:
            beyond = ln(settings.p95 / settings.mean)
            # Of z - sqrt(z^2 - 2 d), without the difference of two numbers that are nearly the same.
            sigma = 2.0 * beyond / (_Z95 + sqrt(max(0.0, _Z95 * _Z95 - 2.0 * beyond)))
    sigma = 0.0 if sigma is None else sigma
    if middle is None:
        middle = ln(settings.mean or 1.0) - sigma * sigma / 2.0
    return middle, sigma


@LENGTHS.plugin("lognormal", "exp(mu + sigma * Z), clamped to [min, max] and rounded.", LognormalSettings)
class LognormalTokens:
    """``exp`` of a normal (``mu``, ``sigma``); optionally clamped to [``min``, ``max``].

    Raises:
        PolicyError: the settings contradict each other.
    """

    def __init__(self, settings: LognormalSettings) -> None:
        _check_lognormal(settings)
        self._mu, self._sigma = _lognormal(settings)
        self._min, self._max = settings.pair()

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        value = exp(self._mu + self._sigma * stream.normal())
        return _tokens(min(self._max, max(self._min, value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialSettings(_Bounds):
    """Settings of exponential lengths."""

    mean: float = setting(_MEAN, minimum=SMALLEST, maximum=_MOST, examples=(256,))


@LENGTHS.plugin(
    "exponential",
    "Exponential distribution, clamped to [min, max] and rounded, at least 1.",
    ExponentialSettings,
)
class ExponentialTokens:
    """Exponential with ``mean``; optionally clamped to [``min``, ``max``]."""

    def __init__(self, settings: ExponentialSettings) -> None:
        self._mean = settings.mean
        self._min, self._max = settings.pair()

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        return _tokens(min(self._max, max(self._min, self._mean * stream.exponential())))


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilEosSettings:
    """Settings of answers that end by EOS or at a limit."""

    max: int = setting("Tokens at which an answer is cut (`max_tokens`).", minimum=1, maximum=_MOST, examples=(1024,))
    mean: float | None = setting(
        "Mean tokens of an answer, including those that were cut: generated tokens / requests of the benchmark."
        " Default: 0.753 of `max`, as 160 answers to random prompts were in vLLM's pull request 28227.",
        default=None,
        minimum=SMALLEST,
        maximum=_MOST,
        examples=(771,),
    )


@LENGTHS.plugin(
    "until-eos",
    "Answers that end by themselves at any token alike, or at max: a load without ignore_eos.",
    UntilEosSettings,
)
class UntilEosTokens:
    """Exponential, cut at ``max``, with the mean after the cut equal to ``mean``.

    With an EOS probability of 1/m at each token, answers cut at M have a mean of ``m (1 - exp(-M/m))`` tokens.

    Attributes:
        max_tokens: where answers are cut, which is what the client declares.
    """

    def __init__(self, settings: UntilEosSettings) -> None:
        self.max_tokens = settings.max
        self._max = most = float(settings.max)
        wanted = _ENDED_SHARE * most if settings.mean is None else settings.mean
        if wanted >= most:
            raise PolicyError(
                f"mean of until-eos lengths is {wanted:g}, max {settings.max}",
                help="answers that are cut are shorter in the mean; if none ended by itself, give a plain number",
            )
        low, high = 0.0, _LONGEST_ANSWERS * most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            cut = middle * (1.0 - exp(-most / middle))
            low, high = (middle, high) if cut < wanted else (low, middle)
        self._mean = high

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        return _tokens(min(self._max, self._mean * stream.exponential()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoLognormalSettings:
    """Settings of a mixture."""

    alpha: float = setting("Shape of the Pareto part.", minimum=SMALLEST, maximum=1000)
    xm: float = setting("Smallest value of the Pareto part.", minimum=SMALLEST, maximum=_MOST)
    mu: float = setting("Mean of the logarithm of the lognormal part.", minimum=-20, maximum=20)
    sigma: float = setting("Standard deviation of the logarithm of the lognormal part.", minimum=0, maximum=10)
    mix_weight: float = setting("Probability of the Pareto part, 0 to 1.", minimum=0, maximum=1)


@LENGTHS.plugin(
    "pareto-lognormal",
    "A heavy tail: Pareto with probability mix_weight, else lognormal.",
    ParetoLognormalSettings,
)
class ParetoLognormalTokens:
    """A mixture: Pareto (``alpha``, from ``xm`` up) with probability ``mix_weight``, else lognormal.

    The body of production prompt lengths is lognormal, their tail a power law.
    """

    def __init__(self, settings: ParetoLognormalSettings) -> None:
        alpha = settings.alpha
        if alpha <= 0.0:
            raise PolicyError(f"alpha of pareto-lognormal lengths is {alpha}", help="it must be positive")
        self._inverse_alpha = 1.0 / alpha
        self._xm = settings.xm
        self._mu = settings.mu
        self._sigma = settings.sigma
        self._mix_weight = settings.mix_weight

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        if stream.uniform() < self._mix_weight:
            root = power(stream.uniform_open(), self._inverse_alpha)
            return _tokens(self._xm / root) if root > 0.0 else 1
        return _tokens(exp(self._mu + self._sigma * stream.normal()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalSettings:
    """Settings of a table."""

    weights: Mapping[str, float] = setting(
        "Weight of each value; the keys are quoted whole numbers. Need not add up to 1.",
        minProperties=1,
        propertyNames={"pattern": "^[1-9][0-9]{0,8}$", "description": "A positive whole number."},
        additionalProperties={"description": "Weight.", "type": "number", "minimum": 0, "maximum": 10**9},
    )


def _positive(weights: Mapping[str, float], read: Callable[[str], N], what: str) -> list[tuple[N, float]]:
    """Return the entries of a table of weights that can be drawn, in the order of what is drawn."""
    kept = sorted((read(entry), weight) for entry, weight in weights.items() if weight > 0.0)
    if not kept:
        raise PolicyError(f"empirical {what} have no positive weight")
    return kept


@LENGTHS.plugin("empirical", "Drawn from a table of weights.", EmpiricalSettings)
class EmpiricalTokens:
    """Listed token counts with weights; entries whose weight is not positive are left out."""

    def __init__(self, settings: EmpiricalSettings) -> None:
        kept = _positive(settings.weights, int, "lengths")
        total = fsum(weight for _, weight in kept)
        cumulative = [so_far / total for so_far in accumulate(weight for _, weight in kept)]
        # Rounding may leave the last bound below a sample.
        cumulative[-1] = 1.0
        self._tokens = tuple(max(1, tokens) for tokens, _ in kept)
        self._cumulative = tuple(cumulative)

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        return self._tokens[bisect_left(self._cumulative, stream.uniform())]


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentilesSettings(_Bounds):
    """Settings of a table of percentiles."""

    values: Mapping[str, float] = setting(
        "Percentile -> the value that so many percent are below, before they are clamped: two or more, from `p0.1` to"
        " `p99.9` or beyond.",
        minProperties=2,
        propertyNames={
            "pattern": r"^p(0\.[0-9]{0,5}[1-9]|[1-9][0-9]?(\.[0-9]{1,6})?)$",
            "description": "A percentile between p0 and p100.",
        },
        additionalProperties={"description": "Value.", "type": "number", "minimum": SMALLEST, "maximum": _MOST},
        examples=({"p50": 250, "p90": 900, "p99": 4000},),
    )


def _check_percentiles(settings: PercentilesSettings) -> None:
    """Raise ContradictionError if no values have these percentiles."""
    if len(settings.values) < 2:
        raise ContradictionError(("values",), "one percentile says nothing of the others", "give two or more")
    rows = _by_percentile(settings)
    for (below, less), (name, value) in pairwise(rows):
        if _probability(name) == _probability(below):
            raise ContradictionError(("values", name), f"{name} and {below} are the same percentile", "give it once")
        if value < less:
            text = f"{name} {value:.15g} is below {below}, which is {less:.15g}"
            raise ContradictionError(("values", name), text, "percentiles do not fall: more are below the higher one")


def _probability(name: str) -> float:
    return float(name[1:]) / 100.0


def _by_percentile(settings: PercentilesSettings) -> list[tuple[str, float]]:
    return sorted(settings.values.items(), key=lambda pair: _probability(pair[0]))


@LENGTHS.plugin(
    "percentiles",
    "A table of percentiles; between and beyond them, lengths are lognormal.",
    PercentilesSettings,
)
class PercentileTokens:
    """A normal deviate whose logarithm of tokens is linear between given percentiles, and goes on so beyond them.

    So two percentiles are those of a lognormal distribution, and lengths never fall with the deviate.
    """

    def __init__(self, settings: PercentilesSettings) -> None:
        _check_percentiles(settings)
        rows = _by_percentile(settings)
        self._deviates = tuple(normal_quantile(_probability(name)) for name, _ in rows)
        self._logarithms = tuple(ln(value) for _, value in rows)
        points = tuple(zip(self._deviates, self._logarithms, strict=True))
        self._slopes = tuple((high - low) / (end - start) for (start, low), (end, high) in pairwise(points))
        self._min, self._max = settings.pair()

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        deviate = stream.normal()
        at = min(max(bisect_right(self._deviates, deviate) - 1, 0), len(self._slopes) - 1)
        value = exp(self._logarithms[at] + self._slopes[at] * (deviate - self._deviates[at]))
        return _tokens(min(self._max, max(self._min, value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramSettings:
    """Settings of a histogram."""

    edges: tuple[int, ...] = setting(
        "Where its bins begin, and where the last one ends: one more than `counts`, each above the one before it.",
        items={"type": "integer", "minimum": 0, "maximum": _MOST},
        minItems=2,
        examples=((0, 128, 512, 2048),),
    )
    counts: tuple[float, ...] = setting(
        "How many values are in each bin, from its beginning to just before the next one's (of the last: to its end)."
        " Shares will do as well.",
        items={"type": "number", "minimum": 0, "maximum": 10**15},
        minItems=1,
        examples=((420, 310, 55),),
    )


def _check_histogram(settings: HistogramSettings) -> None:
    """Raise ContradictionError if there is no such histogram."""
    for at, (before, edge) in enumerate(pairwise(settings.edges), 1):
        if edge <= before:
            raise ContradictionError(
                ("edges", at), f"the edge {edge:.15g} is not above {before:.15g}", "list edges from low to high"
            )
    bins = len(settings.edges) - 1
    if len(settings.counts) != bins:
        text = f"{len(settings.counts)} `counts` for the {bins} bins between {bins + 1} `edges`"
        raise ContradictionError(("counts",), text, "give one count for each bin")
    if not any(count > 0.0 for count in settings.counts):
        raise ContradictionError(("counts",), "all counts are zero", "give at least one that is not")


@LENGTHS.plugin(
    "histogram",
    "Counts of values in bins; within a bin, every length is as likely as the others.",
    HistogramSettings,
)
class HistogramTokens:
    """Bins by their counts, and whole numbers in them alike. Zero tokens count as 1."""

    def __init__(self, settings: HistogramSettings) -> None:
        _check_histogram(settings)
        last = len(settings.counts) - 1
        edges = [int(edge) for edge in settings.edges]  # documents are read with lists of floats
        bins = [(low, high - low + (at == last)) for at, (low, high) in enumerate(pairwise(edges))]
        kept = [(bucket, count) for bucket, count in zip(bins, settings.counts, strict=True) if count > 0.0]
        self._bins = tuple(bucket for bucket, _ in kept)
        self._bounds = tuple(accumulate(count for _, count in kept))

    def sample(self, stream: Stream) -> int:
        """Return a number of tokens, at least 1."""
        place = bisect_right(self._bounds, stream.uniform() * self._bounds[-1])
        low, width = self._bins[min(place, len(self._bins) - 1)]
        return max(1, low + stream.below(width))


class Ratios(Protocol):
    """A distribution of shares."""

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        ...


RATIOS: Final = PlugPoint[[], Ratios]("workload.clients.reasoning.ratio", "distribution of ratios", Ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRatioSettings:
    """Settings of a constant ratio."""

    value: float = setting("Share, 0 to 1.", minimum=0, maximum=1, examples=(0.7,))


@RATIOS.plugin("constant", "Always the same.", ConstantRatioSettings)
class ConstantRatio:
    """The constant ``value``."""

    def __init__(self, settings: ConstantRatioSettings) -> None:
        self._value = float(settings.value)

    def sample(self, stream: Stream) -> float:  # noqa: ARG002  (the protocol's signature)
        """Return the share, from 0 to 1."""
        return self._value


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRatioSettings:
    """Settings of a uniform ratio."""

    min: float = setting("Smallest share.", default=0.0, minimum=0, maximum=1)
    max: float = setting("Largest share.", default=1.0, minimum=0, maximum=1)


@RATIOS.plugin("uniform", "Every share from min to max is as likely as the others.", UniformRatioSettings)
class UniformRatio:
    """Uniform between ``min`` and ``max``."""

    def __init__(self, settings: UniformRatioSettings) -> None:
        self._min, self._width = settings.min, settings.max - settings.min

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        return self._min + self._width * stream.uniform()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianRatioSettings:
    """Settings of a Gaussian ratio."""

    mean: float = setting("Mean share.", minimum=0, maximum=1)
    std_dev: float = setting("Standard deviation.", minimum=0, maximum=1)
    min: float = setting("Smallest share.", default=0.0, minimum=0, maximum=1)
    max: float = setting("Largest share.", default=1.0, minimum=0, maximum=1)


@RATIOS.plugin("gaussian", "Normal distribution, clamped to [min, max].", GaussianRatioSettings)
class GaussianRatio:
    """Normal with ``mean`` and ``std_dev``, clamped to [``min``, ``max``]: values beyond accumulate at the bounds."""

    def __init__(self, settings: GaussianRatioSettings) -> None:
        self._settings = settings

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        gaussian_ratio = self._settings
        return min(
            gaussian_ratio.max, max(gaussian_ratio.min, gaussian_ratio.mean + gaussian_ratio.std_dev * stream.normal())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaRatioSettings:
    """Settings of a beta-distributed ratio."""

    alpha: float = setting("First shape; the mean is alpha / (alpha + beta).", minimum=SMALLEST, maximum=1000)
    beta: float = setting("Second shape.", minimum=SMALLEST, maximum=1000)


@RATIOS.plugin("beta", "Beta distribution: any shape between 0 and 1.", BetaRatioSettings)
class BetaRatio:
    """Beta with ``alpha`` and ``beta``, from two gamma variates: X / (X + Y)."""

    def __init__(self, settings: BetaRatioSettings) -> None:
        self._alpha, self._beta = settings.alpha, settings.beta

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        x, y = stream.gamma(self._alpha), stream.gamma(self._beta)
        if x + y > 0.0:
            return x / (x + y)
        # Both underflow only for shapes so small that the share is 0 or 1.
        return 1.0 if stream.uniform() * (self._alpha + self._beta) < self._alpha else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalRatioSettings:
    """Settings of a table."""

    weights: Mapping[str, float] = setting(
        "Weight of each share; the keys are quoted numbers from 0 to 1. Need not add up to 1.",
        minProperties=1,
        propertyNames={"pattern": r"^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$", "description": "A number from 0 to 1."},
        additionalProperties={"description": "Weight.", "type": "number", "minimum": 0, "maximum": 10**9},
        examples=({"0": 1, "0.6": 3},),
    )


@RATIOS.plugin("empirical", "Drawn from a table of weights.", EmpiricalRatioSettings)
class EmpiricalRatio:
    """Listed shares with weights; entries whose weight is not positive are left out."""

    def __init__(self, settings: EmpiricalRatioSettings) -> None:
        kept = _positive(settings.weights, float, "ratios")
        self._values = [share for share, _ in kept]
        self._bounds = list(accumulate(weight for _, weight in kept))

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        place = bisect_left(self._bounds, stream.uniform() * self._bounds[-1])
        return self._values[min(place, len(self._values) - 1)]


def tokens_of(ratio: float, output_tokens: int) -> int:
    """Convert a share to a number of output tokens, rounded to the nearest."""
    return int(ratio * output_tokens + 0.5)


def ratios_of(client: Client, plugins: Registry) -> Ratios | None:
    """Create the distribution of reasoning shares in a client's answers; None = it has none.

    Raises:
        PolicyError: the distribution cannot be built.
    """
    if client.reasoning is None:
        return None
    ratio = client.reasoning.ratio
    return shares(plugins.create(RATIOS, ratio.kind, ratio.settings), ratio.kind)
