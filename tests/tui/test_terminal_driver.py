"""Keys as a terminal sends them: bytes and pauses, through the driver's own loop and Textual's parser."""

from __future__ import annotations

import os
import sys
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING

import pytest
from textual.events import Key, MouseDown, Paste

from blis_tui.tui.app import BlisApp

if TYPE_CHECKING:
    from textual.message import Message

if sys.platform == "win32":
    pytest.skip("there is another driver", allow_module_level=True)

from blis_tui.tui.drivers import TerminalDriver, TypedParser

PAUSE_S = 0.06
"""Between two keys that are typed as fast as people do; a busy machine makes it longer, which changes nothing."""


class Typed(TerminalDriver):
    """The driver without a terminal to set up: it reads from a pipe."""

    def __init__(self, fileno: int) -> None:  # its base would ask the terminal
        self.fileno = fileno
        self.exit_event = Event()
        self._debug = False
        self.messages: list[Message] = []

    def process_message(self, message: Message) -> None:
        self.messages.append(message)


def typed(*pieces: str) -> list[str]:
    """The keys that arrive when these pieces are written with pauses between them."""
    reader, writer = os.pipe()
    driver = Typed(reader)
    thread = Thread(target=driver.run_input_thread)
    thread.start()
    for piece in pieces:
        os.write(writer, piece.encode())
        sleep(PAUSE_S)
    sleep(2 * PAUSE_S)
    driver.exit_event.set()
    thread.join(20)
    assert not thread.is_alive()
    os.close(writer)
    os.close(reader)
    return [message.key if isinstance(message, Key) else type(message).__name__ for message in driver.messages]


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        (("\x1b", "["), ["escape", "left_square_bracket"]),
        (("\x1b", "[", "n", "n"), ["escape", "left_square_bracket", "n", "n"]),
        (("\x1b", "[", "F"), ["escape", "left_square_bracket", "F"]),
        (("\x1b", "O", "F"), ["escape", "O", "F"]),
        (("\x1b", "n"), ["escape", "n"]),
        (("\x1b", "\x1b", "["), ["escape", "escape", "left_square_bracket"]),
        (("\x1b",), ["escape"]),
        (("[", "\x1b[A"), ["left_square_bracket", "up"]),
        (("\x1b[F", "\x1bOF", "\x1b[1;5A"), ["end", "end", "ctrl+up"]),
        (("\x1bn",), ["alt+n"]),
        (("\x1b", "\x1b[A"), ["escape", "up"]),
        (("\x1b[<0;5;6M",), [MouseDown.__name__]),
        (("\x1b[200~two words\x1b[201~",), [Paste.__name__]),
        (("ü", "→"), ["ü", "rightwards_arrow"]),
    ],
)
def test_what_is_typed_after_escape_is_a_key_of_its_own(pieces: tuple[str, ...], keys: list[str]) -> None:
    assert [one.replace("upper_", "") for one in typed(*pieces)] == keys


def test_a_character_in_two_reads_is_one_key() -> None:
    reader, writer = os.pipe()
    driver = Typed(reader)
    thread = Thread(target=driver.run_input_thread)
    thread.start()
    for byte in "ü".encode():
        os.write(writer, bytes([byte]))
        sleep(PAUSE_S)
    driver.exit_event.set()
    thread.join(20)
    os.close(writer)
    os.close(reader)
    assert [message.character for message in driver.messages if isinstance(message, Key)] == ["ü"]


def test_the_users_patience_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a line that takes sequences apart, Textual's own setting helps."""
    assert TypedParser.read1(0.1).timeout == 0.03
    assert TypedParser.read1().timeout is None
    monkeypatch.setenv("TEXTUAL_ESCDELAY", "200")
    assert TypedParser.read1(0.2).timeout == 0.2


def test_the_application_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    assert BlisApp().get_driver_class() is TerminalDriver
