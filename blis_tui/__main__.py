"""The process: ``python -m blis_tui`` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported is no traceback either."""
    try:
        from blis_tui.cli.main import main as command_line  # noqa: PLC0415  (so that the import is guarded)

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
