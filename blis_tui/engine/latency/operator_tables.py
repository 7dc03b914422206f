"""Measured operator times of one GPU, their document, and times between and beyond the measured points.

Between measured sizes, values are interpolated over the logarithms of the sizes. The interpolated value is not the time
but its ratio to the roofline, which hardly changes while the time changes by orders of magnitude. Beyond the measured
sizes the last ratio is kept: the time scales with the work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import ln, power
from blis_tui.model.machine import MXFP4_BYTES, NVFP4_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


LATENT_HEAD_DIM: Final = 128
"""Head width of latent attention in prompts, without the rotated part."""


class Rows:
    """Rows of times, parsed on demand: a model needs only a few rows of most tables."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts

    def __getitem__(self, at: int) -> tuple[float | None, ...]:
        return row_of(self._texts[at])

    def __iter__(self) -> Iterator[tuple[float | None, ...]]:
        return map(row_of, self._texts)


@dataclass(frozen=True, slots=True)
class Grid:
    """Dense products of one type."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    rows: Rows | tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Decodes:
    """Attention of one query per sequence, for one number of KV heads."""

    kv_cache: str
    head_dim: int
    kv_heads: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Prompts:
    """Causal attention of whole prompts."""

    kv_cache: str
    head_dim: int
    heads: tuple[int, ...]
    lengths: tuple[int, ...]
    rows: Rows
    saturated: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LatentDecodes:
    """Latent attention of one query per sequence, for one number of heads."""

    kv_cache: str
    heads: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Mixture:
    """Expert layers of one shape."""

    kind: str
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    split: int
    times: str
    """As in the document; parsed by :func:`row_of`."""


class Part:
    """Typed access to a document that is known to be well-formed."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, dict):
            raise TypeError("not a map")
        self.data: dict[str, object] = data

    def part(self, key: str) -> Part:
        """Return the map under a key."""
        return Part(self.data[key])

    def parts(self, key: str) -> Iterator[Part]:
        """Iterate over the maps listed under a key."""
        return map(Part, self._list(key))

    def text(self, key: str) -> str:
        """Return the text under a key."""
        return str(self.data[key])

    def number(self, key: str) -> float:
        """Return the number under a key."""
        return float(str(self.data[key]))

    def integer(self, key: str) -> int:
        """Return the whole number under a key."""
        return int(str(self.data[key]))

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return the whole numbers listed under a key."""
        return tuple(int(str(number)) for number in self._list(key))

    def lines(self, key: str) -> tuple[str, ...]:
        """Return the texts listed under a key."""
        return tuple(map(str, self._list(key)))

    def texts(self, key: str) -> list[tuple[str, str]]:
        """Return names and texts of the map under a key."""
        return [(name, str(value)) for name, value in self.part(key).data.items()]

    def rows(self, key: str) -> Rows:
        """Return the rows listed under a key."""
        return Rows(self.lines(key))

    def _list(self, key: str) -> list[object]:
        rows = self.data[key]
        if not isinstance(rows, list):
            raise TypeError(f"{key} is no list")
        return rows


def row_of(text: str) -> tuple[float | None, ...]:
    """Parse a row of times; ``-`` = not measured."""
    return tuple(None if cell == "-" else float(cell) for cell in text.split())


def grid_of(part: Part) -> Grid:
    """Read the tables of one type."""
    return Grid(part.numbers("m"), part.numbers("n"), part.numbers("k"), part.rows("us"))


def decodes_of(part: Part) -> Decodes:
    """Read the tables for one number of KV heads."""
    return Decodes(
        part.text("kv_cache"),
        part.integer("head_dim"),
        part.integer("kv_heads"),
        part.numbers("batch"),
        part.numbers("context"),
        part.rows("us"),
    )


def latent_decodes_of(part: Part) -> LatentDecodes:
    """Read the tables for one number of heads."""
    return LatentDecodes(
        part.text("kv_cache"),
        part.integer("heads"),
        part.numbers("batch"),
        part.numbers("context"),
        part.rows("us"),
    )


def prompts_of(part: Part) -> Prompts:
    """Read the tables for one width of heads."""
    return Prompts(
        part.text("kv_cache"),
        part.integer("head_dim") if "head_dim" in part.data else LATENT_HEAD_DIM,
        part.numbers("heads"),
        part.numbers("length"),
        part.rows("us"),
        row_of(part.text("saturated_us")),
    )


def mixture_of(line: str) -> Mixture:
    """Parse a line: type, shape, times."""
    shape, _, times = line.partition(":")
    kind, *sizes = shape.split()
    hidden, intermediate, experts, top_k, split = map(int, sizes)
    return Mixture(kind, hidden, intermediate, experts, top_k, split, times)


Known: TypeAlias = Literal["measured", "interpolated", "extrapolated"]
"""How well a time is known."""

KNOWN: Final[tuple[Known, ...]] = ("measured", "interpolated", "extrapolated")
_LAUNCH_US: Final = 2.0
"""Added to rooflines, as no kernel takes less."""
EXPERTS_LAUNCH_US: Final = 30.0
"""Added to rooflines of experts: routing, sorting and both products of a layer."""


_WIDENED: Final = 1.2
"""8-bit weights on GPUs without units for them: Marlin's kernel reads half the bytes of 16-bit weights and widens them,
which takes this many times as long as reading alone."""
FP8_UNITS: Final = 8.9
"""Least compute capability that has such units."""
_BLOCK: Final = 128
"""Width of a block of FP8 weights that shares one scale."""

SPREAD_EXPERTS: Final = 128
"""Number of experts for which the spread of popularity is given; see :func:`chosen_experts`."""


def worst(*known: Known) -> Known:
    """Return the least reliable of several."""
    return max(known, key=KNOWN.index, default="measured")


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at increasing sizes, interpolated linearly and extrapolated with the last line."""

    sizes: tuple[float, ...]
    times_us: tuple[float, ...]
    known: Known = "measured"
    """Upper bound on the quality of all its points."""
    measured_up_to: float = float("inf")

    def at(self, size: float) -> float:
        """Return the time at a size, never less than that of the smallest."""
        sizes, times = self.sizes, self.times_us
        if size <= sizes[0] or len(sizes) == 1:
            return times[0]
        at = min(bisect_right(sizes, size), len(sizes) - 1)
        slope = (times[at] - times[at - 1]) / (sizes[at] - sizes[at - 1])
        return times[at - 1] + (size - sizes[at - 1]) * slope

    def known_at(self, size: float) -> Known:
        """Return how well that time is known."""
        if size > self.measured_up_to:
            return "extrapolated"
        return self.known if size in self.sizes else worst(self.known, "interpolated")


def _from_there_on(grid: Grid, other: Grid) -> Grid:
    """Replace a grid's batches from another grid's smallest on by the other's; both have the same weight sizes."""
    kept = [at for at, m in enumerate(grid.m) if m < other.m[0]]
    rows = tuple((*(row[at] for at in kept), *further) for row, further in zip(grid.rows, other.rows, strict=True))
    return replace(grid, m=(*(grid.m[at] for at in kept), *other.m), rows=rows)


def _in_whole_blocks(mixture: Mixture) -> bool:
    """Return whether a GPU's part of an expert is made of whole blocks of scales.

    Other parts of FP8 experts were measured with a kernel that is two to six times slower and that no server runs: vLLM
    refuses to split a block, and scales by channel need none.
    """
    return mixture.kind != "fp8" or mixture.intermediate % (_BLOCK * mixture.split) == 0


def touched_experts(experts: int, top_k: float, tokens: float) -> float:
    """Expected number of experts used by ``tokens`` tokens that choose evenly: ``N (1 - (1 - k/N) ** tokens)``."""
    idle, factor, exponent = 1.0, 1.0 - top_k / experts, int(tokens)
    while exponent:
        if exponent & 1:
            idle *= factor
        factor *= factor
        exponent >>= 1
    return experts * (1.0 - idle)


def chosen_experts(experts: int, top_k: float, tokens: float, spread: float) -> float:
    """Expected number of experts used by ``tokens`` tokens when some experts are more popular.

    Popularity is assumed gamma-distributed with a squared coefficient of variation ``spread``, which leaves ``(1 +
    spread tokens k/N) ** (-1/spread)`` of the experts idle; without spread the result is :func:`touched_experts`.
    """
    even = touched_experts(experts, top_k, tokens)
    if not spread:
        return even
    return min(even, experts * (1.0 - power(1.0 + spread * tokens * top_k / experts, -1.0 / spread)))


class OperatorTables:
    """The tables of one GPU.

    Args:
        document: as written by ``docs/make_operators.py``.
        engine: the engine whose kernels to use where they were measured separately; otherwise vLLM's.
    """

    def __init__(self, document: Mapping[str, object], engine: str = "vllm") -> None:
        part = Part(document)
        apart = part.part(engine) if engine in part.data else part
        self.name = part.text("name")
        self.capability = part.number("compute_capability")
        peaks = part.part("peak_tflops")
        self._peak_per_us = {kind: peaks.number(kind) * 1e6 for kind in peaks.data}
        self.bytes_per_us = part.number("memory_bandwidth_tb_per_s") * 1e6
        products = part.part("gemm")
        self._grids = {kind: grid_of(products.part(kind)) for kind in products.data}
        if apart is not part and "gemm" in apart.data:
            own = apart.part("gemm")
            self._grids |= {kind: _from_there_on(self._grids[kind], grid_of(own.part(kind))) for kind in own.data}
        attention = apart if "decode_attention" in apart.data else part
        self._decodes = tuple(decodes_of(row) for row in attention.parts("decode_attention"))
        self._prompts = tuple(prompts_of(row) for row in part.parts("prefill_attention"))
        latent = part.part("latent_attention")
        self._latent_decodes = tuple(latent_decodes_of(row) for row in latent.parts("decode"))
        self._latent_prompts = tuple(prompts_of(row) for row in latent.parts("prefill"))
        mixtures = part.part("experts")
        self._tokens = mixtures.numbers("tokens")
        self._mixtures = tuple(mixture_of(line) for line in mixtures.lines("us"))
        if apart is not part and "experts" in apart.data:
            theirs = tuple(mixture_of(line) for line in apart.part("experts").lines("us"))
            kinds = {mixture.kind for mixture in theirs}
            self._mixtures = theirs + tuple(mixture for mixture in self._mixtures if mixture.kind not in kinds)
        sums = part.part("all_reduce")
        self._messages = sums.numbers("bytes")
        times = sums.part("us")
        self._all_reduce = {kind: {int(gpus): text for gpus, text in times.texts(kind)} for kind in times.data}

    @property
    def figures(self) -> dict[str, float]:
        """Figures of the measured GPU, by their path in Hardware documents."""
        peak = self._peak_per_us.get("bfloat16", 0.0)
        return {"memory_bandwidth_tb_per_s": self.bytes_per_us / 1e6, "peak_tflops.bf16": peak / 1e6}

    @property
    def types(self) -> tuple[str, ...]:
        """Weight types with tables of dense products."""
        return tuple(self._grids)

    def gemm(self, kind: str, n: int, k: int) -> Curve:
        """Dense product of ``[m, k]`` and ``[k, n]`` over m, with weights of a type.

        Types without a table (such as INT4) are treated as in kernels that widen weights first: their bytes are read,
        and 16-bit units multiply.
        """
        table = kind if kind in self._grids else "bfloat16"
        grid = self._grids[table]
        bytes_ = WEIGHT_BYTES[kind]
        widened = self._widened(kind)
        first_n, next_n, weight_n, in_n = _between(grid.n, n)
        first_k, next_k, weight_k, in_k = _between(grid.k, k)
        corners = [
            (grid.rows[n_at * len(grid.k) + k_at], grid.n[n_at], grid.k[k_at], weight)
            for n_at, k_at, weight in (
                (first_n, first_k, (1.0 - weight_n) * (1.0 - weight_k)),
                (first_n, next_k, (1.0 - weight_n) * weight_k),
                (next_n, first_k, weight_n * (1.0 - weight_k)),
                (next_n, next_k, weight_n * weight_k),
            )
            if weight > 0.0
        ]
        times: list[float] = []
        hole = False
        for at, m in enumerate(grid.m):
            total = weights = 0.0
            for row, row_n, row_k, weight in corners:
                time = row[at]
                if time is not None:
                    reference = self._product_us(table, WEIGHT_BYTES[table], m, row_n, row_k)
                    total += weight * time / reference
                    weights += weight
            hole = hole or weights < 0.999
            if weights == 0.0 and not times:
                raise PolicyError(f"no products as large as {n:,} x {k:,} weights were measured on {self.name}")
            ratio = (
                total / weights if weights > 0.0 else times[-1] / self._product_us(table, bytes_, grid.m[at - 1], n, k)
            )
            times.append(widened * ratio * self._product_us(table, bytes_, m, n, k))
        known: Known = "measured" if weight_n in (0.0, 1.0) and weight_k in (0.0, 1.0) else "interpolated"
        if hole or table != kind or not (in_n and in_k):
            known = "extrapolated"
        return Curve(tuple(map(float, grid.m)), rising(times), known, float(grid.m[-1]))

    def _widened(self, kind: str) -> float:
        """Return how many times longer a product takes because the GPU has no units for weights of a type."""
        return _WIDENED if kind == "fp8" and self.capability < FP8_UNITS else 1.0

    def peak_per_us(self, kind: str) -> float:
        """Return the peak rate of the units for a type, in operations per microsecond; 0 = unknown."""
        return self._peak_per_us.get(kind, 0.0)

    def _product_us(self, table: str, bytes_: float, m: int, n: int, k: int) -> float:
        """Roofline time of a product."""
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

    def _nearest_decodes(self, kv_cache: str, head_dim: int, kv_heads: int) -> tuple[Decodes, Known]:
        def distance(table: Decodes) -> tuple[bool, float, float]:
            heads = abs(ln(table.kv_heads / kv_heads))
            return table.kv_cache != kv_cache, abs(ln(table.head_dim / head_dim)), heads

        nearest = min(self._decodes, key=distance)
        far = distance(nearest)
        exact = far == (False, 0.0, 0.0)
        # More KV heads than measured count as more sequences: each head of each is a block of work of its own.
        split = far[:2] == (False, 0.0)
        return nearest, "measured" if exact else "interpolated" if split else "extrapolated"

    def prefill_attention(self, kv_cache: str, head_dim: int, heads: int) -> PrefillAttention:
        """Attention of prompts in one layer."""
        return self._prompts_attention(self._prompts, kv_cache, head_dim, heads)

    def latent_decodes(self, kv_cache: str, heads: int, cached: int) -> DecodeAttention | None:
        """Latent attention of decodes in one layer, ``cached`` elements a token; None = there are no tables for it."""
        if not self._latent_decodes:
            return None

        def distance(table: LatentDecodes) -> tuple[bool, float]:
            return table.kv_cache != kv_cache, abs(ln(table.heads / heads))

        table = min(self._latent_decodes, key=distance)
        exact = distance(table) == (False, 0.0) and cached == LATENT_ELEMENTS
        element = {"fp8": 1.0}.get(kv_cache, 2.0) / {"fp8": 1.0}.get(table.kv_cache, 2.0)
        return DecodeAttention(
            batches=table.batches,
            curves=_growing([_filled(table.contexts, row) for row in table.rows]),
            batch_scale=max(1.0, heads / table.heads),
            context_scale=cached / LATENT_ELEMENTS * element,
            known="measured" if exact else "extrapolated",
        )

    def latent_prefill(self, kv_cache: str, head_dim: int, heads: int) -> PrefillAttention | None:
        """Latent attention of prompts in one layer; None = there are no tables for it."""
        if not self._latent_prompts:
            return None
        return self._prompts_attention(self._latent_prompts, kv_cache, head_dim, heads)

    def _prompts_attention(
        self, tables: Sequence[Prompts], kv_cache: str, head_dim: int, heads: int
    ) -> PrefillAttention:
        table = min(tables, key=lambda prompts: (prompts.kv_cache != kv_cache, abs(ln(prompts.head_dim / head_dim))))
        measured = [at for at, row in enumerate(table.rows) if any(time is not None for time in row)]
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
        self, kind: str, hidden: int, intermediate: float, experts: int, top_k: float, split: int, spread: float = 0.0
    ) -> Curve | None:
        """Time of a layer's experts over tokens; None = the tables have no experts at all.

        Tables were measured with tokens that choose all experts equally often. With a ``spread``, fewer experts are
        used. If a GPU has only some of the experts, ``top_k`` is the mean number chosen there and may be below one.
        """

        def distance(mixture: Mixture) -> tuple[bool, float]:
            sizes = (
                (mixture.hidden, hidden),
                (mixture.intermediate / mixture.split, intermediate / split),
                (mixture.experts, experts),
                (mixture.top_k, top_k),
            )
            far = 0.0
            for theirs, ours in sizes:
                far += abs(ln(theirs / ours))
            return mixture.kind != kind, far + (0.0 if mixture.split == split else 0.01)

        if not self._mixtures:
            return None
        nearest = min(
            [mixture for mixture in self._mixtures if _in_whole_blocks(mixture)] or self._mixtures, key=distance
        )
        row = _filled(self._tokens, row_of(nearest.times))
        ours = (hidden, intermediate / split, top_k)
        theirs = (nearest.hidden, nearest.intermediate / nearest.split, float(nearest.top_k))
        exact = nearest.kind == kind and ours == theirs and nearest.experts == experts
        times = []
        for tokens, time in zip(row.sizes, row.times_us, strict=True):
            used = chosen_experts(experts, top_k, tokens, spread)
            there = touched_experts(nearest.experts, nearest.top_k, tokens)
            scale = self._experts_us(kind, tokens, used, *ours) / self._experts_us(nearest.kind, tokens, there, *theirs)
            times.append(time * scale * self._widened(kind))
        return Curve(row.sizes, rising(times), "measured" if exact else "extrapolated", row.measured_up_to)

    def _experts_us(self, kind: str, tokens: float, used: float, hidden: int, width: float, top_k: float) -> float:
        """Roofline time of a layer's experts, ``used`` of which are used."""
        peak = self._peak_per_us.get(kind if kind in self._peak_per_us else "bfloat16", 0.0)
        compute = 6.0 * tokens * top_k * hidden * width / peak
        traffic = 3.0 * used * hidden * width * WEIGHT_BYTES[kind] / self.bytes_per_us
        return max(compute, traffic) + EXPERTS_LAUNCH_US

    def all_reduce(self, gpus: int, engine: str = "vllm", *, peer_to_peer: bool = False) -> Curve:
        """All-reduce over GPUs, over the message's bytes.

        Args:
            gpus: number of GPUs.
            engine: the engine whose kernels to use.
            peer_to_peer: whether GPUs without NVLink access each other's memory; otherwise, as far as measured,
                all-reduces go through host memory.
        """
        measured = self._all_reduce[engine] | ({} if peer_to_peer else self._all_reduce.get("through_host", {}))
        if gpus in measured:
            return _filled(self._messages, row_of(measured[gpus]))
        nearest = min(measured, key=lambda count: abs(ln(count / gpus)))
        curve = _filled(self._messages, row_of(measured[nearest]))
        # A ring moves each byte 2 (g - 1) / g times.
        scale = max(1.0, (gpus - 1) / gpus / ((nearest - 1) / nearest))
        return Curve(curve.sizes, tuple(time * scale for time in curve.times_us), "extrapolated")


LATENT_ELEMENTS: Final = 512 + 64
"""Elements per token in the compressed KV cache of the measured latent attention."""

WEIGHT_BYTES: Final = {"bfloat16": 2.0, "fp8": 1.0, "int4": 0.5, "mxfp4": MXFP4_BYTES, "nvfp4": NVFP4_BYTES}
"""Bytes of a weight with its scales; of INT4 without."""


def tables_in(document: Mapping[str, object], engine: str) -> OperatorTables:
    """Return the tables of a document, parsed once for all callers; neither is ever modified."""
    for parsed, kernels, tables in _READ:
        if parsed is document and kernels == engine:
            return tables
    tables = OperatorTables(document, engine)
    _READ.append((document, engine, tables))
    return tables


_READ: Final[deque[tuple[Mapping[str, object], str, OperatorTables]]] = deque(maxlen=8)
"""The latest parsed tables: the document, the engine, and its tables."""


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
            rising(times),
            known,
            min(low.measured_up_to, high.measured_up_to) / self.context_scale,
        )


@dataclass(frozen=True, slots=True)
class PrefillAttention:
    """Attention of prompts in one layer, over the pairs of tokens that see each other."""

    alone: Curve
    """Time of a prompt alone on the GPU."""
    shared: Curve
    """Its share when prompts fill the GPU."""


def _over_area(points: Sequence[tuple[int, float]], known: Known) -> Curve:
    """Times of whole prompts over the number of pairs they compute: n (n + 1) / 2."""
    areas = tuple(length * (length + 1) / 2.0 for length, _ in points)
    return Curve(areas, rising([time for _, time in points]), known, areas[-1])


def rising(times: Sequence[float]) -> tuple[float, ...]:
    """Make times monotonic."""
    highest = 0.0
    raised = []
    for time in times:
        highest = max(highest, time)
        raised.append(highest)
    return tuple(raised)


def _growing(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """Raise each curve so that it is nowhere below the previous one."""
    growing: list[Curve] = []
    for curve in curves:
        if growing:
            least = growing[-1]
            sizes = tuple(sorted({*curve.sizes, *least.sizes}))
            times = [max(curve.at(size), least.at(size)) for size in sizes]
            curve = replace(curve, sizes=sizes, times_us=rising(times))  # noqa: PLW2901
        growing.append(curve)
    return tuple(growing)


def _filled(sizes: Sequence[int], row: Sequence[float | None]) -> Curve:
    """Create a curve through the measured points."""
    points = [(float(size), time) for size, time in zip(sizes, row, strict=True) if time is not None]
    return Curve(tuple(size for size, _ in points), rising([time for _, time in points]), "measured", points[-1][0])


def _between(sizes: Sequence[int], size: float) -> tuple[int, int, float, bool]:
    """Return the neighbours of a size, its logarithmic weight between them, and whether it lies within all sizes."""
    if size <= sizes[0]:
        return 0, 0, 0.0, size == sizes[0]
    if size >= sizes[-1]:
        return len(sizes) - 1, len(sizes) - 1, 0.0, size == sizes[-1]
    at = bisect_right(sizes, size)
    low, high = sizes[at - 1], sizes[at]
    return at - 1, at, ln(size / low) / ln(high / low), True


def _between_linear(sizes: Sequence[int], size: float) -> tuple[int, int, float, bool]:
    """Do the same with a linear weight."""
    at, after, _, inside = _between(sizes, size)
    return at, after, 0.0 if at == after else (size - sizes[at]) / (sizes[after] - sizes[at]), inside
