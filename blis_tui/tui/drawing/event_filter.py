"""Event filters: plain words, compiled to a predicate on events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import BlisError
from blis_tui.base.text import printable
from blis_tui.debugger.event_store import CHANGES, of_kind
from blis_tui.engine.records import streamed_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.debugger.event_store import EventRow, EventStore

    Matches = Callable[[EventRow], bool]

_INSTANCE: Final = re.compile(r"i(\d+)")
_TWO_WORDS: Final = re.compile(r"\binstance\s+(\d+)", re.IGNORECASE)
_HELP: Final = "filter words are `i0`, part of a request's name, or"


class FilterError(BlisError):
    """A filter is invalid."""


def parse_filter(text: str, tape: EventStore) -> Matches | None:
    """Compile a filter; return None for an empty one, which matches every event.

    A kind (``preempted``) matches the events of that kind and the steps that did it; ``i0`` or ``instance 0`` the
    events of an instance; anything else the events of requests whose names contain it, and if it is a whole name also
    the steps that did something for the request. ``-word`` inverts a word. All words must match.

    Raises:
        FilterError: a word is none of these, or there is no such instance.
    """
    tests = [_test(word, tape) for word in _TWO_WORDS.sub(r"i\1", text).split()]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda row: all(test(row) for test in tests)


def _test(word: str, tape: EventStore) -> Matches:
    if word.startswith("-") and len(word) > 1:
        test = _test(word[1:], tape)
        return lambda row: not test(row)
    lower = word.lower()
    if lower in _words():
        return of_kind(lower, tape)
    instance = _INSTANCE.fullmatch(lower)
    if instance is not None:
        return _of_instance(int(instance[1]), tape)
    if tape.number(word) is not None:
        return of_request(word, tape)
    known = any(lower in name.lower() for name in tape.names())
    if not known and not any(letter.isdigit() for letter in word):
        # A name with a number may belong to a request that has not arrived yet; any other word is a typing error.
        shown = printable(word)
        help_text = suggestion(lower, _words(), otherwise=_HELP)
        raise FilterError(f"`{shown}` is neither a kind of event nor part of a request's name", help=help_text)
    return _of_names(lower, tape)


def _words() -> tuple[str, ...]:
    """Return every word for kinds."""
    return tuple(dict.fromkeys((*streamed_kinds(), *CHANGES)))


def of_request(name: str, tape: EventStore, what: str = "") -> Matches:
    """Return a predicate for events about a request, and steps that did more than decode one token, or ``what``."""
    known = -1
    events: frozenset[int] = frozenset()

    def matches(row: EventRow) -> bool:
        nonlocal known, events
        if len(tape) != known:
            known = len(tape)
            life = tape.life(name)
            events = frozenset(entry.event for entry in life if what in ("", entry.what))
        return row.event in events

    return matches


def _of_names(part: str, tape: EventStore) -> Matches:
    seen: dict[int, bool] = {}

    def matches(row: EventRow) -> bool:
        number = row.request
        if number < 0:
            return False
        fits = seen.get(number)
        if fits is None:
            fits = seen[number] = part in tape.name(number).lower()
        return fits

    return matches


def _of_instance(instance: int, tape: EventStore) -> Matches:
    count = tape.instances
    if instance >= count:
        only = "only instance 0" if count == 1 else f"instances 0 to {count - 1}"
        raise FilterError(f"there is no instance {instance}", help=f"so far, this run has {only}")
    return lambda row: row.instance == instance
