"""Creates instances from a spec's pools and from plug-ins.

Modules for features that few instances have (adapters, drafts, swapping, stages, …) are imported on demand.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Streams
from blis_tui.engine import orders
from blis_tui.engine import restore as restores
from blis_tui.engine.batch import Batch
from blis_tui.engine.client_times import FrontEnd, ServiceTimes
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.instance import Instance
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.latency.creation import CountsSteps, HasFrontEnd, create_latency
from blis_tui.engine.latency.model import StepLoad, is_pure
from blis_tui.engine.latency.wrappers import launched, validated
from blis_tui.engine.options.draft_cohort import SpeculativeCohort
from blis_tui.engine.orders import PRIORITY
from blis_tui.engine.profile import Limits
from blis_tui.engine.queue import SCHEDULING, FcfsQueue, SortedQueue, overrides_order
from blis_tui.engine.restore import RESTORE
from blis_tui.engine.rules.rule import BATCHING
from blis_tui.engine.rules.traits import MOVING, Splitting, traits_of, unsupported_elsewhere, unsupported_in_engine
from blis_tui.engine.step_loop import Ahead, OneAtATime
from blis_tui.engine.steps import Parts, Steps
from blis_tui.engine.victims import VICTIM

if TYPE_CHECKING:
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.options.adapters import Adapters
    from blis_tui.engine.options.drafting import Drafting
    from blis_tui.engine.options.encoder import Encoder
    from blis_tui.engine.options.ranks import RankGroup
    from blis_tui.engine.options.swap import Swapping
    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.engine.options.tiers import Tiers
    from blis_tui.engine.plan import StepPart
    from blis_tui.engine.queue import WaitingQueue
    from blis_tui.engine.records import Observers
    from blis_tui.engine.restore import RestoreRule
    from blis_tui.engine.rules.rule import BatchRule
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.engine.step_loop import StepLoop
    from blis_tui.model import Encoder as EncoderKeys
    from blis_tui.model import Engine, Experiment, KvTiers, Lora, Pool, Speculative


class InstanceFactory:
    """Creates the instances of one cluster.

    Instances of a pool share its step-time model; instances with the same block size share the prompt keys; instances
    with a shared tier of one name share its blocks.
    """

    def __init__(
        self,
        experiment: Experiment,
        events: EventQueue,
        ledger: Ledger,
        observers: Observers,
    ) -> None:
        self._experiment = experiment
        self._events = events
        self._ledger = ledger
        self._observers = observers
        self._latencies: dict[str, StepTimeModel] = {}
        self._measured: dict[str, CountsSteps | None] = {}
        self._front_ends: dict[str, ServiceTimes | None] = {}
        self._prompts: dict[tuple[int, int], PromptKeys] = {}
        self._stores: dict[str, TierStore] = {}
        """Shared KV tiers, by name."""
        self._groups: dict[str, RankGroup] = {}
        """Pool -> latest rank group, for pools whose ranks step together."""

    def fixed_parts(self) -> dict[str, object]:
        """Return parts that no event changes, by name: pools, and pure step-time models.

        With plug-ins, models are excluded, because one may keep state that affects how long requests wait.
        """
        pools: dict[str, object] = {f"pool {pool.name}": pool for pool in self._experiment.pools}
        models = {} if self._experiment.plugins_used() else self._latencies
        return pools | {f"step times of {name}": model for name, model in models.items() if is_pure(model)}

    def create(self, index: int, pool: Pool) -> Instance:
        """Create one more instance of a pool.

        Raises:
            PolicyError: a policy does not exist or rejects its settings.
        """
        rule, latency, engine = self._rule(pool.engine), self._latency(pool), pool.engine
        batch, restore = self._batch(rule, pool)
        beside: list[StepPart] = []
        if engine.speculative is not None and batch.speculative is not None:
            beside.append(_drafting(index, engine.speculative, batch.speculative, self._observers))
        if restore.uses_host:
            batch.swapping = _swapping(pool, restore, batch, latency)
            beside.append(batch.swapping)
        if batch.pool.tiers is not None:
            beside.append(batch.pool.tiers)
        if engine.lora is not None:
            batch.adapters = self._adapters(engine.lora, pool, batch, index)
            beside.append(batch.adapters)
            latency = _adapted(latency, engine.lora)
        if engine.encoder is not None and batch.traits.encoder:
            staged = engine.pipeline_parallel > 1 and rule.traits.plans_ahead
            batch.encoder = _encoder(engine.encoder, batch, self._observers, index, staged=staged)
        followers = (batch.adapters, batch.encoder, batch.swapping)
        batch.parts = tuple([follower for follower in followers if follower is not None])
        parts = self._parts(index, pool, rule, batch.traits, latency, tuple(beside))
        steps = _logged(index, batch, parts) if batch.traits.log_interval_us else Steps(index, batch, parts)
        if batch.pool.tiers is not None:
            _attach(batch.pool.tiers, steps)
        if (measured := self._measured.get(pool.name)) is not None:
            measured.follow(steps.tallies)
        instance = Instance(self._loop(steps, pool), parts)
        if batch.encoder is not None:
            steps.parts += (batch.encoder,)  # last, as it asks when steps end
        if (group := self._groups.get(pool.name)) is not None:
            instance.queue_with(group.index)
        return instance

    def _parts(
        self,
        index: int,
        pool: Pool,
        rule: BatchRule,
        traits: EngineBehavior,
        latency: StepTimeModel,
        beside: tuple[StepPart, ...],
    ) -> Parts:
        """Create an instance's parts other than the batch."""
        priority = self._experiment.policy.priority
        return Parts(
            _captured(latency, rule.max_running(pool.engine)) if traits.captured_sizes else latency,
            rule,
            orders.validated_rule(
                self._experiment.plugins.create(PRIORITY, priority.kind, priority.settings), priority.kind
            ),
            self._events,
            self._ledger,
            self._observers,
            beside,
            self._front_end(index, pool, latency),
        )

    def _batch(self, rule: BatchRule, pool: Pool) -> tuple[Batch, RestoreRule]:
        """Create the batch of an instance, and the rule by which its victims come back."""
        plugins, policy, engine = self._experiment.plugins, self._experiment.policy, pool.engine
        kind = policy.preemption_restore
        restore = restores.validated_rule(plugins.create(RESTORE, kind, {}), kind)
        limits = _limits(rule, pool)
        blocks = self._blocks(rule, pool, limits)
        batch = Batch(
            limits,
            self._waiting(rule),
            blocks,
            victim=plugins.create(VICTIM, policy.preemption_victim, {}),
            traits=traits_of(
                rule.traits,
                policy.preemption_recompute,
                swaps=restore.uses_host,
                pipelined=engine.pipeline_parallel > 1,
                eager=engine.enforce_eager,
            ),
            cohort=self._cohort(engine, rule.traits, blocks),
        )
        return batch, restore

    def _loop(self, steps: Steps, pool: Pool) -> StepLoop:
        """Create the loop of an instance."""
        if not pool.lockstep:
            return _loop(steps, pool.engine.pipeline_parallel)
        from blis_tui.engine.options.ranks import RankGroup

        group = self._groups.get(pool.name)
        if group is None or len(group.ranks) == pool.engine.data_parallel:
            group = self._groups[pool.name] = RankGroup(steps.index)
        return group.join(steps)

    def _rule(self, engine: Engine) -> BatchRule:
        """Create the batching rule.

        Raises:
            PolicyError: it does not support this engine's settings.
        """
        batching = self._experiment.policy.batching
        rule = self._experiment.plugins.create(BATCHING, batching.kind, batching.settings)
        drafter = "" if engine.speculative is None else engine.speculative.method
        adapts, stages = engine.lora is not None, engine.pipeline_parallel
        budgets = [] if engine.encoder is None else engine.encoder.scheduled
        complaints = unsupported_in_engine(batching.kind, rule.traits, stages, drafter, adapts=adapts, budgets=budgets)
        for _, message, advice in complaints:
            raise PolicyError(message, help=advice)
        policy, splitting = self._experiment.policy, self._splitting(engine)
        order, victim = policy.scheduling.kind, policy.preemption_victim
        for _, message, advice in unsupported_elsewhere(batching.kind, rule.traits, order, victim, splitting):
            raise PolicyError(message, help=advice)
        return rule

    def _splitting(self, engine: Engine) -> Splitting | None:
        """Return how the cluster splits requests, and what not every rule supports beside it."""
        cluster = self._experiment.cluster
        split = cluster.disaggregation
        if split is None:
            return None
        beside = [key for key in MOVING if getattr(cluster, key, None)]
        beside += [key for key in ("lora", "kv_tiers") if getattr(engine, key) is not None]
        transfer = split.transfer
        return Splitting(split.order, transfer.starts, bool(transfer.reuse_cached_blocks), tuple(beside))

    def _blocks(self, rule: BatchRule, pool: Pool, limits: Limits) -> BlockPool:
        engine = pool.engine
        tiers = engine.kv_tiers if engine.enable_prefix_caching else None
        if rule.traits.radix_tree and tiers is not None:
            from blis_tui.engine.sglang.hicache import HiCache

            return HiCache(tiers, engine.block_size_tokens, engine.kv_blocks, self.prompts_of(pool)).pool
        if rule.traits.radix_tree:
            from blis_tui.engine.sglang.radix_pool import RadixPool

            return RadixPool(
                engine.kv_blocks,
                engine.block_size_tokens,
                self.prompts_of(pool),
                # A server that generates answers to prompts from elsewhere has no radix cache.
                caching=engine.enable_prefix_caching and pool.role != "decode",
            )
        if limits.kv_groups is not None:
            from blis_tui.engine.options.windows import GroupedPool

            return GroupedPool(
                engine.kv_blocks,
                engine.block_size_tokens,
                self.prompts_of(pool),
                limits.kv_groups,
                limits.window_blocks,
                caching=engine.enable_prefix_caching,
                ahead=rule.traits.plans_ahead,
            )
        blocks = BlockPool(
            engine.kv_blocks,
            engine.block_size_tokens,
            self.prompts_of(pool),
            caching=engine.enable_prefix_caching,
            as_vllm=rule.traits.vllm_block_pool,
        )
        if tiers is not None:
            blocks.tiers = self._tiers(tiers, engine.block_size_tokens)
        return blocks

    def _tiers(self, tiers: KvTiers, block_tokens: int) -> Tiers:
        if not tiers.tiers[-1].shared:
            from blis_tui.engine.options.tiers import Tiers

            return Tiers(tiers, block_tokens)
        from blis_tui.engine.options.shared_tier import SharingTiers
        from blis_tui.engine.options.tier_store import TierStore

        last = tiers.tiers[-1]
        if last.name not in self._stores:
            self._stores[last.name] = TierStore(last.name, last.blocks)
        return SharingTiers(tiers, block_tokens, self._stores[last.name])

    def _waiting(self, rule: BatchRule) -> WaitingQueue:
        scheduling = self._experiment.policy.scheduling
        waiting = self._experiment.plugins.create(SCHEDULING, scheduling.kind, scheduling.settings)
        if rule.traits.priorities and isinstance(waiting, (FcfsQueue, SortedQueue)):
            return waiting.by_priority(rule.traits.priorities)
        if isinstance(waiting, SortedQueue) and rule.traits.radix_tree and not overrides_order(waiting):
            return waiting.by_turn()
        if isinstance(waiting, SortedQueue):
            waiting.by_name = rule.traits.ties_by_name
        return waiting

    def prompts_of(self, pool: Pool) -> PromptKeys:
        """Return the prompt keys of a pool's KV blocks."""
        return self.prompt_keys(pool.engine.block_size_tokens, self._lookahead(pool.engine))

    def prompt_keys(self, block_size_tokens: int, lookahead_tokens: int = 0) -> PromptKeys:
        """Return the prompt keys for a block size; see ``PromptKeys``."""
        name = block_size_tokens, lookahead_tokens
        return self._prompts.setdefault(name, PromptKeys(*name))

    def _lookahead(self, engine: Engine) -> int:
        """Number of tokens after a block on which its content depends, because a drafter has read them."""
        if engine.speculative is None or not engine.speculative.reads_hidden_states or not engine.enable_prefix_caching:
            return 0
        if engine.kv_tiers is not None or self._experiment.cluster.disaggregation is not None:
            return 0  # KV connectors share blocks by keys without them
        return int(self._rule(engine).traits.hashes_lookahead)

    def _adapters(self, lora: Lora, pool: Pool, batch: Batch, index: int) -> Adapters:
        from blis_tui.engine.options.adapters import Adapters, LoadTimes

        times = LoadTimes(lora, pool.model, pool.hardware, pool.tensor_parallel)
        beside = batch.traits.adapters == "beside"
        ending, drafting = batch.finishing, None
        if not batch.traits.ending_use_adapters:
            ending, drafting = batch.cohort.maybe_finished, batch.speculative
        return Adapters(
            lora,
            times,
            batch.load,
            self._events,
            self._observers,
            index,
            beside=beside,
            ending=ending,
            drafting=drafting,
        )

    def _cohort(self, engine: Engine, traits: EngineBehavior, blocks: BlockPool) -> DecodeCohort:
        load, size, speculative = StepLoad(), engine.block_size_tokens, engine.speculative
        if blocks.served_in_order:
            from blis_tui.engine.options.windows import grouped_cohort

            return grouped_cohort(load, blocks)
        if speculative is None:
            return DecodeCohort(load, size)
        from blis_tui.engine.options.drafts import AcceptanceSampler

        return SpeculativeCohort(
            load,
            size,
            AcceptanceSampler(self._experiment.seed, speculative.acceptance_probabilities),
            engine.max_model_len,
            lookahead_tokens=speculative.lookahead_tokens,
            drops_last_hit=speculative.reads_hidden_states and not blocks.prompts.lookahead_tokens,
            hashed_ahead=blocks.prompts.lookahead_tokens,
            notes_late=traits.vllm_block_pool,
            overlaps=traits.plans_ahead,
            notes_results=traits.keeps_accepted_drafts,
        )

    def _front_end(self, index: int, pool: Pool, latency: StepTimeModel) -> FrontEnd | None:
        times = self._front_ends.get(pool.name)
        stream = Streams(self._experiment.seed).stream(f"front-end/{index}")
        return None if times is None else FrontEnd(times, stream, latency)

    def _latency(self, pool: Pool) -> StepTimeModel:
        if pool.name not in self._latencies:
            latency, encoder = create_latency(self._experiment.plugins, pool), pool.engine.encoder
            self._measured[pool.name] = latency if isinstance(latency, CountsSteps) else None
            times = latency.front_end if isinstance(latency, HasFrontEnd) else None
            if pool.engine.front_end is not None:
                times = (times or ServiceTimes()).given(pool.engine.front_end)
            self._front_ends[pool.name] = times
            latency = launched(validated(latency, pool.latency.kind), pool, self._experiment.policy.batching.kind)
            if encoder is not None:
                from blis_tui.engine.latency.wrappers import Encoding

                latency = Encoding(latency, encoder.token_us, scheduled=bool(self._rule(pool.engine).traits.encoder))
            self._latencies[pool.name] = latency
        return self._latencies[pool.name]


def _drafting(index: int, drafts: Speculative, cohort: SpeculativeCohort, observers: Observers) -> Drafting:
    from blis_tui.engine.options.drafting import Drafting

    return Drafting(index, cohort, drafts.draft_tokens * drafts.draft_token_us, observers)


def _swapping(pool: Pool, restore: RestoreRule, batch: Batch, latency: StepTimeModel) -> Swapping:
    from blis_tui.engine.options.swap import Swapping, host_memory

    return Swapping(host_memory(pool), restore, batch.pool, batch.load, batch.stalled, latency)


def _logged(index: int, batch: Batch, parts: Parts) -> Steps:
    from blis_tui.engine.rules.llm_serving_sim import LoggedSteps

    return LoggedSteps(index, batch, parts)


def _encoder(keys: EncoderKeys, batch: Batch, observers: Observers, index: int, *, staged: bool) -> Encoder:
    from blis_tui.engine.options.encoder import Encoder

    return Encoder(keys, batch.limits, batch.traits, observers, index, batch.cohort if staged else None)


def _adapted(latency: StepTimeModel, lora: Lora) -> StepTimeModel:
    from blis_tui.engine.latency.wrappers import AdapterOverhead
    from blis_tui.engine.options.adapters import step_overhead

    return AdapterOverhead(latency, step_overhead(lora))


def _attach(tiers: Tiers, steps: Steps) -> None:
    """Tell tiers whose they are, if one of them is shared."""
    if tiers.store is not None:
        from blis_tui.engine.options.shared_tier import SharingTiers

        if isinstance(tiers, SharingTiers):
            tiers.attach(steps)


def _captured(latency: StepTimeModel, max_num_seqs: int) -> StepTimeModel:
    from blis_tui.engine.latency.wrappers import CapturedSizes

    return CapturedSizes(latency, max_num_seqs)


def _limits(rule: BatchRule, pool: Pool) -> Limits:
    engine = pool.engine
    limits = Limits(
        model=pool.model.name,
        max_num_seqs=rule.max_running(engine),
        max_num_batched_tokens=rule.traits.step_tokens or engine.max_num_batched_tokens,
        long_prefill_token_threshold=rule.prefill_threshold(engine),
        max_model_len=engine.max_model_len,
        block_size_tokens=engine.block_size_tokens,
        kv_blocks=engine.kv_blocks,
        max_loras=0 if engine.lora is None else engine.lora.max_loras,
        draft_tokens=0 if engine.speculative is None else engine.speculative.draft_tokens,
    )
    if not pool.model.sliding_window_layers and pool.model.linear is None:
        return limits
    from blis_tui.engine.kv.capacity import groups_of, kv_groups, window_blocks

    groups = kv_groups(pool.model, engine)
    if groups is None:
        return replace(limits, windows_count_as_full=groups_of(pool.model) is not None)
    return replace(limits, kv_groups=groups, window_blocks=window_blocks(groups, engine, rule.traits))


def _loop(steps: Steps, stages: int) -> StepLoop:
    """Create the loop of an instance that does not step together with others."""
    traits = steps.rule.traits
    if traits.radix_tree:
        from blis_tui.engine.sglang.loop import EventLoop

        return EventLoop(steps)
    if stages == 1:
        return Ahead(steps) if traits.plans_ahead else OneAtATime(steps)
    from blis_tui.engine.options.pipelines import BatchQueue, Stages

    return BatchQueue(steps, stages, ahead=traits.plans_ahead) if traits.pipelines == "queue" else Stages(steps, stages)
