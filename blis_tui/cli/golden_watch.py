"""``blis-tui golden watch``: verdicts as files are saved, and single keys that decide on new results.

Files are looked at in a fixed interval; in between, the process sleeps, or waits for a key.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import BlisError
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.cli.standard_streams import print_text, results, tell
from blis_tui.golden.review import ReplacedError
from blis_tui.golden.watch import divergence_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.golden.watch import Verdict, Watch, WatchedTest

_EVERY_S: Final = 0.3
"""Time between two looks at the files."""
_ENTER: Final = ("\r", "\n")


def watch_goldens(watched: Watch, *, everything: bool) -> None:
    """Watch until `q` or a signal.

    Args:
        watched: the tests.
        everything: whether to run all of them first.

    Raises:
        BlisError: there is nothing to watch, or plug-ins cannot be loaded.
        KeyboardInterrupt: a signal.
    """
    problems = watched.begin()
    files = plural(len({test.case.spec for test in watched.tests}), "file")
    print_text(f"watching {plural(len(watched.tests), 'golden test')} in {files}")
    if watched.packages:
        tell(
            f"note: packages are imported once: after a change of {printable(', '.join(watched.packages))}, start again"
        )
    with _single_keys() as keys:
        session = _Session(watched, keys)
        session.tell(problems)
        if everything:
            session.run(watched.tests)
        session.go_on()


class _Keys:
    """Waits, and reads single keys where there is a terminal."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    @property
    def are_there(self) -> bool:
        """Whether somebody can press keys."""
        return self._terminal is not None

    def forget(self) -> None:
        """Drop keys that were pressed before the question."""
        while self._terminal is not None and select.select([self._terminal], [], [], 0)[0]:
            if not os.read(self._terminal, 1024):
                return

    def wait(self) -> str:
        """Return a key, or nothing after the interval; several may come at once, pasted or pressed in haste."""
        if self._terminal is None:
            time.sleep(_EVERY_S)
            return ""
        if not select.select([self._terminal], [], [], _EVERY_S)[0]:
            return ""
        read = os.read(self._terminal, 1024)
        if not read:  # the terminal is gone
            return "q"
        return read.decode(errors="replace").lower()


@contextmanager
def _single_keys() -> Iterator[_Keys]:
    """Within the block, let the terminal give each key at once, without showing it."""
    output = results()
    try:
        import termios  # noqa: PLC0415  (other systems have none)
        import tty  # noqa: PLC0415
    except ImportError:
        yield _Keys(None)
        return
    if sys.stdin is None or not sys.stdin.isatty() or output is None or not output.isatty():
        yield _Keys(None)
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield _Keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


class _Session:
    """What is shown, and which results wait for a decision, in order; the first is asked about."""

    def __init__(self, watched: Watch, keys: _Keys) -> None:
        self._watched = watched
        self._keys = keys
        self._undecided: dict[str, Verdict] = {}

    def go_on(self) -> None:
        """Look at the files and at keys until `q`."""
        self._ask()
        while True:
            key = self._keys.wait()
            if key == "q":
                print_text(key)
                return
            if len(key) > 1:
                print_text("one key at a time")
                self._ask()
            elif key in ("a", "s", "r", *_ENTER):
                print_text("enter" if key in _ENTER else key)
                self._press(key)
                self._ask()
            due = self._watched.look()
            if due is not None and (due.verdicts or due.tests):
                if self._keys.are_there:
                    print_text("")
                self._forget_gone()
                self.tell(due.verdicts)
                self.run(due.tests)
                self._ask()

    def _forget_gone(self) -> None:
        """Ask no more about tests whose experiment is gone or invalid."""
        there = {test.files.name for test in self._watched.tests}
        self._undecided = {name: verdict for name, verdict in self._undecided.items() if name in there}

    def tell(self, verdicts: Iterable[Verdict]) -> None:
        """Show what is known without a run."""
        for verdict in verdicts:
            self._show(verdict)

    def run(self, tests: Iterable[WatchedTest]) -> None:
        """Run tests; show each verdict, then the first new result that waits."""
        for test in tests:
            self._undecided.pop(test.files.name, None)
            verdict = self._watched.run(test)
            self._show(verdict)
            if verdict.shown is not None:
                self._undecided[verdict.name] = verdict
        self._show_first()

    def _show(self, verdict: Verdict) -> None:
        """Print a line, and on a terminal the rest of what nobody is asked about, as it is not shown again."""
        print_text(printable(verdict.line()))
        if self._keys.are_there and verdict.shown is None and "\n" in verdict.text:
            print_text(verdict.text)

    def _show_first(self) -> None:
        first = self._first
        if first is not None and self._keys.are_there:
            print_text(f"\n{first.text}")

    @property
    def _first(self) -> Verdict | None:
        return next(iter(self._undecided.values()), None)

    def _ask(self) -> None:
        if not self._keys.are_there:
            return
        self._keys.forget()
        first = self._first
        about = "" if first is None else f"{printable(first.name)}: [a]ccept  [s]kip  [enter] first divergence  "
        more = f"  ({len(self._undecided)} waiting)" if len(self._undecided) > 1 else ""
        print_text(f"{about}[r]un all  [q]uit{more}: ", nl=False)

    def _press(self, key: str) -> None:
        first = self._first
        if key == "r":
            self.run(self._watched.tests)
        elif first is None:
            print_text("no result is waiting")
        elif key in _ENTER:
            try:
                print_text(divergence_text(first))
            except BlisError as error:
                tell(str(error))
        elif key == "s":
            self._decided(first, "skipped")
        else:
            self._accept(first)

    def _accept(self, verdict: Verdict) -> None:
        if verdict.test is not None and not self._watched.is_current(verdict.test):
            print_text("a file has changed since: not accepted, it runs again")
            return
        try:
            self._watched.accept(verdict)
        except ReplacedError as error:
            tell(f"error: {error}")
            if verdict.test is not None:
                self.run([verdict.test])
        except BlisError as error:
            tell(f"error: {error}")
        else:
            self._decided(verdict, "accepted")

    def _decided(self, verdict: Verdict, what: str) -> None:
        del self._undecided[verdict.name]
        print_text(printable(f"{what} {verdict.name}"))
        self._show_first()
