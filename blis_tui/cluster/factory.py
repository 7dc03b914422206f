"""Makes instances: what a pool of a spec describes, put together from plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.adapters.adapters import Adapters
from blis_tui.engine.adapters.costs import LoadTimes, step_overhead
from blis_tui.engine.adapters.step_time import Adapted
from blis_tui.engine.async_instance import AsyncInstance
from blis_tui.engine.batch import Batch
from blis_tui.engine.batch_queue_instance import BatchQueueInstance
from blis_tui.engine.batching.rule import BATCHING
from blis_tui.engine.batching.traits import traits_of
from blis_tui.engine.front_end import FrontEnd, HasFrontEnd
from blis_tui.engine.instance import Instance
from blis_tui.engine.kv.host import host_memory
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.kv.prompt_keys import PromptKeys
from blis_tui.engine.kv.tiers import Tiers
from blis_tui.engine.latency.captured import CapturedSizes
from blis_tui.engine.latency.encoding import Encoding
from blis_tui.engine.latency.model import create_latency
from blis_tui.engine.limits import Limits
from blis_tui.engine.parts import Parts
from blis_tui.engine.pipelined_instance import PipelinedInstance
from blis_tui.engine.preemption.restore import RESTORE
from blis_tui.engine.preemption.victims import VICTIM
from blis_tui.engine.scheduling.priority import PRIORITY
from blis_tui.engine.scheduling.queue import SCHEDULING, SortedQueue
from blis_tui.engine.speculative.instance import SpeculativeInstance
from blis_tui.engine.speculative.luck import Luck
from blis_tui.engine.streams import Streams
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.front_end import FrontEndTimes
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.spec.model import Experiment, Lora, Pool, Speculative


class InstanceFactory:
    """Instances of one cluster. Those of a pool share its step-time model, all of a block size the prompts' keys."""

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
        self._front_ends: dict[str, FrontEndTimes | None] = {}
        self._prompts: dict[int, PromptKeys] = {}

    def create(self, index: int, pool: Pool) -> Instance:
        """One more instance of a pool.

        Raises:
            PolicyError: a policy does not exist or rejects its settings.
        """
        plugins, policy, engine = self._experiment.plugins, self._experiment.policy, pool.engine
        rule = plugins.create(BATCHING, policy.batching.kind, policy.batching.settings)
        limits = Limits(
            model=pool.model.name,
            max_num_seqs=rule.max_running(engine),
            max_num_batched_tokens=engine.max_num_batched_tokens,
            long_prefill_token_threshold=rule.prefill_threshold(engine),
            max_model_len=engine.max_model_len,
            block_size_tokens=engine.block_size_tokens,
            kv_blocks=engine.kv_blocks,
            max_loras=0 if engine.lora is None else engine.lora.max_loras,
        )
        prompts = self.prompts_of(pool)
        blocks = BlockPool(
            engine.kv_blocks,
            engine.block_size_tokens,
            prompts,
            caching=engine.enable_prefix_caching,
            as_vllm=rule.traits.orders_blocks_as_vllm,
        )
        if engine.kv_tiers is not None and engine.enable_prefix_caching:
            blocks.tiers = Tiers(engine.kv_tiers, engine.block_size_tokens)
        waiting = plugins.create(SCHEDULING, policy.scheduling.kind, policy.scheduling.settings)
        if isinstance(waiting, SortedQueue):
            waiting.by_name = rule.traits.ties_by_name
        restore = plugins.create(RESTORE, policy.preemption_restore, {})
        latency = self._latency(pool)
        batch = Batch(
            limits,
            waiting,
            blocks,
            victim=plugins.create(VICTIM, policy.preemption_victim, {}),
            restore=restore,
            host=host_memory(pool) if restore.uses_host else None,
            latency=latency,
            traits=traits_of(
                rule.traits,
                policy.preemption_recompute,
                swaps=restore.uses_host,
                pipelined=engine.pipeline_parallel > 1,
            ),
            luck=self._luck(engine.speculative),
        )
        if engine.lora is not None:
            batch.adapters = self._adapters(engine.lora, pool, batch, index)
            latency = Adapted(latency, step_overhead(engine.lora))
        parts = Parts(
            CapturedSizes(latency, limits.max_num_seqs) if rule.traits.captured_sizes else latency,
            rule,
            plugins.create(PRIORITY, policy.priority.kind, policy.priority.settings),
            self._events,
            self._ledger,
            self._observers,
            self._front_end(index, pool, latency),
        )
        stages = engine.pipeline_parallel
        if stages > 1 and (engine.speculative is not None or engine.lora is not None):
            raise PolicyError("pipeline_parallel is not simulated with `speculative` or `lora`")
        if engine.speculative is not None and batch.speculative is not None:
            if not rule.traits.speculates:
                raise PolicyError(f"`{policy.batching.kind}` batching knows no speculative decoding")
            drafting_us = engine.speculative.draft_tokens * engine.speculative.draft_token_us
            return SpeculativeInstance(index, batch, parts, cohort=batch.speculative, drafting_us=drafting_us)
        if stages > 1:
            if not rule.traits.pipelines:
                raise PolicyError(f"`{policy.batching.kind}` batching knows no pipeline_parallel")
            if rule.traits.pipelines == "queue":
                return BatchQueueInstance(index, batch, parts, stages=stages, ahead=rule.traits.plans_ahead)
            return PipelinedInstance(index, batch, parts, stages=stages)
        return (AsyncInstance if rule.traits.plans_ahead else Instance)(index, batch, parts)

    def prompts_of(self, pool: Pool) -> PromptKeys:
        """The keys of prompts in blocks of its size."""
        size = pool.engine.block_size_tokens
        return self._prompts.setdefault(size, PromptKeys(size))

    def _adapters(self, lora: Lora, pool: Pool, batch: Batch, index: int) -> Adapters:
        if not batch.traits.adapters:
            raise PolicyError(f"`{self._experiment.policy.batching.kind}` batching knows no LoRA adapters")
        times = LoadTimes(lora, pool.model, pool.hardware, pool.tensor_parallel)
        beside = batch.traits.adapters == "beside"
        return Adapters(lora, times, batch.load, self._events, self._observers, index, beside=beside)

    def _luck(self, speculative: Speculative | None) -> Luck | None:
        if speculative is None:
            return None
        return Luck(self._experiment.seed, speculative.draft_tokens, speculative.acceptance)

    def _front_end(self, index: int, pool: Pool, latency: StepTimeModel) -> FrontEnd | None:
        times = self._front_ends.get(pool.name)
        stream = Streams(self._experiment.seed).stream(f"front-end/{index}")
        return None if times is None else FrontEnd(times, stream, latency)

    def _latency(self, pool: Pool) -> StepTimeModel:
        if pool.name not in self._latencies:
            latency, encoder = create_latency(self._experiment.plugins, pool), pool.engine.encoder
            self._front_ends[pool.name] = latency.front_end if isinstance(latency, HasFrontEnd) else None
            self._latencies[pool.name] = latency if encoder is None else Encoding(latency, encoder.token_us)
        return self._latencies[pool.name]
