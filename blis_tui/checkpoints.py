"""A simulation's state as bytes, without what every simulation of the experiment has anyway."""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from typing import TYPE_CHECKING, Final

from blis_tui.engine.records import Observers
from blis_tui.metrics.request_log import RequestLog
from blis_tui.spec.model import Experiment
from blis_tui.workload.trace_table import TraceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    _Reduced = tuple[Callable[[str], object], tuple[str]]

FIXED: Final = {Experiment: "experiment", Observers: "observers", TraceTable: "trace"}
"""What never changes (the experiment, a trace) and what is no part of the state (observers)."""
FIXED_AND_LOG: Final = {**FIXED, RequestLog: "log"}
"""For marks also the books of requests that have ended."""


def packed(state: object, without: Mapping[type, str] = FIXED, parts: Mapping[str, object] | None = None) -> bytes:
    """What :func:`unpacked` makes the state of again; some of it is left out by name.

    Args:
        state: what to pack.
        without: types whose objects are left out.
        parts: single objects that are left out, too.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, without, parts or {}).dump(state)
    return zlib.compress(buffer.getvalue(), 1)


def unpacked(content: bytes, fixed: Mapping[str, object]) -> object:
    """A state from its bytes, with these parts where some were left out. Like every pickle, the bytes can run code."""
    return _Unpickler(io.BytesIO(zlib.decompress(content)), fixed).load()


def objects_from(modules: Collection[str], state: object) -> list[object]:
    """The objects in a state whose classes are from these modules."""
    collector = _Collector(io.BytesIO(), modules)
    collector.dump(state)
    return collector.found


def _left_out(name: str) -> object:
    """Stands in a pickle where a fixed part was left out; unpickling puts that part in its place."""
    raise pickle.UnpicklingError(f"`{name}` is missing")


def _without(parts: Mapping[type, str]) -> dict[type, Callable[[object], _Reduced]]:
    """A dispatch table for pickling that leaves out objects of these types, each under a name."""
    return {kind: lambda _, name=name: (_left_out, (name,)) for kind, name in parts.items()}  # type: ignore[misc]


class _Pickler(pickle.Pickler):
    """Leaves out what every simulation of the experiment has anyway, and what the caller names."""

    def __init__(self, buffer: io.BytesIO, without: Mapping[type, str], parts: Mapping[str, object]) -> None:
        super().__init__(buffer, protocol=5)
        self._names = {id(part): name for name, part in parts.items()}
        single = dict.fromkeys(map(type, parts.values()), self._without_parts)
        self.dispatch_table = {**copyreg.dispatch_table, **single, **_without(without)}

    def _without_parts(self, item: object) -> _Reduced:
        """An object of a type of which some are left out."""
        name = self._names.get(id(item))
        return item.__reduce_ex__(5) if name is None else (_left_out, (name,))  # type: ignore[return-value]


class _Collector(_Pickler):
    """Notes objects on the way."""

    def __init__(self, buffer: io.BytesIO, modules: Collection[str]) -> None:
        super().__init__(buffer, FIXED, {})
        self.found: list[object] = []
        self._modules = modules

    def reducer_override(self, item: object) -> str:
        """Called with every object that is no plain value."""
        if type(item).__module__ in self._modules:
            self.found.append(item)
        return NotImplemented  # type: ignore[no-any-return]  # what pickle calls "nothing special"


class _Unpickler(pickle.Unpickler):
    """Puts a simulation's own fixed parts where the pickle left them out."""

    def __init__(self, buffer: io.BytesIO, fixed: Mapping[str, object]) -> None:
        super().__init__(buffer)
        self._fixed = fixed

    def find_class(self, module: str, name: str) -> object:
        """The class or function of that name; where a part was left out, what finds it."""
        if (module, name) == (__name__, "_left_out"):
            return self._part
        found: object = super().find_class(module, name)
        return found

    def _part(self, name: str) -> object:
        try:
            return self._fixed[name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to `{name}`, which this experiment does not have") from None
