"""What a seed decides about a run whose requests are recorded: what draws random numbers, found by running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.checkpoints import objects_from
from blis_tui.engine.speculative.luck import Luck
from blis_tui.engine.streams import Stream
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.cluster.cluster import Cluster
    from blis_tui.spec.model import Experiment


def drawn_beside_requests(experiment: Experiment) -> tuple[str, ...]:
    """What a run of it draws beside its requests, in words; nothing = no seed changes how the same requests fare.

    Raises:
        SimulationError: it cannot go on.
    """
    simulation = Simulation(experiment, check="off")
    simulation.run()
    cluster = simulation.cluster
    counts = {
        "how long the front end takes to take a request in": _drawn([one.front_end for one in cluster.instances]),
        "which instance the router chooses": _of_routers(cluster),
        "which requests are let in": _started(cluster.pipeline.admission.control.state()[-1]),
    }
    rest = _drawn(cluster) - _drawn(cluster.source)
    for count in counts.values():
        rest -= count
    counts["when instances come and go" if experiment.cluster.varies else "what plug-ins draw"] = rest
    counts["which drafts are accepted"] = len(objects_from([Luck.__module__], cluster))
    return tuple(words for words, count in counts.items() if count)


def _of_routers(cluster: Cluster) -> int:
    """How many routers have drawn; of one for several models, those of the single models choose."""
    count = 0
    for router in cluster.roster.routers:
        for one in (router, *router.by_model.values()):
            count += _started(one.state()[-1])
    return count


def _started(state: object) -> bool:
    """Whether a stream has been read, by its state."""
    return isinstance(state, tuple) and bool(state[0])


def _drawn(part: object) -> int:
    """How many streams in a part of a simulation have been read."""
    streams = objects_from([Stream.__module__], part)
    return len([one for one in streams if isinstance(one, Stream) and _started(one.state())])
