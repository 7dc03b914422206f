"""KV blocks and decodes of an instance whose model has layers with a sliding window, or with a state.

Each request has a table of blocks in each group of layers. In groups with a window it gives back blocks as soon as no
further token attends to them; in groups with a state it has one block as long as it has any. The rest of the cache is
as in ``BlockPool``. There, what is left of a prompt is always its head, which is why that pool counts most blocks
without listing them. Here it is not, so each block is listed.

Source: vLLM 0.32.0, ``v1/core/single_type_kv_cache_manager.py`` and ``v1/core/kv_cache_coordinator.py``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.kv.pool import BlockPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.engine.kv.capacity import KvGroups
    from blis_tui.engine.kv.keys import PromptKeys
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.request import Request, Segments


_GONE: Final = -1
"""In a table: a block that was given back, because the window has passed it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Tables(Picklable):
    """The blocks of one request.

    Attributes:
        rows: for each group without a state, the blocks in the order of the tokens.
        states: for each group with a state, its block.
        cached: number of leading blocks whose content is recorded.
        passed: number of leading blocks that were given back in groups with a window.
        left: what was given back there: group, position and block.
    """

    def __init__(self, groups: int) -> None:
        self.rows: list[list[int]] = [[] for _ in range(groups)]
        self.states: list[int] = []
        self.cached = self.passed = 0
        self.left: list[tuple[int, int, int]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupedPool(BlockPool):
    """All KV blocks of one instance.

    With groups with a state, nothing can be found again: ``caching`` must be off, as with ``mamba_cache_mode: none``.

    Args:
        total: blocks in the pool.
        block_size_tokens: tokens per block.
        prompts: the keys of prompts.
        groups: the groups of layers. Those with a window come first, those with a state last.
        window_blocks: the most blocks that a request holds in a group with a window.
        caching: whether computed blocks can be found again (``enable_prefix_caching``).
        ahead: whether a step is planned while the previous one is in flight.

    Attributes:
        groups: the groups of layers.
        window_blocks: the most blocks that a request holds in a group with a window.
    """

    served_in_order: ClassVar[bool] = True

    def __init__(
        self,
        total: int,
        block_size_tokens: int,
        prompts: PromptKeys,
        groups: KvGroups,
        window_blocks: int,
        *,
        caching: bool,
        ahead: bool,
    ) -> None:
        super().__init__(total, block_size_tokens, prompts, caching=caching, as_vllm=True)
        if groups.states and caching:
            raise SimulationError("states of layers are not kept in the prefix cache")
        self.groups = groups
        self.window_blocks = window_blocks
        self._windows = [groups.window] * groups.windowed + [0] * groups.full
        self._ahead = ahead
        self._blanks: list[int] = []
        """Free blocks without content. The last is taken first, before any other."""
        self._queue: OrderedDict[int, None] = OrderedDict()
        """Free blocks with content, in the order in which they are taken: after those that were never used."""
        self._references: list[int] = []
        """Number of requests that hold each block that was ever used."""
        self._content: list[int] = []
        """Key of the content of each of these; 0 = none that could be found."""
        self._group: list[int] = []
        """Group that each of these was last taken for."""
        self._blocks_of_key: list[dict[int, list[int]]] = [{} for _ in self._windows]
        """For each group: key -> blocks with this content, the one that was computed first at the front."""
        self._tables: dict[int, Tables] = {}
        """The blocks of each request, by its index."""
        self._granted: dict[int, int] = {}
        """Index of each request in the step being planned -> its computed tokens before that step."""
        self._in_flight: dict[int, int] = {}
        """The same of the step in flight; of steady decodes only where it was needed."""
        self._flies = False
        self._just_ended: tuple[int, list[int]] = (-1, [])
        """When the latest step ends, and the blocks given up by requests that end in it."""

    # ---- what a request could find ----

    def cached_prefix(self, request: Request, limit_blocks: int) -> int:
        """Number of leading blocks of the prompt, at most ``limit_blocks``, that need not be computed.

        Every group without a window must have all of them, and one with a window those in the window.
        """
        if not self.caching:
            return 0
        keys = self._keys(request, limit_blocks)
        hit = len(keys)
        for index in self._blocks_of_key[self.groups.windowed :]:
            hit = next((at for at in range(hit) if keys[at] not in index), hit)
        need = -(-(self.groups.window - 1) // self.block_size_tokens)
        windowed = self._blocks_of_key[: self.groups.windowed]
        run = 0
        for at in range(hit - 1, -1, -1):
            key = keys[at]
            if all(key in index for index in windowed):
                run += 1
                if run >= need:
                    return at + run
            else:
                run = 0
        return run

    def _keys(self, request: Request, limit_blocks: int) -> Sequence[int]:
        """Keys of leading blocks that may be in the cache; only a preempted request has left content of its own."""
        keys = self.prompts.shareable(request.content)
        if limit_blocks <= len(keys):
            return keys[:limit_blocks]
        if not request.preemptions:
            return keys
        return [*keys, *(self.prompts.own(request, block) for block in range(len(keys), limit_blocks))]

    def _passed(self, tokens: int) -> int:
        """Number of leading blocks that no token after the first ``tokens`` attends to, in groups with a window."""
        return max(0, tokens - self.groups.window + 1) // self.block_size_tokens

    def entry_blocks(self, request: Request, cached: int, slots: int, whole: int) -> int:
        """Number of free blocks needed to admit a request; see ``BlockPool``."""
        size, passed = self.block_size_tokens, self._passed(cached * self.block_size_tokens)
        keys = self._keys(request, cached)
        idle = 0
        blocks = most = self.groups.states
        for index, window in zip(self._blocks_of_key, self._windows, strict=True):
            skipped = passed if window else 0
            for key in keys[skipped:]:
                idle += not self._references[index[key][0]]
            need = -(-whole // size)
            most += max(0, (min(need, self.window_blocks) if window else need) - max(skipped, cached))
            blocks += max(0, -(-slots // size) - max(skipped, cached))
        return idle + max(blocks, most)

    def pin(self, request: Request, blocks: int) -> None:
        """Give ``request`` (which holds nothing) the first ``blocks`` cached blocks of its prompt, at least one."""
        tables = self._tables[request.index] = Tables(len(self._windows))
        passed, keys = self._passed(blocks * self.block_size_tokens), self._keys(request, blocks)
        shareable = self.prompts.key_ranges(request.content).blocks
        for row, index, window in zip(tables.rows, self._blocks_of_key, self._windows, strict=True):
            skipped = passed if window else 0
            row.extend([_GONE] * skipped)
            for at, key in enumerate(keys[skipped:], skipped):
                block = index[key][0]
                if not self._references[block]:
                    del self._queue[block]
                    self.free -= 1
                self._references[block] += 1
                row.append(block)
                request.held_blocks += 1
                request.shared_blocks += at < shareable
        tables.cached, tables.passed = blocks, passed
        self.hits += blocks * len(self._windows)
        self.min_free = min(self.min_free, self.free)

    # ---- blocks of running requests ----

    def tokens_held(self, blocks: int, requests: int) -> int:
        """Estimate the number of tokens for which ``requests`` requests hold these blocks together."""
        return self.groups.tokens_held(blocks, requests, self.block_size_tokens)

    def most_blocks(self, tokens: int) -> int:
        """Maximum number of blocks that a request of this length holds at the same time."""
        return self.groups.blocks_for(tokens, self.block_size_tokens, self.window_blocks)

    def most_tokens(self) -> int:
        """Length of the longest request that the pool has room for."""
        return self.groups.tokens_in(self.total, self.block_size_tokens, self.window_blocks)

    def missing(self, request: Request, computed_tokens: int) -> int:
        """Number of blocks to take before ``request`` can hold ``computed_tokens`` tokens."""
        blocks, tables = -(-computed_tokens // self.block_size_tokens), self._tables.get(request.index)
        if tables is None:
            return len(self._windows) * blocks + (self.groups.states if blocks else 0)
        return len(self._windows) * max(0, blocks - len(tables.rows[0]))

    def slide(self, request: Request) -> None:
        """Take back the blocks that no further token of a running request attends to."""
        tables = self._tables.get(request.index)
        if tables is not None:
            passed = self._passed(self._in_flight.get(request.index, request.computed_tokens))
            if passed > tables.passed:
                self._slide(request, tables, passed)

    def _slide(self, request: Request, tables: Tables, passed: int) -> None:
        """Take back those of the first ``passed`` blocks that a request still holds in groups with a window."""
        tables.passed = passed
        shareable = self.prompts.key_ranges(request.content).blocks if self.caching else 0
        rows, left = tables.rows, tables.left
        for group in range(self.groups.windowed):
            row, gone = rows[group], []
            at = min(passed, len(row)) - 1
            while at >= 0 and (block := row[at]) != _GONE:
                gone.append(block)
                left.append((group, at, block))
                row[at] = _GONE
                if at < shareable:
                    request.shared_blocks -= 1
                at -= 1
            if gone:
                request.held_blocks -= len(gone)
                self.epoch += 1
                self._give_back(gone)

    def extend(self, request: Request, computed_tokens: int) -> None:
        """Allocate blocks for ``computed_tokens`` tokens; what becomes full becomes findable."""
        self._extend(request, request.computed_tokens, computed_tokens)

    def _extend(self, request: Request, before: int, computed_tokens: int) -> None:
        """Do what ``extend`` does; ``before``: the request's computed tokens, those of the step in flight included."""
        tables = self._tables.get(request.index)
        if tables is None:
            tables = self._tables[request.index] = Tables(len(self._windows))
        processed, size, rows = self._in_flight.get(request.index, -1), self.block_size_tokens, tables.rows
        passed = ((before if processed < 0 else processed) - self.groups.window + 1) // size  # (as in `_passed`)
        if passed > tables.passed:
            self._slide(request, tables, passed)
        need = -(-computed_tokens // size) - len(rows[0])
        if need > 0:
            for group, row in enumerate(rows):
                self._take(group, need, row)
            request.held_blocks += need * len(rows)
        if self.groups.states and not tables.states and rows[0]:
            for group in range(self.groups.states):
                self._take(len(self._windows) + group, 1, tables.states)
            request.held_blocks += len(tables.states)
        known = computed_tokens
        if before >= request.target_tokens:  # a decode: its input is the latest token, which may not be known yet
            known = before if processed >= 0 else before + 1
        if self.caching and known // size > tables.cached:
            self._record(request, tables, known // size, None)
        if self._ahead:
            self._granted[request.index] = before

    def decode(self, request: Request, context_tokens: int, *, steady: bool) -> None:
        """Give a decoding request with so many computed tokens the slot of its next one.

        ``steady``: it has decoded in each of the latest steps, the one in flight included.
        """
        if steady and self._ahead:
            self._in_flight[request.index] = context_tokens - 1
        self._extend(request, context_tokens, context_tokens + 1)

    @property
    def runs_on(self) -> bool:
        """Whether the step before the one being planned has just ended, or is in flight if steps are planned ahead."""
        return self._flies or not self._ahead

    def note_in_flight(self, request: Request, context_tokens: int) -> None:
        """Note that the step in flight computes the last of a request's so many computed tokens."""
        if self._ahead and self._flies:
            self._in_flight.setdefault(request.index, context_tokens - 1)

    def due_offsets(self) -> tuple[int, ...]:
        """By how much the computed tokens of a steady decode exceed whole blocks when a step changes its blocks."""
        size, lag = self.block_size_tokens, int(self._ahead)
        passing = (self.groups.window - 1 + lag) % size
        return tuple(dict.fromkeys((0, passing) if self._ahead else (0, size - 1, passing)))

    def _take(self, group: int, count: int, row: list[int]) -> None:
        """Append blocks to a row, in free order, and forget their content."""
        blanks, references, groups, content = self._blanks, self._references, self._group, self._content
        queue, blocks_of_key, total = self._queue, self._blocks_of_key, self.total
        for _ in range(count):
            if blanks:
                block = blanks.pop()
            elif len(references) < total:
                block = len(references)
                references.append(0)
                content.append(0)
                groups.append(group)
            else:
                block, _ = queue.popitem(last=False)
                key = content[block]
                content[block] = 0
                if key in (index := blocks_of_key[groups[block]]):
                    self._forget(block, key, index)
            references[block] = 1
            groups[block] = group
            row.append(block)
        self.misses += count
        self.free -= count
        if self.free < self.min_free:
            self.min_free = self.free

    def _forget(self, block: int, key: int, index: dict[int, list[int]]) -> None:
        """Let nobody find a block any more by this key of its group."""
        same = index[key]
        if block in same:
            same.remove(block)
            if not same:  # who finds less of its prompt now may need fewer blocks to begin with
                del index[key]
                self.epoch += 1

    def _record(self, request: Request, tables: Tables, blocks: int, end: int | None) -> None:
        """Note the content of a request's first ``blocks`` blocks, and make findable what others could ask for.

        ``end``: see ``BlockPool.release``.
        """
        start = tables.cached
        if not self.caching or blocks <= start:
            return
        tables.cached = blocks
        content, keys = self._content, self.prompts.key_ranges(request.content)
        shared = max(start, min(blocks, keys.blocks))
        if start < shared:
            named = self.prompts.shareable(request.content)[start:shared]
            for at, key in enumerate(named, start):
                same: list[int] = []
                for index, row in zip(self._blocks_of_key, tables.rows, strict=True):
                    if (block := row[at]) != _GONE:
                        content[block] = key
                        request.shared_blocks += 1
                        same = index.setdefault(key, [])
                        same.append(block)
                self._published(range(key, key + 1), int(len(same) == 1), end)
        if shared < blocks:
            first = self.prompts.own(request, shared)
            for row in tables.rows:
                for key, block in enumerate(row[shared:blocks], first):
                    if block != _GONE:
                        content[block] = key

    def _make_own_findable(self, request: Request, tables: Tables) -> None:
        """Make findable what nobody but the request itself will ask for: it is preempted, and may come back."""
        shared = self.prompts.key_ranges(request.content).blocks
        places = [(group, at, block) for group, row in enumerate(tables.rows) for at, block in enumerate(row)]
        for group, at, block in (*tables.left, *places):
            key = self.prompts.own(request, at)
            if at >= shared and block != _GONE and self._content[block] == key:
                same = self._blocks_of_key[group].setdefault(key, [])
                if block not in same:
                    same.append(block)

    def _give_back(self, blocks: Iterable[int]) -> None:
        """Give up blocks: those without content are taken first, the others last, in this order."""
        references, content, queue = self._references, self._content, self._queue
        first, free = [], 0
        for block in blocks:
            left = references[block] = references[block] - 1
            if left:
                continue
            free += 1
            if content[block]:
                queue[block] = None
            else:
                first.append(block)
        self.free += free
        if first:
            first.reverse()
            self._blanks += first

    def release(
        self,
        request: Request,
        content_tokens: int,
        *,
        findable: bool = False,
        end: int | None = None,
        aborted_us: int | None = None,
    ) -> None:
        """Take back all blocks of ``request``, last block first; see ``BlockPool``."""
        self.epoch += 1
        self._in_flight.pop(request.index, None)
        self._granted.pop(request.index, None)
        tables = self._tables.pop(request.index, None)
        if tables is None:
            return
        self._record(request, tables, content_tokens // self.block_size_tokens, end)
        if findable and self.caching:
            self._make_own_findable(request, tables)
        request.held_blocks = request.shared_blocks = 0
        gone = [[block for block in reversed(row) if block != _GONE] for row in (*tables.rows, tables.states)]
        for blocks in gone:
            self._give_back(blocks)
        if not self.has_deadlines:
            return
        step_end, ended = self._just_ended
        if end is not None and end >= 0:
            held = [block for blocks in gone for block in blocks]
            self._just_ended = (end, [*(ended if step_end == end else ()), *held])
        elif aborted_us is not None and aborted_us < step_end:
            for block in ended:
                if block in self._queue:
                    self._queue.move_to_end(block)

    # ---- steps ----

    def planned(self) -> None:
        """Note that a step was planned while another one is in flight: the next plan sees it in flight."""
        super().planned()
        self._in_flight, self._granted = self._granted, {}
        self._flies = True

    def computed(self, now: int, end: int) -> None:
        """Record that content findable since the last call is computed at ``end``; -1 = nothing is in flight."""
        super().computed(now, end)
        if end < 0:
            self._in_flight = {}
            self._flies = False

    def reset(self) -> None:
        """Drop the content of all blocks, which must all be free."""
        super().reset()
        self._queue.clear()
        self._blanks, self._references, self._content, self._group = [], [], [], []
        self._blocks_of_key = [{} for _ in self._windows]
        self._in_flight, self._granted = {}, {}
        self._flies = False

    # ---- what others see ----

    def visible_head(self, segments: Segments, now: int) -> int:
        """Number of leading blocks of these segments that others see cached, which they do after the computing step."""
        index, count = self._blocks_of_key[-1], 0
        parts = self.prompts.key_ranges(segments).parts
        for keys in parts:
            head = next((at for at, key in enumerate(keys) if key not in index), len(keys))
            count += head
            if head < len(keys):
                break
        return (
            self.pending_blocks.visible_count(parts, count, now) if count and self.pending_blocks is not None else count
        )

    def visible_keys(self, now: int) -> frozenset[int]:
        """Return the keys of all blocks that others see in the cache."""
        unseen = self.pending_blocks
        keys = [range(key, key + 1) for key in self._blocks_of_key[-1]]
        return frozenset(key for group in keys for key in (unseen.seen(group, now) if unseen is not None else group))

    def cached_free(self) -> int:
        """Number of free blocks whose content can still be found."""
        return len([block for block in self._queue if self._content[block] in self._blocks_of_key[self._group[block]]])

    def common_blocks(self, request: Request, other: Request) -> int:
        """Number of blocks that both hold, in all groups together."""
        tables = [self._tables.get(each.index) for each in (request, other)]
        if tables[0] is None or tables[1] is None:
            return 0
        own, its = ({block for row in each.rows for block in row} - {_GONE} for each in tables if each is not None)
        return len(own & its)

    def shared_prefix_blocks(self, request: Request) -> int:
        """Number of its leading blocks that others hold, too; they stay in the cache if it gives up its own."""
        tables = self._tables.get(request.index)
        row = [] if tables is None else tables.rows[-1]
        return next((at for at, block in enumerate(row) if block == _GONE or self._references[block] < 2), len(row))

    def state(self) -> tuple[object, ...]:
        """Return everything that determines the pool's future, as plain values (for digests and invariants)."""
        tables = [
            (
                index,
                table.cached,
                [*table.left],
                [[*row] for row in table.rows],
                *([[*table.states]] if table.states else ()),
            )
            for index, table in self._tables.items()
        ]
        flights = (self._flies, [*self._in_flight.items()], [*self._granted.items()], self._just_ended)
        figures = (self.free, self.hits, self.misses, self.min_free)
        order = (*self._blanks, -1, *self._queue)
        blocks = (tuple(self._content), tuple(self._references), tuple(self._group))
        return (*figures, order, blocks, tables, flights)

    def audit(self, holders: Sequence[tuple[Request, int]]) -> str:
        """Check the books against the holders and their block counts; return what is wrong, or an empty string."""
        free = self.total - len(self._references) + len(self._blanks) + len(self._queue)
        if free != self.free:
            return f"{self.free} blocks are said to be free, {free} stand in the free order"
        held: dict[int, int] = {}
        for request, count in holders:
            tables = self._tables.get(request.index)
            blocks = [] if tables is None else [block for row in tables.rows for block in row if block != _GONE]
            if tables is not None:
                if tables.rows[0] and len(tables.states) != self.groups.states:
                    return f"request {request.request_id} has {len(tables.states)} blocks of states"
                blocks += tables.states
            if len(blocks) != count:
                return f"request {request.request_id} is said to hold {count} blocks, its tables have {len(blocks)}"
            shared = self._shared(request, blocks)
            if shared != request.shared_blocks:
                return f"request {request.request_id} is said to share {request.shared_blocks} blocks, not {shared}"
            for block in blocks:
                held[block] = held.get(block, 0) + 1
        for block, references in held.items():
            if self._references[block] != references or block in self._queue:
                return f"block {block} counts {self._references[block]} references, {references} are held"
        if len(held) + self.free != self.total:
            return f"{len(held)} held + {self.free} free blocks are not {self.total}"
        return ""

    def _shared(self, request: Request, blocks: Sequence[int]) -> int:
        """Number of these blocks that others can find."""
        shareable = dict.fromkeys(self.prompts.shareable(request.content))
        return len([block for block in blocks if self._content[block] in shareable])

    def take(self, count: int) -> None:
        """Do not take blocks without a request: each belongs to a group.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(f"{count} blocks cannot be taken without a request, as they belong to groups of layers")


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupedCohort(DecodeCohort):
    """The decoding requests of an instance with a ``GroupedPool``, advanced together.

    Their progress is derived as in ``DecodeCohort``. An advance goes through those whose tables of blocks change: they
    need a block, fill one, or their window passes one. All of that depends on how far their context is into a block,
    except soon after they have joined.

    Args:
        load: the step load whose decode aggregates this cohort keeps.
        pool: the blocks.
    """

    lockstep: ClassVar[bool] = False

    def __init__(self, load: StepLoad, pool: GroupedPool) -> None:
        super().__init__(load, pool.block_size_tokens)
        self._pool = pool
        self._offsets = pool.due_offsets()
        self._fresh: dict[int, Request] = {}
        """Members that have joined since the latest advance was planned, by batch slot."""
        self._recent: dict[int, Request] = {}
        """Those for whom the latest planned advance is the first."""

    def join(self, request: Request, last_token_us: int) -> None:
        """Add a request that is not finished; see ``DecodeCohort``."""
        super().join(request, last_token_us)
        self._fresh[request.batch_slot] = request

    def retire(self, request: Request) -> None:
        """Remove a member that the calendar no longer lists; see ``DecodeCohort``."""
        held, slot = request.held_blocks, request.batch_slot
        super().retire(request)
        request.held_blocks = held
        if self._fresh.pop(slot, None) is None and self._recent.pop(slot, None) is None:
            self._pool.note_in_flight(request, request.computed_tokens)

    def next_needs(self, threshold: int) -> tuple[int, int]:
        """Return the tokens and KV blocks that the next advance of all members needs."""
        decodes, blocks = super().next_needs(threshold)
        return decodes, blocks * self._pool.groups.count

    def take(self, pool: BlockPool, blocks: int) -> None:  # noqa: ARG002  (each member has its own)
        """Give each member the slot of its next token, in the order of their admission."""
        grouped, clock, size = self._pool, self.clock, self.block_size_tokens
        lately = {**self._recent, **self._fresh}
        due = dict(lately)
        if not self.load.decode_requests:
            pass  # there may be no classes yet
        elif grouped.runs_on:
            for offset in self._offsets:
                due.update(self.classes[(clock - offset) % size])
        else:
            for members in self.classes:
                due.update(members)
        for slot in sorted(due):
            request = due[slot]
            grouped.decode(request, self.context_tokens(request), steady=grouped.runs_on and slot not in lately)
        self._recent, self._fresh = self._fresh, {}

    def held_blocks(self, request: Request) -> int:
        """Number of KV blocks that a request holds, member or not."""
        return request.held_blocks


def grouped_cohort(load: StepLoad, pool: BlockPool) -> GroupedCohort:
    """Create the cohort of an instance with these blocks.

    Raises:
        TypeError: they belong to no groups of layers.
    """
    if not isinstance(pool, GroupedPool):
        raise TypeError(f"{pool!r} has no groups of layers")
    return GroupedCohort(load, pool)
