"""Strategies for scenarios in Hypothesis's terms, drawn from Hypothesis or directly from a random generator.

Hypothesis shrinks failures, but takes half of a test's time for its own bookkeeping. Where many scenarios are needed,
each comes from a seed instead, in a tenth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")
S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)


class Choice(Generic[T_co]):
    """One value of several."""

    def __init__(self, pick: Callable[[Random], T_co], strategy: Callable[[], SearchStrategy[T_co]]) -> None:
        self.pick = pick
        self.strategy = strategy
        """Hypothesis's strategy of the same values."""

    def map(self, change: Callable[[T_co], S]) -> Choice[S]:
        return Choice(lambda random: change(self.pick(random)), lambda: self.strategy().map(change))


class Draw(Protocol):
    """Draws a value."""

    def __call__(self, choice: Choice[T], /) -> T: ...


def drawn(make: Callable[[Draw], T]) -> SearchStrategy[T]:
    """Draw with Hypothesis, which can then shrink it."""

    @st.composite
    def made(draw: DrawFn) -> T:
        return make(lambda choice: draw(choice.strategy()))

    return made()


def at_random(random: Random) -> Draw:
    """Draw from this generator."""
    return lambda choice: choice.pick(random)


def integers(low: int, high: int) -> Choice[int]:
    return Choice(lambda random: random.randint(low, high), lambda: st.integers(low, high))


def booleans() -> Choice[bool]:
    return Choice(lambda random: random.random() < 0.5, st.booleans)


def sampled_from(values: Sequence[T]) -> Choice[T]:
    return Choice(lambda random: random.choice(values), lambda: st.sampled_from(values))


def none() -> Choice[None]:
    return Choice(lambda _random: None, st.none)


def just(value: T) -> Choice[T]:
    return Choice(lambda _random: value, lambda: st.just(value))


def builds(make: Callable[[], T]) -> Choice[T]:
    return Choice(lambda _random: make(), lambda: st.builds(make))


def one_of(*choices: Choice[T]) -> Choice[T]:
    return Choice(
        lambda random: random.choice(choices).pick(random),
        lambda: st.one_of(*(choice.strategy() for choice in choices)),
    )


def pairs(choice: Choice[S], other: Choice[T]) -> Choice[tuple[S, T]]:
    return Choice(
        lambda random: (choice.pick(random), other.pick(random)), lambda: st.tuples(choice.strategy(), other.strategy())
    )


def tuples(*choices: Choice[T]) -> Choice[tuple[T, ...]]:
    return Choice(
        lambda random: tuple(choice.pick(random) for choice in choices),
        lambda: st.tuples(*(choice.strategy() for choice in choices)),
    )


def lists(elements: Choice[T], *, min_size: int = 0, max_size: int, unique: bool = False) -> Choice[list[T]]:
    def pick(random: Random) -> list[T]:
        found: list[T] = []
        size = random.randint(min_size, max_size)
        while len(found) < size:
            element = elements.pick(random)
            if not (unique and element in found):
                found.append(element)
        return found

    return Choice(pick, lambda: st.lists(elements.strategy(), min_size=min_size, max_size=max_size, unique=unique))
