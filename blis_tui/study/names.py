"""Names for a study's points."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from blis_tui.columns import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.spec.source import Json

_WIDEST: Final = 24


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path; the whole path where two end alike."""
    last = [path.rsplit(".", 1)[-1] for path in paths]
    return {path: name if last.count(name) == 1 else path for path, name in zip(paths, last, strict=True)}


def value_text(value: Json) -> str:
    """Return a coordinate as text, shortened."""
    return cut(value if isinstance(value, str) else json.dumps(value), _WIDEST)


def point_text(paths: Sequence[str], coordinates: Mapping[str, Json]) -> str:
    """Return the coordinates that distinguish a point: ``instances 2, rate_per_s 40``; empty if nothing varies.

    Args:
        paths: what varies.
        coordinates: path -> the point's value.
    """
    return ", ".join(f"{name} {value_text(coordinates.get(path))}" for path, name in short_names(paths).items())
