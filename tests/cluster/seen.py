"""Instances as a policy sees them, with figures of our choice: for tests that follow a decision by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

from blis_tui.base.streams import Streams
from blis_tui.cluster.signals import CacheView, Context, Fleet, IncomingRequest, SignalBoard
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.records import Observers
from blis_tui.model import SLO_PRIORITIES, Signals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Segments

BLOCK = 4
"""Tokens of a block."""


class Seen(NamedTuple):
    """What an instance reports."""

    waiting: int = 0
    running: int = 0
    in_flight: int = 0
    kv_used: int = 0
    """Of 100 blocks."""
    cached: tuple[Segments, ...] = ()
    """Heads of prompts that are in its prefix cache."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters on its accelerators."""


def fleet(*instances: Seen) -> Fleet:
    """Instances that report that."""
    prompts = PromptKeys(BLOCK)
    board = SignalBoard(Signals())
    pool = SimpleNamespace(prompts=prompts, block_size_tokens=BLOCK, hits=0, misses=0)
    for index, instance in enumerate(instances):
        board.waiting.append(instance.waiting)
        board.running.append(instance.running)
        board.in_flight.append(instance.in_flight)
        board._kv_used.append(instance.kv_used)
        board.kv_total.append(100)
        board._views.append(
            CacheView(
                board,
                cast("Instance", SimpleNamespace(index=index, pool=pool)),
                frozenset(key for head in instance.cached for key in prompts.shareable(head)),
                frozenset(instance.adapters),
            )
        )
    return Fleet(board, range(len(instances)), prompts)


def incoming(
    tokens: int = 10,
    segments: Segments = (),
    *,
    slo_class: str = "standard",
    session: str = "",
    adapter: str = "",
) -> IncomingRequest:
    """A request as its client declares it."""
    return IncomingRequest("r", 0, tokens, 1, segments, slo_class, "", session, 0, "", adapter)


def context(now_us: int = 0, priorities: Mapping[str, int] = SLO_PRIORITIES) -> Context:
    """What else a decision may depend on."""
    made = Context(Streams(1).stream("policy/test"), priorities, Observers())
    made.now_us = now_us
    return made
