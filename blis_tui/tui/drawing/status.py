"""The title line of the debugger: the run, the position, and the activity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import count_text, time_text
from blis_tui.debugger.state import PHASES

if TYPE_CHECKING:
    from blis_tui.debugger.history import Progress
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.model import Experiment

_ROOMY: Final = 100
"""Width from which there is room for everything."""
_NAME: Final = 20
"""Width of a name below that."""


def run_name(experiment: Experiment, width: int) -> Content:
    """Return the run's name, as far as it fits."""
    if width < _ROOMY:
        return Content.styled(experiment.name, "bold").truncate(_NAME, ellipsis=True)
    return Content.assemble((experiment.name, "bold"), (f"  seed {experiment.seed}", "$text-muted"))


def place_text(moment: DebuggerState, *, complete: bool) -> Content:
    """Return the position: time, event and number of events, phase of the step."""
    total = f" of {count_text(moment.frontier)}{'' if complete else '+'}" if moment.frontier else ""
    phase = "" if moment.phase is None or moment.phase == len(PHASES) - 1 else f" · {PHASES[moment.phase]}"
    return Content.assemble(
        ("t ", "$text-muted"),
        time_text(moment.time_us),
        ("  event ", "$text-muted"),
        count_text(moment.event),
        (total, "$text-muted"),
        (phase, "$accent"),
    )


def activity(moment: DebuggerState, *, label: str, progress: Progress | None, speed: str, warnings: int) -> Content:
    """Return the activity (running, paused, at the end), and the number of warnings."""
    if label == "running":
        state = Content.assemble(("▶ running", "$success bold"), (f" {speed}", "$text-muted"))
    elif label:
        state = Content.assemble((f"» {label}{_share(progress)}", "$accent bold"), (" escape stops", "$text-muted"))
    elif moment.at_end and moment.failure:
        state = Content.assemble(("✗ cannot continue", "$error bold"))
    elif moment.at_end:
        state = Content.assemble(("■ end", "$success bold"))
    elif moment.event == 0:
        state = Content.assemble(("○ at the start", "$text-muted"))
    elif moment.event < moment.frontier:
        state = Content.assemble(("‖ paused", "$foreground bold"), (" (earlier)", "$text-muted"))
    else:
        state = Content.assemble(("‖ paused", "$foreground bold"))
    if warnings:
        state = Content.assemble(state, (f"  ! {warnings}", "$warning bold"))
    return state


def _share(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if not progress.goal:
        return f" {count_text(progress.event)}"
    return f" {100 * progress.event // progress.goal} %"
