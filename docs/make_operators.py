"""Condense measured operator times into the tables under ``specs/latency/operators/``.

Source: PyPI ``aiconfigurator-core`` (Apache-2.0, NVIDIA), ``systems/data/<gpu>/<operator>/vllm/<version>/*.parquet``.
To rebuild them from a folder with the unpacked wheel, with ``pyarrow`` installed::

    python docs/make_operators.py FOLDER/aiconfigurator_core/systems 0.12.0

Those of layers with a state, under ``specs/latency/linear/``, are from PyPI ``aisimulate`` (Apache-2.0, NVIDIA)::

    python docs/make_operators.py FOLDER/aisimulate_core/systems 0.13.0.dev202610270000000085 --linear

Each function says what it does to the figures, and why. Nothing is fitted here.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row: TypeAlias = "dict[str, str | int | float]"
Key: TypeAlias = "tuple[int, ...]"

OUT: Final = Path(__file__).resolve().parent.parent / "specs" / "latency" / "operators"
LINEAR_OUT: Final = OUT.parent / "linear"

ROWS: Final = (1, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768)
SIZES: Final = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 65536)
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTEXTS: Final = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
LENGTHS: Final = (1, 16, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
HEADS: Final = (1, 2, 4, 8, 16, 32, 64)
KV_HEADS: Final = (1, 2, 4, 8)
LATENT_HEADS: Final = (4, 8, 16, 32, 64, 128)
HEAD_DIMS: Final = (64, 128, 256)
TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SPLITS: Final = (1, 2, 4, 8)
TYPES: Final = {
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
}
"""Their weight types -> ours; of the two kinds of FP8 scales the faster one counts."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU with tables, and the documents in ``specs/hardware/`` that they serve."""

    name: str
    folder: str
    hardware: tuple[str, ...]
    peak_tflops: Mapping[str, float]
    """Dense figures of the datasheet."""
    bandwidth_tb_per_s: float
    l2_mib: float
    capability: float
    """CUDA compute capability."""


GPUS: Final = (
    Gpu("a100", "a100_sxm", ("a100-80", "a100-sxm"), {"bfloat16": 312}, 2.039, 40, 8.0),
    Gpu("h100", "h100_sxm", ("h100",), {"bfloat16": 989.5, "fp8": 1979}, 3.35, 50, 9.0),
    Gpu("h200", "h200_sxm", ("h200",), {"bfloat16": 989.5, "fp8": 1979}, 4.8, 50, 9.0),
    Gpu("l40s", "l40s", ("l40s",), {"bfloat16": 362.05, "fp8": 733}, 0.864, 96, 8.9),
    Gpu("b200", "b200_sxm", ("b200",), {"bfloat16": 2250, "fp8": 4500, "nvfp4": 9000}, 7.7, 126, 10.0),
    Gpu("b300", "b300_sxm", ("b300",), {"bfloat16": 2250, "fp8": 4500, "nvfp4": 13500}, 8.0, 126, 10.3),
    Gpu("gb200", "gb200", ("gb200",), {"bfloat16": 2500, "fp8": 5000, "nvfp4": 10000}, 8.0, 126, 10.0),
    Gpu("gb300", "gb300", ("gb300",), {"bfloat16": 2500, "fp8": 5000, "nvfp4": 15000}, 8.0, 126, 10.3),
    Gpu(
        "rtx-pro-6000",
        "rtx_pro_6000_server",
        ("rtx-pro-6000",),
        {"bfloat16": 504, "fp8": 1007, "nvfp4": 2015},
        1.792,
        128,
        12.0,
    ),
)


def read(
    systems: Path, gpu: Gpu, operator: str, table: str, engine: str = "vllm", version: str = "*"
) -> tuple[list[Row], str]:
    """The rows of an operator's newest table for an engine, and the measured version of the engine."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  (only this script needs it)

    paths = sorted(
        systems.glob(f"data/{gpu.folder}/{operator}/{engine}/{version}/{table}.parquet"),
        key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)],
    )
    if not paths:
        return [], ""
    return pq.read_table(paths[-1]).to_pylist(), paths[-1].parent.name


def fastest(rows: Iterable[Row], *names: str) -> dict[Key, float]:
    """Microseconds by the named columns; of several measured kernels, the engine takes the fastest."""
    best: dict[Key, float] = {}
    for row in rows:
        key = tuple(int(row[name]) for name in names)
        best[key] = min(best.get(key, float("inf")), 1000.0 * float(row["latency"]))
    return best


def rising(values: Sequence[float | None]) -> list[float | None]:
    """The nearest non-decreasing sequence (pool adjacent violators, in ratios): more work never takes less time."""
    pools: list[tuple[float, int]] = []
    for value in values:
        if value is None:
            continue
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, weight = pools.pop()
            mean = (before * weight + mean * count) / (weight + count)
            count += weight
        pools.append((mean, count))
    flat = iter([mean for mean, count in pools for _ in range(count)])
    return [None if value is None else next(flat) for value in values]


def enveloped(values: Sequence[float | None]) -> list[float | None]:
    """The largest non-decreasing sequence that is nowhere above: no batch takes longer than a larger one did.

    What disturbs a measurement only adds to its time. ``rising`` would spread that over the neighbours: 64 tokens of
    10240 x 8192 in FP8 were measured to take 52 us on a B200, 128 of them 26 us.
    """
    least, found = float("inf"), list[float | None]()
    for value in reversed(values):
        least = least if value is None else min(least, value)
        found.append(None if value is None else least)
    return found[::-1]


def text(values: Iterable[float | None]) -> str:
    """Three significant digits each; ``-`` for what was not measured."""
    return " ".join("-" if value is None else f"{float(f'{value:.3g}'):g}" for value in values)


WEIGHT_BYTES: Final = {"bfloat16": 2.0, "fp8": 1.0, "int4": 0.5, "mxfp4": 0.53125, "nvfp4": 0.5625}


@dataclass(frozen=True, slots=True)
class Memory:
    """Time to read weights that are not in a cache.

    The tables were measured by cycling through a few different weights. Weights that all fit into L2 came from there,
    up to three times faster than from memory: products of up to 16 MiB and single experts on GPUs with graphics memory
    and 96 or 128 MiB of L2. In a model, nothing of the last step is left in L2.
    """

    mib_us: float
    """Microseconds per MiB, from 16-bit products twice as large as L2."""
    l2_mib: float

    @classmethod
    def of(cls, rows: Sequence[Row], gpu: Gpu) -> Memory:
        """Derive it from a GPU's dense products."""
        best = fastest((row for row in rows if row["gemm_dtype"] == "bfloat16"), "m", "n", "k")
        sizes = {key: 2.0 * key[1] * key[2] / 2**20 for key in best if key[0] == ROWS[1]}
        large = [best[key] / size for key, size in sizes.items() if size > 2.0 * gpu.l2_mib]
        return cls(statistics.median(large), gpu.l2_mib)

    def at_least(self, time_us: float, mib: float, different: int) -> float:
        """Correct a time that was measured with a number of different weights of a size, as if they were not in L2."""
        return max(time_us, mib * self.mib_us) if mib * different <= 1.2 * self.l2_mib else time_us


DIFFERENT_WEIGHTS: Final = {"bfloat16": 6, "fp8": 6, "nvfp4": 1}
"""Number of weights that dense products cycled through: larger ones do not all fit into L2, and run at memory speed."""


def gemm(rows: Sequence[Row], memory: Memory, above: int = 0) -> dict[str, object]:
    """Dense products ``[m, k] x [k, n]``, no faster than memory.

    Batches of more than 512 tokens are of any size. In 16 bits sizes that are no multiples of 16 take as long as
    others, and the geometric mean of ``m`` and ``m + 1`` is less noisy. In FP8, vLLM 0.24 takes longer for them, on
    Hopper by the time to copy the weights, whatever ``m``. No measured server (vLLM 0.10.2) shows that, so a point is
    that of ``m``, and ``products_fp8_long`` follows the servers. FP8 was measured with far more disturbances.

    Times of NVFP4, which only Blackwell has units for, include quantizing what is multiplied.

    Args:
        rows: the measurements.
        memory: speed of the GPU's memory.
        above: take only batches of more tokens.
    """
    tables: dict[str, object] = {}
    for theirs in ("bfloat16", "fp8", "nvfp4"):
        best = fastest((row for row in rows if row["gemm_dtype"] == theirs), "m", "n", "k")
        if not best:
            continue
        smooth = rising if theirs == "bfloat16" else enveloped
        sizes = [row for row in ROWS if row > above and any(key[0] == row for key in best)]
        lines = []
        for n in SIZES:
            for k in SIZES:
                values: list[float | None] = []
                mib = WEIGHT_BYTES[TYPES[theirs]] * n * k / 2**20
                for m in sizes:
                    here, next_ = best.get((m, n, k)), best.get((m + 1, n, k))
                    if theirs == "bfloat16" and m > 512 and here is not None and next_ is not None:
                        here = math.sqrt(here * next_)
                    values.append(None if here is None else memory.at_least(here, mib, DIFFERENT_WEIGHTS[theirs]))
                lines.append(text(smooth(values)))
        tables[TYPES[theirs]] = {"m": list(sizes), "n": list(SIZES), "k": list(SIZES), "us": lines}
    return tables


def decode_attention(rows: Sequence[Row], gpu: Gpu) -> list[object]:
    """One query per sequence.

    The tables were measured by reading the same KV cache repeatedly, so a cache that fits into L2 was read from there;
    in a model each layer has its own, and nothing is left of the last step. Points whose cache is between 1/8 of L2
    and all of it are left out: a straight line across that range is closer to memory speed.
    """
    tables: list[object] = []
    for cache in ("bfloat16", "fp8"):
        for head_dim in HEAD_DIMS:
            for kv_heads in KV_HEADS:
                of = [
                    row
                    for row in rows
                    if row["kv_cache_dtype"] == cache
                    and row["head_dim"] == head_dim
                    and row["num_key_value_heads"] == kv_heads
                    and not row.get("window_size")
                ]
                best = fastest(of, "num_heads", "batch_size", "step")
                counts = {key[0] for key in best}
                if not counts:
                    continue
                heads = min(counts, key=lambda count: (abs(count / kv_heads - 4), count))
                element = 2 if cache == "bfloat16" else 1
                lines = []
                for batch in BATCHES:
                    values: list[float | None] = []
                    for context in CONTEXTS:
                        size = 2.0 * batch * context * kv_heads * head_dim * element / 2**20
                        value = best.get((heads, batch, context - 1 if context > 1 else 1))
                        cached = gpu.l2_mib / 8 < size <= 1.2 * gpu.l2_mib
                        values.append(None if cached else value)
                    lines.append(text(rising(values)))
                tables.append(
                    {
                        "kv_cache": cache,
                        "head_dim": head_dim,
                        "kv_heads": kv_heads,
                        "heads": heads,
                        "batch": list(BATCHES),
                        "context": list(CONTEXTS),
                        "us": lines,
                    }
                )
    return tables


def prefill_attention(rows: Sequence[Row]) -> list[object]:
    """Causal attention of whole prompts; ``saturated_us`` is a head's share where many prompts fill the GPU."""
    tables: list[object] = []
    for cache in ("bfloat16", "fp8"):
        for head_dim in HEAD_DIMS:
            of = [
                row
                for row in rows
                if row["kv_cache_dtype"] == cache and row["head_dim"] == head_dim and not row.get("window_size")
            ]
            best = fastest(of, "num_heads", "batch_size", "isl")
            if not best:
                continue
            lines = [text(rising([best.get((heads, 1, length)) for length in LENGTHS])) for heads in HEADS]
            shares: dict[int, float] = {}
            for (heads, batch, length), value in best.items():
                shares[length] = min(shares.get(length, float("inf")), value / heads / batch)
            tables.append(
                {
                    "kv_cache": cache,
                    "head_dim": head_dim,
                    "heads": list(HEADS),
                    "length": list(LENGTHS),
                    "us": lines,
                    "saturated_us": text(rising([shares.get(length) for length in LENGTHS])),
                }
            )
    return tables


def latent_attention(decodes: Sequence[Row], prompts: Sequence[Row], gpu: Gpu) -> dict[str, object]:
    """Multi-head latent attention: heads of DeepSeek V3 (a rank of 512 and 64 rotated elements) on one GPU.

    vLLM's own tables have whole modules, with their products. SGLang's and TensorRT-LLM's have attention alone, with
    the kernels that vLLM calls, too; the faster of both counts. What fits into L2 is left out as for other decodes.
    """
    element = {"bfloat16": 2, "fp8": 1}
    steps: list[object] = []
    whole: list[object] = []
    for cache, size in element.items():
        best = fastest((row for row in decodes if row["kv_cache_dtype"] == cache), "num_heads", "batch_size", "step")
        for heads in LATENT_HEADS:
            lines = []
            for batch in BATCHES:
                values: list[float | None] = []
                for context in CONTEXTS:
                    mib = batch * context * (512 + 64) * size / 2**20
                    value = best.get((heads, batch, context - 1 if context > 1 else 1))
                    values.append(None if gpu.l2_mib / 8 < mib <= 1.2 * gpu.l2_mib else value)
                lines.append(text(rising(values)))
            if any(line.strip("- ") for line in lines):
                steps.append(
                    {"kv_cache": cache, "heads": heads, "batch": list(BATCHES), "context": list(CONTEXTS), "us": lines}
                )
        alone = fastest((row for row in prompts if row["kv_cache_dtype"] == cache), "num_heads", "batch_size", "isl")
        shares: dict[int, float] = {}
        for (heads, batch, length), value in alone.items():
            shares[length] = min(shares.get(length, float("inf")), value / heads / batch)
        if alone:
            whole.append(
                {
                    "kv_cache": cache,
                    "heads": list(LATENT_HEADS),
                    "length": list(LENGTHS),
                    "us": [text(rising([alone.get((heads, 1, one)) for one in LENGTHS])) for heads in LATENT_HEADS],
                    "saturated_us": text(rising([shares.get(one) for one in LENGTHS])),
                }
            )
    return {"decode": steps, "prefill": whole}


def experts(rows: Sequence[Row], memory: Memory) -> dict[str, object]:
    """The expert part of a layer (routing, both products, sum), with its experts split over ``split`` GPUs.

    No time is shorter than reading the chosen experts takes.

    Two kinds of tokens were measured: spread evenly over the experts, and choosing by a power law. Few evenly spread
    tokens use as many experts as they can; tokens that choose independently use ``N (1 - (1 - k/N) ** T)``. So for few
    tokens (up to four times as many choices as experts), the time is that of the number of evenly spread tokens that
    use as many experts; for more it is the geometric mean of both measurements.
    """
    found: dict[tuple[str, Key], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        kind = TYPES.get(str(row["moe_dtype"]))
        if kind is None or row["moe_ep_size"] != 1 or row["moe_tp_size"] not in SPLITS:
            continue
        names = ("hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size")
        curve = found[kind, tuple(int(row[name]) for name in names)][str(row["distribution"])]
        tokens = int(row["num_tokens"])
        curve[tokens] = min(curve.get(tokens, float("inf")), 1000.0 * float(row["latency"]))
    lines = []
    for (kind, key), curves in sorted(found.items()):
        hidden, inter, count, chosen, split = key
        mib = WEIGHT_BYTES[kind] * 3.0 * hidden * inter / split / 2**20
        values: list[float | None] = []
        for tokens in TOKENS:
            time = _as_chosen(curves, count, chosen, tokens)
            used = count * (1.0 - (1.0 - chosen / count) ** tokens)
            values.append(None if time is None else memory.at_least(time, used * mib, 1))
        lines.append(f"{kind} {' '.join(map(str, key))}: {text(rising(values))}")
    return {"columns": "type hidden intermediate experts top_k split", "tokens": list(TOKENS), "us": lines}


def with_8_bit_activations(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """MXFP4 experts as FlashInfer's kernel of TensorRT-LLM computes them with MXFP8 activations.

    Servers of gpt-oss on B200 and its kin run it (vLLM with ``VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1``), but vLLM's
    tables have 16-bit activations only. SGLang calls the same kernel: with 16 bits its times are vLLM's within 3 %.
    """
    found = [{**row, "moe_dtype": "w4a16_mxfp4"} for row in others if row["moe_dtype"] == "w4a8_mxfp4_mxfp8"]
    there = {(row["hidden_size"], row["inter_size"], row["num_experts"], row["topk"]) for row in found}
    return found + [
        row
        for row in rows
        if row["moe_dtype"] != "w4a16_mxfp4"
        or (row["hidden_size"], row["inter_size"], row["num_experts"], row["topk"]) not in there
    ]


def _as_chosen(curves: Mapping[str, Mapping[int, float]], experts: int, top_k: int, tokens: int) -> float | None:
    """Time of a layer's experts for tokens that choose independently."""
    even = curves.get("balanced")
    skewed = curves.get("power_law_1.01") or curves.get("power_law_1.2")
    if even is None or skewed is None:
        found: Mapping[int, float] = even or skewed or {}
        return found.get(tokens)
    if tokens not in even or tokens not in skewed:
        return None
    used = experts * (1.0 - (1.0 - top_k / experts) ** tokens)
    if tokens * top_k > 4 * experts:
        return math.sqrt(even[tokens] * skewed[tokens])
    sizes = sorted(size for size in even if size <= max(tokens, 1))
    times = rising([even[size] for size in sizes])
    return _at(sizes, [time for time in times if time is not None], used / top_k)


def _at(sizes: Sequence[int], times: Sequence[float], size: float) -> float:
    """Interpolate linearly between points."""
    for low, high, below, above in zip(sizes, sizes[1:], times, times[1:], strict=False):
        if size <= high:
            return below + (above - below) * max(0.0, size - low) / (high - low)
    return times[-1]


FUSED_SUMS_MIB: Final = {10.0: {2: 64, 4: 0.25, 8: 1}, 10.3: {2: 64, 4: 0.25, 8: 2}}
"""Up to which message vLLM sums over so many GPUs with FlashInfer's kernel, which adds the norm that follows, by
compute capability: ``FI_ALLREDUCE_FUSION_MAX_SIZE_MB`` in ``compilation/passes/fusion/allreduce_rms_fusion.py``. Over
four it was 1 MiB divided among them until vLLM 0.11 (``_FI_MAX_SIZES``), and is 32 MiB today; measured servers are as
with the former."""


THROUGH_HOST: Final = {"rtx-pro-6000": "0.19.0"}
"""GPU -> the version of vLLM whose sums were measured on a machine without PCIe peer-to-peer.

Its times, and those of TensorRT-LLM 1.3.0rc10 and SGLang 0.5.10, agree within 3 %. Later ones of all three are three
times shorter: those of a machine with it.
"""


def all_reduce(rows: Sequence[Row], others: Sequence[Row], through_host: Sequence[Row], gpu: Gpu) -> dict[str, object]:
    """The all-reduce of each engine; vLLM's own as CUDA graphs replay it.

    On Blackwell, vLLM sums with FlashInfer's kernel where messages are short enough, and that kernel is TensorRT-LLM's.
    Its own ones would fall back to NCCL between the sizes of two of them (on eight B200 from 256 to 512 KiB, where they
    take three times as long). The tables count messages in elements of 16 bits: NCCL's, which have INT8 too, show half
    the time for it.
    """
    own, theirs, hosts = (
        fastest([row for row in one if row.get("backend") == "vllm_graph"] or one, "num_gpus", "message_size")
        for one in (rows, others, through_host)
    )
    sizes = sorted({size for _, size in own if size >= 512})
    fused = FUSED_SUMS_MIB.get(gpu.capability, {})
    short = {key: time for key, time in theirs.items() if 2 * key[1] <= fused.get(key[0], 0) * 2**20}
    engines = {"vllm": {**own, **short}, "tensorrt-llm": {**own, **theirs}, "through_host": hosts}
    return {
        "bytes": [2 * size for size in sizes],
        "us": {
            engine: {
                str(count): text(rising([times.get((count, size)) for size in sizes]))
                for count in sorted({count for count, _ in times})
            }
            for engine, times in engines.items()
            if times
        },
    }


GROUPED: Final = "1.3.0rc20"
"""The TensorRT-LLM version to take expert times from: the newest one has few of these shapes."""


def of_tensorrt_llm(systems: Path, gpu: Gpu, memory: Memory) -> dict[str, object]:
    """Where TensorRT-LLM's kernels are others than vLLM's, and were measured as it runs them.

    FP8 products of more than 512 tokens. Of smaller ones its table has 4 to 8 us more than servers took, which replay
    CUDA graphs; products of 16 bits are the same within 5 %.

    Attention of decodes on Hopper: FlashAttention 3, which vLLM takes, gains nothing by a KV cache of 8 bits; on
    Blackwell both engines take the same kernel.

    Experts in MXFP4 on Hopper, which take up to half as much more than vLLM's; on Blackwell both engines have the same
    kernel. Experts of 8 bits where CUTLASS' grouped products are all it has, on GPUs with graphics memory: of many
    tokens they take half the time of vLLM's on the RTX PRO 6000. Elsewhere it has other kernels for block-wise scales,
    and its table of scales per tensor has rows on Hopper that fall by half where tokens double.
    """
    found: dict[str, object] = {}
    narrow = [row for row in read(systems, gpu, "gemm", "gemm_perf", "trtllm")[0] if row["gemm_dtype"] == "fp8"]
    if narrow:
        found["gemm"] = gemm(narrow, memory, above=512)
    if 9 <= gpu.capability < 10:
        decodes = read(systems, gpu, "attention", "generation_attention_perf", "trtllm")[0]
        found["decode_attention"] = decode_attention(decodes, gpu)
    mixtures, _ = read(systems, gpu, "moe", "moe_perf", "trtllm", GROUPED)
    kind = "w4a16_mxfp4" if 9 <= gpu.capability < 10 else "" if 10 <= gpu.capability < 12 else "fp8"
    if grouped := [row for row in mixtures if row["moe_dtype"] == kind]:
        found["experts"] = experts(grouped, memory)
    return found


def document(systems: Path, version: str, gpu: Gpu) -> dict[str, object]:
    """The document with all tables of a GPU."""
    products, version_measured = read(systems, gpu, "gemm", "gemm_perf")
    prompts, _ = read(systems, gpu, "attention", "context_attention_perf")
    decodes, _ = read(systems, gpu, "attention", "generation_attention_perf")
    mixtures, _ = read(systems, gpu, "moe", "moe_perf")
    if 10 <= gpu.capability < 12:
        mixtures = with_8_bit_activations(mixtures, read(systems, gpu, "moe", "moe_perf", "sglang")[0])
    sums, others = (read(systems, gpu, "comm", "custom_allreduce_perf", engine)[0] for engine in ("vllm", "trtllm"))
    latent = {
        kind: [
            row for engine in ("sglang", "trtllm") for row in read(systems, gpu, "mla", f"{kind}_mla_perf", engine)[0]
        ]
        for kind in ("generation", "context")
    }
    host = THROUGH_HOST.get(gpu.name)
    through_host = read(systems, gpu, "comm", "custom_allreduce_perf", version=host)[0] if host else []
    memory = Memory.of(products, gpu)
    theirs = of_tensorrt_llm(systems, gpu, memory)
    return {
        "kind": "Operators",
        "name": gpu.name,
        "device": str(products[0]["device"]),
        "hardware": list(gpu.hardware),
        "source": f"PyPI aiconfigurator-core {version}, systems/data/{gpu.folder}, condensed by docs/make_operators.py",
        "licence": "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES",
        "engine": f"vllm {version_measured}",
        "peak_tflops": dict(gpu.peak_tflops),
        "compute_capability": gpu.capability,
        "memory_bandwidth_tb_per_s": gpu.bandwidth_tb_per_s,
        "gemm": gemm(products, memory),
        "decode_attention": decode_attention(decodes, gpu),
        "prefill_attention": prefill_attention(prompts),
        "latent_attention": latent_attention(latent["generation"], latent["context"], gpu),
        "experts": experts(mixtures, memory),
        "all_reduce": all_reduce(sums, others, through_host, gpu),
        **({"tensorrt-llm": theirs} if theirs else {}),
    }


def laid_out(value: object, depth: int = 0) -> str:
    """JSON with one line per row of a table and per list of numbers."""
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{pad}{json.dumps(key)}: {laid_out(part, depth + 1)}" for key, part in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{' ' * depth}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict | str):
        return "[\n" + ",\n".join(pad + laid_out(part, depth + 1) for part in value) + f"\n{' ' * depth}]"
    return json.dumps(value)


SCANS: Final = ("chunk_", "flashkda_fwd")
"""Beginnings of the names of kernels that go through a prompt; others of its phase are its convolution."""
PROMPTS: Final = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def states(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One layer with a state, by the heads of keys and values on a GPU: its convolution and its recurrence together.

    ``decode_us`` is over requests, ``prefill_us`` over the tokens of a prompt that is alone on the GPU: a prompt goes
    through its state piece by piece, which leaves most of the GPU idle. ``saturated_us`` is a prompt's share where many
    fill the GPU. Of several kernels for the same, the fastest counts.
    """
    shapes = sorted({tuple(int(row[name]) for name in SHAPE) for row in rows})
    return [found for shape in shapes if (found := _of_shape(rows, shape))]


SHAPE: Final = ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")


def _of_shape(rows: Sequence[Row], shape: Key) -> dict[str, object]:
    """The times of a layer with these heads; empty if decodes were not measured."""
    own = [row for row in rows if tuple(int(row[name]) for name in SHAPE) == shape]
    decodes = [row for row in own if row["phase"] == "generation"]
    prompts = [row for row in own if row["phase"] == "context"]

    def is_conv(row: Row) -> bool:
        return str(row["kernel_source"]).startswith("causal_conv1d")

    convs = fastest((row for row in decodes if is_conv(row)), "batch_size")
    steps = fastest((row for row in decodes if not is_conv(row)), "batch_size")
    if not steps:
        return {}
    found: dict[str, object] = dict(zip(("key_heads", "key_dim", "value_heads", "value_dim"), shape, strict=True))
    batches = [batch for batch in BATCHES if (batch,) in steps]
    found |= {
        "batch": batches,
        "decode_us": text(rising([steps[batch,] + convs.get((batch,), 0.0) for batch in batches])),
    }
    entry = fastest(
        (row for row in prompts if str(row["kernel_source"]).startswith("causal_conv1d_fn")), "batch_size", "seq_len"
    )
    scan = fastest((row for row in prompts if str(row["kernel_source"]).startswith(SCANS)), "batch_size", "seq_len")
    both = {key: time + entry[key] for key, time in scan.items() if key in entry}
    lengths = [prompt for prompt in PROMPTS if (1, prompt) in both]
    if lengths:
        shares = [min(time / batch for (batch, length), time in both.items() if length == one) for one in lengths]
        alone = text(rising([both[1, length] for length in lengths]))
        found |= {"length": lengths, "prefill_us": alone, "saturated_us": text(rising(shares))}
    return found


def linear_document(systems: Path, version: str, gpu: Gpu) -> dict[str, object]:
    """The document with the layers with a state of a GPU; vLLM's kernels, on A100 SGLang's, which are the same."""
    delta, delta_version = read(systems, gpu, "linear_attention", "gdn_perf")
    engine = "vllm"
    newer, _ = read(systems, gpu, "linear_attention", "gdn_perf", version="0.25.0")
    if newer:  # later ones have a few shapes only
        delta, delta_version = newer, "0.25.0"
    if not delta:
        engine = "sglang"
        delta, delta_version = read(systems, gpu, "linear_attention", "gdn_perf", engine)
    kimi, kimi_version = read(systems, gpu, "kda", "kda_perf")
    if kimi_version.startswith("0.1.dev"):
        # Its scan of a prompt waits for the host to launch it, 0.4 to 0.8 ms a layer; releases take 0.03.
        kimi = [row for row in kimi if row["phase"] != "context"]
    kinds = {"gdn": states(delta), "kda": states(kimi)}
    return {
        "kind": "LinearAttention",
        "name": gpu.name,
        "source": f"PyPI aisimulate {version}, systems/data/{gpu.folder}, condensed by docs/make_operators.py",
        "licence": "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES",
        "engine": {"gdn": f"{engine} {delta_version}", "kda": f"vllm {kimi_version}" if kimi else ""},
        **{kind: found for kind, found in kinds.items() if found},
    }


def main() -> None:
    """Write a document for every GPU with tables."""
    systems, version = Path(sys.argv[1]), sys.argv[2]
    if "--linear" in sys.argv:
        for gpu in GPUS:
            written = laid_out(linear_document(systems, version, gpu)) + "\n"
            (LINEAR_OUT / f"{gpu.name}.json").write_text(written)
            sys.stderr.write(f"{gpu.name}: {len(written) / 1024:.0f} KiB\n")
        return
    for gpu in GPUS:
        written = laid_out(document(systems, version, gpu)) + "\n"
        (OUT / f"{gpu.name}.json").write_text(written)
        sys.stderr.write(f"{gpu.name}: {len(written) / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main()
