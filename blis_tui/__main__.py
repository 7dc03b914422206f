"""The process: ``python -m blis_tui`` and the console script."""

import gc
import sys

from blis_tui.interrupted import INTERRUPTED, by_a_signal, command_ended, heed_from_the_start


def main() -> None:
    """Run the command line. A signal to end is an exit code from the first moment on, and no traceback."""
    heed_from_the_start()
    gc.disable()  # until a command begins: what starts makes modules, and hardly any garbage
    from blis_tui.cli.main import main as command_line  # noqa: PLC0415  (so that the import is guarded)

    try:
        command_line()
    except (Exception, KeyboardInterrupt) as error:
        if not by_a_signal(error):
            raise
        sys.exit(INTERRUPTED)
    finally:
        command_ended()
        gc.freeze()  # or Python would look through everything for garbage several times before it ends


if __name__ == "__main__":
    main()
