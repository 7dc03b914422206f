"""The entry point of ``python -m blis_tui`` and of the console script."""

import gc
import sys

from blis_tui.base.interrupted import INTERRUPTED, caused_by_signal, command_ended, exit_on_signals


def main() -> None:
    """Run the command line. From the first moment on, a termination signal leads to an exit code, not a traceback."""
    exit_on_signals()
    gc.disable()  # until a command begins: startup creates modules, and hardly any garbage
    from blis_tui.cli.main import main as command_line  # noqa: PLC0415  (the signal handler must be installed first)

    try:
        command_line()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (all are told)
        if caused_by_signal(error):
            sys.exit(INTERRUPTED)
        from blis_tui.cli.standard_streams import tell_defect  # noqa: PLC0415  (as above)

        sys.exit(tell_defect(error))
    finally:
        command_ended()
        gc.freeze()  # otherwise Python would run several garbage collections before it exits


if __name__ == "__main__":
    main()
