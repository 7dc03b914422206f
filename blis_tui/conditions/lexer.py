"""The tokens of conditions, and the display of errors in them."""

from __future__ import annotations

import re
from typing import Final

from blis_tui.classes import dataclass
from blis_tui.errors import BlisError
from blis_tui.printable import printable
from blis_tui.spec.diagnostics import cells

MAX_LENGTH: Final = 500
"""Maximum length of a condition in characters."""
_MAX_SHOWN: Final = 100
"""Longer texts are clipped around the error."""

_TOKEN: Final = re.compile(
    r"""
      (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<unit>[A-Za-zµ_]+|%)?
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign><=|>=|==|!=|[-<>+*/()\[\].])
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FOREIGN: Final = {
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not` before a condition, `!=` between two numbers",
    "=": "compare with `==`",
}


class ConditionError(BlisError):
    """A condition is invalid.

    Attributes:
        source: the condition as written.
        column: where the error starts, from 0; the text's length if something is missing at the end.
        end_column: the first column after the error.
    """

    def __init__(
        self,
        message: str,
        source: str,
        column: int,
        end_column: int = 0,
        *,
        help: str | None = None,  # noqa: A002  (as in the base)
    ) -> None:
        super().__init__(message, help=help)
        self.source = source
        self.column = column
        self.end_column = max(end_column, column + 1)

    def __str__(self) -> str:
        left = max(0, min(self.column - _MAX_SHOWN // 2, len(self.source) - _MAX_SHOWN))
        shown = self.source[left : left + _MAX_SHOWN]
        start, end = self.column - left, self.end_column - left
        mark = max(1, cells(printable(shown[start:end])))
        lines = [
            self.message,
            "  |",
            f"  | {printable(shown)}".rstrip(),
            f"  | {' ' * cells(printable(shown[:start]))}{'^' * mark}",
        ]
        if self.help:
            lines.append(f"  = help: {self.help}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Token:
    """One of ``number`` (its ``text`` without the ``unit``), ``name``, ``text`` (in quotes), ``sign`` or ``end``."""

    kind: str
    text: str
    start: int
    end: int
    unit: str = ""


def check_length(text: str) -> None:
    """Raise ConditionError if a text is longer than a condition may be."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"a condition has at most {MAX_LENGTH} characters, not {len(text)}", text, MAX_LENGTH)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a condition; the last one is always its ``end``.

    Raises:
        ConditionError: some part is not a token.
    """
    check_length(text)
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        at, word = match.start(), match.group()
        if word in ("'", '"'):
            raise ConditionError("a text without its closing quote", text, at, len(text))
        if kind == "other":
            raise ConditionError(f"`{printable(word)}` means nothing here", text, at, help=_FOREIGN.get(word))
        if kind == "unit":
            found.append(Token("number", match["number"], at, match.end(), match["unit"]))
        elif kind != "space":
            found.append(Token(kind, word, at, match.end()))
    found.append(Token("end", "", len(text), len(text)))
    return found


def unquoted(text: str) -> str:
    r"""Return the content of a quoted text: without the quotes, and without escaping ``\`` characters."""
    return _ESCAPE.sub(r"\1", text[1:-1])
