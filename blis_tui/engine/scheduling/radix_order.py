"""SGLang's queue orders other than the order of arrival.

Source: SGLang 0.5.23, ``managers/schedule_policy.py`` (``SchedulePolicy``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from blis_tui.engine.kv.prompt_keys import PromptKeys
from blis_tui.engine.kv.radix_tree import RadixTree
from blis_tui.engine.scheduling.queue import SCHEDULING, ByTurn, FcfsQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.kv.radix_pool import RadixPool
    from blis_tui.engine.request import Request
    from blis_tui.engine.scheduling.queue import WaitingQueue
    from blis_tui.registry import NoSettings

_MOST_MATCHED: Final = 128
"""``WAITING_QUEUE_PREFIX_MATCH_MAX``: if more requests wait, no prefixes are looked up."""
_CHECK_THRESHOLD: Final = 32
"""``IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD``: a request with no longer hit is compared with others in the queue."""
_DEPRIORITIZE_THRESHOLD: Final = 32
"""``IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD``: a request waits for another with which it shares as much."""


@SCHEDULING.plugin("lof", "Longest declared output first (SGLang's lof).")
def lof(settings: NoSettings) -> WaitingQueue:
    """Sort by declared output, then by insertion; a request that comes back goes last."""
    del settings
    return ByTurn(_by_output, "The request with the longest declared answer goes first")


@SCHEDULING.plugin("lpm", "Longest prefix in the radix tree first (SGLang's lpm; sglang batching only).")
def lpm(settings: NoSettings) -> WaitingQueue:
    """Sort by the cached prefix, which the batching rule looks up before it computes prompts."""
    del settings
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

    __slots__ = ()

    def arrange(self, known: Sequence[Request], pool: RadixPool) -> bool:
        """Look up all requests and sort the queue; return False, doing nothing, if too many wait.

        Args:
            known: requests that the scheduler has received; all others stay behind them.
            pool: the KV blocks.
        """
        if len(known) > _MOST_MATCHED:
            return False
        beside, keys = RadixTree(), PromptKeys(1)
        found: dict[int, int] = {}
        for request in known:
            tokens = request.target_tokens
            node, blocks = pool.match(request, tokens)
            found[request.index] = -min(blocks * pool.block_size_tokens, tokens - 1)
            blocks -= pool.split_hit(node)[1]  # content that only the host has does not count here
            if blocks * pool.block_size_tokens <= _CHECK_THRESHOLD:
                content = _content(keys, request)
                if beside.length(content) >= _DEPRIORITIZE_THRESHOLD:
                    found[request.index] = 1
                else:
                    beside.insert(content)
        first = sorted(known, key=lambda one: found[one.index])
        rest = [one for index, one in self.items.items() if index not in found]
        self.items = OrderedDict((one.index, one) for one in (*first, *rest))
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
