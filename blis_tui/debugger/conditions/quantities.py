"""What the parts of a condition measure, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TIME_UNITS: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
"""Units of time, in microseconds."""
_RANKS: Final = ("number", "share", "count", "time")


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a part of a condition measures."""

    dimension: str
    """``number``, ``share``, ``count`` or ``time``; ``truth`` for conditions, ``text`` for texts."""
    unit: str = ""
    constant: bool = False
    """Whether it is the same in every state."""

    @property
    def is_number(self) -> bool:
        """Whether one can calculate with it."""
        return self.dimension in _RANKS

    def __str__(self) -> str:
        match self.dimension:
            case "count":
                return f"a number of {self.unit}"
            case "time":
                return f"a time in {self.unit}"
            case "truth":
                return "a condition"
            case _:
                return f"a {self.dimension}"


TRUTH: Final = Quantity("truth")
TEXT: Final = Quantity("text")


def of_unit(unit: str, *, constant: bool = False) -> Quantity:
    """What a figure of that unit measures."""
    if unit in TIME_UNITS:
        return Quantity("time", unit, constant)
    if unit in ("share", "%"):
        return Quantity("share", "", constant)
    return Quantity("count", unit, constant) if unit else Quantity("number", "", constant)


def combine(op: str, left: Quantity, right: Quantity) -> Quantity | None:
    """What ``left op right`` measures; None when the two do not go together.

    A plain number goes with everything and is taken in the other side's unit. Shares and counts scale what they
    multiply. Whatever else is divided by each other becomes a plain number.
    """
    constant = left.constant and right.constant
    if not (left.is_number and right.is_number):
        return None
    higher = max(left, right, key=lambda one: _RANKS.index(one.dimension))
    if op == "*":
        both_times = left.dimension == right.dimension == "time"
        return None if both_times else Quantity(higher.dimension, higher.unit, constant)
    if op == "/":
        if left.dimension in ("number", right.dimension) or right.dimension == "time":
            return Quantity("number", "", constant)
        return Quantity(left.dimension, left.unit, constant)
    if left.dimension == right.dimension:
        return Quantity(left.dimension, common_unit(left, right), constant)
    return Quantity(higher.dimension, higher.unit, constant) if "number" in (left.dimension, right.dimension) else None


def common_unit(left: Quantity, right: Quantity) -> str:
    """The unit two times are brought to: what is constant gives way."""
    return right.unit if left.constant and not right.constant else left.unit
