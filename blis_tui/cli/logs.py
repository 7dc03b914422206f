"""What libraries log while a server runs, as single lines on standard error."""

from __future__ import annotations

import logging


class OneLineFormatter(logging.Formatter):
    """Formats log records as one line that clients cannot break or colour."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the level, the message, and the exception's text."""
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text += f": {error or type(error).__name__}"
        line = " ".join(text.split())
        return f"{record.levelname.lower()}: " + "".join(char if char.isprintable() else "\ufffd" for char in line)


def log_in_lines() -> None:
    """Print warnings and errors of libraries without tracebacks: what a client sends cannot fill the screen."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
