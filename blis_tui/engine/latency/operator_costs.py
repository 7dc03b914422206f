"""The times of a model's operators on a GPU, from its tables and the fitted rest."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.expert_parallelism import Busiest, popularity_excess
from blis_tui.engine.latency.operator_kernels import (
    context_token_us,
    index_read_us,
    marlin_experts,
    old_tiles,
    read_again_us,
    runs_marlin,
    sinks_factor,
    sparse_us,
)
from blis_tui.engine.latency.operator_layers import layers_of
from blis_tui.engine.latency.operator_settings import OperatorSettings, rest_of
from blis_tui.engine.latency.operator_tables import SPREAD_EXPERTS, Curve, tables_in, worst
from blis_tui.engine.latency.shape import check_expert_parallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.latency.expert_parallelism import ExpertParallelism
    from blis_tui.engine.latency.linear_layers import LinearCosts
    from blis_tui.engine.latency.operator_settings import Rest
    from blis_tui.engine.latency.operator_tables import Known, OperatorTables
    from blis_tui.model import LinearLayers, Model

LINEAR: Final = "linear_attention"
"""Where a document has the tables of layers with a state, if there are any."""
_GRAPHS: Final = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Batch sizes in tokens for which vLLM captures CUDA graphs; a batch is padded to the next size."""
_LOGIT_BYTES: Final = 4.0
_SQUARES_BYTES: Final = 4.0
"""Bytes of a sum of squares in 32 bits."""
_WIDEST_BYTES: Final = 2.0
_GATHER: Final = 0.5
"""What a ring moves in an all-gather, relative to an all-reduce, which also reduces."""
_GATED: Final = 3
"""Matrices of the experts that were measured."""
_AS_FITTED: Final = OperatorSettings()


class OperatorCosts:
    """Times of a step's operators, in all layers together and in microseconds.

    Args:
        document: the tables of the GPU.
        model: the model that runs on it.
        split: number of GPUs of an instance.
        settings: the configured coefficients of the fitted rest.
        wide: how experts are spread over a replica of which this is a rank; None = as the settings say.

    Raises:
        PolicyError: the tables lack what the model needs, or its experts cannot be spread that way.
    """

    def __init__(
        self,
        document: Mapping[str, object],
        model: Model,
        split: int,
        settings: OperatorSettings = _AS_FITTED,
        wide: ExpertParallelism | None = None,
    ) -> None:
        tables = tables_in(document, settings.engine)
        if max(model.weight_bytes, model.activation_bytes) > _WIDEST_BYTES:
            raise PolicyError(
                f"no operators of {max(model.weight_bytes, model.activation_bytes):g}-byte numbers were measured"
            )
        apart = settings.expert_parallel if wide is None else wide.gpus
        check_expert_parallel(model, split if wide is None else wide.gpus, apart)
        self._wide = wide
        self.gpu_figures = tables.figures
        """Figures of the GPU on which the operators were measured, by their path in Hardware documents."""
        self.layers = layers = layers_of(model, split)
        narrow = any(product.weights == "fp8" for product in layers.products)
        self.rest = rest = rest_of(settings, tables.capability, sparse=layers.expert_layers > 0, narrow=narrow)
        self._hidden_bytes = model.hidden_size * model.activation_bytes
        parts = {"products": self._products(tables)}
        if layers.expert_layers:
            parts["experts"] = [(layers.expert_layers, self._experts(tables, model, split, apart, settings))]
        if layers.sums:
            curve = tables.all_reduce(split, settings.engine, peer_to_peer=settings.peer_to_peer)
            parts["all-reduce"] = self._sums(curve, spread=wide is not None and wide.ranks > 1)
        self._parts = parts
        self._scale(rest)
        self._shared = self._parts.pop("experts", []) if wide is not None and wide.ranks > 1 else []
        self.head = tables.gemm(layers.head.weights, layers.head.n, layers.head.k)
        read = "bfloat16" if rest.attention_16_bit else layers.kv_cache
        self._decodes = tables.decode_attention(read, layers.cache_dim, layers.kv_heads)
        prompts = tables.prefill_attention(layers.kv_cache, layers.head_dim, layers.heads)
        if model.kv_lora_rank:
            cached = model.kv_lora_rank + model.qk_rope_head_dim
            self._decodes = tables.latent_decodes(layers.kv_cache, layers.heads, cached) or self._decodes
            prompts = tables.latent_prefill(layers.kv_cache, layers.head_dim, layers.heads) or prompts
        slower = sinks_factor(layers, tables, settings.engine)
        self.alone, self.shared = _beyond_launch(prompts.alone, slower), _beyond_launch(prompts.shared, slower)
        self._context_token_us = context_token_us(layers, tables, settings.engine)
        self._index_topk, self._index_read_us = model.index_topk, index_read_us(model, tables)
        self.one_decode = self.decode_attention(1)
        self.start_us = min(self.one_decode.times_us[0], self.alone.times_us[0] * model.attention_layers)
        self.linear = None if layers.linear is None else _linear(layers.linear, split, tables, document)
        """Times of layers with a state, beside their projections."""
        self.read_again_us = read_again_us(layers, tables, settings.engine)
        """Per token of decodes' context and layer, in steps that also have prompts."""
        self.sparse_step_us, self.sparse_token_us = sparse_us(model, layers, tables)
        self.moved_us_per_token = layers.moved_bytes / tables.bytes_per_us
        self.logits_us = _LOGIT_BYTES * model.vocab_size / tables.bytes_per_us

    def _products(self, tables: OperatorTables) -> list[tuple[float, Curve]]:
        """Return the dense products of a step, with their number."""
        rest, curves = self.rest, list[tuple[float, Curve]]()
        for product in self.layers.products:
            own = tables.gemm(product.weights, product.n, product.k)
            if product.weights == "fp8":
                scaled = _in_and_beyond_graphs(own, rest.products_fp8, rest.products_fp8_long, rest.quantize_us)
                curves.append((product.times, scaled))
            else:
                curves.append((product.times * rest.products, own))
        return curves

    def _experts(
        self, tables: OperatorTables, model: Model, split: int, apart: int, settings: OperatorSettings
    ) -> Curve:
        """Return the time of a layer's experts, which are spread over ``apart`` GPUs; the busiest counts.

        Raises:
            PolicyError: the tables have none.
        """
        kind, wide, parts = self.layers.expert_weights, self._wide, max(1, split // apart)
        width: float = model.moe_intermediate_size or model.intermediate_size
        if model.feed_forward_matrices != _GATED:  # experts as large as the gated ones that were measured
            width *= model.feed_forward_matrices / _GATED
        experts, top_k = model.num_experts // apart, model.num_experts_per_tok / apart
        spread = self.rest.experts_spread * min(1.0, model.num_experts / SPREAD_EXPERTS)
        curve: Curve | None
        if runs_marlin(kind, tables, settings.engine):
            curve = marlin_experts(tables, kind, model.hidden_size, width / parts, experts, top_k, spread)
        else:
            curve = tables.experts(kind, model.hidden_size, width, experts, top_k, parts, spread)
            if curve is not None and settings.old_expert_tiles:
                own_width = (model.moe_intermediate_size or model.intermediate_size) / parts
                curve = old_tiles(curve, kind, tables.name, experts, own_width, top_k)
        if curve is None:
            raise PolicyError(f"no mixture of experts was measured on {tables.name}")
        busiest = Busiest(
            gpus=apart,
            experts=model.num_experts,
            top_k=model.num_experts_per_tok,
            lasting=popularity_excess(apart, model.num_experts, spread) if wide is None else wide.imbalance - 1.0,
        )
        return _of_the_busiest(curve, busiest)

    def _sums(self, curve: Curve, *, spread: bool) -> list[tuple[float, Curve]]:
        """Return the all-reduces of a step; ``spread``: experts are shared by several ranks."""
        layers = self.layers
        # After experts shared by all ranks, the GPUs of a rank only gather what each has for a part of the tokens.
        gathered = layers.expert_layers if spread else 0
        curves: list[tuple[float, Curve]] = [
            (layers.sums - gathered * _GATHER, _over_tokens(curve, self._hidden_bytes))
        ]
        if layers.norm_sums:
            curves.append((layers.norm_sums, _over_tokens(curve, _SQUARES_BYTES)))
        return curves

    def _scale(self, rest: Rest) -> None:
        """Apply the fitted factors that concern operators."""
        if self.layers.expert_scales == "channel" and "experts" in self._parts:
            [(times, curve)] = self._parts["experts"]
            self._parts["experts"] = [(times * rest.experts_fp8_channel, curve)]
        if self.layers.expert_weights == "mxfp4" and "experts" in self._parts:
            [(times, curve)] = self._parts["experts"]
            around = tuple(
                time * rest.experts_mxfp4 + size * rest.experts_token_us if size > _GRAPHS[-1] else time
                for size, time in zip(curve.sizes, curve.times_us, strict=True)
            )
            slower = replace(curve, times_us=tuple(time + rest.experts_layer_us for time in around))
            self._parts["experts"] = [(times, slower)]

    def known(self) -> dict[str, Known]:
        """Return for each operator how well its times are known within the measured sizes."""
        parts = {**self._parts, **({"experts": self._shared} if self._shared else {})}
        known = {name: worst(*(curve.known for _, curve in curves)) for name, curves in parts.items()}
        if self.linear is not None:
            known["states"] = self.linear.known
        return {**known, "head": self.head.known, "attention": worst(self._decodes.known, self.alone.known)}

    def parts_us(self, batch: int, context: int) -> dict[str, tuple[float, float]]:
        """Return each operator's time in a step of decodes with that mean context, and its extrapolated part."""
        padded = _padded(batch)
        parts = {name: [(times, curve, padded) for times, curve in curves] for name, curves in self._parts.items()}
        if self._wide is not None and self._shared:
            parts["experts"] = [(times, curve, batch * self._wide.ranks) for times, curve in self._shared]
        parts["head"] = [(1.0, self.head, batch)]
        parts["attention"] = [(1.0, self.decode_attention(batch), context)]
        if self.linear is not None:
            parts["states"] = [(self.linear.layers, self.linear.decode, batch)]
        durations = {}
        for name, curves in parts.items():
            whole = guessed = 0.0
            for times, curve, size in curves:
                time = times * curve.at(size)
                whole += time
                guessed += time if curve.known_at(size) == "extrapolated" else 0.0
            durations[name] = (whole, guessed)
        if self._shared:
            exchange = self._exchange_us(batch, prompts=False)
            durations["all-to-all"] = (exchange, exchange)
        return durations

    def shared_us(self, own: int, everywhere: int, *, prompts: bool) -> float:
        """Time of the experts that all ranks share, including dispatch and combine.

        Args:
            own: tokens of this rank.
            everywhere: tokens of all ranks.
            prompts: whether any of these computes a prompt.
        """
        total = self._exchange_us(own, prompts=prompts)
        for times, curve in self._shared:
            total += times * curve.at(everywhere)
        return total

    def _exchange_us(self, tokens: int, *, prompts: bool) -> float:
        """Time of dispatch and combine in all layers; each accelerator of a rank sends a part of the rank's tokens."""
        wide = self._wide
        if wide is None or not self._shared:
            return 0.0
        return self.layers.expert_layers * wide.exchange_of(tokens * wide.ranks / wide.gpus, prompts=prompts)

    def tokens_us(self, tokens: int) -> float:
        """Time of everything computed token by token, in a step of ``tokens`` tokens."""
        padded = _padded(tokens)
        total = 0.0
        for curves in self._parts.values():
            for times, curve in curves:
                total += times * curve.at(padded)
        return total

    def listed(self, most: int) -> list[float]:
        """Return ``tokens_us`` for 0 to ``most`` tokens, with 0 for no tokens."""
        knots = sorted(
            {*(size for part in self._parts.values() for _, curve in part for size in curve.sizes), *_GRAPHS}
        )
        sizes = [1, *(int(knot) for knot in knots if 1 < knot < most and knot == int(knot)), most]
        times_us = [0.0]
        before, low = 0, 0.0
        for size in sizes:
            if size <= before:
                continue
            high = self.tokens_us(size)
            graph = size <= _GRAPHS[-1]
            times_us += [
                high if graph else low + (high - low) * (tokens - before) / (size - before)
                for tokens in range(before + 1, size + 1)
            ]
            before, low = size, high
        return times_us

    def decode_attention(self, batch: int) -> Curve:
        """Return the attention time of a batch of decodes over their mean context."""
        layers = self.layers
        curve = self._decodes.over_context(batch)
        if self._index_read_us:
            curve = _of_chosen(curve, self._index_topk, batch * self._index_read_us)
        elif self._context_token_us:
            curve = _no_faster(curve, self._context_token_us)
        if not layers.window_layers:
            return Curve(
                curve.sizes,
                tuple(layers.attention_layers * time for time in curve.times_us),
                curve.known,
                curve.measured_up_to,
            )
        window = float(layers.window)
        contexts = tuple(sorted({*curve.sizes, window}))
        return Curve(
            contexts,
            tuple(
                layers.attention_layers * curve.at(context) + layers.window_layers * curve.at(min(context, window))
                for context in contexts
            ),
            curve.known,
            curve.measured_up_to,
        )


def _linear(linear: LinearLayers, split: int, tables: OperatorTables, document: Mapping[str, object]) -> LinearCosts:
    from blis_tui.engine.latency.linear_layers import linear_costs  # noqa: PLC0415  (few models have them)

    peak = tables.peak_per_us("bfloat16")
    return linear_costs(linear, split, tables.bytes_per_us, peak, document.get(LINEAR))


def _of_the_busiest(curve: Curve, busiest: Busiest) -> Curve:
    """Return the curve for the GPU with the most tokens."""
    if busiest.gpus == 1:
        return curve
    times = tuple(curve.at(size * busiest.share(size)) for size in curve.sizes)
    return replace(curve, times_us=times, measured_up_to=curve.measured_up_to / busiest.share(curve.measured_up_to))


def _in_and_beyond_graphs(curve: Curve, inside: float, beyond: float, more_us: float) -> Curve:
    """Scale a curve by one factor within CUDA graph sizes and another beyond, never falling, and add a constant."""
    times, most = list[float](), 0.0
    for size, time in zip(curve.sizes, curve.times_us, strict=True):
        most = max(most, time * (inside if size <= _GRAPHS[-1] else beyond))
        times.append(most + more_us)
    return replace(curve, times_us=tuple(times))


def _of_chosen(curve: Curve, most: int, token_us: float) -> Curve:
    """Return the times of attention to at most so many tokens of a context, after looking at each for ``token_us``."""
    contexts = tuple(sorted({*curve.sizes, float(most)}))
    times = tuple(curve.at(min(context, float(most))) + context * token_us for context in contexts)
    return replace(curve, sizes=contexts, times_us=times)


def _no_faster(curve: Curve, token_us: float) -> Curve:
    """Raise times so that a context takes at least ``token_us`` for each of its tokens."""
    slow = tuple(max(time, size * token_us) for size, time in zip(curve.sizes, curve.times_us, strict=True))
    return replace(curve, times_us=slow)


def _beyond_launch(curve: Curve, factor: float) -> Curve:
    """Scale a curve, but not its smallest time, which is that of a launch."""
    least = curve.times_us[0]
    return replace(curve, times_us=tuple(least + factor * (time - least) for time in curve.times_us))


def _over_tokens(curve: Curve, bytes_: float) -> Curve:
    """Convert a curve over message sizes to one over tokens of ``bytes_`` bytes."""
    sizes = tuple(size / bytes_ for size in curve.sizes)
    return replace(curve, sizes=sizes, measured_up_to=curve.measured_up_to / bytes_)


def _padded(tokens: int) -> int:
    """Pad a number of tokens to the size of the CUDA graph that takes them."""
    return tokens if tokens > _GRAPHS[-1] else _GRAPHS[bisect_left(_GRAPHS, tokens)]
