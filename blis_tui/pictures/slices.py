"""Figures over simulated time, summed up in slices of time while a run goes on, however long it will be."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

FIRST_US: Final = 1_000
"""How long slices are at first; that doubles whenever there would be too many."""


class Slice(NamedTuple):
    """What a figure was in a slice of time."""

    mean: float
    peak: int


class Slices:
    """Whole numbers over time: the weighted mean and the peak in each of equal slices, ``limit`` of them at most.

    Attributes:
        slice_us: how long a slice is.
    """

    def __init__(self, limit: int) -> None:
        self.slice_us = FIRST_US
        self._limit = limit
        self._amount = array("q")
        self._weight = array("q")
        self._peak = array("q")

    def add(self, time_us: int, value: int, weight: int = 1) -> None:
        """Count a value at a moment; a weight of 0 is no value."""
        while time_us >= self._limit * self.slice_us:
            self._halve()
        at = time_us // self.slice_us
        if at >= len(self._amount):
            missing = at + 1 - len(self._amount)
            for one in (self._amount, self._weight, self._peak):
                one.extend([0] * missing)
        if weight:
            self._amount[at] += value * weight
            self._weight[at] += weight
            self._peak[at] = max(self._peak[at], value)

    def last(self, start_us: int, end_us: int, value: int) -> None:
        """Count a value that lasted from one moment to another: as long as it did in each slice."""
        if end_us <= start_us:
            return
        self.add(end_us - 1, 0, 0)  # long enough slices
        while start_us < end_us:
            until = min(end_us, (start_us // self.slice_us + 1) * self.slice_us)
            self.add(start_us, value, until - start_us)
            start_us = until

    def slices(self, slice_us: int, count: int) -> list[Slice]:
        """So many slices of that length, which a doubling of its own must reach; 0 where nothing was counted."""
        while self.slice_us < slice_us:
            self._halve()
        found = [
            Slice(amount / weight if weight else 0.0, peak)
            for amount, weight, peak in zip(self._amount, self._weight, self._peak, strict=True)
        ]
        return (found + [Slice(0.0, 0)] * count)[:count]

    def _halve(self) -> None:
        """Make one slice of two."""
        self.slice_us *= 2
        odd = len(self._amount) % 2
        for one in (self._amount, self._weight, self._peak):
            one.extend([0] * odd)
        self._amount = array("q", (a + b for a, b in zip(self._amount[::2], self._amount[1::2], strict=True)))
        self._weight = array("q", (a + b for a, b in zip(self._weight[::2], self._weight[1::2], strict=True)))
        self._peak = array("q", (max(a, b) for a, b in zip(self._peak[::2], self._peak[1::2], strict=True)))


class Course:
    """A whole number that keeps its value until it changes, in slices."""

    def __init__(self, limit: int) -> None:
        self.slices = Slices(limit)
        self.value = 0
        self._since_us = 0

    def set(self, time_us: int, value: int) -> None:
        """It has this value from now on."""
        self.slices.last(self._since_us, time_us, self.value)
        self._since_us = max(self._since_us, time_us)
        self.value = value
