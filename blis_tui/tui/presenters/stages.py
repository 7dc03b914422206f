"""The display of an instance's lifecycle stages."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.classes import dataclass
from blis_tui.cluster.life import DRAINING, FAILED, LOADING, SCHEDULING, TERMINATED, WARMING
from blis_tui.tui.presenters.lines import fact
from blis_tui.units import count_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.snapshot import InstanceSnapshot


@dataclass(frozen=True, slots=True)
class Stage:
    """The display of an instance that is not active."""

    sign: str
    word: str
    style: str


STAGES: Final[Mapping[str, Stage]] = MappingProxyType(
    {
        SCHEDULING: Stage("◌", "waiting for a node", "$accent"),
        LOADING: Stage("◔", "loading", "$accent"),
        WARMING: Stage("◑", "warming up", "$success"),
        DRAINING: Stage("↓", "draining", "$warning"),
        FAILED: Stage("✕", "failed", "$error"),
        TERMINATED: Stage("-", "gone", "$text-muted"),
    }
)
"""Shown instead of the bar for every stage other than active."""


def stage_of(one: InstanceSnapshot) -> list[Content]:
    """Return the stage of an instance that is not active."""
    stage = STAGES.get(one.life)
    return [] if stage is None else [Content.styled(f"{stage.sign} {stage.word}", stage.style)]


def name_of(one: InstanceSnapshot) -> str:
    """Return an instance's name."""
    rank = one.rank
    return f"instance {one.index}" + ("" if rank is None else f" (rank {rank.rank} of replica {rank.replica})")


def rank_of(one: InstanceSnapshot) -> list[Content]:
    """Return how often a rank ran dummy batches, and how long it waited for other ranks of its replica."""
    rank = one.rank
    if rank is None or not rank.steps:
        return []
    dummies, waited = percent_text(rank.dummy_batches, rank.steps), percent_text(rank.waited_us, one.busy_us)
    return [fact("dummy batches", dummies), fact("waited for ranks", waited)]


def running_of(instance: InstanceSnapshot) -> str:
    """Return the number of running requests and its maximum."""
    most = instance.profile.max_running
    running = count_text(instance.running_count)
    return running if most is None else f"{running} of {count_text(most)}"
