"""Measured operator times of one GPU, and times between and beyond the measured points.

Between measured sizes a point is interpolated in the logarithms of the sizes; what is interpolated there is not the
time but its ratio to the roofline, which hardly changes where the time does by orders of magnitude. Beyond them the
last ratio stays: the time scales as the work does.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from blis_tui.classes import dataclass
from blis_tui.engine.portable_math import ln, power

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Known: TypeAlias = Literal["measured", "interpolated", "extrapolated"]
"""How well a time is known."""

KNOWN: Final[tuple[Known, ...]] = ("measured", "interpolated", "extrapolated")
_LAUNCH_US: Final = 2.0
"""Added to rooflines: no kernel takes less."""
_EXPERTS_LAUNCH_US: Final = 30.0
"""The same for routing, sorting and both products of a layer's experts."""


SPREAD_EXPERTS: Final = 128
"""The spread of experts' popularity is given for so many; see :func:`chosen_experts`."""


def worst(*known: Known) -> Known:
    """The least known of several."""
    return max(known, key=KNOWN.index, default="measured")


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at growing sizes, straight lines between them, and the last line beyond."""

    sizes: tuple[float, ...]
    times_us: tuple[float, ...]
    known: Known = "measured"
    """The best that can be said of any of its points."""
    measured_up_to: float = float("inf")

    def at(self, size: float) -> float:
        """Time of a size, never less than that of the smallest."""
        sizes, times = self.sizes, self.times_us
        if size <= sizes[0] or len(sizes) == 1:
            return times[0]
        at = min(bisect_right(sizes, size), len(sizes) - 1)
        slope = (times[at] - times[at - 1]) / (sizes[at] - sizes[at - 1])
        return times[at - 1] + (size - sizes[at - 1]) * slope

    def known_at(self, size: float) -> Known:
        """How well that time is known."""
        if size > self.measured_up_to:
            return "extrapolated"
        return self.known if size in self.sizes else worst(self.known, "interpolated")


@dataclass(frozen=True, slots=True)
class _Grid:
    """Dense products of one type."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    rows: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Attention of one query per sequence, for one number of KV heads."""

    kv_cache: str
    head_dim: int
    kv_heads: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Causal attention of whole prompts."""

    kv_cache: str
    head_dim: int
    heads: tuple[int, ...]
    lengths: tuple[int, ...]
    rows: tuple[tuple[float | None, ...], ...]
    saturated: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class _Mixture:
    """Expert layers of one shape."""

    kind: str
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    split: int
    row: tuple[float | None, ...]


def touched_experts(experts: int, top_k: int, tokens: float) -> float:
    """Experts that so many tokens use when each picks its own: ``N (1 - (1 - k/N) ** tokens)``, by squaring."""
    idle, factor, exponent = 1.0, 1.0 - top_k / experts, int(tokens)
    while exponent:
        if exponent & 1:
            idle *= factor
        factor *= factor
        exponent >>= 1
    return experts * (1.0 - idle)


def chosen_experts(experts: int, top_k: int, tokens: float, spread: float) -> float:
    """Experts that so many tokens use when some are chosen more often than others.

    Their popularity is taken as gamma-distributed with a squared coefficient of variation ``spread``, which leaves
    ``(1 + spread tokens k/N) ** (-1/spread)`` of them idle; without spread that is :func:`touched_experts`.
    """
    even = touched_experts(experts, top_k, tokens)
    if not spread:
        return even
    return min(even, experts * (1.0 - power(1.0 + spread * tokens * top_k / experts, -1.0 / spread)))


class OperatorTables:
    """The tables of one GPU.

    Args:
        document: as ``docs/make_operators.py`` writes it.
    """

    def __init__(self, document: Mapping[str, object]) -> None:
        part = _Part(document)
        self.name = part.text("name")
        self.capability = part.number("compute_capability")
        peaks = part.part("peak_tflops")
        self._peak_per_us = {kind: peaks.number(kind) * 1e6 for kind in peaks.data}
        self.bytes_per_us = part.number("memory_bandwidth_tb_per_s") * 1e6
        products = part.part("gemm")
        self._grids = {kind: _grid(products.part(kind)) for kind in products.data}
        self._decodes = tuple(_decodes(one) for one in part.parts("decode_attention"))
        self._prompts = tuple(_prompts(one) for one in part.parts("prefill_attention"))
        mixtures = part.part("experts")
        self._tokens = mixtures.numbers("tokens")
        self._mixtures = tuple(_mixture(line) for line in mixtures.lines("us"))
        sums = part.part("all_reduce")
        self._messages = sums.numbers("bytes")
        self._all_reduce = dict(zip(sums.numbers("gpus"), sums.rows("us"), strict=True))

    @property
    def types(self) -> tuple[str, ...]:
        """Types of weights with tables of dense products."""
        return tuple(self._grids)

    def gemm(self, kind: str, n: int, k: int) -> Curve:
        """Dense product of ``[m, k]`` and ``[k, n]`` over m, weights of a type.

        Types without a table (such as INT4) count as in kernels that widen them first: their bytes are read, and 16-bit
        units multiply.
        """
        table = kind if kind in self._grids else "bfloat16"
        grid = self._grids[table]
        bytes_ = WEIGHT_BYTES[kind]
        first_n, next_n, weight_n, in_n = _between(grid.n, n)
        first_k, next_k, weight_k, in_k = _between(grid.k, k)
        corners = [
            (first_n, first_k, (1.0 - weight_n) * (1.0 - weight_k)),
            (first_n, next_k, (1.0 - weight_n) * weight_k),
            (next_n, first_k, weight_n * (1.0 - weight_k)),
            (next_n, next_k, weight_n * weight_k),
        ]
        times: list[float] = []
        hole = False
        for at, m in enumerate(grid.m):
            total = weights = 0.0
            for n_at, k_at, weight in corners:
                time = grid.rows[n_at * len(grid.k) + k_at][at]
                if weight > 0.0 and time is not None:
                    reference = self._product_us(table, WEIGHT_BYTES[table], m, grid.n[n_at], grid.k[k_at])
                    total += weight * time / reference
                    weights += weight
            hole = hole or weights < 0.999
            ratio = (
                total / weights if weights > 0.0 else times[-1] / self._product_us(table, bytes_, grid.m[at - 1], n, k)
            )
            times.append(ratio * self._product_us(table, bytes_, m, n, k))
        known: Known = "measured" if weight_n in (0.0, 1.0) and weight_k in (0.0, 1.0) else "interpolated"
        if hole or table != kind or not (in_n and in_k):
            known = "extrapolated"
        return Curve(tuple(map(float, grid.m)), _rising(times), known, float(grid.m[-1]))

    def _product_us(self, table: str, bytes_: float, m: int, n: int, k: int) -> float:
        """Roofline of a product."""
        compute = 2.0 * m * n * k / self._peak_per_us[table]
        traffic = ((1.0 * n * k + m * k * min(bytes_, 2.0)) * bytes_ + 2.0 * m * n) / self.bytes_per_us
        return max(compute, traffic) + _LAUNCH_US

    def decode_attention(self, kv_cache: str, head_dim: int, kv_heads: int) -> DecodeAttention:
        """Attention of decodes in one layer."""
        table, known = self._nearest_decodes(kv_cache, head_dim, kv_heads)
        element = {"fp8": 1.0}.get(kv_cache, 2.0) / {"fp8": 1.0}.get(table.kv_cache, 2.0)
        return DecodeAttention(
            batches=table.batches,
            curves=_growing([_filled(table.contexts, row) for row in table.rows]),
            batch_scale=kv_heads / table.kv_heads,
            context_scale=head_dim / table.head_dim * element,
            known=known,
        )

    def _nearest_decodes(self, kv_cache: str, head_dim: int, kv_heads: int) -> tuple[_Decodes, Known]:
        def distance(table: _Decodes) -> tuple[bool, float, float]:
            heads = abs(ln(table.kv_heads / kv_heads))
            return table.kv_cache != kv_cache, abs(ln(table.head_dim / head_dim)), heads

        nearest = min(self._decodes, key=distance)
        far = distance(nearest)
        exact = far == (False, 0.0, 0.0)
        # More KV heads than measured are as many more sequences: each head of each is a block of work of its own.
        split = far[:2] == (False, 0.0)
        return nearest, "measured" if exact else "interpolated" if split else "extrapolated"

    def prefill_attention(self, kv_cache: str, head_dim: int, heads: int) -> PrefillAttention:
        """Attention of prompts in one layer."""
        table = min(self._prompts, key=lambda one: (one.kv_cache != kv_cache, abs(ln(one.head_dim / head_dim))))
        measured = [at for at, row in enumerate(table.rows) if row[0] is not None]
        first, after, weight, inside = _between([table.heads[at] for at in measured], heads)
        low_row, high_row = table.rows[measured[first]], table.rows[measured[after]]
        more = max(1.0, heads / table.heads[measured[-1]])
        scale = head_dim / table.head_dim
        alone = []
        for length, low, high in zip(table.lengths, low_row, high_row, strict=True):
            if low is None or high is None:
                continue
            time = low + (high - low) * weight if inside else high * more
            alone.append((length, time * scale))
        shared = [
            (length, time * heads * scale)
            for length, time in zip(table.lengths, table.saturated, strict=True)
            if time is not None
        ]
        exact = table.kv_cache == kv_cache and scale == 1.0
        known: Known = (
            "extrapolated" if not (exact and inside) else "interpolated" if 0.0 < weight < 1.0 else "measured"
        )
        return PrefillAttention(_over_area(alone, known), _over_area(shared, known))

    def experts(
        self, kind: str, hidden: int, intermediate: int, experts: int, top_k: int, split: int, spread: float = 0.0
    ) -> Curve | None:
        """The expert part of a layer over tokens; None = the tables have no experts at all.

        Tables are of tokens that choose each expert as often. With a ``spread`` they choose fewer.
        """

        def distance(one: _Mixture) -> tuple[bool, float]:
            sizes = (
                (one.hidden, hidden),
                (one.intermediate / one.split, intermediate / split),
                (one.experts, experts),
                (one.top_k, top_k),
            )
            far = 0.0
            for theirs, ours in sizes:
                far += abs(ln(theirs / ours))
            return one.kind != kind, far + (0.0 if one.split == split else 0.01)

        if not self._mixtures:
            return None
        nearest = min(self._mixtures, key=distance)
        row = _filled(self._tokens, nearest.row)
        ours = (hidden, intermediate / split, top_k)
        theirs = (nearest.hidden, nearest.intermediate / nearest.split, nearest.top_k)
        exact = nearest.kind == kind and ours == theirs and nearest.experts == experts
        times = []
        for tokens, time in zip(row.sizes, row.times_us, strict=True):
            used = chosen_experts(experts, top_k, tokens, spread)
            there = touched_experts(nearest.experts, nearest.top_k, tokens)
            scale = self._experts_us(kind, tokens, used, *ours) / self._experts_us(nearest.kind, tokens, there, *theirs)
            times.append(time * scale)
        return Curve(row.sizes, _rising(times), "measured" if exact else "extrapolated", row.measured_up_to)

    def _experts_us(self, kind: str, tokens: float, used: float, hidden: int, width: float, top_k: int) -> float:
        """Roofline of a layer's experts, of which so many are used."""
        peak = self._peak_per_us.get(kind if kind in self._peak_per_us else "bfloat16", 0.0)
        compute = 6.0 * tokens * top_k * hidden * width / peak
        traffic = 3.0 * used * hidden * width * WEIGHT_BYTES[kind] / self.bytes_per_us
        return max(compute, traffic) + _EXPERTS_LAUNCH_US

    def all_reduce(self, gpus: int) -> Curve:
        """Sum over GPUs, over the message's bytes."""
        if gpus in self._all_reduce:
            return _filled(self._messages, self._all_reduce[gpus])
        nearest = min(self._all_reduce, key=lambda count: abs(ln(count / gpus)))
        curve = _filled(self._messages, self._all_reduce[nearest])
        # A ring moves each byte 2 (g - 1) / g times.
        scale = max(1.0, (gpus - 1) / gpus / ((nearest - 1) / nearest))
        return Curve(curve.sizes, tuple(time * scale for time in curve.times_us), "extrapolated")


WEIGHT_BYTES: Final = {"bfloat16": 2.0, "fp8": 1.0, "int4": 0.5, "mxfp4": 0.53125}
"""Bytes of a weight; MXFP4 has a scale of a byte for every 32."""


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """Attention of one query per sequence in one layer, over batch and context."""

    batches: tuple[int, ...]
    curves: tuple[Curve, ...]
    batch_scale: float
    context_scale: float
    known: Known

    def over_context(self, batch: int) -> Curve:
        """Times of a batch over the mean context of its sequences."""
        size = max(1.0, batch * self.batch_scale)
        at, after, weight, inside = _between_linear(self.batches, size)
        low, high = self.curves[at], self.curves[after]
        more = 1.0 if inside else size / self.batches[-1]
        contexts = sorted({*low.sizes, *high.sizes})
        times = []
        for context in contexts:
            below = low.at(context)
            times.append((below + (high.at(context) - below) * weight) * more)
        known: Known = (
            self.known if size in self.batches else worst(self.known, "interpolated" if inside else "extrapolated")
        )
        return Curve(
            tuple(context / self.context_scale for context in contexts),
            _rising(times),
            known,
            min(low.measured_up_to, high.measured_up_to) / self.context_scale,
        )


@dataclass(frozen=True, slots=True)
class PrefillAttention:
    """Attention of prompts in one layer, over the pairs of tokens that see each other."""

    alone: Curve
    """A prompt that has the GPU to itself."""
    shared: Curve
    """Its share where prompts fill the GPU."""


def _over_area(points: Sequence[tuple[int, float]], known: Known) -> Curve:
    """Times of whole prompts over what a prompt of that length computes: n (n + 1) / 2 pairs."""
    areas = tuple(length * (length + 1) / 2.0 for length, _ in points)
    return Curve(areas, _rising([time for _, time in points]), known, areas[-1])


def _rising(times: Sequence[float]) -> tuple[float, ...]:
    """The same, but never falling."""
    highest = 0.0
    found = []
    for time in times:
        highest = max(highest, time)
        found.append(highest)
    return tuple(found)


def _growing(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """The same, but none below the one before it."""
    found: list[Curve] = []
    for curve in curves:
        if found:
            least = found[-1]
            sizes = tuple(sorted({*curve.sizes, *least.sizes}))
            times = [max(curve.at(size), least.at(size)) for size in sizes]
            curve = replace(curve, sizes=sizes, times_us=_rising(times))  # noqa: PLW2901
        found.append(curve)
    return tuple(found)


def _filled(sizes: Sequence[int], row: Sequence[float | None]) -> Curve:
    """A curve through the points there are."""
    points = [(float(size), time) for size, time in zip(sizes, row, strict=True) if time is not None]
    return Curve(tuple(size for size, _ in points), _rising([time for _, time in points]), "measured", points[-1][0])


def _between(sizes: Sequence[int], size: float) -> tuple[int, int, float, bool]:
    """The neighbours of a size, its weight between them in logarithms, and whether it lies within all sizes."""
    if size <= sizes[0]:
        return 0, 0, 0.0, size == sizes[0]
    if size >= sizes[-1]:
        return len(sizes) - 1, len(sizes) - 1, 0.0, size == sizes[-1]
    at = bisect_right(sizes, size)
    low, high = sizes[at - 1], sizes[at]
    return at - 1, at, ln(size / low) / ln(high / low), True


def _between_linear(sizes: Sequence[int], size: float) -> tuple[int, int, float, bool]:
    """The same with a linear weight."""
    at, after, _, inside = _between(sizes, size)
    return at, after, 0.0 if at == after else (size - sizes[at]) / (sizes[after] - sizes[at]), inside


class _Part:
    """Typed access to a document that is known to be well-formed."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, dict):
            raise TypeError("not a map")
        self.data: dict[str, object] = data

    def part(self, key: str) -> _Part:
        return _Part(self.data[key])

    def parts(self, key: str) -> Iterator[_Part]:
        return map(_Part, self._list(key))

    def text(self, key: str) -> str:
        return str(self.data[key])

    def number(self, key: str) -> float:
        return float(str(self.data[key]))

    def integer(self, key: str) -> int:
        return int(str(self.data[key]))

    def numbers(self, key: str) -> tuple[int, ...]:
        return tuple(int(str(one)) for one in self._list(key))

    def lines(self, key: str) -> tuple[str, ...]:
        return tuple(map(str, self._list(key)))

    def rows(self, key: str) -> tuple[tuple[float | None, ...], ...]:
        return tuple(map(_row, self.lines(key)))

    def _list(self, key: str) -> list[object]:
        found = self.data[key]
        if not isinstance(found, list):
            raise TypeError(f"{key} is no list")
        return found


def _row(text: str) -> tuple[float | None, ...]:
    return tuple(None if one == "-" else float(one) for one in text.split())


def _grid(part: _Part) -> _Grid:
    return _Grid(part.numbers("m"), part.numbers("n"), part.numbers("k"), part.rows("us"))


def _decodes(part: _Part) -> _Decodes:
    return _Decodes(
        part.text("kv_cache"),
        part.integer("head_dim"),
        part.integer("kv_heads"),
        part.numbers("batch"),
        part.numbers("context"),
        part.rows("us"),
    )


def _prompts(part: _Part) -> _Prompts:
    return _Prompts(
        part.text("kv_cache"),
        part.integer("head_dim"),
        part.numbers("heads"),
        part.numbers("length"),
        part.rows("us"),
        _row(part.text("saturated_us")),
    )


def _mixture(line: str) -> _Mixture:
    shape, _, times = line.partition(":")
    kind, *sizes = shape.split()
    hidden, intermediate, experts, top_k, split = map(int, sizes)
    return _Mixture(kind, hidden, intermediate, experts, top_k, split, _row(times))
