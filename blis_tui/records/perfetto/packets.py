"""The subset of Perfetto's trace packets that a simulation needs: tracks, slices, instants, counters, flows.

The numbers are the field numbers in ``protos/perfetto/trace`` of Perfetto's sources, which never change. Packets may be
written in any order: Perfetto sorts them by time, keeping the file order of simultaneous ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

Argument: TypeAlias = int | str | tuple[str, ...]
"""Types of event arguments."""

REQUEST: Final = "request"
"""The category of events with individual names; other categories have few different names."""

_NS_PER_US: Final = 1000
_BY_RANK: Final = 3
_BEGIN, _END, _INSTANT, _COUNTER = range(1, 5)


def varint(value: int) -> bytes:
    """Encode a non-negative integer, seven bits per byte, lowest first."""
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
    """Encode an integer field; negative values as 64-bit two's complement."""
    return _KEYS[field][0] + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def data(field: int, value: bytes | str) -> bytes:
    """Encode a text or message field."""
    content = value.encode(errors="replace") if isinstance(value, str) else value
    return _KEYS[field][2] + varint(len(content)) + content


def fixed64(field: int, value: int) -> bytes:
    """Encode a field of eight bytes."""
    return _KEYS[field][1] + value.to_bytes(8, "little")


_BYTES: Final = tuple(bytes((value,)) for value in range(0x80))
_KEYS: Final = tuple(tuple(varint(field << 3 | kind) for kind in range(3)) for field in range(64))
"""The encoded key of each field: its number and its wire type (integer, eight bytes, or length-delimited)."""
_NEEDS_STATE: Final = number(13, 2)
_ON_SEQUENCE: Final = number(10, 1)


class _Interned:
    """Strings that are written once and then referenced by number."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._numbers: dict[str, int] = {}
        self.news = b""

    def number(self, text: str) -> int:
        """Return the number of a string; a new one is added to ``news``."""
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
        self._write(number(13, 1))  # the interned strings begin here

    # ---- tracks ----

    def process(self, pid: int, name: str, labels: tuple[str, ...] = ()) -> int:
        """Write a process, which holds tracks; return its track."""
        about = number(1, pid) + data(6, name) + b"".join([data(8, label) for label in labels])
        return self._track(data(3, about) + number(11, _BY_RANK))

    def track(self, parent: int, name: str, rank: int = 0) -> int:
        """Write a track of slices in a process; tracks with the same name are merged. ``rank`` orders them."""
        return self._track(data(2, name) + number(5, parent) + number(12, rank))

    def counter(self, parent: int, name: str, unit: str, rank: int = 0) -> int:
        """Write a counter track in a process."""
        return self._track(data(2, name) + number(5, parent) + data(8, data(6, unit)) + number(12, rank))

    def _track(self, description: bytes) -> int:
        self._tracks += 1
        self._write(data(60, number(1, self._tracks) + description))
        return self._tracks

    # ---- events ----

    def begin(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """Begin a slice, nested in any open slices of the track.

        ``flow`` connects it by arrows with all events of that flow, in order of time; 0 = none.
        """
        self._event(_BEGIN, track, time_us, self._head(category, name, flow), arguments)

    def end(self, track: int, time_us: int, arguments: Mapping[str, Argument] = {}) -> None:
        """End the latest open slice of the track, adding arguments known only now."""
        self._event(_END, track, time_us, b"", arguments)

    def instant(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """Write an instant event."""
        self._event(_INSTANT, track, time_us, self._head(category, name, flow), arguments)

    def count(self, track: int, time_us: int, value: int) -> None:
        """Write a new value of a counter."""
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
            packet += data(12, news)  # as one field, because Perfetto keeps only the last field of a number
        self._write(packet + _NEEDS_STATE)

    def _write(self, packet: bytes) -> None:
        self._out.write(data(1, packet + _ON_SEQUENCE))


def _value(value: Argument) -> bytes:
    if isinstance(value, int):
        return number(4, value)
    if isinstance(value, str):
        return data(6, value)
    return b"".join([data(12, data(6, one)) for one in value])
