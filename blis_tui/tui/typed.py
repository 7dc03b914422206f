"""Keys do what they would do if each were pressed after the one before is done, however fast they come.

Textual gives a key to the widget that has the focus when it comes, and that widget deals with it some time later. Keys
that come before a window which one of them opens is there (``g1500`` and enter, from a fast hand or in one packet over
a slow line) would go to what is below it, and be lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from textual.app import App
from textual.events import Key, Paste
from textual.message import Message

if TYPE_CHECKING:
    from textual.await_complete import AwaitComplete
    from textual.dom import DOMNode
    from textual.events import Event
    from textual.screen import Screen

_LONGEST_S: Final = 0.3
"""How long a key may keep the next one waiting: its widget may be gone before it has dealt with it."""
_ROUNDS: Final = 2
"""The key's way, and that of what the widget says because of it (``Input.Submitted``)."""


class Handled(Message):
    """Goes the way of a key, just behind it; which key that is, and the rounds it still has to go."""

    def __init__(self, target: DOMNode, number: int, rounds: int) -> None:
        super().__init__()
        self.target = target
        self.number = number
        self.rounds = rounds


class InOrder(App[None], inherit_bindings=False):
    """An application whose keys, and what is pasted, wait for each other."""

    _typed: deque[Event]
    _since_s: float | None = None
    _meant: Screen[object] | None = None
    _number = 0

    def __init__(self) -> None:
        self._typed = deque()
        super().__init__()

    async def on_event(self, event: Event) -> None:
        """Keys one after the other, everything else as Textual does."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            self._typed.append(event)
            await self._go_on()
            if self._typed:
                self.set_timer(_LONGEST_S, self._go_on)
        else:
            await super().on_event(event)

    async def _go_on(self) -> None:
        """The next key, unless one is being dealt with."""
        if self._since_s is not None and monotonic() - self._since_s < _LONGEST_S:
            return
        if not self._typed or not self.screen_stack:  # it is the end, and the last keys are nobody's
            return
        self._since_s = monotonic()
        self._number += 1
        if not self.screen.is_mounted:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.screen._mounted_event.wait(), _LONGEST_S)  # noqa: SLF001  (pinned)
        self._meant = self.screen
        target: DOMNode = self.focused or self.screen
        await super().on_event(self._typed.popleft())
        self._follow(Handled(target, self._number, _ROUNDS))

    def pop_screen(self) -> AwaitComplete:
        """As Textual's; a key whose screen has gone is dealt with."""
        popped = super().pop_screen()
        if self._since_s is not None and self._meant is not self.screen:
            self.call_later(self._dealt_with, self._number)
        return popped

    def keep_none_waiting(self) -> None:
        """What the last key went to will not deal with it any more."""
        self._since_s = None

    def _follow(self, message: Handled) -> None:
        """Send it after its key; where the way has ended, it is back at once."""
        target = message.target
        if target is self or not target.is_attached or not target.post_message(message):
            self.call_later(self._dealt_with, message.number)

    async def on_handled(self, message: Handled) -> None:
        """The key has been dealt with, once it is back for the last time."""
        if message.rounds > 1:
            self._follow(Handled(message.target, message.number, message.rounds - 1))
        else:
            await self._dealt_with(message.number)

    async def _dealt_with(self, number: int) -> None:
        """A key has been dealt with: if no later one is at work, it is the next one's turn."""
        if number == self._number:
            self._since_s = None
            await self._go_on()
