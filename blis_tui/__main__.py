"""The process: ``python -m blis_tui`` and the console script."""

import gc
import sys
from typing import Final

from blis_tui.interrupted import INTERRUPTED, by_a_signal, command_ended, heed_from_the_start

_COLLECT_AFTER: Final = 20_000
"""Objects made, and not freed, between two looks for garbage: what starts makes modules, and hardly any garbage."""


def main() -> None:
    """Run the command line. A signal to end is an exit code from the first moment on, and no traceback."""
    heed_from_the_start()
    gc.set_threshold(_COLLECT_AFTER)
    from blis_tui.cli.main import main as command_line  # noqa: PLC0415  (so that the import is guarded)

    try:
        command_line()
    except (Exception, KeyboardInterrupt) as error:
        if not by_a_signal(error):
            raise
        sys.exit(INTERRUPTED)
    finally:
        command_ended()


if __name__ == "__main__":
    main()
