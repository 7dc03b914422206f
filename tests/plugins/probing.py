"""The example script that brings a kind of record and a pane, as it is and with a line changed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.engine.records import RECORD_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT: Final = Path(__file__).parent / "cache_probes.py"


@contextmanager
def left_as_found() -> Iterator[None]:
    """Leave no kinds of records and no modules of scripts behind."""
    known = dict(RECORD_KINDS)
    yield
    RECORD_KINDS.clear()
    RECORD_KINDS.update(known)
    for name in [name for name in sys.modules if name.startswith("blis_plugins_")]:
        del sys.modules[name]


def loaded(script: Path = SCRIPT) -> blis_tui.Experiment:
    """Requests with shared prefixes on several instances."""
    settings = {"policy.routing": "most-cached", "workload.requests": 40, "cluster.instances": 3}
    return blis_tui.load("prefix-routing", set=settings, plugins=[script])


def edited(folder: Path, old: str, new: str) -> Path:
    """The script with another line."""
    path = folder / "cache_probes.py"
    text = SCRIPT.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def at_end(experiment: blis_tui.Experiment) -> Debugger:
    """A debugger that knows the whole run."""
    made = Debugger(experiment)
    run_to_stop(made.run())
    return made
