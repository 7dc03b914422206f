"""The driver of a program that runs in a browser window."""

from __future__ import annotations

import asyncio
import os
from threading import Timer
from typing import Final

from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

_GRACE_S: Final = 3.0
"""How long the program may take to end by itself once its server is gone, in seconds."""


class PipeDriver(WebDriver):
    """Ends the program when its standard input ends: the server has gone, even if it was killed."""

    def start_application_mode(self) -> None:
        """Begin to listen, and to show."""
        self._loop = asyncio.get_running_loop()
        super().start_application_mode()

    def run_input_thread(self) -> None:
        """Hand over what the server sends, until it has gone or the program ends."""
        super().run_input_thread()
        if self.exit_event.is_set():
            return
        asyncio.run_coroutine_threadsafe(self._app._post_message(ExitApp()), self._loop)  # noqa: SLF001  (as its base)
        late = Timer(_GRACE_S, os._exit, [1])  # it is busy, and its output goes nowhere
        late.daemon = True
        late.start()
