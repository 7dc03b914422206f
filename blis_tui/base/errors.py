"""Every exception that this package raises on purpose, and what is told of optional packages that are missing.

    BlisError                     base: a message a person can act on
    ├── SpecError                 a document cannot be used; carries the located diagnostics
    ├── TraceError                rows of a recorded workload are out of range; carries the located problems
    ├── InputError                a file cannot be read, or a result cannot be written
    ├── PolicyError               a policy, rule or step-time model does not exist or rejects its settings
    ├── RouteError                an override of a routing decision cannot be applied
    └── SimulationError           the simulation itself cannot go on
        ├── StalledError          a step could advance no request
        ├── InvariantError        a stated invariant does not hold
        └── DivergenceError       a replay did not reach the state seen before

Any other exception that escapes is a defect of the package.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING

from blis_tui.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.diagnostics import Diagnostic, TraceProblem


class BlisError(Exception):
    """Base of all errors: one message, and optionally advice; each is a single line, whatever it quotes."""

    def __init__(self, message: str, *, help: str | None = None) -> None:  # noqa: A002  (rustc's name for it)
        self.message = printable(message)
        self.help = None if help is None else printable(help)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message if self.help is None else f"{self.message}\n  = help: {self.help}"


def in_words(error: BaseException, moment: str = "") -> str:
    """Describe an exception from foreign code: its type, when it was raised, and its message, if available."""
    try:
        says = str(error)
    except Exception as another:  # noqa: BLE001  (foreign code creates the text)
        says = f"(its text cannot be made: {type(another).__name__})"
    return f"{type(error).__name__}{moment and ' '}{moment}: {says}"


class SpecError(BlisError):
    """One or more documents are wrong; ``diagnostics`` have places and advice, sorted by position."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        count = len(self.diagnostics)
        super().__init__(f"{count} error{'' if count == 1 else 's'} in the specification")

    def __str__(self) -> str:
        from blis_tui.base.diagnostics import render_text  # noqa: PLC0415  (errors are the lowest layer)

        return render_text(self.diagnostics)


class TraceError(BlisError):
    """Rows of a recorded workload cannot be used; ``problems`` are sorted by line."""

    def __init__(self, problems: Sequence[TraceProblem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        where = first.file + (f":{first.line}" if first.line else "") + (f" ({first.column})" if first.column else "")
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(f"{where}: {first.message}{more}", help=first.help)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return the problems in the format of document diagnostics."""
        from blis_tui.base.diagnostics import from_trace_problems  # noqa: PLC0415  (as above)

        return (from_trace_problems(self.problems),)

    def __str__(self) -> str:
        from blis_tui.base.diagnostics import render_text  # noqa: PLC0415

        return render_text(self.diagnostics)


class InputError(BlisError):
    """A file could not be read or written."""


class PolicyError(BlisError):
    """No policy of that name is registered, or its settings are invalid."""


class RouteError(BlisError):
    """An override of a routing decision cannot be applied: the request or the instance does not fit."""


class SimulationError(BlisError):
    """The simulation cannot go on."""


class StalledError(SimulationError):
    """No request advances: a queue's head does not fit although nothing runs, or requests are preempted for ever.

    The cause is contradictory limits. Documents are checked for them; experiments created in code are not.
    """


class InvariantError(SimulationError):
    """An invariant does not hold: a defect in the simulator or in a user's policy.

    Attributes:
        invariant: the identifier, such as ``INV-4``.
        time_us: simulated time of the event after which the check failed, in microseconds.
        event: number of that event.
    """

    def __init__(self, invariant: str, detail: str, *, time_us: int, event: int) -> None:
        super().__init__(f"{invariant} does not hold at t={time_us} us (event {event}): {detail}")
        self.invariant = invariant
        self.time_us = time_us
        self.event = event


class DivergenceError(SimulationError):
    """When going back, a replay from a checkpoint did not reach the state seen before: a defect of the simulator.

    Attributes:
        event: number of the event at which this was detected.
    """

    def __init__(self, detail: str, *, event: int) -> None:
        super().__init__(
            f"the replay diverged at event {event}: {detail}",
            help="a policy that reads the clock, the hash seed or a global could be the reason; `run` says what counts",
        )
        self.event = event


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    The command names the interpreter, because the shell's ``pip`` may belong to another one. The installer keeps the
    installed blis-tui, so no package index needs to have it; only the packages of the extra are downloaded.
    """
    python = quote(sys.executable or "python3")
    installer = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{installer} 'blis-tui[{extra}]'"
