"""The driver of a program in a browser window."""

from __future__ import annotations

import asyncio
import os
from threading import Timer
from typing import Final

from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

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
