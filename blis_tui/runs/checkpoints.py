"""Pickling of a simulation's state, without what every simulation of the experiment has anyway."""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from typing import TYPE_CHECKING, Final

from blis_tui.engine.records import Observers
from blis_tui.model import Experiment
from blis_tui.results.request_log import RequestLog
from blis_tui.workload.traces.trace_table import TraceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    _Reduced = tuple[Callable[[str], object], tuple[str]]

SHARED_PARTS: Final = {Experiment: "experiment", Observers: "observers", TraceTable: "trace"}
"""Objects left out of checkpoints: constant ones (the experiment, a trace), and observers, which are not state."""
SHARED_PARTS_AND_LOG: Final = {**SHARED_PARTS, RequestLog: "log"}
"""Marks also leave out the books of ended requests."""


def packed(
    state: object, without: Mapping[type, str] = SHARED_PARTS, parts: Mapping[str, object] | None = None
) -> bytes:
    """Pickle and compress a state for :func:`unpacked`, leaving some objects out by name.

    Args:
        state: what to pack.
        without: types whose objects are left out, with names for them.
        parts: further single objects to leave out, by name.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, without, parts or {}).dump(state)
    return zlib.compress(buffer.getvalue(), 1)


def unpacked(content: bytes, fixed: Mapping[str, object]) -> object:
    """Unpickle a state, inserting ``fixed`` where parts were left out. Like every pickle, the bytes can run code."""
    return _Unpickler(io.BytesIO(zlib.decompress(content)), fixed).load()


def objects_from(modules: Collection[str], state: object) -> list[object]:
    """Return the objects in a state whose classes are from these modules."""
    collector = _Collector(io.BytesIO(), modules)
    collector.dump(state)
    return collector.found


def _left_out(name: str) -> object:
    """Placeholder in a pickle for a part that was left out; unpickling inserts that part."""
    raise pickle.UnpicklingError(f"`{name}` is missing")


def _without(parts: Mapping[type, str]) -> dict[type, Callable[[object], _Reduced]]:
    """Create a pickle dispatch table that leaves out objects of these types, each under a name."""
    return {kind: lambda _, name=name: (_left_out, (name,)) for kind, name in parts.items()}  # type: ignore[misc]


class _Pickler(pickle.Pickler):
    """Leaves out what every simulation of the experiment has anyway, and what the caller names."""

    def __init__(self, buffer: io.BytesIO, without: Mapping[type, str], parts: Mapping[str, object]) -> None:
        super().__init__(buffer, protocol=5)
        self._names = {id(part): name for name, part in parts.items()}
        single = dict.fromkeys(map(type, parts.values()), self._without_parts)
        self.dispatch_table = {**copyreg.dispatch_table, **single, **_without(without)}

    def _without_parts(self, item: object) -> _Reduced:
        """Reduce an object of a type of which some objects are left out."""
        name = self._names.get(id(item))
        return item.__reduce_ex__(5) if name is None else (_left_out, (name,))  # type: ignore[return-value]


class _Collector(_Pickler):
    """Collects objects during pickling."""

    def __init__(self, buffer: io.BytesIO, modules: Collection[str]) -> None:
        super().__init__(buffer, SHARED_PARTS, {})
        self.found: list[object] = []
        self._modules = modules

    def reducer_override(self, item: object) -> str:
        """Inspect an object; pickle calls this for every object that is not a plain value."""
        if type(item).__module__ in self._modules:
            self.found.append(item)
        return NotImplemented  # type: ignore[no-any-return]  # tells pickle to proceed as usual


class _Unpickler(pickle.Unpickler):
    """Inserts a simulation's own fixed parts where the pickle left them out."""

    def __init__(self, buffer: io.BytesIO, fixed: Mapping[str, object]) -> None:
        super().__init__(buffer)
        self._fixed = fixed

    def find_class(self, module: str, name: str) -> object:
        """Return the class or function of that name; for left-out parts, the function that returns them."""
        if (module, name) == (__name__, "_left_out"):
            return self._part
        resolved: object = super().find_class(module, name)
        return resolved

    def _part(self, name: str) -> object:
        try:
            return self._fixed[name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to `{name}`, which this experiment does not have") from None
