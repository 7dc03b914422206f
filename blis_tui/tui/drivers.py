"""The drivers of a program in a terminal and in a browser window."""

from __future__ import annotations

import asyncio
import os
from codecs import getincrementaldecoder
from contextlib import suppress
from selectors import EVENT_READ, SelectSelector
from threading import Timer
from typing import TYPE_CHECKING, Final

from textual._parser import ParseError, Read1
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.message import Message


_GRACE_S: Final = 3.0
"""Seconds that the program may take to end after its server has gone."""


class PipeDriver(WebDriver):
    """Ends the program at the end of its standard input, when the server has gone, even if it was killed."""

    def start_application_mode(self) -> None:
        """Start input and output."""
        self._loop = asyncio.get_running_loop()
        super().start_application_mode()

    def run_input_thread(self) -> None:
        """Pass on input from the server, until it has gone or the program ends."""
        super().run_input_thread()
        if self.exit_event.is_set():
            return
        asyncio.run_coroutine_threadsafe(self._app._post_message(ExitApp()), self._loop)  # noqa: SLF001  (as its base)
        late = Timer(_GRACE_S, os._exit, [1])  # it is busy, and its output goes nowhere
        late.daemon = True
        late.start()


_SEQUENCE_S: Final = 0.03
"""Longest pause within the sequence of a key, in seconds: terminals send one at once, people take longer."""
_LOOK_S: Final = 0.1
"""Interval at which the end of the program is noticed, in seconds."""
_SET_BY_USER: Final = "TEXTUAL_ESCDELAY"
_BYTES: Final = 4096


class TypedParser(XTermParser):
    """Textual's parser of input, which waits for the rest of a sequence no longer than it takes.

    Textual waits 100 ms after an escape (``TEXTUAL_ESCDELAY`` milliseconds, if set). Keys are typed faster than that,
    and would be taken for one with alt (escape, ``n``), for another one (``[``, ``F``: end), or lose the escape.
    """

    @staticmethod
    def read1(timeout: float | None = None) -> Read1:  # type: ignore[override]  # Textual only calls it
        """Return the request for the next character."""
        return Read1(timeout if timeout is None or _SET_BY_USER in os.environ else min(timeout, _SEQUENCE_S))

    @property
    def patience_s(self) -> float:
        """How long to wait for input before :meth:`tick`, in seconds."""
        return _LOOK_S if self._awaiting.timeout is None else self._awaiting.timeout


class TerminalDriver(LinuxDriver):
    """Textual's driver, which notices a pause in the input when it begins, not with the next key."""

    def run_input_thread(self) -> None:
        """Pass on input until the program ends."""
        parser = TypedParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        with SelectSelector() as selector:
            selector.register(self.fileno, EVENT_READ)
            while not self.exit_event.is_set():
                if not selector.select(parser.patience_s):
                    self._pass_on(parser.tick())
                elif text := decode(os.read(self.fileno, _BYTES)):
                    self._pass_on(parser.feed(text))
        with suppress(EOFError, ParseError):
            self._pass_on(parser.feed(""))

    def _pass_on(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)
