"""What the process's exit code means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    CHECK_FAILED = 1
    """A golden, an expectation or an invariant did not hold."""
    USAGE = 2
    """Wrong arguments, or an invalid specification."""
    IO = 3
    """A file could not be read or written."""
    SIMULATION = 4
    """The simulation could not go on."""
    INTERRUPTED = 130
    """Ctrl-C, SIGTERM or SIGHUP."""
    READER_GONE = 141
    """Nobody reads standard output any more (`blis-tui run … | head`): as a shell shows SIGPIPE."""
