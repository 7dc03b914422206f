r"""The one place where results become bytes: same content, same bytes, on every Python and machine.

Keys keep their insertion order (reports are built in a fixed order). Floats are written in shortest round-trip form,
and ``-0.0`` as ``0.0``; NaN and infinities are rejected. Lines end in ``\n``. Characters that a terminal would act on
are escaped (``\u009b``): the value is the same, and harmless when printed.
"""

from __future__ import annotations

import json
from typing import Final

from blis_tui.base.text import control_characters


def to_json(value: object) -> str:
    """Return indented JSON text with a final newline.

    Raises:
        ValueError: the value contains a NaN or an infinity.
        TypeError: the value contains something that JSON cannot represent.
    """
    return _escaped(json.dumps(_normal(value), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_line(value: object) -> str:
    """Return JSON text on one line, without a line end. Raises as :func:`to_json`."""
    return _escaped(json.dumps(_normal(value), ensure_ascii=False, allow_nan=False))


def to_sorted_json(value: object) -> str:
    """Return compact JSON text with sorted keys, the same for equal content in any order. Raises as :func:`to_json`."""
    text = json.dumps(_normal(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return _escaped(text)


_AS_IT_IS: Final = (int, str, bool)


def _normal(value: object) -> object:
    """Replace every ``-0.0`` by ``0.0``."""
    if value.__class__ in _AS_IT_IS:  # the usual case
        return value
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(item) for item in value]
    return value


def _escaped(text: str) -> str:
    """Escape characters that a terminal acts on; ``json`` has escaped those below the blank already."""
    if text.isascii() and "\x7f" not in text:
        return text
    return control_characters().sub(lambda match: match[0] if match[0] == "\n" else _escape(match[0]), text)


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if char > "\x7f" else "\\u007f"
