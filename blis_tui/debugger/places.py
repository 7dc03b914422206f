"""Places in a run, in the form that users write: ``1234``, ``1.5s``, ``request_12``, ``start``, ``end``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.history import Move
    from blis_tui.debugger.lockstep import Lockstep

_TIME: Final = re.compile(r"([0-9][0-9_, ]*(?:\.[0-9]+)?)\s*(us|µs|ms|s|min)\Z")
_EVENT: Final = re.compile(r"(?:event\s*)?#?([0-9][0-9_,]*)\Z")
_INSTANCE: Final = re.compile(r"(?:instance\s*|i)?([0-9]{1,18})\Z")
_UNITS_US: Final = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
_FURTHEST: Final = 1 << 62
START, END = "start", "end"
"""Words for the two ends of a run; a request of such a name is written with ``request`` before it."""
_SHOWN: Final = 60
"""Maximum number of characters of an invalid text that a message quotes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place to go to: exactly one of the fields is set."""

    event: int | None = None
    time_us: int | None = None
    request: str | None = None
    end: bool = False

    def move(self, run: Debugger | Lockstep) -> Move:
        """Return the move to this place, of one run or of two side by side."""
        if self.event is not None:
            return run.seek(self.event)
        if self.end:
            return run.to_end()
        if self.time_us is not None:
            return run.seek_time(self.time_us)
        return run.seek_request(self.request or "")


def parse_place(text: str) -> Place:
    """Parse a place: an event number, a time with its unit, ``start``, ``end``, or otherwise a request's name.

    Raises:
        InputError: the text is empty, or the number is too large.
    """
    text = text.strip()
    if not text:
        raise InputError("no place is given", help="an event (1234), a time (1.5s, 200ms, 300us) or a request's name")
    if text in (START, END):
        return Place(event=0) if text == START else Place(end=True)
    time = _TIME.match(text)
    if time is not None:
        number, unit = time.groups()
        whole, _, part = re.sub(r"[_, ]", "", number).partition(".")
        digits = len(str(_UNITS_US[unit])) - 1 + (unit == "min")
        scaled = _whole(whole, text) * _UNITS_US[unit]
        scaled += int((part + "0" * digits)[:digits] or 0) * _UNITS_US[unit] // 10**digits
        return Place(time_us=_within(scaled, text))
    event = _EVENT.match(text)
    if event is not None:
        return Place(event=_within(_whole(re.sub(r"[_,]", "", event[1]), text), text))
    return Place(request=text.removeprefix("request ").strip())


def place_of_request(name: str) -> str:
    """Return how the arrival of a request is written as a place."""
    try:
        plain = parse_place(name).request == name
    except InputError:
        plain = False
    return name if plain else f"request {name}"


def parse_instance(text: str) -> int:
    """Parse the index of an instance: ``3``, ``i3`` or ``instance 3``. Raises InputError if it is none."""
    match = _INSTANCE.match(text.strip())
    if match is None:
        raise InputError(f"{_quoted(text.strip()) or 'nothing'} is no instance", help="its index, from 0: 3")
    return _within(int(match[1]), text)


def _whole(digits: str, text: str) -> int:
    """Return a number with any number of digits; ``int`` itself refuses more than a few thousand."""
    return _within(_FURTHEST + 1 if len(digits.lstrip("0")) > len(str(_FURTHEST)) else int(digits[-30:]), text)


def _within(number: int, text: str) -> int:
    if number > _FURTHEST:
        raise InputError(f"{_quoted(text)} is beyond the largest simulated time")
    return number


def _quoted(text: str) -> str:
    """Return a text, truncated to what fits a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
