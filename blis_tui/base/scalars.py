"""Plain scalars under the YAML 1.2 core schema: ``no`` is text, ``1e6`` a number, ``017`` is seventeen.

Texts are written without quotes if they are the same with and without.
"""

from __future__ import annotations

import json
import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Json

_WORDS: Final[Mapping[str, bool | None]] = MappingProxyType(
    {
        **dict.fromkeys(("~", "null", "Null", "NULL", "")),
        **dict.fromkeys(("true", "True", "TRUE"), True),
        **dict.fromkeys(("false", "False", "FALSE"), False),
    }
)
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = frozenset(
    (*(f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")), ".nan", ".NaN", ".NAN")
)
_NUMBERS_BEGIN: Final = frozenset("+-.0123456789")
_MOST_DIGITS = 30
"""More characters than any 64-bit number has; longer ones are not converted."""
_WORD: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*\Z")
"""A word that is the same in every context and version of YAML, except for those below."""
_NOT_TEXT_ELSEWHERE: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML 1.1, and therefore many tools, read as booleans."""


class ScalarError(Exception):
    """A number with valid syntax but an unusable value."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def is_text(scalar: str) -> bool:
    """Return whether a plain scalar is neither null, nor a boolean, nor a number."""
    if scalar in _WORDS:
        return False
    if scalar[0] not in _NUMBERS_BEGIN:
        return True
    return not (_INT.match(scalar) or _FLOAT.match(scalar) or scalar in _NOT_FINITE)


def plain_scalar(scalar: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar.

    Raises:
        ScalarError: a number is not finite or does not fit into 64 bits.
    """
    if scalar in _WORDS:
        return _WORDS[scalar]
    if is_text(scalar):
        return scalar
    if _INT.match(scalar):
        return _integer(scalar)
    value = math.inf if scalar in _NOT_FINITE else float(scalar)
    if not math.isfinite(value):
        raise ScalarError("BLIS0004", f"`{scalar[:40]}` is not a finite number")
    return value


def _integer(scalar: str) -> int:
    number = int(scalar, {"0o": 8, "0x": 16}.get(scalar[:2], 10)) if len(scalar) <= _MOST_DIGITS else 2**64
    if not -(2**63) <= number < 2**64:
        raise ScalarError("BLIS0015", "a whole number must fit into 64 bits")
    return number


def is_bare(text: str) -> bool:
    """Return whether a text is a plain word that never needs quotes."""
    return bool(_WORD.match(text)) and is_text(text) and text.lower() not in _NOT_TEXT_ELSEWHERE


def quoted(text: str) -> str:
    """Return a text in double quotes, with non-printable characters escaped as in YAML."""
    return "".join(char if char.isprintable() else _escape(char) for char in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def flow(value: Json) -> str:
    """Return a value on one line: ``{kind: gaussian, mean: 256}``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str):
        return value if is_bare(value) else quoted(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
