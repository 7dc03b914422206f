"""Handles each key only after the previous one has taken effect, however fast they arrive.

Textual gives a key to the widget that has the focus when the key arrives, and the widget handles it later. If keys
arrive before a window that one of them opens exists (``g1500`` and enter, typed fast or in one packet over a slow
line), they would go to the widget below and be lost.
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
    from textual.driver import Driver
    from textual.events import Event
    from textual.screen import Screen

_LONGEST_S: Final = 0.3
"""Maximum delay of the next key in seconds, because a widget may disappear before it handles its key."""
_ROUNDS: Final = 2
"""The path of the key, and that of the message the widget sends because of it (``Input.Submitted``)."""


class Handled(Message):
    """Follows a key along its path; has the key's number, and the remaining rounds."""

    def __init__(self, target: DOMNode, number: int, rounds: int) -> None:
        super().__init__()
        self.target = target
        self.number = number
        self.rounds = rounds


class OrderedInputApp(App[None], inherit_bindings=False):
    """An application whose keys and pasted texts wait for each other."""

    _typed: deque[Event]
    _since_s: float | None = None
    _meant: Screen[object] | None = None
    _number = 0

    def __init__(self) -> None:
        self._typed = deque()
        super().__init__()

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver; on Linux and macOS ours, which tells keys after escape from sequences."""
        driver = super().get_driver_class()
        if driver.__module__ != "textual.drivers.linux_driver":
            return driver
        from blis_tui.tui.drivers import TerminalDriver  # noqa: PLC0415  (its base is not on Windows)

        return TerminalDriver

    async def on_event(self, event: Event) -> None:
        """Handle keys one after the other, and everything else as Textual does."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            self._typed.append(event)
            await self._go_on()
            if self._typed:
                self.set_timer(_LONGEST_S, self._go_on)
        else:
            await super().on_event(event)

    async def _go_on(self) -> None:
        """Send the next key, unless one is being handled."""
        if self._since_s is not None and monotonic() - self._since_s < _LONGEST_S:
            return
        if not self._typed or not self.screen_stack:  # the application is ending, so the remaining keys have no target
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
        """Remove a screen as Textual does; a key whose screen has gone counts as handled."""
        popped = super().pop_screen()
        if self._since_s is not None and self._meant is not self.screen:
            self.call_later(self._key_handled, self._number)
        return popped

    def stop_waiting(self) -> None:
        """Stop waiting for the last key, whose target will not handle it any more."""
        self._since_s = None

    def _follow(self, message: Handled) -> None:
        """Send the marker after its key; if its path has ended, it returns at once."""
        target = message.target
        if target is self or not target.is_attached or not target.post_message(message):
            self.call_later(self._key_handled, message.number)

    async def on_handled(self, message: Handled) -> None:
        """Count the key as handled after the last round."""
        if message.rounds > 1:
            self._follow(Handled(message.target, message.number, message.rounds - 1))
        else:
            await self._key_handled(message.number)

    async def _key_handled(self, number: int) -> None:
        """Go on with the next key, unless a later one is already being handled."""
        if number == self._number:
            self._since_s = None
            await self._go_on()
