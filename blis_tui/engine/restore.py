"""How a victim comes back: whether its KV blocks are swapped or recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import ValidatedPlugin, is_internal_class
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.model.plug_ins import NoSettings


class Costs(NamedTuple):
    """Estimated costs of swapping and recomputing a victim when it is preempted, in microseconds."""

    swap_us: int
    """Time to move its KV blocks to the host and back."""
    recompute_us: int
    """Extra time of the steps that recompute it."""


class RestoreRule(Protocol):
    """Decides how each victim comes back."""

    rule: str
    """What happens to a victim, as a sentence without a full stop."""
    uses_host: bool
    """Whether it ever swaps."""

    def swaps(self, costs: Costs) -> bool:
        """Whether a victim's KV blocks are moved to the host (if they fit there)."""


RESTORE: Final = PlugPoint[[], RestoreRule]("policy.preemption.restore", "preemption restore", RestoreRule)


class _ValidatedRule(ValidatedPlugin):
    """A plug-in's rule, whose answers are checked; ``kind`` is its name in documents."""

    def __init__(self, plugged: RestoreRule, kind: str) -> None:
        super().__init__(plugged)
        self._restore = plugged
        self._kind = kind
        self.rule = plugged.rule
        self.uses_host = plugged.uses_host

    def swaps(self, costs: Costs) -> bool:
        """Return the plug-in's answer.

        Raises:
            SimulationError: it is not a truth value.
        """
        says: Callable[..., object] = self._restore.swaps
        answer = says(costs)
        if answer in (True, False):  # so are NumPy's
            return bool(answer)
        message = f"the preemption restore `{self._kind}` answers {answer!r}"
        raise SimulationError(message, help="`swaps` returns whether a victim's KV blocks are moved to the host")


def validated_rule(rule: RestoreRule, kind: str) -> RestoreRule:
    """Return the rule; that of a plug-in is wrapped so that its answers are checked."""
    return rule if is_internal_class(type(rule)) else _ValidatedRule(rule, kind)


@RESTORE.plugin("recompute", "The victim loses its KV blocks and prefills again.")
class Recompute:
    """Recomputes every victim."""

    rule = "A victim loses its KV blocks and prefills again"
    uses_host = False

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def swaps(self, costs: Costs) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Never."""
        return False


@RESTORE.plugin("swap", "The victim's KV blocks move to the host and back; recompute where it is full.")
class Swap:
    """Swaps every victim for which the host has room."""

    rule = "A victim's KV blocks move to the host and back, as far as there is room"
    uses_host = True

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def swaps(self, costs: Costs) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Always."""
        return True


@RESTORE.plugin("auto", "For each victim the cheaper of the two, by the step-time model and the link to the host.")
class Cheaper:
    """Chooses the cheaper way; at equal costs it recomputes."""

    rule = "For each victim the cheaper of swapping and recomputing"
    uses_host = True

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def swaps(self, costs: Costs) -> bool:
        """Whether swapping costs less."""
        return costs.swap_us < costs.recompute_us


def recompute_us(latency: StepTimeModel, victim: Request, tokens: int, computed: int, decodes: tuple[int, int]) -> int:
    """Return the extra time of a step with these decodes if it also recomputes ``tokens`` of a victim.

    Args:
        latency: the step-time model.
        victim: the victim.
        tokens: number of its tokens to recompute; the others are still there.
        computed: total number of its computed tokens.
        decodes: number of decoding requests of the batch, and the sum of their contexts.
    """
    if tokens <= 0:
        return 0
    chunk = Chunk(victim, computed - tokens, tokens, computed)
    return latency.step_time_us(StepLoad([chunk], *decodes)) - latency.step_time_us(StepLoad([], *decodes))
