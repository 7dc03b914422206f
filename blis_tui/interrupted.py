"""What a signal to end raises."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end.

    Not ``KeyboardInterrupt`` itself: where that passes through ``exec`` of a text (as it may in any import, for data
    classes are made so), Python ends itself with SIGINT at last, whatever exit code it was given.
    """
