"""A plug-in for each plug point, as small as they can be; each is called ``mine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.plugins import (
    ADMISSION,
    ARRIVALS,
    BATCHING,
    DECIDER,
    LATENCY,
    LENGTHS,
    PRIORITY,
    RATIOS,
    RESTORE,
    ROUTING,
    SATURATION,
    SCALING,
    SCHEDULING,
    SCORING,
    TRACES,
    VICTIM,
    FigureScorer,
    Overheads,
    RunningFirst,
    SortedQueue,
    TraceColumns,
    Weight,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.plugins import (
        Autoscaler,
        Batch,
        Context,
        Costs,
        Fleet,
        IncomingRequest,
        NoSettings,
        Plan,
        Pool,
        Problems,
        Request,
        ScaledGroup,
        Seats,
        StepLoad,
        Stream,
        Trace,
        TraceText,
    )


class _Plain:
    """What most of them have in common: no settings, and nothing to remember."""

    rule = "As this script says."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


@ADMISSION.plugin("mine", "Everybody.")
class Admission(_Plain):
    """Turns no request away."""

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """Never."""
        return ""


@ROUTING.plugin("mine", "The last instance.")
class Routing(_Plain):
    """Always the same."""

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The last one."""
        return len(fleet) - 1, "the last"


@SCORING.plugin("mine", "The fewer in flight the better.", Weight)
class Scorer(FigureScorer):
    """By requests in flight."""

    figure = "in_flight"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Between 0 and 1."""
        return [1 / (1 + value) for value in values]


@SATURATION.plugin("mine", "At four requests in flight for each instance.")
class Saturation(_Plain):
    """By requests in flight."""

    def level(self, fleet: Fleet) -> float:
        """The mean, relative to four."""
        return max(fleet.column("in_flight")) / 4


@DECIDER.plugin("mine", "Every request.")
class Decider(_Plain):
    """Splits every request."""

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:
        """Always."""
        return True, "every request"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Nothing to remember."""


@SCALING.plugin("mine", "An instance for each three requests.")
class Scaling(_Plain):
    """By all requests there are."""

    def __init__(self, settings: NoSettings, autoscaler: Autoscaler) -> None:
        super().__init__(settings)
        self._windows = (autoscaler.scale_up_window_us, autoscaler.scale_down_window_us)

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Rounded down; the autoscaler keeps to its minimum."""
        return (group.running + group.waiting + group.outside) // 3, "by requests"


@SCHEDULING.plugin("mine", "Longest prompt first.")
def longest_first(settings: NoSettings) -> SortedQueue:
    """By the length of the prompt."""
    del settings
    return SortedQueue(_by_length, "The longest prompt goes first")


def _by_length(request: Request) -> int:
    return -request.input_tokens


@PRIORITY.plugin("mine", "Short prompts are urgent.")
class Priority(_Plain):
    """By the length of the prompt."""

    def priority(self, request: Request) -> int:
        """Its tokens."""
        return request.input_tokens


@BATCHING.plugin("mine", "Running requests first.")
class Batching(RunningFirst):
    """As most engines do it."""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def plan(self, batch: Batch) -> Plan:
        """As most engines do it."""
        return super().plan(batch)


@VICTIM.plugin("mine", "The youngest.")
class Victim(_Plain):
    """Who came last goes first."""

    serves_behind_preempted = False

    def choose(self, seats: Seats) -> Request:
        """The last one in the batch."""
        return next(reversed((seats.finishing or seats.running).values()))


@RESTORE.plugin("mine", "Computed again.")
class Restore(_Plain):
    """Victims lose their KV blocks."""

    uses_host = True

    def swaps(self, costs: Costs) -> bool:
        """What is cheaper."""
        return costs.swap_us < costs.recompute_us


@LATENCY.plugin("mine", "A millisecond for each request in the step.")
class Latency(Overheads):
    """By the number of requests."""

    def __init__(self, settings: NoSettings, pool: Pool) -> None:
        del settings, pool
        super().__init__(queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)

    def step_time_us(self, load: StepLoad) -> int:
        """At least a millisecond."""
        return 1000 * max(len(load.chunks) + load.decode_requests, 1)


@ARRIVALS.plugin("mine", "Equal gaps.")
class Arrivals:
    """As regular as can be."""

    def __init__(self, settings: NoSettings, mean_us: float) -> None:
        del settings
        self._gap_us = max(int(mean_us), 1)

    def sample(self, stream: Stream) -> int:
        """Always the mean."""
        return self._gap_us


@LENGTHS.plugin("mine", "Eighty tokens.")
class Lengths(_Plain):
    """Always the same."""

    def sample(self, stream: Stream) -> int:
        """Eighty."""
        return 80


@RATIOS.plugin("mine", "A half.")
class Ratios(_Plain):
    """Always the same."""

    def sample(self, stream: Stream) -> float:
        """A half."""
        return 0.5


@TRACES.plugin("mine", "Arrival in microseconds, prompt and answer in tokens: a line each.")
def traces(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:
    """Three numbers in a line."""
    del settings, trace
    rows = [tuple(map(int, line.split())) for _, line in text.lines()]
    problems.check()
    arrivals, prompts, answers = zip(*rows, strict=True)
    return TraceColumns(arrival_us=arrivals, input_tokens=prompts, output_tokens=answers)
