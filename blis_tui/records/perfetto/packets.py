"""Packets of Perfetto's trace format, as far as a simulation needs it: tracks, slices, instants, counters, flows.

The numbers are those of the fields in ``protos/perfetto/trace`` of Perfetto's sources; its format keeps them.
Packets may be written in any order: Perfetto sorts them by time, those of one time in the order of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

Argument: TypeAlias = int | str | tuple[str, ...]
"""What an argument of an event may be."""

REQUEST: Final = "request"
"""The category of events that each have a name of their own; those of the others are few."""

_NS_PER_US: Final = 1000
_BY_RANK: Final = 3
_BEGIN, _END, _INSTANT, _COUNTER = range(1, 5)


def varint(value: int) -> bytes:
    """A whole number from 0, seven bits a byte, the lowest first."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is a whole number; negative ones as 64 bits of two's complement."""
    return _KEYS[field][0] + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def data(field: int, value: bytes | str) -> bytes:
    """A field that is a text or a message."""
    content = value.encode(errors="replace") if isinstance(value, str) else value
    return _KEYS[field][2] + varint(len(content)) + content


def fixed64(field: int, value: int) -> bytes:
    """A field of eight bytes."""
    return _KEYS[field][1] + value.to_bytes(8, "little")


_BYTES: Final = tuple(bytes((value,)) for value in range(0x80))
_KEYS: Final = tuple(tuple(varint(field << 3 | kind) for kind in range(3)) for field in range(64))
"""What stands before the value of a field: its number, and whether it is a number, eight bytes, or has a length."""
_NEEDS_STATE: Final = number(13, 2)
_ON_SEQUENCE: Final = number(10, 1)


class _Interned:
    """Texts that are written once and then stand for a number."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._numbers: dict[str, int] = {}
        self.news = b""

    def number(self, text: str) -> int:
        """The number of a text; a new one is added to ``news``."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self._numbers) + 1
            self.news += data(self._field, number(1, known) + data(2, text))
        return known


class Packets:
    """Writes packets to a file.

    Args:
        out: the file.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._tracks = 0
        self._categories, self._names, self._arguments = _Interned(1), _Interned(2), _Interned(3)
        self._tables = (self._categories, self._names, self._arguments)
        self._write(number(13, 1))  # the interned texts begin here

    # ---- tracks ----

    def process(self, pid: int, name: str, labels: tuple[str, ...] = ()) -> int:
        """A process, which holds tracks; returns its track."""
        about = number(1, pid) + data(6, name) + b"".join([data(8, label) for label in labels])
        return self._track(data(3, about) + number(11, _BY_RANK))

    def track(self, parent: int, name: str, rank: int = 0) -> int:
        """A track of slices in a process; those of one name are shown as one. ``rank`` orders it among the others."""
        return self._track(data(2, name) + number(5, parent) + number(12, rank))

    def counter(self, parent: int, name: str, unit: str, rank: int = 0) -> int:
        """A track of numbers in a process."""
        return self._track(data(2, name) + number(5, parent) + data(8, data(6, unit)) + number(12, rank))

    def _track(self, description: bytes) -> int:
        self._tracks += 1
        self._write(data(60, number(1, self._tracks) + description))
        return self._tracks

    # ---- events ----

    def begin(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """A slice begins; it is one in whatever has begun on the track and not ended.

        ``flow`` joins it with all others of that number by arrows, in order of time; 0 = none.
        """
        self._event(_BEGIN, track, time_us, self._head(category, name, flow), arguments)

    def end(self, track: int, time_us: int, arguments: Mapping[str, Argument] = {}) -> None:
        """The latest slice on the track that has not ended ends; what is known of it only now."""
        self._event(_END, track, time_us, b"", arguments)

    def instant(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """Something happens."""
        self._event(_INSTANT, track, time_us, self._head(category, name, flow), arguments)

    def count(self, track: int, time_us: int, value: int) -> None:
        """A counter has a new value."""
        self._event(_COUNTER, track, time_us, number(30, value), {})

    def _head(self, category: str, name: str, flow: int) -> bytes:
        head = number(3, self._categories.number(category))
        head += data(23, name) if category == REQUEST else number(10, self._names.number(name))
        return head + fixed64(47, flow) if flow else head

    def _event(self, kind: int, track: int, time_us: int, about: bytes, arguments: Mapping[str, Argument]) -> None:
        event = number(9, kind) + number(11, track) + about
        for name, value in arguments.items():
            event += data(4, number(1, self._arguments.number(name)) + _value(value))
        packet = number(8, time_us * _NS_PER_US) + data(11, event)
        news = b""
        for table in self._tables:
            if table.news:
                news += table.news
                table.news = b""
        if news:
            packet += data(12, news)  # one field: Perfetto reads the last one of a number
        self._write(packet + _NEEDS_STATE)

    def _write(self, packet: bytes) -> None:
        self._out.write(data(1, packet + _ON_SEQUENCE))


def _value(value: Argument) -> bytes:
    if isinstance(value, int):
        return number(4, value)
    if isinstance(value, str):
        return data(6, value)
    return b"".join([data(12, data(6, one)) for one in value])
