"""``sglang``: SGLang's scheduler, batch for batch. Prompts go first, and victims are retracted.

Sources, all of SGLang 0.5.23:

- steps: ``managers/scheduler.py`` (``get_next_batch_to_run``, ``_get_new_batch_prefill_raw``,
  ``update_running_batch``), ``managers/schedule_batch.py`` (``retract_decode``) and
  ``managers/scheduler_components/new_token_ratio_tracker.py``;
- queue orders other than that of arrival: ``managers/schedule_policy.py`` (``SchedulePolicy``);
- LoRA adapters: ``managers/scheduler.py`` (``can_schedule_lora_req``) and ``lora/lora_manager.py``
  (``validate_lora_batch``);
- prompts that are computed for other servers, or on them: ``engine.sglang.handovers``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import StalledError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.plan import DiscardedTokens, Outranked, Plan, Retraction
from blis_tui.engine.queue import SCHEDULING, ByPriority, ByTurn, FcfsQueue
from blis_tui.engine.request import COMPLETED, CREATED, RUNNING, WAITING
from blis_tui.engine.rules.rule import BATCHING, Plain
from blis_tui.engine.rules.traits import SGLANG, EngineBehavior
from blis_tui.engine.sglang.handovers import RESERVED_TOKENS, Handovers
from blis_tui.engine.sglang.prefill import PrefillAdder, Priorities, Verdict, computes_only
from blis_tui.engine.sglang.radix_pool import RadixPool, radix_pool
from blis_tui.engine.sglang.radix_tree import RadixTree
from blis_tui.engine.stopped import ADAPTER, MAX_NUM_SEQS, OUTRANKED, PREEMPTED, UNSEEN, Stopped
from blis_tui.model.defaults import CHUNK, MOST_PREFILL_TOKENS, left_out
from blis_tui.model.keys import AUTO
from blis_tui.model.plug_ins import setting, setting_or

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.options.adapters import Adapters
    from blis_tui.engine.queue import WaitingQueue
    from blis_tui.engine.request import Request
    from blis_tui.model import Engine
    from blis_tui.model.plug_ins import NoSettings


_MOST_MATCHED: Final = 128
"""``WAITING_QUEUE_PREFIX_MATCH_MAX``: if more requests wait, no prefixes are looked up."""
_CHECK_THRESHOLD: Final = 32
"""``IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD``: a request with no longer hit is compared with others in the queue."""
_DEPRIORITIZE_THRESHOLD: Final = 32
"""``IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD``: a request waits for another with which it shares as much."""


@SCHEDULING.plugin("lof", "Longest declared output first (SGLang's lof).")
def lof(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """Sort by declared output, then by insertion; a request that comes back goes last."""
    return ByTurn(_by_output, "The request with the longest declared answer goes first")


@SCHEDULING.plugin("lpm", "Longest prefix in the radix tree first (SGLang's lpm; sglang batching only).")
def lpm(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """Sort by the cached prefix, which the batching rule looks up before it computes prompts."""
    return LongestPrefix()


def _by_output(request: Request) -> int:
    return -request.max_output_tokens


class LongestPrefix(FcfsQueue):
    """Serves the longest cached prefix first, as of the latest time prompts were computed.

    A request with a short hit that shares a long prefix with one ahead of it waits for that one, and then hits its
    content.
    """

    @property
    def order(self) -> str:
        """The order as a sentence."""
        return "The request that finds most of its prompt in the cache goes first"

    def arrange(self, known: Sequence[Request], pool: RadixPool) -> bool:
        """Look up all requests and sort the queue; return False, doing nothing, if too many wait.

        Args:
            known: requests that the scheduler has received; all others stay behind them.
            pool: the KV blocks.
        """
        if len(known) > _MOST_MATCHED:
            return False
        beside, keys = RadixTree(), PromptKeys(1)
        places: dict[int, int] = {}
        for request in known:
            tokens = request.target_tokens
            node, blocks = pool.match(request, tokens)
            places[request.index] = -min(blocks * pool.block_size_tokens, tokens - 1)
            blocks -= pool.split_hit(node)[1]  # content that only the host has does not count here
            if blocks * pool.block_size_tokens <= _CHECK_THRESHOLD:
                content = _content(keys, request)
                if beside.length(content) >= _DEPRIORITIZE_THRESHOLD:
                    places[request.index] = 1
                else:
                    beside.insert(content)
        first = sorted(known, key=lambda request: places[request.index])
        rest = [request for index, request in self.items.items() if index not in places]
        self.items = OrderedDict((request.index, request) for request in (*first, *rest))
        return True


def _content(keys: PromptKeys, request: Request) -> tuple[range, ...]:
    """Return the content of a request, token by token."""
    tokens = request.target_tokens
    shared = keys.key_ranges(request.content)
    parts, left = [], tokens
    for part in shared.parts:
        parts.append(part[:left])
        left -= len(parts[-1])
    if left:
        first = keys.own(request, tokens - left)
        parts.append(range(first, first + left))
    return tuple(part for part in parts if part)


class AdapterPlaces:
    """The adapters of one batch while it is formed. The base model counts as one of them.

    A request whose adapter has no slot is skipped, and requests behind it may go first.

    Args:
        adapters: those of the instance.
        requests: running requests as the scheduler knows them, and the request whose chunked prompt continues.
    """

    def __init__(self, adapters: Adapters, requests: Iterable[Request]) -> None:
        self._adapters = adapters
        self._used = {request.adapter: None for request in requests}
        self._passed: Request | None = None

    def has_place(self, request: Request) -> bool:
        """Whether a waiting request may be examined."""
        if request.adapter in self._used or len(self._used) < self._adapters.slots:
            return True
        self._adapters.hold(request)
        if self._passed is None:
            self._passed = request
        return False

    def take(self, request: Request) -> None:
        """Count the adapter of a request that was examined, even if the request is not admitted."""
        self._used[request.adapter] = None

    def tell(self, plan: Plan) -> None:
        """Report why a request was skipped, unless something else ended the plan."""
        if plan.stopped is None and self._passed is not None:
            plan.stopped = Stopped(ADAPTER, request=self._passed)


_INITIAL_RATIO: Final = 0.7
"""``SGLANG_INIT_NEW_TOKEN_RATIO``."""
_LEAST_SHARE: Final = 0.14
"""``SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR``."""
_DECAY_STEPS: Final = 600
"""``SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS``."""
_RETRACT_STEPS: Final = 20
"""``SGLANG_RETRACT_DECODE_STEPS``: a retraction makes room for so many decode steps."""
_MAX_DEPARTED: Final = 64
"""Departed requests whose order is still remembered, at most, in addition to as many as are present."""
_REFRESH_INTERVAL: Final = 32
"""``WAITING_PREFIX_REFRESH_INTERVAL``: after so many prefills, cached prefixes of queued requests count as used."""
_MAX_PREFIX_MATCHES: Final = 128
"""``WAITING_QUEUE_PREFIX_MATCH_MAX``."""
_SPARE_LENGTH: Final = 2
"""SGLang refuses requests that declare more than its context length leaves (``TokenizerManager``), and ends all others
2 tokens before it (``init_req_max_new_tokens``): at ``max_model_len``."""
_PREFILL_WEIGHT: Final = 1000
"""``SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_DEFAULT``: weight of a prefill; a decode weighs 1, and so does no batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSettings:
    """Settings under SGLang's names."""

    version: str = setting("The SGLang version whose scheduler is simulated.", default=SGLANG[0], enum=list(SGLANG))
    chunked_prefill_size: int | None = setting_or(
        "Maximum number of prompt tokens in a step; a prompt that exceeds it is split. none = prompts are never split. "
        + left_out(CHUNK),
        [AUTO, "none"],
        default=8192,
        minimum=1,
        maximum=10**15,
    )
    max_prefill_tokens: int = setting(
        "Number of prompt tokens after which a step takes no further request.",
        default=MOST_PREFILL_TOKENS,
        minimum=1,
        maximum=10**9,
    )
    schedule_conservativeness: float = setting(
        "Factor of the share of their declared answers that running requests are expected to generate, which is 0.7 at"
        " first; what they are expected to need is kept free. Less admits more, and retracts more.",
        default=1.0,
        minimum=0,
        maximum=1000,
    )
    enable_mixed_chunk: bool = setting(
        "Let running requests decode in steps that prefill; off = they wait.", default=False
    )
    overlap_schedule: bool = setting(
        "Plan a step while the previous one runs (off is SGLang's --disable-overlap-schedule).", default=True
    )
    scheduler_recv_interval: int = setting(
        "Decode steps after which the scheduler looks for new requests.", default=1, minimum=1, maximum=10**9
    )
    enable_priority_scheduling: bool = setting(
        "Order the queue by priority (policy.priority) before anything else, and preempt running requests for more"
        " urgent ones when no place is left of max_num_seqs. The scheduler must be fcfs or lof. (Off, `scheduling:"
        " priority-fcfs` is the same without preemption, SGLang's --disable-priority-preemption.)",
        default=False,
    )
    schedule_low_priority_values_first: bool = setting(
        "Smaller priorities are more urgent, as policy.priority has them; off = larger ones are. (SGLang, whose clients"
        " say priorities, has it off by default.)",
        default=True,
    )
    priority_scheduling_preemption_threshold: int = setting(
        "A running request is preempted by those that are more urgent by more than this. (With `priority: slo-class`,"
        " classes are at most 4 apart.)",
        default=10,
        minimum=0,
        maximum=10**15,
    )
    num_reserved_decode_tokens: int | None = setting(
        "Tokens kept free for each answer on an instance that generates answers to prompts computed elsewhere"
        f" (cluster.disaggregation). Default: {RESERVED_TOKENS}.",
        default=None,
        minimum=1,
        maximum=10**9,
    )


class FormedBatch(NamedTuple):
    """A batch that has been formed."""

    plan: Plan
    prefills: tuple[Request, ...]
    """Requests whose prompts it computes, in order."""
    chunked: Request | None
    """The one of them whose prompt continues in a later batch."""
    decodes: bool


@BATCHING.plugin("sglang", "SGLang's scheduler: prompts first, with a radix tree of cached prefixes.", SglangSettings)
class SglangBatching(Plain):
    """Forms steps that either compute prompts or decode. Retracted requests wait again at the end of the queue.

    Attributes:
        ratio: share of their declared output that running requests are expected to generate.
        full: no further request is examined until one leaves.
        running: requests that decode, or will, by index, in SGLang's order.
        chunked: the request whose prompt is computed in chunks; None = there is none.
        before: the batch that was formed last; None = there was none.
        under_way: that batch, if its results are not known yet.
        plans_always: whether each plan can differ from the one before although no request has come or left.
        handovers: prompts that are computed here for other instances, or there for this one; None = there were none.
    """

    def __init__(self, settings: SglangSettings) -> None:
        self._settings = settings
        self._first_ratio = min(_INITIAL_RATIO * settings.schedule_conservativeness, 1.0)
        self._least_ratio = min(self._first_ratio * _LEAST_SHARE, 1.0)
        self._decay = (self._first_ratio - self._least_ratio) / _DECAY_STEPS
        self.ratio = self._first_ratio
        self.full = False
        self.running: dict[int, Request] = {}
        self.chunked: Request | None = None
        self._filled: Stopped | None = None
        self.before: FormedBatch | None = None
        self.under_way: FormedBatch | None = None
        self._computed = 0
        self._turns: dict[int, int] = {}
        self._next_turns: dict[int, int] = {}
        self._turn = 0
        self._refreshes = 0
        self._received_us = 0
        self._requeued = False
        self._weight = settings.scheduler_recv_interval - 1
        sign = _priority_sign(settings)
        self._priorities = Priorities(settings.priority_scheduling_preemption_threshold, sign) if sign else None
        self.handovers: Handovers | None = None
        self.plans_always = self.looks_rarely or sign != 0
        self.traits = EngineBehavior(
            keeps_output=True,
            running_first=False,
            prefills_apart=not settings.enable_mixed_chunk,
            plans_ahead=settings.overlap_schedule,
            busy_until_the_end=True,
            ties_by_name=False,
            cuts_output=True,
            cuts_at_most=_SPARE_LENGTH,
            overtakes=False,
            sizes_pool="static",
            fits_strictly=True,
            asks_for_more="There must be room for its prompt and all that it declares, beside what running requests are"
            " expected to generate yet.",
            victims="the running request that had generated least (of equals, the one with the longest prompt)",
            radix_tree=True,
            adapters="in-step",
            priorities=sign,
            step_tokens=settings.chunked_prefill_size or settings.max_prefill_tokens,
            step_tokens_setting="chunked_prefill_size" if settings.chunked_prefill_size else "max_prefill_tokens",
        )

    # ---- properties of the rule ----

    def prefill_threshold(self, engine: Engine) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return 0: prompts are split by the budget alone."""
        return 0

    def place_of(self, request: Request) -> int:
        """Sort key: the request's position within a batch."""
        return self._turns.get(request.index, 0)

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers from step to step, as plain values (for digests)."""
        chunked = None if self.chunked is None else self.chunked.index
        return (
            *(self.ratio, self.full, list(self.running), chunked, self._computed),
            *(_formed_state(self.before), self.under_way is not None, list(self._turns.items())),
            *(self._refreshes, self._received_us, self._weight),
            *(() if self._priorities is None else self._priorities.state()),
            *((list(self._next_turns.items()),) if self._next_turns else ()),
            *(("requeued",) if self._requeued else ()),
            *(() if self.handovers is None else self.handovers.state()),
        )

    def take_part_in_handovers(self) -> Handovers:
        """Return what the instance knows of prompts computed elsewhere, from the first of them on."""
        if self.handovers is None:
            reserved = self._settings.num_reserved_decode_tokens
            self.handovers = Handovers(RESERVED_TOKENS if reserved is None else reserved)
        return self.handovers

    # ---- planning ----

    def idle(self, *, done: bool) -> None:
        """Forget the latest batch after a period without one.

        ``done``: nobody waited either, and no content was in transfer; only then SGLang counts itself idle, and expects
        as much of answers as at first (``is_fully_idle``).
        """
        if done:
            self.ratio = self._first_ratio
        self.before = None
        self._weight = self._settings.scheduler_recv_interval - 1  # without a step it looks for requests all the time

    def knows_requests(self, batch: Batch) -> bool:
        """Whether any request runs, or waits that the scheduler has received."""
        return bool(batch.running or self._waiting(batch, 1))

    def goes_on(self, batch: Batch) -> bool:
        """Whether the next plan, after one of decodes only, changes nothing unless a request ends or room lacks."""
        before = self.before
        return (
            (self.full or not batch.waiting.items)
            and before is not None
            and not before.prefills
            and self.chunked is None
            and len(self.running) == batch.load.decode_requests  # it knows of all that have joined or left
            and not self._next_turns
            and (self.handovers is None or self.handovers.settled(batch))
            and (len(self._turns) <= _MAX_DEPARTED or len(self._turns) <= _turns_kept(batch))
        )

    def drop(self, ending: Collection[Request], cohort: DecodeCohort) -> bool:
        """Leave out requests that get their last token in the step in flight, if they end by length and others do not.

        Otherwise do nothing, and return False.
        """
        running = self.running
        if len(ending) == len(running):
            return False
        for request in ending:
            if cohort.generated_tokens(request) + 1 < request.max_output_tokens or request.index not in running:
                return False
        for request in ending:
            del running[request.index]
        self.full = False
        return True

    def decay(self, plans: int) -> None:
        """Expect less of answers, as after so many plans of decodes with enough room."""
        ratio, least = self.ratio, self._least_ratio
        while plans and ratio != least:
            ratio = max(ratio - self._decay, least)
            plans -= 1
        self.ratio = ratio

    def plan(self, batch: Batch) -> Plan:
        """Form a batch; if there is none, the plan computes nothing."""
        plan = Plan()
        plan.decodes = False
        if not self.plans_always and self.goes_on(batch):
            plan.stopped = self._filled if self.full else None
            self.before = self._decode(batch, plan)
            if plan.stopped is None and plan.preempted:
                plan.stopped = Stopped(PREEMPTED)
            return plan
        if self._next_turns:
            self._turns.update(self._next_turns)
            self._next_turns = {}
        self._look_for_requests(batch)
        self._process_results(batch)
        self._prune(batch)
        if self.handovers is not None:
            self._let_in_prefilled(self.handovers, batch, plan)
        refused = batch.refused
        self.before = self._prefill(batch, plan) or self._decode(batch, plan)
        if plan.stopped is None and plan.outranked:
            plan.stopped = Stopped(OUTRANKED)
        elif plan.stopped is None and plan.preempted:
            plan.stopped = Stopped(PREEMPTED)
        elif plan.stopped is None and self._settings.scheduler_recv_interval > 1:
            plan.stopped = Stopped(UNSEEN)
        if batch.refused is not refused and batch.refused is not None:
            batch.refused = (batch.refused[0], batch.pool.epoch)
        return plan

    def forget(self, request: Request) -> None:
        """Forget a request that left without a result."""
        self.running.pop(request.index, None)
        self._leave(request)
        if self.chunked is request:
            self.chunked = None
        self.full = False

    @property
    def looks_rarely(self) -> bool:
        """Whether it looks for requests, and for clients that have given up, less often than before each step."""
        return self._settings.scheduler_recv_interval > 1

    def will_look(self) -> bool:
        """Whether the next plan begins with a look for requests."""
        return not self.looks_rarely or self._weight + self._step_weight() >= self._settings.scheduler_recv_interval

    def _step_weight(self) -> int:
        before = self.before
        return _PREFILL_WEIGHT if before is not None and before.prefills else 1

    def _look_for_requests(self, batch: Batch) -> None:
        if self._settings.scheduler_recv_interval <= 1:
            return
        self._weight += self._step_weight()
        if self._weight < self._settings.scheduler_recv_interval:
            return
        if self._requeued:  # requests that it receives now come behind those that were put back before
            queue = batch.waiting
            for request in queue.ordered():
                if request.queued_us > self._received_us:
                    queue.remove(request)
                    queue.push(request)
        self._weight, self._requeued = 0, False
        self._received_us = batch.now

    def _let_in_prefilled(self, handovers: Handovers, batch: Batch, plan: Plan) -> None:
        """Let requests run whose prompts were computed elsewhere, and make room for more of them."""
        stopped = handovers.look(batch, self.running.values())
        entered = handovers.enter(batch, plan, batch.limits.max_num_seqs - len(self.running))
        self.running.update((request.index, request) for request in entered)
        self._note_running(entered)
        if plan.stopped is None:
            plan.stopped = stopped

    def _waiting(self, batch: Batch, count: int | None) -> list[Request]:
        """Return the first requests in the queue that the scheduler has received."""
        if self.handovers is not None:
            return self.handovers.others(batch, count)
        if self._settings.scheduler_recv_interval <= 1:
            return batch.waiting.first(count)
        known = [request for request in batch.waiting.ordered() if request.queued_us <= self._received_us]
        return known[:count]

    def _process_results(self, batch: Batch) -> None:
        """Process the results of the previous batch: its prefills run now, and ended requests leave."""
        pool = radix_pool(batch.pool)
        chunked = self.chunked
        if chunked is not None and chunked.computed_tokens < self._computed:
            chunked.computed_tokens = self._computed
        if chunked is not None:
            pool.checkpoint(chunked, self._computed)
        before = self.before
        if before is not None and before.prefills:
            joining = [
                request
                for request in before.prefills
                if request is not before.chunked
                and request.state is RUNNING
                and (request.handover is None or request.handover.prefilled)
            ]
            if len(joining) < len(before.prefills):
                self.full = False
                self._forget_ended(before)
            if before.decodes or (joining and not self.running):
                self.full = False
            if before.decodes:  # decodes of a mixed batch come after its prefills
                joined = {request.index: request for request in joining}
                self.running = {**joined, **self.running}
            else:
                self.running.update((request.index, request) for request in joining)
        if len(self.running) != len(batch.running) - (chunked is not None):
            for request in [request for request in self.running.values() if request.state is not RUNNING]:
                del self.running[request.index]
                self._leave(request)
                self.full = False
        if not self.running:
            self.full = False

    def _prune(self, batch: Batch) -> None:
        """Occasionally forget the positions of requests that left while a step of them was in flight."""
        if len(self._turns) <= _turns_kept(batch):
            return
        alive = {request.index for requests in (batch.running, batch.finishing) for request in requests.values()}
        self._turns = {index: turn for index, turn in self._turns.items() if index in alive}
        if self._priorities is not None:
            self._priorities.keep(alive, batch.waiting.items)

    def _forget_ended(self, formed: FormedBatch) -> None:
        """Forget the priorities of requests that ended with their first token, so never ran."""
        if self._priorities is not None:
            for request in formed.prefills:
                if request.state in (COMPLETED, CREATED):
                    self._priorities.forget(request)

    def _leave(self, request: Request) -> None:
        self._turns.pop(request.index, None)
        self._next_turns.pop(request.index, None)
        if self._priorities is not None:
            self._priorities.forget(request)

    # ---- prefill ----

    def _prefill(self, batch: Batch, plan: Plan) -> FormedBatch | None:
        """Form a prefill batch, if possible."""
        limit = batch.limits.max_num_seqs
        if self._priorities is not None:
            self.full = False
        if self.chunked is None and self.full:
            plan.stopped = self._filled
            return None
        if self.chunked is None and not (batch.waiting.items and self._waiting(batch, 1)):
            return None
        if self.chunked is None and len(self.running) >= limit and self._priorities is None:
            self._fill(batch, Stopped(MAX_NUM_SEQS, 1))
            plan.stopped = self._filled
            return None
        pool = radix_pool(batch.pool)
        self._sort_queue(batch, pool)
        settings = self._settings
        adder = PrefillAdder(
            pool,
            self.running.values(),
            batch.cohort,
            ratio=self.ratio,
            max_prefill_tokens=settings.max_prefill_tokens,
            chunk=settings.chunked_prefill_size,
            beside=len(self.running) if settings.enable_mixed_chunk else 0,
        )
        chunked = self.chunked
        if chunked is not None and not adder.go_on(chunked):
            self.chunked = None
        self._admit_from_queue(batch, plan, adder)
        if not adder.entries:
            return None
        if adder.chunked is not None:
            self.chunked = adder.chunked
        self._grant(batch, pool, plan, adder)
        mixed = settings.enable_mixed_chunk and bool(self.running) and self._mix_in_decodes(batch, pool, plan)
        prefills = tuple(entry.request for entry in adder.entries)
        self._note_running(prefills)
        if mixed:
            self._note_running(self.running.values())
        return FormedBatch(plan, prefills, self.chunked, mixed)

    def _admit_from_queue(self, batch: Batch, plan: Plan, adder: PrefillAdder) -> None:
        """Take requests from the queue until one is refused."""
        limit, pool = batch.limits.max_num_seqs, batch.pool
        most: int | None = max(0, limit if self._priorities is not None else limit - len(self.running)) + 1
        places = None
        if batch.adapters is not None:
            most, there = None, (entry.request for entry in adder.entries)
            places = AdapterPlaces(batch.adapters, (*self.running.values(), *there))
        for request in self._waiting(batch, most):
            if adder.state() is Verdict.OTHER:
                plan.stopped = adder.stopped
                break
            if places is not None and not places.has_place(request):
                continue
            taken = len(self.running)
            if request.handover is not None and computes_only(request):
                taken = len(batch.running) + len(batch.sending)
            if len(adder.entries) >= limit - taken:
                self._fill(batch, Stopped(MAX_NUM_SEQS, 1))
            if self.full and not self._preempt(batch, plan, request, adder):
                plan.stopped = self._filled
                break
            verdict = adder.add(request, known=request.ignore_eos and not pool.caching)
            if places is not None:
                places.take(request)
            if verdict is Verdict.NO_TOKEN:
                self._fill(batch, adder.stopped)
                self.full = bool(adder.entries or self.running)
                batch.refused = (request.index, pool.epoch)
            if verdict is not Verdict.GO_ON:
                plan.stopped = adder.stopped
                self._note_uncached(request, adder)
                break
        if places is not None:
            places.tell(plan)

    def _preempt(self, batch: Batch, plan: Plan, request: Request, adder: PrefillAdder) -> bool:
        """Preempt running requests that are less urgent than a waiting one; return whether it has a place now."""
        priorities = self._priorities
        if priorities is None:
            return False
        running = self.running
        chosen = priorities.outranked(request, running.values(), adder.total, adder.still_expected)
        for victim in [victim for victim in running.values() if victim.index in chosen]:
            adder.release_expected(victim)
            del running[victim.index]
            plan.outranked += (Outranked(victim, request, priorities.threshold),)
            self._retract_one(batch, plan, victim, request)
            self._evict_for_decode(batch, len(running))
        return bool(chosen)

    def _note_uncached(self, request: Request, adder: PrefillAdder) -> None:
        """Remember the tokens to compute of a request that stays in the queue."""
        if self._priorities is not None and request.state is WAITING:
            self._priorities.refuse(request, adder.rest)

    def _enter(self, batch: Batch, request: Request) -> None:
        if self._priorities is not None and isinstance(batch.waiting, ByPriority):
            self._priorities.admit(request, batch.waiting.turn(request))

    def _fill(self, batch: Batch, stopped: Stopped | None) -> None:
        """Examine no further request until one leaves."""
        self.full = True
        self._filled = None if stopped is None else stopped._replace(tried_us=batch.now)

    def _sort_queue(self, batch: Batch, pool: RadixPool) -> None:
        """Sort the queue, and mark the cached prefixes of its requests as used."""
        queue = batch.waiting
        if isinstance(queue, LongestPrefix) and pool.caching and queue.arrange(self._waiting(batch, None), pool):
            return
        if not pool.caching or not self._waiting(batch, 1):
            return
        self._refreshes += 1
        if self._refreshes % _REFRESH_INTERVAL == 1:
            for request in reversed(self._waiting(batch, _MAX_PREFIX_MATCHES)):
                pool.match(request, request.target_tokens)

    def _grant(self, batch: Batch, pool: RadixPool, plan: Plan, adder: PrefillAdder) -> None:
        """Allocate the blocks for all of a prefill at once."""
        page = pool.block_size_tokens
        pool.start_loading(plan, batch.now)
        tokens = whole_sum([entry.new + (page if page > 1 else 0) for entry in adder.entries])
        pool.make_room(-(-tokens // page))
        for request, computed, new in adder.entries:
            if request.state is RUNNING:
                batch.grant(plan, request, new)
            else:
                self._enter(batch, request)
                batch.admit(plan, request, computed // page, new)
            if request is self.chunked:
                self._computed = computed + new
        if pool.free < 0:
            raise StalledError(
                f"at t={batch.now} us SGLang runs out of memory: the next chunk of a split prompt goes on whatever is"
                f" free, and {-pool.free:,} KV blocks are lacking",
                help="SGLang itself stops here, too; raise `engine.kv_blocks` or `schedule_conservativeness`",
            )

    def _mix_in_decodes(self, batch: Batch, pool: RadixPool, plan: Plan) -> bool:
        """Let running requests decode in a prefill step, if there is room without retracting any."""
        ending = self._ending(batch)
        if self._drop_finishing(batch, ending):
            self.full = False
        if not self.running or not pool.make_room(self._decode_blocks(batch, self.running.values())):
            return False
        if self._priorities is not None:
            for request in self.running.values():
                self._priorities.note_mixed(request, request.input_tokens + batch.cohort.generated_tokens(request))
        self._generate(batch, pool, plan, self._decode_blocks(batch, self.running.values()), ending)
        return True

    def _note_running(self, requests: Iterable[Request]) -> None:
        """Put requests behind all others in batch order.

        Results of a step in flight are still recorded in its own order.
        """
        turns = self._turns if self.under_way is None else self._next_turns
        for request in requests:
            self._turn += 1
            turns[request.index] = self._turn

    # ---- decode ----

    def _decode(self, batch: Batch, plan: Plan) -> FormedBatch | None:
        """Decode one token for each running request, retracting some if there is no room."""
        pool, before = radix_pool(batch.pool), len(self.running)
        if not self.running:
            return None
        ending = self._ending(batch)
        dropped = self._drop_finishing(batch, ending) if ending else ()
        if not self.running:
            self.full = False
            return None
        due = self._next_blocks(batch, dropped)
        fits = pool.make_room(due)
        if not fits and dropped:  # there will be room when the step in flight is over
            self.full = False
            return None
        if fits:
            self.decay(1)
        elif self._retract(batch, pool, plan):
            due = self._decode_blocks(batch, self.running.values())
        else:
            return None
        if len(self.running) < before:
            self.full = False
        self._generate(batch, pool, plan, due, ending)
        return tuple.__new__(FormedBatch, (plan, (), None, True))  # a third of the cost of the constructor

    def _generate(self, batch: Batch, pool: RadixPool, plan: Plan, due: int, ending: Iterable[Request]) -> None:
        """Allocate the ``due`` blocks for one token of each running request, even of one that ends unexpectedly.

        ``ending``: the requests that get their last token in the step in flight.
        """
        if pool.block_size_tokens > 1:
            pool.make_room(len(self.running))
        pool.take(due)
        for request in batch.stalled.values():
            request.held_blocks += request.target_tokens % pool.block_size_tokens == 0
        plan.decodes = True
        for request in ending:
            if request.index in self.running:
                plan.ghosts.append(DiscardedTokens(request, 1, self._committed_tokens(batch, request)))

    def _next_blocks(self, batch: Batch, dropped: Iterable[Request]) -> int:
        """KV blocks that the running requests need for their next tokens.

        ``dropped``: those that were just left out because they get their last token in the step in flight.
        """
        page, cohort = batch.pool.block_size_tokens, batch.cohort
        if page == 1:
            return len(self.running)
        column = (cohort.clock + cohort.ahead) % page
        due = cohort.dues[column] if cohort.dues else 0
        for request in dropped:
            due -= request.joined_clock >= 0 and request.batch_slot in cohort.classes[column]
        for request in () if self.under_way is None else self.under_way.prefills:
            due += request.joined_clock < 0 and request.target_tokens % page == 0 and request.index in self.running
        for request in batch.stalled.values():  # from another instance; none of them is dropped
            due += request.target_tokens % page == 0
        return due

    def _decode_blocks(self, batch: Batch, requests: Collection[Request]) -> int:
        """KV blocks that these requests need for their next tokens."""
        page = batch.pool.block_size_tokens
        if page == 1:
            return len(requests)
        due, clock = 0, batch.cohort.clock + batch.cohort.ahead
        for request in requests:  # as `_committed_tokens`: calling it takes a tenth of a simulation
            joined = request.joined_clock
            due += (request.target_tokens if joined < 0 else request.computed_tokens + clock - joined) % page == 0
        return due

    def _committed_tokens(self, batch: Batch, request: Request) -> int:
        """Number of tokens that have room, including those of the step in flight."""
        if request.joined_clock < 0:
            return request.target_tokens
        return batch.cohort.context_tokens(request) + batch.cohort.ahead

    # ---- requests that end in the step in flight ----

    def _ending(self, batch: Batch) -> list[Request]:
        """Return the requests that get their last token in the step in flight."""
        under_way, cohort = self.under_way, batch.cohort
        if under_way is None:
            return []
        requests = [
            request
            for request in under_way.prefills
            if request is not under_way.chunked
            and request.state is RUNNING
            and request.generated_tokens + 1 >= _wanted(request)
        ]
        if under_way.decodes:
            requests += cohort.calendar.get(cohort.clock + 1, {}).values()
        return requests

    def _drop_finishing(self, batch: Batch, ending: Iterable[Request]) -> list[Request]:
        """Leave out those that end by length in the step in flight, and return them."""
        dropped = [
            request
            for request in ending
            if request.index in self.running and batch.cohort.generated_tokens(request) + 1 >= request.max_output_tokens
        ]
        for request in dropped:
            del self.running[request.index]
        return dropped

    # ---- retraction ----

    def _retract(self, batch: Batch, pool: RadixPool, plan: Plan) -> bool:
        """Retract requests into the queue: those with the fewest generated tokens first, then the longest prompts.

        Returns whether the others can decode now.
        """
        generated = batch.cohort.generated_tokens
        needed, free, before = self._decode_blocks(batch, self.running.values()), pool.free, self.ratio
        before_count = len(self.running)
        kept = sorted(
            self.running.values(), key=lambda request: (generated(request), -request.input_tokens), reverse=True
        )
        room = False
        while not room and len(kept) > 1:
            victim = kept.pop()
            self._retract_one(batch, plan, victim, kept[0])
            self._evict_for_decode(batch, len(kept))
            room = pool.make_room(self._decode_blocks(batch, kept))
        if not room and not pool.make_room(self._decode_blocks(batch, kept)):
            if batch.reserved:  # prompts from elsewhere have the rest; SGLang fails the last request, too
                self._retract_one(batch, plan, kept[0], next(iter(batch.reserved.values())))
                self.running = {}
            return False
        self.running = {request.index: request for request in kept}
        self._note_running(kept)
        decoded = whole_sum([generated(request) for request in kept])
        declared = whole_sum([request.max_output_tokens for request in kept])
        self.ratio = min(1.0, (decoded + _RETRACT_STEPS * len(kept)) / (declared + 1))
        plan.retraction = Retraction(before_count - len(kept), len(kept), needed, free, before, self.ratio)
        return True

    def _evict_for_decode(self, batch: Batch, requests: int) -> None:
        """Evict until there is room for the next tokens of ``requests`` requests, if possible."""
        pool = radix_pool(batch.pool)
        pool.make_room(-(-_RETRACT_STEPS * requests // pool.block_size_tokens))

    def _retract_one(self, batch: Batch, plan: Plan, victim: Request, beneficiary: Request) -> None:
        """Retract one request; a token generated for it in the step in flight is lost, too."""
        if self._priorities is not None:
            self._priorities.put_back(victim)
        self._requeued = self._settings.scheduler_recv_interval > 1
        under_way = self.under_way
        if victim.joined_clock >= 0:
            if under_way is not None and under_way.decodes:
                under_way.plan.ghosts.append(DiscardedTokens(victim, 1, batch.cohort.context_tokens(victim)))
            batch.cohort.leave(victim)
        self._turns.pop(victim.index, None)
        batch.retract(plan, victim, beneficiary)


def _priority_sign(settings: SglangSettings) -> int:
    """Sign of priorities: 1 = the smallest goes first, -1 = the largest; 0 = priorities are not used."""
    if not settings.enable_priority_scheduling:
        return 0
    return 1 if settings.schedule_low_priority_values_first else -1


def _turns_kept(batch: Batch) -> int:
    """Up to so many positions are remembered."""
    return 2 * (len(batch.running) + len(batch.finishing)) + _MAX_DEPARTED


def _wanted(request: Request) -> int:
    return min(request.output_tokens, request.max_output_tokens)


def _formed_state(formed: FormedBatch | None) -> object:
    if formed is None:
        return None
    prefills: Sequence[int] = [request.index for request in formed.prefills]
    return (prefills, formed.chunked and formed.chunked.index, formed.decodes)
