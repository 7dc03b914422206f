"""What a class says of its objects to a checkpoint: attributes by name, whether it is compiled or not.

Compiled, a class has neither ``__slots__`` nor a ``__dict__``. With this base, what it pickles as is the same either
way, so that checkpoints cross between a compiled installation and one in plain Python.
"""

from __future__ import annotations

from typing import Final

from blis_tui.classes import mypyc_attr

COMPILED: Final = not __file__.endswith(".py")
"""Whether this installation is a compiled one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Kept:
    """Pickles as the attributes that are set, by name."""

    __slots__ = ()

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        values: dict[str, object] = {}
        for base in type(self).__mro__:
            # Compiled classes list what they and their bases have.
            names: tuple[str, ...] = base.__dict__.get("__mypyc_attrs__") or base.__dict__.get("__slots__", ())
            for name in names:
                try:
                    values[name] = getattr(self, name)
                except AttributeError:
                    continue
        values.update(getattr(self, "__dict__", {}))
        return None, values
