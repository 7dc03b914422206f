"""Checks that users' plug-ins are deterministic: the same experiment must give the same bytes.

A policy is not deterministic if it uses a global random generator or the clock, iterates over a set, or has state that
a checkpoint does not restore or that ``state()`` does not show (time travel trusts digests of that).
"""

from __future__ import annotations

import copyreg
import io
import json
import pickle
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import isfunction
from itertools import product
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InvariantError, SimulationError
from blis_tui.base.pickling import own_attributes
from blis_tui.cluster.state import AddressError
from blis_tui.engine.request import FIELDS, Request
from blis_tui.golden.other_process import OtherProcess
from blis_tui.results.record_lines import record_line
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

_MOST_STATES: Final = 20_000
"""Maximum number of states of one policy that are remembered to detect that one recurs."""


_SHOWN: Final = 60


@runtime_checkable
class _Stateful(Protocol):
    def state(self) -> tuple[object, ...]: ...


@runtime_checkable
class _Queue(Protocol):
    def ordered(self) -> list[Request]: ...

    def push_front(self, request: Request) -> None: ...


def find_nondeterminism(experiment: Experiment) -> str:
    """Return what changes from run to run, with the first event that differs; empty if nothing does.

    It makes about seven runs, in this process and in another one.

    Raises:
        SimulationError: the simulation cannot go on.
        TraceError: rows of its trace are invalid.
    """
    try:
        lines, end = record_run(experiment)
    except SimulationError as error:
        if isinstance(error.__cause__, AddressError):
            return str(error)
        raise
    again = Simulation(experiment)
    if difference := _compare(again, lines):
        return f"a second run differs at {difference}"
    if _end(again) != end:
        return "a second run ends in a different state"
    alone = Simulation(experiment)
    alone.run()
    if _end(alone) != end:
        return "a run without observers ends in a different state"
    return (
        _resumed_differently(experiment, lines, end)
        or _elsewhere(experiment, lines, end)
        or _hidden_state(experiment)
        or _mutating_queries(experiment)
    )


_MOST_CHECKED: Final = 20_000
"""Number of events after which invariants are checked only once more, at the end of the run."""


def find_broken_invariant(experiment: Experiment) -> str:
    """Return the first invariant that does not hold after an event, such as KV blocks that do not add up.

    Raises:
        SimulationError: the simulation cannot go on.
    """
    simulation = Simulation(experiment, check="all")
    try:
        simulation.run(max_events=_MOST_CHECKED)
        if not simulation.done:
            simulation = Simulation(experiment)
            simulation.run()
            simulation.verify()
    except InvariantError as error:
        return str(error)
    return ""


def record_run(experiment: Experiment) -> tuple[list[str], tuple[str, str]]:
    """Run an experiment; return all records as lines, the report and the digest."""
    simulation = Simulation(experiment)
    lines: list[str] = []

    def keep(record: Record) -> None:
        lines.append(record_line(record))

    simulation.subscribe("all", keep)
    simulation.run()
    return lines, _end(simulation)


def _end(simulation: Simulation) -> tuple[str, str]:
    return simulation.report().to_json(), simulation.digest()


class _Listener:
    """Compares records with those of another run, and notes the first that differs."""

    def __init__(self, expected: Iterator[str]) -> None:
        self.found = ""
        self._expected = expected

    def take(self, line: str) -> None:
        """Compare the next record."""
        wanted = next(self._expected, "nothing\n")
        if not self.found and line != wanted:
            self.found = f"this record:\n  first {wanted}  then  {line}".rstrip()

    def finish(self) -> str:
        """Return the difference found; a run that ends early also differs."""
        rest = next(self._expected, "")
        return self.found or (f"this record, which does not come:\n  first {rest}".rstrip() if rest else "")


def _compare(simulation: Simulation, lines: list[str]) -> str:
    """Run to the end and compare with ``lines``, the expected records."""
    listener = _Listener(iter(lines))

    def take(record: Record) -> None:
        listener.take(record_line(record))

    simulation.subscribe("all", take)
    simulation.run()
    return listener.finish()


def _resumed_differently(experiment: Experiment, lines: list[str], end: tuple[str, str]) -> str:
    """Compare with a run continued from a checkpoint in the middle."""
    middle = json.loads(lines[-1])["event"] // 2 if lines else 0
    simulation = Simulation(experiment)
    passed: list[Record] = []
    simulation.subscribe("all", passed.append)
    simulation.run(max_events=middle)
    try:
        checkpoint = simulation.checkpoint()
    except SimulationError as error:
        return f"no checkpoint can be taken at event {middle}: {error}"
    before = simulation.digest()
    fresh = Simulation(experiment)
    fresh.restore(checkpoint)
    if fresh.digest() != before:
        return f"the state restored from a checkpoint at event {middle} is different"
    if difference := _compare(fresh, lines[len(passed) :]):
        return f"continuing from a checkpoint at event {middle} differs at {difference}"
    return "" if _end(fresh) == end else f"continuing from a checkpoint at event {middle} ends in a different state"


def _elsewhere(experiment: Experiment, lines: list[str], end: tuple[str, str]) -> str:
    """Compare with a run in another process with another hash seed, and so another order of sets."""
    with OtherProcess() as other:
        answer = other.call(f"{__name__}:{record_run.__name__}", experiment)
    others, (_, digest) = cast("tuple[list[str], tuple[str, str]]", answer)
    listener = _Listener(iter(lines))
    for line in others:
        listener.take(line)
    if difference := listener.finish():
        return f"a run in another process, with another hash seed, differs at {difference}"
    return "" if digest == end[1] else "a run in another process, with another hash seed, ends in a different state"


def _hidden_state(experiment: Experiment) -> str:
    """Check that all state of plug-ins is visible in their ``state()``."""
    modules = frozenset(plugin.module for plugin in experiment.plugins_used())
    simulation = Simulation(experiment)
    kept = simulation.parts_from(modules)
    asked = [isinstance(part, _Stateful) for part in kept]  # evaluated once, because protocol checks are slow
    queues = [isinstance(part, _Queue) for part in kept]
    known: list[dict[str, bytes]] = [{} for _ in kept]
    while simulation.step() is not None:
        for part, stateful, queue, states in zip(kept, asked, queues, known, strict=True):
            # The parts of a plug-in that digests cover: its own state, and the order of a queue, which instances know.
            visible = repr(cast("_Stateful", part).state()) if stateful else ""
            visible += repr([request.index for request in cast("_Queue", part).ordered()]) if queue else ""
            content = _pickled(part)
            before = states.setdefault(visible, content) if len(states) < _MOST_STATES else states.get(visible, content)
            changed = [] if content == before else _changed(pickle.loads(before), part)  # noqa: S301  (made above)
            if changed:
                shown = (
                    "says nothing of it: `state()` is the same" if stateful else "has no `state()` that could say so"
                )
                return f"{type(part).__name__} changes {', '.join(changed)} by event {simulation.events}, and {shown}"
    return ""


def _mutating_queries(experiment: Experiment) -> str:
    """Check that query methods of plug-ins change no state, and no request that they are asked about."""
    modules = frozenset(plugin.module for plugin in experiment.plugins_used())
    kinds = dict.fromkeys(type(part) for part in Simulation(experiment).parts_from(modules))
    mutations: list[tuple[str, str]] = []
    with ExitStack() as watched:
        for kind, (signs, (methods, reporting)) in product(kinds, _QUERIES.items()):
            for name in methods if _has(kind, "state", *signs) else ():
                owner = next((base for base in kind.__mro__ if name in base.__dict__), None)
                if owner is not None and owner.__module__ in modules and isfunction(owner.__dict__[name]):
                    watched.enter_context(_replaced(owner, name, reporting(owner.__dict__[name], mutations)))
        simulation = Simulation(experiment)
        while not mutations and simulation.step() is not None:
            pass
    if not mutations:
        return ""
    what, why = mutations[0]
    return f"{what} at event {simulation.events}; {why}"


def _has(kind: type, *names: str) -> bool:
    return all(hasattr(kind, name) for name in names)


def _reporting_state(method: Callable[..., object], mutations: list[tuple[str, str]]) -> Callable[..., object]:
    """Return a method that also reports if it has changed `state()`: what, and why it must not."""

    @wraps(method)
    def asked(self: _Stateful, *arguments: object, **named: object) -> object:
        before = repr(self.state())
        answer = method(self, *arguments, **named)
        if (after := repr(self.state())) != before:
            states = f"from {before[:_SHOWN]} to {after[:_SHOWN]}"
            what = f"{type(self).__name__} changes what it remembers in `{method.__name__}`, {states},"
            mutations.append((what, "others ask that, too, who only want to know, and would change results"))
        return answer

    return asked


def _reporting_request(method: Callable[..., object], mutations: list[tuple[str, str]]) -> Callable[..., object]:
    """Return a method that also reports which attributes of the request it has changed."""

    @wraps(method)
    def asked(self: object, request: Request) -> object:
        before = request.__getstate__()
        answer = method(self, request)
        values = zip(FIELDS, before, request.__getstate__(), strict=True)
        if changed := [f"`{field}`" for field, old, new in values if not _equal(old, new)]:
            what = f"{type(self).__name__} changes {', '.join(changed)} of the request in `{method.__name__}`"
            mutations.append((what, "the request is the engine's, and may only be read"))
        return answer

    return asked


_QUERIES: Final = {
    ("scores", "routed"): (("scores", "grades", "sparse"), _reporting_state),
    ("step_time_us", "queueing_time_us"): (("step_time_us",), _reporting_state),
    ("ordered", "push_front"): (("ordered", "first", "head"), _reporting_state),
    ("priority",): (("priority",), _reporting_request),
}
"""Query methods, by the methods that identify the plug point, with what to watch in them.

Others (records of decisions, estimates, the debugger) call most of them only for information, so these must not change
anything. A priority rule may remember something, but must not change the request."""


@contextmanager
def _replaced(owner: type, name: str, other: Callable[..., object]) -> Iterator[None]:
    """Replace a method within the block."""
    method = owner.__dict__[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, method)


def _changed(old: object, new: object) -> list[str]:
    """Return the names of changed attributes, except those that a class of this package owns."""
    names = own_attributes(new)
    return [f"`{name}`" for name in names if not _equal(getattr(old, name, None), getattr(new, name))]


def _equal(old: object, new: object) -> bool:
    return old == new or _pickled(old) == _pickled(new)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Stands for a request."""

    index: int


def _as_number(request: Request | _Numbered) -> tuple[type[_Numbered], tuple[int]]:
    return _Numbered, (request.index,)


_AS_NUMBERS: Final = {**copyreg.dispatch_table, Request: _as_number, _Numbered: _as_number}


def _pickled(part: object) -> bytes:
    """Pickle a part with requests replaced by their numbers, since requests are not the part's own state."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.dispatch_table = _AS_NUMBERS
    pickler.dump(part)
    return buffer.getvalue()
