"""Step times replayed from measurements, so that only the schedule can differ.

The n-th step of the instance takes as long as the n-th measured one, whatever its load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.model.keys import LARGEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.engine.counts import Tallies
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.model import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSettings:
    """The measured durations."""

    durations_us: tuple[float, ...] = setting(
        "How long each step took, in microseconds, until the next one could begin. Later steps take the mean.",
        items={"type": "number", "minimum": 1, "maximum": LARGEST},
        minItems=1,
        examples=[[9000, 8400, 8700]],
    )
    queue_us: float = setting(
        "From sending a request to the waiting queue, and from its last step to the client, in microseconds.",
        default=0.0,
        minimum=0,
        maximum=10**9,
    )
    queue_per_token_us: float = setting("The same for each token of its prompt.", default=0.0, minimum=0, maximum=10**9)


@LATENCY.plugin("recorded", "Measured steps by their number, whatever is in them; of one instance.", RecordedSettings)
class RecordedSteps(Overheads):
    """Gives the n-th step of an instance the duration of the n-th measured one."""

    def __init__(self, settings: RecordedSettings, pool: Pool) -> None:  # noqa: ARG002  (any pool will do)
        super().__init__(
            queue_us=settings.queue_us,
            queue_per_token_us=settings.queue_per_token_us,
            output_token_us=0.0,
            post_decode_us=0.0,
        )
        self._durations_us = tuple(max(int(duration), 1) for duration in settings.durations_us)
        total = whole_sum(self._durations_us)
        self._mean_us = max(total // len(self._durations_us), 1)
        self._tallies: Tallies | None = None

    def follow(self, tallies: Tallies) -> None:
        """Attach the model to an instance's tallies, whose step count selects the next duration.

        Raises:
            PolicyError: it is attached to another instance already.
        """
        if self._tallies is not None:
            raise PolicyError("`recorded` step times are those of one instance", help="instances must not be added")
        self._tallies = tallies

    @property
    def pure(self) -> bool:
        """False: durations depend on the number of steps, not on the load."""
        return False

    def step_time_us(self, load: StepLoad) -> int:  # noqa: ARG002  (does not depend on the load)
        """Duration of the next step."""
        number = 0 if self._tallies is None else self._tallies.steps
        return self._durations_us[number] if number < len(self._durations_us) else self._mean_us
