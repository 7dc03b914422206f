"""Kinds of requests and of sessions in a trace; each becomes a client of a fitted workload.

The distribution that resembles a sample of lengths is chosen with the same bits on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from itertools import pairwise
from math import frexp, fsum, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import exp, gamma, ln, whole_sum
from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.live.traffic.traffic_figures import spread
from blis_tui.model import Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.live.traffic.ledger import Ledger

    Cdf = Callable[[float], float]

_MOST: Final = 40
"""Maximum number of kinds in a document."""
_WIDEST: Final = 1.5
"""If prompts have hits of various lengths, one prefix stands for lengths within this factor …"""
_LEAST: Final = 100
"""… or beyond, while its band has fewer than one in this many of the requests with hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Requests with the same non-numeric attributes."""

    name: str
    rows: Sequence[int]
    tenant: str
    slo_class: str
    model: str
    prefix: Prefix | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """All requests of a trace, by kind."""

    found: tuple[Kind, ...]
    notes: tuple[str, ...]
    """Attributes that are ignored although requests differ in them."""


_Key = tuple[str, str, str, Prefix | None]


def kinds_of(ledger: Ledger, left_out: Collection[int] = ()) -> Kinds:
    """Group requests by SLO class and model, and by tenant and prefix if there are not too many.

    Rows that are left out belong to no kind.
    """
    notes: list[str] = []
    by_head = _with_heads(ledger)
    by_band = _with_bands(ledger)
    tenants = [ledger.names["tenant"].values[code] for code in ledger.names["tenant"].rows]
    no_tenants = [""] * len(ledger)
    exact = all(len(head) <= 1 for head in ledger.heads.values)
    tries: list[tuple[Sequence[str], Callable[[int], Prefix | None], tuple[str, ...]]] = []
    by_tenant = "tenants are not distinguished: there are too many"
    by_length = "what prompts share is stood for by prefixes of some lengths, each the same for all its requests"
    if exact:
        tries += [(tenants, by_head, ()), (no_tenants, by_head, (by_tenant,))]
    tries += [(tenants, by_band, (by_length,)), (no_tenants, by_band, (by_tenant, by_length))]
    for names, prefix_of, losses in tries:
        groups = _grouped(ledger, names, prefix_of, left_out)
        if len(groups) <= _MOST or names is no_tenants:
            notes += [loss for loss in losses if loss != by_length or any(key[3] for key in groups)]
            break
    return Kinds(found=tuple(_named(groups)), notes=tuple(notes))


def _grouped(
    ledger: Ledger, tenants: Sequence[str], prefix_of: Callable[[int], Prefix | None], left_out: Collection[int]
) -> dict[_Key, list[int]]:
    classes, models = ledger.names["slo_class"], ledger.names["model"]
    groups: dict[_Key, list[int]] = {}
    for row, tenant in enumerate(tenants):
        if row in left_out:
            continue
        key = (tenant, classes.values[classes.rows[row]], models.values[models.rows[row]], prefix_of(row))
        groups.setdefault(key, []).append(row)
    return groups


def _with_heads(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Assign prefixes as they are."""
    known = [Prefix(group=head[0][0], tokens=head[0][1]) if head else None for head in ledger.heads.values]
    return lambda row: known[ledger.heads.rows[row]]


def _with_bands(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Group requests by the length of their prefix hit, in bands; each band gets a prefix of its mean length."""
    cached = ledger.found_tokens
    hits = sorted((row for row in range(len(ledger)) if cached[row]), key=cached.__getitem__)
    bands: list[list[int]] = []
    for row in hits:
        if not bands or (cached[row] > _WIDEST * cached[bands[-1][0]] and len(bands[-1]) * _LEAST >= len(hits)):
            bands.append([])
        bands[-1].append(row)
    prefixes: dict[int, Prefix] = {}
    size = ledger.block_size_tokens
    for number, rows in enumerate(bands, 1):
        total = whole_sum([cached[row] for row in rows])
        blocks = (2 * total + size * len(rows)) // (2 * size * len(rows))
        prefixes.update(dict.fromkeys(rows, Prefix(group=f"shared-{number}", tokens=blocks * size)))
    return prefixes.get


def _named(groups: dict[_Key, list[int]]) -> list[Kind]:
    """Name the kinds descriptively, the largest first."""
    ordered = sorted(groups, key=lambda key: (-len(groups[key]), groups[key][0]))
    taken: dict[str, None] = {}
    kinds: list[Kind] = []
    for tenant, slo_class, model, prefix in ordered:
        parts = (tenant, slo_class if slo_class != "standard" else "", model, prefix.group if prefix else "")
        base = "-".join(part for part in parts if part)[:150] or "requests"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken[name] = None
        rows = groups[tenant, slo_class, model, prefix]
        kinds.append(Kind(name=name, rows=rows, tenant=tenant, slo_class=slo_class, model=model, prefix=prefix))
    return kinds


_HALF = 2
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGroup:
    """Sessions with the same non-numeric attributes.

    Attributes:
        sessions: the rows of each, in order of arrival.
        history: whether prompts begin with the earlier conversation, judging by their lengths.
        dropped: whether that omits the reasoning, judging by the lengths.
    """

    tenant: str
    slo_class: str
    model: str
    prefix: Prefix | None
    sessions: Sequence[Sequence[int]]
    history: bool
    dropped: bool

    @property
    def name(self) -> str:
        """A descriptive name."""
        prefix = self.prefix.group if self.prefix else ""
        parts = (self.tenant, self.slo_class if self.slo_class != "standard" else "", self.model, prefix, "sessions")
        return "-".join(part for part in parts if part)[-150:]

    def rows(self) -> list[int]:
        """Return the rows of all requests."""
        return [row for session in self.sessions for row in session]

    def new_tokens(self, ledger: Ledger) -> list[int]:
        """Number of new text tokens of each prompt."""
        head = self.prefix.tokens if self.prefix else 0
        tokens: list[int] = []
        for session in self.sessions:
            tokens.append(max(1, ledger.text_tokens(session[0]) - head))
            for before, row in pairwise(session):
                new = _new(ledger, before, row, dropped=self.dropped)
                tokens.append(new if self.history and new > 0 else max(1, ledger.text_tokens(row) - head))
        return tokens

    def new_media(self, ledger: Ledger) -> list[Media]:
        """Return the new media of each prompt."""
        media: list[Media] = []
        for session in self.sessions:
            before = NO_MEDIA
            for row in session:
                there = ledger.media.get(row, NO_MEDIA)
                media.append(Media(*(max(0, tokens - earlier) for tokens, earlier in zip(there, before, strict=True))))
                before = there if self.history else NO_MEDIA
        return media

    def gaps_ms(self, ledger: Ledger, *, answered: bool) -> list[int]:
        """Return the times from each request, or from its answer, to the next one of its session; at least 1."""
        gaps = []
        for before, row in ((former, latter) for session in self.sessions for former, latter in pairwise(session)):
            since = ledger.arrival_us[before] + (max(0, ledger.e2e_us[before]) if answered else 0)
            gaps.append(max(1, (ledger.arrival_us[row] - since) // 1000))
        return gaps

    def answered(self, ledger: Ledger) -> bool:
        """Whether answer times are known, and fewer than half of the answers came after the next request."""
        pairs = [pair for session in self.sessions for pair in pairwise(session)]
        known = [ledger.e2e_us[former] >= 0 for former, _ in pairs]
        late = [
            ledger.arrival_us[latter] < ledger.arrival_us[former] + ledger.e2e_us[former] for former, latter in pairs
        ]
        return bool(pairs) and all(known) and _HALF * late.count(True) < len(late)


def group_sessions(ledger: Ledger) -> list[SessionGroup]:
    """Group sessions by tenant, SLO class, model, and a prefix that several of them share; the largest group first."""
    rows: dict[str, list[int]] = {}
    for row, code in enumerate(ledger.sessions.rows):
        if name := ledger.sessions.values[code]:
            rows.setdefault(name, []).append(row)
    sessions = [turns for turns in rows.values() if len(turns) > 1]
    if not sessions:
        return []
    sessions = list(rows.values())
    heads = [ledger.heads.values[ledger.heads.rows[turns[0]]][:1] for turns in sessions]
    groups: dict[tuple[str, str, str, Prefix | None], list[list[int]]] = {}
    for session, head in zip(sessions, heads, strict=True):
        shared = bool(head) and heads.count(head) > 1
        prefix = Prefix(group=head[0][0], tokens=head[0][1]) if shared else None
        names = [ledger.names[name].values[ledger.names[name].rows[session[0]]] for name in _GROUP_NAMES]
        groups.setdefault((names[0], names[1], names[2], prefix), []).append(session)
    session_groups = []
    for key, members in groups.items():
        kept = _long_enough(ledger, members, dropped=False)
        dropped = _long_enough(ledger, members, dropped=True)
        # If reasoning is kept, every prompt is long enough for it; if dropped, many are too short.
        drops = kept < _NEARLY_ALL and dropped > kept
        history = (dropped if drops else kept) * _HALF >= 1
        tenant, slo_class, model, prefix = key
        session_groups.append(
            SessionGroup(
                tenant=tenant,
                slo_class=slo_class,
                model=model,
                prefix=prefix,
                sessions=members,
                history=history,
                dropped=drops and history,
            )
        )
    return sorted(session_groups, key=lambda group: -len(group.sessions))


_GROUP_NAMES = ("tenant", "slo_class", "model")


def _long_enough(ledger: Ledger, sessions: Sequence[Sequence[int]], *, dropped: bool) -> float:
    """Share of later prompts that are long enough for the earlier conversation, with or without reasoning."""
    new = [_new(ledger, before, row, dropped=dropped) > 0 for session in sessions for before, row in pairwise(session)]
    return new.count(True) / len(new) if new else 0.0


def _new(ledger: Ledger, before: int, row: int, *, dropped: bool) -> int:
    thought = ledger.reasoning.get(before, 0) if dropped else 0
    return ledger.text_tokens(row) - ledger.text_tokens(before) - ledger.output_tokens[before] + thought


_MODALITIES: Final = ("images", "audio", "video")
_PARTS: Final = 10_000
"""Resolution of reasoning shares: a ten-thousandth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningAndMedia:
    """Reasoning and media of some requests."""

    ratio: Chosen | None = None
    """Share of an answer that is reasoning; None = there is no reasoning."""
    probability: Mapping[str, float] = field(default_factory=dict)
    """Modality -> share of prompts that have any of it."""
    tokens: Mapping[str, Chosen] = field(default_factory=dict)
    """Modality -> tokens in those prompts. A trace does not give the number of items, so one is assumed."""

    def parts(self) -> list[tuple[str, Chosen]]:
        """Return the chosen distributions by name."""
        return ([("reasoning", self.ratio)] if self.ratio else []) + [*self.tokens.items()]

    def data(self, history: str = "") -> dict[str, Json]:
        """Return the client's keys; ``history``: what sessions keep of the reasoning."""
        keys: dict[str, Json] = {}
        if self.ratio is not None:
            keys["reasoning"] = {"ratio": self.ratio.data, **({"history": history} if history else {})}
        if self.tokens:
            keys["multimodal"] = {
                name: {"probability": self.probability[name], "tokens": chosen.data}
                for name, chosen in self.tokens.items()
            }
        return keys


def reasoning_and_media_of(
    ledger: Ledger, rows: Sequence[int], media: Sequence[Media] = ()
) -> ReasoningAndMedia | None:
    """Analyze reasoning and media of the requests in some rows; None = there are none.

    Args:
        ledger: all requests.
        rows: some of them, at least one.
        media: new media of each of these prompts; empty = all media that the ledger has.
    """
    ratio = None
    if any(row in ledger.reasoning for row in rows):
        shares = [
            min(_PARTS, (_PARTS * ledger.reasoning.get(row, 0) + outputs // 2) // outputs)
            for row in rows
            if (outputs := ledger.output_tokens[row])
        ]
        ratios = table(sorted(shares))
        weights: dict[str, Json] = {}
        for key, weight in _weights(ratios).items():
            weights[format(int(key) / _PARTS, "g")] = weight
        ratio = Chosen(data={"kind": "empirical", "weights": weights}, ks=ratios.ks)
    every = media or [ledger.media.get(row, NO_MEDIA) for row in rows]
    probability: dict[str, float] = {}
    tokens: dict[str, Chosen] = {}
    for at, name in enumerate(_MODALITIES):
        there = [counts[at] for counts in every if counts[at] > 0]
        if there:
            probability[name] = round(len(there) / len(rows), 6)
            tokens[name] = choose(there)
    return ReasoningAndMedia(ratio=ratio, probability=probability, tokens=tokens) if ratio or tokens else None


def _weights(chosen: Chosen) -> Mapping[str, Json]:
    weights = chosen.data["weights"]
    return weights if isinstance(weights, dict) else {}


_HALF_LN_2PI: Final = 0.9189385332046728
_STIRLING_FROM: Final = 16.0
_PRECISION: Final = 1e-12
_MOST_TERMS: Final = 100_000
_TINY: Final = 1e-300
_MOST_POINTS: Final = 1000
"""Maximum number of values at which a sample is compared; distances are then exact to a thousandth."""


def ln_gamma(x: float) -> float:
    """Return the logarithm of the gamma function of a positive number: Stirling's series from 16 on."""
    if x < _STIRLING_FROM:
        return ln(gamma(x))
    w = 1.0 / (x * x)
    return (x - 0.5) * ln(x) - x + _HALF_LN_2PI + (1 / 12 - w * (1 / 360 - w / 1260)) / x


def gamma_cdf(shape: float, x: float) -> float:
    """Return the distribution function of a gamma distribution of scale 1.

    This is the regularized incomplete gamma function: its series up to ``shape + 1``, its continued fraction beyond
    (Numerical Recipes, 6.2; the fraction by Lentz's method).
    """
    if x <= 0.0:
        return 0.0
    scale = shape * ln(x) - x - ln_gamma(shape)
    if x < shape + 1.0:
        term = total = 1.0 / shape
        for n in range(1, _MOST_TERMS):
            term *= x / (shape + n)
            total += term
            if term < total * _PRECISION:
                break
        return min(1.0, total * exp(scale))
    b = x + 1.0 - shape
    c, d = 1.0 / _TINY, 1.0 / b
    h = d
    for n in range(1, _MOST_TERMS):
        a = -n * (n - shape)
        b += 2.0
        d = a * d + b
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = b + a / c
        c = c if abs(c) > _TINY else _TINY
        h *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return max(0.0, 1.0 - h * exp(scale))


def normal_cdf(z: float) -> float:
    """Return the distribution function of the standard normal distribution."""
    half = 0.5 * gamma_cdf(0.5, 0.5 * z * z)
    return 0.5 + half if z > 0.0 else 0.5 - half


def distance(ordered: Sequence[int], cdf: Callable[[int], float]) -> float:
    """Return the Kolmogorov-Smirnov distance between a sample and a distribution, both of whole numbers.

    Args:
        ordered: the sample, ascending.
        cdf: returns the probability of this number or less.
    """
    n = len(ordered)
    steps = [at for at in range(n) if at + 1 == n or ordered[at] != ordered[at + 1]]
    worst = 0.0
    every = -(-len(steps) // _MOST_POINTS)
    for number in range(0, len(steps), every):
        at = steps[number]
        below = steps[number - 1] + 1 if number else 0
        value = ordered[at]
        worst = max(worst, abs((at + 1) / n - cdf(value)), abs(below / n - cdf(value - 1)))
    return worst


def distance_of_samples(left: Sequence[int], right: Sequence[int]) -> float:
    """Return the Kolmogorov-Smirnov distance between two samples, in ascending order."""
    i = j = 0
    worst = 0.0
    while i < len(left) and j < len(right):
        value = min(left[i], right[j])
        while i < len(left) and left[i] == value:
            i += 1
        while j < len(right) and right[j] == value:
            j += 1
        worst = max(worst, abs(i / len(left) - j / len(right)))
    return worst


def rounded(value: float, digits: int = 5) -> float:
    """Round a positive number to ``digits`` significant digits, enough for documents."""
    if value == 0.0:
        return 0.0
    return float(f"{value:.{digits}g}") if frexp(value)[1] < 60 else value


_GOOD: Final = 0.05
"""Up to this distance a formula is preferred to a table of the observed values."""
_BY_CHANCE: Final = 1.36
"""Divided by the square root of the sample size, the distance that 5 % of samples exceed from their own
distribution."""
_TABLE: Final = 100
"""Maximum number of entries of such a table."""
LARGEST: Final = 999_999_999
"""The largest value that every distribution of a document can have; larger ones count as it."""
_TAILS: Final = (0.2, 0.1, 0.05, 0.02, 0.01)
"""Shares of the longest values that are tried as a power-law tail."""
_LEAST_TAIL: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A distribution, and the sample's distance from it."""

    data: dict[str, Json]
    """As written in a document."""
    ks: float
    """Kolmogorov-Smirnov distance: the largest difference between the cumulative shares at any length."""

    @property
    def kind(self) -> str:
        """The distribution's name."""
        return str(self.data["kind"])


def choose(values: Sequence[int]) -> Chosen:
    """Choose the formula closest to the sample, or a table if none is close.

    Args:
        values: at least one, each at least 1.
    """
    ordered = sorted(min(value, LARGEST) for value in values)
    if ordered[0] == ordered[-1]:
        return Chosen(data={"kind": "constant", "value": ordered[0]}, ks=0.0)
    best = min(_formulas(ordered), key=lambda law: law.ks)
    return best if best.ks <= max(_GOOD, by_chance(len(ordered))) else table(ordered)


def by_chance(n: int) -> float:
    """Return the distance from its own distribution that a sample of ``n`` exceeds in 5 % of cases."""
    return _BY_CHANCE / sqrt(n)


def table(ordered: Sequence[int]) -> Chosen:
    """Create a table of the observed values; many different ones are reduced to the means of a hundred equal parts."""
    counts: dict[int, int] = dict(Counter(ordered))
    if len(counts) > _TABLE:
        edges = [len(ordered) * part // _TABLE for part in range(_TABLE + 1)]
        counts = {}
        for start, end in pairwise(edges):
            if end > start:
                mean = (2 * whole_sum(ordered[start:end]) + end - start) // (2 * (end - start))
                counts[mean] = counts.get(mean, 0) + end - start
    below: dict[int, int] = {}
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        below[value] = seen
    known = list(below)

    def cdf(value: int) -> float:
        at = _bisect(known, value)
        return below[known[at - 1]] / seen if at else 0.0

    weights: dict[str, Json] = {str(value): counts[value] for value in known}
    return Chosen(data={"kind": "empirical", "weights": weights}, ks=distance(ordered, cdf))


def _bisect(known: Sequence[int], value: int) -> int:
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        if known[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def _formulas(ordered: Sequence[int]) -> Iterator[Chosen]:
    """Iterate over all formulas with their distances; parameters by moments."""
    n, low, high = len(ordered), ordered[0], ordered[-1]
    scaled_total, scaled_variance = spread(ordered)
    mean, deviation = rounded(scaled_total / (n * n)), rounded(sqrt(scaled_variance) / n)
    mean = min(max(mean, float(low)), float(high))
    logs = [ln(value) for value in ordered]
    mu, sigma = _moments(logs)
    bounds: dict[str, Json] = {"min": low, "max": high}

    def judged(data: dict[str, Json], cdf: Cdf, *, bounded: bool = True) -> Chosen:
        def of_whole(value: int) -> float:
            if value < (low if bounded else 1):
                return 0.0
            return 1.0 if bounded and value >= high else cdf(value + 0.5)

        return Chosen(data={**data, **(bounds if bounded else {})}, ks=distance(ordered, of_whole))

    yield judged({"kind": "uniform"}, lambda x: (x + 0.5 - low) / (high - low + 1))
    yield judged({"kind": "gaussian", "mean": mean, "std_dev": deviation}, lambda x: normal_cdf((x - mean) / deviation))
    yield judged({"kind": "exponential", "mean": mean}, lambda x: 1.0 - exp(-x / mean))
    if sigma:
        yield judged({"kind": "lognormal", "mu": mu, "sigma": sigma}, lambda x: normal_cdf((ln(x) - mu) / sigma))
    for share in _TAILS:
        tail = int(n * share)
        xm = ordered[n - tail] if tail else 0
        if tail < _LEAST_TAIL or xm == high or ordered[n - tail - 1] == xm:
            continue
        # Hill's estimator; the body's moments are those of the shorter values.
        alpha = rounded(tail / fsum(value - ln(xm) for value in logs[n - tail :]))
        body_mu, body_sigma = _moments(logs[: n - tail])
        weight = tail / n
        if not body_sigma or not 0.0 < alpha <= 1000.0:
            continue
        data: dict[str, Json] = {
            "kind": "pareto-lognormal",
            "alpha": alpha,
            "xm": xm,
            "mu": body_mu,
            "sigma": body_sigma,
            "mix_weight": weight,
        }

        def mixture(
            x: float, xm: int = xm, alpha: float = alpha, at: tuple[float, float, float] = (weight, body_mu, body_sigma)
        ) -> float:
            power = 1.0 - exp(alpha * (ln(xm) - ln(x))) if x > xm else 0.0
            return at[0] * power + (1.0 - at[0]) * normal_cdf((ln(x) - at[1]) / at[2])

        yield judged(data, mixture, bounded=False)


def _moments(logs: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation, rounded for a document."""
    mean = fsum(logs) / len(logs)
    return round(mean, 4), round(sqrt(fsum((value - mean) * (value - mean) for value in logs) / len(logs)), 4)
