"""Validation of plug-ins' samples, without which invalid numbers would silently change the workload."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from blis_tui.errors import SimulationError
from blis_tui.pickling import ValidatedPlugin, is_internal_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.streams import Stream

N_co = TypeVar("N_co", bound=float, covariant=True)
N = TypeVar("N", bound=float)


class Samples(Protocol[N_co]):
    """A distribution or arrival process."""

    def sample(self, stream: Stream) -> N_co:
        """Return the next number."""


class _ValidatedDistribution(ValidatedPlugin, Generic[N]):
    """A plug-in's distribution whose samples are validated.

    Args:
        plugged: the distribution.
        kind: its name in documents.
        look: converts an answer to a number, or raises ``TypeError`` or ``ValueError``.
        wanted: describes what it should have returned.
    """

    def __init__(self, plugged: Samples[N], kind: str, look: Callable[[object], N], wanted: str) -> None:
        super().__init__(plugged)
        self._drawn = plugged
        self._kind = kind
        self._look = look
        self._wanted = wanted

    def sample(self, stream: Stream) -> N:
        """Return the plug-in's next sample.

        Raises:
            SimulationError: it is not a valid number.
        """
        answer: object = self._drawn.sample(stream)
        try:
            return self._look(answer)
        except (TypeError, ValueError):
            message = f"`sample` of the plug-in `{self._kind}` answers {answer!r}"
            raise SimulationError(message, help=f"it returns {self._wanted}") from None


def counts(made: Samples[int], kind: str) -> Samples[int]:
    """Wrap a distribution of whole numbers, or an arrival process, in validation if it is a plug-in's."""
    return (
        made
        if is_internal_class(type(made))
        else _ValidatedDistribution(made, kind, _count, "a whole number, at least 1")
    )


def shares(made: Samples[float], kind: str) -> Samples[float]:
    """Wrap a distribution of shares in validation if it is a plug-in's."""
    return made if is_internal_class(type(made)) else _ValidatedDistribution(made, kind, _share, "a share, from 0 to 1")


def _count(answer: object) -> int:
    number = index(cast("int", answer))
    if number < 1:
        raise ValueError(number)
    return number


def _share(answer: object) -> float:
    share = float(cast("float", answer))
    if not 0.0 <= share <= 1.0:
        raise ValueError(share)
    return share
