"""A routing policy to which things happen, for tests of sweeps; what it needs to know is in environment variables."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.plugins import ROUTING, setting

if TYPE_CHECKING:
    from blis_tui.plugins import Context, Fleet, IncomingRequest

logging.basicConfig(format="%(message)s")
LOG = logging.getLogger("mishap")
ONCE = "BLIS_TEST_ONCE"
"""A file: who can delete it (or whose number it has) is the one to whom something happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What happens."""

    what: str = setting("What happens.", default="nothing")
    which: int = setting("Tells runs apart.", default=0)


@ROUTING.plugin("mishap", "The first instance, unless something happens.", Settings)
class Mishap:
    """Always the first instance."""

    rule = "The first instance."

    def __init__(self, settings: Settings) -> None:
        self._what = settings.what
        self._which = settings.which

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        if self._what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._what == "killed once":
            try:
                Path(os.environ[ONCE]).unlink()
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        elif self._what == "all killed once":
            file = Path(os.environ[ONCE])
            if file.exists() and file.read_text() == str(self._which):
                file.unlink()
                os.killpg(0, signal.SIGKILL)
        elif self._what == "exit":
            sys.exit(3)
        elif self._what == "out of memory":
            raise MemoryError
        elif self._what == "error":
            raise ZeroDivisionError("by nothing")
        elif self._what == "printing":
            print("printed", request.request_id)
            LOG.warning("logged")
        elif self._what == "endless":
            os.write(2, b"ready")
            while True:
                pass
        return 0, "the first one"

    def state(self) -> tuple[object, ...]:
        return ()
