r"""The one place where results become bytes: same content, same bytes, on every Python and machine.

Key order is the order of insertion (reports are built in a fixed order), floats are shortest round-trip, ``-0.0`` is
``0.0``, NaN and infinities are refused, lines end in ``\n``. What a terminal acts on is an escape
(``\u009b``): the same value, and harmless where it is printed.
"""

from __future__ import annotations

import json
from typing import Final

from blis_tui.printable import acted_on


def to_json(value: object) -> str:
    """Indented JSON text with a final newline.

    Raises:
        ValueError: the value holds a NaN or an infinity.
        TypeError: the value holds something that is not JSON.
    """
    return _escaped(json.dumps(_normal(value), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_line(value: object) -> str:
    """JSON text on one line, without a line end. Raises as :func:`to_json`."""
    return _escaped(json.dumps(_normal(value), ensure_ascii=False, allow_nan=False))


def to_sorted_json(value: object) -> str:
    """Compact JSON text with sorted keys: the same for equal content in any order. Raises as :func:`to_json`."""
    text = json.dumps(_normal(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return _escaped(text)


_AS_IT_IS: Final = (int, str, bool)


def _normal(value: object) -> object:
    """The value with every ``-0.0`` as ``0.0``."""
    if value.__class__ in _AS_IT_IS:  # most are
        return value
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(item) for item in value]
    return value


def _escaped(text: str) -> str:
    """JSON text without characters that a terminal acts on; ``json`` has escaped those before the blank already."""
    if text.isascii() and "\x7f" not in text:
        return text
    return acted_on().sub(lambda found: found[0] if found[0] == "\n" else _escape(found[0]), text)


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if char > "\x7f" else "\\u007f"
