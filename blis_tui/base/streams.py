"""Named, counter-based random streams.

A stream's key is a BLAKE2b digest of the seed and the stream's name; its word ``n`` is a function of key and ``n``
alone. So a new consumer never shifts the numbers of another one, a checkpoint stores only counters, and any language
with BLAKE2b can reproduce the numbers. Names are paths such as ``workload/client-3/arrivals``; each stream has one
consumer.

Samplers use only IEEE-754 arithmetic and ``portable_math``, which give the same bits on every machine.
"""

from __future__ import annotations

from hashlib import blake2b
from math import sqrt
from struct import Struct
from typing import Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import ln, power

_UNPACK: Final = Struct("<8Q").unpack
_KEY_BYTES: Final = 32
_WORD_BITS: Final = 64
_WORDS: Final = 8
_UNIT: Final = 2.0**-53
_OPEN_UNIT: Final = 2.0**-52


def stream_key(seed: int, name: str) -> bytes:
    """Return the 32-byte key of the stream ``name``: BLAKE2b of the seed in decimal, a zero byte and the name."""
    return blake2b(b"%d\0%s" % (seed, name.encode()), digest_size=_KEY_BYTES).digest()


@mypyc_attr(allow_interpreted_subclasses=True)
class Stream:
    """One stream of numbers: a key and a position.

    Words are 64-bit. Eight of them are the little-endian reading of ``blake2b(block number, key=key)``, the
    block number being eight little-endian bytes.

    Args:
        key: 32 bytes, from ``stream_key``.
        counter: number of the next word.
        spare: a normal deviate that was drawn but not yet used.
    """

    __slots__ = ("_buffer", "_counter", "_key", "_spare")

    def __init__(self, key: bytes, counter: int = 0, spare: float | None = None) -> None:
        self._key = key
        self._counter = counter
        self._spare = spare
        self._buffer = self._block(counter >> 3) if counter & 7 else ()

    def __reduce__(self) -> tuple[type[Stream], tuple[bytes, int, float | None]]:
        return Stream, (self._key, self._counter, self._spare)

    def _block(self, number: int) -> tuple[int, ...]:
        """Return the eight words from ``8 * number`` on."""
        return _UNPACK(blake2b(number.to_bytes(8, "little"), key=self._key).digest())

    def state(self) -> tuple[int, float | None]:
        """Return the position and a spare deviate: with the key, they determine everything that follows."""
        return (self._counter, self._spare)

    def next_word(self) -> int:
        """Draw a whole number, uniform in [0, 2**64)."""
        counter = self._counter
        slot = counter & 7
        if not slot:
            self._buffer = self._block(counter >> 3)
        self._counter = counter + 1
        return self._buffer[slot]

    def words(self, count: int) -> list[int]:
        """Draw the next ``count`` words, in whole blocks where possible."""
        drawn: list[int] = []
        while len(drawn) < count:
            if self._counter & 7 or count - len(drawn) < _WORDS:
                drawn.append(self.next_word())
            else:
                drawn += self._block(self._counter >> 3)
                self._counter += _WORDS
        return drawn

    def uniform(self) -> float:
        """Draw uniformly from [0, 1): a multiple of 2**-53."""
        return (self.next_word() >> 11) * _UNIT

    def uniform_open(self) -> float:
        """Draw uniformly from (0, 1): an odd multiple of 2**-53, so never an end of the interval."""
        return ((self.next_word() >> 12) + 0.5) * _OPEN_UNIT

    def below(self, n: int) -> int:
        """Draw a whole number, uniform in [0, ``n``), for 1 <= ``n`` <= 2**64; unbiased, by rejection.

        Raises:
            ValueError: ``n`` is out of range.
        """
        if not 1 <= n <= 1 << _WORD_BITS:
            raise ValueError(f"no whole number below {n}")
        shift = _WORD_BITS - (n - 1).bit_length()
        while True:
            value = self.next_word() >> shift
            if value < n:
                return value

    def exponential(self) -> float:
        """Draw from the exponential distribution with mean 1, by inversion."""
        return -ln(((self.next_word() >> 12) + 0.5) * _OPEN_UNIT)  # of `uniform_open`, without the call

    def normal(self) -> float:
        """Draw a normal deviate with mean 0 and variance 1, by the polar method (Marsaglia and Bray, 1964).

        Deviates come in pairs; the second is kept for the next call.
        """
        spare = self._spare
        if spare is not None:
            self._spare = None
            return spare
        while True:
            if 0 < (slot := self._counter & 7) < 7:  # both words are there: see `next_word`
                first, second = self._buffer[slot], self._buffer[slot + 1]
                self._counter += 2
            else:
                first, second = self.next_word(), self.next_word()
            x = (first >> 11) * _OPEN_UNIT - 1.0
            y = (second >> 11) * _OPEN_UNIT - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                scale = sqrt(-2.0 * ln(square) / square)
                self._spare = y * scale
                return x * scale

    def gamma(self, shape: float) -> float:
        """Draw a gamma deviate of this shape, with scale 1 (Marsaglia and Tsang, ACM TOMS 26, 2000; boosted below 1).

        Raises:
            ValueError: ``shape`` is not positive.
        """
        if shape <= 0.0:
            raise ValueError(f"no gamma distribution of shape {shape}")
        if shape < 1.0:
            return self._gamma_from_one(shape + 1.0) * power(self.uniform_open(), 1.0 / shape)
        return self._gamma_from_one(shape)

    def _gamma_from_one(self, shape: float) -> float:
        """Draw a gamma deviate for shapes of at least 1: a squeezed cube of a normal deviate."""
        d = shape - 1.0 / 3.0
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = 1.0 + c * x
            if v <= 0.0:
                continue
            v = v * v * v
            u = self.uniform_open()
            square = x * x
            if u < 1.0 - 0.0331 * square * square:
                return d * v
            if ln(u) < 0.5 * square + d * (1.0 - v + ln(v)):
                return d * v


@mypyc_attr(allow_interpreted_subclasses=True)
class Streams(Picklable):
    """All streams of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> Stream:
        """Return the stream ``name`` from its beginning; asking twice gives two that yield the same numbers."""
        return Stream(stream_key(self._seed, name))
